//! The oracle: concatenate, sort stably. And what is pulled, and when.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int64Type};
use arrow_array::{Array, BooleanArray, RecordBatch};
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

/// Key, whether it deletes, and a value that may be null.
type Change = (i64, bool, Option<i64>);

fn changes(rows: &[Change]) -> RecordBatch {
    let schema = Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, false),
        Field::new("gone", DataType::Boolean, false),
        Field::new("last", DataType::Int64, true),
        Field::new("sum", DataType::Int64, true),
        Field::new("least", DataType::Int64, true),
    ]));
    let k: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0)));
    let gone: ArrayRef = Arc::new(rows.iter().map(|row| Some(row.1)).collect::<BooleanArray>());
    let value: ArrayRef = Arc::new(rows.iter().map(|row| row.2).collect::<Int64Array>());
    let columns = vec![k, gone, Arc::clone(&value), Arc::clone(&value), value];
    RecordBatch::try_new(schema, columns).unwrap()
}

/// The oracle: what each key became, change by change.
fn replayed(sources: &[Vec<Change>]) -> Vec<(i64, [Option<i64>; 3])> {
    let mut state: BTreeMap<i64, [Option<i64>; 3]> = BTreeMap::new();
    for (key, deletes, value) in sources.iter().flatten() {
        if *deletes {
            state.remove(key);
            continue;
        }
        let now = state.entry(*key).or_default();
        let (Some(value), [_, sum, least]) = (*value, *now) else { continue };
        let smaller = least.map_or(value, |least| least.min(value));
        *now = [Some(value), Some(sum.unwrap_or(0) + value), Some(smaller)];
    }
    state.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn rows_of_one_key_become_what_their_changes_make_of_it(
        mut sources in prop::collection::vec(
            prop::collection::vec(
                (-3_i64..4, prop::bool::weighted(0.1), prop::option::of(-9_i64..9)), 0..60,
            ), 1..6,
        ),
        batch in 1_usize..9, batch_rows in 1_usize..30, reverse: bool,
    ) {
        use crate::plan::{Aggregate, OnDuplicate};
        sources.iter_mut().for_each(|rows| rows.sort_by_key(|row| row.0));
        let expected = replayed(&sources);
        if reverse {
            sources.reverse();
            sources.iter_mut().for_each(|rows| rows.reverse());
        }
        let given = || sources.iter().map(|rows| {
            source(rows.chunks(batch).chain([&[][..]]).map(changes).collect())
        });
        let mut how = options(if reverse { "-k" } else { "k" }, batch_rows);
        how.drops.on_duplicate = OnDuplicate::Aggregate;
        how.drops.delete_where = Some("gone".into());
        how.drops.newest_first = reverse;
        let functions =
            [("last", Aggregate::LastNonNull), ("sum", Aggregate::Sum), ("least", Aggregate::Min)];
        how.drops.combine.aggregates =
            functions.iter().map(|(name, of)| ((*name).to_owned(), *of)).collect();
        let merge = MergeStream::try_new(given().collect(), &how, Box::new(Two)).unwrap();
        let mut found = Vec::new();
        for batch in merge {
            let batch = batch.unwrap();
            let at = |column: usize| batch.column(column).as_primitive::<Int64Type>().clone();
            let (k, of) = (at(0), [at(2), at(3), at(4)]);
            let value = |array: &Int64Array, row: usize| array.is_valid(row).then(|| array.value(row));
            found.extend((0..batch.num_rows()).map(|row| {
                (k.value(row), [0, 1, 2].map(|column: usize| value(&of[column], row)))
            }));
        }
        if reverse {
            found.reverse();
        }
        prop_assert_eq!(found, expected);
    }
}
