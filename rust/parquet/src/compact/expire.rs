//! Removes files that were replaced long ago, and outputs that never came to count; what is left of
//! a compaction then becomes ordinary files.
//!
//! ```text
//! list _plait/files ─▶ newest manifest n ─▶ put n + 1 without abandoned leases, with moves
//!        ▲                                     │ taken          │ put: n was the newest
//!        └─────────────────────────────────────┘                ▼
//!                  group by group: show what was made, remove what it replaced ─▶ put n + 2
//!                                                               ▼
//!                                      remove the hidden names, and what is dead in n + 1
//! ```
//!
//! # Invariants
//! Only what is dead in a manifest that was put after the list is removed, and what is dead stays
//! dead: see `lease`. Nothing is removed while a live file is missing. Files are removed first
//! and forgotten then: a manifest that forgot files which are still there would bring them back. A
//! file that is not the one which was replaced is kept. A visible file stays until that which holds
//! its rows can be visible in its place: see `moves`.
//!
//! # Cost
//! A list of `_plait/files`, two manifests, and for every file its footer and a request to remove
//! it. A file that is shown takes a link, or a copy in an object store.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use plait_core::SourceId;
use plait_core::workers::each;
use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use super::moves::{self, Move};
use super::put::{Writer, step};
use super::signs::{end_abandoned, now_s, sweep};
use super::swap::{self, Swap};
use crate::files::open_source;
use crate::runtime::Context;
use crate::store::Stores;
use crate::store::exchange::Difference;
use crate::store::root::Root;
use crate::store::table::{MADE, Manifest, Replaced, is_visible};

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
    /// An id, 16 random hexadecimal digits, by which the folder is exchanged in one step.
    pub(crate) swap: Option<String>,
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
    /// Files that compactions made and that are ordinary files now, by their new path.
    pub(crate) shown: Vec<String>,
    /// Files that were replaced long enough ago and stay: what holds their rows holds those of files
    /// which were not.
    pub(crate) waiting: Vec<String>,
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
    let swap = options.swap.as_deref().map(|id| Swap::try_new(&root, id)).transpose()?;
    let (mut manifest, dead) = loop {
        context.check_cancelled()?;
        // Listed before the manifest is read: whatever it has is known to that, or dead.
        let made = root.names(MADE, true)?;
        let mut manifest = Manifest::newest(&root)?;
        let mut has_ended = end_abandoned(&mut manifest, &root);
        if options.yes {
            has_ended |= swap::end_abandoned(&mut manifest, &root)?;
        }
        let mut dead = dead(&manifest, made, options, &root, stores, context)?;
        let moves = moves::begin(&mut manifest, &dead.stays, &root)?;
        // Whoever goes on with a move removes these, whatever the retention.
        let goes = |of: &Replaced| {
            is_visible(&of.path) && moves.iter().any(|moving| moving.group == of.group)
        };
        let old = dead.replaced.iter_mut().map(|(replaced, _)| replaced);
        old.filter(|of| goes(of)).for_each(|of| of.since = 0.0);
        let names: BTreeSet<&String> =
            dead.replaced.iter().filter(|(of, _)| goes(of)).map(|(of, _)| &of.path).collect();
        let going = manifest.replaced.iter_mut().filter(|of| names.contains(&of.path));
        going.for_each(|of| of.since = 0.0);
        let is_idle =
            dead.replaced.is_empty() && dead.orphans.is_empty() && !has_ended && moves.is_empty();
        if !options.yes || is_idle {
            done.shown = moves.into_iter().map(|moving| moving.to).collect();
            break (manifest, dead);
        }
        // Put, it was the newest: nobody has made anything of this count in the meantime.
        let is_put = match &swap {
            Some(swap) => swap.begin(&mut manifest, &writer)?,
            None => writer.put(&mut manifest)?,
        };
        if is_put {
            sweep(&manifest, &root)?;
            check_whole(&manifest, &root)?;
            break (manifest, dead);
        }
    };
    done.waiting = dead.waiting;
    for (replaced, found) in &dead.replaced {
        match found {
            ReplacedFile::Gone(bytes, _) => {
                done.bytes += bytes;
                done.replaced.push(replaced.path.clone());
            }
            ReplacedFile::Another => done.kept.push(replaced.path.clone()),
            ReplacedFile::Changing => {}
        }
    }
    if let Some(swap) = swap.filter(|_| options.yes && manifest.exchange.is_some()) {
        let moves = moves::of(&manifest);
        let mut omitted: BTreeSet<String> =
            dead.orphans.iter().map(|(name, _)| name.clone()).collect();
        let are_same = each(&root.workers(context), dead.replaced.len(), |i| {
            is_same(&dead.replaced[i], &root, stores, context)
        })?;
        let same = dead.replaced.iter().zip(are_same).filter(|(_, is_same)| *is_same);
        omitted.extend(same.map(|((of, _), _)| of.path.clone()));
        let moved = moves.iter().map(|moving| (moving.from.clone(), moving.to.clone())).collect();
        swap.exchange(&Difference { omitted, moved }, &manifest, &writer)?;
        // The manifest says that there is an exchange until it has come to its end.
        swap.finish(context)?;
        settle(&writer, &mut manifest, &moves, &forgotten(&dead.replaced), options.swap.as_ref())?;
        done.shown = moves.into_iter().map(|moving| moving.to).collect();
    } else if options.yes {
        let moves = moves::of(&manifest);
        let mut shown = Vec::new();
        let groups: BTreeSet<u64> = moves.iter().map(|moving| moving.group).collect();
        for group in groups {
            // What is between the first link and the last removal, others see twice.
            for moving in moves.iter().filter(|moving| moving.group == group) {
                context.check_cancelled()?;
                shown.extend(moves::show(moving, &writer)?);
            }
            remove(dead.replaced.iter().filter(|(of, _)| of.group == group), &writer)?;
        }
        let is_left = |group: u64| !moves.iter().any(|moving| moving.group == group);
        remove(dead.replaced.iter().filter(|(of, _)| is_left(of.group)), &writer)?;
        settle(&writer, &mut manifest, &shown, &forgotten(&dead.replaced), None)?;
        moves::clear(&shown, &manifest, &root, context)?;
        done.shown = shown.into_iter().map(|moving| moving.to).collect();
    }
    if options.yes {
        each(&root.workers(context), dead.orphans.len(), |i| {
            context.check_cancelled()?;
            step(context, "remove", &dead.orphans[i].0)?;
            root.remove(&dead.orphans[i].0)
        })?;
    }
    for (name, bytes) in dead.orphans {
        done.bytes += bytes;
        done.orphans.push(name);
    }
    if options.yes && manifest.leases.is_empty() && manifest.exchange.is_none() {
        root.remove_empty(MADE);
    }
    Ok(done)
}

