//! The threads of a merge: they put batches in order, weave their leaves, and help each other.
//!
//! ```text
//! batch     1: leaves 0 1 2 3 …         2: leaves 0 1 2 …
//! thread A  order 1 │ 3 (heavy) ──── 2 ── 0' ──
//! thread B          │ order 2 │ 0 ── 1 ── pages of 3 ── 3' ──
//! appended                              0 1 2 3      0' …        by the caller, in this order
//! ```
//!
//! # Invariants
//! Chunks are taken in the order of batches and leaves, whoever wove them. A leaf of a batch starts
//! when the same leaf of the batch before it is done, so that what is learned of a leaf does not
//! depend on threads. A batch is put in order when it is asked for; at most two are here. A thread
//! that has nothing else packs pages of another's leaf, or unpacks those it reads next. Neither
//! waits, so nobody waits in a circle. A leaf that there is no memory for starts when another
//! is done, and smaller ones go before it; one at a time always goes. A panic of a worker is an
//! error of the merge.
//!
//! # Not here
//! What is woven (`weave`), what is ordered and when (`merge`); the threads themselves (`pool`).

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use plait_core::{Error, Kind, Result};
use rayon::ThreadPool;

use crate::encode::Chunk;
use crate::weave::{PageTask, SharedWork};

/// What threads do.
pub(crate) trait Work: Sync {
    /// Row groups that are woven together.
    type Batch: Send + Sync;

    /// Puts the next batch in order; `None` at the end. Never called twice at a time.
    fn order(&self) -> Result<Option<Self::Batch>>;

    /// Row groups that a batch is woven into; 0 if it has no rows to weave.
    fn row_groups(&self, batch: &Self::Batch) -> u64;

    /// Whether there is memory to weave another leaf of a batch.
    fn fits(&self, batch: &Self::Batch, leaf: usize) -> bool;

    /// Whether there is memory for so many bytes that can wait.
    fn has_room(&self, bytes: u64) -> bool;

    /// Weaves a leaf of a batch: a chunk for each of its row groups.
    fn weave(&self, batch: &Self::Batch, leaf: usize, share: &dyn SharedWork)
    -> Result<Vec<Chunk>>;
}

/// Runs `work` over leaves of these `sizes` on the threads of `pool`, while `caller` takes what
/// they make. Returns how long threads had nothing to do, all together.
///
/// # Errors
/// Those of `caller`.
pub(crate) fn run<W: Work>(
    pool: &ThreadPool,
    work: &W,
    sizes: &[u64],
    caller: impl FnOnce(&Queue<W>) -> Result<()>,
) -> Result<Duration> {
    let threads = pool.current_num_threads();
    let (order, heavy) = starts(sizes, threads);
    let ahead_bytes = sizes.iter().sum::<u64>() / AHEAD_PART;
    let queue = Queue {
        work,
        state: Mutex::new(QueueState::default()),
        changed: Condvar::new(),
        order,
        heavy,
        sizes,
        ahead_bytes,
        threads,
        idle: AtomicUsize::new(0),
        idle_nanos: AtomicU64::new(0),
    };
    // Whatever ends this function, workers that wait are woken.
    let stop = StopOnDrop(&queue);
    pool.in_place_scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|_| queue.work());
        }
        let outcome = caller(&queue);
        drop(stop);
        outcome
    })?;
    Ok(Duration::from_nanos(queue.idle_nanos.load(Ordering::Relaxed)))
}

/// Chunks that are not heavy wait for those before them as long as they are one such part of a
/// batch: else a thread has nothing to do while another weaves the heaviest leaf, or while the row
/// groups of the batch before are written. Those of the first row group count: others wait anyway.
const AHEAD_PART: u64 = 4;

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

struct StopOnDrop<'a, W: Work>(&'a Queue<'a, W>);

impl<W: Work> Drop for StopOnDrop<'_, W> {
    fn drop(&mut self) {
        self.0.lock().stopped = true;
        self.0.changed.notify_all();
    }
}

/// What is to be done, and what is.
pub(crate) struct Queue<'a, W: Work> {
    work: &'a W,
    state: Mutex<QueueState<W::Batch>>,
    changed: Condvar,
    /// Leaves in the order in which they start, and how many of them are heavy.
    order: Vec<usize>,
    heavy: usize,
    /// Bytes of each leaf in all sources, and how many of them may wait while the heavy ones are
    /// woven.
    sizes: &'a [u64],
    ahead_bytes: u64,
    threads: usize,
    /// Threads that wait, and how long they did.
    idle: AtomicUsize,
    idle_nanos: AtomicU64,
}

struct QueueState<B> {
    stopped: bool,
    /// Whether a batch is to be put in order, and whether one is at the moment.
    asked: bool,
    ordering: bool,
    /// Leaves that are woven at the moment.
    running: usize,
    /// The batch that is taken, and the one behind it.
    batches: VecDeque<Result<Option<QueuedBatch<B>>>>,
    /// Pages that anybody may pack or unpack.
    pages: VecDeque<PageTask>,
    /// How long leaves took the last time.
    spent: BTreeMap<usize, Duration>,
}

