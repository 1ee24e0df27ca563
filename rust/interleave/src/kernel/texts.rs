//! Values of many lengths: text, binary, and the elements of lists where these are of fixed width.
//!
//! ```text
//! offsets 0 2 2 5     rows 2, 0     new offsets 0 3 5     values 2..5, then 0..2
//! ```
//!
//! # Invariants
//! As in the file above. Lengths are added up by one pass over the offsets and copied by another,
//! over the same.
//!
//! # Cost
//! A row is two offsets, one written, and a copy of one or two vectors where it is short.
//!
//! # Not here
//! Elements that have levels of their own (`nested`).

#![expect(unsafe_code, reason = "fenced: see `kernel`")]

use arrow_array::types::ByteArrayType;
use arrow_array::{Array, GenericByteArray, OffsetSizeTrait};
use arrow_buffer::{ArrowNativeType, Buffer, MutableBuffer, OffsetBuffer, ScalarBuffer};

use super::{SLACK, Vectored, byte_array, copy, prefetch, start, vectored};
use crate::select::{Form, Selection};

/// Arrays of bytes of any length: offsets and values.
pub(crate) type Texts<'a, I> = (&'a OffsetBuffer<I>, &'a [u8]);

/// The selected values with their offsets; `None` if an offset would be above `max`.
pub(crate) fn bytes<I: ArrowNativeType, O: ArrowNativeType>(
    sources: &[Texts<'_, I>],
    selection: &Selection,
    max: usize,
) -> Option<(OffsetBuffer<O>, Buffer)> {
    spans(sources, 1, selection, max)
}

/// The selected lists of elements of `width` bytes, with offsets that count elements.
pub(crate) fn elements<I: ArrowNativeType, O: ArrowNativeType>(
    sources: &[Texts<'_, I>],
    width: usize,
    selection: &Selection,
    max: usize,
) -> Option<(OffsetBuffer<O>, Buffer)> {
    match width {
        4 => spans(sources, 4, selection, max),
        8 => spans(sources, 8, selection, max),
        width => spans(sources, width, selection, max),
    }
}

#[inline(always)]
fn spans<I: ArrowNativeType, O: ArrowNativeType>(
    sources: &[Texts<'_, I>],
    width: usize,
    selection: &Selection,
    max: usize,
) -> Option<(OffsetBuffer<O>, Buffer)> {
    for ((offsets, values), limit) in sources.iter().zip(selection.limits()) {
        let offsets: &[I] = offsets;
        assert!(*limit < offsets.len(), "array is too short");
        // Offsets ascend, as `OffsetBuffer` promises: the first and the last bound all others.
        let last = offsets.last().map_or(0, |last| last.as_usize());
        let end = last.checked_mul(width);
        assert!(end.is_some_and(|end| end <= values.len()), "values are too short");
    }
    assert!(sources.len() >= selection.limits().len(), "an array is missing");
    let mut out: Vec<O> = Vec::with_capacity(selection.len() + 1);
    // `out` has room for one offset a row and the first, and the assertions above proved that a
    // limit is below the number of offsets.
    let total = vectored(Ends { sources, selection, next: out.as_mut_ptr() })?;
    // SAFETY: all were written.
    unsafe { out.set_len(selection.len() + 1) };
    if total > max {
        return None;
    }
    let bytes = total.checked_mul(width)?;
    let mut values = MutableBuffer::with_capacity(bytes.checked_add(SLACK)?);
    let out_values = values.as_mut_ptr();
    vectored(Copies { sources, width, selection, out: out_values, bytes });
    // SAFETY: the pass before added up the lengths of the same values.
    unsafe { values.set_len(bytes) };
    // SAFETY: offsets begin with 0 and ascend: they are sums of lengths; the last, and so all, fit.
    let offsets = unsafe { OffsetBuffer::new_unchecked(ScalarBuffer::from(out)) };
    Some((offsets, values.into()))
}

/// Writes the offsets of the values that leave, and tells the last; those that do not fit are cut
/// off. `None` if the last is not even a number of bytes.
///
/// Made by [`spans`] alone, which proved that limits are below the number of offsets; `next` has
/// room for one more than rows.
struct Ends<'a, I: ArrowNativeType, O> {
    sources: &'a [Texts<'a, I>],
    selection: &'a Selection<'a>,
    next: *mut O,
}

impl<I: ArrowNativeType, O: ArrowNativeType> Vectored for Ends<'_, I, O> {
    type Out = Option<usize>;

    #[inline(always)]
    fn run(self) -> Option<usize> {
        let Self { sources, selection, mut next } = self;
        // Lengths are those of buffers, below half of all numbers: a sum cannot leap over the other
        // half.
        let (mut total, mut any) = (0_usize, 0_usize);
        // SAFETY: `Selection` proved that every selected row is below its limit; `spans`, the rest.
        unsafe {
            next.write(O::usize_as(0));
            match selection.form() {
                Form::Rows(rows) => {
                    let bases: Vec<*const I> = sources.iter().map(|(o, _)| o.as_ptr()).collect();
                    each_row!(rows.as_slices(), |array, row| {
                        debug_assert!(row + 1 < sources[array].0.len());
                        let ends = (*bases.get_unchecked(array)).add(row);
                        let len = (*ends.add(1)).as_usize() - (*ends).as_usize();
                        total = total.wrapping_add(len);
                        any |= total;
                        next = next.add(1);
                        next.write(O::usize_as(total));
                    });
                }
                Form::Runs(runs) => {
                    for run in runs.iter() {
                        let offsets: &[I] = sources.get_unchecked(run.source.0 as usize).0;
                        let (first, rows) = (start(run), run.len as usize);
                        let ends = offsets.get_unchecked(first..=first + rows);
                        let first = ends.first().map_or(0, |first| first.as_usize());
                        let delta = total.wrapping_sub(first);
                        for (i, end) in ends.get_unchecked(1..).iter().enumerate() {
                            let end = end.as_usize();
                            // Sums as wide as the offsets that are written: more are in a vector.
                            #[expect(clippy::cast_possible_truncation, reason = "cut off as said")]
                            let end = if size_of::<O>() == size_of::<u32>() {
                                (end as u32).wrapping_add(delta as u32) as usize
                            } else {
                                end.wrapping_add(delta)
                            };
                            next.add(1 + i).write(O::usize_as(end));
                        }
                        next = next.add(rows);
                        total = ends.last().map_or(0, |last| last.as_usize()).wrapping_add(delta);
                        any |= total;
                    }
                }
            }
        }
        (any <= usize::MAX >> 1).then_some(total)
    }
}

