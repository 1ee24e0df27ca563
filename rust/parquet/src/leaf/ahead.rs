//! Hints to stores which bytes of objects are read soon, so that they request them while others are
//! read; and rows of sources that threads share, with such hints.
//!
//! # Cost
//! A search among page locations; nothing for local files and small objects.
//!
//! # Not here
//! What is requested, and when (`store`).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plait_core::workers::{Workers, each};
use plait_core::{Error, Result};

use super::{LocationCache, OutputLeaf};
use crate::page::Locations;
use crate::runtime::Context;
use crate::schema::LeafAdapter;
use crate::source::Source;

/// Row groups up to this size are requested whole.
const SMALL_GROUP_BYTES: u64 = 1 << 20;

/// What is read behind the rows that are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOn {
    /// Nothing but the rest of the chunk.
    Chunk,
    /// The chunks of the other leaves, too.
    RowGroup,
}

/// Says that `rows` of a leaf of `source` are read soon; gives their bytes. What is wrong with the file
/// is left to who reads it.
pub(crate) fn will_read_rows(
    source: &Source,
    output: &OutputLeaf,
    rows: &Range<u64>,
    read_on: ReadOn,
    cache: &LocationCache,
    context: &Context,
) -> u64 {
    if !source.store.takes_hints() {
        return 0;
    }
    let leaf = match output.adapter(source.id) {
        Ok(LeafAdapter::Same { leaf, .. } | LeafAdapter::Cast { leaf, .. }) => *leaf,
        Ok(LeafAdapter::Missing { sibling: Some(leaf), .. }) => *leaf,
        _ => return 0,
    };
    let (mut at, mut bytes) = (rows.start, 0);
    while at < rows.end.min(source.rows()) {
        let (group, first) = source.row_group_of(at);
        let start = source.row_group_start(group);
        let end = start + source.row_group_rows(group);
        let in_group = first..rows.end.min(end) - start;
        bytes += will_read_chunk(source, group, leaf, &in_group, read_on, cache, context);
        at = end;
    }
    bytes
}

/// Says that `rows` of all leaves of `source` are read soon: small row groups of which all rows are, so
/// that their chunks do not take a request each.
pub(crate) fn will_read_groups(source: &Source, rows: &Range<u64>) {
    if !source.store.takes_hints() {
        return;
    }
    let (first, _) = source.row_group_of(rows.start);
    for group in first..source.num_row_groups() {
        let start = source.row_group_start(group);
        if start >= rows.end {
            return;
        }
        let is_whole = rows.start <= start && source.row_group_start(group + 1) <= rows.end;
        if let Ok(bytes) = source.row_group_range(group)
            && is_whole
            && bytes.end <= bytes.start + SMALL_GROUP_BYTES
        {
            source.store.will_read(bytes.clone(), bytes.end);
        }
    }
}

/// Says that `rows` of one chunk, counted in its row group, are read soon; `leaf` is one of the source.
/// Gives their bytes.
pub(crate) fn will_read_chunk(
    source: &Source,
    group: usize,
    leaf: usize,
    rows: &Range<u64>,
    read_on: ReadOn,
    cache: &LocationCache,
    context: &Context,
) -> u64 {
    if !source.store.takes_hints() {
        return 0;
    }
    // Where these rows lie, and where what is read behind them ends.
    let find = || {
        let chunk = source.chunk_range(group, leaf).ok()?;
        if !Locations::has_index(source, group, leaf) {
            // Its pages are found one after the other: all are read.
            let end = chunk.end;
            return Some((chunk, end));
        }
        let locations = cache.find(source, group, leaf, context).ok()?;
        let (first, _) = locations.page_of(rows.start);
        let (last, _) = locations.page_of(rows.end.saturating_sub(1));
        let (first_page, last_page) = locations.pages.get(first).zip(locations.pages.get(last))?;
        // A dictionary lies before the first page.
        let start = match locations.dictionary {
            Some((offset, _)) if first == 0 => offset.min(first_page.offset),
            _ => first_page.offset,
        };
        let group_end = source.row_group_range(group).map_or(chunk.end, |bytes| bytes.end);
        let end = match read_on {
            ReadOn::Chunk => chunk.end,
            ReadOn::RowGroup => group_end.max(chunk.end),
        };
        Some((start..last_page.end(), end))
    };
    let Some((bytes, end)) = find() else { return 0 };
    let len = bytes.end - bytes.start;
    source.store.will_read(bytes, end);
    len
}

