//! Commits a change of which files are live: one manifest, put where there is none.
//!
//! ```text
//! newest manifest n ─▶ do the replaced files count? ─▶ put n + 1 ─▶ is all there? ─▶ committed
//!        ▲             are all leases there?            │ taken         │ no
//!        │             no: somebody was faster          │               ▼
//!        └──────────────────────────────────────────────┘          taken back
//! ```
//!
//! # Invariants
//! Of two commits that replace the same file one counts. What a commit adds has a lease in the
//! manifest before, so that nobody has removed it, see `lease`; it is looked for before and after
//! the manifest is put nevertheless: people remove files, too. An answer that is lost is asked for
//! again: a manifest says who wrote it.
//!
//! # Cost
//! A few requests, one more for each file that is replaced, two for each that is added.
//!
//! # Not here
//! What a manifest says, and who reads it (`store::table`); the next manifest (`replace`).

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;

use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use super::put::Writer;
use super::replace::{Gone, Replacement, regroup, replace, stand_as};
use super::signs::{end_abandoned, now_s};
use crate::runtime::{Context, Level};
use crate::store::root::{Found, Root};
use crate::store::table::{FOLDER, Lease, Manifest, any_in_table_below, table_around};
use crate::store::{Stores, check_root};

/// A change of what counts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CommitOptions {
    /// The folder.
    pub(crate) folder: String,
    /// Files that count from now on, and those that count no more; all of these must count now.
    pub(crate) changes: Vec<Replacement>,
    /// A part of names: nothing is added if a live file has it, since another process made
    /// the same files meanwhile.
    pub(crate) unless: Option<String>,
    /// A lease that goes on.
    pub(crate) renew: Option<Renewal>,
    /// The id of a lease that ends with this change.
    pub(crate) end: Option<String>,
    /// Whether only to tell if the files to replace count.
    pub(crate) check: bool,
    /// Bytes of memory to stay within.
    pub(crate) memory_limit: Option<u64>,
    /// Settings of object stores.
    pub(crate) storage_options: BTreeMap<String, String>,
}

/// A lease that goes on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Renewal {
    /// Its id.
    pub(crate) id: String,
    /// For so many seconds.
    pub(crate) term_s: f64,
}

/// How a commit ended.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Commit {
    /// Whether the change counts.
    pub(crate) committed: bool,
    /// Whether the files to replace counted until then.
    pub(crate) counts: bool,
    /// The manifest that counts now.
    pub(crate) manifest: Manifest,
}

/// Commits a change in one step, or finds that others have replaced the same files.
///
/// # Errors
/// [`Kind::Storage`], [`Kind::SourceChanged`] when what is added is not there or its lease has
/// ended, [`Kind::Unsupported`] for a store that cannot commit, and what a damaged manifest gives.
pub(crate) fn commit_in(
    options: &CommitOptions,
    stores: &Stores,
    context: &Context,
) -> Result<Commit> {
    let root = Root::open(&options.folder, stores)?;
    check_root(&root)?;
    let mut changes = options.changes.clone();
    for location in changes.iter_mut().flat_map(|change| &mut change.add) {
        *location = root.name_of(location, stores)?.ok_or_else(|| {
            Error::new(Kind::InvalidArgument, "a file to add is not below the folder")
                .with_path(location.as_str())
        })?;
    }
    let add: Vec<&str> =
        changes.iter().flat_map(|change| &change.add).map(String::as_str).collect();
    let gone: Vec<&Gone> = changes.iter().flat_map(|change| &change.replace).collect();
    let writer = Writer { root: &root, stores, context };
    loop {
        context.check_cancelled()?;
        let before = Manifest::newest(&root)?;
        // A folder in between that got manifests of its own since is compacted by itself.
        let names = gone.iter().map(|gone| gone.name.as_str());
        let is_counting = !any_in_table_below(&root, names, context)?
            && all_count(&gone, &before, &root, context)?;
        let is_made = options
            .unless
            .as_ref()
            .is_some_and(|part| before.files.iter().any(|made| made.path.contains(part)));
        let ends = options.end.as_ref().is_some_and(|id| before.leases.iter().any(|l| l.id == *id));
        let has_files = !gone.is_empty() || !add.is_empty();
        let is_idle = !has_files && !ends && options.renew.is_none();
        if options.check || is_idle || !is_counting || is_made {
            if !is_counting && !options.check {
                context.events().record(Level::Info, "compact", || {
                    "another process replaced a file".to_owned()
                });
            }
            return Ok(Commit { committed: false, counts: is_counting, manifest: before });
        }
        check_above(&root, &gone)?;
        add.iter().try_for_each(|name| check_leased(&before, name, &root))?;
        let new: Vec<&str> = add.iter().copied().filter(|name| !before.holds(name)).collect();
        if let Some(name) = absent(&new, &root, context)?.first() {
            return Err(removed(&root.location(name)));
        }
        let mut manifest = before.clone();
        let groups = replace(&mut manifest, &changes, now_s());
        if let Some(renewal) = &options.renew {
            renew(&mut manifest, renewal, &root)?;
        }
        manifest.leases.retain(|lease| options.end.as_ref() != Some(&lease.id));
        if !writer.put(&mut manifest)? {
            continue;
        }
        for name in absent(&add, &root, context)? {
            // Others may have moved it since, or replaced and removed it.
            if Manifest::newest(&root)?.files.iter().any(|made| made.path == name) {
                return Err(take_back(&writer, &before, &changes, &groups, &root.location(name))?);
            }
        }
        if has_files {
            context.events().record(Level::Info, "compact", || {
                let (number, made) = (manifest.number, add.len());
                format!("manifest {number} is current: {made} for {} files", gone.len())
            });
        }
        return Ok(Commit { committed: true, counts: true, manifest });
    }
}

