//! The rows of one file that are asked for, window by window, from its start or from its end.
//!
//! ```text
//! ranges that may be asked for ─▶ window ─▶ columns of conditions ─▶ rows for which they hold
//!                                                    │                        │
//!                                                    └─ none: next window     └─▶ other columns
//! ```
//!
//! # Invariants
//! Between two windows no page is held, unless the whole file is read forwards and its pages fit
//! (`open_group`). Rows come in the order of the file, or exactly in reverse.
//! A batch has no more rows than fit, whatever a window has: the rest of the window is read again.
//!
//! # Cost
//! The pages of a window, those of conditions first. Windows begin small where few rows are wanted
//! and grow, those of conditions alone to more rows than a batch; a page in which one ends is
//! unpacked once more, if it was not held.
//!
//! # Not here
//! Which ranges (`prune`); which file is read when (`ahead`).

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_select::filter::filter_record_batch;
use plait_core::{Error, Result};

use super::decode::{in_group, reversed};
use super::file::{ReadClass, ReadFile};
use super::open_group::OpenPages;
use super::ranges::{count, selected, split};
use super::shared::{Conditions, ReadShared, mask};
use super::sizes::{WindowSizes, are_row_bytes_known, row_bytes};
use super::spilled::SpilledRows;
use crate::arrow_file::FileSchema;
use crate::source::Source;

/// A file on its way.
pub(super) struct WindowCursor {
    file: Arc<ReadFile>,
    shared: Arc<ReadShared>,
    /// Rows that were not looked at; none before the first window.
    left: Option<Vec<Range<u64>>>,
    /// Candidates of the next window.
    step: u64,
    /// Candidates that fit: their columns of conditions, as far as they are known.
    tested_max: u64,
    /// Rows of the next batch, at most.
    given_max: u64,
    /// The row group whose pages stay open.
    open: Option<OpenPages>,
    /// The row group of the last window.
    group: Option<usize>,
    /// Bytes of the rows of a window that is spilled, if windows are.
    spills: Option<usize>,
    spilled: SpilledRows,
}

impl WindowCursor {
    pub(super) fn new(file: Arc<ReadFile>, shared: Arc<ReadShared>) -> Self {
        let tested_max = shared.sizes.rows_max;
        let spilled = SpilledRows::new(&shared.spill);
        Self {
            file,
            shared,
            left: None,
            step: 0,
            tested_max,
            given_max: 0,
            open: None,
            group: None,
            spills: None,
            spilled,
        }
    }

    /// The next rows, in the schema of all, and the bytes that they have.
    ///
    /// # Errors
    /// Whatever is wrong with the file, with its path.
    pub(super) fn next(&mut self) -> Result<Option<(RecordBatch, usize)>> {
        if !self.spilled.is_empty() {
            return self.spilled.next();
        }
        if self.spills.is_some() && !self.shared.spill.is_usable() {
            self.end_spilling()?;
        }
        let batch = self.step().map_err(|e| e.with_path(self.file.known.path()))?;
        let Some(batch) = batch else { return Ok(None) };
        let (sizes, bytes) = (&self.shared.sizes, batch.get_array_memory_size());
        if self.spills.is_none() || bytes <= sizes.batch_bytes {
            return Ok(Some((batch, bytes)));
        }
        let rows = usize::try_from(sizes.rows_that_fit(sizes.batch_bytes, &batch));
        self.spilled.push(&batch, rows.unwrap_or(usize::MAX))?;
        drop(batch);
        self.spilled.next()
    }

    fn step(&mut self) -> Result<Option<RecordBatch>> {
        let source = Arc::clone(&self.file.known.source);
        let _footer = source.footer()?; // decoded once for all that is read of it here
        if self.left.is_none() {
            self.begin(&source)?;
        }
        loop {
            self.shared.context.check_cancelled()?;
            if self.file.class.adapted.tested.is_none() && self.is_in_new_group() {
                self.begin_spilling(&source)?;
            }
            let Some((group, rows)) = self.window() else { break };
            self.will_read_next(count(&rows));
            let Some(batch) = self.read(&source, group, &rows)? else { continue };
            return if self.shared.reverse { reversed(&batch).map(Some) } else { Ok(Some(batch)) };
        }
        self.file.known.source.store.check_read()?;
        Ok(None)
    }

