//! Which rows of the merged order stay: duplicates, tombstones, retention.
//!
//! ```text
//! merged   a b b b c c d      equal keys leave one after the other, in source order
//! staged       ^              the row of `b` that stays so far
//! runs     a · · b · c d      what is dropped is a gap in its source
//! ```
//!
//! One row of every key stays: the first, the last, or the one of the highest version, and of equal
//! versions the first or the last. If it is a tombstone, it goes too, unless tombstones are kept for a later merge.
//! Rows that have expired go before.
//!
//! # Invariants
//! Every row is passed to [`Duplicates::see`] once, in merged order. It stays, is counted in
//! [`Dropped`], or is staged; one row at most is staged. Rows that stay keep their order.
//!
//! # Cost
//! One comparison of keys a row. The marks of one batch per source.
//!
//! # Not here
//! Where marks come from (the shell); who is next (`loser_tree`).

use crate::key::{KeyShape, Keys};
use plait_base::{Runs, SourceId};

/// Which of several rows with one key stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDuplicate {
    /// All of them.
    #[default]
    KeepAll,
    /// The first in merged order, that of the first source, or of the highest version.
    KeepFirst,
    /// The last in merged order, or of the highest version.
    KeepLast,
    /// There must not be several.
    Error,
}

/// Which rows are dropped.
#[derive(Clone, Debug, Default)]
pub struct DropRule {
    /// What becomes of rows with one key.
    pub on_duplicate: OnDuplicate,
    /// The shape of versions, where rows have them: the highest stays.
    pub version: Option<KeyShape>,
    /// Whether tombstones stay once they have won.
    pub keeps_tombstones: bool,
}

/// What is known of the rows of one batch of keys; empty where nothing is.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    /// Rows past their retention.
    pub expired: Vec<bool>,
    /// Rows that delete their key.
    pub deletes: Vec<bool>,
    /// Versions, as the rule of drops encodes them.
    pub versions: Option<Keys>,
}

impl Marks {
    /// Bytes held on the heap.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        let versions = self.versions.as_ref().map_or(0, Keys::memory_size);
        self.expired.capacity() + self.deletes.capacity() + versions
    }
}

/// Rows that did not stay, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Another row of the key stayed.
    pub duplicate: u64,
    /// Tombstones.
    pub deleted: u64,
    /// Past their retention.
    pub expired: u64,
}

impl Dropped {
    /// All of them.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.duplicate + self.deleted + self.expired
    }

    /// Each reason, as reports name it, with its rows.
    #[must_use]
    pub fn by_reason(&self) -> [(&'static str, u64); 3] {
        [("duplicate", self.duplicate), ("deleted", self.deleted), ("expired", self.expired)]
    }
}

/// Two rows of one key where there must be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clash {
    /// The row that left first.
    pub before: (SourceId, u64),
    /// The other.
    pub after: (SourceId, u64),
}

/// The row of the current key that stays so far.
struct Staged {
    source: SourceId,
    row: u64,
    deletes: bool,
    version: Option<Vec<u8>>,
}

/// Decides row by row.
pub(super) struct Duplicates {
    rule: DropRule,
    /// The batch of every source: its first row, and its marks.
    marks: Vec<(u64, Marks)>,
    staged: Option<Staged>,
    /// The last row that was seen in the current key, to tell of a clash.
    seen: Option<(SourceId, u64)>,
    clash: Option<Clash>,
    dropped: Dropped,
    /// Rows of the output that have left, and every how many a key is noted.
    rows: u64,
    sample_every: u64,
    samples: Vec<(u64, Vec<u8>)>,
}

impl Duplicates {
    pub(super) fn new(rule: DropRule, sources: usize, sample_every: u64) -> Self {
        Self {
            rule,
            marks: (0..sources).map(|_| (0, Marks::default())).collect(),
            staged: None,
            seen: None,
            clash: None,
            dropped: Dropped::default(),
            rows: 0,
            sample_every,
            samples: Vec::new(),
        }
    }

    /// The marks of the batch of `source` that begins at `row`.
    pub(super) fn supply(&mut self, source: SourceId, row: u64, marks: Marks) {
        if let Some(of_source) = self.marks.get_mut(source.index()) {
            *of_source = (row, marks);
        }
    }

