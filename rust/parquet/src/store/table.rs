//! A folder with a manifest: which of its files count.
//!
//! ```text
//! sales/day=1/a.parquet              replaced: does not count, until it is removed
//! sales/day=1/b.parquet              replaced: what was made of a and b is read in its place
//! sales/day=1/c.parquet              counts, as it would without a manifest
//! sales/_plait/manifest-00000002.json
//! sales/_plait/files/day=1/part-….parquet     counts, because the manifest names it
//! ```
//!
//! # Invariants
//! The manifest with the greatest number counts. A number is given once: manifests are put where
//! there is none. Files that nobody replaced count, whenever they came. A folder is listed before
//! its manifest is read: what is not in the list was removed, and a manifest from before that
//! replaced it.
//!
//! # Not here
//! Writing manifests (`compact`); their members (`docs/formats/manifest.md`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use super::bucket::Place;
use super::reader::REFUSED;
use super::root::{Root, below, is_name};

/// The folder of manifests and of files that compactions made, below the root.
pub(crate) const FOLDER: &str = "_plait";

/// Version of the layout: that of manifests with leases. Before, there was version 1 without them.
const VERSION: u32 = 2;

/// What a manifest says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    /// `plait.manifest`.
    pub(crate) format: String,
    /// 2; 1 was without leases.
    pub(crate) version: u32,
    /// Its number; 0 before there is one.
    pub(crate) number: u64,
    /// Files that compactions made and that count.
    pub(crate) files: Vec<Made>,
    /// Files that do not count any more.
    pub(crate) replaced: Vec<Replaced>,
    /// Whoever is making files that are to count.
    #[serde(default)]
    pub(crate) leases: Vec<Lease>,
}

/// The right to make files count whose names bear its id. Such a file is nobody's to remove.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lease {
    /// What names bear; given once.
    pub(crate) id: String,
    /// After this, in seconds since 1970, anybody may end it.
    pub(crate) until: f64,
    /// Where its lock tells whether its process lives; empty if there is none.
    pub(crate) machine: String,
}

/// A file that a compaction made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Made {
    /// Its path below the root.
    pub(crate) path: String,
    /// It is read where this file stood: the last of those that it replaced.
    pub(crate) place: String,
}

/// A file that was replaced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Replaced {
    /// Its path below the root.
    pub(crate) path: String,
    /// When, in seconds since 1970.
    pub(crate) since: f64,
    /// SHA-256 of its footer, by which it is known from a later file of that name.
    pub(crate) footer: String,
}

impl Manifest {
    /// The manifest of a folder without one.
    #[must_use]
    pub(crate) fn none() -> Self {
        Self { format: "plait.manifest".into(), version: VERSION, ..Self::default() }
    }

    /// The name of manifest `number`.
    #[must_use]
    pub(crate) fn name(number: u64) -> String {
        format!("manifest-{number:08}.json")
    }

    /// The newest manifest of the folder `root`.
    ///
    /// # Errors
    /// [`Kind::CorruptSource`] for one that does not parse or contradicts itself,
    /// [`Kind::Unsupported`] for one of another version, [`Kind::Storage`].
    pub(crate) fn newest(root: &Root) -> Result<Self> {
        Ok(Self::among(root, &root.names(FOLDER, false)?)?.unwrap_or_else(Self::none))
    }

    /// The newest manifest among files of these names; `None` if none is one.
    fn among(root: &Root, names: &[String]) -> Result<Option<Self>> {
        match names.iter().filter_map(|name| Self::number_of(name)).max() {
            Some(newest) => Self::numbered(root, newest).map(Some),
            None => Ok(None),
        }
    }

    /// The number of the manifest called `name`; other spellings of a number are other files.
    fn number_of(name: &str) -> Option<u64> {
        let digits = below(name, FOLDER)?.strip_prefix("manifest-")?.strip_suffix(".json")?;
        let number: u64 = digits.parse().ok()?;
        (Self::name(number) == format!("manifest-{digits}.json")).then_some(number)
    }

    /// Manifest `number`, which must be there.
    ///
    /// # Errors
    /// As [`newest`](Self::newest).
    pub(crate) fn numbered(root: &Root, number: u64) -> Result<Self> {
        let name = format!("{FOLDER}/{}", Self::name(number));
        let parsed = match root.read(&name)? {
            Some(text) => Self::parse(&text),
            None => {
                Err(Error::new(Kind::SourceChanged, "a manifest was removed while it was read"))
            }
        };
        let damaged = |got: String| {
            Err(Error::new(Kind::CorruptSource, "the manifest contradicts itself").with_got(got))
        };
        let checked = parsed.and_then(|manifest| match manifest.contradiction() {
            Some(got) => damaged(got),
            None if manifest.number != number => damaged(format!("number {}", manifest.number)),
            None => Ok(manifest),
        });
        checked.map_err(|e| e.with_path(root.location(&name)))
    }

