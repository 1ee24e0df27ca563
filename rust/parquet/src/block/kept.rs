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
//! O(log k) for k dictionaries that are kept, a look-up.
//!
//! # Not here
//! Reading them (`reader`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::decode::ChunkDictionary;
use crate::source::Source;
use crate::store::RangeReader;

/// Dictionaries by the chunk they are of.
pub(crate) struct KeptDictionaries {
    held: Mutex<DictionariesHeld>,
    bytes_max: usize,
}

/// A chunk: its file, which its address identifies, its row group and its leaf.
type Chunk = (usize, usize, usize);

#[derive(Default)]
struct DictionariesHeld {
    dictionaries: BTreeMap<Chunk, HeldDictionary>,
    /// Chunks by when their dictionaries were used last.
    used: BTreeMap<u64, Chunk>,
    /// How often dictionaries were used.
    uses: u64,
    bytes: usize,
}

struct HeldDictionary {
    /// The reader, so that no other one gets its address.
    _store: Arc<dyn RangeReader>,
    dictionary: ChunkDictionary,
    used: u64,
}

impl HeldDictionary {
    fn bytes(&self) -> usize {
        self.dictionary.values.as_ref().map_or(0, |values| values.memory_size())
    }
}

impl DictionariesHeld {
    /// Counts a use of the dictionary of `chunk`; gives its number.
    fn used_now(&mut self, chunk: Chunk) -> u64 {
        self.uses += 1;
        self.used.insert(self.uses, chunk);
        self.uses
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
        let chunk = chunk_of(source, place);
        let before = held.dictionaries.get(&chunk)?.used;
        held.used.remove(&before);
        let used = held.used_now(chunk);
        let found = held.dictionaries.get_mut(&chunk)?;
        found.used = used;
        Some(found.dictionary.clone())
    }

    /// Keeps the dictionary of a row group and leaf of `source`, which is not kept yet.
    pub(crate) fn keep(
        &self,
        source: &Source,
        place: (usize, usize),
        dictionary: &ChunkDictionary,
    ) {
        let mut held = self.lock();
        let chunk = chunk_of(source, place);
        let used = held.used_now(chunk);
        let kept = HeldDictionary {
            _store: Arc::clone(&source.store),
            dictionary: dictionary.clone(),
            used,
        };
        held.bytes += kept.bytes();
        if let Some(before) = held.dictionaries.insert(chunk, kept) {
            // Two threads read it at a time.
            held.bytes -= before.bytes();
            held.used.remove(&before.used);
        }
        while held.bytes > self.bytes_max
            && held.dictionaries.len() > 1
            && let Some((_, oldest)) = held.used.pop_first()
        {
            let bytes = held.dictionaries.remove(&oldest).map_or(0, |kept| kept.bytes());
            held.bytes -= bytes;
        }
    }

    fn lock(&self) -> MutexGuard<'_, DictionariesHeld> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn chunk_of(source: &Source, place: (usize, usize)) -> Chunk {
    let (row_group, leaf) = place;
    (Arc::as_ptr(&source.store).cast::<()>().addr(), row_group, leaf)
}
