//! The merge as a dialogue: keys of `k` sources in, runs out.
//!
//! ```text
//! step ──▶ Need(source) ──▶ supply(keys) ──▶ step ──▶ … ──▶ Full | Bound | Done
//! ```
//!
//! # Invariants
//! Keys of one source never descend: checked by [`Merge::supply`] unless the check is off.
//!
//! # Cost
//! Memory: one batch of keys per open source. Time: see `loser_tree`.
//!
//! # Not here
//! Where windows and outputs end (`window`).

use std::ops::Range;

use super::coded::{Coded, CodedKeys};
use super::duplicates::{Clash, DropRule, Dropped, Duplicates, Marks};
use super::groups::KeyGroups;
use super::loser_tree::{Disorder, LoserTree, OrderCheck, Stop};
use super::node::{SOURCES_MAX, TAGGED_BYTES_MAX, Tagged, Wide};
use crate::key::{KeyShape, Keys};
use plait_base::{Runs, SourceId};

/// k-way merge of encoded keys into runs.
///
/// ```
/// use plait_core::key::{KeyShape, Keys};
/// use plait_core::plan::{Merge, OrderCheck, Stop};
/// use plait_core::{Runs, SourceId};
///
/// let shape = KeyShape::try_new(vec![])?; // no columns: all rows are equal, sources follow
/// let mut merge = Merge::new(&shape, 2, OrderCheck::Full);
/// let mut runs = Runs::default();
/// for source in [SourceId(0), SourceId(1)] {
///     merge.supply(source, Keys::Packed(vec![0; 3]), false).unwrap();
/// }
/// while let Stop::Need(source) = merge.step(u64::MAX, None, &mut runs) {
///     merge.end(source);
/// }
/// assert_eq!((runs.len(), runs.rows()), (2, 6));
/// # Ok::<(), plait_core::Error>(())
/// ```
pub struct Merge {
    tree: Tree,
}

enum Tree {
    Tagged(LoserTree<Tagged>),
    Wide(LoserTree<Wide>),
    Bytes(LoserTree<Coded>),
}

macro_rules! with_tree {
    ($self:expr, $tree:ident => $body:expr) => {
        match $self {
            Tree::Tagged($tree) => $body,
            Tree::Wide($tree) => $body,
            Tree::Bytes($tree) => $body,
        }
    };
}

impl Merge {
    /// A merge of `sources` sources that have supplied nothing yet. `check`:
    /// whether a source whose keys descend is refused.
    #[must_use]
    pub fn new(shape: &KeyShape, sources: usize, check: OrderCheck) -> Self {
        let tree = match shape.fixed_width().filter(|_| shape.packs()) {
            Some(width) if width <= TAGGED_BYTES_MAX && sources < SOURCES_MAX => {
                Tree::Tagged(LoserTree::new(sources, width, check))
            }
            Some(width) => Tree::Wide(LoserTree::new(sources, width, check)),
            None => Tree::Bytes(LoserTree::new(sources, 0, check)),
        };
        Self { tree }
    }

    /// From now on rows are dropped as `rule` says; the key of every so many rows that leave is
    /// noted (0 = none).
    pub fn drop_rows(&mut self, rule: DropRule, sample_every: u64) {
        let duplicates = Duplicates::new(rule, self.sources(), sample_every);
        with_tree!(&mut self.tree, t => t.sift_by(duplicates));
    }

    fn duplicates(&mut self) -> Option<&mut Duplicates> {
        with_tree!(&mut self.tree, t => t.duplicates())
    }

    /// Tells what is known of the rows that `source` supplied last.
    pub fn mark(&mut self, source: SourceId, marks: Marks) {
        with_tree!(&mut self.tree, t => t.mark(source.index(), marks));
    }

    /// Lets the row go that stays of the key that left last: no other row of that key follows.
    pub fn flush(&mut self, runs: &mut Runs) {
        with_tree!(&mut self.tree, t => t.flush(runs));
    }

    /// How many rows would leave if no other row of the key came that left last.
    #[must_use]
    pub(crate) fn staged_rows(&mut self) -> u64 {
        self.duplicates().map_or(0, |duplicates| duplicates.staged_rows())
    }

    /// Whether a row of `source` in `rows` waits for others of its key.
    #[must_use]
    pub(crate) fn is_staged(&mut self, source: SourceId, rows: &Range<u64>) -> bool {
        self.duplicates().is_some_and(|duplicates| duplicates.is_staged(source, rows))
    }

