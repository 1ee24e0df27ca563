//! How many rows make a file of so many bytes.
//!
//! ```text
//! rows    0 ───────────┬───────────┬───────────┬─────────── all
//!         1.9 B/row    2.0 B/row   7.1 B/row   1.9 B/row   and bytes that come once a row group
//! ```
//!
//! # Invariants
//! Where rows take as many bytes as their step says, files have 0.77 to 1.27 of the size that was
//! asked for, and of several files the last one has at least half of it.
//!
//! # Cost
//! O(steps) a file.
//!
//! # Not here
//! What rows take (`learned`).

use std::ops::Range;

/// Files are this much larger at most, rather than one more is made.
const OVER_MAX: f64 = 1.15;

/// The last file is to have this share of the size at least.
const LAST_MIN: f64 = 0.5;

/// The others are to have this share.
const SHARE_MIN: f64 = 0.77;

/// How many rows make a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pace {
    file_bytes: f64,
    /// Rows of a row group.
    group_rows: f64,
    /// In the order of rows; the last goes on for ever.
    steps: Vec<PaceStep>,
}

/// The rows before `end`, from the step before on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PaceStep {
    pub(super) end: u64,
    /// Bytes of a row group, whatever rows it has.
    pub(super) group_bytes: f64,
    pub(super) row_bytes: f64,
}

impl Pace {
    /// A row takes this much at least: columns of one value take nothing.
    pub(super) const ROW_BYTES_MIN: f64 = 0.01;

    /// Rows that become as many bytes as sources store.
    pub(super) fn of_sources(file_bytes: u64, stored: u64, rows: u64) -> Self {
        let row_bytes = stored as f64 / rows.max(1) as f64;
        let step = PaceStep { end: u64::MAX, group_bytes: 0.0, row_bytes };
        Self::new(file_bytes, u64::MAX, vec![step])
    }

    pub(super) fn new(file_bytes: u64, group_rows: u64, mut steps: Vec<PaceStep>) -> Self {
        steps.iter_mut().for_each(|step| step.row_bytes = step.row_bytes.max(Self::ROW_BYTES_MIN));
        Self { file_bytes: file_bytes.max(1) as f64, group_rows: group_rows.max(1) as f64, steps }
    }

    /// Rows of the file that begins with the first of `rows`, which end with all rows;
    /// [`u64::MAX`] if these are one file.
    pub(super) fn target_rows(&self, rows: Range<u64>) -> u64 {
        let group_bytes = self.steps_of(&rows).map(|(step, _)| step.group_bytes).next();
        let group_bytes = group_bytes.unwrap_or(0.0);
        // Of one row group: it takes its bytes once. Of several: each row takes its share. A file of
        // little more than a footer is no aim.
        let rest = (self.file_bytes - group_bytes).max(self.file_bytes / 2.0);
        let (is_grouped, file_bytes) =
            match self.rows_for(&rows, rest, false).is_some_and(|n| n as f64 > self.group_rows) {
                true => (true, self.file_bytes),
                false => (false, rest),
            };
        let left: f64 = self.bytes(&rows, is_grouped).sum();
        let Some(share) = share(left / file_bytes) else { return u64::MAX };
        self.rows_for(&rows, share * file_bytes, is_grouped).map_or(u64::MAX, |rows| rows.max(1))
    }

    /// Rows of a file that is like the first one.
    pub(super) fn rows_at_first(&self) -> u64 {
        self.target_rows(0..u64::MAX)
    }

    /// The steps that `rows` are of, and how many each has.
    fn steps_of(&self, rows: &Range<u64>) -> impl Iterator<Item = (&PaceStep, u64)> {
        let starts = std::iter::once(0).chain(self.steps.iter().map(|step| step.end));
        self.steps.iter().zip(starts).filter_map(|(step, start)| {
            let of = rows.start.max(start)..rows.end.min(step.end);
            (!of.is_empty()).then(|| (step, of.end - of.start))
        })
    }

