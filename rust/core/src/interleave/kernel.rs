//! Copies selected rows without checking them again: the only unsafe code of the crate.
//!
//! ```text
//! Selection (every row is below its limit)  +  sources (every limit is inside)  ─▶  one buffer
//! ```
//!
//! # Invariants
//! The functions are safe to call. Each one checks, once an array, that what a [`Selection`] may select
//! lies inside of the array's buffer; the selection proves the rest. Outputs are as long as the
//! selection says. Under debug assertions every single access is checked again.
//!
//! # Cost
//! A row is a load and a store. Runs are one copy each; short ones are copied in one or two vectors,
//! with whatever lies behind them where there is room.
//!
//! # Not here
//! Types (`gather`); the same without unsafe code, row by row (`slow`).

#![expect(unsafe_code, reason = "the fenced kernels: checked once an array, then copied unchecked")]

use std::sync::Arc;

use arrow_array::types::{ArrowDictionaryKeyType, RunEndIndexType};
use arrow_array::types::{ByteArrayType, ByteViewType};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, DictionaryArray, GenericByteArray, GenericByteViewArray,
    OffsetSizeTrait, PrimitiveArray, RunArray,
};
use arrow_buffer::{
    ArrowNativeType, Buffer, MutableBuffer, NullBuffer, OffsetBuffer, RunEndBuffer, ScalarBuffer,
};
use arrow_schema::DataType;

use super::lower::all_below;
use super::select::{Form, Rows, Selection};
use crate::run::Run;

/// Runs of as many bytes are copied as one vector, if there is room.
const VECTOR: usize = 32;

/// Bytes behind every output, so that the last rows have room too.
const SLACK: usize = 2 * VECTOR;

/// Rows of as many bytes are longer than any value of fixed width; larger ones are copied as they are.
type Wide = [u8; 32];

/// The selected rows of arrays of fixed width: `sources` are their values.
pub(super) fn fixed(sources: &[&[u8]], width: usize, selection: &Selection) -> Buffer {
    for (source, limit) in sources.iter().zip(selection.limits()) {
        assert!(limit.checked_mul(width).is_some_and(|n| n <= source.len()), "array is too short");
    }
    assert!(sources.len() >= selection.limits().len(), "an array is missing");
    let Some(bytes) = selection.len().checked_mul(width) else {
        return Buffer::from(Vec::<u8>::new());
    };
    let mut out = MutableBuffer::with_capacity(bytes + SLACK);
    // SAFETY: `out` has room for `bytes` and the slack. The assertions above proved that every row below
    // a limit is inside of its source, and `Selection` that every selected row is below its limit.
    unsafe {
        match selection.form() {
            Form::Runs(runs) => fixed_runs(sources, width, runs, out.as_mut_ptr(), bytes),
            Form::Rows(rows) => match width {
                1 => fixed_rows::<[u8; 1]>(sources, rows, out.as_mut_ptr()),
                2 => fixed_rows::<[u8; 2]>(sources, rows, out.as_mut_ptr()),
                4 => fixed_rows::<[u8; 4]>(sources, rows, out.as_mut_ptr()),
                8 => fixed_rows::<[u8; 8]>(sources, rows, out.as_mut_ptr()),
                16 => fixed_rows::<[u8; 16]>(sources, rows, out.as_mut_ptr()),
                32 => fixed_rows::<Wide>(sources, rows, out.as_mut_ptr()),
                _ => any_rows(sources, width, rows, out.as_mut_ptr(), bytes),
            },
        }
        out.set_len(bytes);
    }
    out.into()
}

/// Row by row, values of type `T`.
///
/// # Safety
/// Every row is inside of its source, and `out` has room for all.
unsafe fn fixed_rows<T: Copy>(sources: &[&[u8]], rows: &Rows, out: *mut u8) {
    let bases: Vec<*const T> = sources.iter().map(|source| source.as_ptr().cast()).collect();
    let mut out = out.cast::<T>();
    each_row(rows, |array, row| {
        debug_assert!((row + 1) * size_of::<T>() <= sources[array].len());
        // SAFETY: the caller proved that the array is there and the row inside of it. Sources need not be
        // aligned.
        unsafe {
            let base = *bases.get_unchecked(array);
            out.write_unaligned(base.add(row).read_unaligned());
            out = out.add(1);
        }
    });
}

