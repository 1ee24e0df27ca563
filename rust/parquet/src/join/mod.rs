//! A foreign-key join that keeps its state, in memory or in a folder.
//!
//! ```text
//! apply   changes ─ dedup ─ step ─▶ new runs ─▶ (files) ─▶ manifest ─▶ the step counts
//!                                     └─▶ changes out, read from the tables before and the new runs
//! ```
//!
//! # Invariants
//! A step counts as a whole or not at all. What it changed can be asked for again until the next
//! step, also by another process: the runs of the last step are not merged.
//!
//! # Cost
//! See `plait_core::join`. In memory all rows are held; in a folder, blocks within the limit.
//!
//! # Not here
//! What joins with what (`plait_core::join`).

mod cache;
mod file;
mod folder;
mod manifest;
mod options;
mod reader;
mod staged;
mod state;

use std::path::Path;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use plait_core::join::{
    self, Call, Changes, Joiner, Layout, Side, StateTable, Table, Tables, Trace, View,
};
use plait_core::{Error, Kind, Result};
use serde::Serialize;

pub use folder::write_batches;
pub use options::{HowOption, JoinOptions, NullKeyOption};
pub use reader::{Reader, whole};
pub use staged::{Left, Right, SideState};

use self::manifest::{Counts, JoinManifest, Owner};
use self::reader::{same_columns, without_operation};
use self::state::State;
use crate::json::to_json;
use crate::runtime::{Context, ScopedWorkers};

/// What the state holds.
#[derive(Clone, Debug, Serialize)]
struct Stats {
    /// The last step, if there is one.
    step: Option<u64>,
    /// What was done.
    #[serde(flatten)]
    counts: Counts,
    /// Rows of each run of left rows, oldest first, those that delete among them.
    left_runs: Vec<u64>,
    /// The same of places.
    place_runs: Vec<u64>,
    /// The same of right rows.
    right_runs: Vec<u64>,
    /// Bytes of state in memory.
    memory_bytes: u64,
    /// Blocks of files that were in memory when they were asked for.
    cache_hits: u64,
    /// Blocks that were not.
    cache_misses: u64,
}

/// A join and its state.
///
/// ```
/// use std::sync::Arc;
///
/// use arrow_array::{ArrayRef, RecordBatch, RecordBatchIterator, StringArray};
/// use plait_core::Error;
/// use plait_parquet::{Context, Join, JoinOptions, Reader, whole};
///
/// let changes = |columns: [(&str, &str); 2]| -> Result<Option<Reader>, Error> {
///     let column = |(name, value)| -> (_, ArrayRef) {
///         (name, Arc::new(StringArray::from(vec![value])))
///     };
///     let batch = RecordBatch::try_from_iter(columns.map(column)).map_err(Error::from_arrow)?;
///     let schema = batch.schema();
///     Ok(Some(Box::new(RecordBatchIterator::new([Ok(batch)], schema))))
/// };
/// let options = JoinOptions {
///     left_key: vec!["order".into()],
///     foreign_key: vec!["customer".into()],
///     right_key: vec!["id".into()],
///     ..JoinOptions::default()
/// };
/// let context = Context::new(512_000_000);
/// let mut join = Join::try_new(options, [None, None], None, &context)?;
/// let orders = changes([("order", "o1"), ("customer", "c1")])?;
/// let customers = changes([("id", "c1"), ("name", "Ann")])?;
/// let step = join.apply(orders, customers, None, &context)?;
/// assert_eq!(whole(step)?.num_rows(), 1);
/// assert_eq!(whole(join.table()?)?.num_rows(), 1);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Join {
    options: JoinOptions,
    given: [Option<SchemaRef>; 2],
    layout: Option<Arc<Layout>>,
    call: Option<Call>,
    joiner: Option<Joiner>,
    state: State,
    step: Option<u64>,
    counts: Counts,
}

impl Join {
    /// A join with the state in the folder of the options, or without rows. Schemas that are not
    /// given are those of the first changes. `call` makes the rows of the result, if the options say so.
    ///
    /// # Errors
    /// As [`Layout::try_new`] and [`Joiner::try_new`], when both schemas are given; what is wrong with
    /// the state, and [`Kind::InvalidArgument`] when it is that of another join.
    pub fn try_new(
        options: JoinOptions,
        given: [Option<SchemaRef>; 2],
        call: Option<Call>,
        context: &Context,
    ) -> Result<Self> {
        let state = State::open(&options, Owner::Join, context)?;
        let mut join = Self {
            options,
            given: given.map(|given| given.map(|schema| without_operation(&schema))),
            layout: None,
            call,
            joiner: None,
            state,
            step: None,
            counts: Counts::default(),
        };
        if let Some(manifest) = join.state.take_manifest() {
            manifest.check(&join.options)?;
            join.resume(&manifest)?;
        }
        join.complete()?;
        Ok(join)
    }

