//! What trials found about the bytes of rows, and where to try more of them.
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
//! Places ascend. Rows are taken to be as they are at the nearest place: for each byte that sources
//! store, they take as many as there.
//!
//! # Cost
//! O(places + steps of the density).
//!
//! # Not here
//! How many rows make a file (`pace`); how much is tried (`sample`); what sources store (`density`).

use std::ops::Range;

use super::density::Density;
use super::pace::{Pace, PaceStep};

/// Places whose rows differ by more than this factor are unlike.
const UNLIKE: f64 = 1.25;

/// Nothing is tried between places that are nearer than this share of all rows.
const GAP_SHARE: u64 = 64;

/// Rows take up to so many times the bytes of those at the nearest place, or as small a part of them,
/// because sources store as many more or fewer for them.
const DENSITY_MAX: f64 = 8.0;

/// What a trial found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tried {
    /// Rows of sources, with those that they pass over.
    pub(crate) rows: u64,
    /// Bytes of the file that they became.
    pub(crate) bytes: u64,
}

/// Where rows were tried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TrialPlace {
    /// The row in the middle.
    pub(super) middle: u64,
    /// What sources store for a row there; 1 where rows are alike everywhere.
    pub(super) stored_row_bytes: f64,
    /// Whether the trial is the short one.
    pub(super) is_short: bool,
}

impl TrialPlace {
    /// The place of `rows`, whose middle is `middle`.
    pub(super) fn of(middle: u64, rows: &Range<u64>, density: Option<&Density>) -> Self {
        let stored_row_bytes = density.map_or(1.0, |density| density.row_bytes(rows));
        let stored_row_bytes = stored_row_bytes.max(Pace::ROW_BYTES_MIN);
        Self { middle, stored_row_bytes, is_short: false }
    }
}

/// What trials found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Learned {
    /// Rows of the first trials.
    pub(super) trial_rows: u64,
    /// Bytes that come once a row group.
    group_bytes: f64,
    /// What sources store for rows; none if all are alike.
    pub(super) density: Option<Density>,
    /// What rows became.
    places: Vec<(TrialPlace, Tried)>,
}

impl Learned {
    /// Of the first trials, a short one among them; none if no row was tried.
    pub(super) fn first(
        trial_rows: u64,
        density: Option<Density>,
        tried: Vec<(TrialPlace, Tried)>,
    ) -> Option<Self> {
        let (short, long): (Vec<_>, Vec<_>) =
            tried.into_iter().partition(|(place, _)| place.is_short);
        let group_bytes = match (short.first(), long.first()) {
            (Some(short), Some(long)) => once_a_group(short, long),
            _ => 0.0,
        };
        let mut learned = Self { trial_rows, group_bytes, density, places: Vec::new() };
        learned.add(long);
        (!learned.places.is_empty()).then_some(learned)
    }

    /// Adds what was tried between places.
    pub(super) fn add(&mut self, places: Vec<(TrialPlace, Tried)>) {
        self.places.extend(places.into_iter().filter(|(_, tried)| tried.rows > 0));
        self.places.sort_by_key(|(place, _)| place.middle);
    }

    /// At most `most` rows in the middle between places that are unlike, with the rows between the two;
    /// those of the widest gaps.
    pub(super) fn between(&self, rows: u64, most: u64) -> Vec<(u64, u64)> {
        let of_stored =
            |(place, tried): &(TrialPlace, Tried)| self.row_bytes(*tried) / place.stored_row_bytes;
        let gap = |pair: &[(TrialPlace, Tried)]| {
            let [before, after] = pair else { return None };
            let (low, high) = (of_stored(before), of_stored(after));
            let (a, b) = (before.0.middle, after.0.middle);
            let is_unlike = low.max(high) > UNLIKE * low.min(high);
            (is_unlike && b - a > rows / GAP_SHARE).then(|| (a + (b - a) / 2, b - a))
        };
        let mut gaps: Vec<(u64, u64)> = self.places.windows(2).filter_map(gap).collect();
        gaps.sort_by_key(|(row, gap)| (std::cmp::Reverse(*gap), *row));
        gaps.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        gaps.sort_unstable();
        gaps
    }

    /// How many rows make a file of `file_bytes`, in row groups of `group_rows`.
    pub(super) fn pace(&self, file_bytes: u64, group_rows: u64) -> Pace {
        let mut steps = Vec::new();
        let mut start = 0;
        for (at, (place, tried)) in self.places.iter().enumerate() {
            let next = self.places.get(at + 1).map(|(next, _)| next.middle);
            let end = next.map_or(u64::MAX, |next| place.middle + (next - place.middle) / 2);
            let row_bytes = self.row_bytes(*tried);
            let group_bytes = (tried.bytes as f64 - row_bytes * tried.rows as f64).max(0.0);
            let step = |(rows, share): (Range<u64>, f64)| PaceStep {
                end: rows.end,
                group_bytes,
                row_bytes: row_bytes * share,
            };
            steps.extend(self.shares(place, start..end).into_iter().map(step));
            start = end;
        }
        Pace::new(file_bytes, group_rows, steps)
    }

