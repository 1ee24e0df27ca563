//! With ranks and without, merges give the same bytes, reports and errors; and footers may lie.

use std::cmp::Ordering;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use parquet::basic::{Encoding, EncodingMask, PageType};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::file::metadata::{ColumnChunkMetaData, ColumnChunkMetaDataBuilder, PageEncodingStats};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::file::statistics::Statistics;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use plait_core::key::{Nulls, SortOrder};
use plait_core::{Kind, Result};

use super::{Attempt, Stopped, frame, merge, merge_with, prepare, task};
use crate::options::MergeOptions;
use crate::page::testing::{Numbers, with_chunks};
use crate::plan::Draft;
use crate::ranks::KeyForm;
use crate::report::{MergeReport, Times};
use crate::runtime::Context;
use crate::store::Stores;

/// Names and bytes of files.
type Files = Vec<(String, Vec<u8>)>;

const SCHEMA: &str = "message m {
    optional binary a (STRING);
    required binary b;
    optional int64 t;
    required int32 v (INTEGER(32, false));
}";

const WORDS: [&str; 9] =
    ["", "\0", "a", "a\0", "a\0b", "ab", "host-1.example", "host-10.example", "\u{e9}"];

#[derive(Clone, Debug)]
struct Row {
    a: Option<&'static str>,
    b: &'static str,
    t: Option<i64>,
    v: u32,
}

fn compare(order: &SortOrder, x: &Row, y: &Row) -> Ordering {
    fn one<T: Ord>(x: &Option<T>, y: &Option<T>, descending: bool, nulls: Nulls) -> Ordering {
        let side = if nulls == Nulls::First { Ordering::Less } else { Ordering::Greater };
        match (x, y) {
            (None, None) => Ordering::Equal,
            (None, _) => side,
            (_, None) => side.reverse(),
            (x, y) if descending => y.cmp(x),
            (x, y) => x.cmp(y),
        }
    }
    order.columns().iter().fold(Ordering::Equal, |found, column| {
        found.then_with(|| {
            let (down, nulls) = (column.descending, column.nulls);
            match column.dotted().as_str() {
                "a" => one(&x.a, &y.a, down, nulls),
                "b" => one(&Some(x.b), &Some(y.b), down, nulls),
                "t" => one(&x.t, &y.t, down, nulls),
                _ => one(&Some(x.v), &Some(y.v), down, nulls),
            }
        })
    })
}

const OTHER_WORDS: [&str; 4] = ["", "c", "host-2.example", "host-3.example"];

fn rows(numbers: &mut Numbers, count: u64, with_nulls: bool) -> Vec<Row> {
    rows_of(&WORDS, numbers, count, with_nulls)
}

fn rows_of(
    words: &[&'static str],
    numbers: &mut Numbers,
    count: u64,
    with_nulls: bool,
) -> Vec<Row> {
    let word = |n: &mut Numbers| words[n.below(words.len() as u64) as usize];
    let row = |n: &mut Numbers| Row {
        a: (!with_nulls || n.below(5) > 0).then(|| word(n)),
        b: word(n),
        t: (!with_nulls || n.below(5) > 0).then(|| n.below(40) as i64 * 7 - 100),
        v: if n.below(9) == 0 { u32::MAX } else { n.below(300) as u32 },
    };
    (0..count).map(|_| row(numbers)).collect()
}

fn file(
    rows: &[Row],
    group_rows: usize,
    properties: impl Fn(WriterPropertiesBuilder) -> WriterPropertiesBuilder,
) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let properties = properties(
        WriterProperties::builder().set_data_page_row_count_limit(16).set_write_batch_size(8),
    );
    let mut bytes = Vec::new();
    let mut writer =
        SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties.build())).unwrap();
    for rows in rows.chunks(group_rows) {
        let mut group = writer.next_row_group().unwrap();
        let text = |text: &str| ByteArray::from(text);
        let defs = |is: &dyn Fn(&Row) -> bool| -> Vec<i16> {
            rows.iter().map(|row| i16::from(is(row))).collect()
        };
        let a: Vec<ByteArray> = rows.iter().filter_map(|row| row.a).map(text).collect();
        let mut column = group.next_column().unwrap().unwrap();
        let present = defs(&|row| row.a.is_some());
        column.typed::<ByteArrayType>().write_batch(&a, Some(&present), None).unwrap();
        column.close().unwrap();
        let b: Vec<ByteArray> = rows.iter().map(|row| text(row.b)).collect();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&b, None, None).unwrap();
        column.close().unwrap();
        let t: Vec<i64> = rows.iter().filter_map(|row| row.t).collect();
        let mut column = group.next_column().unwrap().unwrap();
        let present = defs(&|row| row.t.is_some());
        column.typed::<Int64Type>().write_batch(&t, Some(&present), None).unwrap();
        column.close().unwrap();
        let v: Vec<i32> = rows.iter().map(|row| row.v.cast_signed()).collect();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int32Type>().write_batch(&v, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.close().unwrap();
    bytes
}

