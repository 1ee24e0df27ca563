//! Ranges of rows of one file, that ascend and do not touch.
//!
//! # Not here
//! Which rows they are (`prune`), and reading them (`window`).

use std::ops::Range;

use arrow_array::BooleanArray;

/// How many rows there are.
pub(super) fn count(rows: &[Range<u64>]) -> u64 {
    rows.iter().map(|range| range.end - range.start).sum()
}

/// Ranges that ascend, joined where they meet.
pub(super) fn joined(ranges: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    for range in ranges.filter(|range| !range.is_empty()) {
        match found.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => found.push(range),
        }
    }
    found
}

/// The first `len` rows of ranges, and the others.
pub(super) fn split(rows: &[Range<u64>], len: u64) -> (Vec<Range<u64>>, Vec<Range<u64>>) {
    let (mut first, mut others, mut room) = (Vec::new(), Vec::new(), len);
    for range in rows {
        let at = range.end.min(range.start.saturating_add(room));
        room -= at - range.start;
        first.extend((range.start < at).then_some(range.start..at));
        others.extend((at < range.end).then_some(at..range.end));
    }
    (first, others)
}

/// The rows among `rows` for which `mask` is true.
pub(super) fn selected(rows: &[Range<u64>], mask: &BooleanArray) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    let mut before = 0_u64;
    let mut ranges = rows.iter();
    let mut range = ranges.next();
    // Slices of set bits may go beyond a range of rows.
    for (start, end) in mask.values().set_slices() {
        let (mut start, end) = (start as u64, end as u64);
        while start < end {
            let Some(here) = range else { return found };
            let len = here.end - here.start;
            if start >= before + len {
                before += len;
                range = ranges.next();
                continue;
            }
            let to = end.min(before + len);
            found.push(here.start + (start - before)..here.start + (to - before));
            start = to;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init, reason = "ranges of rows")]

    use super::*;
    use crate::selection::intersection;

    #[test]
    fn ranges_are_joined_and_intersected() {
        let joined = joined([0..2, 2..4, 6..6, 7..9, 8..12].into_iter());
        assert_eq!(joined, [0..4, 7..12]);
        assert_eq!(intersection(&joined, &[1..3, 4..8, 11..20]), [1..3, 7..8, 11..12]);
        assert_eq!(intersection(&joined, &[]), []);
    }

    #[test]
    fn ranges_are_split_by_rows() {
        assert_eq!(split(&[0..2, 4..9], 3), (vec![0..2, 4..5], vec![5..9]));
        assert_eq!(split(&[0..2, 4..9], 2), (vec![0..2], vec![4..9]));
        assert_eq!(split(&[3..5], 0), (vec![], vec![3..5]));
        assert_eq!(split(&[3..5], 9), (vec![3..5], vec![]));
    }

    #[test]
    fn rows_of_a_mask_are_those_of_the_ranges() {
        let mask = BooleanArray::from(vec![true, true, false, true, true, true]);
        assert_eq!(selected(&[10..12, 20..22, 30..32], &mask), [10..12, 21..22, 30..32]);
        assert_eq!(selected(&[5..11], &mask), [5..7, 8..11]);
    }
}
