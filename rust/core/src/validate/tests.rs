//! Valid arrays pass; each kind of corruption is found, with its column.

use std::sync::Arc;

use arrow_array::builder::{Int32Builder, ListBuilder, StringBuilder, StringViewBuilder};
use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::{
    Array, ArrayRef, DictionaryArray, FixedSizeListArray, Int32Array, LargeStringArray, ListArray,
    ListViewArray, RunArray, StringArray, StringViewArray, StructArray, UnionArray, make_array,
};
use arrow_buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, Field, Fields, UnionFields};

use super::{Validate, Validator};
use plait_base::{Error, Kind};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn check(data: &ArrayData) -> Result<(), Error> {
    Validator::default().check(data, "c")
}

/// `data` with other parts, whatever these are.
#[expect(
    unsafe_code,
    reason = "broken arrays are what is tested; nobody reads them but the validator"
)]
fn broken(data: &ArrayData, buffers: Vec<Buffer>, children: Vec<ArrayData>) -> ArrayData {
    let made = ArrayData::builder(data.data_type().clone())
        .len(data.len())
        .offset(data.offset())
        .nulls(data.nulls().cloned())
        .buffers(buffers)
        .child_data(children);
    // SAFETY: the validator, which is all that sees it, uses safe code alone.
    unsafe { made.build_unchecked() }
}

fn with_buffer<T: arrow_buffer::ArrowNativeType>(
    array: &dyn Array,
    place: usize,
    numbers: &[T],
) -> ArrayData {
    let data = array.to_data();
    let mut buffers = data.buffers().to_vec();
    buffers[place] = Buffer::from_slice_ref(numbers);
    broken(&data, buffers, data.child_data().to_vec())
}

fn refused(data: &ArrayData, what: &str) -> Outcome {
    refused_at(data, what, "c")
}

fn refused_at(data: &ArrayData, what: &str, column: &str) -> Outcome {
    let error = check(data).err().ok_or("it passed")?;
    assert_eq!((error.kind(), error.what()), (Kind::CorruptSource, what));
    assert_eq!(error.column(), Some(column));
    Ok(())
}

fn lists() -> ListArray {
    let mut lists = ListBuilder::new(Int32Builder::new());
    lists.append_value([Some(1), Some(2)]);
    lists.append_value([]);
    lists.append_value([Some(3)]);
    lists.finish()
}

fn dictionary() -> DictionaryArray<Int8Type> {
    [Some("a"), None, Some("b"), Some("a")].into_iter().collect()
}

fn views() -> StringViewArray {
    let mut views = StringViewBuilder::new();
    views.append_value("short");
    views.append_value("longer than a view has room for");
    views.append_null();
    views.finish()
}

fn list_views() -> Result<ListViewArray, ArrowError> {
    let values: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
    let field = Arc::new(Field::new("item", DataType::Int32, true));
    ListViewArray::try_new(field, vec![0, 1].into(), vec![2, 2].into(), values, None)
}

fn union(is_dense: bool) -> Result<UnionArray, ArrowError> {
    let fields = UnionFields::try_new(
        [0, 7],
        [Field::new("i", DataType::Int32, true), Field::new("s", DataType::Utf8, true)],
    )?;
    let ints: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let offsets = is_dense.then(|| ScalarBuffer::from(vec![1, 0]));
    UnionArray::try_new(fields, vec![0_i8, 7].into(), offsets, vec![ints, texts])
}

fn runs() -> Result<RunArray<Int32Type>, ArrowError> {
    RunArray::try_new(&Int32Array::from(vec![2, 5]), &StringArray::from(vec!["a", "b"]))
}

fn structs() -> StructArray {
    let ints: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
    let nested: ArrayRef = Arc::new(lists());
    let fields = Fields::from(vec![
        Field::new("i", DataType::Int32, true),
        Field::new("l", nested.data_type().clone(), true),
    ]);
    StructArray::new(fields, vec![ints, nested], None)
}

