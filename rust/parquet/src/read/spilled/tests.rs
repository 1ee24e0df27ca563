//! Pieces come back as they were pushed, places are used again, and slices are written alone.

use arrow_array::types::Int32Type;
use arrow_array::{
    DictionaryArray, Int64Array, ListArray, StringArray, StringViewArray, StructArray,
};
use arrow_schema::Field;

use super::*;

fn space() -> (Arc<SpillSpace>, Context) {
    let context = Context::new(1 << 24);
    (Arc::new(SpillSpace::new(None, &context)), context)
}

/// Rows with a column of each kind, of which some are null.
fn rows(count: i32) -> RecordBatch {
    let text = |n: i32| (n % 5 != 0).then(|| format!("a text of more than twelve bytes {n}"));
    let numbers = Int64Array::from_iter((0..count).map(|n| (n % 3 != 0).then_some(i64::from(n))));
    let views: StringViewArray = (0..count).map(text).collect();
    let coded: DictionaryArray<Int32Type> =
        (0..count).map(|n| text(n % 50)).collect::<Vec<_>>().iter().map(Option::as_deref).collect();
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(
        (0..count).map(|n| (n % 7 != 0).then(|| (0..n % 4).map(Some))),
    );
    let inner: ArrayRef = Arc::new(views.clone());
    let field = Arc::new(Field::new("view", DataType::Utf8View, true));
    let columns: [(&str, ArrayRef); 6] = [
        ("n", Arc::new(numbers)),
        ("text", Arc::new((0..count).map(text).collect::<StringArray>())),
        ("view", Arc::new(views)),
        ("coded", Arc::new(coded)),
        ("list", Arc::new(lists)),
        ("struct", Arc::new(StructArray::from(vec![(field, inner)]))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
        .unwrap()
}

#[test]
fn pieces_come_back_in_their_order() {
    let (space, context) = space();
    let batch = rows(1000);
    assert!(can_spill(batch.schema().fields()));
    let mut spilled = SpilledRows::new(&space);
    for size in [1, 7, 300, 1000, 5000] {
        assert!(spilled.is_empty());
        spilled.push(&batch, size).unwrap();
        let mut at = 0;
        while let Some((piece, bytes)) = spilled.next().unwrap() {
            assert_eq!(piece, batch.slice(at, piece.num_rows()), "also its schema");
            assert!(bytes > 0 && piece.num_rows() <= size);
            at += piece.num_rows();
        }
        assert_eq!(at, 1000);
    }
    assert!(context.counters().spilled_bytes() > 0 && space.error().is_none());
}

#[test]
fn a_piece_has_no_bytes_of_other_rows() {
    let batch = rows(10_000);
    let piece = encoded(&trimmed(&batch.slice(5000, 10)).unwrap()).unwrap();
    let alone = encoded(&rows(10)).unwrap();
    assert!(piece.len() < 2 * alone.len(), "{} and {}", piece.len(), alone.len());
}

#[test]
fn places_are_used_again() {
    let (space, _) = space();
    let batch = rows(500);
    let (mut one, mut other) = (SpilledRows::new(&space), SpilledRows::new(&space));
    let end = || space.space.lock().unwrap().end;
    one.push(&batch, 50).unwrap();
    let of_one = end();
    for _ in 0..20 {
        other.push(&batch, 50).unwrap();
        while other.next().unwrap().is_some() {}
    }
    assert!(end() <= 2 * of_one + of_one / 4, "{} and {of_one}", end());
    let first = one.next().unwrap().unwrap().0;
    assert_eq!(first, batch.slice(0, 50), "what waits is not overwritten");
}

#[test]
fn lists_of_views_and_dictionaries_are_not_spilled() {
    let list = |inner: DataType| DataType::List(Arc::new(Field::new("item", inner, true)));
    let coded = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    for (data_type, can) in [
        (list(DataType::Utf8), true),
        (list(list(DataType::Int64)), true),
        (list(DataType::Utf8View), false),
        (list(coded.clone()), false),
        (coded, true),
    ] {
        let fields = Fields::from(vec![Field::new("c", data_type.clone(), true)]);
        assert_eq!(can_spill(&fields), can, "{data_type}");
    }
    assert!(!can_spill(&Fields::empty()));
}

#[test]
fn types_nested_deeper_than_arrow_ipc_reads_are_not_spilled() {
    let mut data_type = DataType::Int32;
    for depth in 0..200 {
        let fields = Fields::from(vec![Field::new("c", data_type.clone(), true)]);
        if depth < 20 {
            assert!(can_spill(&fields), "{depth}");
            let schema = Arc::new(Schema::new(fields));
            let batch = RecordBatch::new_empty(schema);
            assert!(decoded(encoded(&batch).unwrap().into()).is_ok(), "{depth}");
        } else if depth > 30 {
            assert!(!can_spill(&fields), "{depth}");
        }
        let inner = Arc::new(Field::new("f", data_type, true));
        data_type = match depth % 2 {
            0 => DataType::List(inner),
            _ => DataType::Struct(Fields::from(vec![inner])),
        };
    }
}
