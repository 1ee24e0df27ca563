//! Who is smallest now? A loser tree over the heads of `k` sources.
//!
//! ```text
//!        w          w = winner; nodes 1.. hold the losers met on the way up
//!       / \
//!      1   2        leaves are the sources, filled up with ended ones to a power of two
//! ```
//!
//! Finely interleaved rows run through `race`: one key a row climbs its path. A source that wins
//! again and again is galloped through: the batch's last key, else doubling steps and a binary
//! search, against the runner-up.
//!
//! # Invariants
//! Equal keys leave in source order, then row order: upheld by [`TreeNode::play`], the only
//! comparison. The losers on the winner's path lost to the winner itself. Rows `next..end` of a head
//! may leave without a look at the bound or at the start of a row group.
//!
//! # Cost
//! ⌈log2 k⌉ comparisons a row; a run of n rows costs O(log n) once it is long. (Loser
//! trees: Knuth, The Art of Computer Programming 3, 5.4.1; galloping: Bentley and Yao, An almost
//! optimal algorithm for unbounded searching, 1976.)
//!
//! # Not here
//! The order of two nodes (`node`); the dialogue with the shell (`merge`).

use std::cmp::Ordering;

use super::batch::Batch;
use super::duplicates::{Duplicates, Marks};
use super::head::{Head, HeadState};
use super::node::TreeNode;
use super::run_block::RunBlock;
use plait_base::{Runs, SourceId};

/// Consecutive wins of one source before the tree gallops. Finely interleaved sources rarely win
/// twice in a row and should not pay for a search.
const GALLOP_AFTER_WINS: u32 = 4;

/// Why [`Merge::step`](super::Merge::step) stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
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

/// The row before the one that is looked at.
enum Before {
    /// By source and place in its batch.
    At(usize, usize),
    /// Its key, if there is one.
    Bytes(Option<Vec<u8>>),
}

enum Last {
    None,
    At(usize),
    Bytes(Vec<u8>),
}

/// Whether keys are compared with those before them in their source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderCheck {
    /// They are: a source whose keys descend is refused.
    Full,
    /// They are not: the caller knows that sources are sorted.
    Skip,
}

pub(super) struct LoserTree<N: TreeNode> {
    heads: Vec<Head<N::Keys>>,
    /// `nodes[0]` is the winner, the others are losers; empty until all sources have a head.
    nodes: Vec<N>,
    /// The key behind the next of each source, fetched before it is needed.
    ahead: Vec<N>,
    width: usize,
    check: OrderCheck,
    wins: u32,
    /// What the `end` of heads was found for.
    bound: Option<Vec<u8>>,
    last: Last,
    /// What decides which rows stay, unless all do.
    duplicates: Option<Box<Duplicates>>,
    /// Rows on their way there.
    taken: Runs,
}

impl<N: TreeNode> LoserTree<N> {
    pub(super) fn new(sources: usize, width: usize, check: OrderCheck) -> Self {
        let head = || Head {
            keys: N::Keys::default(),
            next: 0,
            base: 0,
            end: 0,
            row: 0,
            state: HeadState::Empty,
            is_start: false,
        };
        Self {
            heads: (0..sources).map(|_| head()).collect(),
            nodes: Vec::new(),
            ahead: (0..sources).map(|i| N::end(id(i).0)).collect(),
            width,
            check,
            wins: 0,
            bound: None,
            last: Last::None,
            duplicates: None,
            taken: Runs::default(),
        }
    }

    /// From now on, `duplicates` decides which rows stay.
    pub(super) fn sift_by(&mut self, duplicates: Duplicates) {
        self.duplicates = Some(Box::new(duplicates));
    }

    pub(super) fn duplicates(&mut self) -> Option<&mut Duplicates> {
        self.duplicates.as_deref_mut()
    }

    /// Tells what is known of the rows that were supplied last.
    pub(super) fn mark(&mut self, i: usize, marks: Marks) {
        let row = self.heads[i].row;
        if let Some(duplicates) = &mut self.duplicates {
            duplicates.supply(id(i), row, marks);
        }
    }

    /// The key that left last has all its rows.
    pub(super) fn flush(&mut self, runs: &mut Runs) {
        let Some(mut duplicates) = self.duplicates.take() else { return };
        duplicates.flush(|| self.last_key(), runs);
        self.duplicates = Some(duplicates);
    }

    pub(super) fn sources(&self) -> usize {
        self.heads.len()
    }

    /// Numbers the rows of a source that has supplied nothing yet from `row` on.
    pub(super) fn begin_at(&mut self, i: usize, row: u64) {
        self.heads[i].row = row;
    }

