//! Values of keys as people read them, and as conditions take them.
//!
//! ```text
//! Int(1714568400500000)   timestamp[us]            ─▶ 2024-05-01 13:00:00.5
//!                         timestamp[us, tz=…]      ─▶ 2024-05-01 13:00:00.5Z
//! Bytes(16 bytes)         uuid                     ─▶ 6fa459ea-ee8a-3ca4-894e-db77e160355e
//! ```
//!
//! # Invariants
//! What is shown is a [`literal`](super::literal) of the column's type that means the same value,
//! but for texts that are cut. A value that no calendar has is shown as its number. How values are
//! shown changes no key: two shapes that differ in it are equal.
//!
//! # Not here
//! What the values of a column stand for (`shown`).

use arrow_array::temporal_conversions::timestamp_s_to_datetime;
use arrow_schema::TimeUnit;

use super::curve_decode::corner;
use super::decode::decode;
use super::field::{KeyValue, hex};
use super::range::prefix_len;
use super::shape::KeyShape;
use super::shown::{ShownAs, ShownValue};
use plait_base::Result;

/// Longer texts are cut in messages.
const RENDERED_CHARS_MAX: usize = 64;

const DAY_SECONDS: i64 = 86_400;
const SECOND_NANOS: i64 = 1_000_000_000;

/// Of the last column of a key at most so many bytes are left out where outputs are cut.
const CUT_BYTES_MAX: usize = 34;

/// The day 1970-01-01 as a julian day.
const JULIAN_EPOCH: i64 = 2_440_588;

const UUID_BYTES: usize = 16;

impl ShownAs {
    /// `value` as people read it.
    ///
    /// ```
    /// use plait_core::key::{KeyValue, ShownAs};
    /// assert_eq!(ShownAs::Date.text(&KeyValue::Int(19_844)), "2024-05-01");
    /// ```
    #[must_use]
    pub fn text(self, value: &KeyValue) -> String {
        let text = match (value, self) {
            (KeyValue::Int(days), Self::Date) => date(*days),
            (KeyValue::Int(ms), Self::DateMillis) if ms.rem_euclid(DAY_SECONDS * 1000) == 0 => {
                date(ms / (DAY_SECONDS * 1000))
            }
            (KeyValue::Int(ms), Self::DateMillis) => timestamp(*ms, TimeUnit::Millisecond),
            (KeyValue::Int(count), Self::Time(unit)) => time(*count, unit),
            (KeyValue::Int(count), Self::Timestamp { unit, is_utc }) => {
                timestamp(*count, unit).map(|text| if is_utc { text + "Z" } else { text })
            }
            (KeyValue::Int96 { day, nanos }, _) => int96(*day, *nanos),
            (KeyValue::Bytes(bytes), Self::Uuid) => uuid(bytes),
            _ => None,
        };
        text.unwrap_or_else(|| value.to_string())
    }

    /// `value` as reports have it; `None` for a null.
    #[must_use]
    pub fn shown(self, value: &KeyValue) -> Option<ShownValue> {
        Some(match (value, self) {
            (KeyValue::Null, _) => return None,
            (KeyValue::Boolean(value), _) => ShownValue::Boolean(*value),
            (KeyValue::Int(value), Self::Plain) => ShownValue::Int(*value),
            (KeyValue::UInt(value), _) => ShownValue::UInt(*value),
            (KeyValue::Float(value), _) if value.is_finite() => ShownValue::Float(*value),
            (KeyValue::Float32(value), _) if value.is_finite() => {
                // As a double, 0.1 would be 0.10000000149011612.
                ShownValue::Float(value.to_string().parse().unwrap_or_else(|_| f64::from(*value)))
            }
            _ => ShownValue::Text(self.text(value)),
        })
    }
}

/// The values of `key` as reports have them, column by column; `None` for a null.
///
/// # Errors
/// As [`decode`].
pub fn shown_values(shape: &KeyShape, key: &[u8]) -> Result<Vec<Option<ShownValue>>> {
    let shown = |(i, value): (usize, &KeyValue)| shape.shown(i).shown(value);
    Ok(decode(shape, key)?.iter().enumerate().map(shown).collect())
}

