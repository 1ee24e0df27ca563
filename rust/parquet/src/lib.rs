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
mod check;
mod chunk;
mod compact;
mod content;
mod drops;
mod encode;
mod files;
mod guard;
mod inspect;
mod join;
mod keys;
mod leaf;
mod merge;
mod options;
mod order;
mod output;
mod overlay;
mod page;
mod plan;
mod properties;
mod queue;
mod ranks;
mod report;
mod runtime;
mod scan;
mod schema;
mod sink;
mod source;
mod spill;
mod store;
mod stream;
mod thrift;
mod verify;
mod weave;
mod zone;

pub use block::dictionary::Union;
pub use block::{Dictionary, Layout};
pub use compact::{LeaseOptions, choose_in, commit_in, expire_in, survey_in, take_in};
pub use guard::guarding;
pub use inspect::inspect_in;
pub use join::{HowOption, Join, JoinOptions, Left, Reader, Right, whole, write_batches};
pub use merge::{check_in, execute_in, merge, merge_in};
pub use options::{MergeOptions, Tier, Verify};
pub use output::Sign;
pub use overlay::options::{
    Check, LayerOptions, MarkOption, OverlayFilesOptions, OverlayOptions, PathOption,
};
pub use overlay::{overlay_files, overlay_files_in};
pub use plan::{LearnOptions, Plan, learn_in, list_in, plan_in, tables_in};
pub use report::MergeReport;
pub use runtime::{Account, Charge, Context, Progress, ScopedWorkers};
pub use scan::{Scan, freeze_scan, summarize};
pub use store::{Bucket, Completed, Meta, Prefetched, Stores, Upload, unconditional};
pub use stream::{StreamOptions, open_files};
pub use verify::verify_in;
