//! One layer of files: its row groups as one sequence of rows, and Arrow batches of some columns.
//!
//! ```text
//! files   a.parquet (rows 0..40, 40..70)   b.parquet (rows 0..30)
//! spans   0..40   40..70   70..100          start, rows, file, row group
//! ```
//!
//! # Invariants
//! All files of a layer have one schema. Decoders run under `page::guard`; damage is `CorruptSource`
//! with the file's name.
//!
//! # Cost
//! One batch of the columns asked for.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use parquet::basic::{ConvertedType, LogicalType};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use parquet::schema::types::{SchemaDescriptor, TypePtr};
use plait_core::{Error, Kind, Result};

use crate::context::Context;
use crate::files::open_sources;
use crate::page::{Kept, guard, unwrap_error};
use crate::source::Source;
use crate::store::Stores;

/// Rows that are decoded at once.
const BATCH_ROWS: usize = 8192;

/// What is read where a page header is looked for.
const HEADER_BYTES: u64 = 64 << 10;

/// A row group among the rows of its layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// First row.
    pub(super) start: u64,
    pub(super) rows: u64,
    /// The file, by its place in the layer.
    pub(super) file: usize,
    pub(super) row_group: usize,
}

/// A layer of files.
pub(super) struct FileLayer {
    pub(super) name: String,
    pub(super) files: Vec<Arc<Source>>,
    pub(super) schema: SchemaRef,
    pub(super) spans: Vec<Span>,
}

impl FileLayer {
    /// Opens the files of a layer; ids start at `first_id`.
    pub(super) fn open(
        name: &str,
        patterns: &[String],
        first_id: usize,
        stores: &Stores,
        context: &Context,
    ) -> Result<Self> {
        let named = |e: Error| e.with_prefix(&format!("layer `{name}`"));
        let files = open_sources(patterns, first_id, None, stores, context)?;
        let mut schema: Option<SchemaRef> = None;
        let mut spans = Vec::new();
        let mut start = 0;
        for (file, source) in files.iter().enumerate() {
            let found = arrow_schema(source).map_err(|e| named(e).with_path(source.path()))?;
            match &schema {
                None => schema = Some(found),
                Some(first) if first.fields() == found.fields() => {}
                Some(first) => {
                    return Err(named(Error::new(
                        Kind::SchemaDrift,
                        "files of a layer have different schemas",
                    ))
                    .with_path(source.path())
                    .with_got(differing(first, &found)));
                }
            }
            for row_group in 0..source.num_row_groups() {
                let rows = source.row_group_rows(row_group);
                if rows > 0 {
                    spans.push(Span { start, rows, file, row_group });
                }
                start += rows;
            }
        }
        let schema = schema
            .ok_or_else(|| named(Error::new(Kind::InvalidArgument, "a layer has no files")))?;
        Ok(Self { name: name.to_owned(), files, schema, spans })
    }

    pub(super) fn rows(&self) -> u64 {
        self.files.iter().map(|source| source.rows()).sum()
    }

    /// The row group that is exactly the rows `start..start + rows`.
    pub(super) fn span(&self, start: u64, rows: u64) -> Option<&Span> {
        let place = self.spans.binary_search_by_key(&start, |span| span.start).ok()?;
        self.spans.get(place).filter(|span| span.rows == rows)
    }

    /// The rows `range` as rows of files: file, first row there, rows.
    pub(super) fn pieces(&self, range: Range<u64>) -> Vec<(usize, u64, u64)> {
        let mut pieces = Vec::new();
        let mut file_start = 0;
        for (file, source) in self.files.iter().enumerate() {
            let file_end = file_start + source.rows();
            let (start, end) = (range.start.max(file_start), range.end.min(file_end));
            if start < end {
                pieces.push((file, start - file_start, end - start));
            }
            file_start = file_end;
        }
        pieces
    }

    /// Stored bytes of one leaf.
    pub(super) fn leaf_bytes(&self, leaf: usize) -> u64 {
        let groups = self.files.iter().flat_map(|source| source.meta.row_groups());
        let sizes = groups.filter_map(|group| group.columns().get(leaf));
        sizes.map(|chunk| chunk.compressed_size().max(0).unsigned_abs()).sum()
    }

    /// Batches of the rows `range`, of the columns or leaves of `mask`.
    pub(super) fn reader(
        self: &Arc<Self>,
        mask: Columns,
        range: Range<u64>,
        context: &Context,
    ) -> Result<FileReader> {
        let mut reader = FileReader {
            layer: Arc::clone(self),
            schema: Arc::new(Schema::empty()),
            mask,
            pieces: self.pieces(range).into_iter(),
            open: None,
            kept: Kept::default(),
            context: context.clone(),
        };
        reader.schema = match reader.files_schema()? {
            Some(schema) => schema,
            None => reader.projected()?,
        };
        Ok(reader)
    }
}

fn differing(first: &Schema, found: &Schema) -> String {
    let pairs = first.fields().iter().zip(found.fields());
    match pairs.into_iter().find(|(first, found)| first != found) {
        Some((first, found)) => format!("`{found}` after `{first}`"),
        None => format!("{} columns after {}", found.fields().len(), first.fields().len()),
    }
}

fn arrow_schema(source: &Source) -> Result<SchemaRef> {
    let meta = source.meta.file_metadata();
    let converted = guard(|| {
        parquet::arrow::parquet_to_arrow_schema(meta.schema_descr(), meta.key_value_metadata())
    })?;
    converted.map(Arc::new).map_err(unwrap_error)
}

