//! Where woven rows go: pages made here, or by the parquet crate's writer.
//!
//! ```text
//! ours      page ─▶ pack ─▶ chunk            threads that are idle help to pack
//! foreign   page ─▶ typed values ─▶ writer    whoever is idle, and written in order
//! ```
//!
//! # Not here
//! Which of the two (`weave`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parquet::column::writer::{ColumnCloseResult, get_column_writer, get_typed_column_writer};
use parquet::data_type::DataType;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;
use plait_core::packed_runs::PackedRuns;
use plait_core::{Error, Kind, Result};

use super::context::{LeafContext, PageOut};
use super::cursors::SourceCursors;
use super::gather::{NextMade, gather};
use super::share::SharedWork;
use super::sorted::HeldRows;
use crate::block::index::KnownPage;
use crate::block::{Contents, Layout};
use crate::check::is_true;
use crate::encode::bounds::ValueOrder;
use crate::encode::chunk::{ChunkWriter, PackedPage, PageRules, RawPage, Verbatim, pack};
use crate::encode::facts::Facts;
use crate::encode::foreign::{FromPlain, write_page};
use crate::encode::ids::Ids;
use crate::encode::pack::{Codec, Packers};
use crate::encode::statistics::{Cut, without_bounds};
use crate::encode::{Chunk, PageBuffer};
use crate::leaf::{OutputLeaf, with_physical};
use crate::page::pages::Stored;
use crate::page::unwrap_error;
use crate::runtime::Context;
use crate::spill::SpillBuffer;
use crate::zone::Observer;

/// The pages of a chunk that are made here.
#[derive(Clone)]
pub(super) enum OwnPages {
    /// Plain values.
    Plain,
    /// Ids of one dictionary.
    Ids(Arc<Ids>),
    /// Plain values; pages of ids that are taken as they are have this dictionary.
    PlainWithDictionary(Arc<Ids>),
}

/// The rows of a chunk, and in which order they come.
pub(super) enum RowOrder<'a> {
    /// As the runs of a merge say. Rows of the source behind all others are made.
    Woven(&'a mut SourceCursors, &'a PackedRuns, NextMade<'a>),
    /// In any order.
    Sorted(&'a HeldRows, &'a [u32]),
}

impl RowOrder<'_> {
    fn rows(&self) -> u64 {
        match self {
            Self::Woven(_, steps, _) => steps.rows(),
            Self::Sorted(_, order) => order.len() as u64,
        }
    }

    fn copy(self, leaf: &LeafContext<'_>, out: &mut impl PageOut) -> Result<()> {
        match self {
            Self::Woven(cursors, steps, made) => gather(leaf, cursors, steps, made, out),
            Self::Sorted(held, order) => held.copy(order, out),
        }
    }
}

/// Copies the rows of a leaf into pages that are made here.
pub(super) fn ours(
    leaf: &LeafContext<'_>,
    rows: RowOrder<'_>,
    rules: PageRules<'_>,
    pages: OwnPages,
    spill: SpillBuffer,
) -> Result<Chunk> {
    let descr = &leaf.output.descr;
    let keeps_dictionary = matches!(pages, OwnPages::PlainWithDictionary(_));
    let ids = match pages {
        OwnPages::Plain => None,
        OwnPages::Ids(ids) | OwnPages::PlainWithDictionary(ids) => Some(ids),
    };
    let mut writer = ChunkWriter::new(descr, rules, &leaf.weaving.packers, ids, spill)
        .with_observer(leaf.observer(rows.rows())?);
    if keeps_dictionary {
        writer.keep_dictionary();
    }
    let mut out = Ours { leaf, writer, rules, waiting: VecDeque::new() };
    rows.copy(leaf, &mut out)?;
    out.pack_waiting()?;
    out.writer.close()
}

struct Ours<'a> {
    leaf: &'a LeafContext<'a>,
    writer: ChunkWriter<'a>,
    rules: PageRules<'a>,
    /// Pages that are packed here or elsewhere, in order.
    waiting: VecDeque<Arc<WaitingPage>>,
}

