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
//! One read-ahead window and the page in flight. Skipped pages are never read or unpacked.
//!
//! # Not here
//! Finding the pages (`locate`); decoding them (parquet's `ColumnReader`).

use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::Compression;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::ParquetError;
use plait_core::{Error, Kind, Result};

use super::codec::{decompress_into, page_too_large};
use super::header::{PageHeader, PageKind, Parsed};
use super::locate::{Locations, PageLoc, count_rows};
use super::{PAGE_BYTES_MAX, guard, wrap_error};
use crate::context::{Charge, Context};
use crate::source::Source;
use crate::store::Store;

/// Reads the pages of one column chunk.
pub struct Pages {
    store: Arc<dyn Store>,
    context: Context,
    locations: Arc<Locations>,
    column: String,
    codec: Compression,
    level_max: i16,
    row_aligned: bool,
    dictionary: Dictionary,
    next: usize,
    window: Window,
}

/// What became of the dictionary page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dictionary {
    /// It leaves next.
    Ahead,
    /// It was skipped and can be asked for.
    Skipped,
    /// It left, or there is none.
    Gone,
}

/// Bytes read ahead.
#[derive(Default)]
struct Window {
    start: u64,
    bytes: Bytes,
}

/// A buffer that is accounted for until its last slice is dropped.
struct Charged<T> {
    buffer: T,
    _charge: Charge,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for Charged<T> {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_ref()
    }
}

impl Pages {
    /// Opens a column chunk at the page that holds `row`, counted in the row group. Also gives the
    /// number of rows to skip in the pages that follow before `row` comes.
    ///
    /// # Errors
    /// [`Kind::Internal`] when there is no such chunk.
    pub fn open(
        source: &Source,
        row_group: usize,
        leaf: usize,
        row: u64,
        context: &Context,
        locations: Arc<Locations>,
    ) -> Result<(Self, u64)> {
        let chunk = source.chunk(row_group, leaf)?;
        let (next, rows_to_skip) = locations.page_of(row);
        let has_dictionary = locations.dictionary.is_some() && next < locations.pages.len();
        let pages = Self {
            store: Arc::clone(&source.store),
            context: context.clone(),
            column: chunk.column_path().string(),
            codec: chunk.compression(),
            level_max: chunk.column_descr().max_rep_level(),
            row_aligned: locations.are_row_aligned(),
            dictionary: if has_dictionary { Dictionary::Ahead } else { Dictionary::Gone },
            next,
            window: Window::default(),
            locations,
        };
        Ok((pages, rows_to_skip))
    }

    fn next_page(&mut self) -> Result<Option<Page>> {
        if self.dictionary == Dictionary::Ahead {
            return self.dictionary_page(self.next);
        }
        let Some(page) = self.locations.pages.get(self.next).copied() else { return Ok(None) };
        let place = |e: Error| {
            e.with_path(self.store.path())
                .with_column(self.column.as_str())
                .with_offset(page.offset)
        };
        self.context.check_cancelled()?;
        let stored = Self::take(
            &mut self.window,
            (&*self.store, &self.context, &self.locations),
            (page.offset, page.len),
            self.next,
        )
        .map_err(place)?;
        let unpacked = guard(|| self.unpack(&stored, Some(&page))).flatten().map_err(place)?;
        self.next += 1;
        Ok(Some(unpacked))
    }

    /// Reads the dictionary, and ahead from the page `ahead` on.
    fn dictionary_page(&mut self, ahead: usize) -> Result<Option<Page>> {
        self.dictionary = Dictionary::Gone;
        let Some((offset, len)) = self.locations.dictionary else { return Ok(None) };
        let place = |e: Error| {
            e.with_path(self.store.path()).with_column(self.column.as_str()).with_offset(offset)
        };
        self.context.check_cancelled()?;
        let stored = Self::take(
            &mut self.window,
            (&*self.store, &self.context, &self.locations),
            (offset, len),
            ahead,
        )
        .map_err(place)?;
        guard(|| self.unpack(&stored, None)).flatten().map(Some).map_err(place)
    }

