use std::io::Write;

use bytes::Bytes;
use parquet::basic::{BoundaryOrder, Encoding};
use parquet::file::metadata::{
    ColumnChunkMetaData, ColumnChunkMetaDataBuilder, ColumnIndexBuilder, LevelHistogram,
    OffsetIndexBuilder, PageIndexPolicy, ParquetMetaDataReader,
};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::properties::WriterVersion;
use parquet::file::statistics::Statistics;
use plait_core::Result;

use super::*;
use crate::page::testing::{Numbers, file};

const SCHEMA: &str = "message m {
    required int64 k; optional binary s (UTF8); optional double d; optional boolean b;
    optional group l (LIST) { repeated group list { optional int32 element; } }
}";

/// A file of pages of a few rows, and the pages that are noted when it is written in pieces.
fn noted(version: WriterVersion, seed: u64) -> (Vec<WrittenPage>, ParquetMetaData) {
    let bytes = file(SCHEMA, &[300, 200], |p| {
        p.set_writer_version(version).set_data_page_row_count_limit(40).set_write_batch_size(8)
    });
    let mut walk = Walk::new(Vec::new());
    walk.expect_pages(4);
    let (mut numbers, mut at) = (Numbers(seed), 0);
    while at < bytes.len() {
        let end = bytes.len().min(at + 1 + numbers.below(1 + seed * 50) as usize);
        walk.write_all(&bytes[at..end]).unwrap();
        at = end;
    }
    let pages = walk.pages().to_vec();
    assert_eq!(walk.take().unwrap(), bytes);
    assert!(walk.write(b"x").is_err(), "a file that was taken is written on");
    let metadata = ParquetMetaDataReader::new()
        .with_page_index_policy(PageIndexPolicy::Required)
        .parse_and_finish(&Bytes::from(bytes))
        .unwrap();
    (pages, metadata)
}

#[test]
fn files_of_the_parquet_crate_pass_however_their_bytes_come() -> Result<()> {
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        for seed in [0, 1, 7, 100] {
            let (pages, metadata) = noted(version, seed);
            check_file(&pages, &[], &metadata)?;
            assert!(pages.len() > 40, "{} pages", pages.len());
        }
    }
    Ok(())
}

#[test]
fn pages_that_are_not_there_are_missed() {
    let (pages, metadata) = noted(WriterVersion::PARQUET_1_0, 7);
    for gone in [0, 1, 5, 20] {
        let mut pages = pages.clone();
        pages.remove(gone);
        let e = check_file(&pages, &[], &metadata).unwrap_err();
        assert_eq!(e.kind(), Kind::Internal, "{e}");
        assert!(e.column().is_some() && e.to_string().starts_with("row group 0"), "{e}");
    }
    let e = check_file(&[], &[], &metadata).unwrap_err();
    assert!(e.to_string().contains("chunk has values and no pages"), "{e}");
}

#[test]
fn bytes_that_are_written_in_another_way_are_swallowed_and_not_checked() -> Result<()> {
    let (pages, metadata) = noted(WriterVersion::PARQUET_1_0, 7);
    let chunks = metadata.row_groups()[0].columns();
    let (first, second) = (chunks[0].byte_range(), chunks[1].byte_range());
    let unseen = first.0..second.0 + second.1;
    let seen: Vec<_> = pages.into_iter().filter(|page| page.offset >= unseen.end).collect();
    check_file(&seen, std::slice::from_ref(&unseen), &metadata)?;
    let part = first.0..first.0 + first.1;
    let e = check_file(&seen, std::slice::from_ref(&part), &metadata).unwrap_err();
    assert!(e.to_string().contains("chunk has values and no pages"), "{e}");

    let mut walk = Walk::new(Vec::new());
    walk.write_all(b"PAR1").unwrap();
    walk.expect_unseen(5);
    walk.expect_unseen(7);
    walk.inner_mut().unwrap().extend(b"in another w");
    for zeros in [3, 9] {
        walk.write_all(&vec![0; zeros]).unwrap();
    }
    walk.write_all(b"end").unwrap();
    assert_eq!(walk.unseen(), [4..9, 9..16]);
    assert_eq!(walk.take().unwrap(), b"PAR1in another wend");
    Ok(())
}

