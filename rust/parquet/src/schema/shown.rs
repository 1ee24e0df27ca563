//! Statistics of a chunk as reports have them.
//!
//! ```text
//! INT32 (DECIMAL(10,2))      min ce 04 00 00  ─▶ 12.30
//! INT64 (TIMESTAMP(MICROS))  min …            ─▶ 2024-05-01 13:00:00.5
//! BYTE_ARRAY (STRING)        min 61           ─▶ a
//! ```
//!
//! # Invariants
//! The values are those of keys (`plait_core::key`). Bytes that are no value of their type are shown
//! as hexadecimal digits.
//!
//! # Not here
//! Which statistics there are (`inspect`).

use arrow_buffer::i256;
use arrow_schema::DataType;
use half::f16;
use parquet::basic::Type as PhysicalType;
use parquet::schema::types::ColumnDescriptor;
use plait_core::key::{KeyValue, ShownAs, ShownValue};
use plait_core::type_text;

use super::leaf::{LeafType, Meaning, Tag};

/// What is said of the values of a leaf beyond their physical type: in the words of PyArrow, or in
/// those of the format for what Arrow has no type of its own for.
pub(crate) fn logical_type(column: &ColumnDescriptor) -> Option<String> {
    let leaf = LeafType::of(column.self_type())?;
    let annotation = leaf.annotation()?;
    Some(match leaf.meaning() {
        Some(Meaning { ty, tag: Tag::Plain | Tag::Time { .. } }) => type_text(&ty),
        _ => annotation,
    })
}

/// The type of the values of a leaf, as PyArrow prints it.
pub(crate) fn data_type(column: &ColumnDescriptor) -> String {
    LeafType::of(column.self_type()).map_or_else(String::new, |leaf| leaf.to_string())
}

/// A bound as statistics hold it, as reports have it.
pub(crate) fn shown_bound(column: &ColumnDescriptor, bytes: &[u8]) -> Option<ShownValue> {
    let leaf = LeafType::of(column.self_type());
    let meaning = leaf.as_ref().and_then(LeafType::meaning);
    let value = value(column.physical_type(), meaning.as_ref(), bytes);
    let shown = leaf.map_or(ShownAs::Plain, |leaf| leaf.shown());
    shown.shown(&value.unwrap_or_else(|| KeyValue::Bytes(bytes.to_vec())))
}

fn value(physical: PhysicalType, meaning: Option<&Meaning>, bytes: &[u8]) -> Option<KeyValue> {
    let ty = meaning.map(|meaning| &meaning.ty);
    let unscaled = |unscaled: i256| match ty {
        Some(DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale)) => {
            Some(KeyValue::Decimal { unscaled, scale: i32::from(*scale) })
        }
        _ => None,
    };
    let is_unsigned = ty.is_some_and(DataType::is_unsigned_integer);
    Some(match physical {
        PhysicalType::BOOLEAN => KeyValue::Boolean(*bytes.first()? != 0),
        PhysicalType::INT32 if is_unsigned => {
            KeyValue::UInt(u32::from_le_bytes(bytes.try_into().ok()?).into())
        }
        PhysicalType::INT32 => {
            let number = i32::from_le_bytes(bytes.try_into().ok()?).into();
            unscaled(i256::from_i128(number)).unwrap_or(KeyValue::Int(number as i64))
        }
        PhysicalType::INT64 if is_unsigned => {
            KeyValue::UInt(u64::from_le_bytes(bytes.try_into().ok()?))
        }
        PhysicalType::INT64 => {
            let number = i64::from_le_bytes(bytes.try_into().ok()?);
            unscaled(i256::from_i128(number.into())).unwrap_or(KeyValue::Int(number))
        }
        PhysicalType::INT96 => {
            let (nanos, day) = bytes.split_at_checked(8)?;
            KeyValue::Int96 {
                day: i32::from_le_bytes(day.try_into().ok()?),
                nanos: u64::from_le_bytes(nanos.try_into().ok()?),
            }
        }
        PhysicalType::FLOAT => KeyValue::Float32(f32::from_le_bytes(bytes.try_into().ok()?)),
        PhysicalType::DOUBLE => KeyValue::Float(f64::from_le_bytes(bytes.try_into().ok()?)),
        PhysicalType::BYTE_ARRAY | PhysicalType::FIXED_LEN_BYTE_ARRAY => match ty? {
            DataType::Float16 => {
                KeyValue::Float32(f16::from_le_bytes(bytes.try_into().ok()?).to_f32())
            }
            ty if *ty == DataType::Utf8 || meaning?.tag == Tag::Enum => {
                KeyValue::Text(String::from_utf8(bytes.to_vec()).ok()?)
            }
            _ => unscaled(wide(bytes)?)?,
        },
    })
}

