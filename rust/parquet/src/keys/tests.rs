//! Keys read from pages are those that typed values give, whatever the encoding.

use std::sync::Arc;

use parquet::basic::{Compression, Encoding};
use parquet::file::properties::{WriterPropertiesBuilder, WriterVersion};
use plait_core::SourceId;
use plait_core::key::{Column, KeyColumn as Ordered, KeyShape, KeyType, Nulls, Values, encode};
use plait_core::stream::Unite;
use plait_core::{Kind, Result};

use super::typed::TypedColumn;
use super::{KeyColumn, KeyLeaves, KeyReader};
use crate::leaf::{LocationCache, OutputLeaf, output_leaves};
use crate::page::testing::{Memory, Numbers, file, quiet_guards, testing_files};
use crate::runtime::Context;
use crate::schema::{key_type, reconcile};
use crate::source::Source;

const SCHEMA: &str = "message m {
    required boolean yes; optional boolean maybe;
    optional int32 i; required int32 u (INTEGER(32, false)); optional int64 l;
    optional float f; required double d; optional fixed_len_byte_array(2) h (FLOAT16);
    optional binary s (STRING); required binary b; optional fixed_len_byte_array(5) x;
    optional group g { optional group h { required binary deep; optional int64 far; } }
    optional int32 money (DECIMAL(9, 2)); optional int96 old;
}";

/// One source, and all of its leaves that can be key columns.
fn open(bytes: Vec<u8>) -> Result<(Arc<Source>, KeyLeaves)> {
    open_memory(Memory::new("m.parquet", bytes))
}

fn open_memory(memory: Arc<Memory>) -> Result<(Arc<Source>, KeyLeaves)> {
    let source = Arc::new(Source::open(SourceId(0), memory)?);
    let footers = [(source.path(), source.file())];
    let reconciled = reconcile(&footers, &Unite::default())?;
    let (mut columns, mut leaves) = (Vec::new(), Vec::new());
    for leaf in output_leaves(&reconciled) {
        let Ok(ty) = key_type(&leaf.descr) else { continue };
        if leaf.descr.max_rep_level() == 0 {
            let (name, descending) = (leaf.descr.path().string(), leaves.len() % 3 == 1);
            columns.push(Ordered { name, ty, descending, nulls: Nulls::Last });
            leaves.push(leaf);
        }
    }
    Ok((source, KeyLeaves { shape: KeyShape::try_new(columns)?, leaves, ranks: None, kept: None }))
}

/// The keys of column `i` alone, both ways, from `row` on; and whether pages were read.
fn both(source: &Arc<Source>, keys: &KeyLeaves, i: usize, row: u64, batch: usize) -> bool {
    let context = Context::new(64 << 20);
    let cache = Arc::new(LocationCache::new(&context, 1 << 20));
    let one = KeyLeaves {
        shape: KeyShape::try_new(vec![keys.shape.columns()[i].clone()]).unwrap(),
        leaves: vec![keys.leaves[i].clone()],
        ranks: None,
        kept: None,
    };
    let mut reader = KeyReader::open(source, &one, row, &cache, &context).unwrap();
    let mut typed = TypedColumn::open(source, &one.leaves[0], row, &cache, &context).unwrap();
    let mut at = row;
    while let Some((found, _)) = reader.next(batch).unwrap() {
        typed.fill(found.len()).unwrap();
        let slices = typed.slices();
        let column = match one.shape.columns()[0].ty {
            KeyType::Null => Column { present: None, values: Values::None },
            _ => typed.column(&slices),
        };
        let expected = encode(&one.shape, found.len(), &[column]).unwrap();
        assert_eq!(found, expected, "{} from row {at}", one.shape.columns()[0].name);
        at += found.len() as u64;
    }
    assert_eq!(at, source.rows());
    matches!(reader.columns[0], KeyColumn::Paged(_))
}