    /// The groups of the rows that have left since they were taken last, by output row from `first`
    /// on.
    #[must_use]
    pub(crate) fn take_groups(&mut self, first: u64) -> KeyGroups {
        self.duplicates().map(|duplicates| duplicates.take_groups(first)).unwrap_or_default()
    }

    /// Bytes of the groups that were not taken.
    #[must_use]
    pub(crate) fn groups_size(&mut self) -> usize {
        self.duplicates().map_or(0, |duplicates| duplicates.groups_size())
    }

    /// Two rows of one key, where there must not be two.
    #[must_use]
    pub fn clash(&mut self) -> Option<Clash> {
        self.duplicates()?.clash()
    }

    /// Rows that did not stay, so far.
    #[must_use]
    pub fn dropped(&mut self) -> Dropped {
        self.duplicates().map(|duplicates| duplicates.dropped()).unwrap_or_default()
    }

    /// The keys that were noted since they were taken last, by row of the output.
    pub(crate) fn take_samples(&mut self) -> Vec<(u64, Vec<u8>)> {
        self.duplicates().map(Duplicates::take_samples).unwrap_or_default()
    }

    /// Bytes held for marks.
    #[must_use]
    pub fn memory_size(&mut self) -> usize {
        self.duplicates().map_or(0, |duplicates| duplicates.memory_size())
    }

    /// Says that the first row which `source` will supply is its row `row`.
    pub fn begin_at(&mut self, source: SourceId, row: u64) {
        with_tree!(&mut self.tree, t => t.begin_at(source.index(), row));
    }

    /// Passes over the next `rows` rows of `source`, which leave with no run: the keys supplied next
    /// are those of the rows behind them.
    pub fn pass_over(&mut self, source: SourceId, rows: u64) {
        with_tree!(&mut self.tree, t => t.pass_over(source.index(), rows));
    }

    /// Puts a source into the race by its first key alone: when that key wins, the source is
    /// asked for ([`Stop::Need`]). Sources that are far away need not be open.
    pub fn announce(&mut self, source: SourceId, first_key: &[u8]) {
        with_tree!(&mut self.tree, t => t.announce(source.index(), first_key));
    }

