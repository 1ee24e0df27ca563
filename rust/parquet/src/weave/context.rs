//! What weaving needs: of a whole output, of one leaf, and of whatever takes the rows.
//!
//! # Not here
//! How the pages of a leaf are made (`weave`); the loop that copies rows (`gather`).

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use parquet::basic::Encoding;
use parquet::file::properties::WriterPropertiesPtr;
use plait_core::SourceId;
use plait_core::{Error, Kind, Result};

use super::carried::Carried;
use super::footers::LeafFooters;
use super::share::SharedWork;
use super::tiers::Tiers;
use super::unions::UnionCache;
use crate::block::index::KnownPage;
use crate::block::reader::United;
use crate::block::{BlockReader, Contents, Layout};
use crate::encode::PageBuffer;
use crate::encode::facts::Facts;
use crate::encode::floats::FloatOrder;
use crate::encode::pack::{Packers, ZstdTrial};
use crate::leaf::{LocationCache, OutputLeaf};
use crate::options::{EncodingOption, VerifyPages};
use crate::page::pages::Stored;
use crate::runtime::Context;
use crate::source::Source;
use crate::zone::{FilterRequest, Observer};

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
    /// How ZSTD packs each leaf; none when the caller fixed its level.
    pub zstd: Option<Arc<Vec<ZstdTrial>>>,
    /// The encodings that are tried, and the one chosen for each leaf; none if none is tried.
    pub encodings: Option<Arc<TriedEncodings>>,
    /// Dictionaries that were united for the last window.
    pub unions: Arc<UnionCache>,
    /// Open pages of the last windows.
    pub carried: Arc<Carried>,
    /// What may be copied without being decoded or encoded.
    pub tiers: Tiers,
    /// Whether the caller asked for dictionaries, or for none.
    pub asked_dictionary: Option<bool>,
    /// How pages that stay as they are are checked.
    pub verify_pages: VerifyPages,
    /// Whether object stores may copy row groups themselves.
    pub server_side_copy: bool,
    /// Page version that the caller asked for.
    pub page_version: Option<u8>,
    /// Leaves of floats whose bounds go by the type-defined order.
    pub type_defined: Arc<BTreeSet<usize>>,
    /// Filters and value sets that are asked for, by leaf.
    pub asks: Arc<Vec<FilterRequest>>,
    /// What footers say of each leaf.
    pub footers: Arc<LeafFooters>,
}

impl WeaveContext {
    /// How the footer orders the floats of `leaf`.
    #[must_use]
    pub(crate) fn float_order(&self, leaf: usize) -> FloatOrder {
        FloatOrder::of(&self.type_defined, leaf)
    }
}

/// Encodings of values that are tried, leaf by leaf.
pub(crate) struct TriedEncodings {
    /// Which.
    pub asked: EncodingOption,
    /// What was chosen.
    pub chosen: Vec<OnceLock<Encoding>>,
}

impl TriedEncodings {
    /// Of so many leaves; none if there is nothing to try.
    #[must_use]
    pub(crate) fn new(asked: EncodingOption, leaves: usize) -> Option<Arc<Self>> {
        let chosen = (0..leaves).map(|_| OnceLock::new()).collect();
        (asked != EncodingOption::Sources).then(|| Arc::new(Self { asked, chosen }))
    }
}

/// Where the rows of a leaf go, page by page.
pub(super) trait PageOut {
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
pub(super) struct LeafContext<'a> {
    pub(super) weaving: &'a WeaveContext,
    pub(super) output: &'a OutputLeaf,
    pub(super) layout: Layout,
    pub(super) united: Option<Arc<United>>,
    pub(super) batch_rows: usize,
    /// Whether pages of each source may be kept as they are.
    pub(super) splices: &'a [bool],
    /// Whether pages are made here.
    pub(super) is_ours: bool,
    /// Threads that help, if there are any.
    pub(super) share: Option<&'a dyn SharedWork>,
}

impl LeafContext<'_> {
    pub(super) fn context(&self) -> &Context {
        &self.weaving.context
    }

    /// Who looks at the values of a chunk of `rows` rows.
    pub(super) fn observer(&self, rows: u64) -> Result<Option<Observer>> {
        let Some(ask) = self.weaving.asks.get(self.output.index) else { return Ok(None) };
        Observer::new(ask, self.layout, rows, self.context())
    }

    pub(super) fn repeats(&self) -> bool {
        self.output.descr.max_rep_level() > 0
    }

    pub(super) fn may_splice(&self, source: usize) -> bool {
        self.is_ours && self.splices.get(source).copied().unwrap_or(false)
    }

    pub(super) fn open(&self, source: usize, row: u64) -> Result<BlockReader> {
        let weaving = self.weaving;
        let source = weaving
            .sources
            .get(source)
            .ok_or_else(|| Error::new(Kind::Internal, "a run names a source that is not there"))?;
        let united = self.united.as_ref();
        BlockReader::open(source, self.output, row, united, &weaving.cache, &weaving.context)
    }
}

/// A source by its index.
pub(super) fn source_of(weaving: &WeaveContext, id: SourceId) -> Result<&Arc<Source>> {
    weaving
        .sources
        .get(id.index())
        .ok_or_else(|| Error::new(Kind::Internal, "a run names a source that is not there"))
}
