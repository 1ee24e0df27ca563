//! Order-freedom: any order and any grouping of sources gives the same schema, and the same rows of every
//! source through its adapter: none lost, none made up.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int32Array, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_schema::{DataType, Field, Fields, Schema, TimeUnit};
use proptest::prelude::*;

use super::{Frozen, Request, SchemaPolicy, Summary, freeze};
use plait_base::{Error, Kind};

fn leaf() -> impl Strategy<Value = DataType> {
    prop_oneof![
        4 => prop::sample::select(vec![DataType::Int8, DataType::Int32, DataType::Int64, DataType::UInt16]),
        2 => prop::sample::select(vec![DataType::Float32, DataType::Float64]),
        2 => prop::sample::select(vec![DataType::Utf8, DataType::LargeUtf8]),
        1 => Just(DataType::Null),
        1 => Just(DataType::Timestamp(TimeUnit::Millisecond, None)),
        1 => Just(DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        1 => Just(DataType::Decimal128(10, 2)),
        1 => Just(DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8))),
    ]
}

fn data_type() -> BoxedStrategy<DataType> {
    leaf()
        .prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                fields(inner.clone()).prop_map(DataType::Struct),
                (inner.clone(), any::<bool>())
                    .prop_map(|(ty, null)| DataType::List(Arc::new(Field::new("item", ty, null)))),
                inner.prop_map(|ty| DataType::LargeList(Arc::new(Field::new("element", ty, true)))),
            ]
        })
        .boxed()
}

/// Fields of distinct names, in any order.
fn fields(ty: impl Strategy<Value = DataType> + Clone + 'static) -> impl Strategy<Value = Fields> {
    let names = prop::sample::subsequence(vec!["a", "b", "c", "d"], 0..=4).prop_shuffle();
    names.prop_flat_map(move |names| {
        let field = |name: &'static str| {
            (ty.clone(), any::<bool>())
                .prop_map(move |(ty, null)| Field::new(name, ty.clone(), null || ty.is_null()))
        };
        names.into_iter().map(field).collect::<Vec<_>>().prop_map(Fields::from)
    })
}

/// Sources of few shapes, so that many go together.
fn sources() -> impl Strategy<Value = Vec<(Fields, bool)>> {
    prop::collection::vec((fields(data_type()), any::<bool>()), 1..6)
}

fn summary(sources: &[(usize, &(Fields, bool))]) -> Summary {
    sources.iter().fold(Summary::default(), |all, (i, (fields, rows))| {
        all.merge(Summary::of(&Schema::new(fields.clone()), &format!("{i}.parquet"), *rows))
    })
}

fn told(frozen: &Result<Frozen, Error>) -> String {
    match frozen {
        Ok(frozen) => format!("{:?} {}", frozen.schema(), frozen.fingerprint()),
        Err(e) => e.to_string(),
    }
}

/// Values everywhere, lists of one entry; none where it would have to be null and must not.
fn array(ty: &DataType, rows: usize) -> ArrayRef {
    use arrow_buffer::OffsetBuffer;
    match ty {
        DataType::List(item) => {
            let entries = usize::from(item.is_nullable() || !item.data_type().is_null());
            let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(entries, rows));
            let items = array(item.data_type(), rows * entries);
            Arc::new(arrow_array::ListArray::new(Arc::clone(item), offsets, items, None))
        }
        DataType::LargeList(item) => {
            let entries = usize::from(item.is_nullable() || !item.data_type().is_null());
            let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(entries, rows));
            let items = array(item.data_type(), rows * entries);
            Arc::new(arrow_array::LargeListArray::new(Arc::clone(item), offsets, items, None))
        }
        DataType::Struct(fields) if fields.is_empty() => {
            Arc::new(arrow_array::StructArray::new_empty_fields(rows, None))
        }
        DataType::Struct(fields) => {
            let columns = fields.iter().map(|f| array(f.data_type(), rows)).collect();
            Arc::new(arrow_array::StructArray::new(fields.clone(), columns, None))
        }
        DataType::Null => new_null_array(ty, rows),
        ty => {
            let numbers: ArrayRef =
                Arc::new(Int32Array::from((0..rows as i32).collect::<Vec<_>>()));
            let numbers = match ty {
                DataType::Timestamp(..) => arrow_cast::cast(&numbers, &DataType::Int64).unwrap(),
                _ => numbers,
            };
            match ty {
                DataType::Timestamp(unit, zone) => {
                    let made =
                        arrow_cast::cast(&numbers, &DataType::Timestamp(*unit, None)).unwrap();
                    let data = made
                        .to_data()
                        .into_builder()
                        .data_type(DataType::Timestamp(*unit, zone.clone()));
                    arrow_array::make_array(data.build().unwrap())
                }
                ty => arrow_cast::cast(&numbers, ty).unwrap(),
            }
        }
    }
}

