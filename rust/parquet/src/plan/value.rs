//! The plan as plain data, and back from JSON.
//!
//! # Invariants
//! What comes back from JSON is checked as far as it can be without the sources: version, indices,
//! ranges. Nothing in it is a secret: settings of object stores stay with the caller.
//!
//! # Not here
//! What the members mean to a reader of the file (`docs/formats/plan.md`).

use std::collections::BTreeMap;
use std::fmt;

use plait_core::key::ShownValue;
use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Deserializer, Serialize};

use super::packed::{BlockCounts, PlanSources};
use super::planned_source::{KeyBase64, written};
use crate::options::MergeOptions;
use crate::partition::is_folder;
use crate::properties::Encodings;
use crate::report::{ConflictReport, Overlap, counted, sorted_by};
use crate::schema::Renamed;
use crate::store::table::is_id;

/// What `format` says.
const FORMAT: &str = "plait.plan";

/// Version of the layout.
pub(crate) const VERSION: u32 = 1;

/// A merge as a value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// `plait.plan`.
    pub(crate) format: String,
    /// [`VERSION`].
    pub(crate) version: u32,
    /// Names the plan; part of the names of outputs.
    pub task: String,
    /// Ends the names of outputs, if they lie where only names of a lease may come to count.
    #[serde(default)]
    pub lease: Option<String>,
    /// Outputs of the whole plan; `tasks` may be some of them.
    pub outputs: u64,
    /// Rows of all sources of the whole plan; 0 in plans that do not say so.
    #[serde(default)]
    pub rows: u64,
    /// The order, as text that parses back.
    pub sort_by: String,
    /// What was asked for, without sources, output and settings of stores.
    pub options: MergeOptions,
    /// The footer of an output without rows, base64: schema and metadata.
    pub(crate) schema: KeyBase64,
    /// What sources call columns that the outputs call otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) renamed: Vec<Renamed>,
    /// How outputs are encoded where the options leave it open.
    pub(crate) encodings: Encodings,
    /// `plait.merge_level` of the outputs.
    pub merge_level: u64,
    /// Whether keys out of footers took part in it.
    pub trusts_footers: bool,
    /// The sources, in the order that breaks ties.
    #[serde(default)]
    pub(crate) sources: PlanSources,
    /// The tasks, in key order.
    pub tasks: Vec<PlanTask>,
    /// How the sources overlap.
    pub overlap: Overlap,
    /// File metadata that differs.
    pub metadata_conflicts: Vec<ConflictReport>,
    /// What executing a task takes.
    pub memory: MemoryNeed,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

/// A plan as Python holds it, but for the blocks of its sources: there may be a million sources and
/// slices, and parsed they take ten times as much.
#[derive(Serialize)]
pub(crate) struct PackedPlan {
    /// The plan without its sources, and without the slices of its tasks.
    #[serde(flatten)]
    plan: Plan,
    packed: BlockCounts,
    /// Those of each task, as JSON.
    slices: Vec<String>,
}

/// A plan as JSON.
#[derive(Deserialize)]
pub(crate) struct PlanText {
    plan: String,
}

/// What makes one output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanTask {
    /// Which output it makes, from 0.
    pub index: u64,
    /// No key of it is below; absent = no bound.
    pub(crate) low: Option<KeyBase64>,
    /// All keys of it are below; absent = no bound.
    pub(crate) high: Option<KeyBase64>,
    /// `low` as reports have it, column by column; empty without.
    #[serde(default)]
    pub key_low: Vec<Option<ShownValue>>,
    /// `high` as reports have it.
    #[serde(default)]
    pub key_high: Vec<Option<ShownValue>>,
    /// The folder of its output, such as `day=2024-05-01/`; empty without partitions, and without
    /// rows.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub partition: String,
    /// Rows of sources, in source order.
    #[serde(deserialize_with = "slices")]
    pub(crate) slices: Vec<Slice>,
    /// Its rows.
    pub rows: u64,
    /// Whether that is exact, or an estimate.
    pub rows_exact: bool,
    /// Bytes of its output: an estimate.
    pub bytes: u64,
    /// The most sources that share one key.
    pub depth_max: u64,
    /// Rows by the copy tier they will probably take.
    pub tiers: BTreeMap<String, u64>,
}

/// Rows of one source that a task merges. A place known exactly is a range without length; else it
/// is looked for between the two rows, by the task's bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Slice {
    /// Index of the source in the plan.
    pub(crate) source: usize,
    /// The first row lies between these two.
    pub(crate) start: (u64, u64),
    /// The row behind the last lies between these two.
    pub(crate) end: (u64, u64),
}

impl Slice {
    /// Its rows, if they are known.
    #[must_use]
    pub(crate) fn rows(&self) -> Option<std::ops::Range<u64>> {
        let is_exact = self.start.0 == self.start.1 && self.end.0 == self.end.1;
        is_exact.then_some(self.start.0..self.end.0)
    }
}

/// Slices, or the text of their JSON.
fn slices<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Slice>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum SlicesForm {
        Parsed(Vec<Slice>),
        Text(String),
    }
    match SlicesForm::deserialize(from)? {
        SlicesForm::Parsed(slices) => Ok(slices),
        SlicesForm::Text(text) => serde_json::from_str(&text).map_err(serde::de::Error::custom),
    }
}

/// What executing a task takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryNeed {
    /// What the caller allows, in bytes.
    pub limit_bytes: u64,
    /// What a merge of the deepest place in one pass takes, about.
    pub needed_bytes: u64,
    /// 1, or 2 where sources are merged in groups first.
    pub passes: u64,
    /// Bytes of all pages of the sources, unpacked; plans of older versions lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpacked_bytes: Option<u64>,
}

