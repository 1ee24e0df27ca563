//! A run of state that is a Parquet file: blocks are pages of its keys, read when they are asked
//! for.
//!
//! ```text
//! run.parquet   row group 0: pages 0 1 2 │ row group 1: pages 3 4     column index ─▶ index keys
//! find key      index key ─▶ block ─▶ cache? ─▶ bloom filter? ─▶ rows of that page, all columns
//! ```
//!
//! # Invariants
//! Fences are first keys, never cut ones. A file that is obsolete is removed with the last that
//! uses it.
//!
//! # Cost
//! An index key for each page; a filter for each row group, once one was looked at. Blocks: see
//! `cache`.
//!
//! # Not here
//! Which files there are (`folder`).

use std::io::Read;
use std::path::PathBuf;
use std::slice::from_ref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::SchemaRef;
use bytes::{Buf, Bytes};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::bloom_filter::Sbbf;
use parquet::file::metadata::{ColumnChunkMask, PageIndexPolicy};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::reader::{ChunkReader, Length};
use plait_core::SourceId;
use plait_core::join::{Block, SortedRun};
use plait_core::{Error, Kind, Result};

use super::cache::Cache;
use crate::arrow_file::{FileSchema, Located};
use crate::leaf::LocationCache;
use crate::page::{guard, unwrap_error};
use crate::runtime::MemoryStage;
use crate::source::Source;
use crate::store::{RangeReader, Stores};

/// Column of keys.
const KEY: usize = 0;
/// Writers cut bounds of this length and above.
const CUT_BYTES: usize = 64;
/// What is read at once of bytes whose end is not known.
const READ_BYTES: u64 = 64 << 10;

/// A run in a file.
pub(super) struct FileRun {
    number: u64,
    name: String,
    path: PathBuf,
    store: Arc<dyn RangeReader>,
    metadata: ArrowReaderMetadata,
    located: Located,
    schema: SchemaRef,
    rows: u64,
    pages: Vec<KeyPage>,
    filters: Vec<OnceLock<Option<Sbbf>>>,
    cache: Arc<Cache>,
    is_obsolete: AtomicBool,
}

/// A page of keys.
struct KeyPage {
    row_group: usize,
    start: usize,
    rows: usize,
    index_key: Vec<u8>,
}

impl FileRun {
    /// Opens the file `name` in `folder`, which has rows of `schema`.
    pub(super) fn open(
        folder: &std::path::Path,
        name: &str,
        schema: SchemaRef,
        cache: &Arc<Cache>,
        stores: &Stores,
    ) -> Result<Self> {
        let path = folder.join(name);
        let location = path.to_string_lossy().into_owned();
        let store = stores.open(&location)?;
        let in_file = |e: Error| e.with_path(location.clone());
        let source = Arc::new(Source::open(SourceId(0), Arc::clone(&store))?);
        let reader = Bytewise(Arc::clone(&store));
        let options = ArrowReaderOptions::new()
            .with_page_index_policy(PageIndexPolicy::Required)
            .with_column_index_mask(ColumnChunkMask::columns([KEY]));
        let metadata = guard(|| ArrowReaderMetadata::load(&reader, options))
            .and_then(|made| made.map_err(unwrap_error))
            .map_err(in_file)?;
        check_columns(&metadata, &schema).map_err(in_file)?;
        let pages = pages(&metadata).map_err(in_file)?;
        let rows = pages.iter().map(|page| page.rows as u64).sum();
        let groups = metadata.metadata().num_row_groups();
        let context = cache.context().clone();
        let located = Located {
            schema: FileSchema::of(&source)?,
            source,
            cache: Arc::new(LocationCache::new(
                &context,
                context.budget().bytes(MemoryStage::RunLocations),
            )),
            context,
        };
        let mut run = Self {
            number: cache.number(),
            name: name.to_owned(),
            path,
            store,
            metadata,
            located,
            schema,
            rows,
            pages,
            filters: (0..groups).map(|_| OnceLock::new()).collect(),
            cache: Arc::clone(cache),
            is_obsolete: AtomicBool::new(false),
        };
        run.complete_index_keys().map_err(in_file)?;
        Ok(run)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Whether the file goes once nobody reads it any more.
    pub(super) fn set_obsolete(&self, is_obsolete: bool) {
        self.is_obsolete.store(is_obsolete, Ordering::Relaxed);
    }

    fn builder(&self) -> ParquetRecordBatchReaderBuilder<Bytewise> {
        let reader = Bytewise(Arc::clone(&self.store));
        ParquetRecordBatchReaderBuilder::new_with_metadata(reader, self.metadata.clone())
    }

    /// Reads the first keys of pages whose bounds may be cut.
    fn complete_index_keys(&mut self) -> Result<()> {
        for place in 0..self.pages.len() {
            let page = &self.pages[place];
            if page.index_key.len() < CUT_BYTES {
                continue;
            }
            let batch = self.read(page.row_group, page.start, 1, Some(&[KEY]))?;
            let key = batch.columns().first().and_then(|keys| keys.as_binary_opt::<i32>());
            let key = key.filter(|keys| keys.len() == 1).map(|keys| keys.value(0).to_vec());
            let missing = || Error::new(Kind::CorruptSource, "a page of keys has none");
            self.pages[place].index_key = key.ok_or_else(missing)?;
        }
        Ok(())
    }

    fn read(
        &self,
        row_group: usize,
        start: usize,
        rows: usize,
        leaves: Option<&[usize]>,
    ) -> Result<RecordBatch> {
        let read = self.located.read(row_group, from_ref(&(start..start + rows)), leaves)?;
        let short = || Error::new(Kind::CorruptSource, "a page has fewer rows than its index says");
        let batch = read.ok_or_else(|| short().with_path(self.store.path()))?;
        if batch.num_rows() == rows { Ok(batch) } else { Err(short().with_path(self.store.path())) }
    }
}

impl SortedRun for FileRun {
    fn rows(&self) -> u64 {
        self.rows
    }

