//! The pages of one column chunk, from the page that holds a row to the end.
//!
//! ```text
//! locations   D │ 0 │ 1 │ 2 │ 3 │ 4 …           open(row in 2)
//! reads       [D]     [2   3   4]  …            one ranged read for as many as read-ahead allows
//! yields       D   ▶   2   3   4  …             checked and unpacked, one at a time
//! ```
//!
//! # Invariants
//! The dictionary leaves first. No page leaves unless its lengths, its checksum and its rows agree
//! with its header and its location. Every buffer is charged to the context for as long as anyone
//! holds a slice of it.
//!
//! # Cost
//! One read-ahead window, the page in flight, and one ahead of it where threads are idle. Skipped
//! pages are never read or unpacked, unless they were ahead.
//!
//! # Not here
//! Finding the pages (`locate`); decoding them (parquet's `ColumnReader`).

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::ParquetError;
use plait_core::{Error, Kind, Result};

use super::codec;
use super::header::{PageHeader, PageKind, Parsed};
use super::locate::{Locations, PageLoc, count_rows};
pub(crate) use super::stored::{Held, Stored};
use super::stored::{check_count, check_flat, into_page};
use super::unpack::{Unpacker, check_fits};
use super::unpacking::Unpacking;
use super::{SMALL_CHUNK_BYTES, guard, wrap_error};
use crate::runtime::Context;
use crate::source::Source;
use crate::store::RangeReader;

/// How much of a local file is read ahead: the system reads ahead itself.
const LOCAL_READ_BYTES: usize = 128 << 10;

/// Reads the pages of one column chunk.
pub(crate) struct Pages {
    store: Arc<dyn RangeReader>,
    context: Context,
    locations: Arc<Locations>,
    column: String,
    unpacker: Unpacker,
    level_max: i16,
    row_aligned: bool,
    dictionary: DictionaryPage,
    was_given_back: bool,
    next: usize,
    window: ReadAhead,
    /// The page of that number, if it was taken before it is asked for.
    ahead: Option<(usize, Result<Stored>)>,
}

/// What became of the dictionary page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DictionaryPage {
    /// It leaves next.
    Ahead,
    /// It was skipped and can be asked for.
    Skipped,
    /// It left, or there is none.
    Gone,
}

/// How much of a page is read when its header will do.
const HEADER_READ_BYTES: u32 = 256;

/// Bytes read ahead.
#[derive(Default)]
struct ReadAhead {
    start: u64,
    bytes: Bytes,
}

impl ReadAhead {
    /// Where in the window the bytes `offset..offset + len` of the file are, if all are here.
    fn holds(&self, offset: u64, len: usize) -> Option<(usize, usize)> {
        let start = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        let end = start.checked_add(len).filter(|&end| end <= self.bytes.len())?;
        Some((start, end))
    }
}

impl Pages {
    /// Opens a column chunk at the page that holds `row`, counted in the row group. Also gives the
    /// number of rows to skip in the pages that follow before `row` comes.
    ///
    /// # Errors
    /// [`Kind::Internal`] when there is no such chunk.
    pub(crate) fn open(
        source: &Source,
        row_group: usize,
        leaf: usize,
        row: u64,
        context: &Context,
        locations: Arc<Locations>,
    ) -> Result<(Self, u64)> {
        let chunk = source.chunk(row_group, leaf)?;
        let range = source.chunk_range(row_group, leaf)?;
        if range.end - range.start <= SMALL_CHUNK_BYTES {
            source.store.will_read(range.clone(), range.end);
        }
        let (next, rows_to_skip) = locations.page_of(row);
        let has_dictionary = locations.dictionary.is_some() && next < locations.pages.len();
        let pages = Self {
            store: Arc::clone(&source.store),
            context: context.clone(),
            column: chunk.column_path().string(),
            unpacker: Unpacker::new(&chunk, context),
            level_max: chunk.column_descr().max_rep_level(),
            row_aligned: locations.are_row_aligned(),
            dictionary: if has_dictionary { DictionaryPage::Ahead } else { DictionaryPage::Gone },
            was_given_back: false,
            next,
            window: ReadAhead::default(),
            ahead: None,
            locations,
        };
        Ok((pages, rows_to_skip))
    }

