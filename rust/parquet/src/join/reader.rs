//! Record batches that come to a join.
//!
//! # Not here
//! What a join makes of them (`plait_core::join`).

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use plait_core::join::OPERATION;
pub use plait_core::stream::Reader;
use plait_core::{Error, Kind, Result};

/// All rows of a reader as one batch.
///
/// # Errors
/// What the reader gives; [`Kind::SchemaDrift`] when its batches differ.
pub fn whole(reader: Reader) -> Result<RecordBatch> {
    let schema = reader.schema();
    let mut batches = Vec::new();
    for batch in reader {
        let batch = batch.map_err(Error::from_arrow)?;
        if !same_columns(&batch.schema(), &schema) {
            return Err(Error::new(
                Kind::SchemaDrift,
                "batches of one step have different columns",
            ));
        }
        batches.push(batch);
    }
    match batches.as_slice() {
        [one] => Ok(one.clone()),
        all => arrow_select::concat::concat_batches(&schema, all).map_err(Error::from_arrow),
    }
}

/// The columns of changes without what they do, which not every batch says.
pub(super) fn without_operation(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().filter(|field| field.name() != OPERATION);
    Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>()))
}

pub(super) fn same_columns(a: &Schema, b: &Schema) -> bool {
    let same = |(a, b): (&arrow_schema::FieldRef, &arrow_schema::FieldRef)| {
        a.name() == b.name() && a.data_type() == b.data_type()
    };
    a.fields().len() == b.fields().len() && a.fields().iter().zip(b.fields()).all(same)
}
