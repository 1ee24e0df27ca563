//! Moves files that compactions made to where every program sees them.
//!
//! ```text
//! begin    the manifest says where to: what is there does not count, the hidden file does
//! show     a second name, or a copy ─▶ what it replaced is removed (`expire`)
//! settle   the manifest says that the visible file counts, in one step
//! clear    the hidden name is removed: dead, as nothing names it
//! ```
//!
//! # Invariants
//! At every moment one of both names counts for readers of manifests. The visible one is whole before
//! a manifest says that it counts. Who stalls between two steps and goes on much later does no harm:
//! a file that was replaced meanwhile is removed first where it is hidden, so that it cannot be shown
//! any more, and then where it is visible.
//!
//! # Cost
//! A link a file and a name made durable; in an object store a copy, which the store makes if it can.
//!
//! # Not here
//! Which files may move (`expire`); their new names (`store::table`).

use std::collections::BTreeSet;
use std::io::Write;

use plait_core::workers::each;
use plait_core::{Error, Kind, Result};

use super::put::{Writer, step};
use crate::output::Target;
use crate::runtime::Context;
use crate::store::root::Root;
use crate::store::table::{Manifest, is_visible};
use crate::store::{Completed, Place};

/// A file on its way.
#[derive(Clone, Debug)]
pub(super) struct Move {
    /// Its hidden name.
    pub(super) from: String,
    /// Its visible name.
    pub(super) to: String,
    /// See [`Replaced::group`](crate::store::table::Replaced).
    pub(super) group: u64,
}

/// Says in `manifest` where files go that are in no group of `stays`; all that are on their way.
///
/// # Errors
/// [`Kind::Storage`].
pub(super) fn begin(
    manifest: &mut Manifest,
    stays: &BTreeSet<u64>,
    root: &Root,
) -> Result<Vec<Move>> {
    let mut taken: BTreeSet<String> = {
        let made = manifest.files.iter().flat_map(|made| made.to.iter().chain([&made.path]));
        made.chain(manifest.replaced.iter().map(|replaced| &replaced.path)).cloned().collect()
    };
    for made in &mut manifest.files {
        let is_here = made.to.is_some() || is_visible(&made.path) || stays.contains(&made.group);
        if is_here {
            continue;
        }
        // A name that somebody else gave to a file: it stays where it is.
        let Some(to) = Manifest::visible_name(made).filter(|to| !taken.contains(to)) else {
            continue;
        };
        if is_visible(&to) && root.look(&to)?.is_none() {
            taken.insert(to.clone());
            made.to = Some(to);
        }
    }
    Ok(of(manifest))
}

/// What is on its way.
pub(super) fn of(manifest: &Manifest) -> Vec<Move> {
    let moving = |made: &crate::store::table::Made| {
        let (from, group) = (made.path.clone(), made.group);
        made.to.clone().map(|to| Move { from, to, group })
    };
    manifest.files.iter().filter_map(moving).collect()
}

/// Makes a file visible; nothing if others have moved or replaced it since.
///
/// # Errors
/// [`Kind::Storage`], [`Kind::SourceNotFound`] for a live file that is missing.
pub(super) fn show(moving: &Move, writer: &Writer<'_>) -> Result<Option<Move>> {
    let Writer { root, context, .. } = *writer;
    step(context, "link", &moving.to)?;
    let is_shown = match root {
        Root::Local(_) => root.link(&moving.from, &moving.to)?,
        Root::Objects(place) => copy(place, moving, writer)?,
    };
    if is_shown || root.look(&moving.to)?.is_some() {
        return Ok(Some(moving.clone()));
    }
    if Manifest::newest(root)?.files.iter().all(|made| made.path != moving.from) {
        return Ok(None);
    }
    Err(Error::new(Kind::SourceNotFound, "a live file is missing")
        .with_path(root.location(&moving.from))
        .with_hint("something other than Plait removes files of the folder"))
}

/// The most that stores copy in one request.
const COPIED_BYTES_MAX: u64 = 5_000_000_000;

/// Bytes that are read at a time.
const READ_BYTES: u64 = 8 << 20;

/// Copies an object; false if it is absent. A copy that is there is one that was made before.
fn copy(place: &Place, moving: &Move, writer: &Writer<'_>) -> Result<bool> {
    let (from, to) = (place.below(&moving.from), place.below(&moving.to));
    let bucket = place.bucket();
    let Some(meta) = bucket.head(from.key())? else { return Ok(false) };
    if bucket.head(to.key())?.is_some_and(|there| there.len == meta.len) {
        return Ok(true);
    }
    if meta.len <= COPIED_BYTES_MAX {
        match bucket.copy(from.key(), to.key()) {
            Ok(true) => return Ok(true),
            Err(e) if e.kind() == Kind::SourceNotFound => return Ok(false),
            // Whatever it refuses, its bytes can be read and written.
            Ok(false) | Err(_) => {}
        }
    }
    let (folder, name) = moving.to.rsplit_once('/').unwrap_or(("", &moving.to));
    let folder = format!("{}/", writer.root.location(folder).trim_end_matches('/'));
    let target = Target::open(&folder, writer.stores, writer.context)?;
    let mut made = target.create(name)?;
    let mut at = 0;
    while at < meta.len {
        writer.context.check_cancelled()?;
        let end = meta.len.min(at + READ_BYTES);
        let bytes = match bucket.read(from.key(), at..end, &meta) {
            Err(e) if e.kind() == Kind::SourceChanged => return Ok(false),
            read => read?,
        };
        made.write_all(&bytes).map_err(crate::guard::unwrap_io_error)?;
        at = end;
    }
    made.sync()?;
    match made.publish_new(&target, name)? {
        Completed::Yes | Completed::Occupied => Ok(true),
    }
}

/// Says in `manifest` that the visible files count; whether that changes it. Those that others
/// replaced meanwhile do not.
pub(super) fn settle(manifest: &mut Manifest, shown: &[Move]) -> bool {
    let mut has_changed = false;
    for made in &mut manifest.files {
        let is_it =
            |moving: &&Move| moving.from == made.path && made.to.as_ref() == Some(&moving.to);
        if let Some(moving) = shown.iter().find(is_it) {
            made.path.clone_from(&moving.to);
            made.to = None;
            has_changed = true;
        }
    }
    has_changed
}

/// Removes the hidden names of files that `manifest` knows by their visible ones alone.
///
/// # Errors
/// [`Kind::Storage`].
pub(super) fn clear(
    shown: &[Move],
    manifest: &Manifest,
    root: &Root,
    context: &Context,
) -> Result<()> {
    let made = manifest.files.iter().map(|made| &made.path);
    let known: BTreeSet<&String> =
        made.chain(manifest.replaced.iter().map(|replaced| &replaced.path)).collect();
    let gone: Vec<_> = shown.iter().filter(|moving| !known.contains(&moving.from)).collect();
    each(&root.workers(context), gone.len(), |i| {
        step(context, "remove", &gone[i].from)?;
        root.remove(&gone[i].from)
    })?;
    Ok(())
}