    /// Finds the rows, and how many of them fit at first.
    fn begin(&mut self, source: &Arc<Source>) -> Result<()> {
        self.shared.counts.open();
        self.file.known.check_unchanged()?;
        let (sizes, adapted) = (&self.shared.sizes, &self.file.class.adapted);
        self.given_max = sizes.first_given(row_bytes(source, &adapted.leaves)?);
        self.step = match &adapted.tested {
            Some(tested) => sizes.first_tested(row_bytes(source, &tested.leaves)?),
            None => self.given_max,
        };
        self.left = Some(self.file.left(&self.shared)?.rows);
        Ok(())
    }

    /// The row group in which the next window lies; none behind the last.
    fn next_group(&self) -> Option<usize> {
        let left = self.left.as_ref()?;
        let row = match self.shared.reverse {
            true => left.last()?.end - 1,
            false => left.first()?.start,
        };
        Some(self.file.known.source.row_group_of(row).0)
    }

    fn is_in_new_group(&mut self) -> bool {
        let next = self.next_group();
        std::mem::replace(&mut self.group, next) != next
    }

    /// Spills the windows that follow, where windows of the usual size would decode pages anew too often.
    fn begin_spilling(&mut self, source: &Arc<Source>) -> Result<()> {
        let (sizes, class) = (&self.shared.sizes, &self.file.class);
        let adapted = &class.adapted;
        let is_possible = self.spills.is_none() && self.shared.spill.is_usable();
        let (Some(bytes), Some(group)) =
            (sizes.spilled_bytes.filter(|_| is_possible), self.next_group())
        else {
            return Ok(());
        };
        let row_bytes = self.row_bytes(source)?;
        let window = sizes.rows_of(sizes.batch_bytes, row_bytes);
        if self.left.iter().flatten().map(|range| range.end - range.start).sum::<u64>()
            < SPILLED_WINDOWS_MIN * window
        {
            return Ok(());
        }
        let located = self.file.located(&self.shared, source, &class.schema);
        let may_hold = adapted.tested.is_none() && !self.shared.reverse && sizes.held_bytes > 0;
        if (may_hold && located.held_bytes(group, &adapted.leaves)? <= sizes.held_bytes)
            || located.decodings(group, &adapted.leaves, window)? < SPILLED_DECODINGS_MIN
        {
            return Ok(());
        }
        self.spills = Some(bytes);
        // Otherwise the first window is small, since rows may be wider than it seems.
        if self.shared.spill.row_bytes() > 0 && are_row_bytes_known(source, &adapted.leaves)? {
            self.given_max = sizes.rows_of(bytes, row_bytes);
        }
        if adapted.tested.is_none() {
            self.step = self.given_max;
        }
        Ok(())
    }

    /// Bytes of a row, by the footer and by what was decoded of any file.
    fn row_bytes(&self, source: &Source) -> Result<u64> {
        let of_footer = row_bytes(source, &self.file.class.adapted.leaves)?;
        Ok(of_footer.max(self.shared.spill.row_bytes()))
    }

    /// Reads in windows of the usual size again.
    fn end_spilling(&mut self) -> Result<()> {
        let row_bytes = self.row_bytes(&self.file.known.source)?;
        let sizes = &self.shared.sizes;
        self.spills = None;
        self.given_max = self.given_max.min(sizes.rows_of(sizes.batch_bytes, row_bytes));
        self.tested_max = self.tested_max.min(sizes.rows_of(sizes.tested_bytes, row_bytes));
        self.step = self.step.min(self.given_max);
        Ok(())
    }

    /// Says which rows are read behind a window of so many rows; those before a limit may be all.
    fn will_read_next(&self, rows: u64) {
        if let Some(left) = self.left.as_ref().filter(|_| !self.shared.sizes.is_limited) {
            self.file.will_read_next(&self.shared, left, rows);
        }
    }

    /// Says which rows are read first.
    pub(super) fn will_read_first(&self) {
        self.file.will_read_first(&self.shared);
    }

