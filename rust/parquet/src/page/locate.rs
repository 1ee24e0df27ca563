//! Where are the pages of a column chunk, and which rows do they hold?
//!
//! ```text
//! dictionary │ page rows 0..40 │ page rows 40..70 │ page rows 70..95
//!              aligned           aligned            not: begins inside row 69
//! ```
//!
//! # Invariants
//! Pages ascend in the file and in rows, lie inside the chunk, hold at least one value each, and
//! their rows add up to the row group's. A page that is not aligned begins inside a row of the
//! page before it; only old files have such pages.
//!
//! # Cost
//! With an offset index: one read, two when the dictionary's place is not in the footer. Without:
//! one walk over the page headers; repeated leaves also need their repetition levels unpacked.
//!
//! # Not here
//! Reading the pages (`pages`).

use std::ops::Range;

use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::page_index::index_reader::decode_offset_index;
use plait_core::{Error, Kind, Result};

use super::header::{HEADER_BYTES_MAX, PageHeader, PageKind, Parsed};
use super::levels::{LevelCount, count_hybrid, count_v1};
use super::unpack::check_fits;
use super::{PAGE_BYTES_MAX, SMALL_CHUNK_BYTES, codec, guard, unwrap_error};
use crate::runtime::Context;
use crate::source::Source;
use crate::store::RangeReader;
use crate::thrift;

/// How much a walk reads at the start of a page.
const WALK_BYTES: u64 = 64 << 10;
/// A walk over pages of this size reads about a quarter of their bytes: the rest is requested, too.
const DENSE_PAGE_BYTES: u64 = 256 << 10;
/// The longest offset index that is read: over ten million pages.
const INDEX_BYTES_MAX: u64 = 256 << 20;

/// Indexes of a whole file up to this size are requested together.
const INDEXES_BYTES_MAX: u64 = 1 << 20;

/// The pages of one column chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Locations {
    /// Offset and length, header included, of the dictionary page.
    pub dictionary: Option<(u64, u32)>,
    /// The data pages, in order; pages without values are left out.
    pub pages: Vec<PageLoc>,
    /// Bytes of the values of each page without prefixes; empty if the index does not say.
    pub unencoded_bytes: Vec<i64>,
}

/// One data page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageLoc {
    /// Offset of its header in the file.
    pub offset: u64,
    /// Length, header included.
    pub len: u32,
    /// The first row that starts here, counted in the row group.
    pub first_row: u64,
    /// How many rows start here.
    pub rows: u64,
    /// Whether it begins with the start of a row.
    pub row_aligned: bool,
}

impl PageLoc {
    /// Where it ends in the file.
    pub(crate) fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }
}

impl Locations {
    /// Finds the pages of a column chunk.
    ///
    /// # Errors
    /// [`Kind::CorruptSource`] when headers or rows contradict the footer, and what reading gives.
    pub(crate) fn find(
        source: &Source,
        row_group: usize,
        leaf: usize,
        context: &Context,
    ) -> Result<Self> {
        let chunk = source.chunk(row_group, leaf)?;
        let find = Find::new(source, row_group, leaf, &chunk)?;
        let found = match find.index_range(source) {
            None => find.walk(context),
            Some(range) => match find.read_index(range) {
                // An index is an accelerator: the pages themselves are what counts.
                Err(e) if e.kind() == Kind::CorruptSource => find.walk(context),
                outcome => outcome,
            },
        };
        found.map_err(|e| e.with_path(source.path()).with_column(chunk.column_path().string()))
    }

    /// Whether they are found without reading the headers of pages.
    #[must_use]
    pub(crate) fn has_index(source: &Source, row_group: usize, leaf: usize) -> bool {
        let Ok(chunk) = source.chunk(row_group, leaf) else { return false };
        let find = Find::new(source, row_group, leaf, &chunk);
        find.is_ok_and(|find| find.index_range(source).is_some())
    }

    /// Where the offset indexes of a file are, which most often follow each other; none if it has none,
    /// or if they are long.
    #[must_use]
    pub(crate) fn indexes(source: &Source) -> Option<Range<u64>> {
        let footer = source.footer().ok()?;
        let chunks = footer.row_groups().iter().flat_map(|group| group.columns());
        let all = chunks.filter_map(ColumnChunkMetaData::offset_index_range);
        let all = all.reduce(|all, one| all.start.min(one.start)..all.end.max(one.end))?;
        (all.start < all.end && all.end - all.start <= INDEXES_BYTES_MAX).then_some(all)
    }

