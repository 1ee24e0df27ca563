//! Dictionaries that were unpacked lately, for look-ups that come back to the same chunks.
//!
//! ```text
//! look-up in a, row 900 ─▶ dictionary of a, one page        of a, row 450 ─▶ one page
//! ```
//!
//! # Invariants
//! What is kept stays below a limit, but for the last one. The one used longest ago goes first.
//!
//! # Cost
//! As many comparisons of pointers as dictionaries are kept, a look-up.
//!
//! # Not here
//! Reading them (`reader`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::decode::ChunkDictionary;
use crate::source::Source;
use crate::store::RangeReader;

/// Dictionaries by the chunk they are of.
pub(crate) struct KeptDictionaries {
    held: Mutex<VecDeque<HeldDictionary>>,
    bytes_max: usize,
}

struct HeldDictionary {
    /// Of the file, which its address identifies.
    store: Arc<dyn RangeReader>,
    /// Row group and leaf.
    place: (usize, usize),
    dictionary: ChunkDictionary,
}

impl HeldDictionary {
    fn bytes(&self) -> usize {
        self.dictionary.values.as_ref().map_or(0, |values| values.memory_size())
    }
}

impl KeptDictionaries {
    /// Keeps at most `bytes_max` bytes, or one dictionary.
    #[must_use]
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { held: Mutex::default(), bytes_max }
    }

    /// The dictionary of a row group and leaf of `source`, if it is kept.
    #[must_use]
    pub(crate) fn get(&self, source: &Source, place: (usize, usize)) -> Option<ChunkDictionary> {
        let mut held = self.lock();
        let is_it =
            |held: &HeldDictionary| held.place == place && Arc::ptr_eq(&held.store, &source.store);
        let at = held.iter().position(is_it)?;
        let found = held.remove(at)?;
        let dictionary = found.dictionary.clone();
        held.push_front(found);
        Some(dictionary)
    }

    /// Keeps the dictionary of a row group and leaf of `source`, which is not kept yet.
    pub(crate) fn keep(
        &self,
        source: &Source,
        place: (usize, usize),
        dictionary: &ChunkDictionary,
    ) {
        let mut held = self.lock();
        let (store, dictionary) = (Arc::clone(&source.store), dictionary.clone());
        held.push_front(HeldDictionary { store, place, dictionary });
        let mut bytes: usize = held.iter().map(HeldDictionary::bytes).sum();
        while bytes > self.bytes_max && held.len() > 1 {
            bytes -= held.pop_back().as_ref().map_or(0, HeldDictionary::bytes);
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<HeldDictionary>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
