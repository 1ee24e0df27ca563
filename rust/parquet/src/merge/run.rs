//! The main loop: batches are put in order, woven and written, all three at the same time.
//!
//! ```text
//! order   1   2     3     4
//! weave       1     2     3     4
//! write        1      2     3     4     each batch: row groups; the output may end
//! ```
//!
//! # Invariants
//! Batches are written in order. A batch is put in order after the one two before it was written and
//! learned from, and before anything is learned of the one before it: on one thread as on many, so
//! that outputs do not depend on threads.
//!
//! # Not here
//! What comes next (`ordering`); publishing (`publish`).

use std::sync::Arc;
use std::time::Instant;

use plait_core::key::prefix_len;
use plait_core::plan::{Dropped, Window};
use plait_core::{Error, Kind, Result};

use super::attempt::Attempt;
use super::mapped::Mapping;
use super::ordering::{Batch, Ordering};
use super::prepare::Prepared;
use super::sizes::Written;
use super::weaver::Weaver;
use crate::combine::Combine;
use crate::encode::Chunk;
use crate::encode::pack::ZstdTrial;
use crate::options::{EncodingOption, MergeOptions};
use crate::plan::{OpenSources, Plan};
use crate::queue::{self, Queue, Work};
use crate::report::Copied;
use crate::row_map::FinishedMap;
use crate::runtime::{Context, Pool};
use crate::sink::{Finished, Output};
use crate::spill::Waiting;
use crate::weave::{LeafFooters, LeafRows, Tiers, TriedEncodings, WeaveContext, weave};
use crate::zone::ZoneMap;

/// What a run made.
#[derive(Default)]
pub(super) struct RunOutputs {
    pub(super) dropped: Dropped,
    /// Values of rows that share a key which are not those of the last of them.
    pub(super) values_merged: u64,
    pub(super) outputs: Vec<Finished>,
    /// What became of the rows of the sources, if that is asked for.
    pub(super) map: Option<FinishedMap>,
    /// Whole row groups.
    pub(super) chunk: Copied,
    /// Rows of the other tiers are summed over leaves.
    pub(super) page: Copied,
    pub(super) dict: Copied,
    pub(super) value: Copied,
    /// What the caller should know.
    pub(super) warnings: Vec<String>,
}

pub(super) fn run(
    prepared: &Prepared<'_>,
    mapping: Option<Mapping>,
    attempt: &mut Attempt<'_>,
) -> Result<RunOutputs> {
    let Attempt { options, context, .. } = *attempt;
    let (footers, cursor_bytes) = look(prepared, options)?;
    let weaving = weave_context(prepared, footers, options, context);
    let mut writer = OutputsWriter {
        prepared,
        options,
        context,
        weaving: &weaving,
        output: None,
        mapping,
        made: RunOutputs::default(),
        last_prefix: None,
        splits_prefix: false,
        seconds: 0.0,
    };
    let ordering = Ordering::new(prepared, options, context)?;
    let weaver = Weaver::new(prepared, &weaving, cursor_bytes, ordering);
    match prepared.pool().and_then(Pool::threads) {
        None => run_alone(&weaver, &mut writer)?,
        Some(pool) => {
            let sizes = &weaving.footers.encoded;
            let idle =
                queue::run(pool, &weaver, sizes, |queue| run_beside(&weaver, &mut writer, queue))?;
            context.counters().add_idle(idle);
        }
    }
    attempt.times.order_s += weaver.ordering().seconds;
    attempt.times.weave_s += writer.seconds;
    attempt.times.column_s += weaver.longest_leaf().as_secs_f64();
    writer.made.dropped = weaver.ordering().dropped();
    writer.made.values_merged = prepared.combine.as_ref().map_or(0, Combine::values_merged);
    if let Some(rows) = weaver.ordering().rows_by_memory {
        writer.made.warnings.push(format!(
            "memory_limit allows row groups of {rows} rows, fewer than were asked for"
        ));
    }
    if writer.splits_prefix {
        let columns = options.align_row_groups;
        writer.made.warnings.push(format!(
            "align_row_groups: rows that agree in {columns} key columns fill more than one row group"
        ));
    }
    writer.finish()
}

