//! Reads and writes whole files of a folder by name, on disks and in object stores, for crates outside
//! of the engine.
//!
//! ```text
//! names · look · read · remove
//! put_new   bytes ──────────────▶ is the name free? ─ yes ─▶ a whole file, durable
//! create    NewFile ─ write … ─ close ─▶ the same, of any size
//!              └── dropped before that: nothing
//! replace   bytes ──────────────▶ a whole file in the place of another
//! ```
//!
//! # Invariants
//! A name stands for a whole file. A name stays below the folder: [`inside`] checks every one of
//! them. Only [`Folder::replace`] changes a file that is there. A lost answer is no failure of
//! [`put_new`], which compares the file that is there with the own bytes; [`NewFile::close`], whose
//! bytes are many, takes it for the file of another.
//!
//! # Cost
//! One request a call, two to read. A file of objects takes a request for every part, and three
//! more.
//!
//! # Not here
//! Which files count (`store::table`, `compact`); temp files and uploads (`output`).

use std::collections::BTreeMap;
use std::io::Write;

use plait_core::workers::Workers;
use plait_core::{Error, Kind, Result};
use serde::Deserialize;

use crate::guard::unwrap_io_error;
use crate::json::from_json;
use crate::output::{Target, TempFile, is_temp};
use crate::runtime::{Context, ScopedWorkers};
use crate::store::root::{Root, is_name};
use crate::store::{Completed, Found, Stores};

/// Which folder to open.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FolderOptions {
    /// The folder; a local one must be there.
    folder: String,
    /// Read by the border: bytes of memory to stay within.
    #[serde(rename = "memory_limit")]
    _memory_limit: Option<u64>,
    /// Read by the border: settings of object stores.
    #[serde(rename = "storage_options")]
    _storage_options: BTreeMap<String, String>,
}

/// A folder that is open.
pub struct Folder {
    root: Root,
    stores: Stores,
    context: Context,
}

impl Folder {
    /// Opens the folder that `options`, JSON, name.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] for options and locations that cannot be read,
    /// [`Kind::SourceNotFound`] for a local folder that is not there.
    pub fn open(options: &str, stores: &Stores, context: &Context) -> Result<Self> {
        let options: FolderOptions = from_json(options)?;
        let root = Root::open(&options.folder, stores)?;
        Ok(Self { root, stores: stores.clone(), context: context.clone() })
    }

    /// How callers write the file `name`.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] for a name that leads out of the folder, as for all names here.
    pub fn location(&self, name: &str) -> Result<String> {
        Ok(self.root.location(inside(name)?))
    }

    /// Names of all files in the folder `below` and in those below it, sorted.
    ///
    /// # Errors
    /// [`Kind::Storage`]. A folder that is absent is empty.
    pub fn names(&self, below: &str) -> Result<Vec<String>> {
        let folder = if below.is_empty() { below } else { inside(below)? };
        let mut names = self.root.names(folder, true)?;
        names.retain(|name| !is_temp(name));
        Ok(names)
    }

    /// How long files are, and when they were written; absent is `None`. Many objects are looked up
    /// at a time.
    ///
    /// # Errors
    /// [`Kind::Storage`].
    pub fn look(&self, names: &[&str]) -> Result<Vec<Option<Found>>> {
        let names = names.iter().map(|name| inside(name)).collect::<Result<Vec<_>>>()?;
        self.root.look_all(&names, &self.context)
    }

    /// All bytes of a small file; absent is `None`.
    ///
    /// # Errors
    /// [`Kind::Storage`].
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.root.read(inside(name)?)
    }

    /// Makes a small file unless there is one; whether it is there now with these very bytes.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for a store that cannot do both at once, [`Kind::Storage`].
    pub fn put_new(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        put_new(&self.root, inside(name)?, bytes, &self.stores, &self.context)
    }

    /// Makes a small file, in one step, in the place of one that may be there.
    ///
    /// # Errors
    /// [`Kind::Storage`].
    pub fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        match &self.root {
            Root::Local(_) => {
                let mut file = self.create(name)?;
                file.write(bytes)?;
                file.temp.sync()?;
                // A local file is always replaced: there is no other answer.
                let _ = file.temp.publish(&file.target, &file.name)?;
                file.target.sync()
            }
            Root::Objects(place) => {
                let place = place.below(inside(name)?);
                place.bucket().replace(place.key(), bytes.to_vec().into())
            }
        }
    }

    /// Removes files, many objects at a time; absent ones are no error.
    ///
    /// # Errors
    /// [`Kind::Storage`].
    pub fn remove(&self, names: &[&str]) -> Result<()> {
        let names = names.iter().map(|name| inside(name)).collect::<Result<Vec<_>>>()?;
        self.root.remove_all(&names, &self.context)
    }

    /// Begins a file of any size, whose name should be nobody else's.
    ///
    /// # Errors
    /// [`Kind::Storage`], [`Kind::Unsupported`] for a store that is only read.
    pub fn create(&self, name: &str) -> Result<NewFile> {
        create(&self.root, inside(name)?, &self.stores, &self.context)
    }

    fn workers(&self) -> ScopedWorkers {
        let is_local = matches!(self.root, Root::Local(_));
        ScopedWorkers::openers(is_local, None, &self.context)
    }
}

/// Waits for files of the folder: many objects at a time, and a local file on each processor.
impl Workers for Folder {
    fn count(&self) -> usize {
        self.workers().count()
    }

    fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        self.workers().run(count, task);
    }
}

/// A file while it is written; dropped before it is closed, it leaves nothing.
pub struct NewFile {
    temp: TempFile,
    target: Target,
    /// Without the folders in front.
    name: String,
}

impl NewFile {
    /// Writes the next bytes.
    ///
    /// # Errors
    /// [`Kind::Storage`].
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.temp.write_all(bytes).map_err(unwrap_io_error)
    }

    /// Makes the file durable and gives it its name.
    ///
    /// # Errors
    /// [`Kind::OutputExists`] if there is one of that name, [`Kind::Storage`].
    pub fn close(mut self) -> Result<()> {
        self.temp.sync()?;
        match self.temp.publish_new(&self.target, &self.name)? {
            Completed::Yes => self.target.sync(),
            Completed::Occupied => {
                Err(Error::new(Kind::OutputExists, "there is a file of this name")
                    .with_path(self.target.location(&self.name)))
            }
        }
    }
}

/// Puts a small file under a name that nobody has; false if somebody else has it. Who puts the same
/// bytes is nobody else.
///
/// # Errors
/// As [`Folder::put_new`].
pub(crate) fn put_new(
    root: &Root,
    name: &str,
    bytes: &[u8],
    stores: &Stores,
    context: &Context,
) -> Result<bool> {
    let put = match root {
        Root::Local(_) => {
            let mut file = create(root, name, stores, context)?;
            file.write(bytes)?;
            file.temp.sync()?;
            // Over NFS, our own link may have been made by a request whose answer was lost.
            Ok(match file.temp.publish_once(&file.target, &file.name)? {
                Completed::Yes => file.target.sync().map(|()| Completed::Yes)?,
                Completed::Occupied => Completed::Occupied,
            })
        }
        Root::Objects(place) => {
            let place = place.below(name);
            place.bucket().put_new(place.key(), bytes.to_vec().into())
        }
    };
    match put {
        Ok(Completed::Yes) => Ok(true),
        Err(e) if e.kind() != Kind::Storage => Err(e),
        // Somebody was faster, or the answer to our own request was lost.
        outcome => match (root.read(name)?, outcome) {
            (Some(there), _) => Ok(there == bytes),
            (None, Err(e)) => Err(e),
            (None, Ok(_)) => Ok(false),
        },
    }
}

fn create(root: &Root, name: &str, stores: &Stores, context: &Context) -> Result<NewFile> {
    let (folder, name) = name.rsplit_once('/').unwrap_or(("", name));
    let mut location = root.location(folder);
    // A folder, whatever its name ends in.
    if !location.ends_with('/') {
        location.push('/');
    }
    let target = Target::open(&location, stores, context)?;
    Ok(NewFile { temp: target.create(name)?, target, name: name.to_owned() })
}

/// The name, if it stays below the folder.
fn inside(name: &str) -> Result<&str> {
    if is_name(name) {
        return Ok(name);
    }
    Err(Error::new(Kind::InvalidArgument, "this is no name of a file below the folder")
        .with_got(format!("`{name}`"))
        .with_hint("no part of it may be empty, `.` or `..`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::root::tests::{Twins, twins};

    #[test]
    fn a_file_is_there_whole_or_not_at_all_on_disks_and_in_buckets() {
        let Twins { dir, roots } = twins("folder");
        for (root, stores, context) in roots {
            let folder = Folder { root, stores, context };
            assert!(folder.put_new("a/x %.json", b"1").unwrap());
            assert!(folder.put_new("a/x %.json", b"1").unwrap(), "the own bytes");
            assert!(!folder.put_new("a/x %.json", b"2").unwrap());
            assert_eq!(folder.read("a/x %.json").unwrap().unwrap(), b"1");
            folder.replace("a/x %.json", b"22").unwrap();
            assert_eq!(folder.read("a/x %.json").unwrap().unwrap(), b"22");
            let mut file = folder.create("a/é.parquet").unwrap();
            file.write(b"whole").unwrap();
            assert!(folder.look(&["a/é.parquet"]).unwrap()[0].is_none());
            assert_eq!(folder.names("").unwrap(), ["a/x %.json"]);
            let mut other = folder.create("a/é.parquet").unwrap();
            other.write(b"other").unwrap();
            file.close().unwrap();
            assert_eq!(other.close().unwrap_err().kind(), Kind::OutputExists);
            assert_eq!(folder.read("a/é.parquet").unwrap().unwrap(), b"whole");
            folder.create("a/b.parquet/dropped").unwrap().write(b"half").unwrap();
            assert!(folder.put_new("empty", b"").unwrap());
            assert_eq!(folder.names("").unwrap(), ["a/x %.json", "a/é.parquet", "empty"]);
            folder.remove(&["empty", "absent"]).unwrap();
            folder.remove(&["empty"]).unwrap();
            assert!(folder.look(&["a/é.parquet", "empty"]).unwrap()[1].is_none());
            assert_eq!(folder.names("a").unwrap().len(), 2);
            for name in ["", "../x", "/x", "a//b", "a/.."] {
                assert_eq!(folder.put_new(name, b"").unwrap_err().kind(), Kind::InvalidArgument);
                assert!(folder.create(name).is_err() && folder.remove(&[name]).is_err());
            }
        }
        std::fs::remove_dir_all(dir).unwrap();
    }
}