    /// Where all pages of the chunk lie.
    #[must_use]
    pub(crate) fn locations(&self) -> &Arc<Locations> {
        &self.locations
    }

    /// Bytes of a chunk of `source` that are read ahead.
    #[must_use]
    pub(crate) fn ahead_bytes(source: &Source, context: &Context) -> u64 {
        ahead_bytes(&*source.store, context)
    }

    /// Whether they lie in a local file, where reading twice costs little.
    #[must_use]
    pub(crate) fn are_local(&self) -> bool {
        self.store.is_local()
    }

    /// The page that comes next.
    #[must_use]
    pub(crate) fn peek(&self) -> Option<PageLoc> {
        self.locations.pages.get(self.next).copied()
    }

    /// Passes over the pages that have none but the next `rows` rows, without reading them; how many
    /// of these rows lie in the page that comes next.
    pub(crate) fn pass(&mut self, rows: usize) -> usize {
        let mut left = rows;
        while let Some(rest) = self
            .peek()
            .and_then(|page| usize::try_from(page.rows).ok())
            .and_then(|rows| left.checked_sub(rows))
        {
            left = rest;
            self.next += 1;
        }
        left
    }

    /// Takes the next data page as it is stored; its header and checksum are checked, what it holds
    /// is not.
    ///
    /// # Errors
    /// [`Kind::CorruptSource`] for a header that contradicts the page's place.
    pub(crate) fn next_stored(&mut self) -> Result<Option<Stored>> {
        let Some(page) = self.peek() else { return Ok(None) };
        self.context.check_cancelled()?;
        let stored = match self.ahead.take() {
            Some((number, stored)) if number == self.next => stored?,
            _ => self.stored_at(page)?,
        };
        self.next += 1;
        Ok(Some(stored))
    }

    fn stored_at(&mut self, page: PageLoc) -> Result<Stored> {
        self.take(page.offset, page.len, self.next)
            .and_then(|bytes| self.parse(bytes, Some(page)))
            .map_err(|e| self.place(e, page.offset))
    }

    /// Takes the next data page before it is asked for, if there `is_room` for its bytes: an idle
    /// thread may unpack it. What is wrong with it is an error when it is asked for.
    pub(crate) fn unpack_ahead(
        &mut self,
        is_room: impl Fn(usize) -> bool,
    ) -> Option<Arc<Unpacking>> {
        let page = self.peek()?;
        let is_ahead = self.ahead.as_ref().is_some_and(|(number, _)| *number == self.next);
        let is_packed = self.unpacker.codec() != Compression::UNCOMPRESSED;
        if is_ahead || !is_packed || !is_room(page.len as usize) {
            return None;
        }
        let mut stored = self.stored_at(page);
        let unpacking = stored.as_mut().ok().and_then(|stored| {
            let Held::Here(bytes) = &stored.held else { return None };
            is_room(stored.header.uncompressed_len as usize).then(|| {
                let (header, body) = (stored.header.clone(), bytes.slice(stored.header_len..));
                let unpacking = Arc::new(Unpacking::new(header, body, self.unpacker.clone()));
                Arc::clone(stored.unpacking.insert(unpacking))
            })
        });
        self.ahead = Some((self.next, stored));
        unpacking
    }

    /// Takes the next data page as [`next_stored`](Self::next_stored) does, but leaves its body in
    /// the source if the header is all that has to be looked at: the page is in a local file, has
    /// no checksum, and is of a leaf that does not repeat.
    ///
    /// # Errors
    /// As [`next_stored`](Self::next_stored).
    pub(crate) fn next_in_place(&mut self) -> Result<Option<Stored>> {
        let Some(page) = self.peek() else { return Ok(None) };
        let is_here = self.window.holds(page.offset, page.len as usize).is_some();
        let is_here = is_here || self.ahead.is_some();
        if self.level_max > 0 || page.len <= HEADER_READ_BYTES || is_here || !self.store.is_local()
        {
            return self.next_stored();
        }
        self.context.check_cancelled()?;
        let end = page.offset + u64::from(HEADER_READ_BYTES);
        let head = self.store.read(page.offset..end).map_err(|e| self.place(e, page.offset))?;
        let parsed = guard(|| PageHeader::parse(&head)).flatten();
        let Ok(Parsed::Header { header, len }) = parsed else { return self.next_stored() };
        if header.crc.is_some() {
            return self.next_stored();
        }
        let held = Held::InPlace(Arc::clone(&self.store));
        let stored = self
            .check(header, len, page.len as usize, held, Some(page))
            .map_err(|e| self.place(e, page.offset))?;
        self.context.counters().add_consumed(u64::from(page.len));
        self.next += 1;
        Ok(Some(stored))
    }

