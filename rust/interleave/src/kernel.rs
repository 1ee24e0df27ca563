//! Copies selected rows without checking them again: this file and its folder are the only unsafe
//! code of the crate.
//!
//! ```text
//! Selection (every row is below its limit)  +  sources (every limit is inside)  ─▶  one buffer
//!
//! fixed (here)   bits     texts: bytes, lists   mapped: keys     views
//! pieces: rows that follow each other
//! ```
//!
//! # Invariants
//! The functions are safe to call. Each one checks, once an array, that what a [`Selection`] may
//! select lies inside of the array's buffer; the selection proves the rest. Outputs are as long as
//! the selection says. Under debug assertions every single access is checked again.
//!
//! # Cost
//! A row is a load and a store. Runs are one copy each; short ones are copied in one, two or four
//! vectors, with whatever lies behind them where there is room. Vectors are as wide as the
//! processor has them.
//!
//! # Not here
//! Types (`gather`); the same without unsafe code, row by row (`slow`).

#![expect(unsafe_code, reason = "the fenced kernels: checked once an array, then copied unchecked")]

use std::sync::Arc;

use arrow_array::types::{ArrowDictionaryKeyType, RunEndIndexType};
use arrow_array::types::{ByteArrayType, ByteViewType};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, DictionaryArray, GenericByteArray, GenericByteViewArray,
    PrimitiveArray, RunArray, UnionArray,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, RunEndBuffer, ScalarBuffer};
use arrow_schema::{DataType, UnionFields};

use crate::select::{Form, Rows, Selection};
use pieces::each_piece;
pub(crate) use pieces::{PIECE_ROWS, high_bits};
use plait_base::Run;
use vectored::prefetch;

/// Runs a block with array and row of every row, which are in two slices; two selectors a load,
/// because loads are what a row costs.
macro_rules! each_row {
    ($rows:expr, |$array:ident, $row:ident| $body:block) => {{
        let (arrays, numbers) = $rows;
        let (arrays, last_array) = arrays.as_chunks::<2>();
        let (numbers, last_number) = numbers.as_chunks::<2>();
        for (arrays, numbers) in arrays.iter().zip(numbers) {
            let ((a0, a1), (n0, n1)) =
                ($crate::kernel::halves(arrays), $crate::kernel::halves(numbers));
            {
                let ($array, $row) = (a0, n0);
                $body
            }
            {
                let ($array, $row) = (a1, n1);
                $body
            }
        }
        for (array, number) in last_array.iter().zip(last_number) {
            let ($array, $row) = (*array as usize, *number as usize);
            $body
        }
    }};
}

mod bits;
mod mapped;
mod pieces;
mod texts;
mod vectored;
mod views;

pub(crate) use bits::{Bits, bits};
pub(crate) use mapped::{mapped, shifted};
pub(crate) use texts::{Texts, Views, bytes, elements, joined, list_views, offsets};
pub(crate) use vectored::{Vectored, all_below, vectored};
pub(crate) use views::{VIEW_BYTES_MAX, ViewSource, views};

/// Runs of as many bytes are copied as one vector, if there is room.
const VECTOR: usize = 32;

/// Runs of a few bytes whose lengths differ are copied as two vectors, or as these four, where
/// there is room.
const OVERRUN: usize = 4 * VECTOR;

/// Bytes behind every output, so that the last rows have room too.
const SLACK: usize = OVERRUN;

/// Rows of as many bytes are longer than any value of fixed width; larger ones are copied as they
/// are.
type Wide = [u8; 32];

/// What values of any width may be aligned to, and its bytes.
type Aligned = u128;
const ALIGNED: usize = size_of::<Aligned>();

