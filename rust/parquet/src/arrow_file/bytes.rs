//! The bytes of a file, through one window for every leaf that is read.
//!
//! # Invariants
//! A read lies inside of one chunk that is asked for. What a window holds is accounted for.
//!
//! # Cost
//! One window for every leaf, or one page if that is larger; small files are read at once.
//!
//! # Not here
//! What the bytes mean (`pages`).

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use plait_core::{Error, Kind, Result};

use crate::runtime::{Charge, Context};
use crate::source::Source;
use crate::store::RangeReader;

/// Files up to this size are read at once.
const WHOLE_BYTES_MAX: u64 = 1 << 20;

/// The bytes of the chunks of some leaves.
pub(super) struct Windows {
    store: Arc<dyn RangeReader>,
    /// Start, end and leaf of every chunk that may be read, by start.
    chunks: Vec<(u64, u64, usize)>,
    open: Mutex<HashMap<usize, (u64, Bytes, Charge)>>,
    whole: Option<(Bytes, Charge)>,
    /// Where the row groups lie that have the rows.
    wanted: Range<u64>,
    window_bytes: u64,
    context: Context,
}

impl Windows {
    /// Windows of `window_bytes` for each of `leaves`, of which `rows` are read.
    pub(super) fn new(
        source: &Source,
        leaves: &[usize],
        rows: &Range<u64>,
        window_bytes: u64,
        context: &Context,
    ) -> Result<Self> {
        let store = Arc::clone(&source.store);
        let (mut whole, mut chunks) = (None, Vec::new());
        let (mut first, mut last) = (u64::MAX, 0);
        if store.len() <= WHOLE_BYTES_MAX {
            let bytes = store.read(0..store.len())?;
            let charge = context.charge(bytes.len());
            whole = Some((bytes, charge));
        } else {
            for group in 0..source.num_row_groups() {
                let start = source.row_group_start(group);
                let is_wanted = start < rows.end && rows.start < source.row_group_start(group + 1);
                for leaf in leaves {
                    let range = source.chunk_range(group, *leaf)?;
                    if is_wanted {
                        (first, last) = (first.min(range.start), last.max(range.end));
                    }
                    chunks.push((range.start, range.end, *leaf));
                }
            }
            chunks.sort_unstable();
        }
        let open = Mutex::default();
        let (wanted, context) = (first..last, context.clone());
        let windows = Self { store, chunks, open, whole, wanted, window_bytes, context };
        // Elsewhere nobody knows yet with which page it begins.
        if source.row_group_of(rows.start).1 == 0 {
            leaves.iter().for_each(|leaf| windows.will_read_next(*leaf, 0));
        }
        Ok(windows)
    }

    /// Says that the first wanted chunk of `leaf` from `start` on is read soon.
    fn will_read_next(&self, leaf: usize, start: u64) {
        let start = start.max(self.wanted.start);
        let at = self.chunks.partition_point(|chunk| chunk.0 < start);
        let next = self.chunks[at..].iter().find(|chunk| chunk.2 == leaf);
        if let Some((start, end, _)) = next.filter(|chunk| chunk.0 < self.wanted.end) {
            self.store.will_read(*start..(*end).min(start + self.window_bytes), *end);
        }
    }

    /// The bytes `start..start + len`.
    pub(super) fn read(&self, start: u64, len: u64) -> Result<Bytes> {
        let behind =
            || Error::new(Kind::CorruptSource, "page lies outside of its chunk").with_offset(start);
        let end = start.checked_add(len).ok_or_else(behind)?;
        if let Some((whole, _)) = &self.whole {
            let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
            let range = range.filter(|(_, end)| *end <= whole.len()).ok_or_else(behind)?;
            return Ok(whole.slice(range.0..range.1));
        }
        let at = self.chunks.partition_point(|chunk| chunk.0 <= start);
        let chunk = at.checked_sub(1).and_then(|at| self.chunks.get(at));
        let Some((_, chunk_end, leaf)) = chunk.filter(|chunk| end <= chunk.1) else {
            return Err(behind());
        };
        let len = usize::try_from(len).map_err(|_| behind())?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((from, bytes, _)) = open.get(leaf)
            && *from <= start
            && end <= from + bytes.len() as u64
        {
            let first = usize::try_from(start - from).map_err(|_| behind())?;
            return Ok(bytes.slice(first..first + len));
        }
        // What was there before goes first: it is decoded.
        open.remove(leaf);
        let to = (*chunk_end).min(end.max(start.saturating_add(self.window_bytes)));
        self.store.will_read(start..to, *chunk_end);
        if to == *chunk_end {
            self.will_read_next(*leaf, to);
        }
        let charge = self.context.charge(usize::try_from(to - start).unwrap_or(usize::MAX));
        let bytes = self.store.read(start..to)?;
        open.insert(*leaf, (start, bytes.clone(), charge));
        Ok(bytes.slice(0..len))
    }

    /// At least `want` bytes from `start` on, where a page header begins, and all that is at hand;
    /// fewer only where the chunk ends at `end`.
    pub(super) fn ahead(&self, start: u64, want: u64, end: u64) -> Result<Bytes> {
        let want = want.min(end.saturating_sub(start));
        if let Some((whole, _)) = &self.whole {
            let rest = (whole.len() as u64).min(end).saturating_sub(start);
            return self.read(start, rest);
        }
        let at = self.chunks.partition_point(|chunk| chunk.0 <= start);
        let leaf = at.checked_sub(1).and_then(|at| self.chunks.get(at)).map(|chunk| chunk.2);
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let held = leaf.and_then(|leaf| open.get(&leaf));
        let held = held.map(|(from, bytes, _)| (*from, *from + bytes.len() as u64));
        drop(open);
        if let Some((from, to)) = held
            && from <= start
            && to >= start.saturating_add(want)
        {
            return self.read(start, to.min(end) - start);
        }
        self.read(start, want.max(self.window_bytes.min(end.saturating_sub(start))))
    }
}