impl<B> Default for QueueState<B> {
    fn default() -> Self {
        Self {
            stopped: false,
            asked: false,
            ordering: false,
            running: 0,
            batches: VecDeque::new(),
            pages: VecDeque::new(),
            spent: BTreeMap::new(),
        }
    }
}

/// A batch, and how far it is woven.
struct QueuedBatch<B> {
    batch: Arc<B>,
    row_groups: u64,
    /// Which leaves have started.
    has_started: Vec<bool>,
    taken: usize,
    done: BTreeMap<usize, Result<Vec<Chunk>>>,
    is_done: Vec<bool>,
}

enum Task<B> {
    Page(PageTask),
    Order,
    /// A leaf of the batch at that place.
    Leaf(Arc<B>, usize, usize),
}

impl<W: Work> Queue<'_, W> {
    fn lock(&self) -> MutexGuard<'_, QueueState<W::Batch>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, QueueState<W::Batch>>,
    ) -> MutexGuard<'a, QueueState<W::Batch>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for one more batch.
    pub(crate) fn ask(&self) {
        self.lock().asked = true;
        self.changed.notify_all();
    }

    /// Waits until the batch that was asked for is in order.
    pub(crate) fn wait_ordered(&self) {
        let mut state = self.lock();
        while state.asked || state.ordering {
            state = self.wait(state);
        }
    }

    /// The first batch; `None` at the end.
    ///
    /// # Errors
    /// What ordering gave.
    pub(crate) fn first(&self) -> Result<Option<Arc<W::Batch>>> {
        self.wait_ordered();
        let mut state = self.lock();
        match state.batches.front() {
            Some(Ok(entry)) => Ok(entry.as_ref().map(|entry| Arc::clone(&entry.batch))),
            Some(Err(_)) => match state.batches.pop_front() {
                Some(Err(e)) => Err(e),
                _ => Ok(None),
            },
            None => Ok(None),
        }
    }

    /// The chunks of a leaf of the first batch.
    ///
    /// # Errors
    /// What weaving gave.
    pub(crate) fn take(&self, leaf: usize) -> Result<Vec<Chunk>> {
        let mut state = self.lock();
        loop {
            let Some(Ok(Some(first))) = state.batches.front_mut() else {
                return Err(Error::new(Kind::Internal, "there is no batch to take chunks of"));
            };
            if let Some(chunks) = first.done.remove(&leaf) {
                first.taken = leaf + 1;
                self.changed.notify_all();
                return chunks;
            }
            state = self.wait(state);
        }
    }

    /// The first batch is written: the one behind it is the first now.
    pub(crate) fn pop(&self) {
        self.lock().batches.pop_front();
        self.changed.notify_all();
    }

    fn work(&self) {
        let mut state = self.lock();
        while !state.stopped {
            let Some(task) = self.next(&mut state) else {
                let since = Instant::now();
                self.idle.fetch_add(1, Ordering::Relaxed);
                state = self.wait(state);
                self.idle.fetch_sub(1, Ordering::Relaxed);
                let nanos = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
                self.idle_nanos.fetch_add(nanos, Ordering::Relaxed);
                continue;
            };
            drop(state);
            match task {
                // What a page that panics should have become is missed by whoever offered it.
                Task::Page(page) => drop(catch_unwind(AssertUnwindSafe(|| page()))),
                Task::Order => self.order(),
                Task::Leaf(batch, place, leaf) => self.weave(&batch, place, leaf),
            }
            state = self.lock();
        }
    }

    fn next(&self, state: &mut QueueState<W::Batch>) -> Option<Task<W::Batch>> {
        if let Some(page) = state.pages.pop_front() {
            return Some(Task::Page(page));
        }
        if std::mem::take(&mut state.asked) {
            state.ordering = true;
            return Some(Task::Order);
        }
        let mut before: Option<&[bool]> = None;
        for (place, entry) in state.batches.iter_mut().enumerate() {
            let Ok(Some(entry)) = entry else { break };
            let may_start = |leaf: &usize| {
                before.is_none_or(|done| done.is_empty() || done[*leaf])
                    && (state.running == 0 || self.work.fits(&entry.batch, *leaf))
            };
            let leaf = self.candidates(entry, &state.spent).find(may_start);
            if let Some(leaf) = leaf {
                state.running += 1;
                entry.has_started[leaf] = true;
                return Some(Task::Leaf(Arc::clone(&entry.batch), place, leaf));
            }
            before = Some(&entry.is_done);
        }
        None
    }

    /// Leaves of a batch that may start as far as the others are: all heavy ones that are left,
    /// first those that took longest the last time, and the first of the rest. Besides the heavy
    /// ones, few chunks wait for those before them, or small ones.
    fn candidates(
        &self,
        entry: &QueuedBatch<W::Batch>,
        spent: &BTreeMap<usize, Duration>,
    ) -> impl Iterator<Item = usize> {
        let waits = |leaf: &&usize| entry.has_started.get(**leaf).is_some_and(|has| !has);
        let (heavy, rest) = self.order.split_at(self.heavy);
        let mut heavy: Vec<usize> = heavy.iter().filter(waits).copied().collect();
        heavy.sort_by_key(|leaf| std::cmp::Reverse(spent.get(leaf).copied()));
        let ahead = entry.taken + 2 * self.threads;
        let size = |leaf: &usize| self.sizes.get(*leaf).copied().unwrap_or(0);
        let first = rest.iter().enumerate().find(|(_, leaf)| waits(leaf)).filter(|(at, leaf)| {
            let untaken = rest[..*at].iter().filter(|leaf| **leaf >= entry.taken);
            let bytes = untaken.map(size).sum::<u64>() + size(leaf);
            *at < ahead || bytes <= self.ahead_bytes.saturating_mul(entry.row_groups)
        });
        heavy.into_iter().chain(first.map(|(_, leaf)| *leaf))
    }

    fn order(&self) {
        let ordered = catch_unwind(AssertUnwindSafe(|| self.work.order()));
        let ordered = ordered.unwrap_or_else(|_| Err(panicked("puts rows in order")));
        let entry = ordered.map(|batch| {
            batch.map(|batch| {
                let row_groups = self.work.row_groups(&batch);
                let leaves = if row_groups > 0 { self.order.len() } else { 0 };
                let is_not: Vec<bool> = vec![false; leaves];
                QueuedBatch {
                    batch: Arc::new(batch),
                    row_groups,
                    has_started: is_not.clone(),
                    taken: 0,
                    done: BTreeMap::new(),
                    is_done: is_not,
                }
            })
        });
        let mut state = self.lock();
        state.batches.push_back(entry);
        state.ordering = false;
        self.changed.notify_all();
    }

    fn weave(&self, batch: &Arc<W::Batch>, place: usize, leaf: usize) {
        let started = Instant::now();
        let woven = catch_unwind(AssertUnwindSafe(|| self.work.weave(batch, leaf, self)));
        let woven = woven.unwrap_or_else(|_| Err(panicked("weaves")));
        let mut state = self.lock();
        state.running -= 1;
        state.spent.insert(leaf, started.elapsed());
        // The batch before it may have left meanwhile.
        let of_batch = state.batches.iter_mut().take(place + 1).find_map(|entry| match entry {
            Ok(Some(entry)) if Arc::ptr_eq(&entry.batch, batch) => Some(entry),
            _ => None,
        });
        if let Some(entry) = of_batch {
            entry.done.insert(leaf, woven);
            entry.is_done[leaf] = true;
        }
        self.changed.notify_all();
    }
}