    /// The stored bytes of the page at `(offset, len)`, from the window or from one read that also
    /// fetches the pages from `next` on as far as the read-ahead goes.
    fn take(
        window: &mut Window,
        (store, context, locations): (&dyn Store, &Context, &Locations),
        (offset, len): (u64, u32),
        next: usize,
    ) -> Result<Bytes> {
        let len = len as usize;
        let held = |window: &Window| {
            let start = usize::try_from(offset.checked_sub(window.start)?).ok()?;
            let end = start.checked_add(len).filter(|&end| end <= window.bytes.len())?;
            Some((start, end))
        };
        if held(window).is_none() {
            *window = Window::default(); // free before the next is read
            let mut end = offset + len as u64;
            let reach = offset.saturating_add(context.read_ahead_bytes() as u64);
            for page in locations.pages.get(next..).unwrap_or_default() {
                let page_end = page.offset + u64::from(page.len);
                if page.offset < offset || page_end > reach {
                    break;
                }
                end = end.max(page_end);
            }
            let charge = context.charge(usize::try_from(end - offset).unwrap_or(usize::MAX));
            let buffer = store.read(offset..end)?;
            context.consumed(end - offset);
            let bytes = Bytes::from_owner(Charged { buffer, _charge: charge });
            *window = Window { start: offset, bytes };
        }
        let (start, end) = held(window).unwrap_or_default();
        let page = window.bytes.slice(start..end);
        if end == window.bytes.len() {
            *window = Window::default();
        }
        Ok(page)
    }

    /// Checks and unpacks a page: the data page at `page`, or the dictionary.
    fn unpack(&self, stored: &Bytes, page: Option<&PageLoc>) -> Result<Page> {
        let corrupt = |what: &str| Error::new(Kind::CorruptSource, what);
        let Parsed::Header { header, len } = PageHeader::parse(stored)? else {
            return Err(corrupt("page header does not end"));
        };
        let body = len.checked_add(header.compressed_len as usize);
        let Some(body) = body.filter(|&end| end <= stored.len()).map(|end| stored.slice(len..end))
        else {
            return Err(corrupt("page is longer than its place")
                .with_got(format!("{} bytes", header.compressed_len)));
        };
        if header.uncompressed_len as usize > PAGE_BYTES_MAX {
            return Err(page_too_large(header.uncompressed_len as usize));
        }
        if let Some(want) = header.crc {
            let got = crc32fast::hash(&body);
            if got != want {
                return Err(corrupt("page does not match its checksum")
                    .with_got(format!("{got:08x} instead of {want:08x}"))
                    .with_hint("the file was damaged; fetch it again"));
            }
        }
        match (page, &header.kind) {
            (None, PageKind::Dictionary { .. }) => {}
            (Some(page), PageKind::Data { .. } | PageKind::DataV2 { .. }) => {
                if self.level_max == 0 {
                    check_flat(&header, page)?;
                }
            }
            _ => return Err(corrupt("page is of another type than its place says")),
        }
        let buf = self.unpack_body(&header, &body)?;
        if let Some(page) = page.filter(|_| self.level_max > 0) {
            self.check_repeated(&header, page, &buf)?;
        }
        into_page(header, buf, page)
    }

    /// The unpacked body, levels of version 2 in front.
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
        let charge = self.context.charge(unpacked_len);
        let mut buffer = levels.to_vec();
        decompress_into(self.codec, values, unpacked_len - levels.len(), &mut buffer)?;
        Ok(Bytes::from_owner(Charged { buffer, _charge: charge }))
    }

    fn check_repeated(&self, header: &PageHeader, page: &PageLoc, buf: &Bytes) -> Result<()> {
        let count = count_rows(header, buf, self.level_max, |_| Ok(buf.clone()))?;
        if count.zeros != page.rows || count.starts_with_zero != page.row_aligned {
            let aligned = |aligned| if aligned { "" } else { ", the first begun before" };
            return Err(Error::new(Kind::CorruptSource, "page has other rows than its place says")
                .with_got(format!(
                    "{} rows{} instead of {}{}",
                    count.zeros,
                    aligned(count.starts_with_zero),
                    page.rows,
                    aligned(page.row_aligned)
                )));
        }
        Ok(())
    }
}

/// In a leaf that does not repeat, every value is a row.
fn check_flat(header: &PageHeader, page: &PageLoc) -> Result<()> {
    let (values, rows) = match header.kind {
        PageKind::Data { num_values, .. } => (num_values, num_values),
        PageKind::DataV2 { num_values, num_rows, .. } => (num_values, num_rows),
        PageKind::Dictionary { .. } | PageKind::Index => return Ok(()),
    };
    if u64::from(values) == page.rows && rows == values {
        return Ok(());
    }
    Err(Error::new(Kind::CorruptSource, "page has other rows than its place says")
        .with_got(format!("{values} values, {rows} rows instead of {}", page.rows)))
}

