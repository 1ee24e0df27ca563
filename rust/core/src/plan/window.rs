//! Where to stop: cuts the merged order into windows (one output row group each) and outputs.
//!
//! ```text
//! rows   ─────┬────────┬───────┬──▶     ┬ a window ends: the row group is full
//!             │        ┃       │        ┃ an output ends: enough rows, and the cut key changes
//! ```
//!
//! An output that has reached its target goes on until the cut key (the first `cut_columns` key
//! columns) changes: the bound is the successor of the last key's prefix. With `outputs = M` the
//! target is an equal share of what is left, and the M largest distinct cut keys are known, so that
//! the last outputs never go empty: sizes [1, 1, 6] give three files for M = 3.
//!
//! # Invariants
//! Two outputs never share a cut key. A window belongs to one output. Rows of all windows together
//! are the merged order.
//!
//! # Cost
//! One more comparison a row while a bound is set.
//!
//! # Not here
//! Bytes: the shell turns sizes into rows (`rows_max`, `rows_until_cut`).

use std::collections::VecDeque;

use super::duplicates::{Clash, DropRule, Dropped, Marks};
use super::loser_tree::{Disorder, Step};
use super::merge::Merge;
use crate::error::Result;
use crate::key::{KeyShape, Keys, prefix_len, successor};
use crate::run::{Run, Runs, SourceId};
use crate::steps::Steps;

/// Runs that are packed into steps at once: half a megabyte of them.
const RUNS_MAX: usize = 32 << 10;

/// How outputs and row groups end.
#[derive(Clone, Debug, Default)]
pub struct CutRule {
    /// At most this many outputs, of equal share; 0 = not asked for.
    pub outputs: u64,
    /// Rows after which an output ends at the next cut key; `u64::MAX` = not asked for.
    pub target_rows: u64,
    /// How many leading key columns stay together in one output.
    pub cut_columns: usize,
    /// A new row group starts whenever one of this many leading key columns changes; 0 = never.
    pub align_columns: usize,
    /// The largest distinct cut keys (encoded prefixes) of all sources, largest first, at most
    /// `outputs` of them. All there are, if fewer. Only needed with `outputs`.
    pub largest_cut_keys: Vec<Vec<u8>>,
    /// Rows of all sources together.
    pub rows: u64,
    /// Once a window has three eighths of its rows, it ends where another source begins to leave this many
    /// rows in one stretch: rows of one source are cheaper to copy without those of another. 0 = it
    /// does not.
    pub owner_rows: u64,
    /// Note the key of every row of an output whose number is a multiple of this; 0 = none.
    pub sample_every: u64,
}

/// What [`Windows::next`] wants or has.
#[derive(Debug)]
pub enum Ask {
    /// The next keys of this source.
    Keys(SourceId),
    /// The next row starts a row group of this source: [`Windows::copy`] or [`Windows::enter`].
    RowGroupStart(SourceId),
    /// Rows to write.
    Window(Window),
    /// Two rows have one key, which the rule forbids.
    Clash(Clash),
    /// Nothing is left.
    Done,
}

/// Rows of one output row group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The rows; empty only if the window does nothing but end an output.
    pub steps: Steps,
    /// Encoded key of the first row.
    pub first_key: Vec<u8>,
    /// Encoded key of the last row.
    pub last_key: Vec<u8>,
    /// Keys of sampled rows, by row of the output.
    pub samples: Vec<(u64, Vec<u8>)>,
    /// The window is one whole row group of one source, to be copied as it is.
    pub is_copy: bool,
    /// The output ends with this window.
    pub ends_output: bool,
}

/// The merge, cut into windows.
pub struct Windows {
    merge: Merge,
    shape: KeyShape,
    rule: CutRule,
    rows_max: u64,
    rows_in_output: u64,
    rows_left: u64,
    outputs_left: u64,
    target: u64,
    /// Set once the output has its rows: it ends before this key.
    cut_bound: Option<Vec<u8>>,
    /// The end of `current`, not packed yet.
    runs: Runs,
    current: Window,
    /// The source that left the last long stretch.
    owner: Option<SourceId>,
    align_bound: Option<Vec<u8>>,
    ready: VecDeque<Window>,
    is_done: bool,
    /// Whether rows may be dropped, and how many were when the last window closed.
    drops: bool,
    dropped: u64,
}