    fn bytes(&self, rows: &Range<u64>, is_grouped: bool) -> impl Iterator<Item = f64> {
        self.steps_of(rows).map(move |(step, n)| n as f64 * self.row_bytes(step, is_grouped))
    }

    fn row_bytes(&self, step: &PaceStep, is_grouped: bool) -> f64 {
        step.row_bytes + if is_grouped { step.group_bytes / self.group_rows } else { 0.0 }
    }

    /// How many of `rows` take `bytes`; none if all take less.
    fn rows_for(&self, rows: &Range<u64>, mut bytes: f64, is_grouped: bool) -> Option<u64> {
        let mut before = 0;
        for (step, n) in self.steps_of(rows) {
            let row_bytes = self.row_bytes(step, is_grouped);
            if bytes <= n as f64 * row_bytes {
                return Some(before + (bytes / row_bytes) as u64);
            }
            bytes -= n as f64 * row_bytes;
            before += n;
        }
        None
    }
}

/// The size of the next file where so many files of the size that was asked for are left, as a share
/// of that size; none if one file is left.
fn share(left: f64) -> Option<f64> {
    if left <= OVER_MAX {
        return None;
    }
    let whole = left.floor();
    if left - whole >= LAST_MIN {
        return Some(1.0);
    }
    // Instead of a small rest: all a bit larger, or a bit smaller and one more.
    let smaller = (left - LAST_MIN) / whole;
    match left / whole > OVER_MAX && smaller >= SHARE_MIN {
        true => Some(smaller),
        false => Some(left / whole).filter(|_| whole > 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes of the files of `rows` rows, as shares of what was asked for.
    fn sizes(pace: &Pace, rows: u64) -> Vec<f64> {
        let (mut sizes, mut done) = (Vec::new(), 0);
        while done < rows {
            let n = pace.target_rows(done..rows).min(rows - done);
            let bytes: f64 = pace.bytes(&(done..done + n), false).sum();
            sizes.push(bytes / pace.file_bytes);
            done += n;
        }
        sizes
    }

    #[test]
    fn files_are_as_large_as_asked_and_none_is_small() {
        let pace = Pace::of_sources(1000, 10, 10);
        assert_eq!(sizes(&pace, 3000), [1.0, 1.0, 1.0]);
        assert_eq!(sizes(&pace, 3600), [1.0, 1.0, 1.0, 0.6]);
        assert_eq!(sizes(&pace, 1100), [1.1]);
        assert_eq!(sizes(&pace, 1300), [0.8, 0.5]);
        assert_eq!(sizes(&pace, 2100), [1.05, 1.05]);
        for rows in (1000..20_000).step_by(7) {
            let sizes = sizes(&pace, rows);
            let (last, others) = sizes.split_last().unwrap();
            assert!((0.49..1.28).contains(last), "{rows}: {sizes:?}");
            assert!(others.iter().all(|size| (0.76..1.28).contains(size)), "{rows}: {sizes:?}");
        }
    }

    #[test]
    fn a_file_ends_where_its_bytes_are_reached() {
        let step = |end, row_bytes| PaceStep { end, group_bytes: 0.0, row_bytes };
        let pace = Pace::new(500, 1 << 20, vec![step(1000, 1.0), step(u64::MAX, 10.0)]);
        let target = |done| pace.target_rows(done..3000);
        // 500 rows of 1 byte, then 50 of 10; between them 100 of 1 byte and 40 of 10.
        assert_eq!([target(0), target(1500), target(900)], [500, 50, 140]);
    }

    #[test]
    fn what_a_row_group_takes_once_counts_once() {
        let step = || vec![PaceStep { end: u64::MAX, group_bytes: 400.0, row_bytes: 2.0 }];
        assert_eq!(Pace::new(2400, 1 << 20, step()).target_rows(0..10_000), 1000);
        // In row groups of 200 rows each has 2 bytes more.
        assert_eq!(Pace::new(2400, 200, step()).target_rows(0..6000), 600);
    }
}
