//! Removes files that were replaced long ago, and outputs that never came to count.
//!
//! ```text
//! list _plait/files ─▶ newest manifest n ─▶ put n + 1 without abandoned leases
//!        ▲                                     │ taken          │ put: n was the newest
//!        └─────────────────────────────────────┘                ▼
//!                                             remove what is dead in n + 1 ─▶ forget it: n + 2
//! ```
//!
//! # Invariants
//! Only what is dead in a manifest that was put after the list is removed, and what is dead stays
//! dead: see `lease`. Nothing is removed while a live file is missing. Files are removed first
//! and forgotten then: a manifest that forgot files which are still there would bring them back. A
//! file that is not the one which was replaced is kept.
//!
//! # Cost
//! A list of `_plait/files`, two manifests, and for every file its footer and a request to remove
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use plait_core::SourceId;
use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use super::lease::{end_abandoned, now_s, sweep};
use super::put::Writer;
use super::survey::footer_text;
use crate::files::open_source;
use crate::runtime::Context;
use crate::store::Stores;
use crate::store::root::Root;
use crate::store::table::{FOLDER, Manifest, Replaced};

/// What may be removed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ExpireOptions {
    /// The folder.
    pub(crate) folder: String,
    /// How long ago, in seconds, it must have been replaced or written.
    pub(crate) retention_s: f64,
    /// Whether to remove it, and not only to tell.
    pub(crate) yes: bool,
    /// Settings of object stores.
    pub(crate) storage_options: BTreeMap<String, String>,
}

/// What was removed, or would be.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Expired {
    /// The folder, as locations in it begin.
    pub(crate) folder: String,
    /// Files that were replaced, by their path below it.
    pub(crate) replaced: Vec<String>,
    /// Files that a compaction made and never committed.
    pub(crate) orphans: Vec<String>,
    /// Files that were written under the name of one that was replaced, and so are others: they
    /// stay, and count from now on.
    pub(crate) kept: Vec<String>,
    /// Bytes of what was removed.
    pub(crate) bytes: u64,
}

/// Removes what nobody needs.
///
/// # Errors
/// [`Kind::Storage`], [`Kind::SourceNotFound`] when a live file is missing, and what a
/// damaged manifest gives.
pub(crate) fn expire_in(
    options: &ExpireOptions,
    stores: &Stores,
    context: &Context,
) -> Result<Expired> {
    let root = Root::open(&options.folder, stores)?;
    let writer = Writer { root: &root, stores, context };
    let mut done = Expired { folder: root.location(""), ..Expired::default() };
    let (mut manifest, dead) = loop {
        context.check_cancelled()?;
        // Listed before the manifest is read: whatever it has is known to that, or dead.
        let made = root.names(&format!("{FOLDER}/files"), true)?;
        let mut manifest = Manifest::newest(&root)?;
        let has_ended = end_abandoned(&mut manifest, &root);
        let dead = dead(&manifest, made, options, &root)?;
        let is_idle = dead.replaced.is_empty() && dead.orphans.is_empty() && !has_ended;
        if !options.yes || is_idle {
            break (manifest, dead);
        }
        // Put, it was the newest: nobody has made anything of this count in the meantime.
        if writer.put(&mut manifest)? {
            sweep(&manifest, &root)?;
            check_whole(&manifest, &root)?;
            break (manifest, dead);
        }
    };
    for replaced in &dead.replaced {
        context.check_cancelled()?;
        match examine(replaced, &root, stores, context)? {
            ReplacedFile::Gone(bytes) => {
                if options.yes {
                    root.remove(&replaced.path)?;
                }
                done.bytes += bytes;
                done.replaced.push(replaced.path.clone());
            }
            ReplacedFile::Another => done.kept.push(replaced.path.clone()),
            ReplacedFile::Changing => {}
        }
    }
    for (name, bytes) in dead.orphans {
        context.check_cancelled()?;
        if options.yes {
            root.remove(&name)?;
        }
        done.bytes += bytes;
        done.orphans.push(name);
    }
    let gone: BTreeSet<&String> = done.replaced.iter().chain(&done.kept).collect();
    while options.yes && manifest.replaced.iter().any(|replaced| gone.contains(&replaced.path)) {
        context.check_cancelled()?;
        manifest.replaced.retain(|replaced| !gone.contains(&replaced.path));
        if writer.put(&mut manifest)? {
            break;
        }
        manifest = Manifest::newest(&root)?;
    }
    Ok(done)
}