#[test]
fn every_encoding_gives_the_keys_of_its_values() {
    type Change = fn(WriterPropertiesBuilder) -> WriterPropertiesBuilder;
    let special = |p: WriterPropertiesBuilder| p.set_dictionary_enabled(false);
    let changes: [(Change, Change); 5] = [
        (|p| p, |p| p),
        (|p| p.set_dictionary_enabled(false), |p| p.set_compression(Compression::SNAPPY)),
        (|p| p.set_dictionary_page_size_limit(40), |p| p), // given up halfway
        (special, |p| {
            let encodings = [
                ("s", Encoding::DELTA_BYTE_ARRAY),
                ("b", Encoding::DELTA_LENGTH_BYTE_ARRAY),
                ("l", Encoding::DELTA_BINARY_PACKED),
                ("d", Encoding::BYTE_STREAM_SPLIT),
            ];
            encodings
                .into_iter()
                .fold(p, |p, (name, encoding)| p.set_column_encoding(name.into(), encoding))
        }),
        (|p| p, |p| p.set_writer_version(WriterVersion::PARQUET_2_0)),
    ];
    for (first, second) in changes {
        let bytes = file(SCHEMA, &[150, 1, 90], |p| {
            second(first(p.set_data_page_row_count_limit(32).set_write_batch_size(16)))
        });
        let (source, keys) = open(bytes).unwrap();
        assert_eq!(keys.leaves.len(), 15);
        let mut paged = 0;
        for i in 0..keys.leaves.len() {
            for (row, batch) in [(0, 1000), (0, 7), (33, 50), (149, 3), (240, 1)] {
                paged += usize::from(both(&source, &keys, i, row, batch));
            }
        }
        assert_eq!(paged, 13 * 5, "all but decimals and legacy timestamps");
    }
}

#[test]
fn passing_over_rows_leads_to_the_keys_that_reading_them_leads_to() {
    let bytes = file(SCHEMA, &[150, 1, 90], |p| {
        p.set_data_page_row_count_limit(32).set_write_batch_size(16)
    });
    let (source, keys) = open(bytes).unwrap();
    let context = Context::new(64 << 20);
    let cache = Arc::new(LocationCache::new(&context, 1 << 20));
    let open = |row| KeyReader::open(&source, &keys, row, &cache, &context).unwrap();
    for stops in [&[5_u64, 6, 31, 40, 141, 149][..], &[0, 150, 151, 240], &[200], &[149, 239]] {
        let mut reader = open(0);
        for row in stops {
            reader.skip_to(*row).unwrap();
            assert_eq!(reader.row(), *row);
            let key = reader.next(1).unwrap();
            assert_eq!(key, open(*row).next(1).unwrap(), "row {row} of {stops:?}");
        }
        assert_eq!(reader.skip_to(242).unwrap_err().kind(), Kind::Internal);
    }
    let ends = super::keys_at(&source, &keys, 3..240, &cache, &context).unwrap();
    let one = |row| super::key_at(&source, &keys, row, &cache, &context).unwrap();
    assert_eq!(ends, (one(3), one(239)));
}

