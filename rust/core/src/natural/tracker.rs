//! Which rows belong to the run? Decided some rows later, when it is known what follows.
//!
//! ```text
//! decided ──▶ floor │ tail: rows of the run that may leave it │ next row
//!                   └ dropped: rows between them, and behind the last
//! ```
//!
//! # Invariants
//! Keys of the tail ascend, from `floor` on. `dropped` is in the order of rows; its last `streak`
//! rows lie behind the tail.
//!
//! # Cost
//! Rows are compared with the ones before them twice; keys of rows that ascend are not copied but for the last few.
//!
//! # Not here
//! What becomes of rows that are decided (`run`).

use std::collections::VecDeque;

use super::run::{Blocks, Part, RowStretch};
use crate::key::KeyBytes;

/// Rows that were dropped one after the other: with the first of them another run begins.
const DROPPED_MAX: usize = 1024;

/// Rows of the run that may leave it again.
const TAIL_ROWS: usize = 16;

/// After so many rows that were dropped one after the other, fewer rows of the run leave it instead,
/// if they are what is out of order.
const RECENT_ROWS: usize = 8;

/// The keys of consecutive rows.
pub(super) trait KeyBatch {
    type Key: Ord + Clone;

    fn len(&self) -> usize;
    fn key(&self, i: usize) -> Self::Key;
    /// Whether key `i` is not smaller than `key`.
    fn follows(&self, i: usize, key: &Self::Key) -> bool;
    /// Whether key `i` is not smaller than the one before it.
    fn ascends(&self, i: usize) -> bool;
}

impl KeyBatch for Vec<u128> {
    type Key = u128;

    fn len(&self) -> usize {
        Vec::len(self)
    }

    fn key(&self, i: usize) -> u128 {
        self[i]
    }

    #[inline]
    fn follows(&self, i: usize, key: &u128) -> bool {
        self[i] >= *key
    }

    #[inline]
    fn ascends(&self, i: usize) -> bool {
        self[i] >= self[i - 1]
    }
}

impl KeyBatch for KeyBytes {
    type Key = Vec<u8>;

    fn len(&self) -> usize {
        Self::len(self)
    }

    fn key(&self, i: usize) -> Vec<u8> {
        self.get(i).to_vec()
    }

    #[inline]
    fn follows(&self, i: usize, key: &Vec<u8>) -> bool {
        self.get(i) >= key.as_slice()
    }

    #[inline]
    fn ascends(&self, i: usize) -> bool {
        self.get(i) >= self.get(i - 1)
    }
}

/// Rows of a batch that is judged at a glance, at least.
const GLANCE_ROWS: usize = 512;

/// Whether so many keys are smaller than those before them that no run of use goes through the batch.
fn is_rough(keys: &impl KeyBatch) -> bool {
    let rows = keys.len();
    rows >= GLANCE_ROWS && 4 * (1..rows).filter(|i| !keys.ascends(*i)).count() > rows
}

/// Follows one source, row by row.
pub(super) struct Tracker<K> {
    blocks: Blocks,
    /// The row that comes next.
    row: u64,
    tail: VecDeque<(u64, K)>,
    /// Key of the last row of the run that cannot leave it.
    floor: Option<K>,
    dropped: VecDeque<(u64, K)>,
    streak: usize,
}

impl<K: Ord + Clone> Tracker<K> {
    pub(super) fn new(blocks: Blocks) -> Self {
        Self {
            row: blocks.row(),
            blocks,
            tail: VecDeque::new(),
            floor: None,
            dropped: VecDeque::new(),
            streak: 0,
        }
    }

    /// Looks at the next rows.
    pub(super) fn push(&mut self, keys: &impl KeyBatch<Key = K>) {
        if is_rough(keys) {
            self.restart();
            self.blocks.skip(keys.len() as u64);
            self.row += keys.len() as u64;
            return;
        }
        let mut i = 0;
        while i < keys.len() {
            let start = i;
            if self.last().is_none_or(|last| keys.follows(i, last)) {
                i += 1;
                while i < keys.len() && keys.ascends(i) {
                    i += 1;
                }
                self.accept_all(keys, start, i);
            }
            if i < keys.len() {
                self.feed(self.row, keys.key(i));
                self.row += 1;
                i += 1;
            }
            if self.blocks.take_rough() || self.dropped.len() > 2 * DROPPED_MAX {
                self.restart();
            }
        }
    }

    pub(super) fn finish(mut self) -> Vec<RowStretch> {
        self.decide_all();
        self.blocks.finish()
    }

    /// The last key of the run.
    fn last(&self) -> Option<&K> {
        self.tail.back().map(|(_, key)| key).or(self.floor.as_ref())
    }

