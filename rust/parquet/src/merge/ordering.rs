//! Puts rows in order: keys in, batches of windows out, each to be written at once.
//!
//! ```text
//! Ask::Keys          read a batch of keys of one source
//! Ask::RowGroupStart is this whole row group next, alone, large enough? copy it : go on
//! Ask::Window        into the batch, until it is worth weaving, or a copy or an output's end comes
//! ```
//!
//! # Invariants
//! A source is open from its first key to its last: sources far apart are never open together. A
//! batch belongs to one output.
//!
//! # Cost
//! Four bytes a run of every batch that is not written yet, at most two of them.
//!
//! # Not here
//! Writing (`run`).

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use plait_core::SourceId;
use plait_core::plan::{Ask, Disorder, DropRule, Dropped, OrderCheck, Window, WindowRule, Windows};
use plait_core::{Error, Kind, Result};

use super::clash::clashing;
use super::prepare::Prepared;
use super::sizes::{Sizes, Written};
use crate::chunk;
use crate::combine::SharedRuns;
use crate::drops::MarkReader;
use crate::keys::{KeyLeaves, KeyReader, key_at};
use crate::options::{MergeOptions, Tier, VerifyOrder};
use crate::order::{find_disorder, unsorted};
use crate::plan::COPY_SHARE_MIN;
use crate::runtime::{Charge, Context};
use crate::sink::KEY_INDEX_ROWS;
use crate::source::Source;
use crate::spill::{ScratchFiles, Waiting};

/// Stretches shorter than this have no whole pages worth a row group of their own.
const OWNER_ROWS_MIN: u64 = 4096;

/// Encoded bytes of a leaf of a source that are worth opening it for: a few pages, and perhaps a
/// dictionary.
const CURSOR_BYTES: u64 = 2 << 20;

/// Most encoded bytes that are woven together: packed, most of them wait on disk.
const BATCH_BYTES_MAX: u64 = 512 << 20;

/// The first keys of so many sources are requested before they are reached.
const SOURCES_AHEAD: usize = 64;

/// Bytes of a row that is combined with others. A key with more rows than fit is refused.
const GROUP_ROW_BYTES: usize = 8;

/// What is written next.
pub(super) struct Batch {
    /// Windows that are woven together: pages of sources that end in one go on in the next.
    pub(super) windows: Vec<Window>,
    /// A row group to be copied behind them.
    pub(super) copy: Option<Window>,
    /// The output ends then.
    pub(super) ends_output: bool,
    /// Where its chunks wait.
    pub(super) waiting: Arc<Waiting>,
    /// What its leaves have in common where rows are combined.
    pub(super) shared: SharedRuns,
    rows: u64,
    /// Bytes of the steps of its windows.
    steps_bytes: usize,
    charge: Charge,
}

impl Batch {
    /// Whether it does nothing but end an output.
    pub(super) fn is_empty_but_for_its_end(&self) -> bool {
        self.windows.is_empty() && self.copy.is_none()
    }

    fn is_empty(&self) -> bool {
        self.windows.is_empty() && self.copy.is_none() && !self.ends_output
    }
}

/// The merge order of all sources.
pub(super) struct Ordering<'a> {
    prepared: &'a Prepared<'a>,
    options: &'a MergeOptions,
    context: &'a Context,
    windows: Windows,
    cursors: Vec<KeyCursor>,
    /// Sources whose first keys are not requested yet, in the order in which they come.
    coming: std::vec::IntoIter<SourceId>,
    scratch: Arc<ScratchFiles>,
    /// Encoded bytes of windows that are woven together.
    batch_bytes: u64,
    sizes: Sizes,
    /// Rows of a row group that the memory limit allows, where more were asked for.
    pub(super) rows_by_memory: Option<u64>,
    /// Time spent here.
    pub(super) seconds: f64,
}

struct KeyCursor {
    reader: Option<KeyReader>,
    marks: Option<MarkReader>,
    /// Where the reader is opened next.
    next_row: u64,
    /// The row behind the last one that is merged, and the one behind the rows that follow `next_row`
    /// without a gap.
    end_row: u64,
    stretch_end: u64,
    /// First row of the row group that begins with the batch supplied last.
    start: u64,
}