impl Windows {
    /// Cuts the merge of `sources` sources by `rule`.
    #[must_use]
    pub fn new(shape: KeyShape, sources: usize, rule: CutRule, check_order: bool) -> Self {
        let merge = Merge::new(&shape, sources, check_order);
        let distinct = rule.largest_cut_keys.len() as u64;
        let outputs_left = match rule.outputs {
            0 => 0,
            m if shape.columns().is_empty() => m.min(rule.rows),
            m => m.min(distinct).max(1),
        };
        let mut windows = Self {
            merge,
            shape,
            rows_max: u64::MAX,
            rows_in_output: 0,
            rows_left: rule.rows,
            outputs_left,
            target: u64::MAX,
            cut_bound: None,
            runs: Runs::default(),
            current: Window::default(),
            owner: None,
            align_bound: None,
            ready: VecDeque::new(),
            is_done: false,
            drops: false,
            dropped: 0,
            rule,
        };
        windows.start_output();
        windows
    }

    /// Drops rows as `rule` says, from the first row on. The first and the last key of a window are
    /// then those of rows that may have been dropped.
    pub fn drop_rows(&mut self, rule: DropRule) {
        self.drops = true;
        self.merge.drop_rows(rule, self.rule.sample_every);
    }

    /// Rows that were dropped so far.
    #[must_use]
    pub fn dropped(&mut self) -> Dropped {
        self.merge.dropped()
    }

    /// See [`Merge::mark`].
    pub fn mark(&mut self, source: SourceId, marks: Marks) {
        self.merge.mark(source, marks);
    }

    /// Bytes held for the window that is not complete.
    #[must_use]
    pub fn memory_size(&mut self) -> usize {
        self.runs.memory_size() + self.current.steps.memory_size() + self.merge.memory_size()
    }

    /// See [`Merge::begin_at`].
    pub fn begin_at(&mut self, source: SourceId, row: u64) {
        self.merge.begin_at(source, row);
    }

    /// See [`Merge::announce`].
    pub fn announce(&mut self, source: SourceId, first_key: &[u8]) {
        self.merge.announce(source, first_key);
    }

    /// See [`Merge::supply`].
    ///
    /// # Errors
    /// [`Disorder`] where a key is smaller than the one before it.
    pub fn supply(&mut self, source: SourceId, keys: Keys, is_start: bool) -> Result<(), Disorder> {
        self.merge.supply(source, keys, is_start)
    }

    /// See [`Merge::end`].
    pub fn end(&mut self, source: SourceId) {
        self.merge.end(source);
    }

    /// Sets how many rows a window may have; at least 1.
    pub fn set_rows_max(&mut self, rows: u64) {
        self.rows_max = rows.max(1);
    }

    /// Sets after how many more rows the current output should end (sizes in bytes).
    pub fn set_rows_until_cut(&mut self, rows: u64) {
        if self.cut_bound.is_none() {
            self.target = self.rows_in_output.saturating_add(rows.max(1));
        }
    }

    /// After how many more rows the current output should end.
    #[must_use]
    pub fn rows_until_cut(&self) -> u64 {
        // Past its target, an output goes on to the end of a cut key: how far is not known.
        let wanted = self.target.saturating_sub(self.rows_in_output);
        if wanted == 0 { self.rows_left } else { wanted.min(self.rows_left) }
    }

