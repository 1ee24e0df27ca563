//! A merge that sorts, for tables that have no folder to survey.
//!
//! ```text
//! files ─▶ sorted runs ─▶ outputs whose names may come to count ─▶ are sources still what they were?
//! ```
//!
//! # Not here
//! Sorting (`merge`); which files are in order (`look`).

use std::collections::BTreeMap;

use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use crate::files::open_sources;
use crate::merge::merge_in;
use crate::options::{MergeOptions, Naming, UnsortedOption};
use crate::report::MergeReport;
use crate::runtime::Context;
use crate::store::Stores;

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
        if looked_at.is_some_and(|footer| *footer != source.footer_text()) {
            return Err(Error::new(Kind::SourceChanged, "a source changed since it was looked at")
                .with_path(source.path())
                .with_got("another footer")
                .with_hint("compact again"));
        }
    }
    Ok(report)
}