    /// Gives the next keys of `source`, at least one. With `is_start`, [`Stop::Start`] is returned
    /// before its first row is taken.
    ///
    /// # Errors
    /// [`Disorder`] where a key is smaller than the one before it.
    pub fn supply(&mut self, source: SourceId, keys: Keys, is_start: bool) -> Result<(), Disorder> {
        let i = source.index();
        match (&mut self.tree, keys) {
            (Tree::Tagged(t), Keys::Packed(keys)) => t.supply(i, keys, is_start),
            (Tree::Wide(t), Keys::Packed(keys)) => t.supply(i, keys, is_start),
            (Tree::Bytes(t), Keys::Bytes(keys)) => t.supply(i, CodedKeys::new(keys), is_start),
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

    /// Takes rows in order into `runs`, those that stay, until something stops it: at most `rows_max` rows, and only
    /// rows whose key is below `bound`.
    pub fn step(&mut self, rows_max: u64, bound: Option<&[u8]>, runs: &mut Runs) -> Stop {
        with_tree!(&mut self.tree, t => t.step(rows_max, bound, runs))
    }

    /// After [`Stop::Start`]: go on row by row with this batch.
    pub fn enter(&mut self, source: SourceId) {
        with_tree!(&mut self.tree, t => t.enter(source.index()));
    }

    /// Whether all rows of the winner up to `last_key` leave before any row of another source.
    #[must_use]
    pub(crate) fn is_alone(&self, source: SourceId, last_key: &[u8]) -> bool {
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
    pub(crate) fn next_key(&mut self) -> Option<Vec<u8>> {
        with_tree!(&mut self.tree, t => t.next_key())
    }

    /// Number of sources.
    #[must_use]
    pub fn sources(&self) -> usize {
        with_tree!(&self.tree, t => t.sources())
    }
}

#[cfg(test)]
mod tests {
    use super::super::loser_tree::id;
    use super::*;
    use crate::key::KeyBytes;
    use proptest::prelude::*;

    /// The three forms that the tree is compiled for.
    #[derive(Clone, Copy, Debug)]
    enum Form {
        Tagged,
        Wide,
        Bytes,
    }

    const FORMS: [Form; 3] = [Form::Tagged, Form::Wide, Form::Bytes];

    fn shape(form: Form) -> KeyShape {
        use crate::key::{KeyColumn, KeyType, Nulls};
        let column = |name: &str, ty| KeyColumn {
            name: name.into(),
            ty,
            descending: false,
            nulls: Nulls::Last,
        };
        let first = match form {
            Form::Tagged => KeyType::Rank { bytes: 4 },
            Form::Wide => KeyType::Rank { bytes: 8 },
            Form::Bytes => KeyType::Bytes { text: false },
        };
        let second = KeyType::Rank { bytes: 8 };
        KeyShape::try_new(vec![column("k", first), column("l", second)]).unwrap()
    }

    fn keys(form: Form, values: &[u8]) -> Keys {
        let packed = |shift: u32| values.iter().map(|&v| u128::from(v) << shift).collect();
        match form {
            Form::Tagged => Keys::Packed(packed(32)),
            // All ones at the end: the greatest value is what ended sources look like.
            Form::Wide => {
                Keys::Packed(values.iter().map(|&v| u128::MAX << 8 | u128::from(v)).collect())
            }
            Form::Bytes => {
                let mut keys = KeyBytes::default();
                let rank = [0xFF; 8];
                values.iter().for_each(|&v| {
                    keys.push(&[&[1, 9, 9, 9, 9, 9, 9, 9, 9, v, 0, 0][..], &rank].concat());
                });
                Keys::Bytes(keys)
            }
        }
    }

    /// The keys of rows of two texts, sorted.
    fn texts(sources: &[Vec<(String, String)>], descending: bool) -> (KeyShape, Vec<Vec<Vec<u8>>>) {
        use crate::key::{Column, KeyColumn, KeyType, Nulls, Values, encode};
        let ty = KeyType::Bytes { text: true };
        let column =
            |name: &str| KeyColumn { name: name.into(), ty, descending, nulls: Nulls::Last };
        let shape = KeyShape::try_new(vec![column("a"), column("b")]).unwrap();
        let keys = |rows: &Vec<(String, String)>| {
            let a: Vec<&[u8]> = rows.iter().map(|row| row.0.as_bytes()).collect();
            let b: Vec<&[u8]> = rows.iter().map(|row| row.1.as_bytes()).collect();
            let column = |values| Column { present: None, values: Values::Bytes(values) };
            let keys = encode(&shape, rows.len(), &[column(&a), column(&b)]).unwrap();
            let mut keys: Vec<_> = (0..rows.len()).map(|i| keys.to_bytes(&shape, i)).collect();
            keys.sort();
            keys
        };
        let sources = sources.iter().map(keys).collect();
        (shape, sources)
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
        let rows = |r: &plait_base::Run| (r.start..r.end()).map(|row| (r.source.0, row)).collect();
        runs.as_slice().iter().flat_map(|r| -> Vec<_> { rows(r) }).collect()
    }

    fn drive(sources: &[Vec<u8>], form: Form, batch: usize, rows_max: u64, announce: bool) -> Runs {
        let mut merge = Merge::new(&shape(form), sources.len(), OrderCheck::Full);
        let mut given = vec![0; sources.len()];
        let mut runs = Runs::default();
        if announce {
            for (i, source) in sources.iter().enumerate() {
                let Some(first) = source.first() else {
                    merge.end(id(i));
                    continue;
                };
                let key = keys(form, &[*first]).to_bytes(&shape(form), 0);
                merge.announce(id(i), &key);
            }
        }
        loop {
            match merge.step(rows_max, None, &mut runs) {
                Stop::Need(s) => {
                    let source = &sources[s.index()];
                    let from = given[s.index()];
                    let to = (from + batch).min(source.len());
                    given[s.index()] = to;
                    if from == to {
                        merge.end(s);
                    } else {
                        merge
                            .supply(s, keys(form, &source[from..to]), to.is_multiple_of(3))
                            .unwrap();
                    }
                }
                Stop::Start(s) => merge.enter(s),
                Stop::Full => {}
                Stop::Bound => unreachable!("no bound was given"),
                Stop::Done => return runs,
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(600))]
        #[test]
        fn merge_is_a_stable_sort(
            mut sources in prop::collection::vec(prop::collection::vec(0u8..12, 0..60), 1..9),
            batch in 1usize..20, rows_max in 1u64..50, announce: bool,
            form in prop::sample::select(FORMS.to_vec()), greatest: bool,
        ) {
            if greatest {
                sources.iter_mut().flatten().for_each(|value| *value += u8::MAX - 11);
            }
            sources.iter_mut().for_each(|s| s.sort_unstable());
            let runs = drive(&sources, form, batch, rows_max, announce);
            prop_assert_eq!(flat(&runs), slow(&sources));
        }

        #[test]
        fn keys_of_any_length_merge_as_their_bytes_compare(
            sources in prop::collection::vec(
                prop::collection::vec(("[\u{0}ab]{0,3}", "(host-1)?[ab]{0,12}"), 0..50), 1..9,
            ),
            batch in 1usize..20, rows_max in 1u64..50, descending: bool, copies: bool,
        ) {
            let (shape, sources) = texts(&sources, descending);
            let mut expected: Vec<(&Vec<u8>, u32, u64)> = Vec::new();
            for (s, rows) in sources.iter().enumerate() {
                let rows = rows.iter().enumerate();
                expected.extend(rows.map(|(r, key)| (key, s as u32, r as u64)));
            }
            expected.sort_by_key(|row| (row.0, row.1));
            let expected: Vec<_> = expected.into_iter().map(|(_, s, r)| (s, r)).collect();
            let mut merge = Merge::new(&shape, sources.len(), OrderCheck::Full);
            let mut given = vec![0; sources.len()];
            let mut runs = Runs::default();
            loop {
                match merge.step(rows_max, None, &mut runs) {
                    Stop::Need(s) => {
                        let from = given[s.index()];
                        let rows = &sources[s.index()];
                        let to = (from + batch).min(rows.len());
                        let mut keys = KeyBytes::default();
                        rows[from..to].iter().for_each(|key| keys.push(key));
                        given[s.index()] = to;
                        merge.supply(s, Keys::Bytes(keys), copies).unwrap();
                    }
                    // The whole batch is a row group: it is taken at once where that is right.
                    Stop::Start(s) => {
                        let end = given[s.index()];
                        let rows = &sources[s.index()];
                        let start = end - ((end - 1) % batch + 1);
                        let next = merge.next_key();
                        prop_assert_eq!(next.as_ref(), Some(&rows[start]));
                        if merge.is_alone(s, &rows[end - 1]) {
                            merge.skip(s, (end - start) as u64, &rows[end - 1]);
                            runs.push(s, start as u64, (end - start) as u64);
                        } else {
                            merge.enter(s);
                        }
                    }
                    Stop::Full => {}
                    _ => break,
                }
            }
            prop_assert_eq!(flat(&runs), expected);
        }

        #[test]
        fn long_disjoint_sources_become_few_runs(parts in 1usize..6, len in 1usize..400) {
            let sources: Vec<Vec<u8>> = (0..parts).map(|p| vec![p as u8; len]).collect();
            let runs = drive(&sources, Form::Tagged, 7, 1000, false);
            prop_assert_eq!(runs.len(), parts);
        }
    }

    #[test]
    fn keys_that_descend_are_refused_with_their_row() {
        for form in FORMS {
            let mut merge = Merge::new(&shape(form), 1, OrderCheck::Full);
            merge.supply(id(0), keys(form, &[1, 5]), false).unwrap();
            let mut runs = Runs::default();
            assert_eq!(merge.step(10, None, &mut runs), Stop::Need(id(0)));
            let error = merge.supply(id(0), keys(form, &[4, 9]), false).unwrap_err();
            assert_eq!(error.row, 2);
            assert!(error.before > error.after);
            let inside = merge.supply(id(0), keys(form, &[6, 9, 8]), false).unwrap_err();
            assert_eq!(inside.row, 4);
        }
    }

    #[test]
    fn a_bound_stops_before_its_key_and_skip_takes_a_block() {
        let shape = shape(Form::Tagged);
        let mut merge = Merge::new(&shape, 2, OrderCheck::Full);
        merge.supply(id(0), keys(Form::Tagged, &[1, 2, 3]), true).unwrap();
        merge.supply(id(1), keys(Form::Tagged, &[4, 6]), false).unwrap();
        let mut runs = Runs::default();
        assert_eq!(merge.step(9, None, &mut runs), Stop::Start(id(0)));
        let key = |v| keys(Form::Tagged, &[v]).to_bytes(&shape, 0);
        assert!(merge.is_alone(id(0), &key(3)));
        assert!(merge.is_alone(id(0), &key(4)), "a tie leaves source 0 first");
        assert!(!merge.is_alone(id(0), &key(5)));
        merge.skip(id(0), 3, &key(3));
        runs.push(id(0), 0, 3);
        assert_eq!(merge.last_key(), key(3));
        assert_eq!(merge.step(9, None, &mut runs), Stop::Need(id(0)));
        merge.end(id(0));
        assert_eq!(merge.step(9, Some(&key(6)), &mut runs), Stop::Bound);
        assert_eq!(merge.next_key(), Some(key(6)));
        assert_eq!(flat(&runs), [(0, 0), (0, 1), (0, 2), (1, 0)]);
    }
}
