//! A row group whose pages stay open from one window to the next.
//!
//! ```text
//! window  4096 rows      ─┐ other readers unpack a page once for each window in it,
//!         12,000 rows     ├ and the dictionaries: here all are unpacked once
//!         12,000 rows    ─┘
//! ```
//!
//! # Invariants
//! All windows but the last have one number of rows. The rows are those that were left when it was
//! opened.
//!
//! # Cost
//! A page and a dictionary of each leaf, which fit the share of the file.
//!
//! # Not here
//! How large windows are (`window`, `sizes`).

use std::ops::Range;

use arrow_array::RecordBatch;
use plait_core::{Error, Kind, Result};

use super::ranges::count;
use crate::arrow_file::{Located, LocatedRows};

/// Rows of a row group on their way.
pub(super) struct OpenPages {
    group: usize,
    /// Rows of a window; none where pages do not stay open.
    rows: Option<(u64, LocatedRows)>,
}

impl OpenPages {
    /// Opens the `rows` of a group, in windows of `window` rows; without its pages if these have more
    /// than `bytes_max` bytes.
    ///
    /// # Errors
    /// Whatever is wrong with the file.
    pub(super) fn open(
        located: &Located,
        group: usize,
        rows: &[Range<usize>],
        leaves: &[usize],
        window: u64,
        bytes_max: u64,
    ) -> Result<Self> {
        if located.held_bytes(group, leaves)? > bytes_max {
            return Ok(Self { group, rows: None });
        }
        let batch_rows = usize::try_from(window).unwrap_or(usize::MAX);
        let opened = located.begin(group, rows, leaves, batch_rows)?;
        Ok(Self { group, rows: Some((window, opened)) })
    }

    /// Whether it is this group, open or not.
    pub(super) fn is(&self, group: usize) -> bool {
        self.group == group
    }

    /// Rows of a window, if pages are open.
    pub(super) fn window(&self) -> Option<u64> {
        self.rows.as_ref().map(|(window, _)| *window)
    }

    /// The rows of the next window, which are `rows`; none if pages are not open.
    ///
    /// # Errors
    /// Whatever is wrong with the file.
    pub(super) fn next(&mut self, rows: &[Range<u64>]) -> Result<Option<RecordBatch>> {
        let Some((_, opened)) = &mut self.rows else { return Ok(None) };
        match opened.next()? {
            Some(batch) if batch.num_rows() as u64 == count(rows) => Ok(Some(batch)),
            _ => Err(too_few()),
        }
    }
}

/// The error for a row group that ends early.
pub(super) fn too_few() -> Error {
    Error::new(Kind::CorruptSource, "a row group has fewer rows than its footer says")
        .with_hint("the file is damaged; write it again from its origin")
}