    fn blocks(&self) -> usize {
        self.pages.len()
    }

    fn index_key(&self, block: usize) -> &[u8] {
        &self.pages[block].index_key
    }

    fn block(&self, block: usize) -> Result<Arc<Block>> {
        if let Some(held) = self.cache.get(self.number, block) {
            return Ok(held);
        }
        let page = &self.pages[block];
        let batch = self.read(page.row_group, page.start, page.rows, None)?;
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), batch.columns().to_vec());
        let made = batch.map_err(Error::from_arrow).and_then(Block::try_new);
        let made = Arc::new(made.map_err(|e| e.with_path(self.store.path()))?);
        self.cache.put(self.number, block, &made);
        Ok(made)
    }

    fn is_held(&self) -> bool {
        false
    }

    fn may_have(&self, block: usize, key: &[u8]) -> Result<bool> {
        if self.cache.has(self.number, block) {
            return Ok(true);
        }
        let group = self.pages[block].row_group;
        let filter = &self.filters[group];
        if filter.get().is_none() {
            let read = guard(|| self.builder().get_row_group_column_bloom_filter(group, KEY))
                .and_then(|made| made.map_err(unwrap_error))
                .map_err(|e| e.with_path(self.store.path()))?;
            let _ = filter.set(read);
        }
        Ok(filter.get().and_then(Option::as_ref).is_none_or(|filter| filter.check(key)))
    }

    fn memory_size(&self) -> usize {
        let index_keys: usize =
            self.pages.iter().map(|page| page.index_key.len() + size_of::<KeyPage>()).sum();
        let made = self.filters.iter().filter_map(|filter| filter.get().and_then(Option::as_ref));
        let filters: usize = made.map(|filter| filter.num_blocks() * 32).sum();
        index_keys + filters
    }
}

impl std::fmt::Debug for FileRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileRun").field("path", &self.path).field("rows", &self.rows).finish()
    }
}

impl Drop for FileRun {
    fn drop(&mut self) {
        self.cache.forget(self.number, self.pages.len());
        if self.is_obsolete.load(Ordering::Relaxed) {
            // What stays is swept when the state is opened again.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The file must have the columns of the table.
fn check_columns(metadata: &ArrowReaderMetadata, schema: &SchemaRef) -> Result<()> {
    let found = metadata.schema().fields();
    let same = found.len() == schema.fields().len()
        && found
            .iter()
            .zip(schema.fields())
            .all(|(a, b)| a.name() == b.name() && a.data_type().equals_datatype(b.data_type()));
    if same {
        return Ok(());
    }
    Err(Error::new(
        Kind::CorruptSource,
        "a file of the state has other columns than its manifest says",
    ))
}

/// The pages of keys, with the smallest key of each.
fn pages(metadata: &ArrowReaderMetadata) -> Result<Vec<KeyPage>> {
    let damaged =
        || Error::new(Kind::CorruptSource, "a file of the state has no index of its keys");
    let file = metadata.metadata();
    let mut pages = Vec::new();
    for (group, meta) in file.row_groups().iter().enumerate() {
        let rows = usize::try_from(meta.num_rows()).map_err(|_| damaged())?;
        if rows == 0 {
            continue;
        }
        let found = file.page_index_for_row_group(group);
        let (Some(index), Some(offsets)) = (found.column_index(KEY), found.offset_index(KEY))
        else {
            return Err(damaged());
        };
        let starts = offsets.page_locations().iter().map(|page| page.first_row_index);
        let mut starts: Vec<usize> =
            starts.map(|row| usize::try_from(row).map_err(|_| damaged())).collect::<Result<_>>()?;
        starts.push(rows);
        if starts.first() != Some(&0) || !starts.is_sorted_by(|a, b| a < b) {
            return Err(damaged());
        }
        let ColumnIndexMetaData::BYTE_ARRAY(index) = index else { return Err(damaged()) };
        for (place, window) in starts.windows(2).enumerate() {
            let index_key = index.min_value(place).ok_or_else(damaged)?.to_vec();
            let (start, end) = (window[0], window[1]);
            pages.push(KeyPage { row_group: group, start, rows: end - start, index_key });
        }
    }
    Ok(pages)
}

/// A store for the parquet crate.
struct Bytewise(Arc<dyn RangeReader>);

impl Length for Bytewise {
    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl ChunkReader for Bytewise {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        let rest = Rest { store: Arc::clone(&self.0), at: start, held: Bytes::new() };
        Ok(Box::new(rest))
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        let external = |e: Error| parquet::errors::ParquetError::External(Box::new(e));
        let end = start.saturating_add(length as u64);
        self.0.read(start..end).map_err(external)
    }
}

/// The bytes of a file from a place on.
struct Rest {
    store: Arc<dyn RangeReader>,
    at: u64,
    held: Bytes,
}

impl Read for Rest {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.held.is_empty() {
            let end = self.store.len().min(self.at.saturating_add(READ_BYTES));
            if self.at >= end {
                return Ok(0);
            }
            self.held = self.store.read(self.at..end).map_err(std::io::Error::other)?;
            self.at = end;
        }
        let len = out.len().min(self.held.len());
        out[..len].copy_from_slice(&self.held[..len]);
        self.held.advance(len);
        Ok(len)
    }
}