/// The selected rows of arrays of fixed width: `sources` are their values.
pub(crate) fn fixed(sources: &[&[u8]], width: usize, selection: &Selection) -> Buffer {
    for (source, limit) in sources.iter().zip(selection.limits()) {
        assert!(limit.checked_mul(width).is_some_and(|n| n <= source.len()), "array is too short");
    }
    assert!(sources.len() >= selection.limits().len(), "an array is missing");
    let Some(bytes) = selection.len().checked_mul(width) else {
        return Buffer::from(Vec::<u8>::new());
    };
    // A vector of what is aligned as any value must be costs less than a buffer that is aligned to
    // more.
    let mut made: Vec<Aligned> = Vec::with_capacity(bytes / ALIGNED + 1 + SLACK / ALIGNED);
    // SAFETY: `out` has room for `bytes` and the slack. The assertions above proved that every row
    // below a limit is inside of its source, and `Selection` that every selected row is below its
    // limit. All bytes of values are written, and before them those of the last element, which
    // values may not fill.
    unsafe {
        made.as_mut_ptr().add(bytes / ALIGNED).write(0);
        let out = made.as_mut_ptr().cast::<u8>();
        match selection.form() {
            Form::Runs(runs) => {
                vectored(FixedRuns { sources, width, runs, out, bytes });
            }
            Form::Rows(rows) if rows.are_in_pieces() && width.is_power_of_two() && width <= 32 => {
                vectored(FixedPieces { sources, width, rows, out });
            }
            Form::Rows(rows) => match width {
                1 => fixed_rows::<[u8; 1]>(sources, rows, out),
                2 => fixed_rows::<[u8; 2]>(sources, rows, out),
                4 => fixed_rows::<[u8; 4]>(sources, rows, out),
                8 => fixed_rows::<[u8; 8]>(sources, rows, out),
                16 => fixed_rows::<[u8; 16]>(sources, rows, out),
                32 => fixed_rows::<Wide>(sources, rows, out),
                _ => any_rows(sources, width, rows, out, bytes),
            },
        }
        made.set_len(bytes.div_ceil(ALIGNED));
    }
    Buffer::from_vec(made).slice_with_length(0, bytes)
}

/// Row by row, values of type `T`.
///
/// # Safety
/// Every row is inside of its source, and `out` has room for all.
unsafe fn fixed_rows<T: Copy>(sources: &[&[u8]], rows: &Rows, out: *mut u8) {
    let bases: Vec<*const T> = sources.iter().map(|source| source.as_ptr().cast()).collect();
    let mut out = out.cast::<T>();
    each_row!(rows.as_slices(), |array, row| {
        debug_assert!((row + 1) * size_of::<T>() <= sources[array].len());
        // SAFETY: the caller proved that the array is there and the row inside of it. Sources need
        // not be aligned.
        unsafe {
            let base = *bases.get_unchecked(array);
            out.write_unaligned(base.add(row).read_unaligned());
            out = out.add(1);
        }
    });
}

/// Rows that often follow each other: made by [`fixed`] alone, which proved that every row is
/// inside of its source, and that `out` has room for all and the slack.
struct FixedPieces<'a> {
    sources: &'a [&'a [u8]],
    width: usize,
    rows: &'a Rows,
    out: *mut u8,
}

impl Vectored for FixedPieces<'_> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        match self.width {
            1 => self.copied::<[u8; 1]>(),
            2 => self.copied::<[u8; 2]>(),
            4 => self.copied::<[u8; 4]>(),
            8 => self.copied::<[u8; 8]>(),
            16 => self.copied::<[u8; 16]>(),
            _ => self.copied::<Wide>(),
        }
    }
}

impl FixedPieces<'_> {
    #[inline(always)]
    fn copied<T: Copy>(self) {
        let has_room = PIECE_ROWS * size_of::<T>() <= SLACK;
        let mut out = self.out.cast::<T>();
        each_piece!(self.rows, |array, row, len| {
            debug_assert!((row + len) * size_of::<T>() <= self.sources[array].len());
            // SAFETY: `fixed` proved that the array is there and the rows inside of it. More than
            // the piece is copied only where the source has as many rows; the slack is room for
            // them in the output.
            unsafe {
                let source = self.sources.get_unchecked(array);
                let from = source.as_ptr().cast::<T>().add(row);
                let behind = source.len() / size_of::<T>() - row;
                if len == PIECE_ROWS || has_room && behind >= PIECE_ROWS {
                    let piece = from.cast::<[T; PIECE_ROWS]>().read_unaligned();
                    out.cast::<[T; PIECE_ROWS]>().write_unaligned(piece);
                } else {
                    for i in 0..len {
                        out.add(i).write_unaligned(from.add(i).read_unaligned());
                    }
                }
                out = out.add(len);
            }
        });
    }
}

