//! Executes tasks of a plan: all of them at once, or some, or one, with the same bytes each time.
//!
//! ```text
//! task 0 ─ prepare ─ run ─▶ temp 0 ─┐
//! task 1 ─ prepare ─ run ─▶ temp 1 ─┼─ all whole ─▶ publish
//! ```
//!
//! # Invariants
//! A task is prepared and run as if there were no other. Keys of an output lie inside of the bounds
//! of its task, or nothing is published.
//!
//! # Not here
//! The plan (`plan`); names (`publish`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use plait_core::key::{prefix_len, render};
use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use super::attempt::{Attempt, Stopped, timed};
use super::cascade;
use super::chosen::ChosenTasks;
use super::frame::Frame;
use super::mapped::{self, MapParts, Mapping, Origin};
use super::prepare::{Prepared, prepare};
use super::publish::{FinishedTask, publish};
use super::run;
use crate::content;
use crate::options::{IfExists, MergeOptions, Verify};
use crate::partition;
use crate::plan::{Plan, PlanTask, PlannedMerge, key_values};
use crate::ranks::KeyForm;
use crate::report::{MergeReport, OutputReport};
use crate::runtime::{Context, Level, Stage};
use crate::sink::Finished;
use crate::source::Source;
use crate::store::Stores;

/// What to execute. What is absent is as it was planned.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExecuteOptions {
    /// A plan as JSON.
    pub plan: String,
    /// Folder, or one `.parquet` file.
    pub out: String,
    /// Indices of the tasks; absent = all.
    pub tasks: Option<Vec<u64>>,
    /// Threads that weave; absent = one per core.
    pub threads: Option<usize>,
    /// What is compared after writing.
    pub verify: Option<Verify>,
    /// Whether the report has a SHA-256 of every output.
    pub sha256: Option<bool>,
    /// What to do when the output is there already.
    pub if_exists: Option<IfExists>,
    /// Bytes of memory to stay within: those of the plan, for whoever makes the context.
    pub memory_limit: u64,
    /// Settings of object stores.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub storage_options: BTreeMap<String, String>,
}

/// Executes tasks of a plan.
///
/// # Errors
/// As [`merge`](super::merge), and [`Kind::SourceChanged`] for a source that is not what was
/// planned.
pub fn execute(options: &ExecuteOptions, context: &Context) -> Result<MergeReport> {
    execute_in(options, &Stores::try_new(&options.storage_options, context)?, context)
}

/// The same, with sources and outputs in `stores`.
///
/// # Errors
/// As [`execute`].
pub(crate) fn execute_in(
    options: &ExecuteOptions,
    stores: &Stores,
    context: &Context,
) -> Result<MergeReport> {
    let plan = Plan::from_json(&options.plan)?;
    let tasks = chosen(&plan, options.tasks.as_deref())?;
    let merge = MergeOptions {
        out: options.out.clone(),
        threads: options.threads.or(plan.options.threads),
        verify: options.verify.or(plan.options.verify),
        sha256: options.sha256.unwrap_or(plan.options.sha256),
        if_exists: options.if_exists.unwrap_or(plan.options.if_exists),
        ..plan.options.clone()
    };
    merge.check_values()?;
    let what = ChosenTasks { plan: &plan, tasks: &tasks, sources: None, files: &[] };
    let outcome = timed(&merge, stores, context, KeyForm::Ranked, |attempt| {
        execute_chosen(&what, attempt).map_err(|stopped| {
            match stopped.is_stale {
                true => stopped.error.with_hint(
                    "a footer has keys of other rows; write the file again, or plan with trust_footers=False",
                ),
                false => stopped.error,
            }
        })
    });
    context.buffers().release_idle();
    outcome
}

/// The tasks at `indices`, in key order; each once.
fn chosen<'a>(plan: &'a Plan, indices: Option<&[u64]>) -> Result<Vec<&'a PlanTask>> {
    let Some(indices) = indices else { return Ok(plan.tasks.iter().collect()) };
    let has = |index: &u64| plan.tasks.iter().any(|task| task.index == *index);
    if let Some(index) = indices.iter().find(|index| !has(index)) {
        return Err(Error::new(Kind::InvalidArgument, "the plan has no such task")
            .with_got(format!("task {index} of {} tasks", plan.tasks.len())));
    }
    Ok(plan.tasks.iter().filter(|task| indices.contains(&task.index)).collect())
}

/// Executes all tasks of a plan that was just made, of sorted runs of `files` or of the sources.
pub(super) fn execute_all(
    made: &PlannedMerge,
    files: &[Arc<Source>],
    attempt: &mut Attempt<'_>,
) -> Result<MergeReport, Stopped> {
    let tasks: Vec<_> = made.plan.tasks.iter().collect();
    let what = ChosenTasks { plan: &made.plan, tasks: &tasks, sources: Some(&made.sources), files };
    execute_chosen(&what, attempt)
}

