//! A folder that is compacted, wherever it lies: the files below it, by their names.
//!
//! ```text
//! location   s3://bucket/events/day%3D1/a.parquet      events/day=1/a.parquet
//! root       s3://bucket/events                        events
//! name                          day=1/a.parquet               day=1/a.parquet
//! ```
//!
//! # Invariants
//! A name has no `.`, `..` or empty part: nothing outside of the root is read or removed by a name
//! that a manifest gives.
//!
//! # Not here
//! Which files count (`table`); writing outputs (`output`).

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use plait_core::workers::each;
use plait_core::{Error, Kind, Result};

use super::bucket::Place;
use super::coalesce::TAIL_BYTES;
use super::local::{storage_error, version_of};
use super::registry::{Location, Stores};
use crate::runtime::{Context, ScopedWorkers};

/// The folder.
#[derive(Clone)]
pub(crate) enum Root {
    /// A local folder, as the caller spelled it.
    Local(PathBuf),
    /// A prefix of a bucket.
    Objects(Place),
}

/// A file below a root.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its length.
    pub bytes: u64,
    /// When it was written, if that is known.
    pub written_at: Option<SystemTime>,
    /// What the storage says of this version of the file: when it was written, or its entity tag.
    pub version: Option<String>,
}

impl Root {
    /// The folder at `location`. A local one must exist; objects have no folders that could.
    ///
    /// # Errors
    /// [`Kind::SourceNotFound`], and what [`Stores::locate`] gives.
    pub(crate) fn open(location: &str, stores: &Stores) -> Result<Self> {
        match stores.locate(location)? {
            Location::Local(path) if path.is_dir() => Ok(Self::Local(path)),
            Location::Local(path) if path.exists() => {
                Err(Error::new(Kind::InvalidArgument, "this is a file, and not a folder")
                    .with_path(location)
                    .with_hint("name the folder that has the file"))
            }
            Location::Local(_) => Err(Error::new(Kind::SourceNotFound, "there is no such folder")
                .with_path(location)
                .with_hint("check the path; relative paths start at the working directory")),
            Location::Object(place) => Ok(Self::Objects(place)),
        }
    }

    /// How callers write `name`, or the root itself if it is empty.
    #[must_use]
    pub(crate) fn location(&self, name: &str) -> String {
        match (self, name) {
            (Self::Local(root), "") => root.to_string_lossy().into_owned(),
            (Self::Local(root), name) => root.join(name).to_string_lossy().into_owned(),
            (Self::Objects(place), "") => place.location(),
            (Self::Objects(place), name) => place.below(name).location(),
        }
    }

    /// The name of the file at `location`, if it is below the root.
    ///
    /// # Errors
    /// As [`Stores::locate`].
    pub(crate) fn name_of(&self, location: &str, stores: &Stores) -> Result<Option<String>> {
        let name = match (self, stores.locate(location)?) {
            (Self::Local(root), Location::Local(path)) => {
                path.strip_prefix(root).ok().map(|name| name.to_string_lossy().into_owned())
            }
            (Self::Objects(root), Location::Object(place)) => {
                let is_same = root.with_key(place.key().to_owned()).location() == place.location();
                below(place.key(), root.key()).filter(|_| is_same).map(str::to_owned)
            }
            _ => None,
        };
        Ok(name.filter(|name| is_name(name)))
    }

    /// Names of what is in the folder `folder`, sorted; with `deep`, in folders below it, too.
    ///
    /// # Errors
    /// [`Kind::Storage`]. A folder that is absent is empty.
    pub(crate) fn names(&self, folder: &str, deep: bool) -> Result<Vec<String>> {
        let mut names = Vec::new();
        match self {
            Self::Local(root) => local_names(root, folder, deep, &mut names)?,
            Self::Objects(place) => {
                for key in place.bucket().list(place.below(folder).key(), deep)? {
                    names.extend(below(&key, place.key()).map(str::to_owned));
                }
            }
        }
        names.sort();
        Ok(names)
    }

    /// Looks a file up.
    ///
    /// # Errors
    /// [`Kind::Storage`].
    pub(crate) fn look(&self, name: &str) -> Result<Option<Found>> {
        match self {
            Self::Local(root) => match std::fs::symlink_metadata(root.join(name)) {
                Ok(file) => {
                    // A link is as long as the file that it names, and as old as itself.
                    let linked = file.is_symlink().then(|| std::fs::metadata(root.join(name)));
                    let read = linked.and_then(Result::ok);
                    let read = read.as_ref().unwrap_or(&file);
                    Ok(Some(Found {
                        bytes: read.len(),
                        written_at: file.modified().ok(),
                        version: read.modified().ok().and_then(version_of),
                    }))
                }
                Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
                Err(e) => Err(storage_error(e, &self.location(name))),
            },
            Self::Objects(place) => {
                let meta = place.bucket().head(place.below(name).key())?;
                Ok(meta.map(|meta| Found {
                    bytes: meta.len,
                    written_at: meta.modified_at,
                    version: meta.version(),
                }))
            }
        }
    }

