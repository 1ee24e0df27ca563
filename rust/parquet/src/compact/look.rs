//! What the keys of files are: first and last, and whether their rows are in order.
//!
//! ```text
//! a folder  files of a scope ─ order ─ keys ─▶ those that can be compared, and a reason for each other
//! a list    footers ─ schema ─ order ─ keys ─▶ range, level, sorted or not, file by file
//! ```
//!
//! # Cost
//! All keys of files whose footers do not tell them.
//!
//! # Not here
//! How keys are read (`plan`); which files are merged (`choose`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use plait_core::SourceId;
use plait_core::key::SortOrder;
use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use crate::files::open_live;
use crate::options::MergeOptions;
use crate::plan::{KeyLook, KeyRange, MergedFiles, key_ranges, merge_level};
use crate::runtime::Context;
use crate::schema::Unite;
use crate::source::Source;
use crate::store::Stores;

/// A source, its name below the root, and its place among all by age.
pub(super) struct NamedSource {
    pub(super) source: Arc<Source>,
    pub(super) name: String,
    pub(super) age: u64,
}

/// A file that is left alone.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Skipped {
    /// Location.
    pub(crate) path: String,
    /// Why.
    pub(crate) why: String,
}

impl Skipped {
    /// A file, and why.
    pub(super) fn new(path: &str, why: impl Into<String>) -> Self {
        Self { path: path.to_owned(), why: why.into() }
    }

    /// A file that cannot be merged, as the error says.
    pub(super) fn of(path: &str, error: &Error) -> Self {
        Self::new(path, error.why())
    }
}

/// Files, and the first and last key of each with rows.
pub(super) type InOrder = (Vec<NamedSource>, Vec<Option<KeyRange>>);

/// Files whose keys can be compared, each with its first and last key; others are left alone.
pub(super) fn in_order(
    named: Vec<NamedSource>,
    order: &SortOrder,
    look: KeyLook<'_>,
    how: &Unite,
    context: &Context,
    skipped: &mut Vec<Skipped>,
) -> Result<Result<InOrder>> {
    let sources = numbered(&named);
    let ranges = match key_ranges(&sources, order, how, look, context) {
        // By their schema they cannot be merged.
        Err(e) if is_of_the_schema(e.kind()) => {
            skipped.extend(sources.iter().map(|source| Skipped::of(source.path(), &e)));
            return Ok(Err(e));
        }
        outcome => outcome?,
    };
    let (mut kept, mut keys) = (Vec::new(), Vec::new());
    for (named, range) in named.into_iter().zip(ranges) {
        match range {
            Ok(range) => {
                kept.push(named);
                keys.push(range);
            }
            Err(e) => skipped.push(Skipped::of(named.source.path(), &e)),
        }
    }
    Ok(Ok((kept, keys)))
}

/// The sources, with ids in their order.
pub(super) fn numbered(named: &[NamedSource]) -> Vec<Arc<Source>> {
    let id = |i: usize| SourceId(u32::try_from(i).unwrap_or(u32::MAX));
    let numbered = |(i, named): (usize, &NamedSource)| {
        let source = named.source.with_id(id(i));
        Arc::new(match named.source.take_ends() {
            Some(ends) => source.with_ends(ends),
            None => source,
        })
    };
    named.iter().enumerate().map(numbered).collect()
}

fn is_of_the_schema(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::UnknownColumn | Kind::UnsupportedKey | Kind::SchemaConflict | Kind::Unsupported
    )
}

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
    let files = Arc::new(open_live(&options.sources, merge, stores, context)?);
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
            rows: file.live_rows(),
            bytes: file.store.len(),
            merge_level: merge_level(file),
            footer: file.footer_text(),
            is_sorted: range.as_ref().is_none_or(|range| range.is_sorted),
            first: range.as_ref().map(|range| key(&range.first)),
            last: range.as_ref().map(|range| key(&range.last)),
        });
    }
    let what = format!("{} sources cannot be merged", errors.len());
    let report = LookedAt { sort_by: merged.order.to_string(), files: looked };
    Error::every(&what, errors).map_or(Ok(report), Err)
}
