//! Which of the next rows follow each other? Short runs, found while they are copied.
//!
//! ```text
//! arrays 0 0 0 0 0 0 0 0 | 1 1 1 0 ..        pieces [0:4+8] [1:7+3] [0:2+..]
//! rows   4 5 6 7 8 9 a b | 7 8 9 2 ..
//! ```
//!
//! # Invariants
//! Pieces are the rows, in order; none is empty or longer than [`PIECE_ROWS`].
//!
//! # Cost
//! Eight rows are two comparisons of vectors. A piece begins where the last one ended, so runs need
//! not begin at multiples of eight.
//!
//! # Not here
//! Long runs, which `lower` joins with the help of [`high_bits`]; copying.

#![expect(unsafe_code, reason = "fenced: see `kernel`")]

/// Rows that are compared at once.
pub(crate) const PIECE_ROWS: usize = 8;

/// Runs a block with array, first row and number of rows of every piece.
macro_rules! each_piece {
    ($rows:expr, |$array:ident, $row:ident, $len:ident| $body:block) => {{
        let (arrays, numbers) = $rows.as_slices();
        let rows = arrays.len().min(numbers.len());
        let mut at = 0;
        while rows - at >= $crate::kernel::pieces::PIECE_ROWS {
            // SAFETY: the condition proved that there are as many rows from `at` on.
            let (a, n) = unsafe {
                (&*arrays.as_ptr().add(at).cast(), &*numbers.as_ptr().add(at).cast::<[u32; 8]>())
            };
            let follow = $crate::kernel::pieces::follow(a, n);
            let ($array, $row) = (a[0] as usize, n[0] as usize);
            // A branch, and not a length that is computed: what is foreseen need not be waited for.
            if follow == $crate::kernel::pieces::ALL {
                let $len = $crate::kernel::pieces::PIECE_ROWS;
                at += $len;
                $body
            } else {
                let $len = follow.trailing_ones() as usize;
                at += $len;
                $body
            }
        }
        for (array, number) in arrays.iter().zip(numbers).skip(at) {
            let ($array, $row, $len) = (*array as usize, *number as usize, 1);
            $body
        }
    }};
}
pub(super) use each_piece;

/// All rows follow each other.
pub(super) const ALL: u32 = (1 << PIECE_ROWS) - 1;

/// Distances from the first row.
const STEPS: [u32; PIECE_ROWS] = [0, 1, 2, 3, 4, 5, 6, 7];

/// Bit `i` is set where row `i` is as far behind the first as it would be in a run; bit 0 always
/// is.
///
/// Rows are below a length that fits, so the largest number is no row, and no run goes on from it
/// to 0.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn follow(arrays: &[u32; PIECE_ROWS], rows: &[u32; PIECE_ROWS]) -> u32 {
    use std::arch::x86_64::{
        __m128i, _mm_add_epi32, _mm_and_si128, _mm_cmpeq_epi32, _mm_loadu_si128, _mm_movemask_epi8,
        _mm_packs_epi16, _mm_packs_epi32, _mm_set1_epi32,
    };
    let load = |from: &[u32; PIECE_ROWS], half: usize| {
        // SAFETY: each half has four numbers; loads need not be aligned. SSE2 is part of x86-64.
        unsafe { _mm_loadu_si128(from.as_ptr().cast::<__m128i>().add(half)) }
    };
    // SAFETY: SSE2 is part of x86-64.
    unsafe {
        let array = _mm_set1_epi32(arrays[0].cast_signed());
        let row = _mm_set1_epi32(rows[0].cast_signed());
        let half = |i: usize| {
            let rows = _mm_cmpeq_epi32(load(rows, i), _mm_add_epi32(row, load(&STEPS, i)));
            _mm_and_si128(_mm_cmpeq_epi32(load(arrays, i), array), rows)
        };
        let words = _mm_packs_epi32(half(0), half(1));
        _mm_movemask_epi8(_mm_packs_epi16(words, words)).cast_unsigned() & ALL
    }
}

/// The same without vectors.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(super) fn follow(arrays: &[u32; PIECE_ROWS], rows: &[u32; PIECE_ROWS]) -> u32 {
    let follows = |i: usize| arrays[i] == arrays[0] && rows[i] == rows[0].wrapping_add(STEPS[i]);
    (0..PIECE_ROWS).fold(0, |mask, i| mask | u32::from(follows(i)) << i)
}

/// Bit `i` is the highest of byte `i`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn high_bits(bytes: &[u8; 64]) -> u64 {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_movemask_epi8};
    (0..4).fold(0, |mask, i| {
        // SAFETY: each quarter has 16 bytes; loads need not be aligned. SSE2 is part of x86-64.
        let bits =
            unsafe { _mm_movemask_epi8(_mm_loadu_si128(bytes.as_ptr().cast::<__m128i>().add(i))) };
        mask | u64::from(bits.cast_unsigned()) << (16 * i)
    })
}

/// The same without vectors.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn high_bits(bytes: &[u8; 64]) -> u64 {
    bytes.iter().rev().fold(0, |mask, byte| mask << 1 | u64::from(byte >> 7))
}