    /// What cannot be, if anything. Files are removed by these names.
    fn contradiction(&self) -> Option<String> {
        let is_made = |name: &str| below(name, &format!("{FOLDER}/files")).is_some();
        let mut seen = BTreeSet::new();
        let made = self.files.iter().map(|made| &made.path);
        for name in made.clone().chain(self.replaced.iter().map(|replaced| &replaced.path)) {
            if !is_name(name) {
                return Some(format!("the name `{name}`"));
            }
            if !seen.insert(name) {
                return Some(format!("`{name}` twice"));
            }
        }
        if self.format != Self::none().format {
            return Some(format!("format `{}`", self.format));
        }
        let mut ids = BTreeSet::new();
        let bad = self.leases.iter().find(|lease| !is_id(&lease.id) || !ids.insert(&lease.id));
        if let Some(lease) = bad {
            return Some(format!("the lease `{}`", lease.id));
        }
        let strange = made.into_iter().find(|name| !is_made(name));
        strange.map(|name| format!("`{name}` outside of {FOLDER}/files"))
    }

    /// The lease whose id the file `name` bears, if it has not ended.
    #[must_use]
    pub(crate) fn lease_of(&self, name: &str) -> Option<&Lease> {
        let stem = name.rsplit('/').next()?.strip_suffix(".parquet")?;
        self.leases.iter().find(|lease| stem.split('-').any(|part| part == lease.id))
    }

    /// The file in whose place `name` is read.
    #[must_use]
    pub(crate) fn place_of<'a>(&'a self, name: &'a str) -> &'a str {
        let made = self.files.iter().find(|made| made.path == name);
        made.map_or(name, |made| made.place.as_str())
    }

    fn parse(text: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        struct ManifestHead {
            version: u32,
        }
        let damaged = |e: serde_json::Error| {
            Error::new(Kind::CorruptSource, "cannot read the manifest").with_cause(e)
        };
        let head: ManifestHead = serde_json::from_slice(text).map_err(damaged)?;
        if !(1..=VERSION).contains(&head.version) {
            return Err(Error::new(Kind::Unsupported, "the manifest is of another version")
                .with_got(format!("version {}", head.version))
                .with_hint("use the version of Plait that wrote it, or a later one"));
        }
        serde_json::from_slice(text).map_err(damaged)
    }
}

/// Whether `id` can be that of a lease: 16 hexadecimal digits.
#[must_use]
pub(crate) fn is_id(id: &str) -> bool {
    id.len() == 16 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Orders files as they are read: folders by name, and in them files by name, or by the name of the
/// file in whose place they are read.
#[must_use]
pub(crate) fn place_order<'a>(a: &'a str, b: &'a str) -> std::cmp::Ordering {
    a.split('/').cmp(b.split('/'))
}

/// The root of the table that `folder` is, or is a part of: the nearest with manifests.
pub(super) fn root_of(folder: &Path) -> Option<PathBuf> {
    let whole = std::fs::canonicalize(folder).ok()?;
    let levels = whole.ancestors().position(|folder| folder.join(FOLDER).is_dir())?;
    // Spelled as the caller spelled it, where that is possible.
    let spelled = folder.ancestors().nth(levels).filter(|path| !path.as_os_str().is_empty());
    match spelled.filter(|path| path.join(FOLDER).is_dir()) {
        Some(path) => Some(path.to_owned()),
        None => whole.ancestors().nth(levels).map(Path::to_owned),
    }
}

/// The nearest table above `root`, and the name of `root` below it.
///
/// # Errors
/// [`Kind::Storage`].
pub(crate) fn table_around(root: &Root) -> Result<Option<(Root, String)>> {
    match root {
        Root::Local(path) => {
            let whole = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
            let above = whole.ancestors().skip(1).find(|folder| folder.join(FOLDER).is_dir());
            Ok(above.map(|folder| {
                let name = whole.strip_prefix(folder).unwrap_or(&whole).to_string_lossy();
                (Root::Local(folder.to_owned()), name.into_owned())
            }))
        }
        Root::Objects(place) => {
            let mut at = place.key();
            while !at.is_empty() {
                at = at.rsplit_once('/').map_or("", |(above, _)| above);
                let around = Root::Objects(place.with_key(at.to_owned()));
                match has_manifests(&around, FOLDER) {
                    Err(e) if e.what() == REFUSED => break,
                    Err(e) => return Err(e),
                    Ok(false) => {}
                    Ok(true) => {
                        let name = below(place.key(), at).unwrap_or_default().to_owned();
                        return Ok(Some((around, name)));
                    }
                }
            }
            Ok(None)
        }
    }
}

