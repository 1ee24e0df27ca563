//! Rows that are sorted at a time: as many as memory allows.
//!
//! ```text
//! file 0   ··a·b··a···b·│·c··        a, b, c: rows of different runs, one pass through the file
//! chunk                 └ the next one begins
//! ```
//!
//! # Invariants
//! Chunks take rows as they lie, from the first to the last, so that of rows of one run, those of one
//! chunk come before those of the next where their keys are equal.
//!
//! # Not here
//! How many rows that is (`write`).

use std::collections::{BTreeMap, VecDeque};

use plait_core::packed_runs::PackedRuns;
use plait_core::{Result, Runs, SourceId};

use super::call::LooseRange;

/// The runs that a chunk has rows of are not more: each is a row group.
const RUNS_MAX: u32 = 256;

/// Rows that wait to be sorted.
#[derive(Default)]
pub(super) struct LooseRows {
    ranges: VecDeque<LooseRange>,
}

impl LooseRows {
    /// The rows of `ranges`, which are taken as they lie in their files.
    pub(super) fn new(mut ranges: Vec<LooseRange>) -> Self {
        ranges.sort_unstable_by_key(|range| (range.file, range.rows.start));
        Self { ranges: ranges.into() }
    }

    /// The next `rows_max` rows, or fewer of them if they belong to many runs; none at the end.
    pub(super) fn take(&mut self, rows_max: u64) -> Vec<LooseRange> {
        let (mut taken, mut left) = (Vec::new(), rows_max.max(1));
        let (mut first, mut last) = (u32::MAX, 0);
        while left > 0
            && let Some(mut range) = self.ranges.pop_front()
        {
            (first, last) = (first.min(range.run), last.max(range.run));
            if last - first >= RUNS_MAX {
                self.ranges.push_front(range);
                break;
            }
            let end = range.rows.end.min(range.rows.start + left);
            if end < range.rows.end {
                self.ranges.push_front(LooseRange { rows: end..range.rows.end, ..range });
                range.rows.end = end;
            }
            left -= range.len();
            taken.push(range);
        }
        taken
    }

    /// Puts rows that were taken last back.
    pub(super) fn put_back(&mut self, ranges: Vec<LooseRange>) {
        ranges.into_iter().rev().for_each(|range| self.ranges.push_front(range));
    }
}

/// The rows of `ranges` as they lie.
pub(super) fn steps(ranges: &[LooseRange]) -> Result<PackedRuns> {
    let mut runs = Runs::default();
    for range in ranges {
        runs.push(SourceId(range.file), range.rows.start, range.len());
    }
    let mut steps = PackedRuns::default();
    steps.extend(runs.as_slice())?;
    Ok(steps)
}

/// The runs that `ranges` have rows of, and how many.
pub(super) fn rows_of_runs(ranges: &[LooseRange]) -> BTreeMap<u32, u64> {
    let mut rows = BTreeMap::new();
    for range in ranges {
        *rows.entry(range.run).or_default() += range.len();
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(file: u32, run: u32, rows: std::ops::Range<u64>) -> LooseRange {
        LooseRange { file, run, rows }
    }

    #[test]
    fn all_rows_are_taken_once_and_as_they_lie() {
        let ranges =
            vec![range(0, 0, 0..10), range(0, 0, 14..15), range(0, 1, 12..13), range(2, 1, 5..26)];
        for rows_max in 1..40 {
            let mut loose = LooseRows::new(ranges.clone());
            let mut all = Vec::new();
            let mut again = true;
            loop {
                let taken = loose.take(rows_max);
                if taken.is_empty() {
                    break;
                }
                if std::mem::take(&mut again) {
                    loose.put_back(taken);
                    continue;
                }
                let rows: u64 = taken.iter().map(LooseRange::len).sum();
                assert_eq!(steps(&taken).unwrap().rows(), rows);
                assert_eq!(rows_of_runs(&taken).values().sum::<u64>(), rows);
                assert!(rows <= rows_max);
                for range in taken {
                    all.extend(range.rows.map(|row| (range.file, row, range.run)));
                }
            }
            let first = (0..10).map(|row| (0, row, 0)).chain([(0, 12, 1), (0, 14, 0)]);
            let expected: Vec<_> = first.chain((5..26).map(|row| (2, row, 1))).collect();
            assert_eq!(all, expected);
        }
    }

    #[test]
    fn a_chunk_has_rows_of_so_many_runs() {
        let files = 2 * RUNS_MAX + 1;
        let ranges = (0..files).map(|file| range(file, file, 0..1)).collect();
        let mut loose = LooseRows::new(ranges);
        let mut lens = Vec::new();
        loop {
            let taken = loose.take(u64::MAX);
            if taken.is_empty() {
                break;
            }
            lens.push(taken.len() as u32);
        }
        assert_eq!(lens, [RUNS_MAX, RUNS_MAX, 1]);
    }
}
