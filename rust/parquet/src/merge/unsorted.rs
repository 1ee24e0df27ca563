//! Merges files that may be in no order: those that are not are sorted first, or left out.
//!
//! ```text
//! find: which rows are in order? ─┬─ all ────────────────────────────▶ plan ─▶ execute
//!                                 ├─ skip: the files that are ───────▶
//!                                 └─ sort: runs of all rows (`sort`) ▶
//! ```
//!
//! # Invariants
//! As for every merge: all rows are in the outputs, or nothing is. Files that are left out are named
//! in the report. A file that is taken for sorted by its footer and is not is found by the merge,
//! which then looks at the keys of all files.
//!
//! # Not here
//! Making runs (`sort`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use plait_core::{Error, Kind, Result};

use super::attempt::{Attempt, Stopped};
use super::execute::execute_all;
use super::trial::plan_with_trials;
use crate::files::open_merged;
use crate::options::{MergeOptions, UnsortedOption};
use crate::output::Target;
use crate::plan::{Draft, MergedFiles, Plan, PlannedMerge};
use crate::report::{MergeReport, SortReport, SourceReport};
use crate::runtime::{Context, Level, Pool, Stage};
use crate::sort::{FileOrder, SortCall, find, make_runs};
use crate::source::Source;
use crate::store::Stores;

/// Plans and executes the merge of files of which some may be unsorted.
pub(super) fn plan_and_execute(attempt: &mut Attempt<'_>) -> Result<MergeReport, Stopped> {
    let Attempt { options, stores, context, .. } = *attempt;
    let started = Instant::now();
    context.counters().enter(Stage::Plan);
    let sources = open_merged(options, stores, context)?;
    let (mut merged, mut found) = look(options, sources, context)?;
    let mut report =
        SortReport { unsorted: unsorted_paths(&merged, &found), ..SortReport::default() };
    tell(context, &merged, &report);
    if options.unsorted == UnsortedOption::Skip && !report.unsorted.is_empty() {
        (merged, found) = without(merged, found, options)?;
    }
    if found.iter().all(FileOrder::is_sorted) {
        let draft = Draft::new(options, merged, None, context)?;
        let made = plan_with_trials(draft, options, stores, context)?;
        attempt.times.plan_s = started.elapsed().as_secs_f64();
        let done = execute(&made, &[], attempt)?;
        return Ok(MergeReport { sort: Some(report), ..done });
    }
    if options.row_map {
        return Err(Error::new(Kind::Unsupported, "rows that are sorted first have no row map")
            .with_got(report.unsorted.join(", "))
            .with_hint("sort the files on their own, then merge what that makes with row_map")
            .into());
    }
    attempt.times.plan_s = started.elapsed().as_secs_f64();
    let target = Arc::new(Target::open(&options.out, stores, context)?);
    let parts = SortedParts { merged, found, report: &mut report, target: &target };
    let outcome = sort_and_execute(parts, attempt);
    if outcome.is_err() {
        target.abandon();
    }
    outcome.map(|done| MergeReport { sort: Some(report), ..done })
}

/// Plans the merge of those of `sources` that are sorted, if the others are to be left out.
///
/// # Errors
/// As [`Draft::new`]; [`Kind::Unsupported`] if something had to be sorted.
pub(super) fn plan(
    options: &MergeOptions,
    sources: Vec<Arc<Source>>,
    stores: &Stores,
    context: &Context,
) -> Result<Plan> {
    let (mut merged, mut found) = look(options, sources, context)?;
    let unsorted = unsorted_paths(&merged, &found);
    tell(context, &merged, &SortReport { unsorted: unsorted.clone(), ..SortReport::default() });
    if options.unsorted == UnsortedOption::Sort && !unsorted.is_empty() {
        let (rows, of): (u64, u64) = (
            found.iter().map(FileOrder::loose_rows).sum(),
            merged.files.iter().map(|file| file.live_rows()).sum(),
        );
        let files = merged.files.len();
        return Err(Error::new(Kind::Unsupported, "what is sorted first has no plan")
            .with_got(format!(
                "{} of {files} files that are not sorted: {rows} of {of} rows to sort",
                unsorted.len()
            ))
            .with_hint("merge without a plan, or plan the sorted files with unsorted=\"skip\""));
    }
    if !unsorted.is_empty() {
        (merged, found) = without(merged, found, options)?;
    }
    debug_assert!(found.iter().all(FileOrder::is_sorted), "unsorted files were left out");
    let draft = Draft::new(options, merged, None, context)?;
    let mut plan = plan_with_trials(draft, options, stores, context)?.plan;
    if !unsorted.is_empty() {
        plan.warnings.push(format!("left out, because not sorted: {}", unsorted.join(", ")));
    }
    Ok(plan)
}

fn unsorted_paths(merged: &MergedFiles, found: &[FileOrder]) -> Vec<String> {
    let unsorted = found.iter().filter(|order| !order.is_sorted());
    unsorted.map(|order| merged.files[order.file].path().to_owned()).collect()
}

