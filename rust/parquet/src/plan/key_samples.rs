//! Keys of some rows of a source, in a block of memory that copies share, and other sources, too: there
//! may be a million.
//!
//! ```text
//! block    source 0 │ source 1 │ source 2 …
//! source   count │ rows: 8 bytes each │ ends of keys: 4 bytes each │ keys, one behind the other
//! ```
//!
//! # Invariants
//! Rows ascend, and so do keys if the source is sorted.
//!
//! # Cost
//! 12 bytes a key, and the key. A change copies the keys of the source to a block of their own.
//!
//! # Not here
//! Which keys are known (`source_keys`).

use std::ops::Range;
use std::sync::Arc;

const COUNT_BYTES: usize = size_of::<u32>();
const ROW_BYTES: usize = size_of::<u64>();
const END_BYTES: usize = size_of::<u32>();

/// Keys of more bytes stay in a block of their own.
const PACKED_BYTES_MAX: usize = 4 << 10;

/// Keys of some rows, ascending in both.
#[derive(Clone, Default)]
pub(super) struct KeySamples {
    block: Option<Arc<Box<[u8]>>>,
    /// Where in the block they are.
    start: u32,
    len: u32,
}

/// A row and its key.
pub(super) type KeySample<'a> = (u64, &'a [u8]);

impl KeySamples {
    /// Those of `samples`, ascending.
    pub(super) fn of<K: AsRef<[u8]>>(samples: &[(u64, K)]) -> Self {
        Self::join(samples.len(), samples.iter().map(|(row, key)| (*row, key.as_ref())))
    }

