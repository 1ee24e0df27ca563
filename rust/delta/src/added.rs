//! Files as a commit adds them: their lengths, their statistics, their partitions.
//!
//! # Cost
//! A request for the length of each, and its footer; many objects at a time.
//!
//! # Not here
//! Statistics themselves (`stats`); commits (`commit`).

use std::collections::BTreeMap;

use plait_core::workers::each;
use plait_core::{Error, Kind, Result};
use plait_parquet::{InspectOptions, from_json, inspect_in, to_json};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::action::Texts;
use crate::log::Log;
use crate::mapping::{MODE, is_mapped, stored_name};
use crate::new_vector::NewVector;
use crate::stats::{Ends, logged, statistics};

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

/// Which files to look at, for which table.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AddedOptions {
    files: Vec<AddedFile>,
    /// As the log has it.
    schema: String,
    properties: BTreeMap<String, String>,
}

/// One of these files.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AddedFile {
    name: String,
    /// By the names that the log has.
    partition: Texts,
    instead_of: Vec<String>,
}

/// What the table says.
struct OfTable {
    fields: Vec<Value>,
    properties: BTreeMap<String, String>,
    is_mapped: bool,
}

impl Log {
    /// Looks at files of the table that are to be added.
    ///
    /// # Errors
    /// [`Kind::SourceNotFound`] without a file, what is wrong with it, [`Kind::Storage`].
    pub fn added(&mut self, options: &str) -> Result<String> {
        let AddedOptions { files, schema, properties } = from_json(options)?;
        let schema: Value = serde_json::from_str(&schema).unwrap_or_default();
        let fields = schema["fields"].as_array().cloned().unwrap_or_default();
        let is_mapped = is_mapped(properties.get(MODE).map(String::as_str));
        let table = OfTable { fields, properties, is_mapped };
        let ends: Vec<_> =
            files.iter().map(|file| self.logged(&file.instead_of)).collect::<Result<_>>()?;
        let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
        let found = self.look(&names)?;
        let gone = names.iter().zip(&found).find(|(_, found)| found.is_none());
        if let Some((name, _)) = gone {
            let what = "a file of the table was removed meanwhile";
            return Err(Error::new(Kind::SourceNotFound, what)
                .with_path(self.folder.location(name)?)
                .with_hint("something else removes files of the table; do it again"));
        }
        let stats = each(&self.folder, files.len(), |i| {
            self.context.check_cancelled()?;
            self.statistics_of(&files[i], &table, &ends[i])
        })?;
        let facts = found.into_iter().flatten().zip(stats);
        let add = |(file, ((bytes, modified_ms), stats)): (AddedFile, _)| Added {
            name: file.name,
            bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
            modified_ms,
            partition: file.partition,
            stats: Some(stats),
            instead_of: file.instead_of,
            deleted: None,
        };
        to_json(&files.into_iter().zip(facts).map(add).collect::<Vec<Added>>())
    }

    /// The bounds that the log has of files, by column.
    fn logged(&mut self, files: &[String]) -> Result<BTreeMap<String, Ends>> {
        if files.is_empty() {
            return Ok(BTreeMap::new());
        }
        Ok(self.newest()?.map_or_else(BTreeMap::new, |(_, snapshot)| {
            let live = files.iter().map(|name| snapshot.files.get(name.as_str()));
            logged(live.map(|live| live.and_then(|live| live.add.stats())))
        }))
    }

    /// The statistics of a file, as JSON.
    fn statistics_of(
        &self,
        file: &AddedFile,
        table: &OfTable,
        ends: &BTreeMap<String, Ends>,
    ) -> Result<String> {
        let looked = InspectOptions {
            file: self.folder.location(&file.name)?,
            // No key is needed.
            sort_by: Some(String::new()),
            ..InspectOptions::default()
        };
        let found = inspect_in(&looked, &self.stores, &self.context)?;
        // Of columns that the file does not have, its folder says the values.
        let is_stored = |field: &&Value| {
            let name = stored_name(field, table.is_mapped);
            name.is_none_or(|name| !file.partition.contains_key(name))
        };
        let fields: Vec<Value> = table.fields.iter().filter(is_stored).cloned().collect();
        Ok(statistics(&found, &fields, &table.properties, ends)?.to_string())
    }
}
