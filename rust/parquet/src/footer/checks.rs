//! Reads a footer, and checks it before and after it is decoded.
//!
//! ```text
//! end of the file ─▶ length ─▶ bytes ─▶ check_footer ─▶ decode ─▶ check_meta ─▶ first row of each group
//!                                       as thrift                 against the file
//! ```
//!
//! # Invariants
//! Nothing is decoded before its lists, groups and nesting are known to fit the bytes that hold them.
//!
//! # Cost
//! One ranged read, two if the footer is longer than the end of the file that is read first.
//!
//! # Not here
//! What is kept of a footer (`stored`, `decoded`); the open file (`source`).

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parquet::file::metadata::{
    ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader,
    ParquetStatisticsPolicy,
};
use parquet::schema::types::SchemaDescPtr;
use plait_core::{Error, Kind, Result};

use super::parts::FooterParts;
use super::row_starts::RowStarts;
use crate::guard::{guard, unwrap_error};
use crate::store::RangeReader;
use crate::thrift::{Reader, Stop, TYPE_STRUCT};

/// How much of the end of a file the first read fetches.
pub(crate) const TAIL_BYTES: u64 = 64 << 10;
/// The same of a local file, where another read costs less than bytes that are not needed.
const LOCAL_TAIL_BYTES: u64 = 16 << 10;
/// Footer length and magic number.
pub(super) const TRAILER_BYTES: u64 = 8;
/// Deepest nesting of groups that is decoded.
const SCHEMA_DEPTH_MAX: usize = 256;

/// Where the pages of a chunk lie. Some writers set the dictionary's offset to 0 although it is
/// the first page, or the data's offset to 0 when there is only a dictionary.
pub(crate) fn chunk_range(chunk: &ColumnChunkMetaData) -> Result<Range<u64>> {
    let data = chunk.data_page_offset();
    let offsets = [Some(data), chunk.dictionary_page_offset()];
    let start = offsets.into_iter().flatten().filter(|&o| o != 0).min().unwrap_or(data);
    let range = u64::try_from(start).ok().zip(u64::try_from(chunk.compressed_size()).ok());
    let range = range.and_then(|(start, len)| Some(start..start.checked_add(len)?));
    range.ok_or_else(|| {
        Error::new(Kind::CorruptSource, "column chunk has a negative offset or length")
            .with_got(format!("offset {start}, length {}", chunk.compressed_size()))
    })
}

/// A footer that was decoded.
pub(super) struct Decoded {
    pub(super) meta: ParquetMetaData,
    /// Whether its statistics cannot be decoded.
    pub(super) lacks_statistics: bool,
}

/// Decodes the footer, without statistics when they are what cannot be decoded. A schema that is
/// known is not decoded again.
pub(super) fn decode(footer: &[u8], schema: Option<&SchemaDescPtr>) -> Result<Decoded> {
    let usual = decode_options(schema);
    let skip = || ParquetStatisticsPolicy::SkipAll;
    let bare = usual
        .clone()
        .with_size_stats_policy(skip())
        .with_encoding_stats_policy(skip())
        .with_column_stats_policy(skip());
    let decode = |options: &ParquetMetaDataOptions| decode_as(footer, options);
    decode(&usual).map(|meta| Decoded { meta, lacks_statistics: false }).or_else(|e| {
        decode(&bare).map(|meta| Decoded { meta, lacks_statistics: true }).map_err(|_| e)
    })
}

/// The same with the pages of each encoding counted, where the footer counts them.
pub(super) fn decode_counts(footer: &[u8], schema: &SchemaDescPtr) -> Result<ParquetMetaData> {
    decode_as(footer, &decode_options(Some(schema)).with_encoding_stats_as_mask(false))
}

fn decode_options(schema: Option<&SchemaDescPtr>) -> ParquetMetaDataOptions {
    let mut options = ParquetMetaDataOptions::new();
    if let Some(schema) = schema {
        options.set_schema(Arc::clone(schema));
    }
    options
}

