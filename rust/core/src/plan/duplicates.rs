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
//! Where rows of a key are combined, the last stays, and the group says which others there are. What
//! is older than a tombstone is not one of them; a tombstone that is kept leaves in front of the row.
//!
//! # Invariants
//! Every row is passed to [`Duplicates::see`] once, in merged order. It stays, is counted in
//! [`Dropped`], or is staged; one row at most is staged, or those of one key that are combined. Rows
//! that stay keep their order.
//!
//! # Cost
//! One comparison of keys a row. The marks of one batch per source. Rows of a key that are combined.
//!
//! # Not here
//! Where marks come from (the shell); who is next (`loser_tree`).

use super::groups::{KeyGroups, OpenGroup, Seen, SourceRow};
use crate::key::{KeyShape, Keys};
use plait_base::{Error, Kind, Runs, SourceId};

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
    /// One row of them all: the last value of each column that is not null.
    Update,
    /// One row of them all: each column by an aggregate function.
    Aggregate,
}

impl OnDuplicate {
    /// Whether rows of one key become one row of them all.
    #[must_use]
    pub fn combines(self) -> bool {
        matches!(self, Self::Update | Self::Aggregate)
    }
}

/// Which rows are dropped.
#[derive(Clone, Debug, Default)]
pub struct DropRule {
    /// What becomes of rows with one key.
    pub on_duplicate: OnDuplicate,
    /// The shape of each version column. Of rows that are not combined there is one at most: the
    /// highest stays.
    pub versions: Vec<KeyShape>,
    /// Whether tombstones stay once they have won.
    pub keeps_tombstones: bool,
    /// Whether the rows of a key come from the newest to the oldest. Only rows that are combined are
    /// asked.
    pub newest_first: bool,
    /// Most rows of one key that are combined; 0 = any number.
    pub group_rows_max: usize,
}

/// What is known of the rows of one batch of keys; empty where nothing is.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    /// Rows past their retention.
    pub expired: Vec<bool>,
    /// Rows that delete their key.
    pub deletes: Vec<bool>,
    /// The versions of each version column, as the rule of drops encodes them.
    pub versions: Vec<Keys>,
}

impl Marks {
    /// Bytes held on the heap.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        let versions: usize = self.versions.iter().map(Keys::memory_size).sum();
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

/// Rows of one key where there must be fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clash {
    /// The row that left first, or the first of all.
    pub before: (SourceId, u64),
    /// The other, or the first that is too many.
    pub after: (SourceId, u64),
    /// How many rows a key may have.
    pub rows_max: usize,
}

