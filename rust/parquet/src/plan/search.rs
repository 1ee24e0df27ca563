//! Finds the row before which so many rows lie in merged order.
//!
//! ```text
//! a  ├─────────●─────┤        the middle of the widest span: how many rows lie before its key?
//! b        ├─────────────┤    halves the spans until few rows are left, whose keys are read
//!       low ····· high
//! ```
//!
//! # Invariants
//! Of sorted sources the row is exact. Of others it is some row, or none.
//!
//! # Cost
//! O(n log k) for the n of k sources that are near. About a dozen key look-ups in each.
//!
//! # Not here
//! Where to cut (`cuts`); which sources are near (`nearby`).

use std::collections::BinaryHeap;

use plait_core::Result;

use super::nearby::{Near, Nearby};
use super::source_keys::{Count, Edge, Reading, SourceKeys};

/// Once so many rows are left to choose from, their keys are read one and all.
const READ_ROWS: u64 = 16 << 10;

/// Look-ups in one source before the next one's turn.
const HALVINGS: usize = 4;

/// Rounds after which a search ends: sorted sources need a fraction, others never come to an end.
const ROUNDS_MAX: usize = 4096;

/// Which side of a key the row looked for is.
enum Side {
    Below,
    At,
    Above,
}

/// What is known of all sources, on the way from cut to cut.
pub(super) struct RowSearch<'a> {
    pub(super) sources_keys: &'a mut [SourceKeys],
    pub(super) reading: Reading<'a>,
    pub(super) nearby: Nearby,
    /// The last cut.
    pub(super) last: Vec<u8>,
    /// Rows of each source that surely lie before the row that is looked for.
    floor: Vec<u64>,
    /// How often a source was looked at.
    pub(super) looks: u64,
}

impl<'a> RowSearch<'a> {
    pub(super) fn new(sources_keys: &'a mut [SourceKeys], reading: Reading<'a>) -> Self {
        Self {
            nearby: Nearby::new(sources_keys),
            last: Vec::new(),
            floor: vec![0; sources_keys.len()],
            sources_keys,
            reading,
            looks: 0,
        }
    }

    /// Goes on behind a cut at `key`, before which so many `rows` lie, by the place of their source.
    pub(super) fn go_on_behind(&mut self, key: Option<&[u8]>, rows: &[(usize, Count)]) {
        for (place, (least, _)) in rows {
            self.floor[*place] = *least;
            if let Some(key) = key {
                self.sources_keys[*place].forget_below(key);
            }
        }
        self.last = key.unwrap_or_default().to_vec();
    }

    /// How many rows lie below `key`, as well as it is known: by the place of the source, where it may
    /// have some behind the last cut, and in all others.
    pub(super) fn below(&mut self, key: &[u8]) -> (Vec<(usize, Count)>, u64) {
        let last = std::mem::take(&mut self.last);
        let Near { places, before } = self.near(&last, key);
        self.last = last;
        let below = |place: usize| (place, self.sources_keys[place].before(key, Edge::Below));
        (places.into_iter().map(below).collect(), before)
    }

    /// Learns exactly how many rows lie below `key`.
    pub(super) fn look_up(&mut self, key: &[u8]) -> Result<()> {
        let near = self.near(key, key);
        for _ in 0..ROUNDS_MAX {
            if !self.narrow(&near, key, Edge::Below)? {
                break;
            }
        }
        Ok(())
    }

    /// The sources that have rows between `low` and `high`, or with these keys.
    fn near(&mut self, low: &[u8], high: &[u8]) -> Near {
        let near = self.nearby.between(low, high);
        self.looks += near.places.len() as u64;
        near
    }

    /// Looks up keys where it is least known how many lie below `key`; whether there were any.
    fn narrow(&mut self, near: &Near, key: &[u8], edge: Edge) -> Result<bool> {
        self.looks += near.places.len() as u64;
        let below = |place: &usize| self.sources_keys[*place].before(key, edge);
        let gaps: Vec<Count> = near.places.iter().map(below).collect();
        let widest = gaps.iter().map(|(least, most)| most - least).max().unwrap_or(0);
        let all: u64 = gaps.iter().map(|(least, most)| most - least).sum();
        let few = READ_ROWS / 2 / near.places.len().max(1) as u64;
        for (place, (least, most)) in near.places.iter().zip(gaps) {
            let source_keys = &mut self.sources_keys[*place];
            if least == most {
                continue;
            }
            if all <= READ_ROWS {
                source_keys.read(least..most, self.reading)?;
            } else if 2 * (most - least) >= widest {
                // In a row, so that what is unpacked for the first serves the others.
                let mut gap = (least, most);
                for _ in 0..HALVINGS {
                    if gap.1 - gap.0 <= few {
                        break;
                    }
                    source_keys.key(gap.0 + (gap.1 - gap.0) / 2, self.reading)?;
                    gap = source_keys.before(key, edge);
                }
            }
        }
        Ok(widest > 0)
    }

