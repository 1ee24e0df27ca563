//! The functions that make one value of several.
//!
//! # Invariants
//! The result is of the type of the values, and that of neighbours first is that of all at once.
//!
//! # Not here
//! Which values (`combine`); sums (`fold`); elements of lists and maps (`collect`).

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
    /// The elements of all lists, in merged order.
    Collect,
    /// The same, each element once.
    CollectDistinct,
    /// The entries of all maps; of equal keys the last value.
    MergeMap,
}

/// A value that none of several rows has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewValue {
    /// What their numbers are folded to.
    Number(Fold),
    /// All elements of their lists.
    AllElements,
    /// Of elements that are equal one; of entries of maps the keys count.
    DistinctElements,
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
            Self::Collect => is_list(data_type),
            Self::CollectDistinct => is_list(data_type) && !has_map(data_type),
            Self::MergeMap => match data_type {
                DataType::Map(entries, _) => match entries.data_type() {
                    DataType::Struct(fields) => {
                        fields.first().is_some_and(|key| !has_map(key.data_type()))
                    }
                    _ => false,
                },
                _ => false,
            },
        };
        if takes {
            return Ok(());
        }
        let wants = match self {
            Self::Sum => "integers, floats of 32 or 64 bits, decimals of up to 38 digits",
            Self::Product => "integers, floats of 32 or 64 bits",
            Self::BoolAnd | Self::BoolOr => "booleans",
            Self::Collect => "lists: a row that is alone in its key stays as it is",
            Self::CollectDistinct => "lists without maps in them",
            Self::MergeMap => "maps",
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
            Self::Collect => "collect",
            Self::CollectDistinct => "collect_distinct",
            Self::MergeMap => "merge_map",
        }
    }

    /// What several values that are not null become, if it is none of them.
    pub(super) fn makes(self) -> Option<NewValue> {
        match self {
            Self::Sum => Some(NewValue::Number(Fold::Sum)),
            Self::Product => Some(NewValue::Number(Fold::Product)),
            Self::Collect => Some(NewValue::AllElements),
            Self::CollectDistinct | Self::MergeMap => Some(NewValue::DistinctElements),
            _ => None,
        }
    }

    /// Whether values are compared.
    #[must_use]
    pub fn compares(self) -> bool {
        matches!(self, Self::Min | Self::Max | Self::BoolAnd | Self::BoolOr)
    }
}

fn is_list(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(_) | DataType::LargeList(_))
}

/// Whether there are maps in values of a type.
fn has_map(data_type: &DataType) -> bool {
    match data_type {
        DataType::Map(..) => true,
        DataType::List(of) | DataType::LargeList(of) | DataType::FixedSizeList(of, _) => {
            has_map(of.data_type())
        }
        DataType::Struct(fields) => fields.iter().any(|field| has_map(field.data_type())),
        _ => false,
    }
}
