//! A batch of encoded keys, in the two forms that the loser tree is compiled for.
//!
//! ```text
//! Packed  u128 u128 u128 …          one comparison of two registers
//! Bytes   [bytes][bytes][bytes] …   first 8 bytes as u64, then memcmp
//! ```
//!
//! # Invariants
//! `short(a) < short(b)` implies `a < b`; for packed keys it is the whole comparison.
//!
//! # Not here
//! How the bytes come about (`key`).

use std::cmp::Ordering;

use crate::key::{KeyBytes, pack};

/// What the loser tree needs to know of a batch of keys.
pub(crate) trait Batch: Sized {
    /// A word that decides most comparisons.
    type Short: Copy + Ord;

    fn len(&self) -> usize;
    fn short(&self, i: usize) -> Self::Short;
    fn compare(&self, i: usize, other: &Self, j: usize) -> Ordering;
    fn compare_bytes(&self, i: usize, bytes: &[u8]) -> Ordering;
    /// Bytes of key `i`; packed keys of `width` bytes are cut to it.
    fn bytes(&self, i: usize, width: usize) -> Vec<u8>;
    fn single(bytes: &[u8]) -> Self;
}

impl Batch for Vec<u128> {
    type Short = u128;

    fn len(&self) -> usize {
        self.as_slice().len()
    }

    #[inline]
    fn short(&self, i: usize) -> u128 {
        self[i]
    }

    #[inline]
    fn compare(&self, i: usize, other: &Self, j: usize) -> Ordering {
        self[i].cmp(&other[j])
    }

    #[inline]
    fn compare_bytes(&self, i: usize, bytes: &[u8]) -> Ordering {
        self[i].cmp(&pack(bytes))
    }

    fn bytes(&self, i: usize, width: usize) -> Vec<u8> {
        self[i].to_be_bytes().into_iter().take(width).collect()
    }

    fn single(bytes: &[u8]) -> Self {
        vec![pack(bytes)]
    }
}

impl Batch for KeyBytes {
    type Short = u64;

    fn len(&self) -> usize {
        KeyBytes::len(self)
    }

    #[inline]
    fn short(&self, i: usize) -> u64 {
        let key = self.get(i);
        let mut word = [0; 8];
        let n = key.len().min(8);
        word[..n].copy_from_slice(&key[..n]);
        u64::from_be_bytes(word)
    }

    #[inline]
    fn compare(&self, i: usize, other: &Self, j: usize) -> Ordering {
        self.get(i).cmp(other.get(j))
    }

    #[inline]
    fn compare_bytes(&self, i: usize, bytes: &[u8]) -> Ordering {
        self.get(i).cmp(bytes)
    }

    fn bytes(&self, i: usize, _width: usize) -> Vec<u8> {
        self.get(i).to_vec()
    }

    fn single(bytes: &[u8]) -> Self {
        let mut keys = Self::default();
        keys.push(bytes);
        keys
    }
}
