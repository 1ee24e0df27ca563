//! The laws of key bytes, against an oracle that compares values.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::builder::StringDictionaryBuilder;
use arrow_array::types::{ArrowDictionaryKeyType, Int8Type, Int32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, Date32Array, Date64Array,
    Decimal32Array, Decimal64Array, Decimal128Array, Decimal256Array, DictionaryArray,
    DurationMillisecondArray, FixedSizeBinaryArray, Float16Array, Float32Array, Float64Array,
    Int8Array, Int16Array, Int32Array, Int64Array, LargeBinaryArray, LargeStringArray, NullArray,
    RunArray, StringArray, StringViewArray, Time32MillisecondArray, Time32SecondArray,
    Time64MicrosecondArray, Time64NanosecondArray, TimestampMicrosecondArray, TimestampSecondArray,
    UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow_buffer::i256;
use half::f16;
use proptest::prelude::*;

use super::*;
use plait_base::Kind;

pub(super) const TYPES: [KeyType; 16] = [
    KeyType::Null,
    KeyType::Boolean,
    KeyType::Int32,
    KeyType::Int64,
    KeyType::UInt32,
    KeyType::UInt64,
    KeyType::Float16,
    KeyType::Float32,
    KeyType::Float64,
    KeyType::Decimal128 { scale: 2 },
    KeyType::Decimal256 { scale: 2 },
    KeyType::Int96,
    KeyType::Bytes { text: true },
    KeyType::Bytes { text: false },
    KeyType::Rank { bytes: 1 },
    KeyType::Rank { bytes: 3 },
];

pub(super) fn column(ty: KeyType, descending: bool, nulls: Nulls) -> KeyColumn {
    KeyColumn { name: "a".to_owned(), ty, descending, nulls }
}

pub(super) fn shape(columns: Vec<KeyColumn>) -> KeyShape {
    let named = columns.into_iter().enumerate();
    KeyShape::try_new(named.map(|(i, c)| KeyColumn { name: format!("c{i}"), ..c }).collect())
        .unwrap()
}

// ---- the oracle ----

fn compare_values(a: &KeyValue, b: &KeyValue) -> Ordering {
    use KeyValue as V;
    let float = |a: f64, b: f64| match (a.is_nan(), b.is_nan()) {
        (false, false) => a.partial_cmp(&b).unwrap(),
        (a, b) => a.cmp(&b),
    };
    match (a, b) {
        (V::Boolean(a), V::Boolean(b)) => a.cmp(b),
        (V::Int(a), V::Int(b)) => a.cmp(b),
        (V::UInt(a), V::UInt(b)) => a.cmp(b),
        (V::Float32(a), V::Float32(b)) => float(f64::from(*a), f64::from(*b)),
        (V::Float(a), V::Float(b)) => float(*a, *b),
        (V::Decimal { unscaled: a, .. }, V::Decimal { unscaled: b, .. }) => a.cmp(b),
        (V::Int96 { day: a, nanos: n }, V::Int96 { day: b, nanos: m }) => (a, n).cmp(&(b, m)),
        (V::Text(a), V::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
        (V::Bytes(a), V::Bytes(b)) => a.cmp(b),
        _ => panic!("{a:?} and {b:?} are not of one type"),
    }
}

pub(super) fn compare(shape: &KeyShape, a: &[KeyValue], b: &[KeyValue]) -> Ordering {
    for (column, (a, b)) in shape.columns().iter().zip(a.iter().zip(b)) {
        let null_side =
            if column.nulls == Nulls::First { Ordering::Less } else { Ordering::Greater };
        let order = match (a, b) {
            (KeyValue::Null, KeyValue::Null) => Ordering::Equal,
            (KeyValue::Null, _) => null_side,
            (_, KeyValue::Null) => null_side.reverse(),
            (a, b) if column.descending => compare_values(b, a),
            (a, b) => compare_values(a, b),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

// ---- values ----

pub(super) fn value(ty: KeyType) -> BoxedStrategy<KeyValue> {
    use KeyValue as V;
    fn small_or<T: std::fmt::Debug + Clone + 'static>(
        few: Vec<T>,
        any: impl Strategy<Value = T> + 'static,
    ) -> BoxedStrategy<T> {
        prop_oneof![prop::sample::select(few), any].boxed()
    }
    let decimal = |unscaled: i256| V::Decimal { unscaled, scale: 2 };
    let some = match ty {
        KeyType::Null => return Just(V::Null).boxed(),
        KeyType::Boolean => any::<bool>().prop_map(V::Boolean).boxed(),
        KeyType::Int32 => small_or(vec![i32::MIN, -1, 0, 1, i32::MAX], any::<i32>())
            .prop_map(|v| V::Int(i64::from(v)))
            .boxed(),
        KeyType::Int64 => {
            small_or(vec![i64::MIN, -1, 0, 1, i64::MAX], any::<i64>()).prop_map(V::Int).boxed()
        }
        KeyType::UInt32 => small_or(vec![0, 1, 1 << 31, u32::MAX], any::<u32>())
            .prop_map(|v| V::UInt(u64::from(v)))
            .boxed(),
        KeyType::UInt64 => {
            small_or(vec![0, 1, 1 << 63, u64::MAX], any::<u64>()).prop_map(V::UInt).boxed()
        }
        KeyType::Float16 => {
            small_or(vec![0x0000, 0x8000, 0x7C00, 0xFC00, 0x7E00, 0xFE01], any::<u16>())
                .prop_map(|bits| V::Float32(f16::from_bits(bits).to_f32()))
                .boxed()
        }
        KeyType::Float32 => {
            small_or(vec![0, 1 << 31, 0x7F80_0000, 0xFF80_0000, 0xFFC0_0001], any::<u32>())
                .prop_map(|bits| V::Float32(f32::from_bits(bits)))
                .boxed()
        }
        KeyType::Float64 => small_or(
            vec![0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, -5e-324],
            any::<u64>().prop_map(f64::from_bits),
        )
        .prop_map(V::Float)
        .boxed(),
        KeyType::Decimal128 { .. } => {
            small_or(vec![i128::MIN, -256, -1, 0, 1, 128, i128::MAX], any::<i128>())
                .prop_map(move |v| decimal(i256::from_i128(v)))
                .boxed()
        }
        KeyType::Decimal256 { .. } => small_or(
            vec![i256::MIN, i256::MINUS_ONE, i256::ZERO, i256::MAX],
            (any::<u128>(), any::<i128>()).prop_map(|(low, high)| i256::from_parts(low, high)),
        )
        .prop_map(decimal)
        .boxed(),
        KeyType::Int96 => (small_or(vec![i32::MIN, -1, 0, i32::MAX], any::<i32>()), 0..3_u64)
            .prop_map(|(day, nanos)| V::Int96 { day, nanos: nanos * 43_200_000_000_000 })
            .boxed(),
        KeyType::Bytes { text: true } => "[\u{0}\u{1}aé]{0,4}|.{0,12}".prop_map(V::Text).boxed(),
        KeyType::Bytes { text: false } => {
            let byte = prop::sample::select(vec![0x00, 0x01, 0x02, 0x61, 0xFE, 0xFF]);
            prop::collection::vec(byte, 0..6).prop_map(V::Bytes).boxed()
        }
        KeyType::Rank { bytes } => {
            let max = (1_u64 << (8 * u32::from(bytes))) - 1;
            return small_or(vec![0, 1, max], 0..max).prop_map(V::UInt).boxed();
        }
    };
    prop_oneof![1 => Just(V::Null), 4 => some].boxed()
}

pub(super) fn rows(columns: &[KeyColumn]) -> impl Strategy<Value = Vec<Vec<KeyValue>>> + use<> {
    let row: Vec<_> = columns.iter().map(|column| value(column.ty)).collect();
    prop::collection::vec(row, 1..8)
}

pub(super) fn any_column() -> impl Strategy<Value = KeyColumn> {
    let nulls = prop::sample::select(vec![Nulls::First, Nulls::Last]);
    (prop::sample::select(TYPES.to_vec()), any::<bool>(), nulls)
        .prop_map(|(ty, descending, nulls)| column(ty, descending, nulls))
}

// ---- both ways in ----

/// Dense values as a Parquet reader has them.
#[derive(Default)]
pub(super) struct Dense {
    pub(super) present: Vec<bool>,
    pub(super) booleans: Vec<bool>,
    pub(super) int32: Vec<i32>,
    pub(super) int64: Vec<i64>,
    int96: Vec<[u8; 12]>,
    pub(super) float: Vec<f32>,
    pub(super) double: Vec<f64>,
    pub(super) bytes: Vec<Vec<u8>>,
    ranks: Vec<u64>,
}

#[expect(clippy::cast_possible_truncation, reason = "values come from 32-bit ones")]
pub(super) fn dense(ty: KeyType, values: &[KeyValue]) -> Dense {
    let mut dense = Dense::default();
    for value in values {
        dense.present.push(*value != KeyValue::Null);
        match (value, ty) {
            (KeyValue::Null, _) => {}
            (KeyValue::Boolean(v), _) => dense.booleans.push(*v),
            (KeyValue::Int(v), KeyType::Int32) => dense.int32.push(*v as i32),
            (KeyValue::Int(v), _) => dense.int64.push(*v),
            (KeyValue::UInt(v), KeyType::UInt32) => dense.int32.push(*v as i32),
            (KeyValue::UInt(v), KeyType::Rank { .. }) => dense.ranks.push(*v),
            (KeyValue::UInt(v), _) => dense.int64.push(v.cast_signed()),
            (KeyValue::Float32(v), KeyType::Float16) => {
                dense.bytes.push(f16::from_f32(*v).to_le_bytes().to_vec());
            }
            (KeyValue::Float32(v), _) => dense.float.push(*v),
            (KeyValue::Float(v), _) => dense.double.push(*v),
            (KeyValue::Decimal { unscaled, .. }, _) => {
                // As few bytes as hold the value, as writers do.
                let bytes = unscaled.to_be_bytes();
                let redundant =
                    |w: &[u8]| (w[0] == 0x00 && w[1] < 0x80) || (w[0] == 0xFF && w[1] >= 0x80);
                let start = bytes.windows(2).take_while(|w| redundant(w)).count();
                dense.bytes.push(bytes[start..].to_vec());
            }
            (KeyValue::Int96 { day, nanos }, _) => {
                let mut bytes = [0; 12];
                bytes[..8].copy_from_slice(&nanos.to_le_bytes());
                bytes[8..].copy_from_slice(&day.to_le_bytes());
                dense.int96.push(bytes);
            }
            (KeyValue::Bytes(v), _) => dense.bytes.push(v.clone()),
            (KeyValue::Text(v), _) => dense.bytes.push(v.clone().into_bytes()),
        }
    }
    dense
}

pub(super) fn encode_dense(shape: &KeyShape, rows: &[Vec<KeyValue>]) -> Keys {
    let of = |i: usize| rows.iter().map(|row| row[i].clone()).collect::<Vec<_>>();
    let types = shape.columns().iter().map(|column| column.ty).enumerate();
    let lists: Vec<(KeyType, Dense)> = types.map(|(i, ty)| (ty, dense(ty, &of(i)))).collect();
    let slices: Vec<Vec<&[u8]>> =
        lists.iter().map(|(_, d)| d.bytes.iter().map(Vec::as_slice).collect()).collect();
    let columns: Vec<Column<'_>> = lists
        .iter()
        .zip(&slices)
        .map(|((ty, d), slices)| {
            let values = match ty {
                KeyType::Null => Values::None,
                KeyType::Boolean => Values::Boolean(&d.booleans),
                KeyType::Int32 | KeyType::UInt32 => Values::Int32(&d.int32),
                KeyType::Int64 | KeyType::UInt64 => Values::Int64(&d.int64),
                KeyType::Int96 => Values::Int96(&d.int96),
                KeyType::Float32 => Values::Float(&d.float),
                KeyType::Float64 => Values::Double(&d.double),
                KeyType::Rank { .. } => Values::Numbers(&d.ranks),
                KeyType::Float16
                | KeyType::Decimal128 { .. }
                | KeyType::Decimal256 { .. }
                | KeyType::Bytes { .. } => Values::Bytes(slices),
            };
            let all = d.present.iter().all(|present| *present);
            Column { present: (!all).then_some(&d.present), values }
        })
        .collect();
    encode(shape, rows.len(), &columns).unwrap()
}

/// `None` for INT96 and ranks, which Arrow does not have.
#[expect(clippy::cast_possible_truncation, reason = "values come from 32-bit ones")]
pub(super) fn arrow(ty: KeyType, rows: &[Vec<KeyValue>], i: usize) -> Option<ArrayRef> {
    macro_rules! array {
        ($array:ty, $($pattern:pat => $value:expr),+) => {
            rows.iter().map(|row| match &row[i] {
                KeyValue::Null => None,
                $($pattern => Some($value),)+
                other => panic!("{other:?} is no {ty}"),
            }).collect::<$array>()
        };
    }
    Some(match ty {
        KeyType::Null => Arc::new(NullArray::new(rows.len())),
        KeyType::Boolean => Arc::new(array!(BooleanArray, KeyValue::Boolean(v) => *v)),
        KeyType::Int32 => Arc::new(array!(Int32Array, KeyValue::Int(v) => *v as i32)),
        KeyType::Int64 => Arc::new(array!(Int64Array, KeyValue::Int(v) => *v)),
        KeyType::UInt32 => Arc::new(array!(UInt32Array, KeyValue::UInt(v) => *v as u32)),
        KeyType::UInt64 => Arc::new(array!(UInt64Array, KeyValue::UInt(v) => *v)),
        KeyType::Float16 => {
            Arc::new(array!(Float16Array, KeyValue::Float32(v) => f16::from_f32(*v)))
        }
        KeyType::Float32 => Arc::new(array!(Float32Array, KeyValue::Float32(v) => *v)),
        KeyType::Float64 => Arc::new(array!(Float64Array, KeyValue::Float(v) => *v)),
        KeyType::Decimal128 { .. } => {
            let values = array!(
                Decimal128Array, KeyValue::Decimal { unscaled, .. } => unscaled.to_i128().unwrap()
            );
            Arc::new(values.with_precision_and_scale(38, 2).unwrap())
        }
        KeyType::Decimal256 { .. } => {
            let values = array!(Decimal256Array, KeyValue::Decimal { unscaled, .. } => *unscaled);
            Arc::new(values.with_precision_and_scale(76, 2).unwrap())
        }
        KeyType::Int96 | KeyType::Rank { .. } => return None,
        KeyType::Bytes { text: true } => {
            Arc::new(array!(StringArray, KeyValue::Text(v) => v.as_str()))
        }
        KeyType::Bytes { text: false } => {
            Arc::new(array!(BinaryArray, KeyValue::Bytes(v) => v.as_slice()))
        }
    })
}

// ---- the laws ----

fn check(shape: &KeyShape, rows: &[Vec<KeyValue>]) {
    let keys = encode_dense(shape, rows);
    assert_eq!(keys.len(), rows.len());
    let bytes: Vec<Vec<u8>> = (0..rows.len()).map(|i| keys.to_bytes(shape, i)).collect();

    let columns = shape.columns().iter().enumerate();
    let arrays: Option<Vec<ArrayRef>> = columns.map(|(i, c)| arrow(c.ty, rows, i)).collect();
    if let Some(arrays) = arrays {
        assert_eq!(encode_arrow(shape, &arrays).unwrap(), keys, "Arrow gives the same bytes");
    }
    for (row, key) in rows.iter().zip(&bytes) {
        let decoded = decode(shape, key).unwrap();
        assert_eq!(compare(shape, &decoded, row), Ordering::Equal, "{decoded:?} from {row:?}");
        assert_eq!(encode_dense(shape, &[decoded]).to_bytes(shape, 0), *key);
        if let Some(width) = shape.fixed_width() {
            assert_eq!(key.len(), width);
        }
        assert_eq!(prefix_len(shape, key, shape.columns().len()).unwrap(), key.len());
    }
    if let Keys::Packed(packed) = &keys {
        assert!(shape.packs());
        assert_eq!(*packed, bytes.iter().map(|key| pack(key)).collect::<Vec<_>>());
    }
    for (i, a) in rows.iter().enumerate() {
        for (j, b) in rows.iter().enumerate() {
            let order = compare(shape, a, b);
            assert_eq!(bytes[i].cmp(&bytes[j]), order, "{a:?} and {b:?}: {:02X?}", &bytes);
            if let Keys::Packed(packed) = &keys {
                assert_eq!(packed[i].cmp(&packed[j]), order);
            }
            for columns in 0..=a.len() {
                let prefix = &bytes[i][..prefix_len(shape, &bytes[i], columns).unwrap()];
                let key = &bytes[j];
                let starts = key.starts_with(prefix);
                let below = successor(prefix).is_none_or(|bound| *key < bound);
                assert_eq!(starts, prefix <= key.as_slice() && below);
                let leading = KeyShape::try_new(shape.columns()[..columns].to_vec()).unwrap();
                assert_eq!(starts, compare(&leading, a, b) == Ordering::Equal);
            }
        }
    }
}

#[test]
fn laws_hold_for_every_type_direction_and_null_placement() {
    for ty in TYPES {
        for descending in [false, true] {
            for nulls in [Nulls::First, Nulls::Last] {
                let shape = shape(vec![column(ty, descending, nulls)]);
                proptest!(ProptestConfig::with_cases(512), |(rows in rows(shape.columns()))| {
                    check(&shape, &rows);
                });
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn laws_hold_for_composite_keys(
        (columns, rows) in prop::collection::vec(any_column(), 2..4)
            .prop_flat_map(|columns| { let rows = rows(&columns); (Just(columns), rows) })
    ) {
        check(&shape(columns), &rows);
    }

    #[test]
    fn any_bytes_are_a_key_or_an_error(
        columns in prop::collection::vec(any_column(), 0..3),
        key in prop::collection::vec(prop::sample::select(vec![0_u8, 1, 2, 127, 254, 255]), 0..30),
    ) {
        let shape = shape(columns);
        match decode(&shape, &key) {
            Ok(values) => {
                let text = |value: &KeyValue| matches!(value, KeyValue::Bytes(_));
                if !values.iter().any(text) {
                    prop_assert_eq!(encode_dense(&shape, &[values]).to_bytes(&shape, 0), key);
                }
            }
            Err(e) => prop_assert_eq!(e.kind(), Kind::CorruptSource),
        }
    }

    #[test]
    fn every_prefix_of_bytes_is_a_range(
        prefix in prop::collection::vec(prop::sample::select(vec![0_u8, 1, 0xFE, 0xFF]), 0..4),
        key in prop::collection::vec(prop::sample::select(vec![0_u8, 1, 0xFE, 0xFF]), 0..6),
    ) {
        let below = successor(&prefix).is_none_or(|bound| key < bound);
        prop_assert_eq!(key.starts_with(&prefix), prefix <= key && below);
    }

    #[test]
    fn every_arrow_encoding_of_strings_gives_the_same_keys(
        values in prop::collection::vec(prop::option::of("[\u{0}ab]{0,2}"), 1..9),
        start in 0..4_usize,
        descending in any::<bool>(),
    ) {
        fn dictionary<K: ArrowDictionaryKeyType>(values: &[Option<String>]) -> ArrayRef {
            let mut builder = StringDictionaryBuilder::<K>::new();
            values.iter().for_each(|value| builder.append_option(value.as_deref()));
            Arc::new(builder.finish())
        }
        let texts = || values.iter().map(Option::as_deref);
        let binaries = || texts().map(|text| text.map(str::as_bytes));
        // Nulls are among the dictionary's values, and each row is a run of its own.
        let plain: ArrayRef = Arc::new(texts().collect::<StringArray>());
        let row_numbers = Int32Array::from_iter_values(0..i32::try_from(values.len()).unwrap());
        let ends = Int32Array::from_iter_values(1..=i32::try_from(values.len()).unwrap());
        let nested: ArrayRef =
            Arc::new(DictionaryArray::<Int32Type>::new(row_numbers, Arc::clone(&plain)));
        let runs_of_dictionary = RunArray::<Int32Type>::try_new(&ends, &nested).unwrap();
        let arrays: Vec<ArrayRef> = vec![
            Arc::clone(&plain),
            Arc::new(texts().collect::<LargeStringArray>()),
            Arc::new(texts().collect::<StringViewArray>()),
            Arc::new(binaries().collect::<BinaryArray>()),
            Arc::new(binaries().collect::<LargeBinaryArray>()),
            Arc::new(binaries().collect::<BinaryViewArray>()),
            dictionary::<Int8Type>(&values),
            dictionary::<UInt64Type>(&values),
            nested,
            Arc::new(texts().collect::<RunArray<Int32Type>>()),
            Arc::new(runs_of_dictionary),
        ];
        let start = start.min(values.len());
        let text = |value: Option<String>| vec![value.map_or(KeyValue::Null, KeyValue::Text)];
        let rows: Vec<_> = values[start..].iter().cloned().map(text).collect();
        let shape = shape(vec![column(KeyType::Bytes { text: true }, descending, Nulls::Last)]);
        let expected = encode_dense(&shape, &rows);
        for array in arrays {
            let slice = array.slice(start, values.len() - start);
            let keys = encode_arrow(&shape, &[slice]).unwrap();
            prop_assert_eq!(&keys, &expected, "{:?}", array);
        }
    }
}

#[test]
fn every_arrow_width_gives_the_key_of_its_value() {
    let rows = [Some(100), None, Some(3)];
    macro_rules! arrays {
        ($(($array:ty, $native:ty)),+) => {
            vec![$(Arc::new(rows.iter().map(|v| v.map(|v: i32| <$native>::try_from(v).unwrap()))
                .collect::<$array>()) as ArrayRef),+]
        };
    }
    let decimal = |array: ArrayRef, ty| (array, ty);
    let mut cases: Vec<(ArrayRef, KeyType)> = Vec::new();
    for array in arrays!(
        (Int8Array, i8),
        (Int16Array, i16),
        (Date32Array, i32),
        (Time32SecondArray, i32),
        (Time32MillisecondArray, i32),
        (Date64Array, i64),
        (Time64MicrosecondArray, i64),
        (Time64NanosecondArray, i64),
        (TimestampSecondArray, i64),
        (TimestampMicrosecondArray, i64),
        (DurationMillisecondArray, i64),
        (UInt8Array, u8),
        (UInt16Array, u16)
    ) {
        let ty = KeyType::from_arrow(array.data_type()).unwrap();
        cases.push((array, ty));
    }
    for ty in [KeyType::Decimal128 { scale: 2 }, KeyType::Decimal256 { scale: 2 }] {
        let small = rows.iter().copied().collect::<Decimal32Array>();
        let middle = rows.iter().map(|v| v.map(i64::from)).collect::<Decimal64Array>();
        let large = rows.iter().map(|v| v.map(i128::from)).collect::<Decimal128Array>();
        let huge = rows.iter().map(|v| v.map(|v| i256::from_i128(i128::from(v))));
        let huge = huge.collect::<Decimal256Array>();
        cases.extend([
            decimal(Arc::new(small.with_precision_and_scale(9, 2).unwrap()), ty),
            decimal(Arc::new(middle.with_precision_and_scale(18, 2).unwrap()), ty),
            decimal(Arc::new(large.with_precision_and_scale(38, 2).unwrap()), ty),
            decimal(Arc::new(huge.with_precision_and_scale(20, 2).unwrap()), ty),
        ]);
    }
    for (array, ty) in cases {
        let shape = shape(vec![column(ty, false, Nulls::First)]);
        let value = |v: Option<i32>| match (v, ty) {
            (None, _) => KeyValue::Null,
            (Some(v), KeyType::UInt32) => KeyValue::UInt(u64::from(v.cast_unsigned())),
            (Some(v), KeyType::Decimal128 { .. } | KeyType::Decimal256 { .. }) => {
                KeyValue::Decimal { unscaled: i256::from_i128(i128::from(v)), scale: 2 }
            }
            (Some(v), _) => KeyValue::Int(i64::from(v)),
        };
        let rows = rows.map(|v| vec![value(v)]);
        let name = array.data_type().to_string();
        assert_eq!(encode_arrow(&shape, &[array]).unwrap(), encode_dense(&shape, &rows), "{name}");
    }
    let values = [Some(b"\0a"), None].into_iter();
    let fixed: ArrayRef =
        Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(values, 2).unwrap());
    let shape = shape(vec![column(KeyType::Bytes { text: false }, false, Nulls::Last)]);
    let rows = [vec![KeyValue::Bytes(b"\0a".to_vec())], vec![KeyValue::Null]];
    assert_eq!(encode_arrow(&shape, &[fixed]).unwrap(), encode_dense(&shape, &rows));
}

#[test]
fn arrays_that_do_not_fit_the_shape_are_refused() {
    let ints: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let longs: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let nulls: ArrayRef = Arc::new(NullArray::new(2));
    let int = column(KeyType::Int32, false, Nulls::Last);
    let one = shape(vec![int.clone()]);
    let two = shape(vec![int.clone(), int]);
    let kind = |shape, arrays: &[ArrayRef]| encode_arrow(shape, arrays).unwrap_err().kind();
    assert_eq!(kind(&one, &[]), Kind::Internal);
    assert_eq!(kind(&one, &[Arc::clone(&longs)]), Kind::Internal);
    assert_eq!(kind(&two, &[Arc::clone(&ints), ints.slice(0, 1)]), Kind::Internal);
    assert_eq!(encode_arrow(&one, &[nulls]).unwrap(), Keys::Packed(vec![2 << 120; 2]));
}
