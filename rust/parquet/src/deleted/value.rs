//! What of a file is deleted, as calls and plans say it.
//!
//! # Not here
//! Which rows these are (`live`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What is deleted of files, by location of the file.
pub(crate) type DeletionVectors = BTreeMap<String, DeletionVector>;

/// Which rows of a file are deleted: those of a vector, those of delete files, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeletionVector {
    /// The vector in a file; absent if it is `inline`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stored: Option<StoredVector>,
    /// The magic number and the bitmap, in base 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) inline: Option<String>,
    /// How many rows the vector deletes; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rows: Option<u64>,
    /// Files that list deleted rows by their numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) positions: Option<PositionDeletes>,
    /// Files that list values of deleted rows, one entry for each set of columns.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) equality: Vec<EqualityDeletes>,
}

/// A deletion vector in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredVector {
    /// The file.
    pub(crate) location: String,
    /// Where its length stands in the file, in bytes.
    pub(crate) offset: u64,
    /// Bytes of the magic number and the bitmap.
    pub(crate) bytes: u64,
}

/// Position delete files of Iceberg.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PositionDeletes {
    /// What they call the file whose rows are deleted.
    pub(crate) name: String,
    /// Their locations. They may list rows of other files, too.
    pub(crate) files: Vec<String>,
}

/// Equality delete files of Iceberg that reach a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EqualityDeletes {
    /// The field ids of the columns by which rows are equal.
    pub(crate) columns: Vec<i32>,
    /// Those of them that the file must have: what it lacks is not null, as the partition says it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) stored: Vec<i32>,
    /// The delete files.
    pub(crate) files: Vec<EqualityDeleteFile>,
}

/// An equality delete file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EqualityDeleteFile {
    /// Its location.
    pub(crate) location: String,
    /// How new it is. If it reaches a file, all newer ones of the same columns do.
    pub(crate) sequence: u64,
}

impl DeletionVector {
    /// Whether it has a vector, or says something of one; it also is one if it says nothing at all.
    pub(super) fn has_vector(&self) -> bool {
        let is_listed = self.positions.is_some() || !self.equality.is_empty();
        self.stored.is_some() || self.inline.is_some() || self.rows.is_some() || !is_listed
    }
}
