//! How many rows and bytes each file of a read may have in memory.
//!
//! # Not here
//! The shares of the limit (`runtime::budget`).

use arrow_array::RecordBatch;
use parquet::basic::{Encoding, Type};

use crate::runtime::{Context, MemoryStage};
use plait_core::Result;

use crate::source::Source;

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
    /// Bytes of the pages that a file may have open between two windows: none if rows are limited,
    /// since their files are left early.
    pub(super) held_bytes: u64,
    /// Bytes of the rows of a window that is spilled, about; none if no rows are.
    pub(super) spilled_bytes: Option<usize>,
    /// Whether a file may have a batch ready while another one of it is merged.
    pub(super) reads_ahead: bool,
    /// Whether only some of the first rows are wanted.
    pub(super) is_limited: bool,
}

/// Rows in which conditions are tested at first, of reads without a limit.
const FIRST_TESTED_ROWS: u64 = 1 << 15;

/// The part of a batch that is given out which columns of conditions may have for each file.
const TESTED_PART: usize = 4;

/// The part of a window that a file has which leaves its pages open.
const HELD_WINDOW_PART: usize = 4;

/// A window that is spilled has so many of the usual size, at least.
const SPILLED_WINDOWS_MIN: usize = 3;

/// Of so many files there is no second batch.
const AHEAD_FILES_MAX: usize = 128;

impl WindowSizes {
    /// A window has so many times the rows of the one before it.
    pub(super) const GROWTH: u64 = 8;
    pub(super) const ROWS_MIN: u64 = 16;
    /// Rows of the first window of a file, at least, if they fit.
    pub(super) const FIRST_ROWS_MIN: u64 = 64;

    /// The sizes for so many files, of which `limit` rows are wanted in all, on so many threads.
    pub(super) fn new(files: usize, limit: Option<u64>, threads: usize, context: &Context) -> Self {
        let files = files.max(1);
        let reads_ahead = files <= AHEAD_FILES_MAX;
        let rows_max = 1 << 18;
        let batch_bytes = context.budget().read_window(files, 1 + usize::from(reads_ahead));
        let given_bytes = context.budget().bytes(MemoryStage::ReadBatch);
        let spilled = limit.is_none().then(|| context.budget().spilled_window(threads));
        // Some files give more of the first rows than others.
        let first = limit.map_or(4096, |limit| 4 * limit.div_ceil(files as u64));
        let first_rows = first.clamp(Self::FIRST_ROWS_MIN, rows_max);
        Self {
            first_rows,
            rows_max,
            first_tested_rows: if limit.is_some() { first_rows } else { FIRST_TESTED_ROWS },
            batch_bytes,
            // Windows of many files are small, but only those that are read have such columns.
            tested_bytes: batch_bytes.max(given_bytes / TESTED_PART),
            given_bytes,
            read_bytes: context.budget().checked_reads(files),
            held_bytes: match limit {
                Some(_) => 0,
                None => context.budget().read_pages(files, HELD_WINDOW_PART),
            },
            spilled_bytes: spilled.filter(|bytes| bytes / SPILLED_WINDOWS_MIN > batch_bytes),
            reads_ahead,
            is_limited: limit.is_some(),
        }
    }

    /// Bytes of the rows of a window of a file whose pages stay open, about.
    pub(super) fn held_batch_bytes(&self) -> usize {
        self.batch_bytes / HELD_WINDOW_PART
    }

    /// Rows of the first window, of rows that have so many bytes, about.
    pub(super) fn first_given(&self, row_bytes: u64) -> u64 {
        // All files have their first windows at once, later ones half of them, on average.
        let fits = self.batch_bytes as u64 / 2 / row_bytes.max(1);
        self.first_rows.min(fits).max(Self::ROWS_MIN)
    }

