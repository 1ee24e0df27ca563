//! A Parquet file as a reader of record batches.
//!
//! # Invariants
//! Bytes come through `store`; a footer is checked as every source's is. Damage is `CorruptSource`
//! naming the file, never a panic.
//!
//! # Cost
//! One batch and the pages it lies in; a file is open from the start to its last row.
//!
//! # Not here
//! Merging whole files, which needs no Arrow arrays (`merge`).

use std::io;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use plait_core::run::SourceId;
use plait_core::stream::Source as Batches;
use plait_core::{Error, Result};

use crate::page::{Kept, guard, unwrap_error};
use crate::source::Source;
use crate::store::{self, Store};

/// Bytes of a read whose length nobody said.
const READ_BYTES: u64 = 64 << 10;

/// Every file that `pattern` names, as a source of batches of at most `batch_rows` rows.
///
/// # Errors
/// As [`store::list_all`], [`store::open`], [`Source::open`].
pub fn open(pattern: &str, batch_rows: usize) -> Result<Vec<Batches>> {
    let paths = store::list_all(&[pattern.to_owned()])?;
    let open = |path: &String| {
        let reader = FileReader::open(path, batch_rows).map_err(|e| e.with_path(path))?;
        Ok(Batches { reader: Box::new(reader), path: Some(path.clone()) })
    };
    paths.iter().map(open).collect()
}

struct FileReader {
    path: String,
    schema: SchemaRef,
    store: Arc<dyn Store>,
    /// None after the last row, or an error.
    reader: Option<ParquetRecordBatchReader>,
    kept: Kept,
}

impl FileReader {
    fn open(path: &str, batch_rows: usize) -> Result<Self> {
        let store = store::open(path)?;
        // Checks what the reader would trust.
        Source::open(SourceId(0), Arc::clone(&store))?;
        let kept = Kept::default();
        let whole = Whole(Arc::clone(&store), kept.clone());
        let reader = guard(|| {
            ParquetRecordBatchReaderBuilder::try_new(whole)
                .and_then(|builder| builder.with_batch_size(batch_rows.max(1)).build())
        })?
        .map_err(unwrap_error)?;
        Ok(Self {
            path: path.to_owned(),
            schema: reader.schema(),
            store,
            reader: Some(reader),
            kept,
        })
    }

    fn tell(&self, error: Error) -> ArrowError {
        error.with_path(&self.path).into_arrow()
    }
}

impl Iterator for FileReader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let reader = self.reader.as_mut()?;
        let next = guard(|| reader.next());
        if let Ok(Some(Ok(batch))) = next {
            return Some(Ok(batch));
        }
        self.reader = None;
        match next {
            Ok(Some(Err(e))) => Some(Err(self.tell(self.kept.explain(e)))),
            Err(e) => Some(Err(self.tell(e))),
            _ => self.store.check_unchanged().err().map(|e| Err(self.tell(e))),
        }
    }
}

impl RecordBatchReader for FileReader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// A store as the parquet crate reads it.
struct Whole(Arc<dyn Store>, Kept);

impl Length for Whole {
    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl ChunkReader for Whole {
    type T = io::BufReader<Rest>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(io::BufReader::new(Rest {
            store: Arc::clone(&self.0),
            kept: self.1.clone(),
            at: start,
            left: Bytes::new(),
        }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let range = start..start.saturating_add(length as u64);
        self.0.read(range).map_err(|e| self.1.keep(e))
    }
}

/// The bytes from some place on.
struct Rest {
    store: Arc<dyn Store>,
    kept: Kept,
    at: u64,
    left: Bytes,
}

impl io::Read for Rest {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.left.is_empty() {
            let end = self.store.len().min(self.at.saturating_add(READ_BYTES));
            self.left = self
                .store
                .read(self.at.min(end)..end)
                .map_err(|e| io::Error::other(self.kept.keep(e)))?;
            self.at = end;
        }
        let len = to.len().min(self.left.len());
        to[..len].copy_from_slice(&self.left.split_to(len));
        Ok(len)
    }
}
