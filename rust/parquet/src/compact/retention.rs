//! Which files of a scope have rows past their retention.
//!
//! # Cost
//! A column of every file, unless statistics say that none of its rows can be.
//!
//! # Not here
//! The condition, and how it is looked for in a file (`drops`).

use std::sync::Arc;

use plait_core::Result;
use plait_core::key::SortOrder;
use plait_core::workers::each;

use crate::drops::{self, Expiry};
use crate::files::readers;
use crate::leaf::{LocationCache, output_leaves};
use crate::options::MergeOptions;
use crate::runtime::{Context, MemoryStage};
use crate::schema::reconcile;
use crate::source::Source;

/// How much of each of `sources` is past the retention that `merge` names.
///
/// # Errors
/// What [`drops::find`] refuses of any column that `merge` names, and whatever is wrong with a
/// file.
pub(super) fn expiry_of(
    sources: &[Arc<Source>],
    order: &SortOrder,
    merge: &MergeOptions,
    context: &Context,
) -> Result<Vec<Expiry>> {
    let footers: Vec<_> = sources.iter().map(|s| (s.path(), s.file())).collect();
    let reconciled = reconcile(&footers, &merge.unite())?;
    let leaves = output_leaves(&reconciled);
    let found =
        drops::find(merge, order, &reconciled, &leaves).map_err(|e| match sources.first() {
            Some(source) => e.with_path(source.path()),
            None => e,
        });
    let Some(drops) = found? else {
        return Ok(vec![Expiry::None; sources.len()]);
    };
    let cache =
        Arc::new(LocationCache::new(context, context.budget().bytes(MemoryStage::PageLocations)));
    let of = |i: usize| drops::expiry(&drops, &sources[i], &cache, context);
    each(&readers(sources, merge.threads, context), sources.len(), of)
}
