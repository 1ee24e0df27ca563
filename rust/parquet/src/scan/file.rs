//! One Parquet file as record batches: ranged, projected, checked.
//!
//! ```text
//! store ─ footer (checked) ─ window per leaf ─ the parquet crate's Arrow reader ─ batches
//! ```
//!
//! # Invariants
//! Only chunks of leaves that are asked for are read. A panic of the decoders is `CorruptSource`. A
//! file whose footer is not the one that was resolved is `SourceChanged`.
//!
//! # Cost
//! A window of at most 2 MiB (one page, if that is larger) for every leaf, less where memory is short;
//! small files are read at once.
//!
//! # Not here
//! Adapting batches (`plait_core::schema`); reading many files (`read`).

use std::collections::HashMap;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};
use bytes::{Buf, Bytes};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use parquet::file::reader::{ChunkReader, Length};
use plait_core::run::SourceId;
use plait_core::{Error, Kind, Result};

use super::Scan;
use crate::context::{Charge, Context};
use crate::page::{Kept, guard, unwrap_error};
use crate::source::Source;
use crate::store::{Store, Stores};

/// Files up to this size are read at once.
const WHOLE_BYTES_MAX: u64 = 1 << 20;
/// Longer than page headers are.
const HEADER_BYTES: u64 = 64 << 10;

/// What resolving keeps of a file.
#[derive(Clone, Debug)]
pub(super) struct Footer {
    pub(super) rows: u64,
    /// Bytes of all values, unpacked.
    pub(super) data_bytes: u64,
    /// Names this version of the file.
    pub(super) hash: [u8; 16],
}

/// Opens a file and reads its footer; gives its Arrow schema, too.
pub(super) fn open(path: &str, stores: &Stores) -> Result<(Source, ArrowReaderMetadata, Footer)> {
    let store: Arc<dyn Store> = stores.open(path)?;
    let source = Source::open(SourceId(0), store)?;
    let options = ArrowReaderOptions::new();
    let metadata = guard(|| ArrowReaderMetadata::try_new(Arc::clone(&source.meta), options))
        .and_then(|made| made.map_err(unwrap_error))
        .map_err(|e| e.with_path(path))?;
    let bytes = |group: &parquet::file::metadata::RowGroupMetaData| {
        u64::try_from(group.total_byte_size()).unwrap_or(0)
    };
    let data_bytes = source.meta.row_groups().iter().map(bytes).fold(0, u64::saturating_add);
    let mut hash = [0; 16];
    hash.copy_from_slice(source.footer_hash.first_chunk::<16>().unwrap_or(&[0; 16]));
    let footer = Footer { rows: source.rows(), data_bytes, hash };
    Ok((source, metadata, footer))
}

/// Batches of one file.
pub(super) struct FileReader {
    path: String,
    schema: SchemaRef,
    inner: Inner,
}

enum Inner {
    Rows(ParquetRecordBatchReader, Kept),
    /// No leaf is asked for: only rows are counted.
    Counted {
        left: u64,
        batch_rows: usize,
    },
}

impl FileReader {
    /// Reads `leaves` of an opened file in batches of at most so many rows and about as many bytes as
    /// the scan leaves to one.
    pub(super) fn new(
        scan: &Scan,
        source: &Source,
        metadata: ArrowReaderMetadata,
        leaves: &[usize],
        batch_rows: usize,
    ) -> Result<Self> {
        let path = source.path().to_owned();
        if leaves.is_empty() {
            let inner = Inner::Counted { left: source.rows(), batch_rows };
            return Ok(Self { path, schema: Arc::new(Schema::empty()), inner });
        }
        let windows = Windows::new(source, leaves, scan)?;
        let kept = windows.kept.clone();
        let rows = source.rows().max(1);
        let bytes: u64 = leaves.iter().map(|leaf| leaf_bytes(source, *leaf)).sum();
        let per_row = bytes.div_ceil(rows).max(1);
        let fit = usize::try_from(scan.shares.batch as u64 / per_row).unwrap_or(usize::MAX).max(1);
        let mask = ProjectionMask::leaves(
            source.meta.file_metadata().schema_descr(),
            leaves.iter().copied(),
        );
        let reader = guard(|| {
            ParquetRecordBatchReaderBuilder::new_with_metadata(windows, metadata)
                .with_projection(mask)
                .with_batch_size(batch_rows.min(fit))
                .build()
        })
        .and_then(|made| made.map_err(unwrap_error))
        .map_err(|e| e.with_path(path.as_str()))?;
        let schema = arrow_array::RecordBatchReader::schema(&reader);
        Ok(Self { path, schema, inner: Inner::Rows(reader, kept) })
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
            Inner::Rows(reader, kept) => guard(|| reader.next().transpose())
                .and_then(|next| next.map_err(|e| kept.explain(e)))
                .map_err(|e| e.with_path(self.path.as_str())),
        }
    }
}