/// Files that a manifest need not name any more.
fn forgotten(dead: &[(Replaced, ReplacedFile)]) -> Vec<Replaced> {
    let gone = dead.iter().filter(|(_, found)| !matches!(found, ReplacedFile::Changing));
    gone.map(|(replaced, _)| replaced.clone()).collect()
}

/// Whether a file that was replaced is still there, and no other has its name.
fn is_same(
    (replaced, found): &(Replaced, ReplacedFile),
    root: &Root,
    stores: &Stores,
    context: &Context,
) -> Result<bool> {
    let ReplacedFile::Gone(bytes, Some(version)) = found else { return Ok(false) };
    match root.look(&replaced.path)? {
        Some(now) if (now.bytes, &now.version) == (*bytes, version) => Ok(true),
        // One that was only touched is still that file: forgotten, its rows would be there twice.
        Some(_) if !replaced.footer.is_empty() => {
            let now = examine(replaced, root, stores, context)?;
            Ok(matches!(now, ReplacedFile::Gone(_, Some(_))))
        }
        _ => Ok(false),
    }
}

/// Puts a manifest in which what was shown counts by its visible name, and which forgets what was
/// removed.
fn settle(
    writer: &Writer<'_>,
    manifest: &mut Manifest,
    shown: &[Move],
    gone: &[Replaced],
    swapped: Option<&String>,
) -> Result<()> {
    let is_gone = |replaced: &Replaced| {
        gone.iter().any(|gone| gone.path == replaced.path && gone.since == replaced.since)
    };
    loop {
        writer.context.check_cancelled()?;
        let has_moved = moves::settle(manifest, shown);
        let has_changed = manifest.exchange.take_if(|lease| Some(&lease.id) == swapped).is_some();
        let before = manifest.replaced.len();
        manifest.replaced.retain(|replaced| !is_gone(replaced));
        if !has_moved && !has_changed && manifest.replaced.len() == before {
            return Ok(());
        }
        step(writer.context, "put", "")?;
        if writer.put(manifest)? {
            return Ok(());
        }
        *manifest = Manifest::newest(writer.root)?;
    }
}