fn decode_as(footer: &[u8], options: &ParquetMetaDataOptions) -> Result<ParquetMetaData> {
    guard(|| ParquetMetaDataReader::decode_metadata_with_options(footer, Some(options)))
        .and_then(|decoded| decoded.map_err(unwrap_error))
}

/// Reads the footer; gives its bytes and its offset.
pub(super) fn read_footer(store: &dyn RangeReader) -> Result<(Bytes, u64)> {
    let len = store.len();
    let not_parquet = |got: String| {
        let begins = store.read(0..len.min(4));
        Error::new(Kind::CorruptSource, "not a Parquet file, or cut short").with_got(got).with_hint(
            match begins.as_deref() {
                Ok([]) => "the file is empty: its writer may have failed, or not be done",
                Ok(b"PAR1") => "the file starts as Parquet: its writer or a copy may have failed",
                _ => "a Parquet file starts and ends with `PAR1`; convert CSV or JSON first",
            },
        )
    };
    if len < TRAILER_BYTES + 4 {
        return Err(not_parquet(format!("{len} bytes")));
    }
    let usual = if store.is_local() { LOCAL_TAIL_BYTES } else { TAIL_BYTES };
    let tail_bytes = store.footer_bytes().unwrap_or(usual).max(TRAILER_BYTES);
    let tail_start = len.saturating_sub(tail_bytes);
    let tail = store.read(tail_start..len)?;
    let tail_bytes: &[u8] = &tail;
    let footer_len = match *tail_bytes {
        [.., a, b, c, d, b'P', b'A', b'R', b'1'] => u64::from(u32::from_le_bytes([a, b, c, d])),
        [.., b'P', b'A', b'R', b'E'] => {
            return Err(Error::new(Kind::EncryptedSource, "footer is encrypted")
                .with_hint("decrypt the file first"));
        }
        ref other => {
            let end = other.get(other.len().saturating_sub(4)..).unwrap_or_default();
            return Err(not_parquet(format!("`{}` at the end", end.escape_ascii())));
        }
    };
    let footer_end = len - TRAILER_BYTES;
    let Some(footer_start) = footer_end.checked_sub(footer_len).filter(|&start| start >= 4) else {
        return Err(Error::new(Kind::CorruptSource, "footer is longer than the file")
            .with_offset(footer_end)
            .with_got(format!("{footer_len} bytes in a file of {len}")));
    };
    let in_tail = footer_start.checked_sub(tail_start).and_then(|n| usize::try_from(n).ok());
    let footer = match in_tail {
        Some(start) => tail.slice(start..tail.len() - 8),
        None => store.read(footer_start..footer_end)?,
    };
    Ok((footer, footer_start))
}

/// Checks what the decoder of the footer takes on trust: that lists and groups are no longer than
/// the bytes that hold them, that groups are not nested without end, that nothing is encrypted.
pub(super) fn check_footer(footer: &[u8]) -> Result<FooterParts> {
    let parts = FooterParts::find(footer, check_schema).map_err(|stop| {
        Error::new(Kind::CorruptSource, "footer is malformed").with_got(stop.reason())
    })?;
    if parts.is_encrypted {
        return Err(Error::new(Kind::EncryptedSource, "columns are encrypted")
            .with_hint("decrypt the file first"));
    }
    Ok(parts)
}

/// Walks the schema, a tree in depth-first order in which every group tells its children's number.
fn check_schema(reader: &mut Reader<'_>) -> Result<(), Stop> {
    let (kind, elements) = reader.list()?;
    let mut open: Vec<usize> = Vec::new(); // children still to come, from the root down
    for index in 0..elements {
        if kind != TYPE_STRUCT {
            return Err(Stop::Malformed("schema elements are not structs"));
        }
        let (mut last, mut children) = (0, 0);
        while let Some((id, kind)) = reader.field(&mut last)? {
            if id == 5 { children = reader.i32()? } else { reader.skip(kind)? }
        }
        match open.last_mut() {
            Some(left) => *left -= 1,
            None if index == 0 => {}
            None => return Err(Stop::Malformed("schema has more than one root")),
        }
        match usize::try_from(children) {
            Ok(children) if children < elements - index => open.push(children),
            _ => return Err(Stop::Malformed("schema group has more children than there are")),
        }
        while open.last() == Some(&0) {
            open.pop();
        }
        if open.len() > SCHEMA_DEPTH_MAX {
            return Err(Stop::Malformed("schema groups are nested too deeply"));
        }
    }
    if open.is_empty() { Ok(()) } else { Err(Stop::Malformed("schema lacks elements")) }
}

