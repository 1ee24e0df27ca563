//! One layer of files: its row groups as one sequence of rows, and Arrow batches of some columns.
//!
//! ```text
//! files   a.parquet (rows 0..40, 40..70)   b.parquet (rows 0..30)
//! spans   0..40   40..70   70..100          start, rows, file, row group
//! ```
//!
//! # Invariants
//! All files of a layer have one schema; what they store in several ways (a decimal as INT32 or as
//! bytes) is adapted as in a merge. Decoders run under `page::guard`; damage is `CorruptSource`
//! with the file's name.
//!
//! # Cost
//! One batch of the columns asked for.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, FieldRef, Schema, SchemaRef};
use parquet::basic::{ConvertedType, LogicalType};
use parquet::schema::types::{SchemaDescriptor, TypePtr};
use plait_core::{Error, Kind, Result, type_text};

use crate::arrow_file::{Batches, FileSchema, Request};
use crate::files::open_sources;
use crate::runtime::{Context, ReaderSizes};
use crate::schema::{LeafAdapter, LevelMap, Unite, reconcile};
use crate::source::Source;
use crate::store::Stores;

/// Rows that are decoded at once.
const BATCH_ROWS: usize = 8192;

/// A row group among the rows of its layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupSpan {
    /// First row.
    pub(super) start: u64,
    pub(super) rows: u64,
    /// The file, by its place in the layer.
    pub(super) file: usize,
    pub(super) row_group: usize,
}

/// How each file of a layer gives each leaf.
type Adapters = Arc<Vec<Arc<[LeafAdapter]>>>;

/// A layer of files.
pub(super) struct FileLayer {
    pub(super) name: String,
    pub(super) files: Vec<Arc<Source>>,
    pub(super) schema: SchemaRef,
    /// The Parquet schema that all files are brought to.
    pub(super) descr: Arc<SchemaDescriptor>,
    /// How each file gives each leaf.
    adapters: Adapters,
    pub(super) spans: Vec<GroupSpan>,
    /// Stored bytes of each leaf.
    leaf_bytes: Vec<u64>,
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
                    spans.push(GroupSpan { start, rows, file, row_group });
                }
                start += rows;
            }
        }
        let schema = schema
            .ok_or_else(|| named(Error::new(Kind::InvalidArgument, "a layer has no files")))?;
        let (descr, adapters) = stored(&files).map_err(named)?;
        let leaf_bytes = leaf_bytes(&files, descr.num_columns())?;
        Ok(Self { name: name.to_owned(), files, schema, descr, adapters, leaf_bytes, spans })
    }

    /// How file `file` gives leaf `leaf` of the layer.
    pub(super) fn adapter(&self, file: usize, leaf: usize) -> Option<LeafAdapter> {
        self.adapters.get(file)?.get(leaf).cloned()
    }

    /// Whether file `file` stores leaf `leaf` as the layer has it.
    pub(super) fn has_as_is(&self, file: usize, leaf: usize) -> bool {
        let is_verbatim = self
            .adapters
            .get(file)
            .and_then(|of| of.get(leaf))
            .is_some_and(LeafAdapter::is_verbatim);
        let source = self.files.get(file);
        is_verbatim && source.is_some_and(|source| *source.leaf(leaf) == *self.descr.column(leaf))
    }

    pub(super) fn rows(&self) -> u64 {
        self.files.iter().map(|source| source.rows()).sum()
    }

    /// The row group that is exactly the rows `start..start + rows`.
    pub(super) fn span(&self, start: u64, rows: u64) -> Option<&GroupSpan> {
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
        self.leaf_bytes.get(leaf).copied().unwrap_or(0)
    }

    /// Batches of the rows `range`, of the columns or leaves of `mask`.
    pub(super) fn reader(
        self: &Arc<Self>,
        mask: Columns,
        range: Range<u64>,
        sizes: ReaderSizes,
        context: &Context,
    ) -> Result<LayerReader> {
        let mut reader = LayerReader {
            layer: Arc::clone(self),
            schema: Arc::new(Schema::empty()),
            mask,
            pieces: self.pieces(range).into_iter(),
            open: None,
            sizes,
            context: context.clone(),
        };
        reader.schema = match reader.files_schema()? {
            Some(schema) => schema,
            None => reader.projected()?,
        };
        Ok(reader)
    }
}

/// The Parquet schema that `files` are brought to, and how each one is.
/// Stored bytes of each leaf.
fn leaf_bytes(files: &[Arc<Source>], leaves: usize) -> Result<Vec<u64>> {
    let mut bytes = vec![0_u64; leaves];
    for source in files {
        for group in source.footer()?.row_groups() {
            for (bytes, chunk) in bytes.iter_mut().zip(group.columns()) {
                *bytes = bytes.saturating_add(chunk.compressed_size().max(0).unsigned_abs());
            }
        }
    }
    Ok(bytes)
}

