//! Everything that is known before the first row of a task moves: its rows, schema, keys, sizes.
//!
//! # Invariants
//! Bounds are stored keys, so what they say does not depend on ranks. What a task is prepared to do
//! depends on the task, its sources and options; not on the other tasks of its plan.
//!
//! # Not here
//! Which rows a task has (`plan`).

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use parquet::file::properties::WriterPropertiesPtr;
use plait_core::Result;
use plait_core::SourceId;
use plait_core::key::SortOrder;
use plait_core::region::{Bounds, Region, sweep};

use super::attempt::Attempt;
use super::frame::Frame;
use crate::combine::Combine;
use crate::drops::{self, FileDrops};
use crate::keys::{KeyLeaves, key_at};
use crate::leaf::{LocationCache, OutputLeaf, output_leaves};
use crate::options::VerifyOrder;
use crate::order::{SORT_ORDER_ENTRY, key_leaves, sorting_columns, unsorted};
use crate::output::{Target, TempFile};
use crate::partition;
use crate::plan::{KeysFrom, PlanTask, Reading, find_rows};
use crate::properties::{properties, type_defined_floats};
use crate::ranks::{KeyForm, RankBook};
use crate::row_map::map_name;
use crate::runtime::{Budget, Context, MemoryStage, MergeSizes, Pool};
use crate::schema::Reconciled;
use crate::source::Source;
use crate::zone::{FilterRequest, asks};

/// Name of the footer entry with the number of sort columns by which row groups are aligned.
const ROW_GROUP_COLUMNS_ENTRY: &str = "plait.row_group_columns";

/// What a merge works on.
pub(super) struct Prepared<'a> {
    pub(super) frame: &'a Frame<'a>,
    pub(super) sources: Arc<Vec<Arc<Source>>>,
    /// The rows of each source.
    pub(super) rows: Vec<Range<u64>>,
    /// The schema of the output, and its leaves.
    pub(super) reconciled: Reconciled,
    pub(super) leaves: Vec<OutputLeaf>,
    /// Leaves of the sources, and those of them that the output lacks.
    pub(super) source_leaves: Vec<OutputLeaf>,
    pub(super) left_out: Vec<usize>,
    /// The order of the rows of the output, whose folder tells the first key columns.
    pub(super) order_inside: SortOrder,
    pub(super) keys: KeyLeaves,
    /// First key of every source that has rows, as keys are read.
    pub(super) first_keys: Vec<(SourceId, Vec<u8>)>,
    /// What is dropped, if anything is.
    pub(super) drops: Option<FileDrops>,
    /// How rows of one key are combined, if they are.
    pub(super) combine: Option<Combine>,
    pub(super) regions: Vec<Region>,
    pub(super) properties: WriterPropertiesPtr,
    pub(super) sizes: MergeSizes,
    pub(super) cache: Arc<LocationCache>,
    /// Number of the output, if what is made is published.
    pub(super) output: Option<u64>,
    /// Whether footers say in which order the rows are.
    pub(super) declares_order: bool,
    /// Leaves of floats whose bounds go by the type-defined order.
    pub(super) type_defined: Arc<BTreeSet<usize>>,
    /// Filters and value sets that are asked for, by leaf.
    pub(super) asks: Arc<Vec<FilterRequest>>,
}

impl Prepared<'_> {
    pub(super) fn all_rows(&self) -> u64 {
        self.sources.iter().zip(&self.rows).map(|(source, rows)| source.count(rows)).sum()
    }

    /// Whether ranks turned out not to cover all keys.
    pub(super) fn has_broken_ranks(&self) -> bool {
        self.keys.ranks.as_ref().is_some_and(|book| book.is_broken())
    }

    pub(super) fn order(&self) -> &SortOrder {
        &self.frame.order
    }

    pub(super) fn pool(&self) -> Option<&Pool> {
        Option::as_ref(&self.frame.pool)
    }

    pub(super) fn target(&self) -> &Arc<Target> {
        &self.frame.target
    }

    /// A file for the output.
    pub(super) fn create_output(&self, context: &Context) -> Result<TempFile> {
        self.create(context, |index| self.frame.output_name(index))
    }

    /// A file for its row map.
    pub(super) fn create_map(&self, context: &Context) -> Result<TempFile> {
        self.create(context, |index| map_name(&self.frame.output_name(index)))
    }

    fn create(&self, context: &Context, name: impl Fn(u64) -> String) -> Result<TempFile> {
        match self.output {
            None => self.frame.target.create_scratch(),
            Some(index) => self.frame.target.create_for(&name(index), context),
        }
    }

    /// Footer entries of the output.
    pub(super) fn entries(&self) -> Vec<(&'static str, String)> {
        let mut entries = vec![
            ("plait.merge_level", self.frame.plan.merge_level.to_string()),
            ("plait.task", self.frame.plan.task.clone()),
        ];
        if self.declares_order {
            entries.push((SORT_ORDER_ENTRY, self.order_inside.to_string()));
            if self.frame.plan.options.align_row_groups > 0 {
                let columns = self.frame.plan.options.align_row_groups;
                entries.push((ROW_GROUP_COLUMNS_ENTRY, columns.to_string()));
            }
        }
        entries
    }

    /// Leading key columns that have one value in the output, and are not in its order.
    pub(super) fn partition_columns(&self) -> usize {
        self.order().len() - self.order_inside.len()
    }
}

