//! One at a time: who reads a stream, who waits, and who would wait for itself.
//!
//! ```text
//! next(stream) ─▶ merge ─▶ source: a generator ─▶ next(stream) ─▶ refused
//! next(stream) of another thread ─▶ waits, unless the source runs Python code just then:
//!                                          that may have started the thread and wait for it
//! ```
//!
//! # Invariants
//! Whoever waits is not waited for, as far as can be seen: not the thread that has its turn, not a
//! thread that runs a source, and nobody while the turn is in Python code of a source. Waiting is
//! seen by Ctrl-C.
//!
//! # Not here
//! What is read.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use plait_core::{Error, Kind, Result};
use pyo3::prelude::*;

/// How often whoever waits looks whether it still may.
const POLL: Duration = Duration::from_millis(50);

thread_local! {
    /// Calls of code of sources on this thread, in any language.
    static FOREIGN: Cell<usize> = const { Cell::new(0) };
    /// Calls of Python code of sources on this thread; others look at it.
    static PYTHON: Arc<AtomicUsize> = Arc::default();
}

/// Calls code of a source.
pub(crate) fn foreign<T>(call: impl FnOnce() -> T) -> T {
    struct LeaveForeign;
    impl Drop for LeaveForeign {
        fn drop(&mut self) {
            FOREIGN.set(FOREIGN.get().saturating_sub(1));
        }
    }
    FOREIGN.set(FOREIGN.get() + 1);
    let _leave = LeaveForeign;
    call()
}

/// Calls Python code of a source.
pub(crate) fn python<T>(call: impl FnOnce() -> T) -> T {
    struct LeavePython(Arc<AtomicUsize>);
    impl Drop for LeavePython {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let calls = PYTHON.with(Arc::clone);
    calls.fetch_add(1, Ordering::SeqCst);
    let _leave = LeavePython(calls);
    foreign(call)
}

/// A value that one thread uses at a time.
pub(crate) struct Turns<T> {
    place: Mutex<Place<T>>,
    back: Condvar,
}

struct Place<T> {
    /// None while a turn has it.
    value: Option<T>,
    turn: Option<Holder>,
}

/// Who has its turn.
struct Holder {
    thread: ThreadId,
    python: Arc<AtomicUsize>,
    /// Calls of Python code that were under way when the turn began.
    before: usize,
}

impl Holder {
    fn new() -> Self {
        let python = PYTHON.with(Arc::clone);
        let before = python.load(Ordering::SeqCst);
        Self { thread: thread::current().id(), python, before }
    }

    /// Whether this thread must not wait for the turn to end.
    fn may_wait_for_us(&self) -> bool {
        self.thread == thread::current().id()
            || FOREIGN.get() > 0
            || self.python.load(Ordering::SeqCst) > self.before
    }
}

impl<T> Turns<T> {
    pub(crate) fn new(value: T) -> Self {
        let place = Place { value: Some(value), turn: None };
        Self { place: Mutex::new(place), back: Condvar::new() }
    }

    /// Uses the value, once nobody else does.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] where waiting might never end; what a signal handler raised.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&mut T) -> R) -> Result<R> {
        let mut turn = Turn { turns: self, value: Some(self.wait()?) };
        let value = turn.value.as_mut();
        value.map(call).ok_or_else(|| Error::new(Kind::Internal, "a turn has no value"))
    }

    fn wait(&self) -> Result<T> {
        let mut place = self.lock();
        loop {
            if let Some(value) = place.value.take() {
                place.turn = Some(Holder::new());
                return Ok(value);
            }
            if place.turn.as_ref().is_some_and(Holder::may_wait_for_us) {
                return Err(Error::new(Kind::InvalidArgument, "a source asks for what it feeds")
                    .with_hint("a source must not read the result it is a source of; while a generator is a source, one thread alone reads the result"));
            }
            let waited = self.back.wait_timeout(place, POLL);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            Python::attach(|py| py.check_signals())
                .map_err(|e| Error::new(Kind::SourceFailed, "interrupted").with_cause(e))?;
            place = self.lock();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Place<T>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts the value back, also when the call panics.
struct Turn<'a, T> {
    turns: &'a Turns<T>,
    value: Option<T>,
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        let mut place = self.turns.lock();
        place.value = self.value.take();
        place.turn = None;
        self.turns.back.notify_one();
    }
}
