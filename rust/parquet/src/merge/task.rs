//! One task of a plan: from its slices to outputs that are whole, and have no names yet.
//!
//! ```text
//! slices ─ prepare ─▶ narrow, if memory does not allow one pass ─ run ─▶ temp files ─▶ checks
//! ```
//!
//! # Invariants
//! A task is prepared and run as if there were no other. Keys of an output lie inside of the bounds
//! of its task, or nothing is published.
//!
//! # Not here
//! Several tasks (`at_once`); names (`publish`).

use std::collections::BTreeMap;
use std::time::Instant;

use plait_core::key::{prefix_len, render};
use plait_core::{Error, Kind, Result};

use super::attempt::{Attempt, Stopped};
use super::cascade;
use super::frame::Frame;
use super::mapped::{self, MapParts, Mapping, Origin};
use super::prepare::{Prepared, prepare};
use super::publish::FinishedTask;
use super::run;
use crate::content;
use crate::options::{MergeOptions, Verify};
use crate::plan::{PlanTask, key_values};
use crate::report::OutputReport;
use crate::runtime::Stage;
use crate::sink::Finished;

/// Executes `task` of the frame's plan.
///
/// # Errors
/// As [`merge`](super::merge).
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
        let temp = prepared.create_map(context)?;
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
            let (outputs, threads) = (&made.outputs, Some(prepared.frame.threads));
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