/// Stretches of rows that stores are given hints of ahead, at most, and their bytes, about.
const STRETCHES_AHEAD: usize = 64;
const AHEAD_BYTES: u64 = 4 << 20;

/// Rows that are not of a source and are read in one go with those around them: to open leaves anew
/// behind them would take longer.
const PASSED_ROWS_MAX: u64 = 4096;

/// Rows of one source that follow each other, but for few that are not of the source.
#[derive(Clone)]
pub(crate) struct SourceRows {
    pub(crate) source: usize,
    pub(crate) rows: Range<u64>,
}

/// Rows of sources, read one source after the other: gives what is read now, and hints at what comes.
///
/// ```text
/// a 0..9   a 9..12   b 0..9   b 9..15   c 0..7      stretches of at most 9 rows
/// read     hint      hint     hint                  up to 4 MB, or one
/// ```
pub(crate) struct RowsAhead<'a> {
    sources: &'a [Arc<Source>],
    rows: &'a [Range<u64>],
    leaves: &'a [OutputLeaf],
    read_on: ReadOn,
    rows_max: u64,
    /// The stretch that is next: a source, and a row of it if it was begun.
    next: (usize, Option<u64>),
    hinted: VecDeque<(SourceRows, u64)>,
    bytes: u64,
    /// The first source without a hint of its indexes.
    not_indexed: usize,
    cache: &'a LocationCache,
    context: &'a Context,
}

impl<'a> RowsAhead<'a> {
    /// All `leaves` of `rows` of each of `sources`, at most `rows_max` at once.
    pub(crate) fn new(
        sources: &'a [Arc<Source>],
        rows: &'a [Range<u64>],
        leaves: &'a [OutputLeaf],
        rows_max: u64,
        cache: &'a LocationCache,
        context: &'a Context,
    ) -> Self {
        Self {
            sources,
            rows,
            leaves,
            read_on: ReadOn::RowGroup,
            rows_max,
            next: (0, None),
            hinted: VecDeque::new(),
            bytes: 0,
            not_indexed: 0,
            cache,
            context,
        }
    }

    /// Of the leaves that are read, others lie between them.
    pub(crate) fn of_some_leaves(self) -> Self {
        Self { read_on: ReadOn::Chunk, ..self }
    }

    /// Shares the stretches among the threads of `workers`: each begins with a value of its own, and
    /// does `work` with it until no stretch is left. Gives these values. Once `work` fails, no further
    /// stretch begins.
    ///
    /// # Errors
    /// The first of `work`, by place, and the index of its source.
    pub(crate) fn fold<T: Send>(
        self,
        workers: &dyn Workers,
        begin: impl Fn() -> T + Sync,
        work: impl Fn(&mut T, &SourceRows) -> Result<()> + Sync,
    ) -> Result<Vec<T>, (usize, Error)> {
        let shared = Mutex::new(SharedStretches { ahead: self, given: 0, failed: None });
        let lock = || -> MutexGuard<'_, SharedStretches<'_>> {
            shared.lock().unwrap_or_else(PoisonError::into_inner)
        };
        let made = each(workers, workers.count(), |_| {
            let mut value = begin();
            loop {
                let Some((place, stretch)) = lock().next() else { break };
                if let Err(error) = work(&mut value, &stretch) {
                    lock().fail(place, (stretch.source, error));
                }
            }
            Ok(value)
        });
        let made = made.map_err(|error| (0, error))?;
        match shared.into_inner().unwrap_or_else(PoisonError::into_inner).failed {
            Some((_, failed)) => Err(failed),
            None => Ok(made),
        }
    }