/// What never counts again, and is old enough.
struct Dead {
    replaced: Vec<Replaced>,
    /// With their bytes.
    orphans: Vec<(String, u64)>,
}

fn dead(
    manifest: &Manifest,
    made: Vec<String>,
    options: &ExpireOptions,
    root: &Root,
) -> Result<Dead> {
    let now = SystemTime::now();
    let is_old = |at: SystemTime| {
        now.duration_since(at).is_ok_and(|age| age.as_secs_f64() >= options.retention_s)
    };
    let counting = manifest.files.iter().map(|made| made.path.as_str());
    let waiting = manifest.replaced.iter().map(|replaced| replaced.path.as_str());
    let kept: BTreeSet<&str> = counting.chain(waiting).collect();
    let mut orphans = Vec::new();
    for name in made {
        let is_kept = kept.contains(name.as_str()) || manifest.lease_of(&name).is_some();
        if is_kept || !name.ends_with(".parquet") {
            continue;
        }
        // What does not tell its age is left alone.
        if let Some(found) = root.look(&name)?
            && found.written_at.is_some_and(is_old)
        {
            orphans.push((name, found.bytes));
        }
    }
    let before = now_s() - options.retention_s;
    let replaced = manifest.replaced.iter().filter(|replaced| replaced.since <= before);
    Ok(Dead { replaced: replaced.cloned().collect(), orphans })
}

/// Refuses to remove the sources of a live file that is missing.
fn check_whole(manifest: &Manifest, root: &Root) -> Result<()> {
    let made = root.names(&format!("{FOLDER}/files"), true)?;
    let made: BTreeSet<&String> = made.iter().collect();
    let missing = |of: &Manifest| {
        of.files.iter().map(|file| file.path.clone()).find(|path| !made.contains(path))
    };
    let Some(path) = missing(manifest) else { return Ok(()) };
    // It may have been replaced since, and removed.
    let newest = Manifest::newest(root)?;
    if newest.files.iter().all(|file| file.path != path) || root.look(&path)?.is_some() {
        return Ok(());
    }
    Err(Error::new(Kind::SourceNotFound, "a live file is missing")
        .with_path(root.location(&path))
        .with_hint(
            "nothing was removed; the files that it replaced may still exist, see the manifests",
        ))
}

/// What is there in the place of a file that was replaced.
enum ReplacedFile {
    /// That file, of so many bytes, or none.
    Gone(u64),
    /// A later file of its name.
    Another,
    /// One that changed while it was looked at: it is looked at again next time.
    Changing,
}

fn examine(
    replaced: &Replaced,
    root: &Root,
    stores: &Stores,
    context: &Context,
) -> Result<ReplacedFile> {
    if replaced.footer.is_empty() {
        return Ok(ReplacedFile::Gone(root.look(&replaced.path)?.map_or(0, |found| found.bytes)));
    }
    match open_source(&root.location(&replaced.path), SourceId(0), stores, context) {
        Ok(source) if footer_text(&source) == replaced.footer => {
            Ok(ReplacedFile::Gone(source.store.len()))
        }
        Ok(_) => Ok(ReplacedFile::Another),
        Err(e) => match e.kind() {
            Kind::SourceNotFound => Ok(ReplacedFile::Gone(0)),
            // What cannot be read is not what was replaced.
            Kind::CorruptSource | Kind::Unsupported | Kind::EncryptedSource => {
                Ok(ReplacedFile::Another)
            }
            Kind::SourceChanged => Ok(ReplacedFile::Changing),
            _ => Err(e),
        },
    }
}
