//! Rows of a file that are a source of their own: those of an ascending run among rows that are in no
//! order, or those that are not deleted.
//!
//! ```text
//! file       0 ······ 4000 ······················ 9000 ·· 20000
//! selection           4000..7100  7101..8200  8203..9000          span 4000..9000
//! ```
//!
//! # Invariants
//! Ranges ascend, do not touch, and none is empty. Rows keep the numbers that they have in the file.
//!
//! # Not here
//! Which rows are selected (`sort`, `deleted`).

use std::ops::Range;

/// Some rows of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    ranges: Vec<Range<u64>>,
    /// How many rows lie before each range.
    before: Vec<u64>,
}

impl Selection {
    /// The rows of `ranges`, which ascend and do not touch; `None` if there are none.
    pub(crate) fn try_new(ranges: Vec<Range<u64>>) -> Option<Self> {
        let ascend = ranges.windows(2).all(|pair| pair[0].end < pair[1].start);
        if ranges.is_empty() || !ascend || ranges.iter().any(Range::is_empty) {
            return None;
        }
        let mut sum = 0;
        let before = ranges.iter().map(|range| {
            let before = sum;
            sum += range.end - range.start;
            before
        });
        let before = before.collect();
        Some(Self { ranges, before })
    }

    /// The ranges.
    pub(crate) fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// From the first row to the one behind the last.
    pub(crate) fn span(&self) -> Range<u64> {
        let ends = self.ranges.first().zip(self.ranges.last());
        ends.map_or(0..0, |(first, last)| first.start..last.end)
    }

    /// How many rows before `row` are selected.
    fn rank(&self, row: u64) -> u64 {
        let at = self.ranges.partition_point(|range| range.start < row);
        let Some(at) = at.checked_sub(1) else { return 0 };
        self.before[at] + (row.min(self.ranges[at].end) - self.ranges[at].start)
    }

    /// How many rows of `rows` are selected.
    pub(crate) fn count(&self, rows: &Range<u64>) -> u64 {
        self.rank(rows.end).saturating_sub(self.rank(rows.start))
    }

    /// `row`, or the last selected row before it; the first one if there is none.
    pub(crate) fn at_or_before(&self, row: u64) -> u64 {
        let at = self.ranges.partition_point(|range| range.start <= row);
        match at.checked_sub(1) {
            Some(at) => row.min(self.ranges[at].end - 1),
            None => self.span().start,
        }
    }

    /// The first selected rows from `row` on that follow each other.
    pub(crate) fn next(&self, row: u64) -> Option<Range<u64>> {
        let at = self.ranges.partition_point(|range| range.end <= row);
        self.ranges.get(at).map(|range| range.start.max(row)..range.end)
    }
}

/// What is in both lists of ranges, which ascend.
pub(crate) fn intersection(a: &[Range<u64>], b: &[Range<u64>]) -> Vec<Range<u64>> {
    let (mut i, mut j, mut found) = (0, 0, Vec::new());
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        let both = x.start.max(y.start)..x.end.min(y.end);
        if !both.is_empty() {
            found.push(both);
        }
        if x.end < y.end { i += 1 } else { j += 1 }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_and_counted() {
        let selection = Selection::try_new(vec![10..20, 21..30, 50..51]).unwrap();
        assert_eq!(selection.span(), 10..51);
        for row in 0..60 {
            let is_selected = |row: &u64| matches!(*row, 10..=19 | 21..=29 | 50);
            let before = (0..=row).rev().find(is_selected).unwrap_or(10);
            assert_eq!(selection.at_or_before(row), before, "{row}");
            let next = (row..60).find(is_selected);
            assert_eq!(selection.next(row).map(|range| range.start), next, "{row}");
            for end in row..60 {
                let count = (row..end).filter(is_selected).count() as u64;
                assert_eq!(selection.count(&(row..end)), count, "{row}..{end}");
            }
        }
    }

    #[test]
    fn ranges_that_are_none_are_refused() {
        let empty = 5..5;
        for ranges in [vec![], vec![empty], vec![0..5, 5..6], vec![3..4, 0..1]] {
            assert_eq!(Selection::try_new(ranges), None);
        }
    }
}
