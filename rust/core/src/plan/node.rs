//! A source's next key as it stands in the loser tree: the one order of rows, ties included.
//!
//! ```text
//! Tagged   key of up to 12 bytes │ source        one number: no tie is left to break
//! Wide     key of up to 16 bytes, source
//! Coded    where the key differs, source         keys of any length, see `coded`
//! ```
//!
//! # Invariants
//! Equal keys leave in source order: upheld by `play` of each form, the only comparison. A source
//! that has ended comes behind every key.
//!
//! # Not here
//! Who plays whom (`loser_tree`).

use super::batch::Batch;
use super::head::Head;

/// Bytes of the longest keys that leave room for their source in a number.
pub(super) const TAGGED_BYTES_MAX: usize = 12;

/// Sources that a node can name.
pub(super) const SOURCES_MAX: usize = ENDED as usize;

/// Set in the source of a node whose source has ended: behind all that have the same key.
pub(super) const ENDED: u32 = 1 << 30;

/// The next key of a source, or its end.
pub(super) trait TreeNode: Copy {
    type Keys: Batch;

    /// Key `i` of a batch of `source`, when the one before it has left.
    fn new(keys: &Self::Keys, i: usize, source: u32) -> Self;
    /// The same, when nothing has left.
    fn root(keys: &Self::Keys, i: usize, source: u32) -> Self {
        Self::new(keys, i, source)
    }
    /// The same, when all that it will meet was beaten by key `base.1` of `base.0`.
    fn against(keys: &Self::Keys, i: usize, source: u32, base: (&Self::Keys, usize)) -> Self {
        let _of_no_use = base;
        Self::new(keys, i, source)
    }
    /// The end of `source`.
    fn end(source: u32) -> Self;
    fn source(self) -> usize;
    fn is_end(self) -> bool;
    /// The one order of rows: by key, then by source. Gives the first, then the other, as it stands
    /// to the first. `heads` are the keys that nodes are made of.
    fn play(self, other: Self, heads: &[Head<Self::Keys>]) -> (Self, Self);
}

/// A zero bit, the key in 96 bits, the source in 31.
#[derive(Clone, Copy)]
pub(super) struct Tagged(u128);

impl TreeNode for Tagged {
    type Keys = Vec<u128>;

    #[inline(always)]
    fn new(keys: &Vec<u128>, i: usize, source: u32) -> Self {
        Self(keys[i] >> 1 | u128::from(source))
    }

    fn end(source: u32) -> Self {
        Self(u128::MAX >> 1 & !u128::from(ENDED - 1) | u128::from(source))
    }

    #[inline(always)]
    fn source(self) -> usize {
        (self.0 as u32 & (ENDED - 1)) as usize
    }

    #[inline(always)]
    fn is_end(self) -> bool {
        self.0 as u32 & ENDED != 0
    }

    #[inline(always)]
    fn play(self, other: Self, _: &[Head<Vec<u128>>]) -> (Self, Self) {
        // Without a branch, which no guess gets right: the first bits are zero, so the sign of the
        // difference tells.
        let is_less = (self.0.wrapping_sub(other.0).cast_signed() >> 127).cast_unsigned();
        let swapped = (self.0 ^ other.0) & is_less;
        (Self(other.0 ^ swapped), Self(self.0 ^ swapped))
    }
}

/// The key and the source.
#[derive(Clone, Copy)]
pub(super) struct Wide {
    key: u128,
    source: u32,
}

impl TreeNode for Wide {
    type Keys = Vec<u128>;

    #[inline(always)]
    fn new(keys: &Vec<u128>, i: usize, source: u32) -> Self {
        Self { key: keys[i], source }
    }

    fn end(source: u32) -> Self {
        Self { key: u128::MAX, source: source | ENDED }
    }

    #[inline(always)]
    fn source(self) -> usize {
        (self.source & !ENDED) as usize
    }

    #[inline(always)]
    fn is_end(self) -> bool {
        self.source & ENDED != 0
    }

    #[inline(always)]
    fn play(self, other: Self, _: &[Head<Vec<u128>>]) -> (Self, Self) {
        let is_first =
            (self.key < other.key) | ((self.key == other.key) & (self.source < other.source));
        if is_first { (self, other) } else { (other, self) }
    }
}
