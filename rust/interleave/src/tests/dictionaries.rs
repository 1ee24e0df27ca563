//! Dictionaries that are too large to be united by value: put behind each other.

use arrow_buffer::ArrowNativeType;

use super::*;

/// 40 values that no other `number` has, and keys of 100 rows; keys under nulls are `under_nulls`.
fn large(number: usize, under_nulls: Option<i32>, random: &mut Random) -> ArrayRef {
    let values: ArrayRef =
        Arc::new((0..40).map(|i| Some(format!("{number}-{i}"))).collect::<StringArray>());
    with_values(&values, under_nulls, random)
}

fn with_values(values: &ArrayRef, under_nulls: Option<i32>, random: &mut Random) -> ArrayRef {
    let valid: Vec<bool> =
        (0..100).map(|_| under_nulls.is_none() || random.below(4) != 0).collect();
    let key = |valid: &bool| match under_nulls {
        Some(key) if !valid => key,
        _ => random.below(40) as i32,
    };
    let keys: Vec<i32> = valid.iter().map(key).collect();
    let nulls = under_nulls.map(|_| NullBuffer::from(valid));
    Arc::new(DictionaryArray::new(Int32Array::new(keys.into(), nulls), Arc::clone(values)))
}

fn check_rows(values: &[ArrayRef], random: &mut Random) -> ArrayRef {
    let mut made = None;
    for lens in [(1, 1), (1, 3), (1, 14), (8, 8), (16, 16), (60, 90)] {
        let rows = pieces::in_runs(values, lens, random);
        let lazy = lazy(values, &rows, random);
        let from_selectors = lazy.to_arrow().unwrap();
        let from_runs = gather(values, pieces::runs(&rows).as_slice()).unwrap();
        for array in [&from_selectors, &from_runs] {
            array.to_data().validate_full().unwrap();
            assert_eq!(slow::rows(array), slow::gather(values, &rows), "runs of {lens:?}");
        }
        made = Some(from_runs);
    }
    made.unwrap()
}

#[test]
fn large_dictionaries_are_put_behind_each_other() {
    let random = &mut Random(3);
    let values: Vec<ArrayRef> = (0..3).map(|i| large(i, None, random)).collect();
    let made = check_rows(&values, random);
    assert_eq!(made.as_dictionary::<Int32Type>().values().len(), 3 * 40);
}

#[test]
fn only_values_of_rows_leave_where_there_are_more_values_than_rows() {
    // 300 values, too many for 8-bit keys; the rows use three of them, one in both arrays.
    let array = |from: i64| -> ArrayRef {
        let keys: PrimitiveArray<UInt8Type> = (0..150).collect();
        let values: ArrayRef = Arc::new((from..from + 150).collect::<Int64Array>());
        Arc::new(DictionaryArray::new(keys, values))
    };
    let values = [array(0), array(149)];
    let arrays: ArrayRef = Arc::new(UInt8Array::from(vec![1, 0, 0, 1]));
    let rows: ArrayRef = Arc::new(UInt8Array::from(vec![0, 149, 7, 5]));
    let made = Interleave::try_new(values.to_vec(), arrays, rows).unwrap().to_arrow().unwrap();
    let made = made.as_dictionary::<UInt8Type>();
    assert_eq!(made.keys().values(), &[1, 1, 0, 2]);
    assert_eq!(made.values().as_primitive::<Int64Type>().values(), &[7, 149, 154]);
}

#[test]
fn one_dictionary_of_several_arrays_is_there_once() {
    let random = &mut Random(4);
    let mut values: Vec<ArrayRef> = (0..3).map(|i| large(i, None, random)).collect();
    for i in [2, 0, 0, 1] {
        let shared = Arc::clone(values[i].as_dictionary::<Int32Type>().values());
        values.push(with_values(&shared, None, random));
    }
    let made = check_rows(&values, random);
    assert_eq!(made.as_dictionary::<Int32Type>().values().len(), 3 * 40);
}

