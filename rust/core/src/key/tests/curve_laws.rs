//! The laws of curves: the order is that of slow indexes, and equal keys have equal values.

use std::cmp::Ordering;

use arrow_array::ArrayRef;
use arrow_buffer::i256;
use proptest::prelude::*;

use super::laws::{TYPES, arrow, compare, encode_dense, rows, shape, value};
use super::*;
use plait_base::Kind;

/// The coordinate of a value, by arithmetic on wide integers.
fn coordinate(column: &KeyColumn, value: &KeyValue) -> u64 {
    let integer = |value: i256| {
        let clamped = value.clamp(i256::from(i64::MIN), i256::from(i64::MAX));
        (clamped.to_i128().unwrap() + (1 << 63)) as u64
    };
    // The place among all floats, from the smallest on.
    let float = |value: f64| match value {
        _ if value.is_nan() => (0x7FF8 << 48) + (1 << 63),
        0.0 => 1 << 63,
        _ if value < 0.0 => u64::MAX - value.to_bits(),
        _ => value.to_bits() + (1 << 63),
    };
    let bytes = |bytes: &[u8]| {
        (0..8).fold(0, |number, i| number << 8 | u64::from(bytes.get(i).copied().unwrap_or(0)))
    };
    match value {
        KeyValue::Null if column.nulls == Nulls::First => 0,
        KeyValue::Null => u64::MAX,
        KeyValue::Boolean(value) => u64::from(*value) << 63,
        KeyValue::Int(value) => integer(i256::from(*value)),
        KeyValue::UInt(value) if column.ty == KeyType::UInt64 => *value,
        KeyValue::UInt(value) => integer(i256::from_i128(i128::from(*value))),
        KeyValue::Float32(value) => float(f64::from(*value)),
        KeyValue::Float(value) => float(*value),
        KeyValue::Decimal { unscaled, .. } => integer(*unscaled),
        KeyValue::Int96 { day, nanos } => {
            let day_nanos = 86_400_000_000_000_i128;
            let nanos = i128::from(*nanos).min(day_nanos - 1);
            integer(i256::from_i128((i128::from(*day) - 2_440_588) * day_nanos + nanos))
        }
        KeyValue::Text(value) => bytes(value.as_bytes()),
        KeyValue::Bytes(value) => bytes(value),
    }
}

/// The bits of the index, one by one.
fn z_order(columns: &[KeyColumn], row: &[KeyValue]) -> Vec<u8> {
    let coordinates: Vec<u64> =
        columns.iter().zip(row).map(|(column, value)| coordinate(column, value)).collect();
    let levels = (0..64).rev();
    levels.flat_map(|level| coordinates.iter().map(move |c| (c >> level & 1) as u8)).collect()
}

fn any_curve(start: usize) -> impl Strategy<Value = Curve> {
    (prop::sample::select(&CurveKind::ALL[..]), any::<bool>())
        .prop_map(move |(kind, descending)| Curve { kind, start, descending })
}

/// Columns before a curve and in it.
fn any_shape() -> impl Strategy<Value = KeyShape> {
    let types: Vec<KeyType> =
        TYPES.into_iter().filter(|ty| !matches!(ty, KeyType::Rank { .. })).collect();
    let column = (prop::sample::select(types), any::<bool>(), any::<bool>());
    (prop::collection::vec(column, 2..6), 0_usize..2).prop_flat_map(|(columns, before)| {
        let start = before.min(columns.len() - 2);
        let columns: Vec<KeyColumn> = columns
            .into_iter()
            .enumerate()
            .map(|(i, (ty, descending, first))| KeyColumn {
                name: format!("c{i}"),
                ty,
                descending: descending && i < start,
                nulls: if first { Nulls::First } else { Nulls::Last },
            })
            .collect();
        any_curve(start).prop_map(move |curve| {
            KeyShape::try_new(columns.clone()).unwrap().with_curve(Some(curve)).unwrap()
        })
    })
}

fn keys_of(shape: &KeyShape, rows: &[Vec<KeyValue>]) -> Vec<Vec<u8>> {
    let keys = encode_dense(shape, rows);
    (0..rows.len()).map(|row| keys.to_bytes(shape, row)).collect()
}

