//! Tests of `pages`: against the parquet crate's own reader, and under damage.

use parquet::basic::Compression;
use parquet::file::properties::{EnabledStatistics, WriterVersion};
use parquet::file::serialized_reader::SerializedPageReader;
use plait_core::SourceId;

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
    let open = || Pages::open(source, row_group, leaf, row, context, Arc::clone(&locations));
    let (pages, skip) = open()?;
    let decoded = decode(source.leaf(leaf), Box::new(pages), skip);
    let (pages, skip) = open()?;
    let ahead = decode(source.leaf(leaf), Box::new(AheadPages { pages, calls: 0 }), skip);
    match (&decoded, &ahead) {
        (Ok(decoded), Ok(ahead)) => assert!(decoded == ahead, "pages that are unpacked ahead"),
        (Err(decoded), Err(ahead)) => assert_eq!(decoded.to_string(), ahead.to_string()),
        _ => panic!("{:?} {:?}", decoded.err(), ahead.err()),
    }
    decoded
}

/// Pages of which some are taken ahead, and some of these unpacked by another.
struct AheadPages {
    pages: Pages,
    calls: usize,
}

impl AheadPages {
    fn go_ahead(&mut self) {
        self.calls += 1;
        let page = self.pages.unpack_ahead(|_| !self.calls.is_multiple_of(4));
        if let Some(page) = page.filter(|_| self.calls.is_multiple_of(2)) {
            page.unpack();
            page.unpack(); // as a thread that comes late
        }
    }
}

impl Iterator for AheadPages {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for AheadPages {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        self.go_ahead();
        self.pages.get_next_page()
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        self.go_ahead();
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        self.go_ahead();
        self.pages.skip_next_page()
    }

    fn supports_deferred_dictionary(&self) -> bool {
        self.pages.supports_deferred_dictionary()
    }

    fn take_deferred_dictionary(&mut self) -> Result<Option<Page>, ParquetError> {
        self.pages.take_deferred_dictionary()
    }

    fn at_record_boundary(&mut self) -> Result<bool, ParquetError> {
        self.pages.at_record_boundary()
    }
}

#[test]
fn a_page_is_taken_ahead_once_and_if_there_is_room() {
    let schema = "message m { required int64 a; }";
    let open = |codec: Compression| {
        open(&file(schema, &[400], |p| {
            p.set_compression(codec)
                .set_dictionary_enabled(false)
                .set_data_page_row_count_limit(100)
                .set_write_batch_size(100)
        }))
    };
    let source = open(Compression::SNAPPY);
    let context = context();
    let locations = Arc::new(Locations::find(&source, 0, 0, &context).unwrap());
    let (mut pages, _) = Pages::open(&source, 0, 0, 0, &context, locations).unwrap();
    assert!(pages.unpack_ahead(|_| false).is_none());
    let page = pages.unpack_ahead(|_| true).unwrap();
    assert!(pages.unpack_ahead(|_| true).is_none(), "it is taken");
    let held = context.account().held_bytes();
    page.unpack();
    let unpacked = context.account().held_bytes() - held;
    assert!(unpacked >= 800, "what others unpack is accounted for: {unpacked}");
    let stored = pages.next_stored().unwrap().unwrap();
    assert_eq!((stored.number, stored.place.rows), (0, 100));
    let page_here = pages.unpack_stored(&stored).unwrap();
    assert_eq!(context.account().held_bytes(), held + unpacked, "it is not unpacked again");
    drop(page_here);
    // One that is passed over goes.
    let passed = pages.unpack_ahead(|_| true).unwrap();
    assert_eq!(pages.pass(150), 50);
    let stored = pages.next_stored().unwrap().unwrap();
    assert_eq!(stored.number, 2);
    assert_eq!(Arc::strong_count(&passed), 1);
    let source = open(Compression::UNCOMPRESSED);
    let locations = Arc::new(Locations::find(&source, 0, 0, &context).unwrap());
    let (mut pages, _) = Pages::open(&source, 0, 0, 0, &context, locations).unwrap();
    assert!(pages.unpack_ahead(|_| true).is_none(), "there is nothing to unpack");
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
            let pages = SerializedPageReader::new(store.clone().into(), &chunk, rows, None);
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
        p.set_dictionary_enabled(false).set_data_page_row_count_limit(100).set_write_batch_size(100)
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
        assert_eq!(context.account().held_bytes(), 0, "all buffers are given back");
        let peak = context.account().peak_bytes() as usize;
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
    let (mut pages, _) = Pages::open(&source, 0, 0, 0, &context(), Arc::clone(&locations)).unwrap();
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
