//! Blocks of files that were read lately, within a share of the limit.
//!
//! # Invariants
//! The blocks that were not asked for longest go first. What is larger than the share is not kept.
//!
//! # Cost
//! A lock and two ordered maps; blocks are shared, not copied.
//!
//! # Not here
//! Reading blocks (`file`).

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plait_core::join::Block;

use crate::runtime::Context;

/// Blocks by run and place.
#[derive(Debug)]
pub(super) struct Cache {
    bytes_max: usize,
    context: Context,
    runs: AtomicU64,
    held: Mutex<CachedBlocks>,
}

#[derive(Debug, Default)]
struct CachedBlocks {
    blocks: HashMap<(u64, usize), (Arc<Block>, usize, u64)>,
    /// By when they were asked for.
    order: BTreeMap<u64, (u64, usize)>,
    bytes: usize,
    clock: u64,
    hits: u64,
    misses: u64,
}

impl Cache {
    /// A cache of `bytes_max` bytes; what reading takes is accounted for in `context`.
    pub(super) fn new(bytes_max: usize, context: Context) -> Self {
        Self { bytes_max, context, runs: AtomicU64::new(0), held: Mutex::default() }
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// A number for a run.
    pub(super) fn number(&self) -> u64 {
        self.runs.fetch_add(1, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, CachedBlocks> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of the blocks that are held.
    pub(super) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Blocks that were there when they were asked for, and those that were not.
    pub(super) fn asked(&self) -> (u64, u64) {
        let held = self.lock();
        (held.hits, held.misses)
    }

    pub(super) fn has(&self, run: u64, block: usize) -> bool {
        self.lock().blocks.contains_key(&(run, block))
    }

    pub(super) fn get(&self, run: u64, block: usize) -> Option<Arc<Block>> {
        let mut held = self.lock();
        let held = &mut *held;
        held.clock += 1;
        let Some((found, _, asked)) = held.blocks.get_mut(&(run, block)) else {
            held.misses += 1;
            return None;
        };
        held.hits += 1;
        held.order.remove(asked);
        *asked = held.clock;
        held.order.insert(held.clock, (run, block));
        Some(Arc::clone(found))
    }

    pub(super) fn put(&self, run: u64, block: usize, made: &Arc<Block>) {
        let bytes = made.memory_size();
        let mut held = self.lock();
        let held = &mut *held;
        if bytes > self.bytes_max || held.blocks.contains_key(&(run, block)) {
            return;
        }
        while held.bytes + bytes > self.bytes_max {
            let Some((_, oldest)) = held.order.pop_first() else { break };
            if let Some((_, bytes, _)) = held.blocks.remove(&oldest) {
                held.bytes -= bytes;
            }
        }
        held.clock += 1;
        held.bytes += bytes;
        held.order.insert(held.clock, (run, block));
        held.blocks.insert((run, block), (Arc::clone(made), bytes, held.clock));
    }

    /// Lets go of the blocks of a run that has so many.
    pub(super) fn forget(&self, run: u64, blocks: usize) {
        let mut held = self.lock();
        for block in 0..blocks {
            if let Some((_, bytes, asked)) = held.blocks.remove(&(run, block)) {
                held.bytes -= bytes;
                held.order.remove(&asked);
            }
        }
    }
}
