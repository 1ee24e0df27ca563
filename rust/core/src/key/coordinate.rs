//! One value of a column of a curve as a number of 64 bits, in the same order.
//!
//! ```text
//! -5   int32, int64, date     7F FF FF FF FF FF FF FB     all integers are of 64 bits,
//! 1.5  float32, float64       BF F8 00 00 00 00 00 00     all floats of double precision
//! "ab" text                   61 62 00 00 00 00 00 00     the first eight bytes
//! null                        FF FF FF FF FF FF FF FF     nulls last; 00 … nulls first
//! ```
//!
//! # Invariants
//! Coordinates never descend where values ascend. A column that is widened, from int32 to int64 or
//! from float32 to float64, keeps its coordinates, and so its files their order.
//!
//! # Not here
//! How several of them become one (`curve_index`).

use arrow_buffer::i256;
use half::f16;

use super::field::KeyValue;
use super::number::{decimal_out_of_range, float16, float32, float64, half_of, sign_extend};
use super::shape::{KeyColumn, KeyType};
use super::sort_column::Nulls;
use super::values::Values;
use plait_base::{Error, Kind, Result};

/// The sign of 64 bits, which is flipped.
const SIGN: u64 = 1 << 63;

/// What the number of an int32 is short of: signs of 32 and of 64 bits.
const INT32_BASE: u64 = SIGN - (1 << 31);

const DAY_NANOS: u64 = 86_400_000_000_000;

/// The day 1970-01-01 as a julian day.
const JULIAN_EPOCH: i64 = 2_440_588;

/// The coordinate of a null.
pub(super) fn null_coordinate(column: &KeyColumn) -> u64 {
    match column.nulls {
        Nulls::First => 0,
        Nulls::Last => u64::MAX,
    }
}

/// The coordinates of values of type `ty`.
///
/// # Errors
/// As [`encode`](super::encode).
pub(super) fn coordinates(ty: KeyType, values: Values<'_>) -> Result<Vec<u64>> {
    use KeyType as T;
    use Values as V;
    Ok(match (ty, values) {
        (_, V::None) => Vec::new(),
        (T::Boolean, V::Boolean(v)) => each(v, |v| u64::from(*v) << 63),
        (T::Int32, V::Int32(v)) => each(v, |v| integer(i64::from(*v))),
        (T::Int64, V::Int64(v)) => each(v, |v| integer(*v)),
        // Unsigned values travel as signed ones of the same bits.
        (T::UInt32, V::Int32(v)) => each(v, |v| integer(i64::from(v.cast_unsigned()))),
        (T::UInt64, V::Int64(v)) => each(v, |v| v.cast_unsigned()),
        (T::Float16, V::Half(v)) => each(v, |v| double(f64::from(*v))),
        (T::Float16, V::Bytes(v)) => {
            v.iter().map(|v| Ok(double(f64::from(half_of(v)?)))).collect::<Result<_>>()?
        }
        (T::Float32, V::Float(v)) => each(v, |v| double(f64::from(*v))),
        (T::Float64, V::Double(v)) => each(v, |v| double(*v)),
        (T::Int96, V::Int96(v)) => each(v, |v| int96(*v)),
        (T::Decimal128 { .. } | T::Decimal256 { .. }, V::Int32(v)) => {
            each(v, |v| integer(i64::from(*v)))
        }
        (T::Decimal128 { .. } | T::Decimal256 { .. }, V::Int64(v)) => each(v, |v| integer(*v)),
        (T::Decimal128 { .. } | T::Decimal256 { .. }, V::Int128(v)) => each(v, |v| clamped(*v)),
        (T::Decimal128 { .. } | T::Decimal256 { .. }, V::Int256(v)) => each(v, |v| wide(*v)),
        (T::Decimal128 { .. }, V::Bytes(v)) => {
            let decimal = |v: &&[u8]| Ok(clamped(i128::from_be_bytes(sign_extend(v)?)));
            v.iter().map(decimal).collect::<Result<_>>()?
        }
        (T::Decimal256 { .. }, V::Bytes(v)) => {
            let decimal = |v: &&[u8]| Ok(wide(i256::from_be_bytes(sign_extend(v)?)));
            v.iter().map(decimal).collect::<Result<_>>()?
        }
        (T::Bytes { .. }, V::Bytes(v)) => each(v, |v: &&[u8]| text(v)),
        (ty, V::Numbers(v)) => of_numbers(ty, v)?,
        (ty, values) => {
            return Err(Error::new(Kind::Internal, "values do not fit the key column")
                .with_got(format!("{} values for {ty}", values.name())));
        }
    })
}

