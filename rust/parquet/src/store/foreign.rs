//! Tables of other formats: folders whose own log, and not what lies in them, says which files
//! count.
//!
//! ```text
//! events/_delta_log/…                         Delta
//! events/metadata/….metadata.json             Iceberg
//! events/.hoodie/…                            Hudi
//! events/day=1/a.parquet                      counts, or was removed long ago: the log says
//! ```
//!
//! # Invariants
//! A folder, a glob or what is found by one is never read past such a log: it is refused by name. A
//! file that is named is that file: whoever asked the log names what counts.
//!
//! # Cost
//! Three look-ups for every folder and for every folder above what is listed.
//!
//! # Not here
//! Reading these logs (`python/plait/table`); our own manifests (`table`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plait_core::{Error, Kind, Result};
use serde::Serialize;

use super::bucket::Place;
use super::reader::REFUSED;
use super::registry::{Location, Stores};
use super::root::{Root, below};

const DELTA: &str = "_delta_log";
const HUDI: &str = ".hoodie";
const ICEBERG: &str = "metadata";

/// A table of another format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ForeignTable {
    /// `Delta`, `Iceberg` or `Hudi`.
    pub(crate) format: &'static str,
    /// Its folder, as callers write it.
    pub(crate) root: String,
}

impl ForeignTable {
    /// The error that refuses to read it as a folder of files.
    pub(super) fn refused(&self) -> Error {
        let what =
            format!("the folder is a table of {}: only its log lists the live files", self.format);
        Error::new(Kind::ForeignTable, what)
            .with_path(self.root.as_str())
            .with_hint("name the folder of the table itself, or each of its live files")
    }
}

/// The tables that are or hold what each of `patterns` names, if it names a folder or a glob.
///
/// # Errors
/// As [`Stores::locate`], [`Kind::Storage`].
pub(crate) fn tables_of(patterns: &[String], stores: &Stores) -> Result<Vec<Option<ForeignTable>>> {
    let table = |pattern: &String| match stores.locate(pattern)? {
        Location::Local(path) if path.is_dir() => Ok(local(&path)),
        Location::Local(_) => Ok(None),
        Location::Object(place) if place.key().contains('*') => Ok(None),
        Location::Object(place) => above_objects(&place),
    };
    patterns.iter().map(table).collect()
}

/// Refuses a folder that is a table of another format: what counts in it is not ours to change.
///
/// # Errors
/// [`Kind::ForeignTable`], [`Kind::Storage`].
pub(crate) fn check_root(root: &Root) -> Result<()> {
    let table = match root {
        Root::Local(path) => local(path),
        Root::Objects(_) => {
            format_at(root)?.map(|format| ForeignTable { format, root: root.location("") })
        }
    };
    table.map_or(Ok(()), |table| Err(table.refused()))
}

/// The table that the local folder `folder` is, or is in.
pub(super) fn local(folder: &Path) -> Option<ForeignTable> {
    let whole = std::fs::canonicalize(folder).ok()?;
    let levels = whole.ancestors().position(|folder| format_of(folder).is_some())?;
    let root = whole.ancestors().nth(levels)?;
    // Spelled as the caller spelled it, where that is possible.
    let spelled = folder.ancestors().nth(levels).filter(|path| !path.as_os_str().is_empty());
    let spelled = spelled.filter(|path| std::fs::canonicalize(path).is_ok_and(|p| p == root));
    let root_text = spelled.unwrap_or(root).to_string_lossy().into_owned();
    Some(ForeignTable { format: format_of(root)?, root: root_text })
}

/// Refuses the local folder `folder` if it is a table itself.
///
/// # Errors
/// [`Kind::ForeignTable`].
pub(super) fn check_folder(folder: &Path) -> Result<()> {
    match format_of(folder) {
        None => Ok(()),
        Some(format) => {
            Err(ForeignTable { format, root: folder.to_string_lossy().into_owned() }.refused())
        }
    }
}

/// Refuses what was found in local folders that are in a table; folders are looked at once.
#[derive(Default)]
pub(super) struct Checked(BTreeSet<PathBuf>);

impl Checked {
    /// # Errors
    /// [`Kind::ForeignTable`].
    pub(super) fn check(&mut self, folder: &Path) -> Result<()> {
        if self.0.contains(folder) {
            return Ok(());
        }
        if let Some(table) =
            local(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })
        {
            return Err(table.refused());
        }
        self.0.insert(folder.to_owned());
        Ok(())
    }
}

