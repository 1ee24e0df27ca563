//! Sorted runs of state, and the newest row for each of many keys.
//!
//! ```text
//! runs, oldest first   [a  c  f]  [c' d]  [a†]
//! find a c d e         deleted, c', d, none
//! ```
//!
//! # Invariants
//! The newest run that has a key decides. Probes are sorted, so every run is passed once.
//!
//! # Cost
//! For each run and key the logarithm of the distance to the key before. Blocks that are not held in
//! memory are let go once their rows are copied.
//!
//! # Not here
//! Ranges (`range`); reading files (`plait_parquet::join`).

use std::fmt::Debug;
use std::sync::Arc;

use super::block::Block;
use super::order::order;
use super::picked::{Picked, too_many};
use crate::workers::{Workers, each, parts};
use plait_base::Result;

/// One sorted run of the state: blocks whose keys ascend from block to block.
pub trait SortedRun: Send + Sync + Debug {
    /// Number of rows.
    fn rows(&self) -> u64;

    /// Number of blocks; none is empty.
    fn blocks(&self) -> usize;

    /// The first key of a block, or what is greater than all keys before it and not above its first.
    fn index_key(&self, block: usize) -> &[u8];

    /// A block.
    ///
    /// # Errors
    /// What reading gives.
    fn block(&self, block: usize) -> Result<Arc<Block>>;

    /// Whether blocks are held in memory in any case.
    fn is_held(&self) -> bool;

    /// Whether a block may have `key`; `true` where it is not known.
    ///
    /// # Errors
    /// What reading gives.
    fn may_have(&self, block: usize, key: &[u8]) -> Result<bool>;

    /// Bytes held on the heap.
    fn memory_size(&self) -> usize;
}

/// A run in memory.
#[derive(Clone, Debug)]
pub struct MemoryRun(Vec<Arc<Block>>);

impl MemoryRun {
    /// The rows of `blocks`, whose keys ascend; empty ones are left out.
    #[must_use]
    pub fn new(blocks: Vec<Block>) -> Self {
        Self(blocks.into_iter().filter(|block| !block.is_empty()).map(Arc::new).collect())
    }
}

impl SortedRun for MemoryRun {
    fn rows(&self) -> u64 {
        self.0.iter().map(|block| block.len() as u64).sum()
    }

    fn blocks(&self) -> usize {
        self.0.len()
    }

    fn index_key(&self, block: usize) -> &[u8] {
        self.0[block].key(0)
    }

    fn block(&self, block: usize) -> Result<Arc<Block>> {
        Ok(Arc::clone(&self.0[block]))
    }

    fn is_held(&self) -> bool {
        true
    }

    fn may_have(&self, _: usize, _: &[u8]) -> Result<bool> {
        Ok(true)
    }

    fn memory_size(&self) -> usize {
        self.0.iter().map(|block| block.memory_size()).sum()
    }
}

/// The block of `run` that has `key`, if any has it: the last whose index key is not above it.
pub(super) fn block_of(run: &dyn SortedRun, from: usize, key: &[u8]) -> Option<usize> {
    let (mut low, mut high) = (from, run.blocks());
    while low < high {
        let middle = low.midpoint(high);
        if run.index_key(middle) <= key {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low.checked_sub(1)
}

/// Sorted runs, oldest first.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The runs.
    pub runs: Vec<Arc<dyn SortedRun>>,
}

impl View {
    /// The same with a newer run.
    #[must_use]
    pub fn with(&self, run: Arc<dyn SortedRun>) -> Self {
        let mut runs = self.runs.clone();
        if run.rows() > 0 {
            runs.push(run);
        }
        Self { runs }
    }

    /// Rows of all runs.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.runs.iter().map(|run| run.rows()).sum()
    }

    /// Bytes held on the heap.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        self.runs.iter().map(|run| run.memory_size()).sum()
    }

    /// The newest row of each probe, deleted ones among them; probes never descend, `None` finds
    /// nothing.
    pub(super) fn find(&self, probes: &[&[u8]]) -> Result<Picked> {
        let mut found = Picked::absent(probes.len());
        // Places of probes that no run had yet.
        let mut open: Vec<usize> = (0..probes.len()).collect();
        for run in self.runs.iter().rev() {
            if open.is_empty() {
                break;
            }
            find_in(run.as_ref(), probes, &mut open, &mut found)?;
        }
        Ok(found)
    }

    /// The same by several workers, each for a part of the probes.
    pub(super) fn find_by(&self, workers: &dyn Workers, probes: &[&[u8]]) -> Result<Picked> {
        let parts = parts(workers, probes.len());
        let part = |i: usize| {
            let (from, to) = parts[i];
            self.find(&probes[from..to])
        };
        Picked::joined(each(workers, parts.len(), part)?)
    }

    /// The same for probes in any order, some of which are missing.
    pub(super) fn find_any(&self, probes: &[Option<&[u8]>]) -> Result<Picked> {
        let len = u32::try_from(probes.len()).map_err(too_many)?;
        let probe = |place: u32| probes[place as usize].unwrap_or_default();
        let places = (0..len).filter(|place| probes[*place as usize].is_some()).collect();
        let order = order(places, probe);
        let sorted: Vec<&[u8]> = order.iter().map(|place| probe(*place)).collect();
        let found = self.find(&sorted)?;
        let places = order.iter().map(|place| *place as usize);
        Ok(found.spread(places, probes.len()))
    }
}

/// Finds open probes in one run, and closes those.
fn find_in(
    run: &dyn SortedRun,
    probes: &[&[u8]],
    open: &mut Vec<usize>,
    found: &mut Picked,
) -> Result<()> {
    let mut kept = Vec::with_capacity(open.len());
    let (mut at, mut from_block) = (0, 0);
    while at < open.len() {
        let Some(block) = block_of(run, from_block, probes[open[at]]) else {
            kept.push(open[at]);
            at += 1;
            continue;
        };
        from_block = block;
        let end = match block + 1 < run.blocks() {
            true => {
                let index_key = run.index_key(block + 1);
                at + open[at..].partition_point(|place| probes[*place] < index_key)
            }
            false => open.len(),
        };
        let mut wanted = Vec::with_capacity(end - at);
        for place in &open[at..end] {
            match run.is_held() || run.may_have(block, probes[*place])? {
                true => wanted.push(*place),
                false => kept.push(*place),
            }
        }
        at = end;
        if wanted.is_empty() {
            continue;
        }
        let rows = run.block(block)?;
        let (mut row, mut hits) = (0, Vec::new());
        for place in wanted {
            let is_there;
            (row, is_there) = rows.find(row, probes[place]);
            match is_there {
                true => hits.push((place, row)),
                false => kept.push(place),
            }
        }
        found.add(rows, &hits, run.is_held())?;
    }
    // Those that a filter kept came before their neighbours.
    kept.sort_unstable();
    *open = kept;
    Ok(())
}