impl KeyCursor {
    /// Goes on behind the rows that the source passes over; returns how many these are.
    fn enter_stretch(&mut self, source: &Source) -> u64 {
        if self.next_row < self.stretch_end {
            return 0;
        }
        let rows = source.next_rows(self.next_row);
        let before = std::mem::replace(&mut self.next_row, rows.start.min(self.end_row));
        self.stretch_end = rows.end.min(self.end_row);
        self.next_row - before
    }
}

impl<'a> Ordering<'a> {
    pub(super) fn new(
        prepared: &'a Prepared<'a>,
        options: &'a MergeOptions,
        context: &'a Context,
    ) -> Result<Self> {
        let started = Instant::now();
        let rule = window_rule(prepared, options);
        let check = match options.assume_sorted {
            true => OrderCheck::Skip,
            false => OrderCheck::Full,
        };
        let shape = prepared.keys.read_shape().clone();
        let mut windows = Windows::new(shape, prepared.sources.len(), rule, check);
        if let Some(drops) = &prepared.drops {
            let group_rows_max = prepared.sizes.group_bytes / GROUP_ROW_BYTES;
            windows.drop_rows(DropRule { group_rows_max, ..drops.rule.clone() });
        }
        for (source, rows) in prepared.sources.iter().zip(&prepared.rows) {
            match rows.is_empty() {
                true => windows.end(source.id),
                false => windows.begin_at(source.id, rows.start),
            }
        }
        for (source, first_key) in &prepared.first_keys {
            windows.announce(*source, first_key);
        }
        let cursor = |rows: &Range<u64>| KeyCursor {
            reader: None,
            marks: None,
            next_row: rows.start,
            end_row: rows.end,
            stretch_end: rows.start,
            start: rows.start,
        };
        let cursors = prepared.rows.iter().map(cursor);
        let mut ordering = Self {
            prepared,
            options,
            context,
            windows,
            cursors: cursors.collect(),
            coming: in_order(prepared).into_iter(),
            scratch: ScratchFiles::new(&prepared.target().scratch(), context),
            batch_bytes: batch_bytes(prepared),
            sizes: Sizes::new(&prepared.sources),
            rows_by_memory: None,
            seconds: 0.0,
        };
        ordering.size_window();
        (0..SOURCES_AHEAD).for_each(|_| ordering.will_read_next_source());
        ordering.seconds = started.elapsed().as_secs_f64();
        Ok(ordering)
    }

    /// Says that the first keys of another source are read soon.
    fn will_read_next_source(&mut self) {
        let Prepared { sources, rows, keys, cache, sizes, .. } = self.prepared;
        let Some(next) = self.coming.next() else { return };
        if let (Some(source), Some(rows)) = (sources.get(next.index()), rows.get(next.index())) {
            let first = rows.start..rows.end.min(rows.start + sizes.key_rows as u64);
            keys.will_read(source, &first, cache, self.context);
        }
    }

