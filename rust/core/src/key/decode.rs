//! Key bytes back to values, for cuts and for texts.
//!
//! ```text
//! 01 6F 70 00 00 │ 01 80 00 00 07     service: text, n: int32
//! └─ Text("op")    └─ Int(7)
//! ```
//!
//! # Invariants
//! Any bytes are values or a [`Kind::CorruptSource`](plait_base::Kind::CorruptSource); what decodes
//! encodes to the same bytes.
//!
//! # Cost
//! Linear in the key.
//!
//! # Not here
//! The bytes of one column (`field`) and of a curve (`curve_decode`). Comparing keys: that is
//! `memcmp`. How people read the values (`text`).

use super::curve_decode::curve_values;
use super::field::{KeyValue, corrupt, split_field, value};
use super::shape::KeyShape;
use plait_base::Result;

/// The values of `key`, column by column.
///
/// # Errors
/// [`Kind::CorruptSource`](plait_base::Kind::CorruptSource) when `key` is not a key of `shape`.
pub fn decode(shape: &KeyShape, key: &[u8]) -> Result<Vec<KeyValue>> {
    let mut values = Vec::with_capacity(shape.columns().len());
    let mut rest = key;
    for column in shape.plain() {
        let at = key.len() - rest.len();
        let (field, after) = split_field(column, rest).map_err(|e| e.with_offset(at as u64))?;
        values.push(value(column, field).map_err(|e| e.with_offset(at as u64))?);
        rest = after;
    }
    if let Some(part) = shape.curve_part() {
        let at = (key.len() - rest.len()) as u64;
        let (own, after) = curve_values(part, rest).map_err(|e| e.with_offset(at))?;
        values.extend(own);
        rest = after;
    }
    if !rest.is_empty() {
        return Err(corrupt("key is longer than its columns")
            .with_offset((key.len() - rest.len()) as u64)
            .with_got(format!("{} more bytes", rest.len())));
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::super::shape::{KeyColumn, KeyType};
    use super::super::sort_column::Nulls;
    use super::*;
    use plait_base::Kind;

    fn shape(types: &[(KeyType, bool)]) -> KeyShape {
        let column = |(i, (ty, descending)): (usize, &(KeyType, bool))| KeyColumn {
            name: format!("c{i}"),
            ty: *ty,
            descending: *descending,
            nulls: Nulls::Last,
        };
        KeyShape::try_new(types.iter().enumerate().map(column).collect()).unwrap()
    }

    #[test]
    fn bytes_that_are_no_key_are_corrupt() {
        let text = KeyType::Bytes { text: true };
        let cases: &[(KeyType, bool, &[u8])] = &[
            (KeyType::Int32, false, b""),
            (KeyType::Int32, false, b"\x01\0\0\0"),
            (KeyType::Int32, false, b"\x01\0\0\0\0\0"),
            (KeyType::Int32, false, b"\x00\0\0\0\0"),
            (KeyType::Int32, false, b"\x02\0\0\0\x01"),
            (KeyType::Null, false, b"\x01"),
            (KeyType::Boolean, false, b"\x01\x02"),
            (KeyType::Float64, false, b"\x01\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF"),
            (KeyType::Float32, false, b"\x01\xFF\xFF\xFF\xFF"),
            (text, false, b"\x01a"),
            (text, false, b"\x01a\0"),
            (text, false, b"\x01a\0\x02\0\0"),
            (text, false, b"\x01a\0\0a"),
            (text, true, b"\x01a\0\0"),
        ];
        for (ty, descending, key) in cases {
            let error = decode(&shape(&[(*ty, *descending)]), key).unwrap_err();
            assert_eq!(error.kind(), Kind::CorruptSource, "{ty} {key:02X?}: {error}");
        }
    }
}