impl Ours<'_> {
    /// Gives the page under construction to whoever comes first.
    fn offer(&mut self, share: &dyn SharedWork) -> Result<()> {
        let Some(raw) = self.writer.take_page()? else { return Ok(()) };
        let waiting = Arc::new(WaitingPage {
            bytes: raw.memory_size(),
            codec: self.writer.codec(&raw)?,
            is_v2: self.rules.is_v2,
            packers: Arc::clone(&self.leaf.weaving.packers),
            page: Mutex::new(PageState::Raw(raw)),
        });
        self.waiting.push_back(Arc::clone(&waiting));
        share.offer(Arc::new(move || waiting.pack()));
        self.write_waiting(share.pages())
    }

    /// Writes pages until at most `left` wait, and packs what nobody has begun instead of waiting.
    fn write_waiting(&mut self, left: usize) -> Result<()> {
        while self.waiting.len() > left {
            self.leaf.context().check_cancelled()?;
            let Some(first) = self.waiting.front() else { break };
            if let Some(packed) = first.take_packed() {
                self.waiting.pop_front();
                self.writer.write(packed?)?;
            } else if !self.waiting.iter().any(|page| page.try_pack()) {
                first.pack(); // until whoever packs it is done
                if first.is_gone() {
                    return Err(Error::new(Kind::Internal, "a page was not packed"));
                }
            }
        }
        Ok(())
    }

    fn pack_waiting(&mut self) -> Result<()> {
        self.write_waiting(0)
    }
}

/// A page between weaving and writing. Whoever packs it holds it locked.
struct WaitingPage {
    bytes: usize,
    codec: Codec,
    is_v2: bool,
    packers: Arc<Packers>,
    page: Mutex<PageState>,
}

enum PageState {
    Raw(RawPage),
    Packed(Result<PackedPage>),
    Gone,
}

impl WaitingPage {
    fn lock(&self) -> MutexGuard<'_, PageState> {
        self.page.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Packs the page if nobody has; if somebody does, returns when it is done.
    fn pack(&self) {
        self.pack_locked(&mut self.lock());
    }

    /// Packs the page if nobody has begun; whether that was so.
    fn try_pack(&self) -> bool {
        let Ok(mut page) = self.page.try_lock() else { return false };
        let is_raw = matches!(*page, PageState::Raw(_));
        self.pack_locked(&mut page);
        is_raw
    }

    fn pack_locked(&self, page: &mut PageState) {
        *page = match std::mem::replace(page, PageState::Gone) {
            PageState::Raw(raw) => {
                PageState::Packed(pack(raw, self.codec, self.is_v2, &self.packers))
            }
            other => other,
        };
    }

    /// The packed page, if it is packed.
    fn take_packed(&self) -> Option<Result<PackedPage>> {
        let mut page = self.page.try_lock().ok()?;
        match std::mem::replace(&mut *page, PageState::Gone) {
            PageState::Packed(packed) => Some(packed),
            other => {
                *page = other;
                None
            }
        }
    }

    /// Whether whoever packed the page panicked.
    fn is_gone(&self) -> bool {
        matches!(*self.lock(), PageState::Gone)
    }
}

impl PageOut for Ours<'_> {
    fn page(&mut self) -> &mut PageBuffer {
        &mut self.writer.page
    }

    fn rows_max(&self) -> usize {
        self.rules.rows_max
    }

    fn bytes_max(&self) -> usize {
        self.rules.bytes_max
    }

    fn rows_left(&self) -> usize {
        self.writer.rows_left()
    }

    fn bytes_left(&self) -> usize {
        self.rules.bytes_max.saturating_sub(self.writer.page.values().len())
    }

    fn is_full(&self) -> bool {
        self.writer.is_full()
    }

    fn flush(&mut self) -> Result<()> {
        self.leaf.context().check_cancelled()?;
        match self.leaf.share {
            Some(share) if !self.waiting.is_empty() || share.idle() > 0 => self.offer(share),
            _ => self.writer.flush(),
        }
    }

    fn writes_ids(&self) -> bool {
        self.writer.writes_ids()
    }

    fn has_dictionary(&self) -> bool {
        self.writer.has_dictionary()
    }

    fn fall_back(&mut self) -> Result<()> {
        self.pack_waiting()?;
        self.writer.fall_back();
        Ok(())
    }

    fn takes_version(&self, version: u8) -> bool {
        self.leaf.weaving.page_version.is_none_or(|asked| asked == version)
    }

    fn take_over(&self, rows: usize, known: KnownPage) -> Option<Facts> {
        self.writer.take_over(rows, known)
    }

    fn facts_of(&mut self, page: &Contents) -> Result<Facts> {
        self.writer.facts_of(page)
    }

    fn splice(&mut self, stored: &Stored, facts: Facts) -> Result<()> {
        self.pack_waiting()?;
        self.writer.splice(stored, facts)
    }

    fn memory_size(&self) -> usize {
        let waiting: usize = self.waiting.iter().map(|page| page.bytes).sum();
        self.writer.memory_size() + waiting
    }
}

/// Copies the rows of a leaf into pages that the parquet crate makes.
pub(super) fn foreign(
    leaf: &LeafContext<'_>,
    rows: RowOrder<'_>,
    spill: SpillBuffer,
) -> Result<Chunk> {
    with_physical!(leaf.output.descr.physical_type(), T => foreign_typed::<T>(leaf, rows, spill))
}

