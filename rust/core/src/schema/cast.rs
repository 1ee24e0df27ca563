//! Values of one plain type as values of another, each of them checked.
//!
//! ```text
//! int64 [1, 2^40]      ─▶ int32              [1, null], row 1 does not fit
//! timestamp[us, Paris] ─▶ timestamp[us, UTC] the same instants: the zone is a label
//! ```
//!
//! # Invariants
//! A value that the other type does not hold exactly is reported with its position, and is never
//! another value.
//!
//! # Cost
//! Lossless casts: one pass and a comparison of null counts. Others: two passes.
//!
//! # Not here
//! Which casts are allowed (`convert`).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use arrow_array::{Array, ArrayRef};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, TimeUnit};

/// A value that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Misfit {
    pub(super) row: usize,
    /// Path below the field.
    pub(super) path: String,
    pub(super) value: String,
}

/// `array` as values of `to`; `exact`: the type holds them all.
pub(super) fn cast(
    array: &ArrayRef,
    to: &DataType,
    exact: bool,
    misfits: &mut Vec<Misfit>,
) -> Result<ArrayRef, ArrowError> {
    let options = CastOptions { safe: true, ..CastOptions::default() };
    let there = |array: &ArrayRef, to: &DataType| match (array.data_type(), to) {
        (DataType::Timestamp(_, zone), DataType::Timestamp(unit, other)) if zone != other => {
            // Instants stay the same, so the zone is only a label.
            let same = DataType::Timestamp(*unit, zone.clone());
            relabel(&cast_with_options(array, &same, &options)?, other.clone())
        }
        // Other types receive instants in UTC, written as an offset: names of zones need a database.
        (DataType::Timestamp(_, Some(_)), to) if !matches!(to, DataType::Timestamp(..)) => {
            cast_with_options(&relabel(array, Some("+00:00".into()))?, to, &options)
        }
        (from, DataType::Timestamp(unit, Some(zone)))
            if !matches!(from, DataType::Timestamp(..)) =>
        {
            let offset = DataType::Timestamp(*unit, Some("+00:00".into()));
            relabel(&cast_with_options(array, &offset, &options)?, Some(Arc::clone(zone)))
        }
        _ => cast_with_options(array, to, &options),
    };
    let made = there(array, to)?;
    let lost = made.logical_null_count() != array.logical_null_count();
    if exact && !lost {
        return Ok(made);
    }
    let (before, after) = (array.logical_nulls(), made.logical_nulls());
    let null =
        |nulls: &Option<arrow_buffer::NullBuffer>, i| nulls.as_ref().is_some_and(|n| n.is_null(i));
    let mut bad: Vec<usize> =
        (0..array.len()).filter(|i| null(&after, *i) && !null(&before, *i)).collect();
    if !exact {
        let back = there(&made, array.data_type())?;
        let plain = |array: &ArrayRef| match array.data_type() {
            DataType::Dictionary(_, values) => cast_with_options(array, values, &options),
            _ => Ok(Arc::clone(array)),
        };
        let same = arrow_ord::cmp::not_distinct(&plain(array)?, &plain(&back)?)?;
        bad.extend((0..array.len()).filter(|i| !same.value(*i)));
        bad.sort_unstable();
        bad.dedup();
    }
    if bad.is_empty() {
        return Ok(made);
    }
    let shown = match array.data_type() {
        DataType::Timestamp(_, Some(_)) => relabel(array, None)?,
        _ => Arc::clone(array),
    };
    let formatter = ArrayFormatter::try_new(&shown, &FormatOptions::default())?;
    // A time too far away to be written as one is written as its number.
    let number = |row: usize| -> Result<String, ArrowError> {
        let number = cast_with_options(&shown.slice(row, 1), &DataType::Int64, &options)?;
        ArrayFormatter::try_new(&number, &FormatOptions::default())?.value(0).try_to_string()
    };
    for row in &bad {
        let shown = formatter.value(*row).try_to_string();
        let value = shown.or_else(|_| number(*row))?;
        misfits.push(Misfit { row: *row, path: String::new(), value });
    }
    let mut kept = arrow_buffer::BooleanBufferBuilder::new(array.len());
    kept.append_n(array.len(), true);
    for row in bad {
        kept.set_bit(row, false);
    }
    let mask = arrow_array::BooleanArray::new(!&kept.finish(), None);
    arrow_select::nullif::nullif(&made, &mask)
}

fn relabel(array: &ArrayRef, zone: Option<Arc<str>>) -> Result<ArrayRef, ArrowError> {
    let DataType::Timestamp(unit, _) = array.data_type() else { return Ok(Arc::clone(array)) };
    Ok(match unit {
        TimeUnit::Second => {
            Arc::new(array.as_primitive::<TimestampSecondType>().clone().with_timezone_opt(zone))
        }
        TimeUnit::Millisecond => Arc::new(
            array.as_primitive::<TimestampMillisecondType>().clone().with_timezone_opt(zone),
        ),
        TimeUnit::Microsecond => Arc::new(
            array.as_primitive::<TimestampMicrosecondType>().clone().with_timezone_opt(zone),
        ),
        TimeUnit::Nanosecond => Arc::new(
            array.as_primitive::<TimestampNanosecondType>().clone().with_timezone_opt(zone),
        ),
    })
}