/// Prepares `task` of the frame's plan.
pub(super) fn prepare<'a>(
    frame: &'a Frame<'a>,
    task: &PlanTask,
    attempt: &Attempt<'_>,
) -> Result<Prepared<'a>> {
    let mut sources = Vec::new();
    let mut stored = Vec::new();
    let mut planned = frame.plan.sources.reader();
    for (i, slice) in task.slices.iter().enumerate() {
        let id = SourceId(u32::try_from(i).unwrap_or(u32::MAX));
        sources.push(Arc::new(frame.source(slice.source)?.with_id(id)));
        let of = planned.get(slice.source)?;
        stored.push((of.keys_from == KeysFrom::Rows).then_some((of.first, of.last)));
    }
    let find = |keys: &KeyLeaves, cache: &Arc<LocationCache>, sources: &[Arc<Source>]| {
        let reading = Reading { keys, cache, context: attempt.context };
        let all = task.slices.iter().zip(sources);
        all.map(|(slice, source)| find_rows(task, slice, source, reading)).collect()
    };
    let known = |source: &Source, row: u64| {
        let (first, last) = stored.get(source.id.index())?.as_ref()?;
        let key = match row {
            row if row == source.span().start => first.as_ref(),
            row if row + 1 == source.span().end => last.as_ref(),
            _ => None,
        };
        key.map(|key| key.0.clone())
    };
    let sources = Arc::new(sources);
    let (cache, output) = (Arc::clone(&frame.cache), Some(task.index));
    let parts = MergeParts { sources, find: &find, known: &known, cache, output };
    prepare_parts(frame, parts, attempt)
}

/// Sources that are merged together, and which rows of each.
pub(super) struct Group<'a> {
    pub(super) sources: Arc<Vec<Arc<Source>>>,
    pub(super) rows: &'a [Range<u64>],
    /// The output that they become; none if it is a temp file.
    pub(super) output: Option<u64>,
}

/// Prepares the merge of sources into a temp file, or of temp files into the output.
pub(super) fn prepare_group<'a>(
    frame: &'a Frame<'a>,
    group: Group<'_>,
    attempt: &Attempt<'_>,
) -> Result<Prepared<'a>> {
    let Group { sources, rows, output } = group;
    let budget = attempt.options.budget();
    let find = |_: &KeyLeaves, _: &Arc<LocationCache>, _: &[Arc<Source>]| Ok(rows.to_vec());
    // Of its own: temp files must go when they are merged.
    let cache =
        Arc::new(LocationCache::new(attempt.context, budget.bytes(MemoryStage::PageLocations)));
    let parts = MergeParts { sources, find: &find, known: &|_, _| None, cache, output };
    prepare_parts(frame, parts, attempt)
}

type Find<'a> =
    &'a dyn Fn(&KeyLeaves, &Arc<LocationCache>, &[Arc<Source>]) -> Result<Vec<Range<u64>>>;

/// What is merged.
struct MergeParts<'a> {
    sources: Arc<Vec<Arc<Source>>>,
    /// Finds the rows of each source.
    find: Find<'a>,
    /// The key of a row, where it has been read.
    known: &'a dyn Fn(&Source, u64) -> Option<Vec<u8>>,
    cache: Arc<LocationCache>,
    output: Option<u64>,
}