    /// Looks files up.
    ///
    /// # Errors
    /// As [`look`](Self::look).
    pub(crate) fn look_all(&self, names: &[&str], context: &Context) -> Result<Vec<Option<Found>>> {
        each(&self.workers(context), names.len(), |i| {
            context.check_cancelled()?;
            self.look(names[i])
        })
    }

    /// Removes files; absent ones are no error.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    pub(crate) fn remove_all(&self, names: &[&str], context: &Context) -> Result<()> {
        each(&self.workers(context), names.len(), |i| {
            context.check_cancelled()?;
            self.remove(names[i])
        })?;
        Ok(())
    }

    /// Workers for many small requests: local files are looked up one by one.
    #[must_use]
    pub(crate) fn workers(&self, context: &Context) -> ScopedWorkers {
        match self {
            Self::Local(_) => ScopedWorkers::of_files(Some(1), context.budget()),
            Self::Objects(_) => ScopedWorkers::of_new_objects(None, context.budget()),
        }
    }

    /// All bytes of a small file; absent is `None`.
    ///
    /// # Errors
    /// [`Kind::Storage`].
    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        match self {
            Self::Local(root) => match std::fs::read(root.join(name)) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
                Err(e) => Err(storage_error(e, &self.location(name))),
            },
            Self::Objects(place) => {
                let place = place.below(name);
                let bucket = place.bucket();
                let Some((meta, tail)) = bucket.open(place.key(), TAIL_BYTES)? else {
                    return Ok(None);
                };
                if tail.len() as u64 == meta.len {
                    return Ok(Some(tail.into()));
                }
                bucket.read(place.key(), 0..meta.len, &meta).map(|bytes| Some(bytes.into()))
            }
        }
    }

    /// Whether the file `name` is reached through a link to a folder, and so may be elsewhere.
    #[must_use]
    pub(crate) fn is_behind_link(&self, name: &str) -> bool {
        let Self::Local(root) = self else { return false };
        let folders = Path::new(name).ancestors().skip(1);
        folders.filter(|folder| !folder.as_os_str().is_empty()).any(|f| root.join(f).is_symlink())
    }

    /// Gives the local file `from` a second name, durably; false if it is absent. A second name that
    /// it has is no error. Objects have one name: see [`Bucket::copy`](super::Bucket::copy).
    ///
    /// # Errors
    /// [`Kind::Storage`], also for another file of that name.
    pub(crate) fn link(&self, from: &str, to: &str) -> Result<bool> {
        let Self::Local(root) = self else {
            return Err(Error::new(Kind::Internal, "objects have one name"));
        };
        let (source, target) = (root.join(from), root.join(to));
        let failed = |e| storage_error(e, &self.location(to));
        let folder = target.parent().unwrap_or(root);
        std::fs::create_dir_all(folder).map_err(failed)?;
        match std::fs::hard_link(&source, &target) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                let of =
                    |path: &Path| std::fs::symlink_metadata(path).ok().map(|m| (m.dev(), m.ino()));
                match (of(&source), of(&target)) {
                    (None, _) => return Ok(false),
                    (source, target) if source == target => {}
                    _ => {
                        let what = "another file has the name that a file is to get";
                        return Err(Error::new(Kind::Storage, what)
                            .with_path(self.location(to))
                            .with_hint("rename or remove it"));
                    }
                }
            }
            linked => linked.map_err(failed)?,
        }
        sync_folder(folder).map_err(failed)?;
        Ok(true)
    }

    /// Removes the local folder `folder` and those in it, as far as they are empty.
    pub(crate) fn remove_empty(&self, folder: &str) {
        let Self::Local(root) = self else { return };
        remove_empty(&root.join(folder));
    }

    /// Removes a file; an absent one is no error.
    ///
    /// # Errors
    /// [`Kind::Storage`].
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        match self {
            Self::Local(root) => match std::fs::remove_file(root.join(name)) {
                Err(e) if e.kind() != ErrorKind::NotFound => {
                    Err(storage_error(e, &self.location(name)))
                }
                _ => Ok(()),
            },
            Self::Objects(place) => place.bucket().remove(place.below(name).key()),
        }
    }
}

