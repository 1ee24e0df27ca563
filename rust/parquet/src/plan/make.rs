//! Makes a plan: opens sources, brings them to one schema, looks up keys, cuts.
//!
//! ```text
//! sources ─ merged ─▶ schema, order ─ bounds ─▶ keys ─ cuts ─▶ tasks ─ estimate ─▶ Plan
//! ```
//!
//! # Invariants
//! Nothing is written. The plan depends on the sources, their order and the options alone.
//!
//! # Not here
//! Where the cuts are (`cuts`); what lies between them (`tasks`).

use std::sync::Arc;

use plait_core::key::SortOrder;
use plait_core::region::{Bounds, sweep};
use plait_core::workers::each;
use plait_core::{Error, Kind, Result};

use super::bounds::{KeyTrust, cut_values, key_values, known_keys};
use super::cuts::{Cuts, Rule, cuts, cuts_of_partitions};
use super::entries::{KeySamples, merge_level};
use super::estimate::expect;
use super::memory::memory_need;
use super::merged::MergedFiles;
use super::name::name;
use super::partitions::partitions;
use super::schema::CarriedSchema;
use super::source_keys::{Known, Reading, SourceKeys};
use super::spread::{count, spread};
use super::tasks::{name_partitions, stored, stored_bytes, tasks};
use super::value::{KeyBase64, KeysFrom, Plan, PlanSource, VERSION};
use super::warnings::{conflict_reports, warnings};
use crate::files::{open_live, output_leaves, readers};
use crate::keys::KeyLeaves;
use crate::leaf::LocationCache;
use crate::options::MergeOptions;
use crate::order::key_leaves;
use crate::partition::{self, Folders};
use crate::properties::encodings;
use crate::report::Overlap;
use crate::runtime::{Context, Level, MemoryStage};
use crate::schema::LeafAdapter;
use crate::source::Source;
use crate::store::Stores;

/// A plan and the sources it was made of, still open.
pub(crate) struct PlannedMerge {
    /// The plan.
    pub plan: Plan,
    /// Its sources.
    pub sources: Arc<Vec<Arc<Source>>>,
    /// Bytes that executing it reads, as `Progress` counts them.
    pub total_bytes: u64,
}

/// Plans the merge that `options` ask for.
///
/// # Errors
/// As `merge`, but for those of writing.
pub(crate) fn make(
    options: &MergeOptions,
    stores: &Stores,
    context: &Context,
) -> Result<PlannedMerge> {
    options.check()?;
    let sources = Arc::new(open_live(&options.sources, options, stores, context)?);
    make_from(options, sources, context)
}

/// The same of sources that are open.
///
/// # Errors
/// As [`make`].
pub(crate) fn make_from(
    options: &MergeOptions,
    sources: Arc<Vec<Arc<Source>>>,
    context: &Context,
) -> Result<PlannedMerge> {
    make_of(options, MergedFiles::describe(options, sources)?, None, context)
}

