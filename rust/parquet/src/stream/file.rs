//! A Parquet file as a reader of record batches.
//!
//! # Invariants
//! Bytes come through `store`; a footer is checked as every source's is. Damage is `CorruptSource`
//! naming the file, never a panic.
//!
//! # Cost
//! One batch and the pages it lies in; a file is open from the start to its last row. All files
//! together take a quarter of [`MEMORY_BYTES`] for their batches and windows.
//!
//! # Not here
//! Merging whole files, which needs no Arrow arrays (`merge`).

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use plait_core::run::SourceId;
use plait_core::stream::Source as Batches;
use plait_core::{Error, Result};

use crate::arrow_file::{self, FileSchema, Request};
use crate::runtime::Context;
use crate::source::Source;
use crate::store::{Store, Stores};

/// What the files of one pattern may take; no page of theirs is larger.
const MEMORY_BYTES: usize = 512_000_000;
/// Bytes of one batch of one file.
const BATCH_BYTES: (usize, usize) = (256 << 10, 16 << 20);
/// How much of a chunk is read at once.
const WINDOW_BYTES: (usize, usize) = (64 << 10, 2 << 20);

/// Every file that `pattern` names, as a source of batches of at most `batch_rows` rows.
///
/// # Errors
/// As [`Stores::list`], [`Stores::open`], [`Source::open`].
pub fn open(pattern: &str, batch_rows: usize) -> Result<Vec<Batches>> {
    let context = Context::new(MEMORY_BYTES);
    let stores = Stores::try_new(&BTreeMap::new(), &context)?;
    let paths = stores.list(&[pattern.to_owned()])?;
    let share = MEMORY_BYTES / 8 / paths.len().max(1);
    let open = |path: &String| {
        let reader = StreamReader::open(path, (batch_rows, share), &stores, &context);
        let reader = reader.map_err(|e| e.with_path(path))?;
        Ok(Batches { reader: Box::new(reader), path: Some(path.clone()) })
    };
    paths.iter().map(open).collect()
}

struct StreamReader {
    path: String,
    schema: SchemaRef,
    store: Arc<dyn Store>,
    /// None after the last row, or an error.
    batches: Option<arrow_file::Batches>,
}

impl StreamReader {
    fn open(
        path: &str,
        (batch_rows, share): (usize, usize),
        stores: &Stores,
        context: &Context,
    ) -> Result<Self> {
        let store = stores.open(path)?;
        let source = Source::open(SourceId(0), Arc::clone(&store))?;
        let leaves: Vec<usize> = (0..source.num_leaves()).collect();
        let window = share / leaves.len().max(1);
        let request = Request {
            rows: 0..source.rows(),
            batch_rows: batch_rows.max(1),
            batch_bytes: share.clamp(BATCH_BYTES.0, BATCH_BYTES.1),
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
