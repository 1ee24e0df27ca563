//! Removes files that no version inside the retention needs, then the log of older versions.
//!
//! ```text
//! removed by a commit, longer ago than the retention ─▶ goes
//! in no commit, older than the retention and a day   ─▶ goes: its writer died
//! live, or removed lately                            ─▶ stays
//! the row map of a file that goes                    ─▶ goes
//! none of Parquet, deletion vectors and row maps     ─▶ stays
//! ```
//!
//! # Invariants
//! A live file is never removed. What a writer may still be about to commit is not younger than a
//! day. A file in a folder whose name begins with `_` or `.` is nobody's data. The log keeps a
//! checkpoint, and every commit after it.
//!
//! # Cost
//! One listing, one look-up for each file that may go, one request to remove it; many at a time.
//!
//! # Not here
//! Which files are live (`snapshot`).

use std::collections::{BTreeMap, BTreeSet};

use plait_core::Result;
use plait_parquet::{from_json, mapped_output, to_json};
use serde::{Deserialize, Serialize};

use crate::interval::interval_ms;
use crate::load::{Listed, each_commit, no_table};
use crate::log::{Log, ms, now_ms};
use crate::name::{self, decoded};
use crate::protocol::{Intent, check};
use crate::vector::file_of;

/// A file that is in no commit stays for so long: its writer may be at work.
const UNKNOWN_MS: i64 = 86_400_000;
/// For how long commits stay unless the table says otherwise.
const LOG_MS: i64 = 30 * 86_400_000;

/// What goes.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CleanOptions {
    /// Files that were removed later stay.
    retention_ms: i64,
    /// Whether only to say what would go.
    dry_run: bool,
}

/// What went.
#[derive(Serialize)]
struct Cleaned {
    /// Names of data files.
    removed: Vec<String>,
    bytes: u64,
    /// Files of the log.
    log_removed: Vec<String>,
    version: u64,
}

impl Log {
    /// Removes what no version inside the retention needs.
    ///
    /// # Errors
    /// [`SourceNotFound`](plait_core::Kind::SourceNotFound) without a table,
    /// [`Unsupported`](plait_core::Kind::Unsupported) for one that is not changed,
    /// [`Storage`](plait_core::Kind::Storage).
    pub fn clean(&mut self, options: &str) -> Result<String> {
        let asked: CleanOptions = from_json(options)?;
        let root = self.root.clone();
        let now_ms = now_ms();
        let since = now_ms.saturating_sub(asked.retention_ms.max(0));
        // Before anything is listed: what is committed later is younger than what is listed.
        let names = self.folder.names("")?;
        let Some((_, snapshot)) = self.newest()? else { return Err(no_table(&root)) };
        check(&snapshot.protocol, &snapshot.metadata, Intent::Rewrite, &root)?;
        let (version, mut kept) = (snapshot.version, BTreeSet::new());
        let mut gone: BTreeMap<String, i64> = BTreeMap::new();
        for live in snapshot.files.values() {
            kept.insert(decoded(&live.add.path));
            kept.extend(live.add.vector().and_then(file_of));
        }
        let log_ms = snapshot.setting("delta.logRetentionDuration");
        let log_ms = log_ms.map_or(Some(LOG_MS), interval_ms);
        let cleans_log = snapshot.setting("delta.enableExpiredLogCleanup") != Some("false");
        // A checkpoint forgets removals sooner than this retention may be: commits tell.
        let listed = Listed::of(&self.folder)?;
        let mut removes: Vec<_> = snapshot_removes(self)?;
        each_commit(&self.folder, listed.commits.range(..=version).copied(), |_, actions| {
            self.context.check_cancelled()?;
            let actions = actions.unwrap_or_default().into_iter();
            removes.extend(actions.filter_map(|action| action.remove));
            Ok(())
        })?;
        for remove in removes {
            let at = remove.deletion_timestamp.unwrap_or(0);
            let vector = remove.deletion_vector.as_ref().and_then(file_of);
            for name in [Some(decoded(&remove.path)), vector].into_iter().flatten() {
                if at > since {
                    kept.insert(name);
                } else {
                    let last = gone.entry(name).or_insert(at);
                    *last = at.max(*last);
                }
            }
        }
        let mut cleaned =
            Cleaned { removed: Vec::new(), bytes: 0, log_removed: Vec::new(), version };
        let may_go = names.iter().filter(|name| is_removable(name) && !kept.contains(*name));
        let may_go: Vec<&str> = may_go.map(String::as_str).collect();
        let mut going = Vec::new();
        for (name, found) in may_go.iter().zip(self.folder.look(&may_go)?) {
            let Some(found) = found else { continue };
            let written = found.written_at.map(ms);
            // One that was written after its removal is there again, for somebody to commit.
            let is_gone = written.is_some_and(|at| gone.get(*name).is_some_and(|end| at <= *end));
            let spared = if is_gone { since } else { since.min(now_ms - UNKNOWN_MS) };
            if written.is_none_or(|written| written > spared) {
                continue;
            }
            cleaned.bytes += found.bytes;
            going.push(*name);
        }
        self.remove(&going, &asked, &mut cleaned)?;
        self.clean_maps(&names, now_ms, &asked, &mut cleaned)?;
        if let Some(log_ms) = log_ms.filter(|_| cleans_log) {
            cleaned.log_removed = self.clean_log(&listed, now_ms.saturating_sub(log_ms), &asked)?;
        }
        to_json(&cleaned)
    }

