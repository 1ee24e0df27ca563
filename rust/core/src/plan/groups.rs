//! Rows that share a key and leave as one row.
//!
//! ```text
//! merged order   a  b b b  c  d d        rows of sources
//! output         a  b      c  d          row 1 is three rows, row 3 is two
//! groups            ▔▔▔▔▔     ▔▔▔        which rows they are, in merged order
//! ```
//!
//! Which of these rows gives the value of a column is another question for each column: `combine`.
//!
//! # Invariants
//! A group has at least two rows. Groups ascend by output row, and rows of one source ascend
//! through all groups. The last row of a group is the one that the runs name.
//!
//! # Cost
//! 8 bytes a row of a group, 16 a group; nothing for rows that are alone in their key.
//!
//! # Not here
//! Which rows share a key (`duplicates`).

use std::fmt;

use plait_base::SourceId;

/// A row of a source: 24 bits of the source, 40 of the row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SourceRow(u64);

impl SourceRow {
    const ROW_BITS: u32 = 40;

    /// Row `row` of `source`; none if a number is too large.
    #[must_use]
    pub(crate) fn new(source: SourceId, row: u64) -> Option<Self> {
        let fits = row >> Self::ROW_BITS == 0 && u64::from(source.0) >> (64 - Self::ROW_BITS) == 0;
        fits.then_some(Self(u64::from(source.0) << Self::ROW_BITS | row))
    }

    /// The source.
    #[must_use]
    pub fn source(self) -> SourceId {
        SourceId((self.0 >> Self::ROW_BITS) as u32)
    }

    /// The row, counted over the whole source.
    #[must_use]
    pub fn row(self) -> u64 {
        self.0 & ((1 << Self::ROW_BITS) - 1)
    }
}

impl fmt::Debug for SourceRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.source(), self.row())
    }
}

/// Rows of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyGroup<'a> {
    /// The row that they become, counted over the window.
    pub row: u64,
    /// The rows, in merged order.
    pub rows: &'a [SourceRow],
    /// For each version column, which of `rows` has the highest version; of equal ones the last.
    pub newest: &'a [u32],
}

/// The groups of a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyGroups {
    /// The output row of each, and one past the last of its rows.
    ends: Vec<(u64, usize)>,
    rows: Vec<SourceRow>,
    newest: Vec<u32>,
    versions: usize,
}

impl KeyGroups {
    /// None yet; `versions` is the number of version columns.
    #[must_use]
    pub(crate) fn new(versions: usize) -> Self {
        Self { versions, ..Self::default() }
    }

    /// Adds a group: `rows` become the output row `row`.
    pub(crate) fn push(&mut self, row: u64, rows: &[SourceRow], newest: impl Iterator<Item = u32>) {
        self.rows.extend_from_slice(rows);
        self.newest.extend(newest);
        self.ends.push((row, self.rows.len()));
    }

    /// The groups, by output row.
    pub fn iter(&self) -> impl Iterator<Item = KeyGroup<'_>> {
        self.ends.iter().enumerate().map(|(at, (row, end))| {
            let start = at.checked_sub(1).map_or(0, |before| self.ends[before].1);
            let newest = at * self.versions..(at + 1) * self.versions;
            let newest = self.newest.get(newest).unwrap_or_default();
            KeyGroup { row: *row, rows: &self.rows[start..*end], newest }
        })
    }

    /// Whether every row of the window is alone in its key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Number of groups.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The groups of the rows before row `middle`, and those of the rows from there on, which are
    /// counted from it.
    #[must_use]
    pub(crate) fn split(&self, middle: u64) -> [Self; 2] {
        let mut parts = [Self::new(self.versions), Self::new(self.versions)];
        for group in self.iter() {
            let (part, row) = match group.row.checked_sub(middle) {
                Some(row) => (&mut parts[1], row),
                None => (&mut parts[0], group.row),
            };
            part.push(row, group.rows, group.newest.iter().copied());
        }
        parts
    }

    /// Takes all groups, whose output rows are counted from `first` on from now on.
    pub(super) fn take(&mut self, first: u64) -> Self {
        let mut taken = std::mem::replace(self, Self::new(self.versions));
        taken.ends.iter_mut().for_each(|(row, _)| *row -= first.min(*row));
        taken
    }

    /// Bytes held on the heap.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        self.ends.capacity() * size_of::<(u64, usize)>()
            + self.rows.capacity() * size_of::<SourceRow>()
            + self.newest.capacity() * size_of::<u32>()
    }
}

/// The rows of the current key, as far as they were seen.
#[derive(Default)]
pub(super) struct OpenGroup {
    /// As they come, without those that a tombstone deletes.
    rows: Vec<SourceRow>,
    /// For each version column the row of the highest version so far, and that version.
    newest: Vec<(u32, Vec<u8>)>,
    /// The row that deletes what is older.
    tombstone: Option<SourceRow>,
}

/// What was done with a row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// It is one of the group.
    Kept,
    /// It and so many others before it do not leave.
    Dropped(u64),
}

impl OpenGroup {
    /// Takes the next row of the key. `newest_first` says that rows come from the newest to the
    /// oldest.
    pub(super) fn see(
        &mut self,
        row: SourceRow,
        deletes: bool,
        versions: impl Iterator<Item = Vec<u8>>,
        newest_first: bool,
    ) -> Seen {
        if newest_first && self.tombstone.is_some() {
            return Seen::Dropped(1);
        }
        if deletes {
            if newest_first {
                self.tombstone = Some(row);
                return Seen::Kept;
            }
            let dropped = self.rows.len() as u64 + u64::from(self.tombstone.is_some());
            self.rows.clear();
            self.newest.clear();
            self.tombstone = Some(row);
            return Seen::Dropped(dropped);
        }
        let place = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        self.rows.push(row);
        if place == 0 {
            self.newest.clear();
            self.newest.extend(versions.map(|version| (0, version)));
        } else {
            for (newest, version) in self.newest.iter_mut().zip(versions) {
                // Of equal versions the last in merged order.
                let is_newer = if newest_first { version > newest.1 } else { version >= newest.1 };
                if is_newer {
                    *newest = (place, version);
                }
            }
        }
        Seen::Kept
    }

    /// The rows in merged order, and which of them are the newest.
    pub(super) fn close(&mut self, newest_first: bool) {
        if newest_first && self.rows.len() > 1 {
            self.rows.reverse();
            let last = u32::try_from(self.rows.len() - 1).unwrap_or(u32::MAX);
            self.newest.iter_mut().for_each(|(place, _)| *place = last - *place);
        }
    }

    pub(super) fn rows(&self) -> &[SourceRow] {
        &self.rows
    }

    pub(super) fn newest(&self) -> impl Iterator<Item = u32> {
        self.newest.iter().map(|(place, _)| *place)
    }

    pub(super) fn tombstone(&self) -> Option<SourceRow> {
        self.tombstone
    }

    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.newest.clear();
        self.tombstone = None;
    }

    /// How many rows would leave if the key ended here.
    pub(super) fn leaving(&self, keeps_tombstones: bool) -> u64 {
        u64::from(!self.rows.is_empty()) + u64::from(keeps_tombstones && self.tombstone.is_some())
    }

    /// Whether a row of `source` in `rows` is held.
    pub(super) fn holds(&self, source: SourceId, rows: &std::ops::Range<u64>) -> bool {
        let mut held = self.rows.iter().chain(&self.tombstone);
        held.any(|held| held.source() == source && rows.contains(&held.row()))
    }
}
