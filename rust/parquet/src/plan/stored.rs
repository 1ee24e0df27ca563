//! The cut keys of all samples, with about how many rows lie before each.
//!
//! ```text
//! a  samples  0:b ─── 8:d ─── 15:k      b        d              e        g ...
//! b  samples  0:d ─── 8:g ─── 15:p      0        4              15       19    rows before, about
//! ```
//!
//! # Invariants
//! As many rows as [`SourceKeys::before`](super::source_keys::SourceKeys::before) tells, in the
//! middle, when the samples were those that this was made of.
//!
//! # Cost
//! 16 bytes a sample: there may be a million sources, and keys stay where they are. O(s log s) for s
//! samples, once; O(log s) a look.
//!
//! # Not here
//! Which of them is a cut (`cuts`).

use plait_core::Result;

use super::nearby::SourceEnds;

/// Cut keys, ascending.
#[derive(Default)]
pub(super) struct StoredKeys(Vec<StoredKey>);

/// A cut key, as the sample that begins with it.
struct StoredKey {
    source: u32,
    sample: u32,
    /// About how many rows of all sources lie before it.
    rows: u64,
}

impl StoredKey {
    fn of<'a>(&self, sources: &'a [SourceEnds]) -> &'a [u8] {
        let of = sources.get(self.source as usize);
        of.and_then(|of| of.keys.get(self.sample as usize)).map_or(&[], |(_, key)| key)
    }
}

impl StoredKeys {
    /// The cut keys of the samples of all sources; `prefix` gives that of a key.
    ///
    /// # Errors
    /// Those of `prefix`.
    pub(super) fn of<'a>(
        sources: &'a [SourceEnds],
        prefix: impl Fn(&'a [u8]) -> Result<&'a [u8]>,
    ) -> Result<Self> {
        let samples = sources.iter().map(|of| of.keys.len()).sum();
        let mut keys: Vec<StoredKey> = Vec::with_capacity(samples);
        let mut first_rows = 0_u64;
        for (source, of) in (0..).zip(sources) {
            let mut before = of.keys.first().map_or(0, |first| first.0 / 2);
            first_rows = first_rows.wrapping_add(before);
            let nexts = of.keys.iter().skip(1).map(|next| next.0).chain([of.rows]);
            for (sample, ((row, _), next)) in (0..).zip(of.keys.iter().zip(nexts)) {
                let least = (row + 1).min(next);
                let middle = least + (next - least) / 2;
                // Rows that lie before what is above the sample, and not before the sample; of a
                // source that is not sorted it may be less than none.
                keys.push(StoredKey { source, sample, rows: middle.wrapping_sub(before) });
                before = middle;
            }
        }
        keys.sort_unstable_by(|a, b| a.of(sources).cmp(b.of(sources)));
        let (mut done, mut last, mut failed) = (first_rows, None, None);
        keys.retain_mut(|key| {
            let step = std::mem::replace(&mut key.rows, done);
            done = done.wrapping_add(step);
            match prefix(key.of(sources)) {
                Ok(prefix) => last.replace(prefix) != Some(prefix),
                Err(e) => {
                    failed.get_or_insert(e);
                    false
                }
            }
        });
        keys.shrink_to_fit();
        failed.map_or(Ok(Self(keys)), Err)
    }

    /// The two above `last` between which about `rank` rows lie before a key.
    pub(super) fn near<'a>(
        &self,
        sources: &'a [SourceEnds],
        last: &[u8],
        rank: u64,
        prefix: impl Fn(&'a [u8]) -> Result<&'a [u8]>,
    ) -> Vec<&'a [u8]> {
        // All of them had one when this was made.
        let key_of = |key: &StoredKey| prefix(key.of(sources)).unwrap_or_default();
        let from = self.0.partition_point(|key| key_of(key) <= last);
        let behind = self.0.get(from..).unwrap_or_default();
        let at = from + behind.partition_point(|key| key.rows < rank);
        let two = [at.checked_sub(1).filter(|at| *at >= from), Some(at)].into_iter().flatten();
        two.filter_map(|at| self.0.get(at)).map(key_of).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::super::key_samples::KeySamples;
    use super::*;

    /// Rows of a source with samples of these rows and keys before `key`, in the middle.
    fn before(samples: &[(u64, [u8; 2])], rows: u64, key: &[u8]) -> u64 {
        let at = samples.partition_point(|(_, sample)| &sample[..] < key);
        let least = at.checked_sub(1).map_or(0, |i| samples[i].0 + 1);
        let most = samples.get(at).map_or(rows, |sample| sample.0);
        least.min(most) + (most - least.min(most)) / 2
    }

    proptest! {
        #[test]
        fn keys_are_found_as_by_looking_at_all_samples(
            sources in prop::collection::vec(
                (prop::collection::btree_set((0u64..40, 0u8..9, 0u8..4), 1..6), 0u64..20), 1..12
            ),
            parts in 1usize..3,
            last in 0u8..9,
            rank in 0u64..300,
        ) {
            let sorted = |(samples, more): &(std::collections::BTreeSet<(u64, u8, u8)>, u64)| {
                let mut rows: Vec<u64> = samples.iter().map(|sample| sample.0).collect();
                rows.dedup();
                let mut keys: Vec<[u8; 2]> = samples.iter().map(|(_, a, b)| [*a, *b]).collect();
                keys.sort_unstable();
                let all: Vec<(u64, [u8; 2])> = rows.into_iter().zip(keys).collect();
                let rows = all.last().map_or(0, |last| last.0 + 1 + more);
                (all, rows)
            };
            let sources: Vec<_> = sources.iter().map(sorted).collect();
            let ends: Vec<SourceEnds> = sources
                .iter()
                .map(|(samples, rows)| SourceEnds { keys: KeySamples::of(samples), rows: *rows })
                .collect();
            fn cut(parts: usize) -> impl for<'a> Fn(&'a [u8]) -> Result<&'a [u8]> {
                move |key| Ok(&key[..parts])
            }
            let stored = StoredKeys::of(&ends, cut(parts)).unwrap();

            let samples = || sources.iter().flat_map(|(samples, _)| samples);
            let distinct: std::collections::BTreeSet<Vec<u8>> =
                samples().map(|(_, key)| key[..parts].to_vec()).collect();
            let expected: Vec<(Vec<u8>, u64)> = distinct
                .into_iter()
                .map(|key| {
                    let of = sources.iter().map(|(samples, rows)| before(samples, *rows, &key));
                    let rows = of.sum();
                    (key, rows)
                })
                .collect();
            let found: Vec<(Vec<u8>, u64)> =
                stored.0.iter().map(|key| (key.of(&ends)[..parts].to_vec(), key.rows)).collect();
            prop_assert_eq!(&found, &expected);

            let near = stored.near(&ends, &[last], rank, cut(parts));
            let above: Vec<_> = expected.iter().filter(|(key, _)| key[..] > [last][..]).collect();
            let at = above.partition_point(|(_, rows)| *rows < rank);
            let two = above.iter().take(at + 1).skip(at.saturating_sub(1));
            prop_assert_eq!(near, two.map(|(key, _)| key.as_slice()).collect::<Vec<_>>());
        }
    }
}
