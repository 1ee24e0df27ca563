//! A Parquet file as a reader of record batches.
//!
//! # Invariants
//! Bytes come through `store`; a footer is checked as every source's is. Damage is `CorruptSource`
//! naming the file, never a panic.
//!
//! # Cost
//! One batch and the pages it lies in; a file is open from the start to its last row. All files
//! together take a quarter of the memory limit for their batches and windows.
//!
//! # Not here
//! Merging whole files, which needs no Arrow arrays (`merge`).

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use plait_core::SourceId;
use plait_core::stream::Source as Batches;
use plait_core::{Error, Result};

use crate::arrow_file::{self, FileSchema, Request};
use crate::runtime::{Context, ReaderSizes};
use crate::source::Source;
use crate::store::{RangeReader, Stores, Wanted};

/// The files that each pattern names, as sources of batches of at most `batch_rows` rows.
///
/// # Errors
/// As `Stores::list`, `Stores::open` and `Source::open`.
pub fn open_files(
    patterns: &[String],
    batch_rows: usize,
    stores: &Stores,
    context: &Context,
) -> Result<Vec<Vec<Batches>>> {
    let list = |pattern: &String| stores.list(std::slice::from_ref(pattern), Wanted::Parquet);
    let listed = patterns.iter().map(list).collect::<Result<Vec<_>>>()?;
    let sizes = context.budget().stream(listed.iter().map(Vec::len).sum());
    let open = |path: String| {
        let reader = StreamReader::open(&path, batch_rows, sizes, stores, context);
        let reader = reader.map_err(|e| e.with_path(&path))?;
        Ok(Batches { reader: Box::new(reader), path: Some(path) })
    };
    listed.into_iter().map(|paths| paths.into_iter().map(open).collect()).collect()
}

struct StreamReader {
    path: String,
    schema: SchemaRef,
    store: Arc<dyn RangeReader>,
    /// None after the last row, or an error.
    batches: Option<arrow_file::Batches>,
}

impl StreamReader {
    fn open(
        path: &str,
        batch_rows: usize,
        sizes: ReaderSizes,
        stores: &Stores,
        context: &Context,
    ) -> Result<Self> {
        let store = stores.open(path)?;
        let source = Source::open(SourceId(0), Arc::clone(&store))?;
        let leaves: Vec<usize> = (0..source.num_leaves()).collect();
        let request = Request {
            rows: 0..source.rows(),
            batch_rows: batch_rows.max(1),
            batch_bytes: sizes.batch_bytes,
            window_bytes: sizes.window(leaves.len()),
            leaves,
        };
        let schema = FileSchema::of(&source)?;
        let batches = arrow_file::Batches::open(&source, &schema, request, context)?;
        let schema = Arc::clone(batches.schema());
        Ok(Self { path: path.to_owned(), schema, store, batches: Some(batches) })
    }

    fn located(&self, error: Error) -> ArrowError {
        error.with_path(&self.path).into_arrow()
    }
}

impl Iterator for StreamReader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.batches.as_mut()?.next() {
            Ok(Some(batch)) => Some(Ok(batch)),
            Ok(None) => {
                self.batches = None;
                self.store.check_read().err().map(|e| Err(self.located(e)))
            }
            Err(e) => {
                self.batches = None;
                Some(Err(self.located(e)))
            }
        }
    }
}

impl RecordBatchReader for StreamReader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
