//! Views that lead to the buffer to which those before them led, two in a vector: rows in the order
//! of their arrays, and long runs.
//!
//! ```text
//! view     length | prefix | buffer | offset       12 bytes or less: length | bytes
//! buffer        0 |      0 |      b |      0       to which views of the array led so far
//! step          0 |      0 |      s |      0       what makes of b its new number, in views of more bytes
//! ```
//!
//! # Invariants
//! As in the file above. Views that lead to another buffer than expected are left to the table, and
//! what the last of them led to is expected from then on.
//!
//! # Cost
//! Two views are a dozen steps of vectors and a store; where they follow each other, one load, else
//! two, and four of what is expected.
//!
//! # Not here
//! Rows in any order and short runs, whose buffers nobody can expect; processors without such
//! vectors.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_load_si128, _mm_loadu_si128, _mm_storeu_si128, _mm256_and_si256,
    _mm256_broadcastsi128_si256, _mm256_castsi128_si256, _mm256_castsi256_ps,
    _mm256_castsi256_si128, _mm256_cmpgt_epi32, _mm256_inserti128_si256, _mm256_loadu_si256,
    _mm256_movemask_ps, _mm256_or_si256, _mm256_set1_epi32, _mm256_setr_epi32,
    _mm256_setzero_si256, _mm256_shuffle_epi32, _mm256_storeu_si256, _mm256_testz_si256,
    _mm256_xor_si256,
};
use std::ops::Range;

use super::super::{halves, start};
use super::table::{Table, VIEW_BYTES_MAX, ViewSource, buffer, long, one};
use crate::select::{Form, Rows, Selection};
use plait_base::Run;

/// Runs of as many rows, in the mean, are long.
const RUN_ROWS: usize = 256;

/// Rows of a run that are copied again if one of them leads to another buffer.
const CHUNK_ROWS: usize = 64;

/// Once an array, so many times, and once in so many tries, views may lead to another buffer than
/// expected: if more, they go on to do so.
const OTHERS_MIN: usize = 8;
const TRIES_PER_OTHER: usize = 8;

/// Copies selected views to `out`, from the first on, as far as this is the way, and tells how
/// many.
///
/// # Safety
/// The processor has the vectors. Every selected row is inside of its source, whose base the table
/// has, and there is room for all.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn copied<F: FnMut(usize, usize) -> u32>(
    table: &mut Table<'_, F>,
    sources: &[ViewSource<'_>],
    selection: &Selection,
    out: *mut u128,
) -> usize {
    // SAFETY: the caller's.
    unsafe {
        match selection.form() {
            Form::Rows(rows) if !rows.are_in_pieces() => {
                Recents::new(table, sources).rows(rows, out)
            }
            Form::Runs(runs) if selection.len() / runs.len().max(1) >= RUN_ROWS => {
                Recents::new(table, sources).runs(runs, out)
            }
            _ => 0,
        }
    }
}

/// The buffer to which views of an array led, and its step, as the third of four numbers.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Recent {
    buffer: [u32; 4],
    step: [u32; 4],
}

/// Of no view, so far. A view that leads nowhere may have that number: the highest bit of the step
/// tells.
const NONE: Recent = Recent { buffer: [0, 0, u32::MAX, 0], step: [0, 0, 1 << 31, 0] };

/// What is recent of every array.
struct Recents<'a, 't, F> {
    all: Vec<Recent>,
    /// Where their views begin. The bases have it too, but a pointer alone is found in one step
    /// less.
    starts: Vec<*const u128>,
    sources: &'a [ViewSource<'a>],
    table: &'a mut Table<'t, F>,
}

/// What copied views had, put together.
struct Seen {
    /// Differences from what was expected, and others.
    others: __m256i,
    steps: __m256i,
}