/// Checks the decoded footer; gives the first row of every row group, and the number of rows.
pub(super) fn check_meta(meta: &ParquetMetaData, footer_start: u64) -> Result<RowStarts> {
    let corrupt = |what: &str| Error::new(Kind::CorruptSource, what);
    let file = meta.file_metadata();
    let leaves = file.schema_descr().num_columns();
    let mut row_starts = Vec::with_capacity(1 + meta.num_row_groups());
    row_starts.push(0);
    let mut rows = 0_u64;
    for (index, group) in meta.row_groups().iter().enumerate() {
        rows = u64::try_from(group.num_rows()).ok().and_then(|n| rows.checked_add(n)).ok_or_else(
            || {
                corrupt("row group has an impossible number of rows")
                    .with_got(format!("{} in row group {index}", group.num_rows()))
            },
        )?;
        row_starts.push(rows);
        if group.columns().len() != leaves {
            return Err(corrupt("row group lacks columns")
                .with_got(format!("{} of {leaves} in row group {index}", group.columns().len())));
        }
        for chunk in group.columns() {
            let in_column = |e: Error| e.with_column(chunk.column_path().string());
            check_chunk(chunk, footer_start).map_err(in_column)?;
        }
    }
    if u64::try_from(file.num_rows()).ok() != Some(rows) {
        return Err(corrupt("row groups do not add up to the file's rows")
            .with_got(format!("{rows} rows, {} in the footer", file.num_rows())));
    }
    Ok(row_starts.into())
}

fn check_chunk(chunk: &ColumnChunkMetaData, footer_start: u64) -> Result<()> {
    if let Some(path) = chunk.file_path().filter(|path| !path.is_empty()) {
        return Err(Error::new(Kind::Unsupported, "column chunk lies in another file")
            .with_got(format!("`{path}`")));
    }
    if chunk.num_values() < 0 || chunk.uncompressed_size() < 0 {
        return Err(Error::new(Kind::CorruptSource, "column chunk has a negative count").with_got(
            format!("{} values, {} bytes", chunk.num_values(), chunk.uncompressed_size()),
        ));
    }
    let range = chunk_range(chunk)?;
    if range.end > footer_start {
        return Err(Error::new(Kind::CorruptSource, "column chunk reaches into the footer")
            .with_offset(range.start)
            .with_got(format!("bytes {}..{}, footer at {footer_start}", range.start, range.end)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_that_promises_too_much_is_refused_before_it_is_decoded() {
        // FileMetaData { 2: list<SchemaElement> [{ 4: "m", 5: num_children 2^30 }] }
        let mut footer = vec![0x29, 0x1c, 0x48, 1, b'm', 0x15];
        footer.extend([0x80, 0x80, 0x80, 0x80, 0x08, 0, 0]);
        let e = check_footer(&footer).unwrap_err();
        assert_eq!(e.kind(), Kind::CorruptSource);
        assert!(e.to_string().contains("more children than there are"), "{e}");
        // One child each, deeper and deeper.
        let mut footer = vec![0x29, 0xfc, 0xe8, 0x07];
        footer.extend([0x48, 1, b'm', 0x15, 2, 0].repeat(1000));
        footer.push(0);
        let e = check_footer(&footer).unwrap_err();
        assert!(e.to_string().contains("nested too deeply"), "{e}");
        // FileMetaData { 8: encryption_algorithm {} }
        assert_eq!(check_footer(&[0x8c, 0, 0]).unwrap_err().kind(), Kind::EncryptedSource);
    }
}
