//! Makes a plan: opens sources, brings them to one schema, looks up keys, cuts.
//!
//! # Invariants
//! Nothing is written. The plan depends on the sources, their order and the options alone.
//!
//! # Not here
//! Where the cuts are (`cuts`).

use std::sync::Arc;

use plait_core::key::SortOrder;
use plait_core::region::{Bounds, sweep};
use plait_core::workers::each;
use plait_core::{Error, Kind, Result};
use sha2::{Digest, Sha256};

use super::bounds::{KeyTrust, cut_values, key_values, known_keys};
use super::cuts::{Cuts, OutputCut, Rule, cuts, cuts_of_partitions};
use super::entries::merge_level;
use super::estimate::expect;
use super::memory::memory_need;
use super::partitions::partitions;
use super::schema::CarriedSchema;
use super::source_keys::{Count, Reading, SourceKeys};
use super::value::{KeyBase64, KeysFrom, Plan, PlanSource, PlanTask, Slice, VERSION};
use crate::drops;
use crate::files::{open_sources, output_leaves, readers};
use crate::keys::KeyLeaves;
use crate::leaf::LocationCache;
use crate::options::{IfExists, MergeOptions, MissingOption};
use crate::order::{check_present, from_sources, key_leaves, renamed};
use crate::partition::{self, Folders};
use crate::properties::{encodings, parse_codec};
use crate::report::{ConflictReport, Overlap};
use crate::runtime::{Context, Level, MemoryStage};
use crate::schema::{LeafAdapter, MetadataConflict, Reconciled, reconcile};
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
    let sources = Arc::new(open_sources(&options.sources, 0, options.threads, stores, context)?);
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

/// The files of a merge as one: their schema and their order.
pub(crate) struct MergedFiles {
    pub(crate) files: Arc<Vec<Arc<Source>>>,
    pub(crate) reconciled: Reconciled,
    pub(crate) order: SortOrder,
}

impl MergedFiles {
    /// Brings `files` to one schema, and finds their order.
    ///
    /// # Errors
    /// As [`make`], but for those of reading keys.
    pub(crate) fn describe(options: &MergeOptions, files: Arc<Vec<Arc<Source>>>) -> Result<Self> {
        let asked = options.sort_by.as_deref().map(SortOrder::try_parse).transpose()?;
        let footers: Vec<_> = files.iter().map(|s| (s.path(), s.meta.file_metadata())).collect();
        let reconciled = reconcile(&footers, &options.unite())?;
        // Outputs and tasks know the columns by the names of the output alone.
        let order = match &asked {
            Some(order) => renamed(order, &reconciled)?,
            None => from_sources(&files, &reconciled)?,
        };
        let partition_by = partition::names(options, &reconciled)?;
        let order = partition::order(&partition_by, &order)?;
        let leaves = output_leaves(&reconciled);
        let keys = key_leaves(&order, &reconciled, &leaves)?;
        partition::check(&partition_by, &keys, &reconciled)?;
        check_columns(options, &keys)?;
        if matches!(options.missing_keys, MissingOption::Error) {
            check_present(&order, &keys, &files)?;
        }
        if let Some(codec) = &options.compression {
            parse_codec(codec)?;
        }
        // What is dropped is found when a task is executed; that it can be, now.
        drops::find(options, &order, &reconciled, &leaves)?;
        Ok(Self { files, reconciled, order })
    }

