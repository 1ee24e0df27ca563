//! The keys of plain columns of texts and integers, row by row: what `crate::key` gives, sooner.
//!
//! ```text
//! a  "cpu"  "disk"        one search for zero bytes a column, not a value
//! b  7      -1            row   01 63 70 75 00 00 │ 01 80 00 00 07     written where the key is kept
//! ```
//!
//! # Invariants
//! The same bytes as [`encode_arrow`](crate::key::encode_arrow) gives, or none: where there are nulls,
//! zero bytes, other types or keys that pack into numbers, it is asked.
//!
//! # Cost
//! Each value is copied once, most texts as 32 bytes at once, and read once more for the search.
//!
//! # Not here
//! The format and all other columns (`crate::key`).

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Date64Type, Int32Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, TimeUnit};

use crate::key::{KeyBytes, KeyColumn, KeyShape, KeyType, Keys};

/// Before every value.
const VALUE: u8 = 0x01;

/// Bytes of the longest keys that are made here, on average.
const KEY_BYTES_MAX: usize = 1 << 10;

/// Bytes that are copied at once.
const CHUNK: usize = 32;

/// Marker and terminator of a text.
const TEXT_BYTES: usize = 3;

/// One column.
enum RowColumn<'a> {
    Texts(Texts<'a>),
    Int32 { values: &'a [i32], flip: u32 },
    Int64 { values: &'a [i64], flip: u64 },
}

struct Texts<'a> {
    offsets: Offsets<'a>,
    bytes: &'a [u8],
    /// What every byte but the marker is combined with.
    mask: u8,
}

enum Offsets<'a> {
    Small(&'a [i32]),
    Large(&'a [i64]),
}

impl<'a> RowColumn<'a> {
    fn of(column: &KeyColumn, array: &'a ArrayRef) -> Option<Self> {
        if array.null_count() > 0 {
            return None;
        }
        let mask = column.mask();
        match column.ty {
            KeyType::Bytes { .. } => Texts::of(array, mask).map(Self::Texts),
            KeyType::Int32 => {
                let flip = u32::from_ne_bytes([mask; 4]) ^ 1 << 31;
                int32s(array).map(|values| Self::Int32 { values, flip })
            }
            KeyType::Int64 => {
                let flip = u64::from_ne_bytes([mask; 8]) ^ 1 << 63;
                int64s(array).map(|values| Self::Int64 { values, flip })
            }
            _ => None,
        }
    }

    /// Bytes of the keys of `len` rows from row `start` on; none where a text has a zero byte.
    fn bytes(&self, start: usize, len: usize) -> Option<usize> {
        match self {
            Self::Int32 { .. } => len.checked_mul(5),
            Self::Int64 { .. } => len.checked_mul(9),
            Self::Texts(texts) => {
                let bytes = texts.bytes.get(texts.at(start)?..texts.at(start + len)?)?;
                let has_zero = bytes.contains(&0);
                (!has_zero).then(|| bytes.len() + TEXT_BYTES * len)
            }
        }
    }

    /// Writes value `row`, and gives its length; there is room for [`CHUNK`] bytes more.
    #[inline(always)]
    fn write(&self, row: usize, to: &mut [u8]) -> Option<usize> {
        match self {
            Self::Texts(texts) => texts.write(row, to),
            Self::Int32 { values, flip } => {
                let to = to.first_chunk_mut::<5>()?;
                to[0] = VALUE;
                let value = values.get(row)?.cast_unsigned() ^ flip;
                to[1..].copy_from_slice(&value.to_be_bytes());
                Some(to.len())
            }
            Self::Int64 { values, flip } => {
                let to = to.first_chunk_mut::<9>()?;
                to[0] = VALUE;
                let value = values.get(row)?.cast_unsigned() ^ flip;
                to[1..].copy_from_slice(&value.to_be_bytes());
                Some(to.len())
            }
        }
    }
}

fn int32s(array: &ArrayRef) -> Option<&[i32]> {
    match array.data_type() {
        DataType::Int32 => Some(array.as_primitive::<Int32Type>().values()),
        DataType::Date32 => Some(array.as_primitive::<Date32Type>().values()),
        _ => None,
    }
}

fn int64s(array: &ArrayRef) -> Option<&[i64]> {
    Some(match array.data_type() {
        DataType::Int64 => array.as_primitive::<Int64Type>().values(),
        DataType::Date64 => array.as_primitive::<Date64Type>().values(),
        DataType::Timestamp(unit, _) => match unit {
            TimeUnit::Second => array.as_primitive::<TimestampSecondType>().values(),
            TimeUnit::Millisecond => array.as_primitive::<TimestampMillisecondType>().values(),
            TimeUnit::Microsecond => array.as_primitive::<TimestampMicrosecondType>().values(),
            TimeUnit::Nanosecond => array.as_primitive::<TimestampNanosecondType>().values(),
        },
        _ => return None,
    })
}

impl<'a> Texts<'a> {
    fn of(array: &'a ArrayRef, mask: u8) -> Option<Self> {
        let (offsets, bytes) = match array.data_type() {
            DataType::Utf8 => {
                let array = array.as_string::<i32>();
                (Offsets::Small(array.value_offsets()), array.value_data())
            }
            DataType::LargeUtf8 => {
                let array = array.as_string::<i64>();
                (Offsets::Large(array.value_offsets()), array.value_data())
            }
            DataType::Binary => {
                let array = array.as_binary::<i32>();
                (Offsets::Small(array.value_offsets()), array.value_data())
            }
            DataType::LargeBinary => {
                let array = array.as_binary::<i64>();
                (Offsets::Large(array.value_offsets()), array.value_data())
            }
            _ => return None,
        };
        Some(Self { offsets, bytes, mask })
    }

    /// Where value `row` begins.
    #[inline(always)]
    fn at(&self, row: usize) -> Option<usize> {
        match self.offsets {
            Offsets::Small(offsets) => usize::try_from(*offsets.get(row)?).ok(),
            Offsets::Large(offsets) => usize::try_from(*offsets.get(row)?).ok(),
        }
    }

    /// Writes value `row` with its marker and terminator.
    #[inline(always)]
    fn write(&self, row: usize, to: &mut [u8]) -> Option<usize> {
        let (from, end) = (self.at(row)?, self.at(row + 1)?);
        let len = end.checked_sub(from)?;
        let to = to.get_mut(..len + TEXT_BYTES + CHUNK)?;
        to[0] = VALUE;
        match self.bytes.get(from..from + CHUNK) {
            Some(chunk) if len <= CHUNK => to[1..=CHUNK].copy_from_slice(chunk),
            _ => to[1..=len].copy_from_slice(self.bytes.get(from..end)?),
        }
        to[len + 1..len + TEXT_BYTES].fill(0);
        if self.mask != 0 {
            to[1..len + TEXT_BYTES].iter_mut().for_each(|byte| *byte ^= self.mask);
        }
        Some(len + TEXT_BYTES)
    }
}

/// The keys of `len` rows from row `start` on; none if they are not made here.
pub(super) fn encode(
    shape: &KeyShape,
    arrays: &[ArrayRef],
    start: usize,
    len: usize,
) -> Option<Keys> {
    if shape.packs() || shape.curve().is_some() {
        return None;
    }
    let columns = shape.columns().iter().zip(arrays);
    let columns: Vec<RowColumn<'_>> =
        columns.map(|(column, array)| RowColumn::of(column, array)).collect::<Option<_>>()?;
    let mut bytes = 0_usize;
    for column in &columns {
        bytes = bytes.checked_add(column.bytes(start, len)?)?;
    }
    if bytes > KEY_BYTES_MAX * len {
        return None;
    }
    let mut data = vec![0; bytes + CHUNK];
    let mut offsets = Vec::with_capacity(len + 1);
    offsets.push(0);
    let mut at = 0;
    for row in start..start + len {
        for column in &columns {
            at += column.write(row, data.get_mut(at..)?)?;
        }
        offsets.push(at);
    }
    data.truncate(at);
    Some(Keys::Bytes(KeyBytes::from_parts(offsets, data)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{
        BinaryArray, Int32Array, Int64Array, LargeStringArray, StringArray, TimestampSecondArray,
    };
    use proptest::prelude::*;

    use super::*;
    use crate::key::{Nulls, encode_arrow};

    proptest! {
        #[test]
        fn the_keys_are_those_of_all_columns(
            rows in prop::collection::vec(
                ("[ab\\PC]{0,9}", "[a-c]{0,40}", "[\u{1}-\u{7f}]{0,120}", any::<(i32, i64)>()), 1..20,
            ),
            start in 0_usize..20, zero: bool, descending in prop::collection::vec(any::<bool>(), 6),
        ) {
            let start = start % rows.len();
            let tail = if zero { "\0" } else { "" };
            let arrays: Vec<ArrayRef> = vec![
                Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row.0))),
                Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.3.0))),
                Arc::new(LargeStringArray::from_iter_values(rows.iter().map(|row| &row.1))),
                Arc::new(BinaryArray::from_iter_values(rows.iter().map(|row| format!("{}{tail}", row.2)))),
                Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.3.1))),
                Arc::new(TimestampSecondArray::from_iter_values(rows.iter().map(|row| row.3.1 / 3))),
            ];
            let columns = arrays.iter().zip(&descending).enumerate();
            let columns = columns.map(|(i, (array, descending))| KeyColumn {
                name: format!("c{i}"),
                ty: KeyType::from_arrow(array.data_type()).unwrap(),
                descending: *descending,
                nulls: Nulls::Last,
            });
            let shape = KeyShape::try_new(columns.collect()).unwrap();
            let len = rows.len() - start;
            let slices: Vec<ArrayRef> = arrays.iter().map(|a| a.slice(start, len)).collect();
            let known = encode_arrow(&shape, &slices).unwrap();
            let zeros = zero || rows[start..].iter().any(|row| row.0.contains('\0'));
            match encode(&shape, &arrays, start, len) {
                Some(keys) => {
                    prop_assert!(!zeros);
                    prop_assert_eq!(keys, known);
                }
                None => prop_assert!(zeros),
            }
            let sliced = encode(&shape, &slices, 0, len);
            prop_assert_eq!(sliced, encode(&shape, &arrays, start, len));
        }
    }

    #[test]
    fn keys_that_pack_and_nulls_are_left_to_others() {
        let shape = |types: &[KeyType]| {
            let column = |(i, ty): (usize, &KeyType)| KeyColumn {
                name: format!("c{i}"),
                ty: *ty,
                descending: false,
                nulls: Nulls::Last,
            };
            KeyShape::try_new(types.iter().enumerate().map(column).collect()).unwrap()
        };
        let number: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let text: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
        assert!(encode(&shape(&[KeyType::Int64]), &[Arc::clone(&number)], 0, 2).is_none());
        let both = shape(&[KeyType::Bytes { text: true }, KeyType::Int64]);
        assert!(encode(&both, &[text, number], 0, 2).is_none());
    }
}
