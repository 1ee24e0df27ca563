//! Files of which some are in no order, for tables that have no folder to survey: what their keys
//! are, and a merge of them that sorts.
//!
//! ```text
//! look    footers ─ schema ─ order ─ keys ─▶ range, level, sorted or not, file by file
//! merge   files ─▶ sorted runs ─▶ outputs whose names may come to count
//! ```
//!
//! # Cost
//! All keys of files whose footers do not tell them.
//!
//! # Not here
//! Sorting (`merge`); which files are merged (`survey`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use super::survey::footer_text;
use crate::files::open_sources;
use crate::merge::merge_in;
use crate::options::{MergeOptions, Naming, UnsortedOption};
use crate::plan::{KeyLook, MergedFiles, key_ranges, merge_level};
use crate::report::MergeReport;
use crate::runtime::Context;
use crate::store::Stores;

/// Which files are looked at.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LookOptions {
    /// The files.
    pub(crate) sources: Vec<String>,
    /// How they are to be merged.
    pub(crate) merge: MergeOptions,
    /// Those that were found sorted before.
    pub(crate) sorted: BTreeSet<String>,
    /// Bytes of memory to stay within.
    pub(crate) memory_limit: u64,
    /// Settings of object stores.
    pub(crate) storage_options: BTreeMap<String, String>,
}

/// What was seen of files.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LookedAt {
    /// The order.
    pub(crate) sort_by: String,
    /// The files.
    pub(crate) files: Vec<LookedFile>,
}

/// What was seen of a file.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LookedFile {
    /// Location.
    pub(crate) path: String,
    /// Rows.
    pub(crate) rows: u64,
    /// Length.
    pub(crate) bytes: u64,
    /// How many merges lie behind it.
    pub(crate) merge_level: u64,
    /// SHA-256 of its footer.
    pub(crate) footer: String,
    /// Whether its rows are in order.
    pub(crate) is_sorted: bool,
    /// Its smallest key, in base 64; absent without rows.
    pub(crate) first: Option<String>,
    /// Its greatest key.
    pub(crate) last: Option<String>,
}

/// Looks at the keys of files. All of them are looked at before an error is one.
///
/// # Errors
/// As those of a plan of the files; one for all that are damaged, or not sorted and not to be sorted.
pub(crate) fn look_in(
    options: &LookOptions,
    stores: &Stores,
    context: &Context,
) -> Result<LookedAt> {
    let merge = &options.merge;
    merge.check_values()?;
    let files = Arc::new(open_sources(&options.sources, 0, merge.threads, stores, context)?);
    let merged = MergedFiles::describe(merge, Arc::clone(&files))?;
    let look = KeyLook { unsorted: merge.unsorted, sorted: &options.sorted };
    let ranges = key_ranges(&files, &merged.order, &merge.unite(), look, context)?;
    let (mut looked, mut errors) = (Vec::new(), Vec::new());
    for (file, range) in files.iter().zip(ranges) {
        let range = match range {
            Ok(range) => range,
            Err(e) => {
                errors.push(e);
                continue;
            }
        };
        let key = |key: &Vec<u8>| BASE64.encode(key);
        looked.push(LookedFile {
            path: file.path().to_owned(),
            rows: file.rows(),
            bytes: file.store.len(),
            merge_level: merge_level(file),
            footer: footer_text(file),
            is_sorted: range.as_ref().is_none_or(|range| range.is_sorted),
            first: range.as_ref().map(|range| key(&range.first)),
            last: range.as_ref().map(|range| key(&range.last)),
        });
    }
    let what = format!("{} sources cannot be merged", errors.len());
    let report = LookedAt { sort_by: merged.order.to_string(), files: looked };
    Error::every(&what, errors).map_or(Ok(report), Err)
}

/// A merge that sorts, as part of a compaction.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SortMergeOptions {
    /// The files.
    pub(crate) sources: Vec<String>,
    /// Where outputs go.
    pub(crate) out: String,
    /// How they are merged.
    pub(crate) merge: MergeOptions,
    /// What the names of outputs have.
    pub(crate) naming: Naming,
    /// SHA-256 of the footers that files had when they were looked at, by location.
    pub(crate) footers: BTreeMap<String, String>,
    /// Bytes of memory to stay within.
    pub(crate) memory_limit: u64,
    /// Settings of object stores.
    pub(crate) storage_options: BTreeMap<String, String>,
}

/// Merges files, and sorts what of them is in no order.
///
/// # Errors
/// As `merge`; [`Kind::SourceChanged`] for a file that is not the one that was looked at.
pub(crate) fn sort_merge_in(
    options: &SortMergeOptions,
    stores: &Stores,
    context: &Context,
) -> Result<MergeReport> {
    options.naming.check()?;
    let merge = MergeOptions {
        sources: options.sources.clone(),
        out: options.out.clone(),
        unsorted: UnsortedOption::Sort,
        naming: options.naming.clone(),
        ..options.merge.clone()
    };
    let report = merge_in(&merge, stores, context)?;
    // Whoever overwrote a file in place did so before it was read, or since.
    for source in open_sources(&options.sources, 0, merge.threads, stores, context)? {
        let looked_at = options.footers.get(source.path());
        if looked_at.is_some_and(|footer| *footer != footer_text(&source)) {
            return Err(Error::new(Kind::SourceChanged, "a source changed since it was looked at")
                .with_path(source.path())
                .with_got("another footer")
                .with_hint("compact again"));
        }
    }
    Ok(report)
}