    /// The schema for `runs` of the files, which have it already.
    pub(crate) fn reconcile(
        &self,
        runs: &[Arc<Source>],
        options: &MergeOptions,
    ) -> Result<Reconciled> {
        let carried = CarriedSchema::read(
            &CarriedSchema::write(&self.reconciled)?,
            &self.reconciled.renamed,
        )?;
        carried.reconcile(runs, &options.unite())
    }
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
    let sources = runs.unwrap_or_else(|| Arc::clone(&files));
    let leaves = output_leaves(of_runs.as_ref().unwrap_or(&reconciled));
    let mut keys = key_leaves(&order, of_runs.as_ref().unwrap_or(&reconciled), &leaves)?;
    // Nothing else needs memory yet.
    keys.keep_dictionaries(context.budget().bytes(MemoryStage::PlannedDictionaries));
    let cache =
        Arc::new(LocationCache::new(context, context.budget().bytes(MemoryStage::PageLocations)));
    let reading = Reading { keys: &keys, cache: &cache, context };
    let known = each(&readers(&sources, options.threads, context), sources.len(), |i| {
        context.check_cancelled()?;
        let trust = KeyTrust { footers: options.trust_footers, order: options.assume_sorted };
        let known = |source| known_keys(source, &order, trust, reading);
        let known = Some(&sources[i]).filter(|source| source.rows() > 0).map(known).transpose();
        match known {
            Err(e) if e.kind() == Kind::UnsortedSource => Ok(Err(e)),
            outcome => outcome.map(Ok),
        }
    })?;
    let known = all_sorted(known).map_err(|e| partition::explained(e, options, &order))?;
    let mut sources_keys = Vec::new();
    let mut planned: Vec<PlanSource> = Vec::new();
    for (source, known) in sources.iter().zip(known) {
        let mut of = plan_source(source);
        if let Some((samples, from)) = known {
            of.keys_from = from;
            if let (Some((_, first)), Some((_, last))) = (samples.first(), samples.last()) {
                (of.key_min, of.key_max) = (key_values(&keys, first)?, key_values(&keys, last)?);
                (of.first, of.last) =
                    (Some(KeyBase64(first.clone())), Some(KeyBase64(last.clone())));
            }
            let is_indexed = from == KeysFrom::Footer;
            sources_keys.push(SourceKeys { source: Arc::clone(source), is_indexed, samples });
        }
        planned.push(of);
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
        let indexed = sources_keys.iter().filter(|source_keys| source_keys.is_indexed).count();
        format!(
            "{} sources, keys of {indexed} from footers and of {} from rows; {} regions, {depth} deep",
            sources.len(),
            sources_keys.len() - indexed,
            regions.len()
        )
    });
    let rule = rule(options, &files);
    let mut folders = Vec::new();
    let Cuts { cuts: found, looks } = if options.partition_by.is_empty() {
        cuts(&mut sources_keys, rule, cut_columns, reading)?
    } else {
        let columns = partition::leading(&keys, options)?;
        let reading_columns = Reading { keys: &columns, ..reading };
        let workers = readers(&sources, options.threads, context);
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
        metadata_conflicts: reconciled
            .metadata_conflicts
            .iter()
            .map(|c| ConflictReport {
                key: c.key.clone(),
                kept: c.kept,
                why: c.why.to_owned(),
                files: c.paths.to_vec(),
            })
            .collect(),
        memory: memory_need(&sources, &leaves, &keys.leaves, depth, options.budget()),
        warnings: warnings(&files, &reconciled.metadata_conflicts),
    };
    plan.task = options.naming.task.clone().unwrap_or_else(|| name(&plan, &files));
    let total_bytes = total_bytes(&sources, &keys);
    Ok(PlannedMerge { plan, sources, total_bytes })
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

fn check_columns(options: &MergeOptions, keys: &KeyLeaves) -> Result<()> {
    let sorted = keys.shape.parts().saturating_sub(options.partition_by.len());
    for (name, columns) in
        [("cut_on", options.cut_on.unwrap_or(0)), ("align_row_groups", options.align_row_groups)]
    {
        if columns > sorted {
            return Err(Error::new(
                Kind::InvalidArgument,
                format!("`{name}` counts more columns than the sort order has"),
            )
            .with_got(format!("{columns} of {sorted}"))
            .with_hint("a curve such as `zorder(a, b)` counts as one"));
        }
    }
    let is_cut = options.target_rows.is_some() || options.target_file_size.is_some();
    if is_cut && sorted == 0 && !options.partition_by.is_empty() {
        let what = "files of a partition are cut between keys, and there is no sort column";
        return Err(Error::new(Kind::InvalidArgument, what)
            .with_hint("pass sort_by, or leave out target_rows and target_file_size"));
    }
    Ok(())
}

