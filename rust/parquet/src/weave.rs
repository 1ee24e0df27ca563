//! Copies rows: runs in, one encoded column chunk out, leaf by leaf.
//!
//! ```text
//! runs     [0: 4+2] [1: 0+1] [0: 6+1]
//! source 0   … ▓▓ ▓ …           span of levels + span of values under it
//! source 1   ░ …
//! chunk      ▓▓ ░ ▓ ──▶ column writer ──▶ pages
//! ```
//!
//! # Invariants
//! The only place that copies rows. Rows of one source are taken in order, so every source is read
//! once and forward. The chunk has exactly `runs.rows()` rows.
//!
//! # Cost
//! One span per source and one page each; the encoded chunk.
//!
//! # Not here
//! Deciding the order (`plait_core::plan`); splicing whole row groups (`chunk`).

use std::sync::Arc;

use parquet::column::writer::{ColumnCloseResult, get_column_writer, get_typed_column_writer};
use parquet::data_type::DataType;
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use plait_core::run::{Run, Runs};
use plait_core::{Error, Kind, Result};

use crate::context::Context;
use crate::leaf::{self, Leaf, LocationCache, OutputLeaf, Span, with_physical};
use crate::page::unwrap_error;
use crate::schema::LeafAdapter;
use crate::source::Source;
use crate::spill::SpillBuffer;

/// Rows per decoded span and per write. Large enough to amortise dispatch, small enough that 1,000
/// sources of 16-byte values stay under 20 MB.
const SPAN_ROWS_MAX: usize = 1024;

/// Values of one span should not exceed this many bytes: rows of large values are read in fewer.
const SPAN_BYTES_MAX: u64 = 1 << 20;

/// An encoded column chunk that waits for its place in the row group.
pub struct Chunk {
    /// The bytes, from the first page on.
    pub bytes: SpillBuffer,
    /// What the footer needs to know.
    pub close: ColumnCloseResult,
}

/// What weaving needs besides the runs.
#[derive(Clone)]
pub struct Loom {
    /// All sources, by id.
    pub sources: Arc<Vec<Arc<Source>>>,
    /// Properties of the output.
    pub properties: WriterPropertiesPtr,
    /// Page locations.
    pub cache: Arc<LocationCache>,
    /// A chunk larger than this waits on disk.
    pub spill_bytes: usize,
    /// Where it waits.
    pub spill_dir: std::path::PathBuf,
    /// Stop flag and account.
    pub context: Context,
}

/// Weaves one leaf of one output row group.
///
/// # Errors
/// Whatever is wrong with a source or with the storage for waiting chunks.
pub fn weave(loom: &Loom, output: &OutputLeaf, runs: &Runs) -> Result<Chunk> {
    with_physical!(output.descr.physical_type(), T => weave_typed::<T>(loom, output, runs))
}

