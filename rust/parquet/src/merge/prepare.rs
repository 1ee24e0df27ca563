//! Everything that is known before the first row moves: sources, schema, order, bounds, sizes.
//!
//! # Invariants
//! Bounds are told keys, so what they say does not depend on ranks.
//! Nothing but the output folder has been made when this returns.

use std::sync::Arc;

use parquet::file::properties::WriterPropertiesPtr;
use plait_core::key::SortOrder;
use plait_core::region::{Bounds, Region, sweep};
use plait_core::run::SourceId;
use plait_core::{Error, Kind, Result};
use sha2::{Digest, Sha256};

use super::drops::Drops;
use crate::budget::Budget;
use crate::context::Context;
use crate::files::{open_sources, output_leaves};
use crate::keys::{KeyLeaves, key_at};
use crate::leaf::{LocationCache, OutputLeaf};
use crate::options::{IfExists, MergeOptions, VerifyOrder};
use crate::order::{SORT_ORDER_ENTRY, from_sources, key_leaves, sorting_columns, unsorted};
use crate::pool::Pool;
use crate::properties::properties;
use crate::ranks::RankBook;
use crate::schema::{Reconciled, reconcile};
use crate::source::Source;
use crate::store::{Location, Stores};
use crate::target::{Target, TempFile};

/// What a merge works on.
pub(super) struct Prepared {
    pub(super) sources: Arc<Vec<Arc<Source>>>,
    pub(super) reconciled: Reconciled,
    pub(super) leaves: Vec<OutputLeaf>,
    pub(super) order: SortOrder,
    pub(super) keys: KeyLeaves,
    /// First key of every source that has rows, as keys are read.
    pub(super) first_keys: Vec<(SourceId, Vec<u8>)>,
    /// What is dropped, if anything is.
    pub(super) drops: Option<Drops>,
    pub(super) regions: Vec<Region>,
    pub(super) properties: WriterPropertiesPtr,
    pub(super) budget: Budget,
    /// Threads that weave; none when one is asked for. They end with the merge.
    pub(super) pool: Arc<Option<Pool>>,
    pub(super) cache: Arc<LocationCache>,
    pub(super) target: Arc<Target>,
    pub(super) task: String,
    /// Whether what is made is read again and never published.
    pub(super) is_scratch: bool,
    pub(super) stores: Stores,
    pub(super) merge_level: u64,
}

impl Prepared {
    pub(super) fn rows(&self) -> u64 {
        self.sources.iter().map(|s| s.rows()).sum()
    }

    /// Whether ranks turned out not to cover all keys.
    pub(super) fn has_broken_ranks(&self) -> bool {
        self.keys.ranks.as_ref().is_some_and(|book| book.is_broken())
    }

    /// The name of the output at `index`.
    pub(super) fn output_name(&self, index: usize) -> String {
        match self.target.file_name() {
            Some(name) => name.to_owned(),
            None => format!("part-{index:05}-{}.parquet", self.task),
        }
    }

    /// A file for the output at `index`.
    pub(super) fn create_output(&self, index: usize) -> Result<TempFile> {
        match self.is_scratch {
            true => self.target.create_scratch(),
            false => self.target.create(&self.output_name(index)),
        }
    }

    /// Footer entries that all outputs share.
    pub(super) fn entries(&self) -> Vec<(&'static str, String)> {
        let mut entries = vec![
            ("plait.merge_level", self.merge_level.to_string()),
            ("plait.task", self.task.clone()),
        ];
        if !self.order.is_empty() {
            entries.push((SORT_ORDER_ENTRY, self.order.to_string()));
        }
        entries
    }
}

pub(super) fn prepare(
    options: &MergeOptions,
    stores: &Stores,
    context: &Context,
    with_ranks: bool,
) -> Result<Prepared> {
    let sources = Arc::new(open_sources(&options.sources, 0, stores, context)?);
    prepare_from(options, sources, Origin::All(stores), context, with_ranks)
}

/// What the sources of a merge are.
pub(super) enum Origin<'a> {
    /// All there are.
    All(&'a Stores),
    /// Some of another merge.
    Some(&'a Shared<'a>),
}

/// What a merge of some of the sources takes from the merge of all.
pub(super) struct Shared<'a> {
    pub(super) parent: &'a Prepared,
    /// Whether outputs are encoded as those of the merge of all.
    pub(super) keeps_properties: bool,
}

