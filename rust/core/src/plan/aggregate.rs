//! The functions that make one value of several.
//!
//! # Invariants
//! The result is of the type of the values, and that of neighbours first is that of all at once.
//!
//! # Not here
//! Which values (`combine`); sums (`fold`).

use arrow_schema::DataType;
use serde::{Deserialize, Serialize};

use super::fold::{Fold, NumberType};
use plait_base::{Error, Kind, Result, type_text};

/// What makes one value of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregate {
    /// The sum of the values that are not null. An integer or decimal that does not fit is an error.
    Sum,
    /// Their product, likewise.
    Product,
    /// The smallest value that is not null.
    Min,
    /// The greatest.
    Max,
    /// The value of the first row in merged order, null or not.
    First,
    /// The value of the last row.
    Last,
    /// The first value that is not null.
    FirstNonNull,
    /// The last value that is not null.
    LastNonNull,
    /// Whether all values that are not null are true.
    BoolAnd,
    /// Whether one of them is.
    BoolOr,
}

impl Aggregate {
    /// Checks that values of this type can be aggregated so.
    pub(super) fn check(self, data_type: &DataType) -> Result<()> {
        if let DataType::Dictionary(_, values) = data_type {
            return self.check(values);
        }
        let takes = match self {
            Self::Sum => NumberType::of(data_type).is_some(),
            Self::Product => NumberType::of(data_type).is_some() && !data_type.is_decimal(),
            Self::Min | Self::Max => !data_type.is_nested() && *data_type != DataType::Null,
            Self::BoolAnd | Self::BoolOr => *data_type == DataType::Boolean,
            Self::First | Self::Last | Self::FirstNonNull | Self::LastNonNull => true,
        };
        if takes {
            return Ok(());
        }
        let wants = match self {
            Self::Sum => "integers, floats of 32 or 64 bits, decimals of up to 38 digits",
            Self::Product => "integers, floats of 32 or 64 bits",
            Self::BoolAnd | Self::BoolOr => "booleans",
            _ => "values of one column, not of lists, maps or structs",
        };
        Err(Error::new(Kind::InvalidArgument, "the function does not take values of this type")
            .with_got(format!("{} of {}", self.name(), type_text(data_type)))
            .with_hint(format!("it takes {wants}")))
    }

    /// What callers call it.
    fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Product => "product",
            Self::Min => "min",
            Self::Max => "max",
            Self::First => "first",
            Self::Last => "last",
            Self::FirstNonNull => "first_non_null",
            Self::LastNonNull => "last_non_null",
            Self::BoolAnd => "bool_and",
            Self::BoolOr => "bool_or",
        }
    }

    /// What numbers are folded by, if the result is not one of the values.
    #[must_use]
    pub fn fold(self) -> Option<Fold> {
        match self {
            Self::Sum => Some(Fold::Sum),
            Self::Product => Some(Fold::Product),
            _ => None,
        }
    }

    /// Whether values are compared.
    #[must_use]
    pub fn compares(self) -> bool {
        matches!(self, Self::Min | Self::Max | Self::BoolAnd | Self::BoolOr)
    }
}