/// The values of the least key that begins with `beginning`, of so many parts at most, as reports
/// have them; of a curve the corner of the cell that begins so. Empty for what begins no key.
#[must_use]
pub fn shown_cut(shape: &KeyShape, parts: usize, beginning: &[u8]) -> Vec<Option<ShownValue>> {
    for count in (1..=parts.min(shape.parts())).rev() {
        let Ok(shape) = shape.leading(count) else { continue };
        let plain = shape.plain().len();
        if let (Some(part), Ok(end)) = (shape.curve_part(), prefix_len(&shape, beginning, plain))
            && let Some((before, own)) = beginning.split_at_checked(end)
            && let Ok(plain) = shape.leading(plain)
            && let Ok(mut found) = shown_values(&plain, before)
        {
            let corner = corner(part, own).into_iter().zip(plain.columns().len()..);
            found.extend(corner.map(|(value, i)| shape.shown(i).shown(&value?)));
            return found;
        }
        let mut whole = beginning.to_vec();
        for _ in 0..=CUT_BYTES_MAX {
            if let Ok(values) = shown_values(&shape, &whole) {
                return values;
            }
            whole.push(0);
        }
    }
    Vec::new()
}

/// The values of `key` for messages: texts in backticks and cut when long, never an error.
#[must_use]
pub fn render(shape: &KeyShape, key: &[u8]) -> String {
    let Ok(values) = decode(shape, key) else {
        return format!("unreadable key {}", shorten(&hex(key)));
    };
    let text = |(i, value): (usize, &KeyValue)| match value {
        KeyValue::Text(text) => format!("`{}`", shorten(text)),
        other => shorten(&shape.shown(i).text(other)),
    };
    values.iter().enumerate().map(text).collect::<Vec<_>>().join(", ")
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(RENDERED_CHARS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => SECOND_NANOS,
    }
}

fn date(days: i64) -> Option<String> {
    let text = date_time(days.checked_mul(DAY_SECONDS)?)?;
    text.split_once(' ').map(|(date, _)| date.to_owned())
}

fn timestamp(count: i64, unit: TimeUnit) -> Option<String> {
    let scale = per_second(unit);
    let text = date_time(count.div_euclid(scale))?;
    Some(text + &fraction(count.rem_euclid(scale), scale))
}

fn time(count: i64, unit: TimeUnit) -> Option<String> {
    let scale = per_second(unit);
    let (seconds, rest) = (count.div_euclid(scale), count.rem_euclid(scale));
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let is_time = (0..DAY_SECONDS).contains(&seconds);
    is_time.then(|| format!("{hour:02}:{minute:02}:{second:02}{}", fraction(rest, scale)))
}

fn int96(day: i32, nanos: u64) -> Option<String> {
    let nanos = i64::try_from(nanos).ok()?;
    let seconds = (i64::from(day) - JULIAN_EPOCH) * DAY_SECONDS + nanos / SECOND_NANOS;
    Some(date_time(seconds)? + &fraction(nanos % SECOND_NANOS, SECOND_NANOS))
}

/// `2024-05-01 13:00:00`; `None` outside of the years 0 to 9999, whose texts nothing reads.
fn date_time(seconds: i64) -> Option<String> {
    let text = timestamp_s_to_datetime(seconds)?.to_string();
    text.starts_with(|first: char| first.is_ascii_digit()).then_some(text)
}

/// `.5` of 500 in a thousand; nothing of 0.
fn fraction(rest: i64, scale: i64) -> String {
    if rest == 0 {
        return String::new();
    }
    let digits = scale.ilog10() as usize;
    format!(".{rest:0digits$}").trim_end_matches('0').to_owned()
}

