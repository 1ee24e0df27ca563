//! Which key-value metadata of the files still holds for their merge?
//!
//! ```text
//! every value equal        kept            value differs       first, drop or error, as asked
//! describes the schema     kept if the schema is still the same, else dropped
//! describes the content    kept if equal in every source, else dropped
//! presence is the value    (a flag of Spark) absent somewhere: differs
//! plait.*, ARROW:schema    not carried here
//! ```
//!
//! # Invariants
//! Keys keep the order first seen. What is not simply carried is listed, whatever the policy.
//!
//! # Not here
//! The Arrow hint (`hints`); Plait's own keys (`sink`).

use std::collections::HashMap;

use parquet::arrow::ARROW_SCHEMA_META_KEY;
use parquet::file::metadata::{FileMetaData, KeyValue};

use plait_core::schema::conflict::Conflict;
use plait_core::stream::MetadataConflicts;

use super::reconcile::path;

/// Readers take columns and types from these: a stale one hides columns or fails.
const OF_THE_SCHEMA: [&str; 6] = [
    "pandas",
    "org.apache.spark.sql.parquet.row.metadata",
    "parquet.avro.schema",
    "avro.schema",
    "iceberg.schema",
    "parquet.proto.descriptor",
];

/// Readers skip files by these: bounds and filters of one source would hide rows of another.
const OF_THE_CONTENT: [&str; 4] =
    ["geo", "hoodie_min_record_key", "hoodie_max_record_key", "org.apache.hudi.bloomfilter"];

/// Readers ask only whether these are there: dates in the old calendar.
const FLAGS: [&str; 2] = ["org.apache.spark.legacyDateTime", "org.apache.spark.legacyINT96"];

/// Whether an entry of file metadata says something of the schema or content of its file as a whole.
#[must_use]
pub fn describes_one_file(key: &str) -> bool {
    OF_THE_SCHEMA.contains(&key) || OF_THE_CONTENT.contains(&key)
}

/// A key of file metadata that was not simply carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataConflict {
    /// The key.
    pub key: String,
    /// Why.
    pub why: &'static str,
    /// The first file with the key, and the one that differs from it.
    pub paths: [String; 2],
    /// Whether the first value was kept.
    pub kept: bool,
}

/// The metadata of the output, without the Arrow hint. `unchanged`: whether the output has the
/// source's schema.
pub(super) fn merge(
    sources: &[(&str, &FileMetaData)],
    unchanged: &[bool],
    policy: MetadataConflicts,
    lines: &mut Vec<Conflict>,
) -> (Vec<KeyValue>, Vec<MetadataConflict>) {
    let maps: Vec<HashMap<&str, Option<&str>>> = sources
        .iter()
        .map(|(_, footer)| {
            let pairs = footer.key_value_metadata().into_iter().flatten();
            pairs.map(|pair| (pair.key.as_str(), pair.value.as_deref())).collect()
        })
        .collect();
    let mut seen = HashMap::new();
    let (mut kept, mut conflicts) = (Vec::new(), Vec::new());
    for (first, (_, footer)) in sources.iter().enumerate() {
        for pair in footer.key_value_metadata().into_iter().flatten() {
            let key = pair.key.as_str();
            let ours = key == ARROW_SCHEMA_META_KEY || key.starts_with("plait.");
            if ours || seen.insert(key, ()).is_some() {
                continue;
            }
            let value = maps.get(first).and_then(|map| map.get(key)).copied().flatten();
            let whole = OF_THE_CONTENT.contains(&key) || FLAGS.contains(&key);
            let differs = maps.iter().position(|map| match map.get(key) {
                Some(other) => *other != value,
                None => whole,
            });
            let stale = maps
                .iter()
                .zip(unchanged)
                .position(|(map, same)| map.contains_key(key) && !same)
                .filter(|_| OF_THE_SCHEMA.contains(&key));
            let (why, other, mut keep) = match (stale, differs) {
                (Some(other), _) => ("describes a schema that changed", other, false),
                (None, Some(other)) if OF_THE_CONTENT.contains(&key) => {
                    ("describes the content of one file", other, false)
                }
                (None, Some(other)) if FLAGS.contains(&key) => {
                    // Kept as the first source has it, and that may be: not at all.
                    ("is not in every file", other, first == 0)
                }
                (None, Some(other)) => ("has different values", other, true),
                (None, None) => {
                    kept.push(KeyValue { key: key.to_owned(), value: value.map(str::to_owned) });
                    continue;
                }
            };
            let paths = [path(sources, first), path(sources, other)];
            let chosen = stale.is_none() && !OF_THE_CONTENT.contains(&key);
            match policy {
                MetadataConflicts::Drop => keep = false,
                MetadataConflicts::Error if chosen => lines.push(Conflict {
                    column: key.to_owned(),
                    why: "is a metadata key that differs",
                    sides: [first, other].map(|source| {
                        let value = maps.get(source).and_then(|map| map.get(key));
                        (quote(value.copied()), path(sources, source))
                    }),
                }),
                MetadataConflicts::Error | MetadataConflicts::First => {}
            }
            if keep {
                kept.push(KeyValue { key: key.to_owned(), value: value.map(str::to_owned) });
            }
            conflicts.push(MetadataConflict { key: key.to_owned(), why, paths, kept: keep });
        }
    }
    (kept, conflicts)
}

/// A value as messages show it: not more than a line of it.
fn quote(value: Option<Option<&str>>) -> String {
    const CHARS_MAX: usize = 40;
    match value {
        None => "absent".to_owned(),
        Some(None) => "no value".to_owned(),
        Some(Some(value)) if value.chars().count() > CHARS_MAX => {
            format!("`{}...`", value.chars().take(CHARS_MAX).collect::<String>())
        }
        Some(Some(value)) => format!("`{value}`"),
    }
}
