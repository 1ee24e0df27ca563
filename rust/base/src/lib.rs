//! What every crate of Plait names: errors, sources, runs of rows, types in words.
//!
//! # Invariants
//! Nothing here imports another crate of Plait.
//!
//! # Not here
//! Whatever only one crate names.

#![forbid(unsafe_code)]

mod error;
mod names;
mod run;
mod type_text;

pub use error::{Error, Kind, Result};
pub use names::columns_hint;
pub use run::{Run, Runs, SourceId};
pub use type_text::type_text;

/// Runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
