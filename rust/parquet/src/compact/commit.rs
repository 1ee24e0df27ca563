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
//! Of two changes that replace the same file one counts. What a change adds has a lease in the
//! manifest before, so that nobody has removed it, see `lease`; it is looked for before and after
//! the manifest is put nevertheless: people remove files, too. An answer that is lost is asked for
//! again: a manifest says who wrote it.
//!
//! # Cost
//! A few requests, one more for each file that is replaced, two for each that is added.
//!
//! # Not here
//! What a manifest says, and who reads it (`store::table`).

use std::collections::{BTreeMap, BTreeSet, HashSet};

use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use super::put::Writer;
use super::signs::{end_abandoned, now_s};
use crate::runtime::{Context, Level};
use crate::store::root::Root;
use crate::store::table::{
    FOLDER, Lease, Made, Manifest, Replaced, any_in_table_below, is_visible, place_order,
    table_around,
};
use crate::store::{Stores, check_root};

/// A change of what counts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CommitOptions {
    /// The folder.
    pub(crate) folder: String,
    /// Where files are that count from now on.
    pub(crate) add: Vec<String>,
    /// A part of names: nothing is added if a live file has it, since another process made
    /// the same files meanwhile.
    pub(crate) unless: Option<String>,
    /// Files that count no more, by their path below the root; all of them must count now.
    pub(crate) replace: Vec<Gone>,
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

/// A file that is to count no more.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Gone {
    /// Its path below the root.
    pub(crate) name: String,
    /// SHA-256 of its footer; empty if it is known by its name alone.
    #[serde(default)]
    pub(crate) footer: String,
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
    let mut add = Vec::new();
    for location in &options.add {
        let name = root.name_of(location, stores)?;
        add.push(name.ok_or_else(|| {
            Error::new(Kind::InvalidArgument, "a file to add is not below the folder")
                .with_path(location.as_str())
        })?);
    }
    let writer = Writer { root: &root, stores, context };
    loop {
        context.check_cancelled()?;
        let before = Manifest::newest(&root)?;
        // A folder in between that got manifests of its own since is compacted by itself.
        let names = options.replace.iter().map(|gone| gone.name.as_str());
        let mut is_counting = !any_in_table_below(&root, names)?;
        let names = options.replace.iter().map(|gone| gone.name.as_str());
        is_counting = is_counting && all_count(names, &before, &root, context)?;
        let is_made = options
            .unless
            .as_ref()
            .is_some_and(|part| before.files.iter().any(|made| made.path.contains(part)));
        let ends = options.end.as_ref().is_some_and(|id| before.leases.iter().any(|l| l.id == *id));
        let changes = !add.is_empty() || !options.replace.is_empty();
        let is_idle = !changes && !ends && options.renew.is_none();
        if options.check || is_idle || !is_counting || is_made {
            if !is_counting && !options.check {
                context.events().record(Level::Info, "compact", || {
                    "another process replaced a file".to_owned()
                });
            }
            return Ok(Commit { committed: false, counts: is_counting, manifest: before });
        }
        check_above(&root, &options.replace)?;
        for name in &add {
            check_leased(&before, name, &root)?;
            if !before.holds(name) && root.look(name)?.is_none() {
                return Err(removed(&root.location(name)));
            }
        }
        let mut manifest = before.clone();
        change(&mut manifest, &add, &options.replace, now_s());
        if let Some(renewal) = &options.renew {
            renew(&mut manifest, renewal, &root)?;
        }
        manifest.leases.retain(|lease| options.end.as_ref() != Some(&lease.id));
        if !writer.put(&mut manifest)? {
            continue;
        }
        for name in &add {
            if is_lost(name, &root)? {
                let location = root.location(name);
                return Err(take_back(&writer, &before, &add, &options.replace, &location)?);
            }
        }
        if changes {
            context.events().record(Level::Info, "compact", || {
                let (number, made) = (manifest.number, add.len());
                format!("manifest {number} is current: {made} for {} files", options.replace.len())
            });
        }
        return Ok(Commit { committed: true, counts: true, manifest });
    }
}

