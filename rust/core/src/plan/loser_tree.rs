//! Who is smallest now? A loser tree over the heads of `k` sources.
//!
//! ```text
//!        w          w = winner; nodes 1.. hold the losers met on the way up
//!       / \
//!      1   2        leaves are the sources; a source's head is its next key
//! ```
//!
//! A source that wins again and again is galloped through: doubling steps, then a binary search,
//! against the runner-up.
//!
//! # Invariants
//! Equal keys leave in source order, then row order: upheld by `before`, the only comparison.
//!
//! # Cost
//! At most ⌈log2 k⌉ comparisons a row; a run of n rows costs O(log n) once it is long. (Loser
//! trees: Knuth, The Art of Computer Programming 3, 5.4.1; galloping: Bentley and Yao, An almost
//! optimal algorithm for unbounded searching, 1976.)
//!
//! # Not here
//! The dialogue with the shell (`merge`).

use std::cmp::Ordering;

use super::batch::Batch;
use crate::run::{Runs, SourceId};

/// Consecutive wins of one source before the tree gallops. Finely interleaved sources rarely win
/// twice in a row and should not pay for a search.
const GALLOP_AFTER_WINS: u32 = 4;

/// Why [`Merge::step`](super::Merge::step) stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// This source's next keys are needed: call [`Merge::supply`](super::Merge::supply) or [`Merge::end`](super::Merge::end).
    Need(SourceId),
    /// The next row is the first of a batch that was supplied as the start of a row group.
    Start(SourceId),
    /// The row limit is reached.
    Full,
    /// The next key is not below the bound.
    Bound,
    /// All sources have ended.
    Done,
}

/// Two neighbouring keys of one source in the wrong order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disorder {
    /// Row of the later key, counted over the source.
    pub row: u64,
    /// Key of the row before.
    pub before: Vec<u8>,
    /// Key of `row`, smaller than `before`.
    pub after: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing supplied, or all supplied keys taken.
    Empty,
    /// Known by its first key only.
    Announced,
    Open,
    Ended,
}

pub(super) struct Head<B> {
    keys: Option<B>,
    next: usize,
    /// Row of `keys[0]`, counted over the source.
    row: u64,
    state: State,
    pub(super) is_start: bool,
}

enum Last {
    None,
    At(usize),
    Bytes(Vec<u8>),
}

pub(super) struct LoserTree<B: Batch> {
    pub(super) heads: Vec<Head<B>>,
    /// The word that decides most comparisons, for the head of each source.
    shorts: Vec<Option<B::Short>>,
    /// `nodes[0]` is the winner, the others are losers; empty until all sources have a head.
    nodes: Vec<usize>,
    width: usize,
    check_order: bool,
    wins: u32,
    last: Last,
}

impl<B: Batch> LoserTree<B> {
    pub(super) fn new(sources: usize, width: usize, check_order: bool) -> Self {
        let head = || Head { keys: None, next: 0, row: 0, state: State::Empty, is_start: false };
        Self {
            heads: (0..sources).map(|_| head()).collect(),
            shorts: vec![None; sources],
            nodes: Vec::new(),
            width,
            check_order,
            wins: 0,
            last: Last::None,
        }
    }

    pub(super) fn announce(&mut self, i: usize, first_key: &[u8]) {
        let keys = B::single(first_key);
        self.shorts[i] = Some(keys.short(0));
        self.heads[i].keys = Some(keys);
        self.heads[i].state = State::Announced;
    }

    pub(super) fn supply(&mut self, i: usize, keys: B, is_start: bool) -> Result<(), Disorder> {
        if keys.len() == 0 {
            self.end(i);
            return Ok(());
        }
        if matches!(self.last, Last::At(source) if source == i) {
            self.last = Last::Bytes(self.last_key());
        }
        let width = self.width;
        let head = &mut self.heads[i];
        let was_announced = head.state == State::Announced;
        let taken = if was_announced { 0 } else { head.next as u64 };
        let row = head.row + taken;
        if self.check_order {
            if let Some(old) = &head.keys
                && old.compare(old.len() - 1, &keys, 0) == Ordering::Greater
            {
                let (before, after) = (old.bytes(old.len() - 1, width), keys.bytes(0, width));
                return Err(Disorder { row, before, after });
            }
            let backwards = |j: &usize| keys.compare(j - 1, &keys, *j) == Ordering::Greater;
            if let Some(j) = (1..keys.len()).find(backwards) {
                let (before, after) = (keys.bytes(j - 1, width), keys.bytes(j, width));
                return Err(Disorder { row: row + j as u64, before, after });
            }
        }
        self.shorts[i] = Some(keys.short(0));
        *head = Head { keys: Some(keys), next: 0, row, state: State::Open, is_start };
        self.replay_if_built(i);
        Ok(())
    }