    /// Takes the rows of the next window, which lie in one row group.
    fn window(&mut self) -> Option<(usize, Vec<Range<u64>>)> {
        let left = self.left.as_mut()?;
        let source = &self.file.known.source;
        let (mut room, mut taken) = (self.step, Vec::new());
        if self.shared.reverse {
            let last = left.last()?.end - 1;
            let (group, _) = source.row_group_of(last);
            let start = source.row_group_start(group);
            while let Some(range) = left.last_mut().filter(|r| room > 0 && r.end > start) {
                let from = range.start.max(start).max(range.end.saturating_sub(room));
                room -= range.end - from;
                taken.push(from..range.end);
                range.end = from;
                if range.is_empty() {
                    left.pop();
                }
            }
            taken.reverse();
            return Some((group, taken));
        }
        let (group, _) = source.row_group_of(left.first()?.start);
        let end = source.row_group_start(group) + source.row_group_rows(group);
        let mut done = 0;
        for range in left.iter_mut() {
            if room == 0 || range.start >= end {
                break;
            }
            let to = range.end.min(end).min(range.start.saturating_add(room));
            room -= to - range.start;
            taken.push(range.start..to);
            range.start = to;
            done += usize::from(range.is_empty());
        }
        left.drain(..done);
        Some((group, taken))
    }

    /// Makes the next window and batch larger: to what fits, as far as the last batch tells.
    fn grow(&mut self, batch: Option<&RecordBatch>) {
        let sizes: &WindowSizes = &self.shared.sizes;
        let grown = |rows: u64| rows.saturating_mul(WindowSizes::GROWTH);
        let window = self.open.as_ref().and_then(OpenPages::window);
        if let Some(batch) = batch {
            let usual = window.map_or(sizes.batch_bytes, |_| sizes.held_batch_bytes());
            let bytes = self.spills.unwrap_or(usual);
            self.shared.spill.note_rows(batch);
            let fits = sizes.rows_that_fit(bytes, batch);
            self.given_max = grown(self.given_max).min(fits);
        }
        let most = match self.file.class.adapted.tested {
            Some(_) => self.tested_max,
            None => self.given_max,
        };
        self.step = grown(self.step).min(most).max(WindowSizes::ROWS_MIN);
        if let Some(window) = window {
            // Opening anew unpacks pages again: not for windows of nearly the same size.
            let is_near = self.step < 2 * window && 4 * self.step >= 3 * window;
            match is_near {
                true => self.step = window,
                false => self.open = None,
            }
        }
    }

    /// Puts rows back that were not given.
    fn put_back(&mut self, rows: Vec<Range<u64>>) {
        let Some(left) = self.left.as_mut() else { return };
        if self.shared.reverse {
            left.extend(rows);
        } else {
            left.splice(0..0, rows);
        }
    }