    /// Passes over the next rows of a source, whose keys are not supplied.
    pub(super) fn pass_over(&mut self, i: usize, rows: u64) {
        self.heads[i].row += rows;
    }

    pub(super) fn announce(&mut self, i: usize, first_key: &[u8]) {
        self.heads[i].keys = N::Keys::single(first_key);
        self.heads[i].state = HeadState::Announced;
    }

    pub(super) fn supply(
        &mut self,
        i: usize,
        mut keys: N::Keys,
        is_start: bool,
    ) -> Result<(), Disorder> {
        if keys.len() == 0 {
            self.end(i);
            return Ok(());
        }
        self.keep_last(i);
        let width = self.width;
        let head = &mut self.heads[i];
        let was_announced = head.state == HeadState::Announced;
        let taken = if was_announced { 0 } else { head.next as u64 };
        let row = head.row + taken;
        let old = &head.keys;
        let is_checked = self.check == OrderCheck::Full;
        let descent = keys.check(is_checked);
        if is_checked {
            if old.len() > 0 && old.compare(old.len() - 1, &keys, 0) == Ordering::Greater {
                let (before, after) = (old.bytes(old.len() - 1, width), keys.bytes(0, width));
                return Err(Disorder { row, before, after });
            }
            if let Some(j) = descent {
                let (before, after) = (keys.bytes(j - 1, width), keys.bytes(j, width));
                return Err(Disorder { row: row + j as u64, before, after });
            }
        }
        let source = id(i).0;
        let node = match old.len() {
            0 => N::root(&keys, 0, source),
            _ => N::against(&keys, 0, source, (old, head.base)),
        };
        *head = Head { keys, next: 0, base: 0, end: 0, row, state: HeadState::Open, is_start };
        self.ahead[i] = fetch(head, i);
        self.replay(node);
        Ok(())
    }

    pub(super) fn end(&mut self, i: usize) {
        self.keep_last(i);
        let head = &mut self.heads[i];
        (head.state, head.keys) = (HeadState::Ended, N::Keys::default());
        (head.next, head.end) = (0, 0);
        self.replay(N::end(id(i).0));
    }

    /// Copies the key that left last before its batch is dropped.
    fn keep_last(&mut self, i: usize) {
        if matches!(self.last, Last::At(source) if source == i) {
            self.last = Last::Bytes(self.last_key());
        }
    }

    /// Goes on row by row where a row group starts.
    pub(super) fn enter(&mut self, i: usize) {
        self.heads[i].is_start = false;
    }

    /// Builds the tree once every source has a head; else names one that has none.
    fn start(&mut self) -> Option<usize> {
        if self.nodes.is_empty() && !self.heads.is_empty() {
            let missing = self.heads.iter().position(|h| h.state == HeadState::Empty);
            if missing.is_some() {
                return missing;
            }
            self.build();
        }
        None
    }

    fn build(&mut self) {
        let leaves = self.heads.len().next_power_of_two();
        let node = |i: usize| match self.heads.get(i) {
            Some(head) if head.next < head.keys.len() => N::root(&head.keys, head.next, id(i).0),
            _ => N::end(id(i).0),
        };
        // Winners of all nodes, bottom up: leaf i stands at leaves + i.
        let mut winners: Vec<N> = vec![N::end(0); leaves];
        winners.extend((0..leaves).map(node));
        self.nodes = winners[..leaves].to_vec();
        for at in (1..leaves).rev() {
            let (first, second) = (winners[2 * at], winners[2 * at + 1]);
            (winners[at], self.nodes[at]) = first.play(second, &self.heads);
        }
        self.nodes[0] = winners[1];
    }

    /// Lets the winner, whose head changed to `node`, play again, if there is a tree.
    fn replay(&mut self, node: N) {
        match self.nodes.first() {
            None => {}
            Some(winner) if winner.source() == node.source() => {
                replay(&mut self.nodes, node, &self.heads);
            }
            Some(_) => self.nodes.clear(), // and is built when it is needed
        }
    }

    /// The best of those that lost to the winner directly; none if they have ended.
    fn runner_up(&self, winner: usize) -> Option<usize> {
        let mut best: Option<N> = None;
        let mut at = (self.nodes.len() + winner) / 2;
        while at > 0 {
            let rival = self.nodes[at];
            best = best.map(|best| best.play(rival, &self.heads).0).or(Some(rival));
            at /= 2;
        }
        best.filter(|best| !best.is_end()).map(N::source)
    }

