//! How many rows and bytes each file of a read may have in memory.
//!
//! # Not here
//! The shares of the limit (`runtime::budget`).

use crate::runtime::{Context, MemoryStage};

/// The sizes of the windows of every file.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowSizes {
    /// Rows of the first window, and of any.
    pub(super) first_rows: u64,
    pub(super) rows_max: u64,
    /// Bytes of the rows of a window, about.
    pub(super) batch_bytes: usize,
    /// Bytes of the rows of a batch that is given out, about.
    pub(super) given_bytes: usize,
    /// Bytes that are read at once.
    pub(super) read_bytes: u64,
    /// Whether a file may have a batch ready while another one of it is merged.
    pub(super) reads_ahead: bool,
}

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
        // Some files give more of the first rows than others.
        let first = limit.map_or(4096, |limit| 4 * limit.div_ceil(files as u64));
        Self {
            first_rows: first.clamp(64, rows_max),
            rows_max,
            batch_bytes: context.budget().read_window(files, 1 + usize::from(reads_ahead)),
            given_bytes: context.budget().bytes(MemoryStage::ReadBatch),
            read_bytes: sizes.read_bytes as u64,
            reads_ahead,
        }
    }
}
