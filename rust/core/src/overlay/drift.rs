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
//!
//! # Not here
//! Which types are filled, and how (`crate::schema`).

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, FieldRef, Fields, Schema, SchemaRef};

use super::path::dotted;
use crate::schema::{fill, filled, has_nulls};
use plait_base::{Error, Kind, Result, type_text};

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
        columns.push(fill(array, from, to).ok_or_else(|| {
            let got = format!("{}, first {}", described(from), described(to));
            drift("another type".to_owned(), &name, got)
        })?);
    }
    Ok(columns)
}

fn described(field: &Field) -> String {
    let not_null = if field.is_nullable() { "" } else { " not null" };
    format!("`{}{not_null}`", type_text(field.data_type()))
}

/// One schema for batches that are all known: the first one's, in which columns of the null type
/// take the type of a later batch.
///
/// Whatever else differs is left to the stream, which refuses it.
#[must_use]
pub fn common_schema(schemas: &[SchemaRef]) -> Option<SchemaRef> {
    let (first, rest) = schemas.split_first()?;
    let mut common = Arc::clone(first);
    for schema in rest {
        if !Arc::ptr_eq(schema, &common) && schema.fields().len() == common.fields().len() {
            let fields = fields(common.fields(), schema.fields());
            if fields != *common.fields() {
                common = Arc::new(Schema::new_with_metadata(fields, first.metadata().clone()));
            }
        }
    }
    Some(common)
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
    if !has_nulls(known.data_type()) {
        return Arc::clone(known);
    }
    match filled(known.data_type(), more.data_type()) {
        Some(ty) => Arc::new(known.as_ref().clone().with_data_type(ty)),
        None => Arc::clone(known),
    }
}
