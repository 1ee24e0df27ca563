//! Where outputs end: the keys at which the merged order is cut.
//!
//! ```text
//! merged rows   0 ─────────── target ── same cut key ──┃ next output
//!                               └ find its key by halving: which rows are below, at most, at least?
//! ```
//!
//! An output that has reached its target goes on until the cut key (the first `cut_columns` key
//! columns) changes. With `outputs = M` the target is an equal share of what is left, and the M
//! largest distinct cut keys bound the cuts, so that the last outputs never go empty: sizes
//! [1, 1, 6] give three files for M = 3.
//!
//! # Invariants
//! Cuts ascend; two outputs never share a cut key. Where keys of all sources that matter are in
//! their footers, and close enough for the size of an output, nothing is read and cuts are
//! estimates; else they are exact. Nothing depends on threads.
//!
//! # Cost
//! About a dozen key lookups a cut and source that overlaps it, then [`READ_ROWS`] keys. A page
//! each; dictionaries are unpacked once as long as they fit ([`KeyLeaves::keep_dictionaries`]).
//!
//! [`KeyLeaves::keep_dictionaries`]: crate::keys::KeyLeaves::keep_dictionaries
//!
//! # Not here
//! What is known without reading (`entries`); rows of a task (`find`).

use plait_core::key::{prefix_len, successor};
use plait_core::{Error, Kind, Result};
use std::collections::BTreeSet;

use super::partitions::Partition;
use super::source_keys::{Count, Reading, SourceKeys};
use super::tail::largest_cut_keys;
use crate::sink::KEY_INDEX_ROWS;

/// Once so many rows are left to choose from, their keys are read one and all.
const READ_ROWS: u64 = 16 << 10;

/// Look-ups in one source before the next one's turn.
const HALVINGS: usize = 4;

/// A cut out of footers may be off by this share of an output.
const SLACK_SHARE: u64 = 16;

/// Rounds after which a search ends: sorted sources need a fraction, others never come to an end.
const ROUNDS_MAX: usize = 4096;

/// How outputs end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// All rows in one.
    One,
    /// At most so many, of equal share.
    Outputs(u64),
    /// At the first change of the cut key after so many rows.
    Rows(u64),
}

/// A cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OutputCut {
    /// Rows with smaller keys lie before it; absent when all keys are equal.
    pub(super) key: Option<Vec<u8>>,
    /// How many rows of each source lie before it.
    pub(super) rows: Vec<Count>,
}

impl OutputCut {
    /// Rows before it: the middle of what they may be.
    fn middle(&self) -> u64 {
        self.rows.iter().map(|(least, most)| least + (most - least) / 2).sum()
    }
}

/// Finds all cuts where partitions begin, and those of `rule` inside of them.
pub(super) fn cuts_of_partitions(
    sources_keys: &mut [SourceKeys],
    partitions: &[Partition],
    rule: Rule,
    cut_columns: usize,
    reading: Reading<'_>,
) -> Result<Vec<OutputCut>> {
    let mut cuts = Vec::new();
    // Cuts out of footers are about right: some may lie in another partition.
    let stored = Some(Vec::new());
    let mut search =
        CutSearch { sources_keys, cut_columns, reading, rows: 0, floor: Vec::new(), stored };
    for Partition { prefix, starts, end } in partitions {
        let begin = OutputCut {
            key: Some(prefix.clone()),
            rows: starts.iter().map(|row| (*row, *row)).collect(),
        };
        let done = search.take(&begin);
        if done > 0 {
            cuts.push(begin);
        }
        search.rows = *end;
        if let Rule::Rows(target) = rule {
            cuts.extend(search.by_rows(done, target.max(1))?);
        }
    }
    Ok(cuts)
}

/// Finds all cuts.
pub(super) fn cuts(
    sources_keys: &mut [SourceKeys],
    rule: Rule,
    cut_columns: usize,
    reading: Reading<'_>,
) -> Result<Vec<OutputCut>> {
    let rows = sources_keys.iter().map(|source_keys| source_keys.rows()).sum();
    if reading.keys.leaves.is_empty() {
        return Ok(cuts_anywhere(sources_keys, rule, rows));
    }
    if cut_columns == 0 || rows == 0 {
        return Ok(Vec::new()); // all cut keys are one
    }
    let floor = vec![0; sources_keys.len()];
    let mut search = CutSearch { sources_keys, cut_columns, reading, rows, floor, stored: None };
    match rule {
        Rule::One => Ok(Vec::new()),
        Rule::Rows(target) => search.by_rows(0, target.max(1)),
        Rule::Outputs(outputs) => search.by_outputs(outputs),
    }
}