#[test]
fn valid_arrays_and_their_slices_pass_both_levels() -> Outcome {
    let fixed = FixedSizeListArray::new(
        Arc::new(Field::new("item", DataType::Int32, true)),
        2,
        Arc::new(Int32Array::from(vec![1, 2, 3, 4])),
        None,
    );
    let all: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from(vec![1, 2])),
        Arc::new(StringArray::from(vec!["a", "", "c"])),
        Arc::new(LargeStringArray::from(vec!["a", "", "c"])),
        Arc::new(lists()),
        Arc::new(list_views()?),
        Arc::new(dictionary()),
        Arc::new(views()),
        Arc::new(union(true)?),
        Arc::new(union(false)?),
        Arc::new(runs()?),
        Arc::new(structs()),
        Arc::new(fixed),
    ];
    for array in all {
        for (start, len) in [(0, array.len()), (1, array.len() - 1), (1, 0), (0, 0)] {
            let data = array.slice(start, len).to_data();
            for level in [Validate::Basic, Validate::Full] {
                Validator::new(level).check(&data, "c")?;
            }
        }
    }
    Ok(())
}

#[test]
fn offsets_that_go_back_or_lead_out_are_refused() -> Outcome {
    let texts = StringArray::from(vec!["ab", "c"]);
    refused(&with_buffer(&texts, 0, &[0_i32, 3, 2]), "offsets go back")?;
    refused(&with_buffer(&texts, 0, &[0_i32, 2, 9]), "offsets lead outside of the values")?;
    refused(&with_buffer(&texts, 0, &[-1_i32, 2, 3]), "offsets lead outside of the values")?;
    refused(&with_buffer(&texts, 0, &[0_i32, 2]), "a buffer is shorter than its array")?;
    let texts = LargeStringArray::from(vec!["ab", "c"]);
    refused(&with_buffer(&texts, 0, &[0_i64, i64::MAX, 3]), "offsets go back")?;
    refused(&with_buffer(&lists(), 0, &[0_i32, 2, 2, 9]), "offsets lead outside of the values")
}

#[test]
fn views_without_their_bytes_are_refused_unless_they_are_null() -> Outcome {
    let mut raw: Vec<u128> = views().views().to_vec();
    let long = raw[1];
    raw[2] = long | (u128::from(u32::MAX) << 64);
    check(&with_buffer(&views(), 0, &raw))?;
    for bad in [long | (9 << 64), long + (100 << 96), (long & !0xFFFF_FFFF) | 0xFFFF_FFFF] {
        raw[1] = bad;
        refused(&with_buffer(&views(), 0, &raw), "a view leads outside of its buffers")?;
    }
    let data = views().to_data();
    let absent = broken(&data, data.buffers()[..1].to_vec(), Vec::new());
    refused(&absent, "a view leads outside of its buffers")
}

#[test]
fn keys_without_a_value_are_refused_unless_they_are_null() -> Outcome {
    check(&with_buffer(&dictionary(), 0, &[0_i8, 99, 1, 0]))?;
    for bad in [-1, 2, 127] {
        let data = with_buffer(&dictionary(), 0, &[0_i8, 0, bad, 0]);
        refused(&data, "a key of a dictionary has no value")?;
    }
    Ok(())
}

