//! A foreign-key join that keeps its state, in memory or in a folder.
//!
//! ```text
//! apply   changes ─ fold ─ step ─▶ new runs ─▶ (files) ─▶ manifest ─▶ the step counts
//!                                     └─▶ changes out, read from the tables before and the new runs
//! ```
//!
//! # Invariants
//! A step counts as a whole or not at all. What it changed can be asked for again until the next step,
//! also by another process: the runs of the last step are not merged.
//!
//! # Cost
//! See `plait_core::join`. In memory all rows are held; in a folder, blocks within the limit.
//!
//! # Not here
//! What joins with what (`plait_core::join`).

mod options;

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{Schema, SchemaRef};
use plait_core::join::{
    self, Block, Changes, Layout, MemoryRun, Side, StateRun, Table, Tables, View,
};
use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

pub use options::{HowOption, JoinOptions, NullKeyOption};

use crate::context::Context;

/// Record batches of one schema.
pub type Reader = Box<dyn RecordBatchReader + Send>;

/// What a join did since it was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Counts {
    /// Steps that were applied.
    pub steps: u64,
    /// Left changes that came.
    pub left_changes: u64,
    /// Right changes that came.
    pub right_changes: u64,
    /// Changes that a later one of the same step replaced.
    pub folded: u64,
    /// Changes without a key.
    pub null_keys: u64,
    /// Changes that were older than the state.
    pub stale: u64,
    /// Times that runs were merged.
    pub merges: u64,
    /// Rows of those runs.
    pub rows_merged: u64,
}

/// What the state holds.
#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    /// The last step, if there is one.
    pub step: Option<u64>,
    /// What was done.
    #[serde(flatten)]
    pub counts: Counts,
    /// Rows of each run of left rows, oldest first, those that delete among them.
    pub left_runs: Vec<u64>,
    /// The same of places.
    pub place_runs: Vec<u64>,
    /// The same of right rows.
    pub right_runs: Vec<u64>,
    /// Bytes of state in memory.
    pub memory_bytes: u64,
}

/// A join and its state.
#[derive(Debug)]
pub struct Join {
    options: JoinOptions,
    given: [Option<SchemaRef>; 2],
    layout: Option<Arc<Layout>>,
    /// The tables before the last step.
    base: Tables,
    /// What the last step added.
    last: Tables,
    step: Option<u64>,
    counts: Counts,
}

impl Join {
    /// A join without rows. Schemas that are not given are those of the first changes.
    ///
    /// # Errors
    /// As [`Layout::try_new`], when both schemas are given.
    pub fn try_new(
        options: JoinOptions,
        left: Option<SchemaRef>,
        right: Option<SchemaRef>,
    ) -> Result<Self> {
        let mut join = Self {
            options,
            given: [left, right],
            layout: None,
            base: Tables::default(),
            last: Tables::default(),
            step: None,
            counts: Counts::default(),
        };
        join.settle()?;
        Ok(join)
    }

    /// Makes the layout once both schemas are known.
    fn settle(&mut self) -> Result<()> {
        if let (None, [Some(left), Some(right)]) = (&self.layout, &self.given) {
            let layout = Layout::try_new(self.options.spec(), left, right)?;
            self.layout = Some(Arc::new(layout));
        }
        Ok(())
    }

    fn layout(&self) -> Result<Arc<Layout>> {
        let missing = if self.given[0].is_none() { "left" } else { "right" };
        self.layout.clone().ok_or_else(|| {
            let what = format!("the columns of the {missing} changes are not known yet");
            Error::new(Kind::InvalidArgument, what).with_hint(format!(
                "pass {missing}_schema=, or give changes of both sides to the first step; they may be empty"
            ))
        })
    }

    /// The last step, if there is one.
    #[must_use]
    pub fn step(&self) -> Option<u64> {
        self.step
    }

