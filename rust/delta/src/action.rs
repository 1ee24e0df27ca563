//! The actions of a log: what one line of a commit says.
//!
//! ```text
//! {"add": {"path": "part-0.parquet", "partitionValues": {}, "size": 9, …}}
//! {"remove": {"path": "part-1.parquet", "deletionTimestamp": 1700000000000, …}}
//! ```
//!
//! # Invariants
//! Members that are not known are ignored, as the protocol says; those of `metaData` are kept, since
//! a change of the metadata writes all of it again.
//!
//! # Not here
//! What a sequence of actions makes (`snapshot`).

use std::collections::BTreeMap;

use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Texts by name, of which some may be null.
pub(crate) type Texts = BTreeMap<String, Option<String>>;

/// One line: one member is there. Of an action that is not known there is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Action {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) protocol: Option<Protocol>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) meta_data: Option<Metadata>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) add: Option<Add>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) remove: Option<Remove>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) txn: Option<Txn>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) commit_info: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sidecar: Option<Sidecar>,
}

/// What a reader and a writer must know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Protocol {
    pub(crate) min_reader_version: u32,
    pub(crate) min_writer_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reader_features: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) writer_features: Option<Vec<String>>,
}

/// The schema and the properties of a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metadata {
    pub(crate) id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    #[serde(default)]
    pub(crate) format: Format,
    /// Empty where it is absent, as before the first rows of some writers.
    #[serde(default)]
    pub(crate) schema_string: String,
    #[serde(default)]
    pub(crate) partition_columns: Vec<String>,
    #[serde(default)]
    pub(crate) configuration: Texts,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) created_time: Option<i64>,
    /// What is not known, as it was.
    #[serde(flatten)]
    pub(crate) more: Map<String, Value>,
}

/// How data files are encoded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Format {
    pub(crate) provider: String,
    #[serde(default)]
    pub(crate) options: Texts,
}

impl Default for Format {
    fn default() -> Self {
        Self { provider: "parquet".to_owned(), options: Texts::new() }
    }
}

/// A file that is live from this version on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Add {
    /// Relative to the table, percent-encoded.
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) partition_values: Texts,
    #[serde(default)]
    pub(crate) size: i64,
    /// In milliseconds since 1970.
    #[serde(default)]
    pub(crate) modification_time: i64,
    #[serde(default)]
    pub(crate) data_change: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stats: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tags: Option<Texts>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deletion_vector: Option<Vector>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) base_row_id: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) default_row_commit_version: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) clustering_provider: Option<String>,
}

/// A file that is live no more from this version on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Remove {
    pub(crate) path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deletion_timestamp: Option<i64>,
    #[serde(default)]
    pub(crate) data_change: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) extended_file_metadata: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) partition_values: Option<Texts>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deletion_vector: Option<Vector>,
}

/// Rows of a file that are deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Vector {
    pub(crate) storage_type: String,
    pub(crate) path_or_inline_dv: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) offset: Option<i32>,
    pub(crate) size_in_bytes: i32,
    pub(crate) cardinality: i64,
}

impl Vector {
    /// What tells two vectors of one file apart.
    pub(crate) fn id(&self) -> String {
        let offset = self.offset.map_or_else(String::new, |at| format!("@{at}"));
        format!("{}{}{offset}", self.storage_type, self.path_or_inline_dv)
    }
}

/// The last batch of an application whose rows are in the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Txn {
    pub(crate) app_id: String,
    pub(crate) version: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_updated: Option<i64>,
}

/// A file with more actions of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sidecar {
    pub(crate) path: String,
}

/// The actions of a text with one on each line.
///
/// # Errors
/// [`Kind::CorruptSource`] for a line that is no action; names it.
pub(crate) fn actions(text: &[u8], location: &str) -> Result<Vec<Action>> {
    let lines = text.split(|byte| *byte == b'\n').enumerate();
    let filled = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
    let read = |(at, line): (usize, &[u8])| {
        serde_json::from_slice(line).map_err(|e| {
            Error::new(Kind::CorruptSource, "a line of the log of a table is no action")
                .with_path(location)
                .with_got(format!("line {}: {e}", at + 1))
        })
    };
    filled.map(read).collect()
}

/// The actions as lines.
///
/// # Errors
/// [`Kind::Internal`].
pub(crate) fn lines<'a>(actions: impl IntoIterator<Item = &'a Action>) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    for action in actions {
        serde_json::to_writer(&mut text, action).map_err(|e| {
            Error::new(Kind::Internal, "cannot write an action of a table").with_cause(e)
        })?;
        text.push(b'\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_ignored_and_kept_in_metadata() {
        let text = br#"{"add":{"path":"a","partitionValues":{"d":null},"size":1,"modificationTime":2,"dataChange":true,"later":[1]}}
{"somethingLater":{"x":1}}

{"metaData":{"id":"i","schemaString":"{}","later":{"x":1}}}
"#;
        let read = actions(text, "log").unwrap();
        assert_eq!(read.len(), 3);
        assert_eq!(read[1], Action::default());
        assert_eq!(read[0].add.as_ref().unwrap().partition_values["d"], None);
        let again = String::from_utf8(lines(&read[2..]).unwrap()).unwrap();
        assert!(again.contains(r#""later":{"x":1}"#), "{again}");
        let e = actions(b"{\"add\":{}}", "log").unwrap_err();
        assert_eq!((e.kind(), e.path()), (Kind::CorruptSource, Some("log")));
    }
}
