//! What every crate of Plait names: errors, sources, runs of rows.
//!
//! # Invariants
//! Nothing here imports another crate of Plait.
//!
//! # Not here
//! Whatever only one crate names.

#![forbid(unsafe_code)]

mod error;
mod run;

pub use error::{Error, Kind, Result};
pub use run::{Run, Runs, SourceId};

/// Runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
