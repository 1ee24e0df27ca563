//! Plait's Parquet engine: the only crate that does I/O.
//!
//! ```text
//! store ─▶ source ─▶ page ─▶ leaf ─┬─▶ keys ─▶ plait_core::plan ─▶ Runs ─┐
//!                                  └──────────▶ weave (value tier) ◀──────┤
//!                                               chunk (whole row groups) ◀┘
//!                                                  └─▶ sink ─▶ target (temp, sync, rename)
//! ```
//!
//! # Invariants
//! A file is leaf columns made of levels and values; only `scan` builds Arrow arrays. Memory follows the
//! limit, never the data. Nothing is visible before it is whole.
//!
//! # Not here
//! Order and cuts (`plait_core`); Python (`plait-py`).

mod arrow_file;
pub mod beside;
pub mod block;
pub mod budget;
pub mod check;
pub mod chunk;
pub mod compact;
mod content;
pub mod context;
mod drops;
pub mod encode;
pub mod events;
mod files;
pub mod inspect;
pub mod join;
pub mod keys;
pub mod leaf;
pub mod merge;
pub mod options;
mod order;
pub mod overlay;
pub mod page;
pub mod plan;
mod pool;
pub mod properties;
mod queue;
pub mod ranks;
pub mod report;
pub mod scan;
pub mod schema;
pub mod sink;
pub mod source;
pub mod spill;
pub mod store;
pub mod stream;
pub mod target;
pub mod verify;
pub mod weave;
pub mod zone;

pub use context::{Context, Progress};
pub use options::MergeOptions;
pub use report::MergeReport;
