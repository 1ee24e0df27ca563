//! A file as a commit adds it: its length, its statistics, its partition.
//!
//! # Cost
//! A request for the length, and the footer.
//!
//! # Not here
//! Statistics themselves (`stats`); commits (`commit`).

use std::collections::BTreeMap;

use plait_core::{Error, Kind, Result};
use plait_parquet::{InspectOptions, from_json, inspect_in, to_json};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::action::Texts;
use crate::log::Log;
use crate::mapping::{MODE, is_mapped, stored_name};
use crate::new_vector::NewVector;
use crate::stats::{logged, statistics};

/// A file to add.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Added {
    pub(crate) name: String,
    pub(crate) bytes: i64,
    pub(crate) modified_ms: i64,
    pub(crate) partition: Texts,
    /// As JSON.
    pub(crate) stats: Option<String>,
    /// Removed files of which it has the rows: it is as new as the newest of them.
    pub(crate) instead_of: Vec<String>,
    /// Rows of it that are deleted from the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deleted: Option<NewVector>,
}

/// Which file to look at, for which table.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AddedOptions {
    name: String,
    /// As the log has it.
    schema: String,
    properties: BTreeMap<String, String>,
    /// By the names that the log has.
    partition: Texts,
    instead_of: Vec<String>,
}

impl Log {
    /// Looks at a file of the table that is to be added.
    ///
    /// # Errors
    /// [`Kind::SourceNotFound`] without the file, what is wrong with it, [`Kind::Storage`].
    pub fn added(&mut self, options: &str) -> Result<String> {
        let AddedOptions { name, schema, properties, partition, instead_of } = from_json(options)?;
        let Some((bytes, modified_ms)) = self.look(&name)? else {
            let what = "a file of the table was removed meanwhile";
            return Err(Error::new(Kind::SourceNotFound, what)
                .with_path(self.folder.location(&name)?)
                .with_hint("something else removes files of the table; do it again"));
        };
        let looked = InspectOptions {
            file: self.folder.location(&name)?,
            // No key is needed.
            sort_by: Some(String::new()),
            ..InspectOptions::default()
        };
        let file = inspect_in(&looked, &self.stores, &self.context)?;
        let schema: Value = serde_json::from_str(&schema).unwrap_or_default();
        let fields = schema["fields"].as_array().cloned().unwrap_or_default();
        // Of columns that the file does not have, its folder says the values.
        let is_mapped = is_mapped(properties.get(MODE).map(String::as_str));
        let is_stored = |field: &Value| {
            stored_name(field, is_mapped).is_none_or(|name| !partition.contains_key(name))
        };
        let fields: Vec<Value> = fields.into_iter().filter(is_stored).collect();
        let ends = match instead_of.is_empty() {
            true => BTreeMap::new(),
            false => self.newest()?.map_or_else(BTreeMap::new, |(_, snapshot)| {
                let live = instead_of.iter().map(|name| snapshot.files.get(name.as_str()));
                logged(live.map(|live| live.and_then(|live| live.add.stats())))
            }),
        };
        let stats = statistics(&file, &fields, &properties, &ends)?;
        to_json(&Added {
            name,
            bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
            modified_ms,
            partition,
            stats: Some(stats.to_string()),
            instead_of,
            deleted: None,
        })
    }
}
