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

use super::key_samples::KeySamples;
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
    able: &dyn Fn(&SourceKeys) -> Option<Able>,
    options: &MergeOptions,
) -> Vec<Expected> {
    let has = |tier| options.copy_tiers.contains(&tier);
    let is_large = |able: &Able| {
        able.group_rows >= options.row_group_rows / COPY_SHARE_MIN || options.row_group_rows == 0
    };
    // Of rows that only one source has, those in whole row groups and those in whole pages.
    let mut alone: Vec<(u64, u64)> = vec![(0, 0); rows.len()];
    let mut depths = vec![u64::from(!sources_keys.is_empty()); rows.len()];
    let note = |stretch: AloneRows| {
        let able = sources_keys.get(stretch.source).and_then(able).filter(|able| able.copies);
        let (Some(able), Some((chunk, page))) = (able, alone.get_mut(stretch.task)) else { return };
        let whole = stretch.rows / able.group_rows.max(1) * able.group_rows;
        let copied = if has(Tier::Chunk) && is_large(&able) { whole } else { 0 };
        let rest = stretch.rows - copied;
        *chunk += copied;
        *page += if has(Tier::Page) && rest >= PAGE_ROWS_MIN { rest } else { 0 };
    };
    if cuts.iter().all(Option::is_some) {
        sweep(sources_keys, cuts, &mut depths, note);
    }
    let dict = if has(Tier::Dict) {
        let shares = sources_keys.iter().filter_map(able).map(|able| able.dict);
        let (count, sum) =
            shares.fold((0_u64, 0.0), |(count, sum), share| (count + 1, sum + share));
        sum / count.max(1) as f64
    } else {
        0.0
    };
    let tiers = |((chunk, page), rows): ((u64, u64), u64)| {
        let chunk = chunk.min(rows);
        let page = page.min(rows - chunk);
        let left = rows - chunk - page;
        let dict = ((left as f64 * dict) as u64).min(left);
        let named = [("chunk", chunk), ("page", page), ("dict", dict), ("value", left - dict)];
        named.into_iter().map(|(name, rows)| (name.to_owned(), rows)).collect()
    };
    let all = alone.into_iter().zip(rows.iter().copied()).zip(&depths);
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

/// Rows of a task that only one source has, one behind the other.
struct AloneRows {
    task: usize,
    source: usize,
    rows: u64,
}

/// The first or the last key of a source, or a cut.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    First(u32),
    Last(u32),
    Cut(u32),
}

/// Finds the stretches of keys that only one source has, and how many share the others.
fn sweep(
    sources_keys: &[SourceKeys],
    cuts: &[Option<Vec<u8>>],
    depths: &mut [u64],
    mut note: impl FnMut(AloneRows),
) {
    let cuts: Vec<&[u8]> = cuts.iter().flatten().map(Vec::as_slice).collect();
    let mut ends: Vec<End> = Vec::with_capacity(2 * sources_keys.len() + cuts.len());
    for (i, source_keys) in (0_u32..).zip(sources_keys) {
        if source_keys.samples.len() > 0 {
            ends.extend([End::First(i), End::Last(i)]);
        }
    }
    ends.extend((0..).zip(&cuts).map(|(i, _)| End::Cut(i)));
    // Keys stay where they are: there may be a million sources.
    let key_of = |end: &End| {
        let samples = |i: &u32| sources_keys.get(*i as usize).map(|of| &of.samples);
        let key = match end {
            End::First(i) => samples(i).and_then(KeySamples::first).map(|(_, key)| key),
            End::Last(i) => samples(i).and_then(KeySamples::last).map(|(_, key)| key),
            End::Cut(i) => cuts.get(*i as usize).copied(),
        };
        key.unwrap_or_default()
    };
    ends.sort_unstable_by(|a, b| key_of(a).cmp(key_of(b)).then_with(|| a.cmp(b)));
    let mut open: BTreeSet<u32> = BTreeSet::new();
    let mut stretch: Option<AloneRows> = None;
    let mut points = ends.chunk_by(|a, b| key_of(a) == key_of(b)).peekable();
    while let Some(point) = points.next() {
        let Some(key) = point.first().map(key_of) else { continue };
        let task = cuts.partition_point(|cut| *cut <= key);
        open.extend(point.iter().filter_map(|end| match end {
            End::First(i) => Some(*i),
            _ => None,
        }));
        let next = points.peek().and_then(|next| next.first()).map(key_of);
        for part in 0..2 {
            if part == 1 {
                for end in point {
                    if let End::Last(i) = end {
                        open.remove(i);
                    }
                }
            }
            if let Some(depth) = depths.get_mut(task) {
                *depth = (*depth).max(open.len() as u64);
            }
            let only = if open.len() == 1 { open.first().map(|i| *i as usize) } else { None };
            let rows = only.and_then(|source| sources_keys.get(source)).map_or(0, |keys| {
                let up_to = keys.about(key, Edge::UpTo);
                match part {
                    0 => up_to - keys.about(key, Edge::Below).min(up_to),
                    _ => {
                        next.map_or(up_to, |next| keys.about(next, Edge::Below).max(up_to)) - up_to
                    }
                }
            });
            stretch = match (stretch, only) {
                (Some(mut on), Some(only)) if on.task == task && on.source == only => {
                    on.rows += rows;
                    Some(on)
                }
                (done, only) => {
                    done.into_iter().for_each(&mut note);
                    only.map(|source| AloneRows { task, source, rows })
                }
            };
        }
    }
    stretch.into_iter().for_each(note);
}
