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
//! anew or left out where it is wrong.
//!
//! # Cost
//! One page at a time in memory. Of a local file, headers are read first, by a small read for each
//! page. Chunks of objects are fetched once and wait, in memory or on disk.
//!
//! # Not here
//! Whether a row group may be copied at this point of the order (`plait_core::plan`).

use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::Compression;
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::OffsetIndexBuilder;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use parquet::file::properties::EnabledStatistics;
use parquet::file::reader::{ChunkReader, Length};
use plait_core::{Error, Kind, Result};

use crate::check::{CheckedChunk, WrittenPage, encoding_stats};
use crate::leaf::{LocationCache, OutputLeaf};
use crate::options::{MergeOptions, VerifyPages};
use crate::page::codec::decompress;
use crate::page::header::{PageHeader, PageKind, Parsed};
use crate::page::indexes::{bloom_filter, column_index};
use crate::page::unpack::check_fits;
use crate::page::{Locations, PAGE_BYTES_MAX, guard, unwrap_error, wrap_error};
use crate::properties::parse_codec;
use crate::runtime::Context;
use crate::schema::LeafAdapter;
use crate::source::{RowGroupOf, Source};
use crate::spill::{Pieces, SpillBuffer, Waiting};

/// A column chunk of a source, ready to be spliced into an output.
pub(crate) struct SourceChunk {
    source: Arc<Source>,
    /// Offsets and lengths of all pages, the dictionary first.
    parts: Vec<(u64, u32)>,
    column: String,
    codec: Compression,
    /// Whether pages without checksum are unpacked.
    verify: VerifyPages,
    context: Context,
}

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
) -> Result<Option<(CopiedChunk, ColumnCloseResult)>> {
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
        column: leaf.descr.path().string(),
        codec: chunk.compression(),
        verify,
        context: context.clone(),
    };
    let (chunk, pages) = match source.store.is_local() {
        true => {
            let Some(pages) = chunk.headers()? else { return Ok(None) };
            (CopiedChunk::InPlace(chunk), pages)
        }
        false => chunk.fetch(waiting)?,
    };
    Ok(mend(close, &pages)?.map(|close| (chunk, close)))
}

/// How much of a page is read for its header.
const HEADER_READ_BYTES: u64 = 256;

impl SourceChunk {
    /// The headers of the pages; `None` when one is not as long as its place.
    fn headers(&self) -> Result<Option<Vec<WrittenPage>>> {
        let store = &self.source.store;
        let mut pages = Vec::with_capacity(self.parts.len());
        for &(offset, len) in &self.parts {
            let end = offset + u64::from(len);
            let mut bytes = store.read(offset..end.min(offset + HEADER_READ_BYTES))?;
            let mut parsed = PageHeader::parse(&bytes);
            if let Ok(Parsed::MoreBytes) = parsed {
                bytes = store.read(offset..end)?;
                parsed = PageHeader::parse(&bytes);
            }
            let Ok(Parsed::Header { header, len: head }) = parsed else { return Ok(None) };
            if head as u64 + u64::from(header.compressed_len) != u64::from(len) {
                return Ok(None);
            }
            pages.push(WrittenPage { offset, len: u64::from(len), kind: header.kind });
        }
        Ok(Some(pages))
    }

    /// Fetches all pages, to where chunks wait.
    fn fetch(&self, waiting: &Arc<Waiting>) -> Result<(CopiedChunk, Vec<WrittenPage>)> {
        let mut held = SpillBuffer::new(waiting);
        let mut reader = self.reader();
        let mut pages = Vec::with_capacity(self.parts.len());
        while let Some((page, header)) = reader.next_part()? {
            pages.push(header);
            held.push(page)?;
        }
        let start = self.parts.first().map_or(0, |(offset, _)| *offset);
        Ok((CopiedChunk::Held(held, start), pages))
    }

    fn reader(&self) -> PartsReader {
        PartsReader {
            source: Arc::clone(&self.source),
            parts: self.parts.clone().into_iter(),
            column: self.column.clone(),
            codec: self.codec,
            verify: self.verify,
            context: self.context.clone(),
            page: Bytes::new(),
        }
    }
}