    pub(super) fn end(&mut self, i: usize) {
        if matches!(self.last, Last::At(source) if source == i) {
            self.last = Last::Bytes(self.last_key());
        }
        self.heads[i].state = State::Ended;
        self.heads[i].keys = None;
        self.shorts[i] = None;
        self.replay_if_built(i);
    }

    /// The one order of rows: by key, then by source.
    #[inline]
    fn before(&self, a: usize, b: usize) -> bool {
        match (self.shorts[a], self.shorts[b]) {
            (Some(x), Some(y)) if x != y => x < y,
            (Some(_), Some(_)) => match (&self.heads[a].keys, &self.heads[b].keys) {
                (Some(x), Some(y)) => match x.compare(self.heads[a].next, y, self.heads[b].next) {
                    Ordering::Less => true,
                    Ordering::Greater => false,
                    Ordering::Equal => a < b,
                },
                _ => a < b,
            },
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => a < b,
        }
    }

    /// Builds the tree once every source has a head; else names one that has none.
    fn start(&mut self) -> Option<usize> {
        if self.nodes.is_empty() && !self.heads.is_empty() {
            let missing = self.heads.iter().position(|h| h.state == State::Empty);
            if missing.is_some() {
                return missing;
            }
            self.build();
        }
        None
    }

    fn build(&mut self) {
        let k = self.heads.len();
        // Winners of all nodes, bottom up: leaf i stands at k + i.
        let mut winners = vec![0; 2 * k];
        for i in 0..k {
            winners[k + i] = i;
        }
        self.nodes = vec![0; k];
        for node in (1..k).rev() {
            let (a, b) = (winners[2 * node], winners[2 * node + 1]);
            let (win, lose) = if self.before(a, b) { (a, b) } else { (b, a) };
            winners[node] = win;
            self.nodes[node] = lose;
        }
        self.nodes[0] = if k > 1 { winners[1] } else { 0 };
    }

    fn replay_if_built(&mut self, i: usize) {
        if !self.nodes.is_empty() {
            self.replay(i);
        }
    }

    /// Lets source `i`, the winner whose head changed, play its way up again.
    #[inline]
    fn replay(&mut self, i: usize) {
        let mut winner = i;
        let mut node = (self.heads.len() + i) / 2;
        while node > 0 {
            let rival = self.nodes[node];
            if self.before(rival, winner) {
                self.nodes[node] = winner;
                winner = rival;
            }
            node /= 2;
        }
        self.nodes[0] = winner;
    }

    /// The best of those that lost to the winner directly.
    fn runner_up(&self, winner: usize) -> Option<usize> {
        let mut best = None;
        let mut node = (self.heads.len() + winner) / 2;
        while node > 0 {
            let rival = self.nodes[node];
            best = match best {
                Some(b) if self.before(b, rival) => Some(b),
                _ => Some(rival),
            };
            node /= 2;
        }
        best.filter(|&b| self.shorts[b].is_some())
    }

