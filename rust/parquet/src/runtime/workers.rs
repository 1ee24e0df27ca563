//! Scoped workers: threads that live as long as one piece of work.
//!
//! # Invariants
//! Every thread is joined before [`run`](Workers::run) returns, so a process that forks between two
//! pieces copies none. The caller's thread works too; if no thread can be started, it works alone.
//!
//! # Cost
//! Some 30 µs a thread and piece; a piece is worth milliseconds.
//!
//! # Not here
//! The work (`plait_core::stream`, `plait_core::join`, `files`, `plan`); threads that stay for a
//! merge (`pool`).

use std::panic;
use std::sync::atomic::AtomicUsize;
use std::thread;

use plait_core::workers::{Workers, share};

use super::budget::Budget;
use super::context::Context;

/// Reading objects is mostly waiting: so many are read at a time, however few the cores.
const OBJECTS_AT_ONCE: usize = 16;

/// So many objects are opened at a time.
const OPENED_AT_ONCE: usize = 64;

/// `threads`, or as many as there are cores.
pub(crate) fn threads_or_cores(threads: Option<usize>) -> usize {
    threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, Into::into))
}

/// Runs tasks on this many threads, the caller's included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScopedWorkers {
    threads: usize,
}

impl ScopedWorkers {
    /// `threads` threads; one per core if that is none.
    #[must_use]
    pub(crate) fn new(threads: Option<usize>) -> Self {
        Self { threads: threads_or_cores(threads).max(1) }
    }

    /// Workers that read footers and keys of many local files: as [`new`](Self::new), as far as
    /// there is memory for each.
    #[must_use]
    pub(crate) fn of_files(threads: Option<usize>, budget: Budget) -> Self {
        Self { threads: Self::new(threads).threads.min(budget.file_readers()) }
    }

    /// Workers that read footers and keys of many objects: more than [`of_files`](Self::of_files),
    /// unless one is asked for.
    #[must_use]
    pub(crate) fn of_objects(threads: Option<usize>, budget: Budget) -> Self {
        Self::at_once(OBJECTS_AT_ONCE, threads).at_most(budget.file_readers())
    }

    /// Workers that open objects, and read keys of small ones: still more, as each has little in
    /// memory and mostly waits.
    #[must_use]
    pub(crate) fn of_new_objects(threads: Option<usize>, budget: Budget) -> Self {
        Self::at_once(OPENED_AT_ONCE, threads).at_most(budget.file_openers())
    }

    /// Workers that open files, or look whether they are there.
    #[must_use]
    pub(crate) fn openers(are_local: bool, threads: Option<usize>, context: &Context) -> Self {
        match are_local {
            true => Self::of_files(threads, context.budget()),
            false => Self::of_new_objects(asked(threads, context), context.budget()),
        }
    }

    /// Workers that read footers and keys of files.
    #[must_use]
    pub(crate) fn readers(are_local: bool, threads: Option<usize>, context: &Context) -> Self {
        match are_local {
            true => Self::of_files(threads, context.budget()),
            false => Self::of_objects(asked(threads, context), context.budget()),
        }
    }

    /// So many at least, unless one is asked for.
    fn at_once(least: usize, threads: Option<usize>) -> Self {
        let wanted = Self::new(threads).threads;
        Self { threads: if threads == Some(1) { 1 } else { wanted.max(least) } }
    }

    fn at_most(self, most: usize) -> Self {
        Self { threads: self.threads.min(most) }
    }
}

/// Threads that the caller asks for. Those of a part of a call are not: it waits for objects as the
/// whole call would.
fn asked(threads: Option<usize>, context: &Context) -> Option<usize> {
    threads.filter(|_| context.limit_bytes() == context.call_budget().limit_bytes())
}

impl Workers for ScopedWorkers {
    fn count(&self) -> usize {
        self.threads
    }

    fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        let next = AtomicUsize::new(0);
        let work = || share(&next, count, task);
        thread::scope(|scope| {
            let mut handles = Vec::new();
            for _ in 1..self.threads.min(count) {
                let thread = thread::Builder::new().name("plait-scoped".to_owned());
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
    fn objects_are_read_by_many_as_far_as_there_is_memory() {
        let budget = |megabytes: usize| Budget::new(megabytes << 20);
        let files = |threads, mb| ScopedWorkers::of_files(Some(threads), budget(mb)).count();
        let objects = |threads, mb| ScopedWorkers::of_objects(Some(threads), budget(mb)).count();
        assert_eq!((files(2, 512), objects(2, 512)), (2, 16));
        assert_eq!((objects(40, 2048), objects(1, 512)), (40, 1));
        assert_eq!((objects(8, 64), files(8, 16)), (2, 1));
        let opened = |threads, mb| ScopedWorkers::of_new_objects(Some(threads), budget(mb)).count();
        assert_eq!((opened(2, 512), opened(1, 512), opened(2, 64)), (64, 1, 12));
    }

    #[test]
    fn a_part_of_a_call_that_has_one_thread_waits_for_many_objects() {
        let call = Context::new(512 << 20);
        let opened = |of: &Context| ScopedWorkers::openers(false, Some(1), of).count();
        assert_eq!((opened(&call), opened(&call.part(128 << 20))), (1, 24));
        let read = |of: &Context| ScopedWorkers::readers(false, Some(1), of).count();
        assert_eq!(read(&call), 1);
        assert!(read(&call.part(128 << 20)) > 1);
        assert_eq!(ScopedWorkers::openers(true, Some(1), &call.part(128 << 20)).count(), 1);
    }
}
