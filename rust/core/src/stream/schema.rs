//! One schema for many sources, and the way of every source's batches to it.
//!
//! ```text
//! {a: int32, b: text}   ─┐                                   ┌─ widen a, take b, c is null
//! {c: date, a: int64}   ─┴─▶ {a: int64, b: text, c: date} ──▶└─ take a, b is null, take c
//! ```
//!
//! # Invariants
//! Columns stand in the order first seen. All conflicts are reported at once. A cast that would lose
//! a value is an error, never a null. A column is not null only if it is so in every source.
//!
//! # Not here
//! Which type holds two (`crate::schema`).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, GenericListArray, MapArray, OffsetSizeTrait, RecordBatch,
    StructArray, new_null_array,
};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Field, FieldRef, Metadata, Schema, SchemaRef};

use crate::schema::supertype;
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

/// The schema that holds all of `schemas`, and for each the way to it.
///
/// # Errors
/// [`Kind::SchemaConflict`] with every conflict; [`Kind::DuplicateField`] when a schema names a column
/// twice.
pub(super) fn unite(schemas: &[SchemaRef], how: Unite) -> Result<(SchemaRef, Vec<Adapter>)> {
    let mut fields: Vec<Field> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut problems = Vec::new();
    let mut seen_in = Vec::new();
    for (i, schema) in schemas.iter().enumerate() {
        check_names(schema).map_err(|e| e.with_got(format!("in source {i}")))?;
        for field in schema.fields() {
            let Some(at) = places.get(field.name().as_str()) else {
                places.insert(field.name(), fields.len());
                fields.push(field.as_ref().clone());
                seen_in.push(1_usize);
                continue;
            };
            seen_in[*at] += 1;
            match both(&fields[*at], field, how.widen) {
                Some(field) => fields[*at] = field,
                None => problems.push(format!(
                    "`{}` is `{}` in source {i} and `{}` before",
                    field.name(),
                    field.data_type(),
                    fields[*at].data_type()
                )),
            }
        }
    }
    for (field, count) in fields.iter_mut().zip(seen_in) {
        if count == schemas.len() {
            continue;
        }
        if !how.missing {
            problems.push(format!("`{}` is in {count} of {} sources", field.name(), schemas.len()));
        }
        field.set_nullable(true);
    }
    let metadata = metadata(schemas, how.metadata, &mut problems);
    if !problems.is_empty() {
        return Err(Error::new(Kind::SchemaConflict, "sources cannot be brought to one schema")
            .with_got(problems.join("; "))
            .with_hint("cast the columns before, or leave the sources out"));
    }
    let schema = Arc::new(Schema::new_with_metadata(fields, metadata));
    let adapters = schemas.iter().map(|from| Adapter::new(from, &schema)).collect();
    Ok((schema, adapters))
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

fn both(a: &Field, b: &Field, may_widen: bool) -> Option<Field> {
    let ty = supertype(a.data_type(), b.data_type())?;
    if !may_widen && (&ty != a.data_type() || &ty != b.data_type()) {
        return None;
    }
    let of_nulls = |field: &Field| field.data_type().is_null();
    let nullable = a.is_nullable() || b.is_nullable() || of_nulls(a) != of_nulls(b);
    let mut metadata = a.metadata().clone();
    metadata.retain(|name, value| b.metadata().get(name) == Some(&*value));
    Some(Field::new(a.name(), ty, nullable).with_metadata(metadata))
}

fn metadata(schemas: &[SchemaRef], how: MetadataConflicts, to: &mut Vec<String>) -> Metadata {
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
        MetadataConflicts::Error => {
            to.extend(differing.iter().map(|name| format!("metadata `{name}` differs")));
        }
    }
    all.into()
}

/// The way of one source's batches to the schema of all.
pub(super) struct Adapter {
    from: SchemaRef,
    to: SchemaRef,
    /// For every column of the result, its place in the source.
    places: Vec<Option<usize>>,
}

