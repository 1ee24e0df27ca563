//! Merges some rows first, for how many bytes they take, and throws them away.
//!
//! ```text
//! Draft ─ trials ─▶ tasks ─ prepare, run ─▶ bytes ─ learn ─▶ Learned ─ plan ─▶ outputs of the size
//!            ▲                                                  │
//!            └── longer ones, others between unlike places ─────┘
//! ```
//!
//! # Invariants
//! A trial writes only what does not fit in memory, to the temporary folder of the system. What is
//! found depends on sources and options alone, as does the plan that is made of it.
//!
//! # Cost
//! An eighth of the bytes of many sources, up to a half of few small ones (`plan::sample`).
//!
//! # Not here
//! Which rows are tried (`plan::make`); rows of an output (`plan::pace`).

use std::sync::Arc;

use plait_core::{Kind, Result};

use super::attempt::{Attempt, Stopped};
use super::cascade::narrow;
use super::chosen::ChosenTasks;
use super::frame::Frame;
use super::prepare::prepare;
use super::run;
use crate::options::MergeOptions;
use crate::output::Target;
use crate::plan::{Draft, Learned, PlanTask, PlannedMerge, Trials, Tried};
use crate::ranks::KeyForm;
use crate::report::Times;
use crate::runtime::{Context, Level};
use crate::source::Source;
use crate::store::Stores;

/// Rounds of trials: of longer ones, where files have many more rows than were tried, and of others
/// between places whose rows are unlike.
const ROUNDS: usize = 5;

/// Plans the merge of `draft`, with files of the size that was asked for.
///
/// # Errors
/// As those of [`merge`](crate::merge()), but for those of writing.
pub(super) fn plan_with_trials(
    mut draft: Draft<'_>,
    options: &MergeOptions,
    stores: &Stores,
    context: &Context,
) -> Result<PlannedMerge> {
    let mut learned: Option<Learned> = None;
    for _ in 0..ROUNDS {
        let Some(trials) = draft.trials(learned.as_ref())? else { break };
        let tried = try_out(&trials, draft.sources(), options, stores, context)?;
        learned = draft.learn(learned, &trials, &tried);
        draft.end(trials);
        if learned.is_none() {
            break;
        }
    }
    draft.plan(learned.as_ref())
}

/// What the rows of each trial become; nothing of those that are found not to be sorted.
fn try_out(
    trials: &Trials,
    sources: &[Arc<Source>],
    options: &MergeOptions,
    stores: &Stores,
    context: &Context,
) -> Result<Vec<Tried>> {
    let counters = context.counters();
    let (rows_written, read_ahead) = (counters.rows_written(), context.read_ahead_bytes());
    // What is empty takes no bytes.
    let options = &MergeOptions { empty_output: false, row_map: false, ..options.clone() };
    let mut times = Times::default();
    let (form, times) = (KeyForm::Ranked, &mut times);
    let mut attempt = Attempt { options, stores, context, form, times };
    let tasks: Vec<&PlanTask> = trials.plan.tasks.iter().collect();
    let what =
        ChosenTasks { plan: &trials.plan, tasks: &tasks, sources: Some(sources), files: &[] };
    let frame = Frame::of(&what, Target::nowhere(context), &attempt)?;
    let tried = tasks.iter().map(|task| match try_task(&frame, task, &mut attempt) {
        // The merge checks all rows, and reports or repairs what is wrong.
        Err(Stopped { error, is_broken, is_stale })
            if is_broken || is_stale || error.kind() == Kind::UnsortedSource =>
        {
            context.events().record(Level::Debug, "plan", || format!("rows not tried: {error}"));
            Ok(Tried::default())
        }
        outcome => outcome.map_err(|stopped| stopped.error),
    });
    let tried = tried.collect();
    counters.set_rows_written(rows_written);
    context.set_read_ahead_bytes(read_ahead);
    tried
}

fn try_task(
    frame: &Frame<'_>,
    task: &PlanTask,
    attempt: &mut Attempt<'_>,
) -> Result<Tried, Stopped> {
    let prepared = prepare(frame, task, attempt)?;
    let narrowed = narrow(&prepared, None, attempt)?;
    let what = narrowed.as_ref().map_or(&prepared, |narrowed| &narrowed.prepared);
    let made = run::run(what, None, attempt)
        .map_err(|error| Stopped { is_broken: what.has_broken_ranks(), ..error.into() })?;
    Ok(Tried {
        // With rows that a source passes over: plans count these, too.
        rows: prepared.rows.iter().map(|rows| rows.end - rows.start).sum(),
        bytes: made.outputs.iter().map(|output| output.bytes).sum(),
    })
}