pub(super) fn prepare_from(
    options: &MergeOptions,
    sources: Arc<Vec<Arc<Source>>>,
    from: Origin<'_>,
    context: &Context,
    with_ranks: bool,
) -> Result<Prepared> {
    let (shared, stores) = match from {
        Origin::All(stores) => (None, stores),
        Origin::Some(shared) => (Some(shared), &shared.parent.stores),
    };
    let order = match &options.sort_by {
        Some(text) => SortOrder::try_parse(text)?,
        None => from_sources(&sources)?,
    };
    let footers: Vec<_> = sources.iter().map(|s| (s.path(), s.meta.file_metadata())).collect();
    let reconciled = reconcile(&footers, &options.unite())?;
    let leaves = output_leaves(&reconciled);
    let mut keys = key_leaves(&order, &reconciled.descr, &leaves)?;
    for (name, columns) in
        [("cut_on", options.cut_on.unwrap_or(0)), ("align_row_groups", options.align_row_groups)]
    {
        if columns > keys.leaves.len() {
            return Err(Error::new(
                Kind::InvalidArgument,
                format!("`{name}` counts more columns than the sort order has"),
            )
            .with_got(format!("{columns} of {}", keys.leaves.len())));
        }
    }
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = options.threads.unwrap_or_else(cores);
    let limit = usize::try_from(options.memory_limit).unwrap_or(usize::MAX);
    let budget = Budget::new(limit, sources.len(), keys.leaves.len(), threads);
    context.set_read_ahead_bytes(budget.read_ahead_bytes);
    let cache = Arc::new(LocationCache::new(context, budget.locations_bytes));
    let properties = match shared.filter(|shared| shared.keeps_properties) {
        Some(shared) => Arc::clone(&shared.parent.properties),
        None => properties(
            options,
            &sources,
            &leaves,
            sorting_columns(&order, &keys),
            reconciled.metadata.clone(),
        )?,
    };
    let task = task_hash(options, &order, &sources);
    if shared.is_none() {
        context.set_total_bytes(total_bytes(&sources, &keys));
    }
    let bounds = bounds(&sources, &keys, options.assume_sorted, &cache, context)?;
    let regions = sweep(&bounds);
    let is_merged = regions.iter().any(|region| region.depth_max > 1);
    let reads_all = !options.assume_sorted && options.verify_order == VerifyOrder::Full;
    if with_ranks && (is_merged || reads_all) {
        keys.ranks =
            RankBook::find_for(&keys.shape, &keys.leaves, &sources, &cache, context)?.map(Arc::new);
    }
    let drops = Drops::find(options, &order, &reconciled, &leaves)?;
    let first_keys = first_keys(&bounds, &mut keys)?;
    let (pool, target) = match shared {
        Some(Shared { parent, .. }) => (Arc::clone(&parent.pool), Arc::clone(&parent.target)),
        None => {
            let pool = Arc::new(Pool::new(threads)?);
            // The folder comes last: input that is refused leaves no trace.
            let is_read_again = options.verify.is_some() || options.sha256;
            let target = Target::open(&options.out, stores, context)?.with_copies(is_read_again);
            if let Err(e) = check_free(&target, options, &sources, stores, &task) {
                target.abandon();
                return Err(e);
            }
            (pool, Arc::new(target))
        }
    };
    let merge_level = 1 + sources.iter().map(|s| level(s)).max().unwrap_or(0);
    Ok(Prepared {
        sources,
        reconciled,
        leaves,
        order,
        keys,
        first_keys,
        drops,
        regions,
        properties,
        budget,
        pool,
        cache,
        target,
        task,
        is_scratch: false,
        stores: stores.clone(),
        merge_level,
    })
}