/// Values of as many bytes stay in a cache near the processor; tests have few of them.
const NEAR: usize = if cfg!(test) { 64 } else { 1 << 20 };

/// Rows whose values are fetched before the rows in front of them are copied: copies of lengths
/// that are not foreseen do not overlap, fetches do.
const AHEAD: usize = 32;

/// The rows from `start` on, at most [`AHEAD`]; none behind the last.
#[inline(always)]
fn ahead<'a>(arrays: &'a [u32], rows: &'a [u32], start: usize) -> (&'a [u32], &'a [u32]) {
    let end = arrays.len().min(start + AHEAD);
    arrays.get(start..end).zip(rows.get(start..end)).unwrap_or_default()
}

/// Made by [`spans`] alone, which proved that all offsets are inside of their values, and that
/// `out` has room for `bytes` and the slack.
struct Copies<'a, I: ArrowNativeType> {
    sources: &'a [Texts<'a, I>],
    width: usize,
    selection: &'a Selection<'a>,
    out: *mut u8,
    bytes: usize,
}

impl<'a, I: ArrowNativeType> Vectored for Copies<'a, I> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let Self { sources, width, selection, out, bytes } = self;
        let mut done = 0;
        // SAFETY: `spans` proved that offsets lead into their values, and `Selection` that rows
        // have offsets; these ascend, and their lengths add up to `bytes`.
        unsafe {
            match selection.form() {
                Form::Rows(rows) => {
                    let are_far = sources.iter().map(|source| source.1.len()).sum::<usize>() > NEAR;
                    let base = |(offsets, source): &Texts<'a, I>| (offsets.as_ptr(), *source);
                    let bases: Vec<(*const I, &[u8])> = sources.iter().map(base).collect();
                    let (arrays, numbers) = rows.as_slices();
                    for block in (0..arrays.len()).step_by(AHEAD) {
                        if are_far {
                            each_row!(ahead(arrays, numbers, block + AHEAD), |array, row| {
                                debug_assert!(row < sources[array].0.len());
                                let (ends, source) = bases.get_unchecked(array);
                                let from = (*ends.add(row)).as_usize() * width;
                                prefetch(source.as_ptr().add(from));
                            });
                        }
                        each_row!(ahead(arrays, numbers, block), |array, row| {
                            debug_assert!(row + 1 < sources[array].0.len());
                            let (ends, source) = bases.get_unchecked(array);
                            let ends = ends.add(row);
                            let from = (*ends).as_usize() * width;
                            let len = (*ends.add(1)).as_usize() * width - from;
                            copy(source, from, out.add(done), len, bytes - done);
                            done += len;
                        });
                    }
                }
                Form::Runs(runs) => {
                    for run in runs.iter() {
                        let (offsets, source) = sources.get_unchecked(run.source.0 as usize);
                        let (first, rows) = (start(run), run.len as usize);
                        let from = offsets.get_unchecked(first).as_usize() * width;
                        let len = offsets.get_unchecked(first + rows).as_usize() * width - from;
                        copy(source, from, out.add(done), len, bytes - done);
                        done += len;
                    }
                }
            }
        }
        debug_assert_eq!(done, bytes, "lengths do not add up");
    }
}