fn weave_typed<T: DataType>(loom: &Loom, output: &OutputLeaf, runs: &Runs) -> Result<Chunk> {
    let spill = SpillBuffer::new(&loom.spill_dir, loom.spill_bytes, &loom.context);
    let mut sink = TrackedWrite::new(spill);
    let page_writer = Box::new(SerializedPageWriter::new(&mut sink));
    let writer =
        get_column_writer(Arc::clone(&output.descr), Arc::clone(&loom.properties), page_writer);
    let mut writer = get_typed_column_writer::<T>(writer);

    let span_rows = span_rows(loom, output);
    let mut lanes = lanes::<T>(loom, runs);
    let mut woven = Woven::<T>::new(output);
    let mut charge = loom.context.charge(0);
    for run in runs.as_slice() {
        let mut run = *run;
        while run.len > 0 {
            let room = span_rows - woven.rows;
            let lane = lanes[run.source.index()].as_mut().ok_or_else(no_lane)?;
            if lane.rows_here() == 0 {
                lane.fill(loom, output, run, span_rows)?;
            }
            let taken = (run.len as usize).min(room).min(lane.rows_here());
            lane.copy_to(&mut woven, taken);
            run.start += taken as u64;
            run.len -= u32::try_from(taken).unwrap_or(run.len);
            if woven.rows == span_rows {
                let lanes_size: usize = lanes.iter().flatten().map(Lane::memory_size).sum();
                charge.set(lanes_size + woven.span.memory_size() + writer_size(&writer));
                woven.flush(&mut writer)?;
            }
        }
    }
    woven.flush(&mut writer)?;
    drop(lanes);
    let mut close = writer.close().map_err(|e| encode_error(e, output))?;
    if !is_right(&close, output) {
        close.column_index = None;
    }
    let bytes = sink.into_inner().map_err(|e| encode_error(e, output))?;
    if close.rows_written != runs.rows() {
        return Err(Error::new(
            Kind::Internal,
            "a woven chunk has another number of rows than its runs",
        )
        .with_column(output.descr.path().string())
        .with_got(format!("{} rows instead of {}", close.rows_written, runs.rows())));
    }
    Ok(Chunk { bytes, close })
}

/// Whether pages called null in the column index are: the parquet crate compares nulls with rows,
/// which takes a page of repeated values for null when the numbers happen to agree. A reader would
/// skip its values.
fn is_right(close: &ColumnCloseResult, output: &OutputLeaf) -> bool {
    let Some(index) = &close.column_index else { return true };
    if output.descr.max_rep_level() == 0 {
        return true;
    }
    let value_level = usize::try_from(output.descr.max_def_level()).unwrap_or(0);
    (0..usize::try_from(index.num_pages()).unwrap_or(0)).all(|page| {
        let levels = index.definition_level_histogram(page);
        let values = levels.and_then(|levels| levels.get(value_level)).copied();
        !index.is_null_page(page) || values == Some(0)
    })
}

fn writer_size<T: DataType>(writer: &parquet::column::writer::ColumnWriterImpl<'_, T>) -> usize {
    usize::try_from(writer.get_total_bytes_written()).map_or(0, |n| n.min(2 << 20))
}

/// How many rows a span of this leaf may have, from the average size of its values.
fn span_rows(loom: &Loom, output: &OutputLeaf) -> usize {
    let mut row_bytes_max = 1;
    for source in loom.sources.iter() {
        let Some(leaf) = output.adapter(source.id).ok().and_then(LeafAdapter::leaf) else {
            continue;
        };
        for group in source.meta.row_groups() {
            let bytes = u64::try_from(group.column(leaf).uncompressed_size()).unwrap_or(0);
            let rows = u64::try_from(group.num_rows()).unwrap_or(0).max(1);
            row_bytes_max = row_bytes_max.max(bytes / rows);
        }
    }
    usize::try_from(SPAN_BYTES_MAX / row_bytes_max).unwrap_or(1).clamp(1, SPAN_ROWS_MAX)
}

fn no_lane() -> Error {
    Error::new(Kind::Internal, "a run names a source without a lane")
}

fn encode_error(error: parquet::errors::ParquetError, output: &OutputLeaf) -> Error {
    unwrap_error(error).with_column(output.descr.path().string())
}

/// One source's rows on their way into the chunk.
struct Lane<T: DataType> {
    leaf: Option<Box<dyn Leaf<T>>>,
    span: Span<T::T>,
    /// Rows of the span that are left, and where the next one begins.
    rows: usize,
    level: usize,
    value: usize,
    /// One past the last row this window takes from the source.
    end: u64,
    max_rep: i16,
    max_def: i16,
}

