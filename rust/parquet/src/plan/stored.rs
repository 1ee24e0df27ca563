//! The cut keys of all samples, with about how many rows lie before each.
//!
//! ```text
//! a  samples  0:b ─── 8:d ─── 15:k      b        d              e        g ...
//! b  samples  0:d ─── 8:g ─── 15:p      0        4              15       19    rows before, about
//! ```
//!
//! # Invariants
//! As many rows as [`SourceKeys::before`] tells, in the middle, when the samples were those that
//! this was made of.
//!
//! # Cost
//! O(s log s) for s samples, once; O(log s) a look.
//!
//! # Not here
//! Which of them is a cut (`cuts`).

use std::collections::BTreeSet;

use super::source_keys::SourceKeys;

/// Cut keys, ascending.
#[derive(Default)]
pub(super) struct StoredKeys {
    keys: Vec<Vec<u8>>,
    /// About how many rows of all sources lie before each.
    rows: Vec<u64>,
}

impl StoredKeys {
    /// The cut keys of the samples of all sources.
    pub(super) fn of(sources_keys: &[SourceKeys], keys: BTreeSet<Vec<u8>>) -> Self {
        // Rows that lie before what is above a sample, and not before the sample.
        let mut steps: Vec<(&[u8], u64)> = Vec::new();
        for of in sources_keys {
            let mut before = of.samples.first().map_or(0, |first| first.0 / 2);
            let nexts = of.samples.iter().skip(1).map(|next| next.0).chain([of.rows()]);
            for ((row, key), next) in of.samples.iter().zip(nexts) {
                let least = (row + 1).min(next);
                let middle = least + (next - least) / 2;
                // Of a source that is not sorted it may be less.
                steps.push((key, middle.wrapping_sub(before)));
                before = middle;
            }
        }
        steps.sort_unstable();
        let mut done = sources_keys
            .iter()
            .filter_map(|of| of.samples.first())
            .fold(0u64, |sum, first| sum.wrapping_add(first.0 / 2));
        let mut steps = steps.into_iter().peekable();
        let mut rows = Vec::with_capacity(keys.len());
        for key in &keys {
            while let Some((_, step)) = steps.next_if(|(sample, _)| *sample < key.as_slice()) {
                done = done.wrapping_add(step);
            }
            rows.push(done);
        }
        Self { keys: keys.into_iter().collect(), rows }
    }

    /// The two above `last` between which about `rank` rows lie before a key.
    pub(super) fn near(&self, last: &[u8], rank: u64) -> impl Iterator<Item = &[u8]> {
        let from = self.keys.partition_point(|key| key.as_slice() <= last);
        let behind = self.rows.get(from..).unwrap_or_default();
        let at = from + behind.partition_point(|rows| *rows < rank);
        let two = [at.checked_sub(1).filter(|at| *at >= from), Some(at)].into_iter().flatten();
        two.filter_map(|at| self.keys.get(at)).map(Vec::as_slice)
    }
}