    /// The rows of a window for which all conditions hold, or as many of them as fit; none if there
    /// are none.
    fn read(
        &mut self,
        source: &Arc<Source>,
        group: usize,
        rows: &[Range<u64>],
    ) -> Result<Option<RecordBatch>> {
        let class = Arc::clone(&self.file.class);
        let ReadClass { schema: own, adapted, .. } = &*class;
        let shared = Arc::clone(&self.shared);
        let first = rows.first().map_or(0, |range| range.start);
        let (Some(tested), Some(Conditions { filter, .. })) = (&adapted.tested, &shared.conditions)
        else {
            shared.counts.add_candidates(count(rows));
            let batch = match self.read_on(source, own, group, rows, &adapted.leaves)? {
                Some(batch) => batch,
                None => self.file.decode(&shared, source, own, group, rows, &adapted.leaves)?,
            };
            let batch = adapted.adapter.apply_at(&batch, first)?;
            self.grow(Some(&batch));
            return Ok(Some(batch));
        };
        let coded = tested.coded.as_ref().filter(|coded| coded.are_in(source, group));
        let schema = coded.map_or(own, |coded| &coded.schema);
        let mut batch = self.file.decode(&shared, source, schema, group, rows, &tested.leaves)?;
        let mut mask = match coded {
            Some(coded) => mask(filter, &coded.columns(&batch), batch.num_rows())?,
            None => {
                let batch = tested.adapter.apply_at(&batch, first)?;
                mask(filter, batch.columns(), batch.num_rows())?
            }
        };
        self.tested_max = match self.spills {
            // All columns of candidates are decoded where many of them hold.
            Some(bytes) => shared.sizes.rows_of(bytes, self.row_bytes(source)?),
            None => shared.sizes.rows_that_fit(shared.sizes.tested_bytes, &batch),
        };
        let (rows, rest) = self.cut(rows, &mask);
        let candidates = count(&rows);
        let is_cut = !rest.is_empty();
        if is_cut {
            let len = usize::try_from(candidates).unwrap_or(usize::MAX);
            let from = if shared.reverse { mask.len().saturating_sub(len) } else { 0 };
            (mask, batch) = (mask.slice(from, len), batch.slice(from, len));
            self.put_back(rest);
        }
        let first = rows.first().map_or(0, |range| range.start);
        let found = mask.true_count();
        shared.counts.add_candidates(candidates);
        shared.counts.add_filtered(candidates - found as u64);
        if found == 0 {
            self.grow(None);
            return Ok(None);
        }
        let batch = if tested.leaves == adapted.leaves {
            filter_record_batch(&batch, &mask).map_err(Error::from_arrow)?
        } else {
            let kept = selected(&rows, &mask);
            // Short ranges cost more than the rows between them.
            let few = kept.len() as u64 * RANGE_ROWS < candidates;
            if few {
                self.file.decode(&shared, source, own, group, &kept, &adapted.leaves)?
            } else {
                let batch =
                    self.file.decode(&shared, source, own, group, &rows, &adapted.leaves)?;
                filter_record_batch(&batch, &mask).map_err(Error::from_arrow)?
            }
        };
        let batch = adapted.adapter.apply_at(&batch, first)?;
        if is_cut {
            shared.spill.note_rows(&batch);
            self.begin_spilling(source)?;
        }
        self.grow(Some(&batch));
        if is_cut {
            // What follows holds as often, probably.
            self.step = self.step.min(self.given_max.max(WindowSizes::ROWS_MIN));
        }
        Ok(Some(batch))
    }

    /// The candidates up to the last row that fits into a batch, and those behind it.
    fn cut(
        &self,
        rows: &[Range<u64>],
        mask: &arrow_array::BooleanArray,
    ) -> (Vec<Range<u64>>, Vec<Range<u64>>) {
        let most = usize::try_from(self.given_max).unwrap_or(usize::MAX).max(1);
        let found = mask.true_count();
        if found <= most {
            return (rows.to_vec(), Vec::new());
        }
        let mut holding = mask.values().set_indices();
        if self.shared.reverse {
            let first = holding.nth(found - most).unwrap_or(0);
            let (rest, kept) = split(rows, first as u64);
            (kept, rest)
        } else {
            let last = holding.nth(most - 1).unwrap_or(0);
            split(rows, last as u64 + 1)
        }
    }

    /// The rows of a window of pages that stay open; none where they do not.
    fn read_on(
        &mut self,
        source: &Arc<Source>,
        schema: &FileSchema,
        group: usize,
        rows: &[Range<u64>],
        leaves: &[usize],
    ) -> Result<Option<RecordBatch>> {
        let bytes_max = self.shared.sizes.held_bytes;
        let is_held = !self.shared.reverse && bytes_max > 0 && self.spills.is_none();
        if !is_held || leaves.is_empty() || schema.has_int96() {
            return Ok(None);
        }
        if !self.open.as_ref().is_some_and(|open| open.is(group)) {
            let end = source.row_group_start(group) + source.row_group_rows(group);
            let others = self.left.iter().flatten().take_while(|range| range.start < end);
            let others = others.map(|range| range.start..range.end.min(end));
            let all: Vec<_> = rows.iter().cloned().chain(others).collect();
            if count(&all) == count(rows) {
                return Ok(None);
            }
            let all = in_group(source, group, &all);
            let located = self.file.located(&self.shared, source, schema);
            let window = count(rows);
            self.open = Some(OpenPages::open(&located, group, &all, leaves, window, bytes_max)?);
        }
        self.open.as_mut().map_or(Ok(None), |open| open.next(rows))
    }
}

/// Rows are spilled where their pages are decoded so often otherwise, and where so many windows follow.
const SPILLED_DECODINGS_MIN: u64 = 3;
const SPILLED_WINDOWS_MIN: u64 = 2;

/// Where so many rows are left out for each range, ranges are read alone.
const RANGE_ROWS: u64 = 32;
