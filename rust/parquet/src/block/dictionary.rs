//! The values that ids stand for, and one dictionary for the chunks of many sources.
//!
//! ```text
//! source 0   ids 0 1 2    a b c ─┐            remap 0: 0 1 2   (a prefix: ids stay)
//! source 1   ids 0 1 2    c d a ─┴▶ a b c d   remap 1: 2 3 0
//! ```
//!
//! # Invariants
//! A union holds every value once, in order of first appearance. Values are hashed once per
//! dictionary entry, never per row.
//!
//! # Cost
//! Bytes of the distinct values; four bytes an entry of every source.
//!
//! # Not here
//! Which chunks may share a dictionary (`weave`).

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashTable;
use plait_core::{Error, Kind, Result};

use super::Layout;

/// The values of a dictionary page.
#[derive(Debug)]
pub(crate) struct Dictionary {
    layout: Layout,
    bytes: Bytes,
    /// Where each value begins, and the end; empty for values of one width.
    starts: Vec<u32>,
    len: usize,
    longest: usize,
}

impl Dictionary {
    /// The `len` values that `bytes` begins with.
    ///
    /// # Errors
    /// [`Kind::CorruptSource`] when there are fewer.
    pub(crate) fn new(layout: Layout, bytes: Bytes, len: usize) -> Result<Self> {
        let too_few = || {
            Error::new(Kind::CorruptSource, "dictionary has fewer values than it says")
                .with_got(format!("{} bytes for {len} values", bytes.len()))
        };
        let mut starts = Vec::new();
        let mut longest = 0;
        let end = match layout {
            // Values without bytes could be as many as anyone says.
            Layout::Fixed(0) if len > 1 => return Err(too_few()),
            Layout::Fixed(width) => {
                longest = width;
                width.checked_mul(len).ok_or_else(too_few)?
            }
            Layout::Prefixed => {
                // Every value takes four bytes at least.
                if len > bytes.len() / 4 {
                    return Err(too_few());
                }
                starts.reserve_exact(len + 1);
                let mut at = 0;
                for _ in 0..len {
                    starts.push(at as u32);
                    let value_len = layout.len_at(&bytes, at).ok_or_else(too_few)?;
                    longest = longest.max(value_len);
                    at += value_len;
                }
                starts.push(at as u32);
                at
            }
        };
        if end > bytes.len() {
            return Err(too_few());
        }
        Ok(Self { layout, bytes: bytes.slice(..end), starts, len, longest })
    }

    /// Number of values.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of the longest value, prefix included: the most that an id can become.
    #[must_use]
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// All values, as a plain page holds them.
    #[must_use]
    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Value `id` as a plain page holds it, prefix included.
    ///
    /// # Panics
    /// When there is no such value.
    #[inline]
    #[must_use]
    pub(crate) fn plain(&self, id: usize) -> &[u8] {
        match self.layout {
            Layout::Fixed(width) => &self.bytes[id * width..(id + 1) * width],
            Layout::Prefixed => &self.bytes[self.starts[id] as usize..self.starts[id + 1] as usize],
        }
    }

    /// Value `id` without its prefix.
    ///
    /// # Panics
    /// When there is no such value.
    #[inline]
    #[must_use]
    pub(crate) fn value(&self, id: usize) -> &[u8] {
        let plain = self.plain(id);
        match self.layout {
            Layout::Fixed(_) => plain,
            Layout::Prefixed => &plain[4..],
        }
    }

    /// Bytes of the values of `ids` without prefixes.
    ///
    /// # Panics
    /// When there is no such value.
    #[must_use]
    pub(crate) fn value_bytes(&self, ids: &[u32]) -> usize {
        match self.layout {
            Layout::Fixed(width) => width * ids.len(),
            Layout::Prefixed => {
                let len = |id: &u32| self.starts[*id as usize + 1] - self.starts[*id as usize];
                ids.iter().map(|id| len(id) as usize).sum::<usize>() - 4 * ids.len()
            }
        }
    }

