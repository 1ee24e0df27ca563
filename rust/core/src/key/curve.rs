//! What is a clustering key? The last columns of an order, taken as one by a curve.
//!
//! ```text
//! zorder(a, b)     bits of a and b by turns        near in the order: near in a and in b
//! hilbert(a, b)    the same, with turns that leave no jumps
//! ```
//!
//! # Not here
//! The text of an order (`order`); the bits (`curve_index`).

use std::fmt;

use plait_base::{Error, Kind, Result};

/// More columns than this say nothing about any of them.
pub(super) const CURVE_COLUMNS_MAX: usize = 8;

/// How several columns become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CurveKind {
    /// Their bits by turns, the most significant first (Morton).
    ZOrder,
    /// The Hilbert curve through the same cells: neighbours in the order are neighbours in space.
    Hilbert,
}

impl CurveKind {
    /// Both of them.
    pub(super) const ALL: [Self; 2] = [Self::ZOrder, Self::Hilbert];

    /// What is written before the parenthesis.
    #[must_use]
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ZOrder => "zorder",
            Self::Hilbert => "hilbert",
        }
    }
}

impl fmt::Display for CurveKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The clustering key at the end of an order or of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Curve {
    /// How its columns become one.
    pub kind: CurveKind,
    /// How many columns are before it: all that follow are its own.
    pub start: usize,
    /// Whether the curve is walked backwards.
    pub descending: bool,
}

impl Curve {
    /// Refuses a curve of too few or too many of `columns` columns.
    pub(super) fn check(self, columns: usize) -> Result<()> {
        let own = columns.saturating_sub(self.start);
        if (2..=CURVE_COLUMNS_MAX).contains(&own) {
            return Ok(());
        }
        let hint = match own {
            0 | 1 => "sort by the column itself",
            _ => "name the columns that most queries ask for: each further one weakens the others",
        };
        let what = format!("`{}` takes 2 to {CURVE_COLUMNS_MAX} columns", self.kind);
        Err(Error::new(Kind::InvalidArgument, what)
            .with_got(format!("{own} column{}", if own == 1 { "" } else { "s" }))
            .with_hint(hint))
    }

    /// What the bytes of its part of a key are combined with: complemented when descending.
    pub(super) fn mask(self) -> u8 {
        if self.descending { 0xFF } else { 0x00 }
    }
}