/// All rows are equal: any of them may start an output.
fn cuts_anywhere(sources_keys: &[SourceKeys], rule: Rule, rows: u64) -> Vec<OutputCut> {
    let mut outputs_left = match rule {
        Rule::One => 1,
        Rule::Outputs(outputs) => outputs.min(rows),
        Rule::Rows(target) => rows.div_ceil(target.max(1)),
    };
    let (mut cuts, mut done) = (Vec::new(), 0);
    while outputs_left > 1 {
        done += match rule {
            Rule::Rows(target) => target.max(1),
            _ => (rows - done).div_ceil(outputs_left),
        };
        outputs_left -= 1;
        let mut left = done;
        let place = |source_keys: &SourceKeys| {
            let taken = left.min(source_keys.rows());
            left -= taken;
            (taken, taken)
        };
        cuts.push(OutputCut { key: None, rows: sources_keys.iter().map(place).collect() });
    }
    cuts
}

/// Which side of a key the row looked for is.
enum Side {
    Below,
    At,
    Above,
}

struct CutSearch<'a> {
    sources_keys: &'a mut [SourceKeys],
    cut_columns: usize,
    reading: Reading<'a>,
    /// Rows of all sources before the end of what is cut.
    rows: u64,
    /// Rows of each source that surely lie before the cut that is looked for.
    floor: Vec<u64>,
    /// Cut keys out of footers, ascending.
    stored: Option<Vec<Vec<u8>>>,
}

