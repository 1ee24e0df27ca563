//! How far a call has come.
//!
//! # Cost
//! One atomic addition per page or batch.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read from the sources so far (as stored). Key columns are read once more when they
    /// are woven, and count again in `total_bytes`.
    pub consumed_bytes: u64,
    /// Bytes that will be read in all.
    pub total_bytes: u64,
    /// Rows woven into outputs so far.
    pub rows_written: u64,
    /// The stage of the call.
    pub stage: &'static str,
}

/// The stages of a call, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Reads footers and keys.
    Plan,
    /// Sorts rows that are in no order.
    Sort,
    /// Writes outputs.
    Merge,
    /// Gives outputs their names.
    Publish,
    /// Reads files again to check them.
    Verify,
}

impl Stage {
    const ALL: [Self; 5] = [Self::Plan, Self::Sort, Self::Merge, Self::Publish, Self::Verify];

    fn name(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Sort => "sort",
            Self::Merge => "merge",
            Self::Publish => "publish",
            Self::Verify => "verify",
        }
    }
}

/// What [`Progress`] is taken from.
#[derive(Default)]
pub(crate) struct Counters {
    consumed_bytes: AtomicU64,
    total_bytes: AtomicU64,
    rows_written: AtomicU64,
    spilled_bytes: AtomicU64,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    pages: AtomicU64,
    idle_nanos: AtomicU64,
    stage: AtomicU8,
}

impl Counters {
    /// Adds to the bytes read from sources.
    pub(crate) fn add_consumed(&self, bytes: u64) {
        self.consumed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes read from sources so far, as stored.
    pub(crate) fn consumed_bytes(&self) -> u64 {
        self.consumed_bytes.load(Ordering::Relaxed)
    }

    /// Adds time in which a thread had nothing to do.
    pub(crate) fn add_idle(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.idle_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// How long threads had nothing to do so far, all together.
    pub(crate) fn idle(&self) -> Duration {
        Duration::from_nanos(self.idle_nanos.load(Ordering::Relaxed))
    }

    /// Counts one read of a source.
    pub(crate) fn add_read(&self, bytes: u64) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Reads of sources so far.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Bytes of these reads.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Counts a data page that became rows of Arrow arrays.
    pub(crate) fn add_page(&self) {
        self.pages.fetch_add(1, Ordering::Relaxed);
    }

    /// Such pages so far.
    pub(crate) fn pages(&self) -> u64 {
        self.pages.load(Ordering::Relaxed)
    }

    /// Adds to the bytes that waited on disk.
    pub(crate) fn add_spilled(&self, bytes: u64) {
        self.spilled_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that waited on disk so far.
    pub(crate) fn spilled_bytes(&self) -> u64 {
        self.spilled_bytes.load(Ordering::Relaxed)
    }

    /// Sets the bytes that will be read in all.
    pub(crate) fn set_total(&self, bytes: u64) {
        self.total_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Adds bytes that will be read and were not expected.
    pub(crate) fn add_total(&self, bytes: u64) {
        self.total_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds to the rows woven into outputs.
    pub(crate) fn add_rows_written(&self, rows: u64) {
        self.rows_written.fetch_add(rows, Ordering::Relaxed);
    }

    /// Rows woven into outputs so far.
    pub(crate) fn rows_written(&self) -> u64 {
        self.rows_written.load(Ordering::Relaxed)
    }

    /// Sets them back: what was woven since is no output.
    pub(crate) fn set_rows_written(&self, rows: u64) {
        self.rows_written.store(rows, Ordering::Relaxed);
    }

    /// Resets what was read and written: the call begins anew.
    pub(crate) fn start_over(&self) {
        self.consumed_bytes.store(0, Ordering::Relaxed);
        self.rows_written.store(0, Ordering::Relaxed);
        self.spilled_bytes.store(0, Ordering::Relaxed);
        self.reads.store(0, Ordering::Relaxed);
        self.read_bytes.store(0, Ordering::Relaxed);
        self.pages.store(0, Ordering::Relaxed);
    }

    /// Begins `stage`.
    pub(crate) fn enter(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    pub(super) fn progress(&self) -> Progress {
        let total = self.total_bytes.load(Ordering::Relaxed);
        let stage = usize::from(self.stage.load(Ordering::Relaxed));
        Progress {
            consumed_bytes: self.consumed_bytes().min(total),
            total_bytes: total,
            rows_written: self.rows_written.load(Ordering::Relaxed),
            stage: Stage::ALL.get(stage).copied().unwrap_or(Stage::Merge).name(),
        }
    }
}
