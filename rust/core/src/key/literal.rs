//! One value written as text, in the type of a column.
//!
//! ```text
//! 1700000000            ─▶ as many units as the column has, of timestamps too
//! '2024-05-01 00:00'    ─▶ what Arrow reads from the text
//! 0x00ff                ─▶ these bytes, of binary columns; of 16 bytes also in the form of a UUID
//! ```
//!
//! 1.5 of integers       ─▶ between two values: above 1
//!
//! # Invariants
//! The value is exactly what the text says, or an error; of a text that lies between two values it is
//! known which. Only numbers of binary fractions are rounded, to the next one of the type.
//!
//! # Not here
//! Expressions around it (the shell).

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, Int64Array, StringArray};
use arrow_buffer::i256;
use arrow_cast::{CastOptions, can_cast_types, cast_with_options};
use arrow_schema::{DataType, TimeUnit};

use plait_base::{Error, Kind, Result, type_text};

/// Where a text lies among the values of a type.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// It is this value, an array of one row.
    At(ArrayRef),
    /// It is above this value and below the next one.
    After(ArrayRef),
    /// It is below all values.
    BelowAll,
    /// It is above all values.
    AboveAll,
}

/// The value that `text` is in `data_type`, as an array of one row. Quotes around the text, `'` or
/// the backticks of messages, say that it is none of the bare numbers that times may be given as,
/// and no digits of bytes.
///
/// # Errors
/// [`Kind::InvalidArgument`] when the text is no value of the type.
pub(crate) fn literal(text: &str, data_type: &DataType) -> Result<ArrayRef> {
    match place(text, data_type)? {
        Place::At(value) => Ok(value),
        Place::After(_) | Place::BelowAll | Place::AboveAll => Err(no_value(text, data_type)),
    }
}

/// Where `text` lies among the values of `data_type`: of numbers and times also between two of them.
///
/// # Errors
/// [`Kind::InvalidArgument`] when the text is no number, no time, ….
pub(crate) fn place(text: &str, data_type: &DataType) -> Result<Place> {
    let data_type = match data_type {
        DataType::Dictionary(_, values) => values,
        DataType::RunEndEncoded(_, values) => values.data_type(),
        other => other,
    };
    let scale = match data_type {
        DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) => Some(*scale),
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => Some(*scale),
        other => other.is_integer().then_some(0),
    };
    let inner = unquoted(text).unwrap_or(text);
    if let Some(number) = scale.and_then(|scale| Floor::of(inner, scale)) {
        return Ok(match number {
            Floor::BelowAll => Place::BelowAll,
            Floor::AboveAll => Place::AboveAll,
            Floor::Number { text: floor, is_below, is_whole } => match exact(&floor, data_type) {
                Ok(value) if is_whole => Place::At(value),
                Ok(value) => Place::After(value),
                // A number of the right form that the type has no room for.
                Err(_) if is_below => Place::BelowAll,
                Err(_) => Place::AboveAll,
            },
        });
    }
    if !data_type.is_temporal() || inner.parse::<i64>().is_ok() {
        return exact(text, data_type).map(Place::At);
    }
    let cut = match data_type {
        DataType::Date32 => cut_to_day(inner),
        DataType::Timestamp(unit, _) | DataType::Time32(unit) | DataType::Time64(unit) => {
            cut_to_unit(inner, *unit)
        }
        _ => None,
    };
    let Some(Cut { text: floor, is_whole }) = cut else {
        return exact(text, data_type).map(Place::At);
    };
    let value = exact(&format!("'{floor}'"), data_type).map_err(|_| no_value(text, data_type))?;
    Ok(if is_whole { Place::At(value) } else { Place::After(value) })
}

fn no_value(text: &str, data_type: &DataType) -> Error {
    let hint = match data_type {
        DataType::Timestamp(_, Some(_)) => "write '2024-05-01 13:00:00Z', in UTC",
        DataType::Timestamp(_, None) | DataType::Date64 => "write '2024-05-01 13:00:00'",
        DataType::Date32 => "write '2024-05-01'",
        DataType::Time32(_) | DataType::Time64(_) => "write '13:00:00'",
        DataType::Binary | DataType::FixedSizeBinary(_) => "write 0x00ff",
        DataType::Boolean => "write true or false",
        _ if data_type.is_numeric() => "write a number, without quotes",
        _ => "write a value as reports show it",
    };
    Error::new(Kind::InvalidArgument, "text is not a value of the column's type")
        .with_got(format!("{text} for {}", type_text(data_type)))
        .with_hint(hint)
}

