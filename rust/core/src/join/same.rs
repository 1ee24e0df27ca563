//! Which rows of two arrays are the same.
//!
//! # Invariants
//! Null is the same as null, NaN as NaN of the same bits; -0.0 is not 0.0: what would be written
//! differently is a change.
//!
//! # Cost
//! One comparison a value; nested values one by one.

use std::cmp::Ordering;

use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_buffer::BooleanBuffer;
use arrow_ord::cmp::not_distinct;
use arrow_ord::ord::make_comparator;
use arrow_schema::SortOptions;

use plait_base::{Error, Kind, Result};

/// For each row whether `a` and `b`, of one type and length, are the same.
pub(super) fn same(a: &ArrayRef, b: &ArrayRef) -> Result<BooleanBuffer> {
    if a.data_type().is_nested() {
        let compare = make_comparator(a, b, SortOptions::default()).map_err(incomparable)?;
        return Ok(BooleanBuffer::collect_bool(a.len(), |i| compare(i, i) == Ordering::Equal));
    }
    if a.data_type().is_null() {
        return Ok(BooleanBuffer::new_set(a.len()));
    }
    let equal: BooleanArray = not_distinct(a, b).map_err(incomparable)?;
    Ok(equal.values().clone())
}

fn incomparable(error: arrow_schema::ArrowError) -> Error {
    Error::new(Kind::Unsupported, "values of a column cannot be compared")
        .with_hint("leave the column out with columns=")
        .with_cause(error)
}
