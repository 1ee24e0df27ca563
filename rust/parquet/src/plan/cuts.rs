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
//! O(k log k) for k sources, and for each cut O(n log k) for the n sources that have rows near it or
//! in the output before it. About a dozen key lookups a cut and source that overlaps it, then
//! thousands of keys. Dictionaries and pages are unpacked once as long as they fit
//! ([`LookUpCache`]).
//!
//! [`LookUpCache`]: crate::block::kept::LookUpCache
//!
//! # Not here
//! What is known without reading (`entries`); the row behind which to cut (`search`); rows of a
//! task (`find`).

use plait_core::Result;
use plait_core::key::{prefix_len, successor};
use std::collections::BTreeSet;
use std::ops::Range;

use super::partitions::Partition;
use super::rule::{OutputCut, Rule};
use super::search::RowSearch;
use super::source_keys::{Count, Known, Reading, SourceKeys};
use super::stored::StoredKeys;
use super::tail::largest_cut_keys;
use super::unordered::{cuts_anywhere, cuts_at};
use crate::sink::KEY_INDEX_ROWS;

/// A cut out of footers may be off by this share of an output.
const SLACK_SHARE: u64 = 16;

/// The cuts, and how often a source was looked at to find them.
#[derive(Default)]
pub(super) struct Cuts {
    pub(super) cuts: Vec<OutputCut>,
    pub(super) looks: u64,
    /// Folders of partitions, by what keys in them begin with.
    pub(super) folders: Vec<(Vec<u8>, String)>,
}

/// Finds all cuts where partitions begin, and those of `rule` inside of them.
pub(super) fn cuts_of_partitions(
    sources_keys: &mut [SourceKeys],
    partitions: &[Partition],
    rule: &Rule,
    cut_columns: usize,
    reading: Reading<'_>,
) -> Result<Cuts> {
    let mut cuts = Vec::new();
    // Cuts out of footers are about right: some may lie in another partition.
    let stored = Some(StoredKeys::default());
    let search = RowSearch::new(sources_keys, reading);
    let mut search = CutSearch { search, cut_columns, rows: 0, stored };
    let mut before: Option<&Partition> = None;
    for partition in partitions {
        let rows: Vec<(usize, Count)> = before
            .iter()
            .flat_map(|before| &before.ends)
            .map(|(source, end)| (*source, (*end, *end)))
            .collect();
        let done = before.map_or(0, |before| before.end);
        let others = done - rows.iter().map(|(_, (rows, _))| rows).sum::<u64>();
        let begin = OutputCut { key: Some(partition.prefix.clone()), rows, before: others };
        search.take(&begin);
        if done > 0 {
            cuts.push(begin);
        }
        search.rows = partition.end;
        if let Rule::Rows(_) | Rule::Bytes(_) = rule {
            cuts.extend(search.by_rows(done, rule)?);
        }
        before = Some(partition);
    }
    Ok(Cuts { cuts, looks: search.search.looks, ..Cuts::default() })
}

/// Finds all cuts.
pub(super) fn cuts(
    sources_keys: &mut [SourceKeys],
    rule: &Rule,
    cut_columns: usize,
    reading: Reading<'_>,
) -> Result<Cuts> {
    let rows = sources_keys.iter().map(|source_keys| source_keys.rows()).sum();
    if reading.keys.leaves.is_empty() {
        let cuts = cuts_anywhere(sources_keys, rule, rows);
        return Ok(Cuts { cuts, ..Cuts::default() });
    }
    if cut_columns == 0 || rows == 0 || *rule == Rule::One {
        return Ok(Cuts::default()); // all cut keys are one
    }
    let search = RowSearch::new(sources_keys, reading);
    let mut search = CutSearch { search, cut_columns, rows, stored: None };
    let cuts = match rule {
        Rule::One => Vec::new(),
        Rule::Rows(_) | Rule::Bytes(_) => search.by_rows(0, rule)?,
        Rule::Outputs(outputs) => search.by_outputs(*outputs)?,
    };
    Ok(Cuts { cuts, looks: search.search.looks, ..Cuts::default() })
}

/// Cuts around the rows that are tried out.
#[derive(Default)]
pub(super) struct TrialCuts {
    pub(super) cuts: Vec<OutputCut>,
    /// Which of the tasks between them have these rows, and which of the stretches they are.
    pub(super) tried: Vec<(usize, usize)>,
}

/// Finds cuts near the ends of `pieces`, stretches of rows that ascend and do not overlap.
pub(super) fn trial_cuts(
    sources_keys: &mut [SourceKeys],
    pieces: &[Range<u64>],
    cut_columns: usize,
    reading: Reading<'_>,
) -> Result<TrialCuts> {
    let mut trial = TrialCuts::default();
    let ends =
        || pieces.iter().enumerate().flat_map(|(i, of)| [(of.start, None), (of.end, Some(i))]);
    if reading.keys.leaves.is_empty() {
        let mut ranks: Vec<u64> = ends().map(|(rank, _)| rank).filter(|rank| *rank > 0).collect();
        ranks.dedup();
        trial.cuts = cuts_at(sources_keys, ranks.iter().copied());
        for (i, piece) in pieces.iter().enumerate() {
            trial.tried.extend(ranks.binary_search(&piece.end).ok().map(|task| (task, i)));
        }
        return Ok(trial);
    }
    let rows = sources_keys.iter().map(|source_keys| source_keys.rows()).sum();
    let search = RowSearch::new(sources_keys, reading);
    let mut search = CutSearch { search, cut_columns, rows, stored: None };
    let mut done = 0;
    for (rank, piece) in ends() {
        reading.context.check_cancelled()?;
        // Rows of one key may lie on both sides of it.
        let target = rank.saturating_sub(done);
        if target == 0 {
            continue;
        }
        let Some(cut) = search.after(done, target)? else { break };
        let before = search.take(&cut);
        if before <= done {
            break;
        }
        done = before;
        trial.tried.extend(piece.map(|piece| (trial.cuts.len(), piece)));
        trial.cuts.push(cut);
    }
    Ok(trial)
}