    /// Applies changes as one step, and gives what changed. Step `number` is the one after the last
    /// by default; the last one again gives its changes again, whatever is passed with it.
    ///
    /// # Errors
    /// What is wrong with the changes: then the state stays what it was.
    pub fn apply(
        &mut self,
        left: Option<Reader>,
        right: Option<Reader>,
        number: Option<u64>,
        context: &Context,
    ) -> Result<Changes> {
        let next = self.step.map_or(0, |step| step.saturating_add(1));
        let number = number.unwrap_or(next);
        if number < next {
            return self.again(number);
        }
        for (given, reader) in self.given.iter_mut().zip([&left, &right]) {
            if let (None, Some(reader)) = (&given, reader) {
                *given = Some(reader.schema());
            }
        }
        self.settle()?;
        let layout = self.layout()?;
        let mut counts = self.counts.clone();
        let mut fold = |side, reader: Option<Reader>| -> Result<_> {
            let Some(reader) = reader else { return Ok(None) };
            let batch = whole(reader, context)?;
            let folded = join::fold(&layout, side, &batch)?;
            match side {
                Side::Left => counts.left_changes += folded.given,
                Side::Right => counts.right_changes += folded.given,
            }
            counts.null_keys += folded.null_keys;
            counts.folded += folded.given - folded.null_keys - folded.len() as u64;
            Ok(Some(folded))
        };
        let (left, right) = (fold(Side::Left, left)?, fold(Side::Right, right)?);
        let base = self.merged(&layout, &mut counts, context)?;
        let step = join::step(&layout, &base, left, right)?;
        counts.stale += step.stale;
        counts.steps += 1;
        context.check_cancelled()?;
        let last = Tables { left: run(step.left), place: run(step.place), right: run(step.right) };
        self.check_memory(&base, &last)?;
        self.base = base;
        self.last = last;
        self.step = Some(number);
        self.counts = counts;
        Ok(self.changes(layout))
    }

    /// The changes of a step that was applied: of the last one only.
    fn again(&self, number: u64) -> Result<Changes> {
        if self.step == Some(number) {
            return Ok(self.changes(self.layout()?));
        }
        let last = self.step.unwrap_or_default();
        Err(Error::new(Kind::InvalidArgument, "the step was applied before the last one")
            .with_got(format!("step {number}, the last is {last}"))
            .with_hint("only the changes of the last step can be made again"))
    }

    fn changes(&self, layout: Arc<Layout>) -> Changes {
        Changes::new(layout, self.base.clone(), self.last.clone(), self.options.batch_rows)
    }

    /// The joined table.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] before the columns are known.
    pub fn table(&self) -> Result<Table> {
        Table::try_new(self.layout()?, self.all(), self.options.batch_rows)
    }

    /// The tables with the last step.
    fn all(&self) -> Tables {
        let with = |base: &View, last: &View| {
            last.runs.iter().fold(base.clone(), |view, run| view.with(Arc::clone(run)))
        };
        Tables {
            left: with(&self.base.left, &self.last.left),
            place: with(&self.base.place, &self.last.place),
            right: with(&self.base.right, &self.last.right),
        }
    }

    /// All tables, with runs merged where that is due.
    fn merged(&self, layout: &Layout, counts: &mut Counts, context: &Context) -> Result<Tables> {
        let mut all = self.all();
        for kind in TableKind::ALL {
            let view = kind.of_mut(&mut all);
            let rows: Vec<u64> = view.runs.iter().map(|run| run.rows()).collect();
            if let Some(range) = join::due(&rows) {
                context.check_cancelled()?;
                self.merge_runs(kind, view, range, layout, counts)?;
            }
        }
        Ok(all)
    }

    /// Replaces the runs of `range` by one.
    fn merge_runs(
        &self,
        kind: TableKind,
        view: &mut View,
        range: std::ops::Range<usize>,
        layout: &Layout,
        counts: &mut Counts,
    ) -> Result<()> {
        let part = View { runs: view.runs.get(range.clone()).unwrap_or_default().to_vec() };
        let keep_deleted = range.start > 0 || kind.keeps_deleted(layout);
        counts.merges += 1;
        counts.rows_merged += part.rows();
        let merged = join::compact(&part, &kind.schema(layout), keep_deleted)?;
        let merged = (merged.rows() > 0).then(|| merged.into_run());
        view.runs.splice(range, merged);
        Ok(())
    }