/// Looks which rows of `files` are in order.
fn look(
    options: &MergeOptions,
    files: Vec<Arc<Source>>,
    context: &Context,
) -> Result<(MergedFiles, Vec<FileOrder>)> {
    let merged = MergedFiles::describe(options, Arc::new(files))?;
    let found = find(SortCall { merged: &merged, options, context })?;
    Ok((merged, found))
}

fn tell(context: &Context, merged: &MergedFiles, report: &SortReport) {
    context.events().record(Level::Info, "sort", || {
        let (unsorted, files) = (report.unsorted.len(), merged.files.len());
        format!("{unsorted} of {files} files are not sorted by {}", merged.order)
    });
}

/// The files that are sorted.
pub(super) fn without(
    merged: MergedFiles,
    found: Vec<FileOrder>,
    options: &MergeOptions,
) -> Result<(MergedFiles, Vec<FileOrder>)> {
    let sorted: Vec<FileOrder> = found.into_iter().filter(FileOrder::is_sorted).collect();
    let files: Vec<Arc<Source>> = sorted
        .iter()
        .enumerate()
        .map(|(i, order)| {
            let id = plait_core::SourceId(u32::try_from(i).unwrap_or(u32::MAX));
            Arc::new(merged.files[order.file].with_id(id))
        })
        .collect();
    if files.is_empty() {
        let what = format!("no source is sorted by {}", merged.order);
        return Err(Error::new(Kind::UnsortedSource, what)
            .with_got(format!("{} unsorted files", merged.files.len()))
            .with_hint("pass unsorted=\"sort\", or another sort_by"));
    }
    let renumbered =
        sorted.into_iter().enumerate().map(|(i, order)| FileOrder { file: i, ..order });
    let options = MergeOptions { sort_by: Some(merged.order.to_string()), ..options.clone() };
    Ok((MergedFiles::describe(&options, Arc::new(files))?, renumbered.collect()))
}

/// What is sorted, and where temp files go.
struct SortedParts<'a> {
    merged: MergedFiles,
    found: Vec<FileOrder>,
    report: &'a mut SortReport,
    target: &'a Arc<Target>,
}

fn sort_and_execute(
    parts: SortedParts<'_>,
    attempt: &mut Attempt<'_>,
) -> Result<MergeReport, Stopped> {
    let SortedParts { merged, found, report, target } = parts;
    let Attempt { options, context, .. } = *attempt;
    let sorting = Instant::now();
    context.counters().enter(Stage::Sort);
    let pool = Pool::new(context.budget().share_tasks(options.threads_or_cores(), 1, 0).threads)?;
    let call = SortCall { merged: &merged, options, context };
    expect_reads(context, &merged, &found);
    let runs = make_runs(call, found, target, pool.as_ref())?;
    drop(pool);
    context.buffers().release_idle();
    report.rows = runs.sorted_rows;
    report.runs = runs.sources.len() as u64;
    attempt.times.sort_s = sorting.elapsed().as_secs_f64();
    context.counters().enter(Stage::Plan);
    let planning = Instant::now();
    let files = Arc::clone(&merged.files);
    let draft = Draft::new(options, merged, Some(Arc::clone(&runs.sources)), context)?;
    let made = plan_with_trials(draft, options, attempt.stores, context)?;
    attempt.times.plan_s += planning.elapsed().as_secs_f64();
    let done = execute(&made, &files, attempt)?;
    Ok(MergeReport { sources: by_file(&files, &done.sources), ..done })
}

/// Says how many bytes sorting and merging will read: loose rows twice, once from a temp file.
fn expect_reads(context: &Context, merged: &MergedFiles, found: &[FileOrder]) {
    let expected = found.iter().map(|order| {
        let file = &merged.files[order.file];
        let loose = order.loose_rows() as f64 / file.rows().max(1) as f64;
        (file.store.len() as f64 * (1.0 + loose)) as u64
    });
    let counters = context.counters();
    counters.set_total(counters.consumed_bytes() + expected.sum::<u64>());
}

fn execute(
    made: &PlannedMerge,
    files: &[Arc<Source>],
    attempt: &mut Attempt<'_>,
) -> Result<MergeReport, Stopped> {
    let counters = attempt.context.counters();
    counters.set_total(counters.consumed_bytes() + made.total_bytes);
    execute_all(made, files, attempt)
}

/// The files that were sorted, in place of the runs that were made of them.
fn by_file(files: &[Arc<Source>], runs: &[SourceReport]) -> Vec<SourceReport> {
    let mut spans: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for run in runs {
        if let Some((first, last)) = run.span {
            let span = spans.entry(&run.path).or_insert((first, last));
            *span = (span.0.min(first), span.1.max(last));
        }
    }
    let report = |file: &Arc<Source>| SourceReport {
        path: file.path().to_owned(),
        rows: file.live_rows(),
        bytes: file.store.len(),
        row_groups: file.num_row_groups(),
        span: spans.get(file.path()).copied(),
    };
    files.iter().map(report).collect()
}