/// Calls `one` with array and row, one by one; two selectors a load, because loads are what a row costs.
#[inline(always)]
fn each_row(rows: &Rows, mut one: impl FnMut(usize, usize)) {
    let (arrays, numbers) = rows.as_slices();
    let ((arrays, last_arrays), (numbers, last_numbers)) =
        (arrays.as_chunks::<4>(), numbers.as_chunks::<4>());
    for (arrays, numbers) in arrays.iter().zip(numbers) {
        // SAFETY: four numbers of 32 bits are two of 64; any bits are a number.
        let [arrays, numbers] = unsafe {
            [arrays, numbers]
                .map(|four| std::ptr::from_ref(four).cast::<[u64; 2]>().read_unaligned())
        };
        for (arrays, numbers) in arrays.into_iter().zip(numbers) {
            let ((a0, a1), (n0, n1)) = (halves(arrays), halves(numbers));
            one(a0, n0);
            one(a1, n1);
        }
    }
    for (array, number) in last_arrays.iter().zip(last_numbers) {
        one(*array as usize, *number as usize);
    }
}

/// Two numbers of 32 bits in the order in which they are in memory.
#[inline(always)]
fn halves(two: u64) -> (usize, usize) {
    let two = if cfg!(target_endian = "big") { two.rotate_left(32) } else { two };
    #[expect(clippy::cast_possible_truncation, reason = "both halves")]
    {
        (two as u32 as usize, (two >> 32) as usize)
    }
}

/// Row by row, values of any width.
///
/// # Safety
/// As for [`fixed_rows`]; `out` has room for the slack behind `bytes`.
unsafe fn any_rows(sources: &[&[u8]], width: usize, rows: &Rows, out: *mut u8, bytes: usize) {
    for (i, (array, row)) in rows.iter().enumerate() {
        // SAFETY: the caller proved that the row is inside of its source; row `i` of the output is too.
        unsafe {
            let source = sources.get_unchecked(array);
            copy(source, row * width, out.add(i * width), width, bytes - i * width);
        }
    }
}

/// Run by run.
///
/// # Safety
/// As for [`any_rows`].
unsafe fn fixed_runs(sources: &[&[u8]], width: usize, runs: &[Run], out: *mut u8, bytes: usize) {
    let mut done = 0;
    for run in runs.iter() {
        let len = run.len as usize * width;
        // SAFETY: the caller proved that the run is inside of its source, and the lengths of all runs add
        // up to `bytes`.
        unsafe {
            let source = sources.get_unchecked(run.source.index());
            copy(source, start(run) * width, out.add(done), len, bytes - done);
        }
        done += len;
    }
    debug_assert_eq!(done, bytes, "runs do not add up");
}

/// Copies `source[from..from + len]` to `out`, which has room for `room` and the slack.
///
/// # Safety
/// The range is inside of `source`, `len` is at most `room`.
#[inline(always)]
unsafe fn copy(source: &[u8], from: usize, out: *mut u8, len: usize, room: usize) {
    debug_assert!(from + len <= source.len() && len <= room, "a copy leaves its buffers");
    let behind = source.len() - from;
    // SAFETY: the caller proved the range; a vector or two are copied only where the source has as many
    // bytes, and the slack makes room for them in the output.
    unsafe {
        let from = source.as_ptr().add(from);
        if len <= VECTOR && behind >= VECTOR {
            out.cast::<Wide>().write_unaligned(from.cast::<Wide>().read_unaligned());
        } else if len <= 2 * VECTOR && behind >= 2 * VECTOR {
            out.cast::<[Wide; 2]>().write_unaligned(from.cast::<[Wide; 2]>().read_unaligned());
        } else {
            std::ptr::copy_nonoverlapping(from, out, len);
        }
    }
}

