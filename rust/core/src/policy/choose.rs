//! Chooses groups of one scope.
//!
//! # Not here
//! Levels and maturity (`size_tiered`).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::file::{File, bounds, depth_max, is_compacted};
use super::neighbours::{Keep, close};
use super::size_tiered::{SizeTiered, tiers};
use crate::region::{Region, sweep};
use plait_base::SourceId;

/// How files are chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum Policy {
    /// All files.
    Full,
    /// Files that share a key with more than so many.
    Overlap {
        /// As many may share a key.
        max_depth: usize,
    },
    /// Files of one level, so that no row is written more often than there are levels.
    SizeTiered(SizeTiered),
}

/// Files to be merged with one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Their places among the files given, ascending.
    pub files: Vec<usize>,
    /// The most of them that share one key.
    pub depth_max: usize,
}

/// The groups of `files` that `policy` wants merged, such that merging leaves what `keep` says. All
/// are of one scope; their order breaks ties. An unsorted file that the policy leaves alone is a
/// group of its own.
///
/// ```
/// use plait_core::policy::{File, Keep, Policy, choose};
/// let file = |a, b| File { first: vec![a], last: vec![b], ..File::default() };
/// let files = [file(0, 4), file(2, 6), file(5, 9), file(20, 30), file(25, 28)];
/// let groups = choose(&files, &Policy::Overlap { max_depth: 1 }, Keep::Nothing);
/// assert_eq!(groups[0].files, [0, 1, 2]);
/// assert_eq!(groups[1].files, [3, 4]);
/// assert!(choose(&files, &Policy::Overlap { max_depth: 2 }, Keep::Nothing).is_empty());
/// ```
#[must_use]
pub fn choose(files: &[File], policy: &Policy, keep: Keep<'_>) -> Vec<Group> {
    let groups = match (policy, keep) {
        (Policy::Full, Keep::Nothing) => full(files),
        (Policy::Overlap { max_depth }, Keep::Nothing) => overlapping(files, (*max_depth).max(1)),
        (Policy::Full, Keep::Ages(strangers)) => closed(files, full(files), strangers),
        (Policy::Overlap { max_depth }, Keep::Ages(strangers)) => {
            closed(files, overlapping(files, (*max_depth).max(1)), strangers)
        }
        (Policy::SizeTiered(how), keep) => tiers(files, how, keep),
    };
    let group =
        |members: Vec<usize>| Group { depth_max: depth_max(files, &members), files: members };
    let several = groups.into_iter().filter(|members| members.len() > 1);
    let mut all: Vec<Group> = several.map(group).collect();
    let mut is_taken = vec![false; files.len()];
    all.iter().flat_map(|group| &group.files).for_each(|i| is_taken[*i] = true);
    let is_alone = |i: &usize| files[*i].is_unsorted && !is_taken[*i];
    all.extend((0..files.len()).filter(is_alone).map(|i| group(vec![i])));
    all
}

/// The groups with what is between their members. One that another needs waits for the next time.
fn closed(files: &[File], groups: Vec<Vec<usize>>, strangers: &[u64]) -> Vec<Vec<usize>> {
    let mut is_taken = vec![false; files.len()];
    let mut all = Vec::new();
    for group in groups.iter().flat_map(|members| close(files, strangers, members)) {
        if group.len() > 1 && !group.iter().any(|i| is_taken[*i]) {
            group.iter().for_each(|i| is_taken[*i] = true);
            all.push(group);
        }
    }
    all
}

/// Everything, unless it is one compacted run already.
fn full(files: &[File]) -> Vec<Vec<usize>> {
    let all: Vec<usize> = (0..files.len()).collect();
    if is_compacted(files, &all) { Vec::new() } else { vec![all] }
}

