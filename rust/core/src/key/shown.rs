//! What the numbers and bytes of a key column stand for: days, times, UUIDs.
//!
//! # Not here
//! The texts (`text`); annotations of Parquet (the shell).

use arrow_schema::{DataType, Field, TimeUnit};

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
