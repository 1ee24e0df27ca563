//! The options of a sorted read.
//!
//! # Not here
//! What they mean for files (`mod`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use plait_core::plan::{Aggregate, DropOptions, VersionBy};
use plait_core::{Error, Kind, Result};
use serde::Deserialize;

use crate::deleted::DeletionVector;
use crate::file_values::FileValues;
use crate::options::{MissingOption, OnDuplicateOption, check_memory_limit, check_threads};

/// Options of a sorted read.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadOptions {
    /// Files, folders, globs, URLs; folders and tables as they count. None where a plan names them.
    pub sources: Vec<String>,
    /// A plan, or a task of one, as JSON: which rows in which order, and which of them are dropped.
    #[serde(default)]
    pub plan: Option<String>,
    /// Which rows of all files, as they follow each other; absent = all.
    #[serde(default)]
    pub rows: Option<Range<u64>>,
    /// Columns of one value a file, which come before the sort order and behind the columns of files.
    #[serde(default)]
    pub file_values: Vec<FileValues>,
    /// Deleted rows by location of the file; of a file that is not named no row is deleted.
    #[serde(default)]
    pub deletion_vectors: BTreeMap<String, DeletionVector>,
    /// Types that columns are cast to, as Arrow writes them; a value that does not fit is an error.
    #[serde(default)]
    pub casts: BTreeMap<String, String>,
    /// Columns of the table that the files are of, with types as Arrow writes them: others are left
    /// out, and those that no file has are null. None: the columns are those of the files.
    #[serde(default)]
    pub table_columns: Vec<(String, String)>,
    /// Sort order as text; absent = the one that the files state.
    pub sort_by: Option<String>,
    /// Columns of the batches, in order; absent = all.
    pub columns: Option<Vec<String>>,
    /// Which rows, as text: see [`Predicate`](plait_core::predicate::Predicate).
    #[serde(rename = "where")]
    pub predicate: Option<String>,
    /// Rows in all, at most.
    pub limit: Option<u64>,
    /// Whether the greatest keys come first.
    pub reverse: bool,
    /// Which of several rows with one key stay.
    pub on_duplicate: OnDuplicateOption,
    /// Column of the versions of rows, or columns of versions and those that go by each.
    pub version_by: Option<VersionBy>,
    /// With `update`, columns that take the last value even if it is null.
    #[serde(default)]
    pub replace_columns: Vec<String>,
    /// With `aggregate`, the functions of columns.
    #[serde(default)]
    pub aggregate: BTreeMap<String, Aggregate>,
    /// Boolean column: a row where it is true deletes its key.
    pub delete_where: Option<String>,
    /// Whether rows that delete stay; only a plan says so.
    #[serde(skip)]
    pub keep_tombstones: bool,
    /// Rows of a key column to drop.
    pub drop_where: Option<String>,
    /// Columns that rules name and no source has; only a plan says so.
    #[serde(skip)]
    pub absent_columns: Vec<String>,
    /// `error` or `null`: sources without a sort column.
    pub missing_keys: MissingOption,
    /// Rows of every batch but the last.
    pub batch_rows: usize,
    /// Threads; absent = one per core.
    pub threads: Option<usize>,
    /// Memory of all that is read, in bytes.
    pub memory_limit: u64,
    /// Folder of the temporary file, if rows are spilled; absent = that of the system.
    #[serde(default)]
    pub temp_dir: Option<PathBuf>,
    /// Settings of object stores, read before the files are opened.
    #[serde(default)]
    pub storage_options: BTreeMap<String, String>,
}

impl ReadOptions {
    /// Checks what can be checked without files.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] naming the option.
    pub(super) fn check(&self) -> Result<()> {
        if self.sources.is_empty() && self.plan.is_none() {
            return Err(Error::new(Kind::InvalidArgument, "there is nothing to read")
                .with_hint("name at least one file, folder, glob or URL"));
        }
        if self.batch_rows == 0 {
            return Err(Error::new(Kind::InvalidArgument, "`batch_rows` must be at least 1"));
        }
        check_threads(self.threads)?;
        check_memory_limit(self.memory_limit)?;
        self.drops().check()
    }

    /// Which rows leave, in the core's words; in reverse order the first of a key is the last.
    pub(super) fn drops(&self) -> DropOptions {
        DropOptions {
            on_duplicate: self.on_duplicate.into(),
            delete_where: self.delete_where.clone(),
            keep_tombstones: self.keep_tombstones,
            drop_where: self.drop_where.clone(),
            newest_first: self.reverse,
            ..DropOptions::default()
        }
        .combining(self.version_by.as_ref(), &self.replace_columns, &self.aggregate)
        .narrowed(|path| !self.absent_columns.iter().any(|absent| absent == path))
    }
}
