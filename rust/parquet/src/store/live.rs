//! Of the files of a list those that count, in the order in which they are read.
//!
//! ```text
//! list ─▶ newest manifest ─▶ without what was replaced, with what compactions made ─▶ by place
//! ```
//!
//! # Invariants
//! A visible file that a manifest names and the list lacks came after the list, or was removed: by
//! people, or by a manifest that is newer. In the last case the list is [`STALE`].
//!
//! # Not here
//! What a manifest says (`table`); lists (`list`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use plait_core::{Error, Kind, Result};

use super::bucket::Place;
use super::moved::{MADE, is_visible};
use super::reader::REFUSED;
use super::root::{Root, below};
use super::table::{FOLDER, Made, Manifest, place_order};

/// What is wrong with a list that is older than the manifest: whoever made it lists again.
pub(super) const STALE: &str = "the folder changed while it was listed";

/// Of the files `found` in `folder` those that count, in the order in which they are read.
///
/// # Errors
/// [`STALE`], and what a damaged manifest gives.
pub(super) fn visible(root: &Path, folder: &Path, found: Vec<PathBuf>) -> Result<Vec<PathBuf>> {
    let manifest = Manifest::newest(&Root::Local(root.to_owned()))?;
    let whole = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (whole_root, whole_folder) = (whole(root), whole(folder));
    let part = whole_folder.strip_prefix(&whole_root).unwrap_or(Path::new(""));
    let hidden: BTreeSet<PathBuf> = manifest.hidden().map(|name| whole_root.join(name)).collect();
    let made: BTreeMap<PathBuf, &Made> =
        manifest.files.iter().map(|made| (whole_root.join(&made.path), made)).collect();
    let mut folders = BTreeMap::new();
    let mut whole_of = |path: &Path| {
        // A link to a folder must not show again what was replaced in it.
        let parent = path.parent().map(Path::to_owned).unwrap_or_default();
        let parent = folders.entry(parent).or_insert_with_key(|parent| whole(parent));
        parent.join(path.file_name().unwrap_or_default())
    };
    let ranks = ranks(&manifest);
    let rank = |made: &Made| ranks.get(made.path.as_str()).copied().unwrap_or(usize::MAX);
    let (mut all, mut seen) = (Vec::new(), BTreeSet::new());
    for path in found {
        let whole_path = whole_of(&path);
        if let Some(made) = made.get(&whole_path) {
            seen.insert(&made.path);
            all.push((made.position().to_owned(), rank(made), path));
        } else if !hidden.contains(&whole_path) {
            let name = part.join(path.strip_prefix(folder).unwrap_or(&path));
            all.push((name.to_string_lossy().into_owned(), usize::MAX, path));
        }
    }
    let mut is_missing = false;
    for made in counting(&manifest, &part.to_string_lossy()) {
        let path = root.join(&made.path);
        if seen.contains(&made.path) {
            continue;
        }
        // One that moved since the list is there; one that somebody removed is nobody's loss.
        if is_visible(&made.path) && !path.exists() {
            is_missing = true;
            continue;
        }
        all.push((made.position().to_owned(), rank(made), path));
    }
    if is_missing {
        check_newest(&manifest, &Root::Local(root.to_owned()))?;
    }
    all.sort_by(|a, b| place_order(&a.0, &b.0).then_with(|| (a.1, &a.2).cmp(&(b.1, &b.2))));
    Ok(all.into_iter().map(|(_, _, path)| path).collect())
}

/// Refuses a manifest that is not the newest any more: a file that it names may have been replaced.
fn check_newest(manifest: &Manifest, root: &Root) -> Result<()> {
    if Manifest::newest(root)?.number == manifest.number {
        return Ok(());
    }
    Err(Error::new(Kind::SourceChanged, STALE).with_path(root.location("")))
}

/// Which of the files of one place is read first, by name: one that came stands behind what was made.
fn ranks(manifest: &Manifest) -> BTreeMap<&str, usize> {
    manifest.files.iter().enumerate().map(|(rank, made)| (made.path.as_str(), rank)).collect()
}

/// Files that compactions made of files in the folder `part`.
fn counting<'a>(manifest: &'a Manifest, part: &'a str) -> impl Iterator<Item = &'a Made> {
    let made = format!("{MADE}{}{part}", if part.is_empty() { "" } else { "/" });
    manifest.files.iter().filter(move |file| {
        let folder = if is_visible(&file.path) { part } else { made.as_str() };
        below(&file.path, folder).is_some()
    })
}

