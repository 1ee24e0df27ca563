//! What a scan is asked, as it comes through every door.
//!
//! # Not here
//! Defaults and documentation for users (`python/plait/scan.py`).

use std::collections::BTreeMap;

use arrow_schema::{DataType, TimeUnit};
use plait_core::schema::{Case, Policy};
use plait_core::{Error, Kind, Result};
use serde::Deserialize;

/// A source as it is named.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum Named {
    /// Files: a path, glob, folder or URL.
    Files(String),
    /// The stream of this number among those passed.
    Stream(usize),
}

/// Options of a scan.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScanOptions {
    /// Files and streams, in the order of their rows.
    pub sources: Vec<Named>,
    /// The columns asked for; all by default.
    #[serde(default)]
    pub columns: Option<Vec<String>>,
    /// What becomes of each kind of drift.
    #[serde(default)]
    pub policy: BTreeMap<String, String>,
    /// `exact` or `insensitive`.
    #[serde(default)]
    pub case: Option<String>,
    /// `error` or `null`: a column that no source has.
    #[serde(default)]
    pub missing: Option<String>,
    /// Refuse columns that the given schema does not name.
    #[serde(default)]
    pub strict: bool,
    /// Constants of the caller: name and value.
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
    /// The folder above partitions; by default the deepest that holds all files.
    #[serde(default)]
    pub root: Option<String>,
    /// `resolve` or `follow`.
    #[serde(default)]
    pub mode: Option<String>,
    /// Follow: keep the published schema while it carries the data.
    #[serde(default = "yes")]
    pub smooth: bool,
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
}

fn yes() -> bool {
    true
}

/// Bounds of `batch_rows` and `batch_bytes`.
const BATCH_ROWS: (usize, usize, usize) = (1, 8_192, 1_048_576);
const BATCH_BYTES: (usize, usize, usize) = (256 << 10, 16 << 20, (2 << 30) - 1);
/// More threads than this are a mistake.
const THREADS_MAX: usize = 1024;

impl ScanOptions {
    pub(super) fn rows_max(&self) -> Result<usize> {
        bounded("batch_rows", self.batch_rows, BATCH_ROWS)
    }

    pub(super) fn bytes_max(&self) -> Result<usize> {
        bounded("batch_bytes", self.batch_bytes, BATCH_BYTES)
    }

    pub(super) fn threads(&self) -> Result<usize> {
        let all = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        bounded("threads", self.threads, (1, all.min(THREADS_MAX), THREADS_MAX))
    }

    pub(super) fn policy(&self) -> Result<Policy> {
        let mut policy = Policy::default();
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

    pub(super) fn partitions(&self) -> Result<&str> {
        self.choice("partitions", &self.partitions, &["none", "hive", "dirs"])
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

fn bounded(
    name: &str,
    value: Option<usize>,
    (min, own, max): (usize, usize, usize),
) -> Result<usize> {
    let value = value.unwrap_or(own);
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