fn into_page(header: PageHeader, buf: Bytes, page: Option<&PageLoc>) -> Result<Page> {
    Ok(match header.kind {
        PageKind::Data { num_values, encoding, def_level_encoding, rep_level_encoding } => {
            let statistics = None;
            Page::DataPage {
                buf,
                num_values,
                encoding,
                def_level_encoding,
                rep_level_encoding,
                statistics,
            }
        }
        PageKind::DataV2 {
            num_values,
            num_nulls,
            num_rows,
            encoding,
            def_levels_len,
            rep_levels_len,
            is_compressed,
        } => Page::DataPageV2 {
            buf,
            num_values,
            encoding,
            num_nulls,
            num_rows: page.and_then(|page| u32::try_from(page.rows).ok()).unwrap_or(num_rows),
            def_levels_byte_len: def_levels_len,
            rep_levels_byte_len: rep_levels_len,
            is_compressed,
            statistics: None,
        },
        PageKind::Dictionary { num_values, encoding, is_sorted } => {
            Page::DictionaryPage { buf, num_values, encoding, is_sorted }
        }
        PageKind::Index => {
            return Err(Error::new(Kind::Internal, "an index page was taken for a data page"));
        }
    })
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
        if self.dictionary == Dictionary::Ahead {
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
        if self.dictionary == Dictionary::Ahead {
            self.dictionary = Dictionary::Skipped;
        } else if self.next < self.locations.pages.len() {
            self.next += 1;
        }
        Ok(())
    }

    fn supports_deferred_dictionary(&self) -> bool {
        true
    }

    fn take_deferred_dictionary(&mut self) -> Result<Option<Page>, ParquetError> {
        if self.dictionary != Dictionary::Skipped {
            return Ok(None);
        }
        // A window of its own: the other one lies behind, at the page that asks.
        let window = std::mem::take(&mut self.window);
        let page = self.dictionary_page(usize::MAX);
        self.window = window;
        page.map_err(wrap_error)
    }

    fn at_record_boundary(&mut self) -> Result<bool, ParquetError> {
        Ok(self.locations.pages.get(self.next).is_none_or(|page| page.row_aligned))
    }
}

#[cfg(test)]
mod tests {
    use parquet::file::properties::{EnabledStatistics, WriterVersion};
    use parquet::file::serialized_reader::SerializedPageReader;
    use plait_core::run::SourceId;

    use super::*;
    use crate::page::testing::{
        Decoded, HUGE_PAGES, Memory, decode, file, file_by_hand, testing_files,
    };

    const SCHEMA: &str = "message m { required int64 a; optional binary b (UTF8); \
        required boolean c; optional fixed_len_byte_array(11) d; optional int96 e; \
        optional group l (LIST) { repeated group list { optional float element; } } \
        repeated group r { optional group s (LIST) { repeated group list { \
            required binary element (UTF8); } } } }";

    fn open(bytes: &[u8]) -> Source {
        Source::open(SourceId(0), Memory::new("m.parquet", bytes.to_vec())).unwrap()
    }

    fn context() -> Context {
        Context::new(1 << 30)
    }

    fn decode_from(
        source: &Source,
        (row_group, leaf): (usize, usize),
        row: u64,
        context: &Context,
    ) -> Result<Decoded> {
        let locations = Arc::new(Locations::find(source, row_group, leaf, context)?);
        let (pages, skip) = Pages::open(source, row_group, leaf, row, context, locations)?;
        decode(source.leaf(leaf), Box::new(pages), skip)
    }

    /// Compares every chunk, from several rows on, with what the parquet crate's own reader gives;
    /// gives the number of chunks that both could read.
    fn check(name: &str, bytes: &[u8]) -> usize {
        let source = open(bytes);
        // With the footer as we decoded it: the crate's own reader is stricter with statistics.
        let store = Bytes::copy_from_slice(bytes);
        let mut readable = 0;
        for row_group in 0..source.num_row_groups() {
            for leaf in 0..source.num_leaves() {
                let descr = source.leaf(leaf);
                let chunk = source.chunk(row_group, leaf).unwrap();
                let rows = source.row_group_rows(row_group) as usize;
                let pages = SerializedPageReader::new(store.clone().into(), chunk, rows, None);
                let want = decode(Arc::clone(&descr), Box::new(pages.unwrap()), 0);
                let got = decode_from(&source, (row_group, leaf), 0, &context());
                let place = format!("{name}, row group {row_group}, {}", descr.path());
                let Ok(want) = want else {
                    assert!(got.is_err(), "{place}: {}", want.unwrap_err());
                    continue;
                };
                let got = got.unwrap_or_else(|e| panic!("{place}: {e}"));
                assert!(got == want, "{place}");
                assert_eq!(got.rows as u64, source.row_group_rows(row_group), "{place}");
                readable += 1;
                let rows = got.rows as u64;
                for row in [1, 7, rows / 3, rows / 2, rows.saturating_sub(1), rows] {
                    if row <= rows {
                        let tail = decode_from(&source, (row_group, leaf), row, &context());
                        let want = want.after_rows(row as usize, descr.max_def_level());
                        assert!(tail.unwrap() == want, "{place}, from row {row}");
                    }
                }
            }
        }
        readable
    }

