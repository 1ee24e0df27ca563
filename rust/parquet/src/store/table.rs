//! A folder with a manifest: which of its files count.
//!
//! ```text
//! sales/day=1/a.parquet              replaced: does not count, until it is removed
//! sales/day=1/b.parquet              counts, as it would without a manifest
//! sales/_plait/manifest-00000002.json
//! sales/_plait/files/day=1/part-….parquet     counts, because the manifest names it
//! ```
//!
//! # Invariants
//! The manifest with the greatest number counts. A number is given once: manifests are put where there
//! is none. Files that nobody replaced count, whenever they came.
//!
//! # Not here
//! Writing manifests (`compact`); their members (`docs/formats/manifest.md`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use super::local::storage_error;

/// The folder of manifests and of files that compactions made, below the root.
pub const FOLDER: &str = "_plait";

/// Version of the layout.
const VERSION: u32 = 1;

/// What a manifest says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// `plait.manifest`.
    pub format: String,
    /// 1.
    pub version: u32,
    /// Its number; 0 before there is one.
    pub number: u64,
    /// Files that compactions made and that count, by their path below the root.
    pub files: Vec<String>,
    /// Files that do not count any more.
    pub replaced: Vec<Replaced>,
}

/// A file that was replaced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replaced {
    /// Its path below the root.
    pub path: String,
    /// When, in seconds since 1970.
    pub since: f64,
}

impl Manifest {
    /// The manifest of a folder without one.
    #[must_use]
    pub fn none() -> Self {
        Self { format: "plait.manifest".into(), version: VERSION, ..Self::default() }
    }

    /// The name of manifest `number`.
    #[must_use]
    pub fn name(number: u64) -> String {
        format!("manifest-{number:08}.json")
    }

    /// The newest manifest of the folder `root`.
    ///
    /// # Errors
    /// [`Kind::CorruptSource`] for one that does not parse, [`Kind::Unsupported`] for one of another
    /// version, [`Kind::Storage`].
    pub fn newest(root: &Path) -> Result<Self> {
        let folder = root.join(FOLDER);
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Self::none()),
            Err(e) => return Err(storage_error(e, &folder.to_string_lossy())),
        };
        let number = |name: &str| -> Option<u64> {
            name.strip_prefix("manifest-")?.strip_suffix(".json")?.parse().ok()
        };
        let mut newest = None;
        for entry in entries {
            let entry = entry.map_err(|e| storage_error(e, &folder.to_string_lossy()))?;
            newest = newest.max(number(&entry.file_name().to_string_lossy()));
        }
        let Some(newest) = newest else { return Ok(Self::none()) };
        let path = folder.join(Self::name(newest));
        let text = std::fs::read(&path).map_err(|e| storage_error(e, &path.to_string_lossy()))?;
        Self::parse(&text).map_err(|e| e.with_path(path.to_string_lossy()))
    }

    fn parse(text: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        let damaged = |e: serde_json::Error| {
            Error::new(Kind::CorruptSource, "cannot read the manifest").with_cause(e)
        };
        let head: Head = serde_json::from_slice(text).map_err(damaged)?;
        if head.version != VERSION {
            return Err(Error::new(Kind::Unsupported, "the manifest is of another version")
                .with_got(format!("version {}", head.version))
                .with_hint("use the version of Plait that wrote it, or a later one"));
        }
        serde_json::from_slice(text).map_err(damaged)
    }
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

/// Of the files `found` in `folder` those that count, after those of the manifest, which are older.
pub(super) fn visible(root: &Path, folder: &Path, found: Vec<PathBuf>) -> Result<Vec<PathBuf>> {
    let manifest = Manifest::newest(root)?;
    let whole = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (whole_root, whole_folder) = (whole(root), whole(folder));
    let below = whole_folder.strip_prefix(&whole_root).unwrap_or(Path::new("")).to_owned();
    let replaced: BTreeSet<PathBuf> =
        manifest.replaced.iter().map(|replaced| whole_root.join(&replaced.path)).collect();
    let made = Path::new(FOLDER).join("files").join(&below);
    let mut names: Vec<&String> =
        manifest.files.iter().filter(|name| Path::new(name).starts_with(&made)).collect();
    names.sort();
    let mut all: Vec<PathBuf> = names.into_iter().map(|name| root.join(name)).collect();
    all.extend(found.into_iter().filter(|path| {
        let folder = path.parent().map(whole).unwrap_or_default();
        !replaced.contains(&folder.join(path.file_name().unwrap_or_default()))
    }));
    Ok(all)
}