    /// The next batch; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Batch>> {
        let started = Instant::now();
        let outcome = self.fill();
        self.seconds += started.elapsed().as_secs_f64();
        outcome
    }

    /// Learns how large what was written of a batch became.
    pub(super) fn learn(&mut self, written: Written) {
        self.sizes.learn(written);
        self.size_window();
    }

    fn fill(&mut self) -> Result<Option<Batch>> {
        let mut batch = Batch {
            windows: Vec::new(),
            copy: None,
            ends_output: false,
            waiting: Arc::new(Waiting::new(
                &self.scratch,
                self.prepared.sizes.waiting_bytes,
                self.prepared.sizes.spill_bytes,
            )),
            shared: SharedRuns::new(self.prepared.sizes.shared_bytes, self.context),
            rows: 0,
            steps_bytes: 0,
            charge: self.context.charge(0),
        };
        loop {
            match self.windows.next()? {
                Ask::Keys(source) => {
                    batch.charge.set(batch.steps_bytes + self.windows.memory_size());
                    self.supply(source)?;
                }
                Ask::RowGroupStart(source) => self.copy_or_enter(source)?,
                Ask::Window(window) => {
                    let is_enough = self.add(window, &mut batch)?;
                    self.size_window();
                    if is_enough {
                        return Ok(Some(batch));
                    }
                }
                Ask::Clash(clash) => return Err(clashing(self.prepared, clash, self.context)?),
                Ask::Done => return Ok(Some(batch).filter(|batch| !batch.is_empty())),
            }
        }
    }

    /// Adds a window to `batch`. Whether the batch is complete.
    fn add(&mut self, mut window: Window, batch: &mut Batch) -> Result<bool> {
        self.read_end_keys(&mut window)?;
        store_encoded(&self.prepared.keys, &mut window)?;
        batch.ends_output = window.ends_output;
        let (is_copy, is_empty) = (window.is_copy, window.steps.is_empty());
        if is_copy {
            batch.copy = Some(window);
        } else if !is_empty {
            batch.rows += window.steps.rows();
            batch.steps_bytes += window.steps.memory_size() + window.groups.memory_size();
            batch.windows.push(window);
        }
        let encoded = batch.rows as f64 * self.sizes.encoded_per_row;
        Ok(batch.ends_output
            || is_copy
            || encoded >= self.batch_bytes as f64
            || batch.steps_bytes >= self.prepared.sizes.batch_steps_bytes)
    }

    /// Where rows are dropped, the first and the last that leave say what the keys are.
    fn read_end_keys(&self, window: &mut Window) -> Result<()> {
        let rows = (window.steps.first_row(), window.steps.last_row());
        let (Some(first), Some(last), Some(_)) = (rows.0, rows.1, &self.prepared.drops) else {
            return Ok(());
        };
        let key = |(id, row): (SourceId, u64)| {
            let (keys, cache) = (&self.prepared.keys, &self.prepared.cache);
            key_at(self.source(id)?, keys, row, cache, self.context)
        };
        (window.first_key, window.last_key) = (key(first)?, key(last)?);
        Ok(())
    }

    /// Rows that were dropped so far.
    pub(super) fn dropped(&mut self) -> Dropped {
        self.windows.dropped()
    }

    fn source(&self, id: SourceId) -> Result<&Arc<Source>> {
        self.prepared
            .sources
            .get(id.index())
            .ok_or_else(|| Error::new(Kind::Internal, "the plan names a source that is not there"))
    }

    fn supply(&mut self, id: SourceId) -> Result<()> {
        self.context.check_cancelled()?;
        let source = Arc::clone(self.source(id)?);
        let prepared = self.prepared;
        if self.cursors[id.index()].reader.is_none() {
            self.will_read_next_source();
        }
        let cursor = &mut self.cursors[id.index()];
        let passed_over = cursor.enter_stretch(&source);
        let left = cursor.stretch_end.saturating_sub(cursor.next_row);
        if cursor.reader.is_none() && left > 0 {
            cursor.reader = Some(KeyReader::open(
                &source,
                &prepared.keys,
                cursor.next_row,
                &prepared.cache,
                self.context,
            )?);
        }
        let row = cursor.next_row;
        let batch = match &mut cursor.reader {
            Some(reader) if left > 0 => {
                if reader.row() < row {
                    reader.skip_to(row)?;
                }
                let rows_max = usize::try_from(left).unwrap_or(usize::MAX);
                reader.next(prepared.sizes.key_rows.min(rows_max))?
            }
            _ => None,
        };
        let Some((keys, starts)) = batch else {
            (cursor.reader, cursor.marks) = (None, None);
            self.windows.end(id);
            return Ok(());
        };
        self.windows.pass_over(id, passed_over);
        let mut marks = None;
        if let Some(drops) = &prepared.drops {
            let reader = match cursor.marks.take() {
                Some(mut reader) => {
                    reader.skip_to(row)?;
                    reader
                }
                None => MarkReader::open(drops, &source, row, &prepared.cache, self.context)?,
            };
            marks = Some(cursor.marks.insert(reader).next(drops, keys.len())?);
        }
        cursor.next_row = row + keys.len() as u64;
        cursor.start = row;
        let soon = cursor.next_row..(cursor.next_row + keys.len() as u64).min(cursor.stretch_end);
        prepared.keys.will_read(&source, &soon, &prepared.cache, self.context);
        let (row_group, _) = source.row_group_of(row);
        // Rows of a selection begin and end inside of row groups.
        let is_whole = row + source.row_group_rows(row_group) <= cursor.stretch_end;

        let is_start = starts && is_whole && self.is_worth_copying(&source, row_group);
        self.windows.supply(id, keys, is_start).map_err(|Disorder { row, before, after }| {
            unsorted(&source, &prepared.keys, row, &before, &after)
        })?;
        if let Some(marks) = marks {
            self.windows.mark(id, marks);
        }
        Ok(())
    }

    fn is_worth_copying(&self, source: &Source, row_group: usize) -> bool {
        let Ok(footer) = source.footer() else { return false };
        let Some(group) = footer.row_groups().get(row_group) else { return false };
        let rows = source.row_group_rows(row_group);
        let bytes = group.total_byte_size().max(0).unsigned_abs();
        let (rows_max, bytes_max) = (self.options.row_group_rows, self.options.row_group_size);
        let is_large = rows >= rows_max / COPY_SHARE_MIN || bytes >= bytes_max / COPY_SHARE_MIN;
        let fits = rows <= rows_max && bytes <= bytes_max.saturating_add(bytes_max / 2);
        is_large
            && fits
            && self.options.copy_tiers.contains(&Tier::Chunk)
            && chunk::can_copy(source, row_group, &self.prepared.leaves, self.options)
    }

    fn copy_or_enter(&mut self, id: SourceId) -> Result<()> {
        let source = Arc::clone(self.source(id)?);
        let start = self.cursors[id.index()].start;
        let (row_group, _) = source.row_group_of(start);
        let rows = source.row_group_rows(row_group);
        let prepared = self.prepared;
        let last_row = start + rows - 1;
        let last = key_at(&source, &prepared.keys, last_row, &prepared.cache, self.context)?;
        if !self.windows.can_copy(id, &last)? {
            if prepared.combine.is_some() {
                // Pages of one column chunk are copied with its dictionary, those of two are not.
                let most = self.prepared.sizes.combined_rows.min(self.options.row_group_rows);
                self.windows.cut(id, (rows + rows / 8).min(most))?;
            }
            self.windows.enter(id);
            return Ok(());
        }
        self.check_order(&source, row_group, &last)?;
        self.windows.copy(id, start, rows, &last)?;
        let cursor = &mut self.cursors[id.index()];
        cursor.reader = None;
        cursor.next_row = start + rows;
        Ok(())
    }

    /// Checks the order inside a row group that is copied without being merged.
    fn check_order(&self, source: &Arc<Source>, row_group: usize, last: &[u8]) -> Result<()> {
        let prepared = self.prepared;
        if self.options.assume_sorted || prepared.order().is_empty() {
            return Ok(());
        }
        let start = source.row_group_start(row_group);
        let end = start + source.row_group_rows(row_group);
        if self.options.verify_order == VerifyOrder::Bounds
            && pages_ascend(source, row_group, prepared)?
        {
            let first = key_at(source, &prepared.keys, start, &prepared.cache, self.context)?;
            return match first.as_slice() <= last {
                true => Ok(()),
                false => Err(unsorted(source, &prepared.keys, end - 1, &first, last)),
            };
        }
        let (keys, cache) = (&prepared.keys, &prepared.cache);
        let rows_at_once = prepared.sizes.key_rows;
        match find_disorder(source, keys, start..end, rows_at_once, cache, self.context)? {
            Some(Disorder { row, before, after }) => {
                Err(unsorted(source, &prepared.keys, row, &before, &after))
            }
            None => Ok(()),
        }
    }

    /// Tells the windows how many rows the next row group may have.
    fn size_window(&mut self) {
        let by_bytes = self.options.row_group_size as f64 / self.sizes.encoded_per_row;
        let asked = (by_bytes.max(1.0) as u64).min(self.options.row_group_rows);
        let sizes = &self.prepared.sizes;
        let allowed = match &self.prepared.combine {
            None => sizes.window_rows,
            Some(_) => sizes.combined_rows,
        };
        let rows_max = asked.min(allowed);
        let left = self.windows.rows_left().max(1);
        let default = MergeOptions::default();
        let is_asked = (self.options.row_group_rows, self.options.row_group_size)
            != (default.row_group_rows, default.row_group_size);
        if is_asked && allowed < asked.min(left) {
            self.rows_by_memory = Some(allowed);
        }
        // Equal row groups instead of full ones and a small rest.
        let groups = left.div_ceil(rows_max);
        self.windows.set_rows_max(if groups == 1 { rows_max } else { left.div_ceil(groups) });
    }
}

