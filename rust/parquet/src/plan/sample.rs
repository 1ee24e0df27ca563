//! Which rows are merged on trial: so few sources and places that it stays cheap.
//!
//! ```text
//! rows      0 ───────┬────────┬────────┬─────── all
//! places        ▓░░░      ░░░      ░░░      ░░░        ▓ short, ▓░░░ long
//! sources   every k-th, if rows of all of them would be too much to read
//! ```
//!
//! # Invariants
//! The choice depends on footers and options alone. Where rows are dropped for rows of other sources,
//! all sources are tried.
//!
//! # Cost
//! A trial reads about two pages of each column of each source. That is all of a small source.
//!
//! # Not here
//! Where the cuts are (`cuts`); what trials tell (`learned`).

use std::ops::Range;

use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};

/// Places at which rows are tried, if that is cheap enough; else at fewer.
const PLACES: u64 = 4;

/// At most one of so many rows is tried at each place, but no less than so many.
const ROWS_SHARE: u64 = 64;
const ROWS_MIN: u64 = 128 << 10;

/// The short trial has one of so many rows of the long one.
const SHORT_SHARE: u64 = 4;

/// One of so many bytes is read where sources can be left out, but no less than so many.
const BYTES_SHARE: u64 = 8;
const BYTES_MIN: u64 = 8 << 20;

/// Fewer sources tell too little of how they lie among each other.
const SOURCES_MIN: usize = 4;

/// A page, before compression, as most writers make it.
const PAGE_BYTES: u64 = 1 << 20;

/// How much is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// Every so many sources are taken.
    pub(super) every: usize,
    pub(super) places: u64,
}

impl Sample {
    /// What is cheap enough to try of sources, given their stored bytes and those that a trial reads;
    /// `takes_all` of them must be.
    pub(super) fn choose(
        sources: impl ExactSizeIterator<Item = (u64, u64)>,
        takes_all: bool,
    ) -> Self {
        let count = sources.len().max(1);
        let (mut stored, mut read) = (0, 0);
        for (bytes, of_trial) in sources {
            (stored, read) = (stored + bytes, read + of_trial);
        }
        let enough = (stored / BYTES_SHARE).max(BYTES_MIN);
        // A long trial at each place, and a short one.
        let all_places = read.saturating_mul(PLACES + 1);
        let every = match takes_all {
            true => 1,
            false => {
                let most = count / SOURCES_MIN.min(count);
                usize::try_from(all_places / enough).unwrap_or(usize::MAX).clamp(1, most)
            }
        };
        // Of few sources more is read rather than little learned.
        let trials = 4 * enough / (read / every as u64).max(1);
        Self { every, places: trials.saturating_sub(1).clamp(1, PLACES) }
    }

    /// Most rows of a long trial, of so many of the sources that are taken.
    pub(super) fn rows_max(self, rows: u64) -> u64 {
        (rows / ROWS_SHARE).max(ROWS_MIN).min(rows / (2 * self.places))
    }

    /// The rows in the middle of each place, of all `rows`.
    pub(super) fn middles(self, rows: u64) -> Vec<u64> {
        (0..self.places).map(|place| (2 * place + 1) * (rows / (2 * self.places))).collect()
    }
}

/// `trial_rows` rows around `middle`.
pub(super) fn around(middle: u64, trial_rows: u64) -> Range<u64> {
    let start = middle - (trial_rows / 2).min(middle);
    start..start + trial_rows
}

/// A short and a long stretch of `rows`, one behind the other.
pub(super) fn in_two(rows: &Range<u64>) -> [Range<u64>; 2] {
    let end = rows.start + (rows.end - rows.start) / SHORT_SHARE;
    [rows.start..end, end..rows.end]
}

/// Bytes that a trial reads of a source with these row groups, about.
pub(super) fn trial_bytes(groups: &[RowGroupMetaData]) -> u64 {
    let at_least_0 = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
    let of_page = |chunk: &ColumnChunkMetaData| {
        let stored = at_least_0(chunk.compressed_size());
        let pages = at_least_0(chunk.uncompressed_size()).div_ceil(PAGE_BYTES).max(1);
        stored.min(2 * stored / pages)
    };
    let of_group = |group: &RowGroupMetaData| group.columns().iter().map(of_page).sum();
    groups.iter().map(of_group).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_lie_in_the_middle_of_their_places() {
        let sample = Sample { every: 1, places: 4 };
        assert_eq!(sample.middles(8000), [1000, 3000, 5000, 7000]);
        assert_eq!((around(1000, 400), around(100, 400)), (800..1200, 0..400));
        assert_eq!(in_two(&(800..1200)), [800..900, 900..1200]);
        assert_eq!((sample.rows_max(800), sample.rows_max(64 << 20)), (100, 1 << 20));
    }
}
