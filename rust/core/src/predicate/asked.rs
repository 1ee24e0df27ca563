//! A condition as it is written, before its column is known.
//!
//! # Not here
//! Reading it (`parse`); what it means for a schema (`bind`).

/// One condition as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// Names from the root to the leaf.
    pub(super) path: Vec<String>,
    pub(super) test: Test,
}

/// What is asked of a value. Values are texts, in quotes if they were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Test {
    Compare(Comparison, String),
    In(Vec<String>),
    NotIn(Vec<String>),
    Between(String, String),
    IsNull,
    IsNotNull,
    StartsWith(String),
}

/// The sign of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Less,
    LessOrEqual,
    Equal,
    NotEqual,
    GreaterOrEqual,
    Greater,
}
