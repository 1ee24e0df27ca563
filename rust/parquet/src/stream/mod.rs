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
use plait_core::plan::DropOptions;
use plait_core::stream::MergeStreamOptions;
use serde::Deserialize;

pub use file::open_files;

use crate::options::{
    MetadataConflictsOption, MissingOption, OnDuplicateOption, WidenOption, unite,
};

/// Options of a merge of record batches.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamOptions {
    /// Sort order as text.
    pub sort_by: String,
    /// Rows of every batch but the last.
    pub batch_rows: usize,
    /// Check no order at all.
    pub assume_sorted: bool,
    /// `lossless` or `error`.
    pub widen: WidenOption,
    /// `null` or `error`.
    pub missing: MissingOption,
    /// `error` or `null`: sources without a sort column.
    pub missing_keys: MissingOption,
    /// `first`, `drop` or `error`.
    pub metadata_conflicts: MetadataConflictsOption,
    /// Which of several rows with one key stay.
    pub on_duplicate: OnDuplicateOption,
    /// Column of the versions of rows.
    pub version_by: Option<String>,
    /// Boolean column: a row where it is true deletes its key.
    pub delete_where: Option<String>,
    /// Whether rows that delete stay.
    pub keep_tombstones: bool,
    /// Rows of a key column to drop.
    pub drop_where: Option<String>,
    /// Threads that order and copy; absent = one per core.
    pub threads: Option<usize>,
    /// Settings of object stores, read before the files are opened.
    #[serde(default)]
    pub storage_options: BTreeMap<String, String>,
}

impl StreamOptions {
    /// The same as the core reads them.
    ///
    /// # Errors
    /// [`InvalidArgument`](plait_core::Kind::InvalidArgument) for a sort order that cannot be read.
    pub fn to_core(&self) -> Result<MergeStreamOptions> {
        Ok(MergeStreamOptions {
            order: SortOrder::try_parse(&self.sort_by)?,
            batch_rows: self.batch_rows,
            assume_sorted: self.assume_sorted,
            unite: unite(self.widen, self.missing, self.missing_keys, self.metadata_conflicts),
            drops: DropOptions {
                on_duplicate: self.on_duplicate.into(),
                version_by: self.version_by.clone(),
                delete_where: self.delete_where.clone(),
                keep_tombstones: self.keep_tombstones,
                drop_where: self.drop_where.clone(),
            },
        })
    }
}
