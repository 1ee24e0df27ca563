//! Which bytes of objects hold rows that are read soon: said to their stores, which request them while
//! others are read.
//!
//! # Cost
//! A search among page locations; nothing for local files and small objects.
//!
//! # Not here
//! What is requested, and when (`store`).

use std::ops::Range;

use super::{LocationCache, OutputLeaf};
use crate::page::Locations;
use crate::runtime::Context;
use crate::schema::LeafAdapter;
use crate::source::Source;

/// Row groups up to this size are requested whole.
const SMALL_GROUP_BYTES: u64 = 1 << 20;

/// What is read behind the rows that are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOn {
    /// Nothing but the rest of the chunk.
    Chunk,
    /// The chunks of the other leaves, too.
    RowGroup,
}

/// Says that `rows` of a leaf of `source` are read soon. What is wrong with the file is left to who
/// reads it.
pub(crate) fn will_read_rows(
    source: &Source,
    output: &OutputLeaf,
    rows: &Range<u64>,
    read_on: ReadOn,
    cache: &LocationCache,
    context: &Context,
) {
    if !source.store.takes_hints() {
        return;
    }
    let leaf = match output.adapter(source.id) {
        Ok(LeafAdapter::Same { leaf, .. } | LeafAdapter::Cast { leaf, .. }) => *leaf,
        Ok(LeafAdapter::Missing { sibling: Some(leaf), .. }) => *leaf,
        _ => return,
    };
    let mut at = rows.start;
    while at < rows.end.min(source.rows()) {
        let (group, first) = source.row_group_of(at);
        let start = source.row_group_start(group);
        let end = start + source.row_group_rows(group);
        let in_group = first..rows.end.min(end) - start;
        will_read_chunk(source, group, leaf, &in_group, read_on, cache, context);
        at = end;
    }
}

/// Says that `rows` of all leaves of `source` are read soon: small row groups of which all rows are, so
/// that their chunks do not take a request each.
pub(crate) fn will_read_groups(source: &Source, rows: &Range<u64>) {
    if !source.store.takes_hints() {
        return;
    }
    let (first, _) = source.row_group_of(rows.start);
    for group in first..source.num_row_groups() {
        let start = source.row_group_start(group);
        if start >= rows.end {
            return;
        }
        let is_whole = rows.start <= start && source.row_group_start(group + 1) <= rows.end;
        if let Ok(bytes) = source.row_group_range(group)
            && is_whole
            && bytes.end <= bytes.start + SMALL_GROUP_BYTES
        {
            source.store.will_read(bytes.clone(), bytes.end);
        }
    }
}

/// Says that `rows` of one chunk, counted in its row group, are read soon; `leaf` is one of the source.
pub(crate) fn will_read_chunk(
    source: &Source,
    group: usize,
    leaf: usize,
    rows: &Range<u64>,
    read_on: ReadOn,
    cache: &LocationCache,
    context: &Context,
) {
    let Ok(chunk) = source.chunk_range(group, leaf) else { return };
    if !source.store.takes_hints() {
        return;
    }
    if !Locations::has_index(source, group, leaf) {
        // Its pages are found one after the other: all are read.
        source.store.will_read(chunk.clone(), chunk.end);
        return;
    }
    let Ok(locations) = cache.find(source, group, leaf, context) else { return };
    let (first, _) = locations.page_of(rows.start);
    let (last, _) = locations.page_of(rows.end.saturating_sub(1));
    let pages = locations.pages.get(first).zip(locations.pages.get(last));
    let Some((first_page, last_page)) = pages else { return };
    // A dictionary lies before the first page.
    let start = match locations.dictionary {
        Some((offset, _)) if first == 0 => offset.min(first_page.offset),
        _ => first_page.offset,
    };
    let group_end = source.row_group_range(group).map_or(chunk.end, |bytes| bytes.end);
    let end = match read_on {
        ReadOn::Chunk => chunk.end,
        ReadOn::RowGroup => group_end.max(chunk.end),
    };
    source.store.will_read(start..last_page.end(), end);
}