    /// Takes the next row of the merged order. `is_same` says that its key is that of the row
    /// before it, which `key_before` gives.
    pub(super) fn see(
        &mut self,
        source: SourceId,
        row: u64,
        is_same: bool,
        key_before: &impl Fn() -> Vec<u8>,
        runs: &mut Runs,
    ) {
        // What left before the clash is all that leaves.
        if self.clash.is_some() {
            return;
        }
        if !is_same {
            self.flush(key_before, runs);
            self.seen = None;
        }
        let Some((start, marks)) = self.marks.get(source.index()) else { return };
        let at = usize::try_from(row.saturating_sub(*start)).unwrap_or(usize::MAX);
        let is_marked = |marks: &Vec<bool>| marks.get(at).copied().unwrap_or(false);
        if is_marked(&marks.expired) {
            self.dropped.expired += 1;
            return;
        }
        let version = match (&self.rule.version, &marks.versions) {
            (Some(shape), Some(versions)) if at < versions.len() => {
                Some(versions.to_bytes(shape, at))
            }
            _ => None,
        };
        let next = Staged { source, row, deletes: is_marked(&marks.deletes), version };
        if let (OnDuplicate::Error, Some(before)) = (self.rule.on_duplicate, self.seen) {
            self.clash = Some(Clash { before, after: (source, row) });
            return;
        }
        self.seen = Some((source, row));
        let Some(staged) = &self.staged else {
            self.staged = Some(next);
            return;
        };
        match self.rule.on_duplicate {
            OnDuplicate::KeepAll => {
                let staged = self.staged.replace(next);
                self.leave(staged, key_before, runs);
            }
            OnDuplicate::KeepFirst => {
                self.dropped.duplicate += 1;
                if next.version > staged.version {
                    self.staged = Some(next);
                }
            }
            OnDuplicate::KeepLast | OnDuplicate::Error => {
                self.dropped.duplicate += 1;
                if next.version >= staged.version {
                    self.staged = Some(next);
                }
            }
        }
    }

    /// The current key has all its rows; `key` gives it.
    pub(super) fn flush(&mut self, key: impl FnOnce() -> Vec<u8>, runs: &mut Runs) {
        let staged = self.staged.take();
        self.leave(staged, key, runs);
    }

    fn leave(&mut self, staged: Option<Staged>, key: impl FnOnce() -> Vec<u8>, runs: &mut Runs) {
        let Some(staged) = staged else { return };
        if staged.deletes && !self.rule.keeps_tombstones {
            self.dropped.deleted += 1;
            return;
        }
        if self.sample_every > 0 && self.rows.is_multiple_of(self.sample_every) {
            self.samples.push((self.rows, key()));
        }
        self.rows += 1;
        runs.push(staged.source, staged.row, 1);
    }

    pub(super) fn staged(&self) -> Option<(SourceId, u64)> {
        self.staged.as_ref().map(|staged| (staged.source, staged.row))
    }

    pub(super) fn clash(&self) -> Option<Clash> {
        self.clash
    }

    pub(super) fn dropped(&self) -> Dropped {
        self.dropped
    }

    pub(super) fn take_samples(&mut self) -> Vec<(u64, Vec<u8>)> {
        std::mem::take(&mut self.samples)
    }

