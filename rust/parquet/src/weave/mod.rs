//! Copies rows: steps in, one encoded column chunk out, leaf by leaf.
//!
//! ```text
//! steps      (0, 4) (1, 1) (0, 6) …
//! source 0   … ▓▓ ▓ …            cursors: blocks of pages
//! source 1   ░ …
//! chunk      ▓▓ ░ ▓ ──▶ pages    as ids of one dictionary, as plain values, or as they are stored
//! ```
//!
//! # Invariants
//! The only place that copies rows. Rows of one source are taken in order, so every source is read
//! once and forward. The chunk has exactly as many rows as the steps. What a chunk is made of
//! depends on the sources and the options, never on threads.
//!
//! # Cost
//! One page of every source that has rows in the window; the packed chunk. Pages that windows share
//! stay open between them as far as a share of the memory limit allows.
//!
//! # Not here
//! Deciding the order (`plait_core::plan`); splicing whole row groups (`chunk`).

mod carried;
mod cursor;
mod dictionaries;
mod gather;
mod output;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use parquet::basic::{Compression, Encoding, Type as Physical};
use parquet::file::properties::{WriterPropertiesPtr, WriterVersion};
use plait_core::SourceId;
use plait_core::packed_runs::PackedRuns;
use plait_core::{Error, Kind, Result};

use crate::block::index::KnownPage;
use crate::block::reader::United;
use crate::block::{BlockReader, Contents, Layout};
use crate::encode::chunk::PageRules;
use crate::encode::facts::Facts;
use crate::encode::floats::FloatOrder;
use crate::encode::ids::Ids;
use crate::encode::pack::Packers;
use crate::encode::statistics::Cut;
use crate::encode::{Chunk, PageBuffer};
use crate::leaf::{LocationCache, OutputLeaf};
use crate::page::pages::Stored;
use crate::runtime::Context;
use crate::schema::LeafAdapter;
use crate::source::Source;
use crate::spill::{SpillBuffer, Waiting};
use crate::zone::{FilterRequest, Observer};

use gather::SourceCursors;

pub(crate) use carried::Carried;
pub(crate) use dictionaries::UnionCache;
pub(crate) use output::{PageTask, SharedWork};

/// Values of one batch should not exceed this many bytes: rows of large values go in fewer.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Rows of a batch where they do not come in pages.
const BATCH_ROWS_MAX: usize = 1024;

/// What weaving needs besides the steps.
#[derive(Clone)]
pub(crate) struct WeaveContext {
    /// All sources, by id.
    pub sources: Arc<Vec<Arc<Source>>>,
    /// Properties of the output.
    pub properties: WriterPropertiesPtr,
    /// Page locations.
    pub cache: Arc<LocationCache>,
    /// Stop flag and account.
    pub context: Context,
    /// Contexts of codecs.
    pub packers: Arc<Packers>,
    /// The ZSTD level chosen for each leaf; none when the caller fixed it.
    pub levels: Option<Arc<Vec<OnceLock<i32>>>>,
    /// Dictionaries that were united for the last window.
    pub unions: Arc<UnionCache>,
    /// Open pages of the last windows.
    pub carried: Arc<Carried>,
    /// What may be copied without being decoded or encoded.
    pub tiers: Tiers,
    /// Whether the caller asked for dictionaries, or for none.
    pub asked_dictionary: Option<bool>,
    /// Whether pages that stay as they are are looked into.
    pub checks_pages: bool,
    /// Page version that the caller asked for.
    pub page_version: Option<u8>,
    /// Leaves of floats whose bounds go by the type-defined order.
    pub type_defined: Arc<BTreeSet<usize>>,
    /// Filters and value sets that are asked for, by leaf.
    pub asks: Arc<Vec<FilterRequest>>,
}

impl WeaveContext {
    /// How the footer orders the floats of `leaf`.
    #[must_use]
    pub(crate) fn float_order(&self, leaf: usize) -> FloatOrder {
        FloatOrder::of(&self.type_defined, leaf)
    }
}

/// Copy tiers of weaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tiers {
    /// Pages as they are stored.
    pub page: bool,
    /// Ids of united dictionaries.
    pub dict: bool,
}

