//! Interleave against the slow twin, over random types, arrays, slices and selectors.

use std::sync::Arc;

use arrow_array::builder::{StringDictionaryBuilder, StringRunBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::*;
use arrow_buffer::{MutableBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, UnionFields};
use proptest::prelude::*;

mod dictionaries;
mod pieces;
mod slow;
mod views;

use super::levels::Levels;
use super::*;
use plait_base::{Kind, Result, Runs, SourceId};

/// Cases of a property: few here, many in CI.
fn cases() -> u32 {
    if std::env::var_os("CI").is_some() { 2_000 } else { 150 }
}

/// The constants of Knuth's MMIX.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        let (a, c) = (6_364_136_223_846_793_005, 1_442_695_040_888_963_407);
        self.0 = self.0.wrapping_mul(a).wrapping_add(c);
        ((self.0 >> 33) as usize) % n.max(1)
    }

    fn nulls(&mut self, len: usize) -> Option<NullBuffer> {
        (self.below(3) > 0).then(|| (0..len).map(|_| self.below(4) > 0).collect())
    }

    fn text(&mut self) -> String {
        let len = [0, 1, 3, 12, 13, 40, 90][self.below(7)];
        (0..len).map(|_| ['a', 'b', 'ß', '😀'][self.below(4)]).collect()
    }

    fn texts<T: FromIterator<Option<String>>>(&mut self, len: usize) -> T {
        (0..len).map(|_| (self.below(4) > 0).then(|| self.text())).collect()
    }
}

/// Number of kinds of arrays that have nothing below them, then of all.
const FLAT: usize = 26;
const KINDS: usize = FLAT + 9;

fn primitive<T: ArrowPrimitiveType>(len: usize, random: &mut Random) -> ArrayRef {
    let mut bytes = MutableBuffer::new(0);
    for _ in 0..len * size_of::<T::Native>() {
        bytes.push(random.below(256) as u8);
    }
    let values = ScalarBuffer::new(bytes.into(), 0, len);
    Arc::new(PrimitiveArray::<T>::new(values, random.nulls(len)))
}

fn item(values: &ArrayRef) -> Arc<Field> {
    Arc::new(Field::new("item", values.data_type().clone(), true))
}

fn lengths(len: usize, random: &mut Random) -> (OffsetBuffer<i32>, usize) {
    let offsets = OffsetBuffer::<i32>::from_lengths((0..len).map(|_| random.below(5)));
    let total = offsets[len] as usize;
    (offsets, total)
}

/// An array of `len` rows; the type follows from `shape`, the values from `random`.
fn array(shape: &mut Random, len: usize, depth: usize, random: &mut Random) -> ArrayRef {
    let kind = shape.below(if depth == 0 { FLAT } else { KINDS });
    array_of(kind, shape, len, depth, random)
}

