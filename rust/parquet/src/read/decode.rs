//! Some rows of one file as a record batch, in the columns of the file.
//!
//! # Cost
//! The pages of the rows, which are decoded anew for each call.
//!
//! # Not here
//! Which rows (`window`); pages that stay open (`open_group`).

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_schema::Schema;
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use plait_core::{Error, Result};

use super::file::ReadFile;
use super::open_group::too_few;
use super::ranges::count;
use super::shared::ReadShared;
use crate::arrow_file::{Batches, FileSchema, Located, Request};
use crate::source::Source;

impl ReadFile {
    /// Some rows of one row group, by a schema of the file.
    pub(super) fn decode(
        &self,
        shared: &ReadShared,
        source: &Arc<Source>,
        schema: &FileSchema,
        group: usize,
        rows: &[Range<u64>],
        leaves: &[usize],
    ) -> Result<RecordBatch> {
        let wanted = usize::try_from(count(rows)).unwrap_or(usize::MAX);
        if leaves.is_empty() {
            let options = RecordBatchOptions::new().with_row_count(Some(wanted));
            return RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options)
                .map_err(Error::from_arrow);
        }
        if self.class.schema.has_int96() {
            return self.decode_checked(shared, source, rows, leaves);
        }
        let batch = self.located(shared, source, schema).read(
            group,
            &in_group(source, group, rows),
            Some(leaves),
        )?;
        batch.filter(|batch| batch.num_rows() == wanted).ok_or_else(too_few)
    }

    /// Where rows of the file are looked up.
    pub(super) fn located(
        &self,
        shared: &ReadShared,
        source: &Arc<Source>,
        schema: &FileSchema,
    ) -> Located {
        Located {
            source: Arc::clone(source),
            schema: schema.clone(),
            cache: Arc::clone(&shared.cache),
            context: shared.context.clone(),
        }
    }

    /// The same by the reader that checks each timestamp of 12 bytes.
    fn decode_checked(
        &self,
        shared: &ReadShared,
        source: &Source,
        rows: &[Range<u64>],
        leaves: &[usize],
    ) -> Result<RecordBatch> {
        let (sizes, mut parts, mut schema) = (&shared.sizes, Vec::new(), None);
        for range in rows {
            let request = Request {
                leaves: leaves.to_vec(),
                rows: range.clone(),
                batch_rows: usize::try_from(range.end - range.start).unwrap_or(usize::MAX).max(1),
                batch_bytes: sizes.batch_bytes,
                window_bytes: sizes.read_bytes / leaves.len().max(1) as u64,
            };
            let (own, context) = (&self.class.schema, &shared.context);
            let mut batches = Batches::open(source, own, request, context)?;
            schema.get_or_insert_with(|| Arc::clone(batches.schema()));
            while let Some(batch) = batches.next()? {
                parts.push(batch);
            }
        }
        let schema = schema.unwrap_or_else(|| Arc::new(Schema::empty()));
        concat_batches(&schema, &parts).map_err(Error::from_arrow)
    }
}

/// Rows of a file, counted in a row group.
pub(super) fn in_group(source: &Source, group: usize, rows: &[Range<u64>]) -> Vec<Range<usize>> {
    let start = source.row_group_start(group);
    let to_usize = |row: u64| usize::try_from(row.saturating_sub(start)).unwrap_or(usize::MAX);
    rows.iter().map(|range| to_usize(range.start)..to_usize(range.end)).collect()
}

/// The rows of a batch from the last to the first.
pub(super) fn reversed(batch: &RecordBatch) -> Result<RecordBatch> {
    let rows: UInt64Array = (0..batch.num_rows() as u64).rev().collect();
    take_record_batch(batch, &rows).map_err(Error::from_arrow)
}
