//! Casts of single values that lose nothing: wider integers and floats, finer times, more digits.
//!
//! # Invariants
//! A cast gives the same number or an error; which casts exist is decided by `schema`.
//!
//! # Not here
//! Levels (`adapt`).

use std::any::Any;

use half::f16;
use parquet::data_type::{ByteArray, DataType, FixedLenByteArray};
use parquet::schema::types::ColumnDescPtr;
use plait_core::{Error, Kind, Result};

use crate::schema::{Cast, DecimalForm};

/// Casts one value.
pub(super) type Function<S, T> =
    Box<dyn Fn(&<S as DataType>::T) -> Result<<T as DataType>::T> + Send>;

/// The function for `cast` from values of `S` to values of `T`.
///
/// # Errors
/// [`Kind::Internal`] when `cast` is not one from `S` to `T`.
pub(super) fn function<S: DataType, T: DataType>(
    cast: Cast,
    output: &ColumnDescPtr,
) -> Result<Function<S, T>> {
    macro_rules! typed {
        ($from:ty, $to:ty, $f:expr) => {{
            let f = $f;
            let call = move |value: &S::T| -> Result<T::T> {
                let value = (value as &dyn Any).downcast_ref::<$from>().ok_or_else(mismatch)?;
                let mut slot = Some(f(value)?);
                let slot = &mut slot as &mut dyn Any;
                slot.downcast_mut::<Option<T::T>>().and_then(Option::take).ok_or_else(mismatch)
            };
            Ok(Box::new(call) as Function<S, T>)
        }};
    }
    match cast {
        Cast::I32ToI64 => typed!(i32, i64, |v: &i32| Ok(i64::from(*v))),
        Cast::U32ToI64 => typed!(i32, i64, |v: &i32| Ok(i64::from(v.cast_unsigned()))),
        Cast::I32ToF64 => typed!(i32, f64, |v: &i32| Ok(f64::from(*v))),
        Cast::F32ToF64 => typed!(f32, f64, |v: &f32| Ok(f64::from(*v))),
        Cast::F16ToF32 => {
            typed!(FixedLenByteArray, f32, |v: &FixedLenByteArray| half(v).map(f32::from))
        }
        Cast::F16ToF64 => {
            typed!(FixedLenByteArray, f64, |v: &FixedLenByteArray| half(v).map(f64::from))
        }
        Cast::I32ToI64Mul { by } => typed!(i32, i64, move |v: &i32| times(i64::from(*v), by)),
        Cast::I64Mul { by } => typed!(i64, i64, move |v: &i64| times(*v, by)),
        Cast::Decimal { from, to, mul10 } => {
            let width = usize::try_from(output.type_length()).unwrap_or(0);
            macro_rules! decimal_from {
                ($from:ty, $read:expr) => {
                    match to {
                        DecimalForm::Int32 => typed!($from, i32, move |v: &$from| {
                            narrow(&scale($read(v), mul10)?, 4).map(|b| int(&b) as i32)
                        }),
                        DecimalForm::Int64 => typed!($from, i64, move |v: &$from| {
                            narrow(&scale($read(v), mul10)?, 8).map(|b| int(&b))
                        }),
                        DecimalForm::Fixed { .. } => {
                            typed!($from, FixedLenByteArray, move |v: &$from| {
                                let bytes = narrow(&scale($read(v), mul10)?, width)?;
                                Ok(FixedLenByteArray::from(ByteArray::from(bytes)))
                            })
                        }
                        DecimalForm::Bytes => Err(mismatch()),
                    }
                };
            }
            match from {
                DecimalForm::Int32 => decimal_from!(i32, |v: &i32| v.to_be_bytes().to_vec()),
                DecimalForm::Int64 => decimal_from!(i64, |v: &i64| v.to_be_bytes().to_vec()),
                DecimalForm::Fixed { .. } => {
                    decimal_from!(FixedLenByteArray, |v: &FixedLenByteArray| v.data().to_vec())
                }
                DecimalForm::Bytes => decimal_from!(ByteArray, |v: &ByteArray| v.data().to_vec()),
            }
        }
    }
}