fn prepare_parts<'a>(
    frame: &'a Frame<'a>,
    parts: MergeParts<'_>,
    attempt: &Attempt<'_>,
) -> Result<Prepared<'a>> {
    let Attempt { options, context, form, .. } = *attempt;
    let MergeParts { sources, find, known, cache, output } = parts;
    let of_sources = frame.schema.reconcile(&sources, &options.unite())?;
    let source_leaves = output_leaves(&of_sources);
    let mut keys = key_leaves(&frame.order, &of_sources, &source_leaves)?;
    let (order_inside, left_out) = match output {
        Some(_) => {
            let inside = partition::order_inside(&frame.order, options)?;
            (inside, partition::left_out(&keys, options))
        }
        None => (frame.order.clone(), Vec::new()), // merged again, by all of its keys
    };
    let reconciled = of_sources.without(&left_out)?;
    let leaves = output_leaves(&reconciled);
    let sizes = |budget: Budget| budget.merge(sources.len(), keys.leaves.len(), frame.threads);
    // Other calls, or other tasks of this one, may have a part of the limit.
    let part = options.budget().min(context.budget());
    let sizes = sizes(options.budget()).within(&sizes(part));
    context.set_read_ahead_bytes(sizes.read_ahead_bytes);
    let declares_order = options.checks_every_key() && !order_inside.is_empty();
    let sorting = match declares_order {
        true => sorting_columns(&order_inside, &key_leaves(&order_inside, &reconciled, &leaves)?),
        false => Vec::new(),
    };
    let metadata = reconciled.metadata.clone();
    let properties = {
        let encodings = frame.plan.encodings.without(&left_out);
        properties(options, &encodings, &leaves, sorting, metadata)?
    };
    let asks = Arc::new(asks(options, &leaves, &sources)?);
    keys.keep_between_look_ups(context.budget().bytes(MemoryStage::PreparedDictionaries), 0);
    let rows = find(&keys, &cache, &sources)?;
    let bounds = bounds(&sources, &rows, &keys, options.assume_sorted, |source, row| {
        known(source, row).map_or_else(|| key_at(source, &keys, row, &cache, context), Ok)
    })?;
    keys.forget_look_ups();
    let ends =
        bounds.iter().map(|of| Bounds { source: of.source, first: &of.first, last: &of.last });
    let regions: Vec<Region> = sweep(ends.collect()).collect();
    let is_merged = regions.iter().any(|region| region.depth_max > 1);
    let reads_all = !options.assume_sorted && options.verify_order == VerifyOrder::Full;
    if form == KeyForm::Ranked && (is_merged || reads_all) {
        keys.ranks =
            RankBook::find_for(&keys.shape, &keys.leaves, &sources, &rows, &cache, context)?
                .map(Arc::new);
    }
    let drops = drops::find(options, &frame.order, &of_sources, &source_leaves)?;
    let combine = {
        let drops = options.drop_options();
        Combine::find(&drops, &keys, &of_sources, &source_leaves, &leaves)?
    };
    let first_keys = first_keys(&bounds, &mut keys)?;
    let type_defined = Arc::new(type_defined_floats(&sources, &leaves, &options.copy_tiers)?);
    Ok(Prepared {
        frame,
        sources,
        rows,
        reconciled,
        leaves,
        source_leaves,
        left_out,
        order_inside,
        keys,
        first_keys,
        drops,
        combine,
        regions,
        properties,
        sizes,
        cache,
        output,
        declares_order,
        type_defined,
        asks,
    })
}

/// First and last key of every source that has rows.
fn bounds(
    sources: &[Arc<Source>],
    rows: &[Range<u64>],
    keys: &KeyLeaves,
    assume_sorted: bool,
    key: impl Fn(&Arc<Source>, u64) -> Result<Vec<u8>>,
) -> Result<Vec<Bounds>> {
    let mut bounds = Vec::new();
    for (source, rows) in sources.iter().zip(rows).filter(|(_, rows)| !rows.is_empty()) {
        let last_row = rows.end - 1;
        let (first, last) = (key(source, rows.start)?, key(source, last_row)?);
        if last < first && !assume_sorted {
            return Err(unsorted(source, keys, last_row, &first, &last));
        }
        bounds.push(Bounds { source: source.id, last: last.max(first.clone()), first });
    }
    Ok(bounds)
}

/// The first keys as they are read from now on. Without a rank for one of them, there are no ranks.
fn first_keys(bounds: &[Bounds], keys: &mut KeyLeaves) -> Result<Vec<(SourceId, Vec<u8>)>> {
    if let Some(book) = &keys.ranks {
        let mut ranked = Vec::new();
        for bound in bounds {
            ranked.extend(book.ranks().rank(&bound.first)?.map(|key| (bound.source, key)));
        }
        if ranked.len() == bounds.len() {
            return Ok(ranked);
        }
        keys.ranks = None;
    }
    Ok(bounds.iter().map(|bound| (bound.source, bound.first.clone())).collect())
}