/// Removes files that were replaced, if they are still what was looked at.
fn remove<'a>(
    dead: impl Iterator<Item = &'a (Replaced, ReplacedFile)>,
    Writer { root, stores, context }: &Writer<'_>,
) -> Result<()> {
    let (visible, hidden): (Vec<_>, Vec<_>) = dead.partition(|(of, _)| is_visible(&of.path));
    // What is hidden goes first: while it is there, it may be given its visible name.
    for dead in [hidden, visible] {
        each(&root.workers(context), dead.len(), |i| {
            let path = &dead[i].0.path;
            context.check_cancelled()?;
            if is_same(dead[i], root, stores, context)? {
                step(context, "remove", path)?;
                root.remove(path)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// What never counts again, and is old enough.
struct Dead {
    /// With what is there in their place.
    replaced: Vec<(Replaced, ReplacedFile)>,
    /// With their bytes.
    orphans: Vec<(String, u64)>,
    /// Names of those that are old enough and stay.
    waiting: Vec<String>,
    /// Groups of which a visible file stays.
    stays: BTreeSet<u64>,
}

fn dead(
    manifest: &Manifest,
    made: Vec<String>,
    options: &ExpireOptions,
    root: &Root,
    stores: &Stores,
    context: &Context,
) -> Result<Dead> {
    let now = SystemTime::now();
    let is_old = |at: SystemTime| {
        now.duration_since(at).is_ok_and(|age| age.as_secs_f64() >= options.retention_s)
    };
    let counting = manifest.files.iter().map(|made| made.path.as_str());
    let waiting = manifest.replaced.iter().map(|replaced| replaced.path.as_str());
    let kept: BTreeSet<&str> = counting.chain(waiting).collect();
    let is_kept = |name: &str| kept.contains(name) || manifest.lease_of(name).is_some();
    let names: Vec<&str> = made.iter().map(String::as_str).collect();
    let names: Vec<&str> =
        names.into_iter().filter(|name| !is_kept(name) && name.ends_with(".parquet")).collect();
    let mut orphans = Vec::new();
    for (name, found) in names.iter().zip(root.look_all(&names, context)?) {
        // What does not tell its age is left alone; what moved away is the same file twice.
        if let Some(found) = found
            && (found.written_at.is_some_and(is_old) || manifest.holds(name))
        {
            orphans.push(((*name).to_owned(), found.bytes));
        }
    }
    let before = now_s() - options.retention_s;
    let hidden: BTreeSet<u64> = {
        let hidden = manifest.files.iter().filter(|made| !is_visible(&made.path));
        hidden.map(|made| made.group).collect()
    };
    let is_young = |replaced: &&Replaced| replaced.since > before && is_visible(&replaced.path);
    let mut stays: BTreeSet<u64> =
        manifest.replaced.iter().filter(is_young).map(|replaced| replaced.group).collect();
    let (mut replaced, mut waiting) = (Vec::new(), Vec::new());
    let holds = |of: &Replaced| hidden.contains(&of.group) && is_visible(&of.path);
    let old = manifest.replaced.iter().filter(|replaced| replaced.since <= before);
    let (stay, old): (Vec<_>, Vec<_>) = old.partition(|of| holds(of) && stays.contains(&of.group));
    waiting.extend(stay.into_iter().map(|of| of.path.clone()));
    let examined = each(&root.workers(context), old.len(), |i| {
        context.check_cancelled()?;
        examine(old[i], root, stores, context)
    })?;
    for (of, found) in old.into_iter().zip(examined) {
        let holds = holds(of);
        if holds && stays.contains(&of.group) {
            waiting.push(of.path.clone());
            continue;
        }
        if holds && matches!(found, ReplacedFile::Changing) {
            stays.insert(of.group);
        }
        replaced.push((of.clone(), found));
    }
    // A group stays as a whole.
    replaced.retain(|(of, _)| {
        let stays = is_visible(&of.path) && hidden.contains(&of.group) && stays.contains(&of.group);
        if stays {
            waiting.push(of.path.clone());
        }
        !stays
    });
    Ok(Dead { replaced, orphans, waiting, stays })
}

/// Refuses to remove the sources of a live file that is missing.
fn check_whole(manifest: &Manifest, root: &Root) -> Result<()> {
    let made = root.names(MADE, true)?;
    let made: BTreeSet<&String> = made.iter().collect();
    // Visible files are those of whoever uses the folder, who may remove them.
    let hidden = manifest.files.iter().filter(|file| !is_visible(&file.path));
    let mut missing = None;
    for file in hidden.filter(|file| !made.contains(&file.path)) {
        // Of a folder that was exchanged, the visible name may be left alone.
        let to = file.to.as_deref();
        if to.map(|to| root.look(to)).transpose()?.flatten().is_none() {
            missing.get_or_insert(file.path.clone());
        }
    }
    let Some(path) = missing else { return Ok(()) };
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
    /// That file, of so many bytes, and what the storage says of its version; or none.
    Gone(u64, Option<Option<String>>),
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
        let found = root.look(&replaced.path)?;
        return Ok(match found {
            Some(found) => ReplacedFile::Gone(found.bytes, Some(found.version)),
            None => ReplacedFile::Gone(0, None),
        });
    }
    if !is_visible(&replaced.path) && root.look(&replaced.path)?.is_none() {
        return Ok(ReplacedFile::Gone(0, None));
    }
    match open_source(&root.location(&replaced.path), SourceId(0), stores, context) {
        Ok(source) if source.footer_text() == replaced.footer => {
            Ok(ReplacedFile::Gone(source.store.len(), Some(source.store.version())))
        }
        Ok(_) => Ok(ReplacedFile::Another),
        Err(e) => match e.kind() {
            Kind::SourceNotFound => Ok(ReplacedFile::Gone(0, None)),
            // What cannot be read is not what was replaced.
            Kind::CorruptSource | Kind::Unsupported | Kind::EncryptedSource => {
                Ok(ReplacedFile::Another)
            }
            Kind::SourceChanged => Ok(ReplacedFile::Changing),
            _ => Err(e),
        },
    }
}
