//! Which files of the log make a version, and the version that they make.
//!
//! ```text
//! list ─▶ the newest whole checkpoint that is not above the version ─▶ the commits after it
//! ```
//!
//! # Invariants
//! No commit between the checkpoint and the version may be absent: it is an error, never skipped.
//!
//! # Cost
//! One listing, one read a file; commits of object stores are read `COMMITS` at a time.
//!
//! # Not here
//! What the actions make (`snapshot`), what a checkpoint looks like (`checkpoint`).

use std::collections::{BTreeMap, BTreeSet};

use plait_core::workers::each;
use plait_core::{Error, Kind, Result};
use plait_parquet::{Folder, guard};

use crate::action::{Action, actions};
use crate::checkpoint;
use crate::name::{self, FOLDER, LogFile};
use crate::snapshot::{Place, Snapshot};

/// So many commits are read at once.
const COMMITS: usize = 32;

/// The files of a log.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub(crate) commits: BTreeSet<u64>,
    /// Names of the files of every whole checkpoint.
    pub(crate) checkpoints: BTreeMap<u64, Vec<String>>,
}

impl Listed {
    /// Lists a log.
    ///
    /// # Errors
    /// [`Kind::Storage`]. A log that is absent is empty.
    pub(crate) fn of(folder: &Folder) -> Result<Self> {
        let mut listed = Self::default();
        let mut parts: BTreeMap<(u64, u32), BTreeMap<u32, String>> = BTreeMap::new();
        for name in folder.names(FOLDER)? {
            match LogFile::of(&name) {
                None => {}
                Some(LogFile::Commit(version)) => {
                    listed.commits.insert(version);
                }
                Some(LogFile::Checkpoint(version) | LogFile::WithSidecars(version)) => {
                    // Each of them is whole: any will do.
                    listed.checkpoints.insert(version, vec![name]);
                }
                Some(LogFile::Part(part)) => {
                    let key = (part.version, part.parts);
                    parts.entry(key).or_default().insert(part.number, name);
                }
            }
        }
        for ((version, count), names) in parts {
            let is_whole = (1..=count).all(|number| names.contains_key(&number));
            if is_whole && names.len() == count as usize {
                let names = || names.into_values().collect();
                listed.checkpoints.entry(version).or_insert_with(names);
            }
        }
        Ok(listed)
    }

    /// The newest version; `None` without any.
    pub(crate) fn newest(&self) -> Option<u64> {
        self.commits.last().max(self.checkpoints.keys().last()).copied()
    }
}

/// The table at `version`, or at the newest.
///
/// # Errors
/// [`Kind::SourceNotFound`] for a version, or a table, that is not there, [`Kind::CorruptSource`]
/// for a log that lacks a commit, and those of reading.
pub(crate) fn load(folder: &Folder, listed: &Listed, version: Option<u64>) -> Result<Snapshot> {
    let Some(newest) = listed.newest() else { return Err(absent(folder)?) };
    let wanted = version.unwrap_or(newest);
    if wanted > newest {
        return Err(no_version(folder, wanted, newest)?);
    }
    let checkpoint = listed.checkpoints.range(..=wanted).next_back();
    let (mut snapshot, from) = match checkpoint {
        None => (Snapshot::default(), 0),
        Some((at, names)) => {
            let mut made = Snapshot::of_checkpoint(*at);
            for name in names {
                read_checkpoint(folder, name, &mut made)?;
            }
            (made, at + 1)
        }
    };
    each_commit(folder, from..=wanted, |at, actions| {
        let Some(actions) = actions else {
            return Err(match version {
                Some(asked) => no_version(folder, asked, newest)?,
                None => lacking(folder, at)?,
            });
        };
        snapshot.apply(at, actions);
        Ok(())
    })?;
    let is_bare = snapshot.metadata.id.is_empty() || snapshot.metadata.schema_string.is_empty();
    if is_bare || snapshot.protocol.min_reader_version == 0 {
        return Err(Error::new(
            Kind::CorruptSource,
            "the log of a table lacks metadata or protocol",
        )
        .with_path(folder.location(FOLDER)?));
    }
    Ok(snapshot)
}

/// The actions of a commit; `None` if there is none.
///
/// # Errors
/// [`Kind::Storage`], [`Kind::CorruptSource`].
pub(crate) fn commit_of(folder: &Folder, version: u64) -> Result<Option<Vec<Action>>> {
    let name = name::commit(version);
    let Some(bytes) = folder.read(&name)? else { return Ok(None) };
    actions(&bytes, &folder.location(&name)?).map(Some)
}

