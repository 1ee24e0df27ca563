//! What is joined with what, as the user says.
//!
//! # Not here
//! Checking it against schemas (`layout`).

/// Which left rows are in the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Those whose foreign key is in the right table.
    Inner,
    /// All; without a right row its columns are null.
    Left,
}

/// What a change without a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NullKeys {
    /// An error.
    Error,
    /// Left out and counted.
    Drop,
}

/// A foreign-key join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Columns of the left table that identify its rows.
    pub left_key: Vec<String>,
    /// Columns of the left table that name a right row, in the order of `right_key`.
    pub foreign_key: Vec<String>,
    /// Whether the foreign key is computed: then its columns are keys only, and not in the result.
    pub is_computed: bool,
    /// Columns of the right table that identify its rows.
    pub right_key: Vec<String>,
    /// Which left rows are in the result.
    pub how: How,
    /// What a change without a key is.
    pub on_null_key: NullKeys,
    /// Columns of the result: its name, and the name it has by default; `None` = all.
    pub columns: Option<Vec<(String, String)>>,
    /// Whether changes have the old values, too.
    pub before: bool,
}
