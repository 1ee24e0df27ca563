//! The memory limit of a call, in shares: which stage may hold how much.
//!
//! ```text
//! memory_limit ─▶ Budget ─┬─ bytes(MemoryStage)   the share of one stage
//!                         └─ merge, scan, …       sizes that depend on sources, threads or leaves too
//! ```
//!
//! # Invariants
//! Nothing else divides a memory limit; a layer test searches for it. The stages of a call that
//! live at one time take the limit together at most; a test here adds them up. Sizes depend on the
//! limit and on numbers of sources, leaves and threads; never on rows or file sizes. Parts of
//! uploads and merges of sorted runs have a minimum, which exceeds their share below 256 MB.
//!
//! # Not here
//! Accounting (`account`).

use plait_core::packed_runs::PackedRuns;

/// A stage of a call that holds memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryStage {
    /// Where pages lie in their files.
    PageLocations,
    /// Page buffers that wait for the next page.
    IdleBuffers,
    /// Decoded footers of many files, as far as nobody uses them.
    DecodedFooters,
    /// Footers of many files as they are stored, before the others go to disk.
    StoredFooters,
    /// Pages and dictionaries of files whose keys are read.
    FileReaders,
    /// Dictionaries of key columns, while a merge is planned.
    PlannedDictionaries,
    /// Pages of key columns, while a merge is planned.
    PlannedPages,
    /// Dictionaries of key columns, while a task is prepared.
    PreparedDictionaries,
    /// Numbers that replace key values.
    RankTables,
    /// Keys of all sources, by batch.
    KeyBatches,
    /// Compressed pages that are read ahead.
    ReadAhead,
    /// A decompressed page of every source that overlaps: of the key columns, and of the leaves
    /// that are woven.
    SourcePages,
    /// The steps of one window; where rows are combined, those of its leaves and its groups, too.
    WindowSteps,
    /// The steps of the windows that are woven together, before the last of them.
    BatchSteps,
    /// Chunks of a batch that wait for their turn.
    WaitingChunks,
    /// Dictionaries of several sources as one.
    DictionaryUnions,
    /// Cursors that go on in the next batch.
    CarriedCursors,
    /// A page that is decoded to more bytes than it has.
    ExpandedPage,
    /// Windows of objects from which reads are served, and those that are on their way, half each.
    StoreWindows,
    /// The part of an upload that is filled.
    UploadPart,
    /// Parts of uploads that are sent.
    SentParts,
    /// Small outputs of object stores, whole, until they are named.
    SmallOutputs,
    /// Hashes of rows that are verified.
    RowHashes,
    /// Chunks of an overlay that wait for their turn.
    OverlayChunks,
    /// Batches of the layers that an overlay combines as Arrow arrays.
    LayerBatches,
    /// Bytes that those batches are decoded from.
    LayerReads,
    /// Batches that threads of a scan decode.
    ScanDecoding,
    /// The batch that the caller of a scan holds.
    ScanBatch,
    /// Decoded batches of a scan that wait for the caller.
    ScanAhead,
    /// Bytes that a scan decodes batches from.
    ScanReads,
    /// Batches of streamed files.
    StreamBatches,
    /// Bytes that those batches are decoded from.
    StreamReads,
    /// Values of deleted rows, before a call needs memory for anything else.
    DeletedKeys,
    /// Ranges of rows of files that are in order, where the others are sorted.
    SortedRanges,
    /// Keys of the rows that are sorted at a time.
    SortKeys,
    /// The leaves whose rows are sorted.
    SortedLeaves,
    /// Record batches that wait to be sorted and written, with their keys.
    WrittenRows,
    /// Rows of the files of a sorted read: those that are merged, or those that wait.
    ReadWindows,
    /// Rows of a file of a sorted read that are decoded at a time to be spilled.
    ReadSpill,
    /// Rows of a sorted read that wait for others of their batch.
    ReadBatch,
    /// Bloom filters and bounds of pages that a sorted read keeps.
    ReadIndexes,
    /// Bytes that rows are decoded from whose timestamps are checked one by one.
    CheckedReads,
    /// Blocks of the sorted runs of a join.
    JoinCache,
    /// What a join holds of its state besides: new rows and sparse indexes.
    JoinState,
    /// A merge of sorted runs.
    JoinMerge,
    /// Where pages of one sorted run lie.
    RunLocations,
}

