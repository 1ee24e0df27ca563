//! Bits: booleans and validity.
//!
//! # Invariants
//! As in the file above: sources are checked once, rows are proved by their [`Selection`].
//!
//! # Cost
//! A byte a row; 64 bits at once where rows follow each other.
//!
//! # Not here
//! Counting what is null (`gather`).

#![expect(unsafe_code, reason = "fenced: see `kernel`")]

use arrow_buffer::Buffer;

use super::pieces::each_piece;
use super::{Vectored, start, vectored};
use crate::select::{Form, Rows, Selection};
use plait_base::Run;

/// Bits of an array, or none where all are set.
pub(crate) type Bits<'a> = Option<(&'a [u8], usize)>;

/// The selected bits; `sources` are bytes and the bit where the array begins.
pub(crate) fn bits(sources: &[Bits<'_>], selection: &Selection) -> Buffer {
    for (source, limit) in sources.iter().zip(selection.limits()) {
        let Some((bytes, offset)) = source else { continue };
        let end = limit.checked_add(*offset);
        assert!(end.is_some_and(|end| end.div_ceil(8) <= bytes.len()), "array is too short");
    }
    assert!(sources.len() >= selection.limits().len(), "an array is missing");
    let mut words = Words::new(selection.len());
    match selection.form() {
        Form::Rows(rows) if rows.are_in_pieces() => {
            vectored(BitPieces { sources, rows, words: &mut words });
        }
        Form::Rows(rows) => {
            // SAFETY: the assertions above proved that every bit below a limit is inside of its
            // source, and `Selection` that every selected row is below its limit.
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
    let (mut word, mut fill) = (0_u64, 0_u32);
    each_row!(rows.as_slices(), |array, row| {
        debug_assert!(
            sources[array].is_none_or(|(bytes, offset)| (row + offset) / 8 < bytes.len())
        );
        // SAFETY: the caller proved that the array is there and the row's bit inside of it; where
        // there are no bits, the mask makes it bit 0 of `ONES`.
        let bit = unsafe {
            let base = bases.get_unchecked(array);
            let bit = (row + base.offset) & base.mask;
            u64::from(*base.bytes.add(bit / 8) >> (bit % 8))
        };
        // The newest bit comes in from above: the word is whole when it has 64.
        word = word >> 1 | bit << 63;
        fill += 1;
        if fill == 64 {
            words.push(word, 64);
            (word, fill) = (0, 0);
        }
    });
    if fill > 0 {
        words.push(word >> (64 - fill), fill as usize);
    }
}

/// Rows that often follow each other: their bits are in two bytes.
struct BitPieces<'a> {
    sources: &'a [Bits<'a>],
    rows: &'a Rows,
    words: &'a mut Words,
}

impl Vectored for BitPieces<'_> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let Self { sources, rows, words } = self;
        each_piece!(rows, |array, row, len| {
            let mut bits = u64::from(u8::MAX);
            if let Some((bytes, offset)) = sources.get(array).copied().flatten() {
                let (byte, shift) = ((row + offset) / 8, (row + offset) % 8);
                let at = |byte: usize| u64::from(bytes.get(byte).copied().unwrap_or(0));
                bits &= (at(byte + 1) << 8 | at(byte)) >> shift;
            }
            words.push(bits & (u64::MAX >> (64 - len)), len);
        });
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
    // Most runs are short: whatever bit of a byte they begin with, they lie in eight bytes.
    if left <= 56
        && let Some(word) = bytes.get(at / 8..).and_then(|rest| rest.first_chunk())
    {
        let word = u64::from_le_bytes(*word) >> (at % 8);
        words.push(word & (u64::MAX >> (64 - left)), left);
        return;
    }
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
            self.done.push(self.word.to_le());
            self.fill -= 64;
            // What did not fit: nothing if all did.
            self.word = if self.fill == 0 { 0 } else { word >> (len - self.fill) };
        }
    }

    fn finish(mut self) -> Buffer {
        if self.fill > 0 {
            self.done.push(self.word.to_le());
        }
        debug_assert!(self.done.len() * 64 >= self.len, "bits are missing");
        Buffer::from_vec(self.done)
    }
}
