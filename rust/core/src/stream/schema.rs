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

use crate::key::{SortColumn, SortOrder};
use crate::schema::policy::Allow;
use crate::schema::{self, Frozen, SchemaPolicy, reconcile};
use plait_base::{Error, Kind, Result, type_text};

/// What to do with a metadata entry on which sources differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetadataConflicts {
    /// Keep the first.
    First,
    /// Keep none.
    #[default]
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
    /// Whether keys of sources without a sort column are null; otherwise such sources are refused.
    pub missing_keys: bool,
    /// Metadata entries that differ.
    pub metadata: MetadataConflicts,
}

impl Default for Unite {
    fn default() -> Self {
        Self { widen: true, missing: true, missing_keys: false, metadata: MetadataConflicts::Drop }
    }
}

impl Unite {
    /// The same in the words of scans.
    #[must_use]
    pub fn policy(&self) -> SchemaPolicy {
        let mut policy = SchemaPolicy::default();
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

/// One schema for all sources.
pub(super) struct United {
    pub(super) schema: SchemaRef,
    /// The way of each source to it.
    pub(super) adapters: Vec<Arc<SourceAdapter>>,
    frozen: Frozen,
    sources: Vec<SchemaRef>,
}

impl United {
    /// `order` by the names of the schema, where sources call a column otherwise.
    ///
    /// # Errors
    /// [`Kind::UnsupportedKey`] for a name that is several columns.
    pub(super) fn renamed(&self, order: &SortOrder) -> Result<SortOrder> {
        let mut columns = Vec::with_capacity(order.len());
        for column in order.columns() {
            columns.push(SortColumn { path: self.path(&column.path)?, ..column.clone() });
        }
        order.with_columns(columns)
    }

    /// The path of a column in the schema, where sources call it otherwise.
    ///
    /// # Errors
    /// As [`renamed`](Self::renamed).
    pub(super) fn path(&self, path: &[String]) -> Result<Vec<String>> {
        self.frozen.path(&self.sources, path)
    }
}

/// The schema that holds all of `schemas`, and for each the way to it.
///
/// # Errors
/// [`Kind::SchemaConflict`] with every conflict; [`Kind::DuplicateField`] when a schema names a column
/// twice.
pub(super) fn unite(schemas: &[SchemaRef], how: Unite) -> Result<United> {
    let before = |i: usize| i.checked_sub(1).and_then(|before| schemas.get(before));
    let is_same = |i: usize, schema| before(i).is_some_and(|before| Arc::ptr_eq(before, schema));
    for (i, schema) in schemas.iter().enumerate().filter(|(i, schema)| !is_same(*i, schema)) {
        check_names(schema).map_err(|e| e.with_got(format!("in source {i}")))?;
    }
    // Thousands of sources may have the very same schema.
    let are_same = schemas.iter().enumerate().skip(1).all(|(i, schema)| is_same(i, schema));
    let distinct = if are_same { schemas.get(..1).unwrap_or_default() } else { schemas };
    let frozen = reconcile(distinct, &how.policy())?;
    let metadata = metadata(distinct, how.metadata)?;
    let schema = Arc::new(frozen.schema().as_ref().clone().with_metadata(metadata));
    let way = |from: &SchemaRef| {
        let way = frozen.adapter(from)?;
        let mut never_null = vec![false; from.fields().len()];
        for (place, field) in frozen.places(from.fields()).into_iter().zip(schema.fields()) {
            if let Some(never) = place.and_then(|at| never_null.get_mut(at)) {
                *never = !field.is_nullable();
            }
        }
        let (from, to) = (Arc::clone(from), Arc::clone(&schema));
        Ok(Arc::new(SourceAdapter { from, to, way, never_null }))
    };
    let mut adapters: Vec<Arc<SourceAdapter>> = Vec::with_capacity(schemas.len());
    for from in schemas {
        let known = adapters.last().filter(|last| Arc::ptr_eq(&last.from, from)).map(Arc::clone);
        adapters.push(match known {
            Some(known) => known,
            None => way(from)?,
        });
    }
    Ok(United { schema, adapters, frozen, sources: distinct.to_vec() })
}

/// Refuses sources that lack a sort column: all their keys would be null.
///
/// `lacks` says whether source `i` lacks sort column `column`; `name` names the source.
///
/// # Errors
/// [`Kind::UnknownColumn`] naming the column and every source without it.
pub fn check_keys(
    order: &SortOrder,
    sources: usize,
    lacks: impl Fn(usize, usize) -> bool,
    name: impl Fn(usize) -> Option<String>,
) -> Result<()> {
    for (place, column) in order.columns().iter().enumerate() {
        let found: Vec<usize> = (0..sources).filter(|i| lacks(*i, place)).collect();
        let Some(first) = found.first() else { continue };
        let what = match found.len() {
            1 => "a source lacks a sort column".to_owned(),
            n => format!("{n} sources lack a sort column"),
        };
        let error = Error::new(Kind::UnknownColumn, what).with_column(column.dotted()).with_hint(
            "its keys would all be null; if that is intended, pass missing_keys=\"null\"",
        );
        let error = match name(*first) {
            Some(path) => error.with_path(path),
            None => error.in_source(*first),
        };
        if found.len() == 1 {
            return Err(error);
        }
        let shown =
            |i: &usize| name(*i).map_or_else(|| format!("source {i}"), |path| format!("`{path}`"));
        let all = found.iter().map(shown).collect::<Vec<_>>();
        return Err(error.with_got(all.join(", ")));
    }
    Ok(())
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
    // What only some sources have is not said of the rows of the others.
    let is_everywhere =
        |name: &String| schemas.iter().all(|schema| schema.metadata().contains_key(name));
    differing.extend(all.keys().filter(|name| !is_everywhere(name)).cloned());
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
pub(super) struct SourceAdapter {
    from: SchemaRef,
    to: SchemaRef,
    way: schema::Adapter,
    /// Which columns are never null in the schema of all.
    never_null: Vec<bool>,
}

impl SourceAdapter {
    /// Whether the source lacks the column at `path`, places from the root to the leaf.
    pub(super) fn lacks(&self, path: &[usize]) -> bool {
        self.way.lacks(path)
    }

    /// The columns of `batch`, whose first row is row `first_row` of the source, as the schema of all
    /// has them.
    ///
    /// # Errors
    /// [`Kind::SchemaDrift`] when the batch has other columns than its source said;
    /// [`Kind::LossyCast`] when a value does not fit.
    pub(super) fn adapt(&self, batch: &RecordBatch, first_row: u64) -> Result<Vec<ArrayRef>> {
        self.check(&batch.schema())?;
        let columns = self.from.fields().iter().zip(batch.columns());
        for ((field, column), never_null) in columns.zip(&self.never_null) {
            if *never_null && column.logical_null_count() > 0 {
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
        let shown = |field: Option<&FieldRef>| {
            field.map_or_else(
                || "nothing".to_owned(),
                |field| format!("`{}: {}`", field.name(), type_text(field.data_type())),
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
                    .with_got(format!("{} after {}", shown(b), shown(a)))
                    .with_hint("give batches of different schemas as different sources"));
            }
        }
        Ok(())
    }
}
