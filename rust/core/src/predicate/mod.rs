//! Which rows are asked for: a conjunction of conditions on columns, as text and against a schema.
//!
//! ```text
//! "ts >= '2024-05-01' AND service IN ('api', 'db')"
//!    └─ Predicate (names, texts) ── bind(schema) ──▶ Filter: ranges of keys, a column each
//!                                                      ├─ rows of a batch for which it holds
//!                                                      └─ could it hold between these bounds?
//! ```
//!
//! # Invariants
//! A comparison with null is not true, as in SQL. Values compare as keys do: NaN is one value,
//! above all others, and -0.0 is 0.0. What cannot be understood is an error, never ignored.
//!
//! # Cost
//! One key a row and condition, and a binary search among the ranges of the condition.
//!
//! # Not here
//! Statistics of files, and reading (`plait_parquet`).

mod asked;
mod bind;
mod parse;
#[cfg(test)]
mod tests;

pub use bind::{ColumnCondition, Filter};

use self::asked::Asked;
use plait_base::Result;

/// A conjunction of conditions, by the names of columns.
///
/// ```text
/// predicate = condition { AND condition }
/// condition = column ( "<" | "<=" | "=" | "==" | "!=" | "<>" | ">=" | ">" ) value
///           | column [NOT] IN "(" value { "," value } ")"
///           | column BETWEEN value AND value
///           | column IS [NOT] NULL
///           | column LIKE 'prefix%'
/// column    = name { "." name }            name  = bare | '"' any text, a quote written twice '"'
/// value     = "'" any text, a quote written twice "'" | bare text
/// ```
///
/// ```
/// use plait_core::predicate::Predicate;
/// let asked = Predicate::try_parse("ts >= '2024-05-01 13:00' AND tags.host LIKE 'web-%'")?;
/// assert_eq!(asked.columns().count(), 2);
/// assert!(Predicate::try_parse("ts > 5 OR ts < 3").is_err());
/// # Ok::<(), plait_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Predicate {
    conditions: Vec<Asked>,
}

impl Predicate {
    /// Reads the text form.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`](plait_base::Kind::InvalidArgument) for text that does not follow the
    /// grammar, with the place.
    pub fn try_parse(text: &str) -> Result<Self> {
        parse::predicate(text).map(|conditions| Self { conditions })
    }

    /// The columns it names, one for each condition: names from the root to the leaf.
    pub fn columns(&self) -> impl Iterator<Item = &[String]> {
        self.conditions.iter().map(|condition| condition.path.as_slice())
    }

    /// The same by other names of the columns.
    ///
    /// # Errors
    /// Those of `rename`.
    pub fn renamed(self, rename: impl Fn(&[String]) -> Result<Vec<String>>) -> Result<Self> {
        let renamed = |asked: Asked| Ok(Asked { path: rename(&asked.path)?, ..asked });
        let conditions = self.conditions.into_iter().map(renamed).collect::<Result<_>>()?;
        Ok(Self { conditions })
    }

    /// The conditions on columns for which `is_first` is true, and the others.
    #[must_use]
    pub fn split(self, is_first: impl Fn(&[String]) -> bool) -> (Self, Self) {
        let (first, others) = self.conditions.into_iter().partition(|c| is_first(&c.path));
        (Self { conditions: first }, Self { conditions: others })
    }
}
