//! The main loop: keys in, windows out, each written as one row group.
//!
//! ```text
//! Ask::Keys          read a batch of keys of one source
//! Ask::RowGroupStart is this whole row group next, alone, large enough? copy it : go on
//! Ask::Window        weave or copy ─▶ row group; the output may end
//! ```
//!
//! # Invariants
//! A source is open from its first key to its last: sources far apart are never open together.
//!
//! # Not here
//! Publishing (`publish`).

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use plait_core::plan::{Ask, CutRule, Disorder, Merge, Step, Window, Windows};
use plait_core::run::{Runs, SourceId};
use plait_core::{Error, Kind, Result};

use super::prepare::Prepared;
use super::tail::largest_cut_keys;
use crate::chunk;
use crate::context::{Charge, Context};
use crate::keys::{KeyLeaves, KeyReader, key_at};
use crate::options::{MergeOptions, Tier, VerifyOrder};
use crate::order::unsorted;
use crate::pool::Pool;
use crate::report::{Copied, Times};
use crate::sink::{Finished, KEY_INDEX_ROWS, Output};
use crate::source::Source;
use crate::weave::{Loom, Tiers};

/// Row groups smaller than this share of the asked-for size are merged with their neighbours
/// instead of copied: copying must not keep a lake of small row groups small.
const COPY_SHARE_MIN: u64 = 8;

/// Stretches shorter than this have no whole pages worth a row group of their own.
const OWNER_ROWS_MIN: u64 = 4096;

/// What a run made.
pub(super) struct Made {
    pub(super) outputs: Vec<Finished>,
    pub(super) oversized: Vec<bool>,
    /// Whole row groups.
    pub(super) chunk: Copied,
    /// Rows of the other tiers are summed over leaves.
    pub(super) page: Copied,
    pub(super) dict: Copied,
    pub(super) value: Copied,
}

pub(super) fn run(
    prepared: &Prepared,
    options: &MergeOptions,
    context: &Context,
    times: &mut Times,
) -> Result<Made> {
    let started = Instant::now();
    let cut_columns = options.cut_on.unwrap_or(prepared.keys.leaves.len());
    let outputs = options.outputs.unwrap_or(0);
    let largest = if outputs > 1 && !prepared.keys.leaves.is_empty() {
        let count = usize::try_from(outputs).unwrap_or(usize::MAX);
        largest_cut_keys(prepared, count, cut_columns, context)?
    } else {
        Vec::new()
    };
    let rule = CutRule {
        outputs,
        target_rows: options.target_rows.unwrap_or(u64::MAX),
        cut_columns,
        align_columns: options.align_row_groups,
        largest_cut_keys: largest,
        rows: prepared.rows(),
        owner_rows: match options.copy_tiers.contains(&Tier::Page) {
            true => (options.page_rows / 2).max(OWNER_ROWS_MIN),
            false => 0,
        },
        sample_every: if prepared.order.is_empty() { 0 } else { KEY_INDEX_ROWS },
    };
    let check_order = !options.assume_sorted;
    let mut windows =
        Windows::new(prepared.keys.read_shape().clone(), prepared.sources.len(), rule, check_order);
    for source in prepared.sources.iter().filter(|s| s.rows() == 0) {
        windows.end(source.id);
    }
    for (source, first_key) in &prepared.first_keys {
        windows.announce(*source, first_key);
    }
    times.order_s += started.elapsed().as_secs_f64();
    let loom = Loom {
        sources: Arc::clone(&prepared.sources),
        properties: Arc::clone(&prepared.properties),
        cache: Arc::clone(&prepared.cache),
        waiting_bytes: prepared.budget.waiting_bytes,
        waiting_dir: prepared.target.dir().to_owned(),
        context: context.clone(),
        packers: Arc::default(),
        unions: Arc::default(),
        levels: options
            .leaves_level_open()
            .then(|| Arc::new(prepared.leaves.iter().map(|_| OnceLock::new()).collect())),
        tiers: Tiers {
            page: options.copy_tiers.contains(&Tier::Page),
            dict: options.copy_tiers.contains(&Tier::Dict),
        },
        asked_dictionary: options.dictionary,
        page_version: options.data_page_version,
    };
    let lanes = prepared.sources.iter().map(|_| KeyLane { reader: None, next_row: 0, start: 0 });
    let mut runner = Runner {
        prepared,
        options,
        context,
        windows,
        lanes: lanes.collect(),
        loom,
        output: None,
        pending: Vec::new(),
        pending_rows: 0,
        pending_size: 0,
        pending_charge: context.charge(0),
        batch_bytes: batch_bytes(prepared),
        sizes: Sizes::new(prepared, options),
        made: Made {
            outputs: Vec::new(),
            oversized: Vec::new(),
            chunk: Copied::default(),
            page: Copied::default(),
            dict: Copied::default(),
            value: Copied::default(),
        },
    };
    runner.go(times)?;
    Ok(runner.made)
}

