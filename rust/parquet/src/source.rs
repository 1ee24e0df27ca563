//! One opened Parquet file: its footer, checked, and where its rows lie.
//!
//! ```text
//! PAR1 ─ chunks ───────────────── indexes ─ footer ─ length ─ PAR1
//!        row group 0 │ row group 1           └ read once, hashed, checked
//!        rows 0..40  │ rows 40..70           row_starts = [0, 40, 70]
//! ```
//!
//! # Invariants
//! Checked by [`Source::open`], relied on by everything behind it: row counts add up, every row
//! group has one chunk a leaf, every chunk lies inside the file before the footer, nothing is
//! encrypted, no chunk lies in another file.
//!
//! # Cost
//! One ranged read, two when the footer is longer than 64 KiB. The footer is held decoded.
//!
//! # Not here
//! Page indexes (`page::locate`); schemas (`plait_core::schema`).

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parquet::file::metadata::{
    ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader,
    ParquetStatisticsPolicy,
};
use parquet::schema::types::{ColumnDescPtr, SchemaDescPtr};
use plait_core::SourceId;
use plait_core::{Error, Kind, Result};
use sha2::{Digest, Sha256};

use crate::footer::{FooterParts, FooterPool, StoredFooter};
use crate::guard::{guard, unwrap_error};
use crate::output::TempFile;
use crate::selection::{Selection, intersection};
use crate::store::{RangeReader, open_local};
use crate::thrift::{Reader, Stop, TYPE_STRUCT};

/// How much of the end of a file the first read fetches.
const TAIL_BYTES: u64 = 64 << 10;
/// The same of a local file, where another read costs less than bytes that are not needed.
const LOCAL_TAIL_BYTES: u64 = 16 << 10;
/// Footer length and magic number.
const TRAILER_BYTES: u64 = 8;
/// Deepest nesting of groups that is decoded.
const SCHEMA_DEPTH_MAX: usize = 256;

/// An opened Parquet file.
pub(crate) struct Source {
    /// Its index among the sources of the call.
    pub id: SourceId,
    /// Its bytes.
    pub store: Arc<dyn RangeReader>,
    /// Its footer, without page indexes.
    pub meta: Arc<ParquetMetaData>,
    /// SHA-256 of the footer's bytes: names this version of the file.
    pub footer_hash: [u8; 32],
    /// Bytes of the footer and of what follows it.
    pub footer_bytes: u64,
    row_starts: Vec<u64>,
    /// Its rows, unless all rows of the file are.
    selection: Option<Arc<Selection>>,
    /// Whether the call made it, as a step on the way.
    is_scratch: bool,
}

impl Source {
    /// Reads and checks the footer of the file in `store`.
    ///
    /// # Errors
    /// [`Kind::CorruptSource`] when the footer contradicts the format, the file or itself,
    /// [`Kind::EncryptedSource`], [`Kind::Unsupported`] when columns lie in other files.
    pub(crate) fn open(id: SourceId, store: Arc<dyn RangeReader>) -> Result<Self> {
        Self::read(id, store, |_, _| None).map(|(source, ..)| source)
    }

