//! The pages of column chunks, one after the other, as the parquet crate's Arrow reader takes them.
//!
//! ```text
//! windows ─ header ─ length ─ checksum ─ codec ─ load ─▶ page
//! ```
//!
//! # Invariants
//! Every length in a header is checked against the chunk, [`PAGE_BYTES_MAX`] and the memory limit
//! before memory is taken for it. What is wrong names column and offset.
//!
//! # Cost
//! One page of each leaf. Pages that are skipped are not unpacked.
//!
//! # Not here
//! Pages that are found by an index (`page::pages`).

use std::sync::Arc;

use arrow_schema::TimeUnit;
use bytes::Bytes;
use parquet::arrow::arrow_reader::RowGroups;
use parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use plait_core::{Error, Kind, Result};

use super::bytes::Windows;
use super::int96;
use super::load::{Load, Scale};
use crate::block::Values;
use crate::footer::chunk_range;
#[cfg(doc)]
use crate::page::PAGE_BYTES_MAX;
use crate::page::header::{HEADER_BYTES_MAX, PageHeader, PageKind, Parsed};
use crate::page::locate::splits_rows;
use crate::page::unpack::Unpacker;
use crate::page::{Kept, guard, stored_into_page};
use crate::runtime::Context;

/// What is read where a page header begins.
const HEADER_BYTES: u64 = 4 << 10;

/// What the pages of all leaves of one reader share.
pub(super) struct Shared {
    pub(super) footer: Arc<ParquetMetaData>,
    pub(super) windows: Arc<Windows>,
    /// The leaves that are read.
    pub(super) leaves: Vec<usize>,
    /// The unit of each leaf of the file that is INT96.
    pub(super) units: Vec<Option<TimeUnit>>,
    pub(super) load: Load,
    pub(super) kept: Kept,
    pub(super) context: Context,
}

/// Some row groups of a file.
pub(super) struct Groups {
    pub(super) shared: Arc<Shared>,
    pub(super) groups: Vec<usize>,
}

impl RowGroups for Groups {
    fn num_rows(&self) -> usize {
        let rows = self.row_groups().map(|group| usize::try_from(group.num_rows()).unwrap_or(0));
        rows.sum()
    }

    fn column_chunks(&self, leaf: usize) -> Result<Box<dyn PageIterator>, ParquetError> {
        let groups = self.groups.clone().into_iter();
        Ok(Box::new(Chunks { shared: Arc::clone(&self.shared), groups, leaf }))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        let all = self.shared.footer.row_groups();
        Box::new(self.groups.iter().filter_map(move |group| all.get(*group)))
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.shared.footer
    }
}

/// The chunks of one leaf.
struct Chunks {
    shared: Arc<Shared>,
    groups: std::vec::IntoIter<usize>,
    leaf: usize,
}

impl Iterator for Chunks {
    type Item = Result<Box<dyn PageReader>, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let group = self.groups.next()?;
        let pages = ChunkPages::open(&self.shared, group, self.leaf);
        let pages = pages.map(|pages| Box::new(pages) as Box<dyn PageReader>);
        Some(pages.map_err(|e| self.shared.kept.keep(e)))
    }
}

impl PageIterator for Chunks {}

/// The pages of one chunk.
struct ChunkPages {
    shared: Arc<Shared>,
    column: String,
    at: u64,
    end: u64,
    /// The header of the page at `at`, and its length.
    header: Option<(PageHeader, u64)>,
    /// Where the dictionary is that was skipped.
    skipped: Option<u64>,
    unpacker: Unpacker,
    /// Whether a page may begin inside a row, whatever its header says.
    splits_rows: bool,
    scale: Scale,
    unit: Option<TimeUnit>,
    /// Whether values of the dictionary do not fit the unit.
    misfits: bool,
    /// The first row of the next page, counted in the file; unknown in old files of lists.
    row: Option<u64>,
}

