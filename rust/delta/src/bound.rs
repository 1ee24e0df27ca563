//! A bound of a column in a footer as the log has it.
//!
//! ```text
//! string   "a very long text …"          ─▶  32 letters; of a greatest one, one more that is last
//! moment   2020-01-01 01:02:03.456789Z   ─▶  "2020-01-01T01:02:03.456Z", or .457Z
//! decimal  1.50                          ─▶  1.5, where a float is exactly that
//! ```
//!
//! # Invariants
//! What is cut is cut to the side that keeps all values between the bounds.
//!
//! # Not here
//! Which bounds a file has (`stats`).

use plait_core::key::{KeyValue, ShownAs, ShownValue};
use serde_json::{Value, json};

/// Longer text is cut: statistics are in every reader's memory.
const LETTERS_MAX: usize = 32;
const LAST_LETTER: char = '\u{10ffff}';
const MS_OF_DAY: i128 = 86_400_000;
const NANOS_OF_MS: i128 = 1_000_000;
/// More digits behind a point than a float may have in two.
const POWERS_MAX: i32 = 62;

/// Which of two bounds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Least,
    Greatest,
}

/// A bound as something that compares with others of its column.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Bound {
    Number(i128),
    /// A decimal, with so many digits behind the point.
    Decimal(i128, u32),
    /// Milliseconds since 1970.
    Moment(i128),
    Text(String),
}

/// A bound of a column of the type `kind`; `None` where it is not known.
pub(crate) fn bound(shown: &ShownValue, kind: &str, physical: &str, side: Side) -> Option<Bound> {
    if physical == "INT96" {
        return None;
    }
    match (kind, shown) {
        ("byte" | "short" | "integer" | "long" | "boolean", shown) => {
            number(shown).map(Bound::Number)
        }
        ("date", ShownValue::Text(text)) => days(text).map(|_| Bound::Text(text.clone())),
        ("timestamp" | "timestamp_ntz", ShownValue::Text(text)) => {
            moment(text, side).map(Bound::Moment)
        }
        // Bounds that others cut inside of a letter are no text, and are shown as digits.
        ("string", ShownValue::Text(text)) if !is_hex(text) => Some(Bound::Text(cut(text, side))),
        (kind, shown) if kind.starts_with("decimal") && matches!(physical, "INT32" | "INT64") => {
            decimal(shown)
        }
        _ => None,
    }
}

impl Bound {
    /// As the log has it; `None` if it cannot.
    pub(crate) fn as_json(&self, kind: &str) -> Option<Value> {
        Some(match self {
            Self::Number(number) if kind == "boolean" => json!(*number != 0),
            Self::Number(number) => match i64::try_from(*number) {
                Ok(number) => json!(number),
                Err(_) => json!(u64::try_from(*number).ok()?),
            },
            Self::Decimal(unscaled, scale) => json!(float(*unscaled, *scale)?),
            Self::Moment(ms) => {
                let ms = i64::try_from(*ms).ok()?;
                let unit = arrow_schema::TimeUnit::Millisecond;
                let shown = ShownAs::Timestamp { unit, is_utc: false };
                let text = shown.text(&KeyValue::Int(ms)).replacen(' ', "T", 1);
                let text = if text.contains('.') { text } else { text + ".000" };
                json!(if kind == "timestamp" { text + "Z" } else { text })
            }
            Self::Text(text) => json!(text),
        })
    }
}

fn number(shown: &ShownValue) -> Option<i128> {
    match shown {
        ShownValue::Int(value) => Some((*value).into()),
        ShownValue::UInt(value) => Some((*value).into()),
        ShownValue::Boolean(value) => Some((*value).into()),
        _ => None,
    }
}

fn decimal(shown: &ShownValue) -> Option<Bound> {
    let ShownValue::Text(text) = shown else {
        return number(shown).map(|number| Bound::Decimal(number, 0));
    };
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let unscaled = format!("{whole}{rest}").parse().ok()?;
    Some(Bound::Decimal(unscaled, u32::try_from(rest.len()).ok()?))
}

/// The float that is exactly `unscaled / 10^scale`.
fn float(unscaled: i128, scale: u32) -> Option<f64> {
    let power = 10_i128.checked_pow(scale)?;
    let text = format!("{unscaled}e-{scale}");
    let found: f64 = text.parse().ok()?;
    // Times two until it is whole: exactly, or it never will be.
    let (mut whole, mut twos) = (found, 0);
    while whole.fract() != 0.0 {
        whole *= 2.0;
        twos += 1;
        if twos > POWERS_MAX {
            return None;
        }
    }
    #[expect(clippy::cast_possible_truncation, reason = "whole, and below 2^127 or not equal")]
    let whole = whole as i128;
    (whole.checked_mul(power)? == unscaled.checked_mul(1_i128 << twos)?).then_some(found)
}

