//! What leads from one buffer into another: offsets, views, keys, ends of runs.
//!
//! # Cost
//! Loops fold whether anything is wrong, so that they are vectors; where it is, is looked for
//! afterwards.

use arrow_array::types::{Int16Type, Int32Type, Int64Type, RunEndIndexType};
use arrow_array::{ArrowPrimitiveType, downcast_integer};
use arrow_buffer::{ArrowNativeType, ScalarBuffer};
use arrow_data::{ArrayData, ByteView};
use arrow_schema::{DataType, UnionMode};

use super::column_path::{ColumnPath, broken};
use plait_base::{Error, Result};

/// Views of values that are longer have them in a buffer.
const VIEW_BYTES_MAX: u32 = 12;

/// The `len` numbers of a buffer from the array's offset on.
fn numbers<T: ArrowNativeType>(
    data: &ArrayData,
    buffer: usize,
    len: usize,
    at: &ColumnPath<'_>,
) -> Result<ScalarBuffer<T>> {
    let short = || broken(at, "a buffer is shorter than its array");
    let buffer = data.buffers().get(buffer).ok_or_else(short)?;
    let end = data.offset().checked_add(len).and_then(|end| end.checked_mul(size_of::<T>()));
    if end.is_none_or(|end| end > buffer.len()) {
        return Err(short().with_got(format!("{} bytes", buffer.len())));
    }
    if buffer.as_ptr().align_offset(align_of::<T>()) != 0 {
        return Err(broken(at, "a buffer is not aligned"));
    }
    Ok(ScalarBuffer::new(buffer.clone(), data.offset(), len))
}

/// Checks offsets that lead into `limit` values; how many of these they use.
pub(super) fn offsets<O: ArrowNativeType>(
    data: &ArrayData,
    limit: usize,
    at: &ColumnPath<'_>,
) -> Result<usize> {
    if data.is_empty() && data.buffers().first().is_none_or(|offsets| offsets.is_empty()) {
        return Ok(0);
    }
    let ends = numbers::<O>(data, 0, data.len() + 1, at)?;
    let later = ends.get(1..).unwrap_or_default();
    let falls = ends.iter().zip(later).fold(false, |falls, (a, b)| falls | (b < a));
    let (first, last) = (ends.first().copied(), ends.last().copied());
    let (first, last) = (first.unwrap_or_default(), last.unwrap_or_default());
    // What is in order is below 0 nowhere if its first is not.
    if !falls && first >= O::default() && last.to_usize().is_some_and(|last| last <= limit) {
        return Ok(last.as_usize() - first.as_usize());
    }
    let place = ends.iter().zip(later).position(|(a, b)| b < a);
    Err(match place.and_then(|i| Some((i, ends.get(i)?, ends.get(i + 1)?))) {
        Some((row, before, after)) => broken(at, "offsets go back")
            .with_row(row as u64)
            .with_got(format!("{after:?} after {before:?}")),
        None => broken(at, "offsets lead outside of the values")
            .with_got(format!("{first:?} to {last:?} of {limit} values")),
    })
}

/// Checks views of text and binary.
pub(super) fn views(data: &ArrayData, at: &ColumnPath<'_>) -> Result<()> {
    let views = numbers::<u128>(data, 0, data.len(), at)?;
    let mut lens: Vec<u64> =
        data.buffers().iter().skip(1).map(|buffer| buffer.len() as u64).collect();
    let buffers = lens.len();
    // Buffers that are not there have no bytes.
    lens.push(0);
    let leads_out = |view: u128| {
        let ByteView { length, buffer_index, offset, .. } = ByteView::from(view);
        let len = lens.get(buffers.min(buffer_index as usize)).copied().unwrap_or(0);
        (length > VIEW_BYTES_MAX) & (u64::from(offset) + u64::from(length) > len)
    };
    if !views.iter().fold(false, |out, view| out | leads_out(*view)) {
        return Ok(());
    }
    let nulls = data.nulls();
    let is_there = |row: usize| nulls.is_none_or(|nulls| nulls.is_valid(row));
    let found = views.iter().enumerate().find(|(row, view)| leads_out(**view) && is_there(*row));
    match found {
        None => Ok(()),
        Some((row, view)) => {
            let ByteView { length, buffer_index, offset, .. } = ByteView::from(*view);
            Err(broken(at, "a view leads outside of its buffers").with_row(row as u64).with_got(
                format!(
                    "{length} bytes at {offset} of buffer {buffer_index}, of {buffers} buffers"
                ),
            ))
        }
    }
}

/// Checks list views that lead into `limit` values.
pub(super) fn list_views<O: ArrowNativeType>(
    data: &ArrayData,
    limit: usize,
    at: &ColumnPath<'_>,
) -> Result<()> {
    let offsets = numbers::<O>(data, 0, data.len(), at)?;
    let sizes = numbers::<O>(data, 1, data.len(), at)?;
    // Numbers below 0 are greater than any limit.
    let leads_out = |(offset, size): (&O, &O)| {
        let (offset, size) = (offset.as_usize(), size.as_usize());
        (offset > limit) | (size > limit) | (offset.wrapping_add(size) > limit)
    };
    if !offsets.iter().zip(&*sizes).fold(false, |out, view| out | leads_out(view)) {
        return Ok(());
    }
    let row = offsets.iter().zip(&*sizes).position(leads_out).unwrap_or(0);
    Err(broken(at, "a list leads outside of its values").with_row(row as u64).with_got(format!(
        "{:?} values at {:?} of {limit}",
        sizes.get(row).copied().unwrap_or_default(),
        offsets.get(row).copied().unwrap_or_default()
    )))
}

