//! From footers to one schema, or to one error that names every conflict.
//!
//! ```text
//! sources have 2 schema conflicts: column `a`, got these differences:
//!   `a` has types that do not go together: INT64 in `x.parquet`, DOUBLE in `y.parquet`
//!   `b` was renamed: field id 3 named `b` in `x.parquet`, field id 3 named `c` in `y.parquet`
//! ```
//!
//! # Not here
//! The rules (`tree`, `leaf`, `hints`, `metadata`); the words (`plait_core::schema::conflict`).

use std::sync::Arc;

use parquet::file::metadata::FileMetaData;
use parquet::schema::types::{SchemaDescriptor, TypePtr};
use plait_core::schema::conflict;
pub(super) use plait_core::schema::conflict::Conflict as Line;
use plait_core::{Error, Kind, Result};

use super::adapt::{LeafAdapter, adapters};
use super::tree::{Conflict, Merger, fields, without_unknown};
use super::{Policy, Reconciled, hints, metadata};

/// Sources whose fields are equal.
pub(super) struct Class<'a> {
    /// The first of them.
    pub(super) source: usize,
    pub(super) descr: &'a SchemaDescriptor,
}

/// Reconciles the schemas of `sources`, given as path and footer.
///
/// # Errors
/// [`Kind::SchemaConflict`] naming all conflicts; [`Kind::InvalidArgument`] without sources.
pub fn reconcile(sources: &[(&str, &FileMetaData)], policy: &Policy) -> Result<Reconciled> {
    let mut classes: Vec<Class<'_>> = Vec::new();
    let mut class_of = Vec::with_capacity(sources.len());
    for (source, (_, footer)) in sources.iter().enumerate() {
        let descr = footer.schema_descr();
        let same = |class: &Class<'_>| equal(class.descr, descr);
        class_of.push(classes.iter().position(same).unwrap_or_else(|| {
            classes.push(Class { source, descr });
            classes.len() - 1
        }));
    }
    if classes.is_empty() {
        return Err(Error::new(
            Kind::InvalidArgument,
            "there are no sources to take a schema from",
        ));
    }
    let roots: Vec<TypePtr> = classes.iter().map(|c| c.descr.root_schema_ptr()).collect();
    let mut merger = Merger::new(policy);
    let root = merger.merge(&roots).map_err(|e| {
        Error::new(Kind::Unsupported, "merged schema cannot be expressed").with_cause(e)
    })?;
    let mut conflicts = Vec::new();
    for Conflict { column, sides, why } in merger.conflicts {
        let sides = sides.map(|(class, says)| {
            let source = classes.get(class).map_or(0, |class| class.source);
            (says, path(sources, source))
        });
        conflicts.push(Line { column, why, sides });
    }
    let Some(root) = root.filter(|_| conflicts.is_empty()) else {
        return Err(conflict::error(&conflicts));
    };
    let schema = without_unknown(&root.ty).map_err(|e| {
        Error::new(Kind::Unsupported, "merged schema cannot be expressed").with_cause(e)
    })?;
    let descr = Arc::new(SchemaDescriptor::new(Arc::clone(&schema)));
    let adapted: Vec<Arc<[LeafAdapter]>> = classes
        .iter()
        .enumerate()
        .map(|(i, class)| Ok(adapters(&root, i, class.descr)?.into()))
        .collect::<Result<_>>()?;
    let unchanged: Vec<bool> = classes.iter().map(|c| equal(c.descr, &descr)).collect();
    let unchanged: Vec<bool> =
        class_of.iter().map(|c| unchanged.get(*c).copied().unwrap_or(false)).collect();
    let (mut metadata, metadata_conflicts) =
        metadata::merge(sources, &unchanged, policy.metadata_conflicts, &mut conflicts);
    let hint = hints::merge(sources, &class_of, &classes, &descr, &metadata, &mut conflicts);
    if !conflicts.is_empty() {
        return Err(conflict::error(&conflicts));
    }
    metadata.extend(hint);
    let share = |class: &usize| adapted.get(*class).cloned().unwrap_or_else(|| Arc::new([]));
    Ok(Reconciled {
        schema,
        descr,
        leaves: class_of.iter().map(share).collect(),
        metadata,
        metadata_conflicts,
    })
}

/// Equal but for the name of the root, which says who wrote a file.
fn equal(a: &SchemaDescriptor, b: &SchemaDescriptor) -> bool {
    let (a, b) = (a.root_schema_ptr(), b.root_schema_ptr());
    Arc::ptr_eq(&a, &b) || fields(&a) == fields(&b)
}

pub(super) fn path(sources: &[(&str, &FileMetaData)], source: usize) -> String {
    sources.get(source).map_or_else(String::new, |(path, _)| (*path).to_owned())
}