/// Those of the files that are not there.
fn absent<'a>(names: &[&'a str], root: &Root, context: &Context) -> Result<Vec<&'a str>> {
    let found = root.look_all(names, context)?;
    Ok(names
        .iter()
        .zip(found)
        .filter(|(_, found)| found.is_none())
        .map(|(name, _)| *name)
        .collect())
}

/// Refuses to replace files that a compaction of a folder above replaced, or may be about to.
///
/// Each side writes its lease before it looks for that of the other, so one of two sees the other.
fn check_above(root: &Root, gone: &[&Gone]) -> Result<()> {
    if gone.is_empty() {
        return Ok(());
    }
    let Some((above, part)) = table_around(root)? else { return Ok(()) };
    let mut manifest = Manifest::newest(&above)?;
    end_abandoned(&mut manifest, &above);
    let is_there = |gone: &&Gone| {
        let name = format!("{part}/{}", gone.name);
        manifest.replaced.iter().any(|replaced| replaced.path == name)
    };
    if manifest.leases.is_empty() && !gone.iter().any(is_there) {
        return Ok(());
    }
    Err(Error::new(Kind::SourceChanged, "a folder above is compacted, nothing was committed")
        .with_path(root.location(""))
        .with_got(format!("a manifest in `{}`", above.location("")))
        .with_hint("compact one of the two folders only, or one after the other"))
}

/// Refuses a file that others may take for dead. One that counts already may be added again.
fn check_leased(manifest: &Manifest, name: &str, root: &Root) -> Result<()> {
    let is_counting = manifest.holds(name);
    let is_replaced = manifest.replaced.iter().any(|replaced| replaced.path == name);
    if is_counting || (!is_replaced && manifest.lease_of(name).is_some()) {
        return Ok(());
    }
    Err(Error::new(Kind::SourceChanged, "the lease of an output has ended, nothing was committed")
        .with_path(root.location(name))
        .with_hint("its writer renewed it too late and was considered dead; compact again"))
}

fn removed(location: &str) -> Error {
    Error::new(Kind::SourceChanged, "an output was removed meanwhile, nothing was committed")
        .with_path(location)
        .with_hint("something other than Plait removes files of the folder; compact again")
}

fn renew(manifest: &mut Manifest, renewal: &Renewal, root: &Root) -> Result<()> {
    let lease: Option<&mut Lease> = manifest.leases.iter_mut().find(|l| l.id == renewal.id);
    let lease = lease.ok_or_else(|| {
        Error::new(Kind::SourceChanged, "a lease has ended before it was renewed")
            .with_path(root.location(""))
            .with_hint("its holder renewed it too late and was considered dead; compact again")
    })?;
    lease.until = now_s() + renewal.term_s;
    Ok(())
}

/// Makes count again what counted before a change whose output at `location` is gone; the error to
/// tell.
fn take_back(
    writer: &Writer<'_>,
    before: &Manifest,
    changes: &[Replacement],
    groups: &Range<u64>,
    location: &str,
) -> Result<Error> {
    let gone: BTreeSet<&String> =
        changes.iter().flat_map(|change| &change.replace).map(|gone| &gone.name).collect();
    let add: HashSet<&String> = changes.iter().flat_map(|change| &change.add).collect();
    let is_ours = |manifest: &Manifest| {
        let own = manifest.replaced.iter().filter(|r| gone.contains(&r.path));
        let has = |name: &&String| manifest.files.iter().any(|made| made.path == **name);
        own.count() == gone.len() && add.iter().all(has)
    };
    loop {
        writer.context.check_cancelled()?;
        let mut manifest = Manifest::newest(writer.root)?;
        if !is_ours(&manifest) {
            let what = "a live output was removed, and so were the files that it replaced";
            return Ok(Error::new(Kind::CorruptSource, what).with_path(location));
        }
        manifest.files.retain(|made| !add.contains(&made.path));
        let again = || before.files.iter().filter(|made| gone.contains(&made.path));
        let to: BTreeSet<&String> = again().filter_map(|made| made.to.as_ref()).collect();
        let counts = |name: &String| gone.contains(name) || to.contains(name);
        manifest.replaced.retain(|replaced| !counts(&replaced.path));
        manifest.files.extend(again().cloned());
        stand_as(before, &mut manifest.files);
        regroup(&mut manifest, before, groups);
        if writer.put(&mut manifest)? {
            return Ok(removed(location));
        }
    }
}

/// Whether all of these files count.
fn all_count(gone: &[&Gone], manifest: &Manifest, root: &Root, context: &Context) -> Result<bool> {
    let made: HashSet<&str> = manifest.files.iter().map(|made| made.path.as_str()).collect();
    let replaced: HashSet<&str> = manifest.replaced.iter().map(|of| of.path.as_str()).collect();
    let folder = format!("{FOLDER}/");
    let (hidden, visible): (Vec<&Gone>, Vec<&Gone>) =
        gone.iter().copied().partition(|gone| gone.name.starts_with(&folder));
    if !hidden.iter().all(|gone| made.contains(gone.name.as_str()))
        || visible.iter().any(|gone| replaced.contains(gone.name.as_str()))
    {
        return Ok(false);
    }
    let names: Vec<&str> = visible.iter().map(|gone| gone.name.as_str()).collect();
    let found = root.look_all(&names, context)?;
    let is_it = |(gone, found): (&&Gone, &Option<Found>)| {
        let Some(found) = found else { return false };
        let versions = gone.version.as_ref().zip(found.version.as_ref());
        gone.bytes.is_none_or(|bytes| bytes == found.bytes)
            && versions.is_none_or(|(then, now)| then == now)
    };
    Ok(visible.iter().zip(&found).all(is_it))
}
