//! The oracle: concatenate, sort stably. And what is pulled, and when.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int64Type};
use arrow_array::{ArrayRef, DictionaryArray, Int64Array, RecordBatchIterator, StringArray};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use proptest::prelude::*;

use super::*;
use crate::workers::share;
use plait_base::{Error, Kind};

type Row = (Option<i64>, String);

fn schema() -> arrow_schema::SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("t", DataType::Utf8, false),
        Field::new("id", DataType::Int64, false),
    ]))
}

fn make(rows: &[Row], first_id: i64) -> RecordBatch {
    let k: ArrayRef = Arc::new(rows.iter().map(|row| row.0).collect::<Int64Array>());
    let t: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row.1)));
    let ids = (0..rows.len()).map(|i| first_id + i as i64);
    let id: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
    RecordBatch::try_new(schema(), vec![k, t, id]).unwrap()
}

fn source(batches: Vec<RecordBatch>) -> Source {
    let schema = batches.first().map_or_else(schema, RecordBatch::schema);
    let batches = batches.into_iter().map(Ok);
    Source { reader: Box::new(RecordBatchIterator::new(batches, schema)), path: None }
}

fn options(order: &str, batch_rows: usize) -> MergeStreamOptions {
    let order = SortOrder::try_parse(order).unwrap();
    MergeStreamOptions {
        order,
        batch_rows,
        assume_sorted: false,
        unite: Unite::default(),
        drops: DropOptions::default(),
    }
}

/// Two threads that really work at once.
struct Two;

impl Workers for Two {
    fn count(&self) -> usize {
        2
    }

    fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        let next = AtomicUsize::new(0);
        let work = || share(&next, count, task);
        std::thread::scope(|scope| {
            scope.spawn(work);
            work();
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn the_result_is_a_stable_sort(
        mut sources in prop::collection::vec(
            prop::collection::vec((prop::option::of(-3_i64..4), "[ab]{0,2}"), 0..50), 1..7,
        ),
        batch in 1_usize..20, batch_rows in 1_usize..30, by_text: bool,
    ) {
        let order = if by_text { "t, -k nulls first" } else { "-k" };
        let key = |row: &Row| {
            let k = row.0.map_or(if by_text { i64::MIN } else { i64::MAX }, |k| -k);
            (if by_text { row.1.clone() } else { String::new() }, k)
        };
        sources.iter_mut().for_each(|rows| rows.sort_by_key(&key));
        let mut expected = Vec::new();
        let mut given = Vec::new();
        for (s, rows) in sources.iter().enumerate() {
            let first_id = s as i64 * 1000;
            expected.extend(rows.iter().cloned().zip(first_id..));
            let mut batches = vec![make(&[], 0)];
            for (i, rows) in rows.chunks(batch).enumerate() {
                batches.push(make(rows, first_id + (i * batch) as i64));
            }
            given.push(source(batches));
        }
        expected.sort_by_key(|(row, _)| key(row));
        let merge = MergeStream::try_new(given, &options(order, batch_rows), Box::new(Two));
        let mut found = Vec::new();
        let mut sizes = Vec::new();
        for batch in merge.unwrap() {
            let batch = batch.unwrap();
            sizes.push(batch.num_rows());
            found.extend(batch.column(2).as_primitive::<Int64Type>().values().to_vec());
        }
        let ids: Vec<i64> = expected.into_iter().map(|(_, id)| id).collect();
        prop_assert_eq!(found, ids);
        let last = sizes.pop().unwrap_or(0);
        prop_assert!(sizes.iter().all(|rows| *rows == batch_rows) && last <= batch_rows);
    }
}

#[test]
fn an_error_comes_after_the_batches_before_it_and_then_nothing_does() {
    let row = |k: i64| (Some(k), String::new());
    let rows: Vec<Row> = (0..10).map(row).collect();
    let failing: Vec<Result<RecordBatch, ArrowError>> = vec![
        Ok(make(&rows, 0)),
        Err(Error::new(Kind::Storage, "the disk is gone").into_arrow()),
        Ok(make(&rows, 0)),
    ];
    let reader = Box::new(RecordBatchIterator::new(failing, schema()));
    let sources = vec![Source { reader, path: None }];
    let mut merge = MergeStream::try_new(sources, &options("k", 4), Box::new(Alone)).unwrap();
    assert_eq!(merge.next().unwrap().unwrap().num_rows(), 4);
    assert_eq!(merge.next().unwrap().unwrap().num_rows(), 4);
    let error = Error::from_arrow(merge.next().unwrap().unwrap_err());
    assert_eq!(error.to_string(), "the disk is gone: source 0");
    assert!(merge.next().is_none());
}

#[test]
fn values_of_narrow_dictionaries_are_kept_in_smaller_batches() {
    let ty = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    let schema = Arc::new(Schema::new(vec![Field::new("d", ty, true)]));
    let side = |start: usize| {
        let values: Vec<String> = (0..120).map(|i| format!("{:03}", start + 2 * i)).collect();
        let values: DictionaryArray<Int8Type> = values.iter().map(|v| Some(v.as_str())).collect();
        source(vec![RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(values)]).unwrap()])
    };
    let sources = vec![side(0), side(1), side(2)];
    let merge = MergeStream::try_new(sources, &options("d", 1000), Box::new(Alone)).unwrap();
    let mut found = Vec::new();
    for batch in merge {
        let batch = batch.unwrap();
        let column = batch.column(0).as_dictionary::<Int8Type>();
        let texts = column.downcast_dict::<StringArray>().unwrap();
        found.extend(texts.into_iter().map(|text| text.unwrap().to_owned()));
    }
    assert_eq!(found.len(), 360);
    assert!(found.is_sorted());
}

#[test]
fn a_column_that_must_not_be_null_is_watched() {
    let of = |nullable| Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, nullable)]));
    let nulls: ArrayRef = Arc::new(Int64Array::from(vec![None]));
    let batch = RecordBatch::try_new(of(true), vec![nulls]).unwrap();
    let reader = Box::new(RecordBatchIterator::new([Ok(batch)], of(false)));
    let sources = vec![Source { reader, path: Some("a.parquet".into()) }];
    let mut merge = MergeStream::try_new(sources, &options("k", 4), Box::new(Alone)).unwrap();
    let error = Error::from_arrow(merge.next().unwrap().unwrap_err());
    assert_eq!((error.kind(), error.path()), (Kind::SchemaDrift, Some("a.parquet")));
}
