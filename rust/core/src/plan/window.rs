//! Where to stop: cuts the merged order into windows, one output row group each.
//!
//! ```text
//! rows   ─────┬────────┬───────┬──▶     ┬ the row group is full, an aligned column changes, or the
//!             │        │       │          next rows are another source's for long
//! ```
//!
//! # Invariants
//! Rows of all windows together are the merged order. Only the last window ends the output.
//!
//! # Cost
//! One more comparison a row while rows are aligned.
//!
//! # Not here
//! Bytes: the shell turns sizes into rows (`rows_max`, `rows_left`). Where one output ends and the
//! next begins: the plan has cut the sources there, and every output is a merge of its own.

use std::collections::VecDeque;

use super::duplicates::{Clash, DropRule, Dropped, Marks};
use super::groups::KeyGroups;
use super::loser_tree::{Disorder, OrderCheck, Stop};
use super::merge::Merge;
use crate::key::{KeyShape, Keys, prefix_len, successor};
use crate::packed_runs::{PackedRuns, RUNS_MAX};
use plait_base::{Result, Run, Runs, SourceId};

/// How row groups end.
#[derive(Clone, Debug, Default)]
pub struct WindowRule {
    /// A new row group starts whenever one of this many leading key columns changes; 0 = never.
    pub align_columns: usize,
    /// Rows of all sources together.
    pub rows: u64,
    /// Once a window has three eighths of its rows, it ends where another source begins to leave this many
    /// rows in one stretch: rows of one source are cheaper to copy without those of another. 0 = it
    /// does not.
    pub owner_rows: u64,
    /// Note the key of every row of the output whose number is a multiple of this; 0 = none.
    pub sample_every: u64,
    /// A window ends once the groups of its rows take so many bytes; 0 = it does not.
    pub groups_bytes: usize,
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
    /// The rows; empty only if the window does nothing but end the output.
    pub steps: PackedRuns,
    /// Rows that share a key and are combined.
    pub groups: KeyGroups,
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
    rule: WindowRule,
    rows_max: u64,
    /// Rows that the window may have that is not complete; 0 = as others.
    wider: u64,
    rows_in_output: u64,
    rows_left: u64,
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
    pub fn new(shape: KeyShape, sources: usize, rule: WindowRule, check: OrderCheck) -> Self {
        Self {
            merge: Merge::new(&shape, sources, check),
            shape,
            rows_max: u64::MAX,
            wider: 0,
            rows_in_output: 0,
            rows_left: rule.rows,
            runs: Runs::default(),
            current: Window::default(),
            owner: None,
            align_bound: None,
            ready: VecDeque::new(),
            is_done: false,
            drops: false,
            dropped: 0,
            rule,
        }
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

    /// See [`Merge::pass_over`].
    pub fn pass_over(&mut self, source: SourceId, rows: u64) {
        self.merge.pass_over(source, rows);
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

    /// Rows that are in no window yet. Those that will be dropped are among them.
    #[must_use]
    pub fn rows_left(&self) -> u64 {
        self.rows_left
    }

    /// Whether a whole row group of the winner, up to `last_key`, may be copied here:
    /// nobody else's rows fall into it, and no aligned column changes in it.
    ///
    /// # Errors
    /// A key that does not decode.
    pub fn can_copy(&mut self, source: SourceId, last_key: &[u8]) -> Result<bool> {
        if self.drops || !self.merge.is_alone(source, last_key) {
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
    /// As [`PackedRuns::extend`].
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

    /// Ends the window before the next row, if it has enough rows and most of them are of `source`. A
    /// window that begins there may have `rows` rows, even if that is more than others may.
    ///
    /// # Errors
    /// As [`PackedRuns::extend`].
    pub fn cut(&mut self, source: SourceId, rows: u64) -> Result<()> {
        let is_its = |of: &SourceId| *of == source;
        let packed = self.current.steps.taken().filter(|taken| is_its(&taken.source));
        let runs = self.runs.as_slice().iter().filter(|run| is_its(&run.source));
        let of_source = packed.map(|taken| taken.end - taken.start).sum::<u64>()
            + runs.map(|run| u64::from(run.len)).sum::<u64>();
        if self.has_enough() && 2 * of_source >= self.pending() {
            let last = self.merge.last_key();
            if self.merge.next_key().is_some_and(|next| next != last) {
                self.merge.flush(&mut self.runs); // no other row of that key follows
            }
            self.close_window(false)?;
        }
        if self.pending() == 0 {
            self.wider = rows;
        }
        Ok(())
    }

    fn has_enough(&self) -> bool {
        8 * self.pending() >= 3 * self.rows_max.min(u64::MAX / 8)
    }

    /// Most rows of the window that is not complete.
    fn room_of_window(&self) -> u64 {
        self.rows_max.max(self.wider)
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
            if self.pending() == 0
                && let Some(first_key) = self.first_key()
            {
                self.begin_window(first_key)?;
            }
            // A key may leave as two rows: its tombstone, and the row behind it.
            let waiting = self.merge.staged_rows().saturating_sub(1);
            let is_large =
                self.rule.groups_bytes > 0 && self.merge.groups_size() >= self.rule.groups_bytes;
            let is_full = waiting > 0 && self.pending() + waiting >= self.room_of_window();
            if self.pending() > 0 && (is_large || is_full) {
                self.close_window(false)?;
                continue;
            }
            let room = self.room_of_window().saturating_sub(self.pending() + waiting);
            let room = room.max(waiting.min(1)).min(self.until_sample());
            let step = self.merge.step(room, self.align_bound.as_deref(), &mut self.runs);
            if let Some(clash) = self.merge.clash() {
                return Ok(Ask::Clash(clash));
            }
            self.current.steps.absorb(&mut self.runs, RUNS_MAX)?;
            match step {
                Stop::Need(source) => {
                    if self.changes_owner(source) && self.has_enough() {
                        self.close_window(false)?;
                    }
                    return Ok(Ask::Keys(source));
                }
                Stop::Start(source) => return Ok(Ask::RowGroupStart(source)),
                Stop::Full if self.pending() >= self.room_of_window() => {
                    self.close_window(false)?
                }
                Stop::Full => {}
                Stop::Bound => {
                    self.flush()?;
                    self.close_window(false)?;
                }
                Stop::Done => {
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

    /// Key of the first row of a window that has none yet: of the row that waits for others of its
    /// key, which is the key that left last, or else of the row that leaves next.
    fn first_key(&mut self) -> Option<Vec<u8>> {
        match self.merge.staged_rows() {
            0 => self.merge.next_key(),
            _ => Some(self.merge.last_key()),
        }
    }

    /// Adds the row that waited for others of its key.
    fn flush(&mut self) -> Result<()> {
        let staged = self.merge.staged_rows();
        let room = self.room_of_window();
        if staged > 0 && self.pending() > 0 && self.pending() + staged > room {
            self.close_window(false)?;
        }
        self.merge.flush(&mut self.runs);
        Ok(())
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
        self.wider = 0;
        if self.drops {
            window.samples = self.merge.take_samples();
            window.groups = self.merge.take_groups(self.rows_in_output);
            let dropped = self.merge.dropped().rows();
            self.rows_left = self.rows_left.saturating_sub(dropped - self.dropped);
            self.dropped = dropped;
        }
        let rows = window.steps.rows();
        self.rows_in_output += rows;
        let end = self.rows_in_output;
        self.rows_left = self.rows_left.saturating_sub(rows);
        // A key behind the last row belongs to the window that comes next.
        window.samples.retain(|(row, _)| *row < end);
        if rows > 0 || ends_output {
            self.ready.push_back(window);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::OnDuplicate;
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
    fn cut(keys: &[u128], rule: WindowRule, rows_max: u64) -> Vec<Window> {
        cut_dropping(keys, rule, rows_max, None)
    }

    fn cut_dropping(
        keys: &[u128],
        mut rule: WindowRule,
        rows_max: u64,
        drops: Option<OnDuplicate>,
    ) -> Vec<Window> {
        rule.rows = keys.len() as u64;
        let mut windows = Windows::new(shape(), 2, rule, OrderCheck::Full);
        windows.set_rows_max(rows_max);
        if let Some(on_duplicate) = drops {
            windows.drop_rows(DropRule { on_duplicate, ..DropRule::default() });
        }
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

    fn groups(sizes: &[u32]) -> Vec<u128> {
        let group = |(a, n): (usize, &u32)| (0..*n).map(move |b| key(a as u32, b));
        sizes.iter().enumerate().flat_map(group).collect()
    }

    #[test]
    fn row_groups_align_to_a_prefix() {
        let rule = WindowRule { align_columns: 1, ..WindowRule::default() };
        let windows = cut(&groups(&[3, 1, 2]), rule, 100);
        let rows: Vec<u64> = windows.iter().map(|w| w.steps.rows()).collect();
        assert_eq!(rows, [3, 1, 2]);
        assert_eq!(windows[1].first_key, bytes(key(1, 0)));
        let ends: Vec<bool> = windows.iter().map(|w| w.ends_output).collect();
        assert_eq!(ends, [false, false, true]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn windows_are_the_merged_order_and_lose_no_row(
            given in prop::collection::vec(1u32..9, 1..12),
            align_columns in 0usize..3, rows_max in 1u64..12,
        ) {
            let keys = groups(&given);
            let rule = WindowRule { align_columns, sample_every: 3, ..WindowRule::default() };
            let windows = cut(&keys, rule, rows_max);
            let total: u64 = windows.iter().map(|w| w.steps.rows()).sum();
            prop_assert_eq!(total, keys.len() as u64);
            prop_assert!(windows.iter().all(|w| w.steps.rows() <= rows_max));
            let mut row = 0;
            for (i, w) in windows.iter().enumerate() {
                prop_assert_eq!(w.ends_output, i + 1 == windows.len());
                if w.steps.is_empty() {
                    continue;
                }
                prop_assert_eq!(&w.first_key, &bytes(keys[row]));
                for (at, key) in &w.samples {
                    prop_assert_eq!(at % 3, 0);
                    prop_assert_eq!(key, &bytes(keys[*at as usize]));
                }
                row += w.steps.rows() as usize;
                prop_assert_eq!(&w.last_key, &bytes(keys[row - 1]));
                let aligned = 5 * align_columns;
                prop_assert_eq!(&w.first_key[..aligned], &w.last_key[..aligned]);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn windows_stay_aligned_where_rows_are_dropped(
            given in prop::collection::vec(prop::collection::vec(1usize..5, 1..6), 1..10),
            align_columns in 1usize..3, rows_max in 1u64..8, pick in 0usize..3,
        ) {
            let rule = [OnDuplicate::KeepAll, OnDuplicate::KeepFirst, OnDuplicate::KeepLast][pick];
            let mut keys = Vec::new();
            for (a, group) in given.iter().enumerate() {
                for (b, copies) in group.iter().enumerate() {
                    keys.extend(std::iter::repeat_n(key(a as u32, b as u32), *copies));
                }
            }
            let window_rule = WindowRule { align_columns, ..WindowRule::default() };
            let windows = cut_dropping(&keys, window_rule, rows_max, Some(rule));
            let stays: usize = match rule {
                OnDuplicate::KeepAll => keys.len(),
                _ => given.iter().map(Vec::len).sum(),
            };
            let rows: u64 = windows.iter().map(|w| w.steps.rows()).sum();
            prop_assert_eq!(rows, stays as u64);
            // Row `i` of source `s` is row `2 * i + s` of all.
            let prefix = |(s, row): (SourceId, u64)| {
                bytes(keys[2 * row as usize + s.index()])[..5 * align_columns].to_vec()
            };
            for window in windows.iter().filter(|window| !window.steps.is_empty()) {
                prop_assert!(window.steps.rows() <= rows_max);
                let ends = [window.steps.first_row(), window.steps.last_row()];
                let [first, last] = ends.map(|row| prefix(row.unwrap()));
                prop_assert_eq!(first, last);
            }
        }
    }

    #[test]
    fn a_window_with_enough_rows_ends_where_the_owner_changes() {
        let rows = |source: u64| (100 * source..100 * (source + 1)).map(|a| key(a as u32, 0));
        let windows = |owner_rows: u64, rows_max: u64| {
            let rule = WindowRule { owner_rows, rows: 300, ..WindowRule::default() };
            let mut windows = Windows::new(shape(), 3, rule, OrderCheck::Full);
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