/// Files that reach into a stretch of keys which more than `max_depth` of them share, in groups
/// that hang together.
fn overlapping(files: &[File], max_depth: usize) -> Vec<Vec<usize>> {
    let mut chosen = Vec::new();
    for region in sweep(bounds(files, 0..files.len())) {
        if region.depth_max > max_depth {
            chosen.extend(in_deep_stretches(files, &region.sources, max_depth));
        }
    }
    chosen.sort_unstable();
    let regions = sweep(bounds(files, chosen.into_iter()));
    let members = |region: Region| {
        let mut members: Vec<usize> = region.sources.iter().map(|source| source.index()).collect();
        members.sort_unstable();
        members
    };
    regions.map(members).collect()
}

fn in_deep_stretches(files: &[File], sources: &[SourceId], max_depth: usize) -> Vec<usize> {
    // A stretch is deepest where a file begins: these are the places to look at.
    let mut is_chosen = vec![false; files.len()];
    // Last keys of the files that are open, smallest on top, and files that are not chosen yet.
    let mut open: BinaryHeap<Reverse<&[u8]>> = BinaryHeap::new();
    let mut others: Vec<usize> = Vec::new();
    for source in sources {
        let Some(file) = files.get(source.index()) else { continue };
        while open.peek().is_some_and(|last| *last.0 < *file.first) {
            open.pop();
        }
        open.push(Reverse(&file.last));
        others.push(source.index());
        if open.len() > max_depth {
            for other in others.drain(..) {
                is_chosen[other] = files[other].last >= file.first;
            }
        }
    }
    (0..files.len()).filter(|i| is_chosen[*i]).collect()
}

#[cfg(test)]
mod tests {
    use super::super::size_tiered::SizeTiered;
    use super::*;
    use proptest::prelude::*;

    /// What a merge of `members` leaves: outputs that are disjoint, of one task.
    fn merged(files: &[File], members: &[usize], task: &str, outputs: usize) -> Vec<File> {
        let of = || members.iter().map(|i| &files[*i]);
        let (low, high) = (of().map(|f| f.first[0]).min(), of().map(|f| f.last[0]).max());
        let (low, high) = (low.unwrap(), high.unwrap());
        let level = 1 + of().map(|f| f.level).max().unwrap();
        let bytes = of().map(|f| f.bytes).sum::<u64>();
        let parts = outputs.min(usize::from(high - low) + 1).max(1);
        let cut = |i: usize| low + (usize::from(high - low + 1) * i / parts) as u8;
        (0..parts)
            .map(|i| File {
                first: vec![cut(i)],
                last: vec![cut(i + 1) - 1],
                bytes: bytes / parts as u64,
                level,
                task: task.into(),
                age_s: 0.0,
                ..File::default()
            })
            .collect()
    }

    fn file(made: (u8, u8, u64, u64)) -> File {
        let (first, len, bytes, level) = made;
        File { first: vec![first], last: vec![first + len], bytes, level, ..File::default() }
    }

    fn depth_at(files: &[File], key: u8) -> usize {
        files.iter().filter(|f| f.first[0] <= key && key <= f.last[0]).count()
    }

    fn policies() -> impl Strategy<Value = Policy> {
        let tiered = (2usize..5, 0usize..2, any::<bool>()).prop_map(|(factor, more, finalize)| {
            Policy::SizeTiered(SizeTiered {
                merge_factor: factor,
                merge_factor_max: factor + more,
                mature_bytes: 500,
                mature_level: 3,
                mature_age_s: f64::INFINITY,
                finalize,
            })
        });
        let overlap = (1usize..4).prop_map(|max_depth| Policy::Overlap { max_depth });
        prop_oneof![Just(Policy::Full), overlap, tiered]
    }

