//! The bytes of one column of a key, back to its value.
//!
//! ```text
//! 01 80 00 00 07 …     n: int32   ─▶ Fixed(80 00 00 07), what follows ─▶ Int(7)
//! ```
//!
//! # Invariants
//! Any bytes are a value or a [`Kind::CorruptSource`]; what decodes encodes to the same bytes.
//!
//! # Not here
//! Whole keys (`decode`); columns of a curve, which have no bytes of their own (`curve_decode`).

use std::fmt;

use arrow_buffer::i256;
use half::f16;

use super::keys::{ESCAPED, VALUE};
use super::number::{flip_sign, float16, float32, float64};
use super::shape::{KeyColumn, KeyType};
use plait_base::{Error, Kind, Result};

/// One value of a key.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum KeyValue {
    /// Null.
    Null,
    /// Boolean.
    Boolean(bool),
    /// Signed integer, date, time or timestamp.
    Int(i64),
    /// Unsigned integer.
    UInt(u64),
    /// Half or single precision.
    Float32(f32),
    /// Double precision.
    Float(f64),
    /// Decimal: `unscaled` times ten to the minus `scale`.
    Decimal {
        /// All digits as an integer.
        unscaled: i256,
        /// Digits after the point.
        scale: i32,
    },
    /// Parquet's legacy timestamp.
    Int96 {
        /// Julian day.
        day: i32,
        /// Nanoseconds of the day.
        nanos: u64,
    },
    /// Binary, or text that is not UTF-8.
    Bytes(Vec<u8>),
    /// Text.
    Text(String),
}

impl fmt::Display for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Boolean(value) => value.fmt(f),
            Self::Int(value) => value.fmt(f),
            Self::UInt(value) => value.fmt(f),
            Self::Float32(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            Self::Decimal { unscaled, scale } => f.write_str(&decimal_text(*unscaled, *scale)),
            Self::Int96 { day, nanos } => write!(f, "julian day {day} + {nanos} ns"),
            Self::Bytes(value) => f.write_str(&hex(value)),
            Self::Text(value) => f.write_str(value),
        }
    }
}

/// What stands behind a marker.
pub(super) enum Field<'a> {
    Null,
    /// Exactly the width of the type, still complemented when descending.
    Fixed(&'a [u8]),
    /// Still escaped and complemented, without the terminator.
    Variable(&'a [u8]),
}

/// The first column of `bytes`, and what follows it.
pub(super) fn split_field<'a>(
    column: &KeyColumn,
    bytes: &'a [u8],
) -> Result<(Field<'a>, &'a [u8])> {
    let error = |what| corrupt(what).with_column(&column.name);
    if let KeyType::Rank { bytes: width } = column.ty {
        let field = bytes.split_at_checked(usize::from(width));
        let field = field.map(|(rank, after)| (Field::Fixed(rank), after));
        return field.ok_or_else(|| error("key ends in the middle of a column"));
    }
    let Some((marker, rest)) = bytes.split_first() else {
        return Err(error("key ends before a column"));
    };
    let null = *marker == column.null_marker();
    if !null && (*marker != VALUE || column.ty == KeyType::Null) {
        return Err(error("key column starts with an unknown marker")
            .with_got(format!("byte {marker:02X}")));
    }
    if let Some(width) = column.ty.width() {
        let Some((value, after)) = rest.split_at_checked(width) else {
            return Err(error("key ends in the middle of a column"));
        };
        if null && value.iter().any(|byte| *byte != 0) {
            return Err(error("null in a key is followed by other bytes than zeros"));
        }
        return Ok((if null { Field::Null } else { Field::Fixed(value) }, after));
    }
    if null {
        return Ok((Field::Null, rest));
    }
    let mask = column.mask();
    let mut end = 0;
    loop {
        let after = rest.get(end..).unwrap_or_default();
        let Some(zero) = after.iter().position(|byte| *byte == mask) else {
            return Err(error("key ends in the middle of a column"));
        };
        end += zero;
        match rest.get(end + 1).map(|byte| byte ^ mask) {
            Some(0) => break,
            Some(ESCAPED) => end += 2,
            Some(_) => return Err(error("zero byte in a key is followed by neither 00 nor 01")),
            None => return Err(error("key ends in the middle of a column")),
        }
    }
    let (value, after) = (rest.get(..end), rest.get(end + 2..));
    Ok((Field::Variable(value.unwrap_or_default()), after.unwrap_or_default()))
}

/// A byte string as it was before it was escaped and complemented.
pub(super) fn unescape(column: &KeyColumn, bytes: &[u8]) -> Vec<u8> {
    let mask = column.mask();
    let mut value = Vec::with_capacity(bytes.len());
    let mut after_zero = false;
    for byte in bytes.iter().map(|byte| byte ^ mask) {
        if !after_zero {
            value.push(byte);
        }
        after_zero = !after_zero && byte == 0;
    }
    value
}

pub(super) fn value(column: &KeyColumn, field: Field<'_>) -> Result<KeyValue> {
    match field {
        Field::Null => Ok(KeyValue::Null),
        Field::Fixed(bytes) => fixed(column, bytes),
        Field::Variable(bytes) => {
            let value = unescape(column, bytes);
            if column.ty == (KeyType::Bytes { text: true }) {
                return Ok(String::from_utf8(value)
                    .map_or_else(|e| KeyValue::Bytes(e.into_bytes()), KeyValue::Text));
            }
            Ok(KeyValue::Bytes(value))
        }
    }
}