/// The text between quotes, if it is in quotes.
fn unquoted(text: &str) -> Option<&str> {
    let within = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    within('\'').or_else(|| within('`'))
}

/// The greatest number of so many digits behind the point that is not above a text.
enum Floor {
    BelowAll,
    AboveAll,
    Number {
        text: String,
        /// Whether the number is below zero.
        is_below: bool,
        /// Whether the number is that of the text.
        is_whole: bool,
    },
}

/// Digits of a number with an exponent, at most: more than any type has.
const DIGITS_MAX: usize = 96;

impl Floor {
    /// None for a text that is no number, and for types whose scale is below zero.
    fn of(text: &str, scale: i8) -> Option<Self> {
        let scale = usize::try_from(scale).ok()?;
        let (is_below, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let beyond = || Some(if is_below { Self::BelowAll } else { Self::AboveAll });
        match digits.to_ascii_lowercase().as_str() {
            "inf" | "infinity" => return beyond(),
            // NaN is above all numbers.
            "nan" => return Some(Self::AboveAll),
            _ => {}
        }
        let (digits, exponent) = match digits.split_once(['e', 'E']) {
            Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
            None => (digits, 0),
        };
        let (whole, behind) = digits.split_once('.').unwrap_or((digits, ""));
        let all = [whole, behind].concat();
        if all.is_empty() || !all.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        let all = all.trim_start_matches('0');
        // The number is `all` times ten to the power of `power`, counted in the last digit kept.
        let power = i64::from(exponent) - i64::try_from(behind.len()).ok()? + scale as i64;
        let (kept, rest) = match usize::try_from(power) {
            Ok(_) if all.is_empty() => (String::new(), ""),
            Ok(zeros) if all.len().saturating_add(zeros) > DIGITS_MAX => return beyond(),
            Ok(zeros) => (format!("{all}{}", "0".repeat(zeros)), ""),
            Err(_) => {
                let less = usize::try_from(power.unsigned_abs()).ok()?;
                let (kept, rest) = all.split_at(all.len().saturating_sub(less));
                (kept.to_owned(), rest)
            }
        };
        let is_whole = rest.bytes().all(|digit| digit == b'0');
        let Some(mut units) = i256::from_string(if kept.is_empty() { "0" } else { &kept }) else {
            return beyond();
        };
        if is_below {
            units = units.checked_neg()?;
            if !is_whole {
                units = units.checked_sub(i256::ONE)?;
            }
        }
        let is_below = units.is_negative();
        let digits = units.to_string();
        let digits = digits.strip_prefix('-').unwrap_or(&digits);
        let padded = format!("{digits:0>width$}", width = scale + 1);
        let (whole, behind) = padded.split_at(padded.len() - scale);
        let sign = if is_below { "-" } else { "" };
        let point = if scale == 0 { "" } else { "." };
        Some(Self::Number { text: format!("{sign}{whole}{point}{behind}"), is_below, is_whole })
    }
}

/// A time of which the end is cut off, and whether nothing is lost by that.
struct Cut {
    text: String,
    is_whole: bool,
}

/// A time without the digits that are too fine for a unit; none if there are none.
fn cut_to_unit(text: &str, unit: TimeUnit) -> Option<Cut> {
    let kept = match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    };
    let (before, behind) = text.split_once('.')?;
    let len = behind.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = behind.split_at(len);
    let (kept, lost) = digits.split_at_checked(kept)?;
    let point = if kept.is_empty() { "" } else { "." };
    let is_whole = lost.bytes().all(|digit| digit == b'0');
    Some(Cut { text: format!("{before}{point}{kept}{rest}"), is_whole })
}

/// A day without the time of day; none if there is none, or not a plain one.
fn cut_to_day(text: &str) -> Option<Cut> {
    let (day, time) = text.split_once(['T', ' '])?;
    // A day is its midnight in UTC.
    let time = time.strip_suffix('Z').unwrap_or(time);
    let is_zero = |c: char| matches!(c, '0' | ':' | '.');
    exact(&format!("'{text}'"), &DataType::Timestamp(TimeUnit::Microsecond, None)).ok()?;
    // Offsets and other forms of times are left to Arrow, which then has no day for them.
    let is_plain = time.chars().all(|c| c.is_ascii_digit() || is_zero(c));
    is_plain.then(|| Cut { text: day.to_owned(), is_whole: time.chars().all(is_zero) })
}