fn array_of(
    kind: usize,
    shape: &mut Random,
    len: usize,
    depth: usize,
    random: &mut Random,
) -> ArrayRef {
    match kind {
        0 => Arc::new(NullArray::new(len)),
        1 => Arc::new(BooleanArray::new(
            (0..len).map(|_| random.below(2) > 0).collect(),
            random.nulls(len),
        )),
        2 => primitive::<Int8Type>(len, random),
        3 => primitive::<UInt16Type>(len, random),
        4 => primitive::<Float16Type>(len, random),
        5 => primitive::<Int32Type>(len, random),
        6 => primitive::<Float64Type>(len, random),
        7 => primitive::<Decimal32Type>(len, random),
        8 => primitive::<Decimal64Type>(len, random),
        9 => primitive::<Decimal128Type>(len, random),
        10 => primitive::<Decimal256Type>(len, random),
        11 => primitive::<Date32Type>(len, random),
        12 => primitive::<Time64NanosecondType>(len, random),
        13 => {
            let made = primitive::<TimestampMicrosecondType>(len, random);
            let zoned = made.as_primitive::<TimestampMicrosecondType>().clone();
            Arc::new(zoned.with_timezone("Europe/Zurich"))
        }
        14 => primitive::<DurationSecondType>(len, random),
        15 => primitive::<IntervalMonthDayNanoType>(len, random),
        16 => Arc::new(random.texts::<StringArray>(len)),
        17 => Arc::new(random.texts::<LargeStringArray>(len)),
        18 => Arc::new(random.texts::<StringViewArray>(len)),
        19 => {
            let texts = random.texts::<Vec<_>>(len);
            Arc::new(texts.into_iter().map(|t| t.map(String::into_bytes)).collect::<BinaryArray>())
        }
        20 => {
            let texts = random.texts::<Vec<_>>(len);
            Arc::new(
                texts.into_iter().map(|t| t.map(String::into_bytes)).collect::<BinaryViewArray>(),
            )
        }
        21 | 22 => {
            let width = [5, 16][kind - 21];
            let bytes: Vec<u8> = (0..len * width).map(|_| random.below(256) as u8).collect();
            Arc::new(FixedSizeBinaryArray::new(width as i32, bytes.into(), random.nulls(len)))
        }
        23 => {
            let mut builder = StringDictionaryBuilder::<Int16Type>::new();
            for _ in 0..len {
                builder
                    .append_option((random.below(4) > 0).then(|| format!("v{}", random.below(40))));
            }
            Arc::new(builder.finish())
        }
        24 => {
            let values = primitive::<Int64Type>(4, random);
            let keys = UInt8Array::new(
                (0..len).map(|_| random.below(4) as u8).collect(),
                random.nulls(len),
            );
            Arc::new(DictionaryArray::new(keys, values))
        }
        25 => {
            let mut builder = StringRunBuilder::<Int32Type>::new();
            for _ in 0..len {
                builder.append_option(["a", "b"].get(random.below(3)));
            }
            Arc::new(builder.finish())
        }
        26 => {
            let (offsets, total) = lengths(len, random);
            let values = array(shape, total, depth - 1, random);
            Arc::new(ListArray::new(item(&values), offsets, values, random.nulls(len)))
        }
        27 => {
            let (offsets, total) = lengths(len, random);
            let offsets = OffsetBuffer::new(offsets.iter().map(|o| i64::from(*o)).collect());
            let values = array(shape, total, depth - 1, random);
            Arc::new(LargeListArray::new(item(&values), offsets, values, random.nulls(len)))
        }
        28 => {
            let values = array(shape, 20, depth - 1, random);
            let offsets = (0..len).map(|_| random.below(15) as i32).collect::<Vec<_>>();
            let sizes = (0..len).map(|_| random.below(6) as i32).collect::<Vec<_>>();
            let nulls = random.nulls(len);
            Arc::new(ListViewArray::new(item(&values), offsets.into(), sizes.into(), values, nulls))
        }
        29 => {
            let values = array(shape, 20, depth - 1, random);
            let offsets = (0..len).map(|_| random.below(15) as i64).collect::<Vec<_>>();
            let sizes = (0..len).map(|_| random.below(6) as i64).collect::<Vec<_>>();
            let nulls = random.nulls(len);
            Arc::new(LargeListViewArray::new(
                item(&values),
                offsets.into(),
                sizes.into(),
                values,
                nulls,
            ))
        }
        30 => {
            let values = array(shape, 3 * len, depth - 1, random);
            let field = item(&values);
            Arc::new(FixedSizeListArray::new(field, 3, values, random.nulls(len)))
        }
        31 => {
            let columns =
                [array(shape, len, depth - 1, random), array(shape, len, depth - 1, random)];
            let fields: Vec<_> = columns.iter().map(item).collect();
            Arc::new(StructArray::new(fields.into(), columns.to_vec(), random.nulls(len)))
        }
        32 => {
            let (offsets, total) = lengths(len, random);
            let keys: ArrayRef =
                Arc::new((0..total).map(|_| Some(random.text())).collect::<StringArray>());
            let values = array(shape, total, depth - 1, random);
            let fields = vec![
                Field::new("keys", DataType::Utf8, false),
                Field::new("values", values.data_type().clone(), true),
            ];
            let entries = StructArray::new(fields.into(), vec![keys, values], None);
            let field = Arc::new(Field::new("entries", entries.data_type().clone(), false));
            Arc::new(MapArray::new(field, offsets, entries, random.nulls(len), false))
        }
        _ => {
            let dense = kind == 33;
            let ids: Vec<i8> = (0..len).map(|_| [3, 5][random.below(2)]).collect();
            let rows = if dense { 7 } else { len };
            let columns =
                vec![array(shape, rows, depth - 1, random), array(shape, rows, depth - 1, random)];
            let fields = UnionFields::from_iter([(3, item(&columns[0])), (5, item(&columns[1]))]);
            let offsets = dense.then(|| (0..len).map(|_| random.below(7) as i32).collect());
            Arc::new(UnionArray::try_new(fields, ids.into(), offsets, columns).unwrap())
        }
    }
}