    #[test]
    fn every_way_of_writing_reads_as_the_parquet_crate_reads_it() {
        let codecs = [
            Compression::UNCOMPRESSED,
            Compression::SNAPPY,
            Compression::GZIP(Default::default()),
            Compression::BROTLI(Default::default()),
            Compression::LZ4,
            Compression::ZSTD(Default::default()),
            Compression::LZ4_RAW,
        ];
        for (n, codec) in codecs.into_iter().enumerate() {
            for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
                for dictionary in [true, false] {
                    for index in [true, false] {
                        let bytes = file(SCHEMA, &[700, 40], |p| {
                            p.set_compression(codec)
                                .set_writer_version(version)
                                .set_dictionary_enabled(dictionary)
                                .set_offset_index_disabled(!index)
                                .set_statistics_enabled(if index {
                                    EnabledStatistics::Page
                                } else {
                                    EnabledStatistics::None
                                })
                                .set_data_page_row_count_limit(30 + n)
                                .set_write_batch_size(16)
                        });
                        let name = format!("{codec:?} {version:?} {dictionary} {index}");
                        assert_eq!(check(&name, &bytes), 14);
                    }
                }
            }
        }
    }

    #[test]
    fn files_of_other_writers_read_as_the_parquet_crate_reads_them() {
        let mut files = testing_files("data");
        files.retain(|(name, _)| name != HUGE_PAGES); // refused, as `locate` tests
        let readable: usize = files.iter().map(|(name, bytes)| check(name, bytes)).sum();
        assert!(files.is_empty() || readable > 100, "{readable}");
    }

    #[test]
    fn bad_files_of_other_writers_give_errors_or_data() {
        for (name, bytes) in testing_files("bad_data") {
            let store = Memory::new(&name, bytes);
            let Ok(source) = Source::open(SourceId(0), store) else { continue };
            for row_group in 0..source.num_row_groups() {
                for leaf in 0..source.num_leaves() {
                    if let Err(e) = decode_from(&source, (row_group, leaf), 0, &context()) {
                        let known = matches!(e.kind(), Kind::CorruptSource | Kind::Unsupported);
                        assert!(known, "{name}: {e}");
                    }
                }
            }
        }
    }

    #[test]
    fn rows_cut_by_pages_are_whole_from_any_row_on() {
        let levels: Vec<(u8, i32)> =
            (0..60).map(|i| (u8::from(i % 7 != 0 && i % 11 != 5), i * 3)).collect();
        for cut in 1..20 {
            let pages: Vec<_> = levels.chunks(cut).collect();
            let source = open(&file_by_hand(&pages));
            let want = Decoded {
                defs: vec![1; 60],
                reps: levels.iter().map(|(rep, _)| i16::from(*rep)).collect(),
                values: levels.iter().map(|(_, v)| v.to_le_bytes().to_vec()).collect(),
                rows: source.rows() as usize,
            };
            for row in 0..=source.rows() {
                let got = decode_from(&source, (0, 0), row, &context()).unwrap();
                assert_eq!(got, want.after_rows(row as usize, 1), "cut {cut}, row {row}");
            }
        }
    }

    #[test]
    fn any_damaged_byte_gives_an_error_or_data() {
        let schema = "message m { optional int64 a; repeated binary b (UTF8); }";
        let mut outcomes = [0, 0];
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            for codec in [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::LZ4_RAW] {
                let bytes = file(schema, &[20], |p| {
                    p.set_writer_version(version)
                        .set_compression(codec)
                        .set_data_page_row_count_limit(8)
                        .set_write_batch_size(4)
                });
                for at in 0..bytes.len() {
                    for flip in [0x01, 0x10, 0x80, 0xff] {
                        let mut bytes = bytes.clone();
                        bytes[at] ^= flip;
                        let store = Memory::new("m.parquet", bytes);
                        let Ok(source) = Source::open(SourceId(0), store) else { continue };
                        for leaf in 0..source.num_leaves() {
                            let row = source.row_group_rows(0).min(9);
                            let outcome = decode_from(&source, (0, leaf), row, &context());
                            outcomes[usize::from(outcome.is_ok())] += 1;
                            if let Err(e) = outcome {
                                assert_ne!(e.kind(), Kind::Internal, "{at} {flip}: {e}");
                            }
                        }
                    }
                }
            }
        }
        assert!(outcomes.iter().all(|&n| n > 100), "{outcomes:?}");
    }

    #[test]
    fn a_page_that_does_not_match_its_checksum_is_named() {
        let bytes = file_by_hand(&[&[(0, 1), (1, 2)], &[(0, 3)]]);
        let source = open(&bytes);
        let locations = Locations::find(&source, 0, 0, &context()).unwrap();
        let last = locations.pages[1];
        let mut bytes = bytes;
        bytes[(last.offset + u64::from(last.len)) as usize - 1] ^= 1;
        let e = decode_from(&open(&bytes), (0, 0), 0, &context()).unwrap_err();
        assert_eq!(e.what(), "page does not match its checksum");
        let place = (e.path(), e.column(), e.offset());
        assert_eq!(place, (Some("m.parquet"), Some("a"), Some(last.offset)));
    }

    #[test]
    fn pages_are_read_together_and_skipped_pages_not_at_all() {
        let bytes = file("message m { required int64 a; }", &[4000], |p| {
            p.set_dictionary_enabled(false)
                .set_data_page_row_count_limit(100)
                .set_write_batch_size(100)
        });
        let store = Memory::new("m.parquet", bytes);
        let source = Source::open(SourceId(0), Arc::clone(&store) as _).unwrap();
        let locations = Arc::new(Locations::find(&source, 0, 0, &context()).unwrap());
        let at = |page: usize| locations.pages[page].offset;
        let end = source.chunk_range(0, 0).unwrap().end;
        let read = |row: u64, ahead: usize| {
            let context = context();
            context.set_read_ahead_bytes(ahead);
            store.reads.lock().unwrap().clear();
            let (pages, skip) =
                Pages::open(&source, 0, 0, row, &context, Arc::clone(&locations)).unwrap();
            decode(source.leaf(0), Box::new(pages), skip).unwrap();
            assert_eq!(context.accounted_bytes(), 0, "all buffers are given back");
            let peak = context.peak_bytes() as usize;
            assert!(peak <= ahead.max(locations.pages[0].len as usize + 64) * 2, "{peak}");
            let reads = store.reads.lock().unwrap();
            reads.iter().map(|range| (range.start, range.end)).collect::<Vec<_>>()
        };
        assert_eq!(locations.pages.len(), 40);
        assert_eq!(read(0, 1 << 20), [(at(0), end)]);
        assert_eq!(read(3850, 1 << 20), [(at(38), end)]);
        assert_eq!(read(3800, 1), [(at(38), at(39)), (at(39), end)]);
        let two_pages = (at(2) - at(0)) as usize;
        assert_eq!(read(3700, two_pages), [(at(37), at(39)), (at(39), end)]);
        assert!(read(4000, 1).is_empty());
    }

    #[test]
    fn a_cancelled_call_stops_at_the_next_page() {
        let source = open(&file_by_hand(&[&[(0, 1)], &[(0, 2)]]));
        let context = context();
        let locations = Arc::new(Locations::find(&source, 0, 0, &context).unwrap());
        let (mut pages, _) = Pages::open(&source, 0, 0, 0, &context, locations).unwrap();
        assert!(pages.get_next_page().unwrap().is_some());
        context.cancel();
        let e = crate::page::unwrap_error(pages.get_next_page().unwrap_err());
        assert_eq!(e.kind(), Kind::Cancelled);
    }

    #[test]
    fn a_skipped_dictionary_is_still_there_when_it_is_needed() {
        let bytes = file("message m { required int64 a; }", &[500], |p| {
            p.set_data_page_row_count_limit(50).set_write_batch_size(50)
        });
        let source = open(&bytes);
        let locations = Arc::new(Locations::find(&source, 0, 0, &context()).unwrap());
        assert!(locations.dictionary.is_some() && locations.pages.len() == 10);
        let (mut pages, _) =
            Pages::open(&source, 0, 0, 0, &context(), Arc::clone(&locations)).unwrap();
        assert!(pages.peek_next_page().unwrap().unwrap().is_dict);
        pages.skip_next_page().unwrap();
        pages.skip_next_page().unwrap();
        assert_eq!(pages.peek_next_page().unwrap().unwrap().num_rows, Some(50));
        assert_eq!(pages.get_next_page().unwrap().unwrap().num_values(), 50);
        let dictionary = pages.take_deferred_dictionary().unwrap().unwrap();
        assert!(dictionary.is_dictionary_page());
        assert!(pages.take_deferred_dictionary().unwrap().is_none());
        assert_eq!(pages.count(), 8);
    }
}
