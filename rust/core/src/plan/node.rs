//! A source's next key as it stands in the loser tree: the one order of rows, ties included.
//!
//! ```text
//! Tagged    key of up to 12 bytes │ source        one number: no tie is left to break
//! Wide      key of up to 16 bytes, source
//! Prefixed  first 8 bytes, source                 then the whole keys, then the sources
//! ```
//!
//! # Invariants
//! Equal keys leave in source order: upheld by `before` of each form, the only comparison. A source
//! that has ended comes behind every key.
//!
//! # Not here
//! Who plays whom (`loser_tree`).

use std::cmp::Ordering;

use super::batch::Batch;
use super::loser_tree::Head;
use crate::key::KeyBytes;

/// Bytes of the longest keys that leave room for their source in a number.
pub(super) const TAGGED_BYTES_MAX: usize = 12;

/// Sources that a node can name.
pub(super) const SOURCES_MAX: usize = ENDED as usize;

/// Set in the source of a node whose source has ended: behind all that have the same key.
const ENDED: u32 = 1 << 30;

/// The next key of a source, or its end.
pub(super) trait Node: Copy {
    type Keys: Batch;

    /// Key `i` of a batch of `source`.
    fn new(keys: &Self::Keys, i: usize, source: u32) -> Self;
    /// The end of `source`.
    fn end(source: u32) -> Self;
    fn source(self) -> usize;
    fn is_end(self) -> bool;
    /// The one order of rows: by key, then by source. `heads` are the keys that nodes are made of.
    fn before(self, other: Self, heads: &[Head<Self::Keys>]) -> bool;

    /// The one that is first, then the other.
    #[inline(always)]
    fn play(self, other: Self, heads: &[Head<Self::Keys>]) -> (Self, Self) {
        if self.before(other, heads) { (self, other) } else { (other, self) }
    }
}

/// A zero bit, the key in 96 bits, the source in 31.
#[derive(Clone, Copy)]
pub(super) struct Tagged(u128);

impl Node for Tagged {
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
    fn before(self, other: Self, _: &[Head<Vec<u128>>]) -> bool {
        self.0 < other.0
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

impl Node for Wide {
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
    fn before(self, other: Self, _: &[Head<Vec<u128>>]) -> bool {
        (self.key < other.key) | ((self.key == other.key) & (self.source < other.source))
    }
}

/// The first bytes of the key, and the source.
#[derive(Clone, Copy)]
pub(super) struct Prefixed {
    prefix: u64,
    source: u32,
}

impl Node for Prefixed {
    type Keys = KeyBytes;

    #[inline]
    fn new(keys: &KeyBytes, i: usize, source: u32) -> Self {
        let key = keys.get(i);
        let prefix = match key.first_chunk() {
            Some(first) => u64::from_be_bytes(*first),
            None => key
                .iter()
                .fold(0, |word, byte| word << 8 | u64::from(*byte))
                .checked_shl(8 * (8 - key.len() as u32))
                .unwrap_or(0),
        };
        Self { prefix, source }
    }

    fn end(source: u32) -> Self {
        Self { prefix: u64::MAX, source: source | ENDED }
    }

    #[inline]
    fn source(self) -> usize {
        (self.source & !ENDED) as usize
    }

    #[inline]
    fn is_end(self) -> bool {
        self.source & ENDED != 0
    }

    #[inline]
    fn before(self, other: Self, heads: &[Head<KeyBytes>]) -> bool {
        if self.prefix != other.prefix {
            return self.prefix < other.prefix;
        }
        if !self.is_end() && !other.is_end() {
            let (a, b) = (&heads[self.source()], &heads[other.source()]);
            match a.keys.compare(a.next, &b.keys, b.next) {
                Ordering::Equal => {}
                unequal => return unequal == Ordering::Less,
            }
        }
        self.source < other.source
    }
}
