//! Who does several tasks at once: the core has no threads, a shell brings them.
//!
//! # Invariants
//! What is made does not depend on how many there are.
//!
//! # Not here
//! Threads (`plait_parquet::runtime`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use arrow_schema::ArrowError;

use plait_base::{Error, Kind, Result};

/// Fewer rows are not worth a worker of their own: starting one takes some 30 µs.
pub(crate) const PART_ROWS_MIN: usize = 4096;

/// Does pieces of work that do not wait for each other.
pub trait Workers: Send {
    /// How many tasks at once.
    fn count(&self) -> usize;

    /// Calls `task(i)` once for every `i` in `0..count`, in any order, perhaps at once, and returns
    /// when all have returned.
    fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync));

    /// Asked now and then whether to go on.
    ///
    /// # Errors
    /// Whatever the stream shall end with.
    fn check(&self) -> Result<(), ArrowError> {
        Ok(())
    }
}

/// Does tasks until all of `count` are taken: whoever shares `next`, which begins at 0, shares them.
///
/// ```
/// # use std::sync::{Mutex, atomic::AtomicUsize};
/// let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
/// plait_core::workers::share(&next, 3, &|i| done.lock().unwrap().push(i));
/// assert_eq!(done.into_inner().unwrap(), [0, 1, 2]);
/// ```
pub fn share(next: &AtomicUsize, count: usize, task: &(dyn Fn(usize) + Sync)) {
    loop {
        let i = next.fetch_add(1, Ordering::Relaxed);
        if i >= count {
            return;
        }
        task(i);
    }
}

/// The caller's thread alone.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl Workers for Alone {
    fn count(&self) -> usize {
        1
    }

    fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(task);
    }
}

/// What `task` makes of every number below `count`, in order. Behind one that failed no further ones
/// start.
///
/// # Errors
/// The first of `task`, by number.
pub fn each<T: Send>(
    workers: &dyn Workers,
    count: usize,
    task: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    if count <= 1 || workers.count() <= 1 {
        return (0..count).map(task).collect();
    }
    let made: Vec<Mutex<Option<Result<T>>>> = (0..count).map(|_| Mutex::new(None)).collect();
    let first_failed = AtomicUsize::new(usize::MAX);
    workers.run(count, &|i| {
        if i > first_failed.load(Ordering::Relaxed) {
            return;
        }
        let done = task(i);
        if done.is_err() {
            first_failed.fetch_min(i, Ordering::Relaxed);
        }
        *made[i].lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
    });
    let undone = || Err(Error::new(Kind::Internal, "a task was not done"));
    let made =
        made.into_iter().map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner));
    made.map(|done| done.unwrap_or_else(undone)).collect()
}

/// Rows `0..len` in as many parts as there are workers, but no small ones.
pub(crate) fn parts(workers: &dyn Workers, len: usize) -> Vec<(usize, usize)> {
    let count = workers.count().min(len / PART_ROWS_MIN).max(1);
    (0..count).map(|i| (len * i / count, len * (i + 1) / count)).collect()
}