    /// Rows of the first window of columns of conditions that have so many bytes in a row, about.
    pub(super) fn first_tested(&self, row_bytes: u64) -> u64 {
        let fits = self.tested_bytes as u64 / row_bytes.max(1);
        self.first_tested_rows.min(fits).max(Self::ROWS_MIN)
    }

    /// Rows of so many bytes that have `bytes` bytes, about.
    pub(super) fn rows_of(&self, bytes: usize, row_bytes: u64) -> u64 {
        (bytes as u64 / row_bytes.max(1)).clamp(Self::ROWS_MIN, self.rows_max)
    }

    /// Rows like those of `batch` that have `bytes` bytes, about.
    pub(super) fn rows_that_fit(&self, bytes: usize, batch: &RecordBatch) -> u64 {
        let row_bytes = batch.get_array_memory_size().checked_div(batch.num_rows());
        let fits = row_bytes.map_or(self.rows_max, |row| (bytes / row.max(1)) as u64);
        fits.clamp(Self::ROWS_MIN, self.rows_max)
    }
}

/// Bytes of leaves in a row as Arrow has them, as far as the footer tells.
///
/// # Errors
/// As [`Source::footer`].
pub(super) fn row_bytes(source: &Source, leaves: &[usize]) -> Result<u64> {
    let footer = source.footer()?;
    let groups = footer.row_groups().iter();
    let chunks = groups.flat_map(|group| leaves.iter().filter_map(|at| group.columns().get(*at)));
    let bytes = chunks.map(|chunk| {
        let values = u64::try_from(chunk.num_values()).unwrap_or(0);
        let stored = u64::try_from(chunk.uncompressed_size()).unwrap_or(0);
        let width = match chunk.column_descr().physical_type() {
            Type::BOOLEAN => 1,
            Type::INT32 | Type::FLOAT => 4,
            Type::INT64 | Type::DOUBLE | Type::INT96 => 8,
            Type::FIXED_LEN_BYTE_ARRAY => {
                u64::try_from(chunk.column_descr().type_length()).unwrap_or(0)
            }
            // Texts in dictionaries are stored once: those at the ends say how long they are, where
            // nothing says it better.
            Type::BYTE_ARRAY if chunk.unencoded_byte_array_data_bytes().is_some() => {
                let bytes = chunk.unencoded_byte_array_data_bytes().unwrap_or(0);
                return u64::try_from(bytes).unwrap_or(0).saturating_add(values.saturating_mul(4));
            }
            Type::BYTE_ARRAY => {
                let ends = chunk.statistics();
                let end = |bytes: Option<&[u8]>| bytes.map_or(0, |bytes| bytes.len() as u64);
                let ends =
                    ends.map(|ends| end(ends.min_bytes_opt()).max(end(ends.max_bytes_opt())));
                ends.unwrap_or(0) + 8
            }
        };
        stored.max(values.saturating_mul(width))
    });
    Ok(bytes.fold(0, u64::saturating_add).checked_div(source.rows()).unwrap_or(0))
}

/// Whether the footer tells how many bytes these leaves have as Arrow has them.
///
/// # Errors
/// As [`Source::footer`].
pub(super) fn are_row_bytes_known(source: &Source, leaves: &[usize]) -> Result<bool> {
    let footer = source.footer()?;
    let groups = footer.row_groups().iter();
    let mut chunks =
        groups.flat_map(|group| leaves.iter().filter_map(|at| group.columns().get(*at)));
    Ok(chunks.all(|chunk| {
        chunk.column_descr().physical_type() != Type::BYTE_ARRAY
            || chunk.unencoded_byte_array_data_bytes().is_some()
            || chunk.encodings().all(stores_all_bytes)
    }))
}

/// Whether each value is stored as a whole, or it is an encoding of levels.
fn stores_all_bytes(encoding: Encoding) -> bool {
    matches!(encoding, Encoding::PLAIN | Encoding::DELTA_LENGTH_BYTE_ARRAY | Encoding::RLE)
}
