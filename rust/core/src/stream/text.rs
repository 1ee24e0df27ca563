//! The keys of plain text columns, row by row: what `crate::key` gives, sooner.
//!
//! ```text
//! a  "cpu"  "disk"        one search for zero bytes a column, not a value
//! b  "x"    "y"           row   01 63 70 75 00 00 │ 01 78 00 00     on the stack, pushed as one key
//! ```
//!
//! # Invariants
//! The same bytes as [`encode_arrow`](crate::key::encode_arrow) gives, or none: where there are nulls,
//! zero bytes, descending columns, other types or long rows, it is asked.
//!
//! # Cost
//! Each value is copied twice, most as 16 bytes at once, and read once more for the search.
//!
//! # Not here
//! The format and all other columns (`crate::key`).

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;

use crate::key::{KeyBytes, KeyColumn, KeyShape, KeyType, Keys};

/// Before every value.
const VALUE: u8 = 0x01;

/// Bytes of the longest keys that are made here.
const KEY_BYTES_MAX: usize = 256;

/// Bytes that are copied at once.
const CHUNK: usize = 16;

/// Columns that keys of [`KEY_BYTES_MAX`] bytes have room for, and more than most have.
const COLUMNS_MAX: usize = 16;

/// One column.
struct Texts<'a> {
    offsets: Offsets<'a>,
    bytes: &'a [u8],
}

enum Offsets<'a> {
    Small(&'a [i32]),
    Large(&'a [i64]),
}

impl<'a> Texts<'a> {
    fn of(column: &KeyColumn, array: &'a ArrayRef) -> Option<Self> {
        let is_text = matches!(column.ty, KeyType::Bytes { .. }) && !column.descending;
        if !is_text || array.null_count() > 0 {
            return None;
        }
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
        Some(Self { offsets, bytes })
    }

    /// Where value `row` begins.
    #[inline(always)]
    fn at(&self, row: usize) -> Option<usize> {
        match self.offsets {
            Offsets::Small(offsets) => usize::try_from(*offsets.get(row)?).ok(),
            Offsets::Large(offsets) => usize::try_from(*offsets.get(row)?).ok(),
        }
    }

    /// Writes value `row` of at most `to.len() - 3 - CHUNK` bytes with its marker and terminator.
    #[inline(always)]
    fn write(&self, row: usize, to: &mut [u8]) -> Option<usize> {
        let (from, end) = (self.at(row)?, self.at(row + 1)?);
        let len = end.checked_sub(from)?;
        let to = to.get_mut(..len + 3 + CHUNK)?;
        to[0] = VALUE;
        match self.bytes.get(from..from + CHUNK) {
            Some(chunk) if len <= CHUNK => to[1..=CHUNK].copy_from_slice(chunk),
            _ => to[1..=len].copy_from_slice(self.bytes.get(from..end)?),
        }
        to[len + 1..len + 3].copy_from_slice(&[0; 2]);
        Some(len + 3)
    }
}

/// The keys of `len` rows from row `start` on; none if they are not made here.
pub(super) fn encode(
    shape: &KeyShape,
    arrays: &[ArrayRef],
    start: usize,
    len: usize,
) -> Option<Keys> {
    if arrays.len() > COLUMNS_MAX || shape.curve().is_some() {
        return None;
    }
    let columns = shape.columns().iter().zip(arrays);
    let columns: Vec<Texts<'_>> =
        columns.map(|(column, array)| Texts::of(column, array)).collect::<Option<_>>()?;
    for texts in &columns {
        if texts.bytes.get(texts.at(start)?..texts.at(start + len)?)?.contains(&0) {
            return None;
        }
    }
    let mut keys = KeyBytes::default();
    let mut key = [0; KEY_BYTES_MAX];
    for row in start..start + len {
        let mut at = 0;
        for texts in &columns {
            at += texts.write(row, &mut key[at..])?;
        }
        keys.push(&key[..at]);
    }
    Some(Keys::Bytes(keys))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{BinaryArray, LargeStringArray, StringArray};
    use proptest::prelude::*;

    use super::*;
    use crate::key::{Nulls, encode_arrow};

    proptest! {
        #[test]
        fn the_keys_are_those_of_all_columns(
            rows in prop::collection::vec(("[ab\\PC]{0,9}", "[a-c]{0,40}", "[\u{1}-\u{7f}]{0,120}"), 1..20),
            start in 0_usize..20, zero: bool,
        ) {
            let start = start % rows.len();
            let tail = if zero { "\0" } else { "" };
            let a = StringArray::from_iter_values(rows.iter().map(|row| &row.0));
            let b = LargeStringArray::from_iter_values(rows.iter().map(|row| &row.1));
            let c = BinaryArray::from_iter_values(rows.iter().map(|row| format!("{}{tail}", row.2)));
            let arrays: Vec<ArrayRef> = vec![Arc::new(a), Arc::new(b), Arc::new(c)];
            let columns = (0..3).map(|i| KeyColumn {
                name: format!("c{i}"),
                ty: KeyType::Bytes { text: i < 2 },
                descending: false,
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
                None => prop_assert!(zeros || rows.iter().any(|row| row.2.len() > 100)),
            }
            let sliced = encode(&shape, &slices, 0, len);
            prop_assert_eq!(sliced, encode(&shape, &arrays, start, len));
        }
    }
}
