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
//! [`VerifyPages::Unpack`], one without is unpacked to see that it can be.
//!
//! # Cost
//! One page at a time in memory.
//!
//! # Not here
//! Whether a row group may be copied at this point of the order (`plait_core::plan`).

use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::Compression;
use parquet::bloom_filter::Sbbf;
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::OffsetIndexBuilder;
use parquet::file::page_index::index_reader::decode_column_index;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use parquet::file::properties::EnabledStatistics;
use parquet::file::reader::{ChunkReader, Length};
use plait_core::{Error, Kind, Result};

use crate::context::Context;
use crate::leaf::{LocationCache, OutputLeaf};
use crate::options::MergeOptions;
#[cfg(doc)]
use crate::options::VerifyPages;
use crate::page::codec::decompress;
use crate::page::header::{PageHeader, PageKind, Parsed};
use crate::page::{Locations, PAGE_BYTES_MAX, guard, unwrap_error, wrap_error};
use crate::properties::parse_codec;
use crate::schema::LeafAdapter;
use crate::source::Source;

/// A column chunk of a source, ready to be spliced into an output.
pub struct SourceChunk {
    source: Arc<Source>,
    /// Offsets and lengths of all pages, the dictionary first.
    parts: Vec<(u64, u32)>,
    column: String,
    codec: Compression,
    /// Whether pages without checksum are unpacked.
    unpacks: bool,
    context: Context,
}

/// Whether row group `row_group` of `source` has the shape and the encoding of the output.
#[must_use]
pub fn can_copy(
    source: &Source,
    row_group: usize,
    leaves: &[OutputLeaf],
    options: &MergeOptions,
) -> bool {
    if options.dictionary.is_some() || options.data_page_version.is_some() {
        return false; // what the pages are is not known without reading them
    }
    let asked = options.compression.as_deref().and_then(|text| parse_codec(text).ok());
    leaves.len() == source.num_leaves()
        && leaves.iter().all(|leaf| {
            let Ok(LeafAdapter::Same { leaf: index, levels }) = leaf.adapter(source.id) else {
                return false;
            };
            let Ok(chunk) = source.chunk(row_group, *index) else { return false };
            let same_codec = asked.is_none_or(|codec| {
                std::mem::discriminant(&codec) == std::mem::discriminant(&chunk.compression())
            });
            levels.is_identity()
                && same_codec
                && *source.leaf(*index) == *leaf.descr
                && chunk.dictionary_page_offset() != Some(0)
        })
}

/// Prepares the chunk of `leaf` in row group `row_group` of `source`, whose pages without checksum
/// are unpacked on the way if `unpacks`; `None` if its pages do not
/// lie as the footer says, so that it must be woven.
///
/// # Errors
/// Whatever is wrong with the source.
pub fn open(
    source: &Arc<Source>,
    row_group: usize,
    leaf: &OutputLeaf,
    unpacks: bool,
    (cache, context): (&LocationCache, &Context),
) -> Result<Option<(SourceChunk, ColumnCloseResult)>> {
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
    let start = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
    let first_data = locations.pages.first().map(|p| p.offset);
    let is_plain = at == range.end
        && u64::try_from(start).ok() == Some(range.start)
        && chunk.dictionary_page_offset().is_some() == locations.dictionary.is_some()
        && u64::try_from(chunk.data_page_offset()).ok() == first_data;
    if !is_plain || !locations.are_row_aligned() {
        return Ok(None);
    }
    let close = ColumnCloseResult {
        bytes_written: range.end - range.start,
        rows_written: source.row_group_rows(row_group),
        metadata: chunk.clone(),
        bloom_filter: bloom_filter(source, row_group, index)?,
        column_index: column_index(source, row_group, index, locations.pages.len())?,
        offset_index: Some(offset_index(&locations)),
    };
    let column = leaf.descr.path().string();
    let codec = chunk.compression();
    Ok(Some((
        SourceChunk {
            source: Arc::clone(source),
            parts,
            column,
            codec,
            unpacks,
            context: context.clone(),
        },
        close,
    )))
}