struct KeyLane {
    reader: Option<KeyReader>,
    /// Where the reader is opened next.
    next_row: u64,
    /// First row of the row group that begins with the batch supplied last.
    start: u64,
}

struct Runner<'a> {
    prepared: &'a Prepared,
    options: &'a MergeOptions,
    context: &'a Context,
    windows: Windows,
    lanes: Vec<KeyLane>,
    loom: Loom,
    output: Option<Output>,
    /// Windows that are woven together: pages of sources that end in one go on in the next.
    pending: Vec<Window>,
    pending_rows: u64,
    pending_size: usize,
    pending_charge: Charge,
    /// Encoded bytes of windows that are woven together.
    batch_bytes: u64,
    sizes: Sizes,
    made: Made,
}

impl Runner<'_> {
    fn go(&mut self, times: &mut Times) -> Result<()> {
        let mut started = Instant::now();
        self.size_window();
        loop {
            match self.windows.next()? {
                Ask::Keys(source) => self.supply(source)?,
                Ask::RowGroupStart(source) => self.copy_or_enter(source)?,
                Ask::Window(mut window) => {
                    tell(&self.prepared.keys, &mut window)?;
                    times.order_s += started.elapsed().as_secs_f64();
                    started = Instant::now();
                    self.take(window)?;
                    times.weave_s += started.elapsed().as_secs_f64();
                    started = Instant::now();
                    self.size_window();
                }
                Ask::Done => break,
            }
        }
        if self.made.outputs.is_empty() && self.options.empty_output {
            let output = self.new_output()?;
            self.close(output)?;
        }
        Ok(())
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
        let lane = &mut self.lanes[id.index()];
        if lane.reader.is_none() && lane.next_row < source.rows() {
            lane.reader = Some(KeyReader::open(
                &source,
                &prepared.keys,
                lane.next_row,
                &prepared.cache,
                self.context,
            )?);
        }
        let row = lane.next_row;
        let batch = match &mut lane.reader {
            Some(reader) => reader.next(prepared.budget.key_rows)?,
            None => None,
        };
        let Some((keys, starts)) = batch else {
            lane.reader = None;
            self.windows.end(id);
            return Ok(());
        };
        lane.next_row = row + keys.len() as u64;
        lane.start = row;
        let (row_group, _) = source.row_group_of(row);
        let is_start = starts && self.is_worth_copying(&source, row_group);
        self.windows.supply(id, keys, is_start).map_err(|Disorder { row, before, after }| {
            unsorted(&source, &prepared.keys, row, &before, &after)
        })
    }

    fn is_worth_copying(&self, source: &Source, row_group: usize) -> bool {
        let Some(group) = source.meta.row_groups().get(row_group) else { return false };
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
        let start = self.lanes[id.index()].start;
        let (row_group, _) = source.row_group_of(start);
        let rows = source.row_group_rows(row_group);
        let prepared = self.prepared;
        let last_row = start + rows - 1;
        let last = key_at(&source, &prepared.keys, last_row, &prepared.cache, self.context)?;
        if !self.windows.can_copy(id, rows, &last)? {
            self.windows.enter(id);
            return Ok(());
        }
        self.check_order(&source, row_group, &last)?;
        self.windows.copy(id, start, rows, &last);
        let lane = &mut self.lanes[id.index()];
        lane.reader = None;
        lane.next_row = start + rows;
        Ok(())
    }

    /// Checks the order inside a row group that is copied without being merged.
    fn check_order(&self, source: &Arc<Source>, row_group: usize, last: &[u8]) -> Result<()> {
        let prepared = self.prepared;
        if self.options.assume_sorted || prepared.order.is_empty() {
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
        let mut reader =
            KeyReader::open(source, &prepared.keys, start, &prepared.cache, self.context)?;
        let mut merge = Merge::new(prepared.keys.read_shape(), 1, true);
        let mut runs = Runs::default();
        while reader.row() < end {
            self.context.check_cancelled()?;
            let Some((keys, _)) = reader.next(prepared.budget.key_rows)? else { break };
            merge.supply(SourceId(0), keys, false).map_err(|Disorder { row, before, after }| {
                unsorted(source, &prepared.keys, start + row, &before, &after)
            })?;
            while merge.step(u64::MAX, None, &mut runs) == Step::Full {}
            runs.clear();
        }
        Ok(())
    }

    fn new_output(&self) -> Result<Output> {
        let schema = &self.prepared.reconciled.schema;
        Output::create(&self.prepared.target, schema, &self.prepared.properties)
    }

    /// Takes a window: it waits for others to be woven together with it.
    fn take(&mut self, window: Window) -> Result<()> {
        let ends_output = window.ends_output;
        if window.is_copy {
            self.weave_pending()?;
            self.copy(window)?;
        } else if !window.runs.is_empty() {
            self.pending_rows += window.runs.rows();
            self.pending_size += window.runs.memory_size();
            self.pending_charge.set(self.pending_size);
            self.pending.push(window);
            let encoded = self.pending_rows as f64 * self.sizes.encoded_per_row;
            let is_enough = encoded >= self.batch_bytes as f64
                || self.pending_size >= self.prepared.budget.batch_runs_bytes;
            if is_enough {
                self.weave_pending()?;
            }
        }
        if ends_output {
            self.weave_pending()?;
            let output = match self.output.take() {
                Some(output) => output,
                None => self.new_output()?,
            };
            self.close(output)?;
        }
        Ok(())
    }

    fn weave_pending(&mut self) -> Result<()> {
        let windows = std::mem::take(&mut self.pending);
        self.pending_rows = 0;
        self.pending_size = 0;
        if !windows.is_empty() {
            let mut output = match self.output.take() {
                Some(output) => output,
                None => self.new_output()?,
            };
            let pool = Option::as_ref(&self.prepared.pool).and_then(Pool::threads);
            let woven = output.weave(&self.loom, &self.prepared.leaves, &windows, pool)?;
            let made = &mut self.made;
            for (sum, more) in [
                (&mut made.page, woven.page),
                (&mut made.dict, woven.dict),
                (&mut made.value, woven.value),
            ] {
                sum.rows += more.rows;
                sum.bytes += more.bytes;
            }
            self.context.rows_written(windows.iter().map(|w| w.runs.rows()).sum());
            self.sizes.learn(&output);
            self.output = Some(output);
        }
        self.pending_charge.set(0);
        Ok(())
    }

    /// Copies the row group that `window` stands for, or weaves it if it cannot be copied.
    fn copy(&mut self, window: Window) -> Result<()> {
        let mut output = match self.output.take() {
            Some(output) => output,
            None => self.new_output()?,
        };
        let before = output.bytes();
        let rows = window.runs.rows();
        let mut is_copied = false;
        if let [run, ..] = window.runs.as_slice() {
            let source = Arc::clone(self.source(run.source)?);
            let (row_group, _) = source.row_group_of(run.start);
            let leaves = &self.prepared.leaves;
            is_copied = output.copy(&self.loom, leaves, &window, &source, row_group)?;
        }
        self.made.chunk.rows += if is_copied { rows } else { 0 };
        self.made.chunk.bytes += output.bytes() - before;
        self.sizes.learn(&output);
        self.output = Some(output);
        if is_copied {
            self.context.rows_written(rows);
            return Ok(());
        }
        self.pending_rows = rows;
        self.pending.push(window);
        self.weave_pending()
    }

    fn close(&mut self, output: Output) -> Result<()> {
        let rows = output.rows();
        let bytes = output.bytes();
        let is_oversized = self.options.target_rows.is_some_and(|n| rows > n)
            || self.options.target_file_size.is_some_and(|n| bytes > n + n / 4);
        self.sizes.close();
        self.made.oversized.push(is_oversized);
        self.made.outputs.push(output.finish(&self.prepared.entries())?);
        Ok(())
    }

    /// Tells the windows how many rows the next row group and the current output may have.
    fn size_window(&mut self) {
        if let Some(target) = self.options.target_file_size {
            let pending = self.pending_rows as f64 * self.sizes.stored_per_row;
            let written = self.output.as_ref().map_or(0, Output::bytes) + pending as u64;
            let left = target.saturating_sub(written) as f64 / self.sizes.stored_per_row;
            self.windows.set_rows_until_cut(left.max(1.0) as u64);
        }
        let by_bytes = self.options.row_group_size as f64 / self.sizes.encoded_per_row;
        let rows_max = (by_bytes.max(1.0) as u64)
            .min(self.options.row_group_rows)
            .min(self.prepared.budget.window_rows);
        // Equal row groups instead of full ones and a small rest; the last one may take the rest of
        // a cut key.
        let left = self.windows.rows_until_cut().max(1);
        let groups = left.div_ceil(rows_max);
        self.windows.set_rows_max(if groups == 1 { rows_max } else { left.div_ceil(groups) });
    }
}