/// Several arrays of one type, sliced, some empty.
fn arrays(kind: Option<usize>, seed: u64, random: &mut Random) -> Vec<ArrayRef> {
    let make = |random: &mut Random| {
        let shape = &mut Random(seed);
        let len = [0, 1, 9, 70][random.below(4)];
        let (before, after) = (random.below(9), random.below(9));
        let depth = 3;
        let made = match kind {
            Some(kind) => array_of(kind, shape, before + len + after, depth, random),
            None => array(shape, before + len + after, depth, random),
        };
        made.slice(before, len)
    };
    (0..1 + random.below(5)).map(|_| make(random)).collect()
}

/// Rows of arrays: single, or in runs.
fn rows(values: &[ArrayRef], random: &mut Random) -> Vec<(usize, usize)> {
    let full: Vec<usize> = (0..values.len()).filter(|i| !values[*i].is_empty()).collect();
    let mut rows = Vec::new();
    if full.is_empty() {
        return rows;
    }
    let longest = [1, 3, 8, 70][random.below(4)];
    for _ in 0..random.below(40) {
        let array = full[random.below(full.len())];
        let start = random.below(values[array].len());
        let end = values[array].len().min(start + 1 + random.below(longest));
        rows.extend((start..end).map(|row| (array, row)));
    }
    rows
}

fn lazy(values: &[ArrayRef], rows: &[(usize, usize)], random: &mut Random) -> Interleave {
    let selector = |random: &mut Random, all: Vec<usize>| -> ArrayRef {
        match random.below(4) {
            0 => Arc::new(all.iter().map(|n| Some(*n as u8)).collect::<UInt8Array>()),
            1 => Arc::new(all.iter().map(|n| Some(*n as u16)).collect::<UInt16Array>()),
            2 => Arc::new(all.iter().map(|n| Some(*n as u32)).collect::<UInt32Array>()),
            _ => Arc::new(all.iter().map(|n| Some(*n as u64)).collect::<UInt64Array>()),
        }
    };
    let arrays = selector(random, rows.iter().map(|(array, _)| *array).collect());
    let rows = selector(random, rows.iter().map(|(_, row)| *row).collect());
    Interleave::try_new(values.to_vec(), arrays, rows).unwrap()
}