/// Sources with rows in the order of their first keys; first those of which none is known.
fn in_order(prepared: &Prepared<'_>) -> Vec<SourceId> {
    let mut known: Vec<_> = prepared.first_keys.iter().collect();
    known.sort_by(|(_, a), (_, b)| a.cmp(b));
    let known: Vec<SourceId> = known.into_iter().map(|(source, _)| *source).collect();
    let is_known: HashSet<usize> = known.iter().map(|source| source.index()).collect();
    let with_rows =
        prepared.sources.iter().zip(&prepared.rows).filter(|(_, rows)| !rows.is_empty());
    let others = with_rows.map(|(source, _)| source.id);
    others.filter(|source| !is_known.contains(&source.index())).chain(known).collect()
}

/// How row groups end.
fn window_rule(prepared: &Prepared<'_>, options: &MergeOptions) -> WindowRule {
    WindowRule {
        align_columns: prepared.frame.align_columns(options),
        rows: prepared.all_rows(),
        owner_rows: match options.copy_tiers.contains(&Tier::Page) {
            true => (options.page_rows / 2).max(OWNER_ROWS_MIN),
            false => 0,
        },
        sample_every: if prepared.order().is_empty() { 0 } else { KEY_INDEX_ROWS },
        groups_bytes: prepared.sizes.group_bytes,
    }
}

