//! A merge before its outputs are cut: sources of one schema and order, and what is known of their keys.
//!
//! ```text
//! sources ─ merged ─▶ schema, order ─ bounds ─▶ keys ─▶ Draft ─ cut (`make`) ─▶ trials, Plan
//! ```
//!
//! # Invariants
//! Nothing is written. What is known depends on the sources, their order and the options alone.
//!
//! # Not here
//! Cutting it (`make`).

use std::sync::Arc;

use plait_core::key::SortOrder;
use plait_core::region::{Bounds, sweep};
use plait_core::workers::each;
use plait_core::{Error, Kind, Result};

use super::bounds::{KeyTrust, key_values, known_keys};
use super::entries::merge_level;
use super::footers::{FooterNumbers, FooterPass, PlanFooters};
use super::key_samples::KeySamples;
use super::merged::MergedFiles;
use super::packed::PlanSources;
use super::planned_source::{KeyBase64, KeysFrom, PlanSource};
use super::source_keys::{Known, Reading, SourceKeys};
use crate::drops;
use crate::files::{open_merged, readers};
use crate::keys::KeyLeaves;
use crate::leaf::{LocationCache, OutputLeaf, output_leaves};
use crate::options::MergeOptions;
use crate::order::key_leaves;
use crate::partition;
use crate::properties::{Encodings, encodings};
use crate::report::Overlap;
use crate::runtime::{Context, Level, MemoryStage};
use crate::schema::Reconciled;
use crate::source::Source;
use crate::store::Stores;

/// Sources of which first and last keys are read at a time. These share a block of memory then.
const PACKED_SOURCES: usize = 4096;

/// A merge before its outputs are cut.
pub(crate) struct Draft<'a> {
    pub(super) options: &'a MergeOptions,
    pub(super) context: &'a Context,
    /// What is merged, and what that is sorted runs of; the same without runs.
    pub(super) sources: Arc<Vec<Arc<Source>>>,
    pub(super) files: Arc<Vec<Arc<Source>>>,
    pub(super) reconciled: Reconciled,
    pub(super) order: SortOrder,
    pub(super) encodings: Encodings,
    pub(super) leaves: Vec<OutputLeaf>,
    pub(super) keys: KeyLeaves,
    pub(super) cache: Arc<LocationCache>,
    pub(super) planned: PlanSources,
    /// Whether keys of some source are those of its footer.
    pub(super) trusts_footers: bool,
    pub(super) sources_keys: Vec<SourceKeys>,
    pub(super) overlap: Overlap,
    pub(super) footers: PlanFooters,
    /// Whether rows are dropped.
    pub(super) drops_rows: bool,
}

impl<'a> Draft<'a> {
    /// Opens the sources that `options` name.
    ///
    /// # Errors
    /// As those of a merge, but for those of writing.
    pub(crate) fn open(
        options: &'a MergeOptions,
        stores: &Stores,
        context: &'a Context,
    ) -> Result<Self> {
        let sources = Arc::new(open_merged(options, stores, context)?);
        Self::of_sources(options, sources, context)
    }

    /// The merge of sources that are open.
    ///
    /// # Errors
    /// As [`Draft::open`].
    pub(crate) fn of_sources(
        options: &'a MergeOptions,
        sources: Arc<Vec<Arc<Source>>>,
        context: &'a Context,
    ) -> Result<Self> {
        Self::new(options, MergedFiles::describe(options, sources)?, None, context)
    }