/// Where the rows of a leaf go, page by page.
trait PageOut {
    fn page(&mut self) -> &mut PageBuffer;
    fn rows_max(&self) -> usize;
    fn bytes_max(&self) -> usize;
    fn rows_left(&self) -> usize;
    fn bytes_left(&self) -> usize;
    fn is_full(&self) -> bool;
    fn flush(&mut self) -> Result<()>;
    fn writes_ids(&self) -> bool;
    fn has_dictionary(&self) -> bool;
    fn fall_back(&mut self) -> Result<()>;
    fn takes_version(&self, version: u8) -> bool;
    fn take_over(&self, rows: usize, known: KnownPage) -> Option<Facts>;
    fn facts_of(&mut self, page: &Contents) -> Result<Facts>;
    fn splice(&mut self, stored: &Stored, facts: Facts) -> Result<()>;
    fn memory_size(&self) -> usize;
}

/// A leaf that is woven.
struct LeafContext<'a> {
    weaving: &'a WeaveContext,
    output: &'a OutputLeaf,
    layout: Layout,
    united: Option<Arc<United>>,
    batch_rows: usize,
    /// Whether pages of each source may be kept as they are.
    splices: Vec<bool>,
    /// Whether pages are made here.
    is_ours: bool,
}

impl LeafContext<'_> {
    fn context(&self) -> &Context {
        &self.weaving.context
    }

    /// Who looks at the values of a chunk of `rows` rows.
    fn observer(&self, rows: u64) -> Result<Option<Observer>> {
        let Some(ask) = self.weaving.asks.get(self.output.index) else { return Ok(None) };
        Observer::new(ask, self.layout, rows, self.context())
    }

    fn repeats(&self) -> bool {
        self.output.descr.max_rep_level() > 0
    }

    fn may_splice(&self, source: usize) -> bool {
        self.is_ours && self.splices.get(source).copied().unwrap_or(false)
    }

    fn open(&self, source: usize, row: u64) -> Result<BlockReader> {
        let weaving = self.weaving;
        let source = weaving
            .sources
            .get(source)
            .ok_or_else(|| Error::new(Kind::Internal, "a run names a source that is not there"))?;
        let united = self.united.as_ref();
        BlockReader::open(source, self.output, row, united, &weaving.cache, &weaving.context)
    }
}

/// How the pages of a chunk are made.
enum Make {
    /// Plain, here.
    Plain,
    /// Ids of one dictionary, here.
    Ids(Arc<United>, Arc<Ids>),
    /// Plain, here, but for pages of ids that are taken as they are: the dictionary is that of the
    /// source with most rows.
    Kept(Arc<United>, Arc<Ids>),
    /// By the parquet crate.
    Foreign,
}

/// Weaves one leaf of some output row groups that follow each other: a chunk for each of `windows`.
/// With `share`, other threads help to pack pages.
///
/// # Errors
/// Whatever is wrong with a source or with the storage for waiting chunks.
pub(crate) fn weave(
    weaving: &WeaveContext,
    output: &OutputLeaf,
    windows: &[&PackedRuns],
    waiting: &Arc<Waiting>,
    share: Option<&dyn SharedWork>,
) -> Result<Vec<Chunk>> {
    let codec = weaving.properties.compression(output.descr.path());
    let may_splice = |source: &Arc<Source>| weaving.tiers.page && may_splice(source, output, codec);
    let mut leaf = LeafContext {
        weaving,
        output,
        layout: Layout::of(&output.descr),
        united: None,
        batch_rows: batch_rows(weaving, output),
        splices: weaving.sources.iter().map(may_splice).collect(),
        is_ours: true,
    };
    let mut cursors = SourceCursors::new(weaving, windows, weaving.carried.take(output.index));
    let mut chunks = Vec::with_capacity(windows.len());
    for steps in windows {
        let make = how(weaving, output, steps, &leaf.splices, &mut cursors)?;
        let spill = SpillBuffer::new(waiting);
        leaf.is_ours = !matches!(make, Make::Foreign);
        let rules = rules(weaving, output, codec);
        let chunk = match make {
            Make::Foreign => {
                leaf.united = None;
                output::foreign(&leaf, &mut cursors, steps, spill)?
            }
            Make::Plain => {
                leaf.united = None;
                output::ours(&leaf, &mut cursors, steps, rules, None, spill, share)?
            }
            Make::Ids(united, ids) => {
                leaf.united = Some(united);
                output::ours(&leaf, &mut cursors, steps, rules, Some((ids, true)), spill, share)?
            }
            Make::Kept(united, ids) => {
                leaf.united = Some(united);
                output::ours(&leaf, &mut cursors, steps, rules, Some((ids, false)), spill, share)?
            }
        };
        if chunk.close.rows_written != steps.rows() {
            return Err(Error::new(
                Kind::Internal,
                "a woven chunk has another number of rows than its runs",
            )
            .with_column(output.descr.path().string())
            .with_got(format!(
                "{} rows instead of {}",
                chunk.close.rows_written,
                steps.rows()
            )));
        }
        chunks.push(chunk);
    }
    weaving.carried.keep(output.index, cursors, &weaving.context);
    Ok(chunks)
}