/// How many encoded bytes to weave together: every source has a cursor in every leaf, which starts
/// and ends in the middle of a page.
fn batch_bytes(prepared: &Prepared<'_>) -> u64 {
    let depth = prepared.regions.iter().map(|region| region.depth_max).max().unwrap_or(1);
    let cursors = depth.max(1) as u64 * prepared.leaves.len() as u64;
    cursors.saturating_mul(CURSOR_BYTES).min(BATCH_BYTES_MAX)
}

/// Makes the keys of a window those that files hold.
fn store_encoded(keys: &KeyLeaves, window: &mut Window) -> Result<()> {
    if keys.ranks.is_some() && !window.steps.is_empty() {
        window.first_key = keys.stored(&window.first_key)?;
        window.last_key = keys.stored(&window.last_key)?;
        for (_, key) in &mut window.samples {
            *key = keys.stored(key)?;
        }
    }
    Ok(())
}

/// Whether the column index says that pages of the first key column are in order. Only what it
/// says for values that are not cut short counts: integers, floats, booleans.
fn pages_ascend(source: &Source, row_group: usize, prepared: &Prepared<'_>) -> Result<bool> {
    use parquet::basic::{BoundaryOrder, Type as Physical};
    use parquet::file::page_index::index_reader::decode_column_index;
    let Some(leaf) = prepared.keys.leaves.first() else { return Ok(true) };
    let Some(column) = prepared.order().plain().first() else { return Ok(false) };
    let Some(index) = leaf.adapter(source.id)?.leaf() else { return Ok(false) };
    let physical = source.leaf(index).physical_type();
    let is_cut = matches!(physical, Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY);
    let Some(bytes) = source.column_index(row_group, index)? else {
        return Ok(false);
    };
    let index = crate::page::guard(|| decode_column_index(&bytes, physical));
    let Ok(Ok(index)) = index else { return Ok(false) };
    let wanted =
        if column.descending { BoundaryOrder::DESCENDING } else { BoundaryOrder::ASCENDING };
    Ok(!is_cut && index.get_boundary_order() == Some(wanted))
}
