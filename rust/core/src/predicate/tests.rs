//! Predicates against a schema, compared with what each row says by eye.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray, StructArray,
    TimestampMicrosecondArray,
};
use arrow_schema::{DataType, Field};
use plait_base::Kind;
use proptest::prelude::*;

use super::Predicate;

fn batch() -> RecordBatch {
    let host: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("b"), Some("ab")]));
    let tags = StructArray::from(vec![(Arc::new(Field::new("host", DataType::Utf8, true)), host)]);
    RecordBatch::try_from_iter([
        ("i", Arc::new(Int64Array::from(vec![Some(1), Some(2), None, Some(-3)])) as ArrayRef),
        ("f", Arc::new(Float64Array::from(vec![f64::NAN, -0.0, 1.5, f64::INFINITY]))),
        ("s", Arc::new(StringArray::from(vec!["api", "it's", "", "apis"]))),
        ("b", Arc::new(BooleanArray::from(vec![Some(true), Some(false), None, Some(true)]))),
        ("t", Arc::new(TimestampMicrosecondArray::from(vec![0, 1_000_000, 2_000_000, 3_500_000]))),
        ("tags", Arc::new(tags)),
    ])
    .unwrap()
}

/// The rows for which `text` holds.
fn rows(text: &str) -> Vec<usize> {
    let batch = batch();
    let filter = Predicate::try_parse(text).unwrap().bind(&batch.schema()).unwrap();
    let holds = filter.holds(batch.columns(), batch.num_rows()).unwrap();
    (0..4).filter(|row| holds.value(*row)).collect()
}

#[test]
fn every_condition_holds_for_the_rows_that_say_so() {
    for (text, expected) in [
        ("i > 1", vec![1]),
        ("i >= 1 and i <= 2", vec![0, 1]),
        ("i != 1", vec![1, 3]),
        ("i <> 1 AND i < 0", vec![3]),
        ("i IN (1, -3, 7)", vec![0, 3]),
        ("i not in (1, 2)", vec![3]),
        ("i between -3 and 1", vec![0, 3]),
        ("i IS NULL", vec![2]),
        ("i is not null", vec![0, 1, 3]),
        ("f = 0", vec![1]),
        ("f > 1.5", vec![0, 3]),
        ("f = NaN", vec![0]),
        ("f <= 1.5", vec![1, 2]),
        ("s LIKE 'api%'", vec![0, 3]),
        ("s like 'api'", vec![0]),
        ("s LIKE '%'", vec![0, 1, 2, 3]),
        ("s = 'it''s'", vec![1]),
        ("s = ''", vec![2]),
        ("s = api", vec![0]),
        ("b = true", vec![0, 3]),
        ("t >= 1970-01-01 00:00:01 AND t < '1970-01-01 00:00:03.5'", vec![1, 2]),
        ("tags.host = 'a'", vec![0]),
        ("\"tags\".\"host\" IS NULL", vec![1]),
        ("tags.host LIKE 'a%'", vec![0, 3]),
    ] {
        assert_eq!(rows(text), expected, "{text}");
    }
}

#[test]
fn what_is_not_understood_is_an_error_with_its_place() {
    for text in [
        "",
        "i",
        "i >",
        "i > 1 OR i < 0",
        "i > 1 AND",
        "i IN ()",
        "i IN (1",
        "i BETWEEN 1",
        "i = NULL",
        "s LIKE '%x'",
        "s LIKE 'a_b%'",
        "s = 'open",
        "upper(s) = 'A'",
        "NOT i = 1",
    ] {
        let parsed = Predicate::try_parse(text);
        assert!(
            parsed.is_err_and(|e| e.kind() == Kind::InvalidArgument && e.hint().is_some()),
            "{text}"
        );
    }
    let schema = batch().schema();
    for (text, kind) in [
        ("x = 1", Kind::UnknownColumn),
        ("i = 'one'", Kind::InvalidArgument),
        ("i LIKE '1%'", Kind::InvalidArgument),
        ("tags = 1", Kind::UnsupportedKey),
    ] {
        let bound = Predicate::try_parse(text).unwrap().bind(&schema);
        assert_eq!(bound.unwrap_err().kind(), kind, "{text}");
    }
}

proptest! {
    #[test]
    fn a_condition_that_holds_for_a_value_can_hold_between_bounds_of_it(
        values in prop::collection::vec(-5_i64..5, 1..6), asked in -6_i64..6, other in -6_i64..6,
    ) {
        let array: ArrayRef = Arc::new(Int64Array::from(values.clone()));
        let schema = RecordBatch::try_from_iter([("i", Arc::clone(&array))]).unwrap().schema();
        let bound = |value: Option<&i64>| Arc::new(Int64Array::from(vec![value.copied()])) as ArrayRef;
        let (least, greatest) = (bound(values.iter().min()), bound(values.iter().max()));
        for text in [
            format!("i < {asked}"), format!("i <= {asked}"), format!("i = {asked}"),
            format!("i != {asked}"), format!("i >= {asked}"), format!("i > {asked}"),
            format!("i IN ({asked}, {other})"), format!("i NOT IN ({asked}, {other})"),
            format!("i BETWEEN {asked} AND {other}"), "i IS NULL".into(), "i IS NOT NULL".into(),
        ] {
            let filter = Predicate::try_parse(&text).unwrap().bind(&schema).unwrap();
            let holds = filter.holds(&[Arc::clone(&array)], array.len()).unwrap();
            let condition = &filter.conditions()[0];
            let can = condition.can_hold(&least, &greatest).unwrap()[0];
            prop_assert!(can || holds.count_set_bits() == 0, "{text} of {values:?}");
            // Bounds that are not known exclude nothing but nulls.
            let unknown = condition.can_hold(&bound(None), &bound(None)).unwrap()[0];
            prop_assert!(unknown || holds.count_set_bits() == 0);
            let expected = |value: i64| match text.split_once(' ').unwrap().1.split(' ').next().unwrap() {
                "<" => value < asked, "<=" => value <= asked, "=" => value == asked,
                "!=" => value != asked, ">=" => value >= asked, ">" => value > asked,
                "IN" => value == asked || value == other,
                "NOT" => value != asked && value != other,
                "BETWEEN" => asked <= value && value <= other,
                _ => text.ends_with("NOT NULL"),
            };
            for (row, value) in values.iter().enumerate() {
                prop_assert_eq!(holds.value(row), expected(*value), "{} of {}", text, value);
            }
        }
    }
}
