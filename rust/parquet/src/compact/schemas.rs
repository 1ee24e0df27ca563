//! Which files may be merged by their schemas.
//!
//! ```text
//! k, a        ┐ one schema has all columns     k, a, b, and what a file lacks is null
//! k, a, b     ┘
//! k, a: text    a is no number                 apart
//! ```
//!
//! # Not here
//! How schemas become one (`schema`).

use std::collections::{BTreeMap, BTreeSet};

use plait_core::key::SortOrder;
use plait_core::plan::DropOptions;

use super::look::NamedSource;
use crate::leaf::output_leaves;
use crate::order::key_leaves;
use crate::schema::{Unite, reconcile};
use crate::source::Source;

/// What files have in common that are merged with one another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ScopeKey {
    /// The folder below the root.
    pub(super) folder: String,
    pub(super) sort_by: String,
    /// The schema of all, or of the oldest, as text.
    pub(super) schema: String,
}

/// Files by scope.
pub(super) type ByScope = BTreeMap<ScopeKey, Vec<NamedSource>>;

/// Joins files of one folder and order whose schemas can be reconciled, the oldest first.
pub(super) fn unite(scopes: ByScope, how: &Unite) -> ByScope {
    let mut by_order: BTreeMap<(String, String), Vec<_>> = BTreeMap::new();
    for (ScopeKey { folder, sort_by, schema }, files) in scopes {
        by_order.entry((folder, sort_by)).or_default().push((schema, files));
    }
    let mut joined = ByScope::new();
    for ((folder, sort_by), mut schemas) in by_order {
        let sort = SortOrder::try_parse(&sort_by).ok();
        let oldest = |files: &[NamedSource]| files.iter().map(|file| file.age).min();
        schemas.sort_by_key(|(_, files)| oldest(files));
        // Of each schema one file, and all files.
        let mut parts: Vec<(String, Vec<usize>, Vec<NamedSource>)> = Vec::new();
        for (schema, files) in schemas {
            let fits = |(_, heads, kept): &&mut (String, Vec<usize>, Vec<NamedSource>)| {
                let kept = heads.iter().filter_map(|head| kept.get(*head));
                let all: Vec<&Source> =
                    kept.chain(files.first()).map(|file| &*file.source).collect();
                sort.as_ref().is_some_and(|sort| can_be_merged(&all, sort, how))
            };
            match parts.iter_mut().find(fits) {
                Some((_, heads, kept)) => {
                    heads.push(kept.len());
                    kept.extend(files);
                }
                None => parts.push((schema, vec![0], files)),
            }
        }
        for (schema, _, mut files) in parts {
            files.sort_by_key(|file| file.age);
            let (folder, sort_by) = (folder.clone(), sort_by.clone());
            joined.insert(ScopeKey { folder, sort_by, schema }, files);
        }
    }
    joined
}

/// Whether files have the sort columns, and one schema has all of their columns.
fn can_be_merged(files: &[&Source], order: &SortOrder, how: &Unite) -> bool {
    let has_keys = |files: &[&Source]| {
        let footers: Vec<_> = files.iter().map(|s| (s.path(), s.file())).collect();
        let Ok(reconciled) = reconcile(&footers, how) else { return false };
        let leaves = output_leaves(&reconciled);
        key_leaves(order, &reconciled, &leaves).is_ok()
    };
    files.iter().all(|file| has_keys(&[*file])) && has_keys(files)
}

/// The columns that `rules` name, some of `scopes` have, and these files do not have.
pub(super) fn absent(
    rules: &DropOptions,
    files: &[NamedSource],
    everywhere: &BTreeSet<String>,
) -> Vec<String> {
    let here = columns(files);
    let is_absent = |name: &&str| everywhere.contains(*name) && !here.contains(*name);
    let found: BTreeSet<&str> = rules.columns().filter(is_absent).collect();
    found.into_iter().map(str::to_owned).collect()
}

/// The paths of the columns of files, and of those they are parts of.
pub(super) fn columns(files: &[NamedSource]) -> BTreeSet<String> {
    let schemas = files.iter().map(|file| file.source.schema());
    let mut found = BTreeSet::new();
    for schema in schemas {
        for leaf in schema.columns() {
            let parts = leaf.path().parts();
            found.extend((1..=parts.len()).filter_map(|n| Some(parts.get(..n)?.join("."))));
        }
    }
    found
}
