//! The body of a page, unpacked within the memory limit.
//!
//! # Invariants
//! No memory is taken for a length that the codec cannot reach, that is above [`PAGE_BYTES_MAX`] or
//! above the memory limit. What was taken is accounted for until the last slice is dropped.
//!
//! # Not here
//! The codecs (`codec`); what values become (`expand`).

use bytes::Bytes;
use parquet::basic::Compression;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::schema::types::ColumnDescPtr;
use plait_core::{Error, Kind, Result};

use super::PAGE_BYTES_MAX;
use super::codec::{check_reach, decompress_into, page_too_large};
use super::expand::check_expansion;
use super::header::{PageHeader, PageKind};
use crate::runtime::Context;

/// Unpacks pages of one column chunk.
#[derive(Clone)]
pub(crate) struct Unpacker {
    codec: Compression,
    descr: ColumnDescPtr,
    context: Context,
}

impl Unpacker {
    pub(crate) fn new(chunk: &ColumnChunkMetaData, context: &Context) -> Self {
        Self {
            codec: chunk.compression(),
            descr: chunk.column_descr_ptr(),
            context: context.clone(),
        }
    }

    pub(crate) fn codec(&self) -> Compression {
        self.codec
    }

    /// Refuses a page that is larger than any may be, or than the memory limit, packed or unpacked.
    ///
    /// # Errors
    /// [`Kind::MemoryLimit`].
    pub(crate) fn check_size(&self, header: &PageHeader) -> Result<()> {
        let len = header.uncompressed_len.max(header.compressed_len) as usize;
        if len > PAGE_BYTES_MAX {
            return Err(page_too_large(len));
        }
        check_fits(len, &self.context)
    }

    /// The unpacked body, levels of version 2 in front.
    ///
    /// # Errors
    /// [`Kind::CorruptSource`] when it cannot be unpacked to what its header says,
    /// [`Kind::MemoryLimit`] when that is too much.
    pub(crate) fn unpack(&self, header: &PageHeader, body: &Bytes) -> Result<Bytes> {
        self.check_size(header)?;
        let buf = self.unpack_body(header, body)?;
        check_expansion(header, &buf, &self.descr, self.context.call_budget())?;
        Ok(buf)
    }

    fn unpack_body(&self, header: &PageHeader, body: &Bytes) -> Result<Bytes> {
        let (levels_len, packed) = match header.kind {
            PageKind::DataV2 { def_levels_len, rep_levels_len, is_compressed, .. } => {
                (def_levels_len as usize + rep_levels_len as usize, is_compressed)
            }
            _ => (0, true),
        };
        let unpacked_len = header.uncompressed_len as usize;
        if !packed || self.codec == Compression::UNCOMPRESSED {
            if body.len() != unpacked_len {
                return Err(Error::new(
                    Kind::CorruptSource,
                    "page has another length than it says",
                )
                .with_got(format!("{} bytes instead of {unpacked_len}", body.len())));
            }
            return Ok(body.clone());
        }
        // The header's check made sure that levels fit both lengths.
        let (levels, values) = body.split_at_checked(levels_len).unwrap_or_default();
        // A length that no packing reaches is refused before memory is taken for it.
        check_reach(self.codec, values.len(), unpacked_len - levels.len())?;
        let Some(mut buffer) = self.context.buffers().take(unpacked_len) else {
            return Err(Error::new(Kind::MemoryLimit, "not enough memory for one page")
                .with_got(format!("{unpacked_len} bytes")));
        };
        buffer.bytes_mut().extend_from_slice(levels);
        decompress_into(self.codec, values, unpacked_len - levels.len(), buffer.bytes_mut())?;
        Ok(Bytes::from_owner(buffer))
    }
}

/// Refuses a page of `len` bytes that is larger than the whole memory limit.
///
/// # Errors
/// [`Kind::MemoryLimit`].
pub(crate) fn check_fits(len: usize, context: &Context) -> Result<()> {
    let limit = context.call_budget().limit_bytes();
    if len <= limit {
        return Ok(());
    }
    Err(Error::new(Kind::MemoryLimit, "one page is larger than the memory limit")
        .with_got(format!("{len} bytes, memory_limit {limit}"))
        .with_hint("raise memory_limit, or rewrite the file with smaller pages"))
}
