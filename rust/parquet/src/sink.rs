//! One output file: row groups in, footer out, still under its temp name.
//!
//! ```text
//! PAR1 │ row group │ row group │ … │ bloom filters, column and offset indexes │ footer │ PAR1
//!        chunks in leaf order                                    plait.* entries ─┘
//! ```
//!
//! # Invariants
//! Chunks are appended in leaf order whatever order they were woven in, so one thread and many give
//! the same bytes. The footer is written by [`Output::finish`] alone; without it the temp file is
//! removed. A file whose pages are not what its footer and its indexes say is not finished.
//!
//! # Not here
//! Weaving (`weave`); names and renames (`output`).

use std::collections::BTreeSet;
use std::io::BufWriter;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use parquet::arrow::arrow_writer::ArrowRowGroupWriterFactory;
use parquet::column::writer::ColumnCloseResult;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterPropertiesPtr};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::TypePtr;
use plait_core::key::{KeyShape, prefix_len};
use plait_core::plan::Window;
use plait_core::{Error, Kind, Result};

use crate::check::{Walk, check_file, declare_type_defined, drop_bounds, partly_bounded};
use crate::chunk::{self, OpenedChunk};
use crate::encode::Chunk;
use crate::encode::bounds::ValueOrder;
use crate::encode::chunk::Verbatim;
use crate::encode::floats::FloatOrder;
use crate::encode::recount::{is_told, recount};
use crate::encode::statistics::Cut;
use crate::leaf::OutputLeaf;
use crate::output::TempFile;
use crate::page::unwrap_error;
use crate::source::{RowGroupOf, Source};
use crate::spill::Waiting;
use crate::weave::WeaveContext;
use crate::zone::{self, ZONE_MAP_ENTRY, ZoneMap};

/// Version of `plait.key_range` and `plait.key_index`. Entries of version 1 may be of rows whose
/// order nobody checked.
pub(crate) const KEYS_VERSION: u32 = 2;

/// Rows between two entries of `plait.key_index`.
pub(crate) const KEY_INDEX_ROWS: u64 = 64 << 10;

/// Buffer before the file: pages are larger, headers and footers are not.
const WRITE_BUFFER_BYTES: usize = 1 << 20;

/// What weaving moved, summed over leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Woven {
    /// Rows and bytes of pages taken as they are stored.
    pub page: Verbatim,
    /// Of the others, those in chunks of ids.
    pub dict: Verbatim,
    /// The rest.
    pub value: Verbatim,
}

impl Woven {
    fn add(&mut self, chunk: &Chunk) {
        let metadata = &chunk.close.metadata;
        let bytes = metadata.compressed_size().max(0).unsigned_abs();
        let rest = if chunk.is_united { &mut self.dict } else { &mut self.value };
        rest.bytes += bytes.saturating_sub(chunk.verbatim.bytes);
        rest.rows += chunk.close.rows_written.saturating_sub(chunk.verbatim.rows);
        self.page.bytes += chunk.verbatim.bytes;
        self.page.rows += chunk.verbatim.rows;
    }
}

/// An output that is being written.
pub(crate) struct Output {
    writer: FileWriter,
    rows: u64,
    first_key: Option<Vec<u8>>,
    last_key: Vec<u8>,
    key_index: Vec<(u64, Vec<u8>)>,
    /// The columns that are left out of the keys in the footer, if these are listed.
    listed_without: Option<KeyShape>,
    row_groups: usize,
    encoded_bytes: u64,
    zones: ZoneMap,
    type_defined: Arc<BTreeSet<usize>>,
}

/// An output that is written and synced, and waits for its name.
pub(crate) struct Finished {
    /// The file.
    pub temp: TempFile,
    /// Its rows.
    pub rows: u64,
    /// Its length.
    pub bytes: u64,
    /// Its row groups.
    pub row_groups: usize,
    /// Encoded smallest and largest key; absent without rows.
    pub key_range: Option<(Vec<u8>, Vec<u8>)>,
}

