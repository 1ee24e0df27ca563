//! Which rows of files a read has at all: of a plan those of its tasks, of positions those between two,
//! and none that a deletion vector deletes.
//!
//! ```text
//! tasks   [low, a) [a, b)   [c, d)        joined   [low, b)   [c, d)
//! file    ░░▒▒▒▒▒▒▒▒▒▒░░░░░░▒▒▒▒░░        rows     2..12      18..22    found when they are needed
//! ```
//!
//! # Invariants
//! Rows of a task are those that executing it would write; a row between two tasks is in one of them.
//!
//! # Cost
//! A few pages of key columns for each end of a task that the plan knows only about.
//!
//! # Not here
//! Which of these rows are asked for (`prune`).

use std::iter::once;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use plait_core::Result;
use plait_core::key::SortOrder;

use super::known::KnownFile;
use super::options::ReadOptions;
use crate::arrow_file::FileSchema;
use crate::keys::KeyLeaves;
use crate::leaf::{LocationCache, output_leaves};
use crate::order::key_leaves;
use crate::plan::{CarriedSchema, Plan, PlanTask, Reading, Slice, find_rows, open_planned};
use crate::runtime::Context;
use crate::selection::intersection;
use crate::source::Source;
use crate::store::Stores;

/// A source and which of its rows are there.
pub(super) type SourcePart = (Arc<Source>, Arc<FilePart>);

/// Which rows of a file are there.
pub(super) enum FilePart {
    /// All.
    Whole,
    /// These.
    Rows(Vec<Range<u64>>),
    /// Those of tasks.
    Tasks(TaskRows),
}

impl FilePart {
    /// Which rows of each of `files`, of which `parts` are there, are the rows `rows` of all, one file
    /// after the other. Rows that are deleted count.
    pub(super) fn of_rows(
        files: &[Arc<KnownFile>],
        parts: &[Arc<Self>],
        rows: &Range<u64>,
    ) -> Vec<Arc<Self>> {
        let mut before = 0;
        let part = |(file, part): (&Arc<KnownFile>, &Arc<Self>)| {
            let all = file.source.rows();
            let from = rows.start.saturating_sub(before).min(all);
            let to = rows.end.saturating_sub(before).min(all);
            before += all;
            let rows = if from < to { once(from..to).collect() } else { Vec::new() };
            Arc::new(Self::Rows(match &**part {
                Self::Rows(live) => intersection(&rows, live),
                Self::Whole | Self::Tasks(_) => rows,
            }))
        };
        files.iter().zip(parts).map(part).collect()
    }

    /// The rows of `source`; none says all.
    ///
    /// # Errors
    /// Whatever is wrong with the file.
    pub(super) fn rows(
        &self,
        source: &Arc<Source>,
        cache: &Arc<LocationCache>,
        context: &Context,
    ) -> Result<Option<&[Range<u64>]>> {
        match self {
            Self::Whole => Ok(None),
            Self::Rows(rows) => Ok(Some(rows)),
            Self::Tasks(tasks) => tasks.find(source, cache, context).map(Some),
        }
    }

    /// Whether it is known to have no rows.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Rows(rows) if rows.is_empty())
    }
}

/// The rows of one file that tasks have.
pub(super) struct TaskRows {
    keys: Arc<KeyLeaves>,
    slices: Vec<(Arc<PlanTask>, Slice)>,
    /// The file with its live rows, if rows are deleted: the plan counts these.
    live: Option<Arc<Source>>,
    found: OnceLock<Vec<Range<u64>>>,
}

impl TaskRows {
    fn find(
        &self,
        source: &Arc<Source>,
        cache: &Arc<LocationCache>,
        context: &Context,
    ) -> Result<&[Range<u64>]> {
        if let Some(found) = self.found.get() {
            return Ok(found);
        }
        let reading = Reading { keys: &self.keys, cache, context };
        let source = self.live.as_ref().unwrap_or(source);
        let rows = self.slices.iter().map(|(task, slice)| find_rows(task, slice, source, reading));
        let mut found = rows.collect::<Result<Vec<_>>>()?;
        found.retain(|rows| !rows.is_empty());
        let found = source.among(found);
        Ok(self.found.get_or_init(|| found))
    }
}

