//! Numbers as plain pages hold them.
//!
//! # Not here
//! Which numbers (`made`).

use arrow_schema::DataType;
use parquet::basic::Type as Physical;
use parquet::schema::types::ColumnDescriptor;
use plait_core::plan::Number;
use plait_core::{Error, Kind, Result};

fn is_unsigned(data_type: &DataType) -> bool {
    if let DataType::Dictionary(_, values) = data_type {
        return is_unsigned(values);
    }
    matches!(data_type, DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64)
}

fn odd() -> Error {
    Error::new(Kind::Internal, "a number has another form than its column")
}

/// The number that a plain value is.
pub(super) fn number_of(
    plain: &[u8],
    descr: &ColumnDescriptor,
    data_type: &DataType,
) -> Result<Number> {
    let four = || plain.try_into().map_err(|_| odd());
    let eight = || plain.try_into().map_err(|_| odd());
    let number = match descr.physical_type() {
        Physical::INT32 if is_unsigned(data_type) => {
            Number::Int(i128::from(u32::from_le_bytes(four()?)))
        }
        Physical::INT32 => Number::Int(i128::from(i32::from_le_bytes(four()?))),
        Physical::INT64 if is_unsigned(data_type) => {
            Number::Int(i128::from(u64::from_le_bytes(eight()?)))
        }
        Physical::INT64 => Number::Int(i128::from(i64::from_le_bytes(eight()?))),
        Physical::FLOAT => Number::Float32(f32::from_le_bytes(four()?)),
        Physical::DOUBLE => Number::Float64(f64::from_le_bytes(eight()?)),
        Physical::FIXED_LEN_BYTE_ARRAY => Number::Int(digits(plain)?),
        Physical::BYTE_ARRAY => Number::Int(digits(plain.get(4..).ok_or_else(odd)?)?),
        Physical::BOOLEAN | Physical::INT96 => return Err(odd()),
    };
    Ok(number)
}

/// Digits of a decimal: big-endian, in two's complement.
fn digits(bytes: &[u8]) -> Result<i128> {
    let negative = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
    let mut all = [if negative { 0xFF } else { 0 }; 16];
    let extra = bytes.len().saturating_sub(all.len());
    let (sign, bytes) = bytes.split_at(extra);
    let start = all.len() - bytes.len();
    all.get_mut(start..).ok_or_else(odd)?.copy_from_slice(bytes);
    let number = i128::from_be_bytes(all);
    match sign.iter().all(|byte| *byte == all[0] >> 7 & 1 || (*byte == 0xFF && number < 0)) {
        true => Ok(number),
        false => Err(Error::new(Kind::Unsupported, "a decimal has more than 38 digits")),
    }
}

/// Appends a number as a plain page holds it.
pub(super) fn put_plain(number: Number, descr: &ColumnDescriptor, out: &mut Vec<u8>) -> Result<()> {
    match (descr.physical_type(), number) {
        (Physical::INT32, Number::Int(n)) => {
            let n = i32::try_from(n).or_else(|_| u32::try_from(n).map(u32::cast_signed));
            out.extend(n.map_err(|_| odd())?.to_le_bytes());
        }
        (Physical::INT64, Number::Int(n)) => {
            let n = i64::try_from(n).or_else(|_| u64::try_from(n).map(u64::cast_signed));
            out.extend(n.map_err(|_| odd())?.to_le_bytes());
        }
        (Physical::FLOAT, Number::Float32(n)) => out.extend(n.to_le_bytes()),
        (Physical::DOUBLE, Number::Float64(n)) => out.extend(n.to_le_bytes()),
        (Physical::FIXED_LEN_BYTE_ARRAY, Number::Int(n)) => {
            let width = usize::try_from(descr.type_length()).unwrap_or(0);
            let bytes = n.to_be_bytes();
            let pad = width.saturating_sub(bytes.len());
            out.resize(out.len() + pad, if n < 0 { 0xFF } else { 0 });
            let start = bytes.len().saturating_sub(width);
            out.extend_from_slice(bytes.get(start..).unwrap_or_default());
        }
        (Physical::BYTE_ARRAY, Number::Int(n)) => {
            let bytes = n.to_be_bytes();
            // The shortest form that keeps the sign.
            let is_sign = |at: usize| {
                let filler = if n < 0 { 0xFF } else { 0 };
                bytes[at] == filler && (bytes[at + 1] ^ filler) & 0x80 == 0
            };
            let start = (0..bytes.len() - 1).take_while(|at| is_sign(*at)).count();
            let len = u32::try_from(bytes.len() - start).unwrap_or(u32::MAX);
            out.extend(len.to_le_bytes());
            out.extend_from_slice(&bytes[start..]);
        }
        _ => return Err(odd()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::schema::types::{ColumnPath, Type};
    use proptest::prelude::*;
    use std::sync::Arc;

    fn descr(physical: Physical, length: i32) -> ColumnDescriptor {
        let leaf = Type::primitive_type_builder("x", physical).with_length(length).build().unwrap();
        ColumnDescriptor::new(Arc::new(leaf), 0, 0, ColumnPath::from("x"))
    }

    proptest! {
        #[test]
        fn digits_of_decimals_come_back(
            n in prop_oneof![any::<i128>(), any::<i64>().prop_map(i128::from), -200..200_i128],
        ) {
            let decimal = DataType::Decimal128(38, 0);
            for (physical, width) in
                [(Physical::BYTE_ARRAY, -1), (Physical::FIXED_LEN_BYTE_ARRAY, 16), (Physical::FIXED_LEN_BYTE_ARRAY, 20)]
            {
                let (descr, mut plain) = (descr(physical, width), Vec::new());
                put_plain(Number::Int(n), &descr, &mut plain).unwrap();
                prop_assert_eq!(number_of(&plain, &descr, &decimal).unwrap(), Number::Int(n));
            }
        }

        #[test]
        fn integers_of_either_sign_come_back(n in any::<i64>()) {
            for (data_type, n) in
                [(DataType::Int64, i128::from(n)), (DataType::UInt64, i128::from(n.cast_unsigned()))]
            {
                let (descr, mut plain) = (descr(Physical::INT64, -1), Vec::new());
                put_plain(Number::Int(n), &descr, &mut plain).unwrap();
                prop_assert_eq!(number_of(&plain, &descr, &data_type).unwrap(), Number::Int(n));
            }
        }
    }
}