impl Output {
    /// Makes `temp` an output for rows of `schema`.
    ///
    /// # Errors
    /// [`Kind::Storage`].
    pub(crate) fn create(
        temp: TempFile,
        schema: &TypePtr,
        properties: &WriterPropertiesPtr,
    ) -> Result<Self> {
        let file = Walk::new(BufWriter::with_capacity(WRITE_BUFFER_BYTES, temp));
        let writer = SerializedFileWriter::new(file, Arc::clone(schema), Arc::clone(properties))
            .map_err(unwrap_error)?;
        Ok(Self {
            writer,
            rows: 0,
            first_key: None,
            last_key: Vec::new(),
            key_index: Vec::new(),
            listed_without: None,
            row_groups: 0,
            encoded_bytes: 0,
            zones: ZoneMap::default(),
            type_defined: Arc::default(),
        })
    }

    /// Declares the type-defined order for these leaves, which are floats.
    #[must_use]
    pub(crate) fn with_type_defined(mut self, leaves: &Arc<BTreeSet<usize>>) -> Self {
        self.type_defined = Arc::clone(leaves);
        self
    }

    /// Lists values of columns in the footer.
    #[must_use]
    pub(crate) fn with_zones(mut self, zones: ZoneMap) -> Self {
        self.zones = zones;
        self
    }

    /// Lists keys in the footer: every one is compared with the one before it. The columns of
    /// `partition` come first in all of them, with one value, and are left out.
    #[must_use]
    pub(crate) fn with_keys(mut self, partition: KeyShape) -> Self {
        self.listed_without = Some(partition);
        self
    }

    /// Rows so far.
    #[must_use]
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes so far.
    #[must_use]
    pub(crate) fn bytes(&self) -> u64 {
        self.writer.bytes_written() as u64
    }

    /// Encoded bytes before compression so far.
    #[must_use]
    pub(crate) fn encoded_bytes(&self) -> u64 {
        self.encoded_bytes
    }

    /// Writes a row group for each of `windows`, of `leaves` chunks that `take` gives leaf by leaf.
    /// Tells what was copied by tier.
    ///
    /// # Errors
    /// Those of `take`, and whatever is wrong with the storage.
    pub(crate) fn write(
        &mut self,
        windows: &[Window],
        leaves: usize,
        mut take: impl FnMut(usize) -> Result<Vec<Chunk>>,
    ) -> Result<Woven> {
        let mut woven = Woven::default();
        let floats = Arc::clone(&self.type_defined);
        let orders = |leaf| FloatOrder::of(&floats, leaf);
        // The first row group takes its chunks as they come; those of the others wait.
        let mut later: Vec<Vec<Chunk>> = windows.iter().skip(1).map(|_| Vec::new()).collect();
        let mut group = begin(&mut self.writer)?;
        for leaf in 0..leaves {
            let chunks = take(leaf)?;
            chunks.iter().try_for_each(|chunk| self.zones.add(leaf, chunk.values.as_ref()))?;
            let mut chunks = chunks.into_iter();
            if let Some(chunk) = chunks.next() {
                woven.add(&chunk);
                append(&mut group, chunk, orders(leaf))?;
            }
            later.iter_mut().zip(chunks).for_each(|(waiting, chunk)| waiting.push(chunk));
        }
        group.close().map_err(unwrap_error)?;
        let mut windows = windows.iter();
        if let Some(window) = windows.next() {
            self.note(window, window.steps.rows())?;
        }
        for (window, chunks) in windows.zip(later) {
            let mut group = begin(&mut self.writer)?;
            for (leaf, chunk) in chunks.into_iter().enumerate() {
                woven.add(&chunk);
                append(&mut group, chunk, orders(leaf))?;
            }
            group.close().map_err(unwrap_error)?;
            self.note(window, window.steps.rows())?;
        }
        Ok(woven)
    }