impl MemoryStage {
    /// The share of the limit: so many parts, of so many.
    const fn share(self) -> (usize, usize) {
        match self {
            Self::SourcePages | Self::ScanDecoding => (1, 2),
            Self::JoinCache => (7, 16),
            Self::FileReaders
            | Self::PlannedDictionaries
            | Self::JoinState
            | Self::SortedLeaves => (3, 8),
            Self::ExpandedPage | Self::LayerBatches | Self::LayerReads | Self::DeletedKeys => {
                (1, 4)
            }
            Self::ReadWindows => (7, 32),
            Self::PlannedPages
            | Self::PreparedDictionaries
            | Self::RowHashes
            | Self::ScanBatch
            | Self::ScanAhead
            | Self::ScanReads
            | Self::StreamBatches
            | Self::StreamReads
            | Self::JoinMerge => (1, 8),
            Self::WrittenRows => (1, 3),
            Self::SortKeys => (1, 10),
            Self::DictionaryUnions | Self::ReadIndexes | Self::ReadSpill => (1, 16),
            Self::OverlayChunks | Self::SentParts | Self::StoreWindows => (1, 24),
            Self::DecodedFooters => (1, 40),
            Self::SortedRanges => (1, 80),
            Self::ReadAhead => (1, 20),
            Self::IdleBuffers
            | Self::RankTables
            | Self::WindowSteps
            | Self::ReadBatch
            | Self::KeyBatches
            | Self::CheckedReads => (1, 32),
            Self::CarriedCursors | Self::UploadPart => (1, 48),
            Self::PageLocations | Self::WaitingChunks => (1, 64),
            Self::BatchSteps | Self::StoredFooters => (1, 160),
            Self::RunLocations => (1, 256),
            Self::SmallOutputs => (1, 320),
        }
    }
}

/// Two leaves of most files are woven at once within this. More memory makes little faster: a
/// thread without a leaf packs the pages of another's.
const ENOUGH_BYTES: usize = 112 << 20;

/// Threads, and memory, of each of the tasks that run at the same time, at least; and how many do.
const TASK_THREADS: usize = 4;
const TASK_BYTES: usize = 112_000_000;
const TASKS_AT_ONCE_MAX: usize = 8;

/// What a thread that weaves takes besides what is accounted for, mostly what the allocator keeps for it;
/// and the process.
const THREAD_BYTES: usize = 25_000_000;
const PROCESS_BYTES: usize = 40_000_000;

/// Bytes of page buffers that wait, at most.
const IDLE_BUFFERS_BYTES_MAX: usize = 16 << 20;

/// Memory for reading the footer and the keys of one file: a few pages and dictionaries, and what
/// is read ahead of them.
const FILE_READER_BYTES: usize = 11 << 20;

/// Memory for opening one file: what its end and its footer take, and keys of a small file.
const FILE_OPENER_BYTES: usize = 2 << 20;

/// A key of a few text columns takes about so many bytes.
const KEY_BYTES: usize = 100;

/// Bytes of a batch of Arrow arrays, at least and at most.
const BATCH_BYTES: (usize, usize) = (256 << 10, 16 << 20);

/// Bytes of a chunk that are read at once for Arrow arrays, at least and at most.
const READ_BYTES: (usize, usize) = (64 << 10, 2 << 20);

/// Bytes of the rows of a file that are read in order at a time, at least and at most.
const WINDOW_BYTES: (usize, usize) = (16 << 10, 16 << 20);

/// Memory for an open file of a sorted read: the least window, and arrays, buffers and keys of it.
const READ_FILE_BYTES: usize = 64 << 10;

/// Decoded batches that wait for the caller of a scan, at most.
const SCAN_AHEAD_BYTES_MAX: usize = 64 << 20;

/// The least that S3 takes for a part that is not the last, and the largest part that is sent.
const PART_BYTES: (usize, usize) = (5 << 20, 64 << 20);

/// A merge of sorted runs takes so much in any case.
const JOIN_MERGE_BYTES_MIN: usize = 16_000_000;

/// The memory limit of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Budget {
    limit_bytes: usize,
}

/// How tasks of a merge share threads and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskShares {
    /// How many run at the same time.
    pub at_once: usize,
    /// Threads of each, and its part of the limit.
    pub threads: usize,
    pub limit_bytes: usize,
}