    /// Unpacks a page that was taken.
    ///
    /// # Errors
    /// [`Kind::CorruptSource`] when it cannot be unpacked to what its header says.
    pub(crate) fn unpack_stored(&self, stored: &Stored) -> Result<Page> {
        let page = stored.is_data.then_some(&stored.place);
        let body = self.body(stored).map_err(|e| self.place(e, stored.place.offset))?;
        guard(|| {
            let buf = match &stored.unpacking {
                Some(unpacking) => unpacking.take()?,
                None => self.unpacker.unpack(&stored.header, &body)?,
            };
            if let Some(page) = page.filter(|_| self.level_max > 0) {
                self.check_repeated(&stored.header, page, &buf)?;
            }
            into_page(stored.header.clone(), buf, page)
        })
        .flatten()
        .map_err(|e| self.place(e, stored.place.offset))
    }

    /// The stored body of a page.
    fn body(&self, stored: &Stored) -> Result<Bytes> {
        match &stored.held {
            Held::Here(bytes) => Ok(bytes.slice(stored.header_len..)),
            Held::InPlace(store) => {
                let start = stored.place.offset + stored.header_len as u64;
                let len = u64::from(stored.header.compressed_len);
                read_charged(&**store, start..start + len, false, &self.context)
            }
        }
    }

    /// Takes the dictionary, if there is one and it was not taken or left.
    ///
    /// # Errors
    /// As [`unpack_stored`](Self::unpack_stored).
    pub(crate) fn take_dictionary(&mut self) -> Result<Option<Page>> {
        match self.dictionary {
            DictionaryPage::Gone => Ok(None),
            DictionaryPage::Ahead => self.dictionary_page(self.next),
            DictionaryPage::Skipped => {
                // A window of its own: the other one lies behind, at the page that asks.
                let window = std::mem::take(&mut self.window);
                let page = self.dictionary_page(usize::MAX);
                self.window = window;
                page
            }
        }
    }

    /// Leaves the dictionary where it is until it is taken.
    pub(crate) fn leave_dictionary(&mut self) {
        if self.dictionary == DictionaryPage::Ahead {
            self.dictionary = DictionaryPage::Skipped;
        }
    }

    /// Lets the dictionary be taken once more, if reading is cheap; whether it may.
    pub(crate) fn give_back_dictionary(&mut self) -> bool {
        let may = self.dictionary == DictionaryPage::Gone && self.store.is_local();
        if may && !self.was_given_back {
            (self.dictionary, self.was_given_back) = (DictionaryPage::Skipped, true);
            return true;
        }
        false
    }

    /// Says where an error in the dictionary is.
    #[must_use]
    pub(crate) fn place_dictionary(&self, e: Error) -> Error {
        let offset = self.locations.dictionary.map_or(0, |(offset, _)| offset);
        self.place(e, offset)
    }

    fn place(&self, e: Error, offset: u64) -> Error {
        e.with_path(self.store.path()).with_column(self.column.as_str()).with_offset(offset)
    }

    fn next_page(&mut self) -> Result<Option<Page>> {
        if self.dictionary == DictionaryPage::Ahead {
            return self.take_dictionary();
        }
        match self.next_stored()? {
            Some(stored) => self.unpack_stored(&stored).map(Some),
            None => Ok(None),
        }
    }

    /// Takes the dictionary as it is stored, and reads nothing ahead.
    ///
    /// # Errors
    /// As [`next_stored`](Self::next_stored).
    pub(crate) fn stored_dictionary(&mut self) -> Result<Option<Stored>> {
        self.stored_dictionary_and(usize::MAX)
    }

