//! Sources whose schemas are equal: they are decided on once.
//!
//! # Not here
//! Finding them (`reconcile`).

use arrow_schema::{Fields, Schema};
use parquet::schema::types::SchemaDescriptor;

use super::summary::SchemaNode;

/// Sources whose nodes are equal, and shown alike.
pub(super) struct Class<'a> {
    /// The least of their paths.
    pub(super) first: &'a str,
    pub(super) descr: &'a SchemaDescriptor,
    /// As a reader shows them, if they have a hint.
    pub(super) hinted: Option<Fields>,
    pub(super) parts: Vec<SchemaNode>,
    /// The fields of `parts`.
    pub(super) fields: Fields,
    pub(super) has_rows: bool,
    pub(super) sources: u64,
}

/// Hints as they were read: each for one tree once, in the order of the sources.
pub(super) type Seen = Vec<Option<Schema>>;
