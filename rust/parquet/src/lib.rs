//! Plait's Parquet engine: the only crate that does I/O.
//!
//! ```text
//! store ─▶ source ─▶ page ─▶ leaf ─┬─▶ keys ─▶ plait_core::plan ─▶ Runs ─┐
//!                                  └──────────▶ weave (value tier) ◀──────┤
//!                                               chunk (whole row groups) ◀┘
//!                                                  └─▶ sink ─▶ output (temp, sync, rename)
//! ```
//!
//! # Invariants
//! A file is leaf columns made of levels and values; only `arrow_file` builds Arrow arrays. Memory
//! follows the limit, never the data. Nothing is visible before it is whole.
//!
//! # Not here
//! Order and cuts (`plait_core`); Python (`plait-py`).

#![forbid(unsafe_code)]

mod arrow_file;
mod block;
mod calls;
mod check;
mod chunk;
mod combine;
mod compact;
mod content;
mod deleted;
mod drops;
mod encode;
mod ends;
mod file_values;
mod files;
mod folder;
mod footer;
mod guard;
mod inspect;
mod join;
mod json;
mod keys;
mod leaf;
mod merge;
mod options;
mod order;
mod output;
mod overlay;
mod page;
mod partition;
mod plan;
mod properties;
mod queue;
mod ranks;
mod read;
mod report;
mod row_map;
mod run_writer;
mod runtime;
mod scan;
mod schema;
mod selection;
mod sink;
mod sort;
mod source;
mod spill;
mod store;
mod stream;
mod thrift;
mod unzstd;
mod verify;
mod weave;
mod zone;

pub use calls::JsonCall;
pub use compact::take_in;
pub use file_values::FileValues;
pub use folder::{Folder, NewFile};
pub use guard::{guard, guarding};
pub use inspect::{
    ChunkReport, InspectOptions, InspectReport, RowGroupReport, inspect, inspect_in,
};
pub use join::{
    HowOption, Join, JoinOptions, Left, NullKeyOption, Reader, Right, SideState, whole,
    write_batches,
};
pub use json::{from_json, to_json};
pub use merge::{ExecuteOptions, execute, merge, plan};
pub use options::{MergeOptions, Tier, Verify};
pub use output::Sign;
pub use overlay::overlay;
pub use plan::{MemoryNeed, Plan, PlanTask, learn_in};
pub use read::{ReadLeft, ReadOptions, ReadPlan, ReadStats, SortedRead};
pub use report::{
    ConflictReport, Copied, Memory, MergeReport, Metrics, OutputReport, Overlap, SourceReport,
    Times,
};
pub use row_map::mapped_output;
pub use run_writer::RunWriter;
pub use runtime::{Charge, Context, Event, Progress};
pub use scan::{Scan, TextFile, TextReader, TextSurvey, freeze_scan};
pub use store::{Bucket, Completed, Found, Meta, Prefetched, Stores, Upload};
pub use stream::{open_files, stream_options};
pub use verify::{Against, VerifiedFile, VerifyOptions, VerifyReport, verify};

/// Runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