pub(super) fn fixed(column: &KeyColumn, bytes: &[u8]) -> Result<KeyValue> {
    let mask = column.mask();
    match column.ty {
        KeyType::Null | KeyType::Bytes { .. } => Err(not_canonical(column)),
        KeyType::Boolean => match plain::<1>(bytes, mask)? {
            [0] => Ok(KeyValue::Boolean(false)),
            [1] => Ok(KeyValue::Boolean(true)),
            _ => Err(not_canonical(column)),
        },
        KeyType::Int32 => {
            let value = i32::from_be_bytes(flip_sign(plain(bytes, mask)?));
            Ok(KeyValue::Int(i64::from(value)))
        }
        KeyType::Int64 => Ok(KeyValue::Int(i64::from_be_bytes(flip_sign(plain(bytes, mask)?)))),
        KeyType::UInt32 => Ok(KeyValue::UInt(u64::from(u32::from_be_bytes(plain(bytes, mask)?)))),
        KeyType::UInt64 => Ok(KeyValue::UInt(u64::from_be_bytes(plain(bytes, mask)?))),
        // A float decodes from the one encoding it has: not from that of -0.0 or another NaN.
        KeyType::Float16 => {
            let bytes = plain(bytes, mask)?;
            let bits = u16::from_be_bytes(bytes);
            let value = f16::from_bits(if bits >> 15 == 1 { bits ^ 1 << 15 } else { !bits });
            if float16(value) == bytes {
                return Ok(KeyValue::Float32(value.to_f32()));
            }
            Err(not_canonical(column))
        }
        KeyType::Float32 => {
            let bytes = plain(bytes, mask)?;
            let bits = u32::from_be_bytes(bytes);
            let value = f32::from_bits(if bits >> 31 == 1 { bits ^ 1 << 31 } else { !bits });
            if float32(value) == bytes {
                return Ok(KeyValue::Float32(value));
            }
            Err(not_canonical(column))
        }
        KeyType::Float64 => {
            let bytes = plain(bytes, mask)?;
            let bits = u64::from_be_bytes(bytes);
            let value = f64::from_bits(if bits >> 63 == 1 { bits ^ 1 << 63 } else { !bits });
            if float64(value) == bytes {
                return Ok(KeyValue::Float(value));
            }
            Err(not_canonical(column))
        }
        KeyType::Decimal128 { scale } => {
            let unscaled = i128::from_be_bytes(flip_sign(plain(bytes, mask)?));
            Ok(KeyValue::Decimal { unscaled: i256::from_i128(unscaled), scale })
        }
        KeyType::Decimal256 { scale } => {
            let unscaled = i256::from_be_bytes(flip_sign(plain(bytes, mask)?));
            Ok(KeyValue::Decimal { unscaled, scale })
        }
        KeyType::Rank { .. } => Ok(KeyValue::UInt(number(bytes, mask))),
        KeyType::Int96 => {
            let (day, nanos) = bytes.split_at_checked(4).unwrap_or_default();
            let day = i32::from_be_bytes(flip_sign(plain(day, mask)?));
            Ok(KeyValue::Int96 { day, nanos: u64::from_be_bytes(plain(nanos, mask)?) })
        }
    }
}

/// Big-endian bytes of at most eight as a number.
pub(super) fn number(bytes: &[u8], mask: u8) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(byte ^ mask))
}

fn plain<const W: usize>(bytes: &[u8], mask: u8) -> Result<[u8; W]> {
    let bytes: [u8; W] = bytes
        .try_into()
        .map_err(|_| Error::new(Kind::Internal, "field of a key has the wrong width"))?;
    Ok(bytes.map(|byte| byte ^ mask))
}

pub(super) fn corrupt(what: &str) -> Error {
    Error::new(Kind::CorruptSource, what)
}

pub(super) fn not_canonical(column: &KeyColumn) -> Error {
    corrupt("bytes of a key column encode no value").with_column(&column.name)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(2 + 2 * bytes.len());
    text.push_str("0x");
    for byte in bytes {
        let _infallible = write!(text, "{byte:02x}");
    }
    text
}

fn decimal_text(unscaled: i256, scale: i32) -> String {
    let mut digits = unscaled.to_string();
    let negative = digits.starts_with('-');
    if negative {
        digits.remove(0);
    }
    if scale < 0 && digits != "0" {
        digits.extend(std::iter::repeat_n('0', scale.unsigned_abs() as usize));
    }
    if scale > 0 {
        let scale = scale.unsigned_abs() as usize;
        if digits.len() <= scale {
            digits.insert_str(0, &"0".repeat(scale + 1 - digits.len()));
        }
        digits.insert(digits.len() - scale, '.');
    }
    if negative {
        digits.insert(0, '-');
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_print_as_people_write_them() {
        let decimal = |unscaled, scale| {
            let unscaled = i256::from_i128(unscaled);
            KeyValue::Decimal { unscaled, scale }.to_string()
        };
        assert_eq!(decimal(-12345, 2), "-123.45");
        assert_eq!(decimal(-5, 3), "-0.005");
        assert_eq!(decimal(5, -3), "5000");
        assert_eq!(decimal(0, -3), "0");
        assert_eq!(decimal(7, 0), "7");
        assert_eq!(KeyValue::Float32(0.1).to_string(), "0.1");
        assert_eq!(KeyValue::Bytes(vec![0, 255]).to_string(), "0x00ff");
        assert_eq!(KeyValue::Null.to_string(), "null");
        let int96 = KeyValue::Int96 { day: 2_440_588, nanos: 5 };
        assert_eq!(int96.to_string(), "julian day 2440588 + 5 ns");
    }
}