fn uuid(bytes: &[u8]) -> Option<String> {
    let digits: String = hex(bytes).split_off(2);
    (bytes.len() == UUID_BYTES).then(|| {
        let parts = [0..8, 8..12, 12..16, 16..20, 20..32];
        parts.map(|part| digits.get(part).unwrap_or_default().to_owned()).join("-")
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{
        Array, ArrayRef, Date32Array, Date64Array, Decimal128Array, FixedSizeBinaryArray,
        Float64Array, Int64Array, StringArray, Time32MillisecondArray, Time64NanosecondArray,
        TimestampMicrosecondArray, TimestampNanosecondArray, TimestampSecondArray,
    };

    use arrow_schema::{DataType, Field, Metadata};

    use super::super::encode_arrow;
    use super::super::literal::literal;
    use super::super::shape::{KeyColumn, KeyType};
    use super::super::sort_column::Nulls;
    use super::*;

    fn shape(fields: &[Field], descending: bool) -> KeyShape {
        let column = |field: &Field| KeyColumn {
            name: field.name().clone(),
            ty: KeyType::from_arrow(field.data_type()).unwrap(),
            descending,
            nulls: Nulls::Last,
        };
        KeyShape::try_new(fields.iter().map(column).collect())
            .unwrap()
            .with_shown(fields.iter().map(ShownAs::of).collect())
    }

    fn columns() -> Vec<(ArrayRef, &'static str)> {
        let uuid = [
            0x6f, 0xa4, 0x59, 0xea, 0xee, 0x8a, 0x3c, 0xa4, 0x89, 0x4e, 0xdb, 0x77, 0xe1, 0x60,
            0x35, 0x5e_u8,
        ];
        let bytes = |bytes: &[u8]| -> ArrayRef {
            Arc::new(FixedSizeBinaryArray::try_from_iter([bytes].into_iter()).unwrap())
        };
        let micros = |value| TimestampMicrosecondArray::from(vec![value]);
        let price = Decimal128Array::from(vec![1230]).with_precision_and_scale(10, 2).unwrap();
        vec![
            (Arc::new(micros(1_714_568_400_500_000)), "2024-05-01 13:00:00.5"),
            (
                Arc::new(micros(1_714_568_400_000_000).with_timezone("Europe/Paris")),
                "2024-05-01 13:00:00Z",
            ),
            (Arc::new(micros(-1)), "1969-12-31 23:59:59.999999"),
            (Arc::new(micros(i64::MAX)), "9223372036854775807"),
            (Arc::new(micros(253_402_300_800_000_000)), "253402300800000000"),
            (Arc::new(TimestampNanosecondArray::from(vec![10])), "1970-01-01 00:00:00.00000001"),
            (Arc::new(TimestampSecondArray::from(vec![-86_400])), "1969-12-31 00:00:00"),
            (Arc::new(Date32Array::from(vec![-1])), "1969-12-31"),
            (Arc::new(Date64Array::from(vec![-86_400_000])), "1969-12-31"),
            (Arc::new(Date64Array::from(vec![1500])), "1970-01-01 00:00:01.5"),
            (Arc::new(Time32MillisecondArray::from(vec![46_800_500])), "13:00:00.5"),
            (Arc::new(Time64NanosecondArray::from(vec![1])), "00:00:00.000000001"),
            (Arc::new(price), "12.30"),
            (bytes(&[0, 255]), "0x00ff"),
            (bytes(&uuid), "6fa459ea-ee8a-3ca4-894e-db77e160355e"),
            (Arc::new(Int64Array::from(vec![-7])), "-7"),
            (Arc::new(Float64Array::from(vec![0.1])), "0.1"),
            (Arc::new(StringArray::from(vec!["2024-05-01"])), "2024-05-01"),
        ]
    }

    fn field_of(array: &ArrayRef, text: &str) -> Field {
        let field = Field::new("k", array.data_type().clone(), true);
        if text.matches('-').count() == 4 {
            return field.with_metadata(Metadata::from([("ARROW:extension:name", "arrow.uuid")]));
        }
        field
    }

    #[test]
    fn values_are_shown_as_people_read_them() {
        for (array, expected) in columns() {
            for descending in [false, true] {
                let shape = shape(&[field_of(&array, expected)], descending);
                let key = encode_arrow(&shape, &[Arc::clone(&array)]).unwrap().to_bytes(&shape, 0);
                let shown = shown_values(&shape, &key).unwrap().remove(0).unwrap();
                assert_eq!(shown.to_string(), expected);
            }
        }
    }

    #[test]
    fn what_is_shown_is_a_literal_of_the_same_value() {
        for (array, expected) in columns() {
            let shape = shape(&[field_of(&array, expected)], false);
            let key = encode_arrow(&shape, &[Arc::clone(&array)]).unwrap().to_bytes(&shape, 0);
            let read = literal(&render(&shape, &key), array.data_type()).unwrap();
            assert_eq!(&read, &array, "{expected}");
        }
    }

    #[test]
    fn reports_have_numbers_and_booleans_as_such_and_read_them_again() {
        let plain = |value: &KeyValue| ShownAs::Plain.shown(value).unwrap();
        let date = ShownAs::Date.shown(&KeyValue::Int(0)).unwrap();
        let decimal = KeyValue::Decimal { unscaled: 1230.into(), scale: 2 };
        for (shown, json) in [
            (plain(&KeyValue::Boolean(false)), "false"),
            (plain(&KeyValue::Int(i64::MIN)), "-9223372036854775808"),
            (plain(&KeyValue::UInt(u64::MAX)), "18446744073709551615"),
            (plain(&KeyValue::Float32(0.1)), "0.1"),
            (plain(&KeyValue::Float(2.0)), "2.0"),
            (plain(&KeyValue::Float(f64::NAN)), "\"NaN\""),
            (plain(&KeyValue::Float32(f32::NEG_INFINITY)), "\"-inf\""),
            (plain(&decimal), "\"12.30\""),
            (plain(&KeyValue::Text("7".to_owned())), "\"7\""),
            (plain(&KeyValue::Bytes(vec![0, 255])), "\"0x00ff\""),
            (date, "\"1970-01-01\""),
        ] {
            assert_eq!(serde_json::to_string(&shown).unwrap(), json);
            assert_eq!(serde_json::from_str::<ShownValue>(json).unwrap(), shown);
        }
        assert_eq!(ShownAs::Plain.shown(&KeyValue::Null), None);
    }

    #[test]
    fn legacy_timestamps_are_timestamps() {
        let text = |day, nanos| ShownAs::Plain.text(&KeyValue::Int96 { day, nanos });
        assert_eq!(text(2_440_588, 5), "1970-01-01 00:00:00.000000005");
        assert_eq!(text(2_440_589, 90_000_000_000_000), "1970-01-03 01:00:00");
        assert_eq!(text(i32::MAX, 5), "julian day 2147483647 + 5 ns");
    }

    #[test]
    fn shapes_that_are_shown_in_different_ways_are_equal() {
        let shape = shape(&[Field::new("k", DataType::Date32, true)], false);
        assert_eq!(shape, KeyShape::try_new(shape.columns().to_vec()).unwrap());
        assert_eq!(shape.leading(1).unwrap().shown(0), ShownAs::Date);
    }

    #[test]
    fn messages_show_keys_in_one_line() {
        let fields =
            [Field::new("a", DataType::Utf8, true), Field::new("b", DataType::Int32, true)];
        let shape = shape(&fields, false);
        let key = b"\x01op\0\0\x01\x80\0\0\x07";
        assert_eq!(render(&shape, key), "`op`, 7");
        assert_eq!(render(&shape, b"\x01\xFF\0\0\x02\0\0\0\0"), "0xff, null");
        assert_eq!(render(&shape, b"\x07"), "unreadable key 0x07");
        let mut long = vec![0x01];
        long.extend("é".repeat(100).bytes());
        long.extend([0, 0, 2, 0, 0, 0, 0]);
        assert_eq!(render(&shape, &long), format!("`{}…`, null", "é".repeat(64)));
    }
}