#[test]
fn values_of_any_type_are_put_behind_each_other() {
    let random = &mut Random(6);
    let text = |i: usize, number: usize| Some(format!("{number}-{i}"));
    let makes: [&dyn Fn(usize) -> ArrayRef; 7] = [
        &|n| Arc::new((0..50).map(|i| text(i, n)).collect::<StringArray>()),
        &|n| Arc::new((0..50).map(|i| text(i, n)).collect::<LargeStringArray>()),
        &|n| Arc::new((0..50).map(|i| text(i, n)).collect::<StringViewArray>()),
        &|n| Arc::new((0..50).map(|i| text(i, n)).collect::<BinaryArray>()),
        &|n| Arc::new((0..50).map(|i| text(i, n)).collect::<LargeBinaryArray>()),
        &|n| Arc::new((0..50).map(|i| Some((100 * n + i) as i32)).collect::<Int32Array>()),
        // One of them has nulls.
        &|n| Arc::new((0..50).map(|i| text(i, n).filter(|_| n + i > 9)).collect::<StringArray>()),
    ];
    for make in makes {
        // Parts of arrays, whose offsets begin above 0.
        let values = (0..3).map(|n| with_values(&make(n).slice(4 + n, 40), None, random));
        let made = check_rows(&values.collect::<Vec<_>>(), random);
        assert_eq!(made.as_any_dictionary().values().len(), 3 * 40);
    }
}

#[test]
fn keys_under_nulls_lead_nowhere_beside_rows_that_do() {
    let random = &mut Random(5);
    for under_nulls in [40, 41, i32::MAX, i32::MIN, -1] {
        let values: Vec<ArrayRef> = (0..3).map(|i| large(i, Some(under_nulls), random)).collect();
        check_rows(&values, random);
    }
}

/// Dictionaries of `len` values each, and one without any, with keys of type `K`.
fn check_keys<K: ArrowDictionaryKeyType>(len: usize) {
    let random = &mut Random(len as u64);
    let make = |number: usize, random: &mut Random| -> ArrayRef {
        let values: StringArray = (0..len).map(|i| Some(format!("{number}-{i}"))).collect();
        let keys = (0..100).map(|_| K::Native::usize_as(random.below(len)));
        let keys = PrimitiveArray::<K>::from_iter_values(keys);
        Arc::new(DictionaryArray::new(keys, Arc::new(values)))
    };
    let mut values: Vec<ArrayRef> = (0..2).map(|i| make(i, random)).collect();
    let made = check_rows(&values, random);
    assert_eq!(made.as_any_dictionary().values().len(), 2 * len, "{}", K::DATA_TYPE);
    let none = DictionaryArray::new(
        PrimitiveArray::<K>::new_null(100),
        Arc::new(StringArray::from(Vec::<&str>::new())),
    );
    values.insert(1, Arc::new(none));
    check_rows(&values, random);
}

#[test]
fn keys_of_any_width_lead_to_their_values() {
    check_keys::<Int8Type>(60);
    check_keys::<UInt8Type>(60);
    // Keys that a signed number of as many bits cannot have.
    check_keys::<UInt8Type>(120);
    check_keys::<Int16Type>(60);
    check_keys::<UInt32Type>(60);
    check_keys::<Int64Type>(60);
    check_keys::<UInt64Type>(60);
}

#[test]
fn lists_of_dictionaries_beside_lists_of_numbers_are_lists_of_numbers() {
    let keys = Int8Array::from(vec![1, 0, 0, 1, 2, 0]);
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![70, 80, 90]));
    let dictionary: ArrayRef = Arc::new(DictionaryArray::new(keys, numbers));
    let plain: ArrayRef = Arc::new(Int32Array::from_iter_values(0..6));
    let list = |elements: &ArrayRef| -> ArrayRef {
        let offsets = OffsetBuffer::from_lengths([1, 3, 2]);
        Arc::new(ListArray::new(item(elements), offsets, Arc::clone(elements), None))
    };
    let fixed = |elements: &ArrayRef| -> ArrayRef {
        Arc::new(FixedSizeListArray::new(item(elements), 2, Arc::clone(elements), None))
    };
    let view = |elements: &ArrayRef| -> ArrayRef {
        let (offsets, sizes) = (vec![0, 1, 4].into(), vec![1, 3, 2].into());
        Arc::new(ListViewArray::new(item(elements), offsets, sizes, Arc::clone(elements), None))
    };
    for make in [&list as &dyn Fn(&ArrayRef) -> ArrayRef, &fixed, &view] {
        for order in [[&dictionary, &plain], [&plain, &dictionary]] {
            let values = order.map(make).to_vec();
            let rows = [(0, 2), (1, 1), (1, 2), (0, 0)];
            let made = gather(&values, pieces::runs(&rows).as_slice()).unwrap();
            made.to_data().validate_full().unwrap();
            assert_eq!(slow::rows(&made), slow::gather(&values, &rows));
            let below = match made.data_type() {
                DataType::List(field)
                | DataType::ListView(field)
                | DataType::FixedSizeList(field, _) => field.data_type().clone(),
                other => other.clone(),
            };
            assert_eq!(below, DataType::Int32);
        }
    }
}
