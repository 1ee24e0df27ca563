//! Where the columns of keys are written, one after the other.
//!
//! ```text
//! packed   0……0 │ 01 80000007 │ 0…      a place: shift, marker and complement of one column
//! bytes    cursors ──▶ data             a row's cursor moves on with every column
//! ```
//!
//! # Not here
//! What is written (`column`).

use super::keys::{KeyBytes, Keys, VALUE};
use super::shape::KeyColumn;

/// Where columns are written.
pub(super) enum Target {
    /// Keys with the columns so far, which take their first `used` bits.
    Packed { keys: Vec<u128>, used: u32 },
    /// Zeros but for the columns so far; row `i` goes on at `cursors[i]`.
    Bytes { offsets: Vec<usize>, cursors: Vec<usize>, data: Vec<u8> },
}

impl Target {
    /// Room for keys of these lengths.
    pub(super) fn bytes(lengths: Vec<usize>) -> Self {
        // Lengths become starts in place.
        let mut cursors = lengths;
        let mut offsets = Vec::with_capacity(cursors.len() + 1);
        let mut end = 0;
        offsets.push(0);
        for cursor in &mut cursors {
            let start = end;
            end += *cursor;
            *cursor = start;
            offsets.push(end);
        }
        Self::Bytes { offsets, cursors, data: vec![0; end] }
    }

    pub(super) fn finish(self) -> Keys {
        match self {
            Self::Packed { keys, .. } => Keys::Packed(keys),
            Self::Bytes { offsets, cursors, data } => {
                debug_assert!(offsets[1..] == cursors, "a row ends where the next one starts");
                Keys::Bytes(KeyBytes::from_parts(offsets, data))
            }
        }
    }
}

/// The bits of one column in a packed key.
#[derive(Clone, Copy)]
pub(super) struct BitRange {
    /// The marker of a value; all other bits too when descending.
    flip: u128,
    null: u128,
    shift: u32,
    bits: u32,
}

impl BitRange {
    /// The place behind the first `used` bits, which it adds itself to.
    pub(super) fn of(column: &KeyColumn, used: &mut u32) -> Self {
        let bits = 8 * column.ty.width().unwrap_or(0) as u32;
        let marker = 8 * column.ty.marker_bytes() as u32;
        let shifted = |byte: u8| u128::from(byte).checked_shl(bits).unwrap_or(0);
        let with_marker = |byte: u8| if marker > 0 { shifted(byte) } else { 0 };
        let complement = if column.descending { shifted(1).wrapping_sub(1) } else { 0 };
        *used += marker + bits;
        Self {
            flip: with_marker(VALUE) | complement,
            null: with_marker(column.null_marker()),
            shift: u128::BITS.saturating_sub(*used),
            bits: marker + bits,
        }
    }

    /// Adds a value to each key.
    pub(super) fn put(self, keys: &mut [u128], values: &[u64]) {
        const HALF: u32 = u64::BITS;
        let (flip, shift) = (self.flip as u64, self.shift);
        let pairs = keys.iter_mut().zip(values);
        // Numbers of 128 bits are slow to shift: most columns need only one half.
        if self.bits > HALF {
            pairs.for_each(|(key, value)| *key |= self.bits(Some(u128::from(*value))));
        } else if shift >= HALF {
            let shift = shift - HALF;
            pairs.for_each(|(key, value)| *key |= u128::from((value ^ flip) << shift) << HALF);
        } else if shift == 0 {
            pairs.for_each(|(key, value)| *key |= u128::from(value ^ flip));
        } else {
            pairs.for_each(|(key, value)| {
                let (low, high) = ((value ^ flip) << shift, (value ^ flip) >> (HALF - shift));
                *key |= u128::from(high) << HALF | u128::from(low);
            });
        }
    }

    /// A value of the column, or null, in its place.
    #[inline(always)]
    pub(super) fn bits(self, value: Option<u128>) -> u128 {
        value.map_or(self.null, |value| value ^ self.flip) << self.shift
    }
}