fn foreign_typed<T: DataType>(
    leaf: &LeafContext<'_>,
    rows: RowOrder<'_>,
    spill: SpillBuffer,
) -> Result<Chunk>
where
    T::T: FromPlain,
{
    let output = leaf.output;
    let properties = &leaf.weaving.properties;
    let descr = &output.descr;
    let (rep_max, def_max) = (descr.max_rep_level(), descr.max_def_level());
    let level = |max: i16| u8::try_from(max).unwrap_or(u8::MAX);
    let mut sink = TrackedWrite::new(spill);
    let observer = leaf.observer(rows.rows())?;
    let (mut close, seen) = {
        let page_writer = Box::new(SerializedPageWriter::new(&mut sink));
        let writer = get_column_writer(Arc::clone(descr), Arc::clone(properties), page_writer);
        let mut out = Foreign::<T> {
            page: PageBuffer::new(level(rep_max), level(def_max)),
            rows_max: properties.write_batch_size().max(1),
            layout: leaf.layout,
            levels: (rep_max > 0, def_max > 0),
            def_max,
            context: leaf.context(),
            writer: get_typed_column_writer::<T>(writer),
            observer,
        };
        rows.copy(leaf, &mut out)?;
        let Foreign { writer, observer, .. } = out;
        let close = writer.close().map_err(|e| encode_error(e, output))?;
        (close, observer.map(Observer::finish).unwrap_or_default())
    };
    close.bloom_filter = seen.filter;
    if ValueOrder::of(descr) == ValueOrder::None {
        close = without_order(close, descr, Cut::of(properties))?;
    }
    close.column_index = close.column_index.filter(|columns| is_true(&output.descr, columns));
    let bytes = sink.into_inner().map_err(|e| encode_error(e, output))?;
    let verbatim = Verbatim::default();
    Ok(Chunk { bytes, close, verbatim, is_united: false, values: seen.values })
}

/// Leaves out bounds of values that have no order: the parquet crate writes some.
fn without_order(
    mut close: ColumnCloseResult,
    descr: &ColumnDescPtr,
    cut: Cut,
) -> Result<ColumnCloseResult> {
    close.column_index = None;
    if let Some(found) = close.metadata.statistics() {
        let statistics = without_bounds(descr, found, cut);
        let builder = close.metadata.into_builder().set_statistics(statistics);
        close.metadata = builder.build().map_err(unwrap_error)?;
    }
    Ok(close)
}

struct Foreign<'a, T: DataType> {
    page: PageBuffer,
    rows_max: usize,
    layout: Layout,
    levels: (bool, bool),
    def_max: i16,
    context: &'a Context,
    writer: parquet::column::writer::ColumnWriterImpl<'a, T>,
    observer: Option<Observer>,
}

impl<T: DataType> PageOut for Foreign<'_, T>
where
    T::T: FromPlain,
{
    fn page(&mut self) -> &mut PageBuffer {
        &mut self.page
    }

    fn rows_max(&self) -> usize {
        self.rows_max
    }

    fn bytes_max(&self) -> usize {
        1 << 20
    }

    fn rows_left(&self) -> usize {
        self.rows_max.saturating_sub(self.page.rows())
    }

    fn bytes_left(&self) -> usize {
        self.bytes_max().saturating_sub(self.page.values().len())
    }

    fn is_full(&self) -> bool {
        self.rows_left() == 0 || self.bytes_left() == 0
    }

    fn flush(&mut self) -> Result<()> {
        self.context.check_cancelled()?;
        if let Some(observer) = &mut self.observer {
            observer.plain(self.page.values());
            observer.nulls(self.page.levels() - self.page.value_count());
        }
        write_page::<T>(&mut self.page, self.layout, self.levels, self.def_max, &mut self.writer)
    }

    fn writes_ids(&self) -> bool {
        false
    }

    fn has_dictionary(&self) -> bool {
        false
    }

    fn fall_back(&mut self) -> Result<()> {
        Ok(())
    }

    fn takes_version(&self, _version: u8) -> bool {
        false
    }

    fn take_over(&self, _rows: usize, _known: KnownPage) -> Option<Facts> {
        None
    }

    fn facts_of(&mut self, _page: &Contents) -> Result<Facts> {
        Err(takes_no_pages())
    }

    fn splice(&mut self, _stored: &Stored, _facts: Facts) -> Result<()> {
        Err(takes_no_pages())
    }

    fn memory_size(&self) -> usize {
        let written = usize::try_from(self.writer.get_total_bytes_written()).unwrap_or(0);
        self.page.memory_size() + written.min(2 << 20)
    }
}

fn takes_no_pages() -> Error {
    Error::new(Kind::Internal, "the parquet crate's writer takes no stored pages")
}

fn encode_error(error: parquet::errors::ParquetError, output: &OutputLeaf) -> Error {
    unwrap_error(error).with_column(output.descr.path().string())
}