fn execute_chosen(
    what: &ChosenTasks<'_>,
    attempt: &mut Attempt<'_>,
) -> Result<MergeReport, Stopped> {
    let started = Instant::now();
    let frame = Frame::open(what, attempt)?;
    attempt.times.plan_s += started.elapsed().as_secs_f64();
    let outcome = execute_in_frame(&frame, what, attempt);
    if outcome.is_err() {
        frame.target.abandon();
    }
    outcome.map_err(|stopped| Stopped {
        error: partition::explained(stopped.error, attempt.options, &frame.order),
        ..stopped
    })
}

fn execute_in_frame(
    frame: &Frame<'_>,
    what: &ChosenTasks<'_>,
    attempt: &mut Attempt<'_>,
) -> Result<MergeReport, Stopped> {
    // What is found of ranks here says nothing of another attempt.
    let attempt = &mut Attempt { times: &mut *attempt.times, ..*attempt };
    let context = attempt.context;
    if what.sources.is_none() {
        context.counters().set_total(what.tasks.iter().map(|task| task.bytes).sum());
    }
    let mut all = Vec::new();
    for task in what.tasks {
        let before = *attempt.times;
        let done = match execute_task(frame, task, attempt) {
            Err(Stopped { is_broken: true, .. }) => {
                // Some footer does not tell what its file holds.
                context.events().record(Level::Info, "merge", || {
                    format!("output {}: a footer is wrong, merged again by its rows", task.index)
                });
                if all.is_empty() {
                    context.counters().start_over();
                }
                (attempt.form, *attempt.times) = (KeyForm::Stored, before);
                execute_task(frame, task, attempt)?
            }
            done => done?,
        };
        context.events().record(Level::Debug, "merge", || {
            let rows: u64 = done.outputs.iter().map(|output| output.rows).sum();
            let bytes: u64 = done.outputs.iter().map(|output| output.bytes).sum();
            let (count, dropped) = (all.len() + 1, done.made.dropped.rows());
            format!(
                "output {}, {count} of {}: {rows} rows, {bytes} bytes, {dropped} rows dropped",
                task.index,
                what.tasks.len()
            )
        });
        for warning in &done.warnings {
            context
                .events()
                .record(Level::Info, "merge", || format!("output {}: {warning}", task.index));
        }
        all.push(done);
    }
    Ok(publish(frame, what, all, attempt)?)
}

pub(super) fn execute_task(
    frame: &Frame<'_>,
    task: &PlanTask,
    attempt: &mut Attempt<'_>,
) -> Result<FinishedTask, Stopped> {
    let started = Instant::now();
    let prepared = prepare(frame, task, attempt)?;
    attempt.times.plan_s += started.elapsed().as_secs_f64();
    attempt.context.counters().enter(Stage::Merge);
    run_prepared(&prepared, task, attempt).map_err(|mut stopped| {
        stopped.is_broken |= prepared.has_broken_ranks();
        stopped
    })
}