    proptest! {
        #[test]
        fn merging_what_was_chosen_leaves_nothing_to_choose(
            made in prop::collection::vec((0u8..80, 0u8..20, 1u64..300, 0u64..4), 0..30),
            policy in policies(), outputs in 1usize..4,
        ) {
            let mut files: Vec<File> = made.into_iter().map(file).collect();
            // A policy of levels goes on with what it made, at most once a level.
            let rounds = if matches!(policy, Policy::SizeTiered(_)) { 12 } else { 1 };
            for round in 0..rounds {
                let groups = choose(&files, &policy, Keep::Nothing);
                let mut seen: Vec<usize> = groups.iter().flat_map(|g| g.files.clone()).collect();
                prop_assert!(groups.iter().all(|g| g.files.len() > 1 && g.files.is_sorted()));
                seen.sort_unstable();
                let distinct = { let mut d = seen.clone(); d.dedup(); d };
                prop_assert_eq!(&seen, &distinct);
                let rest = (0..files.len()).filter(|i| !seen.contains(i)).map(|i| files[i].clone());
                let rest: Vec<File> = rest.collect();
                let made = groups.iter().enumerate().flat_map(|(i, g)| {
                    let outputs = if matches!(policy, Policy::SizeTiered(_)) { 1 } else { outputs };
                    merged(&files, &g.files, &format!("{round}-{i}"), outputs)
                });
                files = made.chain(rest).collect();
            }
            prop_assert_eq!(choose(&files, &policy, Keep::Nothing), Vec::new());
            if let Policy::Overlap { max_depth } = policy {
                prop_assert!((0..=100).all(|key| depth_at(&files, key) <= max_depth));
            }
        }

        #[test]
        fn an_unsorted_file_is_in_one_group_by_every_policy(
            made in prop::collection::vec((0u8..80, 0u8..20, 1u64..300, 0u64..4), 0..30),
            unsorted in prop::collection::vec(any::<bool>(), 30),
            which in 0..4usize, keeps in any::<bool>(),
        ) {
            let numbered = made.into_iter().zip(unsorted).enumerate();
            let files: Vec<File> = numbered
                .map(|(i, (made, is_unsorted))| File { age: i as u64, is_unsorted, ..file(made) })
                .collect();
            let tiered = SizeTiered {
                merge_factor: 3, merge_factor_max: 4, mature_bytes: 200, mature_level: 2,
                mature_age_s: f64::INFINITY, finalize: which == 3,
            };
            let policy = match which {
                0 => Policy::Full,
                1 => Policy::Overlap { max_depth: 2 },
                _ => Policy::SizeTiered(tiered),
            };
            let keep = if keeps { Keep::Ages(&[]) } else { Keep::Nothing };
            let groups = choose(&files, &policy, keep);
            for (i, file) in files.iter().enumerate() {
                let taken = groups.iter().filter(|group| group.files.contains(&i)).count();
                prop_assert!(taken <= 1 && (taken == 1 || !file.is_unsorted), "{}", i);
            }
            let is_one = |group: &Group| group.files.len() == 1;
            prop_assert!(groups.iter().filter(|g| is_one(g)).all(|g| files[g.files[0]].is_unsorted));
            // What is sorted by then is chosen as it would have been before.
            let sorted: Vec<File> =
                files.into_iter().map(|file| File { is_unsorted: false, ..file }).collect();
            let several: Vec<Group> = groups.into_iter().filter(|group| !is_one(group)).collect();
            prop_assert_eq!(choose(&sorted, &policy, keep), several);
        }

        #[test]
        fn only_files_of_deep_stretches_are_chosen(
            made in prop::collection::vec((0u8..80, 0u8..20, 1u64..300, 0u64..4), 0..30),
            max_depth in 1usize..4,
        ) {
            let files: Vec<File> = made.into_iter().map(file).collect();
            let groups = choose(&files, &Policy::Overlap { max_depth }, Keep::Nothing);
            for (i, file) in files.iter().enumerate() {
                let is_deep = (file.first[0]..=file.last[0]).any(|k| depth_at(&files, k) > max_depth);
                prop_assert_eq!(groups.iter().any(|g| g.files.contains(&i)), is_deep, "{}", i);
            }
        }
    }
}
