//! Tasks of a plan, one after the other or several at a time.
//!
//! ```text
//! threads      task 0 ▓▓▓▓▓▓▓▓▓▓ task 2 ▓▓▓▓▓▓▓▓▓
//! threads      task 1 ▓▓▓▓▓▓▓▓ task 3 ▓▓▓▓▓▓▓▓▓▓▓▓ task 4 …
//! ```
//!
//! # Invariants
//! Outputs do not depend on how many tasks run at a time, nor does the error: it is that of the first
//! task that fails, and only tasks behind it are stopped. Tasks that run together have a part of the
//! memory limit each.
//!
//! # Cost
//! A task that runs with others holds as much memory as one that runs alone, up to its part.
//!
//! # Not here
//! How many run at a time (`runtime::budget`); what a task does (`task`).

use std::sync::{Mutex, MutexGuard, PoisonError};

use plait_core::workers::each;
use plait_core::{Error, Kind};

use super::attempt::{Attempt, Stopped};
use super::frame::{Frame, FramePart};
use super::publish::FinishedTask;
use super::task::execute_task;
use crate::plan::PlanTask;
use crate::ranks::KeyForm;
use crate::report::Times;
use crate::runtime::{Context, Level, ScopedWorkers};

/// Executes tasks of the frame's plan; gives what they made, in their order.
///
/// # Errors
/// Of the first task that fails.
pub(super) fn execute_tasks(
    frame: &Frame<'_>,
    tasks: &[&PlanTask],
    attempt: &mut Attempt<'_>,
) -> Result<Vec<FinishedTask>, Stopped> {
    if !frame.parts.is_empty() {
        return execute_together(&frame.parts, tasks, attempt);
    }
    let mut all = Vec::new();
    for task in tasks {
        let done = execute_or_again(frame, task, all.is_empty(), attempt)?;
        report(task, &done, all.len() + 1, tasks.len(), attempt.context);
        all.push(done);
    }
    Ok(all)
}

/// Executes a task; if a footer does not tell what its file holds, again by its rows.
fn execute_or_again(
    frame: &Frame<'_>,
    task: &PlanTask,
    is_first: bool,
    attempt: &mut Attempt<'_>,
) -> Result<FinishedTask, Stopped> {
    let before = *attempt.times;
    match execute_task(frame, task, attempt) {
        Err(Stopped { is_broken: true, .. }) => {
            attempt.context.events().record(Level::Info, "merge", || {
                format!("output {}: a footer is wrong, merged again by its rows", task.index)
            });
            if is_first {
                attempt.context.counters().start_over();
            }
            (attempt.form, *attempt.times) = (KeyForm::Stored, before);
            execute_task(frame, task, attempt)
        }
        done => done,
    }
}

fn report(task: &PlanTask, done: &FinishedTask, count: usize, of: usize, context: &Context) {
    let index = task.index;
    context.events().record(Level::Debug, "merge", || {
        let rows: u64 = done.outputs.iter().map(|output| output.rows).sum();
        let bytes: u64 = done.outputs.iter().map(|output| output.bytes).sum();
        let dropped = done.made.dropped.rows();
        format!(
            "output {index}, {count} of {of}: {rows} rows, {bytes} bytes, {dropped} rows dropped"
        )
    });
    for warning in &done.warnings {
        context.events().record(Level::Info, "merge", || format!("output {index}: {warning}"));
    }
}

/// Executes tasks in `parts` of a frame, each of which has one task at a time.
fn execute_together(
    parts: &[FramePart<'_>],
    tasks: &[&PlanTask],
    attempt: &mut Attempt<'_>,
) -> Result<Vec<FinishedTask>, Stopped> {
    let Attempt { options, stores, form, context, .. } = *attempt;
    let state = Mutex::new(Together { idle: parts.iter().collect(), ..Together::default() });
    let lock = || -> MutexGuard<'_, Together<'_, '_>> {
        state.lock().unwrap_or_else(PoisonError::into_inner)
    };
    let outcomes = each(&ScopedWorkers::new(Some(parts.len())), tasks.len(), |place| {
        let Some(part) = lock().begin(place) else { return Ok(Err(not_begun())) };
        let (mut times, task) = (Times::default(), tasks[place]);
        let mut own = Attempt { options, stores, context: &part.context, form, times: &mut times };
        let outcome = execute_or_again(&part.frame, task, false, &mut own);
        let count = lock().end(place, part, times, outcome.is_ok());
        if let Ok(done) = &outcome {
            report(task, done, count, tasks.len(), context);
        }
        Ok(outcome)
    })?;
    let state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
    attempt.times.add(&state.times);
    outcomes.into_iter().collect()
}

/// Another task failed, whose error is given.
fn not_begun() -> Stopped {
    Error::new(Kind::Cancelled, "a task before this one failed").into()
}

/// Tasks that run together.
#[derive(Default)]
struct Together<'p, 'f> {
    idle: Vec<&'p FramePart<'f>>,
    /// Those that run, by place.
    running: Vec<(usize, &'p FramePart<'f>)>,
    done: usize,
    /// The place of the first that failed.
    failed: Option<usize>,
    times: Times,
}

impl<'p, 'f> Together<'p, 'f> {
    /// The part in which the task at `place` runs; none if one before it failed.
    fn begin(&mut self, place: usize) -> Option<&'p FramePart<'f>> {
        if self.failed.is_some_and(|failed| failed < place) {
            return None;
        }
        let part = self.idle.pop()?;
        self.running.push((place, part));
        Some(part)
    }

    /// Ends the task at `place`; gives how many are done. Once one failed, those behind it stop.
    fn end(&mut self, place: usize, part: &'p FramePart<'f>, times: Times, is_done: bool) -> usize {
        self.running.retain(|(running, _)| *running != place);
        // A part that was stopped is not used again: a task before the one that failed may be about to
        // begin.
        if self.failed.is_none_or(|failed| place <= failed) {
            self.idle.push(part);
        }
        self.times.add(&times);
        match is_done {
            true => self.done += 1,
            false => {
                let first = self.failed.map_or(place, |failed| failed.min(place));
                self.failed = Some(first);
                let behind = self.running.iter().filter(|(running, _)| *running > first);
                behind.for_each(|(_, part)| part.context.cancel());
            }
        }
        self.done
    }
}
