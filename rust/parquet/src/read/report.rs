//! What a read found before it began, and what it did.
//!
//! # Not here
//! How it is shown (the shells).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use serde::Serialize;

/// What is left of the files, by their own word, before a row is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReadPlan {
    /// The order of the rows.
    pub sort_by: String,
    /// Files in all, those left out by bounds or bloom filters, and those that may have rows.
    pub files: usize,
    /// Files that are not opened again: no row of theirs can be asked for.
    pub files_skipped: usize,
    /// Row groups of all files.
    pub row_groups: usize,
    /// Row groups that are left out.
    pub row_groups_skipped: usize,
    /// Pages, of the columns of conditions, whose bounds were looked at.
    pub pages: usize,
    /// Pages of these that are left out.
    pub pages_skipped: usize,
    /// Rows of all files.
    pub rows: u64,
    /// Rows that may be asked for.
    pub rows_left: u64,
    /// The most files that may have rows of one key, as far as footers tell.
    pub depth: usize,
    /// Groups in which files are merged before all are; 0 if all files are merged at once.
    pub groups: usize,
    /// Bytes that the rows of one file take at a time, about.
    pub window_bytes: usize,
    /// Conditions by which files are read, and those for which merged rows are tested.
    pub conditions_of_files: usize,
    /// Conditions for which merged rows are tested, since they say which row of a key counts.
    pub conditions_of_rows: usize,
}

/// What the last read did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReadStats {
    /// Files of which rows were read.
    pub files_opened: usize,
    /// Data pages that became Arrow arrays.
    pub pages_read: u64,
    /// Reads of files, and their bytes, without those that opened them.
    pub reads: u64,
    /// Bytes of these reads.
    pub bytes_read: u64,
    /// Bytes of decoded rows that waited in a temporary file.
    pub bytes_spilled: u64,
    /// Why no more rows were spilled, if the temporary file could not be written.
    pub spill_error: Option<String>,
    /// Rows that were tested or merged.
    pub rows_read: u64,
    /// Rows for which a condition did not hold.
    pub rows_filtered: u64,
    /// Rows that left.
    pub rows: u64,
    /// Rows that were dropped, by reason.
    pub rows_dropped: BTreeMap<&'static str, u64>,
}

/// What is counted while rows are read.
#[derive(Debug, Default)]
pub(super) struct ReadCounts {
    opened: AtomicUsize,
    candidates: AtomicU64,
    filtered: AtomicU64,
    rows: AtomicU64,
}

impl ReadCounts {
    pub(super) fn open(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_candidates(&self, rows: u64) {
        self.candidates.fetch_add(rows, Ordering::Relaxed);
    }

    pub(super) fn add_filtered(&self, rows: u64) {
        self.filtered.fetch_add(rows, Ordering::Relaxed);
    }

    pub(super) fn add_rows(&self, rows: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }

    pub(super) fn stats(&self) -> ReadStats {
        ReadStats {
            files_opened: self.opened.load(Ordering::Relaxed),
            rows_read: self.candidates.load(Ordering::Relaxed),
            rows_filtered: self.filtered.load(Ordering::Relaxed),
            rows: self.rows.load(Ordering::Relaxed),
            ..ReadStats::default()
        }
    }
}