fn plan_source(source: &Source) -> PlanSource {
    PlanSource {
        path: source.path().to_owned(),
        rows: source.count(&source.span()),
        bytes: source.store.len(),
        row_groups: source.num_row_groups() as u64,
        footer: hexadecimal(&source.footer_hash),
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

/// Stored bytes and rows.
fn stored(sources: &[Arc<Source>]) -> (u64, u64) {
    let groups = sources.iter().flat_map(|s| s.meta.row_groups());
    let bytes = groups.map(|group| group.compressed_size().max(0).unsigned_abs()).sum();
    (bytes, sources.iter().map(|source| source.rows()).sum())
}

/// Says which of `folders`, each with what its keys begin with, the outputs of tasks go to.
fn name_partitions(tasks: &mut [PlanTask], folders: &[(Vec<u8>, String)]) {
    for task in tasks {
        let low = task.low.as_ref().map(|low| low.0.as_slice());
        let at = folders.partition_point(|(prefix, _)| low.is_some_and(|low| **prefix <= *low));
        if let Some((prefix, folder)) = folders.get(at.saturating_sub(1)) {
            task.partition.clone_from(folder);
            task.low.get_or_insert_with(|| KeyBase64(prefix.clone()));
        }
    }
}

fn tasks(sources_keys: &[SourceKeys], cuts: &[OutputCut]) -> Vec<PlanTask> {
    let whole = |source_keys: &SourceKeys| (source_keys.rows(), source_keys.rows());
    let mut tasks = Vec::new();
    let mut low: Option<&OutputCut> = None;
    // How many rows of each source lie before the task, as far as that is known.
    let mut starts: Vec<Count> = vec![(0, 0); sources_keys.len()];
    for index in 0..=cuts.len() {
        let high = cuts.get(index);
        let (mut slices, mut rows, mut exact) = (Vec::new(), 0, true);
        let mut add = |place: usize, end: Count| {
            let start = starts[place];
            // Of a source that is not sorted, keys lead back: each row is in one task all the same.
            let end = (end.0.max(start.0), end.1.max(start.1));
            starts[place] = end;
            if end.1 > start.0 {
                let source = &sources_keys[place].source;
                let first = source.span().start;
                let in_file = |count: Count| (first + count.0, first + count.1);
                let (start, end) = (in_file(start), in_file(end));
                let slice = Slice { source: source.id.index(), start, end };
                let middle = |count: Count| count.0 + (count.1 - count.0) / 2;
                rows += middle(end) - middle(start).min(middle(end));
                exact &= slice.rows().is_some();
                slices.push(slice);
            }
        };
        match high {
            Some(high) => high.rows.iter().for_each(|(place, end)| add(*place, *end)),
            None => sources_keys.iter().map(whole).enumerate().for_each(|(i, end)| add(i, end)),
        }
        let key = |cut: Option<&OutputCut>| cut.and_then(|cut| cut.key.clone()).map(KeyBase64);
        tasks.push(PlanTask {
            index: index as u64,
            low: key(low),
            high: key(high),
            key_low: Vec::new(),
            key_high: Vec::new(),
            partition: String::new(),
            slices,
            rows,
            rows_exact: exact,
            bytes: 0,
            depth_max: 0,
            tiers: Default::default(),
        });
        low = high;
    }
    tasks
}

/// Bytes of the rows of `task` as they are stored in its sources.
fn stored_bytes(task: &PlanTask, sources: &[Arc<Source>]) -> u64 {
    let bytes = |slice: &Slice| {
        let source = sources.get(slice.source)?;
        let rows = (slice.end.0 + slice.end.1).saturating_sub(slice.start.0 + slice.start.1) / 2;
        let share = rows as f64 / source.rows().max(1) as f64;
        let (stored, _) = stored(std::slice::from_ref(source));
        Some((stored as f64 * share) as u64)
    };
    task.slices.iter().filter_map(bytes).sum()
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

/// The options that decide the bytes of outputs; not paths, threads, or what only checks.
fn fixed(options: &MergeOptions) -> MergeOptions {
    MergeOptions {
        threads: None,
        verify: None,
        sha256: false,
        if_exists: IfExists::Error,
        trust_footers: true,
        ..options.clone()
    }
}

/// Names the plan by what decides its outputs: sources, order, options, cuts; not threads. The
/// memory limit counts: it bounds the rows of a row group.
fn name(plan: &Plan, sources: &[Arc<Source>]) -> String {
    let mut hash = Sha256::new();
    let mut add = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    add(b"plait task 2");
    add(plan.sort_by.as_bytes());
    add(serde_json::to_string(&fixed(&plan.options)).unwrap_or_default().as_bytes());
    for source in sources {
        add(&source.store.len().to_le_bytes());
        add(&source.footer_hash);
    }
    for task in &plan.tasks {
        add(task.high.as_ref().map_or(&[], |key| key.0.as_slice()));
        for slice in task.slices.iter().filter(|_| task.high.is_none()) {
            add(&slice.start.0.to_le_bytes());
        }
    }
    hexadecimal(hash.finalize().get(..8).unwrap_or_default())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// What will be done to the schema that the caller may not expect.
fn warnings(sources: &[Arc<Source>], conflicts: &[MetadataConflict]) -> Vec<String> {
    let mut columns = std::collections::BTreeSet::new();
    for column in sources.iter().flat_map(|s| s.meta.file_metadata().schema_descr().columns()) {
        if matches!(column.logical_type_ref(), Some(parquet::basic::LogicalType::_Unknown { .. })) {
            columns.insert(column.path().string());
        }
    }
    let text = |column: String| {
        format!(
            "the logical type of `{column}` is newer than this version of Plait and was left out; values are unchanged"
        )
    };
    let entries = conflicts.iter().map(|c| {
        let done = if c.kept { "is in the output" } else { "was left out" };
        let [first, other] = &c.paths;
        let files =
            if first == other { format!("`{first}`") } else { format!("`{first}`, `{other}`") };
        format!("the footer entry `{}` {done}: it {} ({files})", c.key, c.why)
    });
    columns.into_iter().map(text).chain(entries).collect()
}
