//! Keys back to Arrow arrays, a column each.
//!
//! ```text
//! keys     01 6F 70 00 00 │ 01 80 00 00 07      arrays   utf8: "op"   int32: 7
//! ```
//!
//! # Invariants
//! The inverse of `encode_arrow`, but for what keys do not tell apart: -0.0 becomes 0.0, and every NaN
//! the quiet one.
//!
//! # Cost
//! One value at a time, then a cast of each column to its type.
//!
//! # Not here
//! The values of one key (`decode`).

use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Decimal256Array, Float32Array, Float64Array, Int64Array,
    NullArray, UInt64Array,
};
use arrow_buffer::i256;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DECIMAL256_MAX_PRECISION, DataType};

use super::decode::decode;
use super::field::KeyValue;
use super::shape::{KeyShape, KeyType};
use plait_base::{Error, Kind, Result, type_text};

/// The columns of `keys`, an array of binary, as arrays of `types`.
///
/// # Errors
/// [`Kind::InvalidArgument`] when `keys` are no binary or have nulls; [`Kind::CorruptSource`] for a key
/// that is none of `shape`; [`Kind::UnsupportedKey`] for a type that keys are not cast to.
pub fn decode_arrow(
    shape: &KeyShape,
    types: &[DataType],
    keys: &ArrayRef,
) -> Result<Vec<ArrayRef>> {
    let refused = |got: String| {
        Err(Error::new(Kind::InvalidArgument, "keys are not binary without nulls").with_got(got))
    };
    let is_binary = matches!(
        keys.data_type(),
        DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_)
    );
    if !is_binary {
        return refused(format!("`{}`", type_text(keys.data_type())));
    }
    if keys.null_count() > 0 {
        return refused(format!("{} nulls", keys.null_count()));
    }
    let keys = cast(keys, &DataType::LargeBinary).map_err(Error::from_arrow)?;
    let keys = keys.as_binary::<i64>();
    let mut columns = vec![Vec::with_capacity(keys.len()); shape.columns().len()];
    for (row, key) in keys.iter().enumerate() {
        let values = decode(shape, key.unwrap_or_default()).map_err(|e| e.with_row(row as u64))?;
        for (column, value) in columns.iter_mut().zip(values) {
            column.push(value);
        }
    }
    let named = shape.columns().iter().zip(types).zip(columns);
    named
        .map(|((column, to), values)| {
            array(column.ty, &values).and_then(|array| narrowed(&array, to)).map_err(|e| {
                Error::new(Kind::UnsupportedKey, "keys do not become values of the type")
                    .with_column(&column.name)
                    .with_got(format!("`{}`", type_text(to)))
                    .with_cause(e)
            })
        })
        .collect()
}

/// The values in the widest type of their kind.
fn array(ty: KeyType, values: &[KeyValue]) -> Result<ArrayRef, ArrowError> {
    let all = values.iter();
    Ok(match ty {
        KeyType::Null => Arc::new(NullArray::new(values.len())),
        KeyType::Boolean => Arc::new(BooleanArray::from_iter(all.map(|value| match value {
            KeyValue::Boolean(value) => Some(*value),
            _ => None,
        }))),
        KeyType::UInt32 | KeyType::UInt64 => {
            Arc::new(UInt64Array::from_iter(all.map(|value| match value {
                KeyValue::UInt(value) => Some(*value),
                _ => None,
            })))
        }
        KeyType::Float16 | KeyType::Float32 => {
            Arc::new(Float32Array::from_iter(all.map(|value| match value {
                KeyValue::Float32(value) => Some(*value),
                _ => None,
            })))
        }
        KeyType::Float64 => Arc::new(Float64Array::from_iter(all.map(|value| match value {
            KeyValue::Float(value) => Some(*value),
            _ => None,
        }))),
        KeyType::Decimal128 { scale } | KeyType::Decimal256 { scale } => {
            let unscaled = all.map(|value| match value {
                KeyValue::Decimal { unscaled, .. } => Some(*unscaled),
                _ => None::<i256>,
            });
            let scale = i8::try_from(scale).unwrap_or(i8::MAX);
            let made = Decimal256Array::from_iter(unscaled);
            Arc::new(made.with_precision_and_scale(DECIMAL256_MAX_PRECISION, scale)?)
        }
        KeyType::Bytes { .. } => {
            let mut bytes = BinaryBuilder::new();
            for value in all {
                match value {
                    KeyValue::Text(text) => bytes.append_value(text.as_bytes()),
                    KeyValue::Bytes(value) => bytes.append_value(value),
                    _ => bytes.append_null(),
                }
            }
            Arc::new(bytes.finish())
        }
        _ => Arc::new(Int64Array::from_iter(all.map(|value| match value {
            KeyValue::Int(value) => Some(*value),
            _ => None,
        }))),
    })
}

/// The values as those of the type that they had.
fn narrowed(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    match to {
        DataType::Date32 | DataType::Time32(_) => cast(&cast(array, &DataType::Int32)?, to),
        DataType::Dictionary(_, values) => cast(&narrowed(array, values)?, to),
        DataType::RunEndEncoded(_, values) => cast(&narrowed(array, values.data_type())?, to),
        _ => cast(array, to),
    }
}

/// A cast that loses no value.
fn cast(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(array, to, &options)
}