/// Whether `name` stays below the root that it is joined to.
pub(crate) fn is_name(name: &str) -> bool {
    !name.contains('\0') && name.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// What of `key` is below the folder `folder`.
pub(super) fn below<'a>(key: &'a str, folder: &str) -> Option<&'a str> {
    match folder {
        "" => Some(key),
        folder => key.strip_prefix(folder)?.strip_prefix('/'),
    }
}

#[expect(clippy::disallowed_methods, reason = "a folder, whose names become durable")]
pub(super) fn sync_folder(folder: &Path) -> std::io::Result<()> {
    std::fs::File::open(folder)?.sync_all()
}

fn remove_empty(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_empty(&entry.path());
        }
    }
    // What is not empty stays.
    let _ = std::fs::remove_dir(folder);
}

/// Symbolic links are names, and are not followed: what is behind them may be elsewhere.
fn local_names(root: &Path, folder: &str, deep: bool, names: &mut Vec<String>) -> Result<()> {
    let path = root.join(folder);
    let failed = |e| storage_error(e, &path.to_string_lossy());
    let entries = match std::fs::read_dir(&path) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(failed(e)),
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        // What is not Unicode is no name that Plait gave.
        let Some(own) = entry.file_name().to_str().map(str::to_owned) else { continue };
        let name = if folder.is_empty() { own } else { format!("{folder}/{own}") };
        match entry.file_type().map_err(failed)?.is_dir() {
            true if deep => local_names(root, &name, deep, names)?,
            true => {}
            false => names.push(name),
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::runtime::Context;
    use crate::store::remote::tests::memory;

    /// An empty local folder, and a root in it and one in an empty bucket.
    pub(crate) struct Twins {
        pub(crate) dir: PathBuf,
        pub(crate) roots: Vec<(Root, Stores, Context)>,
    }

    pub(crate) fn twins(name: &str) -> Twins {
        let dir = std::env::temp_dir().join(format!("plait-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let context = Context::new(1 << 24);
        let bucket = Stores::with_bucket(&Default::default(), memory(&[]), &context).unwrap();
        let local = Stores::try_new(&Default::default(), &context).unwrap();
        let roots = [("t", bucket), (dir.to_str().unwrap(), local)];
        let open = |(at, stores)| (Root::open(at, &stores).unwrap(), stores, context.clone());
        Twins { roots: roots.map(open).into(), dir }
    }

    #[test]
    fn objects_and_files_have_the_same_names() {
        let bucket = memory(&[("t/_plait/m", b"m"), ("t/d=1/a b", b"x"), ("tt/c", b"y")]);
        let context = Context::new(1 << 24);
        let stores = Stores::with_bucket(&Default::default(), bucket, &context).unwrap();
        let dir = std::env::temp_dir().join(format!("plait-root-{}", std::process::id()));
        for name in ["_plait", "d=1"] {
            std::fs::create_dir_all(dir.join(name)).unwrap();
        }
        std::fs::write(dir.join("_plait/m"), b"m").unwrap();
        std::fs::write(dir.join("d=1/a b"), b"x").unwrap();
        let local = Stores::try_new(&Default::default(), &context).unwrap();
        for (at, stores) in [("t", &stores), (dir.to_str().unwrap(), &local)] {
            let root = Root::open(at, stores).unwrap();
            assert_eq!(root.names("", true).unwrap(), ["_plait/m", "d=1/a b"]);
            assert_eq!(root.names("_plait", false).unwrap(), ["_plait/m"]);
            assert!(root.names("none", true).unwrap().is_empty());
            let name = root.name_of(&root.location("d=1/a b"), stores).unwrap();
            assert_eq!(name.as_deref(), Some("d=1/a b"));
            assert_eq!(root.name_of("elsewhere/c", stores).unwrap(), None);
            assert_eq!(root.look("d=1/a b").unwrap().unwrap().bytes, 1);
            assert_eq!(root.read("_plait/m").unwrap().unwrap(), b"m");
            root.remove("_plait/m").unwrap();
            root.remove("_plait/m").unwrap();
            assert!(root.read("_plait/m").unwrap().is_none());
            assert!(root.look("_plait/m").unwrap().is_none());
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn names_stay_below() {
        assert!(["a", "a/b c/d=1", "..a", "_plait/files/ü"].into_iter().all(is_name));
        assert!(!["", "/a", "a/", "a//b", "../a", "a/../../b", "."].into_iter().any(is_name));
    }
}
