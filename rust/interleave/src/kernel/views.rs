//! Views of text: short ones are copied, long ones get another number of their buffer on the way.
//!
//! ```text
//! view    length | prefix | buffer | offset        12 bytes or less: length | bytes
//! steps   of each array: 0 | one a buffer | nowhere ..       buffer ^ step is the new number
//! ```
//!
//! # Invariants
//! As in the file above. A view that leads to a buffer its array does not have, as null rows may,
//! leads to one that no output has, and is an error. Whether it leads into its buffer is not looked
//! at.
//!
//! # Cost
//! A row is two loads of its view, one of a step, two stores; no branch but one that is never
//! taken. Eight rows that follow each other, whose buffer is nearly always the same, are vector
//! code.
//!
//! # Not here
//! Rows whose buffers can be expected (`recent`); which buffers there are, and their new numbers
//! (`gather`).

#![expect(unsafe_code, reason = "fenced: see `kernel`")]

use super::pieces::{PIECE_ROWS, each_piece};
use super::{Vectored, start, vectored};
use crate::select::{Form, Selection};
use plait_base::Run;

#[cfg(target_arch = "x86_64")]
mod recent;
mod table;

use table::{Base, NOWHERE, Table, UNKNOWN, one};
pub(crate) use table::{VIEW_BYTES_MAX, ViewSource};

/// The selected views, each with another number of its buffer: `step` tells, once for each array
/// and buffer that a view leads to, the bits by which the two numbers differ. And whether a view
/// leads to a buffer that is not there. `None` if there are more arrays and buffers than can be
/// numbered.
pub(crate) fn views(
    sources: &[ViewSource<'_>],
    selection: &Selection,
    step: impl FnMut(usize, usize) -> u32,
) -> Option<(Vec<u128>, bool)> {
    for (source, limit) in sources.iter().zip(selection.limits()) {
        assert!(*limit <= source.views.len(), "array is too short");
    }
    assert!(sources.len() >= selection.limits().len(), "an array is missing");
    let (mut steps, mut bases) = (Vec::new(), Vec::with_capacity(sources.len()));
    for source in sources {
        let first = u32::try_from(steps.len()).ok()?;
        let last = u32::try_from(source.buffers).ok()?.checked_add(1)?;
        bases.push(Base { views: source.views.as_ptr(), first, last });
        steps.push(0);
        steps.resize(steps.len() + source.buffers, UNKNOWN);
        steps.push(NOWHERE);
    }
    let mut table = Table {
        steps: &mut steps,
        bases: &bases,
        step,
        astray: false,
        #[cfg(target_arch = "x86_64")]
        is_wide: std::is_x86_feature_detected!("avx2"),
    };
    let mut out = Vec::with_capacity(selection.len());
    let done = 0;
    #[cfg(target_arch = "x86_64")]
    let done = if table.is_wide {
        // SAFETY: the processor has the vectors; limits were compared above, and `out` has room for
        // a view a row.
        unsafe { recent::copied(&mut table, sources, selection, out.as_mut_ptr()) }
    } else {
        done
    };
    if done < selection.len() {
        let next = out.as_mut_ptr().wrapping_add(done);
        vectored(Views { sources, bases: &bases, selection, table: &mut table, done, out: next });
    }
    let astray = table.astray;
    // SAFETY: rows, and the lengths of runs, add up to the length of the selection; all are
    // written.
    unsafe { out.set_len(selection.len()) }
    Some((out, astray))
}

/// Made by [`views`] alone, which compared limits with sources; `out` has room for a view of each
/// row behind those that are `done`.
struct Views<'a, 't, F> {
    sources: &'a [ViewSource<'a>],
    bases: &'a [Base],
    selection: &'a Selection<'a>,
    table: &'a mut Table<'t, F>,
    done: usize,
    out: *mut u128,
}

impl<F: FnMut(usize, usize) -> u32> Vectored for Views<'_, '_, F> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let Self { sources, bases, selection, table, done, mut out } = self;
        match selection.form() {
            Form::Rows(rows) if rows.are_in_pieces() => each_piece!(rows, |array, row, len| {
                debug_assert!(row + len <= sources[array].views.len());
                // SAFETY: there is room for a view a row; `Selection` proved that the rows are
                // below the limit of their array, and `views` that the limit is inside of it.
                unsafe {
                    let base = *bases.get_unchecked(array);
                    piece(table, base, row, out, len);
                    out = out.add(len);
                }
            }),
            Form::Rows(rows) => each_row!(rows.behind(done), |array, row| {
                debug_assert!(row < sources[array].views.len());
                // SAFETY: as above.
                unsafe {
                    let base = *bases.get_unchecked(array);
                    one(table, base, row, out);
                    out = out.add(1);
                }
            }),
            Form::Runs(runs) => {
                let (behind, mut skipped) = behind(runs, done);
                for run in behind {
                    let skipped = std::mem::take(&mut skipped);
                    let (mut row, mut left) = (start(run) + skipped, run.len as usize - skipped);
                    debug_assert!(row + left <= sources[run.source.index()].views.len());
                    // SAFETY: as above.
                    unsafe {
                        let base = *bases.get_unchecked(run.source.0 as usize);
                        while left > 0 {
                            let len = left.min(PIECE_ROWS);
                            piece(table, base, row, out, len);
                            (row, left, out) = (row + len, left - len, out.add(len));
                        }
                    }
                }
            }
        }
    }
}

