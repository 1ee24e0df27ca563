//! What happens to schemas and footer entries that the caller may not expect.
//!
//! # Not here
//! Which entries are kept (`schema`).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::report::ConflictReport;
use crate::schema::MetadataConflict;
use crate::source::Source;

/// The entries on which files differ, as a plan reports them.
pub(super) fn conflict_reports(conflicts: &[MetadataConflict]) -> Vec<ConflictReport> {
    let report = |c: &MetadataConflict| ConflictReport {
        key: c.key.clone(),
        kept: c.kept,
        why: c.why.to_owned(),
        files: c.paths.to_vec(),
    };
    conflicts.iter().map(report).collect()
}

/// What will be done to the schema that the caller may not expect.
pub(super) fn warnings(sources: &[Arc<Source>], conflicts: &[MetadataConflict]) -> Vec<String> {
    let mut columns = BTreeSet::new();
    for column in sources.iter().flat_map(|s| s.schema().columns()) {
        if matches!(column.logical_type_ref(), Some(parquet::basic::LogicalType::_Unknown { .. })) {
            columns.insert(column.path().string());
        }
    }
    let text = |column: String| {
        format!(
            "the logical type of `{column}` is newer than this version of Plait and was left out; values are unchanged"
        )
    };
    let entries = conflicts.iter().map(|c| {
        let done = if c.kept { "is in the output" } else { "was left out" };
        let [first, other] = &c.paths;
        let files =
            if first == other { format!("`{first}`") } else { format!("`{first}`, `{other}`") };
        format!("the footer entry `{}` {done}: it {} ({files})", c.key, c.why)
    });
    columns.into_iter().map(text).chain(entries).collect()
}
