//! The threads that weave one row group: heavy leaves start first, chunks leave in leaf order.
//!
//! ```text
//! leaves   0 1 2 3 4 …      thread A  3 (heavy) ────────── 2 ── 5 pages p q r s
//! appended 0 1 …            thread B  0 ── 1 ── 4 …          idle: packs q and s
//! ```
//!
//! One more piece of work can be given that is done beside, by the first thread before it weaves.
//!
//! # Invariants
//! Chunks are appended in leaf order, whoever wove them, and only so many wait. A thread that waits
//! or has nothing left packs pages of another's leaf; packing never waits, so nobody waits in
//! a circle. A panic of a worker is an error of the merge.
//!
//! # Not here
//! What is woven (`weave`); the threads themselves (`pool`).

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use plait_core::{Error, Kind, Result};
use rayon::ThreadPool;

use crate::encode::Chunk;
use crate::weave::{PageTask, Share};

/// Work that a thread does before it weaves.
pub(crate) type Beside<'a> = &'a mut (dyn FnMut() + Send);

/// Weaves leaves of these `sizes` with `weave` on the threads of `pool` and gives the chunks to
/// `append` in order. The first thread does `beside` first; if that panics, it is as if it was not done.
///
/// # Errors
/// The first one of `weave` or `append`, in leaf order.
pub(crate) fn in_order(
    pool: &ThreadPool,
    sizes: &[u64],
    beside: Option<Beside<'_>>,
    weave: impl Fn(usize, &dyn Share) -> Result<Vec<Chunk>> + Sync,
    mut append: impl FnMut(Vec<Chunk>) -> Result<()>,
) -> Result<()> {
    let threads = pool.current_num_threads();
    let idle = AtomicUsize::new(0);
    let (order, heavy) = starts(sizes, threads);
    let (state, changed) = (Mutex::default(), Condvar::new());
    let queue = Queue { state, changed, order, heavy, threads, idle };
    // Whatever ends this function, workers that wait are told.
    let stop = StopOnDrop(&queue);
    let beside_is_there = beside.is_some();
    pool.in_place_scope(|scope| {
        if let Some(beside) = beside {
            scope.spawn(|_| {
                let _ = catch_unwind(AssertUnwindSafe(beside));
                queue.work(&weave);
            });
        }
        for _ in usize::from(beside_is_there)..threads {
            scope.spawn(|_| queue.work(&weave));
        }
        let outcome = (0..sizes.len()).try_for_each(|i| append(queue.take(i)?));
        drop(stop);
        outcome
    })
}

/// Leaves in the order in which they start: first those, largest first, that would keep one thread
/// busy when the others are done; and how many these are.
fn starts(sizes: &[u64], threads: usize) -> (Vec<usize>, usize) {
    let all: u64 = sizes.iter().sum();
    let is_heavy = |i: &usize| sizes[*i].saturating_mul(4 * threads as u64) > all;
    let (mut order, rest): (Vec<usize>, Vec<usize>) = (0..sizes.len()).partition(is_heavy);
    order.sort_by_key(|i| std::cmp::Reverse(sizes[*i]));
    let heavy = order.len();
    order.extend(rest);
    (order, heavy)
}

struct StopOnDrop<'a>(&'a Queue);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.lock().stopped = true;
        self.0.changed.notify_all();
    }
}

struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    /// Leaves in the order in which they start, and how many of them are heavy.
    order: Vec<usize>,
    heavy: usize,
    threads: usize,
    /// Threads that wait.
    idle: AtomicUsize,
}

#[derive(Default)]
struct State {
    next: usize,
    appended: usize,
    stopped: bool,
    done: BTreeMap<usize, Result<Vec<Chunk>>>,
    batches: VecDeque<Arc<Batch>>,
}

/// Pages of one leaf that anybody may pack.
struct Batch {
    task: PageTask,
    count: usize,
    next: AtomicUsize,
    finished: AtomicUsize,
}

impl Batch {
    /// Does one page; `false` when all are taken.
    fn step(&self) -> bool {
        let i = self.next.fetch_add(1, Ordering::Relaxed);
        if i >= self.count {
            return false;
        }
        // A page that panics stays undone, which whoever waits for it finds.
        let _ = catch_unwind(AssertUnwindSafe(|| (self.task)(i)));
        self.finished.fetch_add(1, Ordering::Release);
        true
    }

    fn has_more(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.count
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, weave: &(impl Fn(usize, &dyn Share) -> Result<Vec<Chunk>> + Sync)) {
        loop {
            let mut state = self.lock();
            let i = loop {
                if state.stopped {
                    return;
                }
                if let Some(batch) = state.batches.iter().find(|batch| batch.has_more()).cloned() {
                    drop(state);
                    while batch.step() {}
                    // Whoever waits for these pages holds the lock between looking and waiting.
                    state = self.lock();
                    self.changed.notify_all();
                    continue;
                }
                // Besides the heavy ones, few chunks wait for those before them.
                let ahead = state.appended + self.heavy + 2 * self.threads;
                if let Some(i) = self.order.get(state.next).filter(|_| state.next < ahead) {
                    state.next += 1;
                    break *i;
                }
                self.idle.fetch_add(1, Ordering::Relaxed);
                state = self.wait(state);
                self.idle.fetch_sub(1, Ordering::Relaxed);
            };
            drop(state);
            let woven = catch_unwind(AssertUnwindSafe(|| weave(i, self))).unwrap_or_else(|_| {
                Err(Error::new(Kind::Internal, "a weaving thread panicked")
                    .with_hint("please report this with the traceback above"))
            });
            self.lock().done.insert(i, woven);
            self.changed.notify_all();
        }
    }

    fn take(&self, i: usize) -> Result<Vec<Chunk>> {
        let mut state = self.lock();
        loop {
            if let Some(chunk) = state.done.remove(&i) {
                state.appended = i + 1;
                self.changed.notify_all();
                return chunk;
            }
            state = self.wait(state);
        }
    }
}

impl Share for Queue {
    fn pages(&self) -> usize {
        if self.idle.load(Ordering::Relaxed) > 0 { 2 * self.threads } else { 1 }
    }

    fn run(&self, count: usize, task: PageTask) {
        let (next, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let batch = Arc::new(Batch { task, count, next, finished });
        self.lock().batches.push_back(Arc::clone(&batch));
        self.changed.notify_all();
        while batch.step() {}
        let mut state = self.lock();
        while batch.finished.load(Ordering::Acquire) < count {
            state = self.wait(state);
        }
        state.batches.retain(|other| !Arc::ptr_eq(other, &batch));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heavy_leaves_start_first() {
        assert_eq!(starts(&[1, 50, 2, 80, 3, 1], 2), (vec![3, 1, 0, 2, 4, 5], 2));
        assert_eq!(starts(&[], 2), (vec![], 0));
        assert_eq!(starts(&[0, 0], 2), (vec![0, 1], 0));
    }
}