fn values_of(shape: &KeyShape) -> KeyShape {
    KeyShape::try_new(shape.columns().to_vec()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn keys_decode_and_are_equal_where_values_are(
        (shape, rows) in any_shape().prop_flat_map(|shape| {
            let rows = rows(shape.columns());
            (Just(shape), rows)
        })
    ) {
        let keys = keys_of(&shape, &rows);
        let arrays: Option<Vec<ArrayRef>> =
            shape.columns().iter().enumerate().map(|(i, c)| arrow(c.ty, &rows, i)).collect();
        if let Some(arrays) = arrays {
            prop_assert_eq!(encode_arrow(&shape, &arrays).unwrap(), encode_dense(&shape, &rows));
        }
        let plain = values_of(&shape);
        for (row, key) in rows.iter().zip(&keys) {
            let decoded = decode(&shape, key).unwrap();
            prop_assert_eq!(compare(&plain, &decoded, row), Ordering::Equal, "{:?}", decoded);
            prop_assert_eq!(&keys_of(&shape, &[decoded])[0], key);
            prop_assert_eq!(prefix_len(&shape, key, shape.parts()).unwrap(), key.len());
            let start = shape.plain().len();
            let leading = shape.leading(start).unwrap();
            let before = keys_of(&leading, &[row[..start].to_vec()]);
            prop_assert_eq!(&key[..prefix_len(&shape, key, start).unwrap()], &before[0]);
            if let Some(width) = shape.fixed_width() {
                prop_assert_eq!(key.len(), width);
            }
        }
        for (a, x) in rows.iter().zip(&keys) {
            for (b, y) in rows.iter().zip(&keys) {
                prop_assert_eq!(x == y, compare(&plain, a, b) == Ordering::Equal);
                let is_prefix = x.len() < y.len() && y.starts_with(x);
                prop_assert!(!is_prefix, "{:?} begins {:?}", x, y);
            }
        }
    }

    #[test]
    fn the_order_is_that_of_the_bits(
        (shape, rows) in any_shape().prop_flat_map(|shape| {
            let rows = rows(shape.columns());
            (Just(shape), rows)
        })
    ) {
        let curve = shape.curve().unwrap();
        let start = curve.start;
        let own = &shape.columns()[start..];
        let leading = shape.leading(start).unwrap();
        // What an index does not say comes after it, column by column.
        let behind: Vec<usize> = (start..shape.columns().len())
            .filter(|i| matches!(
                shape.columns()[*i].ty,
                KeyType::Bytes { .. } | KeyType::Int96
                    | KeyType::Decimal128 { .. } | KeyType::Decimal256 { .. }
            ))
            .collect();
        let keys = keys_of(&shape, &rows);
        for (a, x) in rows.iter().zip(&keys) {
            for (b, y) in rows.iter().zip(&keys) {
                let first = compare(&leading, &a[..start], &b[..start]);
                let nulls = |row: &[KeyValue]| {
                    let marks = row[start..].iter().enumerate();
                    marks.fold(0, |all, (i, v)| all | u32::from(*v == KeyValue::Null) << i)
                };
                let index = match curve.kind {
                    CurveKind::ZOrder => z_order(own, &a[start..]).cmp(&z_order(own, &b[start..])),
                    // Of the Hilbert curve only that it goes on as the other does.
                    CurveKind::Hilbert if z_order(own, &a[start..]) != z_order(own, &b[start..]) => {
                        continue;
                    }
                    CurveKind::Hilbert => Ordering::Equal,
                };
                let of = |row: &[KeyValue]| behind.iter().map(|i| row[*i].clone()).collect::<Vec<_>>();
                let columns = behind.iter().map(|i| shape.columns()[*i].clone()).collect();
                let then = compare(&KeyShape::try_new(columns).unwrap(), &of(a), &of(b));
                let own = index.then(nulls(a).cmp(&nulls(b))).then(then);
                let own = if curve.descending { own.reverse() } else { own };
                prop_assert_eq!(x.cmp(y), first.then(own), "{:?} and {:?}", a, b);
            }
        }
    }

    #[test]
    fn any_bytes_are_a_key_of_a_curve_or_an_error(
        shape in any_shape(),
        key in prop::collection::vec(prop::sample::select(vec![0_u8, 1, 2, 127, 128, 255]), 0..60),
    ) {
        match decode(&shape, &key) {
            Ok(values) => {
                if !values.iter().any(|value| matches!(value, KeyValue::Bytes(_))) {
                    prop_assert_eq!(&keys_of(&shape, &[values])[0], &key);
                }
            }
            Err(e) => prop_assert_eq!(e.kind(), Kind::CorruptSource),
        }
        let _is_never_a_panic = shown_cut(&shape, shape.parts(), &key);
    }

    #[test]
    fn keys_without_marks_are_in_the_order_of_stored_ones(
        curve in any_curve(0),
        types in prop::collection::vec(
            prop::sample::select(vec![KeyType::Int64, KeyType::Float32, KeyType::Bytes { text: true }]),
            2..4,
        ),
        seed in prop::collection::vec(any::<u64>(), 1..6),
    ) {
        let columns = types.iter().map(|ty| laws::column(*ty, false, Nulls::Last)).collect();
        let stored = shape(columns).with_curve(Some(curve)).unwrap();
        let rows: Vec<Vec<KeyValue>> = seed.iter().map(|seed| {
            types.iter().enumerate().map(|(i, ty)| match ty {
                KeyType::Int64 => KeyValue::Int((seed >> i) as i64),
                KeyType::Float32 => KeyValue::Float32((seed >> i) as f32 - 1e18),
                _ => KeyValue::Text(format!("{:x}", seed >> (8 * i))),
            }).collect()
        }).collect();
        let never = vec![(RankOf::Stored, false); types.len()];
        let ranks = Ranks::try_new(stored.clone(), never).unwrap();
        prop_assert!(ranks.lacks_null(0));
        let (long, short) = (keys_of(&stored, &rows), keys_of(ranks.shape(), &rows));
        prop_assert_eq!(ranks.shape().packs(), types.iter().all(|t| t.width().is_some()) && types.len() == 2);
        for (i, x) in short.iter().enumerate() {
            prop_assert_eq!(&ranks.translate(x).unwrap(), &long[i]);
            prop_assert_eq!(ranks.rank(&long[i]).unwrap(), Some(x.clone()));
            for (j, y) in short.iter().enumerate() {
                prop_assert_eq!(x.cmp(y), long[i].cmp(&long[j]));
            }
        }
        let mut with_null = rows;
        with_null[0][0] = KeyValue::Null;
        let key = keys_of(&stored, &with_null).remove(0);
        prop_assert_eq!(ranks.rank(&key).unwrap(), None);
        let null = Column { present: None, values: Values::None };
        prop_assert!(encode(ranks.shape(), 1, &vec![null; types.len()]).is_err());
    }

    #[test]
    fn what_all_indexes_begin_with_is_left_out(
        curve in any_curve(0),
        base in prop_oneof![any::<i64>(), -9_i64..9],
        bits in 0_u32..64,
        seed in prop::collection::vec(prop::collection::vec(any::<u64>(), 3), 1..6),
        count in 2_usize..4,
    ) {
        let ty = KeyType::Int64;
        let columns = (0..count).map(|_| laws::column(ty, false, Nulls::Last)).collect();
        let stored = shape(columns).with_curve(Some(curve)).unwrap();
        let span = u64::MAX.checked_shr(64 - bits).unwrap_or(0).min(i64::MAX.abs_diff(base));
        let rows: Vec<Vec<KeyValue>> = seed.iter().map(|row| {
            let value = |seed: &u64| base.wrapping_add_unsigned(seed.checked_rem(span).unwrap_or(0));
            row.iter().take(count).map(|seed| KeyValue::Int(value(seed))).collect()
        }).collect();
        let of = RankOf::Numbers { base: base.cast_unsigned() ^ 1 << 63, span };
        let ranks = Ranks::try_new(stored.clone(), vec![(of.clone(), false); count]).unwrap();
        let (long, short) = (keys_of(&stored, &rows), keys_of(ranks.shape(), &rows));
        if span < 1 << 20 && base >= 0 && (base.cast_unsigned() + span) >> 40 == base.cast_unsigned() >> 40 {
            prop_assert!(ranks.shape().packs(), "40 bits of 3 columns have 15 bytes");
        }
        for (i, x) in short.iter().enumerate() {
            prop_assert_eq!(decode(ranks.shape(), x).unwrap(), rows[i].clone());
            prop_assert_eq!(&ranks.translate(x).unwrap(), &long[i]);
            prop_assert_eq!(ranks.rank(&long[i]).unwrap(), Some(x.clone()));
            for (j, y) in short.iter().enumerate() {
                prop_assert_eq!(x.cmp(y), long[i].cmp(&long[j]));
            }
        }
        // Where a column may be null, all keys stay as they are stored.
        let mut nulls = vec![(of, false); count];
        nulls[1].1 = true;
        let ranks = Ranks::try_new(stored.clone(), nulls).unwrap();
        prop_assert_eq!(ranks.shape(), &stored);
        prop_assert_eq!(ranks.of(0), &RankOf::Stored);
    }

    #[test]
    fn numbers_have_the_index_of_their_values(
        (ty, list) in prop::sample::select(vec![
            KeyType::Boolean, KeyType::Int32, KeyType::Int64, KeyType::UInt32, KeyType::UInt64,
            KeyType::Float16, KeyType::Float32, KeyType::Float64,
        ]).prop_flat_map(|ty| (Just(ty), prop::collection::vec(value(ty), 1..6)))
    ) {
        let columns = vec![laws::column(ty, false, Nulls::Last); 2];
        let curve = Curve { kind: CurveKind::ZOrder, start: 0, descending: false };
        let shape = shape(columns).with_curve(Some(curve)).unwrap();
        let rows: Vec<Vec<KeyValue>> = list.iter().map(|v| vec![v.clone(), v.clone()]).collect();
        let values: Vec<KeyValue> =
            list.iter().filter(|value| **value != KeyValue::Null).cloned().collect();
        let mut found = Vec::new();
        for value in &values {
            // The number is what a key of one column has behind its marker.
            let one = laws::shape(vec![laws::column(ty, false, Nulls::Last)]);
            let key = keys_of(&one, &[vec![value.clone()]]).remove(0);
            found.push(key[1..].iter().fold(0, |number, byte| number << 8 | u64::from(*byte)));
        }
        let present: Vec<bool> = list.iter().map(|value| *value != KeyValue::Null).collect();
        let column = Column { present: Some(&present), values: Values::Numbers(&found) };
        let keys = encode(&shape, list.len(), &[column, column]).unwrap();
        prop_assert_eq!(keys, encode_dense(&shape, &rows));
    }
}

#[test]
fn cuts_of_a_curve_show_where_its_cell_begins() {
    let columns = vec![
        laws::column(KeyType::Int32, false, Nulls::Last),
        laws::column(KeyType::Int64, false, Nulls::Last),
        laws::column(KeyType::Bytes { text: true }, false, Nulls::Last),
    ];
    let curve = Curve { kind: CurveKind::Hilbert, start: 1, descending: false };
    let shape = laws::shape(columns).with_curve(Some(curve)).unwrap();
    let row = vec![KeyValue::Int(7), KeyValue::Int(-3), KeyValue::Text("long text".into())];
    let key = keys_of(&shape, &[row]).remove(0);
    let (seven, three) = (Some(ShownValue::Int(7)), Some(ShownValue::Int(-3)));
    let text = |text: &str| Some(ShownValue::Text(text.to_owned()));
    let whole = [seven.clone(), three.clone(), text("long text")];
    assert_eq!(shown_values(&shape, &key).unwrap(), whole);
    assert_eq!(shown_cut(&shape, 2, &key[..21]), [seven.clone(), three, text("long tex")]);
    assert_eq!(shown_cut(&shape, 1, &key[..5]), [seven]);
    assert_eq!(shown_cut(&shape, 2, &key[..5]).len(), 3);
    assert!(shown_cut(&shape, 2, &[9]).is_empty());
}

#[test]
fn widened_columns_keep_their_place() {
    let curve = Curve { kind: CurveKind::Hilbert, start: 0, descending: false };
    let key = |ty: KeyType, value: KeyValue| {
        let columns = vec![laws::column(ty, false, Nulls::Last); 2];
        let shape = laws::shape(columns).with_curve(Some(curve)).unwrap();
        keys_of(&shape, &[vec![value.clone(), value]]).remove(0)
    };
    for value in [-5, 0, 7, i64::from(i32::MIN)] {
        let value = KeyValue::Int(value);
        assert_eq!(key(KeyType::Int32, value.clone()), key(KeyType::Int64, value));
    }
    for value in [-1.5_f32, 0.1, f32::INFINITY] {
        let (narrow, wide) = (KeyValue::Float32(value), KeyValue::Float(f64::from(value)));
        assert_eq!(key(KeyType::Float32, narrow), key(KeyType::Float64, wide));
    }
}
