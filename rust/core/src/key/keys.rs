//! Many keys in one allocation: `u128`s when they fit, bytes with offsets when not.
//!
//! ```text
//! Packed   01 80 00 00 07 01 … │ 00 00     key bytes from the left, zeros to 16
//! Bytes    offsets 0 9 21 …   data 01 61 62 00 00 …
//! ```
//!
//! # Invariants
//! `offsets` starts with 0, never descends and ends with `data.len()`. Packed keys of one shape
//! have one length, so their order as numbers is their order as bytes.
//!
//! # Cost
//! 16 bytes a packed key; its length and 8 bytes for any other.
//!
//! # Not here
//! Making keys (`column`, `arrow`).

use super::shape::{KeyShape, PACKED_BYTES_MAX};

/// First byte of everything that is not null.
pub(super) const VALUE: u8 = 0x01;

/// Follows a zero byte that belongs to the value.
pub(super) const ESCAPED: u8 = 0x01;

/// The keys of consecutive rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Keys of at most 16 bytes, from the left in big-endian order.
    Packed(Vec<u128>),
    /// All others.
    Bytes(KeyBytes),
}

impl Keys {
    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Packed(keys) => keys.len(),
            Self::Bytes(keys) => keys.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes held on the heap.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        match self {
            Self::Packed(keys) => keys.capacity() * size_of::<u128>(),
            Self::Bytes(keys) => keys.memory_size(),
        }
    }

    /// The bytes of key `i`; `shape` is the one it was encoded with.
    ///
    /// # Panics
    /// When there is no key `i`.
    #[must_use]
    pub fn to_bytes(&self, shape: &KeyShape, i: usize) -> Vec<u8> {
        match self {
            Self::Packed(keys) => {
                let width = shape.fixed_width().unwrap_or(PACKED_BYTES_MAX).min(PACKED_BYTES_MAX);
                keys[i].to_be_bytes()[..width].to_vec()
            }
            Self::Bytes(keys) => keys.get(i).to_vec(),
        }
    }
}

/// Keys of any length, one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyBytes {
    offsets: Vec<usize>,
    data: Vec<u8>,
}

impl Default for KeyBytes {
    fn default() -> Self {
        Self { offsets: vec![0], data: Vec::new() }
    }
}

impl KeyBytes {
    /// Keys from their offsets and bytes, which the caller made to fit.
    pub(crate) fn from_parts(offsets: Vec<usize>, data: Vec<u8>) -> Self {
        debug_assert!(offsets.first() == Some(&0), "offsets start with 0");
        debug_assert!(offsets.is_sorted(), "offsets never descend");
        debug_assert!(offsets.last() == Some(&data.len()), "offsets end with the data");
        Self { offsets, data }
    }

    /// The bytes of key `i`.
    ///
    /// # Panics
    /// When there is no key `i`.
    #[inline]
    #[must_use]
    pub fn get(&self, i: usize) -> &[u8] {
        &self.data[self.offsets[i]..self.offsets[i + 1]]
    }

    /// Number of keys.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a key.
    pub fn push(&mut self, key: &[u8]) {
        self.data.extend_from_slice(key);
        self.offsets.push(self.data.len());
    }

    /// Forgets all keys and keeps the allocation.
    pub fn clear(&mut self) {
        self.offsets.truncate(1);
        self.data.clear();
    }

    /// All keys, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.offsets.windows(2).map(|w| &self.data[w[0]..w[1]])
    }

    /// Bytes held on the heap.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        self.offsets.capacity() * size_of::<usize>() + self.data.capacity()
    }
}

/// The first 16 bytes of a key as a number, zeros on the right when there are fewer.
#[inline(always)]
#[must_use]
pub(crate) fn pack(bytes: &[u8]) -> u128 {
    if let Some(whole) = bytes.first_chunk() {
        return u128::from_be_bytes(*whole);
    }
    // Two numbers that overlap have all bytes between them, without a loop.
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let (first, last) = (u64::from_be_bytes(*first), u64::from_be_bytes(*last));
        let rest = (u128::from(last) << (8 * (16 - bytes.len()))) % (1 << 64);
        return (u128::from(first) << 64) | rest;
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let (first, last) = (u32::from_be_bytes(*first), u32::from_be_bytes(*last));
        let rest = (u64::from(last) << (8 * (8 - bytes.len()))) % (1 << 32);
        return u128::from((u64::from(first) << 32) | rest) << 64;
    }
    let short = bytes.iter().zip([120, 112, 104]);
    short.fold(0, |packed, (byte, shift)| packed | (u128::from(*byte) << shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_as_they_were_pushed() {
        let mut keys = KeyBytes::default();
        assert!(keys.is_empty());
        for key in [&b"abc"[..], b"", b"\0\0", b"z"] {
            keys.push(key);
        }
        assert_eq!(keys.len(), 4);
        assert_eq!(keys.iter().collect::<Vec<_>>(), [&b"abc"[..], b"", b"\0\0", b"z"]);
        assert_eq!(keys.get(2), b"\0\0");
        assert!(keys.memory_size() >= 6 + 5 * 8);
        keys.clear();
        keys.push(b"again");
        assert_eq!((keys.len(), keys.get(0)), (1, &b"again"[..]));
    }

    #[test]
    fn packing_fills_from_the_left() {
        assert_eq!(pack(&[]), 0);
        assert_eq!(pack(&[1]), 1 << 120);
        assert_eq!(pack(&[0xFF; 16]), u128::MAX);
        assert_eq!(pack(&[0xFF; 20]), u128::MAX);
        for len in 0..20 {
            let bytes: Vec<u8> = (1..=len).map(|i| i * 11).collect();
            let mut padded = bytes.clone();
            padded.resize(PACKED_BYTES_MAX.max(bytes.len()), 0);
            let whole = u128::from_be_bytes(*padded.first_chunk().unwrap());
            assert_eq!(pack(&bytes), whole, "{len}");
        }
    }
}
