//! What trials told of the bytes of rows, and where to try more of them.
//!
//! ```text
//! rows     0 ─────────────────────────────────────────────── all
//! first        ▓░░░        ░░░         ░░░         ░░░          a short and a long one, then long ones
//!              1.9         2.0         2.0         7.1 B/row
//! then                                       ░                  between places that are unlike
//! ```
//!
//! The short and the long trial tell what each row takes, and what each row group takes once:
//! dictionaries, and pages that are not full.
//!
//! # Invariants
//! Places ascend. Rows are taken to be as they are at the nearest place.
//!
//! # Cost
//! O(places).
//!
//! # Not here
//! How many rows make a file (`pace`); how much is tried (`sample`).

use super::pace::{Pace, PaceStep};

/// Places whose rows differ by more than this factor are unlike.
const UNLIKE: f64 = 1.25;

/// Nothing is tried between places that are nearer than this share of all rows.
const GAP_SHARE: u64 = 64;

/// What trying rows out told.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tried {
    /// Rows of sources, with those that they pass over.
    pub(crate) rows: u64,
    /// Bytes of the file that they became.
    pub(crate) bytes: u64,
}

/// What trials told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Learned {
    /// Rows of the first trials.
    pub(super) trial_rows: u64,
    /// Bytes that come once a row group.
    group_bytes: f64,
    /// What rows around a row became.
    places: Vec<(u64, Tried)>,
}

impl Learned {
    /// Of the first trials: `short` is at the first of `places`; none if no row was tried.
    pub(super) fn first(trial_rows: u64, short: Tried, places: Vec<(u64, Tried)>) -> Option<Self> {
        let group_bytes = places.first().map_or(0.0, |(_, long)| once_a_group(short, *long));
        let mut learned = Self { trial_rows, group_bytes, places: Vec::new() };
        learned.add(places);
        (!learned.places.is_empty()).then_some(learned)
    }

    /// Adds what was tried between places.
    pub(super) fn add(&mut self, places: Vec<(u64, Tried)>) {
        self.places.extend(places.into_iter().filter(|(_, tried)| tried.rows > 0));
        self.places.sort_by_key(|(row, _)| *row);
    }

    /// At most `most` rows in the middle between places that are unlike, with the rows between the two;
    /// those of the widest gaps.
    pub(super) fn between(&self, rows: u64, most: u64) -> Vec<(u64, u64)> {
        let is_unlike = |a: Tried, b: Tried| {
            let (a, b) = (self.row_bytes(a), self.row_bytes(b));
            a.max(b) > UNLIKE * a.min(b)
        };
        let gap = |pair: &[(u64, Tried)]| match pair {
            [(a, before), (b, after)] if is_unlike(*before, *after) => {
                (b - a > rows / GAP_SHARE).then(|| (a + (b - a) / 2, b - a))
            }
            _ => None,
        };
        let mut gaps: Vec<(u64, u64)> = self.places.windows(2).filter_map(gap).collect();
        gaps.sort_by_key(|(row, gap)| (std::cmp::Reverse(*gap), *row));
        gaps.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        gaps.sort_unstable();
        gaps
    }

    /// How many rows make a file of `file_bytes`, in row groups of `group_rows`.
    pub(super) fn pace(&self, file_bytes: u64, group_rows: u64) -> Pace {
        let nexts = self.places.iter().skip(1).map(|(row, _)| Some(*row)).chain([None]);
        let step = |((row, tried), next): (&(u64, Tried), Option<u64>)| {
            let row_bytes = self.row_bytes(*tried);
            let end = next.map_or(u64::MAX, |next| row + (next - row) / 2);
            let group_bytes = tried.bytes as f64 - row_bytes * tried.rows as f64;
            PaceStep { end, group_bytes: group_bytes.max(0.0), row_bytes }
        };
        Pace::new(file_bytes, group_rows, self.places.iter().zip(nexts).map(step).collect())
    }

    fn row_bytes(&self, tried: Tried) -> f64 {
        let bytes = tried.bytes as f64;
        let of_rows = (bytes - self.group_bytes).max(bytes / 4.0);
        (of_rows / tried.rows.max(1) as f64).max(Pace::ROW_BYTES_MIN)
    }
}

/// Bytes that come once a row group, by two trials at one place: the rows of the longer one cost what
/// it has more than the shorter one.
fn once_a_group(short: Tried, long: Tried) -> f64 {
    let rows = long.rows as f64 - short.rows as f64;
    let bytes = long.bytes as f64 - short.bytes as f64;
    if short.rows == 0 || rows < short.rows as f64 || bytes <= 0.0 {
        return 0.0;
    }
    (short.bytes as f64 - short.rows as f64 * bytes / rows).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(rows: u64, bytes: u64) -> Tried {
        Tried { rows, bytes }
    }

    #[test]
    fn rows_are_as_those_that_were_tried_nearby() {
        let places = vec![(500, tried(30, 30)), (1500, tried(30, 300))];
        let mut learned = Learned::first(40, tried(10, 10), places).unwrap();
        let pace = learned.pace(500, 1 << 20);
        assert_eq!([0, 1500].map(|done| pace.target_rows(done..3000)), [500, 50]);
        assert_eq!(learned.between(2000, 4), [(1000, 1000)]);
        learned.add(vec![(1000, tried(30, 300))]);
        assert_eq!(learned.between(2000, 4), [(750, 500)]);
        assert_eq!(learned.between(2000, 0), []);
        // The long rows begin in the middle between 500 and 1000 now.
        assert_eq!(learned.pace(500, 1 << 20).target_rows(700..3000), 50 + 45);
    }

    #[test]
    fn two_trials_tell_what_a_row_group_takes_once() {
        // 400 bytes, and 2 a row.
        let places = vec![(200, tried(300, 1000))];
        let learned = Learned::first(400, tried(100, 600), places.clone()).unwrap();
        assert_eq!(learned.pace(2400, 1 << 20).target_rows(0..10_000), 1000);
        // One trial tells less: 3.33 bytes a row.
        let learned = Learned::first(400, Tried::default(), places).unwrap();
        assert_eq!(learned.pace(2400, 1 << 20).target_rows(0..7200), 720);
        assert_eq!(Learned::first(400, tried(1, 1), vec![(200, Tried::default())]), None);
    }
}