fn panicked(what: &str) -> Error {
    Error::new(Kind::Internal, format!("a thread that {what} panicked"))
        .with_hint("please report this with the traceback above")
}

impl<W: Work> SharedWork for Queue<'_, W> {
    fn idle(&self) -> usize {
        self.idle.load(Ordering::Relaxed)
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.work.has_room(bytes)
    }

    fn pages(&self) -> usize {
        2 * self.threads
    }

    fn offer(&self, page: PageTask) {
        self.lock().pages.push_back(page);
        self.changed.notify_all();
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

    /// One batch of twenty leaves, woven into so many row groups.
    struct TwentyLeaves {
        row_groups: u64,
        is_ordered: AtomicUsize,
        woven: AtomicUsize,
    }

    impl Work for TwentyLeaves {
        type Batch = ();

        fn order(&self) -> Result<Option<()>> {
            Ok((self.is_ordered.fetch_add(1, Ordering::Relaxed) == 0).then_some(()))
        }

        fn row_groups(&self, _batch: &()) -> u64 {
            self.row_groups
        }

        fn fits(&self, _batch: &(), _leaf: usize) -> bool {
            true
        }

        fn has_room(&self, _bytes: u64) -> bool {
            true
        }

        fn weave(&self, _batch: &(), _leaf: usize, _share: &dyn SharedWork) -> Result<Vec<Chunk>> {
            self.woven.fetch_add(1, Ordering::Relaxed);
            Ok(Vec::new())
        }
    }

    #[test]
    fn leaves_are_woven_before_they_are_taken_as_far_as_they_wait_anyway() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        for (row_groups, expected) in [(1, 5), (2, 10), (3, 15), (4, 20), (5, 20)] {
            let (is_ordered, woven) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let work = TwentyLeaves { row_groups, is_ordered, woven };
            let idle = run(&pool, &work, &[1; 20], |queue| {
                queue.ask();
                assert!(queue.first()?.is_some());
                while queue.idle() == 0 {
                    std::thread::yield_now();
                }
                assert_eq!(work.woven.load(Ordering::Relaxed), expected, "{row_groups}");
                (0..20).try_for_each(|leaf| queue.take(leaf).map(drop))
            });
            idle.unwrap();
            assert_eq!(work.woven.load(Ordering::Relaxed), 20);
        }
    }
}
