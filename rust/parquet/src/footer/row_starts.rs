//! Where row groups begin. Most files have one row group, and need no block of memory for that.
//!
//! # Not here
//! Whether row counts add up (`checks`).

use std::ops::Deref;

/// The first row of each row group, and the number of rows.
#[derive(Clone)]
pub(crate) enum RowStarts {
    /// Of one row group.
    One([u64; 2]),
    /// Of none, or of several.
    Many(Box<[u64]>),
}

impl From<Vec<u64>> for RowStarts {
    fn from(starts: Vec<u64>) -> Self {
        match starts[..] {
            [first, rows] => Self::One([first, rows]),
            _ => Self::Many(starts.into()),
        }
    }
}

impl Deref for RowStarts {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        match self {
            Self::One(starts) => starts,
            Self::Many(starts) => starts,
        }
    }
}
