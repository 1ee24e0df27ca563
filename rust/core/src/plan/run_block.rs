//! Some rows on their way into [`Runs`](plait_base::Runs).
//!
//! # Cost
//! A row is a few stores, without a branch on whose it is.
//!
//! # Not here
//! Which row is next (`loser_tree`).

use std::hint::select_unpredictable;

use plait_base::{Run, SourceId};

/// Some rows on their way into runs, one at a time and without a branch on whose they are.
pub(super) struct RunBlock {
    runs: [Run; Self::ROWS],
    len: usize,
    rows: usize,
    /// The last run.
    open: Run,
}

impl Default for RunBlock {
    #[inline(always)]
    fn default() -> Self {
        let none = Run { start: 0, len: 0, source: SourceId(u32::MAX) };
        Self { runs: [none; Self::ROWS], len: 0, rows: 0, open: none }
    }
}

impl RunBlock {
    /// Room, a power of two.
    pub(super) const ROWS: usize = 128;

    /// Appends a row. There is room for it, and it follows the row before it if both are of one
    /// source.
    #[inline(always)]
    pub(super) fn push(&mut self, source: SourceId, row: u64) {
        let differs = source != self.open.source;
        self.len += usize::from(differs);
        self.rows += 1;
        self.open.source = source;
        self.open.start = select_unpredictable(differs, row, self.open.start);
        self.open.len = select_unpredictable(differs, 0, self.open.len) + 1;
        let run = &mut self.runs[self.len.wrapping_sub(1) % Self::ROWS];
        run.start = self.open.start;
        run.len = self.open.len;
        run.source = source;
    }

    /// Number of rows.
    #[inline(always)]
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// The runs of the rows.
    pub(super) fn as_slice(&self) -> &[Run] {
        &self.runs[..self.len]
    }
}