fn check(kind: Option<usize>, seed: u64) {
    let random = &mut Random(seed ^ 0x5eed);
    let values = arrays(kind, seed, random);
    let rows = rows(&values, random);
    let expected = slow::gather(&values, &rows);
    let lazy = lazy(&values, &rows, random);

    let made = lazy.to_arrow().unwrap();
    made.to_data().validate_full().unwrap();
    assert_eq!(made.data_type(), lazy.data_type());
    assert_eq!(slow::rows(&made), expected);
    let nulls = made.nulls().map_or(0, NullBuffer::null_count);
    assert_eq!(lazy.null_count().unwrap(), nulls);

    let (field, large) = lazy.to_large().unwrap();
    large.to_data().validate_full().unwrap();
    assert_eq!(large.data_type(), field.data_type());
    assert_eq!(slow::rows(&large), expected);

    // Offsets that reach what a single row may need, chunks of few rows or bytes.
    let levels = Levels { small_offset_max: 30_000, ..Levels::default() };
    let chunks = lazy.chunks_with(1 + random.below(50), 1 + random.below(1000), levels).unwrap();
    let chunks: Vec<ArrayRef> = chunks.collect::<Result<_>>().unwrap();
    assert!(chunks.iter().all(|chunk| !chunk.is_empty()));
    assert_eq!(chunks.iter().flat_map(|chunk| slow::rows(chunk)).collect::<Vec<_>>(), expected);

    let runs = pieces::runs(&rows);
    assert_eq!(slow::rows(&super::gather(&values, runs.as_slice()).unwrap()), expected);
    let by_runs = Interleave::from_runs(values.clone(), &runs).unwrap();
    assert_eq!(slow::rows(&by_runs.to_arrow().unwrap()), expected);

    // Lazy operations on both forms, and nested.
    let from = random.below(expected.len());
    let len = random.below(expected.len() - from + 1);
    let indices: Vec<usize> = (0..20).map(|_| random.below(len)).filter(|i| *i < len).collect();
    let mask: Vec<bool> = (0..len).map(|_| random.below(2) > 0).collect();
    for lazy in [lazy, by_runs] {
        let slice = lazy.slice(from, len).unwrap();
        let shown = |lazy: &Interleave| slow::rows(&lazy.to_arrow().unwrap());
        let sliced = &expected[from..from + len];
        assert_eq!(shown(&slice), sliced);
        for (i, (array, row)) in rows[from..from + len].iter().enumerate().take(3) {
            assert_eq!(slice.place(i).unwrap(), (*array, *row));
        }
        let taken: ArrayRef =
            Arc::new(indices.iter().map(|i| Some(*i as u32)).collect::<UInt32Array>());
        let taken = slice.take(&taken).unwrap();
        assert_eq!(shown(&taken), indices.iter().map(|i| sliced[*i].clone()).collect::<Vec<_>>());
        let filtered = slice.filter(&BooleanArray::from(mask.clone())).unwrap();
        let kept = sliced.iter().zip(&mask).filter(|(_, keep)| **keep).map(|(row, _)| row.clone());
        let kept: Vec<String> = kept.collect();
        assert_eq!(shown(&filtered), kept);
        let both = taken.concat(&filtered).unwrap();
        let mut expected: Vec<String> = shown(&taken);
        expected.extend(kept);
        assert_eq!(shown(&both), expected);

        let outer: Vec<Value> = vec![both.into(), Value::from(Arc::clone(&values[0]))];
        let n = expected.len();
        let nested = Interleave::nested(
            outer,
            Arc::new(UInt8Array::from(vec![0; n])),
            Arc::new((0..n).rev().map(|i| Some(i as u32)).collect::<UInt32Array>()),
        );
        expected.reverse();
        assert_eq!(shown(&nested.unwrap()), expected);
    }
}