fn start(run: &Run) -> usize {
    // Selections have only runs that fit `usize`: their limits are lengths.
    #[expect(clippy::cast_possible_truncation, reason = "starts are below a length")]
    {
        run.start as usize
    }
}

/// Bits of an array, or none where all are set.
pub(super) type Bits<'a> = Option<(&'a [u8], usize)>;

/// The selected bits; `sources` are bytes and the bit where the array begins.
pub(super) fn bits(sources: &[Bits<'_>], selection: &Selection) -> Buffer {
    for (source, limit) in sources.iter().zip(selection.limits()) {
        let Some((bytes, offset)) = source else { continue };
        let end = limit.checked_add(*offset);
        assert!(end.is_some_and(|end| end.div_ceil(8) <= bytes.len()), "array is too short");
    }
    assert!(sources.len() >= selection.limits().len(), "an array is missing");
    let mut words = Words::new(selection.len());
    match selection.form() {
        Form::Rows(rows) => {
            // SAFETY: the assertions above proved that every bit below a limit is inside of its source,
            // and `Selection` that every selected row is below its limit.
            unsafe { bit_rows(sources, rows, &mut words) }
        }
        Form::Runs(runs) => {
            for run in runs.iter() {
                bit_run(sources.get(run.source.index()).copied().flatten(), run, &mut words);
            }
        }
    }
    words.finish()
}

/// Where the bits of an array are; all rows of an array without bits are bit 0 of a byte of ones.
#[derive(Clone, Copy)]
struct BitBase {
    bytes: *const u8,
    offset: usize,
    mask: usize,
}

/// Row by row, a word at a time.
///
/// # Safety
/// Every row is inside of its source.
unsafe fn bit_rows(sources: &[Bits<'_>], rows: &Rows, words: &mut Words) {
    const ONES: &[u8] = &[0xff];
    let base = |source: &Bits<'_>| match source {
        Some((bytes, offset)) => {
            BitBase { bytes: bytes.as_ptr(), offset: *offset, mask: usize::MAX }
        }
        None => BitBase { bytes: ONES.as_ptr(), offset: 0, mask: 0 },
    };
    let bases: Vec<BitBase> = sources.iter().map(base).collect();
    let mut left = rows.iter();
    while left.len() > 0 {
        let mut word = 0_u64;
        let len = left.len().min(64);
        for (i, (array, row)) in left.by_ref().take(64).enumerate() {
            debug_assert!(
                sources[array].is_none_or(|(bytes, offset)| (row + offset) / 8 < bytes.len())
            );
            // SAFETY: the caller proved that the array is there and the row's bit inside of it; where
            // there are no bits, the mask makes it bit 0 of `ONES`.
            unsafe {
                let base = bases.get_unchecked(array);
                let bit = (row + base.offset) & base.mask;
                let byte = *base.bytes.add(bit / 8);
                word |= u64::from((byte >> (bit % 8)) & 1) << i;
            }
        }
        words.push(word, len);
    }
}

#[inline]
fn bit_run(source: Bits<'_>, run: &Run, words: &mut Words) {
    let mut left = run.len as usize;
    let Some((bytes, offset)) = source else {
        while left > 0 {
            let len = left.min(64);
            words.push(u64::MAX >> (64 - len), len);
            left -= len;
        }
        return;
    };
    let mut at = start(run) + offset;
    while left > 0 {
        let len = left.min(64);
        let (byte, shift) = (at / 8, at % 8);
        let mut word = match bytes.get(byte..byte + 9).and_then(|b| b.split_first_chunk::<8>()) {
            Some((low, high)) => {
                let low = u64::from_le_bytes(*low) >> shift;
                // Shifted in two steps, because by 64 is not defined.
                low | (u64::from(high.first().copied().unwrap_or(0)) << 1 << (63 - shift))
            }
            None => {
                let mut last = [0_u8; 16];
                let rest = bytes.get(byte..).unwrap_or_default();
                for (to, from) in last.iter_mut().zip(rest) {
                    *to = *from;
                }
                #[expect(clippy::cast_possible_truncation, reason = "the low word")]
                {
                    (u128::from_le_bytes(last) >> shift) as u64
                }
            }
        };
        word &= u64::MAX >> (64 - len);
        words.push(word, len);
        at += len;
        left -= len;
    }
}

/// Bits on their way into a buffer.
struct Words {
    done: Vec<u64>,
    word: u64,
    fill: usize,
    len: usize,
}

impl Words {
    fn new(len: usize) -> Self {
        Self { done: Vec::with_capacity(len / 64 + 1), word: 0, fill: 0, len }
    }

    /// Appends the lowest `len` bits of `word`, which has no others; `len` is 1 to 64.
    #[inline(always)]
    fn push(&mut self, word: u64, len: usize) {
        self.word |= word << self.fill;
        self.fill += len;
        if self.fill >= 64 {
            self.done.push(self.word);
            self.fill -= 64;
            // What did not fit: nothing if all did.
            self.word = if self.fill == 0 { 0 } else { word >> (len - self.fill) };
        }
    }

    fn finish(mut self) -> Buffer {
        if self.fill > 0 {
            self.done.push(self.word);
        }
        debug_assert!(self.done.len() * 64 >= self.len, "bits are missing");
        Buffer::from_vec(self.done)
    }
}

/// Arrays of bytes of any length: offsets and values.
pub(super) type Texts<'a, I> = (&'a OffsetBuffer<I>, &'a [u8]);

/// The selected values with their offsets; `None` if an offset would be above `max`.
pub(super) fn bytes<I: ArrowNativeType, O: ArrowNativeType>(
    sources: &[Texts<'_, I>],
    selection: &Selection,
    max: usize,
) -> Option<(OffsetBuffer<O>, Buffer)> {
    for ((offsets, values), limit) in sources.iter().zip(selection.limits()) {
        let offsets: &[I] = offsets;
        assert!(*limit < offsets.len(), "array is too short");
        // Offsets ascend, as `OffsetBuffer` promises: the first and the last bound all others.
        let last = offsets.last().map_or(0, |last| last.as_usize());
        assert!(last <= values.len(), "values are too short");
    }
    assert!(sources.len() >= selection.limits().len(), "an array is missing");
    let mut out: Vec<O> = Vec::with_capacity(selection.len() + 1);
    let mut total = 0_usize;
    // SAFETY: `out` has room for one offset a row and the first. The assertions above proved that a limit
    // is below the number of offsets, and `Selection` that every selected row is below its limit.
    unsafe {
        let mut next = out.as_mut_ptr();
        next.write(O::usize_as(0));
        match selection.form() {
            Form::Rows(rows) => {
                let bases: Vec<*const I> = sources.iter().map(|(o, _)| o.as_ptr()).collect();
                for (array, row) in rows.iter() {
                    debug_assert!(row + 1 < sources[array].0.len());
                    let ends = (*bases.get_unchecked(array)).add(row);
                    total += (*ends.add(1)).as_usize() - (*ends).as_usize();
                    next = next.add(1);
                    next.write(O::usize_as(total));
                }
            }
            Form::Runs(runs) => {
                for run in runs.iter() {
                    let offsets: &[I] = sources.get_unchecked(run.source.index()).0;
                    let ends = offsets.get_unchecked(start(run)..=start(run) + run.len as usize);
                    let first = ends.first().map_or(0, |first| first.as_usize());
                    let delta = total.wrapping_sub(first);
                    for end in ends.get_unchecked(1..) {
                        next = next.add(1);
                        next.write(O::usize_as(end.as_usize().wrapping_add(delta)));
                    }
                    total = ends.last().map_or(0, |last| last.as_usize()).wrapping_add(delta);
                }
            }
        }
        out.set_len(selection.len() + 1);
    }
    if total > max {
        return None;
    }
    let mut values = MutableBuffer::with_capacity(total + SLACK);
    let mut done = 0;
    // SAFETY: the pass before added up the lengths of the same values; the offsets of a source are inside
    // of its values, as proved above, and ascend.
    unsafe {
        let first = values.as_mut_ptr();
        let mut append = |offsets: &[I], source: &[u8], at: usize, rows: usize| {
            let from = offsets.get_unchecked(at).as_usize();
            let len = offsets.get_unchecked(at + rows).as_usize() - from;
            copy(source, from, first.add(done), len, total - done);
            done += len;
        };
        match selection.form() {
            Form::Rows(rows) => {
                for (array, row) in rows.iter() {
                    let (offsets, source) = sources.get_unchecked(array);
                    append(offsets, source, row, 1);
                }
            }
            Form::Runs(runs) => {
                for run in runs.iter() {
                    let (offsets, source) = sources.get_unchecked(run.source.index());
                    append(offsets, source, start(run), run.len as usize);
                }
            }
        }
        values.set_len(total);
    }
    // SAFETY: offsets begin with 0 and ascend: they are sums of lengths; the last, and so all, fit.
    let offsets = unsafe { OffsetBuffer::new_unchecked(ScalarBuffer::from(out)) };
    Some((offsets, values.into()))
}

/// `offsets`, if they begin with 0 or above and ascend.
pub(super) fn offsets<O: OffsetSizeTrait>(offsets: Vec<O>) -> Option<OffsetBuffer<O>> {
    let falls = offsets.iter().zip(offsets.get(1..)?).fold(false, |any, (a, b)| any | (b < a));
    if falls || *offsets.first()? < O::zero() {
        return None;
    }
    // SAFETY: there is a first offset, which is not negative, and none is below the one before it.
    Some(unsafe { OffsetBuffer::new_unchecked(offsets.into()) })
}

/// The array of values that [`bytes`] copied.
///
/// Every value must be one of a valid array of type `T`, whole: then text is still text.
pub(super) fn byte_array<T: ByteArrayType>(
    (offsets, values): (OffsetBuffer<T::Offset>, Buffer),
    nulls: Option<NullBuffer>,
) -> GenericByteArray<T> {
    assert!(nulls.as_ref().is_none_or(|nulls| nulls.len() + 1 == offsets.len()), "nulls differ");
    // SAFETY: offsets are those of the values, and values are whole values of valid arrays.
    unsafe { GenericByteArray::new_unchecked(offsets, values, nulls) }
}

/// The selected values, each changed by `change` and what there is of its array; and whether any is bad.
pub(super) fn mapped<T: Copy, C: Copy>(
    sources: &[(&[T], C)],
    selection: &Selection,
    change: impl Fn(C, T) -> (T, bool),
) -> (Vec<T>, bool) {
    for ((source, _), limit) in sources.iter().zip(selection.limits()) {
        assert!(*limit <= source.len(), "array is too short");
    }
    assert!(sources.len() >= selection.limits().len(), "an array is missing");
    let mut out = Vec::with_capacity(selection.len());
    let mut next: *mut T = out.as_mut_ptr();
    let mut any = false;
    match selection.form() {
        Form::Rows(rows) => {
            let bases: Vec<(*const T, C)> =
                sources.iter().map(|(source, by)| (source.as_ptr(), *by)).collect();
            each_row(rows, |array, row| {
                debug_assert!(row < sources[array].0.len());
                // SAFETY: `out` has room for one value a row. The assertions above proved that rows below
                // a limit are inside of their source, and `Selection` that every row is below its limit.
                unsafe {
                    let (base, by) = *bases.get_unchecked(array);
                    let (value, bad) = change(by, *base.add(row));
                    any |= bad;
                    next.write(value);
                    next = next.add(1);
                }
            });
        }
        Form::Runs(runs) => {
            for run in runs.iter() {
                // SAFETY: as for rows.
                unsafe {
                    let (source, by) = *sources.get_unchecked(run.source.index());
                    let values = source.get_unchecked(start(run)..start(run) + run.len as usize);
                    for (i, value) in values.iter().enumerate() {
                        let (value, bad) = change(by, *value);
                        any |= bad;
                        next.add(i).write(value);
                    }
                    next = next.add(values.len());
                }
            }
        }
    }
    // SAFETY: rows, and the lengths of runs, add up to the length of the selection; all are written.
    unsafe { out.set_len(selection.len()) }
    (out, any)
}

/// The selected views; `remap` gives a view of an array its place among the buffers of the output.
pub(super) fn views(
    sources: &[&[u128]],
    selection: &Selection,
    mut remap: impl FnMut(usize, u128) -> u128,
) -> Vec<u128> {
    for (source, limit) in sources.iter().zip(selection.limits()) {
        assert!(*limit <= source.len(), "array is too short");
    }
    assert!(sources.len() >= selection.limits().len(), "an array is missing");
    let mut out = Vec::with_capacity(selection.len());
    let mut next: *mut u128 = out.as_mut_ptr();
    // SAFETY: `out` has room for one view a row. The assertions above proved that rows below a limit are
    // inside of their source, and `Selection` that every selected row is below its limit.
    unsafe {
        match selection.form() {
            Form::Rows(rows) => {
                for (array, row) in rows.iter() {
                    debug_assert!(row < sources[array].len());
                    let source = sources.get_unchecked(array);
                    let view = *source.get_unchecked(row);
                    next.write(remap(array, view));
                    next = next.add(1);
                }
            }
            Form::Runs(runs) => {
                for run in runs.iter() {
                    let source = sources.get_unchecked(run.source.index());
                    for view in source.get_unchecked(start(run)..start(run) + run.len as usize) {
                        next.write(remap(run.source.index(), *view));
                        next = next.add(1);
                    }
                }
            }
        }
        out.set_len(selection.len());
    }
    out
}

/// The array of `views` into `buffers`.
///
/// Every view must be one of a valid array of type `T`, and lead to the same buffer as there.
pub(super) fn view_array<T: ByteViewType>(
    views: ScalarBuffer<u128>,
    buffers: Vec<Buffer>,
    nulls: Option<NullBuffer>,
) -> GenericByteViewArray<T> {
    assert!(nulls.as_ref().is_none_or(|nulls| nulls.len() == views.len()), "nulls differ");
    // SAFETY: views are those of valid arrays and lead to the same bytes.
    unsafe { GenericByteViewArray::new_unchecked(views, buffers.into(), nulls) }
}

/// The dictionary of `values` with `keys`, if all of them are below the number of values.
pub(super) fn dictionary<K: ArrowDictionaryKeyType>(
    keys: &Buffer,
    nulls: Option<&NullBuffer>,
    values: &ArrayRef,
) -> Option<DictionaryArray<K>> {
    let limit = values.len() as u64;
    let all_below = match size_of::<K::Native>() {
        1 => all_below(keys.typed_data::<u8>(), limit),
        2 => all_below(keys.typed_data::<u16>(), limit),
        4 => all_below(keys.typed_data::<u32>(), limit),
        8 => all_below(keys.typed_data::<u64>(), limit),
        _ => false,
    };
    if !all_below {
        return None;
    }
    let len = keys.len() / size_of::<K::Native>();
    let keys = PrimitiveArray::<K>::new(ScalarBuffer::new(keys.clone(), 0, len), nulls.cloned());
    // SAFETY: all keys, whose bits were compared as unsigned numbers, are below the number of values.
    Some(unsafe { DictionaryArray::new_unchecked(keys, Arc::clone(values)) })
}

/// The run-end encoded array of type `data_type`; `ends` ascend, and there is one a value.
pub(super) fn run_ends<R: RunEndIndexType>(
    data_type: DataType,
    ends: ScalarBuffer<R::Native>,
    values: ArrayRef,
    len: usize,
) -> Arc<RunArray<R>> {
    assert_eq!(ends.len(), values.len(), "one run end a value");
    // Checks that ends ascend and cover `len`.
    let ends = RunEndBuffer::new(ends, 0, len);
    // SAFETY: `RunEndBuffer::new` checked the ends, the assertion above their number, and `gather` made
    // the values in the type that `data_type` names.
    Arc::new(unsafe { RunArray::new_unchecked(data_type, ends, values) })
}

/// The values of a primitive array as bytes.
pub(super) fn raw<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>) -> &[u8] {
    array.values().inner().as_slice()
}
