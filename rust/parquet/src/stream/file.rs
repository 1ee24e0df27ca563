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
use crate::runtime::Context;
use crate::source::Source;
use crate::store::{Store, Stores};

/// Bytes of one batch of one file.
const BATCH_BYTES: (usize, usize) = (256 << 10, 16 << 20);
/// How much of a chunk is read at once.
const WINDOW_BYTES: (usize, usize) = (64 << 10, 2 << 20);

/// The files that each pattern names, as sources of batches of at most `batch_rows` rows.
///
/// # Errors
/// As [`Stores::list`], [`Stores::open`], [`Source::open`].
pub fn open_files(
    patterns: &[String],
    batch_rows: usize,
    stores: &Stores,
    context: &Context,
) -> Result<Vec<Vec<Batches>>> {
    let list = |pattern: &String| stores.list(std::slice::from_ref(pattern));
    let listed = patterns.iter().map(list).collect::<Result<Vec<_>>>()?;
    let files = listed.iter().map(Vec::len).sum::<usize>().max(1);
    let size = BatchSize { rows: batch_rows, bytes: context.limit_bytes() / 8 / files };
    let open = |path: String| {
        let reader = StreamReader::open(&path, size, stores, context);
        let reader = reader.map_err(|e| e.with_path(&path))?;
        Ok(Batches { reader: Box::new(reader), path: Some(path) })
    };
    listed.into_iter().map(|paths| paths.into_iter().map(open).collect()).collect()
}

/// What a batch of one file may have at most.
#[derive(Clone, Copy)]
struct BatchSize {
    rows: usize,
    bytes: usize,
}

struct StreamReader {
    path: String,
    schema: SchemaRef,
    store: Arc<dyn Store>,
    /// None after the last row, or an error.
    batches: Option<arrow_file::Batches>,
}

impl StreamReader {
    fn open(path: &str, size: BatchSize, stores: &Stores, context: &Context) -> Result<Self> {
        let store = stores.open(path)?;
        let source = Source::open(SourceId(0), Arc::clone(&store))?;
        let leaves: Vec<usize> = (0..source.num_leaves()).collect();
        let window = size.bytes / leaves.len().max(1);
        let request = Request {
            rows: 0..source.rows(),
            batch_rows: size.rows.max(1),
            batch_bytes: size.bytes.clamp(BATCH_BYTES.0, BATCH_BYTES.1),
            window_bytes: window.clamp(WINDOW_BYTES.0, WINDOW_BYTES.1) as u64,
            leaves,
        };
        let schema = FileSchema::of(&source)?;
        let batches = arrow_file::Batches::open(&source, &schema, request, context)?;
        let schema = Arc::clone(batches.schema());
        Ok(Self { path: path.to_owned(), schema, store, batches: Some(batches) })
    }

    fn tell(&self, error: Error) -> ArrowError {
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
                self.store.check_unchanged().err().map(|e| Err(self.tell(e)))
            }
            Err(e) => {
                self.batches = None;
                Some(Err(self.tell(e)))
            }
        }
    }
}

impl RecordBatchReader for StreamReader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
