//! Run-end encoded arrays: the values of the runs are selected, not the rows.
//!
//! ```text
//! ends [3 5]  values [a b]     rows 1 2 3   ─▶   values a b, ends 2 3
//! ```
//!
//! # Invariants
//! Neighbours of one run of one array stay one run. No value is expanded.
//!
//! # Cost
//! Single rows: a table of the runs, 4 bytes for each row between the first and the last selected
//! row, and one look-up for each selected row. Runs of rows, or a table that would be large next to
//! the selection: a binary search for each run of the selection, unless it continues where its
//! array was left, and a step for each run of the arrays.
//!
//! # Not here
//! Copying the values (`gather`).

use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::{Int16Type, Int32Type, Int64Type, RunEndIndexType};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, RunArray, UInt32Array};
use arrow_buffer::{ArrowNativeType, ScalarBuffer};
use arrow_schema::{DataType, FieldRef};

use crate::kernel;
use crate::levels::{Levels, mixed, typed};
use crate::lower::{self, RowCost};
use crate::select::{Children, Rows, Selection, broken, narrow};
use plait_base::{Error, Kind, Result, type_text};

/// Runs of fewer rows in the mean are looked up row by row. Crossover measured by the bench
/// `interleave`.
const SINGLE_RUN_ROWS: usize = 4;

/// The selected rows, run-end encoded.
pub(crate) fn gather(
    values: &[&dyn Array],
    selection: &Selection,
    ends: &FieldRef,
    out: &DataType,
    levels: Levels,
) -> Result<ArrayRef> {
    match ends.data_type() {
        DataType::Int16 => runs::<Int16Type>(values, selection, out, levels),
        DataType::Int32 => runs::<Int32Type>(values, selection, out, levels),
        DataType::Int64 => runs::<Int64Type>(values, selection, out, levels),
        _ => Err(mixed()),
    }
}

fn runs<R: RunEndIndexType>(
    values: &[&dyn Array],
    selection: &Selection,
    out: &DataType,
    levels: Levels,
) -> Result<ArrayRef> {
    let DataType::RunEndEncoded(_, field) = out else { return Err(mixed()) };
    if R::Native::from_usize(selection.len()).is_none() {
        return Err(Error::new(Kind::Unsupported, "rows do not fit the type of the run ends")
            .with_got(format!(
                "{} rows for run ends of type `{}`",
                selection.len(),
                type_text(&R::DATA_TYPE)
            ))
            .with_hint("export a stream of chunks, or encode with wider run ends"));
    }
    let arrays = typed::<RunArray<R>>(values)?;
    let lens: Vec<usize> = arrays.iter().map(|array| array.values().len()).collect();
    let below: Vec<&dyn Array> = arrays.iter().map(|array| &**array.values()).collect();
    if let Some(rows) = selection.as_rows(SINGLE_RUN_ROWS)
        && let Some((ends, taken)) = single_rows(&arrays, &lens, selection, &rows)?
    {
        let taken = levels.gather(&below, &taken, field.data_type())?;
        return Ok(kernel::run_ends::<R>(out.clone(), ends.into(), taken, selection.len()));
    }
    let mut children = Children::new(lens).with_room(selection.ranges());
    let mut ends: Vec<R::Native> = Vec::new();
    let mut done = 0;
    let mut last = None;
    // Ends, offset, and where the array was read last: merges go on from there, or a step behind
    // it.
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
    let taken = levels.gather(&below, &children.finish(), field.data_type())?;
    let ends = ScalarBuffer::from(ends);
    Ok(kernel::run_ends::<R>(out.clone(), ends, taken, selection.len()))
}

/// A table of the runs of all rows pays if it has at most as many rows for each one that is
/// selected, and for each run: else there is little to select, or few ends to search.
const TABLE_ROWS_MAX: usize = 8;