    /// Whether a whole row group of the winner, `rows` rows up to `last_key`, may be copied here:
    /// nobody else's rows fall into it, and no cut does.
    ///
    /// # Errors
    /// A key that does not decode.
    pub fn can_copy(&mut self, source: SourceId, rows: u64, last_key: &[u8]) -> Result<bool> {
        if self.drops || !self.merge.is_alone(source, last_key) {
            return Ok(false);
        }
        let pending = self.pending();
        if self.rows_in_output + pending + rows > self.target && self.target != u64::MAX {
            return Ok(false);
        }
        let bounds = [self.cut_bound.as_deref(), self.forced_bound()];
        if bounds.into_iter().flatten().any(|b| last_key >= b) {
            return Ok(false);
        }
        if self.rule.align_columns > 0 {
            let Some(first) = self.merge.next_key() else { return Ok(false) };
            let prefix = |key: &[u8]| -> Result<Vec<u8>> {
                Ok(key[..prefix_len(&self.shape, key, self.rule.align_columns)?].to_vec())
            };
            return Ok(prefix(&first)? == prefix(last_key)?);
        }
        Ok(true)
    }

    /// Takes a whole row group, for which [`can_copy`](Self::can_copy) said yes, as a window of its
    /// own; what came before it becomes a window too.
    ///
    /// # Errors
    /// As [`Steps::extend`].
    pub fn copy(&mut self, source: SourceId, start: u64, rows: u64, last_key: &[u8]) -> Result<()> {
        let first_key = self.merge.next_key().unwrap_or_default();
        if self.pending() > 0 {
            self.close_window(false)?;
        }
        self.merge.skip(source, rows, last_key);
        self.runs.push(source, start, rows);
        if self.rule.sample_every > 0 {
            self.current.samples = vec![(self.rows_in_output, first_key.clone())];
        }
        self.current.first_key = first_key;
        self.current.is_copy = true;
        self.close_window(false)
    }

    /// Goes on row by row after [`Ask::RowGroupStart`].
    pub fn enter(&mut self, source: SourceId) {
        self.merge.enter(source);
    }

    /// The next thing to do.
    ///
    /// # Errors
    /// A key that does not decode.
    #[expect(clippy::should_implement_trait, reason = "it is a dialogue, not an iterator")]
    pub fn next(&mut self) -> Result<Ask> {
        loop {
            if let Some(window) = self.ready.pop_front() {
                return Ok(Ask::Window(window));
            }
            if self.is_done {
                return Ok(Ask::Done);
            }
            let staged = u64::from(self.merge.has_staged());
            let rows_in_output = self.rows_in_output + self.pending() + staged;
            if self.cut_bound.is_none() && rows_in_output >= self.target {
                if self.shape.columns().is_empty() {
                    self.close_window(true)?; // all keys are equal: any row may start an output
                    continue;
                }
                let last = self.merge.last_key();
                let end = prefix_len(&self.shape, &last, self.rule.cut_columns)?;
                self.cut_bound = successor(&last[..end]);
                if self.cut_bound.is_none() {
                    self.target = u64::MAX; // no greater cut key can follow
                }
            }
            if self.pending() + staged == 0
                && let Some(first_key) = self.merge.next_key()
            {
                self.begin_window(first_key)?;
            }
            let room = self.rows_max.saturating_sub(self.pending()).min(self.until_sample());
            let until_target = match self.cut_bound {
                None => self.target.saturating_sub(rows_in_output),
                Some(_) => u64::MAX,
            };
            let bound = [self.cut_bound.as_ref(), self.align_bound.as_ref()]
                .into_iter()
                .flatten()
                .map(Vec::as_slice)
                .chain(self.forced_bound())
                .min()
                .map(<[u8]>::to_vec);
            let step = self.merge.step(room.min(until_target), bound.as_deref(), &mut self.runs);
            if let Some(clash) = self.merge.clash() {
                return Ok(Ask::Clash(clash));
            }
            if self.runs.len() >= RUNS_MAX {
                self.pack()?;
            }
            match step {
                Step::Need(source) => {
                    let has_enough = 8 * self.pending() >= 3 * self.rows_max.min(u64::MAX / 8);
                    if self.changes_owner(source) && has_enough {
                        self.close_window(false)?;
                    }
                    return Ok(Ask::Keys(source));
                }
                Step::Start(source) => return Ok(Ask::RowGroupStart(source)),
                Step::Full if self.pending() >= self.rows_max => self.close_window(false)?,
                Step::Full => {}
                Step::Bound => {
                    self.flush()?;
                    let next = self.merge.next_key().unwrap_or_default();
                    let cuts = [self.cut_bound.as_deref(), self.forced_bound()];
                    let ends = cuts.into_iter().flatten().any(|b| next.as_slice() >= b);
                    self.close_window(ends)?;
                }
                Step::Done => {
                    self.flush()?;
                    self.is_done = true;
                    if self.pending() > 0 || self.rows_in_output > 0 {
                        self.close_window(true)?;
                    }
                }
            }
        }
    }

