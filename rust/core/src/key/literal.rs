//! One value written as text, in the type of a column.
//!
//! ```text
//! 1700000000            ─▶ as many units as the column has, of timestamps too
//! '2024-05-01 00:00'    ─▶ what Arrow reads from the text
//! 0x00ff                ─▶ these bytes, of binary columns; of 16 bytes also in the form of a UUID
//! ```
//!
//! # Invariants
//! The value is exactly what the text says, or an error.
//!
//! # Not here
//! Expressions around it (the shell).

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, Int64Array, StringArray};
use arrow_cast::{CastOptions, can_cast_types, cast_with_options};
use arrow_schema::{DataType, TimeUnit};

use plait_base::{Error, Kind, Result, type_text};

/// The value that `text` is in `data_type`, as an array of one row. Quotes around the text, `'` or
/// the backticks of messages, say that it is none of the bare numbers that times may be given as,
/// and no digits of bytes.
///
/// # Errors
/// [`Kind::InvalidArgument`] when the text is no value of the type.
pub(crate) fn literal(text: &str, data_type: &DataType) -> Result<ArrayRef> {
    let within = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    let quoted = within('\'').or_else(|| within('`'));
    let data_type = match data_type {
        DataType::Dictionary(_, values) => values,
        DataType::RunEndEncoded(_, values) => values.data_type(),
        other => other,
    };
    let given: ArrayRef = match text.parse::<i64>() {
        Ok(number) if quoted.is_none() && data_type.is_temporal() => {
            Arc::new(Int64Array::from(vec![number]))
        }
        _ => match bytes(text, data_type).filter(|_| quoted.is_none()) {
            Some(bytes) => Arc::new(BinaryArray::from(vec![bytes.as_slice()])),
            None => Arc::new(StringArray::from(vec![quoted.unwrap_or(text)])),
        },
    };
    let value = match (can_cast_types(given.data_type(), data_type), data_type) {
        (true, DataType::Timestamp(unit, Some(zone))) => {
            cast(&given, data_type).or_else(|| in_zone(&given, *unit, zone))
        }
        (true, _) => cast(&given, data_type),
        // Days and times of day of 32 bits.
        (false, _) => cast(&given, &DataType::Int32).and_then(|given| cast(&given, data_type)),
    };
    value.filter(|value| value.is_valid(0)).ok_or_else(|| {
        Error::new(Kind::InvalidArgument, "text is not a value of the column's type")
            .with_got(format!("{text} for {}", type_text(data_type)))
            .with_hint(match data_type {
                DataType::Timestamp(_, Some(_)) => "write '2024-05-01 13:00:00Z', in UTC",
                DataType::Timestamp(_, None) | DataType::Date64 => "write '2024-05-01 13:00:00'",
                DataType::Date32 => "write '2024-05-01'",
                DataType::Time32(_) | DataType::Time64(_) => "write '13:00:00'",
                DataType::Binary | DataType::FixedSizeBinary(_) => "write 0x00ff",
                DataType::Boolean => "write true or false",
                _ if data_type.is_numeric() => "write a number, without quotes",
                _ => "write a value as reports show it",
            })
    })
}

/// A time of a zone that has a name, whose offsets are not known here: of UTC, or by a text that has
/// an offset of its own.
fn in_zone(given: &ArrayRef, unit: TimeUnit, zone: &Arc<str>) -> Option<ArrayRef> {
    let at = |offset: &str| {
        let time = cast(given, &DataType::Timestamp(unit, Some(offset.into())))?;
        cast(&time, &DataType::Int64)
    };
    let (time, other) = (at("+00:00")?, at("+01:00")?);
    let is_known = time == other || ["UTC", "Etc/UTC", "Z"].contains(&&**zone);
    cast(&time, &DataType::Timestamp(unit, Some(Arc::clone(zone)))).filter(|_| is_known)
}

fn cast(from: &ArrayRef, to: &DataType) -> Option<ArrayRef> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(from, to, &options).ok()
}

/// The bytes that a text of digits stands for, where the type has bytes.
fn bytes(text: &str, data_type: &DataType) -> Option<Vec<u8>> {
    let is_uuid = || {
        let parts: Vec<usize> = text.split('-').map(str::len).collect();
        *data_type == DataType::FixedSizeBinary(16) && parts == [8, 4, 4, 4, 12]
    };
    let digits = match (data_type, text.strip_prefix("0x")) {
        (DataType::FixedSizeBinary(_) | DataType::Binary, Some(digits))
        | (DataType::LargeBinary | DataType::BinaryView, Some(digits)) => digits.to_owned(),
        _ if is_uuid() => text.replace('-', ""),
        _ => return None,
    };
    let digits: Option<Vec<u8>> =
        digits.chars().map(|c| u8::try_from(c.to_digit(16)?).ok()).collect();
    digits?.chunks(2).map(|pair| <[u8; 2]>::try_from(pair).ok().map(|[a, b]| a << 4 | b)).collect()
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;

    use super::*;

    #[test]
    fn times_of_zones_with_names_have_an_offset_unless_the_zone_is_utc() {
        let of = |text: &str, zone: &str| {
            let data_type = DataType::Timestamp(TimeUnit::Second, Some(zone.into()));
            let read = literal(text, &data_type).ok()?;
            assert_eq!(read.data_type(), &data_type);
            Some(cast(&read, &DataType::Int64)?.as_primitive::<Int64Type>().value(0))
        };
        assert_eq!(of("1970-01-01 01:00:00Z", "Europe/Paris"), Some(3600));
        assert_eq!(of("'1970-01-01 01:00:00+01:00'", "Europe/Paris"), Some(0));
        assert_eq!(of("1970-01-01 01:00:00", "Europe/Paris"), None);
        assert_eq!(of("1970-01-01 01:00:00", "UTC"), Some(3600));
        assert_eq!(of("1970-01-01 01:00:00", "+01:00"), Some(0));
        assert_eq!(of("3600", "Europe/Paris"), Some(3600));
    }

    #[test]
    fn bytes_are_digits_unless_they_are_quoted() {
        let of = |text: &str, data_type: DataType| {
            let read = literal(text, &data_type).ok()?;
            Some(cast(&read, &DataType::Binary)?.as_binary::<i32>().value(0).to_vec())
        };
        for data_type in [DataType::Binary, DataType::LargeBinary, DataType::BinaryView] {
            assert_eq!(of("0x00Ff", data_type.clone()), Some(vec![0, 255]));
            assert_eq!(of("'0x00'", data_type.clone()), Some(b"0x00".to_vec()));
            assert_eq!(of("0x0", data_type), Some(b"0x0".to_vec()));
        }
        assert_eq!(of("0x0001", DataType::FixedSizeBinary(2)), Some(vec![0, 1]));
        assert_eq!(of("0x000102", DataType::FixedSizeBinary(2)), None);
        let id = "00000000-0000-0000-0000-00000000000a";
        assert_eq!(of(id, DataType::FixedSizeBinary(16)).unwrap()[14..], [0, 10]);
    }
}
