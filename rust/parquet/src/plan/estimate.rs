//! What a task will probably do: how deep it is, and which rows take which copy tier.
//!
//! ```text
//! a  ├──────┤            alone │ both │ alone        alone: chunk where whole row groups fit, page
//! b      ├──────┤                                    both: dict, value, by the share of columns
//! ```
//!
//! # Invariants
//! An estimate: sources count as there from their first key to their last, and rows as spread evenly
//! between the keys that are known. Rows of all tiers add up to the rows of the task.
//!
//! # Cost
//! O(k log k) for k sources.
//!
//! # Not here
//! Bytes and memory (`make`, `memory`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parquet::file::metadata::RowGroupMetaData;

use super::source_keys::{Edge, SourceKeys};
use crate::chunk::can_copy;
use crate::leaf::OutputLeaf;
use crate::options::{MergeOptions, Tier};
use crate::properties::has_paying_dictionary;
use crate::source::Source;

/// Row groups smaller than this share of the asked-for size are merged with their neighbours
/// instead of copied: copying must not keep a lake of small row groups small.
pub(crate) const COPY_SHARE_MIN: u64 = 8;

/// As the merge: shorter stretches are not worth pages of their own.
const PAGE_ROWS_MIN: u64 = 4096;

/// Rows of a task by tier, and the most sources that share one of its keys.
#[derive(Clone, Debug, Default)]
pub(super) struct Expected {
    pub(super) tiers: BTreeMap<String, u64>,
    pub(super) depth_max: u64,
}

/// What a source can do.
#[derive(Clone, Copy)]
pub(super) struct Able {
    copies: bool,
    group_rows: u64,
    /// Share of columns with dictionaries.
    dict: f64,
}

/// What to expect of tasks between `cuts`; `rows` are theirs, and `able` says what each source can do.
pub(super) fn expect(
    sources_keys: &[SourceKeys],
    cuts: &[Option<Vec<u8>>],
    rows: &[u64],
    able: &[Able],
    options: &MergeOptions,
) -> Vec<Expected> {
    let mut alone = vec![BTreeMap::<usize, Vec<u64>>::new(); rows.len()];
    let mut depths = vec![u64::from(!sources_keys.is_empty()); rows.len()];
    if cuts.iter().all(Option::is_some) {
        sweep(sources_keys, cuts, &mut alone, &mut depths);
    }
    let has = |tier| options.copy_tiers.contains(&tier);
    let dict = if able.is_empty() || !has(Tier::Dict) {
        0.0
    } else {
        able.iter().map(|a| a.dict).sum::<f64>() / able.len() as f64
    };
    let tiers = |(alone, rows): (&BTreeMap<usize, Vec<u64>>, u64)| {
        let (mut chunk, mut page) = (0, 0);
        for (source_keys, stretches) in alone {
            let Some(able) = able.get(*source_keys).filter(|able| able.copies) else { continue };
            for stretch in stretches {
                let whole = stretch / able.group_rows.max(1) * able.group_rows;
                let is_large = able.group_rows >= options.row_group_rows / COPY_SHARE_MIN
                    || options.row_group_rows == 0;
                let copied = if has(Tier::Chunk) && is_large { whole } else { 0 };
                chunk += copied;
                let rest = stretch - copied;
                page += if has(Tier::Page) && rest >= PAGE_ROWS_MIN { rest } else { 0 };
            }
        }
        let chunk = chunk.min(rows);
        let page = page.min(rows - chunk);
        let left = rows - chunk - page;
        let dict = ((left as f64 * dict) as u64).min(left);
        let named = [("chunk", chunk), ("page", page), ("dict", dict), ("value", left - dict)];
        named.into_iter().map(|(name, rows)| (name.to_owned(), rows)).collect()
    };
    let all = alone.iter().zip(rows.iter().copied()).zip(&depths);
    all.map(|(of, depth)| Expected { tiers: tiers(of), depth_max: *depth }).collect()
}

impl Able {
    /// What a source with these row groups can do.
    pub(super) fn of(
        source: &Arc<Source>,
        groups: &[RowGroupMetaData],
        leaves: &[OutputLeaf],
        options: &MergeOptions,
    ) -> Self {
        let group = groups.iter().find(|group| group.num_rows() > 0);
        let columns = group.map_or(&[][..], |group| group.columns());
        let paying = columns.iter().filter(|chunk| has_paying_dictionary(chunk)).count();
        Self {
            copies: group.is_some() && can_copy(source, 0, leaves, options),
            group_rows: group.map_or(0, |group| group.num_rows().max(0).unsigned_abs()),
            dict: paying as f64 / columns.len().max(1) as f64,
        }
    }
}

/// Finds the stretches of keys that only one source has, and how many share the others.
fn sweep(
    sources_keys: &[SourceKeys],
    cuts: &[Option<Vec<u8>>],
    alone: &mut [BTreeMap<usize, Vec<u64>>],
    depths: &mut [u64],
) {
    let mut points: BTreeMap<&[u8], (Vec<usize>, Vec<usize>)> = BTreeMap::new();
    for (i, source_keys) in sources_keys.iter().enumerate() {
        if let (Some((_, first)), Some((_, last))) =
            (source_keys.samples.first(), source_keys.samples.last())
        {
            points.entry(first).or_default().0.push(i);
            points.entry(last).or_default().1.push(i);
        }
    }
    let cuts: Vec<&[u8]> = cuts.iter().flatten().map(Vec::as_slice).collect();
    for cut in &cuts {
        points.entry(cut).or_default();
    }
    let mut open: BTreeSet<usize> = BTreeSet::new();
    let mut stretch: Option<(usize, usize, u64)> = None;
    let mut keys = points.iter().peekable();
    while let Some((key, (starts, ends))) = keys.next() {
        let task = cuts.partition_point(|cut| cut <= key);
        open.extend(starts);
        let next = keys.peek().map(|(next, _)| **next);
        for part in 0..2 {
            if part == 1 {
                ends.iter().for_each(|source_keys| {
                    open.remove(source_keys);
                });
            }
            if let Some(depth) = depths.get_mut(task) {
                *depth = (*depth).max(open.len() as u64);
            }
            let only = if open.len() == 1 { open.first().copied() } else { None };
            let rows = only.and_then(|source_keys| sources_keys.get(source_keys)).map_or(
                0,
                |source_keys| {
                    let up_to = source_keys.about(key, Edge::UpTo);
                    match part {
                        0 => up_to - source_keys.about(key, Edge::Below).min(up_to),
                        _ => {
                            next.map_or(up_to, |next| {
                                source_keys.about(next, Edge::Below).max(up_to)
                            }) - up_to
                        }
                    }
                },
            );
            stretch = match (stretch, only) {
                (Some((of, source_keys, sum)), Some(only)) if of == task && source_keys == only => {
                    Some((of, source_keys, sum + rows))
                }
                (done, only) => {
                    note(alone, done);
                    only.map(|source_keys| (task, source_keys, rows))
                }
            };
        }
    }
    note(alone, stretch);
}

fn note(alone: &mut [BTreeMap<usize, Vec<u64>>], stretch: Option<(usize, usize, u64)>) {
    if let Some((task, source_keys, rows)) = stretch
        && let Some(of) = alone.get_mut(task)
        && rows > 0
    {
        of.entry(source_keys).or_default().push(rows);
    }
}