    /// Whether every page begins with the start of a row.
    #[must_use]
    pub(crate) fn are_row_aligned(&self) -> bool {
        self.pages.iter().all(|page| page.row_aligned)
    }

    /// The last page from which `row` can be read, and how many rows before it that page yields;
    /// the number of pages and 0 when there is no such row.
    #[must_use]
    pub(crate) fn page_of(&self, row: u64) -> (usize, u64) {
        let holder = self.pages.partition_point(|page| page.first_row + page.rows <= row);
        if holder == self.pages.len() {
            return (holder, 0);
        }
        let mut before = self.pages.iter().enumerate().take(holder + 1).rev();
        let start = before.find(|(_, page)| page.row_aligned);
        start.map_or((0, row), |(index, page)| (index, row - page.first_row))
    }
}

/// What both ways of finding pages need.
struct Find<'a> {
    store: &'a dyn RangeReader,
    chunk: &'a ColumnChunkMetaData,
    range: Range<u64>,
    rows: u64,
    level_max: i16,
}

/// Whether `writer` splits rows over pages and says of them that it had not: in indexes, and by
/// counting rows in headers.
pub(crate) fn splits_rows(writer: &str) -> bool {
    let early_rust = || {
        let version = writer.strip_prefix("parquet-rs version ")?;
        let major: u32 = version.split('.').next()?.parse().ok()?;
        Some(major < 42)
    };
    // `WriteRowGroup` of parquet-go does, up to 0.32 at least; segmentio's is what it was before.
    let go = ["github.com/parquet-go/parquet-go ", "github.com/segmentio/parquet-go "];
    go.iter().any(|go| writer.starts_with(go)) || early_rust().unwrap_or(false)
}

impl<'a> Find<'a> {
    fn new(
        source: &'a Source,
        row_group: usize,
        leaf: usize,
        chunk: &'a ColumnChunkMetaData,
    ) -> Result<Self> {
        Ok(Self {
            store: &*source.store,
            chunk,
            range: source.chunk_range(row_group, leaf)?,
            rows: source.row_group_rows(row_group),
            level_max: chunk.column_descr().max_rep_level(),
        })
    }

    /// Where the offset index is, if there is one to trust.
    fn index_range(&self, source: &Source) -> Option<Range<u64>> {
        if self.level_max > 0 && source.file().created_by().is_some_and(splits_rows) {
            return None;
        }
        let range = self.chunk.offset_index_range()?;
        (range.start < range.end && range.end - range.start <= INDEX_BYTES_MAX).then_some(range)
    }

    fn read_index(&self, range: Range<u64>) -> Result<Locations> {
        let bytes = self.store.read(range)?;
        let bad = |got: String| {
            Error::new(Kind::CorruptSource, "offset index contradicts its chunk").with_got(got)
        };
        thrift::check_struct(&bytes).map_err(|stop| bad(stop.reason().to_owned()))?;
        let index = guard(|| decode_offset_index(&bytes))?.map_err(unwrap_error)?;
        let entries = index.page_locations();
        let mut pages = Vec::with_capacity(entries.len());
        let next_rows = entries.iter().skip(1).map(|entry| entry.first_row_index);
        let next_rows = next_rows.chain(i64::try_from(self.rows));
        let (mut offset_min, mut row) = (self.range.start, 0);
        for (entry, next_row) in entries.iter().zip(next_rows) {
            let numbers = || {
                let offset = u64::try_from(entry.offset).ok()?;
                let len = u32::try_from(entry.compressed_page_size).ok()?;
                let first_row = u64::try_from(entry.first_row_index).ok()?;
                let rows = u64::try_from(next_row).ok()?.checked_sub(first_row)?;
                Some(PageLoc { offset, len, first_row, rows, row_aligned: true })
            };
            let page = numbers().filter(|page| {
                let inside = page.offset >= offset_min
                    && page.end() <= self.range.end
                    && page.len as usize <= PAGE_BYTES_MAX;
                // A page without rows has no values or continues a row: only a walk can tell.
                inside && page.first_row == row && page.rows > 0
            });
            let page = page.ok_or_else(|| bad(format!("{entry:?}")))?;
            (offset_min, row) = (page.end(), page.first_row + page.rows);
            pages.push(page);
        }
        if row != self.rows {
            return Err(bad(format!("{row} rows instead of {}", self.rows)));
        }
        let first = pages.first().map_or(self.range.end, |page| page.offset);
        let dictionary = self.dictionary_before(first)?;
        let unencoded = index.unencoded_byte_array_data_bytes().cloned().unwrap_or_default();
        Ok(Locations { dictionary, pages, unencoded_bytes: unencoded })
    }