/// Sizes for one merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MergeSizes {
    /// Rows per batch of keys of one source.
    pub key_rows: usize,
    /// Most rows of one window.
    pub window_rows: u64,
    /// The same where rows that share a key are combined, and bytes of their groups in a window, and
    /// of the steps that its leaves may share.
    pub combined_rows: u64,
    pub group_bytes: usize,
    pub shared_bytes: usize,
    /// Bytes of steps of the windows that are woven together; twice that while the next ones are
    /// put in order.
    pub batch_steps_bytes: usize,
    /// Bytes that one leaf of one source reads at once.
    pub read_ahead_bytes: usize,
    /// Bytes of chunks of a batch that wait in memory; the others wait on disk, unless all buffers
    /// together stay below `spill_bytes`.
    pub waiting_bytes: usize,
    /// No chunk waits on disk as long as all buffers together stay below this.
    pub spill_bytes: usize,
    /// A second leaf starts as long as all buffers together stay below this.
    pub enough_bytes: usize,
}

impl MergeSizes {
    /// The same, where what does not change outputs is that of `part`, which has less memory.
    pub(crate) fn within(self, part: &Self) -> Self {
        let Self { key_rows, read_ahead_bytes, waiting_bytes, spill_bytes, enough_bytes, .. } =
            *part;
        Self { key_rows, read_ahead_bytes, waiting_bytes, spill_bytes, enough_bytes, ..self }
    }
}

/// Sizes of one reader of Arrow arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReaderSizes {
    /// Bytes of a batch.
    pub batch_bytes: usize,
    /// Bytes that are read and not yet decoded.
    pub read_bytes: usize,
}

impl ReaderSizes {
    /// How much of a chunk is read at once where a file has so many leaves to read.
    pub(crate) fn window(self, leaves: usize) -> u64 {
        (self.read_bytes / leaves.max(1)).clamp(READ_BYTES.0, READ_BYTES.1) as u64
    }
}

