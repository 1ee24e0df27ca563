//! Copies a whole row group of one source byte for byte: offsets move, nothing is decoded.
//!
//! ```text
//! source  …│D│p│p│p│…          output  …│D│p│p│p│…
//!           └─ bytes, statistics, indexes, bloom filter ─┘   offsets rewritten
//! ```
//!
//! # Invariants
//! Only chunks in the shape of the output are copied ([`can_copy`]). Every page header is read on
//! the way, and every page is compared with its checksum if it has one. With
//! [`VerifyPages::Unpack`], one without is unpacked to see that it can be. What footer and indexes
//! of the source say of pages is compared with their headers before anything is copied, and counted
//! anew or left out where it is wrong. Pages that an object store copies itself ([`open_unseen`]) are
//! not looked at: what the source says of them is taken over.
//!
//! # Cost
//! One page at a time in memory. Of a local file, headers are read first, by a small read for each
//! page. Chunks of objects are fetched once and wait, in memory or on disk.
//!
//! # Not here
//! Whether a row group may be copied at this point of the order (`plait_core::plan`).

mod read;

use std::ops::Range;
use std::sync::Arc;

use parquet::basic::PageType;
use parquet::column::writer::ColumnCloseResult;
use parquet::file::metadata::{ColumnChunkMetaData, OffsetIndexBuilder, PageEncodingStats};
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use parquet::file::properties::EnabledStatistics;
use plait_core::Result;

pub(crate) use read::CopiedChunk;

use self::read::{SourceChunk, read_ahead};
use crate::check::{CheckedChunk, WrittenPage, encoding_stats};
use crate::leaf::{LocationCache, OutputLeaf};
use crate::options::{MergeOptions, VerifyPages};
use crate::page::indexes::{bloom_filter, column_index};
use crate::page::{Locations, unwrap_error};
use crate::properties::parse_codec;
use crate::runtime::Context;
use crate::schema::LeafAdapter;
use crate::source::{RowGroupOf, Source};
use crate::spill::Waiting;

/// Whether row group `row_group` of `source` has the shape and the encoding of the output.
#[must_use]
pub(crate) fn can_copy(
    source: &Source,
    row_group: usize,
    leaves: &[OutputLeaf],
    options: &MergeOptions,
) -> bool {
    if source.is_scratch() || options.dictionary.is_some() || options.data_page_version.is_some() {
        return false; // what the pages are is not known without reading them
    }
    let asked = options.compression.as_deref().and_then(|text| parse_codec(text).ok());
    // The columns of partitions may be left out of the output.
    leaves.len() <= source.num_leaves()
        && leaves.iter().all(|leaf| {
            let Ok(LeafAdapter::Same { leaf: index, levels }) = leaf.adapter(source.id) else {
                return false;
            };
            let Ok(chunk) = source.chunk(row_group, *index) else { return false };
            let same_codec = asked.is_none_or(|codec| {
                std::mem::discriminant(&codec) == std::mem::discriminant(&chunk.compression())
            });
            levels.is_identity() && same_codec && *source.leaf(*index) == *leaf.descr
        })
}

/// A chunk that can be copied, and what is said of it.
pub(crate) struct OpenedChunk {
    pub(crate) chunk: CopiedChunk,
    pub(crate) close: ColumnCloseResult,
}

/// A chunk whose pages lie one behind the other, and what is said of it.
struct FoundChunk {
    chunk: SourceChunk,
    range: Range<u64>,
    close: ColumnCloseResult,
}

/// Says that the row group of `source` that begins with `row` is copied soon.
pub(crate) fn will_copy(source: &Source, row: u64) {
    if let Ok(bytes) = source.row_group_range(source.row_group_of(row).0) {
        read_ahead(source, bytes.start, bytes.end);
    }
}

