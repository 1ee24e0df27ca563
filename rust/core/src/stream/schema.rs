//! One schema for many sources, and the way of every source's batches to it.
//!
//! ```text
//! {a: int32, b: text}   ─┐                                   ┌─ widen a, take b, c is null
//! {c: date, a: int64}   ─┴─▶ {a: int64, b: text, c: date} ──▶└─ take a, b is null, take c
//! ```
//!
//! # Invariants
//! A source keeps its schema, or the merge ends with an error. Metadata of schemas is brought together
//! here; everything else is decided by `crate::schema`, as in scans.
//!
//! # Not here
//! Which schema holds all, and how batches get there (`crate::schema`).

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{FieldRef, Metadata, Schema, SchemaRef};

use crate::schema::{self, Allow, Policy, reconcile};
use crate::{Error, Kind, Result};

/// What to do with a metadata entry on which sources differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetadataConflicts {
    /// Keep the first.
    #[default]
    First,
    /// Keep none.
    Drop,
    /// Refuse.
    Error,
}

/// What drift between sources is allowed.
#[derive(Clone, Copy, Debug)]
pub struct Unite {
    /// Whether types that differ are widened where nothing is lost.
    pub widen: bool,
    /// Whether columns absent from some sources are filled with nulls.
    pub missing: bool,
    /// Metadata entries that differ.
    pub metadata: MetadataConflicts,
}

impl Default for Unite {
    fn default() -> Self {
        Self { widen: true, missing: true, metadata: MetadataConflicts::First }
    }
}

impl Unite {
    /// The same in the words of scans.
    #[must_use]
    pub fn policy(&self) -> Policy {
        let mut policy = Policy::default();
        if !self.widen {
            policy.widen = Allow::Error;
        }
        if !self.missing {
            policy.missing = Allow::Error;
            policy.struct_field = Allow::Error;
        }
        policy
    }
}

/// The schema that holds all of `schemas`, and for each the way to it.
///
/// # Errors
/// [`Kind::SchemaConflict`] with every conflict; [`Kind::DuplicateField`] when a schema names a column
/// twice.
pub(super) fn unite(schemas: &[SchemaRef], how: Unite) -> Result<(SchemaRef, Vec<Adapter>)> {
    for (i, schema) in schemas.iter().enumerate() {
        check_names(schema).map_err(|e| e.with_got(format!("in source {i}")))?;
    }
    let frozen = reconcile(schemas, &how.policy())?;
    let metadata = metadata(schemas, how.metadata)?;
    let schema = Arc::new(frozen.schema().as_ref().clone().with_metadata(metadata));
    let way = |from: &SchemaRef| {
        let way = frozen.adapter(from)?;
        Ok(Adapter { from: Arc::clone(from), to: Arc::clone(&schema), way })
    };
    Ok((Arc::clone(&schema), schemas.iter().map(way).collect::<Result<_>>()?))
}

fn check_names(schema: &Schema) -> Result<()> {
    let mut names = std::collections::HashSet::new();
    match schema.fields().iter().find(|field| !names.insert(field.name())) {
        None => Ok(()),
        Some(twice) => Err(Error::new(Kind::DuplicateField, "two columns have one name")
            .with_column(twice.name())
            .with_hint("rename one of them")),
    }
}

fn metadata(schemas: &[SchemaRef], how: MetadataConflicts) -> Result<Metadata> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    let mut differing = std::collections::BTreeSet::new();
    for (name, value) in schemas.iter().flat_map(|schema| schema.metadata()) {
        let first = all.entry(name.clone()).or_insert_with(|| value.clone());
        if first != value {
            differing.insert(name.clone());
        }
    }
    match how {
        MetadataConflicts::First => {}
        MetadataConflicts::Drop => all.retain(|name, _| !differing.contains(name)),
        MetadataConflicts::Error if !differing.is_empty() => {
            let names: Vec<String> = differing.iter().map(|name| format!("`{name}`")).collect();
            return Err(Error::new(Kind::SchemaConflict, "metadata of sources differs")
                .with_got(names.join(", "))
                .with_hint("keep the first or drop them with `metadata_conflicts`"));
        }
        MetadataConflicts::Error => {}
    }
    Ok(all.into())
}

/// The way of one source's batches to the schema of all.
pub(super) struct Adapter {
    from: SchemaRef,
    to: SchemaRef,
    way: schema::Adapter,
}

impl Adapter {
    /// The columns of `batch`, whose first row is row `first_row` of the source, as the schema of all
    /// has them.
    ///
    /// # Errors
    /// [`Kind::SchemaDrift`] when the batch has other columns than its source said;
    /// [`Kind::LossyCast`] when a value does not fit.
    pub(super) fn adapt(&self, batch: &RecordBatch, first_row: u64) -> Result<Vec<ArrayRef>> {
        self.check(&batch.schema())?;
        for (field, column) in self.from.fields().iter().zip(batch.columns()) {
            let never_null = |to: &arrow_schema::Field| !to.is_nullable();
            let is_strict = self.to.field_with_name(field.name()).is_ok_and(never_null);
            if is_strict && column.logical_null_count() > 0 {
                return Err(Error::new(Kind::SchemaDrift, "nulls in a column that has none")
                    .with_column(field.name()));
            }
        }
        if self.way.is_identity() && self.from.fields().len() == self.to.fields().len() {
            return Ok(batch.columns().to_vec());
        }
        let adapted = self.way.apply_at(batch, first_row)?;
        Ok(adapted.columns().to_vec())
    }

    fn check(&self, found: &SchemaRef) -> Result<()> {
        if Arc::ptr_eq(found, &self.from) {
            return Ok(());
        }
        let told = |field: Option<&FieldRef>| {
            field.map_or_else(
                || "nothing".to_owned(),
                |field| format!("`{}: {}`", field.name(), field.data_type()),
            )
        };
        let (before, after) = (self.from.fields(), found.fields());
        for i in 0..before.len().max(after.len()) {
            let (a, b) = (before.get(i), after.get(i));
            let is_same = a.zip(b).is_some_and(|(a, b)| {
                a.name() == b.name() && a.data_type().equals_datatype(b.data_type())
            });
            if !is_same {
                return Err(Error::new(Kind::SchemaDrift, "the schema changed within a source")
                    .with_got(format!("{} after {}", told(b), told(a)))
                    .with_hint("give batches of different schemas as different sources"));
            }
        }
        Ok(())
    }
}