/// Two numbers of 32 bits.
#[inline(always)]
fn halves(two: &[u32; 2]) -> (usize, usize) {
    // SAFETY: two numbers of 32 bits are one of 64; any bits are a number.
    let two = unsafe { std::ptr::from_ref(two).cast::<u64>().read_unaligned() };
    // The first is the lower half where bytes are in that order.
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
        // SAFETY: the caller proved that the row is inside of its source; row `i` of the output is
        // too.
        unsafe {
            let source = sources.get_unchecked(array);
            copy(source, row * width, out.add(i * width), width, bytes - i * width);
        }
    }
}

/// Run by run: made by [`fixed`] alone, which proved that every run is inside of its source, and
/// that `out` has room for `bytes` and the slack.
struct FixedRuns<'a> {
    sources: &'a [&'a [u8]],
    width: usize,
    runs: &'a [Run],
    out: *mut u8,
    bytes: usize,
}

impl Vectored for FixedRuns<'_> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let run_bytes = self.bytes / self.runs.len().max(1);
        // Means of which nearly all lengths are below two vectors.
        if (VECTOR / 2..VECTOR + VECTOR / 4).contains(&run_bytes) {
            return self.overrun::<2>();
        }
        if (VECTOR..OVERRUN.min(PIECE_ROWS * self.width)).contains(&run_bytes) {
            return self.overrun::<{ OVERRUN / VECTOR }>();
        }
        // Widths that are known make lengths of runs known to be whole vectors.
        match self.width {
            4 => self.copied(4),
            8 => self.copied(8),
            width => self.copied(width),
        }
    }
}

impl FixedRuns<'_> {
    /// Copies as many vectors for every run that is not longer: which length is next is not
    /// foreseen.
    #[inline(always)]
    fn overrun<const VECTORS: usize>(self) {
        let most = VECTORS * VECTOR;
        let mut done = 0;
        for run in self.runs {
            let len = run.len as usize * self.width;
            // SAFETY: as below; an overrun is read where the source has as many bytes, and the
            // slack is room for it in the output.
            unsafe {
                let source = self.sources.get_unchecked(run.source.0 as usize);
                let (from, out) = (start(run) * self.width, self.out.add(done));
                debug_assert!(from + len <= source.len() && len <= self.bytes - done);
                if len <= most && source.len() - from >= most {
                    let vectors = source.as_ptr().add(from).cast::<[Wide; VECTORS]>();
                    out.cast::<[Wide; VECTORS]>().write_unaligned(vectors.read_unaligned());
                } else {
                    copy(source, from, out, len, self.bytes - done);
                }
            }
            done += len;
        }
        debug_assert_eq!(done, self.bytes, "runs do not add up");
    }

    #[inline(always)]
    fn copied(self, width: usize) {
        let mut done = 0;
        for run in self.runs {
            let len = run.len as usize * width;
            // SAFETY: `fixed` proved that the run is inside of its source, and the lengths of all
            // runs add up to `bytes`.
            unsafe {
                let source = self.sources.get_unchecked(run.source.0 as usize);
                copy(source, start(run) * width, self.out.add(done), len, self.bytes - done);
            }
            done += len;
        }
        debug_assert_eq!(done, self.bytes, "runs do not add up");
    }
}