    /// The merge of `files`, or of the sorted runs that were made of them.
    ///
    /// # Errors
    /// As [`Draft::open`].
    pub(crate) fn new(
        options: &'a MergeOptions,
        merged: MergedFiles,
        runs: Option<Arc<Vec<Arc<Source>>>>,
        context: &'a Context,
    ) -> Result<Self> {
        let encodings = encodings(options, &merged.files, &output_leaves(&merged.reconciled))?;
        let of_runs = runs.as_ref().map(|runs| merged.reconcile(runs, options)).transpose()?;
        let MergedFiles { files, reconciled, order } = merged;
        let is_of_runs = runs.is_some();
        let sources = runs.unwrap_or_else(|| Arc::clone(&files));
        let of_sources = of_runs.as_ref().unwrap_or(&reconciled);
        let leaves = output_leaves(of_sources);
        let mut keys = key_leaves(&order, of_sources, &leaves)?;
        // Nothing else needs memory yet.
        let fits = may_keep_all(&sources, &keys, context)?;
        match fits {
            true => keys.keep_planned(context.budget()),
            false => keys.keep_a_few(context.budget()),
        }
        let drops_rows = drops::find(options, &order, of_sources, &leaves)?.is_some();
        let cache = location_cache(context);
        let reading = Reading { keys: &keys, cache: &cache, context };
        let pass = FooterPass::new(&leaves, &keys, options);
        let (numbers, known) = known_of_all(&sources, &order, &pass, options, reading)?;
        let footers = pass.end(numbers);
        if !fits {
            keys.keep_planned(context.budget());
        }
        let trusts_footers =
            known.iter().flatten().any(|(_, from)| matches!(from, KeysFrom::Footer));
        // Of sorted runs, several may be rows of one file.
        let has_deleted = |path: &str| options.deletion_vectors.contains_key(path) && !is_of_runs;
        let (planned, sources_keys) = describe(&sources, known, &keys, has_deleted)?;
        let overlap = sweep(bounds(&sources_keys)).fold(Overlap::default(), |all, region| {
            Overlap { regions: all.regions + 1, depth_max: all.depth_max.max(region.depth_max) }
        });
        context.events().record(Level::Debug, "plan", || {
            let is_indexed = |of: &&SourceKeys| of.known == Known::Footer;
            let indexed = sources_keys.iter().filter(is_indexed).count();
            format!(
                "{} sources, keys of {indexed} from footers and of {} from rows; {} regions, {} deep",
                sources.len(),
                sources_keys.len() - indexed,
                overlap.regions,
                overlap.depth_max
            )
        });
        Ok(Self {
            options,
            context,
            sources,
            files,
            reconciled,
            order,
            encodings,
            leaves,
            keys,
            cache,
            planned,
            trusts_footers,
            sources_keys,
            overlap,
            footers,
            drops_rows,
        })
    }

    /// The sources.
    pub(crate) fn sources(&self) -> &Arc<Vec<Arc<Source>>> {
        &self.sources
    }

    /// How many leading key columns stay together in one output.
    pub(super) fn cut_columns(&self) -> usize {
        match self.options.cut_on {
            Some(columns) => self.options.partition_by.len() + columns,
            None => self.keys.shape.parts(),
        }
    }

    /// Rows of all sources.
    pub(super) fn rows(&self) -> u64 {
        self.sources_keys.iter().map(SourceKeys::rows).sum()
    }

    /// Lets go of what was read of keys: it is read again if it is needed again.
    pub(super) fn forget_keys(&mut self) {
        self.keys.keep_planned(self.context.budget());
        self.cache = location_cache(self.context);
    }
}

/// Bytes that a dictionary or a page takes between look-ups, besides its own.
const KEPT_BYTES: u64 = 512;

/// Sources whose footers are looked at to tell how large key columns are.
const LOOKED_AT: usize = 16;

/// Whether what is unpacked of the first and last keys of `sources` stays until keys between these are
/// looked up. Where it does not, what stays is of no use: it is that of some of a million files.
///
/// # Errors
/// As [`Source::footer`]; [`Kind::Internal`] for a leaf that has no adapter.
fn may_keep_all(sources: &[Arc<Source>], keys: &KeyLeaves, context: &Context) -> Result<bool> {
    let (mut key_bytes, mut all_bytes) = (0_u64, 0_u64);
    for source in sources.iter().step_by(sources.len().div_ceil(LOOKED_AT).max(1)) {
        let footer = source.footer()?;
        for leaf in &keys.leaves {
            let Some(index) = leaf.adapter(source.id)?.leaf() else { continue };
            let chunks = footer.row_groups().iter().filter_map(|group| group.columns().get(index));
            let bytes = chunks.map(|chunk| chunk.uncompressed_size().max(0).unsigned_abs());
            // Nobody has checked these numbers.
            key_bytes = bytes.fold(key_bytes, u64::saturating_add);
        }
        all_bytes = all_bytes.saturating_add(source.encoded_bytes);
    }
    let share = key_bytes as f64 / all_bytes.max(1) as f64;
    let encoded = sources.iter().map(|source| source.encoded_bytes as f64).sum::<f64>();
    // A dictionary and two pages.
    let entries = 3 * KEPT_BYTES * sources.len() as u64 * keys.leaves.len() as u64;
    let room = context.budget().bytes(MemoryStage::PlannedDictionaries);
    Ok(encoded * share + entries as f64 <= room as f64)
}