#[test]
fn list_views_unions_and_runs_lead_into_their_children() -> Outcome {
    let views = list_views()?;
    for (offset, size) in [(-1, 1), (2, 2), (0, -1), (i32::MAX, i32::MAX)] {
        let data = with_buffer(&views, 0, &[0, offset]);
        let sizes = Buffer::from_slice_ref([2, size]);
        let data =
            broken(&data, vec![data.buffers()[0].clone(), sizes], data.child_data().to_vec());
        refused(&data, "a list leads outside of its values")?;
    }
    let dense = union(true)?;
    for bad in [-1, 2, i32::MAX] {
        let data = with_buffer(&dense, 1, &[1, bad]);
        refused(&data, "an offset of a union leads outside of its values")?;
    }
    for of in [dense, union(false)?] {
        let data = with_buffer(&of, 0, &[0_i8, 1]);
        refused(&data, "a type id of a union has no type")?;
        refused(&with_buffer(&of, 0, &[0_i8, -7]), "a type id of a union has no type")?;
    }
    let runs = runs()?.into_data();
    let with_ends = |ends: Vec<i32>| {
        let ends = Int32Array::from(ends).into_data();
        broken(&runs, Vec::new(), vec![ends, runs.child_data()[1].clone()])
    };
    refused(&with_ends(vec![5, 5]), "run ends do not increase")?;
    refused(&with_ends(vec![0, 5]), "run ends do not increase")?;
    refused(&with_ends(vec![2, 4]), "runs end before their array")?;
    refused(&with_ends(vec![2, 3, 5]), "a child is shorter than its parent needs")
}

#[test]
fn short_children_are_refused_and_nested_columns_are_named() -> Outcome {
    let data = structs().into_data();
    let short = Int32Array::from(vec![1]).into_data();
    let children = vec![short, data.child_data()[1].clone()];
    refused(&broken(&data, Vec::new(), children), "a child is shorter than its parent needs")?;
    let below = with_buffer(&lists(), 0, &[0_i32, 2, 1, 3]);
    let children = vec![data.child_data()[0].clone(), below];
    refused_at(&broken(&data, Vec::new(), children), "offsets go back", "c.l")?;
    let mut texts = ListBuilder::new(StringBuilder::new());
    texts.append_value([Some("a"), Some("b")]);
    let lists = texts.finish().into_data();
    let values = make_array(lists.child_data()[0].clone());
    let below = with_buffer(&values, 0, &[0_i32, 7, 2]);
    refused_at(&broken(&lists, lists.buffers().to_vec(), vec![below]), "offsets go back", "c.item")
}

#[test]
fn text_that_is_not_utf8_is_refused_by_full_alone() -> Outcome {
    let data = with_buffer(&StringArray::from(vec!["ab"]), 1, &[0xFF_u8, 0xFE]);
    check(&data)?;
    let error = Validator::new(Validate::Full).check(&data, "c").err().ok_or("it passed")?;
    assert_eq!((error.kind(), error.column()), (Kind::CorruptSource, Some("c")));
    Ok(())
}

#[test]
fn shared_values_are_checked_once_and_others_each_time() -> Outcome {
    let values: ArrayRef = Arc::new(StringArray::from_iter_values((0..100).map(|i| i.to_string())));
    let of = |values: &ArrayRef| {
        let keys = Int32Array::from(vec![1, 2, 3]);
        DictionaryArray::<Int32Type>::try_new(keys, Arc::clone(values))
            .map(DictionaryArray::into_data)
    };
    let mut validator = Validator::default();
    validator.check(&of(&values)?, "c")?;
    validator.check(&of(&values)?, "c")?;
    // The same values elsewhere in memory are looked at again.
    let mut offsets: Vec<i32> = (0..=100).collect();
    offsets[50] = 0;
    let bad = make_array(with_buffer(&values, 0, &offsets));
    let data = of(&values)?;
    let data = broken(&data, data.buffers().to_vec(), vec![bad.to_data()]);
    assert!(validator.check(&data, "c").is_err());
    Ok(())
}

#[test]
fn a_slice_is_checked_where_it_is() -> Outcome {
    let texts = StringArray::from(vec!["a", "b", "c", "d"]);
    let data = with_buffer(&texts, 0, &[0_i32, 9, 2, 3, 4]);
    refused(&data, "offsets go back")?;
    check(&data.slice(2, 2))?;
    let nulls = NullBuffer::from(vec![false, true]);
    let nulls = Int32Array::new(vec![1, 2].into(), Some(nulls));
    check(&nulls.into_data())?;
    Ok(())
}
