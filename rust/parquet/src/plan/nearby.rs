//! Which sources have rows near a key, by their first and last keys.
//!
//! ```text
//! a ├────┤                            before: all of its rows
//! b    ├────────────┤                 near
//! c           ├────────────┤          near
//! d                           ├───┤   behind: none of its rows
//!              low ··· high           where a key is looked for
//! ```
//!
//! # Invariants
//! First and last keys are those that were known at the start; a source that is not sorted may have
//! others.
//!
//! # Cost
//! O(k log k) for k sources, once; O(n log k) for n sources that are near.
//!
//! # Not here
//! How many rows of the sources that are near lie before a key (`source_keys`).

use super::key_samples::KeySamples;
use super::source_keys::SourceKeys;

/// No more sources that begin in some place are looked at one by one.
const FEW: usize = 64;

/// In the place of a source where there is none.
const NO_PLACE: u32 = u32::MAX;

/// Where all sources begin and end.
#[derive(Default)]
pub(super) struct Nearby {
    /// By the place of the source.
    pub(super) ends: Vec<SourceEnds>,
    by_first: Ordered,
    by_last: Ordered,
    /// A tree over `by_first`: the greatest last key below each node; the two below it are at twice its
    /// place and behind that. [`NO_PLACE`] where there are no sources below.
    greatest: Vec<u32>,
}

/// Keys of a source, the first and the last among them, and its rows.
pub(super) struct SourceEnds {
    pub(super) keys: KeySamples,
    pub(super) rows: u64,
}

impl SourceEnds {
    fn first(&self) -> &[u8] {
        self.keys.first().map_or(&[], |(_, key)| key)
    }

    fn last(&self) -> &[u8] {
        self.keys.last().map_or(&[], |(_, key)| key)
    }
}

/// Places of sources in the order of one of their keys.
#[derive(Default)]
struct Ordered {
    places: Vec<u32>,
    /// Rows of the first so many of them, from none to all.
    rows: Vec<u64>,
}

/// The sources that are near some keys.
pub(super) struct Near {
    /// Their places, ascending.
    pub(super) places: Vec<usize>,
    /// Rows of the sources all of whose rows lie before these keys.
    pub(super) before: u64,
}

impl Ordered {
    fn of<'a>(ends: &'a [SourceEnds], key: impl Fn(&'a SourceEnds) -> &'a [u8]) -> Self {
        let mut places: Vec<u32> = (0_u32..).zip(ends).map(|(place, _)| place).collect();
        places.sort_by_key(|&place| key(&ends[place as usize]));
        let mut rows = Vec::with_capacity(places.len() + 1);
        let mut sum = 0;
        rows.push(sum);
        for &place in &places {
            sum += ends[place as usize].rows;
            rows.push(sum);
        }
        Self { places, rows }
    }

    /// The first place up to which more than `rank` rows are counted.
    fn with_row(&self, rank: u64) -> Option<usize> {
        let at = self.rows.partition_point(|rows| *rows <= rank).checked_sub(1)?;
        self.places.get(at).map(|place| *place as usize)
    }
}

impl Nearby {
    pub(super) fn new(sources_keys: &[SourceKeys]) -> Self {
        let ends = |of: &SourceKeys| SourceEnds { keys: of.samples.clone(), rows: of.rows() };
        Self::of(sources_keys.iter().map(ends))
    }

    fn of(ends: impl Iterator<Item = SourceEnds>) -> Self {
        let ends: Vec<SourceEnds> = ends.collect();
        let by_first = Ordered::of(&ends, SourceEnds::first);
        let by_last = Ordered::of(&ends, SourceEnds::last);
        let leaves = ends.len().next_power_of_two();
        let mut greatest = vec![NO_PLACE; 2 * leaves];
        greatest[leaves..].iter_mut().zip(&by_first.places).for_each(|(to, place)| *to = *place);
        for node in (1..leaves).rev() {
            let below = [greatest[2 * node], greatest[2 * node + 1]];
            let below = below.into_iter().filter(|place| *place != NO_PLACE);
            let most = below.max_by_key(|place| ends[*place as usize].last());
            greatest[node] = most.unwrap_or(NO_PLACE);
        }
        Self { ends, by_first, by_last, greatest }
    }