/// How the pages of a chunk are made; `splices` says whose pages may be kept as they are.
fn how(
    weaving: &WeaveContext,
    output: &OutputLeaf,
    steps: &PackedRuns,
    splices: &[bool],
    cursors: &mut SourceCursors,
) -> Result<Make> {
    let path = output.descr.path();
    let is_boolean = output.descr.physical_type() == Physical::BOOLEAN;
    let is_special = !matches!(weaving.properties.encoding(path), None | Some(Encoding::PLAIN));
    if (is_special && !is_boolean) || output.descr.max_def_level() > i16::from(u8::MAX) {
        return Ok(Make::Foreign);
    }
    let wants_dictionary = weaving.properties.dictionary_enabled(path);
    if is_boolean || (!wants_dictionary && weaving.asked_dictionary.is_some()) {
        return Ok(Make::Plain);
    }
    let otherwise = match wants_dictionary {
        true if !weaving.tiers.dict => Make::Foreign,
        true => match dictionaries::unite(weaving, output, steps)? {
            dictionaries::UnionOutcome::Pays(united, ids) => return Ok(Make::Ids(united, ids)),
            dictionaries::UnionOutcome::IsTooLarge => Make::Plain,
            dictionaries::UnionOutcome::IsIncomplete => Make::Foreign,
        },
        false => Make::Plain,
    };
    Ok(match dictionaries::of_owner(weaving, output, steps, splices, cursors)? {
        Some((united, ids)) => Make::Kept(united, ids),
        None => otherwise,
    })
}

/// Whether pages of `source` have the shape and the codec of the output.
fn may_splice(source: &Source, output: &OutputLeaf, codec: Compression) -> bool {
    let Ok(LeafAdapter::Same { leaf, levels }) = output.adapter(source.id) else { return false };
    levels.is_identity()
        && *source.leaf(*leaf) == *output.descr
        && source.meta.row_groups().iter().all(|group| {
            group.columns().get(*leaf).is_some_and(|chunk| {
                std::mem::discriminant(&chunk.compression()) == std::mem::discriminant(&codec)
            })
        })
}

fn rules<'a>(weaving: &'a WeaveContext, output: &OutputLeaf, codec: Compression) -> PageRules<'a> {
    let properties = &weaving.properties;
    let level = weaving.levels.as_ref().and_then(|levels| levels.get(output.index));
    PageRules {
        rows_max: properties.data_page_row_count_limit().max(1),
        bytes_max: properties.column_data_page_size_limit(output.descr.path()).max(1),
        is_v2: properties.writer_version() == WriterVersion::PARQUET_2_0,
        codec,
        level,
        cut: Cut::of(properties),
        statistics: properties.statistics_enabled(output.descr.path()),
        floats: weaving.float_order(output.index),
    }
}

/// How many rows of this leaf go at once, from the average size of its values.
fn batch_rows(weaving: &WeaveContext, output: &OutputLeaf) -> usize {
    let mut row_bytes_max = 1;
    for source in weaving.sources.iter() {
        let Some(leaf) = output.adapter(source.id).ok().and_then(LeafAdapter::leaf) else {
            continue;
        };
        for group in source.meta.row_groups() {
            let bytes = u64::try_from(group.column(leaf).uncompressed_size()).unwrap_or(0);
            let rows = u64::try_from(group.num_rows()).unwrap_or(0).max(1);
            row_bytes_max = row_bytes_max.max(bytes / rows);
        }
    }
    usize::try_from(BATCH_BYTES_MAX as u64 / row_bytes_max).unwrap_or(1).clamp(1, BATCH_ROWS_MAX)
}

/// A source by its index.
fn source_of(weaving: &WeaveContext, id: SourceId) -> Result<&Arc<Source>> {
    weaving
        .sources
        .get(id.index())
        .ok_or_else(|| Error::new(Kind::Internal, "a run names a source that is not there"))
}
