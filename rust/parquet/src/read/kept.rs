//! What was read next to pages and is kept for further reads: bloom filters, and bounds of pages.
//!
//! # Invariants
//! What is kept is what the file has: a read with it leaves out the same rows as one without.
//!
//! # Cost
//! A share of the limit. Once it is full, nothing more is kept: who looks at all files in turn would
//! otherwise find none of them.
//!
//! # Not here
//! Where pages are (`crate::leaf::LocationCache`); how filters are asked (`prune`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::Array;
use parquet::bloom_filter::Sbbf;
use plait_core::{Result, SourceId};

use super::bounds::LeafBounds;
use crate::runtime::{Charge, Context};

/// A chunk: file, row group, leaf.
pub(super) type ChunkPlace = (SourceId, usize, usize);

/// Filters and bounds of pages that were read.
pub(super) struct KeptIndexes {
    found: Mutex<FoundIndexes>,
    bytes_max: usize,
}

struct FoundIndexes {
    /// None: the chunk has none.
    filters: HashMap<ChunkPlace, Option<Arc<Sbbf>>>,
    bounds: HashMap<ChunkPlace, Option<Arc<LeafBounds>>>,
    charge: Charge,
}

impl KeptIndexes {
    /// Nothing yet, and at most `bytes_max` bytes.
    pub(super) fn new(context: &Context, bytes_max: usize) -> Self {
        let found = FoundIndexes {
            filters: HashMap::new(),
            bounds: HashMap::new(),
            charge: context.charge(0),
        };
        Self { found: Mutex::new(found), bytes_max }
    }

    /// The filter of a chunk, if it is known whether there is one.
    pub(super) fn known_filter(&self, chunk: ChunkPlace) -> Option<Option<Arc<Sbbf>>> {
        self.lock().filters.get(&chunk).cloned()
    }

    /// The filter of a chunk.
    ///
    /// # Errors
    /// Those of `read`.
    pub(super) fn filter(
        &self,
        chunk: ChunkPlace,
        read: impl FnOnce() -> Result<Option<Sbbf>>,
    ) -> Result<Option<Arc<Sbbf>>> {
        if let Some(known) = self.known_filter(chunk) {
            return Ok(known);
        }
        let filter = read()?.map(Arc::new);
        let bytes = filter.as_ref().map_or(0, |filter| filter.num_blocks() * FILTER_BLOCK_BYTES);
        let mut found = self.lock();
        if found.has_room(bytes, self.bytes_max) {
            found.filters.insert(chunk, filter.clone());
        }
        Ok(filter)
    }

    /// The bounds of the pages of a chunk.
    ///
    /// # Errors
    /// Those of `read`.
    pub(super) fn page_bounds(
        &self,
        chunk: ChunkPlace,
        read: impl FnOnce() -> Result<Option<LeafBounds>>,
    ) -> Result<Option<Arc<LeafBounds>>> {
        if let Some(known) = self.lock().bounds.get(&chunk) {
            return Ok(known.clone());
        }
        let bounds = read()?.map(Arc::new);
        let bytes = bounds.as_ref().map_or(0, |bounds| {
            let nulls: &dyn Array = &bounds.nulls;
            nulls.get_array_memory_size()
                + bounds.least.get_array_memory_size()
                + bounds.greatest.get_array_memory_size()
        });
        let mut found = self.lock();
        if found.has_room(bytes, self.bytes_max) {
            found.bounds.insert(chunk, bounds.clone());
        }
        Ok(bounds)
    }

    fn lock(&self) -> MutexGuard<'_, FoundIndexes> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FoundIndexes {
    /// Takes room for an entry of `bytes` bytes, if there is any.
    fn has_room(&mut self, bytes: usize, bytes_max: usize) -> bool {
        let held = self.charge.bytes() + bytes + ENTRY_BYTES;
        let fits = held <= bytes_max;
        if fits {
            self.charge.set(held);
        }
        fits
    }
}

/// Bytes of a block of a split block bloom filter.
const FILTER_BLOCK_BYTES: usize = 32;

/// Bytes of an entry besides its contents, about.
const ENTRY_BYTES: usize = 128;