/// Whether a file that was added is gone, although it is where it was added.
fn is_lost(name: &str, root: &Root) -> Result<bool> {
    if root.look(name)?.is_some() {
        return Ok(false);
    }
    // Others may have moved it since, or replaced and removed it.
    Ok(Manifest::newest(root)?.files.iter().any(|made| made.path == *name))
}

/// Refuses to replace files that a compaction of a folder above replaced, or may be about to.
///
/// Each side writes its lease before it looks for that of the other, so one of two sees the other.
fn check_above(root: &Root, replace: &[Gone]) -> Result<()> {
    if replace.is_empty() {
        return Ok(());
    }
    let Some((above, part)) = table_around(root)? else { return Ok(()) };
    let mut manifest = Manifest::newest(&above)?;
    end_abandoned(&mut manifest, &above);
    let is_there = |gone: &Gone| {
        let name = format!("{part}/{}", gone.name);
        manifest.replaced.iter().any(|replaced| replaced.path == name)
    };
    if manifest.leases.is_empty() && !replace.iter().any(is_there) {
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
    add: &[String],
    replace: &[Gone],
    location: &str,
) -> Result<Error> {
    let gone: BTreeSet<&String> = replace.iter().map(|gone| &gone.name).collect();
    let is_ours = |manifest: &Manifest| {
        let own = manifest.replaced.iter().filter(|r| gone.contains(&r.path));
        let has = |name: &String| manifest.files.iter().any(|made| made.path == *name);
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
        if writer.put(&mut manifest)? {
            return Ok(removed(location));
        }
    }
}

/// Brings files to the order that they had `before`; others stay behind their neighbours.
fn stand_as(before: &Manifest, files: &mut Vec<Made>) {
    let stood = before.files.iter().enumerate().map(|(rank, made)| (made.path.as_str(), rank));
    let stood: BTreeMap<&str, usize> = stood.collect();
    let mut last = 0;
    let mut ranked: Vec<(usize, Made)> = Vec::with_capacity(files.len());
    for made in files.drain(..) {
        last = stood.get(made.path.as_str()).copied().unwrap_or(last);
        ranked.push((last, made));
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    files.extend(ranked.into_iter().map(|(_, made)| made));
}

/// Whether all files of these names count.
fn all_count<'a>(
    names: impl Iterator<Item = &'a str>,
    manifest: &Manifest,
    root: &Root,
    context: &Context,
) -> Result<bool> {
    let made: HashSet<&str> = manifest.files.iter().map(|made| made.path.as_str()).collect();
    let replaced: HashSet<&str> = manifest.replaced.iter().map(|of| of.path.as_str()).collect();
    let folder = format!("{FOLDER}/");
    let (hidden, visible): (Vec<&str>, Vec<&str>) =
        names.partition(|name| name.starts_with(&folder));
    Ok(hidden.iter().all(|name| made.contains(name))
        && !visible.iter().any(|name| replaced.contains(name))
        && root.look_all(&visible, context)?.iter().all(Option::is_some))
}

fn change(manifest: &mut Manifest, add: &[String], replace: &[Gone], since: f64) {
    let places = replace.iter().map(|gone| manifest.place_of(&gone.name));
    let last = places.max_by(|a, b| place_order(a, b)).map(str::to_owned);
    let footers: BTreeMap<&String, &String> =
        replace.iter().map(|gone| (&gone.name, &gone.footer)).collect();
    // What holds rows of what is replaced holds them together with what is added.
    let group = manifest.number.saturating_add(1);
    let joins = |made: &Made| footers.contains_key(&made.path) && !is_visible(&made.path);
    let joined: BTreeSet<u64> =
        manifest.files.iter().filter(|made| joins(made)).map(|made| made.group).collect();
    let made = manifest.files.iter_mut().map(|made| &mut made.group);
    let replaced = manifest.replaced.iter_mut().map(|replaced| &mut replaced.group);
    made.chain(replaced).filter(|old| joined.contains(old)).for_each(|old| *old = group);
    let gone = |path: &str, footer: &str| {
        let (path, footer) = (path.to_owned(), footer.to_owned());
        Replaced { path, since, footer, group }
    };
    // A file that is being moved may get its second name at any time.
    let moving = manifest.files.iter().filter_map(|made| {
        let footer = footers.get(&made.path)?;
        made.to.as_ref().map(|to| gone(to, footer))
    });
    let moving: Vec<Replaced> = moving.collect();
    // Files of one place stand in the order of the list: what is made, where the last of its sources
    // stood. Rows of older sources must not become newer than those of the files behind.
    let is_last =
        |made: &Made| footers.contains_key(&made.path) && Some(made.position()) == last.as_deref();
    let stood = manifest.files.iter().rposition(is_last);
    let at = stood.map_or(manifest.files.len(), |stood| {
        let before = manifest.files.iter().take(stood);
        before.filter(|made| !footers.contains_key(&made.path)).count()
    });
    manifest.files.retain(|made| !footers.contains_key(&made.path));
    let made = |name: &String| Made {
        path: name.clone(),
        place: last.clone().unwrap_or_else(|| name.clone()),
        to: None,
        group,
    };
    // A file counts once, however often it is added.
    let fresh: Vec<Made> = add.iter().filter(|name| !manifest.holds(name)).map(made).collect();
    let at = at.min(manifest.files.len());
    manifest.files.splice(at..at, fresh);
    manifest.replaced.extend(replace.iter().map(|of| gone(&of.name, &of.footer)));
    manifest.replaced.extend(moving);
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use super::*;

    #[test]
    fn what_is_made_stands_where_the_last_of_its_sources_stood() {
        let mut manifest = Manifest::none();
        let names = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let gone = |names: &[&str]| {
            let gone = |name: &&str| Gone { name: (*name).to_owned(), footer: String::new() };
            names.iter().map(gone).collect::<Vec<_>>()
        };
        change(&mut manifest, &names(&["_plait/files/x"]), &gone(&["b", "a"]), 1.0);
        assert_eq!(manifest.place_of("_plait/files/x"), "b");
        let replace = gone(&["_plait/files/x", "a-"]);
        change(&mut manifest, &names(&["_plait/files/y"]), &replace, 2.0);
        assert_eq!(manifest.place_of("_plait/files/y"), "b");
        assert_eq!((manifest.files.len(), manifest.replaced.len()), (1, 4));
        assert!(manifest.replaced.iter().all(|replaced| replaced.group == manifest.files[0].group));
        manifest.files[0].to = Some("b.y".into());
        change(&mut manifest, &names(&["_plait/files/z"]), &gone(&["_plait/files/y"]), 3.0);
        assert!(manifest.replaced.iter().any(|r| r.path == "b.y"), "it may still get that name");
        assert_eq!(place_order("a/z", "a-b/c"), Ordering::Less, "folders come whole");
    }

    #[test]
    fn what_is_made_of_one_of_several_files_of_a_place_stands_before_those_behind() {
        let mut manifest = Manifest::none();
        let names = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let gone = |names: &[&str]| {
            let gone = |name: &&str| Gone { name: (*name).to_owned(), footer: String::new() };
            names.iter().map(gone).collect::<Vec<_>>()
        };
        let paths = |manifest: &Manifest| {
            let path = |made: &Made| made.path.trim_start_matches("_plait/files/").to_owned();
            manifest.files.iter().map(path).collect::<Vec<_>>()
        };
        let made = ["_plait/files/p", "_plait/files/q", "_plait/files/r"];
        change(&mut manifest, &names(&made), &gone(&["c"]), 1.0);
        let before = manifest.clone();
        // The rows of `a` are older than those of `r`, also where they have the same keys.
        let replace = gone(&["a", "_plait/files/q"]);
        change(&mut manifest, &names(&["_plait/files/z"]), &replace, 2.0);
        assert_eq!(paths(&manifest), ["p", "z", "r"]);
        assert_eq!(manifest.place_of("_plait/files/z"), "c");
        manifest.files = [&before.files[2], &before.files[0]].into_iter().cloned().collect();
        stand_as(&before, &mut manifest.files);
        assert_eq!(paths(&manifest), ["p", "r"]);
    }
}
