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
//! That of reading the footer, and of holding it (`footer`).
//!
//! # Not here
//! The checks (`footer`); page indexes (`page::locate`); schemas (`plait_core::schema`).

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use parquet::file::metadata::{FileMetaData, PageEncodingStats, ParquetMetaData};
use parquet::schema::types::{ColumnDescPtr, SchemaDescriptor};
use plait_core::SourceId;
use plait_core::key::KeyShape;
use plait_core::{Error, Kind, Result};

pub(crate) use crate::footer::ChunkEntry;
use crate::footer::{FooterPool, OpenedFooter, RowStarts, SourceFooter, chunk_range};
use crate::output::TempFile;
use crate::selection::{Selection, intersection};
use crate::store::{RangeReader, open_local};

/// An opened Parquet file.
pub(crate) struct Source {
    /// Its index among the sources of the call.
    pub id: SourceId,
    /// Its bytes.
    pub store: Arc<dyn RangeReader>,
    footer: SourceFooter,
    /// SHA-256 of the footer's bytes: names this version of the file.
    pub footer_hash: [u8; 32],
    /// Bytes of the footer and of what follows it.
    pub footer_bytes: u64,
    /// Bytes of all its pages, before and after compression.
    pub encoded_bytes: u64,
    pub stored_bytes: u64,
    row_starts: RowStarts,
    /// Its rows, unless all rows of the file are.
    selection: Option<Arc<Selection>>,
    /// Whether the call made it, as a step on the way.
    is_scratch: bool,
    /// Its first and last key, until they are asked for.
    ends: Mutex<Option<Box<FileEnds>>>,
}

/// The first and the last key of a file, by its own schema.
pub(crate) struct FileEnds {
    pub(crate) layout: Arc<KeyLayout>,
    pub(crate) first: Vec<u8>,
    pub(crate) last: Vec<u8>,
}

/// What keys of a file are made of: the same columns give the same keys.
#[derive(PartialEq, Eq)]
pub(crate) struct KeyLayout {
    pub(crate) shape: KeyShape,
    /// Leaves of the file, whose values are taken as they are.
    pub(crate) leaves: Vec<usize>,
}

impl Source {
    /// Reads and checks the footer of the file in `store`.
    ///
    /// # Errors
    /// [`Kind::CorruptSource`] when the footer contradicts the format, the file or itself,
    /// [`Kind::EncryptedSource`], [`Kind::Unsupported`] when columns lie in other files.
    pub(crate) fn open(id: SourceId, store: Arc<dyn RangeReader>) -> Result<Self> {
        Self::read(id, store, None)
    }

