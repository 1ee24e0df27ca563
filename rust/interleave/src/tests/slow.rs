//! The slow twin: rows one by one as plain values, in safe code. The oracle of the tests.

use std::fmt::Write;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, downcast_primitive_array};
use arrow_schema::DataType;

/// Row `i` of `array` as text, the same for equal values of one logical type.
pub(super) fn shown(array: &dyn Array, i: usize) -> String {
    use DataType as T;
    if array.is_null(i) {
        return "null".to_owned();
    }
    let list = |values: ArrayRef| {
        let all: Vec<String> = (0..values.len()).map(|i| shown(&values, i)).collect();
        format!("[{}]", all.join(", "))
    };
    downcast_primitive_array! {
        array => format!("{:?}", array.value(i)),
        T::Null => "null".to_owned(),
        T::Boolean => array.as_boolean().value(i).to_string(),
        T::Utf8 => format!("{:?}", array.as_string::<i32>().value(i)),
        T::LargeUtf8 => format!("{:?}", array.as_string::<i64>().value(i)),
        T::Utf8View => format!("{:?}", array.as_string_view().value(i)),
        T::Binary => format!("{:?}", array.as_binary::<i32>().value(i)),
        T::LargeBinary => format!("{:?}", array.as_binary::<i64>().value(i)),
        T::BinaryView => format!("{:?}", array.as_binary_view().value(i)),
        T::FixedSizeBinary(_) => format!("{:?}", array.as_fixed_size_binary().value(i)),
        T::List(_) => list(array.as_list::<i32>().value(i)),
        T::LargeList(_) => list(array.as_list::<i64>().value(i)),
        T::ListView(_) => list(array.as_list_view::<i32>().value(i)),
        T::LargeListView(_) => list(array.as_list_view::<i64>().value(i)),
        T::FixedSizeList(..) => list(array.as_fixed_size_list().value(i)),
        T::Map(..) => list(std::sync::Arc::new(array.as_map().value(i))),
        T::Struct(_) => {
            let mut text = "{".to_owned();
            for column in array.as_struct().columns() {
                write!(text, "{}, ", shown(column, i)).unwrap();
            }
            text + "}"
        }
        T::Union(..) => {
            let union = array.as_union();
            format!("{}:{}", union.type_id(i), shown(&union.value(i), 0))
        }
        T::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            shown(dictionary.values(), dictionary.normalized_keys()[i])
        }
        T::RunEndEncoded(ends, _) => match ends.data_type() {
            T::Int16 => run(array.as_run::<Int16Type>().values(), array.as_run::<Int16Type>().get_physical_index(i)),
            T::Int32 => run(array.as_run::<Int32Type>().values(), array.as_run::<Int32Type>().get_physical_index(i)),
            _ => run(array.as_run::<Int64Type>().values(), array.as_run::<Int64Type>().get_physical_index(i)),
        },
        other => unreachable!("{other}"),
    }
}

fn run(values: &ArrayRef, i: usize) -> String {
    shown(values, i)
}

/// The rows that leave, one by one.
pub(super) fn gather(values: &[ArrayRef], rows: &[(usize, usize)]) -> Vec<String> {
    rows.iter().map(|(array, row)| shown(&values[*array], *row)).collect()
}

/// All rows of one array.
pub(super) fn rows(array: &dyn Array) -> Vec<String> {
    (0..array.len()).map(|i| shown(array, i)).collect()
}