/// Sources in a folder of their own, which goes at the end.
struct Bench {
    folder: PathBuf,
    options: MergeOptions,
}

impl Bench {
    fn new(name: &str, sources: &[Vec<u8>], order: &str) -> Self {
        let name = format!("plait-ranks-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let mut options = MergeOptions {
            sort_by: Some(order.to_owned()),
            row_group_rows: 60,
            page_rows: 16,
            threads: Some(1),
            ..MergeOptions::default()
        };
        for (i, bytes) in sources.iter().enumerate() {
            let path = folder.join(format!("{i}.parquet"));
            fs::write(&path, bytes).unwrap();
            options.sources.push(path.display().to_string());
        }
        Self { folder, options }
    }

    fn stores() -> Stores {
        Stores::try_new(&Default::default(), &Self::context()).unwrap()
    }

    fn context() -> Context {
        Context::new(64 << 20)
    }

    fn has_ranks(&self) -> bool {
        let options = MergeOptions { out: self.out("looked"), ..self.options.clone() };
        let (stores, context) = (Self::stores(), Self::context());
        let made = Draft::open(&options, &stores, &context).unwrap().plan(None).unwrap();
        let tasks: Vec<_> = made.plan.tasks.iter().collect();
        let sources = Some(made.sources.as_slice());
        let what =
            super::chosen::ChosenTasks { plan: &made.plan, tasks: &tasks, sources, files: &[] };
        let attempt = Attempt {
            options: &options,
            stores: &stores,
            context: &context,
            form: KeyForm::Ranked,
            times: &mut Times::default(),
        };
        let frame = frame::Frame::open(&what, &attempt).unwrap();
        let prepared = prepare::prepare(&frame, tasks[0], &attempt).unwrap();
        frame.target.abandon();
        prepared.keys.ranks.is_some()
    }