    pub(super) fn step(&mut self, rows_max: u64, bound: Option<&[u8]>, runs: &mut Runs) -> Stop {
        if self.heads.is_empty() {
            return Stop::Done;
        }
        if let Some(i) = self.start() {
            return Stop::Need(id(i));
        }
        if self.bound.as_deref() != bound {
            self.bound = bound.map(<[u8]>::to_vec);
            self.heads.iter_mut().for_each(|head| head.end = 0);
        }
        let mut left = rows_max;
        loop {
            let w = self.nodes[0].source();
            match self.heads[w].state {
                HeadState::Ended => return Stop::Done,
                HeadState::Empty | HeadState::Announced => return Stop::Need(id(w)),
                HeadState::Open => {}
            }
            if let Some(step) = self.look(w) {
                return step;
            }
            if left == 0 {
                return Stop::Full;
            }
            left -= match &self.duplicates {
                None => self.take(w, left, runs),
                Some(_) => self.sift(w, left, runs),
            };
        }
    }

    fn take(&mut self, w: usize, left: u64, runs: &mut Runs) -> u64 {
        match self.wins < GALLOP_AFTER_WINS {
            true => self.race(left, runs),
            false => self.gallop(w, left, runs),
        }
    }

    /// Takes rows as [`take`](Self::take) does, of which not all stay.
    fn sift(&mut self, w: usize, left: u64, runs: &mut Runs) -> u64 {
        let Some(mut duplicates) = self.duplicates.take() else { return self.take(w, left, runs) };
        let mut before = match &mut self.last {
            Last::At(source) => Before::At(*source, self.heads[*source].next.wrapping_sub(1)),
            last => Before::Bytes(match std::mem::replace(last, Last::None) {
                Last::Bytes(bytes) => Some(bytes),
                _ => None,
            }),
        };
        let mut taken = std::mem::take(&mut self.taken);
        taken.clear();
        let rows = self.take(w, left, &mut taken);
        // All these rows are in batches that are still here.
        for run in taken.as_slice() {
            let i = run.source.index();
            let keys = &self.heads[i].keys;
            for row in run.start..run.end() {
                let at = usize::try_from(row - self.heads[i].row).unwrap_or(usize::MAX);
                let is_same = match &before {
                    Before::At(b, key) => {
                        self.heads[*b].keys.compare(*key, keys, at) == Ordering::Equal
                    }
                    Before::Bytes(Some(bytes)) => keys.compare_bytes(at, bytes) == Ordering::Equal,
                    Before::Bytes(None) => false,
                };
                let key = || match &before {
                    Before::At(b, key) => self.heads[*b].keys.bytes(*key, self.width),
                    Before::Bytes(bytes) => bytes.clone().unwrap_or_default(),
                };
                duplicates.see(run.source, row, is_same, &key, runs);
                before = Before::At(i, at);
            }
        }
        self.taken = taken;
        self.duplicates = Some(duplicates);
        rows
    }

    /// Finds how many rows of the winner may leave, or what keeps the next one from it.
    fn look(&mut self, w: usize) -> Option<Stop> {
        let head = &mut self.heads[w];
        if head.next < head.end {
            return None;
        }
        head.end = match &self.bound {
            None => head.keys.len(),
            Some(bound) => {
                let (mut low, mut high) = (head.next, head.keys.len());
                while low < high {
                    let middle = low + (high - low) / 2;
                    match head.keys.compare_bytes(middle, bound) {
                        Ordering::Less => low = middle + 1,
                        _ => high = middle,
                    }
                }
                low
            }
        };
        if head.next >= head.end {
            return Some(Stop::Bound);
        }
        if head.is_start && head.next == 0 {
            head.end = 0; // and looks again
            return Some(Stop::Start(id(w)));
        }
        None
    }

    /// Takes rows one by one, at least one and at most `left`, until one needs a look, a batch is
    /// used up or one source wins too often. Returns how many.
    fn race(&mut self, left: u64, runs: &mut Runs) -> u64 {
        let Self { heads, nodes, ahead, wins, .. } = self;
        let mut block = RunBlock::default();
        let room = RunBlock::ROWS.min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut w = nodes[0].source();
        let mut last = w;
        while block.rows() < room {
            let head = &mut heads[w];
            if head.next >= head.end || *wins >= GALLOP_AFTER_WINS {
                break;
            }
            let source = id(w);
            block.push(source, head.row + head.next as u64);
            head.next += 1;
            last = w;
            if head.next >= head.keys.len() {
                (head.state, head.base) = (HeadState::Empty, head.next - 1);
                break;
            }
            let node = std::mem::replace(&mut ahead[w], fetch(head, w));
            w = replay(nodes, node, heads).source();
            *wins = if w == last { *wins + 1 } else { 0 };
        }
        let rows = block.rows() as u64;
        runs.extend_from_slice(block.as_slice());
        self.last = Last::At(last);
        rows
    }

