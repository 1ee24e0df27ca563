//! Reads the bytes of chunks that are copied, page by page.
//!
//! # Invariants
//! Pages that pass through this machine are checked on the way.
//!
//! # Not here
//! Which chunks are copied (`mod`).

use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use plait_core::{Error, Kind, Result};

use crate::check::WrittenPage;
use crate::options::VerifyPages;
use crate::page::codec::decompress;
use crate::page::header::{PageHeader, PageKind, Parsed};
use crate::page::unpack::check_fits;
use crate::page::{PAGE_BYTES_MAX, guard, wrap_error};
use crate::runtime::Context;
use crate::source::Source;
use crate::spill::{Pieces, SpillBuffer, Waiting};

/// How much of a page is read for its header.
const HEADER_READ_BYTES: u64 = 256;

/// So many bytes of an object are requested before they are read.
const AHEAD_BYTES: u64 = 4 << 20;

/// A column chunk of a source, ready to be spliced into an output.
pub(crate) struct SourceChunk {
    pub(super) source: Arc<Source>,
    /// Offsets and lengths of all pages, the dictionary first.
    pub(super) parts: Vec<(u64, u32)>,
    /// Where the bytes of its row group end.
    pub(super) group_end: u64,
    pub(super) column: String,
    pub(super) codec: Compression,
    /// Whether pages without checksum are unpacked.
    pub(super) verify: VerifyPages,
    pub(super) context: Context,
}

impl SourceChunk {
    /// The headers of the pages; `None` when one is not as long as its place.
    pub(super) fn headers(&self) -> Result<Option<Vec<WrittenPage>>> {
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
    pub(super) fn fetch(&self, waiting: &Arc<Waiting>) -> Result<(CopiedChunk, Vec<WrittenPage>)> {
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
            group_end: self.group_end,
            column: self.column.clone(),
            codec: self.codec,
            verify: self.verify,
            context: self.context.clone(),
            page: Bytes::new(),
        }
    }
}

/// The bytes of a chunk that is copied.
pub(crate) enum CopiedChunk {
    /// In the local file they come from.
    InPlace(SourceChunk),
    /// Fetched, from this offset of their object on.
    Held(SpillBuffer, u64),
    /// In the object they come from, whose store copies them: zeros stand for them here.
    Unseen(Range<u64>),
}

impl CopiedChunk {
    /// Where the bytes are, if the store copies them.
    pub(crate) fn unseen(&self) -> Option<&Range<u64>> {
        match self {
            Self::Unseen(range) => Some(range),
            _ => None,
        }
    }
}

impl Length for CopiedChunk {
    fn len(&self) -> u64 {
        match self {
            Self::InPlace(chunk) => chunk.parts.iter().map(|(_, len)| u64::from(*len)).sum(),
            Self::Held(held, _) => held.len(),
            Self::Unseen(range) => range.end - range.start,
        }
    }
}

impl ChunkReader for CopiedChunk {
    type T = CopiedReader;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let first = match self {
            Self::InPlace(chunk) => chunk.parts.first().map_or(start, |(offset, _)| *offset),
            Self::Held(_, first) => *first,
            Self::Unseen(range) => range.start,
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
            Self::Unseen(_) => CopiedReader::Unseen(io::repeat(0).take(self.len())),
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
    /// Nowhere.
    Unseen(io::Take<io::Repeat>),
}

impl Read for CopiedReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::InPlace(parts) => parts.read(out),
            Self::Held(pieces) => pieces.read(out),
            Self::Unseen(zeros) => zeros.read(out),
        }
    }
}

/// Reads the pages of a chunk one after the other, each checked.
pub(crate) struct PartsReader {
    source: Arc<Source>,
    parts: std::vec::IntoIter<(u64, u32)>,
    /// Where the bytes of its row group end.
    group_end: u64,
    column: String,
    codec: Compression,
    verify: VerifyPages,
    context: Context,
    page: Bytes,
}

/// Says that a row group of `source` is read from `offset` on, whose bytes end at `end`.
pub(super) fn read_ahead(source: &Source, offset: u64, end: u64) {
    source.store.will_read(offset..end.min(offset + AHEAD_BYTES), end);
}

impl PartsReader {
    /// The next page, and its header.
    fn next_part(&mut self) -> Result<Option<(Bytes, WrittenPage)>> {
        let Some((offset, len)) = self.parts.next() else { return Ok(None) };
        read_ahead(&self.source, offset, self.group_end);
        self.read_part(offset, len).map(Some)
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