impl Adapter {
    fn new(from: &SchemaRef, to: &SchemaRef) -> Self {
        let place = |field: &FieldRef| from.index_of(field.name()).ok();
        let places = to.fields().iter().map(place).collect();
        Self { from: Arc::clone(from), to: Arc::clone(to), places }
    }

    /// The columns of `batch` as the schema of all has them.
    ///
    /// # Errors
    /// [`Kind::SchemaDrift`] when the batch has other columns than its source said;
    /// [`Kind::LossyCast`] when a value does not fit.
    pub(super) fn adapt(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        self.check(&batch.schema())?;
        let mut columns = Vec::with_capacity(self.places.len());
        for (place, to) in self.places.iter().zip(self.to.fields()) {
            let column = match place {
                None => new_null_array(to.data_type(), batch.num_rows()),
                Some(i) => {
                    widen(batch.column(*i), to.data_type()).map_err(|e| e.with_column(to.name()))?
                }
            };
            if !to.is_nullable() && column.logical_null_count() > 0 {
                return Err(Error::new(Kind::SchemaDrift, "nulls in a column that has none")
                    .with_column(to.name()));
            }
            columns.push(column);
        }
        Ok(columns)
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

/// `array` as type `to`, which holds all of its values.
fn widen(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let from = array.data_type();
    if from == to {
        return Ok(Arc::clone(array));
    }
    let of_nulls = |ty: &DataType| match ty {
        DataType::Dictionary(_, values) => values.is_null(),
        other => other.is_null(),
    };
    if of_nulls(from) {
        return Ok(new_null_array(to, array.len()));
    }
    match (from, to) {
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let structs = array.as_struct();
            let mut columns = Vec::with_capacity(fields.len());
            for field in fields {
                columns.push(match structs.column_by_name(field.name()) {
                    None => new_null_array(field.data_type(), array.len()),
                    Some(column) => {
                        widen(column, field.data_type()).map_err(|e| e.with_column(field.name()))?
                    }
                });
            }
            let nulls = structs.nulls().cloned();
            let made =
                StructArray::try_new_with_length(fields.clone(), columns, nulls, array.len());
            Ok(Arc::new(made.map_err(cannot)?))
        }
        (DataType::List(_), DataType::List(item)) => list::<i32>(array, item),
        (DataType::LargeList(_), DataType::LargeList(item)) => list::<i64>(array, item),
        (DataType::FixedSizeList(..), DataType::FixedSizeList(item, size)) => {
            let lists = array.as_fixed_size_list();
            let values = widen(lists.values(), item.data_type())?;
            let nulls = lists.nulls().cloned();
            let made = FixedSizeListArray::try_new(Arc::clone(item), *size, values, nulls);
            Ok(Arc::new(made.map_err(cannot)?))
        }
        (DataType::Map(..), DataType::Map(entries, sorted)) => {
            let map = array.as_map();
            let whole: ArrayRef = Arc::new(map.entries().clone());
            let widened = widen(&whole, entries.data_type())?;
            let made = MapArray::try_new(
                Arc::clone(entries),
                map.offsets().clone(),
                widened.as_struct().clone(),
                map.nulls().cloned(),
                *sorted,
            );
            Ok(Arc::new(made.map_err(cannot)?))
        }
        _ => {
            let strict = CastOptions { safe: false, ..CastOptions::default() };
            cast_with_options(array, to, &strict).map_err(cannot)
        }
    }
}

fn list<O: OffsetSizeTrait>(array: &ArrayRef, item: &FieldRef) -> Result<ArrayRef> {
    let lists = array.as_list::<O>();
    let values = widen(lists.values(), item.data_type())?;
    let (offsets, nulls) = (lists.offsets().clone(), lists.nulls().cloned());
    let made = GenericListArray::<O>::try_new(Arc::clone(item), offsets, values, nulls);
    Ok(Arc::new(made.map_err(cannot)?))
}

fn cannot(error: arrow_schema::ArrowError) -> Error {
    Error::new(Kind::LossyCast, "a value does not fit the common type").with_cause(error)
}
