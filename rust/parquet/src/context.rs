//! What every stage of one call shares: the stop flag, the memory account, the progress.
//!
//! ```text
//! caller ── cancel() ──▶ ┌─────────┐ ◀── charge(bytes) ── pages, spans, runs, chunks
//!        ◀─ progress() ─ │ Context │ ◀── consumed(bytes) ─ ranged reads
//!                        └─────────┘
//! ```
//!
//! # Invariants
//! Every large buffer holds a [`Charge`] for as long as it lives, so `peak_bytes` is what the
//! engine held at its worst. A cancelled context makes the next page or batch fail with
//! [`Kind::Cancelled`].
//!
//! # Cost
//! One atomic addition per page or batch.
//!
//! # Not here
//! Deciding sizes from the limit (`budget`).

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, io};

use bytes::Bytes;
use plait_core::{Error, Kind, Result};

use crate::events::{Events, Level};

/// Handle to the state that one call shares; clones are the same context.
///
/// ```
/// use plait_parquet::Context;
/// let context = Context::new(512 << 20);
/// let page = context.charge(1 << 20);
/// assert_eq!(context.accounted_bytes(), 1 << 20);
/// drop(page);
/// assert_eq!((context.accounted_bytes(), context.peak_bytes()), (0, 1 << 20));
/// context.cancel();
/// assert!(context.check_cancelled().is_err());
/// ```
#[derive(Clone)]
pub struct Context(Arc<ContextState>);

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

struct ContextState {
    limit_bytes: usize,
    read_ahead_bytes: AtomicUsize,
    cancelled: AtomicBool,
    held_bytes: AtomicI64,
    peak_bytes: AtomicI64,
    consumed_bytes: AtomicU64,
    total_bytes: AtomicU64,
    rows_written: AtomicU64,
    spilled_bytes: AtomicU64,
    stage: AtomicUsize,
    faults: Option<Faults>,
    events: Events,
    idle: Mutex<Idle>,
}

/// Buffers of unpacked pages that wait for the next page. Giving them back to the system and taking
/// new ones costs more than unpacking some pages.
#[derive(Default)]
struct Idle {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

/// Called before every operation on storage with its name; an error makes the operation fail.
pub(crate) type Faults = Box<dyn Fn(&str) -> io::Result<()> + Send + Sync>;

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read from the sources so far (as stored). Key columns are read once more when they
    /// are woven, and count again in `total_bytes`.
    pub consumed_bytes: u64,
    /// Bytes that will be read in all.
    pub total_bytes: u64,
    /// Rows woven into outputs so far.
    pub rows_written: u64,
    /// What is being done now.
    pub stage: &'static str,
}

/// The stages of a call, in order.
const STAGES: [&str; 4] = ["plan", "merge", "publish", "verify"];

impl Context {
    /// A context that accounts against `limit_bytes`.
    #[must_use]
    pub fn new(limit_bytes: usize) -> Self {
        Self::build(limit_bytes, None)
    }

    /// A context whose storage fails when `faults` says so: tests make the n-th operation fail.
    #[must_use]
    pub fn with_faults(limit_bytes: usize, faults: Faults) -> Self {
        Self::build(limit_bytes, Some(faults))
    }

    fn build(limit_bytes: usize, faults: Option<Faults>) -> Self {
        Self(Arc::new(ContextState {
            limit_bytes,
            read_ahead_bytes: AtomicUsize::new(256 << 10),
            cancelled: AtomicBool::new(false),
            held_bytes: AtomicI64::new(0),
            peak_bytes: AtomicI64::new(0),
            consumed_bytes: AtomicU64::new(0),
            total_bytes: AtomicU64::new(0),
            rows_written: AtomicU64::new(0),
            spilled_bytes: AtomicU64::new(0),
            stage: AtomicUsize::new(0),
            faults,
            events: Events::default(),
            idle: Mutex::default(),
        }))
    }

    /// An empty buffer with room for `len` bytes, if there is memory for it. It is accounted for as
    /// long as it lives, and waits for the next page then.
    #[must_use]
    pub fn buffer(&self, len: usize) -> Option<Buffer> {
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // The smallest that fits, unless it is far too large.
        let fits = |buffer: &Vec<u8>| (len..=len.saturating_mul(4)).contains(&buffer.capacity());
        let found = idle.buffers.iter().enumerate().filter(|(_, buffer)| fits(buffer));
        let best = found.min_by_key(|(_, buffer)| buffer.capacity()).map(|(at, _)| at);
        let mut bytes = match best {
            Some(at) => {
                let buffer = idle.buffers.swap_remove(at);
                idle.bytes -= buffer.capacity();
                drop(self.uncharge(buffer.capacity()));
                buffer
            }
            None => Vec::new(),
        };
        drop(idle);
        bytes.try_reserve_exact(len).ok()?;
        let charge = self.charge(bytes.capacity());
        Some(Buffer { bytes, charge })
    }

    /// `bytes`, accounted for until their last slice is dropped.
    #[must_use]
    pub fn account_for(&self, bytes: Bytes) -> Bytes {
        let charge = self.charge(bytes.len());
        Bytes::from_owner(Accounted { bytes, _charge: charge })
    }

    /// Lets go of buffers that wait.
    pub fn release_idle(&self) {
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let buffers = std::mem::take(&mut *idle);
        drop(self.uncharge(buffers.bytes));
    }

    /// A charge of bytes that are accounted for already: dropping it gives them back.
    fn uncharge(&self, bytes: usize) -> Charge {
        Charge { context: self.clone(), bytes }
    }

