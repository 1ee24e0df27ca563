//! How many bytes sources store for a row, along the rows of a merge.
//!
//! ```text
//! a    18 B ▄▄▄▄▄▄▄▄│ 90 B ████████│ 18 B ▄▄▄▄     stretches of row groups that are alike
//! b       18 B ▄▄▄▄▄▄▄▄▄│ 90 B ██████████
//!      ├──────────────┼─┼──────────┼─┼────┤        at the keys between them: steps of the merge
//! ```
//!
//! # Invariants
//! Keys, footers and options alone decide. There is no result where all rows are alike.
//!
//! # Cost
//! One page of every key column for each of [`KEYS_MAX`] keys at most, and none where all row groups
//! of a source are alike. O(k·n) for k keys and n sources.
//!
//! # Not here
//! What the rows become (`learned`).

use std::ops::Range;

use plait_core::Result;

use super::source_keys::{Edge, Reading, SourceKeys};
use crate::leaf::OutputLeaf;

/// Row groups whose rows take up to so many times the bytes of others are alike.
const ALIKE: f64 = 1.25;

/// Keys that are looked up at most, and steps at most.
const KEYS_MAX: usize = 256;

/// Steps have at least one of so many rows, so that keys at which all sources change count once.
const STEP_SHARE: u64 = 1024;

/// Bytes a row, along the rows of a merge.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Density {
    /// Ascending; the last goes on for ever.
    steps: Vec<DensityStep>,
}

/// The rows before `end`, from the step before on.
#[derive(Clone, Copy, Debug, PartialEq)]
struct DensityStep {
    end: u64,
    row_bytes: f64,
}

impl Density {
    /// That of `sources`, which are a sample of a merge of `all_rows` rows; none if all rows are alike.
    ///
    /// # Errors
    /// As those of reading keys.
    pub(super) fn of(
        sources: &mut [SourceKeys],
        leaves: &[OutputLeaf],
        all_rows: u64,
        reading: Reading<'_>,
    ) -> Result<Option<Self>> {
        let stored =
            sources.iter().map(|of| StoredRows::of(of, leaves)).collect::<Result<Vec<_>>>()?;
        if is_alike(stored.iter().flat_map(StoredRows::row_bytes)) {
            return Ok(None);
        }
        let mut looked_up: Vec<(usize, u64)> = Vec::new();
        for (place, stored) in stored.iter().enumerate() {
            looked_up.extend(stored.borders().map(|row| (place, row)));
        }
        let mut keys = Vec::with_capacity(looked_up.len());
        for &(place, row) in evenly(&looked_up, KEYS_MAX) {
            reading.context.check_cancelled()?;
            if let Some(of) = sources.get_mut(place) {
                keys.push(of.key(row, reading)?.to_vec());
            }
        }
        let ends = sources.iter().flat_map(|of| [of.samples.first(), of.samples.last()]);
        keys.extend(ends.flatten().map(|(_, key)| key.to_vec()));
        keys.sort_unstable();
        keys.dedup();
        let rows: u64 = sources.iter().map(SourceKeys::rows).sum();
        let scale = all_rows as f64 / rows.max(1) as f64;
        let before = |key: &Vec<u8>| {
            sources.iter().zip(&stored).fold((0, 0.0), |(rows, bytes), (of, stored)| {
                let about = of.about(key, Edge::Below);
                (rows + about, bytes + stored.before(about))
            })
        };
        let all = (rows, stored.iter().map(|of| of.before(u64::MAX)).sum());
        let points = evenly(&keys, KEYS_MAX).map(before).chain([all]);
        let scaled = |(rows, bytes)| ((rows as f64 * scale) as u64, bytes * scale);
        Ok(Self::through(&points.map(scaled).collect::<Vec<_>>()))
    }

    /// Through points of rows and the bytes before them, ascending; the last one is behind all rows.
    pub(super) fn through(points: &[(u64, f64)]) -> Option<Self> {
        let rows = points.last()?.0;
        let mut steps: Vec<DensityStep> = Vec::new();
        let (mut start, mut done) = (0, 0.0);
        for &(end, bytes) in points {
            // Counts of rows that are not sorted need not ascend.
            if end <= start || (end - start < rows / STEP_SHARE && end < rows) {
                continue;
            }
            let row_bytes = (bytes - done).max(0.0) / (end - start) as f64;
            steps.push(DensityStep { end, row_bytes });
            (start, done) = (end, bytes);
        }
        steps.last_mut()?.end = u64::MAX;
        (!is_alike(steps.iter().map(|step| step.row_bytes))).then_some(Self { steps })
    }

    /// Bytes a row of `rows`, in the middle.
    pub(super) fn row_bytes(&self, rows: &Range<u64>) -> f64 {
        let (mut bytes, mut count) = (0.0, 0.0);
        for (of, row_bytes) in self.steps(rows) {
            let n = (of.end - of.start) as f64;
            (bytes, count) = (bytes + n * row_bytes, count + n);
        }
        bytes / f64::max(count, 1.0)
    }

    /// The steps that `rows` are of.
    pub(super) fn steps(&self, rows: &Range<u64>) -> impl Iterator<Item = (Range<u64>, f64)> {
        let starts = std::iter::once(0).chain(self.steps.iter().map(|step| step.end));
        self.steps.iter().zip(starts).filter_map(|(step, start)| {
            let of = rows.start.max(start)..rows.end.min(step.end);
            (!of.is_empty()).then_some((of, step.row_bytes))
        })
    }
}