impl ChunkPages {
    fn open(shared: &Arc<Shared>, group: usize, leaf: usize) -> Result<Self> {
        let gone = || Error::new(Kind::Internal, "a chunk is not there");
        let groups = shared.footer.row_groups();
        let chunk = groups.get(group).and_then(|group| group.columns().get(leaf));
        let chunk = chunk.ok_or_else(gone)?;
        let range = chunk_range(chunk)?;
        let place = shared.leaves.iter().position(|own| *own == leaf).ok_or_else(gone)?;
        let before = groups.iter().take(group);
        Ok(Self {
            column: chunk.column_path().string(),
            at: range.start,
            end: range.end,
            header: None,
            skipped: None,
            unpacker: Unpacker::new(chunk, &shared.context),
            splits_rows: chunk.column_descr().max_rep_level() > 0
                && shared.footer.file_metadata().created_by().is_some_and(splits_rows),
            scale: Scale::new(&chunk.column_descr_ptr(), place, shared.leaves.len()),
            unit: shared.units.get(leaf).copied().flatten(),
            misfits: false,
            row: Some(before.map(|group| group.num_rows().max(0).unsigned_abs()).sum()),
            shared: Arc::clone(shared),
        })
    }

    fn place(&self, e: Error) -> Error {
        e.with_column(self.column.as_str()).with_offset(self.at)
    }

    /// The header of the next page, checked; `None` at the end of the chunk.
    fn peek(&mut self) -> Result<Option<PageHeader>> {
        while self.at < self.end {
            let (header, len) = match self.header.take() {
                Some(known) => known,
                None => self.parse()?,
            };
            let next = self.at.saturating_add(len + u64::from(header.compressed_len));
            if next > self.end {
                return Err(Error::new(Kind::CorruptSource, "page reaches out of its chunk")
                    .with_got(format!("{next}, chunk ends at {}", self.end)));
            }
            if matches!(header.kind, PageKind::Index) {
                self.at = next;
                continue;
            }
            self.unpacker.check_size(&header)?;
            self.header = Some((header.clone(), len));
            return Ok(Some(header));
        }
        Ok(None)
    }

    fn parse(&self) -> Result<(PageHeader, u64)> {
        let mut want = HEADER_BYTES;
        loop {
            let bytes = self.shared.windows.ahead(self.at, want, self.end)?;
            let most = bytes.len().min(HEADER_BYTES_MAX);
            if let Parsed::Header { header, len } =
                guard(|| PageHeader::parse(bytes.get(..most).unwrap_or_default())).flatten()?
            {
                return Ok((header, len as u64));
            }
            let is_all = self.at + bytes.len() as u64 >= self.end;
            if is_all || bytes.len() >= HEADER_BYTES_MAX {
                return Err(Error::new(Kind::CorruptSource, "page header does not end"));
            }
            want = 4 * bytes.len() as u64;
        }
    }

    /// Goes on behind the page whose header is known.
    fn pass(&mut self) -> Option<(PageHeader, u64)> {
        let (header, len) = self.header.take()?;
        let body = self.at + len;
        self.at = body + u64::from(header.compressed_len);
        Some((header, body))
    }

    fn next_page(&mut self) -> Result<Option<Page>> {
        self.shared.context.check_cancelled()?;
        let Some(header) = self.peek()? else { return Ok(None) };
        let page = self.unpack(&header)?;
        match &page {
            Page::DictionaryPage { .. } => self.note_dictionary(&page)?,
            page => {
                self.shared.context.counters().add_page();
                if let Some(unit) = self.unit {
                    self.check_times(&header, page, unit)?;
                }
                self.scale.weigh(&self.shared.load, &header, page)?;
            }
        }
        self.skip_rows(&header, Some(&page));
        self.pass();
        Ok(Some(page))
    }

    fn note_dictionary(&mut self, page: &Page) -> Result<()> {
        self.scale.dictionary(page)?;
        if let Some(unit) = self.unit {
            self.misfits = int96::first_misfit(page.buffer(), unit).is_some();
        }
        Ok(())
    }

    /// The page whose header was peeked at.
    fn unpack(&self, header: &PageHeader) -> Result<Page> {
        let len = self.header.as_ref().map_or(0, |(_, len)| *len);
        let body = self.shared.windows.read(self.at + len, u64::from(header.compressed_len))?;
        check_sum(header, &body)?;
        let buf = guard(|| self.unpacker.unpack(header, &body)).flatten()?;
        stored_into_page(header.clone(), buf)
    }