    /// The join whose state is in the folder of the options; all else but limits is as it was. The
    /// options say whether the caller computes the foreign key; `call` is as for [`Self::try_new`].
    ///
    /// # Errors
    /// [`Kind::SourceNotFound`] when there is none, [`Kind::InvalidArgument`] when the foreign key of
    /// one only is computed, and what is wrong with the state.
    pub fn restore(options: &JoinOptions, call: Option<Call>, context: &Context) -> Result<Self> {
        let location = options.state.clone().unwrap_or_default();
        let none = || {
            Error::new(Kind::SourceNotFound, "the folder holds no state of a join")
                .with_path(location.as_str())
                .with_hint("give the folder of a join or of its snapshot")
        };
        // Opening would make the folder.
        if !location.contains("://") && !Path::new(&location).exists() {
            return Err(none());
        }
        let mut state = State::open(options, Owner::Join, context)?;
        let Some(manifest) = state.take_manifest() else { return Err(none()) };
        check_computed(&manifest.options, options.is_computed)?;
        let options = JoinOptions {
            state: options.state.clone(),
            memory_limit: options.memory_limit,
            batch_rows: options.batch_rows,
            threads: options.threads,
            has_joiner: options.has_joiner,
            ..manifest.options.clone()
        };
        let (given, layout, counts) = ([None, None], None, Counts::default());
        let (joiner, step) = (None, None);
        let mut join = Self { options, given, layout, call, joiner, state, step, counts };
        join.resume(&manifest)?;
        Ok(join)
    }

    /// Takes up what a manifest says.
    fn resume(&mut self, manifest: &JoinManifest) -> Result<()> {
        for (given, (stored, name)) in
            self.given.iter_mut().zip(manifest.schemas()?.into_iter().zip(["left", "right"]))
        {
            if given.as_ref().is_some_and(|given| !same_columns(given, &stored)) {
                let what = format!("the state has other columns of {name} changes");
                return Err(Error::new(Kind::SchemaDrift, what).with_hint(
                    "a join keeps the columns of its first changes; begin with an empty folder",
                ));
            }
            *given = Some(stored);
        }
        self.complete()?;
        let layout = self.layout()?;
        self.state.resume(manifest, &tables_of(&layout))?;
        self.step = manifest.step;
        self.counts = manifest.counts.clone();
        Ok(())
    }