    /// The values of `ids`, one behind the other, as a plain page holds them.
    ///
    /// # Panics
    /// When there is no such value.
    #[must_use]
    pub(crate) fn look_up(&self, ids: &[u32]) -> Vec<u8> {
        fn fixed<const N: usize>(values: &[u8], ids: &[u32]) -> Vec<u8> {
            let (values, _) = values.as_chunks::<N>();
            let found = ids.iter().map(|id| values[*id as usize]);
            found.collect::<Vec<[u8; N]>>().into_flattened()
        }
        match self.layout {
            Layout::Fixed(4) => fixed::<4>(&self.bytes, ids),
            Layout::Fixed(8) => fixed::<8>(&self.bytes, ids),
            Layout::Fixed(16) => fixed::<16>(&self.bytes, ids),
            _ => ids.iter().flat_map(|id| self.plain(*id as usize)).copied().collect(),
        }
    }

    /// Bytes held on the heap, the values included.
    #[must_use]
    pub(crate) fn memory_size(&self) -> usize {
        self.bytes.len() + 4 * self.starts.capacity()
    }
}

/// What becomes of the ids of one source's dictionary in the union.
#[derive(Debug, Default)]
pub(crate) struct Remap {
    ids: Vec<u32>,
    len: usize,
    is_identity: bool,
}

impl Remap {
    /// Whether ids stay what they are, so that pages can be taken as they are.
    #[must_use]
    pub(crate) fn is_identity(&self) -> bool {
        self.is_identity
    }

    /// Leaves `len` ids as they are.
    #[must_use]
    pub(crate) fn identity(len: usize) -> Self {
        Self { ids: Vec::new(), len, is_identity: true }
    }

    /// Number of ids.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Replaces ids of the source, all below [`len`](Self::len), by ids of the union.
    pub(crate) fn apply(&self, ids: &mut [u32]) {
        if !self.is_identity {
            ids.iter_mut().for_each(|id| *id = self.ids[*id as usize]);
        }
    }

    /// Bytes held on the heap.
    #[must_use]
    pub(crate) fn memory_size(&self) -> usize {
        4 * self.ids.capacity()
    }
}

/// Unites dictionaries, value by value.
pub(crate) struct Union {
    layout: Layout,
    /// Ids by the hash of their values, which lie in `bytes`.
    ids: HashTable<u32>,
    bytes: Vec<u8>,
    /// Where each value begins, and the end.
    starts: Vec<u32>,
}

impl Union {
    /// An empty union.
    #[must_use]
    pub(crate) fn new(layout: Layout) -> Self {
        Self { layout, ids: HashTable::new(), bytes: Vec::new(), starts: vec![0] }
    }

    /// Adds the values of `dictionary`.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] when the values exceed four gigabytes.
    pub(crate) fn add(&mut self, dictionary: &Dictionary) -> Result<Remap> {
        let len = dictionary.len();
        let mut remap = Remap { ids: Vec::with_capacity(len), len, is_identity: true };
        for id in 0..dictionary.len() {
            let value = dictionary.plain(id);
            let new = self.intern(value)?;
            remap.is_identity &= new as usize == id;
            remap.ids.push(new);
        }
        Ok(remap)
    }

    fn intern(&mut self, value: &[u8]) -> Result<u32> {
        let (bytes, starts) = (&self.bytes, &self.starts);
        let held = |id: u32| &bytes[starts[id as usize] as usize..starts[id as usize + 1] as usize];
        let hash = hash(value);
        if let Some(known) = self.ids.find(hash, |id| held(*id) == value) {
            return Ok(*known);
        }
        let end = u32::try_from(self.bytes.len() + value.len()).map_err(|_| {
            Error::new(Kind::Unsupported, "dictionaries have over four gigabytes of values")
        })?;
        let next = self.len() as u32;
        self.ids.insert_unique(hash, next, |id| self::hash(held(*id)));
        self.bytes.extend_from_slice(value);
        self.starts.push(end);
        Ok(next)
    }

    /// Bytes of the values so far, as a plain page holds them.
    #[must_use]
    pub(crate) fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// Number of values so far.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Whether there are none.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes held on the heap.
    #[must_use]
    pub(crate) fn memory_size(&self) -> usize {
        self.bytes.capacity() + 4 * self.starts.capacity() + 5 * self.ids.capacity()
    }

    /// The dictionary of all values.
    ///
    /// # Errors
    /// Never for values that were taken from dictionaries.
    pub(crate) fn finish(self) -> Result<Arc<Dictionary>> {
        let len = self.len();
        Dictionary::new(self.layout, self.bytes.into(), len).map(Arc::new)
    }
}