/// Copies `source[from..from + len]` to `out`, which has room for `room` and the slack.
///
/// # Safety
/// The range is inside of `source`, `len` is at most `room`.
#[inline(always)]
unsafe fn copy(source: &[u8], from: usize, out: *mut u8, len: usize, room: usize) {
    debug_assert!(from + len <= source.len() && len <= room, "a copy leaves its buffers");
    let behind = source.len() - from;
    // SAFETY: the caller proved the range; a vector or two are copied only where the source has as
    // many bytes, and the slack makes room for them in the output.
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

/// The array of values that were copied here.
///
/// Every value must be one of a valid array of type `T`, whole: then text is still text.
pub(crate) fn byte_array<T: ByteArrayType>(
    offsets: OffsetBuffer<T::Offset>,
    values: Buffer,
    nulls: Option<NullBuffer>,
) -> GenericByteArray<T> {
    assert!(nulls.as_ref().is_none_or(|nulls| nulls.len() + 1 == offsets.len()), "nulls differ");
    // SAFETY: offsets are those of the values, and values are whole values of valid arrays.
    unsafe { GenericByteArray::new_unchecked(offsets, values, nulls) }
}

/// The array of `views` into `buffers`.
///
/// Every view must be one of a valid array of type `T`, and lead to the same buffer as there.
pub(crate) fn view_array<T: ByteViewType>(
    views: ScalarBuffer<u128>,
    buffers: Vec<Buffer>,
    nulls: Option<NullBuffer>,
) -> GenericByteViewArray<T> {
    assert!(nulls.as_ref().is_none_or(|nulls| nulls.len() == views.len()), "nulls differ");
    // SAFETY: views are those of valid arrays and lead to the same bytes.
    unsafe { GenericByteViewArray::new_unchecked(views, buffers.into(), nulls) }
}

/// The dictionary of `values` with `keys`, if all of them are below the number of values.
pub(crate) fn dictionary<K: ArrowDictionaryKeyType>(
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
    // SAFETY: all keys, whose bits were compared as unsigned numbers, are below the number of
    // values.
    Some(unsafe { DictionaryArray::new_unchecked(keys, Arc::clone(values)) })
}

/// The run-end encoded array of type `data_type`; `ends` ascend, and there is one a value.
pub(crate) fn run_ends<R: RunEndIndexType>(
    data_type: DataType,
    ends: ScalarBuffer<R::Native>,
    values: ArrayRef,
    len: usize,
) -> Arc<RunArray<R>> {
    assert_eq!(ends.len(), values.len(), "one run end a value");
    // Checks that ends ascend and cover `len`.
    let ends = RunEndBuffer::new(ends, 0, len);
    // SAFETY: `RunEndBuffer::new` checked the ends, the assertion above their number, and `gather`
    // made the values in the type that `data_type` names.
    Arc::new(unsafe { RunArray::new_unchecked(data_type, ends, values) })
}

/// The union of `columns`, in all of which each row has a place; `None` if a type is not one of
/// `fields`.
pub(crate) fn sparse_union(
    fields: &UnionFields,
    ids: &ScalarBuffer<i8>,
    columns: &[ArrayRef],
) -> Option<UnionArray> {
    let are_numbered = fields.iter().zip(0_i8..).all(|((id, _), i)| id == i);
    let are_whole = columns.iter().all(|column| column.len() == ids.len());
    let fit = fields.len() == columns.len() && are_numbered && are_whole;
    // Types are numbered from 0: an id is one of them if its bits are below their number.
    if !fit || !all_below(ids.inner().typed_data::<u8>(), fields.len() as u64) {
        return UnionArray::try_new(fields.clone(), ids.clone(), None, columns.to_vec()).ok();
    }
    // SAFETY: there is a column a field, each as long as there are ids, and every id is that of a
    // field.
    Some(unsafe { UnionArray::new_unchecked(fields.clone(), ids.clone(), None, columns.to_vec()) })
}

/// The values of a primitive array as bytes.
pub(crate) fn raw<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>) -> &[u8] {
    array.values().inner().as_slice()
}