    /// Reads the dictionary, and ahead from the page `ahead` on.
    fn dictionary_page(&mut self, ahead: usize) -> Result<Option<Page>> {
        match self.stored_dictionary_and(ahead)? {
            Some(stored) => self.unpack_stored(&stored).map(Some),
            None => Ok(None),
        }
    }

    fn stored_dictionary_and(&mut self, ahead: usize) -> Result<Option<Stored>> {
        self.dictionary = DictionaryPage::Gone;
        let Some((offset, len)) = self.locations.dictionary else { return Ok(None) };
        self.context.check_cancelled()?;
        let stored = self
            .take(offset, len, ahead)
            .and_then(|bytes| self.parse(bytes, None))
            .map_err(|e| self.place(e, offset))?;
        Ok(Some(stored))
    }

    /// The stored `len` bytes of the page at `offset`, from the window or from one read that also
    /// fetches the pages from `next` on as far as the read-ahead goes.
    fn take(&mut self, offset: u64, len: u32, next: usize) -> Result<Bytes> {
        let (window, len) = (&mut self.window, len as usize);
        if window.holds(offset, len).is_none() {
            *window = ReadAhead::default(); // free before the next is read
            let mut end = offset + len as u64;
            let ahead = ahead_bytes(&*self.store, &self.context);
            let reach = offset.saturating_add(ahead);
            for page in self.locations.pages.get(next..).unwrap_or_default() {
                let page_end = page.offset + u64::from(page.len);
                if page.offset < offset || page_end > reach {
                    break;
                }
                end = end.max(page_end);
            }
            // A dictionary is read once to decide what becomes of it, and once for its values.
            let is_again = self.locations.dictionary.is_some_and(|(at, _)| at == offset);
            let bytes = read_charged(&*self.store, offset..end, is_again, &self.context)?;
            self.context.counters().add_consumed(end - offset);
            *window = ReadAhead { start: offset, bytes };
        }
        let (start, end) = window.holds(offset, len).unwrap_or_default();
        let page = window.bytes.slice(start..end);
        if end == window.bytes.len() {
            *window = ReadAhead::default();
        }
        Ok(page)
    }

    /// Reads and checks the header of the data page at `page`, or of the dictionary.
    fn parse(&self, bytes: Bytes, page: Option<PageLoc>) -> Result<Stored> {
        let corrupt = |what: &str| Error::new(Kind::CorruptSource, what);
        let Parsed::Header { header, len } = PageHeader::parse(&bytes)? else {
            return Err(corrupt("page header does not end"));
        };
        if let Some(want) = header.crc
            && let Some(body) =
                bytes.get(len..).and_then(|b| b.get(..header.compressed_len as usize))
        {
            let got = crc32fast::hash(body);
            if got != want {
                return Err(corrupt("page does not match its checksum")
                    .with_got(format!("{got:08x} instead of {want:08x}"))
                    .with_hint("the file was damaged; fetch it again"));
            }
        }
        let place_len = bytes.len();
        let end = len.saturating_add(header.compressed_len as usize).min(place_len);
        self.check(header, len, place_len, Held::Here(bytes.slice(..end)), page)
    }

    /// Checks a header of `header_len` bytes of the page that has `place_len` bytes.
    fn check(
        &self,
        header: PageHeader,
        header_len: usize,
        place_len: usize,
        held: Held,
        page: Option<PageLoc>,
    ) -> Result<Stored> {
        let corrupt = |what: &str| Error::new(Kind::CorruptSource, what);
        let end = header_len.checked_add(header.compressed_len as usize);
        if end.is_none_or(|end| end > place_len) {
            return Err(corrupt("page is longer than its place")
                .with_got(format!("{} bytes", header.compressed_len)));
        }
        self.unpacker.check_size(&header)?;
        let is_data = page.is_some();
        match (&page, &header.kind) {
            (None, PageKind::Dictionary { .. }) => {}
            (Some(page), PageKind::Data { .. } | PageKind::DataV2 { .. }) => {
                if self.level_max == 0 {
                    check_flat(&header, page)?;
                }
            }
            _ => return Err(corrupt("page is of another type than its place says")),
        }
        let place = page.unwrap_or(PageLoc {
            offset: self.locations.dictionary.map_or(0, |(offset, _)| offset),
            len: u32::try_from(place_len).unwrap_or(u32::MAX),
            first_row: 0,
            rows: 0,
            row_aligned: true,
        });
        let (number, unpacking) = (self.next, None);
        Ok(Stored { place, number, header, header_len, held, is_data, unpacking })
    }

