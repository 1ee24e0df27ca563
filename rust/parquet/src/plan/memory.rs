//! The memory for a page of every source that overlaps, and the number of passes.
//!
//! ```text
//! need = depth × (pages of the LEAVES_AT_ONCE largest leaves + pages of the key columns + footer)
//! ```
//! One pass if `need` is at most the share of `SourcePages`. A page is estimated at the size of its
//! chunk, unpacked, and at most `PAGE_BYTES`.
//!
//! # Not here
//! Merging in two passes (`merge`); shares of the limit (`runtime`).

use std::sync::Arc;

use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use plait_core::Result;

use super::value::MemoryNeed;
use crate::leaf::OutputLeaf;
use crate::runtime::Budget;
use crate::source::Source;

/// The unpacked size of a page where nothing smaller is known: what most writers aim at.
const PAGE_BYTES: u64 = 1_250_000;

/// What a cursor takes besides its page.
const CURSOR_BYTES: u64 = 16 << 10;

/// Leaves that are woven at the same time when sources are counted. More threads weave more, as far
/// as memory allows.
pub(crate) const LEAVES_AT_ONCE: usize = 2;

/// What a leaf holds of one source while it is woven, about, and what that is for all sources.
#[derive(Clone, Copy, Default)]
struct CursorBytes {
    /// The page and the dictionary of the source that has the largest ones together.
    largest: u64,
    /// Pages of all sources.
    pages: u64,
}

/// What sources hold while they are open, about.
pub(crate) struct OpenSources<'a> {
    leaves: Vec<(&'a OutputLeaf, CursorBytes)>,
    keys: Vec<(&'a OutputLeaf, CursorBytes)>,
    footer_bytes: u64,
    sources: u64,
}

impl<'a> OpenSources<'a> {
    /// No sources yet, of which `leaves` are woven in an order by `keys`.
    pub(crate) fn new(leaves: &'a [OutputLeaf], keys: &'a [OutputLeaf]) -> Self {
        let none = |leaf| (leaf, CursorBytes::default());
        let (leaves, keys) = (leaves.iter().map(none).collect(), keys.iter().map(none).collect());
        Self { leaves, keys, footer_bytes: 0, sources: 0 }
    }

    /// Adds a source with this footer.
    ///
    /// # Errors
    /// [`Kind::Internal`](plait_core::Kind::Internal) for a leaf that has no adapter.
    pub(crate) fn add(&mut self, source: &Source, footer: &ParquetMetaData) -> Result<()> {
        if source.rows() == 0 {
            return Ok(());
        }
        self.sources += 1;
        self.footer_bytes += footer.memory_size() as u64;
        for (leaf, cursor) in self.leaves.iter_mut().chain(&mut self.keys) {
            if let Some(index) = leaf.adapter(source.id)?.leaf() {
                cursor.add(footer.row_groups().iter().filter_map(|g| g.columns().get(index)));
            }
        }
        Ok(())
    }

    /// The same for all of `sources`.
    fn of(
        sources: &[Arc<Source>],
        leaves: &'a [OutputLeaf],
        keys: &'a [OutputLeaf],
    ) -> Result<Self> {
        let mut open = Self::new(leaves, keys);
        for source in sources {
            open.add(source, &*source.footer()?)?;
        }
        Ok(open)
    }

    /// Most bytes that each leaf holds of one of them.
    pub(crate) fn largest_cursors(&self) -> Vec<u64> {
        self.leaves.iter().map(|(_, cursor)| cursor.largest).collect()
    }

    /// Bytes that one of them takes.
    pub(super) fn bytes_each(&self) -> u64 {
        let mut woven: Vec<u64> = self.leaves.iter().map(|(_, cursor)| cursor.pages).collect();
        woven.sort_unstable_by(|a, b| b.cmp(a));
        let woven: u64 = woven.iter().take(LEAVES_AT_ONCE).sum();
        let keys: u64 = self.keys.iter().map(|(_, cursor)| cursor.pages).sum();
        ((woven + keys + self.footer_bytes) / self.sources.max(1)).max(1)
    }
}

impl CursorBytes {
    /// Adds the chunks of a source.
    fn add<'a>(&mut self, chunks: impl Iterator<Item = &'a ColumnChunkMetaData> + Clone) {
        let bytes = |chunk: &ColumnChunkMetaData| chunk.uncompressed_size().max(0).unsigned_abs();
        let Some(largest) = chunks.clone().map(bytes).max() else { return };
        let page = largest.min(PAGE_BYTES) + CURSOR_BYTES;
        // Writers give up dictionaries that outgrow a page.
        let with_one = chunks.filter(|chunk| chunk.dictionary_page_offset().is_some());
        let dictionary = with_one.map(bytes).max().unwrap_or(0).min(PAGE_BYTES);
        self.largest = self.largest.max(page + dictionary);
        self.pages += page;
    }
}

/// How many overlapping sources may be open at once.
///
/// # Errors
/// As [`Source::footer`].
pub(crate) fn sources_at_once(
    sources: &[Arc<Source>],
    leaves: &[OutputLeaf],
    keys: &[OutputLeaf],
    budget: Budget,
) -> Result<usize> {
    Ok(budget.sources_at_once(OpenSources::of(sources, leaves, keys)?.bytes_each()))
}

/// What merging `sources` takes, of which `depth` overlap, of `bytes_each`; sorted by keys or not.
pub(super) fn memory_need(
    bytes_each: u64,
    is_sorted: bool,
    depth: usize,
    sources: &[Arc<Source>],
    budget: Budget,
) -> MemoryNeed {
    let is_merged = is_sorted && depth > budget.sources_at_once(bytes_each);
    let unpacked = sources.iter().map(|source| source.encoded_bytes);
    MemoryNeed {
        limit_bytes: budget.limit_bytes() as u64,
        needed_bytes: Budget::limit_for_pages(bytes_each.saturating_mul(depth as u64)),
        passes: if is_merged { 2 } else { 1 },
        unpacked_bytes: Some(unpacked.fold(0, u64::saturating_add)),
    }
}
