//! What does not go together, in words: every conflict at once, with files and both sides.
//!
//! ```text
//! sources have 2 schema conflicts: column `a`, got these differences:
//!   `a` has incompatible types: Int64 in `x.parquet`, Float64 in `y.parquet`
//!   `m.b` is missing: Utf8 in `x.parquet`, absent in `y.parquet`
//! ```
//!
//! # Not here
//! Finding conflicts (`unify`).

use std::fmt::Write as _;

use plait_base::{Error, Kind};

/// Why: no type holds the values of both.
pub const TYPES: &str = "has incompatible types";
/// Why: one has fields or items where the other has none, or others.
pub const SHAPES: &str = "has incompatible shapes";
/// Why: a source has the name, or the id, more than once.
pub(crate) const TWICE: &str = "occurs twice, or in two spellings";
/// Why: the ids say that columns of one name are different columns.
pub(super) const IDS: &str = "has different field ids";
/// Why: the types differ, and widening is refused.
pub(crate) const WIDENED: &str = "would have to be widened";
/// Why: not in every source, and filling with nulls is refused.
pub(crate) const MISSING: &str = "is missing";

/// One conflict: what each of two sources says of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Dotted path of the column.
    pub column: String,
    /// The rest of the sentence that begins with the column.
    pub why: &'static str,
    /// What two sources say, and their names.
    pub sides: [(String, String); 2],
}

/// The one error that tells all `conflicts`.
///
/// ```
/// use plait_core::schema::conflict::{Conflict, TYPES, error};
/// let side = |says: &str, name: &str| (says.to_owned(), name.to_owned());
/// let conflict = Conflict {
///     column: "a".into(),
///     why: TYPES,
///     sides: [side("Int64", "x.parquet"), side("Utf8", "y.parquet")],
/// };
/// assert!(error(&[conflict]).to_string().contains("Int64 in `x.parquet`, Utf8 in `y.parquet`"));
/// ```
#[must_use]
pub fn error(conflicts: &[Conflict]) -> Error {
    let what = match conflicts.len() {
        1 => "sources have a schema conflict".to_owned(),
        n => format!("sources have {n} schema conflicts"),
    };
    let mut all = "these differences:".to_owned();
    for Conflict { column, why, sides: [(a, a_name), (b, b_name)] } in conflicts {
        // Writing to a string cannot fail.
        let _ = write!(all, "\n  `{column}` {why}: {a} in `{a_name}`, {b} in `{b_name}`");
    }
    let error = Error::new(Kind::SchemaConflict, what)
        .with_got(all)
        .with_hint("leave the odd file out, or rewrite it with the column cast or renamed");
    match conflicts.first() {
        Some(first) => error.with_column(&first.column),
        None => error,
    }
}
