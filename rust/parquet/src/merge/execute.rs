//! Executes tasks of a plan: all of them at once, or some, or one, with the same bytes each time.
//!
//! ```text
//! task 0 ─ prepare ─ run ─▶ temp 0 ─┐
//! task 1 ─ prepare ─ run ─▶ temp 1 ─┼─ all whole ─▶ publish
//! ```
//!
//! # Invariants
//! Nothing is published unless all outputs are whole.
//!
//! # Not here
//! The plan (`plan`); one task (`task`), and several at a time (`at_once`); names (`publish`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use super::at_once::execute_tasks;
use super::attempt::{Attempt, Stopped, timed};
use super::chosen::ChosenTasks;
use super::frame::Frame;
use super::publish::publish;
use crate::options::{IfExists, MergeOptions, Verify};
use crate::partition;
use crate::plan::{Plan, PlanTask, PlannedMerge};
use crate::ranks::KeyForm;
use crate::report::MergeReport;
use crate::runtime::Context;
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
    /// Bytes of the limit for this call, if other calls have the rest, for whoever makes the context;
    /// absent = all. Outputs do not depend on it.
    pub share_bytes: Option<u64>,
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
    let all = execute_tasks(frame, what.tasks, attempt)?;
    Ok(publish(frame, what, all, attempt)?)
}
