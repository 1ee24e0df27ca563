//! Delta's log: which files of a table are live, read and committed without another library.
//!
//! ```text
//! _delta_log/00…10.checkpoint.parquet ─┐
//! _delta_log/00…11.json ───────────────┼─ load ─▶ Snapshot ─▶ files, by commit
//! _delta_log/00…12.json ───────────────┘             │
//!                                                    ▼
//! a change ─▶ is all it removes live? ─▶ put 00…13.json where there is none ─▶ committed
//!                     ▲                            │ taken
//!                     └────────────────────────────┘
//! ```
//!
//! # Invariants
//! A version is one file, made whole or not at all, by one writer. A feature of the protocol that is
//! not known is refused by its name before any work. A path that leads out of the table is never
//! removed.
//!
//! # Not here
//! Data files (`plait_parquet`).
//!
//! Source: the [Delta transaction log
//! protocol](https://github.com/delta-io/delta/blob/master/PROTOCOL.md).

#![forbid(unsafe_code)]

mod action;
mod added;
mod bound;
mod checkpoint;
mod clean;
mod columns;
mod commit;
mod history;
mod interval;
mod load;
mod log;
mod mapping;
mod name;
mod new_vector;
mod packed;
mod protocol;
mod prune;
mod rest;
mod schema;
mod snapshot;
mod stats;
mod stored;
mod vector;

pub use columns::arrow_columns;
pub use log::Log;
pub use mapping::{Names, order_by};
pub use rest::rest;
pub use schema::{Lacking, delta_schema};

/// Runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