/// A lane for every source that has a run, by source index.
fn lanes<T: DataType>(loom: &Loom, runs: &Runs) -> Vec<Option<Lane<T>>> {
    let mut lanes: Vec<Option<Lane<T>>> = loom.sources.iter().map(|_| None).collect();
    for run in runs.as_slice() {
        if let Some(slot) = lanes.get_mut(run.source.index()) {
            let lane = slot.get_or_insert_with(|| Lane {
                leaf: None,
                span: Span::default(),
                rows: 0,
                level: 0,
                value: 0,
                end: 0,
                max_rep: 0,
                max_def: 0,
            });
            lane.end = lane.end.max(run.end());
        }
    }
    lanes
}

impl<T: DataType> Lane<T> {
    fn rows_here(&self) -> usize {
        self.rows
    }

    fn memory_size(&self) -> usize {
        self.span.memory_size()
    }

    fn fill(&mut self, loom: &Loom, output: &OutputLeaf, run: Run, span_rows: usize) -> Result<()> {
        if self.leaf.is_none() {
            let source = &loom.sources[run.source.index()];
            self.leaf =
                Some(leaf::open::<T>(source, output, run.start, &loom.cache, &loom.context)?);
            self.max_rep = output.descr.max_rep_level();
            self.max_def = output.descr.max_def_level();
        }
        let Some(leaf) = &mut self.leaf else { return Err(no_lane()) };
        let wanted = usize::try_from(self.end - run.start).unwrap_or(usize::MAX).min(span_rows);
        self.span.clear();
        (self.level, self.value) = (0, 0);
        self.rows = leaf.read(wanted, &mut self.span)?;
        if self.rows == 0 {
            return Err(Error::new(Kind::Internal, "a run reaches behind the end of its source")
                .with_row(run.start));
        }
        Ok(())
    }

    /// Moves the next `rows` rows, which are here, to `woven`.
    #[inline]
    fn copy_to(&mut self, woven: &mut Woven<T>, rows: usize) {
        let values = if self.max_rep > 0 {
            let from = self.level;
            let mut to = from + 1;
            let mut started = 1;
            // The row ends where the next one starts.
            while to < self.span.rep.len() {
                if self.span.rep[to] == 0 {
                    if started == rows {
                        break;
                    }
                    started += 1;
                }
                to += 1;
            }
            woven.span.rep.extend_from_slice(&self.span.rep[from..to]);
            self.take_levels(woven, to)
        } else if self.max_def > 0 {
            self.take_levels(woven, self.level + rows)
        } else {
            rows
        };
        let range = self.value..self.value + values;
        if const { std::mem::needs_drop::<T::T>() } {
            // Values that point into pages are moved: no reference is counted up and down.
            woven.span.values.extend(self.span.values[range].iter_mut().map(std::mem::take));
        } else {
            woven.span.values.extend_from_slice(&self.span.values[range]);
        }
        self.value += values;
        self.rows -= rows;
        woven.rows += rows;
    }

    /// Copies definition levels up to entry `to` and counts the values under them.
    #[inline]
    fn take_levels(&mut self, woven: &mut Woven<T>, to: usize) -> usize {
        let def = &self.span.def[self.level..to];
        woven.span.def.extend_from_slice(def);
        self.level = to;
        def.iter().filter(|&&d| d == self.max_def).count()
    }
}

/// Rows on their way into the column writer.
struct Woven<T: DataType> {
    span: Span<T::T>,
    rows: usize,
    has_def: bool,
    has_rep: bool,
}

impl<T: DataType> Woven<T> {
    fn new(output: &OutputLeaf) -> Self {
        let descr = &output.descr;
        Self {
            span: Span::default(),
            rows: 0,
            has_def: descr.max_def_level() > 0,
            has_rep: descr.max_rep_level() > 0,
        }
    }

    fn flush(
        &mut self,
        writer: &mut parquet::column::writer::ColumnWriterImpl<'_, T>,
    ) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let def = self.has_def.then_some(self.span.def.as_slice());
        let rep = self.has_rep.then_some(self.span.rep.as_slice());
        writer.write_batch(&self.span.values, def, rep).map_err(unwrap_error)?;
        self.span.clear();
        self.rows = 0;
        Ok(())
    }
}