    /// Merges all runs but those of the last step.
    ///
    /// # Errors
    /// What reading and writing give: then the state stays what it was.
    pub fn compact(&mut self, context: &Context) -> Result<()> {
        let Some(layout) = self.layout.clone() else { return Ok(()) };
        let (mut base, mut counts) = (self.base.clone(), self.counts.clone());
        for kind in TableKind::ALL {
            let view = kind.of_mut(&mut base);
            if view.runs.len() > 1 {
                context.check_cancelled()?;
                let range = 0..view.runs.len();
                self.merge_runs(kind, view, range, &layout, &mut counts)?;
            }
        }
        self.base = base;
        self.counts = counts;
        Ok(())
    }

    fn check_memory(&self, base: &Tables, last: &Tables) -> Result<()> {
        let bytes = bytes_of(base) + bytes_of(last);
        if bytes as u64 <= self.options.memory_limit {
            return Ok(());
        }
        Err(Error::new(Kind::MemoryLimit, "the state of the join needs more memory than the limit")
            .with_got(format!("{bytes} bytes, the limit is {}", self.options.memory_limit))
            .with_hint("pass state= to keep it in files, or a higher memory_limit="))
    }

    /// What the state holds.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let all = self.all();
        let rows = |view: &View| view.runs.iter().map(|run| run.rows()).collect();
        Stats {
            step: self.step,
            counts: self.counts.clone(),
            left_runs: rows(&all.left),
            place_runs: rows(&all.place),
            right_runs: rows(&all.right),
            memory_bytes: bytes_of(&all) as u64,
        }
    }

    /// The schema of changes, once it is known.
    #[must_use]
    pub fn schema(&self) -> Option<SchemaRef> {
        self.layout.as_ref().map(|layout| Arc::clone(layout.out()))
    }
}

fn bytes_of(tables: &Tables) -> usize {
    tables.left.memory_size() + tables.place.memory_size() + tables.right.memory_size()
}

fn run(block: Block) -> View {
    View::default().with(MemoryRun::new(vec![block]).into_run())
}

/// All rows of a reader as one batch.
fn whole(reader: Reader, context: &Context) -> Result<RecordBatch> {
    let schema = reader.schema();
    let mut batches = Vec::new();
    for batch in reader {
        context.check_cancelled()?;
        let batch = batch.map_err(Error::from_arrow)?;
        if !same_columns(&batch.schema(), &schema) {
            return Err(Error::new(
                Kind::SchemaDrift,
                "batches of one step have different columns",
            ));
        }
        batches.push(batch);
    }
    match batches.as_slice() {
        [one] => Ok(one.clone()),
        all => arrow_select::concat::concat_batches(&schema, all).map_err(Error::from_arrow),
    }
}

fn same_columns(a: &Schema, b: &Schema) -> bool {
    let same = |(a, b): (&arrow_schema::FieldRef, &arrow_schema::FieldRef)| {
        a.name() == b.name() && a.data_type() == b.data_type()
    };
    a.fields().len() == b.fields().len() && a.fields().iter().zip(b.fields()).all(same)
}

/// The tables of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TableKind {
    Left,
    Place,
    Right,
}

impl TableKind {
    const ALL: [Self; 3] = [Self::Left, Self::Place, Self::Right];

    fn of_mut(self, tables: &mut Tables) -> &mut View {
        match self {
            Self::Left => &mut tables.left,
            Self::Place => &mut tables.place,
            Self::Right => &mut tables.right,
        }
    }

    fn schema(self, layout: &Layout) -> SchemaRef {
        match self {
            Self::Left => layout.left_blocks(),
            Self::Place => layout.place_blocks(),
            Self::Right => layout.right_blocks(),
        }
    }

    /// Whether a deleted key must be remembered: its sequence number decides on later changes.
    fn keeps_deleted(self, layout: &Layout) -> bool {
        let has_sequence = |side| layout.given(side).column_with_name(join::SEQUENCE).is_some();
        match self {
            Self::Left => false,
            Self::Place => has_sequence(Side::Left),
            Self::Right => has_sequence(Side::Right),
        }
    }
}