/// What is said of a chunk, with encodings and values counted from its pages, and without indexes
/// and statistics that contradict them; `None` if that does not help.
fn mend(mut close: ColumnCloseResult, pages: &[WrittenPage]) -> Result<Option<ColumnCloseResult>> {
    let mut encodings = *close.metadata.encodings_mask();
    let stats = encoding_stats(pages);
    stats.iter().for_each(|stats| encodings.insert(stats.encoding));
    let values: u64 = pages.iter().map(WrittenPage::num_values).sum();
    let builder = close.metadata.into_builder();
    close.metadata = builder
        .set_encodings_mask(encodings)
        .set_page_encoding_stats(stats)
        .set_num_values(i64::try_from(values).unwrap_or(i64::MAX))
        .build()
        .map_err(unwrap_error)?;
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

/// The bytes of a chunk that is copied.
pub(crate) enum CopiedChunk {
    /// In the local file they come from.
    InPlace(SourceChunk),
    /// Fetched, from this offset of their object on.
    Held(SpillBuffer, u64),
}

impl Length for CopiedChunk {
    fn len(&self) -> u64 {
        match self {
            Self::InPlace(chunk) => chunk.parts.iter().map(|(_, len)| u64::from(*len)).sum(),
            Self::Held(held, _) => held.len(),
        }
    }
}

impl ChunkReader for CopiedChunk {
    type T = CopiedReader;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let first = match self {
            Self::InPlace(chunk) => chunk.parts.first().map_or(start, |(offset, _)| *offset),
            Self::Held(_, first) => *first,
        };
        if first != start {
            return Err(wrap_error(Error::new(
                Kind::Internal,
                "a chunk is read from elsewhere than its start",
            )));
        }
        Ok(match self {
            Self::InPlace(chunk) => CopiedReader::InPlace(chunk.reader()),
            Self::Held(held, _) => CopiedReader::Held(held.get_read(0)?),
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let mut bytes = vec![0; length];
        self.get_read(start)?.read_exact(&mut bytes)?;
        Ok(bytes.into())
    }
}

/// Reads a chunk from its start.
pub(crate) enum CopiedReader {
    /// Page by page, each checked.
    InPlace(PartsReader),
    /// From where it waits; it was checked when it was fetched.
    Held(Pieces),
}

impl Read for CopiedReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::InPlace(parts) => parts.read(out),
            Self::Held(pieces) => pieces.read(out),
        }
    }
}

/// Reads the pages of a chunk one after the other, each checked.
pub(crate) struct PartsReader {
    source: Arc<Source>,
    parts: std::vec::IntoIter<(u64, u32)>,
    column: String,
    codec: Compression,
    verify: VerifyPages,
    context: Context,
    page: Bytes,
}

impl PartsReader {
    /// The next page, and its header.
    fn next_part(&mut self) -> Result<Option<(Bytes, WrittenPage)>> {
        self.parts.next().map(|(offset, len)| self.read_part(offset, len)).transpose()
    }

    fn read_part(&self, offset: u64, part_len: u32) -> Result<(Bytes, WrittenPage)> {
        let place = |e: Error| {
            e.with_path(self.source.path()).with_column(&self.column).with_offset(offset)
        };
        self.context.check_cancelled()?;
        check_fits(part_len as usize, &self.context).map_err(place)?;
        let bytes = self.source.store.read(offset..offset + u64::from(part_len)).map_err(place)?;
        let bytes = self.context.account().hold(bytes);
        self.context.counters().add_consumed(u64::from(part_len));
        let corrupt = |what: &str| place(Error::new(Kind::CorruptSource, what));
        let Parsed::Header { header, len } = PageHeader::parse(&bytes).map_err(place)? else {
            return Err(corrupt("page header does not end"));
        };
        let body = bytes.slice(len..);
        if body.len() != header.compressed_len as usize {
            return Err(corrupt("page is not as long as its place"));
        }
        match header.crc {
            Some(crc) if crc != crc32fast::hash(&body) => {
                return Err(corrupt("page does not match its checksum")
                    .with_hint("the file was damaged; fetch it again"));
            }
            Some(_) => {}
            None if self.verify == VerifyPages::Unpack => {
                self.try_unpack(&header, &body).map_err(place)?
            }
            None => {}
        }
        let page = WrittenPage { offset, len: u64::from(part_len), kind: header.kind };
        Ok((bytes, page))
    }

    /// Unpacks a page that has no checksum, to see that it can be.
    fn try_unpack(&self, header: &PageHeader, body: &[u8]) -> Result<()> {
        let (levels_len, is_packed) = match header.kind {
            PageKind::DataV2 { def_levels_len, rep_levels_len, is_compressed, .. } => {
                (def_levels_len as usize + rep_levels_len as usize, is_compressed)
            }
            _ => (0, true),
        };
        let unpacked_len = (header.uncompressed_len as usize).saturating_sub(levels_len);
        let values = body.get(levels_len..).unwrap_or_default();
        if !is_packed || self.codec == Compression::UNCOMPRESSED {
            return match values.len() == unpacked_len {
                true => Ok(()),
                false => {
                    Err(Error::new(Kind::CorruptSource, "page has another length than it says"))
                }
            };
        }
        if unpacked_len > PAGE_BYTES_MAX {
            return Err(Error::new(Kind::MemoryLimit, "page is too large")
                .with_got(format!("{unpacked_len} bytes")));
        }
        check_fits(unpacked_len, &self.context)?;
        let _charge = self.context.charge(unpacked_len);
        guard(|| decompress(self.codec, values, unpacked_len)).flatten().map(drop)
    }
}

impl Read for PartsReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.page.is_empty()
            && let Some((page, _)) = self.next_part().map_err(io::Error::other)?
        {
            self.page = page;
        }
        let n = out.len().min(self.page.len());
        out[..n].copy_from_slice(&self.page.split_to(n));
        Ok(n)
    }
}