    /// Takes the rows of the winner that leave before the runner-up, at least one and at most
    /// `left`. Returns how many.
    fn gallop(&mut self, w: usize, left: u64, runs: &mut Runs) -> u64 {
        let taken = self.lead(w, usize::try_from(left).unwrap_or(usize::MAX));
        let head = &mut self.heads[w];
        runs.push(id(w), head.row + head.next as u64, taken as u64);
        head.base = head.next;
        head.next += taken;
        self.last = Last::At(w);
        if head.next >= head.keys.len() {
            head.state = HeadState::Empty;
        } else {
            let node = N::against(&head.keys, head.next, id(w).0, (&head.keys, head.base));
            self.ahead[w] = fetch(head, w);
            self.replay(node);
            self.wins = if self.nodes[0].source() == w { self.wins + 1 } else { 0 };
        }
        taken as u64
    }

    /// How many rows of the winner, at least one and at most `room`, leave before the runner-up.
    fn lead(&self, w: usize, room: usize) -> usize {
        let head = &self.heads[w];
        let n = (head.end - head.next).min(room);
        let Some(r) = self.runner_up(w) else { return n };
        let rival = &self.heads[r];
        let leaves_first =
            |i: usize| match head.keys.compare(head.next + i, &rival.keys, rival.next) {
                Ordering::Less => true,
                Ordering::Equal => w < r,
                Ordering::Greater => false,
            };
        if n <= 1 || leaves_first(n - 1) {
            return n; // sources that hardly overlap end here, batch by batch
        }
        let (mut low, mut jump) = (0, 1); // row `low` is known to leave
        while low + jump < n && leaves_first(low + jump) {
            low += jump;
            jump *= 2;
        }
        let mut high = (low + jump).min(n - 1); // row `high` is known to stay
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if leaves_first(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        low + 1
    }

    pub(super) fn is_alone(&self, w: usize, last_key: &[u8]) -> bool {
        if self.nodes.first().is_none_or(|winner| winner.source() != w) {
            return false;
        }
        self.runner_up(w).is_none_or(|r| {
            match self.heads[r].keys.compare_bytes(self.heads[r].next, last_key) {
                Ordering::Greater => true,
                Ordering::Equal => w < r,
                Ordering::Less => false,
            }
        })
    }

    pub(super) fn skip(&mut self, w: usize, rows: u64, last_key: &[u8]) {
        let head = &mut self.heads[w];
        let row = head.row + head.next as u64 + rows;
        // The last key stays as a batch that is used up: the next one is checked against it.
        *head = Head {
            keys: N::Keys::single(last_key),
            next: 1,
            base: 0,
            end: 0,
            row: row - 1,
            state: HeadState::Empty,
            is_start: false,
        };
        self.nodes.clear(); // nobody was beaten by that key
        self.last = Last::Bytes(last_key.to_vec());
    }

    pub(super) fn last_key(&self) -> Vec<u8> {
        match &self.last {
            Last::None => Vec::new(),
            Last::Bytes(bytes) => bytes.clone(),
            Last::At(i) => {
                let head = &self.heads[*i];
                head.next.checked_sub(1).map_or_else(Vec::new, |at| head.keys.bytes(at, self.width))
            }
        }
    }

    pub(super) fn next_key(&mut self) -> Option<Vec<u8>> {
        if self.start().is_some() {
            return None;
        }
        let head = self.heads.get(self.nodes.first()?.source())?;
        (head.next < head.keys.len()).then(|| head.keys.bytes(head.next, self.width))
    }
}

/// The key behind the next one; the last one again behind that.
#[inline(always)]
fn fetch<N: TreeNode>(head: &Head<N::Keys>, i: usize) -> N {
    let behind = (head.next + 1).min(head.keys.len() - 1);
    N::new(&head.keys, behind, id(i).0)
}

/// Lets `node`, the winner's, play its way up again. Returns who wins now.
#[inline(always)]
fn replay<N: TreeNode>(nodes: &mut [N], node: N, heads: &[Head<N::Keys>]) -> N {
    let mut winner = node;
    let mut at = (nodes.len() + node.source()) / 2;
    while at > 0 {
        (winner, nodes[at]) = winner.play(nodes[at], heads);
        at /= 2;
    }
    nodes[0] = winner;
    winner
}

#[inline]
pub(super) fn id(i: usize) -> SourceId {
    SourceId(u32::try_from(i).unwrap_or(u32::MAX))
}