#[test]
fn every_kind_of_array_equals_the_slow_twin() {
    for kind in 0..KINDS {
        for seed in 0..12 {
            check(Some(kind), seed);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]
    #[test]
    fn random_nested_types_equal_the_slow_twin(seed in any::<u64>()) {
        check(None, seed);
    }
}

fn numbers(all: &[i32]) -> ArrayRef {
    Arc::new(Int32Array::from(all.to_vec()))
}

fn selector(all: &[u32]) -> ArrayRef {
    Arc::new(UInt32Array::from(all.to_vec()))
}

#[test]
fn selectors_that_are_none_are_refused_with_what_was_found() {
    let values = vec![numbers(&[1, 2])];
    let error = |arrays: ArrayRef, rows: ArrayRef| {
        Interleave::try_new(values.clone(), arrays, rows).unwrap_err().to_string()
    };
    let signed = error(numbers(&[0]), selector(&[0]));
    assert!(
        signed.starts_with("`array_indices` is not unsigned integers: got `int32`"),
        "{signed}"
    );
    let nullable: ArrayRef = Arc::new(UInt8Array::from(vec![Some(0), Some(0), None]));
    let nullable = error(selector(&[0, 0, 0]), nullable);
    assert!(nullable.starts_with("`row_indices` has nulls: row 2, got 1 nulls"), "{nullable}");
    let unequal = error(selector(&[0]), selector(&[0, 1]));
    assert_eq!(
        unequal,
        "selectors are of different lengths: got 1 `array_indices`, 2 `row_indices`"
    );
}

#[test]
fn rows_that_are_not_there_are_refused_with_the_first_position() {
    let values = vec![numbers(&[1, 2]), numbers(&[])];
    let mut long: Vec<u32> = vec![0; 1000];
    long[700] = 2;
    long[900] = 9;
    let cases: [(Vec<u32>, Vec<u32>, &str); 5] = [
        (
            vec![0, 2],
            vec![0, 0],
            "array index is out of range: row 1, got `array_indices` 2 of 2 arrays",
        ),
        (
            vec![0, 1],
            vec![0, 0],
            "row index is out of range: row 1, got `row_indices` 0, where array 1 has 0 rows",
        ),
        (
            vec![0; 1000],
            long,
            "row index is out of range: row 700, got `row_indices` 2, where array 0 has 2 rows",
        ),
        // A run that ends too late.
        (
            vec![0; 40],
            (0..40).collect(),
            "row index is out of range: row 2, got `row_indices` 2, where array 0 has 2 rows",
        ),
        (
            vec![u32::MAX],
            vec![0],
            "array index is out of range: row 0, got `array_indices` 4294967295 of 2 arrays",
        ),
    ];
    for (arrays, rows, expected) in cases {
        let lazy = Interleave::try_new(values.clone(), selector(&arrays), selector(&rows)).unwrap();
        for error in [lazy.check_bounds().unwrap_err(), lazy.to_arrow().unwrap_err()] {
            assert_eq!(error.to_string(), expected);
        }
    }
    let mut runs = Runs::default();
    runs.push(SourceId(0), 1, 2);
    assert!(super::gather(&values, runs.as_slice()).is_err());
}

proptest! {
    /// Long enough for whole blocks of vectors, and for runs that end anywhere in them.
    #[test]
    fn runs_of_selectors_are_found_wherever_they_begin(
        lens in prop::collection::vec((0_u32..3, 1_u32..100), 3..40), wide: bool, gone: bool,
    ) {
        let values: Vec<ArrayRef> =
            (0..3).map(|i| numbers(&(1000 * i..1000 * i + 250).collect::<Vec<_>>())).collect();
        let (mut arrays, mut rows) = (Vec::new(), Vec::new());
        for (i, (array, len)) in (0..).zip(&lens) {
            let start = (i * 37) % (250 - len);
            arrays.extend((0..*len).map(|_| *array));
            rows.extend(start..start + len);
        }
        let bad = rows.len() / 2;
        if gone {
            rows[bad] = 250;
        }
        let expected: Vec<i32> =
            arrays.iter().zip(&rows).map(|(array, row)| (1000 * array + row) as i32).collect();
        let narrow: ArrayRef = Arc::new(UInt8Array::from_iter_values(arrays.iter().map(|a| *a as u8)));
        let large: ArrayRef = Arc::new(UInt64Array::from_iter_values(rows.iter().map(|r| u64::from(*r))));
        let (arrays, rows) = if wide { (selector(&arrays), large) } else { (narrow, selector(&rows)) };
        let made = Interleave::try_new(values, arrays, rows).unwrap().to_arrow();
        if gone {
            prop_assert_eq!(made.unwrap_err().row(), Some(bad as u64));
        } else {
            let made = made.unwrap();
            prop_assert_eq!(made.as_primitive::<Int32Type>().values(), &expected[..]);
        }
    }
}

#[test]
fn numbers_that_wrap_do_not_follow_each_other() {
    let values = vec![numbers(&(0..300).collect::<Vec<_>>())];
    let rows: ArrayRef =
        Arc::new((0..=u8::MAX).chain(0..=u8::MAX).map(Some).collect::<UInt8Array>());
    let lazy = Interleave::try_new(values, selector(&[0; 512]), rows).unwrap();
    let made = lazy.to_arrow().unwrap();
    assert_eq!(made.as_primitive::<Int32Type>().values()[254..258], [254, 255, 0, 1]);
}

#[test]
fn offsets_that_do_not_fit_name_the_large_type_and_chunks_fit() {
    let text: ArrayRef = Arc::new(StringArray::from(vec!["0123456789"]));
    let lazy = Interleave::try_new(vec![text], selector(&[0; 50]), selector(&[0; 50])).unwrap();
    let levels = Levels { small_offset_max: 99, ..Levels::default() };
    let error = lazy.materialise(&DataType::Utf8, levels).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(error.to_string().contains("to_arrow(large=True)"), "{error}");
    let large = lazy.materialise(&DataType::LargeUtf8, levels).unwrap();
    assert_eq!(large.as_string::<i64>().value_data().len(), 500);
    let chunks = lazy.chunks_with(1000, 1 << 20, levels).unwrap();
    let lens: Vec<usize> = chunks.map(|chunk| chunk.unwrap().len()).collect();
    assert_eq!(lens.iter().sum::<usize>(), 50);
    assert!(lens.iter().all(|len| *len <= 9), "{lens:?}");
}

#[test]
fn run_ends_of_16_bits_are_told_and_chunks_fit() {
    let ends = Int16Array::from(vec![2]);
    let values = StringArray::from(vec!["a"]);
    let runs: ArrayRef = Arc::new(RunArray::try_new(&ends, &values).unwrap());
    let zeros = selector(&[0; 40_000]);
    let lazy = Interleave::try_new(vec![runs], Arc::clone(&zeros), zeros).unwrap();
    assert_eq!(lazy.to_arrow().unwrap_err().kind(), Kind::Unsupported);
    let chunks = lazy.chunks(CHUNK_ROWS_MAX, CHUNK_BYTES_MAX).unwrap();
    assert_eq!(chunks.map(|chunk| chunk.unwrap().len()).sum::<usize>(), 40_000);
}

#[test]
fn dictionaries_are_united_and_plain_values_expand_them() {
    let a: ArrayRef = Arc::new(vec!["x", "y"].into_iter().collect::<DictionaryArray<Int8Type>>());
    let b: ArrayRef = Arc::new(vec!["y", "z"].into_iter().collect::<DictionaryArray<Int32Type>>());
    let (arrays, rows) = (selector(&[1, 0, 1, 0]), selector(&[0, 1, 1, 0]));
    let values = vec![Arc::clone(&a), b];
    let both = Interleave::try_new(values, Arc::clone(&arrays), Arc::clone(&rows)).unwrap();
    let made = both.to_arrow().unwrap();
    let made = made.as_dictionary::<Int32Type>();
    assert_eq!(slow::rows(made.values()), ["\"x\"", "\"y\"", "\"z\""]);
    assert_eq!(made.keys().values(), &[1, 1, 2, 0]);

    let plain: ArrayRef = Arc::new(StringArray::from(vec![Some("p"), None]));
    let mixed = Interleave::try_new(vec![a, plain], arrays, rows).unwrap();
    assert_eq!(mixed.data_type(), &DataType::Utf8);
    let made = mixed.to_arrow().unwrap();
    assert_eq!(slow::rows(&made), ["\"p\"", "\"y\"", "null", "\"x\""]);
    assert_eq!(mixed.null_count().unwrap(), 1);
    let (_, large) = mixed.to_large().unwrap();
    assert_eq!(slow::rows(&large), slow::rows(&made));
}

#[test]
fn keys_that_do_not_suffice_are_told() {
    let dictionary = |from: usize| -> ArrayRef {
        let texts: Vec<String> = (from..from + 100).map(|i| i.to_string()).collect();
        Arc::new(texts.iter().map(String::as_str).collect::<DictionaryArray<Int8Type>>())
    };
    let values = vec![dictionary(0), dictionary(100)];
    let arrays: Vec<u32> = (0..200).map(|row| row / 100).collect();
    let rows: Vec<u32> = (0..200).map(|row| row % 100).collect();
    let lazy = Interleave::try_new(values, selector(&arrays), selector(&rows)).unwrap();
    let error = lazy.to_arrow().unwrap_err();
    assert!(error.to_string().contains("200 values for keys of type `int8`"), "{error}");
}

#[test]
fn types_that_differ_are_refused_and_nullability_does_not_count() {
    let seconds: ArrayRef = Arc::new(TimestampSecondArray::from(vec![1]));
    let values = vec![numbers(&[1]), seconds];
    let error = Interleave::try_new(values, selector(&[]), selector(&[])).unwrap_err().to_string();
    assert!(error.contains("`int32` before `timestamp[s]` at array 1"), "{error}");

    let of = |name: &str, nullable: bool, values: ArrayRef| -> ArrayRef {
        let field = Arc::new(Field::new(name, DataType::Int32, nullable));
        Arc::new(ListArray::new(field, OffsetBuffer::from_lengths([values.len()]), values, None))
    };
    let null: ArrayRef = Arc::new(Int32Array::from(vec![None]));
    let lists = vec![of("item", false, numbers(&[1])), of("element", true, null)];
    let lazy = Interleave::try_new(lists, selector(&[1, 0]), selector(&[0, 0])).unwrap();
    assert_eq!(slow::rows(&lazy.to_arrow().unwrap()), ["[null]", "[1]"]);
}

#[test]
fn thousands_of_arrays_and_no_rows_are_nothing_special() {
    let values: Vec<ArrayRef> = (0..5000).map(|i| numbers(&[i])).collect();
    let arrays: Vec<u32> = (0..5000).rev().collect();
    let lazy =
        Interleave::try_new(values.clone(), selector(&arrays), selector(&[0; 5000])).unwrap();
    let made = lazy.to_arrow().unwrap();
    assert_eq!(made.as_primitive::<Int32Type>().value(0), 4999);
    assert_eq!(made.as_primitive::<Int32Type>().value(4999), 0);
    let none = Interleave::try_new(values, selector(&[]), selector(&[])).unwrap();
    assert_eq!((none.to_arrow().unwrap().len(), none.null_count().unwrap()), (0, 0));
    assert!(Interleave::try_new(Vec::<ArrayRef>::new(), selector(&[]), selector(&[])).is_err());
}

#[test]
fn a_merge_is_runs_and_other_orders_are_not() {
    let values = vec![numbers(&[1, 3, 5]), numbers(&[2, 4])];
    let merge =
        Interleave::try_new(values.clone(), selector(&[0, 1, 0, 0]), selector(&[0, 0, 1, 2]));
    let runs = merge.unwrap().runs().unwrap().unwrap();
    assert_eq!((runs.len(), runs.rows()), (3, 4));
    let again = Interleave::try_new(values, selector(&[0, 0]), selector(&[1, 1])).unwrap();
    assert!(again.runs().unwrap().is_none());
}

#[test]
fn values_under_nulls_may_lead_nowhere() {
    let keys = Int32Array::new(vec![7, 0].into(), Some(NullBuffer::from(vec![false, true])));
    let a = DictionaryArray::new(keys, Arc::new(StringArray::from(vec!["x"])));
    let b: DictionaryArray<Int32Type> = vec!["y"].into_iter().collect();
    let values: Vec<ArrayRef> = vec![Arc::new(a), Arc::new(b)];
    let lazy = Interleave::try_new(values, selector(&[0, 1, 0]), selector(&[0, 0, 1])).unwrap();
    let made = lazy.to_arrow().unwrap();
    made.to_data().validate_full().unwrap();
    assert_eq!(slow::rows(&made), ["null", "\"y\"", "\"x\""]);
}
