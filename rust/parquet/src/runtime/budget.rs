//! Turns the memory limit into sizes: how much each stage may hold.
//!
//! ```text
//! limit ─┬─ 1/4  keys of all sources        → rows per batch of keys
//!        ├─ 1/32 steps of one window        → rows per window
//!        ├─ 1/4  pages read ahead           → bytes per source and leaf
//!        ├─ 1/64 chunks that wait           → bytes of a batch before a chunk spills; two batches
//!        └─ 1/16 page locations
//! ```
//!
//! # Invariants
//! Sizes depend on the limit, the number of sources and threads; never on rows or file sizes.
//!
//! # Not here
//! Accounting (`account`).

use plait_core::packed_runs::PackedRuns;

/// Two leaves of most files are woven at once within this. More memory makes nothing faster: a
/// thread without a leaf packs the pages of another's.
const ENOUGH_BYTES: usize = 80 << 20;

/// Bytes of page buffers that wait, at most.
const IDLE_BUFFERS_BYTES_MAX: usize = 16 << 20;

/// Memory for reading the footer and the keys of one file: a few pages and dictionaries, and what is
/// read ahead of them.
const FILE_READER_BYTES: usize = 16 << 20;

/// The memory limit of one call, in shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    limit_bytes: usize,
}

/// Sizes for one merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MergeSizes {
    /// Rows per batch of keys of one source.
    pub key_rows: usize,
    /// Most rows of one window.
    pub window_rows: u64,
    /// Bytes of steps of the windows that are woven together; twice that while the next ones are
    /// put in order.
    pub batch_steps_bytes: usize,
    /// Bytes that one leaf of one source reads at once.
    pub read_ahead_bytes: usize,
    /// Bytes of chunks of a batch that wait in memory; the others wait on disk, unless all buffers
    /// together stay below three quarters of `enough_bytes`.
    pub waiting_bytes: usize,
    /// A leaf starts beside another as long as all buffers together stay below this.
    pub enough_bytes: usize,
}

impl Budget {
    /// The budget of a call with this memory limit.
    #[must_use]
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes }
    }

    /// The budget of a call with this option `memory_limit`.
    #[must_use]
    pub(crate) fn of(memory_limit: u64) -> Self {
        Self::new(usize::try_from(memory_limit).unwrap_or(usize::MAX))
    }

    /// Shares the limit among `sources` sources, `key_columns` columns and `threads` threads.
    #[must_use]
    pub(crate) fn merge(self, sources: usize, key_columns: usize, threads: usize) -> MergeSizes {
        let limit_bytes = self.limit_bytes;
        let sources = sources.max(1);
        // A key of a few text columns takes about 100 bytes.
        let key_rows = limit_bytes / 4 / sources / 100;
        // Reads are open at once in every key column of every source, and in one leaf per thread.
        let reads = sources * (key_columns + threads);
        MergeSizes {
            key_rows: key_rows.clamp(64, 4096),
            window_rows: (limit_bytes / 32 / PackedRuns::BYTES_PER_RUN).max(1024) as u64,
            batch_steps_bytes: limit_bytes / 160,
            read_ahead_bytes: (limit_bytes / 4 / reads).clamp(4 << 10, 1 << 20),
            waiting_bytes: limit_bytes / 64,
            enough_bytes: limit_bytes.min(ENOUGH_BYTES.max(limit_bytes / 8)),
        }
    }

    /// Bytes of page locations.
    #[must_use]
    pub(crate) fn locations(self) -> usize {
        self.limit_bytes / 16
    }

    /// Bytes of page buffers that wait for the next page.
    #[must_use]
    pub(crate) fn idle_buffers(self) -> usize {
        (self.limit_bytes / 32).min(IDLE_BUFFERS_BYTES_MAX)
    }

    /// Files whose footers and keys are read at a time.
    #[must_use]
    pub(crate) fn file_readers(self) -> usize {
        (self.limit_bytes / FILE_READER_BYTES).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_shrink_with_sources_and_stay_usable() {
        let few = Budget::new(512 << 20).merge(16, 4, 2);
        let many = Budget::new(512 << 20).merge(1000, 4, 2);
        assert_eq!(few.key_rows, 4096);
        assert!(many.key_rows < few.key_rows && many.key_rows >= 64);
        assert!(many.read_ahead_bytes < few.read_ahead_bytes);
        let tiny = Budget::new(16 << 20).merge(5000, 8, 64);
        assert!(tiny.key_rows >= 64 && tiny.read_ahead_bytes >= 4 << 10);
    }
}