/// All values of all `arrays`, one array behind the other; `None` if one may be null, or an offset
/// would be above `max`.
pub(crate) fn joined<T: ByteArrayType>(
    arrays: &[&GenericByteArray<T>],
    max: usize,
) -> Option<GenericByteArray<T>> {
    let (mut rows, mut bytes) = (0_usize, 0_usize);
    for array in arrays {
        if array.nulls().is_some() {
            return None;
        }
        let ends = array.value_offsets();
        rows = rows.checked_add(ends.len() - 1)?;
        bytes = bytes.checked_add((*ends.last()? - *ends.first()?).as_usize())?;
    }
    if bytes > max {
        return None;
    }
    let mut offsets: Vec<T::Offset> = Vec::with_capacity(rows + 1);
    let mut values = Vec::with_capacity(bytes);
    offsets.push(T::Offset::default());
    for array in arrays {
        let [first, ends @ ..] = array.value_offsets() else { return None };
        // No offset is negative: neither sum nor difference overflows, and sums are at most `max`.
        let shift = T::Offset::usize_as(values.len()) - *first;
        offsets.extend(ends.iter().map(|end| *end + shift));
        let last = ends.last().unwrap_or(first);
        values.extend_from_slice(array.value_data().get(first.as_usize()..last.as_usize())?);
    }
    // SAFETY: offsets begin with 0, and each array adds as much to all of its own, which ascend, as
    // values were there before it.
    let offsets = unsafe { OffsetBuffer::new_unchecked(ScalarBuffer::from(offsets)) };
    Some(byte_array::<T>(offsets, Buffer::from_vec(values), None))
}

/// `offsets`, if they begin with 0 or above and ascend.
pub(crate) fn offsets<O: OffsetSizeTrait>(offsets: Vec<O>) -> Option<OffsetBuffer<O>> {
    let falls = offsets.iter().zip(offsets.get(1..)?).fold(false, |any, (a, b)| any | (b < a));
    if falls || *offsets.first()? < O::zero() {
        return None;
    }
    // SAFETY: there is a first offset, which is not negative, and none is below the one before it.
    Some(unsafe { OffsetBuffer::new_unchecked(offsets.into()) })
}

/// Lists that may share elements: offsets, sizes, and elements of some width.
pub(crate) type Views<'a, I> = (&'a [I], &'a [I], &'a [u8]);