    fn out(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Names and bytes of the outputs, and what the report says of them; or the error's text.
    fn merge(&self, form: KeyForm) -> Result<(Files, String), String> {
        let options = MergeOptions { out: self.out("out"), ..self.options.clone() };
        let context = Self::context();
        let outcome = merge_with(&options, &Self::stores(), &context, form);
        context.buffers().release_idle();
        assert_eq!(context.account().held_bytes(), 0);
        let found = outcome.map(|report| (self.outputs(), said(&report)));
        let _ = fs::remove_dir_all(&options.out);
        found.map_err(|e| e.to_string())
    }

    fn outputs(&self) -> Vec<(String, Vec<u8>)> {
        let mut files = Vec::new();
        for entry in fs::read_dir(self.out("out")).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            files.push((name, fs::read(&path).unwrap()));
        }
        files.sort();
        files
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn said(report: &MergeReport) -> String {
    let outputs = serde_json::to_string(&report.outputs).unwrap();
    format!("{outputs} {:?} {:?}", report.overlap, report.copied)
}

const ORDERS: [&str; 8] = [
    "a, -b, t",
    "-a nulls first, b, -t nulls first",
    "b, a, v",
    "-b, -v",
    "t nulls first, a",
    "-t, v, b",
    "v, t",
    "a nulls first",
];

#[test]
fn ranks_change_no_byte_of_the_outputs() {
    let mut numbers = Numbers(3);
    let mut ranked = 0;
    for case in 0..96 {
        let order = ORDERS[case % ORDERS.len()];
        let parsed = SortOrder::try_parse(order).unwrap();
        let mut sources = Vec::new();
        for _ in 0..1 + numbers.below(4) {
            let (count, with_nulls) = (numbers.below(150), numbers.below(2) == 0);
            let mut rows = rows(&mut numbers, count, with_nulls);
            rows.sort_by(|x, y| compare(&parsed, x, y));
            let group_rows = 1 + numbers.below(90) as usize;
            // Some dictionaries are given up in the middle of a chunk, others never begun.
            let (has_dictionary, limit) = (numbers.below(5) > 0, numbers.below(200) as usize);
            sources.push(file(&rows, group_rows, |p| {
                let limit = if limit < 60 { limit + 1 } else { 1 << 20 };
                p.set_dictionary_enabled(has_dictionary).set_dictionary_page_size_limit(limit)
            }));
        }
        let mut bench = Bench::new(&format!("same-{case}"), &sources, order);
        let options = &mut bench.options;
        match numbers.below(4) {
            0 => options.outputs = Some(1 + numbers.below(5)),
            1 => options.target_rows = Some(1 + numbers.below(100)),
            _ => {}
        }
        let columns = parsed.columns().len() as u64;
        options.cut_on = Some(1 + numbers.below(columns) as usize);
        options.align_row_groups = numbers.below(columns + 1) as usize;
        if numbers.below(2) == 0 {
            options.copy_tiers.clear();
        }
        ranked += usize::from(bench.has_ranks());
        let (with, without) = (bench.merge(KeyForm::Ranked), bench.merge(KeyForm::Stored));
        assert!(without.is_ok(), "{order}: {without:?}");
        assert_eq!(with, without, "case {case}, {order}");
    }
    assert!(ranked > 30, "only {ranked} cases had ranks");
}

#[test]
fn an_unsorted_source_is_told_of_in_the_same_words() {
    let order = SortOrder::try_parse("a, -b, t").unwrap();
    let mut numbers = Numbers(4);
    for swap in [[0, 99], [40, 41], [98, 99], [10, 60]] {
        let mut rows = rows(&mut numbers, 100, true);
        rows.sort_by(|x, y| compare(&order, x, y));
        let good = file(&rows, 50, |p| p);
        rows.swap(swap[0], swap[1]);
        let bench = Bench::new(
            &format!("unsorted-{}", swap[0]),
            &[good, file(&rows, 30, |p| p)],
            "a, -b, t",
        );
        let (with, without) = (bench.merge(KeyForm::Ranked), bench.merge(KeyForm::Stored));
        assert!(without.is_err() || compare(&order, &rows[swap[0]], &rows[swap[1]]).is_eq());
        assert_eq!(with, without);
    }
}

/// What a footer says of pages that hold nothing but ids.
fn all_ids(builder: ColumnChunkMetaDataBuilder) -> ColumnChunkMetaDataBuilder {
    builder
        .set_encodings(vec![Encoding::RLE, Encoding::RLE_DICTIONARY])
        .set_page_encoding_stats_mask(EncodingMask::new_from_encodings(
            [Encoding::RLE_DICTIONARY].iter(),
        ))
        .set_page_encoding_stats(vec![PageEncodingStats {
            page_type: PageType::DATA_PAGE,
            encoding: Encoding::RLE_DICTIONARY,
            count: 1,
        }])
}

#[test]
fn sizes_in_footers_that_no_file_has_change_no_row() {
    let order = SortOrder::try_parse("a").unwrap();
    let mut numbers = Numbers(7);
    let sources: Vec<Vec<u8>> = (0..2)
        .map(|_| {
            let mut rows = rows_of(&WORDS, &mut numbers, 400, true);
            rows.sort_by(|x, y| compare(&order, x, y));
            let bytes = file(&rows, 100, |p| p);
            with_chunks(&bytes, |_, chunk| chunk.set_total_uncompressed_size(i64::MAX))
        })
        .collect();
    let bench = Bench::new("sizes", &sources, "a");
    for (outputs, target_file_size) in [(None, None), (Some(3), None), (None, Some(4000))] {
        let options = MergeOptions { outputs, target_file_size, ..bench.options.clone() };
        let plan = super::plan(&options, &Bench::context()).unwrap();
        assert_eq!((plan.rows, plan.sources.len()), (800, 2));
        let options =
            MergeOptions { out: bench.out(&format!("{outputs:?}{target_file_size:?}")), ..options };
        assert_eq!(super::merge(&options, &Bench::context()).unwrap().rows_out, 800);
    }
}

/// Merges an honest source with one whose footer is changed; gives whether ranks were tried, and
/// whether they broke.
fn with_footer(
    name: &str,
    order: &str,
    words: &[&'static str],
    dictionary_bytes: usize,
    change: impl Fn(&ColumnChunkMetaData, ColumnChunkMetaDataBuilder) -> ColumnChunkMetaDataBuilder,
) -> (bool, bool) {
    let parsed = SortOrder::try_parse(order).unwrap();
    let mut numbers = Numbers(5);
    let mut sources = Vec::new();
    for i in 0..2 {
        let mut rows = rows_of(if i == 0 { &WORDS } else { words }, &mut numbers, 200, true);
        // The honest source has no nulls in `t`, and other values.
        rows.iter_mut().for_each(|row| match i {
            0 => row.t = row.t.or(Some(0)),
            _ => row.t = row.t.map(|t| t + 1000),
        });
        rows.sort_by(|x, y| compare(&parsed, x, y));
        let limit = if i == 0 { 1 << 20 } else { dictionary_bytes };
        sources.push(file(&rows, 100, |p| p.set_dictionary_page_size_limit(limit)));
    }
    sources[1] = with_chunks(&sources[1], change);
    let bench = Bench::new(name, &sources, order);
    let has_ranks = bench.has_ranks();
    let options = MergeOptions { out: bench.out("tried"), ..bench.options.clone() };
    let (stores, context) = (Bench::stores(), Bench::context());
    let made = Draft::open(&options, &stores, &context).unwrap().plan(None).unwrap();
    let tasks: Vec<_> = made.plan.tasks.iter().collect();
    let sources = Some(made.sources.as_slice());
    let what = super::chosen::ChosenTasks { plan: &made.plan, tasks: &tasks, sources, files: &[] };
    let mut attempt = Attempt {
        options: &options,
        stores: &stores,
        context: &context,
        form: KeyForm::Ranked,
        times: &mut Times::default(),
    };
    let frame = frame::Frame::open(&what, &attempt).unwrap();
    let tried = task::execute_task(&frame, tasks[0], &mut attempt);
    let is_broken = match tried {
        Ok(done) => {
            drop(done);
            false
        }
        Err(Stopped { error, is_broken, .. }) => {
            assert_eq!(error.kind(), Kind::Internal, "{error}");
            is_broken
        }
    };
    frame.target.abandon();
    assert!(!fs::exists(bench.out("tried")).unwrap(), "something is left");
    let (with, without) = (bench.merge(KeyForm::Ranked), bench.merge(KeyForm::Stored));
    assert!(without.is_ok(), "{name}: {without:?}");
    assert_eq!(with, without, "{name}");
    // The public door begins again too, and tells progress of the second attempt only.
    let options = MergeOptions { out: bench.out("public"), ..bench.options.clone() };
    let context = Bench::context();
    let report = merge(&options, &context).unwrap();
    assert_eq!((report.rows_out, context.progress().rows_written), (400, 400));
    (has_ranks, is_broken)
}

#[test]
fn footers_that_do_not_tell_of_plain_pages_cost_ranks_but_no_merge() {
    let path = |chunk: &ColumnChunkMetaData| chunk.column_path().string();
    // Told honestly: no ranks for `b`, and none for the others.
    assert_eq!(with_footer("honest", "b", &WORDS, 8, |_, b| b), (false, false));
    // Not told at all: the last page tells.
    let silent = |_: &_, b: ColumnChunkMetaDataBuilder| b.clear_page_encoding_stats();
    assert_eq!(with_footer("silent", "b", &OTHER_WORDS, 8, silent), (false, false));
    assert_eq!(with_footer("silent-but-good", "b", &OTHER_WORDS, 1 << 20, silent), (true, false));
    // A lie: values are met that are in no dictionary.
    let all = |chunk: &ColumnChunkMetaData, b| if path(chunk) == "b" { all_ids(b) } else { b };
    assert_eq!(with_footer("lie", "b", &OTHER_WORDS, 8, all), (true, true));
    let all = |_: &_, b| all_ids(b);
    assert_eq!(with_footer("lie-of-many", "a, -b, t", &OTHER_WORDS, 8, all), (true, true));
}

#[test]
fn plain_pages_of_values_that_are_known_have_ranks() {
    // The honest source knows all words.
    let all = |_: &ColumnChunkMetaData, b| all_ids(b);
    assert_eq!(with_footer("known", "b", &WORDS, 20, all), (true, false));
}

#[test]
fn statistics_that_are_wrong_cost_ranks_but_no_merge() {
    /// Says something of `t`.
    fn says(
        max: i64,
        nulls: Option<u64>,
    ) -> impl Fn(&ColumnChunkMetaData, ColumnChunkMetaDataBuilder) -> ColumnChunkMetaDataBuilder
    {
        move |chunk, builder| match chunk.column_path().string() == "t" {
            true => {
                builder.set_statistics(Statistics::int64(Some(900), Some(max), None, nulls, false))
            }
            false => builder,
        }
    }
    let words = &WORDS;
    let tried = |name, order, change| with_footer(name, order, words, 1 << 20, change);
    // What is outside of its range.
    assert_eq!(tried("narrow", "a, b, t, v", says(1000, None)), (true, true));
    // Nulls where there should be none.
    assert_eq!(tried("nulls", "-t, v, a", says(1200, Some(0))), (true, true));
    assert_eq!(tried("told", "-t, v, a", says(1200, Some(1))), (true, false));
    // The first key is already wrong: that is seen before anything is begun.
    assert_eq!(tried("first", "-t, v, a", says(1000, Some(1))), (false, false));
}