impl<'a, 't, F: FnMut(usize, usize) -> u32> Recents<'a, 't, F> {
    fn new(table: &'a mut Table<'t, F>, sources: &'a [ViewSource<'a>]) -> Self {
        let starts = sources.iter().map(|source| source.views.as_ptr()).collect();
        Self { all: vec![NONE; sources.len()], starts, sources, table }
    }

    /// Whether too many of so many tries led to other buffers than expected.
    #[inline]
    fn is_enough(&self, others: usize, tries: usize) -> bool {
        others > OTHERS_MIN + self.all.len() + tries / TRIES_PER_OTHER
    }

    /// Copies rows until too many lead to other buffers than expected.
    ///
    /// # Safety
    /// As for [`copied`].
    #[target_feature(enable = "avx2")]
    unsafe fn rows(&mut self, rows: &Rows, out: *mut u128) -> usize {
        let (arrays, numbers) = rows.as_slices();
        let ((arrays, _), (numbers, _)) = (arrays.as_chunks::<4>(), numbers.as_chunks::<4>());
        let (mut done, mut others, mut steps) = (0, 0, _mm256_setzero_si256());
        for (arrays, numbers) in arrays.iter().zip(numbers) {
            // SAFETY: the caller's.
            unsafe {
                let seen = self.four(arrays, numbers, out.add(done));
                if are_as_expected(seen.others) {
                    steps = _mm256_or_si256(steps, seen.steps);
                } else {
                    for (i, (array, row)) in arrays.iter().zip(numbers).enumerate() {
                        let (array, row) = (*array as usize, *row as usize);
                        self.again(array, row..row + 1, out.add(done + i));
                    }
                    others += 1;
                }
            }
            done += 4;
            if self.is_enough(others, done / 4) {
                break;
            }
        }
        self.table.astray |= is_high(steps);
        done
    }

    /// Copies runs until too many parts of them lead to other buffers than expected.
    ///
    /// # Safety
    /// As for [`copied`].
    #[target_feature(enable = "avx2")]
    unsafe fn runs(&mut self, runs: &[Run], out: *mut u128) -> usize {
        let (mut done, mut steps) = (0, _mm256_setzero_si256());
        let (mut tries, mut others) = (0, 0);
        'runs: for run in runs {
            let (array, first) = (run.source.0 as usize, start(run));
            let end = first + run.len as usize;
            for row in (first..end).step_by(CHUNK_ROWS) {
                let rows = row..end.min(row + CHUNK_ROWS);
                // SAFETY: the caller's.
                unsafe {
                    let to = out.add(done);
                    let seen = self.chunk(array, rows.clone(), to);
                    if are_as_expected(seen.others) {
                        steps = _mm256_or_si256(steps, seen.steps);
                    } else {
                        self.again(array, rows.clone(), to);
                        others += 1;
                    }
                }
                done += rows.len();
                tries += 1;
                if self.is_enough(others, tries) {
                    break 'runs;
                }
            }
        }
        self.table.astray |= is_high(steps);
        done
    }

    /// Copies rows that follow each other.
    ///
    /// # Safety
    /// The array has the rows; there is room for them at `to`.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn chunk(&self, array: usize, rows: Range<usize>, to: *mut u128) -> Seen {
        debug_assert!(rows.end <= self.sources[array].views.len());
        let mut seen = Seen::nothing();
        // SAFETY: the caller's.
        unsafe {
            let recent = self.all.get_unchecked(array);
            let buffer = _mm256_broadcastsi128_si256(_mm_load_si128(recent.buffer.as_ptr().cast()));
            let step = _mm256_broadcastsi128_si256(_mm_load_si128(recent.step.as_ptr().cast()));
            let from = self.starts.get_unchecked(array).add(rows.start);
            let mut at = 0;
            let mut two = |at: usize| {
                let views = _mm256_loadu_si256(from.add(at).cast());
                _mm256_storeu_si256(to.add(at).cast(), seen.changed(views, buffer, step));
            };
            while at + 4 <= rows.len() {
                two(at);
                two(at + 2);
                at += 4;
            }
            if at + 2 <= rows.len() {
                two(at);
                at += 2;
            }
            if at < rows.len() {
                let view = _mm_loadu_si128(from.add(at).cast());
                let views = seen.changed(pair(view, view), buffer, step);
                _mm_storeu_si128(to.add(at).cast(), _mm256_castsi256_si128(views));
            }
        }
        seen
    }

    /// Copies four rows.
    ///
    /// # Safety
    /// The arrays are there and have the rows; there is room for them at `to`.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn four(&self, arrays: &[u32; 4], rows: &[u32; 4], to: *mut u128) -> Seen {
        let mut seen = Seen::nothing();
        for i in [0, 2] {
            let (a0, a1) = halves(&[arrays[i], arrays[i + 1]]);
            let (r0, r1) = halves(&[rows[i], rows[i + 1]]);
            debug_assert!(r0 < self.sources[a0].views.len() && r1 < self.sources[a1].views.len());
            // SAFETY: the caller's.
            unsafe {
                let first = self.starts.get_unchecked(a0).add(r0);
                let second = self.starts.get_unchecked(a1).add(r1);
                let views = pair(_mm_loadu_si128(first.cast()), _mm_loadu_si128(second.cast()));
                let (first, second) = (self.all.get_unchecked(a0), self.all.get_unchecked(a1));
                let buffer = pair(
                    _mm_load_si128(first.buffer.as_ptr().cast()),
                    _mm_load_si128(second.buffer.as_ptr().cast()),
                );
                let step = pair(
                    _mm_load_si128(first.step.as_ptr().cast()),
                    _mm_load_si128(second.step.as_ptr().cast()),
                );
                _mm256_storeu_si256(to.add(i).cast(), seen.changed(views, buffer, step));
            }
        }
        seen
    }

    /// Copies rows as the table says, and expects from now on what the last of them led to.
    ///
    /// # Safety
    /// The array has the rows; there is room for them at `to`.
    #[cold]
    #[inline(never)]
    unsafe fn again(&mut self, array: usize, rows: Range<usize>, to: *mut u128) {
        // SAFETY: the caller's; the base is that of the array.
        unsafe {
            let base = *self.table.bases.get_unchecked(array);
            let source = self.sources.get_unchecked(array);
            for (i, row) in rows.clone().enumerate() {
                one(self.table, base, row, to.add(i));
            }
            let views = source.views.get(rows).unwrap_or_default();
            if let Some(last) = views.iter().rev().find(|view| long(**view) != 0)
                && (buffer(*last) as usize) < source.buffers
                && let step = self.table.bits(base, buffer(*last), u64::MAX)
                // Steps as large as that of none are left to the table.
                && let Ok(step) = i32::try_from(step)
                && let Some(recent) = self.all.get_mut(array)
            {
                recent.buffer = [0, 0, buffer(*last), 0];
                recent.step = [0, 0, step.cast_unsigned(), 0];
            }
        }
    }
}

