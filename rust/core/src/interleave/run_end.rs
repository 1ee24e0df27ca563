//! Run-end encoded arrays: the values of the runs are selected, not the rows.
//!
//! ```text
//! ends [3 5]  values [a b]     rows 1 2 3   ─▶   values a b, ends 2 3
//! ```
//!
//! # Invariants
//! Neighbours of one run of one array stay one run. No row is expanded.
//!
//! # Cost
//! A binary search a run of the selection, unless it goes on where its array was left; and a step a run of
//! the arrays.
//!
//! # Not here
//! Copying the values (`gather`).

use arrow_array::types::{Int16Type, Int32Type, Int64Type, RunEndIndexType};
use arrow_array::{Array, ArrayRef, RunArray};
use arrow_buffer::{ArrowNativeType, ScalarBuffer};
use arrow_schema::{DataType, FieldRef};

use super::gather::{self, Limits, mixed, typed};
use super::kernel;
use super::select::{Children, Selection, broken};
use crate::{Error, Kind, Result};

/// The selected rows, run-end encoded.
pub(super) fn gather(
    values: &[&dyn Array],
    selection: &Selection,
    ends: &FieldRef,
    out: &DataType,
    limits: Limits,
) -> Result<ArrayRef> {
    match ends.data_type() {
        DataType::Int16 => runs::<Int16Type>(values, selection, out, limits),
        DataType::Int32 => runs::<Int32Type>(values, selection, out, limits),
        DataType::Int64 => runs::<Int64Type>(values, selection, out, limits),
        _ => Err(mixed()),
    }
}

fn runs<R: RunEndIndexType>(
    values: &[&dyn Array],
    selection: &Selection,
    out: &DataType,
    limits: Limits,
) -> Result<ArrayRef> {
    let DataType::RunEndEncoded(_, field) = out else { return Err(mixed()) };
    if R::Native::from_usize(selection.len()).is_none() {
        return Err(Error::new(Kind::Unsupported, "rows do not fit the type of the run ends")
            .with_got(format!("{} rows for run ends of type `{}`", selection.len(), R::DATA_TYPE))
            .with_hint("export a stream of chunks, or encode with wider run ends"));
    }
    let arrays = typed::<RunArray<R>>(values)?;
    let lens = arrays.iter().map(|array| array.values().len()).collect();
    let mut children = Children::new(lens).with_room(selection.ranges());
    let mut ends: Vec<R::Native> = Vec::new();
    let mut done = 0;
    let mut last = None;
    // Ends, offset, and where the array was read last: merges go on from there, or a step behind it.
    let mut sources: Vec<(&[R::Native], usize, usize)> =
        arrays.iter().map(|array| (array.run_ends().values(), array.offset(), 0)).collect();
    selection.try_for_each(|array, start, len| {
        let (all, offset, place) = sources.get_mut(array).ok_or_else(mixed)?;
        let (mut at, end) = (start + *offset, start + *offset + len);
        let mut i = found(all, *place, at);
        while at < end {
            let Some(stop) = all.get(i).map(|stop| stop.as_usize()) else {
                return Err(broken("runs"));
            };
            let rows = stop.min(end) - at;
            done += rows;
            match (ends.last_mut(), last) {
                (Some(open), Some(before)) if before == (array, i) => {
                    *open = R::Native::usize_as(done);
                }
                _ => {
                    children.push(array, i, 1)?;
                    ends.push(R::Native::usize_as(done));
                }
            }
            last = Some((array, i));
            *place = i;
            at += rows;
            i += 1;
        }
        Ok(())
    })?;
    let below: Vec<&dyn Array> = arrays.iter().map(|array| &**array.values()).collect();
    let taken = gather::gather(&below, &children.finish(), field.data_type(), limits)?;
    let ends = ScalarBuffer::from(ends);
    Ok(kernel::run_ends::<R>(out.clone(), ends, taken, selection.len()))
}

/// The run of row `at`: `place` or the one behind it, if they have it.
#[inline]
fn found<N: ArrowNativeType>(ends: &[N], place: usize, at: usize) -> usize {
    let begin = place.checked_sub(1).and_then(|i| ends.get(i)).map_or(0, |end| end.as_usize());
    if at >= begin {
        for (i, end) in ends.iter().enumerate().skip(place).take(2) {
            if at < end.as_usize() {
                return i;
            }
        }
    }
    ends.partition_point(|end| end.as_usize() <= at)
}