    /// Adds rows that ascend, and the first of which follows the last one, to the run.
    fn accept_all(&mut self, keys: &impl KeyBatch<Key = K>, start: usize, end: usize) {
        if end - start <= 2 * TAIL_ROWS {
            for i in start..end {
                self.accept(self.row, keys.key(i));
                self.row += 1;
            }
            return;
        }
        // None of the rows before can leave the run.
        self.decide_tail();
        let first = keys.key(start);
        self.place_dropped(self.row, Some(&first));
        let decided = end - TAIL_ROWS;
        self.blocks.decide((decided - start) as u64, Part::Run);
        self.floor = Some(keys.key(decided - 1));
        let row = self.row + (decided - start) as u64;
        self.tail.extend((decided..end).zip(row..).map(|(i, row)| (row, keys.key(i))));
        self.row += (end - start) as u64;
        self.streak = 0;
    }

    fn accept(&mut self, row: u64, key: K) {
        self.tail.push_back((row, key));
        self.streak = 0;
        if self.tail.len() > TAIL_ROWS {
            self.decide_first();
        }
    }

    fn drop_row(&mut self, row: u64, key: K) {
        self.dropped.push_back((row, key));
        self.streak += 1;
    }

    /// Looks at one row.
    fn feed(&mut self, row: u64, key: K) {
        if self.last().is_none_or(|last| key >= *last) {
            return self.accept(row, key);
        }
        if self.streak == 0 && self.tail.len() > 1 {
            let below = &self.tail[self.tail.len() - 2].1;
            if *below <= key
                && let Some((row, key)) = self.tail.pop_back()
            {
                // The last row alone is too large: it leaves.
                self.dropped.push_back((row, key));
            }
            if self.last().is_none_or(|last| key >= *last) {
                return self.accept(row, key);
            }
        }
        self.drop_row(row, key);
        if self.streak >= DROPPED_MAX {
            self.begin_run();
        } else if self.streak.is_multiple_of(RECENT_ROWS) {
            self.take_back();
        }
    }

    /// Lets the last rows of the run go, if fewer rows than were dropped behind them are in their way.
    fn take_back(&mut self) {
        let recent = self.dropped.iter().rev().take(RECENT_ROWS).map(|(_, key)| key);
        let Some(largest) = recent.max() else { return };
        let above = self.tail.iter().rev().take_while(|(_, key)| key > largest).count();
        let stays_in_order =
            above < self.tail.len() || self.floor.as_ref().is_none_or(|floor| floor <= largest);
        if above == 0 || above >= RECENT_ROWS || !stays_in_order {
            return;
        }
        let gone = self.tail.split_off(self.tail.len() - above);
        let from = gone.front().map_or(0, |(row, _)| *row);
        let again = self.dropped.partition_point(|(row, _)| *row < from);
        let again = self.dropped.split_off(again);
        self.streak = 0;
        let (mut gone, mut again) = (gone.into_iter().peekable(), again.into_iter().peekable());
        loop {
            let is_gone = match (gone.peek(), again.peek()) {
                (None, None) => break,
                (Some(gone), Some(again)) => gone.0 < again.0,
                (gone, _) => gone.is_some(),
            };
            let next = if is_gone { gone.next() } else { again.next() };
            let Some((row, key)) = next else { break };
            match !is_gone && self.last().is_none_or(|last| key >= *last) {
                true => self.accept(row, key),
                false => self.drop_row(row, key),
            }
        }
    }

    /// Begins another run with the rows that were dropped last.
    fn begin_run(&mut self) {
        let again = self.dropped.split_off(self.dropped.len() - self.streak);
        self.restart();
        for (row, key) in again {
            self.feed(row, key);
        }
    }

    /// Begins another run with the row behind those that are known.
    fn restart(&mut self) {
        self.decide_all();
        self.blocks.end_run();
        self.floor = None;
        // What becomes loose here is no reason to begin again.
        self.blocks.take_rough();
    }

    fn decide_all(&mut self) {
        self.decide_tail();
        self.place_dropped(u64::MAX, None);
        self.streak = 0;
    }

    fn decide_tail(&mut self) {
        while !self.tail.is_empty() {
            self.decide_first();
        }
    }

    /// Decides the first row of the tail, and those before it.
    fn decide_first(&mut self) {
        let Some((row, key)) = self.tail.pop_front() else { return };
        self.place_dropped(row, Some(&key));
        self.blocks.decide(1, Part::Run);
        self.floor = Some(key);
    }

    /// Decides rows that were dropped before row `end`; `next` is the key of the run that follows.
    fn place_dropped(&mut self, end: u64, next: Option<&K>) {
        while self.dropped.front().is_some_and(|(row, _)| *row < end)
            && let Some((_, key)) = self.dropped.pop_front()
        {
            let part = if self.floor.as_ref().is_some_and(|floor| key < *floor) {
                Part::Late
            } else if next.is_some_and(|next| key > *next) {
                Part::Early
            } else {
                Part::Run // it fits after all
            };
            self.blocks.decide(1, part);
            if part == Part::Run {
                self.floor = Some(key);
            }
        }
    }
}