impl Clash {
    /// The error for it: `key` is that of the rows, and `before` says where the first of them is.
    #[must_use]
    pub fn error(&self, key: &str, before: &str) -> Error {
        if self.rows_max == 1 {
            return Error::new(Kind::DuplicateKey, "two rows have the same key")
                .with_got(format!("{key} as in {before}"))
                .with_hint(
                    "on_duplicate=\"keep_last\", \"keep_first\" or \"keep_all\" says what to do",
                );
        }
        Error::new(Kind::MemoryLimit, "a key has too many rows to be combined")
            .with_got(format!("more than {} rows of key {key}, from {before} on", self.rows_max))
            .with_hint("give more memory, or merge fewer sources at a time")
    }
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
    /// The rows of the current key, and those of the keys before it, where they are combined.
    open: OpenGroup,
    groups: KeyGroups,
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
            groups: KeyGroups::new(rule.versions.len()),
            open: OpenGroup::default(),
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
        let deletes = is_marked(&marks.deletes);
        let versions = self.rule.versions.iter().zip(&marks.versions);
        let mut versions = versions
            .filter(|(_, keys)| at < keys.len())
            .map(|(shape, keys)| keys.to_bytes(shape, at));
        if self.rule.on_duplicate.combines() {
            let (rows, rows_max) = (self.open.rows(), self.rule.group_rows_max);
            let next =
                SourceRow::new(source, row).filter(|_| rows_max == 0 || rows.len() < rows_max);
            let Some(next) = next else {
                let first = rows.first().map(|first| (first.source(), first.row()));
                let after = (source, row);
                self.clash = Some(Clash { before: first.unwrap_or(after), after, rows_max });
                return;
            };
            match self.open.see(next, deletes, versions, self.rule.newest_first) {
                Seen::Dropped(rows) => self.dropped.duplicate += rows,
                Seen::Kept => {}
            }
            return;
        }
        let next = Staged { source, row, deletes, version: versions.next() };
        if let (OnDuplicate::Error, Some(before)) = (self.rule.on_duplicate, self.seen) {
            self.clash = Some(Clash { before, after: (source, row), rows_max: 1 });
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
            OnDuplicate::KeepLast
            | OnDuplicate::Error
            | OnDuplicate::Update
            | OnDuplicate::Aggregate => {
                self.dropped.duplicate += 1;
                if next.version >= staged.version {
                    self.staged = Some(next);
                }
            }
        }
    }

    /// The current key has all its rows; `key` gives it.
    pub(super) fn flush(&mut self, key: impl Fn() -> Vec<u8>, runs: &mut Runs) {
        if self.rule.on_duplicate.combines() {
            self.leave_combined(&key, runs);
            return;
        }
        let staged = self.staged.take();
        self.leave(staged, &key, runs);
    }

    fn leave(&mut self, staged: Option<Staged>, key: &impl Fn() -> Vec<u8>, runs: &mut Runs) {
        let Some(staged) = staged else { return };
        if staged.deletes && !self.rule.keeps_tombstones {
            self.dropped.deleted += 1;
            return;
        }
        self.emit(staged.source, staged.row, key, runs);
    }

    /// Lets the rows of the current key leave as one, with the tombstone before or behind it.
    fn leave_combined(&mut self, key: &impl Fn() -> Vec<u8>, runs: &mut Runs) {
        let mut open = std::mem::take(&mut self.open);
        open.close(self.rule.newest_first);
        let tombstone = match open.tombstone() {
            Some(_) if !self.rule.keeps_tombstones => {
                self.dropped.deleted += 1;
                None
            }
            tombstone => tombstone,
        };
        if let Some(row) = tombstone.filter(|_| !self.rule.newest_first) {
            self.emit(row.source(), row.row(), key, runs);
        }
        if let Some(last) = open.rows().last() {
            let others = open.rows().len() as u64 - 1;
            self.dropped.duplicate += others;
            if others > 0 {
                self.groups.push(self.rows, open.rows(), open.newest());
            }
            self.emit(last.source(), last.row(), key, runs);
        }
        if let Some(row) = tombstone.filter(|_| self.rule.newest_first) {
            self.emit(row.source(), row.row(), key, runs);
        }
        open.clear();
        self.open = open;
    }

    fn emit(&mut self, source: SourceId, row: u64, key: &impl Fn() -> Vec<u8>, runs: &mut Runs) {
        if self.sample_every > 0 && self.rows.is_multiple_of(self.sample_every) {
            self.samples.push((self.rows, key()));
        }
        self.rows += 1;
        runs.push(source, row, 1);
    }

    /// How many rows would leave if the current key had all its rows.
    pub(super) fn staged_rows(&self) -> u64 {
        match self.rule.on_duplicate.combines() {
            true => self.open.leaving(self.rule.keeps_tombstones),
            false => u64::from(self.staged.is_some()),
        }
    }

    /// Whether a row of `source` in `rows` waits for others of its key.
    pub(super) fn is_staged(&self, source: SourceId, rows: &std::ops::Range<u64>) -> bool {
        let staged = self.staged.as_ref();
        staged.is_some_and(|held| held.source == source && rows.contains(&held.row))
            || self.open.holds(source, rows)
    }

    /// The groups of the rows that have left since they were taken last; `first` is the output row
    /// from which their rows are counted.
    pub(super) fn take_groups(&mut self, first: u64) -> KeyGroups {
        self.groups.take(first)
    }

    /// Bytes of the groups that were not taken.
    pub(super) fn groups_size(&self) -> usize {
        self.groups.memory_size()
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
        let marks: usize = self.marks.iter().map(|(_, marks)| marks.memory_size()).sum();
        marks + self.groups.memory_size()
    }
}

#[cfg(test)]
mod tests;
