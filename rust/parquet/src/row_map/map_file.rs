//! What the footer of a row map says, and what its file is called.
//!
//! ```text
//! day=1/part-00000-x.parquet  ─▶  day=1/.part-00000-x.parquet.rowmap
//! ```
//!
//! # Invariants
//! A name begins with a point and does not end in `.parquet`: no reader takes it for data.
//!
//! # Not here
//! The rows (`read`, `write`).

use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use crate::source::Source;
use crate::store::{Location, Stores};

/// The footer entry.
pub(super) const ENTRY: &str = "plait.row_map";

/// Version of maps that are written and read.
const VERSION: u32 = 1;

/// How names of maps end.
const ENDING: &str = ".rowmap";

/// What a map is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MapHeader {
    pub(super) version: u32,
    /// `plait.task` of the output.
    pub(crate) task: String,
    /// Name of the output, without its folder.
    pub(crate) output: String,
    /// Rows of the output.
    pub(crate) rows: u64,
    /// The sources of the task. Maps have their indices.
    pub(crate) sources: Vec<MappedSource>,
}

/// Rows of a source that a map is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MappedSource {
    /// Its location.
    pub(crate) path: String,
    /// The first row.
    pub(crate) start: u64,
    /// The row behind the last.
    pub(crate) end: u64,
}

impl MapHeader {
    /// Of an output.
    #[must_use]
    pub(crate) fn new(task: &str, output: &str, sources: Vec<MappedSource>) -> Self {
        let output = output.rsplit('/').next().unwrap_or_default().to_owned();
        Self { version: VERSION, task: task.to_owned(), output, rows: 0, sources }
    }

    /// The same for some of the sources, which keep their indices.
    #[must_use]
    pub(crate) fn only(&self, members: &[usize]) -> Self {
        let mut header = self.clone();
        for (at, source) in header.sources.iter_mut().enumerate() {
            if !members.contains(&at) {
                source.end = source.start;
            }
        }
        header
    }

    /// The footer entry.
    pub(super) fn entry(&self) -> Result<(&'static str, String)> {
        Ok((ENTRY, crate::json::to_json(self)?))
    }

    /// What the footer of `file` says.
    ///
    /// # Errors
    /// [`Kind::CorruptSource`] for a file that is no row map, [`Kind::Unsupported`] for one of another
    /// version.
    pub(super) fn of(file: &Source) -> Result<Self> {
        let entries = file.file().key_value_metadata();
        let entry = entries.into_iter().flatten().find(|entry| entry.key == ENTRY);
        let text = entry.and_then(|entry| entry.value.as_deref());
        let text = text.ok_or_else(|| damaged("has no entry that says what it is of"))?;
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let read = serde_json::from_str(text);
        let Versioned { version } =
            read.map_err(|e| damaged("has an entry that cannot be read").with_cause(e))?;
        if version != VERSION {
            return Err(Error::new(Kind::Unsupported, "a row map has another version")
                .with_got(format!("{version} instead of {VERSION}"))
                .with_hint("read it with the Plait that wrote it, or a later one"));
        }
        serde_json::from_str(text)
            .map_err(|e| damaged("has an entry that cannot be read").with_cause(e))
    }

    /// Rows of all sources; `None` for ranges that are none.
    pub(super) fn rows_of_sources(&self) -> Option<u64> {
        self.sources
            .iter()
            .try_fold(0_u64, |sum, source| sum.checked_add(source.end.checked_sub(source.start)?))
    }
}

/// The name of the map of the output `name`.
#[must_use]
pub(crate) fn map_name(name: &str) -> String {
    let (folder, file) = name.rsplit_once('/').map_or(("", name), |(folder, file)| (folder, file));
    let slash = if name.contains('/') { "/" } else { "" };
    format!("{folder}{slash}.{file}{ENDING}")
}

/// The name of the output that `name` is the map of; none for the name of another file.
#[must_use]
pub fn mapped_output(name: &str) -> Option<String> {
    let (folder, file) = name.rsplit_once('/').map_or(("", name), |(folder, file)| (folder, file));
    let slash = if name.contains('/') { "/" } else { "" };
    let output = file.strip_prefix('.')?.strip_suffix(ENDING)?;
    Some(format!("{folder}{slash}{output}"))
}

/// Whether `name` is that of a map.
#[must_use]
pub(crate) fn is_map(name: &str) -> bool {
    mapped_output(name).is_some()
}

/// The same text for every way to write a location.
///
/// # Errors
/// As [`Stores::locate`].
pub(crate) fn whole_path(location: &str, stores: &Stores) -> Result<String> {
    Ok(match stores.locate(location)? {
        Location::Object(place) => place.location(),
        Location::Local(path) => {
            // The file may be gone; its folder tells as much.
            let real = std::fs::canonicalize(&path).or_else(|e| match path.parent() {
                Some(folder) if !folder.as_os_str().is_empty() => {
                    let name = path.file_name().unwrap_or_default();
                    std::fs::canonicalize(folder).map(|folder| folder.join(name))
                }
                _ => Err(e),
            });
            let whole = real.or_else(|_| std::path::absolute(&path)).unwrap_or(path);
            whole.to_string_lossy().into_owned()
        }
    })
}

/// The error for a map that is not what it should be.
pub(super) fn damaged(what: &str) -> Error {
    Error::new(Kind::CorruptSource, format!("a row map {what}"))
        .with_hint("merge the sources again with row_map, if they are still there")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_hidden_and_no_parquet() {
        assert_eq!(map_name("a.parquet"), ".a.parquet.rowmap");
        assert_eq!(map_name("d=1/e/a.parquet"), "d=1/e/.a.parquet.rowmap");
        assert_eq!(map_name("/a.parquet"), "/.a.parquet.rowmap");
        assert_eq!(mapped_output("d=1/.a.parquet.rowmap").as_deref(), Some("d=1/a.parquet"));
        assert!(is_map("d/.a.parquet.rowmap") && !is_map("a.rowmap") && !is_map(".a/b.parquet"));
    }
}
