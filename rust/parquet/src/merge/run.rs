//! The main loop: a batch of rows is woven while the next one is put in order.
//!
//! ```text
//! order   1   2     3     4
//! write       1     2     3     4     each batch: row groups; the output may end
//! ```
//!
//! # Invariants
//! Batches are written in order. A batch is put in order before anything is learned from writing the
//! one before it, on one thread as on many, so that outputs do not depend on threads.
//!
//! # Not here
//! What comes next (`ordering`); publishing (`publish`).

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use plait_core::plan::Window;
use plait_core::{Error, Kind, Result};
use rayon::ThreadPool;

use super::ordering::{Batch, Ordering};
use super::prepare::Prepared;
use super::sizes::Written;
use crate::context::Context;
use crate::options::{MergeOptions, Tier, VerifyPages};
use crate::pool::Pool;
use crate::queue::Beside;
use crate::report::{Copied, Times};
use crate::sink::{Finished, Output, Planned};
use crate::weave::{Loom, Steps, Tiers};

/// What a run made.
#[derive(Default)]
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
    let mut ordering = Ordering::new(prepared, options, context)?;
    let mut writer = Writer {
        prepared,
        options,
        context,
        loom: loom(prepared, options, context),
        output: None,
        made: Made::default(),
        seconds: 0.0,
    };
    let mut next = ordering.next()?;
    while let Some(batch) = next.take() {
        let mut ordered = None;
        let mut order = || ordered = Some(ordering.next());
        let written = match writer.pool().filter(|_| !batch.windows.is_empty()) {
            Some(_) => writer.write(&batch, Some(&mut order))?,
            None => {
                let written = writer.write(&batch, None)?;
                order();
                written
            }
        };
        ordering.learn(&batch, written);
        next =
            ordered.ok_or_else(|| Error::new(Kind::Internal, "rows were not put in order"))??;
    }
    times.order_s += ordering.seconds;
    times.weave_s += writer.seconds;
    writer.finish()
}

fn loom(prepared: &Prepared, options: &MergeOptions, context: &Context) -> Loom {
    Loom {
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
        checks_pages: options.verify_pages == VerifyPages::Unpack,
        page_version: options.data_page_version,
    }
}

struct Writer<'a> {
    prepared: &'a Prepared,
    options: &'a MergeOptions,
    context: &'a Context,
    loom: Loom,
    output: Option<Output>,
    made: Made,
    /// Time spent here.
    seconds: f64,
}

impl Writer<'_> {
    fn pool(&self) -> Option<&ThreadPool> {
        Option::as_ref(&self.prepared.pool).and_then(Pool::threads)
    }

    fn new_output(&self) -> Result<Output> {
        let schema = &self.prepared.reconciled.schema;
        Output::create(&self.prepared.target, schema, &self.prepared.properties)
    }

    /// Writes `batch`; one of the threads that weave calls `beside` first.
    fn write(&mut self, batch: &Batch, beside: Option<Beside<'_>>) -> Result<Written> {
        let started = Instant::now();
        let mut output = match self.output.take() {
            Some(output) => output,
            None => self.new_output()?,
        };
        let before = amount(&output);
        if !batch.windows.is_empty() {
            self.weave(&mut output, &batch.windows, beside)?;
        }
        if let Some(window) = &batch.copy {
            self.copy(&mut output, window)?;
        }
        let after = amount(&output);
        if batch.ends_output {
            self.close(output)?;
        } else {
            self.output = Some(output);
        }
        self.seconds += started.elapsed().as_secs_f64();
        Ok(Written {
            rows: after.rows - before.rows,
            encoded: after.encoded - before.encoded,
            stored: after.stored - before.stored,
        })
    }

    fn weave(
        &mut self,
        output: &mut Output,
        windows: &[Planned],
        beside: Option<Beside<'_>>,
    ) -> Result<()> {
        let woven =
            output.weave(&self.loom, &self.prepared.leaves, windows, self.pool(), beside)?;
        let made = &mut self.made;
        for (sum, more) in [
            (&mut made.page, woven.page),
            (&mut made.dict, woven.dict),
            (&mut made.value, woven.value),
        ] {
            sum.rows += more.rows;
            sum.bytes += more.bytes;
        }
        self.context.rows_written(windows.iter().map(|w| w.steps.rows()).sum());
        Ok(())
    }

    /// Copies the row group that `window` stands for, or weaves it if it cannot be copied.
    fn copy(&mut self, output: &mut Output, window: &Window) -> Result<()> {
        let [run] = window.runs.as_slice() else {
            return Err(Error::new(Kind::Internal, "a row group to be copied is not one run"));
        };
        let sources = &self.prepared.sources;
        let source = sources.get(run.source.index()).ok_or_else(|| {
            Error::new(Kind::Internal, "the plan names a source that is not there")
        })?;
        let (row_group, _) = source.row_group_of(run.start);
        let (before, rows) = (output.bytes(), window.runs.rows());
        if !output.copy(&self.loom, &self.prepared.leaves, window, source, row_group)? {
            let steps = Steps::new(&window.runs, sources.len())?;
            return self.weave(output, &[Planned { window: window.clone(), steps }], None);
        }
        self.made.chunk.rows += rows;
        self.made.chunk.bytes += output.bytes() - before;
        self.context.rows_written(rows);
        Ok(())
    }

    fn close(&mut self, output: Output) -> Result<()> {
        let rows = output.rows();
        let bytes = output.bytes();
        let is_oversized = self.options.target_rows.is_some_and(|n| rows > n)
            || self.options.target_file_size.is_some_and(|n| bytes > n + n / 4);
        self.made.oversized.push(is_oversized);
        self.made.outputs.push(output.finish(&self.prepared.entries())?);
        Ok(())
    }

    fn finish(mut self) -> Result<Made> {
        if self.made.outputs.is_empty() && self.options.empty_output {
            let output = self.new_output()?;
            self.close(output)?;
        }
        Ok(self.made)
    }
}

/// What `output` holds so far.
fn amount(output: &Output) -> Written {
    Written { rows: output.rows(), encoded: output.encoded_bytes(), stored: output.bytes() }
}