fn cut(text: &str, side: Side) -> String {
    let Some((end, _)) = text.char_indices().nth(LETTERS_MAX) else { return text.to_owned() };
    let mut cut = text[..end].to_owned();
    if side == Side::Greatest {
        cut.push(LAST_LETTER);
    }
    cut
}

fn is_hex(text: &str) -> bool {
    let digits = text.strip_prefix("0x").map(|rest| rest.strip_suffix('…').unwrap_or(rest));
    digits.is_some_and(|digits| {
        !digits.is_empty() && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Days since 1970 of a date with four digits a year, which is not before the year 1.
fn days(text: &str) -> Option<i128> {
    let mut parts = text.split('-');
    let mut next = |len: usize| -> Option<i128> {
        let part = parts.next()?;
        let is_number = part.len() == len && part.bytes().all(|byte| byte.is_ascii_digit());
        if is_number { part.parse().ok() } else { None }
    };
    let (year, month, day) = (next(4)?, next(2)?, next(2)?);
    if year == 0 || parts.next().is_some() {
        return None;
    }
    // Years begin in March, so that a leap day is their last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    Some(days - 719_468)
}

/// Milliseconds since 1970 of a moment as reports show it, cut to the side of `side`.
fn moment(text: &str, side: Side) -> Option<i128> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once(' ')?;
    let (time, rest) = time.split_once('.').unwrap_or((time, ""));
    let mut seconds = 0_i128;
    let mut parts = 0;
    for part in time.split(':') {
        seconds = seconds * 60 + part.parse::<u32>().ok().map(i128::from)?;
        parts += 1;
    }
    if parts != 3 || rest.len() > 9 || !rest.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanos: i128 = format!("{rest:0<9}").parse().ok()?;
    let up = side == Side::Greatest && nanos % NANOS_OF_MS != 0;
    Some(days(date)? * MS_OF_DAY + seconds * 1000 + nanos / NANOS_OF_MS + i128::from(up))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(shown: ShownValue, kind: &str, side: Side) -> Option<Value> {
        bound(&shown, kind, "INT64", side)?.as_json(kind)
    }

    fn text(text: &str, kind: &str, side: Side) -> Option<Value> {
        made(ShownValue::Text(text.to_owned()), kind, side)
    }

    #[test]
    fn moments_have_milliseconds_and_are_never_too_narrow() {
        use Side::{Greatest, Least};
        let at = "2020-12-31 23:59:59.999999Z";
        assert_eq!(text(at, "timestamp", Least), Some(json!("2020-12-31T23:59:59.999Z")));
        assert_eq!(text(at, "timestamp", Greatest), Some(json!("2021-01-01T00:00:00.000Z")));
        let at = "1960-02-29 00:00:00.000001";
        assert_eq!(text(at, "timestamp_ntz", Least), Some(json!("1960-02-29T00:00:00.000")));
        assert_eq!(text(at, "timestamp_ntz", Greatest), Some(json!("1960-02-29T00:00:00.001")));
        assert_eq!(text("294247-01-10 04:00:54", "timestamp", Greatest), None);
        assert_eq!(text("2024-05-01", "date", Least), Some(json!("2024-05-01")));
        assert_eq!(text("0000-05-01", "date", Least), None);
        assert_eq!(bound(&ShownValue::Text(at.to_owned()), "timestamp", "INT96", Least), None);
    }

    #[test]
    fn decimals_are_told_where_a_float_is_exactly_that() {
        assert_eq!(text("1.50", "decimal(10,2)", Side::Least), Some(json!(1.5)));
        assert_eq!(text("-3.00", "decimal(10,2)", Side::Least), Some(json!(-3.0)));
        assert_eq!(text("0.10", "decimal(10,2)", Side::Least), None);
        assert_eq!(text("9007199254740993", "decimal(18,0)", Side::Least), None);
        let wide = ShownValue::Text("1.50".to_owned());
        assert_eq!(bound(&wide, "decimal(38,2)", "FIXED_LEN_BYTE_ARRAY", Side::Least), None);
    }

    #[test]
    fn texts_are_cut_to_their_side() {
        let long = "é".repeat(40);
        let cut = "é".repeat(32);
        assert_eq!(text(&long, "string", Side::Least), Some(json!(cut)));
        assert_eq!(text(&long, "string", Side::Greatest), Some(json!(format!("{cut}\u{10ffff}"))));
        assert_eq!(text("0x00ff…", "string", Side::Least), None);
        assert_eq!(text("0xyz", "string", Side::Least), Some(json!("0xyz")));
    }

    #[test]
    fn numbers_and_truths_are_what_they_are() {
        assert_eq!(made(ShownValue::Int(-4), "long", Side::Least), Some(json!(-4)));
        assert_eq!(made(ShownValue::UInt(u64::MAX), "long", Side::Least), Some(json!(u64::MAX)));
        assert_eq!(made(ShownValue::Boolean(true), "boolean", Side::Least), Some(json!(true)));
        assert_eq!(made(ShownValue::Float(1.0), "double", Side::Least), None);
    }
}