    /// Refuses timestamps that the unit of the leaf cannot hold.
    fn check_times(&self, header: &PageHeader, page: &Page, unit: TimeUnit) -> Result<()> {
        let is_ids = header.data_encoding().is_some_and(crate::block::decode::is_ids);
        if is_ids && !self.misfits {
            return Ok(());
        }
        let rows = self.scale.rows_of(page);
        let Some(block) = self.scale.block(page, rows)? else { return Ok(()) };
        let plain = match &block.values {
            Values::Plain(plain) => plain.clone(),
            Values::Ids(ids, dictionary) => Bytes::from(dictionary.look_up(ids)),
        };
        let Some(at) = int96::first_misfit(&plain, unit) else { return Ok(()) };
        let value = plain.get(at * int96::WIDTH..).unwrap_or_default();
        let row = (0..block.rows).find(|row| block.values_before(row + 1) > at).unwrap_or(0);
        let e = int96::refuse(value, unit);
        Err(match self.row {
            Some(first) => e.with_row(first + row as u64),
            None => e,
        })
    }

    fn skip_rows(&mut self, header: &PageHeader, page: Option<&Page>) {
        let rows = match header.kind {
            PageKind::DataV2 { num_rows, .. } => Some(u64::from(num_rows)),
            PageKind::Data { num_values, .. } if self.scale.is_flat() => {
                Some(u64::from(num_values))
            }
            PageKind::Data { .. } if self.unit.is_some() => {
                page.and_then(|page| self.scale.rows_of(page)).map(|rows| rows as u64)
            }
            PageKind::Data { .. } => None,
            PageKind::Dictionary { .. } | PageKind::Index => Some(0),
        };
        self.row = self.row.zip(rows).map(|(row, rows)| row + rows);
    }

    fn keep(&self, e: Error) -> ParquetError {
        self.shared.kept.keep(self.place(e))
    }
}

fn check_sum(header: &PageHeader, body: &[u8]) -> Result<()> {
    let Some(want) = header.crc else { return Ok(()) };
    let got = crc32fast::hash(body);
    if got == want {
        return Ok(());
    }
    Err(Error::new(Kind::CorruptSource, "page does not match its checksum")
        .with_got(format!("{got:08x} instead of {want:08x}"))
        .with_hint("the file was damaged; fetch it again"))
}

impl Iterator for ChunkPages {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for ChunkPages {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        self.next_page().map_err(|e| self.keep(e))
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        let header = self.peek().map_err(|e| self.keep(e))?;
        Ok(header.map(|header| match header.kind {
            PageKind::DataV2 { num_rows, num_values, .. } => PageMetadata {
                num_rows: (!self.splits_rows).then_some(num_rows as usize),
                num_levels: Some(num_values as usize),
                is_dict: false,
            },
            PageKind::Data { num_values, .. } => PageMetadata {
                num_rows: None,
                num_levels: Some(num_values as usize),
                is_dict: false,
            },
            PageKind::Dictionary { .. } | PageKind::Index => {
                PageMetadata { num_rows: None, num_levels: None, is_dict: true }
            }
        }))
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        let Some(header) = self.peek().map_err(|e| self.keep(e))? else { return Ok(()) };
        if matches!(header.kind, PageKind::Dictionary { .. }) {
            self.skipped = Some(self.at);
        }
        self.skip_rows(&header, None);
        self.pass();
        Ok(())
    }

    fn supports_deferred_dictionary(&self) -> bool {
        true
    }

    fn take_deferred_dictionary(&mut self) -> Result<Option<Page>, ParquetError> {
        let Some(at) = self.skipped.take() else { return Ok(None) };
        // The page that refers to it was peeked at already.
        let ahead = (self.at, self.header.take());
        self.at = at;
        let page = self.peek().and_then(|header| {
            let page = header.map(|header| self.unpack(&header)).transpose()?;
            page.iter().try_for_each(|page| self.note_dictionary(page))?;
            Ok(page)
        });
        let page = page.map_err(|e| self.keep(e));
        (self.at, self.header) = ahead;
        page
    }
}