    /// The same for one of many files, with a footer in `pool`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn open_in(
        pool: &Arc<FooterPool>,
        id: SourceId,
        store: Arc<dyn RangeReader>,
    ) -> Result<Self> {
        Self::read(id, store, Some(pool))
    }

    fn read(
        id: SourceId,
        store: Arc<dyn RangeReader>,
        pool: Option<&Arc<FooterPool>>,
    ) -> Result<Self> {
        let opened = SourceFooter::open(&*store, pool).map_err(|e| e.with_path(store.path()))?;
        let OpenedFooter { footer, hash, start, row_starts, encoded_bytes, stored_bytes } = opened;
        let footer_bytes = store.len() - start;
        Ok(Self {
            id,
            store,
            footer,
            footer_hash: hash,
            footer_bytes,
            encoded_bytes,
            stored_bytes,
            row_starts,
            selection: None,
            is_scratch: false,
            ends: Mutex::default(),
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
            footer: self.footer.clone(),
            footer_hash: self.footer_hash,
            footer_bytes: self.footer_bytes,
            encoded_bytes: self.encoded_bytes,
            stored_bytes: self.stored_bytes,
            row_starts: self.row_starts.clone(),
            selection: self.selection.clone(),
            is_scratch: self.is_scratch,
            ends: Mutex::default(),
        }
    }

    /// The source, with its first and last key.
    #[must_use]
    pub(crate) fn with_ends(self, ends: FileEnds) -> Self {
        Self { ends: Mutex::new(Some(Box::new(ends))), ..self }
    }

    /// The first and last key of the file, if they are known and were not taken.
    pub(crate) fn take_ends(&self) -> Option<FileEnds> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).take().map(|ends| *ends)
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
        self.row_starts.len().saturating_sub(1)
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

    /// Number of rows in each row group.
    pub(crate) fn rows_of_groups(&self) -> impl Iterator<Item = u64> + '_ {
        self.row_starts.windows(2).map(|rows| rows[1] - rows[0])
    }

    /// First row of a row group, the number of rows behind the last.
    #[must_use]
    pub(crate) fn row_group_start(&self, row_group: usize) -> u64 {
        self.row_starts.get(row_group).copied().unwrap_or_else(|| self.rows())
    }

    /// The first row group with rows.
    #[must_use]
    pub(crate) fn first_group_with_rows(&self) -> Option<usize> {
        (0..self.num_row_groups()).find(|group| self.row_group_rows(*group) > 0)
    }

    /// Number of leaf columns.
    #[must_use]
    pub(crate) fn num_leaves(&self) -> usize {
        self.schema().num_columns()
    }

    /// The leaf column `leaf`.
    ///
    /// # Panics
    /// When `leaf` is not less than [`num_leaves`](Self::num_leaves).
    #[must_use]
    pub(crate) fn leaf(&self, leaf: usize) -> ColumnDescPtr {
        self.schema().column(leaf)
    }

    /// What the footer says of the file, but for its row groups; its number of rows may be that of
    /// another file.
    #[must_use]
    pub(crate) fn file(&self) -> &FileMetaData {
        self.footer.file()
    }

    /// The schema, with its leaves.
    #[must_use]
    pub(crate) fn schema(&self) -> &SchemaDescriptor {
        self.file().schema_descr()
    }

    /// The footer with its row groups, decoded for as long as it is held.
    ///
    /// # Errors
    /// None that is known.
    pub(crate) fn footer(&self) -> Result<Arc<ParquetMetaData>> {
        self.footer.decoded().map_err(|e| e.with_path(self.path()))
    }

    /// The footer's entry for one column chunk.
    ///
    /// # Errors
    /// [`Kind::Internal`] when there is no such chunk.
    pub(crate) fn chunk(&self, row_group: usize, leaf: usize) -> Result<ChunkEntry> {
        let found = self.footer.chunk(row_group, leaf).map_err(|e| e.with_path(self.path()))?;
        found.ok_or_else(|| {
            Error::new(Kind::Internal, "no such column chunk")
                .with_path(self.path())
                .with_got(format!("row group {row_group}, leaf {leaf}"))
        })
    }

    /// How many pages of each encoding a chunk has, if its footer says so.
    pub(crate) fn encoding_stats(
        &self,
        row_group: usize,
        leaf: usize,
    ) -> Option<Vec<PageEncodingStats>> {
        self.footer.encoding_stats(row_group, leaf)
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
        chunk_range(&*self.chunk(row_group, leaf)?)
    }

    /// Where the chunks of a row group lie, if they lie in the order of leaves, as those of all known
    /// writers do.
    ///
    /// # Errors
    /// As [`chunk_range`](Self::chunk_range).
    pub(crate) fn row_group_range(&self, row_group: usize) -> Result<Range<u64>> {
        let last = self.num_leaves().saturating_sub(1);
        Ok(self.chunk_range(row_group, 0)?.start..self.chunk_range(row_group, last)?.end)
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

#[cfg(test)]
mod tests {
    use parquet::file::metadata::ColumnChunkMetaDataBuilder;
    use parquet::file::statistics::Statistics;

    use sha2::{Digest, Sha256};

    use super::*;
    use crate::footer::TAIL_BYTES;
    use crate::page::testing::{Memory, file, footer, testing_files, with_chunks};

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
        assert_eq!(source.chunk(3, 0).err().unwrap().kind(), Kind::Internal);
    }

    #[test]
    fn the_footer_hash_names_the_footer() {
        let bytes = file("message m { required int64 a; }", &[4], |p| p);
        let want: [u8; 32] = Sha256::digest(footer(&bytes)).into();
        assert_eq!(open(bytes.clone()).unwrap().footer_hash, want);
    }

    #[test]
    fn footers_longer_than_the_first_read_are_read_whole() {
        let columns: String = (0..900).map(|i| format!("required int64 column_{i};")).collect();
        let bytes = file(&format!("message m {{ {columns} }}"), &[3], |p| p);
        let source = open(bytes.clone()).unwrap();
        assert!(footer(&bytes).len() as u64 > TAIL_BYTES);
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
    fn every_cut_and_every_flipped_bit_of_a_footer_is_an_error_or_a_source() {
        let bytes = file(
            "message m { optional group l (LIST) { repeated group list { required binary element (UTF8); } } required int64 a; }",
            &[4],
            |p| p,
        );
        for at in bytes.len() - 8 - footer(&bytes).len()..bytes.len() {
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