    /// Notes the key of the next row if it is to be sampled; rows until the one after.
    fn until_sample(&mut self) -> u64 {
        let every = self.rule.sample_every;
        if every == 0 || self.drops {
            return u64::MAX;
        }
        let row = self.rows_in_output + self.pending();
        if row.is_multiple_of(every)
            && self.current.samples.last().is_none_or(|sample| sample.0 < row)
            && let Some(key) = self.merge.next_key()
        {
            self.current.samples.push((row, key));
        }
        every - row % every
    }

    /// Whether the stretch that is leaving is long, and the one before was another source's.
    fn changes_owner(&mut self, source: SourceId) -> bool {
        let last = self.runs.as_slice().last();
        let is_long =
            |run: &Run| run.source == source && u64::from(run.len) >= self.rule.owner_rows.max(1);
        if self.rule.owner_rows == 0 || !last.is_some_and(is_long) || self.owner == Some(source) {
            return false;
        }
        self.owner.replace(source).is_some()
    }

    fn pending(&self) -> u64 {
        self.current.steps.rows() + self.runs.rows()
    }

    /// Adds the row that waited for others of its key.
    fn flush(&mut self) -> Result<()> {
        if self.merge.has_staged() && self.pending() >= self.rows_max {
            self.close_window(false)?;
        }
        self.merge.flush(&mut self.runs);
        Ok(())
    }

    /// Moves all runs but the last, which may go on, to the steps.
    fn pack(&mut self) -> Result<()> {
        let Some((last, before)) = self.runs.as_slice().split_last() else { return Ok(()) };
        let last = *last;
        self.current.steps.extend(before)?;
        self.runs.clear();
        self.runs.push(last.source, last.start, u64::from(last.len));
        Ok(())
    }

    /// An output must end before this key, or the ones after it would go empty.
    fn forced_bound(&self) -> Option<&[u8]> {
        let after = usize::try_from(self.outputs_left.checked_sub(2)?).ok()?;
        self.rule.largest_cut_keys.get(after).map(Vec::as_slice)
    }

    fn begin_window(&mut self, first_key: Vec<u8>) -> Result<()> {
        self.current.first_key = first_key;
        if self.rule.align_columns > 0 && !self.shape.columns().is_empty() {
            let key = &self.current.first_key;
            let end = prefix_len(&self.shape, key, self.rule.align_columns)?;
            self.align_bound = successor(&key[..end]);
        }
        Ok(())
    }

    fn close_window(&mut self, ends_output: bool) -> Result<()> {
        let mut window = std::mem::take(&mut self.current);
        window.steps.extend(self.runs.as_slice())?;
        window.steps.shrink();
        self.runs.clear();
        window.last_key = self.merge.last_key();
        window.ends_output = ends_output;
        self.align_bound = None;
        if self.drops {
            window.samples = self.merge.take_samples();
            let dropped = self.merge.dropped().rows();
            self.rows_left = self.rows_left.saturating_sub(dropped - self.dropped);
            self.dropped = dropped;
        }
        let rows = window.steps.rows();
        self.rows_in_output += rows;
        let end = self.rows_in_output;
        self.rows_left = self.rows_left.saturating_sub(rows);
        if ends_output {
            if self.outputs_left > 1 {
                self.outputs_left -= 1;
            }
            self.start_output();
        }
        // A key behind the last row belongs to the window that comes next.
        window.samples.retain(|(row, _)| *row < end);
        if rows > 0 || ends_output {
            self.ready.push_back(window);
        }
        Ok(())
    }