impl Seen {
    #[target_feature(enable = "avx2")]
    #[inline]
    fn nothing() -> Self {
        Self { others: _mm256_setzero_si256(), steps: _mm256_setzero_si256() }
    }

    /// Two views, the long ones changed by their steps.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn changed(&mut self, views: __m256i, buffer: __m256i, step: __m256i) -> __m256i {
        // Lengths are compared as if they had a sign.
        let sign = _mm256_set1_epi32(i32::MIN);
        let most = _mm256_set1_epi32(VIEW_BYTES_MAX.cast_signed() ^ i32::MIN);
        // The first of the four numbers of a view is the length.
        let lens = _mm256_shuffle_epi32::<0>(views);
        let long = _mm256_cmpgt_epi32(_mm256_xor_si256(lens, sign), most);
        let other = _mm256_and_si256(_mm256_xor_si256(views, buffer), long);
        self.others = _mm256_or_si256(self.others, other);
        let step = _mm256_and_si256(step, long);
        self.steps = _mm256_or_si256(self.steps, step);
        _mm256_xor_si256(views, step)
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn pair(first: __m128i, second: __m128i) -> __m256i {
    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(first), second)
}

/// Whether the third of four numbers is 0 in both halves.
#[target_feature(enable = "avx2")]
#[inline]
fn are_as_expected(others: __m256i) -> bool {
    let third = _mm256_setr_epi32(0, 0, -1, 0, 0, 0, -1, 0);
    _mm256_testz_si256(others, third) == 1
}

/// Whether the highest bit of a number is set.
#[target_feature(enable = "avx2")]
#[inline]
fn is_high(steps: __m256i) -> bool {
    _mm256_movemask_ps(_mm256_castsi256_ps(steps)) != 0
}
