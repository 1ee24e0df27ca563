//! What all code of one call shares, in one handle.
//!
//! ```text
//! caller ── cancel() ──▶ ┌─────────┐ ◀── charge(bytes) ──────── pages, spans, runs, chunks
//!        ◀─ progress() ─ │ Context │ ◀── counters() ─────────── ranged reads, rows
//!        ◀─ events() ─── └─────────┘ ◀── events().record(…) ─── outputs, requests
//! ```
//!
//! # Invariants
//! A cancelled context makes the next page or batch fail with
//! [`Kind::Cancelled`](plait_core::Kind::Cancelled).
//!
//! # Not here
//! Each part, in a file of this folder; sizes (`budget`).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use plait_core::Result;

use super::account::{Account, Charge};
use super::budget::Budget;
use super::buffers::Buffers;
use super::cancel::Cancel;
use super::events::{Event, Events};
use super::faults::{Fault, Faults};
use super::progress::{Counters, Progress};

/// Handle to the state that one call shares; clones are the same context.
///
/// ```
/// use plait_parquet::Context;
/// let context = Context::new(512 << 20);
/// context.cancel();
/// assert!(context.check_cancelled().is_err());
/// ```
#[derive(Clone)]
pub struct Context(Arc<CallState>);

struct CallState {
    cancel: Cancel,
    account: Account,
    buffers: Buffers,
    /// What parts of a call share.
    call: Arc<CallRecords>,
    read_ahead_bytes: AtomicUsize,
}

struct CallRecords {
    limit_bytes: usize,
    counters: Counters,
    faults: Faults,
    events: Events,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

impl Context {
    /// A context that accounts against `limit_bytes`.
    #[must_use]
    pub fn new(limit_bytes: usize) -> Self {
        Self::build(limit_bytes, Faults::default())
    }

    /// A context whose storage fails when `fault` says so: tests make the n-th operation fail.
    #[must_use]
    pub fn with_faults(limit_bytes: usize, fault: Fault) -> Self {
        Self::build(limit_bytes, Faults(Some(fault)))
    }

    fn build(limit_bytes: usize, faults: Faults) -> Self {
        let (counters, events) = (Counters::default(), Events::default());
        let call = Arc::new(CallRecords { limit_bytes, counters, faults, events });
        Self::of_call(call, Cancel::default(), Account::new(limit_bytes))
    }

    /// A context for a part of the call, with so much of its memory: what is counted and recorded is that
    /// of the call, and [`cancel`](Self::cancel) stops the part alone. Outputs do not depend on it.
    #[must_use]
    pub fn part(&self, limit_bytes: usize) -> Self {
        let state = &self.0;
        Self::of_call(Arc::clone(&state.call), state.cancel.part(), state.account.part(limit_bytes))
    }

    fn of_call(call: Arc<CallRecords>, cancel: Cancel, account: Account) -> Self {
        let (buffers, read_ahead_bytes) =
            (Buffers::new(account.clone()), AtomicUsize::new(256 << 10));
        Self(Arc::new(CallState { cancel, account, buffers, call, read_ahead_bytes }))
    }

    /// Asks the call to stop; it does within one page.
    pub fn cancel(&self) {
        self.0.cancel.set();
    }

    /// Fails once [`cancel`](Self::cancel) was called.
    ///
    /// # Errors
    /// [`Kind::Cancelled`](plait_core::Kind::Cancelled).
    pub fn check_cancelled(&self) -> Result<()> {
        self.0.cancel.check()
    }

    /// Bytes of large buffers that the call holds at this moment: none after it.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.0.account.held_bytes()
    }

    /// The memory account.
    #[must_use]
    pub(crate) fn account(&self) -> &Account {
        &self.0.account
    }

    /// Accounts `bytes` until the returned charge is dropped.
    #[must_use]
    pub(crate) fn charge(&self, bytes: usize) -> Charge {
        self.0.account.charge(bytes)
    }

    /// The memory limit in bytes.
    #[must_use]
    pub(crate) fn limit_bytes(&self) -> usize {
        self.0.account.limit_bytes()
    }

    /// The shares of the memory limit.
    pub(crate) fn budget(&self) -> Budget {
        Budget::new(self.limit_bytes())
    }

    /// The shares of the limit of the whole call, for what must not depend on the parts it has.
    pub(crate) fn call_budget(&self) -> Budget {
        Budget::new(self.0.call.limit_bytes)
    }

    /// Page buffers.
    pub(crate) fn buffers(&self) -> &Buffers {
        &self.0.buffers
    }

    /// How much one leaf of one source reads at a time.
    pub(crate) fn read_ahead_bytes(&self) -> usize {
        self.0.read_ahead_bytes.load(Ordering::Relaxed)
    }

    /// Sets how much one leaf of one source reads at a time.
    pub(crate) fn set_read_ahead_bytes(&self, bytes: usize) {
        self.0.read_ahead_bytes.store(bytes, Ordering::Relaxed);
    }

    /// What counts the progress of the call.
    pub(crate) fn counters(&self) -> &Counters {
        &self.0.call.counters
    }

    /// How far the call has come.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.0.call.counters.progress()
    }

    /// The operations that a test makes fail.
    pub(crate) fn faults(&self) -> &Faults {
        &self.0.call.faults
    }

    /// Keeps log messages of `level` (a number of Python's `logging`) and above; none is kept before.
    pub fn listen(&self, level: usize) {
        self.0.call.events.listen(level);
    }

    /// Takes the log messages that were kept, in the order in which they were recorded.
    #[must_use]
    pub fn take_events(&self) -> Vec<Event> {
        self.0.call.events.take()
    }

    /// Log messages of the call.
    pub(crate) fn events(&self) -> &Events {
        &self.0.call.events
    }
}