    /// How many times the bytes of rows at `place` others take, of those that are nearest to it.
    fn shares(&self, place: &TrialPlace, nearest: Range<u64>) -> Vec<(Range<u64>, f64)> {
        let Some(density) = &self.density else { return vec![(nearest, 1.0)] };
        let share =
            |stored: f64| (stored / place.stored_row_bytes).clamp(1.0 / DENSITY_MAX, DENSITY_MAX);
        density.steps(&nearest).map(|(rows, stored)| (rows, share(stored))).collect()
    }

    fn row_bytes(&self, tried: Tried) -> f64 {
        let bytes = tried.bytes as f64;
        let of_rows = (bytes - self.group_bytes).max(bytes / 4.0);
        (of_rows / tried.rows.max(1) as f64).max(Pace::ROW_BYTES_MIN)
    }
}

/// Bytes that come once a row group, by two trials at one place: what the longer one has more than the
/// shorter one is for the rows, by what sources store for them.
fn once_a_group(short: &(TrialPlace, Tried), long: &(TrialPlace, Tried)) -> f64 {
    let stored = |(place, tried): &(TrialPlace, Tried)| tried.rows as f64 * place.stored_row_bytes;
    let (short_stored, more_stored) = (stored(short), stored(long) - stored(short));
    let (short_bytes, more) = (short.1.bytes as f64, long.1.bytes as f64 - short.1.bytes as f64);
    if short.1.rows == 0 || more_stored < short_stored || more <= 0.0 {
        return 0.0;
    }
    (short_bytes - short_stored * more / more_stored).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(rows: u64, bytes: u64) -> Tried {
        Tried { rows, bytes }
    }

    fn at(middle: u64, tried: Tried) -> (TrialPlace, Tried) {
        (TrialPlace { middle, stored_row_bytes: 1.0, is_short: false }, tried)
    }

    fn short(tried: Tried) -> (TrialPlace, Tried) {
        (TrialPlace { is_short: true, ..at(0, tried).0 }, tried)
    }

    #[test]
    fn rows_are_as_those_that_were_tried_nearby() {
        let places = vec![short(tried(10, 10)), at(500, tried(30, 30)), at(1500, tried(30, 300))];
        let mut learned = Learned::first(40, None, places).unwrap();
        let pace = learned.pace(500, 1 << 20);
        assert_eq!([0, 1500].map(|done| pace.target_rows(done..3000)), [500, 50]);
        assert_eq!(learned.between(2000, 4), [(1000, 1000)]);
        learned.add(vec![at(1000, tried(30, 300))]);
        assert_eq!(learned.between(2000, 4), [(750, 500)]);
        assert_eq!(learned.between(2000, 0), []);
        // The long rows begin in the middle between 500 and 1000 now.
        assert_eq!(learned.pace(500, 1 << 20).target_rows(700..3000), 50 + 45);
    }

    #[test]
    fn two_trials_tell_what_a_row_group_takes_once() {
        // 400 bytes, and 2 a row.
        let long = at(200, tried(300, 1000));
        let both = vec![short(tried(100, 600)), long];
        let learned = Learned::first(400, None, both).unwrap();
        assert_eq!(learned.pace(2400, 1 << 20).target_rows(0..10_000), 1000);
        // One trial tells less: 3.33 bytes a row.
        let learned = Learned::first(400, None, vec![long]).unwrap();
        assert_eq!(learned.pace(2400, 1 << 20).target_rows(0..7200), 720);
        let nothing = vec![short(tried(1, 1)), at(200, Tried::default())];
        assert_eq!(Learned::first(400, None, nothing), None);
    }

    #[test]
    fn rows_take_what_sources_store_for_them() {
        // Of 1000 rows sources store a byte each, of the next 1000 eight, of others one again.
        let points = [(1000, 1000.0), (2000, 9000.0), (3000, 10_000.0)];
        let density = Density::through(&points);
        let place = TrialPlace::of(500, &(480..520), density.as_ref());
        let learned = Learned::first(40, density, vec![(place, tried(40, 80))]).unwrap();
        let pace = learned.pace(400, 1 << 20);
        assert_eq!([0, 1000, 2000].map(|done| pace.target_rows(done..9000)), [200, 25, 200]);
        // 100 rows before the long ones, and 12 of these.
        assert_eq!(pace.target_rows(900..9000), 112);
        assert_eq!(learned.between(3000, 4), []);
    }
}