/// Leaves out statistics that are not wanted.
///
/// # Errors
/// Whatever the parquet crate has against the footer.
pub fn trim(mut close: ColumnCloseResult, wanted: EnabledStatistics) -> Result<ColumnCloseResult> {
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

/// The column index as the source has it; a broken one or one of another length is left out.
fn column_index(
    source: &Source,
    row_group: usize,
    leaf: usize,
    pages: usize,
) -> Result<Option<parquet::file::page_index::column_index::ColumnIndexMetaData>> {
    let Some(bytes) = source.column_index(row_group, leaf)? else { return Ok(None) };
    let physical = source.leaf(leaf).physical_type();
    let index = guard(|| decode_column_index(&bytes, physical)).ok().and_then(Result::ok);
    Ok(index.filter(|index| usize::try_from(index.num_pages()).ok() == Some(pages)))
}

fn bloom_filter(source: &Source, row_group: usize, leaf: usize) -> Result<Option<Sbbf>> {
    let chunk = source.chunk(row_group, leaf)?;
    if chunk.bloom_filter_offset().is_none() {
        return Ok(None);
    }
    let reader = WholeFile(source);
    match guard(|| Sbbf::read_from_column_chunk(chunk, &reader)) {
        Ok(Ok(filter)) => Ok(filter),
        // A filter that does not parse is left out: readers then read the pages.
        Err(_) => Ok(None),
        Ok(Err(e)) => match unwrap_error(e) {
            e if e.kind() == Kind::Storage => Err(e),
            _ => Ok(None),
        },
    }
}

struct WholeFile<'a>(&'a Source);

impl Length for WholeFile<'_> {
    fn len(&self) -> u64 {
        self.0.store.len()
    }
}

impl ChunkReader for WholeFile<'_> {
    type T = io::Cursor<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let end = self.0.store.len().min(start.saturating_add(64 << 10));
        self.0.store.read(start..end).map(io::Cursor::new).map_err(wrap_error)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        self.0.store.read(start..start.saturating_add(length as u64)).map_err(wrap_error)
    }
}

impl Length for SourceChunk {
    fn len(&self) -> u64 {
        self.parts.iter().map(|(_, len)| u64::from(*len)).sum()
    }
}

impl ChunkReader for SourceChunk {
    type T = PartsReader;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let first = self.parts.first().map_or(start, |(offset, _)| *offset);
        if first != start {
            return Err(wrap_error(Error::new(
                Kind::Internal,
                "a chunk is read from elsewhere than its start",
            )));
        }
        Ok(PartsReader {
            source: Arc::clone(&self.source),
            parts: self.parts.clone().into_iter(),
            column: self.column.clone(),
            codec: self.codec,
            unpacks: self.unpacks,
            context: self.context.clone(),
            page: Bytes::new(),
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        self.source.store.read(start..start.saturating_add(length as u64)).map_err(wrap_error)
    }
}

/// Reads the pages of a chunk one after the other, each checked.
pub struct PartsReader {
    source: Arc<Source>,
    parts: std::vec::IntoIter<(u64, u32)>,
    column: String,
    codec: Compression,
    unpacks: bool,
    context: Context,
    page: Bytes,
}

impl PartsReader {
    fn next_part(&mut self) -> Result<()> {
        let Some((offset, len)) = self.parts.next() else { return Ok(()) };
        let place = |e: Error| {
            e.with_path(self.source.path()).with_column(&self.column).with_offset(offset)
        };
        self.context.check_cancelled()?;
        let bytes = self.source.store.read(offset..offset + u64::from(len)).map_err(place)?;
        self.context.consumed(u64::from(len));
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
            None if self.unpacks => self.try_unpack(&header, &body).map_err(place)?,
            None => {}
        }
        self.page = bytes;
        Ok(())
    }
}

impl PartsReader {
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
        let _charge = self.context.charge(unpacked_len);
        guard(|| decompress(self.codec, values, unpacked_len)).flatten().map(drop)
    }
}

impl Read for PartsReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.page.is_empty() {
            self.next_part().map_err(io::Error::other)?;
        }
        let n = out.len().min(self.page.len());
        out[..n].copy_from_slice(&self.page.split_to(n));
        Ok(n)
    }
}