fn format_of(folder: &Path) -> Option<&'static str> {
    if folder.join(DELTA).is_dir() {
        return Some("Delta");
    }
    if folder.join(HUDI).is_dir() {
        return Some("Hudi");
    }
    let mut entries = std::fs::read_dir(folder.join(ICEBERG)).ok()?.flatten();
    entries.any(|entry| is_iceberg(&entry.file_name().to_string_lossy())).then_some("Iceberg")
}

fn is_iceberg(name: &str) -> bool {
    name.ends_with(".metadata.json") || name.ends_with(".metadata.json.gz")
}

/// The table that the prefix `place` is, or is in.
///
/// # Errors
/// [`Kind::Storage`].
fn above_objects(place: &Place) -> Result<Option<ForeignTable>> {
    let mut at = place.key();
    loop {
        let root = Root::Objects(place.with_key(at.to_owned()));
        let found = match format_at(&root) {
            // Who may list a prefix need not be allowed to look above it.
            Err(e) if e.what() == REFUSED && at != place.key() => return Ok(None),
            found => found?,
        };
        if let Some(format) = found {
            return Ok(Some(ForeignTable { format, root: root.location("") }));
        }
        match at.rsplit_once('/') {
            Some((above, _)) => at = above,
            None if at.is_empty() => return Ok(None),
            None => at = "",
        }
    }
}

fn format_at(root: &Root) -> Result<Option<&'static str>> {
    if !root.names(DELTA, false)?.is_empty() {
        return Ok(Some("Delta"));
    }
    if !root.names(HUDI, false)?.is_empty() {
        return Ok(Some("Hudi"));
    }
    let is_found = root.names(ICEBERG, false)?.iter().any(|name| is_iceberg(name));
    Ok(is_found.then_some("Iceberg"))
}

/// Refuses a prefix that is in a table, or has one in it: `names` are all keys below it.
///
/// # Errors
/// [`Kind::ForeignTable`], [`Kind::Storage`].
pub(super) fn check_objects<'a>(
    place: &Place,
    names: impl Iterator<Item = &'a str>,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<()> {
    for name in names {
        if let Some((root, format)) = root_above(name).filter(|(root, _)| is_wanted(root)) {
            let root = if root.is_empty() { place.clone() } else { place.below(root) };
            return Err(ForeignTable { format, root: root.location() }.refused());
        }
    }
    if place.key().is_empty() {
        return Ok(());
    }
    let above = place.key().rsplit_once('/').map_or("", |(above, _)| above);
    match above_objects(&place.with_key(above.to_owned())) {
        // Whoever may only list the prefix cannot look above it.
        Err(e) if e.what() == REFUSED => Ok(()),
        Err(e) => Err(e),
        Ok(None) => Ok(()),
        Ok(Some(table)) => Err(table.refused()),
    }
}

/// The folder that is a table because there is a file of this name below it.
fn root_above(name: &str) -> Option<(&str, &'static str)> {
    for (folder, format) in [(DELTA, "Delta"), (HUDI, "Hudi")] {
        if below(name, folder).is_some() {
            return Some(("", format));
        }
        if let Some(at) = name.find(&format!("/{folder}/")) {
            return Some((name.get(..at)?, format));
        }
    }
    let (folder, file) = name.rsplit_once('/')?;
    if !is_iceberg(file) {
        return None;
    }
    match folder.strip_suffix(ICEBERG)? {
        "" => Some(("", "Iceberg")),
        root => root.strip_suffix('/').map(|root| (root, "Iceberg")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_names_the_folder_that_it_is_in() {
        assert_eq!(root_above("_delta_log/0.json"), Some(("", "Delta")));
        assert_eq!(root_above("a/b/_delta_log/_last"), Some(("a/b", "Delta")));
        assert_eq!(root_above("a/.hoodie/x"), Some(("a", "Hudi")));
        assert_eq!(root_above("metadata/0.metadata.json"), Some(("", "Iceberg")));
        assert_eq!(root_above("a/metadata/v1.metadata.json.gz"), Some(("a", "Iceberg")));
        let none = [
            "a/metadata/x.json",
            "a/x.metadata.json",
            "my_delta_log/x",
            "xmetadata/0.metadata.json",
        ];
        assert!(none.into_iter().all(|name| root_above(name).is_none()));
    }
}
