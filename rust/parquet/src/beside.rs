//! Threads that exist while one piece of work is done, and never longer.
//!
//! # Invariants
//! Every thread is joined before [`run`](Workers::run) returns, so whoever forks between two pieces
//! copies none. The caller's thread works too; where no thread can be had it works alone.
//!
//! # Cost
//! Some 30 µs a thread and piece; a piece is worth milliseconds.
//!
//! # Not here
//! What the work is (`plait_core::stream`, `plait_core::join`, `files`, `plan`); threads that stay for a
//! merge (`pool`).

use std::panic;
use std::sync::atomic::AtomicUsize;
use std::thread;

use plait_core::workers::{Workers, share};

/// Object stores are waited for, mostly: so many files are read at a time, however few the cores.
const FAR_AT_ONCE: usize = 16;

/// Memory for who looks into a file: a few pages and dictionaries, and what is read ahead of them.
const READER_BYTES: usize = 16 << 20;

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

    /// Those that look into many files within `limit_bytes` of memory: as [`new`](Self::new), and more
    /// where files are far, unless one is asked for.
    #[must_use]
    pub fn readers(threads: Option<usize>, are_local: bool, limit_bytes: usize) -> Self {
        let near = Self::new(threads).threads;
        let wanted = match are_local || threads == Some(1) {
            true => near,
            false => near.max(FAR_AT_ONCE),
        };
        Self { threads: wanted.min(limit_bytes / READER_BYTES).max(1) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_are_many_where_files_are_far_and_memory_is_there() {
        let count = |threads, are_local, megabytes: usize| {
            Beside::readers(threads, are_local, megabytes << 20).count()
        };
        assert_eq!((count(Some(2), true, 512), count(Some(2), false, 512)), (2, 16));
        assert_eq!((count(Some(40), false, 1024), count(Some(1), false, 512)), (40, 1));
        assert_eq!((count(Some(8), false, 64), count(Some(8), true, 16)), (4, 1));
    }
}