/// Encoded bytes of a leaf of a source that are worth opening it for: a few pages, and perhaps a
/// dictionary.
const LANE_BYTES: u64 = 2 << 20;

/// Most encoded bytes that are woven together: packed, most of them wait on disk.
const BATCH_BYTES_MAX: u64 = 512 << 20;

/// How many encoded bytes to weave together: every source has a lane in every leaf, which starts
/// and ends in the middle of a page.
fn batch_bytes(prepared: &Prepared) -> u64 {
    let depth = prepared.regions.iter().map(|region| region.depth_max).max().unwrap_or(1);
    let lanes = depth.max(1) as u64 * prepared.leaves.len() as u64;
    lanes.saturating_mul(LANE_BYTES).min(BATCH_BYTES_MAX)
}

/// Makes the keys of a window those that files hold.
fn tell(keys: &KeyLeaves, window: &mut Window) -> Result<()> {
    if keys.ranks.is_some() && !window.runs.is_empty() {
        window.first_key = keys.tell(&window.first_key)?;
        window.last_key = keys.tell(&window.last_key)?;
        for (_, key) in &mut window.samples {
            *key = keys.tell(key)?;
        }
    }
    Ok(())
}

/// Bytes per row, from the footers first and from what was written then.
struct Sizes {
    encoded_per_row: f64,
    stored_per_row: f64,
    rows: f64,
    encoded: f64,
    stored: f64,
    /// Of the output that is open.
    open: (f64, f64, f64),
}

