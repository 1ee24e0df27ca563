//! The pure half of Plait: what the keys are, who is next, where to cut.
//!
//! ```text
//! error ── run ──┬── key ──┬── plan     who is next, in windows of steps
//!                │         └── region   who overlaps whom
//!                ├── interleave         rows of many arrays as one
//!                ├── schema             one type for many
//!                └── overlay            who supplies which leaf
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
//! Reading and writing Parquet (`plait_parquet`).

pub mod error;
pub mod interleave;
pub mod join;
pub mod key;
pub mod overlay;
pub mod plan;
pub mod policy;
pub mod region;
pub mod run;
pub mod schema;
pub mod steps;
pub mod stream;
pub mod validate;
pub mod workers;

pub use error::{Error, Kind, Result};