/// Every row of the columns of `like` in words that casts to wider types do not change.
fn told_rows(batch: &RecordBatch, like: &RecordBatch) -> Vec<String> {
    let mut rows = vec![String::new(); batch.num_rows()];
    for field in like.schema().fields() {
        let Some(column) = batch.column_by_name(field.name()) else { continue };
        for (row, text) in rows.iter_mut().enumerate() {
            text.push_str(&value(column, field.data_type(), row));
            text.push(';');
        }
    }
    rows
}

/// One value, of which `like` says the members.
fn value(array: &ArrayRef, like: &DataType, row: usize) -> String {
    use arrow_array::cast::AsArray;
    if array.logical_nulls().is_some_and(|nulls| nulls.is_null(row)) {
        return "null".to_owned();
    }
    let item = |inside: &ArrayRef, like: &Field| {
        let each = (0..inside.len()).map(|i| value(inside, like.data_type(), i));
        format!("[{}]", each.collect::<Vec<_>>().join(","))
    };
    match (array.data_type(), like) {
        (DataType::Struct(_), DataType::Struct(members)) => {
            let member = |f: &Arc<Field>| {
                let column = array.as_struct().column_by_name(f.name());
                column.map(|column| value(column, f.data_type(), row))
            };
            format!("{:?}", members.iter().map(member).collect::<Vec<_>>())
        }
        (DataType::List(_), DataType::List(f) | DataType::LargeList(f)) => {
            item(&array.as_list::<i32>().value(row), f)
        }
        (DataType::LargeList(_), DataType::List(f) | DataType::LargeList(f)) => {
            item(&array.as_list::<i64>().value(row), f)
        }
        _ => {
            let one = array.slice(row, 1);
            // Seconds since 1970, or a number, or text.
            let one = match array.data_type() {
                DataType::Timestamp(_, zone) => {
                    let micros = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
                    let micros = arrow_cast::cast(&one, &micros).unwrap();
                    arrow_cast::cast(&micros, &DataType::Int64).unwrap()
                }
                ty if ty.is_numeric() => arrow_cast::cast(&one, &DataType::Float64).unwrap(),
                _ => arrow_cast::cast(&one, &DataType::Utf8).unwrap(),
            };
            arrow_cast::display::array_value_to_string(&one, 0).unwrap()
        }
    }
}