impl Sizes {
    fn new(prepared: &Prepared, _options: &MergeOptions) -> Self {
        let (mut encoded, mut stored) = (0.0, 0.0);
        for group in prepared.sources.iter().flat_map(|s| s.meta.row_groups()) {
            encoded += group.total_byte_size().max(0) as f64;
            stored += group.compressed_size().max(0) as f64;
        }
        let rows = (prepared.rows() as f64).max(1.0);
        Self {
            encoded_per_row: (encoded / rows).max(0.01),
            stored_per_row: (stored / rows).max(0.01),
            rows: 0.0,
            encoded: 0.0,
            stored: 0.0,
            open: (0.0, 0.0, 0.0),
        }
    }

    fn learn(&mut self, output: &Output) {
        self.open = (output.rows() as f64, output.encoded_bytes() as f64, output.bytes() as f64);
        let rows = self.rows + self.open.0;
        self.encoded_per_row = ((self.encoded + self.open.1) / rows).max(0.01);
        self.stored_per_row = ((self.stored + self.open.2) / rows).max(0.01);
    }

    fn close(&mut self) {
        let (rows, encoded, stored) = std::mem::take(&mut self.open);
        self.rows += rows;
        self.encoded += encoded;
        self.stored += stored;
    }
}

/// Whether the column index says that pages of the first key column are in order. Only what it
/// says for values that are not cut short counts: integers, floats, booleans.
fn pages_ascend(source: &Source, row_group: usize, prepared: &Prepared) -> Result<bool> {
    use parquet::basic::{BoundaryOrder, Type as Physical};
    use parquet::file::page_index::index_reader::decode_column_index;
    let Some(leaf) = prepared.keys.leaves.first() else { return Ok(true) };
    let Some(index) = leaf.adapter(source.id)?.leaf() else { return Ok(false) };
    let physical = source.leaf(index).physical_type();
    let is_cut = matches!(physical, Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY);
    let Some(bytes) = chunk::column_index_bytes(source, row_group, index)? else {
        return Ok(false);
    };
    let index = crate::page::guard(|| decode_column_index(&bytes, physical));
    let Ok(Ok(index)) = index else { return Ok(false) };
    let descending = prepared.order.columns().first().is_some_and(|c| c.descending);
    let wanted = if descending { BoundaryOrder::DESCENDING } else { BoundaryOrder::ASCENDING };
    Ok(!is_cut && index.get_boundary_order() == Some(wanted))
}