/// First and last key of every source that has rows.
fn bounds(
    sources: &[Arc<Source>],
    keys: &KeyLeaves,
    assume_sorted: bool,
    cache: &Arc<LocationCache>,
    context: &Context,
) -> Result<Vec<Bounds>> {
    let mut bounds = Vec::new();
    for source in sources.iter().filter(|s| s.rows() > 0) {
        let last_row = source.rows() - 1;
        let first = key_at(source, keys, 0, cache, context)?;
        let last = key_at(source, keys, last_row, cache, context)?;
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

/// Bytes that will be read: all columns, and the key columns a second time.
fn total_bytes(sources: &[Arc<Source>], keys: &KeyLeaves) -> u64 {
    let bytes = |n: i64| u64::try_from(n).unwrap_or(0);
    let mut total = 0;
    for source in sources {
        for group in source.meta.row_groups() {
            total += bytes(group.compressed_size());
            for leaf in &keys.leaves {
                let index = leaf.adapter(source.id).ok().and_then(crate::schema::LeafAdapter::leaf);
                let chunk = index.and_then(|i| group.columns().get(i));
                total += chunk.map_or(0, |c| bytes(c.compressed_size()));
            }
        }
    }
    total
}

fn level(source: &Source) -> u64 {
    let entries = source.meta.file_metadata().key_value_metadata();
    let entry = entries.into_iter().flatten().find(|e| e.key == "plait.merge_level");
    entry.and_then(|e| e.value.as_deref()).and_then(|v| v.parse().ok()).unwrap_or(0)
}

/// Names the task by what decides its bytes: sources, order, options; not threads. The memory limit
/// counts: it bounds the rows of a row group.
fn task_hash(options: &MergeOptions, order: &SortOrder, sources: &[Arc<Source>]) -> String {
    let mut hash = Sha256::new();
    let mut add = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    add(b"plait task 1");
    add(order.to_string().as_bytes());
    let fixed = MergeOptions {
        sources: Vec::new(),
        out: String::new(),
        sort_by: None,
        threads: None,
        verify: None,
        sha256: false,
        if_exists: IfExists::Error,
        storage_options: Default::default(),
        ..options.clone()
    };
    add(serde_json::to_string(&fixed).unwrap_or_default().as_bytes());
    for source in sources {
        add(&source.store.len().to_le_bytes());
        add(&source.footer_hash);
    }
    hash.finalize().iter().take(8).map(|b| format!("{b:02x}")).collect()
}

/// Refuses to add to a folder or replace a file that another merge or another tool wrote.
pub(super) fn check_free(
    target: &Target,
    options: &MergeOptions,
    sources: &[Arc<Source>],
    stores: &Stores,
    task: &str,
) -> Result<()> {
    let exists = |what: &str, path: &str, hint: &str| {
        Err(Error::new(Kind::OutputExists, what).with_path(path).with_hint(hint))
    };
    if let Some(name) = target.file_name() {
        if options.outputs.is_some_and(|n| n > 1)
            || options.target_file_size.is_some()
            || options.target_rows.is_some()
        {
            return Err(Error::new(
                Kind::InvalidArgument,
                "one output file cannot hold several outputs",
            )
            .with_path(&options.out)
            .with_hint("name a folder"));
        }
        if !target.exists(name)? {
            return Ok(());
        }
        let path = target.location(name);
        let same = |s: &&Arc<Source>| match s.store.is_local() {
            true => std::fs::canonicalize(s.path()).is_ok_and(|source| {
                std::fs::canonicalize(&path).is_ok_and(|output| output == source)
            }),
            false => {
                matches!(stores.locate(s.path()), Ok(Location::Object(place)) if place.location() == path)
            }
        };
        if sources.iter().any(|s| same(&s)) {
            return exists("the output is one of the sources", &path, "write to another file");
        }
        return match is_ours(stores, &path, task) {
            true => Ok(()),
            false => exists("the output is there already", &path, "remove it or write elsewhere"),
        };
    }
    if options.if_exists == IfExists::Add {
        return Ok(());
    }
    let foreign = target.visible()?.into_iter().find(|name| !name.contains(task));
    match foreign {
        None => Ok(()),
        Some(name) => exists(
            "the output folder has other Parquet files, readers would see their rows too",
            &target.location(&name),
            "write to an empty folder, or pass if_exists=\"add\"",
        ),
    }
}

/// Whether `path` was written by this very task.
pub(super) fn is_ours(stores: &Stores, path: &str, task: &str) -> bool {
    let source = stores.open(path).and_then(|store| Source::open(SourceId(0), store));
    source.is_ok_and(|source| {
        let entries = source.meta.file_metadata().key_value_metadata();
        entries
            .into_iter()
            .flatten()
            .any(|e| e.key == "plait.task" && e.value.as_deref() == Some(task))
    })
}
