//! One value written as text, in the type of a column.
//!
//! ```text
//! 1700000000            ─▶ as many units as the column has, of timestamps too
//! '2024-05-01 00:00'    ─▶ what Arrow reads from the text
//! ```
//!
//! # Invariants
//! The value is exactly what the text says, or an error.
//!
//! # Not here
//! Expressions around it (the shell).

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, StringArray};
use arrow_cast::{CastOptions, can_cast_types, cast_with_options};
use arrow_schema::DataType;

use plait_base::{Error, Kind, Result};

/// The value that `text` is in `data_type`, as an array of one row. Quotes (`'`) around the text
/// say that it is none of the bare numbers that times may be given as.
///
/// # Errors
/// [`Kind::InvalidArgument`] when the text is no value of the type.
pub(crate) fn literal(text: &str, data_type: &DataType) -> Result<ArrayRef> {
    let quoted = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
    let data_type = match data_type {
        DataType::Dictionary(_, values) => values,
        DataType::RunEndEncoded(_, values) => values.data_type(),
        other => other,
    };
    let given: ArrayRef = match text.parse::<i64>() {
        Ok(number) if quoted.is_none() && data_type.is_temporal() => {
            Arc::new(Int64Array::from(vec![number]))
        }
        _ => Arc::new(StringArray::from(vec![quoted.unwrap_or(text)])),
    };
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let cast = |from: &ArrayRef, to: &DataType| cast_with_options(from, to, &options).ok();
    let value = match can_cast_types(given.data_type(), data_type) {
        true => cast(&given, data_type),
        // Days and times of day of 32 bits.
        false => cast(&given, &DataType::Int32).and_then(|given| cast(&given, data_type)),
    };
    value.filter(|value| value.is_valid(0)).ok_or_else(|| {
        Error::new(Kind::InvalidArgument, "text is no value of the column's type")
            .with_got(format!("{text} for {data_type}"))
    })
}