fn cases() -> u32 {
    if std::env::var_os("CI").is_some() { 2000 } else { 200 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn order_and_grouping_of_sources_change_nothing(
        (sources, order) in sources().prop_flat_map(|s| {
            let order = Just((0..s.len()).collect::<Vec<_>>()).prop_shuffle();
            (Just(s), order)
        }),
        cut in 0..6_usize,
    ) {
        let straight: Vec<_> = sources.iter().enumerate().collect();
        let shuffled: Vec<_> = order.iter().map(|i| (*i, &sources[*i])).collect();
        let (left, right) = shuffled.split_at(cut.min(shuffled.len()));
        let whole = summary(&straight);
        let grouped = summary(right).merge(summary(left));
        prop_assert_eq!(&whole, &grouped);
        for policy in [SchemaPolicy::default(), SchemaPolicy::default().with("lossy", "cast").unwrap().with("zone", "cast").unwrap()] {
            let request = Request { policy, ..Request::default() };
            let (one, other) = (freeze(&whole, &request), freeze(&grouped, &request));
            prop_assert_eq!(told(&one), told(&other));
            let (Ok(frozen), Ok(regrouped)) = (one, other) else { continue };
            for (fields, rows) in &sources {
                if !rows {
                    continue;
                }
                let schema = Arc::new(Schema::new(fields.clone()));
                let adapter = frozen.adapter(&schema).unwrap();
                let columns = fields.iter().map(|f| array(f.data_type(), 3)).collect();
                let options = RecordBatchOptions::new().with_row_count(Some(3));
                let batch = RecordBatch::try_new_with_options(schema, columns, &options).unwrap();
                let adapted = adapter.apply(&batch).unwrap();
                let again = regrouped.adapter(&batch.schema()).unwrap().apply(&batch).unwrap();
                prop_assert_eq!(&adapted, &again);
                // Where numbers may become text, the text is not for this test to know.
                if request.policy == SchemaPolicy::default() {
                    prop_assert_eq!(told_rows(&adapted, &batch), told_rows(&batch, &batch));
                }
                prop_assert!(Arc::ptr_eq(&adapted.schema(), frozen.schema()));
                prop_assert_eq!(adapted.num_rows(), 3);
                for (field, column) in frozen.schema().fields().iter().zip(adapted.columns()) {
                    prop_assert!(field.is_nullable() || column.logical_null_count() == 0);
                    // What the source has is there with the same text.
                    let Some((at, old)) = fields.find(field.name()) else { continue };
                    if old.data_type() == field.data_type() {
                        prop_assert_eq!(&batch.column(at).to_data(), &column.to_data());
                    }
                }
            }
        }
    }
}

#[test]
fn a_source_that_does_not_adapt_is_refused_and_nothing_is_inferred_again() {
    let schema = |fields: Vec<Field>| Schema::new(fields);
    let int = |name: &str, null| Field::new(name, DataType::Int32, null);
    let frozen = freeze(
        &Summary::of(&schema(vec![int("a", false), int("b", true)]), "a.parquet", true),
        &Request::default(),
    )
    .unwrap();
    assert!(frozen.adapter(&schema(vec![int("b", false), int("a", false)])).is_ok());
    assert!(frozen.adapter(&schema(vec![int("a", false)])).is_ok());
    for (odd, says) in [
        (vec![int("a", true)], "may be null"),
        (vec![int("b", true)], "is missing"),
        (vec![int("a", false), int("c", false)], "would be lost"),
        (vec![Field::new("a", DataType::Int64, false)], "incompatible types"),
        (vec![int("a", false), int("a", false)], "occurs twice"),
    ] {
        let e = frozen.adapter(&schema(odd)).unwrap_err();
        assert!(e.to_string().contains(says), "{e}");
    }
}

#[test]
fn equal_names_of_other_cases_are_one_column_if_asked() {
    let source = |name: &str| {
        Summary::of(&Schema::new(vec![Field::new(name, DataType::Int32, true)]), name, true)
    };
    let policy = SchemaPolicy { case: super::Case::Insensitive, ..SchemaPolicy::default() };
    let request = Request { policy, ..Request::default() };
    let frozen = freeze(&source("Id").merge(source("ID")), &request).unwrap();
    assert_eq!(frozen.schema().fields().len(), 1);
    assert_eq!(frozen.schema().field(0).name(), "ID");
}

#[test]
fn a_table_says_which_columns_there_are() {
    let long = |name: &str| Field::new(name, DataType::Int64, true);
    let schema = |fields: Vec<Field>| Arc::new(Schema::new(fields));
    let one = Summary::of(&schema(vec![long("extra"), long("B")]), "one", true);
    let two = Summary::of(&schema(vec![long("a"), long("B")]), "two", true);
    let summary = one.merge(two);
    let text = Field::new("absent", DataType::Utf8, true);
    let table = Some(schema(vec![long("a"), text, long("b")]));
    let request = Request { table, ..Request::default() };
    let frozen = freeze(&summary, &request).unwrap();
    let names: Vec<_> = frozen.schema().fields().iter().map(|field| field.name()).collect();
    assert_eq!(names, ["a", "absent", "B"]);
    assert_eq!(frozen.schema().field(1).data_type(), &DataType::Utf8);
    let columns = Some(vec!["extra".to_owned()]);
    let refused = freeze(&summary, &Request { columns, ..request }).unwrap_err();
    assert_eq!(refused.kind(), Kind::UnknownColumn);
}