    /// The key of the row before which there are `rank` rows in merged order; `None` where keys that
    /// are not sorted hide it.
    pub(super) fn row_key(&mut self, rank: u64) -> Result<Option<Vec<u8>>> {
        let Some((low, high)) = self.nearby.bracket(rank) else { return Ok(None) };
        let (mut low, mut high) = (low.max(&self.last).to_vec(), high.to_vec());
        // A few large sources among many small ones: no look at all of the small ones.
        while let Some(pivot) = self.nearby.middle(&low, &high).map(<[u8]>::to_vec) {
            self.reading.context.check_cancelled()?;
            let near = self.near(&pivot, &pivot);
            if 2 * near.places.len() > self.nearby.begin_between(&low, &high) {
                break;
            }
            match self.side(&near, &pivot, rank)? {
                Side::Below => high = pivot,
                Side::Above => low = pivot,
                Side::At => return Ok(Some(pivot)),
            }
        }
        let mut near = self.near(&low, &high);
        let between = |source_keys: &SourceKeys| {
            (source_keys.before(&low, Edge::Below).0, source_keys.before(&high, Edge::UpTo).1)
        };
        // Between which rows of each source it is looked for; all of them, to begin with.
        let mut spans = self.spans(&near, between);
        let (mut above, mut under): (Option<Vec<u8>>, Option<Vec<u8>>) = (None, None);
        let mut pivot = None;
        for _ in 0..ROUNDS_MAX {
            let Some(key) = self.pivot(&near, &mut spans, above.as_deref(), under.as_deref())?
            else {
                return self.read_key(&near, &spans, rank);
            };
            match self.side(&near, &key, rank)? {
                Side::Below => under = Some(key.clone()),
                Side::Above => above = Some(key.clone()),
                Side::At => return Ok(Some(key)),
            }
            pivot = Some(key);
            let between = |source_keys: &SourceKeys| {
                let start = above.as_ref().map_or(0, |key| source_keys.before(key, Edge::UpTo).0);
                let all = source_keys.rows();
                (start, under.as_ref().map_or(all, |key| source_keys.before(key, Edge::Below).1))
            };
            let found = self.spans(&near, between);
            spans.iter_mut().zip(found).for_each(|(span, (start, end))| {
                let start = span.0.max(start);
                *span = (start, span.1.min(end).max(start));
            });
            leave_out(&mut near, &mut spans);
        }
        Ok(pivot)
    }

    /// A key in the middle of one of `spans`, above one key and under the other; `None` once few rows
    /// are left. Narrows spans whose middle lies elsewhere.
    fn pivot(
        &mut self,
        near: &Near,
        spans: &mut [Count],
        above: Option<&[u8]>,
        under: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>> {
        let mut left: u64 = spans.iter().map(|(start, end)| end - start).sum();
        let mut widest: BinaryHeap<(u64, usize)> =
            spans.iter().enumerate().map(|(i, (start, end))| (end - start, i)).collect();
        while left > READ_ROWS
            && let Some((width, i)) = widest.pop()
        {
            self.reading.context.check_cancelled()?;
            let (start, end) = spans[i];
            let middle = start + (end - start) / 2;
            let key = self.sources_keys[near.places[i]].key(middle, self.reading)?;
            if above.is_some_and(|above| key <= above) {
                spans[i] = ((middle + 1).min(end), end);
            } else if under.is_some_and(|under| key >= under) {
                spans[i] = (start, middle);
            } else {
                return Ok(Some(key.to_vec()));
            }
            let narrower = spans[i].1 - spans[i].0;
            left -= width - narrower;
            widest.push((narrower, i));
        }
        Ok(None)
    }

    /// Between which rows of the sources that are `near` something lies, by what `between` tells.
    fn spans(&mut self, near: &Near, between: impl Fn(&SourceKeys) -> Count) -> Vec<Count> {
        self.looks += near.places.len() as u64;
        let span = |place: &usize| {
            let (start, end) = between(&self.sources_keys[*place]);
            let start = start.max(self.floor[*place]);
            (start, end.max(start))
        };
        near.places.iter().map(span).collect()
    }

    /// Where the row with `rank` rows before it is, seen from `pivot`.
    fn side(&mut self, near: &Near, pivot: &[u8], rank: u64) -> Result<Side> {
        for _ in 0..ROUNDS_MAX {
            self.looks += near.places.len() as u64;
            let sum = |edge| {
                let below = |place: &usize| self.sources_keys[*place].before(pivot, edge);
                let add = |sum: Count, n: Count| (sum.0 + n.0, sum.1 + n.1);
                near.places.iter().map(below).fold((near.before, near.before), add)
            };
            let (below, up_to) = (sum(Edge::Below), sum(Edge::UpTo));
            if rank < below.0 {
                return Ok(Side::Below);
            }
            if rank >= up_to.1 {
                return Ok(Side::Above);
            }
            if rank >= below.1 && rank < up_to.0 {
                return Ok(Side::At);
            }
            let more = self.narrow(near, pivot, Edge::Below)?;
            if !(self.narrow(near, pivot, Edge::UpTo)? || more) {
                break;
            }
        }
        Ok(Side::At)
    }

    /// The same as `row_key`, when the row is in one of `spans`.
    fn read_key(&mut self, near: &Near, spans: &[Count], rank: u64) -> Result<Option<Vec<u8>>> {
        for (place, (start, end)) in near.places.iter().zip(spans) {
            self.sources_keys[*place].read(*start..*end, self.reading)?;
        }
        let keys = |(place, span): (&usize, &Count)| self.sources_keys[*place].keys(span.0..span.1);
        let mut keys: Vec<&[u8]> = near.places.iter().zip(spans).flat_map(keys).collect();
        let before = near.before + spans.iter().map(|(start, _)| start).sum::<u64>();
        let at = usize::try_from(rank.saturating_sub(before)).unwrap_or(usize::MAX);
        let Some(last) = keys.len().checked_sub(1) else { return Ok(None) };
        let (_, key, _) = keys.select_nth_unstable(at.min(last));
        Ok(Some(key.to_vec()))
    }
}

/// Leaves out the sources of which it is known how many rows lie before the one that is looked for.
fn leave_out(near: &mut Near, spans: &mut Vec<Count>) {
    let mut known = spans.iter().map(|(start, end)| (start == end).then_some(*start));
    near.places.retain(|_| match known.next().flatten() {
        Some(rows) => {
            near.before += rows;
            false
        }
        None => true,
    });
    spans.retain(|(start, end)| start < end);
}
