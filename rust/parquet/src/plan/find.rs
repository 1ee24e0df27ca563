//! Which rows of its sources a task has: those from its lower to its upper key.
//!
//! ```text
//! start 40000 ≤ ? ≤ 65536     key(52768) < low?  ─▶ right half ─▶ … one row
//! ```
//!
//! # Invariants
//! Where a slice ends depends on the source, the key and the two rows it is looked for between:
//! the task behind finds the same row for its start.
//!
//! # Cost
//! A page of each key column a step; about as many steps as the rows between have bits.
//!
//! # Not here
//! Whether the rows found are inside of the bounds: the merge looks at its first and last key.

use std::ops::Range;
use std::sync::Arc;

use plait_core::Result;

use super::source_keys::Reading;
use super::value::{PlanTask, Slice};
use crate::keys::key_at;
use crate::source::Source;

/// The rows of `slice`, which is of `source`.
///
/// # Errors
/// Whatever is wrong with the source.
pub(crate) fn find_rows(
    task: &PlanTask,
    slice: &Slice,
    source: &Arc<Source>,
    reading: Reading<'_>,
) -> Result<Range<u64>> {
    let find = |key: Option<&[u8]>, rows: Range<u64>| match key {
        Some(key) if !rows.is_empty() => first_from(source, key, rows, reading),
        _ => Ok(rows.start),
    };
    let start = find(task.low.as_ref().map(|key| key.0.as_slice()), slice.start.0..slice.start.1)?;
    let end = find(task.high.as_ref().map(|key| key.0.as_slice()), slice.end.0..slice.end.1)?;
    Ok(start..end.max(start))
}

/// The first row from `rows.start` on whose key is not below `key`; `rows.end` if there is none
/// before. A footer that was wrong about these rows is made up for.
fn first_from(
    source: &Arc<Source>,
    key: &[u8],
    rows: Range<u64>,
    reading: Reading<'_>,
) -> Result<u64> {
    let is_below = |row: u64| -> Result<bool> {
        let found = key_at(source, reading.keys, row, reading.cache, reading.context)?;
        Ok(found.as_slice() < key)
    };
    let (mut low, mut high) = (rows.start, rows.end);
    let span = source.span();
    if low > span.start && !is_below(low - 1)? {
        low = span.start;
    }
    if high < span.end && is_below(high)? {
        high = span.end;
    }
    while low < high {
        reading.context.check_cancelled()?;
        let middle = low + (high - low) / 2;
        if is_below(middle)? {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}
