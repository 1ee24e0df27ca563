//! Files that overlap too deep, merged group by group before all are: two merge passes.
//!
//! ```text
//! files 0 … 99      ─ merge ─▶ temporary file ─ one piece at a time ─┐
//! files 100 … 199   ─ merge ─▶ temporary file ─ one piece at a time ─┼─ merge ─▶ rows of the read
//! files 200 … 299   ─ merge ─▶ temporary file ─ one piece at a time ─┘
//! ```
//!
//! Every file that overlaps costs memory, however small its windows are: arrays of all columns,
//! their buffers, keys. Thousands of them exceed a small limit.
//!
//! # Invariants
//! A group has files that follow each other, so that rows of one key stay in the order of the files.
//! All its rows stay: which rows of a key are dropped is decided where all rows of the key meet.
//! A group is merged when its first key is next. If the temporary file cannot be written, the group
//! is merged on while its rows are taken.
//!
//! # Cost
//! A write and a read of all decoded rows, which are on disk at the same time; where rows are limited,
//! of so many of each group.
//!
//! # Source
//! External merge sort with two passes: Knuth, The Art of Computer Programming, volume 3, 5.4.
//!
//! # Not here
//! Windows of files that are spilled, for another reason (`window`).

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use plait_core::Result;
use plait_core::stream::MergeStream;

use super::shared::ReadShared;
use super::sizes::WindowSizes;
use super::spilled::SpilledRows;
use crate::runtime::Context;

/// How files are merged in groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MergeGroups {
    /// Files of a group.
    pub(super) files: usize,
    /// Bytes of the rows of a group that are merged with those of others at a time, about.
    pub(super) piece_bytes: usize,
    /// Rows of a group that are needed at most.
    pub(super) rows_max: u64,
}

impl MergeGroups {
    /// The groups of `files` files, of which `depth` overlap; none if these fit the memory limit, or
    /// if so many rows are wanted that groups would read many more.
    pub(super) fn find(files: usize, depth: usize, rows_max: u64, of: &Context) -> Option<Self> {
        // As many groups as files in a group: all of either are open at a time.
        let groups = files.isqrt().max(1);
        let is_limited = rows_max < u64::MAX;
        let of_files = files as u64 * WindowSizes::FIRST_ROWS_MIN;
        if depth <= of.budget().read_files()
            || (is_limited && rows_max.saturating_mul(groups as u64) > of_files)
        {
            return None;
        }
        let piece_bytes = of.budget().read_window(Self::IN_ONE_SHARE * groups, 1);
        Some(Self { files: files.div_ceil(groups), piece_bytes, rows_max })
    }

    /// The windows of one group take one half of a share, the pieces of others the other half.
    pub(super) const IN_ONE_SHARE: usize = 2;
}

/// The rows of a group of files.
pub(super) struct RowsOfGroup {
    /// None once all rows are spilled.
    merge: Option<MergeStream>,
    schema: SchemaRef,
    spilled: SpilledRows,
    groups: MergeGroups,
    /// Rows that are still needed.
    rows_left: u64,
    shared: Arc<ReadShared>,
}

impl RowsOfGroup {
    pub(super) fn new(merge: MergeStream, groups: MergeGroups, shared: &Arc<ReadShared>) -> Self {
        Self {
            schema: merge.schema(),
            merge: Some(merge),
            spilled: SpilledRows::new(&shared.spill),
            groups,
            rows_left: groups.rows_max,
            shared: Arc::clone(shared),
        }
    }

    fn step(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        if self.spilled.is_empty() {
            self.spill()?;
        }
        let next = self.spilled.next().map_err(plait_core::Error::into_arrow)?;
        Ok(next.map(|(batch, _)| batch))
    }

    /// Merges the files, as long as rows can be spilled.
    fn spill(&mut self) -> Result<(), ArrowError> {
        while let Some(merge) = &mut self.merge {
            let Some(batch) = merge.next().transpose()? else {
                self.merge = None;
                break;
            };
            let rows = usize::try_from(self.rows_left).unwrap_or(usize::MAX);
            let batch = batch.slice(0, rows.min(batch.num_rows()));
            self.rows_left -= batch.num_rows() as u64;
            if self.rows_left == 0 {
                self.merge = None;
            }
            let sizes: &WindowSizes = &self.shared.sizes;
            let piece = sizes.rows_that_fit(self.groups.piece_bytes, &batch);
            let piece = usize::try_from(piece).unwrap_or(usize::MAX);
            self.spilled.push(&batch, piece).map_err(plait_core::Error::into_arrow)?;
            if !self.shared.spill.is_usable() {
                break;
            }
        }
        Ok(())
    }
}

impl Iterator for RowsOfGroup {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}

impl RecordBatchReader for RowsOfGroup {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(files: usize, depth: usize, rows_max: u64) -> Option<(usize, usize)> {
        let groups = MergeGroups::find(files, depth, rows_max, &Context::new(64_000_000))?;
        Some((groups.files, files.div_ceil(groups.files)))
    }

    #[test]
    fn both_passes_have_few_sources() {
        assert_eq!(groups(427, 427, u64::MAX), None);
        assert_eq!(groups(428, 428, u64::MAX), Some((22, 20)));
        assert_eq!(groups(10_000, 10_000, u64::MAX), Some((100, 100)));
        assert_eq!(groups(10_000, 93, u64::MAX), None, "few files overlap");
    }

    #[test]
    fn groups_read_no_more_rows_than_first_windows_have() {
        assert_eq!(groups(10_000, 10_000, 6400), Some((100, 100)));
        assert_eq!(groups(10_000, 10_000, 6401), None);
    }
}