fn has_manifests(root: &Root, folder: &str) -> Result<bool> {
    let names = root.names(folder, false)?;
    Ok(names.iter().any(|name| root_above(&format!("/{name}")).is_some()))
}

/// The folders below `root` that have manifests of their own.
///
/// # Errors
/// [`Kind::Storage`].
pub(crate) fn tables_below(root: &Root) -> Result<BTreeSet<String>> {
    let names = root.names("", true)?;
    Ok(names.iter().filter_map(|name| root_above(name)).map(str::to_owned).collect())
}

/// Whether a folder between `root` and one of its files `names` has manifests of its own.
///
/// # Errors
/// [`Kind::Storage`].
pub(crate) fn any_in_table_below<'a>(
    root: &Root,
    names: impl Iterator<Item = &'a str>,
) -> Result<bool> {
    let sources = names.filter(|name| below(name, FOLDER).is_none());
    let folders: BTreeSet<&str> = sources
        .flat_map(|name| name.match_indices('/').filter_map(move |(at, _)| name.get(..at)))
        .collect();
    for folder in folders {
        if has_manifests(root, &format!("{folder}/{FOLDER}"))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Of the files `found` in `folder` those that count, in the order in which they are read.
pub(super) fn visible(root: &Path, folder: &Path, found: Vec<PathBuf>) -> Result<Vec<PathBuf>> {
    let manifest = Manifest::newest(&Root::Local(root.to_owned()))?;
    let whole = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (whole_root, whole_folder) = (whole(root), whole(folder));
    let part = whole_folder.strip_prefix(&whole_root).unwrap_or(Path::new(""));
    let replaced: BTreeSet<PathBuf> =
        manifest.replaced.iter().map(|replaced| whole_root.join(&replaced.path)).collect();
    let mut folders = BTreeMap::new();
    let mut is_replaced = |path: &Path| {
        // A link to a folder must not show again what was replaced in it.
        let parent = path.parent().map(Path::to_owned).unwrap_or_default();
        let parent = folders.entry(parent).or_insert_with_key(|parent| whole(parent));
        replaced.contains(&parent.join(path.file_name().unwrap_or_default()))
    };
    let mut all = Vec::new();
    for path in found {
        if !is_replaced(&path) {
            let name = part.join(path.strip_prefix(folder).unwrap_or(&path));
            all.push((name.to_string_lossy().into_owned(), true, path));
        }
    }
    for made in counting(&manifest, &part.to_string_lossy()) {
        all.push((made.place.clone(), false, root.join(&made.path)));
    }
    all.sort_by(|a, b| place_order(&a.0, &b.0).then_with(|| (a.1, &a.2).cmp(&(b.1, &b.2))));
    Ok(all.into_iter().map(|(_, _, path)| path).collect())
}

/// Files that compactions made of files in the folder `part`.
fn counting<'a>(manifest: &'a Manifest, part: &str) -> impl Iterator<Item = &'a Made> {
    let made = format!("{FOLDER}/files{}{part}", if part.is_empty() { "" } else { "/" });
    manifest.files.iter().filter(move |file| below(&file.path, &made).is_some())
}

/// The folder, below the one listed, that is a table because there is a manifest of this name.
pub(super) fn root_above(name: &str) -> Option<&str> {
    let at = name.find(&format!("/{FOLDER}/manifest-"))?;
    Manifest::number_of(name.get(at + 1..)?).and(name.get(..at))
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
        let visible = in_order(&manifest, "", within).into_iter();
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
    Ok(in_order(&manifest, part, names).iter().map(|(name, _)| root.below(name)).collect())
}

/// Of `names` in the folder `part` of a table those that count, as they are read.
fn in_order(manifest: &Manifest, part: &str, names: Vec<Placed>) -> Vec<Placed> {
    let replaced: BTreeSet<&str> = manifest.replaced.iter().map(|r| r.path.as_str()).collect();
    let counts = |(name, _): &Placed| !replaced.contains(name.as_str());
    let mut all: Vec<(bool, Placed)> =
        names.into_iter().filter(counts).map(|placed| (true, placed)).collect();
    let made = counting(manifest, part).map(|made| (made.path.clone(), made.place.clone()));
    all.extend(made.map(|placed| (false, placed)));
    all.sort_by(|(a_came, (a, a_place)), (b_came, (b, b_place))| {
        place_order(a_place, b_place).then_with(|| (a_came, a).cmp(&(b_came, b)))
    });
    all.into_iter().map(|(_, placed)| placed).collect()
}
