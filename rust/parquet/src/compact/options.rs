//! How files of a folder are chosen, as callers say it.
//!
//! ```text
//! policy "size_tiered", merge_factor 10, … ─▶ Policy::SizeTiered
//! ```
//!
//! # Not here
//! The policies (`plait_core::policy`); what a survey does with them (`survey`, `choose`).

use std::collections::{BTreeMap, BTreeSet};

use plait_core::plan::VersionBy;
use plait_core::policy::{Policy, SizeTiered};
use serde::{Deserialize, Serialize};

use crate::options::{MergeOptions, OnDuplicateOption, UnsortedOption};

/// How files are chosen.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SurveyOptions {
    /// The folder.
    pub(crate) folder: String,
    /// The order; absent = as each file declares.
    pub(crate) sort_by: Option<String>,
    /// `full`, `overlap` or `size_tiered`.
    pub(crate) policy: PolicyOption,
    /// See [`Policy::Overlap`].
    pub(crate) max_depth: usize,
    /// See [`SizeTiered`].
    pub(crate) merge_factor: usize,
    /// See [`SizeTiered`].
    pub(crate) merge_factor_max: usize,
    /// See [`SizeTiered`].
    pub(crate) mature_size: u64,
    /// See [`SizeTiered`].
    pub(crate) mature_level: u64,
    /// See [`SizeTiered`]; absent = never.
    pub(crate) mature_age: Option<f64>,
    /// See [`SizeTiered`].
    pub(crate) finalize: bool,
    /// Whether files of several schemas may be merged.
    pub(crate) across_schemas: bool,
    /// What becomes of rows with one key.
    pub(crate) on_duplicate: OnDuplicateOption,
    /// Column of their versions.
    pub(crate) version_by: Option<VersionBy>,
    /// Whether there are rows that delete their key.
    pub(crate) deletes: bool,
    /// What becomes of files that are not sorted: left alone in any case, unless they are sorted.
    pub(crate) unsorted: UnsortedOption,
    /// Locations of files that an earlier survey found sorted.
    pub(crate) sorted: BTreeSet<String>,
    /// What merges of the groups are asked for: the columns that it names must be there, and rows
    /// past their retention are a reason to write a file again.
    pub(crate) merge: Option<MergeOptions>,
    /// Locations of files to leave alone, and why.
    pub(crate) leave: BTreeMap<String, String>,
    /// Bytes of memory to stay within.
    pub(crate) memory_limit: u64,
    /// Settings of object stores.
    pub(crate) storage_options: BTreeMap<String, String>,
}

impl Default for SurveyOptions {
    fn default() -> Self {
        Self {
            folder: String::new(),
            sort_by: None,
            policy: PolicyOption::SizeTiered,
            max_depth: 1,
            merge_factor: 10,
            merge_factor_max: 12,
            mature_size: 1_000_000_000,
            mature_level: 3,
            mature_age: None,
            finalize: false,
            across_schemas: false,
            on_duplicate: OnDuplicateOption::KeepAll,
            version_by: None,
            deletes: false,
            unsorted: UnsortedOption::Error,
            sorted: BTreeSet::new(),
            merge: None,
            leave: BTreeMap::new(),
            memory_limit: 512_000_000,
            storage_options: BTreeMap::new(),
        }
    }
}

/// The policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PolicyOption {
    /// [`Policy::Full`].
    Full,
    /// [`Policy::Overlap`].
    Overlap,
    /// [`Policy::SizeTiered`].
    SizeTiered,
}

impl SurveyOptions {
    /// The policy, with its limits.
    pub(super) fn policy(&self) -> Policy {
        match self.policy {
            PolicyOption::Full => Policy::Full,
            PolicyOption::Overlap => Policy::Overlap { max_depth: self.max_depth },
            PolicyOption::SizeTiered => Policy::SizeTiered(SizeTiered {
                merge_factor: self.merge_factor,
                merge_factor_max: self.merge_factor_max,
                mature_bytes: self.mature_size,
                mature_level: self.mature_level,
                mature_age_s: self.mature_age.unwrap_or(f64::INFINITY),
                finalize: self.finalize,
            }),
        }
    }
}
