//! How many bytes rows take when they are copied.
//!
//! # Invariants
//! Exact for what is copied row by row, up to a few bytes of padding; dictionaries and buffers of
//! views, which chunks share or unite, are left out.
//!
//! # Cost
//! A range costs as much as one row, except for lists whose elements lie anywhere.
//!
//! # Not here
//! Where chunks end (`chunks`).

use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int32Type, Int64Type, RunEndIndexType};
use arrow_array::{Array, ArrayRef, OffsetSizeTrait, RunArray};
use arrow_schema::DataType;

/// Bytes of a view.
const VIEW: usize = 16;

/// Bytes of rows `start..start + len` of `array`, which has them.
pub(crate) fn bytes(array: &dyn Array, start: usize, len: usize) -> usize {
    use DataType as T;
    let validity = if array.nulls().is_some() { len.div_ceil(8) } else { 0 };
    let values = match array.data_type() {
        T::Null => 0,
        T::Boolean => len.div_ceil(8),
        T::Utf8 => elements(array.as_string::<i32>().value_offsets(), start, len).bytes,
        T::LargeUtf8 => elements(array.as_string::<i64>().value_offsets(), start, len).bytes,
        T::Binary => elements(array.as_binary::<i32>().value_offsets(), start, len).bytes,
        T::LargeBinary => elements(array.as_binary::<i64>().value_offsets(), start, len).bytes,
        T::Utf8View | T::BinaryView => len.saturating_mul(VIEW),
        T::FixedSizeBinary(width) => len.saturating_mul(usize::try_from(*width).unwrap_or(0)),
        T::List(_) => {
            let list = array.as_list::<i32>();
            below(list.values(), &elements(list.value_offsets(), start, len))
        }
        T::LargeList(_) => {
            let list = array.as_list::<i64>();
            below(list.values(), &elements(list.value_offsets(), start, len))
        }
        T::Map(..) => {
            let map = array.as_map();
            below(map.entries(), &elements(map.value_offsets(), start, len))
        }
        T::ListView(_) => {
            let list = array.as_list_view::<i32>();
            views(list.values(), list.offsets(), list.sizes(), start, len)
        }
        T::LargeListView(_) => {
            let list = array.as_list_view::<i64>();
            views(list.values(), list.offsets(), list.sizes(), start, len)
        }
        T::FixedSizeList(_, size) => {
            let size = usize::try_from(*size).unwrap_or(0);
            bytes(array.as_fixed_size_list().values(), start * size, len * size)
        }
        T::Struct(_) => {
            let column = |column: &ArrayRef| bytes(column, start, len);
            array.as_struct().columns().iter().map(column).fold(0, usize::saturating_add)
        }
        T::Dictionary(key, _) => len.saturating_mul(key.primitive_width().unwrap_or(0)),
        T::RunEndEncoded(ends, _) => match ends.data_type() {
            T::Int16 => runs::<Int16Type>(array, start, len),
            T::Int32 => runs::<Int32Type>(array, start, len),
            _ => runs::<Int64Type>(array, start, len),
        },
        T::Union(fields, _) => {
            let union = array.as_union();
            let Some(places) = union.offsets() else {
                let column = |(id, _)| bytes(union.child(id), start, len);
                return fields.iter().map(column).fold(len, usize::saturating_add);
            };
            let row = |row: usize| {
                let place = usize::try_from(places[row]).unwrap_or(0);
                5_usize.saturating_add(bytes(union.child(union.type_ids()[row]), place, 1))
            };
            (start..start + len).map(row).fold(0, usize::saturating_add)
        }
        other => len.saturating_mul(other.primitive_width().unwrap_or(VIEW)),
    };
    validity.saturating_add(values)
}

/// Elements of some lists.
struct Elements {
    first: usize,
    count: usize,
    /// What elements of one byte and the offsets of their lists take.
    bytes: usize,
}

fn elements<O: OffsetSizeTrait>(offsets: &[O], start: usize, len: usize) -> Elements {
    let at = |row: usize| offsets.get(row).map_or(0, |offset| offset.as_usize());
    let count = at(start + len).saturating_sub(at(start));
    Elements { first: at(start), count, bytes: count.saturating_add(len * size_of::<O>()) }
}

fn below(values: &dyn Array, elements: &Elements) -> usize {
    let Elements { first, count, bytes: own } = *elements;
    (own - count).saturating_add(bytes(values, first, count))
}

fn views<O: OffsetSizeTrait>(
    values: &ArrayRef,
    offsets: &[O],
    sizes: &[O],
    start: usize,
    len: usize,
) -> usize {
    let rows = offsets[start..start + len].iter().zip(&sizes[start..start + len]);
    let row = |(offset, size): (&O, &O)| {
        (2 * size_of::<O>()).saturating_add(bytes(values, offset.as_usize(), size.as_usize()))
    };
    rows.map(row).fold(0, usize::saturating_add)
}

fn runs<R: RunEndIndexType>(array: &dyn Array, start: usize, len: usize) -> usize {
    let Some(runs) = array.as_any().downcast_ref::<RunArray<R>>() else { return 0 };
    if len == 0 {
        return 0;
    }
    let ends = runs.run_ends();
    let (first, last) = (ends.get_physical_index(start), ends.get_physical_index(start + len - 1));
    let values = last + 1 - first;
    (values * size_of::<R::Native>()).saturating_add(bytes(runs.values(), first, values))
}