    /// Moves those of many sources to one block: small ones that stay between large ones that go leave
    /// holes in memory.
    pub(super) fn pack<'a>(all: impl Iterator<Item = &'a mut Self>) {
        let small: Vec<&mut Self> = all.filter(|of| of.bytes().len() <= PACKED_BYTES_MAX).collect();
        let mut block = Vec::with_capacity(small.iter().map(|of| of.bytes().len()).sum());
        small.iter().for_each(|of| block.extend_from_slice(of.bytes()));
        // Fewer than a million sources of 4 KiB.
        let (block, mut start) = (Arc::new(block.into_boxed_slice()), 0);
        for of in small {
            of.block = Some(Arc::clone(&block));
            of.start = start;
            start += of.len;
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        let count = self.bytes().first_chunk().map_or(0, |count| u32::from_le_bytes(*count));
        count as usize
    }

    /// The one at `index`.
    pub(super) fn get(&self, index: usize) -> Option<KeySample<'_>> {
        let (rows, ends, keys) = self.parts();
        let end = |index: usize| ends.get(index).map(|end| u32::from_le_bytes(*end) as usize);
        let start = index.checked_sub(1).map_or(Some(0), end)?;
        Some((u64::from_le_bytes(*rows.get(index)?), keys.get(start..end(index)?)?))
    }

    /// The first.
    pub(super) fn first(&self) -> Option<KeySample<'_>> {
        self.get(0)
    }

    /// The last.
    pub(super) fn last(&self) -> Option<KeySample<'_>> {
        self.get(self.len().checked_sub(1)?)
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = KeySample<'_>> {
        self.range(0..self.len())
    }

    /// Those at `places`.
    pub(super) fn range(
        &self,
        places: Range<usize>,
    ) -> impl Iterator<Item = KeySample<'_>> + Clone {
        places.map_while(|index| self.get(index))
    }

    /// How many are of rows before `row`.
    pub(super) fn before_row(&self, row: u64) -> usize {
        self.parts().0.partition_point(|before| u64::from_le_bytes(*before) < row)
    }

    /// How many come first whose keys `is_before` holds of.
    pub(super) fn before_key(&self, is_before: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.get(middle) {
                Some((_, key)) if is_before(key) => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }

    /// Puts `samples` in the place of those at `places`.
    pub(super) fn replace<K: AsRef<[u8]>>(&mut self, places: Range<usize>, samples: &[(u64, K)]) {
        let (start, end, len) = (places.start, places.end, self.len());
        let count = len - (end - start) + samples.len();
        let new = samples.iter().map(|(row, key)| (*row, key.as_ref()));
        *self = Self::join(count, self.range(0..start).chain(new).chain(self.range(end..len)));
    }

    fn join<'a>(count: usize, samples: impl Iterator<Item = KeySample<'a>> + Clone) -> Self {
        let short = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes();
        let key_bytes: usize = samples.clone().map(|(_, key)| key.len()).sum();
        let mut block =
            Vec::with_capacity(COUNT_BYTES + count * (ROW_BYTES + END_BYTES) + key_bytes);
        block.extend(short(count));
        samples.clone().for_each(|(row, _)| block.extend(row.to_le_bytes()));
        let mut end = 0;
        for (_, key) in samples.clone() {
            end += key.len();
            block.extend(short(end));
        }
        samples.for_each(|(_, key)| block.extend_from_slice(key));
        // Ends are as short.
        let len = u32::try_from(block.len()).unwrap_or(u32::MAX);
        Self { block: Some(Arc::new(block.into())), start: 0, len }
    }

    fn bytes(&self) -> &[u8] {
        let all = self.block.as_ref().map_or(&[][..], |block| block);
        let start = self.start as usize;
        all.get(start..start + self.len as usize).unwrap_or_default()
    }

    /// Rows, ends of keys, keys.
    fn parts(&self) -> (&[[u8; ROW_BYTES]], &[[u8; END_BYTES]], &[u8]) {
        let count = self.len();
        let behind = self.bytes().get(COUNT_BYTES..).unwrap_or_default();
        let (rows, behind) = behind.split_at_checked(count * ROW_BYTES).unwrap_or_default();
        let (ends, keys) = behind.split_at_checked(count * END_BYTES).unwrap_or_default();
        (rows.as_chunks().0, ends.as_chunks().0, keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type List = Vec<(u64, Vec<u8>)>;

    fn all(samples: &KeySamples) -> List {
        samples.iter().map(|(row, key)| (row, key.to_vec())).collect()
    }

    #[test]
    fn samples_change_as_a_list_of_them_would() {
        let mut samples = KeySamples::default();
        assert_eq!((samples.len(), samples.first(), samples.before_row(9)), (0, None, 0));
        let mut list: List =
            (0..40_u8).map(|i| (u64::from(i) * 3, vec![i; usize::from(i % 5)])).collect();
        samples.replace(0..0, &list);
        let changes: [(Range<usize>, List); 5] = [
            (0..3, vec![]),
            (5..5, vec![(25, vec![7, 7]), (26, vec![])]),
            (10..20, vec![(60, vec![1])]),
            (29..30, vec![(500, b"last".to_vec())]),
            (0..29, vec![]),
        ];
        for (places, new) in changes {
            assert_eq!(all(&samples), list);
            assert_eq!(samples.len(), list.len());
            assert_eq!(samples.last().map(|last| last.0), list.last().map(|last| last.0));
            for row in 0..130 {
                assert_eq!(samples.before_row(row), list.partition_point(|one| one.0 < row));
            }
            let shared = samples.clone();
            samples.replace(places.clone(), &new);
            assert_eq!(all(&shared), list, "a copy stays as it is");
            list.splice(places, new);
        }
        assert_eq!(all(&samples), [(500, b"last".to_vec())]);
    }

    #[test]
    fn samples_of_many_sources_share_a_block() {
        let list = |i: u8| -> List { (0..i % 4).map(|n| (n.into(), vec![i; n.into()])).collect() };
        let mut sources: Vec<KeySamples> = (0..9).map(|i| KeySamples::of(&list(i))).collect();
        let large = vec![(7, vec![1; PACKED_BYTES_MAX])];
        sources.push(KeySamples::of(&large));
        sources.push(KeySamples::default());
        KeySamples::pack(sources.iter_mut());
        for (i, of) in (0..9).zip(&sources) {
            assert_eq!(all(of), list(i));
        }
        assert_eq!((all(&sources[9]), all(&sources[10])), (large, vec![]));
        let is_packed = |of: &KeySamples| match (&of.block, &sources[0].block) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        };
        assert_eq!(sources.iter().filter(|of| is_packed(of)).count(), 10);
        // One changes, and the others stay.
        sources[3].replace(1..2, &[(1, b"other")]);
        let changed = [(0, vec![]), (1, b"other".to_vec()), (2, vec![3, 3])];
        assert_eq!((all(&sources[3]), all(&sources[5])), (changed.to_vec(), list(5)));
    }

    #[test]
    fn keys_are_found_by_halving() {
        let samples = KeySamples::of(&[(0, "a"), (5, "c"), (6, "c"), (9, "x")]);
        for (key, below, up_to) in [("a", 0, 1), ("b", 1, 1), ("c", 1, 3), ("y", 4, 4)] {
            assert_eq!(samples.before_key(|k| k < key.as_bytes()), below);
            assert_eq!(samples.before_key(|k| k <= key.as_bytes()), up_to);
        }
    }
}