    /// Copies the one row group that `window` stands for. `false` if it has to be woven: then
    /// nothing was written.
    ///
    /// # Errors
    /// Whatever is wrong with the source or the storage.
    pub(crate) fn copy(
        &mut self,
        weaving: &WeaveContext,
        leaves: &[OutputLeaf],
        window: &Window,
        source: &Arc<Source>,
        row_group: usize,
        waiting: &Arc<Waiting>,
    ) -> Result<bool> {
        let from = RowGroupOf { source, index: row_group };
        let (cache, context) = (&*weaving.cache, &weaving.context);
        // All chunks are looked at before the first byte is written.
        let all = |open: &dyn Fn(&OutputLeaf) -> Result<Option<OpenedChunk>>| {
            leaves.iter().map(open).collect::<Result<Option<Vec<_>>>>()
        };
        let unseen = match weaving.server_side_copy && self.may_copy(source)? {
            true => all(&|leaf| chunk::open_unseen(from, leaf, cache, context))?,
            false => None,
        };
        let is_unseen = unseen.is_some();
        let verify = weaving.verify_pages;
        let opened = match unseen {
            Some(opened) => opened,
            None => match all(&|leaf| chunk::open(from, leaf, verify, waiting, cache, context))? {
                Some(opened) => opened,
                None => return Ok(false),
            },
        };
        let mut group = match is_unseen {
            true => begin_unseen(&mut self.writer, source, &opened)?,
            false => begin(&mut self.writer)?,
        };
        for (leaf, OpenedChunk { chunk, close }) in leaves.iter().zip(opened) {
            let mut close = complete(weaving, leaf, from, close)?;
            if let Some(ask) = weaving.asks.get(leaf.index) {
                let seen = zone::observe(ask, from, leaf, &weaving.cache, &weaving.context)?;
                let seen = seen.unwrap_or_default();
                self.zones.add(leaf.index, seen.values.as_ref())?;
                close.bloom_filter = close.bloom_filter.or(seen.filter);
            }
            let close = weaving.float_order(leaf.index).apply(close)?;
            group.append_column(&chunk, close).map_err(unwrap_error)?;
        }
        group.close().map_err(unwrap_error)?;
        self.note(window, window.steps.rows())?;
        Ok(true)
    }

    /// Whether the store of the output may copy bytes of `source`.
    fn may_copy(&mut self, source: &Source) -> Result<bool> {
        match (self.writer.inner_mut().inner_mut(), source.store.object()) {
            (Some(file), Some(object)) => file.get_mut().may_copy(&object),
            _ => Ok(false),
        }
    }

