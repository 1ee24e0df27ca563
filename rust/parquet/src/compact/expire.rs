//! Removes files that were replaced long ago, and outputs that never came to count.
//!
//! # Invariants
//! Files are removed first and forgotten then: a manifest that forgot files which are still there
//! would bring them back. A file that counts is never removed, nor one that is not the one which
//! was replaced.
//!
//! # Cost
//! The footer of every file and a request to remove it, and a list of `_plait/files`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use plait_core::run::SourceId;
use plait_core::{Kind, Result};
use serde::{Deserialize, Serialize};

use super::commit::Writer;
use super::survey::footer_text;
use crate::context::Context;
use crate::files::open_source;
use crate::store::Stores;
use crate::store::root::Root;
use crate::store::table::{FOLDER, Manifest};

/// What may be removed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExpireOptions {
    /// The folder.
    pub folder: String,
    /// How long ago, in seconds, it must have been replaced or written.
    pub retention_s: f64,
    /// Whether to remove it, and not only to tell.
    pub yes: bool,
    /// Settings of object stores.
    pub storage_options: BTreeMap<String, String>,
}

/// What was removed, or would be.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Expired {
    /// The folder, as locations in it begin.
    pub folder: String,
    /// Files that were replaced, by their path below it.
    pub replaced: Vec<String>,
    /// Files that a compaction made and never committed.
    pub orphans: Vec<String>,
    /// Files that were written under the name of one that was replaced, and so are others: they
    /// stay, and count from now on.
    pub kept: Vec<String>,
    /// Bytes of what was removed.
    pub bytes: u64,
}

/// Removes what nobody needs.
///
/// # Errors
/// [`Kind::Storage`](plait_core::Kind::Storage) and what a damaged manifest gives.
pub fn expire_in(options: &ExpireOptions, stores: &Stores, context: &Context) -> Result<Expired> {
    let root = Root::open(&options.folder, stores)?;
    // Listed before the manifest is read: what is committed in between counts by then.
    let made = root.names(&format!("{FOLDER}/files"), true)?;
    let mut manifest = Manifest::newest(&root)?;
    let now = SystemTime::now();
    let is_old = |at: SystemTime| {
        now.duration_since(at).is_ok_and(|age| age.as_secs_f64() >= options.retention_s)
    };
    let since = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |now| now.as_secs_f64());
    let before = since - options.retention_s;
    let counting = manifest.files.iter().map(|made| made.path.as_str());
    let waiting = manifest.replaced.iter().map(|replaced| replaced.path.as_str());
    let kept: BTreeSet<&str> = counting.chain(waiting).collect();
    let mut done = Expired { folder: root.location(""), ..Expired::default() };
    for name in made {
        if kept.contains(name.as_str()) || !name.ends_with(".parquet") {
            continue;
        }
        // What does not tell its age is left alone.
        if let Some(found) = root.look(&name)?
            && found.written_at.is_some_and(is_old)
        {
            done.bytes += found.bytes;
            done.orphans.push(name);
        }
    }
    for replaced in manifest.replaced.iter().filter(|replaced| replaced.since <= before) {
        context.check_cancelled()?;
        if replaced.footer.is_empty() {
            done.bytes += root.look(&replaced.path)?.map_or(0, |found| found.bytes);
            done.replaced.push(replaced.path.clone());
            continue;
        }
        let location = root.location(&replaced.path);
        match open_source(&location, SourceId(0), stores, context) {
            Ok(source) if footer_text(&source) == replaced.footer => {
                done.bytes += source.store.len();
                done.replaced.push(replaced.path.clone());
            }
            Err(e) if e.kind() == Kind::SourceNotFound => done.replaced.push(replaced.path.clone()),
            Err(e) if e.kind() == Kind::Storage => return Err(e),
            // Also what cannot be read: it is not what was replaced.
            _ => done.kept.push(replaced.path.clone()),
        }
    }
    if !options.yes {
        return Ok(done);
    }
    for name in done.replaced.iter().chain(&done.orphans) {
        context.check_cancelled()?;
        root.remove(name)?;
    }
    let gone: BTreeSet<&String> = done.replaced.iter().chain(&done.kept).collect();
    let writer = Writer { root: &root, stores, context };
    while manifest.replaced.iter().any(|replaced| gone.contains(&replaced.path)) {
        context.check_cancelled()?;
        manifest.replaced.retain(|replaced| !gone.contains(&replaced.path));
        if writer.put(&mut manifest)? {
            break;
        }
        manifest = Manifest::newest(&root)?;
    }
    Ok(done)
}