/// Ends of the runs that leave, and the values that they have.
type Ends<R> = (Vec<<R as ArrowPrimitiveType>::Native>, Selection<'static>);

/// Single rows, looked up in a table of the run of every row; `None` where a table does not pay.
fn single_rows<R: RunEndIndexType>(
    arrays: &[&RunArray<R>],
    lens: &[usize],
    selection: &Selection,
    rows: &Rows,
) -> Result<Option<Ends<R>>> {
    let runs: usize = lens.iter().sum();
    let most = TABLE_ROWS_MAX.saturating_mul(selection.len().min(runs));
    let mut spans: Vec<Range<usize>> = arrays.iter().map(|array| 0..array.len()).collect();
    if spans.iter().map(Range::len).sum::<usize>() > most {
        // A table of what is between the first and the last row of each array, as a merge has them.
        spans = between(arrays.len(), rows);
    }
    if spans.iter().map(Range::len).sum::<usize>() > most || !narrow(lens) {
        return Ok(None);
    }
    let mut table = Vec::new();
    let mut bases = Vec::with_capacity(arrays.len());
    for (array, span) in arrays.iter().zip(&spans) {
        bases.push(table.len().wrapping_sub(span.start));
        add_runs(&mut table, array, span)?;
    }
    // Each row is written; the next one overwrites it if it goes on with the same run. No branch a
    // row.
    let len = selection.len();
    let (mut sources, mut places) = (vec![0_u32; len], vec![0_u32; len]);
    let mut ends = vec![R::Native::default(); len];
    let (mut count, mut before) = (0_usize, None);
    let (all_arrays, all_rows) = rows.as_slices();
    for (i, (array, row)) in all_arrays.iter().zip(all_rows).enumerate() {
        let at = bases.get(*array as usize).map(|base| base.wrapping_add(*row as usize));
        let place = *at.and_then(|at| table.get(at)).ok_or_else(mixed)?;
        count += usize::from(before != Some((*array, place)));
        before = Some((*array, place));
        let at = count - 1;
        if let (Some(source), Some(to), Some(end)) =
            (sources.get_mut(at), places.get_mut(at), ends.get_mut(at))
        {
            (*source, *to, *end) = (*array, place, R::Native::usize_as(i + 1));
        }
    }
    sources.truncate(count);
    places.truncate(count);
    ends.truncate(count);
    let sources: ArrayRef = Arc::new(UInt32Array::from(sources));
    let places: ArrayRef = Arc::new(UInt32Array::from(places));
    Ok(Some((ends, lower::lower(&sources, &places, lens.to_vec(), RowCost::Other)?)))
}

/// From the first to the last row that is selected of each of `count` arrays.
fn between(count: usize, rows: &Rows) -> Vec<Range<usize>> {
    let mut spans = vec![Range { start: usize::MAX, end: 0 }; count];
    for (array, row) in rows.iter() {
        if let Some(span) = spans.get_mut(array) {
            *span = span.start.min(row)..span.end.max(row + 1);
        }
    }
    spans
}

/// Adds the run of every row of `span`.
fn add_runs<R: RunEndIndexType>(
    table: &mut Vec<u32>,
    array: &RunArray<R>,
    span: &Range<usize>,
) -> Result<()> {
    if span.is_empty() {
        return Ok(());
    }
    let done = table.len();
    let (first, len) = (array.offset() + span.start, span.len());
    table.reserve(len + TABLE_STEP);
    let ends = array.run_ends().values();
    let before = ends.partition_point(|end| end.as_usize() <= first);
    for (run, end) in (0..).zip(ends).skip(before) {
        let end = done + end.as_usize().saturating_sub(first).min(len);
        // In steps of known length, the last of which is cut off: most runs are short.
        while table.len() < end {
            table.extend_from_slice(&[run; TABLE_STEP]);
        }
        table.truncate(end);
        if end == done + len {
            return Ok(());
        }
    }
    Err(broken("runs"))
}

/// Rows of a run that are written at once.
const TABLE_STEP: usize = 8;

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