    /// Two keys between which the row lies that has `rank` rows before it, unless it has one of them.
    pub(super) fn bracket(&self, rank: u64) -> Option<(&[u8], &[u8])> {
        // Below the first key of a source lie only rows of those that begin before it, and up to the
        // last key of a source at least all rows of those that end before it.
        let (begins, ends) = (self.by_first.with_row(rank)?, self.by_last.with_row(rank)?);
        Some((self.ends[begins].first(), self.ends[ends].last()))
    }

    /// The first key of the middle one of the sources that begin between `low` and `high`, unless
    /// these are few.
    pub(super) fn middle(&self, low: &[u8], high: &[u8]) -> Option<&[u8]> {
        let first = |place: u32| self.ends[place as usize].first();
        let places = &self.by_first.places;
        let from = places.partition_point(|&place| first(place) <= low);
        let to = places.partition_point(|&place| first(place) < high);
        let is_many = to.saturating_sub(from) > FEW;
        places.get(from + to.saturating_sub(from) / 2).filter(|_| is_many).map(|&at| first(at))
    }

    /// How many sources begin between `low` and `high`.
    pub(super) fn begin_between(&self, low: &[u8], high: &[u8]) -> usize {
        let first = |place: u32| self.ends[place as usize].first();
        let below = |key: &[u8]| self.by_first.places.partition_point(|&at| first(at) < key);
        below(high).saturating_sub(below(low))
    }

    /// The sources that have rows between `low` and `high`, or with these keys.
    pub(super) fn between(&self, low: &[u8], high: &[u8]) -> Near {
        let is_below = |place: u32| self.ends[place as usize].last() < low;
        let ended = self.by_last.places.partition_point(|&place| is_below(place));
        let begins = |place: u32| self.ends[place as usize].first() <= high;
        let begun = self.by_first.places.partition_point(|&place| begins(place));
        let mut places = Vec::new();
        let leaves = self.greatest.len() / 2;
        // Nodes whose leaves are looked at, with the first of these and their number.
        let mut open = vec![(1, 0, leaves)];
        while let Some((node, start, len)) = open.pop() {
            let Some(&greatest) = self.greatest.get(node) else { continue };
            if greatest == NO_PLACE || start >= begun || is_below(greatest) {
                continue;
            }
            if len == 1 {
                places.push(greatest as usize);
            } else {
                let half = len / 2;
                open.extend([(2 * node, start, half), (2 * node + 1, start + half, half)]);
            }
        }
        places.sort_unstable();
        Near { places, before: self.by_last.rows[ended] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sources_are_found_as_by_looking_at_all(
            ranges in prop::collection::vec((0u8..60, 0u8..30, 1u64..9), 1..90),
            low in 0u8..90,
            len in 0u8..20,
            rank in 0u64..400,
        ) {
            let ends = |&(first, len, rows): &(u8, u8, u64)| SourceEnds {
                keys: KeySamples::of(&[(0, [first]), (rows - 1, [first + len])]),
                rows,
            };
            let nearby = Nearby::of(ranges.iter().map(ends));
            let high = low + len;
            let near = nearby.between(&[low], &[high]);
            let is_near = |i: &usize| ranges[*i].0 <= high && ranges[*i].0 + ranges[*i].1 >= low;
            prop_assert_eq!(near.places, (0..ranges.len()).filter(is_near).collect::<Vec<_>>());
            let before = ranges.iter().filter(|range| range.0 + range.1 < low);
            prop_assert_eq!(near.before, before.map(|range| range.2).sum::<u64>());
            let begin = ranges.iter().filter(|range| range.0 >= low && range.0 < high).count();
            prop_assert_eq!(nearby.begin_between(&[low], &[high]), begin);

            let all: u64 = ranges.iter().map(|range| range.2).sum();
            let bracket = nearby.bracket(rank);
            prop_assert_eq!(bracket.is_some(), rank < all);
            if let Some((low, high)) = bracket {
                let least = ranges.iter().filter(|range| range.0 + range.1 < high[0]);
                prop_assert!(least.map(|range| range.2).sum::<u64>() <= rank);
                let most = ranges.iter().filter(|range| range.0 < low[0]);
                prop_assert!(most.map(|range| range.2).sum::<u64>() <= rank);
            }
            if let Some(middle) = nearby.middle(&[low], &[high]) {
                prop_assert!(*middle > *vec![low] && *middle < *vec![high]);
            }
        }
    }
}
