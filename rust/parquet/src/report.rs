//! What was done: the report of a merge, in plain values that survive JSON.
//!
//! # Invariants
//! `rows_in == rows_out + rows_dropped`, checked by the merge before it publishes.

use std::collections::BTreeMap;
use std::fmt;

use plait_core::key::ShownValue;
use serde::{Deserialize, Serialize};

/// The report of a merge.
#[derive(Clone, Debug, Serialize)]
pub struct MergeReport {
    /// Sort order, as text that parses back.
    pub sort_by: String,
    /// Rows of all sources.
    pub rows_in: u64,
    /// Rows of all outputs.
    pub rows_out: u64,
    /// Rows left out, by reason.
    pub rows_dropped: BTreeMap<String, u64>,
    /// Values that rows with one key took from another row than the last, or that were made of all.
    pub values_merged: u64,
    /// The sources, in the order that breaks ties.
    pub sources: Vec<SourceReport>,
    /// The outputs, in key order.
    pub outputs: Vec<OutputReport>,
    /// Rows and stored bytes by copy tier.
    pub copied: BTreeMap<&'static str, Copied>,
    /// How the sources overlapped.
    pub overlap: Overlap,
    /// File metadata that differed.
    pub metadata_conflicts: Vec<ConflictReport>,
    /// Seconds by stage.
    pub time: Times,
    /// Memory.
    pub memory: Memory,
    /// What was moved.
    pub metrics: Metrics,
    /// How often rows were merged at most: 2 where `memory_limit` did not allow all sources at once.
    pub passes: u64,
    /// What was sorted or left out, if unsorted sources were looked for.
    pub sort: Option<SortReport>,
    /// Whether the caller switched the order check off.
    pub assumed_sorted: bool,
    /// Hash of all rows, order-independent, with `verify="content"`.
    pub content_hash: Option<String>,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

/// One line: `7 rows of 2 sources in 1 output, sorted by k; 1 row dropped`. What people read in
/// full is printed by the Python package.
impl fmt::Display for MergeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = counted(self.rows_out, "row");
        let sources = counted(self.sources.len() as u64, "source");
        let outputs = counted(self.outputs.len() as u64, "output");
        write!(f, "{rows} of {sources} in {outputs}, {}", sorted_by(&self.sort_by))?;
        match self.rows_dropped.values().sum() {
            0 => Ok(()),
            dropped => write!(f, "; {} dropped", counted(dropped, "row")),
        }
    }
}

/// A number and what it counts, which has a regular plural.
pub(crate) fn counted(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// The order of rows, in words.
pub(crate) fn sorted_by(order: &str) -> String {
    if order.is_empty() { "in source order".to_owned() } else { format!("sorted by {order}") }
}

/// One source of a merge.
#[derive(Clone, Debug, Serialize)]
pub struct SourceReport {
    /// Location.
    pub path: String,
    /// Rows.
    pub rows: u64,
    /// Length of the file.
    pub bytes: u64,
    /// Row groups.
    pub row_groups: usize,
    /// Places of its first and last key among the first and last keys of all sources and outputs.
    pub span: Option<(usize, usize)>,
}

/// One output of a merge.
#[derive(Clone, Debug, Serialize)]
pub struct OutputReport {
    /// Location.
    pub path: String,
    /// Rows.
    pub rows: u64,
    /// Length of the file.
    pub bytes: u64,
    /// Row groups.
    pub row_groups: usize,
    /// Smallest key, one text per column.
    pub key_min: Vec<Option<ShownValue>>,
    /// Largest key.
    pub key_max: Vec<Option<ShownValue>>,
    /// SHA-256 of the file, if asked for.
    pub sha256: Option<String>,
    /// Whether one cut key made it larger than asked for.
    pub oversized: bool,
    /// Places of its first and last key, as those of sources.
    pub span: Option<(usize, usize)>,
    /// Rows by copy tier.
    pub tiers: BTreeMap<&'static str, u64>,
    /// Location of the row map, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row_map: Option<String>,
}

/// What a copy tier moved.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Copied {
    /// Rows.
    pub rows: u64,
    /// Bytes in the outputs.
    pub bytes: u64,
}

/// How the sources overlapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overlap {
    /// Groups of sources whose key ranges hang together.
    pub regions: usize,
    /// The most sources that share one key.
    pub depth_max: usize,
}

/// A key of file metadata that differed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConflictReport {
    /// The key.
    pub key: String,
    /// Whether the output has the entry.
    pub kept: bool,
    /// Why it was not simply carried.
    #[serde(default)]
    pub why: String,
    /// The two files.
    pub files: Vec<String>,
}

/// What became of sources that were not sorted.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SortReport {
    /// Sources that were not sorted: they were sorted, or left out.
    pub unsorted: Vec<String>,
    /// Rows that were sorted; the others were in order.
    pub rows: u64,
    /// Sorted runs that were merged.
    pub runs: u64,
}

/// Seconds by stage. Stages that run on several threads count the waiting thread's time.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Times {
    /// Footers, schema, bounds.
    pub plan_s: f64,
    /// Sorting rows that were in no order.
    pub sort_s: f64,
    /// Reading and merging keys.
    pub order_s: f64,
    /// Decoding, copying and encoding rows.
    pub weave_s: f64,
    /// Writing, syncing, renaming.
    pub write_s: f64,
    /// Comparing contents.
    pub verify_s: f64,
    /// All.
    pub wall_s: f64,
    /// Threads without work, all together, while rows are put in order and written.
    pub idle_s: f64,
    /// The column that took longest, of each output: one thread at a time weaves it.
    pub column_s: f64,
    /// Processor seconds of the whole process meanwhile, where the system tells.
    pub cpu_s: Option<f64>,
}

impl Times {
    /// Adds the seconds that stages of `other` took.
    pub(crate) fn add(&mut self, other: &Self) {
        let Self { plan_s, sort_s, order_s, weave_s, write_s, verify_s, column_s, .. } = *other;
        self.plan_s += plan_s;
        self.sort_s += sort_s;
        self.order_s += order_s;
        self.weave_s += weave_s;
        self.write_s += write_s;
        self.verify_s += verify_s;
        self.column_s += column_s;
    }
}

/// Memory.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Memory {
    /// What the caller allowed.
    pub limit_bytes: u64,
    /// The most that the engine's large buffers held at once.
    pub peak_accounted_bytes: u64,
}

/// What a call moved.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Metrics {
    /// Bytes read of pages, as stored, each time they are read: keys are read more than once.
    pub bytes_read: u64,
    /// Bytes of all outputs.
    pub bytes_written: u64,
    /// Bytes of encoded chunks that waited on disk.
    pub spilled_bytes: u64,
    /// Requests to object stores, retries among them; not those of stores that the caller brought.
    pub requests: u64,
    /// Requests that found no server, or one with an error of its own; most are made again.
    pub failed_requests: u64,
    /// Bytes that object stores were sent.
    pub sent_bytes: u64,
    /// Bytes that object stores answered.
    pub received_bytes: u64,
    /// Bytes of outputs that object stores copied from sources themselves.
    pub server_copied_bytes: u64,
}
