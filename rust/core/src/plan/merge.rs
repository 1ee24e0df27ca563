//! Who is smallest now? A loser tree over `k` sources of encoded keys.
//!
//! ```text
//!        w          w = winner; nodes 1.. hold the losers met on the way up
//!       / \
//!      1   2        leaves are the sources; a source's head is its next key
//! ```
//!
//! The tree asks for keys batch by batch ([`Step::Need`]) and answers with runs. A source that wins
//! again and again is galloped through: doubling steps, then a binary search, against the runner-up.
//!
//! # Invariants
//! Equal keys leave in source order, then row order: upheld by `before`, the only comparison.
//! Keys of one source never descend: checked by [`Merge::supply`] unless told otherwise.
//!
//! # Cost
//! At most ⌈log2 k⌉ comparisons a row; a run of n rows costs O(log n) once it is long. Memory: one
//! batch of keys per open source. (Loser trees: Knuth, The Art of Computer Programming 3, 5.4.1;
//! galloping: Bentley and Yao, An almost optimal algorithm for unbounded searching, 1976.)
//!
//! # Not here
//! Where windows and outputs end (`window`).

use std::cmp::Ordering;

use super::batch::Batch;
use crate::key::{KeyBytes, KeyShape, Keys};
use crate::run::{Runs, SourceId};

/// Consecutive wins of one source before the tree gallops. Finely interleaved sources rarely win
/// twice in a row and should not pay for a search.
const GALLOP_AFTER_WINS: u32 = 4;

/// Why [`Merge::step`] stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// This source's next keys are needed: call [`Merge::supply`] or [`Merge::end`].
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

/// k-way merge of encoded keys into runs.
///
/// ```
/// use plait_core::key::{KeyShape, Keys};
/// use plait_core::plan::{Merge, Step};
/// use plait_core::run::{Runs, SourceId};
///
/// let shape = KeyShape::try_new(vec![])?; // no columns: all rows are equal, sources follow
/// let mut merge = Merge::new(&shape, 2, true);
/// let mut runs = Runs::default();
/// for source in [SourceId(0), SourceId(1)] {
///     merge.supply(source, Keys::Packed(vec![0; 3]), false).unwrap();
/// }
/// while let Step::Need(source) = merge.step(u64::MAX, None, &mut runs) {
///     merge.end(source);
/// }
/// assert_eq!((runs.len(), runs.rows()), (2, 6));
/// # Ok::<(), plait_core::Error>(())
/// ```
pub struct Merge {
    tree: Tree,
}

enum Tree {
    Packed(LoserTree<Vec<u128>>),
    Bytes(LoserTree<KeyBytes>),
}

macro_rules! with_tree {
    ($self:expr, $tree:ident => $body:expr) => {
        match $self {
            Tree::Packed($tree) => $body,
            Tree::Bytes($tree) => $body,
        }
    };
}

impl Merge {
    /// A merge of `sources` sources that have supplied nothing yet. With `check_order` a source
    /// whose keys descend is refused.
    #[must_use]
    pub fn new(shape: &KeyShape, sources: usize, check_order: bool) -> Self {
        let tree = if shape.packs() {
            let width = shape.fixed_width().unwrap_or(16);
            Tree::Packed(LoserTree::new(sources, width, check_order))
        } else {
            Tree::Bytes(LoserTree::new(sources, 0, check_order))
        };
        Self { tree }
    }

    /// Puts a source into the race by its first key alone: when that key wins, the source is
    /// asked for ([`Step::Need`]). Sources that are far away need not be open.
    pub fn announce(&mut self, source: SourceId, first_key: &[u8]) {
        with_tree!(&mut self.tree, t => t.announce(source.index(), first_key));
    }

    /// Gives the next keys of `source`, at least one. With `is_start`, [`Step::Start`] is returned
    /// before its first row is taken.
    ///
    /// # Errors
    /// [`Disorder`] where a key is smaller than the one before it.
    pub fn supply(&mut self, source: SourceId, keys: Keys, is_start: bool) -> Result<(), Disorder> {
        let i = source.index();
        match (&mut self.tree, keys) {
            (Tree::Packed(t), Keys::Packed(keys)) => t.supply(i, keys, is_start),
            (Tree::Bytes(t), Keys::Bytes(keys)) => t.supply(i, keys, is_start),
            // One shape makes all keys, so the forms agree; a foreign form ends the source and is
            // then found by the count of rows.
            (tree, _) => {
                debug_assert!(false, "keys of another shape were supplied");
                with_tree!(tree, t => t.end(i));
                Ok(())
            }
        }
    }

