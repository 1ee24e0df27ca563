//! One Parquet file as record batches: ranged, projected, checked.
//!
//! ```text
//! store ─ footer (checked) ─ leaves that are asked for ─ `arrow_file` ─ batches
//! ```
//!
//! # Invariants
//! Only chunks of leaves that are asked for are read. A file whose footer is not the one that was
//! resolved is `SourceChanged`.
//!
//! # Cost
//! That of `arrow_file`, with windows of at most 2 MiB, less where memory is short.
//!
//! # Not here
//! Adapting batches (`plait_core::schema`); reading many files (`read`).

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};
use plait_core::SourceId;
use plait_core::{Error, Kind, Result};

use super::footer::Footer;
use super::sources::ScanSources;
use crate::arrow_file::{Batches, FileSchema, Request};
use crate::source::Source;
use crate::store::{RangeReader, Stores};

/// Opens a file and reads its footer; gives its Arrow schema, too.
pub(super) fn open(path: &str, stores: &Stores) -> Result<(Source, FileSchema, Footer)> {
    let store: Arc<dyn RangeReader> = stores.open(path)?;
    let (size, written_at) = (store.len(), store.written_at());
    let source = Source::open(SourceId(0), store)?;
    let schema = FileSchema::of(&source)?;
    let mut hash = [0; 16];
    hash.copy_from_slice(source.footer_hash.first_chunk::<16>().unwrap_or(&[0; 16]));
    let footer =
        Footer { rows: source.rows(), data_bytes: source.encoded_bytes, hash, size, written_at };
    Ok((source, schema, footer))
}

/// Batches of one file.
pub(super) struct FileReader {
    schema: SchemaRef,
    inner: Inner,
}

enum Inner {
    Rows(Box<Batches>),
    /// No leaf is asked for: only rows are counted.
    Counted {
        left: u64,
        batch_rows: usize,
    },
}

impl FileReader {
    /// Reads `leaves` of an opened file in batches of at most so many rows and about as many bytes
    /// as the scan leaves to one.
    pub(super) fn new(
        sources: &ScanSources,
        source: &Source,
        schema: &FileSchema,
        leaves: &[usize],
        batch_rows: usize,
    ) -> Result<Self> {
        if leaves.is_empty() {
            let inner = Inner::Counted { left: source.rows(), batch_rows };
            return Ok(Self { schema: Arc::new(Schema::empty()), inner });
        }
        let request = Request {
            leaves: leaves.to_vec(),
            rows: 0..source.rows(),
            batch_rows,
            batch_bytes: sources.sizes.file.batch_bytes,
            window_bytes: sources.sizes.file.window(leaves.len()),
        };
        let batches = Batches::open(source, schema, request, &sources.context)?;
        let schema = Arc::clone(batches.schema());
        Ok(Self { schema, inner: Inner::Rows(Box::new(batches)) })
    }

    /// The schema of its batches: of the leaves that are read.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next batch, if any.
    pub(super) fn next(&mut self) -> Result<Option<RecordBatch>> {
        match &mut self.inner {
            Inner::Counted { left: 0, .. } => Ok(None),
            Inner::Counted { left, batch_rows } => {
                let rows = usize::try_from(*left).unwrap_or(usize::MAX).min(*batch_rows);
                *left -= rows as u64;
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                RecordBatch::try_new_with_options(Arc::clone(&self.schema), Vec::new(), &options)
                    .map(Some)
                    .map_err(|e| Error::new(Kind::Internal, "cannot count rows").with_cause(e))
            }
            Inner::Rows(batches) => batches.next(),
        }
    }
}