    /// The dictionary page in front of the first data page, at the start of the chunk.
    fn dictionary_before(&self, first: u64) -> Result<Option<(u64, u32)>> {
        let start = self.range.start;
        let Some(gap) = u32::try_from(first - start).ok().filter(|&gap| gap > 0) else {
            return Ok(None);
        };
        if u64::try_from(self.chunk.dictionary_page_offset().unwrap_or(0)).ok() == Some(start) {
            return Ok(Some((start, gap))); // the page is checked when it is read
        }
        let (header, len) = Ahead::new(self.store, first).header(start)?;
        let end = start + len + u64::from(header.compressed_len);
        match header.kind {
            PageKind::Dictionary { .. } if end <= first => {
                Ok(u32::try_from(end - start).ok().map(|len| (start, len)))
            }
            _ => Err(Error::new(Kind::CorruptSource, "no dictionary in front of the first page")),
        }
    }

    fn walk(&self, context: &Context) -> Result<Locations> {
        if self.range.end - self.range.start <= SMALL_CHUNK_BYTES {
            self.store.will_read(self.range.clone(), self.range.end);
        }
        let mut ahead = Ahead::new(self.store, self.range.end);
        let mut found = Locations::default();
        let (mut at, mut row) = (self.range.start, 0_u64);
        while at < self.range.end {
            context.check_cancelled()?;
            let place = |e: Error| e.with_offset(at);
            let (header, header_len) = ahead.header(at).map_err(place)?;
            let body = at + header_len;
            let end = body + u64::from(header.compressed_len);
            let len = u32::try_from(end - at).ok().filter(|&len| len as usize <= PAGE_BYTES_MAX);
            let (Some(len), true) = (len, end <= self.range.end) else {
                return Err(place(
                    Error::new(Kind::CorruptSource, "page reaches out of its chunk")
                        .with_got(format!("bytes {at}..{end}, chunk ends at {}", self.range.end)),
                ));
            };
            if let PageKind::Dictionary { .. } = header.kind {
                if found.dictionary.is_some() || !found.pages.is_empty() {
                    let what = "dictionary page is not the first page of its chunk";
                    return Err(place(Error::new(Kind::CorruptSource, what)));
                }
                found.dictionary = Some((at, len));
            } else if let Some(count) =
                self.count(&header, body, &mut ahead, context).map_err(place)?
            {
                if found.pages.is_empty() && !count.starts_with_zero {
                    let what = "first page begins inside a row";
                    return Err(place(Error::new(Kind::CorruptSource, what)));
                }
                found.pages.push(PageLoc {
                    offset: at,
                    len,
                    first_row: row,
                    rows: count.zeros,
                    row_aligned: count.starts_with_zero,
                });
                row += count.zeros;
                if found.pages.len() == 1 && u64::from(len) <= DENSE_PAGE_BYTES {
                    self.store.will_read(end..self.range.end, self.range.end);
                }
            }
            at = end;
        }
        if row != self.rows {
            return Err(Error::new(Kind::CorruptSource, "pages do not add up to the row group")
                .with_got(format!("{row} rows instead of {}", self.rows)));
        }
        Ok(found)
    }

