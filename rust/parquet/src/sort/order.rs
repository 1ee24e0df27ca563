//! The order of loose rows: their keys in memory, sorted with the numbers of the rows.
//!
//! ```text
//! packed   (run, key, row) of 24 bytes            a key is 16
//! bytes    (run, first 8 bytes, row) ─ equal? ─▶ the key itself
//! ```
//!
//! # Invariants
//! Rows of one run stay together. Rows of it with one key keep their order: the number of the row is
//! compared last.
//!
//! # Cost
//! The keys, and 24 or 16 bytes a row; `n log n` comparisons, on one thread, while
//! others write the rows before: a thread of the pool that waited for others could be given the work
//! of one of these, and would wait for itself.
//!
//! # Not here
//! Copying rows (`weave`).

use plait_core::key::{KeyBytes, Keys};

/// Keys of rows that are to be sorted.
#[derive(Default)]
pub(crate) struct SortKeys {
    packed: Vec<PackedKey>,
    bytes: KeyBytes,
    /// The run of each key of `bytes`.
    runs: Vec<u32>,
}

/// A packed key, its row, and the run that this belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PackedKey {
    run: u32,
    high: u64,
    low: u64,
    row: u32,
}

/// The first bytes of a key that does not pack, its row, and the run that this belongs to.
struct HeadKey {
    run: u32,
    head: u64,
    row: u32,
}

impl SortKeys {
    /// Bytes of one row at least, as far as keys pack.
    pub(crate) const ROW_BYTES: usize = size_of::<PackedKey>();

    /// Bytes of one row with a key of `key` bytes that does not pack.
    pub(super) const fn row_bytes(key: usize) -> usize {
        key + size_of::<usize>() + size_of::<u32>() + size_of::<HeadKey>()
    }

    /// Adds the keys of the next rows, which belong to one run.
    pub(crate) fn push(&mut self, run: u32, keys: &Keys) {
        match keys {
            Keys::Packed(keys) => {
                let rows = self.packed.len() as u32..;
                let packed = keys.iter().zip(rows).map(|(key, row)| PackedKey {
                    run,
                    high: (key >> 64) as u64,
                    low: *key as u64,
                    row,
                });
                self.packed.extend(packed);
            }
            Keys::Bytes(keys) => {
                keys.iter().for_each(|key| self.bytes.push(key));
                self.runs.resize(self.bytes.len(), run);
            }
        }
    }

    /// Bytes held on the heap, and those that sorting will take.
    pub(super) fn memory_size(&self) -> usize {
        let order = self.bytes.len() * size_of::<HeadKey>();
        let runs = self.runs.capacity() * size_of::<u32>();
        self.packed.capacity() * size_of::<PackedKey>() + self.bytes.memory_size() + runs + order
    }

    /// The numbers of the rows, in order, run by run.
    pub(crate) fn sort(mut self) -> Vec<u32> {
        if !self.packed.is_empty() {
            self.packed.sort_unstable();
            return self.packed.into_iter().map(|key| key.row).collect();
        }
        let keys = &self.bytes;
        let head = |key: &[u8]| {
            let mut bytes = [0; 8];
            bytes.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
            u64::from_be_bytes(bytes)
        };
        let rows = self.runs.iter().zip(keys.iter()).zip(0_u32..);
        let mut rows: Vec<HeadKey> =
            rows.map(|((run, key), row)| HeadKey { run: *run, head: head(key), row }).collect();
        let compare = |a: &HeadKey, b: &HeadKey| {
            let whole = || keys.get(a.row as usize).cmp(keys.get(b.row as usize));
            (a.run, a.head).cmp(&(b.run, b.head)).then_with(whole).then(a.row.cmp(&b.row))
        };
        rows.sort_unstable_by(compare);
        rows.into_iter().map(|key| key.row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_one_key_keep_their_order() {
        let keys: Vec<u128> =
            (0..1000_u128).map(|i| (((i * 7919) % 13) << 100) | (i % 2)).collect();
        let mut expected: Vec<u32> = (0..1000).collect();
        expected.sort_by_key(|row| keys[*row as usize]);
        let mut packed = SortKeys::default();
        packed.push(0, &Keys::Packed(keys[..300].to_vec()));
        packed.push(0, &Keys::Packed(keys[300..].to_vec()));
        assert!(packed.memory_size() >= 1000 * SortKeys::ROW_BYTES);
        assert_eq!(packed.sort(), expected);
        let mut long = KeyBytes::default();
        keys.iter().for_each(|key| long.push(&key.to_be_bytes()));
        let mut bytes = SortKeys::default();
        bytes.push(0, &Keys::Bytes(long));
        assert!(bytes.memory_size() >= 1000 * SortKeys::row_bytes(16));
        assert_eq!(bytes.sort(), expected);
    }

    #[test]
    fn rows_of_one_run_stay_together() {
        // Run 1, run 0, run 1.
        let keys: Vec<u128> = [5, 3, 5, 4, 9, 1, 4, 2].map(|key: u128| key << 90).to_vec();
        let expected = [5, 3, 6, 4, 7, 1, 0, 2];
        let mut packed = SortKeys::default();
        let mut bytes = SortKeys::default();
        for (run, rows) in [(1, 0..3), (0, 3..7), (1, 7..8)] {
            let keys = &keys[rows];
            packed.push(run, &Keys::Packed(keys.to_vec()));
            let mut long = KeyBytes::default();
            keys.iter().for_each(|key| long.push(&key.to_be_bytes()));
            bytes.push(run, &Keys::Bytes(long));
        }
        assert_eq!(packed.sort(), expected);
        assert_eq!(bytes.sort(), expected);
    }
}
