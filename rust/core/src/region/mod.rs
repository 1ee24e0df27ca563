//! Who overlaps whom: sweeps exact key ranges of sources into regions.
//!
//! ```text
//! a ├──────┤                      regions: [a b] [c] [d e]
//! b     ├──────┤                  depth:    2     1   2
//! c                ├──┤
//! d                      ├────┤
//! e                        ├────┤
//! ```
//!
//! # Invariants
//! Regions are disjoint and ordered; every source with rows is in exactly one. Ranges that touch
//! in one key overlap: their ties need the merge.
//!
//! # Cost
//! O(k log k) for k sources. What is found of one region goes with it: there may be a million.
//!
//! # Not here
//! Finding the bounds (`plait_parquet::merge`).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use plait_base::SourceId;

/// Encoded first and last key of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds<K = Vec<u8>> {
    /// The source.
    pub source: SourceId,
    /// Encoded first key.
    pub first: K,
    /// Encoded last key, not below `first`.
    pub last: K,
}

/// Sources whose key ranges hang together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The sources, by first key, then by source.
    pub sources: Vec<SourceId>,
    /// Smallest first key.
    pub first: Vec<u8>,
    /// Largest last key.
    pub last: Vec<u8>,
    /// The most sources that share one key.
    pub depth_max: usize,
}

/// Groups `bounds` into the fewest regions that no source straddles; finds one after the other, in key
/// order.
///
/// ```
/// use plait_core::region::{Bounds, Region, sweep};
/// use plait_core::SourceId;
/// let bound = |s, a, b| Bounds { source: SourceId(s), first: vec![a], last: vec![b] };
/// let regions: Vec<Region> = sweep(vec![bound(0, 5, 9), bound(1, 1, 4), bound(2, 8, 8)]).collect();
/// assert_eq!(regions.len(), 2);
/// assert_eq!(regions[1].depth_max, 2);
/// ```
pub fn sweep<K: AsRef<[u8]>>(mut bounds: Vec<Bounds<K>>) -> impl Iterator<Item = Region> {
    let by_first = |a: &Bounds<K>, b: &Bounds<K>| {
        a.first.as_ref().cmp(b.first.as_ref()).then(a.source.cmp(&b.source))
    };
    bounds.sort_unstable_by(by_first);
    let mut begin = 0;
    std::iter::from_fn(move || {
        let region = first_region(bounds.get(begin..)?)?;
        begin += region.sources.len();
        Some(region)
    })
}

/// The region of the first of `bounds`, which are sorted.
fn first_region<K: AsRef<[u8]>>(bounds: &[Bounds<K>]) -> Option<Region> {
    let begin = bounds.first()?;
    let mut last = begin.last.as_ref();
    let (mut sources, mut depth_max) = (Vec::new(), 0);
    // Last keys of the ranges that are still open, smallest on top.
    let mut open: BinaryHeap<Reverse<&[u8]>> = BinaryHeap::new();
    for bound in bounds {
        let (key, end) = (bound.first.as_ref(), bound.last.as_ref());
        if key > last && !sources.is_empty() {
            break;
        }
        while open.peek().is_some_and(|last| last.0 < key) {
            open.pop();
        }
        open.push(Reverse(end));
        depth_max = depth_max.max(open.len());
        sources.push(bound.source);
        last = last.max(end);
    }
    let (first, last) = (begin.first.as_ref().to_vec(), last.to_vec());
    Some(Region { sources, first, last, depth_max })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn regions_partition_the_sources_and_depth_is_counted_by_hand(
            ranges in prop::collection::vec((0u8..40, 0u8..10), 0..20),
        ) {
            let bounds: Vec<Bounds> = ranges.iter().enumerate().map(|(i, &(first, len))| Bounds {
                source: SourceId(i as u32), first: vec![first], last: vec![first + len],
            }).collect();
            let regions: Vec<Region> = sweep(bounds.clone()).collect();
            let mut seen: Vec<u32> =
                regions.iter().flat_map(|r| r.sources.iter().map(|s| s.0)).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..ranges.len() as u32).collect::<Vec<_>>());
            prop_assert!(regions.windows(2).all(|w| w[0].last < w[1].first));
            for region in &regions {
                // Depth at every key, one by one.
                let depth = |k: u8| region.sources.iter().filter(|s| {
                    let b = &bounds[s.index()];
                    b.first[0] <= k && k <= b.last[0]
                }).count();
                let by_hand = (region.first[0]..=region.last[0]).map(depth).max();
                prop_assert_eq!(by_hand, Some(region.depth_max));
                prop_assert!((region.first[0]..=region.last[0]).all(|k| depth(k) > 0)
                    || region.sources.len() > 1);
            }
        }
    }
}