    fn find_next(&mut self) -> Option<SourceRows> {
        loop {
            let (at, row) = self.next;
            let (source, rows) = (self.sources.get(at)?, self.rows.get(at)?);
            let live = source.next_rows(row.unwrap_or(rows.start));
            let most = rows.end.min(live.start.saturating_add(self.rows_max));
            if live.start < most.min(live.end) {
                let end = whole_groups(source, live.start..near_rows(source, &live, most));
                self.next = (at, Some(end));
                return Some(SourceRows { source: at, rows: live.start..end });
            }
            self.next = (at + 1, None);
        }
    }

    /// Says that indexes are read soon, without which nobody knows where rows are.
    fn will_read_indexes(&mut self, source: usize) {
        while self.not_indexed <= source + STRETCHES_AHEAD
            && let Some(source) = self.sources.get(self.not_indexed)
        {
            self.not_indexed += 1;
            if source.store.takes_hints()
                && let Some(bytes) = Locations::indexes(source)
            {
                source.store.will_read(bytes.clone(), bytes.end);
            }
        }
    }

    fn will_read(&mut self, stretch: &SourceRows) -> u64 {
        self.will_read_indexes(stretch.source);
        let Some(source) = self.sources.get(stretch.source) else { return 0 };
        if self.read_on == ReadOn::RowGroup {
            will_read_groups(source, &stretch.rows);
        }
        let of = |leaf| {
            will_read_rows(source, leaf, &stretch.rows, self.read_on, self.cache, self.context)
        };
        self.leaves.iter().map(of).sum()
    }
}

impl Iterator for RowsAhead<'_> {
    type Item = SourceRows;

    fn next(&mut self) -> Option<SourceRows> {
        // What is given is not ahead any more.
        while self.hinted.len() < 2
            || (self.hinted.len() <= STRETCHES_AHEAD && self.bytes < AHEAD_BYTES)
        {
            let Some(stretch) = self.find_next() else { break };
            let bytes = self.will_read(&stretch);
            self.bytes += bytes;
            self.hinted.push_back((stretch, bytes));
        }
        let (stretch, bytes) = self.hinted.pop_front()?;
        self.bytes -= bytes;
        Some(stretch)
    }
}

/// The end of `live` rows and of those that follow with few others between them, at most `most`.
fn near_rows(source: &Source, live: &Range<u64>, most: u64) -> u64 {
    let mut end = live.end.min(most);
    while end < most {
        let next = source.next_rows(end);
        if next.start >= most || next.start - end > PASSED_ROWS_MAX {
            break;
        }
        end = next.end.min(most);
    }
    end
}

/// The end of the last row group that ends in `rows`; that of `rows`, if none does. Who begins inside of a
/// chunk reads its dictionary and a page again.
fn whole_groups(source: &Source, rows: Range<u64>) -> u64 {
    let (last, in_group) = source.row_group_of(rows.end - 1);
    let is_whole = in_group + 1 == source.row_group_rows(last);
    let start = source.row_group_start(last);
    if is_whole || start <= rows.start { rows.end } else { start }
}

/// Rows of a stretch, at most, of which each of `threads` threads gets its share of `rows`.
pub(crate) fn shared_rows(rows: &[Range<u64>], threads: usize, bounds: Range<u64>) -> u64 {
    let all: u64 = rows.iter().map(|rows| rows.end - rows.start).sum();
    let share = if threads > 1 { all / threads as u64 / 2 } else { u64::MAX };
    share.max(bounds.start).min(bounds.end)
}

/// Stretches that threads take, each once, and the first that failed.
struct SharedStretches<'a> {
    ahead: RowsAhead<'a>,
    given: usize,
    /// Its place, its source and its error.
    failed: Option<(usize, (usize, Error))>,
}

impl SharedStretches<'_> {
    fn next(&mut self) -> Option<(usize, SourceRows)> {
        if self.failed.is_some() {
            return None;
        }
        let stretch = self.ahead.next()?;
        self.given += 1;
        Some((self.given, stretch))
    }

    fn fail(&mut self, place: usize, failed: (usize, Error)) {
        if self.failed.as_ref().is_none_or(|(first, _)| place < *first) {
            self.failed = Some((place, failed));
        }
    }
}