/// Reads and checks a plan.
///
/// # Errors
/// As [`Plan::from_json`].
pub(crate) fn read_plan(text: &PlanText) -> Result<(PackedPlan, Vec<Box<[u8]>>)> {
    Plan::from_json(&text.plan)?.packed()
}

/// One line: `7 rows of 2 sources in 1 task, sorted by k`.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = counted(self.rows, "row");
        let sources = counted(self.sources.len() as u64, "source");
        let tasks = counted(self.tasks.len() as u64, "task");
        write!(f, "{rows} of {sources} in {tasks}, {}", sorted_by(&self.sort_by))
    }
}

impl Plan {
    /// What `format` says of a plan.
    #[must_use]
    pub(crate) fn format() -> String {
        FORMAT.to_owned()
    }

    /// Reads a plan from JSON.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for another version, [`Kind::InvalidArgument`] for what is no plan.
    pub fn from_json(text: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct PlanHead {
            format: String,
            version: u32,
        }
        let damaged = |e: serde_json::Error| {
            Error::new(Kind::InvalidArgument, "cannot read the plan")
                .with_hint("plan the merge again")
                .with_cause(e)
        };
        let head: PlanHead = serde_json::from_str(text).map_err(damaged)?;
        if head.format != FORMAT {
            return Err(Error::new(Kind::InvalidArgument, "this is not a plan")
                .with_got(format!("format `{}`", head.format)));
        }
        if head.version != VERSION {
            return Err(Error::new(Kind::Unsupported, "the plan is of another version")
                .with_got(format!("version {}", head.version))
                .with_hint(format!("this is plait of plans of version {VERSION}; plan again")));
        }
        let plan: Self = serde_json::from_str(text).map_err(damaged)?;
        plan.check()?;
        Ok(plan)
    }

    /// The plan as JSON.
    ///
    /// # Errors
    /// None that is known.
    pub fn to_json(&self) -> Result<String> {
        written(self)
    }

    /// The plan with its slices as text, and blocks of its sources.
    ///
    /// # Errors
    /// None that is known.
    pub(crate) fn packed(mut self) -> Result<(PackedPlan, Vec<Box<[u8]>>)> {
        let sources = std::mem::take(&mut self.sources);
        let slices = self.tasks.iter_mut().map(|task| written(&std::mem::take(&mut task.slices)));
        let slices = slices.collect::<Result<_>>()?;
        let (packed, blocks) = sources.into_blocks()?;
        Ok((PackedPlan { packed, slices, plan: self }, blocks))
    }

    /// Checks what can be checked without the sources.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] naming what contradicts itself.
    pub(crate) fn check(&self) -> Result<()> {
        let bad = |what: &str, task: &PlanTask| {
            Err(Error::new(Kind::InvalidArgument, format!("the plan contradicts itself: {what}"))
                .with_got(format!("task {}", task.index))
                .with_hint("plan the merge again"))
        };
        self.options.check_values()?;
        if !self.task.bytes().all(|b| b.is_ascii_hexdigit()) || self.task.is_empty() {
            return Err(Error::new(Kind::InvalidArgument, "the plan's name is not hexadecimal")
                .with_got(format!("`{}`", self.task)));
        }
        if let Some(lease) = self.lease.as_ref().filter(|lease| !is_id(lease)) {
            let what = "the plan's lease is not 16 hexadecimal digits";
            return Err(Error::new(Kind::InvalidArgument, what).with_got(format!("`{lease}`")));
        }
        let rows_of_files = self.sources.iter().map(|source| {
            let source = source?;
            Ok(source.rows.saturating_add(source.deleted))
        });
        let rows_of_files: Vec<u64> = rows_of_files.collect::<Result<_>>()?;
        let mut ends: Vec<(u64, u64)> = vec![(0, 0); rows_of_files.len()];
        let mut last: Option<&PlanTask> = None;
        for task in &self.tasks {
            if task.index >= self.outputs {
                return bad("a task makes an output that it does not have", task);
            }
            let columns = self.options.partition_by.len();
            if !task.partition.is_empty() && !is_folder(&task.partition, columns) {
                return bad("a task names a folder that is no partition", task);
            }
            if let Some(last) = last {
                if task.index <= last.index {
                    return bad("tasks are not in order", task);
                }
                if let (Some(high), Some(low)) = (&last.high, &task.low)
                    && high > low
                {
                    return bad("tasks overlap", task);
                }
            }
            let mut before: Option<usize> = None;
            for slice in &task.slices {
                let Some(rows_of_file) = rows_of_files.get(slice.source) else {
                    return bad("a task takes rows of a source that it does not have", task);
                };
                let rows = [slice.start.0, slice.start.1, slice.end.0, slice.end.1];
                let is_range = slice.start.0 <= slice.start.1
                    && slice.end.0 <= slice.end.1
                    && slice.start.0 <= slice.end.1
                    && rows.iter().all(|row| row <= rows_of_file);
                if !is_range || before.is_some_and(|before| before >= slice.source) {
                    return bad("rows of a source make no range", task);
                }
                before = Some(slice.source);
                if slice.start.0 < ends[slice.source].0 || slice.start.1 < ends[slice.source].1 {
                    return bad("two tasks take the same rows", task);
                }
                ends[slice.source] = slice.end;
            }
            last = Some(task);
        }
        Ok(())
    }
}
