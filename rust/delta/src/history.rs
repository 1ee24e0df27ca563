//! What was committed to a table, the newest first.
//!
//! # Cost
//! One read a version.
//!
//! # Not here
//! What a version holds (`snapshot`).

use plait_core::Result;
use plait_parquet::{from_json, to_json};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::load::{Listed, each_commit, no_table};
use crate::log::Log;

/// How much of the history.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HistoryOptions {
    /// Versions, at most.
    limit: Option<usize>,
}

/// One version.
#[derive(Serialize)]
struct Entry {
    version: u64,
    /// As its writer describes it, with whatever members.
    info: Map<String, Value>,
    files_added: usize,
    files_removed: usize,
}

impl Log {
    /// The versions whose commits are there, the newest first.
    ///
    /// # Errors
    /// [`SourceNotFound`](plait_core::Kind::SourceNotFound) without a table, those of reading.
    pub fn history(&mut self, options: &str) -> Result<String> {
        let asked: HistoryOptions = from_json(options)?;
        let listed = Listed::of(&self.folder)?;
        if listed.newest().is_none() {
            return Err(no_table(&self.root));
        }
        let mut entries = Vec::new();
        let versions = listed.commits.iter().rev().take(asked.limit.unwrap_or(usize::MAX));
        each_commit(&self.folder, versions.copied(), |version, actions| {
            self.context.check_cancelled()?;
            let Some(actions) = actions else { return Ok(()) };
            let info = actions.iter().find_map(|action| action.commit_info.clone());
            entries.push(Entry {
                version,
                info: info.unwrap_or_default(),
                files_added: actions.iter().filter(|action| action.add.is_some()).count(),
                files_removed: actions.iter().filter(|action| action.remove.is_some()).count(),
            });
            Ok(())
        })?;
        to_json(&entries)
    }
}
