//! Merges sorted Parquet files into few sorted files whose key ranges do not overlap.
//!
//! ```text
//! plan      footers, keys ─▶ tasks, one an output                       (module `plan`)
//! execute   task ─▶ prepare ─▶ run: keys ─▶ windows ─▶ weave or copy    under temp names
//! publish   rows add up? sources unchanged? ─▶ rename all
//! ```
//!
//! # Invariants
//! Nothing is visible before every output is whole, durable and counted. Sources are only read. A
//! merge is its plan, executed: there is no other way to merge.
//!
//! # Cost
//! Key columns are read twice, everything else once. Memory: see `budget`.
//!
//! # Not here
//! The order of rows (`plait_core::plan`); where outputs are cut (`plan`).

mod at_once;
mod attempt;
mod cascade;
mod chosen;
mod clash;
mod execute;
mod frame;
mod mapped;
mod name;
mod ordering;
mod output_check;
mod planned;
mod prepare;
mod publish;
mod run;
mod shared;
mod sizes;
mod task;
#[cfg(test)]
mod tests;
mod trial;
mod unsorted;
mod weaver;

use std::sync::Arc;
use std::time::Instant;

use plait_core::{Kind, Result};

use self::attempt::{Attempt, Stopped, timed};
use self::execute::execute_all;
use self::trial::plan_with_trials;
use crate::options::{MergeOptions, UnsortedOption};
use crate::plan::Draft;
use crate::properties::parse_codec;
use crate::ranks::KeyForm;
use crate::report::{MergeReport, Times};
use crate::runtime::{Context, Stage};
use crate::source::Source;
use crate::store::Stores;

pub(crate) use execute::execute_in;
pub use execute::{ExecuteOptions, execute};
pub use planned::plan;
pub(crate) use planned::plan_in;
pub(crate) use shared::share_in;

/// Checks options that are to be used later, for what is wrong with them whatever the sources.
///
/// # Errors
/// [`Kind::InvalidArgument`](plait_core::Kind::InvalidArgument).
pub(crate) fn check_in(options: &MergeOptions, _stores: &Stores, _context: &Context) -> Result<()> {
    options.compression.as_deref().map(parse_codec).transpose()?;
    options.check_values()
}

/// Merges as `options` say.
///
/// ```
/// use plait_parquet::{Context, MergeOptions, merge};
///
/// # let folder = std::env::temp_dir().join(format!("plait-merge-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
/// # let context = Context::new(64 << 20);
/// # for (name, keys) in [("a.parquet", vec![1, 3, 5]), ("b.parquet", vec![2, 4])] {
/// #     let keys: arrow_array::ArrayRef = std::sync::Arc::new(arrow_array::Int64Array::from(keys));
/// #     let batch = arrow_array::RecordBatch::try_from_iter([("k", keys)])?;
/// #     let schema = batch.schema();
/// #     let batches = arrow_array::RecordBatchIterator::new([Ok(batch)], schema);
/// #     plait_parquet::write_batches(Box::new(batches), &path(name), &context)?;
/// # }
/// let options = MergeOptions {
///     sources: vec![path("a.parquet"), path("b.parquet")],
///     out: path("merged.parquet"),
///     sort_by: Some("k".into()),
///     ..MergeOptions::default()
/// };
/// let report = merge(&options, &Context::new(512_000_000))?;
/// assert_eq!(report.to_string(), "5 rows of 2 sources in 1 output, sorted by k");
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Every [`Kind`](plait_core::Kind); whatever it is, no output is visible and no source changed.
/// The one exception: when a rename fails or the process dies between two renames, the outputs
/// renamed before stay, each whole; running the merge again replaces them with the same bytes.
pub fn merge(options: &MergeOptions, context: &Context) -> Result<MergeReport> {
    merge_in(options, &Stores::try_new(&options.storage_options, context)?, context)
}

/// Merges as `options` say, what is in `stores`.
///
/// # Errors
/// As [`merge`].
pub(crate) fn merge_in(
    options: &MergeOptions,
    stores: &Stores,
    context: &Context,
) -> Result<MergeReport> {
    let outcome = merge_with(options, stores, context, KeyForm::Ranked);
    context.buffers().release_idle();
    outcome
}

/// What the files of a merge of open sources are.
pub(crate) struct OpenMerge {
    /// Names end in these 16 hexadecimal digits: the same rows, merged twice, are in two files.
    pub(crate) lease: String,
    /// `plait.merge_level`: the sources are no files that say theirs.
    pub(crate) merge_level: u64,
}

/// Merges sources that are open into files.
///
/// # Errors
/// As [`merge`].
pub(crate) fn merge_open(
    sources: Arc<Vec<Arc<Source>>>,
    OpenMerge { lease, merge_level }: OpenMerge,
    options: &MergeOptions,
    stores: &Stores,
    context: &Context,
) -> Result<MergeReport> {
    let outcome = timed(options, stores, context, KeyForm::Ranked, |attempt| {
        let started = Instant::now();
        context.counters().enter(Stage::Plan);
        let draft = Draft::of_sources(options, sources, context)?;
        let mut made = plan_with_trials(draft, options, stores, context)?;
        made.plan.lease = Some(lease);
        made.plan.merge_level = merge_level;
        context.counters().set_total(context.counters().consumed_bytes() + made.total_bytes);
        attempt.times.plan_s = started.elapsed().as_secs_f64();
        execute_all(&made, &[], attempt).map_err(|stopped| stopped.error)
    });
    context.buffers().release_idle();
    outcome
}

fn merge_with(
    options: &MergeOptions,
    stores: &Stores,
    context: &Context,
    form: KeyForm,
) -> Result<MergeReport> {
    timed(options, stores, context, form, |attempt| {
        match plan_and_execute(attempt) {
            // A file whose footer says that it is sorted is not.
            Err(Stopped { error, .. })
                if options.unsorted != UnsortedOption::Error
                    && options.trust_footers
                    && error.kind() == Kind::UnsortedSource =>
            {
                retry(attempt)
            }
            Err(Stopped { is_stale: true, .. }) => {
                // Some footer has keys that its rows do not have.
                retry(attempt)
            }
            outcome => outcome,
        }
        .map_err(|stopped| stopped.error)
    })
}

/// Merges again without believing footers.
fn retry(attempt: &mut Attempt<'_>) -> Result<MergeReport, Stopped> {
    attempt.context.counters().start_over();
    *attempt.times = Times::default();
    let options = MergeOptions { trust_footers: false, ..attempt.options.clone() };
    plan_and_execute(&mut attempt.with_options(&options))
}

fn plan_and_execute(attempt: &mut Attempt<'_>) -> Result<MergeReport, Stopped> {
    let Attempt { options, stores, context, .. } = *attempt;
    if options.unsorted != UnsortedOption::Error {
        return unsorted::plan_and_execute(attempt);
    }
    let started = Instant::now();
    context.counters().enter(Stage::Plan);
    let draft = Draft::open(options, stores, context)?;
    let made = plan_with_trials(draft, options, stores, context)?;
    context.counters().set_total(context.counters().consumed_bytes() + made.total_bytes);
    attempt.times.plan_s = started.elapsed().as_secs_f64();
    execute_all(&made, &[], attempt)
}