fn stored(files: &[Arc<Source>]) -> Result<(Arc<SchemaDescriptor>, Adapters)> {
    let none = || Error::new(Kind::InvalidArgument, "a layer has no files");
    let first = files.first().ok_or_else(none)?.file().schema_descr_ptr();
    let fields = |source: &Source| source.schema().root_schema().get_fields().to_vec();
    if files.iter().all(|source| fields(source) == first.root_schema().get_fields()) {
        let same = |leaf| LeafAdapter::Same { leaf, levels: LevelMap::Identity };
        let same: Arc<[LeafAdapter]> = (0..first.num_columns()).map(same).collect();
        return Ok((first, Arc::new(vec![same; files.len()])));
    }
    let footers: Vec<_> = files.iter().map(|source| (source.path(), source.file())).collect();
    let made = reconcile(&footers, &Unite::default())?;
    // Columns of one Arrow schema are as many leaves, in the same order.
    if made.descr.num_columns() != first.num_columns() {
        return Err(Error::new(Kind::Internal, "leaves of a layer do not add up"));
    }
    Ok((made.descr, made.leaves))
}

fn differing(first: &Schema, found: &Schema) -> String {
    let text = |field: &FieldRef| {
        let not_null = if field.is_nullable() { "" } else { " not null" };
        format!("`{}: {}{not_null}`", field.name(), type_text(field.data_type()))
    };
    let pairs = first.fields().iter().zip(found.fields());
    match pairs.into_iter().find(|(first, found)| first != found) {
        Some((first, found)) => format!("{} after {}", text(found), text(first)),
        None => format!("{} columns after {}", found.fields().len(), first.fields().len()),
    }
}

fn arrow_schema(source: &Source) -> Result<SchemaRef> {
    Ok(Arc::clone(FileSchema::of(source)?.schema()))
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
pub(super) struct LayerReader {
    layer: Arc<FileLayer>,
    schema: SchemaRef,
    mask: Columns,
    pieces: std::vec::IntoIter<(usize, u64, u64)>,
    open: Option<Batches>,
    sizes: ReaderSizes,
    context: Context,
}

impl LayerReader {
    /// Opens the first piece; its schema is that of all.
    fn files_schema(&mut self) -> Result<Option<SchemaRef>> {
        self.advance()?;
        Ok(self.open.as_ref().map(|batches| Arc::clone(batches.schema())))
    }

    /// The schema of a reader without rows.
    fn projected(&self) -> Result<SchemaRef> {
        let source = self.layer.files.first();
        let source = source.ok_or_else(|| Error::new(Kind::Internal, "a layer has no files"))?;
        Ok(Arc::clone(self.batches(source, 0..0)?.schema()))
    }

    fn batches(&self, source: &Arc<Source>, rows: Range<u64>) -> Result<Batches> {
        let descr = source.schema();
        let leaves: Vec<usize> = match &self.mask {
            Columns::Roots(roots) => {
                let of_root = |leaf: &usize| roots.contains(&descr.get_column_root_idx(*leaf));
                (0..descr.num_columns()).filter(of_root).collect()
            }
            Columns::Leaves(leaves) => with_maps(descr, leaves),
        };
        let window_bytes = self.sizes.window(leaves.len());
        let request = Request {
            leaves,
            rows,
            batch_rows: BATCH_ROWS,
            batch_bytes: self.sizes.batch_bytes,
            window_bytes,
        };
        let schema = FileSchema::of(source)?;
        Batches::open(source, &schema, request, &self.context)
    }

    fn advance(&mut self) -> Result<bool> {
        let Some((file, start, rows)) = self.pieces.next() else { return Ok(false) };
        let source = self.layer.files.get(file);
        let source = source.ok_or_else(|| Error::new(Kind::Internal, "a layer lost a file"))?;
        self.open = Some(self.batches(source, start..start + rows)?);
        Ok(true)
    }

    fn step(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            self.context.check_cancelled()?;
            if let Some(batches) = &mut self.open {
                if let Some(batch) = batches.next()? {
                    return Ok(Some(batch));
                }
                self.open = None;
            }
            if !self.advance()? {
                return Ok(None);
            }
        }
    }
}

impl Iterator for LayerReader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().map_err(Error::into_arrow).transpose()
    }
}

impl RecordBatchReader for LayerReader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// `leaves`, and the other leaves of the same maps: the parquet crate reads maps whole.
fn with_maps(descr: &SchemaDescriptor, leaves: &[usize]) -> Vec<usize> {
    let mut all = leaves.to_vec();
    for leaf in leaves {
        let path = descr.column(*leaf).path().clone();
        let Some(depth) = map_depth(&descr.root_schema_ptr(), path.parts()) else { continue };
        let shares_map = |other: &usize| {
            descr.column(*other).path().parts().get(..depth) == path.parts().get(..depth)
        };
        all.extend((0..descr.num_columns()).filter(shares_map));
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
