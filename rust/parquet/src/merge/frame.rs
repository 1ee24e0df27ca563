//! What all tasks of one plan share while they are executed here.
//!
//! # Invariants
//! Sources are what they were when the plan was made, or named. The output folder comes last: what
//! is refused leaves no trace.
//!
//! # Not here
//! What a task does (`prepare`, `run`).

use std::sync::Arc;

use plait_core::key::SortOrder;
use plait_core::{Error, Kind, Result};

use super::attempt::Attempt;
use super::chosen::ChosenTasks;
use super::output_check::check_output;
use crate::leaf::LocationCache;
use crate::options::MergeOptions;
use crate::output::Target;
use crate::plan::{CarriedSchema, Plan, open_planned};
use crate::runtime::{Context, MemoryStage, Pool, TaskShares};
use crate::source::Source;
use crate::store::Stores;

/// What tasks share.
pub(super) struct Frame<'a> {
    pub(super) plan: &'a Plan,
    pub(super) order: SortOrder,
    pub(super) schema: Arc<CarriedSchema>,
    /// By index in the plan; only those that are needed are open.
    sources: Arc<Vec<Option<Arc<Source>>>>,
    /// Threads that weave; none when one is asked for, and where parts have their own. They end with the
    /// merge.
    pub(super) pool: Arc<Option<Pool>>,
    pub(super) threads: usize,
    /// What tasks have that run at the same time; none where they run one after the other.
    pub(super) parts: Vec<FramePart<'a>>,
    pub(super) target: Arc<Target>,
    /// Where pages are, found once for all tasks.
    pub(super) cache: Arc<LocationCache>,
    pub(super) stores: &'a Stores,
    /// Whether sources are runs of files, some of which were written here.
    pub(super) merges_runs: bool,
}

/// The frame of tasks that run one after the other, next to others; their threads and memory.
pub(super) struct FramePart<'a> {
    pub(super) frame: Frame<'a>,
    pub(super) context: Context,
}

impl<'a> Frame<'a> {
    /// Opens what the tasks need, unless it is open already, and the folder of the outputs.
    pub(super) fn open(what: &ChosenTasks<'a>, attempt: &Attempt<'a>) -> Result<Self> {
        let Attempt { options, stores, context, .. } = *attempt;
        let is_read_again = options.verify.is_some() || options.sha256;
        // Sources come first.
        let mut frame = Self::of(what, Target::nowhere(context), attempt)?;
        let target = Target::open(&options.out, stores, context)?.with_copies(is_read_again);
        frame.set_target(match options.partition_by.is_empty() {
            true => target,
            // There may be more outputs than files may be open.
            false => target.with_nest()?,
        });
        if let Err(e) = frame.check_output(options) {
            frame.target.abandon();
            return Err(e);
        }
        Ok(frame)
    }

    /// Opens what the tasks need, unless it is open already.
    pub(super) fn of(
        what: &ChosenTasks<'a>,
        target: Target,
        attempt: &Attempt<'a>,
    ) -> Result<Self> {
        let Attempt { options, stores, context, .. } = *attempt;
        let ChosenTasks { plan, tasks, sources, files } = *what;
        let order = SortOrder::try_parse(&plan.sort_by)?;
        let schema = Arc::new(CarriedSchema::read(&plan.schema, &plan.renamed)?);
        let sources = match sources {
            Some(sources) => sources.iter().cloned().map(Some).collect(),
            None => open_planned(plan, tasks.iter().copied(), options.threads, stores, context)?,
        };
        let shares = share_tasks(what, attempt);
        let threads = shares.threads;
        context.buffers().set_threads(shares.at_once * threads);
        let pool = Arc::new(if shares.at_once == 1 { Pool::new(threads)? } else { None });
        let cache = Arc::new(LocationCache::new(
            context,
            options.budget().bytes(MemoryStage::PageLocations),
        ));
        let merges_runs = !files.is_empty();
        let (sources, target) = (Arc::new(sources), Arc::new(target));
        let mut frame = Self {
            plan,
            order,
            schema,
            sources,
            pool,
            threads,
            parts: Vec::new(),
            target,
            cache,
            stores,
            merges_runs,
        };
        if shares.at_once > 1 {
            let parts = (0..shares.at_once).map(|_| frame.part(shares, context));
            frame.parts = parts.collect::<Result<_>>()?;
        }
        Ok(frame)
    }

    /// One of several parts.
    fn part(&self, shares: TaskShares, context: &Context) -> Result<FramePart<'a>> {
        let frame = Self {
            plan: self.plan,
            order: self.order.clone(),
            schema: Arc::clone(&self.schema),
            sources: Arc::clone(&self.sources),
            pool: Arc::new(Pool::new(shares.threads)?),
            threads: shares.threads,
            parts: Vec::new(),
            target: Arc::clone(&self.target),
            cache: Arc::clone(&self.cache),
            stores: self.stores,
            merges_runs: self.merges_runs,
        };
        let context = context.part(shares.limit_bytes);
        context.buffers().set_threads(shares.at_once * shares.threads);
        Ok(FramePart { frame, context })
    }

    fn set_target(&mut self, target: Target) {
        self.target = Arc::new(target);
        for part in &mut self.parts {
            part.frame.target = Arc::clone(&self.target);
        }
    }

    /// Refuses outputs that would mix with files of others.
    pub(super) fn check_output(&self, options: &MergeOptions) -> Result<()> {
        let (stores, task) = (self.stores, &self.plan.task);
        let (outputs, sources) = (self.plan.outputs, &self.plan.sources);
        check_output(&self.target, options, outputs, sources, stores, task)
    }

    /// The source at `index` of the plan.
    pub(super) fn source(&self, index: usize) -> Result<&Arc<Source>> {
        self.sources
            .get(index)
            .and_then(Option::as_ref)
            .ok_or_else(|| Error::new(Kind::Internal, "a task needs a source that is not open"))
    }

    /// Sources that are open.
    pub(super) fn open_sources(&self) -> impl Iterator<Item = &Arc<Source>> {
        self.sources.iter().flatten()
    }

    /// The name of the output at `index`, with its folder.
    pub(super) fn output_name(&self, index: u64) -> String {
        if let Some(name) = self.target.file_name() {
            return name.to_owned();
        }
        let tasks = &self.plan.tasks;
        let task = tasks.binary_search_by_key(&index, |task| task.index);
        let task = task.ok().and_then(|at| tasks.get(at));
        let folder = task.map_or("", |task| task.partition.as_str());
        let name = format!("{folder}part-{index:05}-{}", self.plan.task);
        match &self.plan.lease {
            Some(lease) => format!("{name}-{lease}.parquet"),
            None => format!("{name}.parquet"),
        }
    }

    /// How many leading key columns start a row group.
    pub(super) fn align_columns(&self, options: &MergeOptions) -> usize {
        match options.align_row_groups {
            0 => 0,
            columns => options.partition_by.len() + columns,
        }
    }
}

/// How the tasks share threads and memory. Where rows are dropped or combined, or memory does not allow one
/// pass, sizes that outputs depend on need the whole limit.
fn share_tasks(what: &ChosenTasks<'_>, attempt: &Attempt<'_>) -> TaskShares {
    let Attempt { options, context, .. } = *attempt;
    let memory = &what.plan.memory;
    let tasks = if options.keeps_all() && memory.passes == 1 { what.tasks.len() } else { 1 };
    context.budget().share_tasks(options.threads_or_cores(), tasks, memory.needed_bytes)
}
