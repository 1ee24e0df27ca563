//! One attempt at a merge: what it cost, and why it stopped.
//!
//! # Not here
//! When there is another attempt (`merge`).

use std::time::Instant;

use plait_core::{Error, Result};

use crate::options::MergeOptions;
use crate::ranks::KeyForm;
use crate::report::{MergeReport, Metrics, Times};
use crate::runtime::Context;
use crate::store::Stores;

/// What every step of an attempt takes: what is asked for, where files are, how long it took so far.
pub(super) struct Attempt<'a> {
    pub(super) options: &'a MergeOptions,
    pub(super) stores: &'a Stores,
    pub(super) context: &'a Context,
    /// How keys are held while they are put in order.
    pub(super) form: KeyForm,
    pub(super) times: &'a mut Times,
}

impl Attempt<'_> {
    /// The same with other options; its seconds count with those of `self`.
    pub(super) fn with_options<'b>(&'b mut self, options: &'b MergeOptions) -> Attempt<'b> {
        Attempt { options, times: &mut *self.times, ..*self }
    }
}

/// Measures an attempt that `call` makes, or several.
pub(super) fn timed(
    options: &MergeOptions,
    stores: &Stores,
    context: &Context,
    form: KeyForm,
    call: impl FnOnce(&mut Attempt<'_>) -> Result<MergeReport>,
) -> Result<MergeReport> {
    stores.read_again();
    let started = Instant::now();
    let cpu_before = cpu_seconds();
    let idle_before = context.counters().idle();
    let mut times = Times::default();
    let mut report = call(&mut Attempt { options, stores, context, form, times: &mut times })?;
    times.wall_s = started.elapsed().as_secs_f64();
    times.idle_s = context.counters().idle().saturating_sub(idle_before).as_secs_f64();
    times.cpu_s = cpu_before.and_then(|before| Some(cpu_seconds()? - before));
    report.time = times;
    let traffic = stores.traffic();
    report.metrics = Metrics {
        bytes_read: context.counters().consumed_bytes(),
        bytes_written: report.outputs.iter().map(|output| output.bytes).sum(),
        spilled_bytes: context.counters().spilled_bytes(),
        requests: traffic.requests(),
        failed_requests: traffic.failed(),
        sent_bytes: traffic.sent_bytes(),
        received_bytes: traffic.received_bytes(),
        server_copied_bytes: traffic.copied_bytes(),
    };
    report.memory.limit_bytes = context.limit_bytes() as u64;
    report.memory.peak_accounted_bytes = context.account().peak_bytes();
    if context.account().peak_bytes() > context.limit_bytes() as u64 {
        report.warnings.push(format!(
            "memory_limit was exceeded: {} bytes were held of {} allowed; pages and rows of these sources need more",
            context.account().peak_bytes(),
            context.limit_bytes()
        ));
    }
    Ok(report)
}

/// Why an attempt made nothing.
pub(super) struct Stopped {
    pub(super) error: Error,
    /// Whether ranks are to blame.
    pub(super) is_broken: bool,
    /// Whether keys in a footer are to blame.
    pub(super) is_stale: bool,
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Self { error, is_broken: false, is_stale: false }
    }
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