    /// Says that `source` has no further rows.
    pub fn end(&mut self, source: SourceId) {
        with_tree!(&mut self.tree, t => t.end(source.index()));
    }

    /// Takes rows in order into `runs` until something stops it: at most `rows_max` rows, and only
    /// rows whose key is below `bound`.
    pub fn step(&mut self, rows_max: u64, bound: Option<&[u8]>, runs: &mut Runs) -> Step {
        with_tree!(&mut self.tree, t => t.step(rows_max, bound, runs))
    }

    /// After [`Step::Start`]: go on row by row with this batch.
    pub fn enter(&mut self, source: SourceId) {
        with_tree!(&mut self.tree, t => t.heads[source.index()].is_start = false);
    }

    /// Whether all rows of the winner up to `last_key` leave before any row of another source.
    #[must_use]
    pub fn is_alone(&self, source: SourceId, last_key: &[u8]) -> bool {
        with_tree!(&self.tree, t => t.is_alone(source.index(), last_key))
    }

    /// Takes the next `rows` rows of the winner at once; their last key is `last_key`. The source
    /// is asked for what follows.
    pub fn skip(&mut self, source: SourceId, rows: u64, last_key: &[u8]) {
        with_tree!(&mut self.tree, t => t.skip(source.index(), rows, last_key));
    }

    /// Key of the row that left last.
    #[must_use]
    pub fn last_key(&self) -> Vec<u8> {
        with_tree!(&self.tree, t => t.last_key())
    }

    /// Key of the row that leaves next, where it is known.
    #[must_use]
    pub fn next_key(&mut self) -> Option<Vec<u8>> {
        with_tree!(&mut self.tree, t => t.next_key())
    }

