//! What sources call a leaf that the output calls otherwise.
//!
//! ```text
//! a.parquet  old #2      output  old #2
//! b.parquet  new #2                           `new` is `old`
//! ```
//!
//! # Invariants
//! A leaf has other names only where field ids say that it is the same leaf. A name that the output
//! uses, of a leaf or of a group, is the output's.
//!
//! # Not here
//! Which leaves are the same (`plait_core::schema`).

use std::collections::BTreeSet;
use std::sync::Arc;

use parquet::schema::types::SchemaDescriptor;
use serde::{Deserialize, Serialize};

use super::adapt::LeafAdapter;

/// Another name of a leaf.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Renamed {
    /// What some sources call it.
    pub(crate) from: Vec<String>,
    /// What the output calls it.
    pub(crate) to: Vec<String>,
}

/// The other names of the leaves of `output`, of classes of sources and their adapters.
pub(super) fn find<'a>(
    classes: impl Iterator<Item = (&'a SchemaDescriptor, &'a Arc<[LeafAdapter]>)>,
    output: &SchemaDescriptor,
) -> Vec<Renamed> {
    let names = |descr: &SchemaDescriptor, leaf: usize| -> Option<Vec<String>> {
        descr.columns().get(leaf).map(|column| column.path().parts().to_vec())
    };
    let own: BTreeSet<Vec<String>> =
        (0..output.num_columns()).filter_map(|leaf| names(output, leaf)).collect();
    let mut found = BTreeSet::new();
    for (descr, adapters) in classes {
        for (leaf, adapter) in adapters.iter().enumerate() {
            let (LeafAdapter::Same { leaf: at, .. } | LeafAdapter::Cast { leaf: at, .. }) = adapter
            else {
                continue;
            };
            let (Some(from), Some(to)) = (names(descr, *at), names(output, leaf)) else { continue };
            let is_own = |path: &Vec<String>| path.starts_with(&from) || from.starts_with(path);
            if from != to && !own.iter().any(is_own) {
                found.insert(Renamed { from, to });
            }
        }
    }
    found.into_iter().collect()
}
