//! Threads that exist while one stretch of rows is made, and never longer.
//!
//! # Invariants
//! Every thread is joined before [`run`](Workers::run) returns, so whoever forks between two batches
//! copies none. The caller's thread works too; where no thread can be had it works alone.
//!
//! # Cost
//! Some 30 µs a thread and stretch; a stretch is worth milliseconds.
//!
//! # Not here
//! What the work is (`plait_core::stream`, `plait_core::join`).

use std::panic;
use std::sync::atomic::AtomicUsize;
use std::thread;

use plait_core::workers::{Workers, share};

/// As many threads at once, the caller's included.
#[derive(Clone, Copy, Debug)]
pub struct Beside {
    threads: usize,
}

impl Beside {
    /// `threads` at once; one per core if that is none.
    #[must_use]
    pub fn new(threads: Option<usize>) -> Self {
        let cores = || thread::available_parallelism().map_or(1, Into::into);
        Self { threads: threads.unwrap_or_else(cores).max(1) }
    }
}

impl Workers for Beside {
    fn count(&self) -> usize {
        self.threads
    }

    fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        let next = AtomicUsize::new(0);
        let work = || share(&next, count, task);
        thread::scope(|scope| {
            let mut handles = Vec::new();
            for _ in 1..self.threads.min(count) {
                let thread = thread::Builder::new().name("plait-beside".to_owned());
                match thread.spawn_scoped(scope, work) {
                    Ok(handle) => handles.push(handle),
                    Err(_) => break,
                }
            }
            work();
            // The scope alone waits for the work, not for the threads to be gone.
            for handle in handles {
                if let Err(payload) = handle.join() {
                    panic::resume_unwind(payload);
                }
            }
        });
    }
}
