//! How many rows and bytes each file of a read may have in memory.
//!
//! # Not here
//! The shares of the limit (`runtime::budget`).

use arrow_array::RecordBatch;

use crate::runtime::{Context, MemoryStage};

/// The sizes of the windows of every file.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowSizes {
    /// Rows of the first window, and of any.
    pub(super) first_rows: u64,
    pub(super) rows_max: u64,
    /// Rows of the first window of columns of conditions, at most.
    first_tested_rows: u64,
    /// Bytes of the rows of a window, about.
    pub(super) batch_bytes: usize,
    /// Bytes of the columns of conditions of a window, about.
    pub(super) tested_bytes: usize,
    /// Bytes of the rows of a batch that is given out, about.
    pub(super) given_bytes: usize,
    /// Bytes that are read at once.
    pub(super) read_bytes: u64,
    /// Whether a file may have a batch ready while another one of it is merged.
    pub(super) reads_ahead: bool,
}

/// Rows in which conditions are tested at first, of reads without a limit.
const FIRST_TESTED_ROWS: u64 = 1 << 15;

/// The part of a batch that is given out which columns of conditions may have for each file.
const TESTED_PART: usize = 4;

/// Of so many files there is no second batch.
const AHEAD_FILES_MAX: usize = 128;

impl WindowSizes {
    /// A window has so many times the rows of the one before it.
    pub(super) const GROWTH: u64 = 8;
    pub(super) const ROWS_MIN: u64 = 16;

    /// The sizes for so many files, of which `limit` rows are wanted in all.
    pub(super) fn new(files: usize, limit: Option<u64>, context: &Context) -> Self {
        let files = files.max(1);
        let reads_ahead = files <= AHEAD_FILES_MAX;
        let sizes = context.budget().stream(files);
        let rows_max = 1 << 18;
        let batch_bytes = context.budget().read_window(files, 1 + usize::from(reads_ahead));
        let given_bytes = context.budget().bytes(MemoryStage::ReadBatch);
        // Some files give more of the first rows than others.
        let first = limit.map_or(4096, |limit| 4 * limit.div_ceil(files as u64));
        let first_rows = first.clamp(64, rows_max);
        Self {
            first_rows,
            rows_max,
            first_tested_rows: if limit.is_some() { first_rows } else { FIRST_TESTED_ROWS },
            batch_bytes,
            // Windows of many files are small, but only those that are read have such columns.
            tested_bytes: batch_bytes.max(given_bytes / TESTED_PART),
            given_bytes,
            read_bytes: sizes.read_bytes as u64,
            reads_ahead,
        }
    }

    /// Rows of the first window of columns of conditions that have so many bytes in a row, stored.
    pub(super) fn first_tested(&self, row_bytes: Option<u64>) -> u64 {
        // Values of dictionaries are longer than they are stored.
        let row_bytes = row_bytes.unwrap_or(0).saturating_mul(4).max(1);
        let fits = self.tested_bytes as u64 / row_bytes;
        self.first_tested_rows.min(fits).max(self.first_rows)
    }

    /// Rows like those of `batch` that have `bytes` bytes, about.
    pub(super) fn rows_that_fit(&self, bytes: usize, batch: &RecordBatch) -> u64 {
        let row_bytes = batch.get_array_memory_size().checked_div(batch.num_rows());
        let fits = row_bytes.map_or(self.rows_max, |row| (bytes / row.max(1)) as u64);
        fits.clamp(Self::ROWS_MIN, self.rows_max)
    }
}