/// Checks the keys of a dictionary of `limit` values.
pub(super) fn keys(
    data: &ArrayData,
    key: &DataType,
    limit: usize,
    at: &ColumnPath<'_>,
) -> Result<()> {
    macro_rules! of {
        ($t:ty) => {
            keys_of::<<$t as ArrowPrimitiveType>::Native>(data, limit, at)
        };
    }
    downcast_integer! {
        key => (of),
        other => Err(broken(at, "keys of a dictionary are no integers").with_got(other.to_string()))
    }
}

fn keys_of<K: ArrowNativeType>(data: &ArrayData, limit: usize, at: &ColumnPath<'_>) -> Result<()> {
    let keys = numbers::<K>(data, 0, data.len(), at)?;
    let zero = K::default();
    let bad = match K::from_usize(limit) {
        Some(limit) => keys.iter().fold(false, |bad, key| bad | (*key < zero) | (*key >= limit)),
        // There are more values than keys of this width can tell.
        None => keys.iter().fold(false, |bad, key| bad | (*key < zero)),
    };
    if !bad {
        return Ok(());
    }
    let nulls = data.nulls();
    let is_there = |row: usize| nulls.is_none_or(|nulls| nulls.is_valid(row));
    let leads_out = |key: &K| key.to_usize().is_none_or(|key| key >= limit);
    match keys.iter().enumerate().find(|(row, key)| leads_out(key) && is_there(*row)) {
        None => Ok(()),
        Some((row, key)) => Err(broken(at, "a key of a dictionary has no value")
            .with_row(row as u64)
            .with_got(format!("key {key:?} of {limit} values"))),
    }
}

/// Checks run ends for `rows` rows.
pub(super) fn run_ends(
    ends: &ArrayData,
    data_type: &DataType,
    rows: usize,
    at: &ColumnPath<'_>,
) -> Result<()> {
    if ends.null_count() > 0 {
        return Err(broken(at, "run ends are null"));
    }
    match data_type {
        DataType::Int16 => run_ends_of::<Int16Type>(ends, rows, at),
        DataType::Int32 => run_ends_of::<Int32Type>(ends, rows, at),
        DataType::Int64 => run_ends_of::<Int64Type>(ends, rows, at),
        other => Err(broken(at, "run ends have another type").with_got(other.to_string())),
    }
}

fn run_ends_of<R: RunEndIndexType>(
    data: &ArrayData,
    rows: usize,
    at: &ColumnPath<'_>,
) -> Result<()> {
    let ends = numbers::<R::Native>(data, 0, data.len(), at)?;
    let later = ends.get(1..).unwrap_or_default();
    let rises = ends.iter().zip(later).fold(true, |rises, (a, b)| rises & (a < b));
    let first = ends.first().is_none_or(|first| *first > R::Native::default());
    let last = ends.last().and_then(|last| last.to_usize()).unwrap_or(0);
    if !rises || !first {
        return Err(broken(at, "run ends do not increase"));
    }
    if last < rows {
        return Err(broken(at, "runs end before their array")
            .with_got(format!("{last} rows, {rows} needed")));
    }
    Ok(())
}

/// Checks the type ids of a union, and the offsets of a dense one, whose children have these ids and
/// lengths.
pub(super) fn union(
    data: &ArrayData,
    mode: UnionMode,
    children: &[(i8, usize)],
    at: &ColumnPath<'_>,
) -> Result<()> {
    let ids = numbers::<i8>(data, 0, data.len(), at)?;
    // Ids that no child has lead nowhere; all are bytes.
    let mut lens = [None; 1 << u8::BITS];
    for (id, len) in children {
        if let Some(place) = lens.get_mut(usize::from(id.cast_unsigned())) {
            *place = Some(*len);
        }
    }
    let len_of = |id: &i8| lens.get(usize::from(id.cast_unsigned())).copied().flatten();
    let row = match mode {
        UnionMode::Sparse => {
            let need = data.offset() + data.len();
            if let Some((_, len)) = children.iter().find(|(_, len)| *len < need) {
                return Err(broken(at, "a child is shorter than its parent needs")
                    .with_got(format!("{len} values, {need} needed")));
            }
            ids.iter().position(|id| len_of(id).is_none())
        }
        UnionMode::Dense => {
            let offsets = numbers::<i32>(data, 1, data.len(), at)?;
            let leads_out = |(id, offset): (&i8, &i32)| {
                let offset = usize::try_from(*offset).ok();
                len_of(id).zip(offset).is_none_or(|(len, offset)| offset >= len)
            };
            ids.iter().zip(&*offsets).position(leads_out)
        }
    };
    let Some(row) = row else { return Ok(()) };
    let id = ids.get(row).copied().unwrap_or_default();
    let error = |what: &str| -> Error { broken(at, what).with_row(row as u64) };
    Err(match len_of(&id) {
        None => error("a type id of a union has no type").with_got(id.to_string()),
        Some(len) => error("an offset of a union leads outside of its values")
            .with_got(format!("type id {id}, which has {len} values")),
    })
}
