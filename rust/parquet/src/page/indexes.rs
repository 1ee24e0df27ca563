//! What a file says of one column chunk next to its pages: column index and bloom filter.
//!
//! # Invariants
//! One that does not parse, or does not fit the pages, is as good as none: both only save reads.
//!
//! # Cost
//! One read each.
//!
//! # Not here
//! Where pages are (`locate`); what bounds mean (`block::index`, `read::bounds`).

use std::io;

use bytes::Bytes;
use parquet::bloom_filter::Sbbf;
use parquet::errors::ParquetError;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::index_reader::decode_column_index;
use parquet::file::reader::{ChunkReader, Length};
use plait_core::{Kind, Result};

use super::{guard, unwrap_error, wrap_error};
use crate::source::Source;

/// Bytes that are read where a bloom filter begins whose length is not known.
const HEADER_BYTES: u64 = 64 << 10;

/// The column index of a chunk of `pages` pages.
///
/// # Errors
/// What reading gives.
pub(crate) fn column_index(
    source: &Source,
    row_group: usize,
    leaf: usize,
    pages: usize,
) -> Result<Option<ColumnIndexMetaData>> {
    let Some(bytes) = source.column_index(row_group, leaf)? else { return Ok(None) };
    let physical = source.leaf(leaf).physical_type();
    let index = guard(|| decode_column_index(&bytes, physical)).ok().and_then(Result::ok);
    Ok(index.filter(|index| usize::try_from(index.num_pages()).ok() == Some(pages)))
}

/// The bloom filter of a chunk.
///
/// # Errors
/// What reading gives.
pub(crate) fn bloom_filter(source: &Source, row_group: usize, leaf: usize) -> Result<Option<Sbbf>> {
    let chunk = source.chunk(row_group, leaf)?;
    if chunk.bloom_filter_offset().is_none() {
        return Ok(None);
    }
    match guard(|| Sbbf::read_from_column_chunk(&chunk, &WholeFile(source))) {
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
        let end = self.0.store.len().min(start.saturating_add(HEADER_BYTES));
        self.0.store.read(start..end).map(io::Cursor::new).map_err(wrap_error)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        self.0.store.read(start..start.saturating_add(length as u64)).map_err(wrap_error)
    }
}
