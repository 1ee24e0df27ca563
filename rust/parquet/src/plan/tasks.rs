//! The tasks between cuts: which rows of which source each reads, and about how many.
//!
//! ```text
//!            k               tasks 0 and 1: rows below k, rows from k on
//! a  ├───────┼──────┤        the count of rows before k is exact, or at least and at most:
//! b       ├──┼───────────┤   the estimate is the middle
//! ```
//!
//! # Invariants
//! Every row of every source is in exactly one task.
//!
//! # Not here
//! Where the cuts are (`cuts`); how rows will be copied (`estimate`).

use std::sync::Arc;

use super::planned_source::KeyBase64;
use super::rule::OutputCut;
use super::source_keys::{Count, SourceKeys};
use super::value::{PlanTask, Slice};
use crate::source::Source;

/// The tasks that `cuts` make, of rows that are counted from the start of files.
pub(super) fn tasks(sources_keys: &[SourceKeys], cuts: &[OutputCut]) -> Vec<PlanTask> {
    let whole = |source_keys: &SourceKeys| (source_keys.rows(), source_keys.rows());
    let mut tasks = Vec::new();
    let mut low: Option<&OutputCut> = None;
    // How many rows of each source lie before the task, as far as that is known.
    let mut starts: Vec<Count> = vec![(0, 0); sources_keys.len()];
    for index in 0..=cuts.len() {
        let high = cuts.get(index);
        // One that grows as it is filled would need twice the memory.
        let most = match high {
            Some(high) => high.rows.len(),
            None => sources_keys.iter().zip(&starts).filter(|(of, at)| of.rows() > at.1).count(),
        };
        let (mut slices, mut rows, mut exact) = (Vec::with_capacity(most), 0, true);
        let mut add = |place: usize, end: Count| {
            let start = starts[place];
            // Of a source that is not sorted, keys lead back: each row is in one task all the same.
            let end = (end.0.max(start.0), end.1.max(start.1));
            starts[place] = end;
            if end.1 > start.0 {
                let source = &sources_keys[place].source;
                let first = source.span().start;
                let in_file = |count: Count| (first + count.0, first + count.1);
                let (start, end) = (in_file(start), in_file(end));
                let slice = Slice { source: source.id.index(), start, end };
                let middle = |count: Count| count.0 + (count.1 - count.0) / 2;
                rows += middle(end) - middle(start).min(middle(end));
                exact &= slice.rows().is_some();
                slices.push(slice);
            }
        };
        match high {
            Some(high) => high.rows.iter().for_each(|(place, end)| add(*place, *end)),
            None => sources_keys.iter().map(whole).enumerate().for_each(|(i, end)| add(i, end)),
        }
        let key = |cut: Option<&OutputCut>| cut.and_then(|cut| cut.key.clone()).map(KeyBase64);
        tasks.push(PlanTask {
            index: index as u64,
            low: key(low),
            high: key(high),
            key_low: Vec::new(),
            key_high: Vec::new(),
            partition: String::new(),
            slices,
            rows,
            rows_exact: exact,
            bytes: 0,
            depth_max: 0,
            tiers: Default::default(),
        });
        low = high;
    }
    tasks
}

/// Says which of `folders`, each with what its keys begin with, the outputs of tasks go to.
pub(super) fn name_partitions(tasks: &mut [PlanTask], folders: &[(Vec<u8>, String)]) {
    for task in tasks {
        let low = task.low.as_ref().map(|low| low.0.as_slice());
        let at = folders.partition_point(|(prefix, _)| low.is_some_and(|low| **prefix <= *low));
        if let Some((prefix, folder)) = folders.get(at.saturating_sub(1)) {
            task.partition.clone_from(folder);
            task.low.get_or_insert_with(|| KeyBase64(prefix.clone()));
        }
    }
}

/// Bytes of the rows of `task` as they are stored in its sources.
pub(super) fn stored_bytes(task: &PlanTask, sources: &[Arc<Source>]) -> u64 {
    let bytes = |slice: &Slice| {
        let source = sources.get(slice.source)?;
        let rows = (slice.end.0 + slice.end.1).saturating_sub(slice.start.0 + slice.start.1) / 2;
        let share = rows as f64 / source.rows().max(1) as f64;
        Some((source.stored_bytes as f64 * share) as u64)
    };
    task.slices.iter().filter_map(bytes).sum()
}

/// Stored bytes and rows.
pub(super) fn stored(sources: &[Arc<Source>]) -> (u64, u64) {
    let sum = |of: fn(&Source) -> u64| sources.iter().map(|source| of(source)).sum();
    (sum(|source| source.stored_bytes), sum(Source::rows))
}
