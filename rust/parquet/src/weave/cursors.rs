//! The cursors of one leaf: how far each source is, through all windows that are woven together.
//!
//! # Invariants
//! A cursor that stays open is at the first row that is wanted next. A block stays only in a chunk
//! where it means the same.
//!
//! # Not here
//! Reading and copying rows (`cursor`, `gather`); cursors between batches (`carried`).

use std::collections::VecDeque;
use std::sync::Arc;

use plait_core::SourceId;
use plait_core::packed_runs::PackedRuns;

use super::cursor::{Form, SourceCursor};
use crate::block::Dictionary;
use crate::block::Layout;
use crate::block::reader::{OwnDictionary, Skipping, United};
use crate::runtime::{Charge, Context};

/// How many dictionaries of chunks stay: that of the owner, and that of the one that comes next.
const DICTIONARIES_KEPT: usize = 2;

/// The cursors of one leaf, through all windows that are woven together.
pub(super) struct SourceCursors {
    pub(super) cursors: Vec<SourceCursor>,
    /// The row that each source is read at next, and one past the last that is wanted.
    pub(super) rows: Vec<(u64, u64)>,
    charge: Charge,
    pub(super) held: usize,
    /// Sources whose cursors hold a block, and some whose cursors did.
    loaded: Vec<usize>,
    united: Option<Arc<United>>,
    /// The dictionaries that were read last: the next chunk may keep one.
    dictionaries: VecDeque<OwnDictionary>,
}

impl SourceCursors {
    /// A cursor for each of so many sources of one leaf and for rows that no source has, with what the
    /// windows before left in `carried`.
    pub(super) fn new<'a>(
        sources: usize,
        windows: impl Iterator<Item = &'a PackedRuns>,
        carried: Option<Self>,
        context: &Context,
    ) -> Self {
        let mut rows: Vec<Option<(u64, u64)>> = vec![None; sources + 1];
        for taken in windows.flat_map(PackedRuns::taken) {
            if let Some(rows) = rows.get_mut(taken.source.index()) {
                let start = rows.map_or(taken.start, |(start, _)| start);
                *rows = Some((start, taken.end));
            }
        }
        let mut cursors = carried.unwrap_or_else(|| Self {
            cursors: rows.iter().map(|_| SourceCursor::default()).collect(),
            rows: vec![(0, 0); rows.len()],
            charge: context.charge(0),
            held: 0,
            loaded: Vec::new(),
            united: None,
            dictionaries: VecDeque::new(),
        });
        cursors.go_on(&rows);
        cursors
    }

    /// Sets what is wanted next. Cursors stay open that are at the first wanted row of their
    /// source.
    fn go_on(&mut self, wanted: &[Option<(u64, u64)>]) {
        for ((cursor, rows), wanted) in self.cursors.iter_mut().zip(&mut self.rows).zip(wanted) {
            let at = rows.0 - cursor.left as u64;
            *rows = match *wanted {
                Some((start, end)) if cursor.left > 0 && start == at => (rows.0, end),
                other => {
                    cursor.close();
                    other.unwrap_or_default()
                }
            };
        }
        self.refresh_account();
    }

    /// Ends a batch: readers and what is used up go, rows that are left stay for the next.
    pub(super) fn rest(&mut self) {
        for (cursor, rows) in self.cursors.iter_mut().zip(&self.rows) {
            match cursor.left {
                0 => cursor.close(),
                _ => cursor.reader = None,
            }
            debug_assert!(rows.0 >= cursor.left as u64, "a cursor has more rows than were read");
        }
        self.refresh_account();
    }

    fn refresh_account(&mut self) {
        self.held = self.cursors.iter().map(SourceCursor::memory_size).sum();
        self.charge.set(self.held + self.memory_size());
    }

    /// Bytes that resting cursors keep from being let go of.
    pub(super) fn rest_size(&self) -> usize {
        let dictionaries = self.dictionaries.iter().map(|held| held.values.memory_size());
        self.held
            + self.cursors.iter().map(SourceCursor::page_size).sum::<usize>()
            + dictionaries.sum::<usize>()
    }

    /// The values of the dictionary of the chunk at `place`, if they are still here.
    pub(super) fn dictionary(&self, place: (SourceId, usize)) -> Option<Arc<Dictionary>> {
        let held = self.dictionaries.iter().find(|held| held.place == place)?;
        Some(Arc::clone(&held.values))
    }

    /// Keeps a dictionary for the next chunks.
    pub(super) fn keep_dictionary(&mut self, own: OwnDictionary) {
        if self.dictionary(own.place).is_none() {
            self.dictionaries.truncate(DICTIONARIES_KEPT - 1);
            self.dictionaries.push_front(own);
        }
    }

    /// Lets go of the dictionaries.
    pub(super) fn forget_dictionaries(&mut self) {
        self.dictionaries.clear();
    }

    /// Begins a chunk, of ids if it `writes_ids`. Blocks stay if they mean the same in it.
    pub(super) fn begin(&mut self, united: Option<&Arc<United>>, writes_ids: bool) {
        let is_same = match (&self.united, united) {
            (None, None) => true,
            (Some(old), Some(new)) => Arc::ptr_eq(old, new),
            _ => false,
        };
        if is_same && let Some(united) = united.filter(|_| writes_ids) {
            self.cursors.iter_mut().for_each(|cursor| cursor.restore(&united.dictionary));
        }
        self.united = united.cloned();
        for (cursor, rows) in self.cursors.iter_mut().zip(&mut self.rows) {
            // Ids mean something in a chunk of their dictionary. Everything else is a value, also
            // ids that have their dictionary with them, and a page of ids has no room for values:
            // the page is read again, so that it ends the pages of ids where it is met.
            let stays = match cursor.form {
                Form::Ids => is_same && writes_ids,
                _ => !writes_ids,
            };
            if cursor.left == 0 && is_same {
                continue;
            }
            if cursor.left > 0 && stays {
                cursor.reader = cursor.reader.take().filter(|_| is_same);
                continue;
            }
            rows.0 -= cursor.left as u64;
            cursor.close();
        }
        self.refresh_account();
    }

    /// Lets go of sources that have given all their rows. It looks at those that are open: of thousands
    /// of files, few are.
    pub(super) fn sweep(&mut self) {
        let Self { loaded, cursors, rows, held, .. } = self;
        loaded.retain(|source| {
            let (cursor, (row, end)) = (&mut cursors[*source], rows[*source]);
            if cursor.left == 0 && row >= end && cursor.form != Form::Nothing {
                *held -= cursor.memory_size();
                cursor.close();
            }
            cursor.form != Form::Nothing
        });
    }

    /// Gives the cursor of `source` a block whose first `skip` rows are not wanted.
    pub(super) fn load(
        &mut self,
        source: usize,
        (block, skip): Skipping,
        layout: Layout,
        writes_ids: bool,
    ) {
        self.rows[source].0 += (block.rows - skip) as u64;
        let cursor = &mut self.cursors[source];
        if cursor.form == Form::Nothing {
            self.loaded.push(source);
        }
        cursor.load(block, skip, layout, writes_ids);
    }

    /// Accounts for the cursors and `more` bytes, of the page that is made.
    pub(super) fn account(&mut self, more: usize) {
        let own = self.held + self.memory_size();
        self.charge.set(own + more);
    }

    fn memory_size(&self) -> usize {
        self.cursors.capacity() * (size_of::<SourceCursor>() + size_of::<(u64, u64)>())
    }
}