    /// Checks that a data page of a leaf that repeats has as many rows as its place says, and
    /// unpacks no more of it than that takes.
    ///
    /// # Errors
    /// [`Kind::CorruptSource`].
    pub(crate) fn check_rows(&self, stored: &Stored) -> Result<()> {
        let has_section = matches!(
            stored.header.kind,
            PageKind::Data { rep_level_encoding: Encoding::RLE, .. } | PageKind::DataV2 { .. }
        );
        if self.level_max == 0 {
            return Ok(());
        }
        if !has_section {
            return self.unpack_stored(stored).map(drop);
        }
        let body = self.body(stored).map_err(|e| self.place(e, stored.place.offset))?;
        let count = guard(|| {
            count_rows(&stored.header, &body, self.level_max, |len| {
                codec::decompress_section(self.unpacker.codec(), &body, len)
            })
        });
        count
            .flatten()
            .and_then(|count| check_count(count, &stored.place))
            .map_err(|e| self.place(e, stored.place.offset))
    }

    fn check_repeated(&self, header: &PageHeader, page: &PageLoc, buf: &Bytes) -> Result<()> {
        check_count(count_rows(header, buf, self.level_max, |_| Ok(buf.clone()))?, page)
    }
}

/// Bytes that are read ahead of one chunk.
fn ahead_bytes(store: &dyn RangeReader, context: &Context) -> u64 {
    let bytes = context.read_ahead_bytes();
    (if store.is_local() { bytes.min(LOCAL_READ_BYTES) } else { bytes }) as u64
}

/// Reads `range` into a buffer that is accounted for until its last slice is dropped. Local files
/// are read into buffers that are used again: taking new ones from the system costs as much as
/// reading. Of objects, what is read again is kept.
fn read_charged(
    store: &dyn RangeReader,
    range: Range<u64>,
    is_again: bool,
    context: &Context,
) -> Result<Bytes> {
    let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    check_fits(len, context)?;
    // The store says what is wrong with a range that ends behind the file.
    if store.is_local() && range.end <= store.len() {
        let Some(mut buffer) = context.buffers().take_filled(len) else {
            return Err(Error::new(Kind::MemoryLimit, "not enough memory for one read")
                .with_path(store.path())
                .with_got(format!("{len} bytes")));
        };
        store.read_into(range.start, buffer.bytes_mut())?;
        return Ok(Bytes::from_owner(buffer));
    }
    // Accounted for before it is there.
    let charge = context.charge(len);
    let bytes = if is_again { store.read_and_keep(range) } else { store.read(range) }?;
    drop(charge);
    Ok(context.account().hold(bytes))
}

impl Iterator for Pages {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        self.next_page().map_err(wrap_error)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        if self.dictionary == DictionaryPage::Ahead {
            return Ok(Some(PageMetadata { num_rows: None, num_levels: None, is_dict: true }));
        }
        Ok(self.locations.pages.get(self.next).map(|page| {
            let rows = usize::try_from(page.rows).ok();
            PageMetadata {
                // A row that ends in a page after the next cannot be skipped by whole pages.
                num_rows: rows.filter(|_| self.row_aligned),
                num_levels: rows.filter(|_| self.level_max == 0),
                is_dict: false,
            }
        }))
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        if self.dictionary == DictionaryPage::Ahead {
            self.dictionary = DictionaryPage::Skipped;
        } else if self.next < self.locations.pages.len() {
            self.next += 1;
        }
        Ok(())
    }

    fn supports_deferred_dictionary(&self) -> bool {
        true
    }

    fn take_deferred_dictionary(&mut self) -> Result<Option<Page>, ParquetError> {
        if self.dictionary != DictionaryPage::Skipped {
            return Ok(None);
        }
        self.take_dictionary().map_err(wrap_error)
    }

    fn at_record_boundary(&mut self) -> Result<bool, ParquetError> {
        Ok(self.locations.pages.get(self.next).is_none_or(|page| page.row_aligned))
    }
}

#[cfg(test)]
#[path = "tests/pages.rs"]
mod tests;