/// Sizes for one scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScanSizes {
    /// Sizes of one file's reader.
    pub file: ReaderSizes,
    /// Bytes of decoded batches that wait.
    pub ahead_bytes: usize,
    /// Batches decoded at a time.
    pub threads: usize,
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

    /// The whole limit.
    #[must_use]
    pub(crate) fn limit_bytes(self) -> usize {
        self.limit_bytes
    }

    /// The bytes that `stage` may hold.
    #[must_use]
    pub(crate) fn bytes(self, stage: MemoryStage) -> usize {
        let (parts, of) = stage.share();
        self.limit_bytes / of * parts
    }

    /// Sizes of a merge of `sources` sources by `key_columns` columns on `threads` threads.
    #[must_use]
    pub(crate) fn merge(self, sources: usize, key_columns: usize, threads: usize) -> MergeSizes {
        let sources = sources.max(1);
        let key_rows = self.bytes(MemoryStage::KeyBatches) / sources / KEY_BYTES;
        let window_rows = self.bytes(MemoryStage::WindowSteps) / PackedRuns::BYTES_PER_RUN;
        // Reads are open at once in every key column of every source, and in one leaf per thread.
        let reads = sources * (key_columns + threads);
        let read_ahead = self.bytes(MemoryStage::ReadAhead) / reads.max(1);
        let enough_bytes = self.limit_bytes.min(ENOUGH_BYTES.max(self.limit_bytes / 8));
        MergeSizes {
            key_rows: key_rows.clamp(64, 4096),
            window_rows: window_rows.max(1024) as u64,
            // An eighth is for the steps of whole rows, a quarter for those of two leaves.
            combined_rows: (window_rows / 8).max(1024) as u64,
            group_bytes: self.bytes(MemoryStage::WindowSteps) / 2,
            shared_bytes: self.bytes(MemoryStage::WindowSteps) / 8,
            batch_steps_bytes: self.bytes(MemoryStage::BatchSteps),
            read_ahead_bytes: read_ahead.clamp(4 << 10, 1 << 20),
            waiting_bytes: self.bytes(MemoryStage::WaitingChunks),
            spill_bytes: enough_bytes / 4 * 3,
            enough_bytes,
        }
    }

    /// How `tasks` tasks, which need limits of `needed_bytes`, share threads and the limit: as many run at
    /// the same time as have some threads and the memory to weave two leaves each.
    #[must_use]
    pub(crate) fn share_tasks(self, threads: usize, tasks: usize, needed_bytes: u64) -> TaskShares {
        let needed = usize::try_from(needed_bytes).unwrap_or(usize::MAX).max(TASK_BYTES);
        let most = (threads / TASK_THREADS).min(tasks).min(TASKS_AT_ONCE_MAX);
        let share = |at_once| self.share(threads, at_once, needed);
        let fits = |of: &TaskShares| of.threads >= TASK_THREADS;
        (2..=most).rev().map(share).find(fits).unwrap_or_else(|| self.alone(threads))
    }

    /// How merges of about a second each share threads and the limit: most threads have work where each
    /// has few.
    #[must_use]
    pub(crate) fn share_merges(self, threads: usize, merges: usize) -> TaskShares {
        let most = threads.min(merges).min(TASKS_AT_ONCE_MAX);
        let busy = |of: &TaskShares| (of.at_once * of.threads.min(TASK_THREADS), of.at_once);
        let shares = (2..=most).map(|at_once| self.share(threads, at_once, TASK_BYTES));
        shares.fold(self.alone(threads), |best, of| if busy(&of) > busy(&best) { of } else { best })
    }

    /// The shares of so many tasks, each of which needs `task_bytes` of the limit.
    fn share(self, threads: usize, at_once: usize, task_bytes: usize) -> TaskShares {
        let threads = self.threads_next_to(task_bytes.saturating_mul(at_once), threads);
        let left = self.limit_bytes.saturating_sub(PROCESS_BYTES + threads * THREAD_BYTES);
        TaskShares { at_once, threads: threads / at_once, limit_bytes: left / at_once }
    }

    /// What one task has.
    fn alone(self, threads: usize) -> TaskShares {
        let few = threads.min(TASK_THREADS);
        let threads = self.threads_next_to(TASK_BYTES, threads).max(few);
        TaskShares { at_once: 1, threads, limit_bytes: self.limit_bytes }
    }

    /// How many of `threads` fit next to tasks that may account for `task_bytes`.
    fn threads_next_to(self, task_bytes: usize, threads: usize) -> usize {
        let left = self.limit_bytes.saturating_sub(task_bytes).saturating_sub(PROCESS_BYTES);
        threads.min(left / THREAD_BYTES)
    }

    /// How many overlapping sources may be open at once, with pages of `bytes_each` in each.
    #[must_use]
    pub(crate) fn sources_at_once(self, bytes_each: u64) -> usize {
        let pages = self.bytes(MemoryStage::SourcePages) as u64;
        usize::try_from(pages / bytes_each.max(1)).unwrap_or(usize::MAX).max(2)
    }

    /// The limit that leaves room for pages of `bytes`.
    #[must_use]
    pub(crate) fn limit_for_pages(bytes: u64) -> u64 {
        let (parts, of) = MemoryStage::SourcePages.share();
        bytes.saturating_mul(of as u64) / parts as u64
    }

    /// Bytes of a page of a file that is merged again, with `cursors` such pages open at once; half
    /// of the share is for their dictionaries.
    #[must_use]
    pub(crate) fn temp_page_bytes(self, cursors: usize) -> u64 {
        (self.bytes(MemoryStage::SourcePages) / 2 / cursors.max(1)) as u64
    }

    /// Bytes of the rows of one leaf that is sorted; two are at a time.
    #[must_use]
    pub(crate) fn sorted_leaf(self) -> usize {
        self.bytes(MemoryStage::SortedLeaves) / 2
    }

    /// Most bytes of a value that is made of those of several rows.
    #[must_use]
    pub(crate) fn made_value(self) -> usize {
        self.limit_bytes / 8
    }

    /// Bytes of page buffers that wait for the next page.
    #[must_use]
    pub(crate) fn idle_buffers(self) -> usize {
        self.bytes(MemoryStage::IdleBuffers).min(IDLE_BUFFERS_BYTES_MAX)
    }

    /// Files whose footers and keys are read at a time.
    #[must_use]
    pub(crate) fn file_readers(self) -> usize {
        (self.bytes(MemoryStage::FileReaders) / FILE_READER_BYTES).max(1)
    }

    /// Objects that are opened at a time.
    #[must_use]
    pub(crate) fn file_openers(self) -> usize {
        (self.bytes(MemoryStage::FileReaders) / FILE_OPENER_BYTES).max(1)
    }

    /// Bytes of one part of an upload.
    #[must_use]
    pub(crate) fn upload_part(self) -> usize {
        self.bytes(MemoryStage::UploadPart).clamp(PART_BYTES.0, PART_BYTES.1)
    }

    /// Rows whose hashes of 16 bytes are held at a time.
    #[must_use]
    pub(crate) fn hashed_rows(self) -> u64 {
        (self.bytes(MemoryStage::RowHashes) / size_of::<u128>()) as u64
    }

    /// Sizes of the reader of one of `layers` layers.
    #[must_use]
    pub(crate) fn layer(self, layers: usize) -> ReaderSizes {
        // More than a quarter of a share is of no use to one layer.
        let readers = layers.max(4);
        let batch = self.bytes(MemoryStage::LayerBatches) / readers;
        ReaderSizes {
            batch_bytes: batch.clamp(BATCH_BYTES.0, BATCH_BYTES.1),
            read_bytes: self.bytes(MemoryStage::LayerReads) / readers,
        }
    }

    /// Sizes of the reader of one of `files` files that are streamed.
    #[must_use]
    pub(crate) fn stream(self, files: usize) -> ReaderSizes {
        let batch = self.bytes(MemoryStage::StreamBatches) / files.max(1);
        ReaderSizes {
            batch_bytes: batch.clamp(BATCH_BYTES.0, BATCH_BYTES.1),
            read_bytes: self.bytes(MemoryStage::StreamReads) / files.max(1),
        }
    }

    /// Bytes of the rows of one of `files` files that are read in order, where `windows` of each
    /// are held at a time, one or two.
    #[must_use]
    pub(crate) fn read_window(self, files: usize, windows: usize) -> usize {
        // Windows are used up while they are read: half of each is left, on average. Of files whose
        // rows alternate all are full at once, with the offsets and room that arrays have besides.
        let share = 3 * self.bytes(MemoryStage::ReadWindows) / 2 / files.max(1) / windows.max(1);
        share.clamp(WINDOW_BYTES.0, WINDOW_BYTES.1)
    }

    /// Overlapping files that are merged at a time in a sorted read, at most.
    #[must_use]
    pub(crate) fn read_files(self) -> usize {
        (2 * self.bytes(MemoryStage::ReadWindows) / READ_FILE_BYTES).max(2)
    }

    /// Bytes of the rows of a file that each of `threads` threads decodes at a time to spill them.
    #[must_use]
    pub(crate) fn spilled_window(self, threads: usize) -> usize {
        (self.bytes(MemoryStage::ReadSpill) / threads.max(1)).min(WINDOW_BYTES.1)
    }

    /// Bytes of the pages that one of `files` files has open between two windows, which are so many
    /// times smaller for that: `part`, at least two.
    #[must_use]
    pub(crate) fn read_pages(self, files: usize, part: usize) -> u64 {
        // Files whose pages stay open are not spilled: most of that share is free.
        let share = 2 * self.bytes(MemoryStage::ReadWindows) + self.bytes(MemoryStage::ReadSpill);
        ((share - share / part.max(1)) / files.max(1)) as u64
    }

    /// Bytes that are read at once of one of `files` files whose timestamps are checked.
    #[must_use]
    pub(crate) fn checked_reads(self, files: usize) -> u64 {
        (self.bytes(MemoryStage::CheckedReads) / files.max(1)) as u64
    }

    /// Sizes of a scan of batches of at most `batch_bytes` on at most `threads` threads.
    #[must_use]
    pub(crate) fn scan(self, batch_bytes: usize, threads: usize) -> ScanSizes {
        let batch_bytes = batch_bytes.min(self.bytes(MemoryStage::ScanBatch)).max(1);
        // Every thread decodes a batch of its own.
        let decoded = self.bytes(MemoryStage::ScanDecoding) / batch_bytes;
        let threads = threads.min(decoded.max(1)).max(1);
        let read_bytes = self.bytes(MemoryStage::ScanReads) / threads;
        ScanSizes {
            file: ReaderSizes { batch_bytes, read_bytes },
            ahead_bytes: self.bytes(MemoryStage::ScanAhead).min(SCAN_AHEAD_BYTES_MAX),
            threads,
        }
    }

    /// The least limit of a join whose state is in files.
    #[must_use]
    pub(crate) fn join_folder_min() -> usize {
        2 * JOIN_MERGE_BYTES_MIN
    }

    /// The limit of a merge of sorted runs.
    #[must_use]
    pub(crate) fn join_merge(self) -> usize {
        self.bytes(MemoryStage::JoinMerge).max(JOIN_MERGE_BYTES_MIN)
    }
}

#[cfg(test)]
mod tests;