/// Checks the first chunk of column `leaf` with what `edit` makes of its metadata.
fn edited(
    version: WriterVersion,
    leaf: usize,
    edit: impl Fn(&ColumnChunkMetaData, ColumnChunkMetaDataBuilder) -> ColumnChunkMetaDataBuilder,
) -> Result<(), Contradiction> {
    let (pages, metadata) = noted(version, 100);
    let chunk = metadata.row_group(0).column(leaf);
    let start = chunk.byte_range().0;
    let end = start + chunk.byte_range().1;
    let pages: Vec<_> =
        pages.into_iter().filter(|page| (start..end).contains(&page.offset)).collect();
    // The crate reads the encodings of pages as a mask.
    let builder = chunk.clone().into_builder().set_page_encoding_stats(encoding_stats(&pages));
    let known = builder.build().unwrap();
    let changed = edit(&known, known.clone().into_builder()).build().unwrap();
    let rows = metadata.row_group(0).num_rows() as u64;
    CheckedChunk { pages: &pages, metadata: &changed, columns: None, offsets: None, rows }.check()
}

#[test]
fn everything_that_a_footer_says_of_pages_is_compared() {
    let v1 = WriterVersion::PARQUET_1_0;
    let wrong = |leaf: usize, words: &str, edit: &dyn Fn(&_, ColumnChunkMetaDataBuilder) -> _| {
        let e = edited(v1, leaf, edit).unwrap_err();
        assert!(e.what.contains(words), "{words}: {e:?}");
    };
    for leaf in 0..5 {
        assert_eq!(edited(v1, leaf, |_, b| b), Ok(()));
        assert_eq!(edited(WriterVersion::PARQUET_2_0, leaf, |_, b| b), Ok(()));
        wrong(leaf, "other values", &|c, b| b.set_num_values(c.num_values() + 1));
        wrong(leaf, "another length", &|c, b| b.set_total_compressed_size(c.compressed_size() - 1));
        wrong(leaf, "first data page is not", &|c, b| {
            b.set_data_page_offset(c.data_page_offset() + 1)
        });
        wrong(leaf, "does not name", &|_, b| b.set_encodings(vec![Encoding::RLE_DICTIONARY]));
        wrong(leaf, "do not count the pages", &|c, b| {
            let mut stats = c.page_encoding_stats().unwrap().clone();
            stats.last_mut().unwrap().count += 1;
            b.set_page_encoding_stats(stats)
        });
        wrong(leaf, "do not count the pages", &|_, b| b.set_page_encoding_stats(Vec::new()));
    }
    wrong(1, "dictionary page is not where", &|_, b| b.set_dictionary_page_offset(None));
    wrong(1, "dictionary page is not where", &|c, b| {
        b.set_dictionary_page_offset(c.dictionary_page_offset().map(|offset| offset + 1))
    });
    wrong(1, "more nulls than values", &|_, b| {
        b.set_statistics(Statistics::byte_array(None, None, None, Some(301), false))
    });
    wrong(1, "do not count the levels", &|_, b| {
        b.set_definition_level_histogram(Some(LevelHistogram::from(vec![1, 2])))
    });
    wrong(4, "do not count the levels", &|c, b| {
        let mut counts = c.repetition_level_histogram().unwrap().values().to_vec();
        (counts[0], counts[1]) = (counts[0] - 1, counts[1] + 1);
        b.set_repetition_level_histogram(Some(LevelHistogram::from(counts)))
    });
}

/// A chunk of one flat column of numbers in pages of `values`, nulls behind them.
fn chunk(pages: &[(u32, u32)]) -> (Vec<WrittenPage>, ColumnChunkMetaData) {
    let schema = "message m { optional int64 k; }";
    let bytes = file(schema, &[1], |p| p.set_dictionary_enabled(false));
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&Bytes::from(bytes)).unwrap();
    let mut written = Vec::new();
    for (num_values, num_nulls) in pages {
        written.push(WrittenPage {
            offset: 4 + 10 * written.len() as u64,
            len: 10,
            kind: PageKind::DataV2 {
                num_values: *num_values,
                num_nulls: *num_nulls,
                num_rows: *num_values,
                encoding: Encoding::PLAIN,
                def_levels_len: 0,
                rep_levels_len: 0,
                is_compressed: false,
            },
        });
    }
    let all = |of: fn(&(u32, u32)) -> u32| pages.iter().map(|p| i64::from(of(p))).sum::<i64>();
    let nulls = all(|p| p.1).unsigned_abs();
    let chunk = metadata.row_group(0).column(0).clone().into_builder();
    let chunk = chunk
        .set_num_values(all(|p| p.0))
        .set_total_compressed_size(10 * written.len() as i64)
        .set_page_encoding_stats(encoding_stats(&written))
        .set_definition_level_histogram(None)
        .set_statistics(Statistics::int64(None, None, None, Some(nulls), false));
    (written, chunk.build().unwrap())
}