/// Everything on this thread, in the order that threads keep to as well.
fn run_alone(weaver: &Weaver<'_>, writer: &mut OutputsWriter<'_>) -> Result<()> {
    let mut now = weaver.order()?;
    while let Some(batch) = now {
        let next = weaver.order()?;
        let written = writer.write(&batch, |leaf| weaver.weave_leaf(&batch, leaf, None))?;
        weaver.ordering().learn(written);
        now = next;
    }
    Ok(())
}

/// Writes what threads put in order and weave.
fn run_beside(
    weaver: &Weaver<'_>,
    writer: &mut OutputsWriter<'_>,
    queue: &Queue<'_, Weaver<'_>>,
) -> Result<()> {
    queue.ask();
    while let Some(batch) = queue.first()? {
        queue.ask();
        let written = writer.write(&batch, |leaf| queue.take(leaf))?;
        queue.wait_ordered();
        weaver.ordering().learn(written);
        queue.pop();
    }
    Ok(())
}

/// What the footers of all sources say, and most bytes that each leaf holds of one source: in one pass,
/// since footers may be decoded for each.
fn look(prepared: &Prepared<'_>, options: &MergeOptions) -> Result<(LeafFooters, Vec<u64>)> {
    let Prepared { sources, leaves, properties, .. } = prepared;
    let mut footers = LeafFooters::new(sources.len(), leaves.len());
    let mut open = OpenSources::new(leaves, &[]);
    for (place, source) in sources.iter().enumerate() {
        let footer = source.footer()?;
        let tiers = Tiers::of(&options.copy_tiers);
        footers.add(place, source, footer.row_groups(), leaves, properties, tiers)?;
        open.add(source, &footer)?;
    }
    Ok((footers, open.largest_cursors()))
}

fn weave_context(
    prepared: &Prepared<'_>,
    footers: LeafFooters,
    options: &MergeOptions,
    context: &Context,
) -> WeaveContext {
    WeaveContext {
        footers: Arc::new(footers),
        sources: Arc::clone(&prepared.sources),
        properties: Arc::clone(&prepared.properties),
        cache: Arc::clone(&prepared.cache),
        context: context.clone(),
        packers: Arc::default(),
        unions: Arc::default(),
        carried: Arc::default(),
        zstd: options.leaves_level_open().then(|| {
            let smallest = options.encoding == EncodingOption::Smallest;
            Arc::new(prepared.leaves.iter().map(|_| ZstdTrial::new(smallest)).collect())
        }),
        encodings: TriedEncodings::new(options.encoding, prepared.leaves.len()),
        tiers: Tiers::of(&options.copy_tiers),
        asked_dictionary: options.dictionary,
        verify_pages: options.verify_pages,
        server_side_copy: options.server_side_copy,
        page_version: options.data_page_version,
        type_defined: Arc::clone(&prepared.type_defined),
        asks: Arc::clone(&prepared.asks),
    }
}

struct OutputsWriter<'a> {
    prepared: &'a Prepared<'a>,
    options: &'a MergeOptions,
    context: &'a Context,
    weaving: &'a WeaveContext,
    output: Option<Output>,
    mapping: Option<Mapping>,
    made: RunOutputs,
    /// The key columns by which row groups are aligned, of the last row of the output so far.
    last_prefix: Option<Vec<u8>>,
    /// Whether a row group begins with those of the row before.
    splits_prefix: bool,
    /// Time spent here.
    seconds: f64,
}

