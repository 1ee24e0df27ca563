//! The name of a plan: what decides the bytes of its outputs, as 16 digits.
//!
//! # Invariants
//! Plans of one name make the same outputs. What only decides how, such as threads, is not in it.
//!
//! # Not here
//! Names of outputs (`output`).

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::value::Plan;
use crate::options::{IfExists, MergeOptions};
use crate::source::{Source, hexadecimal};

/// The options that decide the bytes of outputs; not paths, threads, or what only checks.
fn fixed(options: &MergeOptions) -> MergeOptions {
    MergeOptions {
        threads: None,
        verify: None,
        sha256: false,
        server_side_copy: false,
        row_map: false,
        if_exists: IfExists::Error,
        trust_footers: true,
        ..options.clone()
    }
}

/// Names the plan by what decides its outputs: sources, order, options, cuts; not threads. The
/// memory limit counts: it bounds the rows of a row group.
pub(super) fn name(plan: &Plan, sources: &[Arc<Source>]) -> String {
    let mut hash = Sha256::new();
    let mut add = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    add(b"plait task 2");
    add(plan.sort_by.as_bytes());
    add(serde_json::to_string(&fixed(&plan.options)).unwrap_or_default().as_bytes());
    for source in sources {
        add(&source.store.len().to_le_bytes());
        add(&source.footer_hash);
    }
    for task in &plan.tasks {
        add(task.high.as_ref().map_or(&[], |key| key.0.as_slice()));
        for slice in task.slices.iter().filter(|_| task.high.is_none()) {
            add(&slice.start.0.to_le_bytes());
        }
    }
    hexadecimal(hash.finalize().get(..8).unwrap_or_default())
}
