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

/// Says that `rows` of a leaf of `source` are read soon. What is wrong with the file is left to who
/// reads it.
pub(crate) fn expect_rows(
    source: &Source,
    output: &OutputLeaf,
    rows: &Range<u64>,
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
        expect_chunk(source, group, leaf, &(first..rows.end.min(end) - start), cache, context);
        at = end;
    }
}

/// The same of rows of one chunk, counted in its row group; `leaf` is one of the source.
pub(crate) fn expect_chunk(
    source: &Source,
    group: usize,
    leaf: usize,
    rows: &Range<u64>,
    cache: &LocationCache,
    context: &Context,
) {
    let Ok(chunk) = source.chunk_range(group, leaf) else { return };
    if !source.store.takes_hints() {
        return;
    }
    if !Locations::has_index(source, group, leaf) {
        // Its pages are found one after the other: all are read.
        source.store.expect(chunk.clone(), chunk.end);
        return;
    }
    let Ok(locations) = cache.find(source, group, leaf, context) else { return };
    let (first, _) = locations.page_of(rows.start);
    let (last, _) = locations.page_of(rows.end.saturating_sub(1));
    let pages = locations.pages.get(first).zip(locations.pages.get(last));
    let Some((first_page, last_page)) = pages else { return };
    if let Some((offset, len)) = locations.dictionary.filter(|_| first == 0) {
        let end = offset + u64::from(len);
        source.store.expect(offset..end, end);
    }
    source.store.expect(first_page.offset..last_page.end(), chunk.end);
}