fn location_cache(context: &Context) -> Arc<LocationCache> {
    let bytes = context.budget().bytes(MemoryStage::PageLocations);
    Arc::new(LocationCache::new(context, bytes))
}

/// Keys of a source that are known, at least its first and last, and from where; none without rows.
type KnownEnds = Option<(KeySamples, KeysFrom)>;

/// What the footer of each source says, and what is known of its keys if it has rows.
///
/// # Errors
/// One that names all sources that are out of order, or whatever else is wrong with one.
fn known_of_all(
    sources: &[Arc<Source>],
    order: &SortOrder,
    pass: &FooterPass<'_>,
    options: &MergeOptions,
    reading: Reading<'_>,
) -> Result<(Vec<FooterNumbers>, Vec<KnownEnds>)> {
    let trust = KeyTrust { footers: options.trust_footers, order: options.assume_sorted };
    let of = |source: &Arc<Source>| {
        reading.context.check_cancelled()?;
        let footer = source.footer()?; // decoded once for all that is read of it here
        let numbers = pass.numbers(source, &footer)?;
        let known = (source.live_rows() > 0).then(|| known_keys(source, order, trust, reading));
        match known.transpose() {
            Err(e) if e.kind() == Kind::UnsortedSource => Ok(Err(e)),
            outcome => outcome.map(|known| Ok((numbers, known))),
        }
    };
    let workers = readers(sources, options.threads, reading.context);
    let (mut numbers, mut known) =
        (Vec::with_capacity(sources.len()), Vec::with_capacity(sources.len()));
    let mut unsorted = Vec::new();
    for some in sources.chunks(PACKED_SOURCES) {
        let first = known.len();
        for outcome in each(&workers, some.len(), |i| of(&some[i]))? {
            match outcome {
                Ok((of, ends)) => {
                    numbers.push(of);
                    known.push(ends);
                }
                Err(e) => unsorted.push(e),
            }
        }
        let found: &mut [KnownEnds] = known.get_mut(first..).unwrap_or_default();
        KeySamples::pack(found.iter_mut().flatten().map(|(samples, _)| samples));
    }
    let what = format!("{} sources are not sorted", unsorted.len());
    let unsorted = Error::every(&what, unsorted).map(|e| partition::explained(e, options, order));
    unsorted.map_or(Ok((numbers, known)), Err)
}

/// Sources as the plan has them, and the keys of those with rows.
fn describe(
    sources: &[Arc<Source>],
    known: Vec<KnownEnds>,
    keys: &KeyLeaves,
    has_deleted: impl Fn(&str) -> bool,
) -> Result<(PlanSources, Vec<SourceKeys>)> {
    let mut planned = PlanSources::default();
    let mut sources_keys = Vec::with_capacity(sources.len());
    for (source, known) in sources.iter().zip(known) {
        let mut of = plan_source(source);
        if has_deleted(source.path()) {
            of.deleted = source.rows() - of.rows;
        }
        if let Some((samples, from)) = known {
            of.keys_from = from;
            if let (Some((_, first)), Some((_, last))) = (samples.first(), samples.last()) {
                (of.key_min, of.key_max) = (key_values(keys, first)?, key_values(keys, last)?);
                (of.first, of.last) =
                    (Some(KeyBase64(first.to_vec())), Some(KeyBase64(last.to_vec())));
            }
            let known = match from {
                KeysFrom::Footer => Known::Footer,
                KeysFrom::Rows => Known::Ends,
            };
            sources_keys.push(SourceKeys { source: Arc::clone(source), known, samples });
        }
        planned.push(&of)?;
    }
    Ok((planned, sources_keys))
}

fn plan_source(source: &Source) -> PlanSource {
    PlanSource {
        path: source.path().to_owned(),
        rows: source.live_rows(),
        deleted: 0,
        bytes: source.store.len(),
        row_groups: source.num_row_groups() as u64,
        footer: source.footer_text(),
        stamp: source.store.version(),
        merge_level: merge_level(source),
        first: None,
        last: None,
        keys_from: KeysFrom::Rows,
        key_min: Vec::new(),
        key_max: Vec::new(),
    }
}

fn bounds(sources_keys: &[SourceKeys]) -> Vec<Bounds<&[u8]>> {
    let mut bounds = Vec::with_capacity(sources_keys.len());
    bounds.extend(sources_keys.iter().filter_map(|of| {
        let (_, first) = of.samples.first()?;
        let (_, last) = of.samples.last()?;
        Some(Bounds { source: of.source.id, first, last })
    }));
    bounds
}