fn leaf_bytes(source: &Source, leaf: usize) -> u64 {
    let chunks = (0..source.num_row_groups()).filter_map(|group| source.chunk(group, leaf).ok());
    chunks
        .filter_map(|chunk| u64::try_from(chunk.uncompressed_size()).ok())
        .fold(0, u64::saturating_add)
}

/// The bytes of a file, through one window for every leaf.
struct Windows {
    store: Arc<dyn Store>,
    kept: Kept,
    /// Start, end and leaf of every chunk that may be read, by start.
    chunks: Vec<(u64, u64, usize)>,
    open: Mutex<HashMap<usize, (u64, Bytes, Charge)>>,
    whole: Option<(Bytes, Charge)>,
    window_bytes: u64,
    context: Context,
}

impl Windows {
    fn new(source: &Source, leaves: &[usize], scan: &Scan) -> Result<Self> {
        let store = Arc::clone(&source.store);
        let (window_bytes, context) = (scan.shares.window(leaves.len()), scan.context.clone());
        if store.len() <= WHOLE_BYTES_MAX {
            let whole = store.read(0..store.len())?;
            let charge = context.charge(whole.len());
            return Ok(Self {
                store,
                kept: Kept::default(),
                chunks: Vec::new(),
                open: Mutex::default(),
                whole: Some((whole, charge)),
                window_bytes,
                context,
            });
        }
        let mut chunks = Vec::new();
        for group in 0..source.num_row_groups() {
            for leaf in leaves {
                let range = source.chunk_range(group, *leaf)?;
                chunks.push((range.start, range.end, *leaf));
            }
        }
        chunks.sort_unstable();
        let (kept, open) = (Kept::default(), Mutex::default());
        Ok(Self { store, kept, chunks, open, whole: None, window_bytes, context })
    }

    fn read(&self, start: u64, len: u64) -> Result<Bytes> {
        let behind = || {
            Error::new(Kind::CorruptSource, "page lies outside of its chunk")
                .with_path(self.store.path())
                .with_offset(start)
        };
        let end = start.checked_add(len).ok_or_else(behind)?;
        if let Some((whole, _)) = &self.whole {
            let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
            let range = range.filter(|(_, end)| *end <= whole.len()).ok_or_else(behind)?;
            return Ok(whole.slice(range.0..range.1));
        }
        let at = self.chunks.partition_point(|chunk| chunk.0 <= start);
        let chunk = at.checked_sub(1).and_then(|at| self.chunks.get(at));
        let Some((_, chunk_end, leaf)) = chunk.filter(|chunk| end <= chunk.1) else {
            return Err(behind());
        };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((from, bytes, _)) = open.get(leaf)
            && *from <= start
            && end <= from + bytes.len() as u64
        {
            let first = usize::try_from(start - from).map_err(|_| behind())?;
            let len = usize::try_from(len).map_err(|_| behind())?;
            return Ok(bytes.slice(first..first + len));
        }
        let to = (*chunk_end).min(end.max(start.saturating_add(self.window_bytes)));
        let bytes = self.store.read(start..to)?;
        // What was there before goes first: it is decoded.
        open.remove(leaf);
        let charge = self.context.charge(bytes.len());
        open.insert(*leaf, (start, bytes.clone(), charge));
        let len = usize::try_from(len).map_err(|_| behind())?;
        Ok(bytes.slice(0..len))
    }

    /// What is at hand from `start` on, where a page header begins; read anew if that is little.
    fn header(&self, start: u64) -> Result<Bytes> {
        if let Some((whole, _)) = &self.whole {
            return self.read(start, (whole.len() as u64).saturating_sub(start));
        }
        let at = self.chunks.partition_point(|chunk| chunk.0 <= start);
        let chunk = at.checked_sub(1).and_then(|at| self.chunks.get(at));
        let (end, leaf) = chunk.map_or((start, 0), |chunk| (chunk.1, chunk.2));
        let held = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let open = held.get(&leaf).map(|(from, bytes, _)| (*from, bytes.len() as u64));
        drop(held);
        if let Some((from, len)) = open
            && from <= start
        {
            let to = from + len;
            if to >= end || to >= start.saturating_add(HEADER_BYTES) {
                return self.read(start, to.min(end).saturating_sub(start));
            }
        }
        self.read(start, end.saturating_sub(start).min(self.window_bytes))
    }
}

impl Length for Windows {
    fn len(&self) -> u64 {
        self.store.len()
    }
}

impl ChunkReader for Windows {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        let bytes = self.header(start).map_err(|e| self.kept.keep(e))?;
        Ok(Box::new(bytes.reader()))
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        self.read(start, length as u64).map_err(|e| self.kept.keep(e))
    }
}