/// Prepares the chunk of `leaf` in row group `row_group` of `source`, whose pages are checked on
/// the way as `verify` says; `None` if its pages do not lie as the footer says, so that it must be
/// woven.
///
/// # Errors
/// Whatever is wrong with the source.
pub(crate) fn open(
    group: RowGroupOf<'_>,
    leaf: &OutputLeaf,
    verify: VerifyPages,
    waiting: &Arc<Waiting>,
    cache: &LocationCache,
    context: &Context,
) -> Result<Option<OpenedChunk>> {
    let Some(FoundChunk { chunk, close, .. }) = find(group, leaf, verify, cache, context)? else {
        return Ok(None);
    };
    let (chunk, pages) = match group.source.store.is_local() {
        true => {
            let Some(pages) = chunk.headers()? else { return Ok(None) };
            (CopiedChunk::InPlace(chunk), pages)
        }
        false => chunk.fetch(waiting)?,
    };
    Ok(mend(close, &pages)?.map(|close| OpenedChunk { chunk, close }))
}

/// The same for a chunk that an object store copies, with its place in the source; `None` if pages
/// would have to be read to know what the output has to say of them.
///
/// # Errors
/// Whatever is wrong with the source.
pub(crate) fn open_unseen(
    group: RowGroupOf<'_>,
    leaf: &OutputLeaf,
    cache: &LocationCache,
    context: &Context,
) -> Result<Option<OpenedChunk>> {
    let RowGroupOf { source, index: row_group } = group;
    let Some(index) = leaf.adapter(source.id)?.leaf() else { return Ok(None) };
    if source.chunk(row_group, index)?.offset_index_offset().is_none() {
        return Ok(None);
    }
    let Some(stats) = source.encoding_stats(row_group, index) else { return Ok(None) };
    let verify = VerifyPages::Checksum;
    let Some(found) = find(group, leaf, verify, cache, context)? else { return Ok(None) };
    let FoundChunk { chunk, range, mut close } = found;
    // Where the footer contradicts the index, only pages can tell.
    let counted: i64 = stats.iter().map(|stats| i64::from(stats.count)).sum();
    let values = u64::try_from(close.metadata.num_values()).ok();
    let is_flat = leaf.descr.max_rep_level() == 0;
    if usize::try_from(counted).ok() != Some(chunk.parts.len())
        || (is_flat && values != Some(close.rows_written))
    {
        return Ok(None);
    }
    close.metadata = with_encodings(close.metadata, stats)?;
    Ok(Some(OpenedChunk { chunk: CopiedChunk::Unseen(range), close }))
}

fn find(
    group: RowGroupOf<'_>,
    leaf: &OutputLeaf,
    verify: VerifyPages,
    cache: &LocationCache,
    context: &Context,
) -> Result<Option<FoundChunk>> {
    let RowGroupOf { source, index: row_group } = group;
    let Some(index) = leaf.adapter(source.id)?.leaf() else { return Ok(None) };
    let chunk = source.chunk(row_group, index)?;
    let locations = cache.find(source, row_group, index, context)?;
    let range = source.chunk_range(row_group, index)?;
    let mut parts: Vec<(u64, u32)> = locations.dictionary.into_iter().collect();
    parts.extend(locations.pages.iter().map(|p| (p.offset, p.len)));
    let mut at = range.start;
    for &(offset, len) in &parts {
        if offset != at {
            return Ok(None); // a gap: index pages or empty pages lie between
        }
        at += u64::from(len);
    }
    let Some(first_data) = locations.pages.first().map(|p| p.offset) else { return Ok(None) };
    if at != range.end || !locations.are_row_aligned() {
        return Ok(None);
    }
    // Writers differ in what they call the start of a chunk; the pages lie where they were found.
    let signed = |offset: u64| i64::try_from(offset).unwrap_or(i64::MAX);
    let metadata = chunk
        .clone()
        .into_builder()
        .set_dictionary_page_offset(locations.dictionary.map(|(offset, _)| signed(offset)))
        .set_data_page_offset(signed(first_data))
        .build()
        .map_err(unwrap_error)?;
    let close = ColumnCloseResult {
        bytes_written: range.end - range.start,
        rows_written: source.row_group_rows(row_group),
        metadata,
        bloom_filter: bloom_filter(source, row_group, index)?,
        column_index: column_index(source, row_group, index, locations.pages.len())?,
        offset_index: Some(offset_index(&locations)),
    };
    let chunk = SourceChunk {
        source: Arc::clone(source),
        parts,
        group_end: source.row_group_range(row_group)?.end.max(range.end),
        column: leaf.descr.path().string(),
        codec: chunk.compression(),
        verify,
        context: context.clone(),
    };
    Ok(Some(FoundChunk { chunk, range, close }))
}