    /// The same, with the footer as it is stored, from which [`again`](Self::again) makes the source.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn open_in(
        pool: &FooterPool,
        id: SourceId,
        store: Arc<dyn RangeReader>,
    ) -> Result<(Self, StoredFooter)> {
        let (source, footer, parts) =
            Self::read(id, store, |footer, parts| pool.schema(footer, parts))?;
        let schema = source.meta.file_metadata().schema_descr_ptr();
        let stored = pool.store(&footer, parts, schema);
        Ok((source, stored))
    }

    /// The source of which `footer` is, without reading it again.
    ///
    /// # Errors
    /// None, for the footer of a source that was opened.
    pub(crate) fn again(
        id: SourceId,
        store: &Arc<dyn RangeReader>,
        footer: &StoredFooter,
        hash: [u8; 32],
    ) -> Result<Self> {
        let bytes = footer.bytes();
        let start = store.len().saturating_sub(bytes.len() as u64 + TRAILER_BYTES);
        let meta = decode(&bytes, Some(footer.schema()))?;
        Self::of(id, Arc::clone(store), meta, start, hash)
    }

    fn read(
        id: SourceId,
        store: Arc<dyn RangeReader>,
        schema: impl Fn(&[u8], &FooterParts) -> Option<SchemaDescPtr>,
    ) -> Result<(Self, Bytes, FooterParts)> {
        let in_file = |e: Error| e.with_path(store.path());
        let (footer, footer_start) = read_footer(&*store).map_err(in_file)?;
        let parts = check_footer(&footer).map_err(in_file)?;
        let meta = decode(&footer, schema(&footer, &parts).as_ref()).map_err(in_file)?;
        let hash = Sha256::digest(&footer).into();
        Self::of(id, store, meta, footer_start, hash).map(|source| (source, footer, parts))
    }

    fn of(
        id: SourceId,
        store: Arc<dyn RangeReader>,
        meta: ParquetMetaData,
        footer_start: u64,
        footer_hash: [u8; 32],
    ) -> Result<Self> {
        let row_starts = check_meta(&meta, footer_start).map_err(|e| e.with_path(store.path()))?;
        let footer_bytes = store.len() - footer_start;
        Ok(Self {
            id,
            store,
            meta: Arc::new(meta),
            footer_hash,
            footer_bytes,
            row_starts,
            selection: None,
            is_scratch: false,
        })
    }

    /// Opens a temp file of the call, in whose codec and pages no output is to be.
    ///
    /// # Errors
    /// As [`Source::open`].
    pub(crate) fn open_scratch(temp: &TempFile) -> Result<Arc<Self>> {
        let store = open_local(temp.local_path().unwrap_or(Path::new("")))?;
        let source = Self::open(SourceId(0), store)?;
        Ok(Arc::new(Self { is_scratch: true, ..source }))
    }

    /// Whether it is a temp file of the call: its chunks and pages are not copied as they are.
    #[must_use]
    pub(crate) fn is_scratch(&self) -> bool {
        self.is_scratch
    }

    /// The same file as another source of the call.
    #[must_use]
    pub(crate) fn with_id(&self, id: SourceId) -> Self {
        Self {
            id,
            store: Arc::clone(&self.store),
            meta: Arc::clone(&self.meta),
            footer_hash: self.footer_hash,
            footer_bytes: self.footer_bytes,
            row_starts: self.row_starts.clone(),
            selection: self.selection.clone(),
            is_scratch: self.is_scratch,
        }
    }

    /// Some rows of the same file as a source of their own.
    #[must_use]
    pub(crate) fn with_selection(&self, selection: Selection) -> Self {
        Self { selection: Some(Arc::new(selection)), ..self.with_id(self.id) }
    }

    /// From the first row of the source to the one behind its last: all rows of the file, unless the
    /// source is a selection of them.
    #[must_use]
    pub(crate) fn span(&self) -> Range<u64> {
        self.selection.as_ref().map_or(0..self.rows(), |selection| selection.span())
    }

    /// How many rows the source has.
    #[must_use]
    pub(crate) fn live_rows(&self) -> u64 {
        self.count(&self.span())
    }

    /// Those of `rows`, in ascending ranges, that belong to the source.
    #[must_use]
    pub(crate) fn among(&self, rows: Vec<Range<u64>>) -> Vec<Range<u64>> {
        match &self.selection {
            None => rows,
            Some(selection) => intersection(&rows, selection.ranges()),
        }
    }

    /// Whether the source is some rows of its file.
    #[must_use]
    pub(crate) fn is_selection(&self) -> bool {
        self.selection.is_some()
    }

    /// How many of `rows` belong to the source.
    #[must_use]
    pub(crate) fn count(&self, rows: &Range<u64>) -> u64 {
        let all = rows.end.saturating_sub(rows.start);
        self.selection.as_ref().map_or(all, |selection| selection.count(rows))
    }

    /// `row`, or the last row before it that belongs to the source.
    #[must_use]
    pub(crate) fn at_or_before(&self, row: u64) -> u64 {
        self.selection.as_ref().map_or(row, |selection| selection.at_or_before(row))
    }

    /// The first rows of the source from `row` on that follow each other in the file.
    #[must_use]
    pub(crate) fn next_rows(&self, row: u64) -> Range<u64> {
        let all = row..self.rows().max(row);
        match &self.selection {
            None => all,
            Some(selection) => selection.next(row).unwrap_or(all.end..all.end),
        }
    }

    /// SHA-256 of the footer, as text.
    #[must_use]
    pub(crate) fn footer_text(&self) -> String {
        hexadecimal(&self.footer_hash)
    }

    /// The location of the file.
    #[must_use]
    pub(crate) fn path(&self) -> &str {
        self.store.path()
    }

    /// Number of rows of the file.
    #[must_use]
    pub(crate) fn rows(&self) -> u64 {
        self.row_starts.last().copied().unwrap_or(0)
    }

    /// Number of row groups.
    #[must_use]
    pub(crate) fn num_row_groups(&self) -> usize {
        self.meta.num_row_groups()
    }

    /// The row group that holds `row`, and the row's place in it; behind the last row, the number
    /// of row groups and 0.
    #[must_use]
    pub(crate) fn row_group_of(&self, row: u64) -> (usize, u64) {
        if row >= self.rows() {
            return (self.num_row_groups(), 0);
        }
        let row_group = self.row_starts.partition_point(|&start| start <= row) - 1;
        (row_group, row - self.row_group_start(row_group))
    }

    /// Number of rows in a row group, 0 behind the last.
    #[must_use]
    pub(crate) fn row_group_rows(&self, row_group: usize) -> u64 {
        self.row_group_start(row_group + 1) - self.row_group_start(row_group)
    }

    /// First row of a row group, the number of rows behind the last.
    #[must_use]
    pub(crate) fn row_group_start(&self, row_group: usize) -> u64 {
        self.row_starts.get(row_group).copied().unwrap_or_else(|| self.rows())
    }

    /// Number of leaf columns.
    #[must_use]
    pub(crate) fn num_leaves(&self) -> usize {
        self.meta.file_metadata().schema_descr().num_columns()
    }

    /// The leaf column `leaf`.
    ///
    /// # Panics
    /// When `leaf` is not less than [`num_leaves`](Self::num_leaves).
    #[must_use]
    pub(crate) fn leaf(&self, leaf: usize) -> ColumnDescPtr {
        self.meta.file_metadata().schema_descr().column(leaf)
    }

    /// The footer's entry for one column chunk.
    ///
    /// # Errors
    /// [`Kind::Internal`] when there is no such chunk.
    pub(crate) fn chunk(&self, row_group: usize, leaf: usize) -> Result<&ColumnChunkMetaData> {
        let chunks = self.meta.row_groups().get(row_group).map(|g| g.columns());
        chunks.and_then(|chunks| chunks.get(leaf)).ok_or_else(|| {
            Error::new(Kind::Internal, "no such column chunk")
                .with_path(self.path())
                .with_got(format!("row group {row_group}, leaf {leaf}"))
        })
    }

    /// Stored bytes of a chunk's column index, if there is one that lies in the file.
    ///
    /// # Errors
    /// What reading gives.
    pub(crate) fn column_index(&self, row_group: usize, leaf: usize) -> Result<Option<Bytes>> {
        let chunk = self.chunk(row_group, leaf)?;
        let (Some(offset), Some(len)) = (chunk.column_index_offset(), chunk.column_index_length())
        else {
            return Ok(None);
        };
        let (Ok(offset), Ok(len)) = (u64::try_from(offset), u64::try_from(len)) else {
            return Ok(None);
        };
        match offset.checked_add(len) {
            Some(end) if end <= self.store.len() => self.store.read(offset..end).map(Some),
            _ => Ok(None),
        }
    }

    /// Where the pages of one column chunk lie in the file.
    ///
    /// # Errors
    /// [`Kind::Internal`] when there is no such chunk.
    pub(crate) fn chunk_range(&self, row_group: usize, leaf: usize) -> Result<Range<u64>> {
        chunk_range(self.chunk(row_group, leaf)?)
    }
}

