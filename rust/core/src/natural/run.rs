//! What is found: runs and loose rows, judged block by block.
//!
//! # Invariants
//! Rows are decided one after the other, from the first to the last. A run has at least
//! [`BLOCK_ROWS`] rows, unless it is the whole source.
//!
//! # Not here
//! Which row belongs to a run (`tracker`).

use std::ops::Range;

/// Rows that are judged together: where more than a quarter of them are out of order, all are loose.
const BLOCK_ROWS: u64 = 8192;

/// Consecutive rows of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowStretch {
    /// An ascending run, and the few rows between its rows that do not belong to it.
    Run(NaturalRun),
    /// Rows in no order worth keeping.
    Loose(Range<u64>),
}

/// An ascending run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NaturalRun {
    /// Its rows.
    pub rows: Vec<Range<u64>>,
    /// Rows between them that sort before those of the run with the same key.
    pub early: Vec<Range<u64>>,
    /// Rows between them that sort behind those of the run with the same key.
    pub late: Vec<Range<u64>>,
}

impl NaturalRun {
    fn ranges(&self) -> usize {
        self.rows.len() + self.early.len() + self.late.len()
    }

    fn truncate(&mut self, end: u64) {
        for ranges in [&mut self.rows, &mut self.early, &mut self.late] {
            ranges.retain(|range| range.start < end);
            if let Some(last) = ranges.last_mut() {
                last.end = last.end.min(end);
            }
        }
    }
}

/// Number of rows in `ranges`.
pub(super) fn count(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// Where a row belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Run,
    Early,
    Late,
}

/// Rows that are decided, in blocks.
pub(super) struct Blocks {
    stretches: Vec<RowStretch>,
    run: NaturalRun,
    /// The first row of the run, and of its last block.
    run_start: u64,
    block_start: u64,
    /// The row behind the last one that is decided.
    row: u64,
    /// Rows of the last block that are not in the run.
    outside: u64,
    ranges_left: usize,
    is_rough: bool,
}

impl Blocks {
    pub(super) fn new(row: u64, ranges_max: usize) -> Self {
        Self {
            stretches: Vec::new(),
            run: NaturalRun::default(),
            run_start: row,
            block_start: row,
            row,
            outside: 0,
            ranges_left: ranges_max,
            is_rough: false,
        }
    }

    /// The row that is decided next.
    pub(super) fn row(&self) -> u64 {
        self.row
    }

    /// Decides the next `rows` rows.
    pub(super) fn decide(&mut self, mut rows: u64, part: Part) {
        while rows > 0 {
            let now = rows.min(self.block_start + BLOCK_ROWS - self.row);
            let ranges = match part {
                Part::Run => &mut self.run.rows,
                Part::Early => &mut self.run.early,
                Part::Late => &mut self.run.late,
            };
            match ranges.last_mut() {
                Some(last) if last.end == self.row => last.end += now,
                _ => ranges.push(self.row..self.row + now),
            }
            if part != Part::Run {
                self.outside += now;
            }
            self.row += now;
            rows -= now;
            if self.row == self.block_start + BLOCK_ROWS {
                self.end_block();
            }
        }
    }

    /// Takes the next `rows` rows, with which no run has begun, for loose.
    pub(super) fn skip(&mut self, rows: u64) {
        self.loosen(self.row..self.row + rows);
        self.row += rows;
        (self.run_start, self.block_start, self.outside) = (self.row, self.row, 0);
    }

    /// Whether a block has become loose since the last call.
    pub(super) fn take_rough(&mut self) -> bool {
        std::mem::take(&mut self.is_rough)
    }

    /// Ends the run before the next row.
    pub(super) fn end_run(&mut self) {
        if self.row > self.block_start {
            self.end_block();
        }
        self.close();
    }

    pub(super) fn finish(mut self) -> Vec<RowStretch> {
        let is_whole = self.stretches.is_empty() && self.run.rows.len() == 1;
        if is_whole && self.run.early.is_empty() && self.run.late.is_empty() {
            return vec![RowStretch::Run(self.run)];
        }
        self.end_run();
        self.stretches
    }

    /// Judges the last block, which ends here.
    fn end_block(&mut self) {
        let is_gappy = 4 * self.outside > self.row - self.block_start;
        if is_gappy || (self.outside > 0 && self.run.ranges() > self.ranges_left) {
            let start = self.block_start;
            self.run.truncate(start);
            let row = std::mem::replace(&mut self.row, start);
            self.close();
            self.row = row;
            self.loosen(start..row);
            self.run_start = row;
            self.is_rough = true;
        }
        (self.block_start, self.outside) = (self.row, 0);
    }

    /// Takes the run, whose rows end here, for done.
    fn close(&mut self) {
        let rows = self.run_start..self.row;
        let run = std::mem::take(&mut self.run);
        if count(&run.rows) >= BLOCK_ROWS {
            self.ranges_left = self.ranges_left.saturating_sub(run.ranges());
            self.stretches.push(RowStretch::Run(run));
        } else {
            self.loosen(rows);
        }
        (self.run_start, self.block_start, self.outside) = (self.row, self.row, 0);
    }

    fn loosen(&mut self, rows: Range<u64>) {
        match self.stretches.last_mut() {
            _ if rows.is_empty() => {}
            Some(RowStretch::Loose(last)) if last.end == rows.start => last.end = rows.end,
            _ => self.stretches.push(RowStretch::Loose(rows)),
        }
    }
}
