//! How merges of several plans share threads and memory, such as those of a compaction's groups.
//!
//! ```text
//! plans: options, memory, bytes ─▶ how many at a time, which of them ─▶ `execute`, with a share
//! ```
//!
//! # Invariants
//! Outputs are those of merges that run one by one: a merge whose sizes need the whole limit shares
//! nothing. Nor does a large one, which would be the last to end, with few threads; nor one whose pages
//! take more than half of its share once they are unpacked.
//!
//! # Not here
//! The tasks of one plan (`at_once`); running the merges, and committing what they made (Python).

use std::collections::BTreeMap;

use plait_core::Result;
use serde::{Deserialize, Serialize};

use crate::options::{MergeOptions, check_threads};
use crate::plan::MemoryNeed;
use crate::runtime::{Context, threads_or_cores};
use crate::store::Stores;

/// About what a thread merges in a second.
const SECOND_BYTES: u64 = 32 << 20;

/// Merges that may run at the same time, within one memory limit.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SharingPlans {
    plans: Vec<SharingPlan>,
    threads: Option<usize>,
    /// For whoever makes the context, as are the settings of stores.
    #[serde(rename = "memory_limit")]
    _memory_limit: u64,
    #[serde(rename = "storage_options")]
    _storage_options: BTreeMap<String, String>,
}

/// What is known of a plan.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SharingPlan {
    options: MergeOptions,
    memory: MemoryNeed,
    /// Bytes of its sources.
    bytes: u64,
}

/// How they share.
#[derive(Debug, Serialize)]
pub(crate) struct MergeShares {
    /// How many run at a time; their threads, and their part of the limit.
    at_once: usize,
    threads: usize,
    share_bytes: u64,
    /// Whether each may run next to others.
    shares: Vec<bool>,
}

/// How the merges of some plans share threads and the limit of `context`.
///
/// # Errors
/// [`Kind::InvalidArgument`](plait_core::Kind::InvalidArgument) for a number of threads.
pub(crate) fn share_in(
    of: &SharingPlans,
    _stores: &Stores,
    context: &Context,
) -> Result<MergeShares> {
    check_threads(of.threads)?;
    let threads = threads_or_cores(of.threads);
    let may = |plan: &&SharingPlan| {
        plan.options.keeps_all()
            && plan.memory.passes == 1
            && plan.bytes <= SECOND_BYTES * threads as u64
    };
    let each = context.budget().share_merges(threads, of.plans.iter().filter(may).count());
    let share_bytes = each.limit_bytes as u64;
    let may = |plan: &SharingPlan| {
        may(&plan)
            && plan.memory.needed_bytes <= share_bytes
            // As much again for pages of outputs.
            && plan.memory.unpacked_bytes.is_some_and(|bytes| bytes <= share_bytes / 2)
            && plan.bytes <= SECOND_BYTES * each.threads as u64
    };
    let shares = of.plans.iter().map(|plan| each.at_once > 1 && may(plan)).collect();
    Ok(MergeShares { at_once: each.at_once, threads: each.threads, share_bytes, shares })
}