/// Offsets, sizes and elements.
pub(crate) type ListViews<O> = (Vec<O>, Vec<O>, Buffer);

/// The selected lists, each with elements of its own, `count` of `width` bytes in all.
///
/// `None` if lists lead outside of their elements or have more than `count`.
pub(crate) fn list_views<I: OffsetSizeTrait, O: OffsetSizeTrait>(
    sources: &[Views<'_, I>],
    width: usize,
    selection: &Selection,
    count: usize,
) -> Option<ListViews<O>> {
    for ((offsets, sizes, _), limit) in sources.iter().zip(selection.limits()) {
        assert!(*limit <= offsets.len() && *limit <= sizes.len(), "array is too short");
    }
    assert!(sources.len() >= selection.limits().len(), "an array is missing");
    let bytes = count.checked_mul(width)?;
    let rows = selection.len();
    let (mut offsets, mut sizes) = (Vec::<O>::with_capacity(rows), Vec::<O>::with_capacity(rows));
    let mut values = MutableBuffer::with_capacity(bytes.checked_add(SLACK)?);
    let lists = Lists {
        sources,
        width,
        selection,
        out: (offsets.as_mut_ptr(), sizes.as_mut_ptr(), values.as_mut_ptr()),
        bytes,
    };
    let done = vectored(lists)?;
    // SAFETY: `Lists` wrote an offset and a size a row, and as many bytes as it tells.
    unsafe {
        offsets.set_len(rows);
        sizes.set_len(rows);
        values.set_len(done);
    }
    Some((offsets, sizes, values.into()))
}

/// Made by [`list_views`] alone: `out` has room for an offset and a size a row, and `bytes` with
/// slack.
struct Lists<'a, I, O> {
    sources: &'a [Views<'a, I>],
    width: usize,
    selection: &'a Selection<'a>,
    out: (*mut O, *mut O, *mut u8),
    bytes: usize,
}

impl<I: OffsetSizeTrait, O: OffsetSizeTrait> Vectored for Lists<'_, I, O> {
    type Out = Option<usize>;

    #[inline(always)]
    fn run(self) -> Option<usize> {
        match self.width {
            4 => self.copied(4),
            8 => self.copied(8),
            width => self.copied(width),
        }
    }
}

impl<I: OffsetSizeTrait, O: OffsetSizeTrait> Lists<'_, I, O> {
    #[inline(always)]
    fn copied(self, width: usize) -> Option<usize> {
        let Self { sources, selection, out: (mut offsets, mut sizes, out), bytes, .. } = self;
        let mut elements = 0_usize;
        macro_rules! one {
            ($array:expr, $row:expr) => {{
                // SAFETY: `Selection` proved that the array is there and the row below its limit,
                // which `list_views` compared with both slices; there is room for a number a row.
                let (source, from, size) = unsafe {
                    let (starts, lens, source) = sources.get_unchecked($array);
                    let size = lens.get_unchecked($row).as_usize();
                    offsets.write(O::usize_as(elements));
                    sizes.write(O::usize_as(size));
                    (offsets, sizes) = (offsets.add(1), sizes.add(1));
                    (*source, starts.get_unchecked($row).as_usize(), size)
                };
                // An empty list may begin anywhere.
                if size > 0 {
                    let (from, len) = (from.checked_mul(width)?, size.checked_mul(width)?);
                    let done = elements * width;
                    if from.checked_add(len)? > source.len() || len > bytes - done {
                        return None;
                    }
                    // SAFETY: the range is inside of `source`, and there is as much room.
                    unsafe { copy(source, from, out.add(done), len, bytes - done) };
                    elements += size;
                }
            }};
        }
        match selection.form() {
            Form::Rows(rows) => each_row!(rows.as_slices(), |array, row| { one!(array, row) }),
            Form::Runs(runs) => {
                for run in runs.iter() {
                    for row in start(run)..start(run) + run.len as usize {
                        one!(run.source.0 as usize, row);
                    }
                }
            }
        }
        Some(elements * width)
    }
}