fn run_prepared(
    prepared: &Prepared<'_>,
    task: &PlanTask,
    attempt: &mut Attempt<'_>,
) -> Result<FinishedTask, Stopped> {
    let Attempt { options, context, .. } = *attempt;
    let header = options.row_map.then(|| mapped::header(prepared, attempt.stores)).transpose()?;
    let mut narrowed = cascade::narrow(prepared, header.as_ref(), attempt)?;
    let origins = narrowed.as_mut().and_then(|narrowed| narrowed.origins.take());
    let what = narrowed.as_ref().map_or(prepared, |narrowed| &narrowed.prepared);
    let mapping = header.map(|header| {
        let temp = prepared.create_map()?;
        let origins = origins.unwrap_or_else(|| Origin::all(prepared.sources.len()));
        Mapping::begin(MapParts { header, temp, origins, context }, what)
    });
    let made = run::run(what, mapping.transpose()?, attempt)
        .map_err(|error| Stopped { is_broken: what.has_broken_ranks(), ..error.into() })?;
    let mut warnings = made.warnings.clone();
    warnings.extend(narrowed.as_ref().map(|cascade::Narrowed { sources, at_once, .. }| {
        format!(
            "{sources} overlapping sources were merged in two passes: memory_limit allows {at_once} at once"
        )
    }));
    let passes = 1 + u64::from(narrowed.is_some());
    drop(narrowed);
    let rows_out: u64 = made.outputs.iter().map(|output| output.rows).sum();
    let (rows_in, dropped) = (prepared.all_rows(), made.dropped.rows());
    if rows_in != rows_out + dropped {
        return Err(Error::new(Kind::Internal, "rows do not add up, nothing was published")
            .with_got(format!("{rows_out} rows and {dropped} dropped out of {rows_in}"))
            .with_hint("please report this")
            .into());
    }
    for output in &made.outputs {
        check_bounds(prepared, task, output, options)?;
    }
    let content = match options.verify {
        Some(Verify::Content) => {
            let (outputs, threads) = (&made.outputs, options.threads);
            let comparing = Instant::now();
            context.counters().enter(Stage::Verify);
            let rows = content::HashedRows {
                sources: &prepared.sources,
                rows: &prepared.rows,
                leaves: &prepared.source_leaves,
                constants: &BTreeMap::new(),
            };
            // What the folder of the outputs tells of every row of theirs.
            let constants = content::first_values(&rows, &prepared.left_out, context)?;
            let hash = match prepared.frame.merges_runs {
                // Their files are compared with all outputs at once.
                true => content::hash_outputs(outputs, &rows, &constants, threads, context)?.total,
                false => content::compare_outputs(&rows, outputs, &constants, threads, context)?,
            };
            attempt.times.verify_s += comparing.elapsed().as_secs_f64();
            context.counters().enter(Stage::Merge);
            Some(hash)
        }
        None => None,
    };
    let outputs = made.outputs.iter().map(|output| report(prepared, output, options));
    let slices = task.slices.iter().map(|slice| slice.source);
    let counts = prepared.sources.iter().zip(&prepared.rows);
    Ok(FinishedTask {
        outputs: outputs.collect::<Result<_>>()?,
        rows: slices.zip(counts.map(|(source, rows)| source.count(rows))).collect(),
        leaves: prepared.leaves.len() as u64,
        content,
        warnings,
        passes,
        made,
    })
}

/// Keys of an output are those of its task, or the plan relied on a footer that is wrong.
fn check_bounds(
    prepared: &Prepared<'_>,
    task: &PlanTask,
    output: &Finished,
    options: &MergeOptions,
) -> Result<(), Stopped> {
    let trusts_footers = prepared.frame.plan.trusts_footers;
    let Some((min, max)) = output.key_range.as_ref().filter(|_| !prepared.order().is_empty())
    else {
        return Ok(());
    };
    let shape = &prepared.keys.shape;
    let columns = prepared.partition_columns();
    // Between the bounds of a task there is one partition, if its sources are sorted.
    let partition = min.get(..prefix_len(shape, min, columns)?).unwrap_or(min);
    let is_inside = task.low.as_ref().is_none_or(|low| low.0 <= *min)
        && task.high.as_ref().is_none_or(|high| *max < high.0)
        && max.starts_with(partition)
        && (columns == 0 || task.low.as_ref().is_some_and(|low| low.0.starts_with(partition)));
    if is_inside || (options.assume_sorted && !trusts_footers) {
        return Ok(());
    }
    let error = Error::new(Kind::UnsortedSource, "a source has keys outside of its task")
        .with_got(format!("keys from {} to {}", render(shape, min), render(shape, max)));
    Err(Stopped { is_stale: trusts_footers, ..error.into() })
}

/// How many rows an output should have at most.
fn target_rows(prepared: &Prepared<'_>, options: &MergeOptions) -> Option<u64> {
    let plan = &prepared.frame.plan;
    let share = |outputs: u64| {
        let rows = plan.rows.div_ceil(outputs.max(1));
        // Keys out of footers are some rows apart: outputs are larger where nothing had to stay
        // together.
        if plan.trusts_footers { rows + rows / 16 } else { rows }
    };
    let equal = options.outputs.filter(|_| plan.rows > 0).map(share);
    options.target_rows.or(equal)
}

fn report(
    prepared: &Prepared<'_>,
    output: &Finished,
    options: &MergeOptions,
) -> Result<OutputReport> {
    let (key_min, key_max) = match &output.key_range {
        Some((min, max)) => (key_values(&prepared.keys, min)?, key_values(&prepared.keys, max)?),
        None => (Vec::new(), Vec::new()),
    };
    Ok(OutputReport {
        path: String::new(),
        rows: output.rows,
        bytes: output.bytes,
        row_groups: output.row_groups,
        key_min,
        key_max,
        sha256: None,
        oversized: target_rows(prepared, options).is_some_and(|n| output.rows > n)
            || options.target_file_size.is_some_and(|n| output.bytes > n + n / 10 * 3),
        span: None,
        tiers: BTreeMap::new(),
        row_map: None,
    })
}
