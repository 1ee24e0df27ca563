//! A folder with a manifest: which of its files count.
//!
//! ```text
//! sales/day=1/a.parquet              replaced: does not count, until it is removed
//! sales/day=1/b.parquet              replaced: what was made of a and b is read in its place
//! sales/day=1/c.parquet              counts, as it would without a manifest
//! sales/_plait/manifest-00000002.json
//! sales/_plait/files/day=1/part-….parquet     counts, because the manifest names it
//! sales/day=1/b.part-….parquet                where it is moved to: does not count before it has moved
//! ```
//!
//! # Invariants
//! The manifest with the greatest number counts. A number is given once: manifests are put where
//! there is none. Files that nobody replaced count, whenever they came. A folder is listed before
//! its manifest is read: what is not in the list was removed, and a manifest from before that
//! replaced it.
//!
//! # Not here
//! Lists of what counts (`live`); writing manifests (`compact`); their members (`docs/formats/manifest.md`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plait_core::workers::each;
use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

pub(crate) use super::moved::{MADE, is_visible};
use super::moved::{ends_in, folder_of};
use super::reader::REFUSED;
use super::root::{Root, below, is_name};
use crate::runtime::Context;

/// The folder of manifests and of files that compactions made, below the root.
pub(crate) const FOLDER: &str = "_plait";

/// Names of files are no longer, on all file systems.
const NAME_BYTES_MAX: usize = 255;

/// Version of the layout: that of manifests with moves. Version 2 was without them, version 1 without
/// leases, too.
const VERSION: u32 = 3;

/// What a manifest says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    /// `plait.manifest`.
    pub(crate) format: String,
    /// 3; 2 was without moves, 1 without leases.
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
    /// Whoever exchanges the folder: nobody else puts a manifest until it is done, or gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) exchange: Option<Lease>,
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
    /// Where it is being moved to, if it is: what is there does not count before it has moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<String>,
    /// The commit since which it holds the rows of files that were replaced: theirs is the same.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) group: u64,
}

impl Made {
    /// The name by which it is ordered: that of a file that replaced none is its own.
    #[must_use]
    pub(crate) fn position(&self) -> &str {
        below(&self.place, MADE).unwrap_or(&self.place)
    }

    /// Whether it is the file `name`, or has been moved from there: names of outputs are unique.
    #[must_use]
    pub(crate) fn is(&self, name: &str) -> bool {
        let is_moved = || {
            let folders = (folder_of(&self.path), below(name, MADE).map(folder_of));
            is_visible(&self.path) && folders.1 == Some(folders.0) && ends_in(&self.path, name)
        };
        self.path == name || is_moved()
    }
}

fn is_zero(group: &u64) -> bool {
    *group == 0
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
    /// Files of this group hold its rows.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) group: u64,
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
    pub(super) fn among(root: &Root, names: &[String]) -> Result<Option<Self>> {
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
        let is_made = |name: &str| below(name, MADE).is_some();
        let mut seen = BTreeSet::new();
        let made = self.files.iter().map(|made| &made.path);
        let to = self.files.iter().filter_map(|made| made.to.as_ref());
        let replaced = self.replaced.iter().map(|replaced| &replaced.path);
        for name in made.clone().chain(to.clone()).chain(replaced) {
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
        let bad = bad.or(self.exchange.as_ref().filter(|lease| !is_id(&lease.id)));
        if let Some(lease) = bad {
            return Some(format!("the lease `{}`", lease.id));
        }
        // Before there were moves, all files were there.
        let may_be = |name: &str| self.version > 2 && is_visible(name) || is_made(name);
        if let Some(name) = made.into_iter().find(|name| !may_be(name)) {
            return Some(format!("`{name}` outside of {MADE}"));
        }
        let strange = to.into_iter().find(|name| !is_visible(name));
        strange.map(|name| format!("`{name}`, where it is hidden"))
    }

    /// Where every program sees `made`: a name that nobody has, next to the one it is read in place
    /// of. `hour-3.parquet` and `part-0-x.parquet` make `hour-3.part-0-x.parquet`, which all other
    /// names follow or precede as they do the former.
    #[must_use]
    pub(crate) fn visible_name(made: &Made) -> Option<String> {
        let name = below(&made.path, MADE)?;
        let (folder, own) = (folder_of(name), name.rsplit('/').next()?);
        let place = made.position();
        let stem = place.rsplit('/').next().and_then(|last| last.strip_suffix(".parquet"));
        // Of what was merged again, the name stays as long as it was.
        let stem = stem.map(|stem| stem.split_once(".part-").map_or(stem, |(stem, _)| stem));
        let is_beside = folder_of(place) == folder && place != name;
        let own = match stem.filter(|_| is_beside).map(|stem| format!("{stem}.{own}")) {
            Some(beside) if beside.len() <= NAME_BYTES_MAX => beside,
            _ => own.to_owned(),
        };
        Some(if folder.is_empty() { own } else { format!("{folder}/{own}") })
    }

    /// Files that do not count, by name: those that were replaced, and those that live ones are being
    /// moved to.
    pub(super) fn hidden(&self) -> impl Iterator<Item = &str> {
        let to = self.files.iter().filter_map(|made| made.to.as_deref());
        self.replaced.iter().map(|replaced| replaced.path.as_str()).chain(to)
    }

    /// Whether the file `name` that a compaction made counts, wherever it is now.
    #[must_use]
    pub(crate) fn holds(&self, name: &str) -> bool {
        self.files.iter().any(|made| made.is(name))
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
        made.map_or_else(|| below(name, MADE).unwrap_or(name), Made::position)
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
    context: &Context,
) -> Result<bool> {
    let sources = names.filter(|name| below(name, FOLDER).is_none());
    let folders: BTreeSet<&str> = sources
        .flat_map(|name| name.match_indices('/').filter_map(move |(at, _)| name.get(..at)))
        .collect();
    let folders: Vec<&str> = folders.into_iter().collect();
    let found = each(&root.workers(context), folders.len(), |i| {
        context.check_cancelled()?;
        has_manifests(root, &format!("{}/{FOLDER}", folders[i]))
    })?;
    Ok(found.contains(&true))
}

/// The folder, below the one listed, that is a table because there is a manifest of this name.
pub(super) fn root_above(name: &str) -> Option<&str> {
    let at = name.find(&format!("/{FOLDER}/manifest-"))?;
    Manifest::number_of(name.get(at + 1..)?).and(name.get(..at))
}
