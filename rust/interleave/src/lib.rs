//! Interleave: a lazy gather of many arrays, and the copying of rows by runs.
//!
//! ```text
//! values   [a b c]   [d e]          array_indices  1 0 0 1
//!             0         1           row_indices    0 2 2 1
//!                                   rows           d c c e     not copied until asked for
//! ```
//!
//! # Invariants
//! An [`Interleave`] is checked when it is made, except for what its selectors lead to: that is
//! checked before the first row is copied, and an error names the first row that is not there. Lazy
//! operations touch selectors, never values. [`gather`] is the same for runs, which every planner
//! emits.
//!
//! # Cost
//! Lazy: 12 bytes a row at most. Copying: see `kernel`; faster the longer the runs.
//!
//! # Not here
//! Casting types to each other and the order of a merge (`plait_core`).

mod chunks;
mod dictionary;
mod gather;
mod interleave;
mod kernel;
mod levels;
mod lower;
mod nested;
mod order;
mod run_end;
mod select;
mod size;
#[cfg(test)]
mod tests;
mod types;
mod unite;
mod unsigned;

pub use chunks::{CHUNK_BYTES_MAX, CHUNK_ROWS_MAX, Chunks};
pub use interleave::{Interleave, Value, gather};

/// Runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
