//! Which rows of a source are in order as they lie? Runs that need no sorting, and the rows between.
//!
//! ```text
//! keys      1 2 3 9 4 5 2 6 7 8 │ 0 1 2 3 4 … │ 7 3 9 1 8 2 …
//! rows      ▓ ▓ ▓ ↑ ▓ ▓ ↓ ▓ ▓ ▓ │ ▓ ▓ ▓ ▓ ▓   │ ░ ░ ░ ░ ░ ░
//!           run, 9 early, 2 late │ another run │ loose: to be sorted
//! ```
//!
//! A row that is smaller than the last one of its run does not join it, and a row of the run that
//! many rows behind it are smaller than leaves it again: the heuristic of Drop-Merge sort (Emil
//! Ernerfeldt, 2017). A file of which a few rows are late is one run, then.
//!
//! # Invariants
//! Every row is in one stretch, and in it is part of the run, early or late. Keys of a run never
//! descend. Merging `early`, the run and `late` of all stretches in this order, each of them sorted
//! stably and ties in favour of the first, sorts the source stably: no row of the run with the key
//! of an early row lies before that row, none with the key of a late row behind it.
//!
//! # Cost
//! A comparison or two a row; keys of a few thousand rows. What is found takes 16 bytes for
//! each stretch of rows without a gap, and is bounded by the caller.
//!
//! # Not here
//! Reading keys, sorting loose rows, merging: the caller.

mod run;
mod tracker;

pub use run::{NaturalRun, RowStretch};

use self::run::Blocks;
use self::tracker::Tracker;
use crate::key::Keys;

/// Finds the natural runs of one source, whose keys it is given from the first row to the last.
///
/// ```
/// use plait_core::key::Keys;
/// use plait_core::natural::{RunFinder, RowStretch};
///
/// // 20,000 ascending keys, of which one comes 10,000 rows late.
/// let mut keys: Vec<u128> = (0..20_000).collect();
/// let late = keys.remove(5_000);
/// keys.insert(15_000, late);
/// let mut finder = RunFinder::new(0, usize::MAX);
/// finder.push(&Keys::Packed(keys));
/// let found = finder.finish();
/// let [RowStretch::Run(run)] = found.as_slice() else { panic!("one run") };
/// assert_eq!(run.rows, [0..15_000, 15_001..20_000]);
/// assert_eq!((run.early.len(), &run.late), (0, &vec![15_000..15_001]));
/// ```
pub struct RunFinder {
    tracker: KeyTracker,
}

/// By the form of the keys, which is that of the first batch.
enum KeyTracker {
    Unknown(Blocks),
    Packed(Tracker<u128>),
    Bytes(Tracker<Vec<u8>>),
}

impl RunFinder {
    /// A finder for rows from `row` on, of which at most `ranges_max` ranges of rows are noted;
    /// beyond that, only runs without a gap are found.
    #[must_use]
    pub fn new(row: u64, ranges_max: usize) -> Self {
        Self { tracker: KeyTracker::Unknown(Blocks::new(row, ranges_max)) }
    }

    /// Looks at the keys of the next rows, all of one form.
    pub fn push(&mut self, keys: &Keys) {
        if let KeyTracker::Unknown(blocks) = &mut self.tracker {
            let blocks = std::mem::replace(blocks, Blocks::new(0, 0));
            self.tracker = match keys {
                Keys::Packed(_) => KeyTracker::Packed(Tracker::new(blocks)),
                Keys::Bytes(_) => KeyTracker::Bytes(Tracker::new(blocks)),
            };
        }
        match (&mut self.tracker, keys) {
            (KeyTracker::Packed(tracker), Keys::Packed(keys)) => tracker.push(keys),
            (KeyTracker::Bytes(tracker), Keys::Bytes(keys)) => tracker.push(keys),
            // Keys of one shape have one form.
            _ => debug_assert!(false, "keys of one source have two forms"),
        }
    }

    /// All stretches, in the order of their rows.
    #[must_use]
    pub fn finish(self) -> Vec<RowStretch> {
        match self.tracker {
            KeyTracker::Unknown(blocks) => blocks.finish(),
            KeyTracker::Packed(tracker) => tracker.finish(),
            KeyTracker::Bytes(tracker) => tracker.finish(),
        }
    }
}

#[cfg(test)]
mod tests;
