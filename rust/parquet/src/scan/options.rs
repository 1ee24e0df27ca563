//! What a scan is asked, as it comes through every door.
//!
//! # Not here
//! Defaults and documentation for users (`python/plait/_scan.py`).

use std::collections::BTreeMap;

use arrow_schema::{DataType, TimeUnit};
use plait_core::schema::{Case, NameClash, SchemaPolicy};
use plait_core::{Error, Kind, Result};
use serde::Deserialize;

use crate::file_values::FileValues;
use crate::runtime::{Budget, ScanSizes, threads_or_cores};

/// A source as it is named.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub(crate) enum Named {
    /// Files: a path, glob, folder or URL.
    Files(String),
    /// The stream of this number among those passed.
    Stream(usize),
}

/// Options of a scan.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScanOptions {
    /// Files and streams, in the order of their rows.
    pub sources: Vec<Named>,
    /// Whether files of text count, too: those of folders, and by their names those that are named.
    #[serde(default)]
    pub text_files: bool,
    /// The columns asked for; all by default.
    #[serde(default)]
    pub columns: Option<Vec<String>>,
    /// What becomes of each kind of drift.
    #[serde(default)]
    pub policy: BTreeMap<String, String>,
    /// `exact` or `insensitive`.
    #[serde(default)]
    pub case: Option<String>,
    /// `error` or `null`: a column that no source has. Following takes it as null.
    #[serde(default)]
    pub missing: Option<String>,
    /// Refuse columns that the given schema does not name.
    #[serde(default)]
    pub strict: bool,
    /// Constants of the caller: name and value, or a list with one for each of `sources`.
    #[serde(default, rename = "static")]
    pub statics: Vec<(String, serde_json::Value)>,
    /// Columns that tell where a row is from.
    #[serde(default)]
    pub implicit: Vec<String>,
    /// `hive` or `dirs`.
    #[serde(default)]
    pub partitions: Option<String>,
    /// Declared types of partition columns.
    #[serde(default)]
    pub partition_types: BTreeMap<String, String>,
    /// `error`, `partition` or `file`: which column is meant if a folder and a file have it.
    #[serde(default)]
    pub partition_clash: Option<String>,
    /// Columns of one value a file that something else than its path tells, such as a table's log.
    #[serde(default)]
    pub file_values: Vec<FileValues>,
    /// Columns of the table that the files are of, as in reads.
    #[serde(default)]
    pub table_columns: Vec<(String, String)>,
    /// The folder above `dir0`; by default the one that was named.
    #[serde(default)]
    pub root: Option<String>,
    /// What was decided for all files, where these are some of them: see `scan::freeze_scan`.
    #[serde(default)]
    pub frozen: Option<String>,
    /// `resolve` or `follow`.
    #[serde(default)]
    pub mode: Option<String>,
    /// Follow: keep the published schema while it carries the data.
    #[serde(default)]
    pub smooth: Option<bool>,
    /// Follow: `report` or `error`.
    #[serde(default)]
    pub on_change: Option<String>,
    /// Follow: the type of columns that no source has had.
    #[serde(default)]
    pub null_type: Option<String>,
    /// Rows of a batch, at most.
    #[serde(default)]
    pub batch_rows: Option<usize>,
    /// Bytes of a batch, at most, unless one row is larger.
    #[serde(default)]
    pub batch_bytes: Option<usize>,
    /// Rows in all, at most.
    #[serde(default)]
    pub limit: Option<u64>,
    /// Threads; all processors by default.
    #[serde(default)]
    pub threads: Option<usize>,
    /// Bytes that batches ahead, decoding and reading may take together.
    #[serde(default)]
    pub memory_limit: Option<usize>,
    /// Settings of object stores, read before the scan is made.
    #[serde(default)]
    #[expect(dead_code, reason = "whoever makes the stores reads them from the same JSON")]
    pub storage_options: BTreeMap<String, String>,
}

/// Bounds of `batch_rows` and `batch_bytes`.
const BATCH_ROWS: OptionBounds = OptionBounds { min: 1, default: 8_192, max: 1_048_576 };
const BATCH_BYTES: OptionBounds =
    OptionBounds { min: 256 << 10, default: 16 << 20, max: (2 << 30) - 1 };
/// Bounds of `memory_limit`.
const MEMORY_LIMIT: OptionBounds =
    OptionBounds { min: 16 << 20, default: 512_000_000, max: usize::MAX };
/// More threads than this are a mistake.
const THREADS_MAX: usize = 1024;

impl ScanOptions {
    /// The sizes that `memory_limit` allows.
    pub(super) fn sizes(&self) -> Result<ScanSizes> {
        let limit = bounded("memory_limit", self.memory_limit, MEMORY_LIMIT)?;
        let batch = bounded("batch_bytes", self.batch_bytes, BATCH_BYTES)?;
        Ok(Budget::new(limit).scan(batch, self.threads()?))
    }

    pub(super) fn rows_max(&self) -> Result<usize> {
        bounded("batch_rows", self.batch_rows, BATCH_ROWS)
    }

    fn threads(&self) -> Result<usize> {
        let all = threads_or_cores(None);
        bounded(
            "threads",
            self.threads,
            OptionBounds { min: 1, default: all.min(THREADS_MAX), max: THREADS_MAX },
        )
    }

    pub(super) fn policy(&self) -> Result<SchemaPolicy> {
        let mut policy = SchemaPolicy::default();
        for (kind, choice) in &self.policy {
            policy = policy.with(kind, choice)?;
        }
        if self.choice("case", &self.case, &["exact", "insensitive"])? == "insensitive" {
            policy.case = Case::Insensitive;
        }
        Ok(policy)
    }

