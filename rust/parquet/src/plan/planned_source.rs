//! A source of a plan as plain data.
//!
//! # Not here
//! Many of them (`packed`); the plan (`value`).

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use plait_core::key::ShownValue;
use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Where the first and last key of a source are known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum KeysFrom {
    /// From `plait.key_range` in its footer.
    Footer,
    /// From its rows.
    Rows,
}

/// A source of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanSource {
    /// Location.
    pub(crate) path: String,
    /// Rows that are not deleted.
    pub(crate) rows: u64,
    /// Rows of the file that a deletion vector deletes.
    #[serde(default)]
    pub(crate) deleted: u64,
    /// Length of the file.
    pub(crate) bytes: u64,
    /// Row groups.
    pub(crate) row_groups: u64,
    /// SHA-256 of its footer, hexadecimal.
    pub(crate) footer: String,
    /// When it was written, or its entity tag, as the storage tells.
    pub(crate) stamp: Option<String>,
    /// Its `plait.merge_level`.
    pub(crate) merge_level: u64,
    /// First key; absent without rows.
    pub(crate) first: Option<KeyBase64>,
    /// Last key.
    pub(crate) last: Option<KeyBase64>,
    /// Where these are from.
    pub(crate) keys_from: KeysFrom,
    /// First key as reports have it, column by column.
    pub(crate) key_min: Vec<Option<ShownValue>>,
    /// Last key as reports have it.
    pub(crate) key_max: Vec<Option<ShownValue>>,
}

/// Bytes that are base64 text in JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeyBase64(pub(crate) Vec<u8>);

impl Serialize for KeyBase64 {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&BASE64.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for KeyBase64 {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        BASE64.decode(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

/// `part` of a plan as JSON.
pub(super) fn written(part: &impl Serialize) -> Result<String> {
    serde_json::to_string(part)
        .map_err(|e| Error::new(Kind::Internal, "cannot write the plan").with_cause(e))
}
