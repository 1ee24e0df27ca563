//! How outputs end, and where one does.
//!
//! # Not here
//! Finding the cuts (`cuts`); rows of a size (`pace`).

use super::pace::Pace;
use super::source_keys::Count;

/// How outputs end.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Rule {
    /// All rows in one.
    One,
    /// At most so many, of equal share.
    Outputs(u64),
    /// At the first change of the cut key after so many rows.
    Rows(u64),
    /// At the first change of the cut key after so many rows as will take the bytes of an output.
    Bytes(Pace),
}

impl Rule {
    /// Rows of the output that begins behind `done` rows, where all rows end at `end`.
    pub(super) fn target(&self, done: u64, end: u64) -> u64 {
        match self {
            Self::One => u64::MAX,
            Self::Outputs(outputs) => (end - done).div_ceil((*outputs).max(1)),
            Self::Rows(rows) => (*rows).max(1),
            Self::Bytes(pace) => pace.target_rows(done..end),
        }
    }
}

/// A cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OutputCut {
    /// Rows with smaller keys lie before it; absent when all keys are equal.
    pub(super) key: Option<Vec<u8>>,
    /// How many rows lie before it, by the place of their source; of sources that may have some
    /// behind the cut before.
    pub(super) rows: Vec<(usize, Count)>,
    /// Rows of the other sources before it.
    pub(super) before: u64,
}

impl OutputCut {
    /// Rows before it: the middle of what they may be.
    pub(super) fn middle(&self) -> u64 {
        let middle = |(_, (least, most)): &(usize, Count)| least + (most - least) / 2;
        self.before + self.rows.iter().map(middle).sum::<u64>()
    }
}
