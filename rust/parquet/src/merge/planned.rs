//! Plans a merge that is executed later, or elsewhere.
//!
//! # Invariants
//! Nothing is written.
//!
//! # Not here
//! What a plan is, and how it is made (`plan`).

use std::sync::Arc;

use plait_core::Result;

use super::trial::plan_with_trials;
use super::unsorted;
use crate::files::open_merged;
use crate::options::{MergeOptions, UnsortedOption};
use crate::plan::{Draft, Plan};
use crate::runtime::{Context, Stage};
use crate::store::Stores;

/// Plans the merge that [`merge`](crate::merge()) would make. The plan is a value: it can be
/// stored as JSON, and its tasks executed on other machines.
///
/// ```
/// use plait_parquet::{Context, ExecuteOptions, MergeOptions, execute, plan};
///
/// # let folder = std::env::temp_dir().join(format!("plait-plan-{}", std::process::id()));
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
///     out: path("merged"),
///     sort_by: Some("k".into()),
///     outputs: Some(2),
///     ..MergeOptions::default()
/// };
/// let plan = plan(&options, &Context::new(512_000_000))?;
/// assert_eq!(plan.to_string(), "5 rows of 2 sources in 2 tasks, sorted by k");
/// let json = plan.to_json()?;
/// for task in &plan.tasks {
///     let options = ExecuteOptions {
///         plan: json.clone(),
///         out: path("merged"),
///         tasks: Some(vec![task.index]),
///         memory_limit: 512_000_000,
///         ..ExecuteOptions::default()
///     };
///     assert_eq!(execute(&options, &Context::new(512_000_000))?.outputs.len(), 1);
/// }
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`merge`](crate::merge()), but for those of writing.
pub fn plan(options: &MergeOptions, context: &Context) -> Result<Plan> {
    plan_in(options.clone(), &Stores::try_new(&options.storage_options, context)?, context)
}

/// Plans the merge of sources in `stores`.
///
/// # Errors
/// As [`plan`].
pub(crate) fn plan_in(
    mut options: MergeOptions,
    stores: &Stores,
    context: &Context,
) -> Result<Plan> {
    context.counters().enter(Stage::Plan);
    stores.read_again();
    let sources = open_merged(&options, stores, context)?;
    // There may be a million names, and open sources have them.
    options.sources = Vec::new();
    match options.unsorted {
        UnsortedOption::Error => {
            let draft = Draft::of_sources(&options, Arc::new(sources), context)?;
            Ok(plan_with_trials(draft, &options, stores, context)?.plan)
        }
        UnsortedOption::Skip | UnsortedOption::Sort => {
            unsorted::plan(&options, sources, stores, context)
        }
    }
}
