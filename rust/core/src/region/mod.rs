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
//! O(k log k) for k sources, once.
//!
//! # Not here
//! Finding the bounds (`plait_parquet::merge`).

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

/// Groups `bounds` into the fewest regions that no source straddles, in key order.
///
/// ```
/// use plait_core::region::{Bounds, sweep};
/// use plait_core::SourceId;
/// let bound = |s, a, b| Bounds { source: SourceId(s), first: vec![a], last: vec![b] };
/// let regions = sweep(&[bound(0, 5, 9), bound(1, 1, 4), bound(2, 8, 8)]);
/// assert_eq!(regions.len(), 2);
/// assert_eq!(regions[1].depth_max, 2);
/// ```
#[must_use]
pub fn sweep<K: AsRef<[u8]>>(bounds: &[Bounds<K>]) -> Vec<Region> {
    let mut order: Vec<(&[u8], SourceId, &[u8])> = bounds
        .iter()
        .map(|bound| (bound.first.as_ref(), bound.source, bound.last.as_ref()))
        .collect();
    order.sort_unstable();
    let mut regions: Vec<Region> = Vec::new();
    // Last keys of the ranges that are still open, smallest on top.
    let mut open: BinaryHeap<std::cmp::Reverse<&[u8]>> = BinaryHeap::new();
    for (first, source, last) in order {
        while open.peek().is_some_and(|last| last.0 < first) {
            open.pop();
        }
        open.push(std::cmp::Reverse(last));
        match regions.last_mut() {
            Some(region) if region.last.as_slice() >= first => {
                region.sources.push(source);
                region.depth_max = region.depth_max.max(open.len());
                if last > region.last.as_slice() {
                    region.last = last.to_vec();
                }
            }
            _ => regions.push(Region {
                sources: vec![source],
                first: first.to_vec(),
                last: last.to_vec(),
                depth_max: 1,
            }),
        }
    }
    regions
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
            let regions = sweep(&bounds);
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
