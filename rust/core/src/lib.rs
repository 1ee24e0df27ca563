//! The pure half of Plait: what the keys are, who is next, where to cut.
//!
//! ```text
//! key ──┬── plan     which row is next, in windows of runs
//!       └── region   which sources overlap
//! schema             one type for many
//! overlay            which layer supplies which leaf
//! stream   sources of record batches as one: plan, key and schema together
//! join     two tables that change, and how their join changes
//! validate arrays of other libraries, before anything relies on them
//! ```
//!
//! # Invariants
//! No files, threads, clocks, environment, Python or Parquet: the core asks (`Ask::Keys`), the
//! shell fetches. Imports follow the arrows (checked by `tests/layers`).
//!
//! # Not here
//! Errors and runs (`plait_base`); copying rows of arrays (`plait_interleave`); reading and writing
//! Parquet (`plait_parquet`).

#![cfg_attr(not(test), forbid(unsafe_code))] // tests build arrays that validation must refuse

pub mod join;
pub mod key;
pub mod natural;
pub mod overlay;
pub mod packed_runs;
pub mod plan;
pub mod policy;
pub mod predicate;
pub mod region;
pub mod schema;
pub mod stream;
pub mod validate;
pub mod workers;

pub use plait_base::{Error, Kind, Result, Run, Runs, SourceId, columns_hint, type_text};

/// Runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
