//! Null where the parent is: values hidden under a null parent are taken out of sight.
//!
//! # Invariants
//! Value buffers stay shared. Types without validity of their own (unions, run-end encoded values)
//! are rebuilt with slots that are null.
//!
//! # Cost
//! One bitmap, shared by all leaves of a parent that have no nulls of their own; a gather for types
//! without validity.

use std::sync::OnceLock;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BooleanArray, PrimitiveArray, StructArray, UInt64Array,
    downcast_primitive_array,
};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;
use std::sync::Arc;

use plait_base::{Error, Kind, Result, type_text};

/// Rows of a parent that are there.
pub(super) struct Mask {
    valid: NullBuffer,
    hidden: OnceLock<BooleanArray>,
}

impl Mask {
    /// A mask of the valid rows; none when all rows are valid.
    pub(super) fn new(valid: &Option<NullBuffer>) -> Option<Self> {
        let valid = valid.clone().filter(|valid| valid.null_count() > 0)?;
        Some(Self { valid, hidden: OnceLock::new() })
    }

    /// `array`, null where the parent is.
    pub(super) fn apply(&self, array: &ArrayRef) -> Result<ArrayRef> {
        let nulls = || NullBuffer::union(array.nulls(), Some(&self.valid));
        let array: &dyn Array = array;
        downcast_primitive_array!(
            array => Ok(Arc::new(masked(array, nulls()))),
            DataType::Null => Ok(array.slice(0, array.len())),
            DataType::Boolean => {
                let array = array.as_boolean();
                Ok(Arc::new(BooleanArray::new(array.values().clone(), nulls())))
            }
            DataType::Struct(fields) => {
                let columns = array.as_struct().columns().to_vec();
                StructArray::try_new_with_length(fields.clone(), columns, nulls(), array.len())
                    .map(|array| Arc::new(array) as ArrayRef)
                    .map_err(failed)
            }
            DataType::Union(..) | DataType::RunEndEncoded(..) => {
                let rows = (0..array.len() as u64).collect::<Vec<_>>();
                let rows = UInt64Array::new(rows.into(), Some(self.valid.clone()));
                arrow_select::take::take(array, &rows, None).map_err(|e| {
                    Error::new(Kind::Unsupported, "values that cannot be null lie under a null parent")
                        .with_got(format!("type {}", type_text(array.data_type())))
                        .with_cause(e)
                })
            }
            _ => {
                let hidden = self.hidden.get_or_init(|| {
                    BooleanArray::new(!self.valid.inner(), None)
                });
                arrow_select::nullif::nullif(array, hidden).map_err(failed)
            }
        )
    }
}

fn masked<T: arrow_array::types::ArrowPrimitiveType>(
    array: &PrimitiveArray<T>,
    nulls: Option<NullBuffer>,
) -> PrimitiveArray<T> {
    PrimitiveArray::new(array.values().clone(), nulls).with_data_type(array.data_type().clone())
}

fn failed(error: arrow_schema::ArrowError) -> Error {
    Error::new(Kind::CorruptSource, "a layer's values contradict its schema").with_cause(error)
}
