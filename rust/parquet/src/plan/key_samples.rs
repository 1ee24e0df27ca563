//! Keys of some rows of a source, in one block of memory that copies share: there may be a million
//! sources.
//!
//! ```text
//! count │ rows: 8 bytes each │ ends of keys: 4 bytes each │ keys, one behind the other
//! ```
//!
//! # Invariants
//! Rows ascend, and so do keys if the source is sorted.
//!
//! # Cost
//! 12 bytes a key, and the key. A change copies the block.
//!
//! # Not here
//! Which keys are known (`source_keys`).

use std::ops::Range;
use std::sync::Arc;

const COUNT_BYTES: usize = size_of::<u32>();
const ROW_BYTES: usize = size_of::<u64>();
const END_BYTES: usize = size_of::<u32>();

/// Keys of some rows, ascending in both.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct KeySamples(Option<Arc<[u8]>>);

/// A row and its key.
pub(super) type KeySample<'a> = (u64, &'a [u8]);

impl KeySamples {
    /// Those of `samples`, ascending.
    pub(super) fn of<K: AsRef<[u8]>>(samples: &[(u64, K)]) -> Self {
        Self::join(samples.len(), samples.iter().map(|(row, key)| (*row, key.as_ref())))
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
        Self(Some(block.into()))
    }

    fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
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
    fn keys_are_found_by_halving() {
        let samples = KeySamples::of(&[(0, "a"), (5, "c"), (6, "c"), (9, "x")]);
        for (key, below, up_to) in [("a", 0, 1), ("b", 1, 1), ("c", 1, 3), ("y", 4, 4)] {
            assert_eq!(samples.before_key(|k| k < key.as_bytes()), below);
            assert_eq!(samples.before_key(|k| k <= key.as_bytes()), up_to);
        }
    }
}