/// What is said of a chunk, with encodings and values counted from its pages, and without indexes
/// and statistics that contradict them; `None` if that does not help.
fn mend(mut close: ColumnCloseResult, pages: &[WrittenPage]) -> Result<Option<ColumnCloseResult>> {
    let values: u64 = pages.iter().map(WrittenPage::num_values).sum();
    let values = i64::try_from(values).unwrap_or(i64::MAX);
    close.metadata = with_encodings(close.metadata, encoding_stats(pages))?;
    let builder = close.metadata.into_builder().set_num_values(values);
    close.metadata = builder.build().map_err(unwrap_error)?;
    if agrees(&close, pages) {
        return Ok(Some(close));
    }
    close.column_index = None;
    if agrees(&close, pages) {
        return Ok(Some(close));
    }
    let builder = close.metadata.into_builder().clear_statistics();
    close.metadata = builder
        .set_repetition_level_histogram(None)
        .set_definition_level_histogram(None)
        .build()
        .map_err(unwrap_error)?;
    Ok(agrees(&close, pages).then_some(close))
}

/// What is said of a chunk, with the encodings of its pages; always in one order.
fn with_encodings(
    chunk: ColumnChunkMetaData,
    mut stats: Vec<PageEncodingStats>,
) -> Result<ColumnChunkMetaData> {
    stats
        .sort_by_key(|stats| (stats.page_type != PageType::DICTIONARY_PAGE, stats.encoding as i32));
    let mut encodings = *chunk.encodings_mask();
    stats.iter().for_each(|stats| encodings.insert(stats.encoding));
    let builder = chunk.into_builder().set_encodings_mask(encodings);
    builder.set_page_encoding_stats(stats).build().map_err(unwrap_error)
}

fn agrees(close: &ColumnCloseResult, pages: &[WrittenPage]) -> bool {
    checked(close, pages).check().is_ok()
}

fn checked<'a>(close: &'a ColumnCloseResult, pages: &'a [WrittenPage]) -> CheckedChunk<'a> {
    CheckedChunk {
        pages,
        metadata: &close.metadata,
        columns: close.column_index.as_ref(),
        offsets: close.offset_index.as_ref(),
        rows: close.rows_written,
    }
}

/// Leaves out statistics that are not wanted.
///
/// # Errors
/// Whatever the parquet crate has against the footer.
pub(crate) fn trim(
    mut close: ColumnCloseResult,
    wanted: EnabledStatistics,
) -> Result<ColumnCloseResult> {
    if wanted != EnabledStatistics::Page {
        close.column_index = None;
    }
    if wanted == EnabledStatistics::None {
        let builder = close.metadata.into_builder().clear_statistics();
        close.metadata = builder.build().map_err(unwrap_error)?;
    }
    Ok(close)
}

fn offset_index(locations: &Locations) -> OffsetIndexMetaData {
    let mut builder = OffsetIndexBuilder::new();
    for page in &locations.pages {
        builder.append_offset_and_size(
            i64::try_from(page.offset).unwrap_or(i64::MAX),
            i32::try_from(page.len).unwrap_or(i32::MAX),
        );
        builder.append_row_count(i64::try_from(page.rows).unwrap_or(i64::MAX));
    }
    if locations.unencoded_bytes.len() == locations.pages.len() {
        for bytes in &locations.unencoded_bytes {
            builder.append_unencoded_byte_array_data_bytes(Some(*bytes));
        }
    }
    builder.build()
}
