//! One value as the bytes of its key, ascending; of at most eight bytes, also as a number.
//!
//! ```text
//! -5_i32    FB FF FF FF in a page  ──>  7F FF FF FB in a key  ──>  0x7FFF_FFFB as a number
//! ```
//!
//! # Invariants
//! Numbers of one type compare as the values do, and are the bytes read as a big-endian number.
//!
//! # Not here
//! Markers, descending columns (`column`).

use arrow_buffer::i256;
use half::f16;

use super::shape::KeyType;
use plait_base::{Error, Kind, Result};

/// Calls `$body` with the bytes of a value of `$ty` and the function from them to its number.
macro_rules! with_number {
    ($ty:expr, $w:ident, $number:ident => $body:expr) => {{
        macro_rules! of {
            ($width:expr, $function:expr) => {{
                const $w: usize = $width;
                let $number = $function;
                $body
            }};
        }
        match $ty {
            KeyType::Boolean => of!(1, |[byte]: [u8; 1]| u64::from(byte != 0)),
            KeyType::Int32 => of!(4, |bytes| word(int32(i32::from_le_bytes(bytes)))),
            KeyType::UInt32 => of!(4, |bytes| u64::from(u32::from_le_bytes(bytes))),
            KeyType::Float32 => of!(4, |bytes| word(float32(f32::from_le_bytes(bytes)))),
            KeyType::Int64 => of!(8, |bytes| u64::from_be_bytes(int64(i64::from_le_bytes(bytes)))),
            KeyType::UInt64 => of!(8, u64::from_le_bytes),
            KeyType::Float64 => {
                of!(8, |bytes| u64::from_be_bytes(float64(f64::from_le_bytes(bytes))))
            }
            KeyType::Float16 => of!(2, |bytes| {
                u64::from(u16::from_be_bytes(float16(f16::from_le_bytes(bytes))))
            }),
            KeyType::Null
            | KeyType::Decimal128 { .. }
            | KeyType::Decimal256 { .. }
            | KeyType::Int96
            | KeyType::Bytes { .. }
            | KeyType::Rank { .. } => {
                return Err(Error::new(Kind::Internal, "values of a key column are no numbers")
                    .with_got($ty.to_string()));
            }
        }
        Ok(())
    }};
}

#[inline]
fn word(bytes: [u8; 4]) -> u64 {
    u64::from(u32::from_be_bytes(bytes))
}

/// Appends the numbers of `plain`, values of `ty` as they lie in memory and in a plain Parquet
/// page: little-endian, one behind the other; booleans take a byte each.
///
/// # Errors
/// [`Kind::Internal`] for a type whose values have more than eight bytes or no fixed length.
///
/// ```
/// use plait_core::key::{KeyType, numbers};
/// let mut found = Vec::new();
/// numbers(KeyType::Int32, &[0xFB, 0xFF, 0xFF, 0xFF, 7, 0, 0, 0], &mut found)?;
/// assert_eq!(found, [0x7FFF_FFFB, 0x8000_0007]);
/// # Ok::<(), plait_core::Error>(())
/// ```
pub fn numbers(ty: KeyType, plain: &[u8], to: &mut Vec<u64>) -> Result<()> {
    with_number!(ty, W, number => {
        to.extend(plain.as_chunks::<W>().0.iter().map(|bytes| number(*bytes)));
    })
}

/// Appends the numbers of the values `ids` of `plain`, of which there are so many.
///
/// # Errors
/// As [`numbers`].
pub fn numbers_at(ty: KeyType, plain: &[u8], ids: &[u32], to: &mut Vec<u64>) -> Result<()> {
    with_number!(ty, W, number => {
        let values = plain.as_chunks::<W>().0;
        to.extend(ids.iter().map(|id| number(values[*id as usize])));
    })
}

#[inline]
pub(super) fn int32(value: i32) -> [u8; 4] {
    (value.cast_unsigned() ^ (1 << 31)).to_be_bytes()
}

#[inline]
pub(super) fn int64(value: i64) -> [u8; 8] {
    (value.cast_unsigned() ^ (1 << 63)).to_be_bytes()
}

#[inline]
pub(super) fn int128(value: i128) -> [u8; 16] {
    flip_sign(value.to_be_bytes())
}

#[inline]
pub(super) fn int256(value: i256) -> [u8; 32] {
    flip_sign(value.to_be_bytes())
}

#[inline]
pub(super) fn flip_sign<const W: usize>(mut bytes: [u8; W]) -> [u8; W] {
    if let Some(first) = bytes.first_mut() {
        *first ^= 0x80;
    }
    bytes
}

#[inline]
pub(super) fn int96(bytes: [u8; 12]) -> [u8; 12] {
    let mut reversed = bytes;
    reversed.reverse(); // day, then nanoseconds, both big-endian
    flip_sign(reversed)
}

#[inline]
pub(super) fn float16(value: f16) -> [u8; 2] {
    let value = if value.is_nan() { f16::NAN } else { value };
    let bits = if value == f16::ZERO { 0 } else { value.to_bits() };
    (if bits >> 15 == 0 { bits | 1 << 15 } else { !bits }).to_be_bytes()
}

#[inline]
pub(super) fn float32(value: f32) -> [u8; 4] {
    // Only one NaN, above infinity; adding 0.0 turns -0.0 into 0.0.
    let bits = if value.is_nan() { 0x7FC0_0000 } else { (value + 0.0).to_bits() };
    (if bits >> 31 == 0 { bits | 1 << 31 } else { !bits }).to_be_bytes()
}

#[inline]
pub(super) fn float64(value: f64) -> [u8; 8] {
    let bits = if value.is_nan() { 0x7FF8 << 48 } else { (value + 0.0).to_bits() };
    (if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }).to_be_bytes()
}

pub(super) fn half_of(bytes: &[u8]) -> Result<f16> {
    let bytes = bytes.try_into().map_err(|_| {
        Error::new(Kind::CorruptSource, "half-precision float does not have 2 bytes")
            .with_got(format!("{} bytes", bytes.len()))
    })?;
    Ok(f16::from_le_bytes(bytes))
}

pub(super) fn decimal_out_of_range() -> Error {
    Error::new(Kind::CorruptSource, "decimal has more digits than its type allows")
}

/// Brings big-endian two's complement of any length to `W` bytes.
pub(super) fn sign_extend<const W: usize>(bytes: &[u8]) -> Result<[u8; W]> {
    let Some(first) = bytes.first() else {
        return Err(Error::new(Kind::CorruptSource, "decimal has no bytes"));
    };
    let sign = if first >> 7 == 1 { 0xFF } else { 0x00 };
    let (extra, low) = bytes.split_at(bytes.len().saturating_sub(W));
    let sign_is_kept = low.first().is_some_and(|byte| byte >> 7 == sign >> 7);
    if !sign_is_kept || extra.iter().any(|byte| *byte != sign) {
        return Err(decimal_out_of_range());
    }
    let mut wide = [sign; W];
    wide[W - low.len()..].copy_from_slice(low);
    Ok(wide)
}