/// A plan whose rows are read.
pub(super) struct PlanPart {
    plan: Plan,
    /// Its tasks, those that follow each other as one.
    tasks: Vec<Arc<PlanTask>>,
    pub(super) schema: CarriedSchema,
}

impl PlanPart {
    /// Reads a plan from JSON.
    ///
    /// # Errors
    /// As [`Plan::from_json`].
    pub(super) fn parse(text: &str) -> Result<Self> {
        let plan = Plan::from_json(text)?;
        let tasks = joined(&plan.tasks).into_iter().map(Arc::new).collect();
        let schema = CarriedSchema::read(&plan.schema, &plan.renamed)?;
        Ok(Self { plan, tasks, schema })
    }

    /// The options, with the order and the rows that are dropped as the plan has them.
    pub(super) fn applied_to(&self, options: ReadOptions) -> ReadOptions {
        let planned = &self.plan.options;
        ReadOptions {
            sort_by: Some(self.plan.sort_by.clone()),
            on_duplicate: planned.on_duplicate,
            version_by: planned.version_by.clone(),
            replace_columns: planned.replace_columns.clone(),
            aggregate: planned.aggregate.clone(),
            delete_where: planned.delete_where.clone(),
            keep_tombstones: planned.keep_tombstones,
            drop_where: planned.drop_where.clone(),
            absent_columns: planned.absent_columns.clone(),
            missing_keys: planned.missing_keys,
            ..options
        }
    }

    /// The Arrow schema of the plan's outputs.
    ///
    /// # Errors
    /// Types that Arrow does not have.
    pub(super) fn file_schema(&self) -> Result<FileSchema> {
        FileSchema::of(self.schema.source())
    }

    /// Opens the sources that have rows of the tasks.
    ///
    /// # Errors
    /// As [`open_planned`].
    pub(super) fn open(
        &self,
        threads: Option<usize>,
        stores: &Stores,
        context: &Context,
    ) -> Result<Vec<SourcePart>> {
        let tasks = self.tasks.iter().map(Arc::as_ref);
        let opened = open_planned(&self.plan, tasks, threads, stores, context)?;
        let sources: Vec<_> = opened.iter().flatten().cloned().collect();
        let reconciled = self.schema.reconcile(&sources, &self.plan.options.unite())?;
        let order = SortOrder::try_parse(&self.plan.sort_by)?;
        let keys = Arc::new(key_leaves(&order, &reconciled, &output_leaves(&reconciled))?);
        let part = |(index, source): (usize, Option<Arc<Source>>)| {
            let of = |task: &Arc<PlanTask>| {
                let slice = task.slices.iter().find(|slice| slice.source == index)?;
                Some((Arc::clone(task), *slice))
            };
            let slices = self.tasks.iter().filter_map(of).collect();
            let live = source.as_ref().filter(|source| source.is_selection()).cloned();
            let rows = TaskRows { keys: Arc::clone(&keys), slices, live, found: OnceLock::new() };
            Some((source?, Arc::new(FilePart::Tasks(rows))))
        };
        Ok(opened.into_iter().enumerate().filter_map(part).collect())
    }
}

/// Tasks that follow each other as one: no row between them is looked for.
fn joined(tasks: &[PlanTask]) -> Vec<PlanTask> {
    let mut found: Vec<PlanTask> = Vec::new();
    for task in tasks {
        let Some(last) = found.last_mut().filter(|l| l.high.is_some() && l.high == task.low) else {
            found.push(task.clone());
            continue;
        };
        last.high.clone_from(&task.high);
        for slice in &task.slices {
            match last.slices.iter_mut().find(|known| known.source == slice.source) {
                Some(known) => known.end = slice.end,
                None => last.slices.push(*slice),
            }
        }
    }
    found
}