    /// Removes the row maps of files that were removed, and those of no file once their writers are
    /// dead.
    fn clean_maps(
        &self,
        names: &[String],
        now_ms: i64,
        asked: &CleanOptions,
        cleaned: &mut Cleaned,
    ) -> Result<()> {
        let removed: BTreeSet<String> = cleaned.removed.iter().cloned().collect();
        let may_go = |name: &String| {
            let output = mapped_output(name)?;
            let is_gone = removed.contains(&output);
            (is_gone || names.binary_search(&output).is_err()).then_some(is_gone)
        };
        let (may_go, are_gone): (Vec<&str>, Vec<bool>) =
            names.iter().filter_map(|name| Some((name.as_str(), may_go(name)?))).unzip();
        let mut going = Vec::new();
        for ((name, is_gone), found) in may_go.iter().zip(are_gone).zip(self.folder.look(&may_go)?)
        {
            let Some(found) = found else { continue };
            let is_old = found.written_at.map(ms).is_some_and(|at| at <= now_ms - UNKNOWN_MS);
            if is_gone || is_old {
                cleaned.bytes += found.bytes;
                going.push(*name);
            }
        }
        self.remove(&going, asked, cleaned)
    }

    /// Removes files, unless it is only asked what would go.
    fn remove(&self, names: &[&str], asked: &CleanOptions, cleaned: &mut Cleaned) -> Result<()> {
        if !asked.dry_run {
            self.folder.remove(names)?;
        }
        cleaned.removed.extend(names.iter().map(|name| (*name).to_owned()));
        Ok(())
    }

    /// Removes commits and checkpoints before the newest checkpoint that is older than `since`.
    fn clean_log(&self, listed: &Listed, since: i64, asked: &CleanOptions) -> Result<Vec<String>> {
        let mut first_kept = None;
        for (version, names) in listed.checkpoints.iter().rev() {
            let Some(name) = names.first() else { continue };
            let found = self.folder.look(&[name.as_str()])?.pop().flatten();
            let written = found.and_then(|found| found.written_at).map(ms);
            if written.is_some_and(|written| written < since) {
                first_kept = Some(*version);
                break;
            }
        }
        let Some(first_kept) = first_kept else { return Ok(Vec::new()) };
        // The oldest first: what is left is always without gaps.
        let mut names: Vec<String> =
            listed.commits.range(..first_kept).map(|version| name::commit(*version)).collect();
        names.extend(listed.checkpoints.range(..first_kept).flat_map(|(_, names)| names.clone()));
        names.sort();
        if !asked.dry_run {
            for name in &names {
                self.folder.remove(&[name.as_str()])?;
            }
        }
        Ok(names)
    }
}

/// What lies in a folder.
#[derive(Serialize)]
struct There {
    /// Names of files that may be of the table.
    visible: Vec<String>,
    /// Names of all others.
    hidden: Vec<String>,
    /// Names of files that a commit, or a checkpoint, says to be live or removed.
    known: BTreeSet<String>,
}

impl Log {
    /// The files of the folder, and those that the log names.
    ///
    /// # Errors
    /// [`Storage`](plait_core::Kind::Storage), those of reading the log.
    pub fn there(&mut self) -> Result<String> {
        let names = self.folder.names("")?;
        let mut known = BTreeSet::new();
        if let Some((_, snapshot)) = self.newest()? {
            known.extend(snapshot.files.values().map(|live| decoded(&live.add.path)));
            known.extend(snapshot.removed.values().map(|remove| decoded(&remove.path)));
        }
        let listed = Listed::of(&self.folder)?;
        each_commit(&self.folder, listed.commits, |_, actions| {
            self.context.check_cancelled()?;
            for action in actions.unwrap_or_default() {
                known.extend(action.remove.map(|remove| decoded(&remove.path)));
            }
            Ok(())
        })?;
        let (visible, hidden) = names.into_iter().partition(|name| is_data(name));
        to_json(&There { visible, hidden, known })
    }
}

fn snapshot_removes(log: &mut Log) -> Result<Vec<crate::action::Remove>> {
    Ok(match log.newest()? {
        None => Vec::new(),
        Some((_, snapshot)) => snapshot.removed.values().cloned().collect(),
    })
}

/// Whether a file goes once no version needs it: data, and deletion vectors of data.
fn is_removable(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or_default();
    is_data(name) || (file.starts_with("deletion_vector_") && file.ends_with(".bin"))
}

/// Whether a file may be one of the table.
fn is_data(name: &str) -> bool {
    let is_hidden =
        |part: &str| part.starts_with('.') || (part.starts_with('_') && !part.contains('='));
    name.ends_with(".parquet") && !name.split('/').any(is_hidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_visible_parquet_files_are_data() {
        for name in ["a.parquet", "day=1/a.parquet", "_day=1/a.parquet"] {
            assert!(is_data(name), "{name}");
        }
        for name in ["a.csv", "_delta_log/a.parquet", ".a.parquet", "x/_y/a.parquet", "README"] {
            assert!(!is_data(name), "{name}");
        }
    }
}