    /// Counts the values and rows of a data page; `None` when there are no values.
    fn count(
        &self,
        header: &PageHeader,
        body: u64,
        ahead: &mut Ahead<'_>,
        context: &Context,
    ) -> Result<Option<LevelCount>> {
        let (num_values, levels_len) = match header.kind {
            PageKind::Data { num_values, .. } => (num_values, header.compressed_len),
            PageKind::DataV2 { num_values, rep_levels_len, .. } => (num_values, rep_levels_len),
            PageKind::Dictionary { .. } | PageKind::Index => return Ok(None),
        };
        if num_values == 0 {
            return Ok(None);
        }
        if self.level_max == 0 {
            let rows = u64::from(num_values);
            return Ok(Some(LevelCount { levels: rows, zeros: rows, starts_with_zero: true }));
        }
        let is_v1 = matches!(header.kind, PageKind::Data { .. });
        let unpacked_len = if is_v1 { header.uncompressed_len as usize } else { 0 };
        check_fits(unpacked_len.max(levels_len as usize), context)?;
        let _charge = context.charge(levels_len as usize + unpacked_len);
        let stored = ahead.bytes(body, u64::from(levels_len))?;
        let codec = self.chunk.compression();
        count_rows(header, &stored, self.level_max, |len| {
            guard(|| match header.kind {
                PageKind::Data { rep_level_encoding: Encoding::RLE, .. } => {
                    codec::decompress_section(codec, &stored, len)
                }
                _ => codec::decompress(codec, &stored, len),
            })?
        })
        .map(Some)
    }
}

/// Counts the rows of a data page of a repeated leaf. `stored` begins with the stored body;
/// `unpack` gives the unpacked body of a page of version 1.
pub(super) fn count_rows(
    header: &PageHeader,
    stored: &[u8],
    level_max: i16,
    unpack: impl FnOnce(usize) -> Result<Bytes>,
) -> Result<LevelCount> {
    match header.kind {
        PageKind::Data { num_values, rep_level_encoding, .. } => {
            let unpacked = unpack(header.uncompressed_len as usize)?;
            count_v1(&unpacked, rep_level_encoding, level_max, num_values)
        }
        PageKind::DataV2 { num_values, rep_levels_len, .. } => {
            let levels = stored.get(..rep_levels_len as usize).unwrap_or_default();
            count_hybrid(levels, level_max, num_values)
        }
        PageKind::Dictionary { .. } | PageKind::Index => count_v1(&[], Encoding::RLE, level_max, 0),
    }
}

/// Reads forward through a chunk, some bytes at a time.
struct Ahead<'a> {
    store: &'a dyn RangeReader,
    end: u64,
    start: u64,
    held: Bytes,
}

impl<'a> Ahead<'a> {
    fn new(store: &'a dyn RangeReader, end: u64) -> Self {
        Self { store, end, start: 0, held: Bytes::new() }
    }

    /// The header of the page at `at`, and its length.
    fn header(&mut self, at: u64) -> Result<(PageHeader, u64)> {
        let mut want = 1;
        loop {
            let bytes = self.at_least(at, want)?;
            if let Parsed::Header { header, len } = PageHeader::parse(&bytes)? {
                return Ok((header, len as u64));
            }
            want = bytes.len() as u64 + WALK_BYTES.max(bytes.len() as u64);
            if at + bytes.len() as u64 >= self.end || bytes.len() >= HEADER_BYTES_MAX {
                return Err(Error::new(Kind::CorruptSource, "page header does not end"));
            }
        }
    }

    /// Exactly `len` bytes.
    fn bytes(&mut self, at: u64, len: u64) -> Result<Bytes> {
        if len > self.end.saturating_sub(at) || len > PAGE_BYTES_MAX as u64 {
            return Err(Error::new(Kind::CorruptSource, "page reaches out of its chunk"));
        }
        let mut bytes = self.at_least(at, len)?;
        bytes.truncate(usize::try_from(len).unwrap_or(usize::MAX));
        Ok(bytes)
    }

    /// The bytes held from `at` on, at least `want` unless the chunk ends before.
    fn at_least(&mut self, at: u64, want: u64) -> Result<Bytes> {
        let want = want.min(self.end.saturating_sub(at));
        let skip = at.checked_sub(self.start).and_then(|skip| usize::try_from(skip).ok());
        if let Some(skip) = skip.filter(|&skip| skip <= self.held.len())
            && (self.held.len() - skip) as u64 >= want
        {
            return Ok(self.held.slice(skip..));
        }
        self.held = Bytes::new(); // free before the next is read
        let end = self.end.min(at.saturating_add(want.max(WALK_BYTES)));
        self.held = self.store.read(at..end)?;
        self.start = at;
        Ok(self.held.clone())
    }
}

