//! The thread that drives requests to object stores.
//!
//! ```text
//! merge's threads ── run(request) ──▶ driver thread: one runtime, all sockets ──▶ answer
//!                      waits, looks every 50 ms whether the call was cancelled
//! ```
//!
//! # Invariants
//! The thread begins with the first request and is joined when the driver is dropped. A forked
//! process never touches the runtime of its parent: it makes its own.
//!
//! # Cost
//! Two thread switches a request.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use plait_core::{Error, Kind, Result};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::runtime::Context;

/// How long a cancelled call waits at most before it notices.
const POLL: Duration = Duration::from_millis(50);

/// Runs requests; starts when it is first asked to.
#[derive(Default)]
pub(super) struct Driver(Mutex<Option<Live>>);

struct Live {
    process: u32,
    handle: Handle,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Driver {
    /// Where requests run in this process, and the process.
    pub(super) fn handle(&self) -> Result<(Handle, u32)> {
        let process = std::process::id();
        let mut live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(live) = live.as_ref().filter(|live| live.process == process) {
            return Ok((live.handle.clone(), process));
        }
        // What the parent of a fork made refers to threads that are not here: leave it alone.
        std::mem::forget(live.take());
        let failed = |e| Error::new(Kind::Storage, "starting the network failed").with_cause(e);
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(4)
            .thread_keep_alive(Duration::from_secs(1))
            .build()
            .map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let drive = move || {
            // Ends when the sender is dropped. Look-ups of names end with the runtime.
            let _ = runtime.block_on(stopped);
        };
        let thread = std::thread::Builder::new();
        let thread = thread.name("plait-store".to_owned()).spawn(drive).map_err(failed)?;
        *live = Some(Live { process, handle: handle.clone(), stop, thread });
        Ok((handle, process))
    }

    /// Runs `request` to its end, or until `context` is cancelled and `grace` has passed.
    pub(super) fn run<T: Send + 'static>(
        &self,
        context: Option<&Context>,
        grace: Duration,
        request: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        let (sender, received) = sync_channel(1);
        let (handle, _) = self.handle()?;
        let task = handle.spawn(async move {
            let _ = sender.send(request.await);
        });
        let mut left = grace;
        loop {
            match received.recv_timeout(POLL) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Disconnected) => {
                    let what = "a request to the object store panicked";
                    return Err(Error::new(Kind::Internal, what));
                }
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(Err(cancelled)) = context.map(Context::check_cancelled) {
                        if left.is_zero() {
                            task.abort();
                            return Err(cancelled);
                        }
                        left = left.saturating_sub(POLL);
                    }
                }
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let live = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(live) = live else { return };
        if live.process == std::process::id() {
            drop(live.stop);
            let _ = live.thread.join();
        } else {
            std::mem::forget(live);
        }
    }
}