/// The run that goes on behind the first `done` rows, and all after it; and how many of its rows
/// are done.
fn behind(runs: &[Run], mut done: usize) -> (&[Run], usize) {
    for (i, run) in runs.iter().enumerate() {
        match done.checked_sub(run.len as usize) {
            Some(left) => done = left,
            None => return (runs.get(i..).unwrap_or_default(), done),
        }
    }
    (&[], 0)
}

/// Copies the views of `len` rows that follow each other, at most [`PIECE_ROWS`].
///
/// # Safety
/// As for [`one`], for all rows.
#[inline(always)]
unsafe fn piece<F: FnMut(usize, usize) -> u32>(
    table: &mut Table<'_, F>,
    base: Base,
    row: usize,
    to: *mut u128,
    len: usize,
) {
    // SAFETY: the caller's.
    unsafe {
        if len == PIECE_ROWS && moved(table, base, row, to) {
            return;
        }
        for i in 0..len {
            one(table, base, row + i, to.add(i));
        }
    }
}

/// Copies [`PIECE_ROWS`] views whose long ones have one buffer; else tells that they have not.
///
/// # Safety
/// As for [`one`], for all rows.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn moved<F: FnMut(usize, usize) -> u32>(
    table: &mut Table<'_, F>,
    base: Base,
    row: usize,
    to: *mut u128,
) -> bool {
    // SAFETY: `is_wide` tells that the processor has the vectors; the rest is the caller's.
    table.is_wide && unsafe { moved_at_once(table, base, row, to) }
}

/// The same, where views are copied one by one.
///
/// # Safety
/// None is needed.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn moved<F>(_: &mut Table<'_, F>, _: Base, _: usize, _: *mut u128) -> bool {
    false
}

/// Two views a vector.
///
/// # Safety
/// As for [`one`], for all rows.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn moved_at_once<F: FnMut(usize, usize) -> u32>(
    table: &mut Table<'_, F>,
    base: Base,
    row: usize,
    to: *mut u128,
) -> bool {
    use std::arch::x86_64::{
        __m256i, _mm_cvtsi128_si64, _mm_or_si128, _mm_unpackhi_epi64, _mm256_and_si256,
        _mm256_castsi256_si128, _mm256_cmpgt_epi32, _mm256_extracti128_si256, _mm256_loadu_si256,
        _mm256_or_si256, _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_setr_epi32,
        _mm256_setzero_si256, _mm256_shuffle_epi32, _mm256_storeu_si256, _mm256_testz_si256,
        _mm256_xor_si256,
    };
    const VECTORS: usize = PIECE_ROWS / 2;
    let (from, to) = (base.views.wrapping_add(row).cast::<__m256i>(), to.cast::<__m256i>());
    // Numbers are compared as if they had a sign.
    let sign = _mm256_set1_epi32(i32::MIN);
    let most = _mm256_set1_epi32(VIEW_BYTES_MAX.cast_signed() ^ i32::MIN);
    let (mut views, mut long) = ([sign; VECTORS], [sign; VECTORS]);
    let mut any = _mm256_setzero_si256();
    for i in 0..VECTORS {
        // SAFETY: the caller's rows.
        views[i] = unsafe { _mm256_loadu_si256(from.add(i)) };
        // The first of the four numbers of a view is the length.
        let lens = _mm256_shuffle_epi32::<0>(views[i]);
        long[i] = _mm256_cmpgt_epi32(_mm256_xor_si256(lens, sign), most);
        any = _mm256_or_si256(any, _mm256_and_si256(views[i], long[i]));
    }
    let any = _mm_or_si128(_mm256_castsi256_si128(any), _mm256_extracti128_si256::<1>(any));
    let lens = _mm_cvtsi128_si64(any).cast_unsigned();
    let buffers = _mm_cvtsi128_si64(_mm_unpackhi_epi64(any, any)).cast_unsigned();
    #[expect(clippy::cast_possible_truncation, reason = "lengths and buffers have 32 bits")]
    let (lens, buffer) = (lens as u32, buffers as u32);
    let third = _mm256_setr_epi32(0, 0, -1, 0, 0, 0, -1, 0);
    let expected = _mm256_set1_epi32(buffer.cast_signed());
    let mut other = _mm256_setzero_si256();
    for i in 0..VECTORS {
        let differs = _mm256_xor_si256(views[i], expected);
        other = _mm256_or_si256(other, _mm256_and_si256(differs, long[i]));
    }
    if _mm256_testz_si256(other, third) == 0 {
        return false;
    }
    // SAFETY: the caller's base.
    let bits = unsafe { table.bits(base, buffer, if lens == 0 { 0 } else { u64::MAX }) };
    let step = _mm256_and_si256(_mm256_set1_epi64x(bits.cast_signed()), third);
    for i in 0..VECTORS {
        // SAFETY: the caller's room.
        unsafe {
            let view = _mm256_xor_si256(views[i], _mm256_and_si256(step, long[i]));
            _mm256_storeu_si256(to.add(i), view);
        }
    }
    true
}