#[cfg(test)]
mod tests {
    use parquet::file::properties::{EnabledStatistics, WriterVersion};
    use plait_core::SourceId;

    use super::*;
    use crate::page::testing::{
        HUGE_PAGES, Memory, Numbers, SHORT_CHUNKS, file, file_by_hand, testing_files, with_chunks,
    };

    fn open(bytes: Vec<u8>) -> Source {
        Source::open(SourceId(0), Memory::new("m.parquet", bytes)).unwrap()
    }

    fn both(source: &Source, row_group: usize, leaf: usize) -> (Option<Locations>, Locations) {
        let chunk = source.chunk(row_group, leaf).unwrap();
        let find = Find::new(source, row_group, leaf, &chunk).unwrap();
        let index = find.index_range(source).map(|range| find.read_index(range).unwrap());
        (index, find.walk(&Context::new(1 << 30)).unwrap())
    }

    #[test]
    fn a_walk_finds_what_the_offset_index_says() {
        let schema = "message m { required int64 a; optional binary b (UTF8); \
                      optional group l (LIST) { repeated group list { optional double element; } } }";
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            for dictionary in [true, false] {
                let bytes = file(schema, &[3000, 1, 500], |p| {
                    p.set_writer_version(version)
                        .set_dictionary_enabled(dictionary)
                        .set_data_page_row_count_limit(70)
                        .set_write_batch_size(64)
                });
                let source = open(bytes);
                for (row_group, leaf) in (0..3).flat_map(|g| (0..3).map(move |l| (g, l))) {
                    let (index, walk) = both(&source, row_group, leaf);
                    let index = index.unwrap();
                    assert_eq!(index.pages, walk.pages);
                    assert_eq!(index.dictionary, walk.dictionary);
                    assert_eq!(index.unencoded_bytes.is_empty(), leaf != 1);
                    assert_eq!(walk.dictionary.is_some(), dictionary);
                    assert!(row_group != 0 || walk.pages.len() > 20, "{}", walk.pages.len());
                }
            }
        }
    }

    #[test]
    fn pages_of_other_writers_add_up() {
        for (name, bytes) in testing_files("data") {
            let source = open(bytes);
            for row_group in 0..source.num_row_groups() {
                for leaf in 0..source.num_leaves() {
                    let found = Locations::find(&source, row_group, leaf, &Context::new(1 << 30));
                    let refused = match name.as_str() {
                        HUGE_PAGES if leaf == 0 => Some(Kind::MemoryLimit),
                        SHORT_CHUNKS if found.is_err() => Some(Kind::CorruptSource),
                        _ => None,
                    };
                    if let Some(kind) = refused {
                        assert_eq!(found.unwrap_err().kind(), kind, "{name}");
                        continue;
                    }
                    let found = found.unwrap_or_else(|e| panic!("{name}: {e}"));
                    let rows: u64 = found.pages.iter().map(|page| page.rows).sum();
                    assert_eq!(rows, source.row_group_rows(row_group), "{name}");
                    let chunk = source.chunk(row_group, leaf).unwrap();
                    let named = chunk.dictionary_page_offset().is_some_and(|offset| offset > 0);
                    assert!(found.dictionary.is_some() >= named, "{name}: no dictionary");
                }
            }
        }
    }

    #[test]
    fn rows_that_continue_on_the_next_page_are_found() {
        let bytes = file_by_hand(&[
            &[(0, 1), (1, 2), (0, 3)],
            &[(1, 4), (0, 5)],
            &[(1, 6), (1, 7)],
            &[(1, 8), (0, 9), (0, 10)],
            &[(0, 11)],
        ]);
        let found = Locations::find(&open(bytes), 0, 0, &Context::new(1 << 30)).unwrap();
        let rows: Vec<_> =
            found.pages.iter().map(|p| (p.first_row, p.rows, p.row_aligned)).collect();
        let want = [(0, 2, true), (2, 1, false), (3, 0, false), (3, 2, false), (5, 1, true)];
        assert_eq!(rows, want);
        assert!(!found.are_row_aligned());
        let starts: Vec<_> = (0..7).map(|row| found.page_of(row)).collect();
        assert_eq!(starts, [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (4, 0), (5, 0)]);
    }

    #[test]
    fn a_row_is_found_in_the_page_that_holds_it() {
        let bytes = file("message m { required int64 a; }", &[1000], |p| {
            p.set_data_page_row_count_limit(64).set_write_batch_size(64)
        });
        let found = Locations::find(&open(bytes), 0, 0, &Context::new(1 << 30)).unwrap();
        for row in 0..1000 {
            let (index, skip) = found.page_of(row);
            let page = found.pages[index];
            assert_eq!(page.first_row + skip, row);
            assert!(skip < page.rows);
        }
        assert_eq!(found.page_of(1000), (found.pages.len(), 0));
    }

    #[test]
    fn a_dictionary_is_found_whatever_the_footer_says_of_its_place() {
        for index in [EnabledStatistics::Page, EnabledStatistics::None] {
            let bytes = file("message m { required int64 a; }", &[500], |p| {
                p.set_offset_index_disabled(index == EnabledStatistics::None)
                    .set_statistics_enabled(index)
                    .set_data_page_row_count_limit(100)
                    .set_write_batch_size(100)
            });
            let context = Context::new(1 << 30);
            let find = |bytes| Locations::find(&open(bytes), 0, 0, &context).unwrap();
            let want = find(bytes.clone());
            let place = want.dictionary.unwrap().0 as i64;
            let first = want.pages[0].offset as i64;
            for (dictionary, data) in
                [(None, place), (Some(0), place), (Some(first), place), (Some(place), 0)]
            {
                let bytes = with_chunks(&bytes, |_, chunk| {
                    chunk.set_dictionary_page_offset(dictionary).set_data_page_offset(data)
                });
                assert_eq!(find(bytes), want, "{dictionary:?} {data}");
            }
        }
    }

    #[test]
    fn writers_that_split_rows_over_pages_are_known() {
        for writer in [
            "parquet-rs version 41.0.0",
            "github.com/parquet-go/parquet-go version 0.32.0(build )",
            "github.com/segmentio/parquet-go version 0.0.0(build )",
        ] {
            assert!(splits_rows(writer), "{writer}");
        }
        for writer in ["parquet-rs version 42.0.0", "parquet-cpp-arrow version 26.0.1", "go", ""] {
            assert!(!splits_rows(writer), "{writer}");
        }
    }

    #[test]
    fn a_damaged_offset_index_is_replaced_by_a_walk() {
        let bytes = file("message m { required int64 a; optional binary b; }", &[1000], |p| {
            p.set_data_page_row_count_limit(64).set_write_batch_size(64)
        });
        let source = open(bytes.clone());
        let range = source.chunk(0, 1).unwrap().offset_index_range().unwrap();
        let want = both(&source, 0, 1).1;
        let mut numbers = Numbers(3);
        for at in range.start as usize..range.end as usize {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << numbers.below(8);
            let source = open(bytes);
            // What still looks like an index may differ in the rows of a page: reading finds that.
            let found = Locations::find(&source, 0, 1, &Context::new(1 << 30)).unwrap();
            let rows: u64 = found.pages.iter().map(|page| page.rows).sum();
            assert_eq!((rows, found.dictionary.is_some()), (1000, true));
        }
        // A list of 2^31 - 1 entries is refused before memory is reserved for it.
        let mut bytes = bytes;
        let at = range.start as usize;
        bytes[at..at + 7].copy_from_slice(&[0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07]);
        let found = Locations::find(&open(bytes), 0, 1, &Context::new(1 << 30)).unwrap();
        assert_eq!(found, want);
    }

    #[test]
    fn a_walk_stops_when_the_call_is_cancelled() {
        let source = open(file_by_hand(&[&[(0, 1)]]));
        let context = Context::new(1 << 30);
        context.cancel();
        let e = Locations::find(&source, 0, 0, &context).unwrap_err();
        assert_eq!((e.kind(), e.column()), (Kind::Cancelled, Some("a")));
    }
}