    /// Makes the layout once both schemas are known, and the joiner once there is a call for it.
    fn complete(&mut self) -> Result<()> {
        if let (None, [Some(left), Some(right)]) = (&self.layout, &self.given) {
            let layout = Layout::try_new(self.options.spec(), left, right)?;
            self.layout = Some(Arc::new(layout));
        }
        if let (None, Some(call), Some(layout)) = (&self.joiner, &self.call, &self.layout) {
            let (layout, call) = (Arc::clone(layout), call.clone());
            self.joiner = Some(Joiner::try_new(layout, self.options.before, call)?);
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

    /// What the join is asked to do.
    #[must_use]
    pub fn options(&self) -> &JoinOptions {
        &self.options
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
    ) -> Result<Reader> {
        let next = self.step.map_or(0, |step| step.saturating_add(1));
        let number = number.unwrap_or(next);
        if number < next {
            return self.again(number);
        }
        for (given, reader) in self.given.iter_mut().zip([&left, &right]) {
            if let (None, Some(reader)) = (&given, reader) {
                *given = Some(without_operation(&reader.schema()));
            }
        }
        self.complete()?;
        let layout = self.layout()?;
        let mut counts = self.counts.clone();
        let mut deduplicate = |side, reader: Option<Reader>| -> Result<_> {
            let Some(reader) = reader else { return Ok(None) };
            let batch = whole(reader)?;
            context.check_cancelled()?;
            let changes = join::deduplicate(&layout, side, &batch)?;
            match side {
                Side::Left => counts.left_changes += changes.given,
                Side::Right => counts.right_changes += changes.given,
            }
            counts.null_keys += changes.null_keys;
            counts.folded += changes.given - changes.null_keys - changes.len() as u64;
            Ok(Some(changes))
        };
        let (left, right) = (deduplicate(Side::Left, left)?, deduplicate(Side::Right, right)?);
        let tables = tables_of(&layout);
        let next = self.state.merged(&tables, &mut counts, context)?;
        let step = join::step(&layout, &named(&next.base), left, right, &self.threads())?;
        counts.stale += step.stale;
        counts.steps += 1;
        context.check_cancelled()?;
        let draft = self.draft(&layout, Some(number), &counts)?;
        let join::Step { left, place, right, trace, .. } = step;
        self.state.add(next, &tables, &[left, place, right], draft, context)?;
        self.step = Some(number);
        self.counts = counts;
        Ok(self.changes(layout, Some(trace)))
    }

    /// The changes of a step that was applied: of the last one only.
    fn again(&self, number: u64) -> Result<Reader> {
        if self.step == Some(number) {
            return Ok(self.changes(self.layout()?, None));
        }
        let last = self.step.unwrap_or_default();
        Err(Error::new(Kind::InvalidArgument, "the step was applied before the last one")
            .with_got(format!("step {number}, the last is {last}"))
            .with_hint("only the changes of the last step can be made again"))
    }

    fn changes(&self, layout: Arc<Layout>, trace: Option<Trace>) -> Reader {
        let (base, last) = (named(self.state.base()), named(self.state.last()));
        let changes = Changes::new(layout, base, last, self.options.batch_rows);
        let changes = changes.with_workers(Arc::new(self.threads()));
        let changes = Box::new(match trace {
            Some(trace) => changes.with_trace(trace),
            None => changes,
        });
        match &self.joiner {
            Some(joiner) => Box::new(joiner.changes(changes)),
            None => changes,
        }
    }

    /// A manifest for what a step leaves behind.
    fn draft(&self, layout: &Layout, step: Option<u64>, counts: &Counts) -> Result<JoinManifest> {
        let schemas = [layout.given(Side::Left), layout.given(Side::Right)];
        let draft = JoinManifest::new(Owner::Join, &self.options, [&schemas[0], &schemas[1]])?;
        Ok(JoinManifest { step, counts: counts.clone(), ..draft })
    }

    fn threads(&self) -> ScopedWorkers {
        ScopedWorkers::new(self.options.threads)
    }

    /// The joined table.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] before the columns are known.
    pub fn table(&self) -> Result<Reader> {
        let table =
            Table::try_new(self.layout()?, named(&self.state.all()), self.options.batch_rows)?;
        let table = Box::new(table.with_workers(Arc::new(self.threads())));
        Ok(match &self.joiner {
            Some(joiner) => Box::new(joiner.table(table)),
            None => table,
        })
    }

    /// Merges all runs but those of the last step.
    ///
    /// # Errors
    /// What reading and writing give: then the state stays what it was.
    pub fn compact(&mut self, context: &Context) -> Result<()> {
        let (Some(layout), Some(step)) = (self.layout.clone(), self.step) else { return Ok(()) };
        let mut counts = self.counts.clone();
        let draft = self.draft(&layout, Some(step), &counts)?;
        self.state.compact(&tables_of(&layout), draft, &mut counts, context)?;
        self.counts = counts;
        Ok(())
    }

    /// Writes the state to a folder without one.
    ///
    /// # Errors
    /// [`Kind::OutputExists`] when there is one; what writing gives.
    pub fn snapshot(&self, location: &str, context: &Context) -> Result<()> {
        let layout = self.layout()?;
        let draft = self.draft(&layout, self.step, &self.counts)?;
        self.state.snapshot(location, &tables_of(&layout), draft, context)
    }

    /// What the state holds, as JSON.
    ///
    /// # Errors
    /// What JSON cannot express.
    pub fn stats(&self) -> Result<String> {
        let all = named(&self.state.all());
        let rows = |view: &View| view.runs.iter().map(|run| run.rows()).collect();
        let (cache_hits, cache_misses) = self.state.asked();
        to_json(&Stats {
            step: self.step,
            counts: self.counts.clone(),
            left_runs: rows(&all.left),
            place_runs: rows(&all.place),
            right_runs: rows(&all.right),
            memory_bytes: self.state.memory_size() as u64,
            cache_hits,
            cache_misses,
        })
    }

    /// The schema of changes, once it is known.
    #[must_use]
    pub fn schema(&self) -> Option<SchemaRef> {
        let made = self.joiner.as_ref().map(|joiner| Arc::clone(joiner.schema()));
        made.or_else(|| self.layout.as_ref().map(|layout| Arc::clone(layout.out())))
    }
}

/// Whether the caller computes the foreign key, or does not, as the state has it.
fn check_computed(stored: &JoinOptions, is_computed: bool) -> Result<()> {
    if stored.is_computed == is_computed {
        return Ok(());
    }
    let what = match is_computed {
        true => "the foreign key of this state is a column, not computed",
        false => "the foreign key of this state is computed",
    };
    Err(Error::new(Kind::InvalidArgument, what)
        .with_hint("pass foreign_key= only where it was a callable"))
}

/// The tables of a join.
fn tables_of(layout: &Layout) -> Vec<StateTable> {
    // A deleted key must be remembered where its sequence number decides on later changes.
    let has_sequence = |side| layout.given(side).column_with_name(join::SEQUENCE).is_some();
    let table = |name, schema, keeps_deleted| StateTable { name, schema, keeps_deleted };
    vec![
        table("left", layout.left_blocks(), false),
        table("place", layout.place_blocks(), has_sequence(Side::Left)),
        table("right", layout.right_blocks(), has_sequence(Side::Right)),
    ]
}

/// The tables of a join, by their names.
fn named(views: &[View]) -> Tables {
    let view = |place: usize| views.get(place).cloned().unwrap_or_default();
    Tables { left: view(0), place: view(1), right: view(2) }
}