    /// Number of sources.
    #[must_use]
    pub fn sources(&self) -> usize {
        with_tree!(&self.tree, t => t.heads.len())
    }
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

struct Head<B> {
    keys: Option<B>,
    next: usize,
    /// Row of `keys[0]`, counted over the source.
    row: u64,
    state: State,
    is_start: bool,
}

enum Last {
    None,
    At(usize),
    Bytes(Vec<u8>),
}

struct LoserTree<B: Batch> {
    heads: Vec<Head<B>>,
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
    fn new(sources: usize, width: usize, check_order: bool) -> Self {
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

    fn announce(&mut self, i: usize, first_key: &[u8]) {
        let keys = B::single(first_key);
        self.shorts[i] = Some(keys.short(0));
        self.heads[i].keys = Some(keys);
        self.heads[i].state = State::Announced;
    }

    fn supply(&mut self, i: usize, keys: B, is_start: bool) -> Result<(), Disorder> {
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

    fn end(&mut self, i: usize) {
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

    fn step(&mut self, rows_max: u64, bound: Option<&[u8]>, runs: &mut Runs) -> Step {
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

    fn is_alone(&self, w: usize, last_key: &[u8]) -> bool {
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

    fn skip(&mut self, w: usize, rows: u64, last_key: &[u8]) {
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

    fn last_key(&self) -> Vec<u8> {
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

    fn next_key(&mut self) -> Option<Vec<u8>> {
        if self.start().is_some() {
            return None;
        }
        let head = self.heads.get(*self.nodes.first()?)?;
        let keys = head.keys.as_ref()?;
        (head.next < keys.len()).then(|| keys.bytes(head.next, self.width))
    }
}

fn id(i: usize) -> SourceId {
    SourceId(u32::try_from(i).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shape(packs: bool) -> KeyShape {
        use crate::key::{KeyColumn, KeyType, Nulls};
        let ty = if packs { KeyType::UInt32 } else { KeyType::Bytes { text: false } };
        let column = KeyColumn { name: "k".into(), ty, descending: false, nulls: Nulls::Last };
        KeyShape::try_new(vec![column]).unwrap()
    }

    fn keys(packs: bool, values: &[u8]) -> Keys {
        if packs {
            Keys::Packed(values.iter().map(|&v| u128::from(v) << 88 | 1 << 120).collect())
        } else {
            let mut keys = KeyBytes::default();
            values.iter().for_each(|&v| keys.push(&[1, 9, 9, 9, 9, 9, 9, 9, 9, v, 0, 0]));
            Keys::Bytes(keys)
        }
    }

    /// The oracle: concatenate, stable sort by key.
    fn slow(sources: &[Vec<u8>]) -> Vec<(u32, u64)> {
        let mut rows: Vec<(u8, u32, u64)> = Vec::new();
        for (s, source) in sources.iter().enumerate() {
            rows.extend(source.iter().enumerate().map(|(r, &k)| (k, s as u32, r as u64)));
        }
        rows.sort_by_key(|row| row.0);
        rows.into_iter().map(|(_, s, r)| (s, r)).collect()
    }

    fn flat(runs: &Runs) -> Vec<(u32, u64)> {
        let rows = |r: &crate::run::Run| (r.start..r.end()).map(|row| (r.source.0, row)).collect();
        runs.as_slice().iter().flat_map(|r| -> Vec<_> { rows(r) }).collect()
    }

    fn drive(
        sources: &[Vec<u8>],
        packs: bool,
        batch: usize,
        rows_max: u64,
        announce: bool,
    ) -> Runs {
        let mut merge = Merge::new(&shape(packs), sources.len(), true);
        let mut given = vec![0; sources.len()];
        let mut runs = Runs::default();
        if announce {
            for (i, source) in sources.iter().enumerate() {
                let Some(first) = source.first() else {
                    merge.end(id(i));
                    continue;
                };
                let key = keys(packs, &[*first]).to_bytes(&shape(packs), 0);
                merge.announce(id(i), &key);
            }
        }
        loop {
            match merge.step(rows_max, None, &mut runs) {
                Step::Need(s) => {
                    let source = &sources[s.index()];
                    let from = given[s.index()];
                    let to = (from + batch).min(source.len());
                    given[s.index()] = to;
                    if from == to {
                        merge.end(s);
                    } else {
                        merge
                            .supply(s, keys(packs, &source[from..to]), to.is_multiple_of(3))
                            .unwrap();
                    }
                }
                Step::Start(s) => merge.enter(s),
                Step::Full => {}
                Step::Bound => unreachable!("no bound was given"),
                Step::Done => return runs,
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(600))]
        #[test]
        fn merge_is_a_stable_sort(
            mut sources in prop::collection::vec(prop::collection::vec(0u8..12, 0..60), 1..9),
            batch in 1usize..20, rows_max in 1u64..50, packs: bool, announce: bool,
        ) {
            sources.iter_mut().for_each(|s| s.sort_unstable());
            let runs = drive(&sources, packs, batch, rows_max, announce);
            prop_assert_eq!(flat(&runs), slow(&sources));
        }

        #[test]
        fn long_disjoint_sources_become_few_runs(parts in 1usize..6, len in 1usize..40) {
            let sources: Vec<Vec<u8>> = (0..parts).map(|p| vec![p as u8; len]).collect();
            let runs = drive(&sources, true, 7, 1000, false);
            prop_assert_eq!(runs.len(), parts);
        }
    }

    #[test]
    fn keys_that_descend_are_refused_with_their_row() {
        for packs in [true, false] {
            let mut merge = Merge::new(&shape(packs), 1, true);
            merge.supply(id(0), keys(packs, &[1, 5]), false).unwrap();
            let mut runs = Runs::default();
            assert_eq!(merge.step(10, None, &mut runs), Step::Need(id(0)));
            let error = merge.supply(id(0), keys(packs, &[4, 9]), false).unwrap_err();
            assert_eq!(error.row, 2);
            assert!(error.before > error.after);
            let inside = merge.supply(id(0), keys(packs, &[6, 9, 8]), false).unwrap_err();
            assert_eq!(inside.row, 4);
        }
    }

    #[test]
    fn a_bound_stops_before_its_key_and_skip_takes_a_block() {
        let shape = shape(true);
        let mut merge = Merge::new(&shape, 2, true);
        merge.supply(id(0), keys(true, &[1, 2, 3]), true).unwrap();
        merge.supply(id(1), keys(true, &[4, 6]), false).unwrap();
        let mut runs = Runs::default();
        assert_eq!(merge.step(9, None, &mut runs), Step::Start(id(0)));
        let key = |v| keys(true, &[v]).to_bytes(&shape, 0);
        assert!(merge.is_alone(id(0), &key(3)));
        assert!(merge.is_alone(id(0), &key(4)), "a tie leaves source 0 first");
        assert!(!merge.is_alone(id(0), &key(5)));
        merge.skip(id(0), 3, &key(3));
        runs.push(id(0), 0, 3);
        assert_eq!(merge.last_key(), key(3));
        assert_eq!(merge.step(9, None, &mut runs), Step::Need(id(0)));
        merge.end(id(0));
        assert_eq!(merge.step(9, Some(&key(6)), &mut runs), Step::Bound);
        assert_eq!(merge.next_key(), Some(key(6)));
        assert_eq!(flat(&runs), [(0, 0), (0, 1), (0, 2), (1, 0)]);
    }
}
