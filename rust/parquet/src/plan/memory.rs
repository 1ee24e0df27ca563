//! The memory for a page of every source that overlaps, and the number of passes.
//!
//! ```text
//! need = depth × (pages of the LEAVES_AT_ONCE largest leaves + pages of the key columns)
//! ```
//! One pass if `need` is at most the share of `SourcePages`. A page is estimated at the size of its
//! chunk, unpacked, and at most `PAGE_BYTES`.
//!
//! # Not here
//! Merging in two passes (`merge`); shares of the limit (`runtime`).

use std::sync::Arc;

use super::value::MemoryNeed;
use crate::leaf::OutputLeaf;
use crate::runtime::Budget;
use crate::schema::LeafAdapter;
use crate::source::Source;

/// The unpacked size of a page where nothing smaller is known: what most writers aim at.
const PAGE_BYTES: u64 = 1_250_000;

/// What a cursor takes besides its page.
const CURSOR_BYTES: u64 = 16 << 10;

/// Leaves that are woven at the same time when sources are counted. More threads weave more, as far
/// as memory allows.
pub(crate) const LEAVES_AT_ONCE: usize = 2;

/// Bytes of a page of a leaf of `source`, about.
fn page_bytes(source: &Source, leaf: &OutputLeaf) -> Option<u64> {
    let index = leaf.adapter(source.id).ok().and_then(LeafAdapter::leaf)?;
    let groups = source.meta.row_groups().iter();
    let largest = groups.map(|g| g.column(index).uncompressed_size()).max()?;
    Some(largest.max(0).unsigned_abs().min(PAGE_BYTES) + CURSOR_BYTES)
}

/// Bytes of a dictionary of a leaf of `source`, about; writers give up dictionaries that outgrow
/// a page.
fn dictionary_bytes(source: &Source, leaf: &OutputLeaf) -> Option<u64> {
    let index = leaf.adapter(source.id).ok().and_then(LeafAdapter::leaf)?;
    let chunks = source.meta.row_groups().iter().map(|g| g.column(index));
    let with_one = chunks.filter(|chunk| chunk.dictionary_page_offset().is_some());
    let largest = with_one.map(|chunk| chunk.uncompressed_size()).max()?;
    Some(largest.max(0).unsigned_abs().min(PAGE_BYTES))
}

/// Most bytes that a leaf of one source holds while it is woven, about.
pub(crate) fn largest_cursor(sources: &[Arc<Source>], leaf: &OutputLeaf) -> u64 {
    let of = |source: &Arc<Source>| {
        Some(page_bytes(source, leaf)? + dictionary_bytes(source, leaf).unwrap_or(0))
    };
    sources.iter().filter_map(of).max().unwrap_or(0)
}

/// Bytes that one open source takes, about.
fn bytes_each(sources: &[Arc<Source>], leaves: &[OutputLeaf], keys: &[OutputLeaf]) -> u64 {
    let count = sources.iter().filter(|source| source.rows() > 0).count().max(1) as u64;
    let of_leaf = |leaf: &OutputLeaf| -> u64 {
        sources.iter().filter_map(|source| page_bytes(source, leaf)).sum()
    };
    let mut leaves: Vec<u64> = leaves.iter().map(of_leaf).collect();
    leaves.sort_unstable_by(|a, b| b.cmp(a));
    let woven: u64 = leaves.iter().take(LEAVES_AT_ONCE).sum();
    let keys: u64 = keys.iter().map(of_leaf).sum();
    ((woven + keys) / count).max(1)
}

/// How many overlapping sources may be open at once.
pub(crate) fn sources_at_once(
    sources: &[Arc<Source>],
    leaves: &[OutputLeaf],
    keys: &[OutputLeaf],
    budget: Budget,
) -> usize {
    budget.sources_at_once(bytes_each(sources, leaves, keys))
}

/// What merging `depth` overlapping sources takes.
pub(super) fn memory_need(
    sources: &[Arc<Source>],
    leaves: &[OutputLeaf],
    keys: &[OutputLeaf],
    depth: usize,
    budget: Budget,
) -> MemoryNeed {
    let each = bytes_each(sources, leaves, keys);
    let is_merged = !keys.is_empty() && depth > sources_at_once(sources, leaves, keys, budget);
    MemoryNeed {
        limit_bytes: budget.limit_bytes() as u64,
        needed_bytes: Budget::limit_for_pages(each.saturating_mul(depth as u64)),
        passes: if is_merged { 2 } else { 1 },
    }
}