impl OutputsWriter<'_> {
    fn new_output(&self) -> Result<Output> {
        let schema = &self.prepared.reconciled.schema;
        let temp = self.prepared.create_output(self.context)?;
        let output = Output::create(temp, schema, &self.prepared.properties)?
            .with_type_defined(&self.prepared.type_defined)
            .with_zones(ZoneMap::new(&self.prepared.asks));
        let (shape, columns) = (&self.prepared.keys.shape, self.prepared.partition_columns());
        Ok(match self.prepared.declares_order {
            true => output.with_keys(shape.leading(columns)?),
            false => output,
        })
    }

    /// Writes `batch`, whose chunks `take` gives leaf by leaf.
    fn write(
        &mut self,
        batch: &Batch,
        take: impl FnMut(usize) -> Result<Vec<Chunk>>,
    ) -> Result<Written> {
        let started = Instant::now();
        if self.output.is_none() && batch.is_empty_but_for_its_end() {
            return Ok(Written::default()); // all rows of the output were dropped
        }
        let mut output = match self.output.take() {
            Some(output) => output,
            None => self.new_output()?,
        };
        let before = amount(&output);
        if let Some(mapping) = &mut self.mapping {
            let windows = batch.windows.iter().chain(&batch.copy);
            windows.map(|window| &window.steps).try_for_each(|steps| mapping.add(steps))?;
        }
        if !batch.windows.is_empty() {
            self.weave(&mut output, &batch.windows, take)?;
        }
        if let Some(window) = &batch.copy {
            self.copy(&mut output, window, &batch.waiting)?;
        }
        let after = amount(&output);
        self.follow_prefixes(batch)?;
        if batch.ends_output {
            self.last_prefix = None;
            self.close(output)?;
        } else {
            self.output = Some(output);
        }
        self.seconds += started.elapsed().as_secs_f64();
        Ok(Written { rows: after.rows - before.rows, encoded: after.encoded - before.encoded })
    }

    fn follow_prefixes(&mut self, batch: &Batch) -> Result<()> {
        let columns = self.prepared.frame.align_columns(self.options);
        if columns == 0 {
            return Ok(());
        }
        let shape = &self.prepared.keys.shape;
        for window in batch.windows.iter().chain(&batch.copy) {
            let prefix = |key: &[u8]| -> Result<Vec<u8>> {
                Ok(key.get(..prefix_len(shape, key, columns)?).unwrap_or(key).to_vec())
            };
            self.splits_prefix |= self.last_prefix == Some(prefix(&window.first_key)?);
            self.last_prefix = Some(prefix(&window.last_key)?);
        }
        Ok(())
    }

    fn weave(
        &mut self,
        output: &mut Output,
        windows: &[Window],
        take: impl FnMut(usize) -> Result<Vec<Chunk>>,
    ) -> Result<()> {
        let woven = output.write(windows, self.prepared.leaves.len(), take)?;
        let made = &mut self.made;
        for (sum, more) in [
            (&mut made.page, woven.page),
            (&mut made.dict, woven.dict),
            (&mut made.value, woven.value),
        ] {
            sum.rows += more.rows;
            sum.bytes += more.bytes;
        }
        self.context.counters().add_rows_written(windows.iter().map(|w| w.steps.rows()).sum());
        Ok(())
    }

    /// Copies the row group that `window` stands for, or weaves it if it cannot be copied.
    fn copy(&mut self, output: &mut Output, window: &Window, waiting: &Arc<Waiting>) -> Result<()> {
        let mut taken = window.steps.taken();
        let (Some(run), None) = (taken.next(), taken.next()) else {
            return Err(Error::new(Kind::Internal, "a row group to be copied is not one run"));
        };
        let sources = &self.prepared.sources;
        let source = sources.get(run.source.index()).ok_or_else(|| {
            Error::new(Kind::Internal, "the plan names a source that is not there")
        })?;
        let (row_group, _) = source.row_group_of(run.start);
        let (before, rows) = (output.bytes(), window.steps.rows());
        if !output.copy(self.weaving, &self.prepared.leaves, window, source, row_group, waiting)? {
            let (weaving, leaves) = (self.weaving, &self.prepared.leaves);
            return self.weave(output, std::slice::from_ref(window), |leaf| {
                weave(weaving, &leaves[leaf], &mut [LeafRows::same(&window.steps)], waiting, None)
            });
        }
        self.made.chunk.rows += rows;
        self.made.chunk.bytes += output.bytes() - before;
        self.context.counters().add_rows_written(rows);
        Ok(())
    }

    fn close(&mut self, output: Output) -> Result<()> {
        self.made.outputs.push(output.finish(&self.prepared.entries())?);
        Ok(())
    }

    fn finish(mut self) -> Result<RunOutputs> {
        let plan = self.prepared.frame.plan;
        let may_be_empty = self.options.empty_output && plan.options.partition_by.is_empty();
        if self.made.outputs.is_empty() && may_be_empty && is_wanted(plan)? {
            let output = self.new_output()?;
            self.close(output)?;
        }
        self.made.map = self.mapping.map(Mapping::finish).transpose()?;
        Ok(self.made)
    }
}

/// Whether an output of `plan` without rows is missed: of several, those whose rows were all dropped
/// are not.
fn is_wanted(plan: &Plan) -> Result<bool> {
    if plan.outputs == 1 {
        return Ok(true);
    }
    for source in plan.sources.iter() {
        if source?.rows > 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What `output` holds so far.
fn amount(output: &Output) -> Written {
    Written { rows: output.rows(), encoded: output.encoded_bytes() }
}