    fn start_output(&mut self) {
        self.merge.start_output();
        self.rows_in_output = 0;
        self.cut_bound = None;
        self.target = match self.outputs_left {
            0 | 1 if self.rule.outputs > 0 => u64::MAX,
            0 => self.rule.target_rows.max(1),
            left => self.rows_left.div_ceil(left).max(1),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{KeyColumn, KeyType, Nulls};
    use proptest::prelude::*;

    fn shape() -> KeyShape {
        let column = |name: &str| KeyColumn {
            name: name.into(),
            ty: KeyType::UInt32,
            descending: false,
            nulls: Nulls::Last,
        };
        KeyShape::try_new(vec![column("a"), column("b")]).unwrap()
    }

    fn key(a: u32, b: u32) -> u128 {
        1 << 120 | u128::from(a) << 88 | 1 << 80 | u128::from(b) << 48
    }

    fn bytes(key: u128) -> Vec<u8> {
        key.to_be_bytes()[..10].to_vec()
    }

    /// Runs two sources (even rows, odd rows) of sorted keys through the rule.
    fn cut(keys: &[u128], mut rule: CutRule, rows_max: u64) -> Vec<Window> {
        let prefix = |k: &u128| bytes(*k)[..5 * rule.cut_columns.max(1)].to_vec();
        let mut distinct: Vec<Vec<u8>> = keys.iter().map(prefix).collect();
        distinct.dedup();
        distinct.reverse();
        distinct.truncate(usize::try_from(rule.outputs).unwrap());
        rule.largest_cut_keys = distinct;
        rule.rows = keys.len() as u64;
        if rule.target_rows == 0 {
            rule.target_rows = u64::MAX;
        }
        let mut windows = Windows::new(shape(), 2, rule, true);
        windows.set_rows_max(rows_max);
        let mut next = [0, 1];
        let mut out = Vec::new();
        loop {
            match windows.next().unwrap() {
                Ask::Keys(s) => {
                    let i = s.index();
                    let batch: Vec<u128> =
                        keys.iter().skip(next[i]).step_by(2).take(3).copied().collect();
                    next[i] += batch.len() * 2;
                    if batch.is_empty() {
                        windows.end(s);
                    } else {
                        windows.supply(s, Keys::Packed(batch), false).unwrap();
                    }
                }
                Ask::RowGroupStart(s) => windows.enter(s),
                Ask::Window(w) => out.push(w),
                Ask::Clash(clash) => panic!("{clash:?}"),
                Ask::Done => return out,
            }
        }
    }

    fn sizes(windows: &[Window]) -> Vec<u64> {
        let mut sizes = vec![0];
        for w in windows {
            *sizes.last_mut().unwrap() += w.steps.rows();
            if w.ends_output {
                sizes.push(0);
            }
        }
        assert_eq!(sizes.pop(), Some(0), "the last window ends the last output");
        sizes
    }

    fn groups(sizes: &[u32]) -> Vec<u128> {
        let group = |(a, n): (usize, &u32)| (0..*n).map(move |b| key(a as u32, b));
        sizes.iter().enumerate().flat_map(group).collect()
    }

    #[test]
    fn as_many_outputs_as_asked_whatever_the_group_sizes() {
        for (given, m, expected) in [
            (vec![6, 1, 1], 3, vec![6, 1, 1]),
            (vec![1, 1, 6], 3, vec![1, 1, 6]),
            (vec![1, 6, 1], 3, vec![1, 6, 1]),
            (vec![4, 4, 4, 4], 2, vec![8, 8]),
            (vec![3, 3], 5, vec![3, 3]),
            (vec![9], 4, vec![9]),
        ] {
            let rule = CutRule { outputs: m, cut_columns: 1, ..CutRule::default() };
            assert_eq!(sizes(&cut(&groups(&given), rule, 4)), expected, "{given:?} into {m}");
        }
    }

    #[test]
    fn row_groups_align_to_a_prefix() {
        let rule = CutRule { align_columns: 1, ..CutRule::default() };
        let windows = cut(&groups(&[3, 1, 2]), rule, 100);
        let rows: Vec<u64> = windows.iter().map(|w| w.steps.rows()).collect();
        assert_eq!(rows, [3, 1, 2]);
        assert_eq!(windows[1].first_key, bytes(key(1, 0)));
        assert_eq!(sizes(&windows), [6]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn outputs_never_share_a_cut_key_and_lose_no_row(
            given in prop::collection::vec(1u32..9, 1..12),
            outputs in 0u64..6, target in 1u64..20, cut_columns in 1usize..3,
            rows_max in 1u64..12,
        ) {
            let keys = groups(&given);
            let target_rows = if outputs == 0 { target } else { 0 };
            let rule = CutRule { outputs, target_rows, cut_columns, sample_every: 3, ..CutRule::default() };
            let windows = cut(&keys, rule, rows_max);
            let total: u64 = windows.iter().map(|w| w.steps.rows()).sum();
            prop_assert_eq!(total, keys.len() as u64);
            prop_assert!(windows.iter().all(|w| w.steps.rows() <= rows_max));
            let mut row = 0;
            let mut last: Option<Vec<u8>> = None;
            let mut starts_output = true;
            let mut output_start = 0;
            for w in &windows {
                if w.steps.is_empty() {
                    prop_assert!(w.ends_output);
                    (starts_output, output_start) = (true, row);
                    continue;
                }
                prop_assert_eq!(&w.first_key, &bytes(keys[row]));
                for (at, key) in &w.samples {
                    prop_assert_eq!(at % 3, 0);
                    prop_assert_eq!(key, &bytes(keys[output_start + *at as usize]));
                }
                row += w.steps.rows() as usize;
                prop_assert_eq!(&w.last_key, &bytes(keys[row - 1]));
                if let (true, Some(last)) = (starts_output, &last) {
                    prop_assert!(last[..5 * cut_columns] < w.first_key[..5 * cut_columns]);
                }
                last = Some(w.last_key.clone());
                starts_output = w.ends_output;
                if w.ends_output {
                    output_start = row;
                }
            }
            let made = sizes(&windows).len() as u64;
            if outputs > 0 {
                let distinct = if cut_columns == 1 { given.len() } else { keys.len() } as u64;
                prop_assert_eq!(made, outputs.min(distinct));
            }
        }
    }

    #[test]
    fn a_window_with_enough_rows_ends_where_the_owner_changes() {
        let rows = |source: u64| (100 * source..100 * (source + 1)).map(|a| key(a as u32, 0));
        let windows = |owner_rows: u64, rows_max: u64| {
            let rule =
                CutRule { owner_rows, target_rows: u64::MAX, rows: 300, ..CutRule::default() };
            let mut windows = Windows::new(shape(), 3, rule, true);
            windows.set_rows_max(rows_max);
            let mut given = [0; 3];
            let mut sizes = Vec::new();
            loop {
                match windows.next().unwrap() {
                    Ask::Keys(s) => {
                        let batch: Vec<u128> =
                            rows(s.index() as u64).skip(given[s.index()]).take(20).collect();
                        given[s.index()] += batch.len();
                        match batch.is_empty() {
                            true => windows.end(s),
                            false => windows.supply(s, Keys::Packed(batch), false).unwrap(),
                        }
                    }
                    Ask::RowGroupStart(s) => windows.enter(s),
                    Ask::Window(w) => sizes.push(w.steps.rows()),
                    Ask::Clash(clash) => panic!("{clash:?}"),
                    Ask::Done => return sizes,
                }
            }
        };
        assert_eq!(windows(0, 200), [200, 100], "never asked for");
        assert_eq!(windows(20, 200), [120, 100, 80], "a batch into the stretch of the next owner");
        assert_eq!(windows(20, 1000), [300], "too few rows to end");
        assert_eq!(windows(101, 200), [200, 100], "no stretch is that long");
    }
}