/// Whether rows of so many bytes are alike.
fn is_alike(row_bytes: impl Iterator<Item = f64>) -> bool {
    let (mut least, mut most) = (f64::INFINITY, 0.0);
    for bytes in row_bytes {
        (least, most) = (f64::min(least, bytes), f64::max(most, bytes));
    }
    most <= ALIKE * least
}

/// At most `most` of `all`, in about equal distances.
fn evenly<T>(all: &[T], most: usize) -> impl Iterator<Item = &T> {
    let count = all.len().min(most);
    (0..count).filter_map(move |i| all.get(i * all.len() / count))
}

/// What a source stores, in stretches of row groups that are alike.
struct StoredRows {
    /// The last row of each, and the bytes of all before it.
    stretches: Vec<(u64, f64)>,
}

impl StoredRows {
    fn of(of: &SourceKeys, leaves: &[OutputLeaf]) -> Result<Self> {
        let mut columns = Vec::with_capacity(leaves.len());
        for leaf in leaves {
            columns.extend(leaf.adapter(of.source.id)?.leaf());
        }
        let footer = of.source.footer()?;
        let groups = footer.row_groups().iter().map(|group| {
            let stored = columns.iter().filter_map(|column| group.columns().get(*column));
            let bytes: i64 = stored.map(|chunk| chunk.compressed_size().max(0)).sum();
            (group.num_rows().max(0).unsigned_abs(), bytes as f64)
        });
        Ok(Self::of_groups(groups, &of.source.span()))
    }

    /// Of row groups with their rows and bytes, the rows in `span`.
    fn of_groups(groups: impl Iterator<Item = (u64, f64)>, span: &Range<u64>) -> Self {
        let mut stretches: Vec<(u64, f64)> = Vec::new();
        // Where the last stretch starts, what it has; where the row group starts.
        let (mut from, mut rows, mut bytes) = ((0, 0.0), 0, 0.0);
        let mut start = 0;
        for (group_rows, group_bytes) in groups {
            let of = span.start.max(start)..span.end.min(start + group_rows);
            start += group_rows;
            if of.is_empty() {
                continue;
            }
            let n = of.end - of.start;
            let group_bytes = group_bytes * (n as f64 / group_rows as f64);
            let (a, b) = (bytes / f64::max(rows as f64, 1.0), group_bytes / n as f64);
            if rows == 0 || a.max(b) <= ALIKE * a.min(b) {
                stretches.pop();
            } else {
                (from, rows, bytes) = ((from.0 + rows, from.1 + bytes), 0, 0.0);
            }
            (rows, bytes) = (rows + n, bytes + group_bytes);
            stretches.push((from.0 + rows, from.1 + bytes));
        }
        Self { stretches }
    }

    /// Rows at which a stretch ends and another begins.
    fn borders(&self) -> impl Iterator<Item = u64> {
        self.stretches.iter().rev().skip(1).rev().map(|stretch| stretch.0)
    }

    /// Bytes a row of each stretch.
    fn row_bytes(&self) -> impl Iterator<Item = f64> {
        let before = std::iter::once((0, 0.0)).chain(self.stretches.iter().copied());
        let ends = self.stretches.iter().zip(before);
        ends.map(|(end, start)| (end.1 - start.1) / (end.0 - start.0) as f64)
    }

    /// Bytes of the first `rows` rows.
    fn before(&self, rows: u64) -> f64 {
        let at = self.stretches.partition_point(|stretch| stretch.0 <= rows);
        let (start, done) = match at.checked_sub(1).and_then(|at| self.stretches.get(at)) {
            Some(before) => *before,
            None => (0, 0.0),
        };
        let Some((end, bytes)) = self.stretches.get(at) else { return done };
        done + (bytes - done) * ((rows - start) as f64 / (end - start) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_groups_that_are_alike_are_one_stretch() {
        let groups = [(100, 100.0), (100, 110.0), (100, 500.0), (100, 90.0)];
        let stored = StoredRows::of_groups(groups.into_iter(), &(0..400));
        assert_eq!(stored.borders().collect::<Vec<_>>(), [200, 300]);
        let before = |rows| stored.before(rows).round();
        assert_eq!(
            [0, 100, 200, 250, 300, 400, 900].map(before),
            [0.0, 105.0, 210.0, 460.0, 710.0, 800.0, 800.0]
        );
        // Rows are counted from the first one of the span.
        let some = StoredRows::of_groups(groups.into_iter(), &(150..250));
        assert_eq!(some.borders().collect::<Vec<_>>(), [50]);
        assert_eq!([50, 100].map(|rows| some.before(rows).round()), [55.0, 305.0]);
    }

    #[test]
    fn a_stretch_of_rows_takes_what_its_steps_take() {
        let points = [(1000, 1000.0), (1000, 1000.0), (2000, 9000.0), (3000, 10_000.0)];
        let density = Density::through(&points).unwrap();
        let row_bytes = |rows| density.row_bytes(&rows);
        assert_eq!(
            [0..1000, 1000..1200, 500..1500, 2500..9000].map(row_bytes),
            [1.0, 8.0, 4.5, 1.0]
        );
        assert_eq!(
            density.steps(&(500..1500)).collect::<Vec<_>>(),
            [(500..1000, 1.0), (1000..1500, 8.0)]
        );
        assert_eq!(Density::through(&[(1000, 1000.0), (2000, 2100.0)]), None);
        assert_eq!(Density::through(&[]), None);
    }
}