/// Bytes as digits, two a byte.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A row group of a source.
#[derive(Clone, Copy)]
pub(crate) struct RowGroupOf<'a> {
    pub source: &'a Arc<Source>,
    pub index: usize,
}

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

/// Decodes the footer, without statistics when they are what cannot be decoded. A schema that is
/// known is not decoded again.
fn decode(footer: &[u8], schema: Option<&SchemaDescPtr>) -> Result<ParquetMetaData> {
    let mut usual = ParquetMetaDataOptions::new();
    if let Some(schema) = schema {
        usual.set_schema(Arc::clone(schema));
    }
    let skip = || ParquetStatisticsPolicy::SkipAll;
    let bare = usual
        .clone()
        .with_size_stats_policy(skip())
        .with_encoding_stats_policy(skip())
        .with_column_stats_policy(skip());
    let decode = |options: &ParquetMetaDataOptions| {
        guard(|| ParquetMetaDataReader::decode_metadata_with_options(footer, Some(options)))
            .and_then(|decoded| decoded.map_err(unwrap_error))
    };
    decode(&usual).or_else(|e| decode(&bare).map_err(|_| e))
}

/// Reads the footer; gives its bytes and its offset.
fn read_footer(store: &dyn RangeReader) -> Result<(bytes::Bytes, u64)> {
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
fn check_footer(footer: &[u8]) -> Result<FooterParts> {
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
fn check_meta(meta: &ParquetMetaData, footer_start: u64) -> Result<Vec<u64>> {
    let corrupt = |what: &str| Error::new(Kind::CorruptSource, what);
    let file = meta.file_metadata();
    let leaves = file.schema_descr().num_columns();
    let mut row_starts = vec![0_u64];
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
    Ok(row_starts)
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
    use parquet::file::metadata::ColumnChunkMetaDataBuilder;
    use parquet::file::statistics::Statistics;

    use super::*;
    use crate::page::testing::{Memory, file, testing_files, with_chunks};

    fn open(bytes: Vec<u8>) -> Result<Source> {
        Source::open(SourceId(0), Memory::new("m.parquet", bytes))
    }

    #[test]
    fn rows_are_found_in_their_row_groups() {
        let bytes = file("message m { required int64 a; }", &[40, 0, 30], |p| p);
        let source = open(bytes).unwrap();
        assert_eq!((source.rows(), source.num_row_groups(), source.num_leaves()), (70, 3, 1));
        assert_eq!(source.row_group_of(0), (0, 0));
        assert_eq!(source.row_group_of(39), (0, 39));
        assert_eq!(source.row_group_of(40), (2, 0));
        assert_eq!(source.row_group_of(70), (3, 0));
        let rows: Vec<_> = (0..4).map(|g| source.row_group_rows(g)).collect();
        assert_eq!(rows, [40, 0, 30, 0]);
        assert_eq!(source.row_group_start(2), 40);
        assert_eq!(source.chunk(3, 0).unwrap_err().kind(), Kind::Internal);
    }

    #[test]
    fn the_footer_hash_names_the_footer() {
        let bytes = file("message m { required int64 a; }", &[4], |p| p);
        let footer_len = u32::from_le_bytes(*bytes[..bytes.len() - 4].last_chunk().unwrap());
        let footer = &bytes[bytes.len() - 8 - footer_len as usize..bytes.len() - 8];
        let want: [u8; 32] = Sha256::digest(footer).into();
        assert_eq!(open(bytes.clone()).unwrap().footer_hash, want);
    }

    #[test]
    fn footers_longer_than_the_first_read_are_read_whole() {
        let columns: String = (0..900).map(|i| format!("required int64 column_{i};")).collect();
        let bytes = file(&format!("message m {{ {columns} }}"), &[3], |p| p);
        let source = open(bytes.clone()).unwrap();
        let footer_len = u32::from_le_bytes(*bytes[..bytes.len() - 4].last_chunk().unwrap());
        assert!(u64::from(footer_len) > TAIL_BYTES);
        assert_eq!((source.rows(), source.num_leaves()), (3, 900));
    }

    #[test]
    fn files_that_are_not_parquet_say_so() {
        for bytes in [&b""[..], b"PAR1", b"hello, this is a text", b"PAR1\xff\xff\xff\x7fPAR1"] {
            let e = open(bytes.to_vec()).err().unwrap();
            assert_eq!((e.kind(), e.path()), (Kind::CorruptSource, Some("m.parquet")), "{e}");
        }
        let e = open(b"PAR1....\x04\0\0\0PARE".to_vec()).err().unwrap();
        assert_eq!(e.kind(), Kind::EncryptedSource);
    }

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

    #[test]
    fn every_cut_and_every_flipped_bit_of_a_footer_is_an_error_or_a_source() {
        let bytes = file(
            "message m { optional group l (LIST) { repeated group list { required binary element (UTF8); } } required int64 a; }",
            &[4],
            |p| p,
        );
        let footer_len = u32::from_le_bytes(*bytes[..bytes.len() - 4].last_chunk().unwrap());
        for at in bytes.len() - 8 - footer_len as usize..bytes.len() {
            for bit in 0..8 {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1 << bit;
                if let Err(e) = open(bytes) {
                    assert_ne!(e.kind(), Kind::Internal, "{e}");
                }
            }
            assert!(open(bytes[..at].to_vec()).is_err());
        }
    }

    #[test]
    fn chunks_that_the_file_cannot_hold_are_refused() {
        let bytes = file("message m { required int64 a; }", &[4], |p| p);
        let kind = |change: fn(ColumnChunkMetaDataBuilder) -> ColumnChunkMetaDataBuilder| {
            let e = open(with_chunks(&bytes, |_, chunk| change(chunk))).err().unwrap();
            assert_eq!((e.path(), e.column()), (Some("m.parquet"), Some("a")));
            e.kind()
        };
        assert_eq!(kind(|c| c.set_total_compressed_size(-1)), Kind::CorruptSource);
        assert_eq!(kind(|c| c.set_total_compressed_size(i64::MAX)), Kind::CorruptSource);
        assert_eq!(kind(|c| c.set_data_page_offset(-4)), Kind::CorruptSource);
        assert_eq!(kind(|c| c.set_num_values(-1)), Kind::CorruptSource);
        assert_eq!(kind(|c| c.set_file_path("b.parquet".into())), Kind::Unsupported);
    }

    #[test]
    fn statistics_that_cannot_be_decoded_are_left_out() {
        let bytes = file("message m { required int64 a; }", &[4], |p| p);
        let too_short = || Statistics::int32(Some(1), Some(2), None, Some(0), false);
        let bytes = with_chunks(&bytes, |_, chunk| chunk.set_statistics(too_short()));
        let source = open(bytes).unwrap();
        assert_eq!((source.rows(), source.chunk(0, 0).unwrap().statistics()), (4, None));
    }

    #[test]
    fn files_of_other_writers_open() {
        for (name, bytes) in testing_files("data") {
            let source = open(bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
            let rows: u64 = (0..source.num_row_groups()).map(|g| source.row_group_rows(g)).sum();
            assert_eq!(rows, source.rows(), "{name}");
        }
        for (name, bytes) in testing_files("bad_data") {
            if let Err(e) = open(bytes) {
                assert!(matches!(e.kind(), Kind::CorruptSource | Kind::Unsupported), "{name}: {e}");
            }
        }
    }
}
