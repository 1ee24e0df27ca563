//! Unions of dictionaries, and those of the last window: windows in a row often take of one chunk.
//!
//! # Invariants
//! Whether a union is kept changes no byte of the output. It takes no more than a share of the
//! memory limit.
//!
//! # Not here
//! Uniting dictionaries (`dictionaries`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use plait_core::SourceId;

use crate::block::reader::United;
use crate::encode::ids::Ids;

/// What came of it.
#[derive(Clone)]
pub(super) enum UnionOutcome {
    /// One dictionary that is smaller than the values it stands for.
    Pays(Arc<United>, Arc<Ids>),
    /// Plain values are smaller.
    IsTooLarge,
    /// Some chunks have values that are in no dictionary.
    IsIncomplete,
}

/// The last union of every leaf: windows in a row often take from the same chunks.
#[derive(Default)]
pub(crate) struct UnionCache(Mutex<BTreeMap<usize, Cached>>);

/// A union of some rows of some chunks.
pub(super) struct Cached {
    pub(super) chunks: Vec<(SourceId, usize)>,
    pub(super) rows: u64,
    pub(super) united: UnionOutcome,
}

impl UnionCache {
    /// The union of these chunks, if it was the last of the leaf.
    pub(super) fn get(
        &self,
        leaf: usize,
        chunks: &[(SourceId, usize)],
        rows: u64,
    ) -> Option<UnionOutcome> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let cached = held.get(&leaf)?;
        (cached.rows == rows && cached.chunks == chunks).then(|| cached.united.clone())
    }

    /// Keeps a union as far as all of them take no more than `bytes_max`.
    pub(super) fn put(&self, leaf: usize, cached: Cached, bytes_max: usize) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.remove(&leaf);
        let size = |united: &UnionOutcome| match united {
            UnionOutcome::Pays(united, ids) => united.memory_size() + ids.memory_size(),
            UnionOutcome::IsTooLarge | UnionOutcome::IsIncomplete => 0,
        };
        let all: usize = held.values().map(|cached| size(&cached.united)).sum();
        if all + size(&cached.united) <= bytes_max {
            held.insert(leaf, cached);
        }
    }
}