/// An index of pages with bounds and nulls.
fn columns(order: BoundaryOrder, pages: &[(bool, i64, i64, i64)]) -> ColumnIndexMetaData {
    let mut builder = ColumnIndexBuilder::new(parquet::basic::Type::INT64);
    for (is_null, min, max, nulls) in pages {
        let bytes = |n: &i64| if *is_null { Vec::new() } else { n.to_le_bytes().to_vec() };
        builder.append(*is_null, bytes(min), bytes(max), *nulls, None);
    }
    builder.set_boundary_order(order);
    builder.build().unwrap()
}

#[test]
fn a_column_index_is_compared_with_its_pages() {
    let (pages, metadata) = chunk(&[(5, 1), (3, 3), (6, 0)]);
    let outcome = |order, index: &[_]| {
        let columns = columns(order, index);
        let columns = Some(&columns);
        let checked =
            CheckedChunk { pages: &pages, metadata: &metadata, columns, offsets: None, rows: 14 };
        checked.check().map_err(|e| e.what)
    };
    let null = (true, 0, 0, 3);
    let up = BoundaryOrder::ASCENDING;
    assert_eq!(outcome(up, &[(false, 1, 5, 1), null, (false, 2, 5, 0)]), Ok(()));
    assert_eq!(
        outcome(BoundaryOrder::DESCENDING, &[(false, 3, 5, 1), null, (false, 2, 5, 0)]),
        Ok(())
    );
    assert_eq!(
        outcome(BoundaryOrder::UNORDERED, &[(false, 3, 5, 1), null, (false, 2, 9, 0)]),
        Ok(())
    );
    let order = Err("bounds of pages are not in the order that is declared");
    assert_eq!(outcome(up, &[(false, 3, 5, 1), null, (false, 2, 9, 0)]), order);
    assert_eq!(outcome(up, &[(false, 1, 5, 1), null, (false, 2, 4, 0)]), order);
    let nulls = Err("column index counts other nulls than the page");
    assert_eq!(outcome(up, &[(false, 1, 5, 2), null, (false, 2, 5, 0)]), nulls);
    assert_eq!(outcome(up, &[(false, 1, 5, 1), (false, 1, 5, 3), (false, 2, 5, 0)]), nulls);
    assert_eq!(outcome(up, &[(true, 1, 5, 1), null, (false, 2, 5, 0)]), nulls);
    assert_eq!(
        outcome(up, &[(false, 5, 1, 1), null, (false, 2, 5, 0)]),
        Err("bounds of a page are the wrong way round")
    );
    assert_eq!(outcome(up, &[(false, 1, 5, 1), null]), Err("column index is of other pages"));
}

#[test]
fn an_offset_index_is_compared_with_its_pages() {
    let (pages, metadata) = chunk(&[(5, 1), (3, 3), (6, 0)]);
    let outcome = |places: &[(i64, i32, i64)]| {
        let mut builder = OffsetIndexBuilder::new();
        for (offset, len, rows) in places {
            builder.append_offset_and_size(*offset, *len);
            builder.append_row_count(*rows);
        }
        let offsets = builder.build();
        let offsets = Some(&offsets);
        let checked =
            CheckedChunk { pages: &pages, metadata: &metadata, columns: None, offsets, rows: 14 };
        checked.check().map_err(|e| e.what)
    };
    assert_eq!(outcome(&[(4, 10, 5), (14, 10, 3), (24, 10, 6)]), Ok(()));
    let nowhere = Err("offset index points at no page");
    assert_eq!(outcome(&[(4, 10, 5), (15, 10, 3), (24, 10, 6)]), nowhere);
    assert_eq!(outcome(&[(4, 10, 5), (14, 11, 3), (24, 10, 6)]), nowhere);
    let rows = Err("offset index counts other rows than the pages");
    assert_eq!(outcome(&[(4, 10, 4), (14, 10, 4), (24, 10, 6)]), rows);
    let pages = Err("offset index has another number of pages");
    assert_eq!(outcome(&[(4, 10, 5), (14, 10, 9)]), pages);
}

#[test]
fn a_page_of_ids_wants_a_dictionary() {
    let (mut pages, metadata) = chunk(&[(5, 0)]);
    if let PageKind::DataV2 { encoding, .. } = &mut pages[0].kind {
        *encoding = Encoding::RLE_DICTIONARY;
    }
    let checked =
        CheckedChunk { pages: &pages, metadata: &metadata, columns: None, offsets: None, rows: 5 };
    assert_eq!(checked.check().unwrap_err().what, "page of ids has no dictionary");
}