/// Plans the merge of `files`, or of the sorted runs that were made of them.
///
/// # Errors
/// As [`make`].
pub(crate) fn make_of(
    options: &MergeOptions,
    merged: MergedFiles,
    runs: Option<Arc<Vec<Arc<Source>>>>,
    context: &Context,
) -> Result<PlannedMerge> {
    let encodings = encodings(options, &merged.files, &output_leaves(&merged.reconciled))?;
    let of_runs = runs.as_ref().map(|runs| merged.reconcile(runs, options)).transpose()?;
    let MergedFiles { files, reconciled, order } = merged;
    let is_of_runs = runs.is_some();
    let sources = runs.unwrap_or_else(|| Arc::clone(&files));
    let leaves = output_leaves(of_runs.as_ref().unwrap_or(&reconciled));
    let mut keys = key_leaves(&order, of_runs.as_ref().unwrap_or(&reconciled), &leaves)?;
    // Nothing else needs memory yet.
    keys.keep_dictionaries(context.budget().bytes(MemoryStage::PlannedDictionaries));
    let cache =
        Arc::new(LocationCache::new(context, context.budget().bytes(MemoryStage::PageLocations)));
    let reading = Reading { keys: &keys, cache: &cache, context };
    let known = known_of_all(&sources, &order, options, reading)?;
    let (mut planned, mut sources_keys) = describe(&sources, known, &keys)?;
    for (planned, source) in planned.iter_mut().zip(sources.iter()) {
        // Of sorted runs, several may be rows of one file.
        if options.deletion_vectors.contains_key(source.path()) && !is_of_runs {
            planned.deleted = source.rows() - planned.rows;
        }
    }
    let regions = sweep(&bounds(&sources_keys));
    let depth = regions.iter().map(|region| region.depth_max).max().unwrap_or(0);
    let before: Vec<_> =
        sources_keys.iter().map(|source_keys| source_keys.samples.clone()).collect();
    let cut_columns = match options.cut_on {
        Some(columns) => options.partition_by.len() + columns,
        None => keys.shape.parts(),
    };
    context.events().record(Level::Debug, "plan", || {
        let indexed = sources_keys.iter().filter(|source_keys| source_keys.known == Known::Footer).count();
        format!(
            "{} sources, keys of {indexed} from footers and of {} from rows; {} regions, {depth} deep",
            sources.len(),
            sources_keys.len() - indexed,
            regions.len()
        )
    });
    let rule = rule(options, &files);
    let mut folders = Vec::new();
    let workers = readers(&sources, options.threads, context);
    let Cuts { cuts: found, looks } = if options.partition_by.is_empty() {
        // So many rows are promised, a size is not.
        let may_be_about = rule != Rule::One && options.target_rows.is_none();
        let is_about = may_be_about && spread(&mut sources_keys, depth, &workers, reading)?;
        let mut found = cuts(&mut sources_keys, rule, cut_columns, reading)?;
        if is_about {
            count(&sources_keys, &mut found.cuts, &workers, reading)?;
        }
        found
    } else {
        let columns = partition::leading(&keys, options)?;
        let reading_columns = Reading { keys: &columns, ..reading };
        let partitions = partitions(&sources_keys, &workers, reading_columns)
            .map_err(|e| partition::explained(e, options, &order))?;
        let names = partition::names(options, &reconciled)?;
        let of = Folders::new(&names, &keys, &reconciled)?;
        for partition in &partitions {
            folders.push((partition.prefix.clone(), of.of(&partition.prefix)?));
        }
        cuts_of_partitions(&mut sources_keys, &partitions, rule, cut_columns, reading)?
    };
    sources_keys
        .iter_mut()
        .zip(before)
        .for_each(|(source_keys, samples)| source_keys.samples = samples);
    let mut tasks = tasks(&sources_keys, &found);
    name_partitions(&mut tasks, &folders);
    context.events().record(Level::Debug, "plan", || {
        format!("{} outputs, found by {looks} looks at sources", tasks.len())
    });
    let bounds: Vec<Option<Vec<u8>>> = found.iter().map(|cut| cut.key.clone()).collect();
    let rows: Vec<u64> = tasks.iter().map(|task| task.rows).collect();
    let expected = expect(&sources_keys, &bounds, &rows, &leaves, options);
    for (task, expected) in tasks.iter_mut().zip(expected) {
        (task.tiers, task.depth_max) = (expected.tiers, expected.depth_max);
        task.bytes = stored_bytes(task, &sources);
        task.key_low = cut_values(&keys, cut_columns, task.low.as_ref());
        task.key_high = cut_values(&keys, cut_columns, task.high.as_ref());
    }
    let mut plan = Plan {
        format: Plan::format(),
        version: VERSION,
        task: String::new(),
        lease: options.naming.lease.clone(),
        outputs: tasks.len() as u64,
        rows: planned.iter().map(|source| source.rows).sum(),
        sort_by: order.to_string(),
        options: MergeOptions {
            sources: Vec::new(),
            out: String::new(),
            sort_by: None,
            storage_options: Default::default(),
            ..options.clone()
        },
        schema: CarriedSchema::write(&reconciled)?,
        renamed: reconciled.renamed.clone(),
        encodings,
        merge_level: 1 + files.iter().map(|file| merge_level(file)).max().unwrap_or(0),
        trusts_footers: planned.iter().any(|source| source.keys_from == KeysFrom::Footer),
        sources: planned,
        tasks,
        overlap: Overlap { regions: regions.len(), depth_max: depth },
        metadata_conflicts: conflict_reports(&reconciled.metadata_conflicts),
        memory: memory_need(&sources, &leaves, &keys.leaves, depth, options.budget()),
        warnings: warnings(&files, &reconciled.metadata_conflicts),
    };
    plan.task = options.naming.task.clone().unwrap_or_else(|| name(&plan, &files));
    let total_bytes = total_bytes(&sources, &keys);
    Ok(PlannedMerge { plan, sources, total_bytes })
}