    pub(super) fn unknown_null(&self) -> Result<bool> {
        Ok(self.choice("missing", &self.missing, &["error", "null"])? == "null")
    }

    pub(super) fn is_follow(&self) -> Result<bool> {
        Ok(self.choice("mode", &self.mode, &["resolve", "follow"])? == "follow")
    }

    pub(super) fn refuses_changes(&self) -> Result<bool> {
        Ok(self.choice("on_change", &self.on_change, &["report", "error"])? == "error")
    }

    pub(super) fn is_smooth(&self) -> bool {
        self.smooth.unwrap_or(true)
    }

    /// Refuses options that would have no effect: of the other mode, or without the option that
    /// they add to. `given`: a schema is given.
    pub(super) fn check_effects(&self, given: bool) -> Result<()> {
        let refuse = |name: &str, what: &str, hint: &str| {
            Err(Error::new(Kind::InvalidArgument, format!("`{name}` has no effect {what}"))
                .with_hint(hint.to_owned()))
        };
        if self.is_follow()? {
            if self.missing.as_deref() == Some("error") {
                let hint = "a later source may have the column: until then it is null";
                return refuse("missing", "in mode \"follow\" as \"error\"", hint);
            }
            if !self.policy.is_empty() && !given {
                let hint = "it says how sources adapt to a `schema`: give one";
                return refuse("policy", "in mode \"follow\" without `schema`", hint);
            }
        } else {
            let set = [
                ("smooth", self.smooth.is_some()),
                ("on_change", self.on_change.is_some()),
                ("null_type", self.null_type.is_some()),
            ];
            if let Some((name, _)) = set.into_iter().find(|(_, set)| *set) {
                return refuse(name, "in mode \"resolve\"", "it is an option of mode \"follow\"");
            }
        }
        if !given {
            let hint = "it is about columns that a given schema does not name: give one";
            if self.strict {
                return refuse("strict", "without `schema`", hint);
            }
            if self.policy.contains_key("extra") {
                return refuse("policy[\"extra\"]", "without `schema`", hint);
            }
        }
        let folders = self.partitions()?;
        if folders == "none" && !self.partition_types.is_empty() {
            let hint = "give partitions=\"hive\" or \"dirs\"";
            return refuse("partition_types", "without `partitions`", hint);
        }
        if folders == "none" && self.file_values.is_empty() && self.partition_clash.is_some() {
            let hint = "give partitions=\"hive\" or \"dirs\"";
            return refuse("partition_clash", "without `partitions`", hint);
        }
        if folders != "dirs" && self.root.is_some() {
            return refuse(
                "root",
                "here",
                "it is the folder above `dir0`: give partitions=\"dirs\"",
            );
        }
        Ok(())
    }

    pub(super) fn partitions(&self) -> Result<&str> {
        self.choice("partitions", &self.partitions, &["none", "hive", "dirs"])
    }

    pub(super) fn partition_clash(&self) -> Result<NameClash> {
        let choices = ["error", "partition", "file"];
        Ok(match self.choice("partition_clash", &self.partition_clash, &choices)? {
            "partition" => NameClash::Static,
            "file" => NameClash::Source,
            _ => NameClash::Refuse,
        })
    }

    fn choice<'a>(
        &self,
        name: &str,
        value: &Option<String>,
        choices: &[&'a str],
    ) -> Result<&'a str> {
        let Some(value) = value else { return Ok(choices.first().copied().unwrap_or_default()) };
        choices.iter().copied().find(|choice| choice == value).ok_or_else(|| {
            Error::new(Kind::InvalidArgument, format!("`{name}` has no such choice"))
                .with_got(format!("`{value}`"))
                .with_hint(format!("give one of: {}", choices.join(", ")))
        })
    }
}

/// What an option may be, and what it is where it is not given.
#[derive(Clone, Copy)]
struct OptionBounds {
    min: usize,
    default: usize,
    max: usize,
}

fn bounded(name: &str, value: Option<usize>, bounds: OptionBounds) -> Result<usize> {
    let OptionBounds { min, default, max } = bounds;
    let value = value.unwrap_or(default);
    if (min..=max).contains(&value) {
        return Ok(value);
    }
    Err(Error::new(Kind::InvalidArgument, format!("`{name}` is out of range"))
        .with_got(format!("{value}"))
        .with_hint(format!("give {min} to {max}")))
}

/// The types that options name.
pub(super) fn type_named(name: &str) -> Result<DataType> {
    Ok(match name {
        "int8" => DataType::Int8,
        "int16" => DataType::Int16,
        "int32" => DataType::Int32,
        "int64" => DataType::Int64,
        "uint8" => DataType::UInt8,
        "uint16" => DataType::UInt16,
        "uint32" => DataType::UInt32,
        "uint64" => DataType::UInt64,
        "float32" => DataType::Float32,
        "float64" => DataType::Float64,
        "bool" => DataType::Boolean,
        "string" => DataType::Utf8,
        "binary" => DataType::Binary,
        "date32" => DataType::Date32,
        "timestamp" => DataType::Timestamp(TimeUnit::Microsecond, None),
        _ => {
            return Err(Error::new(Kind::InvalidArgument, "no such type")
                .with_got(format!("`{name}`"))
                .with_hint("give int8 to uint64, float32, float64, bool, string, binary, date32 or timestamp"));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_too_small_is_refused() {
        let few: ScanOptions =
            serde_json::from_str(r#"{"sources":[],"memory_limit":1000}"#).unwrap();
        assert_eq!(few.sizes().unwrap_err().kind(), Kind::InvalidArgument);
    }
}