    fn keep(&self, mut buffer: Vec<u8>) {
        let most = (self.limit_bytes() / IDLE_SHARE).min(IDLE_BYTES_MAX);
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if buffer.capacity() > 0 && idle.bytes + buffer.capacity() <= most {
            buffer.clear();
            idle.bytes += buffer.capacity();
            // Accounted for until it is taken again.
            let mut charge = self.charge(buffer.capacity());
            charge.bytes = 0;
            idle.buffers.push(buffer);
        }
    }

    /// Fails if a test wants this operation (`read`, `create`, `write`, `spill`, `sync`, `rename`,
    /// `mkdir`) to fail.
    ///
    /// # Errors
    /// What the test chose.
    pub fn fault(&self, operation: &str) -> io::Result<()> {
        self.0.faults.as_ref().map_or(Ok(()), |faults| faults(operation))
    }

    /// The memory limit in bytes.
    #[must_use]
    pub fn limit_bytes(&self) -> usize {
        self.0.limit_bytes
    }

    /// How much one leaf of one source reads at a time.
    #[must_use]
    pub fn read_ahead_bytes(&self) -> usize {
        self.0.read_ahead_bytes.load(Ordering::Relaxed)
    }

    /// Sets how much one leaf of one source reads at a time.
    pub fn set_read_ahead_bytes(&self, bytes: usize) {
        self.0.read_ahead_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Asks the call to stop; it does within one page.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Relaxed);
    }

    /// Fails once [`cancel`](Self::cancel) was called.
    ///
    /// # Errors
    /// [`Kind::Cancelled`].
    pub fn check_cancelled(&self) -> Result<()> {
        if self.0.cancelled.load(Ordering::Relaxed) {
            return Err(Error::new(Kind::Cancelled, "stopped at the caller's request")
                .with_hint("nothing was published and no source was changed"));
        }
        Ok(())
    }

    /// Accounts `bytes` until the returned charge is dropped.
    #[must_use]
    pub fn charge(&self, bytes: usize) -> Charge {
        let mut charge = Charge { context: self.clone(), bytes: 0 };
        charge.set(bytes);
        charge
    }

    /// Bytes accounted at this moment.
    #[must_use]
    pub fn accounted_bytes(&self) -> u64 {
        self.0.held_bytes.load(Ordering::Relaxed).max(0).unsigned_abs()
    }

    /// The most bytes that were ever accounted at once.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        self.0.peak_bytes.load(Ordering::Relaxed).max(0).unsigned_abs()
    }

    /// Adds to the bytes read from sources.
    pub fn consumed(&self, bytes: u64) {
        self.0.consumed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes read from sources so far, as stored.
    #[must_use]
    pub fn consumed_bytes(&self) -> u64 {
        self.0.consumed_bytes.load(Ordering::Relaxed)
    }

    /// Adds to the bytes that waited on disk.
    pub fn spilled(&self, bytes: u64) {
        self.0.spilled_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that waited on disk so far.
    #[must_use]
    pub fn spilled_bytes(&self) -> u64 {
        self.0.spilled_bytes.load(Ordering::Relaxed)
    }

    /// Sets the bytes that will be read in all.
    pub fn set_total_bytes(&self, bytes: u64) {
        self.0.total_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Tells that bytes will be read that were not expected.
    pub fn add_total_bytes(&self, bytes: u64) {
        self.0.total_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds to the rows woven into outputs.
    pub fn rows_written(&self, rows: u64) {
        self.0.rows_written.fetch_add(rows, Ordering::Relaxed);
    }

    /// Forgets how far the call has come: it begins anew.
    pub fn start_over(&self) {
        self.0.consumed_bytes.store(0, Ordering::Relaxed);
        self.0.rows_written.store(0, Ordering::Relaxed);
        self.0.spilled_bytes.store(0, Ordering::Relaxed);
    }

    /// Names the stage that begins: 0 plan, 1 merge, 2 publish, 3 verify.
    pub fn enter_stage(&self, stage: usize) {
        self.0.stage.store(stage, Ordering::Relaxed);
    }

    /// What the call has to tell.
    #[must_use]
    pub fn events(&self) -> &Events {
        &self.0.events
    }

    /// Tells something to whoever listens; see [`Events::tell`].
    pub fn tell(&self, level: Level, part: &'static str, text: impl FnOnce() -> String) {
        self.0.events.tell(level, part, text);
    }

    /// How far the call has come.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let total = self.0.total_bytes.load(Ordering::Relaxed);
        Progress {
            consumed_bytes: self.0.consumed_bytes.load(Ordering::Relaxed).min(total),
            total_bytes: total,
            rows_written: self.0.rows_written.load(Ordering::Relaxed),
            stage: STAGES.get(self.0.stage.load(Ordering::Relaxed)).copied().unwrap_or("merge"),
        }
    }
}

/// The share of the limit that idle buffers may take, and the most they may.
const IDLE_SHARE: usize = 32;
const IDLE_BYTES_MAX: usize = 16 << 20;

struct Accounted {
    bytes: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for Accounted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A buffer of a [`Context`], accounted for while it lives.
pub struct Buffer {
    bytes: Vec<u8>,
    charge: Charge,
}

impl Buffer {
    /// The bytes, to write to.
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.charge.set(0);
        self.charge.context.keep(std::mem::take(&mut self.bytes));
    }
}

/// Bytes accounted against a [`Context`] while this value lives.
pub struct Charge {
    context: Context,
    bytes: usize,
}

impl Charge {
    /// Changes the amount, for buffers that grow or shrink.
    pub fn set(&mut self, bytes: usize) {
        let signed = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let change = signed(bytes) - signed(self.bytes);
        self.bytes = bytes;
        if change != 0 {
            let shared = &self.context.0;
            let held = shared.held_bytes.fetch_add(change, Ordering::Relaxed) + change;
            if change > 0 {
                shared.peak_bytes.fetch_max(held, Ordering::Relaxed);
            }
        }
    }

    /// The amount.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}