/// The value that Arrow reads from the text.
fn exact(text: &str, data_type: &DataType) -> Result<ArrayRef> {
    let quoted = unquoted(text);
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
    value.filter(|value| value.is_valid(0)).ok_or_else(|| no_value(text, data_type))
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
    fn texts_between_two_values_are_after_the_lower_one() {
        let shown = |text: &str, data_type: &DataType| {
            let of = |value: &ArrayRef| {
                let text = arrow_cast::display::array_value_to_string(value, 0);
                text.unwrap()
            };
            match place(text, data_type) {
                Ok(Place::At(value)) => format!("= {}", of(&value)),
                Ok(Place::After(value)) => format!("> {}", of(&value)),
                Ok(Place::BelowAll) => "below".to_owned(),
                Ok(Place::AboveAll) => "above".to_owned(),
                Err(_) => "no".to_owned(),
            }
        };
        use DataType::{Date32, Decimal128, Int8, Int64, Time32, UInt64};
        let ms = DataType::Timestamp(TimeUnit::Millisecond, None);
        let second = DataType::Timestamp(TimeUnit::Second, None);
        for (text, data_type, expected) in [
            ("5", &Int8, "= 5"),
            ("-5.0", &Int8, "= -5"),
            ("1.5", &Int8, "> 1"),
            ("-1.5", &Int8, "> -2"),
            ("-0.5", &Int8, "> -1"),
            ("-0.0", &Int8, "= 0"),
            (".5", &Int8, "> 0"),
            ("1.2e2", &Int8, "= 120"),
            ("125e-1", &Int8, "> 12"),
            ("1e-30", &Int8, "> 0"),
            ("0e999999999", &Int8, "= 0"),
            ("128", &Int8, "above"),
            ("-129", &Int8, "below"),
            ("-1e999999999", &Int64, "below"),
            ("inf", &Int64, "above"),
            ("-inf", &Int64, "below"),
            ("NaN", &Int64, "above"),
            ("18446744073709551615", &UInt64, "= 18446744073709551615"),
            ("18446744073709551616", &UInt64, "above"),
            ("-1", &UInt64, "below"),
            ("x", &Int8, "no"),
            ("1.", &Int8, "= 1"),
            (".", &Int8, "no"),
            ("1 2", &Int8, "no"),
            ("2.251", &Decimal128(9, 2), "> 2.25"),
            ("-2.251", &Decimal128(9, 2), "> -2.26"),
            ("2.250", &Decimal128(9, 2), "= 2.25"),
            ("'2.5'", &Decimal128(9, 2), "= 2.50"),
            ("1e7", &Decimal128(9, 2), "above"),
            ("-9999999.999", &Decimal128(9, 2), "below"),
            ("9999999.999", &Decimal128(9, 2), "> 9999999.99"),
            ("-0.001", &Decimal128(9, 2), "> -0.01"),
            ("'2024-01-01 12:00:00'", &Date32, "> 2024-01-01"),
            ("'2024-01-01T00:00:00'", &Date32, "= 2024-01-01"),
            ("2024-01-01 00:00:00.000", &Date32, "= 2024-01-01"),
            ("2024-01-01 00:00:00.001", &Date32, "> 2024-01-01"),
            ("'2024-01-01 12:00:00Z'", &Date32, "> 2024-01-01"),
            ("'2024-01-01 00:00:00Z'", &Date32, "= 2024-01-01"),
            ("2024-01-01 00:00:61", &Date32, "no"),
            ("'1969-12-31 23:59:59.9995'", &ms, "> 1969-12-31T23:59:59.999"),
            ("'1970-01-01 00:00:00.0010'", &ms, "= 1970-01-01T00:00:00.001"),
            ("'1970-01-01 00:00:00.001Z'", &ms, "= 1970-01-01T00:00:00.001"),
            ("'1970-01-01 00:00:00.5'", &second, "> 1970-01-01T00:00:00"),
            ("7", &ms, "= 1970-01-01T00:00:00.007"),
            ("'00:00:00.0015'", &Time32(TimeUnit::Millisecond), "> 00:00:00.001"),
        ] {
            assert_eq!(shown(text, data_type), expected, "{text} of {data_type}");
        }
        assert!(literal("1.5", &Int64).is_err() && literal("128", &Int8).is_err());
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
