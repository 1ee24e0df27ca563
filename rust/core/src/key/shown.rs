//! What the numbers and bytes of a key column stand for: days, times, UUIDs. How reports have values.
//!
//! # Not here
//! The texts (`text`); annotations of Parquet (the shell).

use std::fmt;

use arrow_schema::{DataType, Field, TimeUnit};
use serde::{Deserialize, Serialize};

/// Name of Arrow's extension type for UUIDs.
const UUID_EXTENSION: &str = "arrow.uuid";

/// What the numbers and bytes of a key column stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShownAs {
    /// Themselves.
    #[default]
    Plain,
    /// Days since 1970.
    Date,
    /// Milliseconds since 1970 that are whole days, as a rule.
    DateMillis,
    /// So many units since midnight.
    Time(TimeUnit),
    /// So many units since 1970.
    Timestamp {
        /// The unit.
        unit: TimeUnit,
        /// Whether that is 1970 in UTC, and no local time.
        is_utc: bool,
    },
    /// The 16 bytes of a UUID.
    Uuid,
}

impl ShownAs {
    /// What values of an Arrow field stand for.
    #[must_use]
    pub fn of(field: &Field) -> Self {
        match field.extension_type_name() {
            Some(UUID_EXTENSION) => Self::Uuid,
            _ => Self::of_type(field.data_type()),
        }
    }

    /// What values of an Arrow type stand for; of a dictionary or run-end encoded one, its values.
    #[must_use]
    pub fn of_type(data_type: &DataType) -> Self {
        match data_type {
            DataType::Date32 => Self::Date,
            DataType::Date64 => Self::DateMillis,
            DataType::Time32(unit) | DataType::Time64(unit) => Self::Time(*unit),
            DataType::Timestamp(unit, zone) => {
                Self::Timestamp { unit: *unit, is_utc: zone.is_some() }
            }
            DataType::Dictionary(_, values) => Self::of_type(values),
            DataType::RunEndEncoded(_, values) => Self::of(values),
            _ => Self::Plain,
        }
    }
}

/// A value as reports and plans have it: numbers and booleans as such, all others as people read
/// them.
///
/// ```
/// use plait_core::key::{KeyValue, ShownValue, ShownAs};
/// assert_eq!(ShownAs::Plain.shown(&KeyValue::Int(7)), Some(ShownValue::Int(7)));
/// assert_eq!(ShownAs::Date.shown(&KeyValue::Int(0)), Some(ShownValue::Text("1970-01-01".to_owned())));
/// assert_eq!(ShownAs::Date.shown(&KeyValue::Null), None);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum ShownValue {
    /// A boolean.
    Boolean(bool),
    /// An integer that is no date and no time.
    Int(i64),
    /// An unsigned integer.
    UInt(u64),
    /// A finite floating-point number: the double with the fewest digits that names it.
    Float(f64),
    /// Everything else: text, decimals, dates, times, binary, and numbers that JSON does not have.
    Text(String),
}

impl fmt::Display for ShownValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean(value) => value.fmt(f),
            Self::Int(value) => value.fmt(f),
            Self::UInt(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            Self::Text(value) => f.write_str(value),
        }
    }
}
