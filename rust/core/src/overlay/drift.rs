//! Batches that keep to the schema of their layer, or are refused.
//!
//! ```text
//! layer   a: int64, b: string      batch   a: null,  b: string   ─▶ a is filled with nulls
//!                                  batch   a: float, b: string   ─▶ SchemaDrift
//! ```
//!
//! # Invariants
//! Nothing is cast. Only a column of the null type becomes nulls of the layer's type, at any depth.
//! Metadata of later batches is not looked at.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, GenericListArray, MapArray, OffsetSizeTrait, RecordBatch,
    StructArray, new_null_array,
};
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};

use super::path::dotted;
use crate::{Error, Kind, Result};

/// The columns of `batch` in the types of `schema`, the schema of the layer `layer`.
pub(super) fn columns(
    batch: &RecordBatch,
    schema: &SchemaRef,
    layer: &str,
) -> Result<Vec<ArrayRef>> {
    let found = batch.schema_ref();
    if Arc::ptr_eq(found, schema) || found.fields() == schema.fields() {
        return Ok(batch.columns().to_vec());
    }
    let drift = |what: String, column: &str, got: String| {
        Error::new(Kind::SchemaDrift, format!("the schema of layer `{layer}` changed: {what}"))
            .with_column(column.to_owned())
            .with_got(got)
            .with_hint("bring the batches of a layer to one schema first")
    };
    if found.fields().len() != schema.fields().len() {
        let got = format!("{} columns, first {}", found.fields().len(), schema.fields().len());
        return Err(drift("another number of columns".to_owned(), "", got));
    }
    let mut columns = Vec::with_capacity(batch.num_columns());
    for ((array, from), to) in batch.columns().iter().zip(found.fields()).zip(schema.fields()) {
        let name = dotted(&[to.name()]);
        if from.name() != to.name() {
            let got = format!("`{}`", from.name());
            return Err(drift("another column".to_owned(), &name, got));
        }
        columns.push(adapted(array, from, to).ok_or_else(|| {
            let got = format!("{}, first {}", described(from), described(to));
            drift("another type".to_owned(), &name, got)
        })?);
    }
    Ok(columns)
}

fn described(field: &Field) -> String {
    let not_null = if field.is_nullable() { "" } else { " not null" };
    format!("`{}{not_null}`", field.data_type())
}

/// `array` of field `from` as one of field `to`; none if it is another type.
fn adapted(array: &ArrayRef, from: &Field, to: &Field) -> Option<ArrayRef> {
    if from.is_nullable() && !to.is_nullable() && array.logical_null_count() > 0 {
        return None;
    }
    if array.data_type() == to.data_type() {
        return Some(Arc::clone(array));
    }
    match (array.data_type(), to.data_type()) {
        (DataType::Null, _) if to.is_nullable() || array.is_empty() => {
            Some(new_null_array(to.data_type(), array.len()))
        }
        (DataType::Struct(from), DataType::Struct(to)) if from.len() == to.len() => {
            let array = array.as_struct();
            let pairs = array.columns().iter().zip(from).zip(to);
            let columns: Option<Vec<ArrayRef>> = pairs
                .map(|((column, from), to)| {
                    (from.name() == to.name()).then(|| adapted(column, from, to)).flatten()
                })
                .collect();
            StructArray::try_new_with_length(
                to.clone(),
                columns?,
                array.nulls().cloned(),
                array.len(),
            )
            .ok()
            .map(|array| Arc::new(array) as ArrayRef)
        }
        (DataType::List(from), DataType::List(to)) => list::<i32>(array, from, to),
        (DataType::LargeList(from), DataType::LargeList(to)) => list::<i64>(array, from, to),
        (DataType::FixedSizeList(from, n), DataType::FixedSizeList(to, m)) if n == m => {
            let array = array.as_fixed_size_list();
            let values = adapted(array.values(), from, to)?;
            let nulls = array.nulls().cloned();
            let made = FixedSizeListArray::try_new_with_length(
                Arc::clone(to),
                *n,
                values,
                nulls,
                array.len(),
            );
            made.ok().map(|array| Arc::new(array) as ArrayRef)
        }
        (DataType::Map(from, a), DataType::Map(to, b)) if a == b => {
            let array = array.as_map();
            let entries: ArrayRef = Arc::new(array.entries().clone());
            let entries = adapted(&entries, from, to)?.as_struct().clone();
            let (offsets, nulls) = (array.offsets().clone(), array.nulls().cloned());
            MapArray::try_new(Arc::clone(to), offsets, entries, nulls, *a)
                .ok()
                .map(|array| Arc::new(array) as ArrayRef)
        }
        _ => None,
    }
}

fn list<O: OffsetSizeTrait>(array: &ArrayRef, from: &FieldRef, to: &FieldRef) -> Option<ArrayRef> {
    let array = array.as_list::<O>();
    let values = adapted(array.values(), from, to)?;
    let (offsets, nulls) = (array.offsets().clone(), array.nulls().cloned());
    GenericListArray::<O>::try_new(Arc::clone(to), offsets, values, nulls)
        .ok()
        .map(|array| Arc::new(array) as ArrayRef)
}

/// One schema for batches that are all known: the first one's, in which columns of the null type
/// take the type of a later batch.
///
/// Whatever else differs is left to the stream, which refuses it.
#[must_use]
pub fn settle(schemas: &[SchemaRef]) -> Option<SchemaRef> {
    let (first, rest) = schemas.split_first()?;
    let mut settled = Arc::clone(first);
    for schema in rest {
        if !Arc::ptr_eq(schema, &settled) && schema.fields().len() == settled.fields().len() {
            let fields = fields(settled.fields(), schema.fields());
            if fields != *settled.fields() {
                settled = Arc::new(Schema::new_with_metadata(fields, first.metadata().clone()));
            }
        }
    }
    Some(settled)
}

fn fields(known: &Fields, more: &Fields) -> Fields {
    if known.len() != more.len() {
        return known.clone();
    }
    known.iter().zip(more).map(|(known, more)| field(known, more)).collect()
}

fn field(known: &FieldRef, more: &FieldRef) -> FieldRef {
    if known.name() != more.name() || known.data_type() == more.data_type() {
        return Arc::clone(known);
    }
    let data_type = match (known.data_type(), more.data_type()) {
        (DataType::Null, other) => other.clone(),
        (DataType::Struct(a), DataType::Struct(b)) => DataType::Struct(fields(a, b)),
        (DataType::List(a), DataType::List(b)) => DataType::List(field(a, b)),
        (DataType::LargeList(a), DataType::LargeList(b)) => DataType::LargeList(field(a, b)),
        (DataType::FixedSizeList(a, n), DataType::FixedSizeList(b, m)) if n == m => {
            DataType::FixedSizeList(field(a, b), *n)
        }
        (DataType::Map(a, x), DataType::Map(b, y)) if x == y => DataType::Map(field(a, b), *x),
        _ => return Arc::clone(known),
    };
    Arc::new(known.as_ref().clone().with_data_type(data_type))
}