fn mismatch() -> Error {
    Error::new(Kind::Internal, "cast does not fit the physical types")
}

fn half(value: &FixedLenByteArray) -> Result<f16> {
    let bytes: Option<[u8; 2]> = value.data().try_into().ok();
    bytes
        .map(f16::from_le_bytes)
        .ok_or_else(|| Error::new(Kind::CorruptSource, "half-precision value is not 2 bytes long"))
}

fn times(value: i64, by: i64) -> Result<i64> {
    value.checked_mul(by).ok_or_else(|| {
        Error::new(Kind::SchemaConflict, "time does not fit the finer unit")
            .with_got(format!("{value} times {by}"))
            .with_hint("give all sources one time unit, or drop the rows out of range first")
    })
}

fn int(bytes: &[u8]) -> i64 {
    let sign = if bytes.first().is_some_and(|b| b & 0x80 != 0) { -1 } else { 0 };
    bytes.iter().fold(sign, |n, &b| n << 8 | i64::from(b))
}

/// Multiplies a big-endian two's complement number by 10^`mul10`.
fn scale(bytes: Vec<u8>, mul10: u32) -> Result<Vec<u8>> {
    if mul10 == 0 {
        return Ok(bytes);
    }
    let negative = bytes.first().is_some_and(|b| b & 0x80 != 0);
    // 32 bytes hold 76 digits; one more catches overflow.
    let mut number = vec![if negative { 0xFF } else { 0 }; 34usize.saturating_sub(bytes.len())];
    number.extend_from_slice(&bytes);
    if negative {
        negate(&mut number);
    }
    for _ in 0..mul10 {
        let mut carry = 0u16;
        for byte in number.iter_mut().rev() {
            let product = u16::from(*byte) * 10 + carry;
            *byte = (product & 0xFF) as u8;
            carry = product >> 8;
        }
        if carry != 0 || number[0] & 0x80 != 0 {
            return Err(too_long());
        }
    }
    if negative {
        negate(&mut number);
    }
    Ok(number)
}

fn negate(number: &mut [u8]) {
    let mut carry = true;
    for byte in number.iter_mut().rev() {
        let (sum, over) = (!*byte).overflowing_add(u8::from(carry));
        *byte = sum;
        carry = over;
    }
}

/// Brings a big-endian two's complement number to `width` bytes without changing it.
fn narrow(bytes: &[u8], width: usize) -> Result<Vec<u8>> {
    let negative = bytes.first().is_some_and(|b| b & 0x80 != 0);
    let fill = if negative { 0xFF } else { 0 };
    if bytes.len() <= width {
        let mut out = vec![fill; width - bytes.len()];
        out.extend_from_slice(bytes);
        return Ok(out);
    }
    let (lead, rest) = bytes.split_at(bytes.len() - width);
    let keeps_sign = rest.first().is_none_or(|b| (b & 0x80 != 0) == negative);
    if lead.iter().any(|&b| b != fill) || !keeps_sign {
        return Err(too_long());
    }
    Ok(rest.to_vec())
}

fn too_long() -> Error {
    Error::new(Kind::CorruptSource, "decimal has more digits than its type declares")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_keep_their_value_when_scaled_and_resized() {
        for n in [0i64, 1, -1, 12_345, -12_345, i64::from(i32::MAX), i64::from(i32::MIN)] {
            for mul10 in 0..9 {
                let scaled = scale(n.to_be_bytes().to_vec(), mul10).unwrap();
                let wide = narrow(&scaled, 16).unwrap();
                let expected = i128::from(n) * 10i128.pow(mul10);
                assert_eq!(wide, expected.to_be_bytes());
                assert_eq!(int(&narrow(&scaled, 8).unwrap()) as i128, expected);
            }
        }
        assert!(narrow(&300i64.to_be_bytes(), 1).is_err());
        assert!(narrow(&128i64.to_be_bytes(), 1).is_err(), "the sign would flip");
    }
}