/// Calls `take` with the actions of one commit after the other; with none of an absent one.
///
/// # Errors
/// As [`commit_of`], and those of `take`.
pub(crate) fn each_commit(
    folder: &Folder,
    versions: impl IntoIterator<Item = u64>,
    mut take: impl FnMut(u64, Option<Vec<Action>>) -> Result<()>,
) -> Result<()> {
    let versions: Vec<u64> = versions.into_iter().collect();
    for some in versions.chunks(COMMITS) {
        let names: Vec<String> = some.iter().map(|version| name::commit(*version)).collect();
        let read = each(folder, names.len(), |i| folder.read(&names[i]))?;
        for ((version, name), bytes) in some.iter().zip(&names).zip(read) {
            let location = folder.location(name)?;
            let found = bytes.map(|bytes| actions(&bytes, &location)).transpose()?;
            take(*version, found)?;
        }
    }
    Ok(())
}

/// Reads a file of a checkpoint, and those that it names.
fn read_checkpoint(folder: &Folder, name: &str, into: &mut Snapshot) -> Result<()> {
    let location = folder.location(name)?;
    let read = |name: &str| -> Result<Vec<u8>> {
        folder.read(name)?.ok_or_else(|| {
            Error::new(Kind::SourceChanged, "a checkpoint of a table was removed meanwhile")
                .with_path(location.as_str())
                .with_hint("read the table again")
        })
    };
    let mut sidecars = Vec::new();
    let mut take = |mut rows: Vec<Action>| {
        sidecars.extend(rows.iter_mut().filter_map(|row| row.sidecar.take()));
        into.absorb(rows);
    };
    let mut rows_of = |name: &str| -> Result<()> {
        let bytes = read(name)?;
        if name.ends_with(".json") {
            take(actions(&bytes, &location)?);
            return Ok(());
        }
        guard(|| checkpoint::read(bytes, &location, &mut take)).and_then(|rows| rows)
    };
    rows_of(name)?;
    for sidecar in std::mem::take(&mut sidecars) {
        let path = name::decoded(&sidecar.path);
        let name = if path.contains('/') { path } else { format!("{FOLDER}/_sidecars/{path}") };
        read_checkpoint(folder, &name, into)?;
    }
    Ok(())
}

/// Finds the places of live files that a checkpoint did not tell, where the commits are still there.
///
/// # Errors
/// Those of reading.
pub(crate) fn find_places(folder: &Folder, snapshot: &mut Snapshot) -> Result<()> {
    if snapshot.files.values().all(|live| live.place.is_some()) {
        return Ok(());
    }
    let mut history = Snapshot::default();
    let listed = Listed::of(folder)?;
    let versions = listed.commits.range(..=snapshot.version).copied();
    each_commit(folder, versions, |version, actions| {
        history.apply(version, actions.unwrap_or_default());
        Ok(())
    })?;
    for (name, live) in snapshot.files.iter_mut().filter(|(_, live)| live.place.is_none()) {
        let found: Option<Place> = history.files.get(name).and_then(|live| live.place);
        live.place = found;
    }
    Ok(())
}

fn absent(folder: &Folder) -> Result<Error> {
    let location = folder.location(FOLDER)?;
    let root = location.trim_end_matches(FOLDER).trim_end_matches('/').to_owned();
    Ok(no_table(&root))
}

/// The error for a folder that is no table.
pub(crate) fn no_table(root: &str) -> Error {
    Error::new(Kind::SourceNotFound, "there is no such Delta table").with_path(root)
}

fn no_version(folder: &Folder, wanted: u64, newest: u64) -> Result<Error> {
    Ok(Error::new(Kind::SourceNotFound, "the table has no such version, or has it no more")
        .with_path(folder.location(FOLDER)?)
        .with_got(format!("version {wanted}"))
        .with_hint(format!("the newest is {newest}; old ones go with the files of their log")))
}

fn lacking(folder: &Folder, version: u64) -> Result<Error> {
    Ok(Error::new(Kind::CorruptSource, "the log of a table lacks a commit")
        .with_path(folder.location(&name::commit(version))?)
        .with_hint("restore the file; without it nobody knows which files are live"))
}