/// A number of any length, two's complement, big-endian.
fn wide(bytes: &[u8]) -> Option<i256> {
    let first = *bytes.first()?;
    let mut all = [if first >> 7 == 1 { 0xFF } else { 0 }; 32];
    let from = all.len().checked_sub(bytes.len())?;
    all[from..].copy_from_slice(bytes);
    Some(i256::from_be_bytes(all))
}

#[cfg(test)]
mod tests {
    use parquet::schema::parser::parse_message_type;
    use parquet::schema::types::{ColumnDescPtr, SchemaDescriptor};

    use super::*;

    fn column(of: &str) -> ColumnDescPtr {
        let message = format!("message m {{ required {of}; }}");
        let schema = SchemaDescriptor::new(parse_message_type(&message).unwrap().into());
        schema.column(0)
    }

    #[test]
    fn every_type_is_in_the_words_of_pyarrow() {
        for (of, text) in [
            ("INT64 a", "int64"),
            ("INT32 a (INTEGER(8,false))", "uint8"),
            ("BYTE_ARRAY a", "binary"),
            ("BYTE_ARRAY a (JSON)", "string (JSON)"),
            ("FIXED_LEN_BYTE_ARRAY(7) a", "fixed_size_binary[7]"),
            ("FIXED_LEN_BYTE_ARRAY(16) a (UUID)", "fixed_size_binary[16] (UUID)"),
            ("INT32 a (TIME(MILLIS,true))", "time32[ms] (UTC)"),
            ("INT96 a", "timestamp[ns] (INT96)"),
        ] {
            assert_eq!(data_type(&column(of)), text, "{of}");
        }
    }

    #[test]
    fn types_are_in_the_words_of_pyarrow_where_it_has_them() {
        for (of, text) in [
            ("INT64 a (TIMESTAMP(MICROS,true))", Some("timestamp[us, tz=UTC]")),
            ("INT32 a (TIME(MILLIS,true))", Some("time32[ms]")),
            ("INT32 a (DECIMAL(9,2))", Some("decimal128(9, 2)")),
            ("BYTE_ARRAY a (STRING)", Some("string")),
            ("BYTE_ARRAY a (JSON)", Some("JSON")),
            ("FIXED_LEN_BYTE_ARRAY(16) a (UUID)", Some("UUID")),
            ("INT64 a", None),
        ] {
            assert_eq!(logical_type(&column(of)).as_deref(), text, "{of}");
        }
    }

    #[test]
    fn bounds_are_shown_as_their_types_say() {
        let cases: &[(&str, &[u8], &str)] = &[
            ("INT32 a (DECIMAL(9,2))", &[0xce, 4, 0, 0], "12.30"),
            ("INT32 a (INTEGER(32,false))", &[0xff; 4], "4294967295"),
            ("INT64 a (INTEGER(64,false))", &[0xff; 8], "18446744073709551615"),
            ("INT32 a (DATE)", &[0xff; 4], "1969-12-31"),
            (
                "INT64 a (TIMESTAMP(MILLIS,true))",
                &[1, 0, 0, 0, 0, 0, 0, 0],
                "1970-01-01 00:00:00.001Z",
            ),
            ("INT64 a (TIME(NANOS,false))", &[1, 0, 0, 0, 0, 0, 0, 0], "00:00:00.000000001"),
            (
                "INT96 a",
                &[5, 0, 0, 0, 0, 0, 0, 0, 0x8c, 0x3d, 0x25, 0],
                "1970-01-01 00:00:00.000000005",
            ),
            ("BYTE_ARRAY a (STRING)", b"a", "a"),
            ("BYTE_ARRAY a (STRING)", b"a\xff", "0x61ff"),
            ("BYTE_ARRAY a (ENUM)", b"a", "a"),
            ("BYTE_ARRAY a", b"a", "0x61"),
            ("FIXED_LEN_BYTE_ARRAY(2) a (DECIMAL(4,2))", &[0xff, 0xff], "-0.01"),
            ("FIXED_LEN_BYTE_ARRAY(2) a (FLOAT16)", &[0, 0x3c], "1"),
            ("INT64 a", b"short", "0x73686f7274"),
        ];
        for (of, bytes, text) in cases {
            assert_eq!(shown_bound(&column(of), bytes).unwrap().to_string(), *text, "{of}");
        }
    }
}
