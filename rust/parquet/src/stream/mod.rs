//! What a merge of record batches needs of the world: files as readers, options.
//!
//! ```text
//! "a.parquet" ─ file ─▶ record batches ─┐
//! any reader ───────────────────────────┴─▶ plait_core::stream
//! ```
//!
//! # Not here
//! The merge (`plait_core::stream`); threads (`runtime`).

mod file;

use std::collections::BTreeMap;

use plait_core::Result;
use plait_core::key::SortOrder;
use plait_core::plan::{Aggregate, DropOptions, VersionBy};
use plait_core::stream::MergeStreamOptions;
use plait_core::workers::Workers;
use serde::Deserialize;

pub use file::open_files;

use crate::json::from_json;
use crate::options::{
    MetadataConflictsOption, MissingOption, OnDuplicateOption, WidenOption, unite,
};
use crate::runtime::ScopedWorkers;

/// Options of a merge of record batches.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamOptions {
    /// Sort order as text.
    sort_by: String,
    /// Rows of every batch but the last.
    batch_rows: usize,
    /// Check no order at all.
    assume_sorted: bool,
    /// `lossless` or `error`.
    widen: WidenOption,
    /// `null` or `error`.
    missing: MissingOption,
    /// `error` or `null`: sources without a sort column.
    missing_keys: MissingOption,
    /// `first`, `drop` or `error`.
    metadata_conflicts: MetadataConflictsOption,
    /// Which of several rows with one key stay.
    on_duplicate: OnDuplicateOption,
    /// Column of the versions of rows, or columns of versions and those that go by each.
    version_by: Option<VersionBy>,
    /// With `update`, columns that take the last value even if it is null.
    #[serde(default)]
    replace_columns: Vec<String>,
    /// With `aggregate`, the functions of columns.
    #[serde(default)]
    aggregate: BTreeMap<String, Aggregate>,
    /// Boolean column: a row where it is true deletes its key.
    delete_where: Option<String>,
    /// Whether rows that delete stay.
    keep_tombstones: bool,
    /// Rows of a key column to drop.
    drop_where: Option<String>,
    /// Threads that order and copy; absent = one per core.
    threads: Option<usize>,
    /// Settings of object stores, read before the files are opened.
    #[serde(default)]
    #[expect(dead_code, reason = "whoever makes the stores reads them from the same JSON")]
    storage_options: BTreeMap<String, String>,
}

/// What `options`, JSON, ask of a merge of record batches, and the threads that order and copy.
///
/// # Errors
/// [`InvalidArgument`](plait_core::Kind::InvalidArgument) for other options, or a sort order that
/// cannot be read.
pub fn stream_options(options: &str) -> Result<(MergeStreamOptions, Box<dyn Workers>)> {
    let options: StreamOptions = from_json(options)?;
    let StreamOptions { widen, missing, missing_keys, metadata_conflicts, .. } = options;
    let merge = MergeStreamOptions {
        order: SortOrder::try_parse(&options.sort_by)?,
        batch_rows: options.batch_rows,
        assume_sorted: options.assume_sorted,
        unite: unite(widen, missing, missing_keys, metadata_conflicts),
        drops: DropOptions {
            on_duplicate: options.on_duplicate.into(),
            delete_where: options.delete_where,
            keep_tombstones: options.keep_tombstones,
            drop_where: options.drop_where,
            ..DropOptions::default()
        }
        .combining(
            options.version_by.as_ref(),
            &options.replace_columns,
            &options.aggregate,
        ),
    };
    Ok((merge, Box::new(ScopedWorkers::new(options.threads))))
}
