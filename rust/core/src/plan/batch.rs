//! A batch of encoded keys, as the loser tree needs it; packed keys are one.
//!
//! # Not here
//! How the bytes come about (`key`); keys that do not pack (`coded`); who is first (`node`).

use std::cmp::Ordering;

use crate::key::pack;

/// Keys that are compared before it is asked which of them descend.
const CHECK_KEYS: usize = 64;

/// What the loser tree needs to know of a batch of keys.
pub(crate) trait Batch: Default {
    fn len(&self) -> usize;
    fn compare(&self, i: usize, other: &Self, j: usize) -> Ordering;
    fn compare_bytes(&self, i: usize, bytes: &[u8]) -> Ordering;
    /// Makes the batch ready for the tree, and finds the first key that is smaller than the one
    /// before it, at least if that is asked for.
    fn check(&mut self, is_asked: bool) -> Option<usize>;
    /// Bytes of key `i`; packed keys of `width` bytes are cut to it.
    fn bytes(&self, i: usize, width: usize) -> Vec<u8>;
    fn single(bytes: &[u8]) -> Self;
}

impl Batch for Vec<u128> {
    #[inline]
    fn len(&self) -> usize {
        self.as_slice().len()
    }

    #[inline]
    fn compare(&self, i: usize, other: &Self, j: usize) -> Ordering {
        self[i].cmp(&other[j])
    }

    #[inline]
    fn compare_bytes(&self, i: usize, bytes: &[u8]) -> Ordering {
        self[i].cmp(&pack(bytes))
    }

    fn check(&mut self, is_asked: bool) -> Option<usize> {
        if !is_asked {
            return None;
        }
        // Without a branch a key, and a search only where there is something to find.
        let mut start = 0;
        while start + 1 < self.len() {
            let end = self.len().min(start + CHECK_KEYS + 1);
            let keys = &self[start..end];
            let later = &keys[1..];
            if keys.iter().zip(later).fold(false, |any, (a, b)| any | (a > b)) {
                return keys.iter().zip(later).position(|(a, b)| a > b).map(|at| start + at + 1);
            }
            start = end - 1;
        }
        None
    }

    fn bytes(&self, i: usize, width: usize) -> Vec<u8> {
        self[i].to_be_bytes().into_iter().take(width).collect()
    }

    fn single(bytes: &[u8]) -> Self {
        vec![pack(bytes)]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::coded::CodedKeys;
    use super::*;
    use crate::key::KeyBytes;

    proptest! {
        #[test]
        fn the_first_descent_is_found(
            mut keys in prop::collection::vec(0..3_u128, 0..200), sorted: bool,
        ) {
            if sorted {
                keys.sort_unstable();
            }
            let by_eye = (1..keys.len()).find(|&i| keys[i] < keys[i - 1]);
            prop_assert_eq!(keys.check(true), by_eye);
            let mut bytes = KeyBytes::default();
            keys.iter().for_each(|key| bytes.push(&key.to_be_bytes()));
            prop_assert_eq!(CodedKeys::new(bytes).check(true), by_eye);
        }
    }
}
