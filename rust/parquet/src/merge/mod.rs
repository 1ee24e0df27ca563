//! Merges sorted Parquet files into few sorted files whose key ranges do not overlap.
//!
//! ```text
//! prepare   footers ─▶ one schema ─▶ sort order ─▶ bounds ─▶ regions
//! run       keys ─▶ windows ─▶ weave or copy ─▶ outputs under temp names
//! publish   rows add up? sources unchanged? ─▶ rename all
//! ```
//!
//! # Invariants
//! Nothing is visible before every output is whole, durable and counted. Sources are only read.
//!
//! # Cost
//! Key columns are read twice, everything else once. Memory: see `budget`.
//!
//! # Not here
//! The order of rows (`plait_core::plan`).

mod cascade;
mod drops;
mod ordering;
mod prepare;
mod publish;
#[cfg(test)]
mod ranks_tests;
mod run;
mod sizes;
mod tail;

use std::time::Instant;

use plait_core::{Error, Result};

use crate::context::Context;
use crate::options::MergeOptions;
use crate::report::{MergeReport, Times};
use crate::store::Stores;
use prepare::Prepared;

/// Merges as `options` say.
///
/// # Errors
/// Every [`Kind`](plait_core::Kind); whatever it is, no output is visible and no source changed.
/// The one exception: when a rename fails or the process dies between two renames, the outputs
/// renamed before stay, each whole; running the merge again replaces them with the same bytes.
pub fn merge(options: &MergeOptions, context: &Context) -> Result<MergeReport> {
    merge_in(options, &Stores::try_new(&options.storage_options, context)?, context)
}

/// Merges as `options` say, what is in `stores`.
///
/// # Errors
/// As [`merge`].
pub fn merge_in(options: &MergeOptions, stores: &Stores, context: &Context) -> Result<MergeReport> {
    let outcome = merge_with(options, stores, context, true);
    context.release_idle();
    outcome
}

fn merge_with(
    options: &MergeOptions,
    stores: &Stores,
    context: &Context,
    with_ranks: bool,
) -> Result<MergeReport> {
    let started = Instant::now();
    let cpu_before = cpu_seconds();
    options.check()?;
    let mut times = Times::default();
    let mut report = match attempt(options, stores, context, with_ranks, &mut times) {
        Ok(report) => report,
        Err(Stopped { is_broken: false, error }) => return Err(error),
        // Some footer does not tell what its file holds.
        Err(_) => {
            context.start_over();
            times = Times::default();
            attempt(options, stores, context, false, &mut times).map_err(|stopped| stopped.error)?
        }
    };
    times.wall_s = started.elapsed().as_secs_f64();
    times.cpu_s = cpu_before.and_then(|before| Some(cpu_seconds()? - before));
    report.time = times;
    report.memory.limit_bytes = context.limit_bytes() as u64;
    report.memory.peak_accounted_bytes = context.peak_bytes();
    if context.peak_bytes() > context.limit_bytes() as u64 {
        report.warnings.push(format!(
            "memory_limit was exceeded: {} bytes were held of {} allowed; pages and rows of these sources need more",
            context.peak_bytes(),
            context.limit_bytes()
        ));
    }
    Ok(report)
}

/// Why an attempt made nothing.
struct Stopped {
    error: Error,
    /// Whether ranks are to blame.
    is_broken: bool,
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Self { error, is_broken: false }
    }
}

/// Merges once; what fails leaves nothing.
fn attempt(
    options: &MergeOptions,
    stores: &Stores,
    context: &Context,
    with_ranks: bool,
    times: &mut Times,
) -> Result<MergeReport, Stopped> {
    let started = Instant::now();
    context.enter_stage(0);
    let prepared = prepare::prepare(options, stores, context, with_ranks)?;
    times.plan_s = started.elapsed().as_secs_f64();
    context.enter_stage(1);
    merge_prepared(&prepared, options, context, with_ranks, times).map_err(|mut stopped| {
        prepared.target.abandon();
        stopped.is_broken |= prepared.has_broken_ranks();
        stopped
    })
}

fn merge_prepared(
    prepared: &Prepared,
    options: &MergeOptions,
    context: &Context,
    with_ranks: bool,
    times: &mut Times,
) -> Result<MergeReport, Stopped> {
    let narrowed = cascade::narrow(prepared, options, context, with_ranks, times)?;
    let what = narrowed.as_ref().map_or(prepared, |narrowed| &narrowed.prepared);
    let made = run::run(what, options, context, times)
        .map_err(|error| Stopped { error, is_broken: what.has_broken_ranks() })?;
    let mut report = publish::publish(prepared, made, options, context, times)?;
    if let Some(cascade::Narrowed { sources, at_once, .. }) = &narrowed {
        report.warnings.push(format!(
            "{sources} overlapping sources were merged in two passes: memory_limit allows {at_once} at once"
        ));
    }
    Ok(report)
}

/// User and system seconds of this process, where `/proc` tells.
fn cpu_seconds() -> Option<f64> {
    /// Clock ticks per second in `/proc`: fixed at 100 on every Linux.
    const TICKS_PER_S: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_S)
}