/// Which columns a reader gives.
#[derive(Clone, Debug)]
pub(super) enum Columns {
    /// Whole columns.
    Roots(Vec<usize>),
    /// Single leaves, and the structs above them.
    Leaves(Vec<usize>),
}

/// Batches of some rows of a layer.
pub(super) struct FileReader {
    layer: Arc<FileLayer>,
    schema: SchemaRef,
    mask: Columns,
    pieces: std::vec::IntoIter<(usize, u64, u64)>,
    open: Option<(usize, ParquetRecordBatchReader)>,
    kept: Kept,
    context: Context,
}

impl FileReader {
    /// Opens the first piece; its schema is that of all.
    fn files_schema(&mut self) -> Result<Option<SchemaRef>> {
        self.advance()?;
        Ok(self.open.as_ref().map(|(_, reader)| reader.schema()))
    }

    /// The schema of a reader without rows.
    fn projected(&self) -> Result<SchemaRef> {
        let source = self.layer.files.first();
        let source = source.ok_or_else(|| Error::new(Kind::Internal, "a layer has no files"))?;
        Ok(self.builder(source, 0, 0)?.schema())
    }

    fn builder(
        &self,
        source: &Arc<Source>,
        start: u64,
        rows: u64,
    ) -> Result<ParquetRecordBatchReader> {
        let in_file = |e: ParquetError| unwrap_error(e).with_path(source.path());
        let build = || {
            let metadata =
                ArrowReaderMetadata::try_new(Arc::clone(&source.meta), ArrowReaderOptions::new())?;
            let descr = metadata.parquet_schema();
            let mask = match &self.mask {
                Columns::Roots(roots) => ProjectionMask::roots(descr, roots.iter().copied()),
                Columns::Leaves(leaves) => ProjectionMask::leaves(descr, with_maps(descr, leaves)),
            };
            let (first, skip) = source.row_group_of(start);
            let (last, _) = source.row_group_of((start + rows).saturating_sub(1).max(start));
            let groups = if rows == 0 { Vec::new() } else { (first..=last).collect() };
            let to_usize = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
            ParquetRecordBatchReaderBuilder::new_with_metadata(
                FileBytes(Arc::clone(source), self.kept.clone()),
                metadata,
            )
            .with_projection(mask)
            .with_row_groups(groups)
            .with_offset(to_usize(skip))
            .with_limit(to_usize(rows))
            .with_batch_size(BATCH_ROWS)
            .build()
        };
        guard(build).map_err(|e| e.with_path(source.path()))?.map_err(in_file)
    }

    fn advance(&mut self) -> Result<bool> {
        let Some((file, start, rows)) = self.pieces.next() else { return Ok(false) };
        let source = self.layer.files.get(file);
        let source = source.ok_or_else(|| Error::new(Kind::Internal, "a layer lost a file"))?;
        self.open = Some((file, self.builder(source, start, rows)?));
        Ok(true)
    }

    fn step(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            self.context.check_cancelled()?;
            if let Some((file, reader)) = &mut self.open {
                let path = self.layer.files.get(*file).map_or("", |source| source.path());
                let next = guard(|| reader.next()).map_err(|e| e.with_path(path))?;
                match next {
                    Some(Ok(batch)) => return Ok(Some(batch)),
                    Some(Err(e)) => return Err(self.kept.explain(e).with_path(path)),
                    None => self.open = None,
                }
            }
            if !self.advance()? {
                return Ok(None);
            }
        }
    }
}

impl Iterator for FileReader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().map_err(Error::into_arrow).transpose()
    }
}

impl RecordBatchReader for FileReader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// `leaves`, and those beside them in the same maps: the parquet crate reads maps whole.
fn with_maps(descr: &SchemaDescriptor, leaves: &[usize]) -> Vec<usize> {
    let mut all = leaves.to_vec();
    for leaf in leaves {
        let path = descr.column(*leaf).path().clone();
        let Some(depth) = map_depth(&descr.root_schema_ptr(), path.parts()) else { continue };
        let beside = |other: &usize| {
            descr.column(*other).path().parts().get(..depth) == path.parts().get(..depth)
        };
        all.extend((0..descr.num_columns()).filter(beside));
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// How many names of `path` lead from the root to the first map on it.
fn map_depth(root: &TypePtr, path: &[String]) -> Option<usize> {
    let mut node = Arc::clone(root);
    for (depth, name) in path.iter().enumerate() {
        if !node.is_group() {
            return None;
        }
        let next = node.get_fields().iter().find(|field| field.name() == name).cloned()?;
        let info = next.get_basic_info();
        let is_old_map =
            matches!(info.converted_type(), ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE);
        if is_old_map || matches!(info.logical_type_ref(), Some(LogicalType::Map)) {
            return Some(depth + 1);
        }
        node = next;
    }
    None
}

/// A file as the parquet crate reads it.
struct FileBytes(Arc<Source>, Kept);

impl Length for FileBytes {
    fn len(&self) -> u64 {
        self.0.store.len()
    }
}

impl ChunkReader for FileBytes {
    type T = std::io::Cursor<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let end = self.0.store.len().min(start.saturating_add(HEADER_BYTES));
        self.0.store.read(start..end).map(std::io::Cursor::new).map_err(|e| self.1.keep(e))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let range = start..start.saturating_add(length as u64);
        self.0.store.read(range).map_err(|e| self.1.keep(e))
    }
}