/// The coordinates of the numbers of values (see [`numbers`](super::numbers)).
fn of_numbers(ty: KeyType, numbers: &[u64]) -> Result<Vec<u64>> {
    Ok(match ty {
        KeyType::Boolean => each(numbers, |v| v << 63),
        KeyType::Int32 => each(numbers, |v| v.wrapping_add(INT32_BASE)),
        KeyType::UInt32 => each(numbers, |v| v.wrapping_add(SIGN)),
        KeyType::Int64 | KeyType::UInt64 | KeyType::Float64 => numbers.to_vec(),
        KeyType::Float16 => each(numbers, |v| double(f64::from(half_at(*v as u16)))),
        KeyType::Float32 => each(numbers, |v| double(f64::from(float_at(*v as u32)))),
        KeyType::Null
        | KeyType::Decimal128 { .. }
        | KeyType::Decimal256 { .. }
        | KeyType::Int96
        | KeyType::Bytes { .. }
        | KeyType::Rank { .. } => {
            return Err(Error::new(Kind::Internal, "values of a key column are no numbers")
                .with_got(ty.to_string()));
        }
    })
}

/// The number of the value of type `ty` that has this coordinate, if there is one and coordinates of
/// the type say it.
pub(super) fn number_at(ty: KeyType, coordinate: u64) -> Option<u64> {
    let narrow = |number: u64| (number <= u64::from(u32::MAX)).then_some(number);
    match ty {
        KeyType::Boolean => (coordinate & !SIGN == 0).then_some(coordinate >> 63),
        KeyType::Int32 => narrow(coordinate.wrapping_sub(INT32_BASE)),
        KeyType::UInt32 => narrow(coordinate.wrapping_sub(SIGN)),
        KeyType::Int64 | KeyType::UInt64 | KeyType::Float64 => Some(coordinate),
        KeyType::Float16 => {
            let number = u16::from_be_bytes(float16(f16::from_f64(double_at(coordinate))));
            (double(f64::from(half_at(number))) == coordinate).then_some(u64::from(number))
        }
        KeyType::Float32 => {
            let number = u32::from_be_bytes(float32(double_at(coordinate) as f32));
            (double(f64::from(float_at(number))) == coordinate).then_some(u64::from(number))
        }
        _ => None,
    }
}

/// The coordinate of a decoded value, where coordinates of its type do not say it.
///
/// # Errors
/// [`Kind::CorruptSource`] for what no such value is.
pub(super) fn coordinate_of(value: &KeyValue) -> Result<u64> {
    match value {
        KeyValue::Decimal { unscaled, .. } => Ok(wide(*unscaled)),
        KeyValue::Int96 { day, nanos } => Ok(nanos_since_1970(*day, *nanos)),
        KeyValue::Bytes(bytes) => Ok(text(bytes)),
        KeyValue::Text(value) => Ok(text(value.as_bytes())),
        _ => Err(decimal_out_of_range()),
    }
}

fn each<T>(values: &[T], coordinate: impl Fn(&T) -> u64) -> Vec<u64> {
    values.iter().map(coordinate).collect()
}

#[inline]
fn integer(value: i64) -> u64 {
    value.cast_unsigned() ^ SIGN
}

#[inline]
fn double(value: f64) -> u64 {
    u64::from_be_bytes(float64(value))
}

fn double_at(number: u64) -> f64 {
    f64::from_bits(if number >> 63 == 1 { number ^ SIGN } else { !number })
}

fn float_at(number: u32) -> f32 {
    f32::from_bits(if number >> 31 == 1 { number ^ (1 << 31) } else { !number })
}

fn half_at(number: u16) -> f16 {
    f16::from_bits(if number >> 15 == 1 { number ^ (1 << 15) } else { !number })
}

/// Decimals of more than 18 digits may lie beyond what an integer of 64 bits holds.
fn clamped(value: i128) -> u64 {
    integer(i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX }))
}

fn wide(value: i256) -> u64 {
    let extreme = if value.is_negative() { i128::MIN } else { i128::MAX };
    clamped(value.to_i128().unwrap_or(extreme))
}

fn text(value: &[u8]) -> u64 {
    let mut first = [0; 8];
    let len = value.len().min(first.len());
    first[..len].copy_from_slice(&value[..len]);
    u64::from_be_bytes(first)
}

/// Nanoseconds since 1970, as of any other timestamp of this unit.
fn int96(bytes: [u8; 12]) -> u64 {
    let (nanos, day) = bytes.split_at(8);
    let nanos = nanos.try_into().map_or(0, u64::from_le_bytes);
    nanos_since_1970(day.try_into().map_or(0, i32::from_le_bytes), nanos)
}

fn nanos_since_1970(day: i32, nanos: u64) -> u64 {
    // A day has no more: else the next one could come before it.
    let nanos = i128::from(nanos.min(DAY_NANOS - 1));
    clamped(i128::from(i64::from(day) - JULIAN_EPOCH) * i128::from(DAY_NANOS) + nanos)
}