/// What is known of the keys of each source with rows.
///
/// # Errors
/// One that names all sources that are out of order, or whatever else is wrong with one.
fn known_of_all(
    sources: &[Arc<Source>],
    order: &SortOrder,
    options: &MergeOptions,
    reading: Reading<'_>,
) -> Result<Vec<Option<(KeySamples, KeysFrom)>>> {
    let trust = KeyTrust { footers: options.trust_footers, order: options.assume_sorted };
    let of = |i: usize| {
        reading.context.check_cancelled()?;
        let known = |source| known_keys(source, order, trust, reading);
        let known = sources.get(i).filter(|source| source.live_rows() > 0).map(known).transpose();
        match known {
            Err(e) if e.kind() == Kind::UnsortedSource => Ok(Err(e)),
            outcome => outcome.map(Ok),
        }
    };
    let workers = readers(sources, options.threads, reading.context);
    let known = each(&workers, sources.len(), of)?;
    all_sorted(known).map_err(|e| partition::explained(e, options, order))
}

/// What is known of sources, if none is out of order; else the error that names all that are.
fn all_sorted<T>(known: Vec<Result<T>>) -> Result<Vec<T>> {
    let (mut sorted, mut unsorted) = (Vec::with_capacity(known.len()), Vec::new());
    for known in known {
        match known {
            Ok(known) => sorted.push(known),
            Err(e) => unsorted.push(e),
        }
    }
    let what = format!("{} sources are not sorted", unsorted.len());
    Error::every(&what, unsorted).map_or(Ok(sorted), Err)
}

/// Sources as the plan has them, and the keys of those with rows.
fn describe(
    sources: &[Arc<Source>],
    known: Vec<Option<(KeySamples, KeysFrom)>>,
    keys: &KeyLeaves,
) -> Result<(Vec<PlanSource>, Vec<SourceKeys>)> {
    let (mut planned, mut sources_keys) = (Vec::with_capacity(sources.len()), Vec::new());
    for (source, known) in sources.iter().zip(known) {
        let mut of = plan_source(source);
        if let Some((samples, from)) = known {
            of.keys_from = from;
            if let (Some((_, first)), Some((_, last))) = (samples.first(), samples.last()) {
                (of.key_min, of.key_max) = (key_values(keys, first)?, key_values(keys, last)?);
                (of.first, of.last) =
                    (Some(KeyBase64(first.clone())), Some(KeyBase64(last.clone())));
            }
            let known = match from {
                KeysFrom::Footer => Known::Footer,
                KeysFrom::Rows => Known::Ends,
            };
            sources_keys.push(SourceKeys { source: Arc::clone(source), known, samples });
        }
        planned.push(of);
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

fn bounds(sources_keys: &[SourceKeys]) -> Vec<Bounds> {
    let bound = |source_keys: &SourceKeys| {
        let (first, last) = (source_keys.samples.first()?, source_keys.samples.last()?);
        Some(Bounds { source: source_keys.source.id, first: first.1.clone(), last: last.1.clone() })
    };
    sources_keys.iter().filter_map(bound).collect()
}

fn rule(options: &MergeOptions, sources: &[Arc<Source>]) -> Rule {
    match (options.outputs, options.target_rows, options.target_file_size) {
        (Some(outputs), ..) => Rule::Outputs(outputs),
        (_, Some(rows), _) => Rule::Rows(rows),
        (.., Some(bytes)) => {
            let (stored, rows) = stored(sources);
            let rows_each = bytes as f64 / (stored as f64 / rows.max(1) as f64).max(0.01);
            Rule::Rows((rows_each as u64).max(1))
        }
        _ => Rule::One,
    }
}

/// Bytes that will be read: all columns, and the key columns a second time.
fn total_bytes(sources: &[Arc<Source>], keys: &KeyLeaves) -> u64 {
    let bytes = |n: i64| u64::try_from(n).unwrap_or(0);
    let mut total = 0;
    for source in sources {
        let mut all = 0;
        for group in source.meta.row_groups() {
            all += bytes(group.compressed_size());
            for leaf in &keys.leaves {
                let index = leaf.adapter(source.id).ok().and_then(LeafAdapter::leaf);
                let chunk = index.and_then(|i| group.columns().get(i));
                all += chunk.map_or(0, |c| bytes(c.compressed_size()));
            }
        }
        // Several sources may be rows of one file.
        let share = source.count(&(0..source.rows())) as f64 / source.rows().max(1) as f64;
        total += (all as f64 * share) as u64;
    }
    total
}