impl CutSearch<'_> {
    fn by_rows(&mut self, mut done: u64, target: u64) -> Result<Vec<OutputCut>> {
        let mut cuts = Vec::new();
        while done.saturating_add(target) < self.rows {
            self.reading.context.check_cancelled()?;
            let Some(cut) = self.after(done, target)? else { break };
            let before = self.take(&cut);
            // Only a source that is not sorted leads here. The merge reports its row.
            if before <= done {
                break;
            }
            done = before;
            cuts.push(cut);
        }
        Ok(cuts)
    }

    fn by_outputs(&mut self, outputs: u64) -> Result<Vec<OutputCut>> {
        let count = usize::try_from(outputs.min(self.rows)).unwrap_or(usize::MAX);
        if count <= 1 {
            return Ok(Vec::new());
        }
        let mut largest = self.stored_largest(count)?;
        let mut is_exact = largest.len() < count;
        if is_exact {
            largest = self.read_largest(count)?;
        }
        let mut left = largest.len();
        let (mut cuts, mut done) = (Vec::new(), 0);
        while left > 1 && done < self.rows {
            self.reading.context.check_cancelled()?;
            let target = (self.rows - done).div_ceil(left as u64).max(1);
            let mut cut = self.after(done, target)?;
            // The outputs behind need a cut key each.
            let is_late = |bound: Option<&Vec<u8>>, cut: &Option<OutputCut>| {
                bound.is_some_and(|bound| {
                    cut.as_ref().is_none_or(|cut| cut.key.as_ref().is_none_or(|key| key > bound))
                })
            };
            if !is_exact && is_late(largest.get(left - 2), &cut) {
                (largest, is_exact) = (self.read_largest(count)?, true);
            }
            if is_late(largest.get(left - 2), &cut) {
                let key = largest.get(left - 2).cloned().unwrap_or_default();
                cut = self.exact_cut(key)?;
            }
            let Some(cut) = cut else { break };
            done = self.take(&cut);
            cuts.push(cut);
            left -= 1;
        }
        Ok(cuts)
    }

    /// Goes on behind `cut`; rows before it.
    fn take(&mut self, cut: &OutputCut) -> u64 {
        if let Some(key) = &cut.key {
            self.sources_keys.iter_mut().for_each(|source_keys| source_keys.forget_below(key));
        }
        self.floor = cut.rows.iter().map(|(least, _)| *least).collect();
        cut.middle()
    }

    /// The cut after `target` more rows than `done`, unless all rows lie before it.
    fn after(&mut self, done: u64, target: u64) -> Result<Option<OutputCut>> {
        let rank = done.saturating_add(target);
        if rank >= self.rows {
            return Ok(None);
        }
        if target >= KEY_INDEX_ROWS
            && let Some(cut) = self.stored_cut(done, rank, target)?
        {
            return Ok(Some(cut));
        }
        let key = self.row_key(rank - 1)?;
        match successor(self.prefix(&key)?) {
            Some(bound) => self.exact_cut(bound),
            None => Ok(None),
        }
    }

    fn prefix<'k>(&self, key: &'k [u8]) -> Result<&'k [u8]> {
        let end = prefix_len(&self.reading.keys.shape, key, self.cut_columns)?;
        Ok(key.get(..end).unwrap_or(key))
    }

    /// The cut at `key`, exactly; `None` if all rows lie before it.
    fn exact_cut(&mut self, key: Vec<u8>) -> Result<Option<OutputCut>> {
        for _ in 0..ROUNDS_MAX {
            if !self.narrow(&key, false)? {
                break;
            }
        }
        let rows: Vec<Count> = self
            .sources_keys
            .iter()
            .map(|source_keys| source_keys.below(&key, false))
            .map(|(n, _)| (n, n))
            .collect();
        let before: u64 = rows.iter().map(|(n, _)| n).sum();
        Ok((before < self.rows).then_some(OutputCut { key: Some(key), rows }))
    }

    /// Looks up keys where it is least known how many lie below `key`; whether there were any.
    fn narrow(&mut self, key: &[u8], or_equal: bool) -> Result<bool> {
        let gaps: Vec<Count> =
            self.sources_keys.iter().map(|source_keys| source_keys.below(key, or_equal)).collect();
        let widest = gaps.iter().map(|(least, most)| most - least).max().unwrap_or(0);
        let all: u64 = gaps.iter().map(|(least, most)| most - least).sum();
        let few = READ_ROWS / 2 / self.sources_keys.len().max(1) as u64;
        for (source_keys, (least, most)) in self.sources_keys.iter_mut().zip(gaps) {
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
                    gap = source_keys.below(key, or_equal);
                }
            }
        }
        Ok(widest > 0)
    }

    /// The key of the row before which there are `rank` rows in merged order.
    fn row_key(&mut self, rank: u64) -> Result<Vec<u8>> {
        let (mut low, mut high): (Option<Vec<u8>>, Option<Vec<u8>>) = (None, None);
        let mut pivot = Vec::new();
        for _ in 0..ROUNDS_MAX {
            self.reading.context.check_cancelled()?;
            let spans: Vec<Count> = self
                .sources_keys
                .iter()
                .zip(&self.floor)
                .map(|(source_keys, floor)| {
                    let start =
                        low.as_ref().map_or(0, |key| source_keys.below(key, true).0).max(*floor);
                    let end = high
                        .as_ref()
                        .map_or(source_keys.rows(), |key| source_keys.below(key, false).1);
                    (start, end.max(start))
                })
                .collect();
            if spans.iter().map(|(start, end)| end - start).sum::<u64>() <= READ_ROWS {
                return self.read_key(&spans, rank);
            }
            let widest = (0..spans.len()).max_by_key(|i| spans[*i].1 - spans[*i].0).unwrap_or(0);
            let (start, end) = spans.get(widest).copied().unwrap_or_default();
            let Some(source_keys) = self.sources_keys.get_mut(widest) else { break };
            pivot = source_keys.key(start + (end - start) / 2, self.reading)?.to_vec();
            let is_outside = low.as_ref().is_some_and(|low| pivot <= *low)
                || high.as_ref().is_some_and(|high| pivot >= *high);
            if is_outside {
                continue;
            }
            match self.side(&pivot, rank)? {
                Side::Below => high = Some(pivot.clone()),
                Side::Above => low = Some(pivot.clone()),
                Side::At => return Ok(pivot),
            }
        }
        Ok(pivot)
    }

    /// Where the row with `rank` rows before it is, seen from `pivot`.
    fn side(&mut self, pivot: &[u8], rank: u64) -> Result<Side> {
        for _ in 0..ROUNDS_MAX {
            let sum = |or_equal| {
                let counts =
                    self.sources_keys.iter().map(|source_keys| source_keys.below(pivot, or_equal));
                counts.fold((0, 0), |sum: Count, n| (sum.0 + n.0, sum.1 + n.1))
            };
            let (below, up_to) = (sum(false), sum(true));
            if rank < below.0 {
                return Ok(Side::Below);
            }
            if rank >= up_to.1 {
                return Ok(Side::Above);
            }
            if rank >= below.1 && rank < up_to.0 {
                return Ok(Side::At);
            }
            let more = self.narrow(pivot, false)?;
            if !(self.narrow(pivot, true)? || more) {
                break;
            }
        }
        Ok(Side::At)
    }

    /// The same as `row_key`, when the row is in one of `spans`.
    fn read_key(&mut self, spans: &[Count], rank: u64) -> Result<Vec<u8>> {
        let mut keys: Vec<&[u8]> = Vec::new();
        let before: u64 = spans.iter().map(|(start, _)| start).sum();
        for (source_keys, (start, end)) in self.sources_keys.iter_mut().zip(spans) {
            source_keys.read(*start..*end, self.reading)?;
            let from = source_keys.samples.partition_point(|sample| sample.0 < *start);
            let to = source_keys.samples.partition_point(|sample| sample.0 < *end);
            keys.extend(
                source_keys.samples.get(from..to).unwrap_or_default().iter().map(|k| &*k.1),
            );
        }
        let at = usize::try_from(rank.saturating_sub(before)).unwrap_or(usize::MAX);
        let at = at.min(keys.len().saturating_sub(1));
        if keys.is_empty() {
            return Err(Error::new(Kind::Internal, "a cut lies behind all rows"));
        }
        let (_, key, _) = keys.select_nth_unstable(at);
        Ok(key.to_vec())
    }

    /// A cut near `rank` out of footers, if it is close enough.
    fn stored_cut(&mut self, done: u64, rank: u64, target: u64) -> Result<Option<OutputCut>> {
        if self.stored.is_none() {
            let stored = self.stored_prefixes()?;
            self.stored = Some(stored.into_iter().collect());
        }
        let stored = self.stored.as_deref().unwrap_or_default();
        let cut = |key: &Vec<u8>| {
            let rows =
                self.sources_keys.iter().map(|source_keys| source_keys.below(key, false)).collect();
            OutputCut { key: Some(key.clone()), rows }
        };
        let at = stored.partition_point(|key| cut(key).middle() < rank);
        let near = [at.checked_sub(1), Some(at)].into_iter().flatten();
        let best = near
            .filter_map(|at| stored.get(at))
            .map(cut)
            .min_by_key(|cut| cut.middle().abs_diff(rank));
        let slack = target / SLACK_SHARE;
        let is_close = |cut: &OutputCut| {
            // Rows may be anywhere between two samples: errors of many sources cancel each other.
            let gaps = cut.rows.iter().map(|(least, most)| (most - least) as f64);
            let deviation = gaps.map(|gap| gap * gap / 12.0).sum::<f64>().sqrt();
            let all_told = self
                .sources_keys
                .iter()
                .zip(&cut.rows)
                .all(|(source_keys, (least, most))| least == most || source_keys.is_indexed);
            all_told
                && deviation <= slack as f64
                && cut.middle().abs_diff(rank) <= slack
                && cut.middle() > done
                && cut.rows.iter().map(|(_, most)| most).sum::<u64>() < self.rows
        };
        Ok(best.filter(is_close))
    }

    /// Cut keys of all samples.
    fn stored_prefixes(&self) -> Result<BTreeSet<Vec<u8>>> {
        let mut stored = BTreeSet::new();
        for sample in self.sources_keys.iter().flat_map(|source_keys| &source_keys.samples) {
            stored.insert(self.prefix(&sample.1)?.to_vec());
        }
        Ok(stored)
    }

    /// The largest cut keys that are known, largest first.
    fn stored_largest(&self, count: usize) -> Result<Vec<Vec<u8>>> {
        Ok(self.stored_prefixes()?.into_iter().rev().take(count).collect())
    }

    /// The largest cut keys there are, largest first.
    fn read_largest(&self, count: usize) -> Result<Vec<Vec<u8>>> {
        let sources: Vec<_> =
            self.sources_keys.iter().map(|source_keys| &source_keys.source).collect();
        largest_cut_keys(&sources, count, self.cut_columns, self.reading)
    }
}
