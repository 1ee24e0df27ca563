//! Merged rows as they leave: tested, cut to their columns, and counted up to the limit.
//!
//! # Invariants
//! After the last row that was asked for, and after an error, all files are let go.
//!
//! # Not here
//! The merge (`plait_core::stream`).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, RecordBatch, RecordBatchOptions, RecordBatchReader, StructArray,
};
use arrow_schema::{ArrowError, DataType, FieldRef, SchemaRef};
use arrow_select::filter::filter_record_batch;
use plait_core::predicate::Filter;
use plait_core::stream::MergeStream;
use plait_core::{Error, Kind, Result};

use super::shared::{ReadShared, mask};

/// The same without its row, which is counted among the rows that were read.
fn without_row(error: &Error) -> Error {
    let mut same = Error::new(error.kind(), error.what());
    if let Some(path) = error.path() {
        same = same.with_path(path);
    }
    if let Some(column) = error.column() {
        same = same.with_column(column);
    }
    if let Some(got) = error.got() {
        same = same.with_got(got);
    }
    match error.hint() {
        Some(hint) => same.with_hint(hint),
        None => same,
    }
}

/// A struct with those of its members that were asked for: others are there for the order.
fn narrowed(column: &ArrayRef, data_type: &DataType) -> ArrayRef {
    let (DataType::Struct(fields), Some(structs)) = (data_type, column.as_struct_opt()) else {
        return Arc::clone(column);
    };
    let member = |field: &FieldRef| {
        let found = structs.column_by_name(field.name());
        found.map(|member| narrowed(member, field.data_type()))
    };
    let members: Option<Vec<ArrayRef>> = fields.iter().map(member).collect();
    let made = members.and_then(|members| {
        StructArray::try_new(fields.clone(), members, structs.nulls().cloned()).ok()
    });
    made.map_or_else(|| Arc::clone(column), |made| Arc::new(made))
}

/// The batches of a read.
pub(super) struct SortedRows {
    /// None after the last row.
    merge: Option<MergeStream>,
    schema: SchemaRef,
    filter: Filter,
    left: u64,
    /// Whether the rows of a file are merged as they are numbered in it.
    is_exact: bool,
    shared: Option<Arc<ReadShared>>,
}

impl SortedRows {
    pub(super) fn new(
        merge: MergeStream,
        schema: SchemaRef,
        filter: Filter,
        limit: Option<u64>,
        is_exact: bool,
        shared: Arc<ReadShared>,
    ) -> Self {
        let left = limit.unwrap_or(u64::MAX);
        Self { merge: Some(merge), schema, filter, left, is_exact, shared: Some(shared) }
    }

    /// A read without files.
    pub(super) fn none(schema: SchemaRef) -> Self {
        let filter = Filter::default();
        Self { merge: None, schema, filter, left: 0, is_exact: true, shared: None }
    }

    /// Lets go of all files.
    fn end(&mut self) {
        self.merge = None;
        self.left = 0;
        if let Some(shared) = &self.shared {
            shared.spill.release();
        }
    }

    fn step(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        while self.left > 0 {
            let Some(batch) = self.merge.as_mut().and_then(Iterator::next).transpose()? else {
                return Ok(None);
            };
            let batch = match self.filter.is_empty() {
                true => batch,
                false => {
                    let mask = mask(&self.filter, batch.columns(), batch.num_rows())
                        .map_err(Error::into_arrow)?;
                    let dropped = batch.num_rows() - mask.true_count();
                    if let Some(shared) = &self.shared {
                        shared.counts.add_filtered(dropped as u64);
                    }
                    filter_record_batch(&batch, &mask)?
                }
            };
            if batch.num_rows() == 0 {
                continue;
            }
            let rows = usize::try_from(self.left).unwrap_or(usize::MAX).min(batch.num_rows());
            self.left -= rows as u64;
            if let Some(shared) = &self.shared {
                shared.counts.add_rows(rows as u64);
            }
            let columns = self.schema.fields().iter().zip(batch.columns());
            let columns = columns.map(|(field, column)| narrowed(column, field.data_type()));
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let schema = Arc::clone(&self.schema);
            let given = RecordBatch::try_new_with_options(schema, columns.collect(), &options)?;
            return Ok(Some(given.slice(0, rows)));
        }
        Ok(None)
    }

    /// An error that numbers rows of a file as they are numbered in it, or not at all.
    fn placed(&self, error: ArrowError) -> ArrowError {
        match error {
            ArrowError::ExternalError(inner) if !self.is_exact => match inner.downcast::<Error>() {
                Ok(e) if matches!(e.kind(), Kind::UnsortedSource | Kind::DuplicateKey) => {
                    without_row(&e).into_arrow()
                }
                Ok(e) => e.into_arrow(),
                Err(inner) => ArrowError::ExternalError(inner),
            },
            error => error,
        }
    }
}

impl Iterator for SortedRows {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.step().map_err(|e| self.placed(e)).transpose();
        if self.left == 0 || !matches!(next, Some(Ok(_))) {
            self.end();
        }
        next
    }
}

impl Drop for SortedRows {
    fn drop(&mut self) {
        self.end();
    }
}

impl RecordBatchReader for SortedRows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