struct CutSearch<'a> {
    search: RowSearch<'a>,
    cut_columns: usize,
    /// Rows of all sources before the end of what is cut.
    rows: u64,
    /// Cut keys out of footers, ascending.
    stored: Option<StoredKeys>,
}

impl CutSearch<'_> {
    fn by_rows(&mut self, mut done: u64, rule: &Rule) -> Result<Vec<OutputCut>> {
        let mut cuts = Vec::new();
        loop {
            self.search.reading.context.check_cancelled()?;
            let target = rule.target(done, self.rows.max(done));
            if done.saturating_add(target) >= self.rows {
                break;
            }
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
            self.search.reading.context.check_cancelled()?;
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
        self.search.go_on_behind(cut.key.as_deref(), &cut.rows);
        cut.middle()
    }

    /// The cut at `key`, as well as it is known.
    fn known_cut(&mut self, key: Vec<u8>) -> OutputCut {
        let (rows, before) = self.search.below(&key);
        OutputCut { key: Some(key), rows, before }
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
        let Some(key) = self.search.row_key(rank - 1)? else { return Ok(None) };
        match successor(self.prefix(&key)?) {
            Some(bound) => self.exact_cut(bound),
            None => Ok(None),
        }
    }

    fn prefix<'k>(&self, key: &'k [u8]) -> Result<&'k [u8]> {
        let end = prefix_len(&self.search.reading.keys.shape, key, self.cut_columns)?;
        Ok(key.get(..end).unwrap_or(key))
    }

    /// The cut at `key`, exactly; `None` if all rows lie before it.
    fn exact_cut(&mut self, key: Vec<u8>) -> Result<Option<OutputCut>> {
        self.search.look_up(&key)?;
        let mut cut = self.known_cut(key);
        cut.rows.iter_mut().for_each(|(_, (least, most))| *most = *least);
        Ok((cut.middle() < self.rows).then_some(cut))
    }

    /// A cut near `rank` out of footers, if it is close enough.
    fn stored_cut(&mut self, done: u64, rank: u64, target: u64) -> Result<Option<OutputCut>> {
        let stored = match self.stored.take() {
            Some(stored) => stored,
            None => StoredKeys::of(&self.search.nearby.ends, |key| self.prefix(key))?,
        };
        let (ends, last) = (&self.search.nearby.ends, &self.search.last);
        let near = stored.near(ends, last, rank, |key| self.prefix(key));
        let near: Vec<Vec<u8>> = near.into_iter().map(<[u8]>::to_vec).collect();
        let near: Vec<OutputCut> = near.into_iter().map(|key| self.known_cut(key)).collect();
        self.stored = Some(stored);
        let best = near.into_iter().min_by_key(|cut| cut.middle().abs_diff(rank));
        let slack = target / SLACK_SHARE;
        let is_close = |cut: &OutputCut| {
            // Rows may be anywhere between two samples: errors of many sources cancel each other.
            let gaps = cut.rows.iter().map(|(_, (least, most))| (most - least) as f64);
            let deviation = gaps.map(|gap| gap * gap / 12.0).sum::<f64>().sqrt();
            let is_told = |(place, (least, most)): &(usize, Count)| {
                least == most || self.search.sources_keys[*place].known != Known::Ends
            };
            cut.rows.iter().all(is_told)
                && deviation <= slack as f64
                && cut.middle().abs_diff(rank) <= slack
                && cut.middle() > done
                && cut.before + cut.rows.iter().map(|(_, (_, most))| most).sum::<u64>() < self.rows
        };
        Ok(best.filter(is_close))
    }

    /// The largest cut keys that are known, largest first.
    fn stored_largest(&self, count: usize) -> Result<Vec<Vec<u8>>> {
        let mut largest: BTreeSet<&[u8]> = BTreeSet::new();
        let sources_keys = self.search.sources_keys.iter();
        for (_, key) in sources_keys.flat_map(|source_keys| source_keys.samples.iter()) {
            largest.insert(self.prefix(key)?);
            if largest.len() > count {
                largest.pop_first();
            }
        }
        Ok(largest.into_iter().rev().map(<[u8]>::to_vec).collect())
    }

    /// The largest cut keys there are, largest first.
    fn read_largest(&self, count: usize) -> Result<Vec<Vec<u8>>> {
        let sources: Vec<_> =
            self.search.sources_keys.iter().map(|source_keys| &source_keys.source).collect();
        largest_cut_keys(&sources, count, self.cut_columns, self.search.reading)
    }
}
