//! How many bytes some rows of a batch are, and where to cut it so that no part is too large.
//!
//! # Invariants
//! Rows are counted by what they hold, not by the buffers they share. One row that is larger than
//! the limit is a part of its own.
//!
//! # Cost
//! Fixed-width columns: nothing. Others: two offsets a cut.
//!
//! # Not here
//! Batches in rows (`file`).

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;

/// Parts of `batch` of at most `rows_max` rows and `bytes_max` bytes each, in order.
pub(super) fn split(batch: RecordBatch, rows_max: usize, bytes_max: usize) -> Vec<RecordBatch> {
    let rows = batch.num_rows();
    if rows <= rows_max && (rows <= 1 || batch_bytes(&batch, 0, rows) <= bytes_max) {
        return vec![batch];
    }
    let (mut parts, mut start) = (Vec::new(), 0);
    while start < rows {
        // The most rows that fit, found by halving.
        let (mut fits, mut too_many) = (1, (rows - start).min(rows_max) + 1);
        while too_many - fits > 1 {
            let middle = fits + (too_many - fits) / 2;
            if batch_bytes(&batch, start, middle) <= bytes_max {
                fits = middle;
            } else {
                too_many = middle;
            }
        }
        parts.push(batch.slice(start, fits));
        start += fits;
    }
    parts
}

/// Bytes of all columns of some rows.
pub(super) fn batch_bytes(batch: &RecordBatch, start: usize, rows: usize) -> usize {
    batch.columns().iter().map(|column| array_bytes(column, start, rows)).sum()
}

fn array_bytes(array: &ArrayRef, start: usize, rows: usize) -> usize {
    use DataType as T;
    let validity = if array.nulls().is_some() { rows.div_ceil(8) } else { 0 };
    fn between<O: Copy + TryInto<usize>>(offsets: &[O], start: usize, rows: usize) -> Range<usize> {
        let at = |i: usize| offsets.get(i).and_then(|o| (*o).try_into().ok()).unwrap_or(0);
        at(start)..at(start + rows)
    }
    let inner =
        |values: &ArrayRef, range: &Range<usize>| array_bytes(values, range.start, range.len());
    validity
        + match array.data_type() {
            T::Null => 0,
            T::Boolean => rows.div_ceil(8),
            T::Utf8 => {
                between(array.as_string::<i32>().value_offsets(), start, rows).len() + 4 * rows
            }
            T::Binary => {
                between(array.as_binary::<i32>().value_offsets(), start, rows).len() + 4 * rows
            }
            T::LargeUtf8 => {
                between(array.as_string::<i64>().value_offsets(), start, rows).len() + 8 * rows
            }
            T::LargeBinary => {
                between(array.as_binary::<i64>().value_offsets(), start, rows).len() + 8 * rows
            }
            T::Utf8View => views(array.as_string_view().views(), start, rows),
            T::BinaryView => views(array.as_binary_view().views(), start, rows),
            T::List(_) => {
                let list = array.as_list::<i32>();
                inner(list.values(), &between(list.value_offsets(), start, rows)) + 4 * rows
            }
            T::LargeList(_) => {
                let list = array.as_list::<i64>();
                inner(list.values(), &between(list.value_offsets(), start, rows)) + 8 * rows
            }
            T::FixedSizeList(_, n) => {
                let n = usize::try_from(*n).unwrap_or(0);
                array_bytes(array.as_fixed_size_list().values(), start * n, rows * n)
            }
            T::Map(..) => {
                let map = array.as_map();
                let range = between(map.value_offsets(), start, rows);
                inner(map.keys(), &range) + inner(map.values(), &range) + 4 * rows
            }
            T::Struct(_) => {
                let columns = array.as_struct().columns();
                columns.iter().map(|column| array_bytes(column, start, rows)).sum()
            }
            // Values of a dictionary are shared by all parts.
            T::Dictionary(key, _) => rows * key.primitive_width().unwrap_or(8),
            T::FixedSizeBinary(n) => rows * usize::try_from(*n).unwrap_or(0),
            ty => match ty.primitive_width() {
                Some(width) => rows * width,
                None => array.get_array_memory_size() / array.len().max(1) * rows,
            },
        }
}

fn views(views: &[u128], start: usize, rows: usize) -> usize {
    let some = views.get(start..start + rows).unwrap_or_default();
    // The low 32 bits are the length; up to 12 bytes are in the view itself.
    some.iter().map(|view| (*view as u32) as usize).filter(|len| *len > 12).sum::<usize>()
        + 16 * rows
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::StringArray;

    use super::*;

    #[test]
    fn a_row_that_is_too_large_is_alone_and_others_are_not() {
        let texts = ["a".repeat(10), "b".repeat(1000), "c".repeat(10), "d".repeat(10)];
        let column: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
        let batch = RecordBatch::try_from_iter([("t", column)]).unwrap();
        let rows =
            |parts: Vec<RecordBatch>| parts.iter().map(RecordBatch::num_rows).collect::<Vec<_>>();
        assert_eq!(rows(split(batch.clone(), 100, 100)), [1, 1, 2]);
        assert_eq!(rows(split(batch.clone(), 100, 10_000)), [4]);
        assert_eq!(rows(split(batch.clone(), 3, 10_000)), [3, 1]);
        assert_eq!(rows(split(batch.slice(2, 2), 100, 28)), [2]);
        assert_eq!(rows(split(batch.slice(2, 2), 100, 27)), [1, 1]);
    }
}
