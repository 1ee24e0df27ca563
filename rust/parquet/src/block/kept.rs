//! Dictionaries and pages that were unpacked lately, for look-ups that come back to the same chunks.
//!
//! ```text
//! look-up in a, row 900 ─▶ dictionary of a, page 2          of a, row 950 ─▶ nothing is unpacked
//! ```
//!
//! # Invariants
//! What is kept stays below two limits, but for the last dictionary. The one used longest ago goes
//! first. Pages do not displace dictionaries, which serve all pages of their chunk.
//!
//! # Cost
//! O(log k) for k dictionaries or pages that are kept, a look-up.
//!
//! # Not here
//! Reading them (`reader`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use parquet::column::page::Page;

use super::decode::ChunkDictionary;
use crate::source::Source;
use crate::store::RangeReader;

/// Dictionaries by the chunk they are of, and pages by their place.
pub(crate) struct LookUpCache {
    dictionaries: Mutex<LeastRecent<Chunk, ChunkDictionary>>,
    pages: Mutex<LeastRecent<(Chunk, u64), Page>>,
    dictionary_bytes_max: usize,
    page_bytes_max: usize,
}

/// A chunk: its file, which its address identifies, its row group and its leaf.
type Chunk = (usize, usize, usize);

/// Values by key, of which the one used longest ago goes first.
struct LeastRecent<K, V> {
    entries: BTreeMap<K, Entry<V>>,
    /// Keys by when their values were used last.
    used: BTreeMap<u64, K>,
    /// How often values were used.
    uses: u64,
    bytes: usize,
}

struct Entry<V> {
    /// The reader, so that no other one gets its address.
    _store: Arc<dyn RangeReader>,
    value: V,
    bytes: usize,
    used: u64,
}

impl<K, V> Default for LeastRecent<K, V> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), used: BTreeMap::new(), uses: 0, bytes: 0 }
    }
}

impl<K: Copy + Ord, V: Clone> LeastRecent<K, V> {
    /// What an entry takes besides its value: small ones take more than their values. Nodes of trees
    /// are half full.
    const ENTRY_BYTES: usize = 2 * (size_of::<(K, Entry<V>)>() + size_of::<(u64, K)>());

    fn get(&mut self, key: K) -> Option<V> {
        let entry = self.entries.get_mut(&key)?;
        self.used.remove(&entry.used);
        self.uses += 1;
        self.used.insert(self.uses, key);
        entry.used = self.uses;
        Some(entry.value.clone())
    }

    /// Keeps `value`, and lets others go until all have at most `bytes_max` bytes, or one is left.
    fn keep(&mut self, key: K, value: V, bytes: usize, source: &Source, bytes_max: usize) {
        self.uses += 1;
        self.used.insert(self.uses, key);
        let bytes = bytes + Self::ENTRY_BYTES;
        let entry = Entry { _store: Arc::clone(&source.store), value, bytes, used: self.uses };
        self.bytes += bytes;
        if let Some(before) = self.entries.insert(key, entry) {
            // Two threads read it at a time.
            self.bytes -= before.bytes;
            self.used.remove(&before.used);
        }
        while self.bytes > bytes_max
            && self.entries.len() > 1
            && let Some((_, oldest)) = self.used.pop_first()
        {
            self.bytes -= self.entries.remove(&oldest).map_or(0, |entry| entry.bytes);
        }
    }
}

impl LookUpCache {
    /// Keeps at most `dictionary_bytes_max` bytes of dictionaries, or one, and `page_bytes_max` of
    /// pages.
    #[must_use]
    pub(crate) fn new(dictionary_bytes_max: usize, page_bytes_max: usize) -> Self {
        Self {
            dictionaries: Mutex::default(),
            pages: Mutex::default(),
            dictionary_bytes_max,
            page_bytes_max,
        }
    }

    /// The dictionary of a row group and leaf of `source`, if it is kept.
    #[must_use]
    pub(crate) fn dictionary(
        &self,
        source: &Source,
        place: (usize, usize),
    ) -> Option<ChunkDictionary> {
        lock(&self.dictionaries).get(chunk_of(source, place))
    }

    /// Keeps the dictionary of a row group and leaf of `source`.
    pub(crate) fn keep_dictionary(
        &self,
        source: &Source,
        place: (usize, usize),
        dictionary: &ChunkDictionary,
    ) {
        let bytes = dictionary.values.as_ref().map_or(0, |values| values.memory_size());
        let (chunk, most) = (chunk_of(source, place), self.dictionary_bytes_max);
        lock(&self.dictionaries).keep(chunk, dictionary.clone(), bytes, source, most);
    }

    /// The page at `offset` of a row group and leaf of `source`, if it is kept.
    #[must_use]
    pub(crate) fn page(&self, source: &Source, place: (usize, usize), offset: u64) -> Option<Page> {
        lock(&self.pages).get((chunk_of(source, place), offset))
    }

    /// Keeps the page at `offset` of a row group and leaf of `source`, if it is not larger than all.
    pub(crate) fn keep_page(
        &self,
        source: &Source,
        place: (usize, usize),
        offset: u64,
        page: &Page,
    ) {
        let (bytes, most) = (page.buffer().len(), self.page_bytes_max);
        if bytes <= most {
            let key = (chunk_of(source, place), offset);
            lock(&self.pages).keep(key, alone(page), bytes, source, most);
        }
    }
}

/// The page in a buffer of its own: it may be part of one that is larger.
fn alone(page: &Page) -> Page {
    let mut page = page.clone();
    if let Page::DataPage { buf, .. } | Page::DataPageV2 { buf, .. } = &mut page {
        *buf = Bytes::copy_from_slice(buf);
    }
    page
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

fn chunk_of(source: &Source, place: (usize, usize)) -> Chunk {
    let (row_group, leaf) = place;
    (Arc::as_ptr(&source.store).cast::<()>().addr(), row_group, leaf)
}