    pub(super) fn step(&mut self, rows_max: u64, bound: Option<&[u8]>, runs: &mut Runs) -> Step {
        if self.heads.is_empty() {
            return Step::Done;
        }
        if let Some(i) = self.start() {
            return Step::Need(id(i));
        }
        // One word decides nearly always whether a head is below the bound.
        let bound_word = bound.map(|b| B::single(b).short(0));
        let mut left = rows_max;
        loop {
            let w = self.nodes[0];
            let head = &self.heads[w];
            match head.state {
                State::Ended => return Step::Done,
                State::Empty | State::Announced => return Step::Need(id(w)),
                State::Open => {}
            }
            let Some(keys) = &head.keys else { return Step::Done };
            if let (Some(bound), Some(word)) = (bound, bound_word) {
                let is_below = match keys.short(head.next).cmp(&word) {
                    Ordering::Equal => keys.compare_bytes(head.next, bound) == Ordering::Less,
                    unequal => unequal == Ordering::Less,
                };
                if !is_below {
                    return Step::Bound;
                }
            }
            if head.is_start && head.next == 0 {
                return Step::Start(id(w));
            }
            if left == 0 {
                return Step::Full;
            }
            let taken = if self.wins < GALLOP_AFTER_WINS { 1 } else { self.gallop(w, left, bound) };
            left -= taken as u64;
            let head = &mut self.heads[w];
            runs.push(id(w), head.row + head.next as u64, taken as u64);
            head.next += taken;
            self.last = Last::At(w);
            let len = head.keys.as_ref().map_or(0, Batch::len);
            if head.next >= len {
                head.state = State::Empty;
                return Step::Need(id(w));
            }
            self.shorts[w] = head.keys.as_ref().map(|k| k.short(head.next));
            self.replay(w);
            self.wins = if self.nodes[0] == w { self.wins + 1 } else { 0 };
        }
    }

    /// How many rows of the winner leave before the runner-up and stay below the bound: at least 1.
    fn gallop(&self, w: usize, left: u64, bound: Option<&[u8]>) -> usize {
        let head = &self.heads[w];
        let Some(keys) = &head.keys else { return 1 };
        let rival = self.runner_up(w);
        let leaves_first = |i: usize| {
            let before_rival = rival.is_none_or(|r| match &self.heads[r].keys {
                Some(other) => match keys.compare(i, other, self.heads[r].next) {
                    Ordering::Less => true,
                    Ordering::Equal => w < r,
                    Ordering::Greater => false,
                },
                None => true,
            });
            before_rival && bound.is_none_or(|b| keys.compare_bytes(i, b) == Ordering::Less)
        };
        let room = usize::try_from(left).unwrap_or(usize::MAX);
        let n = (keys.len() - head.next).min(room);
        let (mut low, mut jump) = (0, 1); // row `low` is known to leave
        while low + jump < n && leaves_first(head.next + low + jump) {
            low += jump;
            jump *= 2;
        }
        let mut high = (low + jump).min(n); // row `high` is known to stay, or is the end
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if leaves_first(head.next + middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        low + 1
    }

    pub(super) fn is_alone(&self, w: usize, last_key: &[u8]) -> bool {
        if self.nodes.first() != Some(&w) {
            return false;
        }
        self.runner_up(w).is_none_or(|r| match &self.heads[r].keys {
            Some(keys) => match keys.compare_bytes(self.heads[r].next, last_key) {
                Ordering::Greater => true,
                Ordering::Equal => w < r,
                Ordering::Less => false,
            },
            None => true,
        })
    }

    pub(super) fn skip(&mut self, w: usize, rows: u64, last_key: &[u8]) {
        let head = &mut self.heads[w];
        let row = head.row + head.next as u64 + rows;
        // The last key stays as a batch that is used up: the next one is checked against it.
        *head = Head {
            keys: Some(B::single(last_key)),
            next: 1,
            row: row - 1,
            state: State::Empty,
            is_start: false,
        };
        self.last = Last::Bytes(last_key.to_vec());
    }

    pub(super) fn last_key(&self) -> Vec<u8> {
        match &self.last {
            Last::None => Vec::new(),
            Last::Bytes(bytes) => bytes.clone(),
            Last::At(i) => {
                let head = &self.heads[*i];
                match (&head.keys, head.next.checked_sub(1)) {
                    (Some(keys), Some(last)) => keys.bytes(last, self.width),
                    _ => Vec::new(),
                }
            }
        }
    }

    pub(super) fn next_key(&mut self) -> Option<Vec<u8>> {
        if self.start().is_some() {
            return None;
        }
        let head = self.heads.get(*self.nodes.first()?)?;
        let keys = head.keys.as_ref()?;
        (head.next < keys.len()).then(|| keys.bytes(head.next, self.width))
    }
}

pub(super) fn id(i: usize) -> SourceId {
    SourceId(u32::try_from(i).unwrap_or(u32::MAX))
}