/// A name, and the name in whose place it is read.
type Placed = (String, String);

/// Of the objects `names` below `folder` those that count in the tables in it.
fn visible_in_parts(
    folder: &Place,
    names: Vec<String>,
    tables: &BTreeSet<String>,
) -> Result<Vec<Placed>> {
    let mut all: Vec<Placed> = names.into_iter().map(|name| (name.clone(), name)).collect();
    // Tables in tables first: these are longer.
    for table in tables.iter().rev() {
        let manifest = Manifest::newest(&Root::Objects(folder.below(table)))?;
        let (within, without): (Vec<Placed>, Vec<Placed>) =
            all.into_iter().partition(|(name, _)| below(name, table).is_some());
        let own = |name: &str| below(name, table).unwrap_or_default().to_owned();
        let within = within.iter().map(|(name, place)| (own(name), own(place))).collect();
        let whole = |name: String| format!("{table}/{name}");
        let root = Root::Objects(folder.below(table));
        let visible = in_order(&root, &manifest, "", within)?.into_iter();
        all = without;
        all.extend(visible.map(|(name, place)| (whole(name), whole(place))));
    }
    Ok(all)
}

/// The same of the objects `names` below `folder`, in which there are `tables`.
pub(super) fn visible_objects(
    folder: &Place,
    names: Vec<String>,
    tables: &BTreeSet<String>,
) -> Result<Vec<Place>> {
    let names = visible_in_parts(folder, names, tables)?;
    let mut at = folder.key();
    let table = loop {
        let root = Root::Objects(folder.with_key(at.to_owned()));
        let names = match root.names(FOLDER, false) {
            // Who may list a prefix need not be allowed to look above it.
            Err(e) if e.what() == REFUSED && at != folder.key() => break None,
            names => names?,
        };
        if let Some(manifest) = Manifest::among(&root, &names)? {
            break Some((at, manifest));
        }
        match at.rsplit_once('/') {
            Some((above, _)) => at = above,
            None if at.is_empty() => break None,
            None => at = "",
        }
    };
    let (root, manifest) = table.unwrap_or_else(|| (folder.key(), Manifest::none()));
    let part = if folder.key() == root { "" } else { below(folder.key(), root).unwrap_or("") };
    let root = folder.with_key(root.to_owned());
    let whole = |name: String| if part.is_empty() { name } else { format!("{part}/{name}") };
    let names = names.into_iter().map(|(name, place)| (whole(name), whole(place))).collect();
    let names = in_order(&Root::Objects(root.clone()), &manifest, part, names)?;
    Ok(names.iter().map(|(name, _)| root.below(name)).collect())
}

/// Of `names` in the folder `part` of a table those that count, as they are read.
fn in_order(
    root: &Root,
    manifest: &Manifest,
    part: &str,
    names: Vec<Placed>,
) -> Result<Vec<Placed>> {
    let hidden: BTreeSet<&str> = manifest.hidden().collect();
    let made: BTreeMap<&str, &Made> =
        manifest.files.iter().map(|made| (made.path.as_str(), made)).collect();
    let ranks = ranks(manifest);
    let rank = |made: &Made| ranks.get(made.path.as_str()).copied().unwrap_or(usize::MAX);
    let (mut all, mut seen) = (Vec::new(), BTreeSet::new());
    for placed in names {
        if let Some(made) = made.get(placed.0.as_str()) {
            seen.insert(made.path.as_str());
            all.push((rank(made), (placed.0, made.position().to_owned())));
        } else if !hidden.contains(placed.0.as_str()) {
            all.push((usize::MAX, placed));
        }
    }
    let mut is_missing = false;
    for made in counting(manifest, part).filter(|made| !seen.contains(made.path.as_str())) {
        if is_visible(&made.path) && root.look(&made.path)?.is_none() {
            is_missing = true;
            continue;
        }
        all.push((rank(made), (made.path.clone(), made.position().to_owned())));
    }
    if is_missing {
        check_newest(manifest, root)?;
    }
    all.sort_by(|(a_rank, (a, a_place)), (b_rank, (b, b_place))| {
        place_order(a_place, b_place).then_with(|| (a_rank, a).cmp(&(b_rank, b)))
    });
    Ok(all.into_iter().map(|(_, placed)| placed).collect())
}