/// A fast hash with a fixed seed: multiply and fold, eight bytes at a time. Nothing depends on its
/// order; values that all collide would only be slow, and their number is limited by the size of a
/// page.
fn hash(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x2127_599B_F432_5C37;
    let fold = |state: u64, n: u64| {
        let product = u128::from(state ^ n) * u128::from(FACTOR);
        (product >> 64) as u64 ^ product as u64
    };
    let (chunks, rest) = bytes.as_chunks::<8>();
    let state = chunks
        .iter()
        .fold(0x9E37_79B9_7F4A_7C15, |state, chunk| fold(state, u64::from_le_bytes(*chunk)));
    let last = rest.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b));
    fold(fold(state, last ^ (bytes.len() as u64) << 56), FACTOR)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn dictionary(values: &[&[u8]]) -> Dictionary {
        let mut bytes = Vec::new();
        for value in values {
            bytes.extend((value.len() as u32).to_le_bytes());
            bytes.extend(*value);
        }
        Dictionary::new(Layout::Prefixed, bytes.into(), values.len()).unwrap()
    }

    #[test]
    fn the_example_of_the_header_holds() {
        let mut union = Union::new(Layout::Prefixed);
        let first = union.add(&dictionary(&[b"a", b"b", b"c"])).unwrap();
        let second = union.add(&dictionary(&[b"c", b"d", b"a"])).unwrap();
        let third = union.add(&dictionary(&[b"a", b"b"])).unwrap();
        assert!(first.is_identity() && third.is_identity() && !second.is_identity());
        let mut ids = [0, 1, 2, 2];
        second.apply(&mut ids);
        assert_eq!(ids, [2, 3, 0, 0]);
        let united = union.finish().unwrap();
        let values: Vec<&[u8]> = (0..united.len()).map(|id| united.value(id)).collect();
        assert_eq!(values, [b"a", b"b", b"c", b"d"]);
    }

    #[test]
    fn bytes_of_values_have_no_prefixes() {
        let texts = dictionary(&[b"one", b"", b"three"]);
        assert_eq!(texts.value_bytes(&[0, 0, 2, 1]), 11);
        assert_eq!(texts.value_bytes(&[1]), 0);
        let numbers = Dictionary::new(Layout::Fixed(4), Bytes::from_static(&[0; 8]), 2).unwrap();
        assert_eq!(numbers.value_bytes(&[1, 1, 0]), 12);
    }

    #[test]
    fn a_dictionary_shorter_than_it_says_is_refused() {
        let bytes = Bytes::from_static(&[1, 0, 0, 0, b'a', 9, 0, 0, 0, b'b']);
        assert!(Dictionary::new(Layout::Prefixed, bytes.clone(), 1).is_ok());
        for (layout, len) in [
            (Layout::Prefixed, 2),
            (Layout::Prefixed, usize::MAX),
            (Layout::Fixed(4), 3),
            (Layout::Fixed(8), usize::MAX),
        ] {
            let error = Dictionary::new(layout, bytes.clone(), len).unwrap_err();
            assert_eq!(error.kind(), Kind::CorruptSource);
        }
    }

    proptest! {
        #[test]
        fn remapped_ids_stand_for_the_same_values(
            sources in prop::collection::vec(prop::collection::vec(0..40_u64, 0..30), 1..6),
        ) {
            let dictionaries: Vec<Dictionary> = sources.iter().map(|values| {
                let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                Dictionary::new(Layout::Fixed(8), bytes.into(), values.len()).unwrap()
            }).collect();
            let mut union = Union::new(Layout::Fixed(8));
            let remaps: Vec<Remap> =
                dictionaries.iter().map(|d| union.add(d).unwrap()).collect();
            let united = union.finish().unwrap();
            for (dictionary, remap) in dictionaries.iter().zip(&remaps) {
                for id in 0..dictionary.len() {
                    let mut new = [id as u32];
                    remap.apply(&mut new);
                    prop_assert_eq!(united.value(new[0] as usize), dictionary.value(id));
                }
            }
            let mut distinct: Vec<u64> = sources.concat();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(united.len(), distinct.len());
        }
    }
}
