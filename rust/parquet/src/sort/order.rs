//! The order of loose rows: their keys in memory, sorted with the numbers of the rows.
//!
//! ```text
//! packed   (key, row) of 24 bytes                 a key is 16
//! bytes    (first 8 bytes, row) ─ equal? ─▶ the key itself
//! ```
//!
//! # Invariants
//! Rows with one key keep their order: the number of the row is compared last.
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
}

/// A packed key and its row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PackedKey {
    high: u64,
    low: u64,
    row: u32,
}

impl SortKeys {
    /// Bytes of one row at least, as far as keys pack.
    pub(crate) const ROW_BYTES: usize = size_of::<PackedKey>();

    /// Bytes of one row with a key of `key` bytes that does not pack.
    pub(super) const fn row_bytes(key: usize) -> usize {
        key + size_of::<usize>() + size_of::<(u64, u32)>()
    }

    /// Adds the keys of the next rows.
    pub(crate) fn push(&mut self, keys: &Keys) {
        match keys {
            Keys::Packed(keys) => {
                let rows = self.packed.len() as u32..;
                let packed = keys.iter().zip(rows).map(|(key, row)| PackedKey {
                    high: (key >> 64) as u64,
                    low: *key as u64,
                    row,
                });
                self.packed.extend(packed);
            }
            Keys::Bytes(keys) => keys.iter().for_each(|key| self.bytes.push(key)),
        }
    }

    /// Bytes held on the heap, and those that sorting will take.
    pub(super) fn memory_size(&self) -> usize {
        let order = self.bytes.len() * size_of::<(u64, u32)>();
        self.packed.capacity() * size_of::<PackedKey>() + self.bytes.memory_size() + order
    }

    /// The numbers of the rows, in order.
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
        let mut rows: Vec<(u64, u32)> =
            keys.iter().zip(0_u32..).map(|(key, row)| (head(key), row)).collect();
        let compare = |a: &(u64, u32), b: &(u64, u32)| {
            let whole = || keys.get(a.1 as usize).cmp(keys.get(b.1 as usize));
            a.0.cmp(&b.0).then_with(whole).then(a.1.cmp(&b.1))
        };
        rows.sort_unstable_by(compare);
        rows.into_iter().map(|(_, row)| row).collect()
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
        packed.push(&Keys::Packed(keys[..300].to_vec()));
        packed.push(&Keys::Packed(keys[300..].to_vec()));
        assert!(packed.memory_size() >= 1000 * SortKeys::ROW_BYTES);
        assert_eq!(packed.sort(), expected);
        let mut long = KeyBytes::default();
        keys.iter().for_each(|key| long.push(&key.to_be_bytes()));
        let mut bytes = SortKeys::default();
        bytes.push(&Keys::Bytes(long));
        assert!(bytes.memory_size() >= 1000 * SortKeys::row_bytes(16));
        assert_eq!(bytes.sort(), expected);
    }
}