    pub(super) fn memory_size(&self) -> usize {
        self.marks.iter().map(|(_, marks)| marks.memory_size()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Ask, OrderCheck, WindowRule, Windows};
    use super::*;
    use crate::key::{KeyColumn, KeyType, Nulls};
    use proptest::prelude::*;

    fn shape(name: &str) -> KeyShape {
        let column = KeyColumn {
            name: name.into(),
            ty: KeyType::UInt32,
            descending: false,
            nulls: Nulls::First,
        };
        KeyShape::try_new(vec![column]).unwrap()
    }

    fn packed(value: u32) -> u128 {
        1 << 120 | u128::from(value) << 88
    }

    /// Key, version, deletes, expired.
    type Row = (u32, u32, bool, bool);

    /// The oracle: sort, group, choose.
    fn slow(sources: &[Vec<Row>], rule: &DropRule) -> (Vec<(u32, u64)>, Dropped) {
        let mut all: Vec<(Row, u32, u64)> = Vec::new();
        for (s, rows) in sources.iter().enumerate() {
            all.extend(rows.iter().zip(0..).map(|(row, i)| (*row, s as u32, i)));
        }
        all.sort_by_key(|(row, s, i)| (row.0, *s, *i));
        let (mut kept, mut dropped) = (Vec::new(), Dropped::default());
        for group in all.chunk_by(|a, b| a.0.0 == b.0.0) {
            let live: Vec<_> = group.iter().filter(|row| !row.0.3).collect();
            dropped.expired += (group.len() - live.len()) as u64;
            if rule.on_duplicate == OnDuplicate::KeepAll {
                kept.extend(live.iter().map(|row| (row.1, row.2)));
                continue;
            }
            let best = match (rule.on_duplicate, &rule.version) {
                // `max_by_key` takes the last of equal ones.
                (OnDuplicate::KeepFirst, Some(_)) => live.iter().rev().max_by_key(|row| row.0.1),
                (OnDuplicate::KeepFirst, None) => live.first(),
                (_, Some(_)) => live.iter().max_by_key(|row| row.0.1),
                _ => live.last(),
            };
            let Some(best) = best else { continue };
            dropped.duplicate += live.len() as u64 - 1;
            match best.0.2 && !rule.keeps_tombstones {
                true => dropped.deleted += 1,
                false => kept.push((best.1, best.2)),
            }
        }
        (kept, dropped)
    }

    /// What stays, and what does not.
    type Sifted = (Vec<(u32, u64)>, Dropped);

    fn fast(
        sources: &[Vec<Row>],
        rule: DropRule,
        cut: WindowRule,
        batch: usize,
        rows_max: u64,
    ) -> Result<Sifted, Clash> {
        let every = cut.sample_every;
        let mut windows = Windows::new(shape("k"), sources.len(), cut, OrderCheck::Full);
        let has_versions = rule.version.is_some();
        windows.drop_rows(rule);
        windows.set_rows_max(rows_max);
        let mut given = vec![0; sources.len()];
        let mut rows = Vec::new();
        loop {
            match windows.next().unwrap() {
                Ask::Keys(s) => {
                    let of = &sources[s.index()];
                    let some: Vec<Row> =
                        of.iter().skip(given[s.index()]).take(batch).copied().collect();
                    given[s.index()] += some.len();
                    if some.is_empty() {
                        windows.end(s);
                        continue;
                    }
                    let keys = some.iter().map(|row| packed(row.0)).collect();
                    windows.supply(s, Keys::Packed(keys), false).unwrap();
                    let versions = some.iter().map(|row| packed(row.1)).collect();
                    windows.mark(
                        s,
                        Marks {
                            expired: some.iter().map(|row| row.3).collect(),
                            deletes: some.iter().map(|row| row.2).collect(),
                            versions: has_versions.then_some(Keys::Packed(versions)),
                        },
                    );
                }
                Ask::RowGroupStart(s) => windows.enter(s),
                Ask::Clash(clash) => return Err(clash),
                Ask::Window(window) => {
                    assert!(window.steps.rows() <= rows_max);
                    let mut at: Vec<u64> = vec![0; sources.len()];
                    window.steps.taken().for_each(|t| at[t.source.index()] = t.start);
                    let mut words = window.steps.words();
                    while let Some((step, used)) = crate::packed_runs::PackedRun::first(words) {
                        let row = &mut at[step.source as usize];
                        if !step.is_gap {
                            rows.extend(
                                (*row..*row + u64::from(step.len)).map(|r| (step.source, r)),
                            );
                        }
                        *row += u64::from(step.len);
                        words = &words[used..];
                    }
                    for (row, key) in &window.samples {
                        let (s, i) = rows[*row as usize];
                        let expected = packed(sources[s as usize][i as usize].0);
                        assert_eq!(row % every, 0);
                        assert_eq!(key, &expected.to_be_bytes()[..5]);
                    }
                }
                Ask::Done => return Ok((rows, windows.dropped())),
            }
        }
    }

    fn sources() -> impl Strategy<Value = Vec<Vec<Row>>> {
        let row = (0u32..12, 0u32..3, any::<bool>(), prop::bool::weighted(0.2));
        let source = prop::collection::vec(row, 0..12).prop_map(|mut rows| {
            rows.sort_by_key(|row| row.0);
            rows
        });
        prop::collection::vec(source, 1..5)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn one_row_of_every_key_stays_wherever_windows_end(
            sources in sources(), policy in 0usize..3, versioned in any::<bool>(),
            keeps_tombstones in any::<bool>(), batch in 1usize..5, rows_max in 1u64..6,
            deletes in any::<bool>(),
        ) {
            let on_duplicate =
                [OnDuplicate::KeepAll, OnDuplicate::KeepFirst, OnDuplicate::KeepLast][policy];
            let mut sources = sources;
            if !deletes || on_duplicate == OnDuplicate::KeepAll {
                sources.iter_mut().flatten().for_each(|row| row.2 = false);
            }
            let version = (versioned && on_duplicate != OnDuplicate::KeepAll).then(|| shape("v"));
            let rule = DropRule { on_duplicate, version, keeps_tombstones };
            let rows = sources.iter().map(|rows| rows.len() as u64).sum();
            let cut = WindowRule { rows, sample_every: 2, ..WindowRule::default() };
            let (expected, dropped) = slow(&sources, &rule);
            let (found, counted) = fast(&sources, rule, cut, batch, rows_max).unwrap();
            prop_assert_eq!(&found, &expected);
            prop_assert_eq!(counted, dropped);
            prop_assert_eq!(counted.rows() + found.len() as u64, rows);
        }
    }

    #[test]
    fn two_rows_of_one_key_are_told_where_there_must_not_be_two() {
        let row = |key| (key, 0, false, false);
        let sources = [vec![row(1), row(4)], vec![row(2), row(4)]];
        let rule = || DropRule { on_duplicate: OnDuplicate::Error, ..DropRule::default() };
        let cut = || WindowRule { rows: 4, ..WindowRule::default() };
        let clash = fast(&sources, rule(), cut(), 2, 9).unwrap_err();
        assert_eq!((clash.before, clash.after), ((SourceId(0), 1), (SourceId(1), 1)));
        let fine = [vec![row(1)], vec![row(2)]];
        assert_eq!(fast(&fine, rule(), cut(), 2, 9).unwrap().0, [(0, 0), (1, 0)]);
    }
}