    /// Writes one row group of `rows` rows, whose chunks `fill` appends in leaf order.
    ///
    /// # Errors
    /// Those of `fill`, and whatever is wrong with the storage.
    pub(crate) fn write_group(
        &mut self,
        rows: u64,
        fill: impl FnOnce(&mut Group<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut group = begin(&mut self.writer)?;
        fill(&mut group)?;
        group.close().map_err(unwrap_error)?;
        self.note(&Window::default(), rows)
    }

    /// What makes encoders of Arrow columns for this output.
    #[must_use]
    pub(crate) fn arrow_writers(&self, schema: SchemaRef) -> ArrowRowGroupWriterFactory {
        ArrowRowGroupWriterFactory::new(&self.writer, schema)
    }

    fn note(&mut self, window: &Window, rows: u64) -> Result<()> {
        self.writer.flush().map_err(|e| unwrap_error(e.into()))?;
        self.rows += rows;
        self.row_groups += 1;
        if self.first_key.is_none() {
            self.first_key = Some(window.first_key.clone());
        }
        self.last_key.clone_from(&window.last_key);
        self.key_index.extend(window.samples.iter().cloned());
        let group = self.writer.flushed_row_groups().last();
        self.encoded_bytes += group.map_or(0, |g| g.total_byte_size().max(0).unsigned_abs());
        Ok(())
    }

    /// Writes the footer with `entries` and makes the file durable.
    ///
    /// # Errors
    /// [`Kind::Storage`].
    pub(crate) fn finish(mut self, entries: &[(&str, String)]) -> Result<Finished> {
        let key_range = self.first_key.take().map(|first| (first, self.last_key.clone()));
        let mut add = |key: &str, value: String| {
            self.writer.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
        };
        for (key, value) in entries {
            add(key, value.clone());
        }
        if let (Some((first, last)), Some(partition)) = (&key_range, &self.listed_without) {
            let left_out = prefix_len(partition, first, partition.columns().len())?;
            let text = |key: &[u8]| BASE64.encode(key.get(left_out..).unwrap_or_default());
            let range = serde_json::json!({
                "version": KEYS_VERSION, "min": text(first), "max": text(last),
            });
            add("plait.key_range", range.to_string());
            let index = serde_json::json!({
                "version": KEYS_VERSION, "rows": self.key_index.iter().map(|(row, _)| *row).collect::<Vec<_>>(),
                "keys": self.key_index.iter().map(|(_, k)| text(k)).collect::<Vec<_>>(),
            });
            add("plait.key_index", index.to_string());
        }
        if let Some(zones) = self.zones.entry(self.rows) {
            add(ZONE_MAP_ENTRY, zones);
        }
        self.writer.flush().map_err(|e| unwrap_error(e.into()))?;
        if !self.type_defined.is_empty() {
            self.writer.inner_mut().hold();
        }
        let metadata = self.writer.finish().map_err(unwrap_error)?;
        let walk = self.writer.inner_mut();
        let partly_bounded = partly_bounded(&metadata, &self.type_defined);
        walk.release(|tail| {
            drop_bounds(tail, &partly_bounded)?;
            declare_type_defined(tail, &self.type_defined)
        })?;
        let outcome = check_file(walk.pages(), walk.unseen(), &metadata);
        let buffer = walk.take().ok_or_else(finished_twice)?;
        outcome.map_err(|e| {
            e.with_path(buffer.get_ref().location())
                .with_hint("nothing was published and no source was changed; please report this")
        })?;
        let mut temp = buffer.into_inner().map_err(|e| unwrap_error(e.into_error().into()))?;
        temp.sync()?;
        let bytes = temp.bytes();
        Ok(Finished { temp, rows: self.rows, bytes, row_groups: self.row_groups, key_range })
    }
}

fn finished_twice() -> Error {
    Error::new(Kind::Internal, "an output is finished twice")
}

/// What is said of a chunk that is copied: as much as is wanted, counted if the source does not say
/// it.
///
/// # Errors
/// Whatever is wrong with the source.
pub(crate) fn complete(
    weaving: &WeaveContext,
    leaf: &OutputLeaf,
    group: RowGroupOf<'_>,
    mut close: ColumnCloseResult,
) -> Result<ColumnCloseResult> {
    let properties = &weaving.properties;
    let wanted = properties.statistics_enabled(leaf.descr.path());
    if ValueOrder::of(&leaf.descr) == ValueOrder::None {
        close.column_index = None;
    }
    if let Some(index) = leaf.adapter(group.source.id)?.leaf()
        && wanted != EnabledStatistics::None
        && (!is_told(group.source, group.index, index)? || close.metadata.statistics().is_none())
    {
        close = recount(close, group, leaf, Cut::of(properties), &weaving.cache, &weaving.context)?;
    }
    chunk::trim(close, wanted)
}

/// Begins a row group whose `chunks` the store copies: zeros stand for them here.
fn begin_unseen<'a>(
    writer: &'a mut FileWriter,
    source: &Source,
    chunks: &[OpenedChunk],
) -> Result<Group<'a>> {
    writer.flush().map_err(|e| unwrap_error(e.into()))?;
    let walk = writer.inner_mut();
    for range in chunks.iter().filter_map(|opened| opened.chunk.unseen()) {
        walk.expect_unseen(range.end - range.start);
        let file = walk.inner_mut().ok_or_else(finished_twice)?;
        file.get_mut().copy(&source.store, range.clone())?;
    }
    writer.next_row_group().map_err(unwrap_error)
}

/// Begins a row group, whose pages are noted. What came before is flushed.
fn begin(writer: &mut FileWriter) -> Result<Group<'_>> {
    let start = writer.bytes_written() as u64;
    writer.inner_mut().expect_pages(start);
    writer.next_row_group().map_err(unwrap_error)
}

type FileWriter = SerializedFileWriter<Walk<BufWriter<TempFile>>>;

/// A row group that is being written.
pub(crate) type Group<'a> = SerializedRowGroupWriter<'a, Walk<BufWriter<TempFile>>>;

/// Appends a woven chunk, whose floats are in `order`.
///
/// # Errors
/// Whatever is wrong with the storage.
pub(crate) fn append(group: &mut Group<'_>, chunk: Chunk, order: FloatOrder) -> Result<()> {
    let close = order.apply(chunk.close)?;
    group.append_column(&chunk.bytes, close).map_err(unwrap_error)
}
