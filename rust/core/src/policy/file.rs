//! What a policy knows of a file.
//!
//! # Not here
//! Reading it (`plait_parquet::compact`).

use plait_base::SourceId;

use crate::region::{Bounds, sweep};

/// What a policy knows of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct File {
    /// Encoded first key; with `last` absent when it has no rows.
    pub first: Vec<u8>,
    /// Encoded last key.
    pub last: Vec<u8>,
    /// Length of the file.
    pub bytes: u64,
    /// How many merges lie behind it.
    pub level: u64,
    /// Names the merge that made it; empty if none did.
    pub task: String,
    /// Seconds since it was written.
    pub age_s: f64,
    /// Its place among the files of its folder by age, the oldest first.
    pub age: u64,
    /// Whether it has no rows.
    pub is_empty: bool,
    /// Whether its rows are in no order: it is written again, sorted, whatever else there is.
    pub is_unsorted: bool,
}

/// Whether one merge made all of `members`, and nothing of them overlaps.
pub(super) fn is_compacted(files: &[File], members: &[usize]) -> bool {
    let mut tasks = members.iter().filter_map(|i| files.get(*i)).map(|file| file.task.as_str());
    let first = tasks.next().unwrap_or_default();
    !first.is_empty() && tasks.all(|task| task == first) && depth_max(files, members) <= 1
}

pub(super) fn depth_max(files: &[File], members: &[usize]) -> usize {
    let regions = sweep(bounds(files, members.iter().copied()));
    regions.map(|region| region.depth_max).max().unwrap_or(0)
}

pub(super) fn bounds<'a>(
    files: &'a [File],
    members: impl Iterator<Item = usize> + 'a,
) -> Vec<Bounds<&'a [u8]>> {
    members
        .filter_map(|i| {
            let file = files.get(i)?;
            let source = SourceId(u32::try_from(i).unwrap_or(u32::MAX));
            Some(Bounds { source, first: &file.first[..], last: &file.last[..] })
        })
        .collect()
}
