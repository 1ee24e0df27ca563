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
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use plait_core::{Error, Kind, Result};

use crate::runtime::{Charge, Context};
use crate::source::Source;
use crate::store::RangeReader;

/// Files up to this size are read at once.
const WHOLE_BYTES_MAX: u64 = 1 << 20;

/// Bytes of chunks that are requested together.
const SPAN_BYTES_MAX: u64 = 1 << 20;

/// The bytes of the chunks of some leaves.
pub(super) struct Windows {
    store: Arc<dyn RangeReader>,
    /// Every chunk that may be read, by start.
    chunks: Vec<ReadChunk>,
    open: Mutex<HashMap<usize, (u64, Bytes, Charge)>>,
    whole: Option<(Bytes, Charge)>,
    /// Row groups that have the rows.
    groups: Range<usize>,
    /// The first of these that the store was not given a hint of.
    not_hinted: AtomicUsize,
    window_bytes: u64,
    context: Context,
}

/// A chunk of a leaf.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ReadChunk {
    start: u64,
    end: u64,
    leaf: usize,
    group: usize,
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
        let (mut first, mut last) = (usize::MAX, 0);
        if store.len() <= WHOLE_BYTES_MAX {
            let bytes = store.read(0..store.len())?;
            let charge = context.charge(bytes.len());
            whole = Some((bytes, charge));
        } else {
            for group in 0..source.num_row_groups() {
                let start = source.row_group_start(group);
                let is_wanted = start < rows.end && rows.start < source.row_group_start(group + 1);
                if is_wanted {
                    (first, last) = (first.min(group), group + 1);
                }
                for leaf in leaves {
                    let Range { start, end } = source.chunk_range(group, *leaf)?;
                    chunks.push(ReadChunk { start, end, leaf: *leaf, group });
                }
            }
            chunks.sort_unstable();
        }
        let begins = source.row_group_of(rows.start).1 == 0;
        let windows = Self {
            store,
            chunks,
            open: Mutex::default(),
            whole,
            groups: first..last,
            // Elsewhere nobody knows yet with which page it begins.
            not_hinted: AtomicUsize::new(first.saturating_add(usize::from(!begins))),
            window_bytes,
            context: context.clone(),
        };
        if begins {
            windows.will_read(first);
        }
        Ok(windows)
    }

    /// Says that the first windows of a row group are read soon, unless that was done: chunks that follow
    /// each other and fit into windows make one hint, so that they do not take a request each.
    fn will_read(&self, group: usize) {
        if !self.store.takes_hints() || !self.groups.contains(&group) {
            return;
        }
        if self.not_hinted.fetch_max(group + 1, Relaxed) > group {
            return;
        }
        let mut span = 0..0;
        for chunk in self.chunks.iter().filter(|chunk| chunk.group == group) {
            let first = chunk.start..chunk.end.min(chunk.start + self.window_bytes);
            if span.end == chunk.start && first.end - span.start <= SPAN_BYTES_MAX {
                span.end = first.end;
            } else {
                self.hint(span);
                span = first;
            }
            if span.end < chunk.end {
                self.store.will_read(span, chunk.end);
                span = 0..0;
            }
        }
        self.hint(span);
    }

    fn hint(&self, span: Range<u64>) {
        if !span.is_empty() {
            self.store.will_read(span.clone(), span.end);
        }
    }

    /// The last chunk that begins at `start` or before it.
    fn chunk_at(&self, start: u64) -> Option<&ReadChunk> {
        let at = self.chunks.partition_point(|chunk| chunk.start <= start);
        at.checked_sub(1).and_then(|at| self.chunks.get(at))
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
        let Some(ReadChunk { end: chunk_end, leaf, group, .. }) =
            self.chunk_at(start).filter(|chunk| end <= chunk.end)
        else {
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
            self.will_read(group + 1);
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
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let held = self.chunk_at(start).and_then(|chunk| open.get(&chunk.leaf));
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