#[test]
fn look_ups_give_the_same_keys_whatever_is_kept_and_read_nothing_twice() {
    for dictionary_bytes in [1 << 20, 40] {
        let bytes = file(SCHEMA, &[150, 1, 90], |p| {
            p.set_dictionary_page_size_limit(dictionary_bytes)
                .set_data_page_row_count_limit(32)
                .set_write_batch_size(16)
        });
        let memory = Memory::new("m.parquet", bytes);
        let (source, mut keys) = open_memory(Arc::clone(&memory)).unwrap();
        // Decimals and legacy timestamps are not read page by page.
        let is_paged =
            |leaf: &OutputLeaf| !matches!(leaf.descr.path().string().as_str(), "money" | "old");
        let paged: Vec<bool> = keys.leaves.iter().map(is_paged).collect();
        let mut is_kept = paged.iter();
        keys.leaves.retain(|_| *is_kept.next().unwrap());
        let columns = keys.shape.columns().iter().zip(&paged).filter(|(_, paged)| **paged);
        keys.shape = KeyShape::try_new(columns.map(|(c, _)| c.clone()).collect()).unwrap();
        let context = Context::new(64 << 20);
        let cache = Arc::new(LocationCache::new(&context, 1 << 20));
        let key = |keys: &KeyLeaves, row| super::key_at(&source, keys, row, &cache, &context);
        let all = || (0..241).chain([200, 3, 150, 149, 31]);
        let expected: Vec<_> = all().map(|row| key(&keys, row).unwrap()).collect();
        let at_rest = context.account().held_bytes();
        for (of_dictionaries, of_pages) in [(1 << 20, 1 << 20), (1 << 20, 300), (0, 0)] {
            keys.keep_between_look_ups(of_dictionaries, of_pages);
            let found: Vec<_> = all().map(|row| key(&keys, row).unwrap()).collect();
            assert_eq!(found, expected, "{of_dictionaries} {of_pages}");
            let before = memory.reads.lock().unwrap().len();
            let again: Vec<_> = all().map(|row| key(&keys, row).unwrap()).collect();
            assert_eq!(again, expected, "{of_dictionaries} {of_pages}");
            let has_read = memory.reads.lock().unwrap().len() > before;
            assert_eq!(has_read, of_pages < 1 << 20, "{of_dictionaries} {of_pages}");
            keys.forget_look_ups();
        }
        assert_eq!(context.account().held_bytes(), at_rest, "pages are let go of");
    }
}

#[test]
fn files_of_other_writers_give_the_keys_of_their_values() {
    quiet_guards();
    for (name, bytes) in testing_files("data") {
        let Ok((source, keys)) = open(bytes) else { continue };
        let context = Context::new(64 << 20);
        let cache = Arc::new(LocationCache::new(&context, 1 << 20));
        for (i, leaf) in keys.leaves.iter().enumerate() {
            let typed = TypedColumn::open(&source, leaf, 0, &cache, &context);
            let rows = usize::try_from(source.rows()).unwrap();
            let group = usize::try_from(source.row_group_rows(0)).unwrap();
            let is_readable = typed.and_then(|mut typed| typed.fill(rows.min(group))).is_ok();
            if is_readable && source.num_row_groups() == 1 {
                eprintln!("{name}, {}", leaf.descr.path().string());
                both(&source, &keys, i, 0, 1000);
                both(&source, &keys, i, source.rows() / 2, 33);
            }
        }
    }
}

#[test]
fn damaged_pages_are_an_error_or_other_keys_but_no_panic() {
    quiet_guards();
    let bytes =
        file(SCHEMA, &[200], |p| p.set_data_page_row_count_limit(32).set_write_batch_size(16));
    let (source, _) = open(bytes.clone()).unwrap();
    let end = source.chunk_range(0, source.num_leaves() - 1).unwrap().end;
    let mut numbers = Numbers(8);
    let mut failed = 0;
    for _ in 0..600 {
        let mut bytes = bytes.clone();
        let at = 4 + numbers.below(end - 4) as usize;
        bytes[at] ^= 1 << numbers.below(8);
        let (source, keys) = open(bytes).unwrap();
        let context = Context::new(64 << 20);
        let cache = Arc::new(LocationCache::new(&context, 1 << 20));
        let read = || -> Result<()> {
            let mut reader = KeyReader::open(&source, &keys, 0, &cache, &context)?;
            while reader.next(64)?.is_some() {}
            Ok(())
        };
        if let Err(e) = read() {
            assert!(
                matches!(e.kind(), Kind::CorruptSource | Kind::MemoryLimit | Kind::Unsupported),
                "{e}"
            );
            assert_eq!(e.path(), Some("m.parquet"));
            failed += 1;
        }
    }
    assert!(failed > 100, "{failed} of 600 were found");
}
