//! The one gate: every engine call leaves the interpreter through here and comes back.
//!
//! ```text
//! Python's thread   ──┬─ wait 50 ms ─ signals? progress? ─ wait ... ─ join ──▶ result or exception
//! a fresh thread      └─ call(context) ───────────────────────────────┘
//! ```
//!
//! # Invariants
//! The interpreter is released while waiting. The thread is joined before the gate returns, also
//! after Ctrl-C and after an exception in the callback: the context is cancelled first, so the
//! engine stops within one page. Events are delivered here, by the caller's thread: no
//! other waits for the interpreter. A panic of the engine becomes `InternalError`.
//!
//! # Cost
//! One thread a call, twenty wake-ups a second.
//!
//! # Not here
//! Mapping errors to exceptions (`errors`).

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use plait_core::{Error, Kind, Result};
use plait_parquet::{Context, Progress};
use pyo3::prelude::*;

/// How long Ctrl-C waits at most before it is seen.
const POLL: Duration = Duration::from_millis(50);

/// The callback is called every so many polls: five times a second.
const POLLS_PER_PROGRESS: u32 = 4;

/// As much as a main thread has; nested schemas recurse.
const STACK_BYTES: usize = 8 << 20;

/// Runs `call` on a fresh thread with the interpreter released.
///
/// # Errors
/// The call's error as its exception, what a signal handler raised (`KeyboardInterrupt`), or
/// what the callback raised.
pub(crate) fn enter<T: Send>(
    py: Python<'_>,
    context: &Context,
    progress: Option<Py<PyAny>>,
    call: impl FnOnce(&Context) -> Result<T> + Send,
) -> PyResult<T> {
    let done = Done::default();
    // Imports first: an error must not leave a thread behind.
    let observer = py.import("plait._observe")?;
    context.listen(observer.call_method0("level")?.extract()?);
    thread::scope(|scope| {
        let worker = thread::Builder::new()
            .name("plait".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || {
                let _guard = SetOnDrop(&done);
                call(context)
            })
            .map_err(|e| Error::new(Kind::Internal, "cannot start a thread").with_cause(e))
            .map_err(|e| crate::errors::exception(py, &e))?;

        let tell = |now: Progress| match &progress {
            Some(callback) => callback
                .call1(py, (now.consumed_bytes, now.total_bytes, now.rows_written, now.stage))
                .map(drop),
            None => Ok(()),
        };
        let hear = || -> PyResult<()> {
            for event in context.take_events() {
                observer.call_method1("hear", (event.level, event.part, event.text))?;
            }
            Ok(())
        };
        let mut polls = 0_u32;
        let mut raised = Ok(());
        while raised.is_ok() && !py.detach(|| done.wait(POLL)) {
            polls = polls.wrapping_add(1);
            raised = py.check_signals();
            if raised.is_ok() {
                raised = hear();
            }
            if raised.is_ok() && polls.is_multiple_of(POLLS_PER_PROGRESS) {
                raised = tell(context.progress());
            }
        }
        if raised.is_err() {
            context.cancel();
        }
        let outcome = py.detach(|| worker.join());
        raised?;
        hear()?;
        let value = match outcome {
            Ok(outcome) => outcome,
            Err(payload) => Err(crate::panics::error(payload.as_ref())),
        }
        .map_err(|e| crate::errors::exception(py, &e))?;
        tell(context.progress())?;
        Ok(value)
    })
}

/// Tells one waiting thread that the other has finished.
#[derive(Default)]
struct Done {
    flag: Mutex<bool>,
    changed: Condvar,
}

impl Done {
    /// Waits until done, at most `timeout`; whether it is done.
    fn wait(&self, timeout: Duration) -> bool {
        let flag = self.flag.lock().unwrap_or_else(PoisonError::into_inner);
        let (flag, _) = self
            .changed
            .wait_timeout_while(flag, timeout, |done| !*done)
            .unwrap_or_else(PoisonError::into_inner);
        *flag
    }
}

/// Finishes on the way out, panics included.
struct SetOnDrop<'a>(&'a Done);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        *self.0.flag.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.changed.notify_one();
    }
}
