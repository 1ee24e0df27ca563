//! Where outputs are written: invisible until all are whole, then named one after the other.
//!
//! ```text
//! create ─▶ TempFile ─ write … ─▶ sync ─▶ publish
//!   local.rs     .plait-tmp-*                rename
//!   object.rs    multipart upload            complete, unless there is an object
//! ```
//!
//! # Invariants
//! Only this module creates files. A visible name always stands for a whole file. What is dropped
//! unpublished is removed, or aborted.
//!
//! # Not here
//! What is in the files (`sink`); requests (`store`).

mod early;
mod folders;
mod local;
mod lock;
mod nest;
mod object;

use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plait_core::{Error, Kind, Result};

use crate::runtime::{Context, ScopedWorkers};
use crate::store::{Completed, Location, ObjectVersion, RangeReader, Stores};
use folders::OutputFolders;
pub(crate) use local::{is_temp, storage};
pub use lock::Sign;
pub(crate) use lock::{Alive, Lock, machine};

/// A folder that outputs are published to.
pub(crate) struct Target {
    place: OutputPlace,
    /// Set when the caller named one output file.
    file_name: Option<String>,
    /// Whether outputs are read again before they are published.
    keeps_copies: bool,
    /// Where temp files lie, if there may be many.
    nest: Option<nest::Nest>,
    context: Context,
}

enum OutputPlace {
    Local(local::LocalFolder),
    Objects(object::Prefix),
    /// Bytes are counted and dropped.
    Nowhere,
}

/// Endings of files that hold something else than Parquet.
const OTHER_ENDINGS: [&str; 28] = [
    "arrow", "arrows", "avro", "bz2", "csv", "duckdb", "feather", "gz", "h5", "hdf5", "ipc",
    "json", "jsonl", "ndjson", "npy", "npz", "orc", "parq", "pq", "sqlite", "tar", "tsv", "txt",
    "xls", "xlsx", "xz", "zip", "zst",
];

/// A folder that is not there yet must not look like a file: whoever names one wants a file.
fn check_ending(out: &str) -> Result<()> {
    let name = out.rsplit('/').next().unwrap_or_default();
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending).to_ascii_lowercase();
    let is_other = OTHER_ENDINGS.contains(&ending.as_str());
    if !is_other && (ending != "parquet" || name.ends_with(".parquet")) {
        return Ok(());
    }
    let what = match is_other {
        true => "the output ends like a file of another format",
        false => "the output ends almost like a Parquet file",
    };
    Err(Error::new(Kind::InvalidArgument, what).with_path(out).with_hint(
        "end the path in `.parquet` for one file, or in `/` for a folder with such a name",
    ))
}

impl Target {
    /// Opens the folder `out`, or the folder of the file `out` if that ends in `.parquet`, and not
    /// in a slash behind it. A local one is made if it is missing. Temp files whose owner is gone
    /// are swept: in that folder, or for objects in the temporary folder of the system.
    ///
    /// # Errors
    /// [`Kind::Storage`] when the folder cannot be made or written, [`Kind::InvalidArgument`] for a
    /// invalid location.
    pub(crate) fn open(out: &str, stores: &Stores, context: &Context) -> Result<Self> {
        if out.is_empty() {
            return Err(Error::new(Kind::InvalidArgument, "output path is empty"));
        }
        let location = stores.locate(out)?;
        let is_folder = matches!(&location, Location::Local(path) if path.is_dir());
        if !is_folder {
            check_ending(out)?;
        }
        let (place, file_name) = match location {
            Location::Local(path) => {
                let (folder, name) = local::LocalFolder::open(&path, out.ends_with('/'), context)?;
                (OutputPlace::Local(folder), name)
            }
            Location::Object(place) => {
                let (prefix, name) = object::Prefix::open(place, out.ends_with('/'));
                (OutputPlace::Objects(prefix), name)
            }
        };
        let context = context.clone();
        let target = Self { place, file_name, keeps_copies: false, nest: None, context };
        let scratch = target.scratch();
        local::sweep(&scratch);
        nest::sweep(&scratch);
        Ok(target)
    }

    /// Outputs that nobody needs: their bytes are counted.
    pub(crate) fn nowhere(context: &Context) -> Self {
        let (place, context) = (OutputPlace::Nowhere, context.clone());
        Self { place, file_name: None, keeps_copies: false, nest: None, context }
    }

    /// The same, with outputs that can be read again before they are published.
    #[must_use]
    pub(crate) fn with_copies(mut self, keeps_copies: bool) -> Self {
        self.keeps_copies = keeps_copies;
        self
    }

    /// The same, with outputs that are not open any more once they are whole.
    ///
    /// # Errors
    /// [`Kind::Storage`].
    pub(crate) fn with_nest(mut self) -> Result<Self> {
        match nest::Nest::make(&self.scratch(), &self.context) {
            Ok(nest) => self.nest = Some(nest),
            Err(e) => {
                self.abandon();
                return Err(e);
            }
        }
        Ok(self)
    }

    /// A local folder for what does not fit into memory.
    #[must_use]
    pub(crate) fn scratch(&self) -> PathBuf {
        match &self.place {
            OutputPlace::Local(folder) => folder.dir().to_owned(),
            OutputPlace::Objects(_) | OutputPlace::Nowhere => std::env::temp_dir(),
        }
    }

    /// The name of the one output file, if the caller chose it.
    #[must_use]
    pub(crate) fn file_name(&self) -> Option<&str> {
        self.file_name.as_deref()
    }

    /// Where an output called `name` is.
    #[must_use]
    pub(crate) fn location(&self, name: &str) -> String {
        match &self.place {
            OutputPlace::Local(folder) => folder.dir().join(name).display().to_string(),
            OutputPlace::Objects(prefix) => prefix.location(name),
            OutputPlace::Nowhere => name.to_owned(),
        }
    }

    /// Whether there is a file called `name`.
    ///
    /// # Errors
    /// [`Kind::Storage`] when it cannot be looked up.
    pub(crate) fn exists(&self, name: &str) -> Result<bool> {
        match &self.place {
            OutputPlace::Local(folder) => Ok(folder.dir().join(name).exists()),
            OutputPlace::Objects(prefix) => prefix.exists(name),
            OutputPlace::Nowhere => Ok(false),
        }
    }

    /// Names of the visible Parquet files in the folder, sorted.
    ///
    /// # Errors
    /// [`Kind::Storage`] when the folder cannot be listed.
    pub(crate) fn visible(&self) -> Result<Vec<String>> {
        let mut names = match &self.place {
            OutputPlace::Local(folder) => folder.visible()?,
            OutputPlace::Objects(prefix) => prefix.names()?,
            OutputPlace::Nowhere => Vec::new(),
        };
        names.retain(|name| name.ends_with(".parquet") && !name.starts_with(['.', '_']));
        names.sort();
        Ok(names)
    }

    /// Names of the visible Parquet files in the folder and in those below, sorted, with the folders
    /// that they lie in.
    ///
    /// # Errors
    /// [`Kind::Storage`] when a folder cannot be listed.
    pub(crate) fn visible_below(&self) -> Result<Vec<String>> {
        let mut names = match &self.place {
            OutputPlace::Local(folder) => return folder.visible_below(),
            OutputPlace::Objects(prefix) => prefix.names_below()?,
            OutputPlace::Nowhere => Vec::new(),
        };
        let is_hidden = |name: &str| name.split('/').any(|step| step.starts_with(['.', '_']));
        names.retain(|name| name.ends_with(".parquet") && !is_hidden(name));
        names.sort();
        Ok(names)
    }

    /// Workers that give outputs their names: files one after the other, many objects at a time.
    pub(crate) fn workers(&self) -> ScopedWorkers {
        let are_files = !matches!(self.place, OutputPlace::Objects(_));
        ScopedWorkers::openers(are_files, are_files.then_some(1), &self.context)
    }

    /// Makes the folders in which `names` lie below this one.
    ///
    /// # Errors
    /// [`Kind::Storage`]; then no folder was made.
    pub(crate) fn make_folders<'a>(
        &self,
        names: impl Iterator<Item = &'a str>,
    ) -> Result<OutputFolders> {
        match &self.place {
            OutputPlace::Local(folder) => OutputFolders::make(folder.dir(), names, &self.context),
            OutputPlace::Objects(_) | OutputPlace::Nowhere => Ok(OutputFolders::default()),
        }
    }

    /// Creates a temp file to write the output to that will be called `name`.
    ///
    /// # Errors
    /// [`Kind::Storage`].
    pub(crate) fn create(&self, name: &str) -> Result<TempFile> {
        self.create_for(name, &self.context)
    }

    /// The same, with the memory of `context`.
    ///
    /// # Errors
    /// [`Kind::Storage`].
    pub(crate) fn create_for(&self, name: &str, context: &Context) -> Result<TempFile> {
        let made = match &self.place {
            OutputPlace::Local(_) => OutputFile::Local(self.create_copy()?),
            OutputPlace::Objects(prefix) => {
                let copy = self.keeps_copies.then(|| self.create_copy()).transpose()?;
                OutputFile::Object(prefix.create(name, context)?, copy)
            }
            OutputPlace::Nowhere => OutputFile::Counted,
        };
        Ok(TempFile { made, bytes: 0 })
    }

    /// Creates a temp file that will never be published: a local one.
    ///
    /// # Errors
    /// [`Kind::Storage`].
    pub(crate) fn create_scratch(&self) -> Result<TempFile> {
        Ok(TempFile { made: OutputFile::Local(self.create_copy()?.into_scratch()), bytes: 0 })
    }

    fn create_copy(&self) -> Result<local::LocalFile> {
        match &self.nest {
            Some(nest) => local::create_in_nest(nest.dir(), &self.context),
            None => local::create_in(&self.scratch(), &self.context),
        }
    }

    /// Removes a file, as far as that is possible: something failed, and is reported.
    pub(crate) fn remove(&self, name: &str) {
        match &self.place {
            OutputPlace::Local(folder) => {
                let _ = std::fs::remove_file(folder.dir().join(name));
            }
            OutputPlace::Objects(prefix) => prefix.remove(name),
            OutputPlace::Nowhere => {}
        }
    }

    /// Makes the names in the folder durable.
    ///
    /// # Errors
    /// [`Kind::Storage`].
    pub(crate) fn sync(&self) -> Result<()> {
        match &self.place {
            OutputPlace::Local(folder) => folder.sync(),
            OutputPlace::Objects(_) | OutputPlace::Nowhere => Ok(()),
        }
    }

    /// Removes the folders again that this target made, if they are empty.
    pub(crate) fn abandon(&self) {
        if let Some(nest) = &self.nest {
            nest.abandon();
        }
        if let OutputPlace::Local(folder) = &self.place {
            folder.abandon();
        }
    }
}

/// One output while it is written; removed when dropped unpublished.
pub(crate) struct TempFile {
    made: OutputFile,
    bytes: u64,
}

enum OutputFile {
    Local(local::LocalFile),
    /// An upload, and its copy if it will be read again.
    Object(object::ObjectOutput, Option<local::LocalFile>),
    /// Nothing but the count.
    Counted,
}

impl TempFile {
    /// Where it is until it has its name.
    #[must_use]
    pub(crate) fn location(&self) -> String {
        match &self.made {
            OutputFile::Local(file) => file.path().display().to_string(),
            OutputFile::Object(output, _) => output.location(),
            OutputFile::Counted => "nowhere".to_owned(),
        }
    }

    /// Bytes written so far.
    #[must_use]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the store of the file may copy bytes of `object` to it, which do not pass through this
    /// machine then.
    ///
    /// # Errors
    /// [`Kind::Storage`].
    pub(crate) fn may_copy(&mut self, object: &ObjectVersion) -> Result<bool> {
        match &mut self.made {
            OutputFile::Object(output, None) => output.may_copy(object),
            _ => Ok(false),
        }
    }

    /// Writes the bytes of `range` of `source`, an object, if this file may be copied to.
    ///
    /// # Errors
    /// [`Kind::Storage`], and [`Kind::SourceChanged`].
    pub(crate) fn copy(&mut self, source: &Arc<dyn RangeReader>, range: Range<u64>) -> Result<()> {
        let OutputFile::Object(output, None) = &mut self.made else {
            return Err(Error::new(Kind::Internal, "this output cannot be copied to"));
        };
        self.bytes += range.end - range.start;
        output.copy(source, range)
    }

    /// A local file with the same bytes, if there is one: see [`Target::with_copies`].
    #[must_use]
    pub(crate) fn local_path(&self) -> Option<&Path> {
        match &self.made {
            OutputFile::Local(file) => Some(file.path()),
            OutputFile::Object(_, copy) => copy.as_ref().map(local::LocalFile::path),
            OutputFile::Counted => None,
        }
    }

    /// Makes the bytes durable.
    ///
    /// # Errors
    /// [`Kind::Storage`].
    pub(crate) fn sync(&mut self) -> Result<()> {
        match &mut self.made {
            OutputFile::Local(file) => file.sync(),
            OutputFile::Object(output, _) => output.wait_all(),
            OutputFile::Counted => Ok(()),
        }
    }

    /// Gives the file its visible name in one step, unless a file with the same bytes has it.
    ///
    /// # Errors
    /// [`Kind::Storage`].
    pub(crate) fn publish_unless_same(self, target: &Target, name: &str) -> Result<Completed> {
        match self.made {
            OutputFile::Local(file) => {
                file.publish_unless_same(Path::new(&target.location(name))).map(|()| Completed::Yes)
            }
            OutputFile::Object(output, _) => output.complete(),
            OutputFile::Counted => Err(never_published()),
        }
    }

    /// Gives the file a visible name that nobody has, in one step.
    ///
    /// # Errors
    /// [`Kind::Storage`].
    pub(crate) fn publish_new(self, target: &Target, name: &str) -> Result<Completed> {
        match self.made {
            OutputFile::Local(file) => file.publish_new(Path::new(&target.location(name))),
            OutputFile::Object(output, _) => output.complete(),
            OutputFile::Counted => Err(never_published()),
        }
    }

    /// The same, and [`Kind::Unsupported`] where that may replace a file.
    ///
    /// # Errors
    /// [`Kind::Storage`].
    pub(crate) fn publish_once(self, target: &Target, name: &str) -> Result<Completed> {
        match self.made {
            OutputFile::Local(file) => file.publish_once(Path::new(&target.location(name))),
            OutputFile::Object(output, _) => output.complete(),
            OutputFile::Counted => Err(never_published()),
        }
    }

    /// Gives the file its visible name in one step; replaces a local file of that name. An object
    /// is never replaced.
    ///
    /// # Errors
    /// [`Kind::Storage`].
    pub(crate) fn publish(self, target: &Target, name: &str) -> Result<Completed> {
        match self.made {
            OutputFile::Local(file) => {
                file.publish(Path::new(&target.location(name)))?;
                Ok(Completed::Yes)
            }
            OutputFile::Object(output, _) => output.complete(),
            OutputFile::Counted => Err(never_published()),
        }
    }
}

fn never_published() -> Error {
    Error::new(Kind::Internal, "an output of a trial has no name")
}

impl Write for TempFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = match &mut self.made {
            OutputFile::Local(file) => file.write(bytes)?,
            OutputFile::Object(output, copy) => {
                if let Some(copy) = copy {
                    copy.write_all(bytes)?;
                }
                output.write(bytes)?
            }
            OutputFile::Counted => bytes.len(),
        };
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.made {
            OutputFile::Local(file) => file.flush(),
            OutputFile::Object(_, copy) => copy.as_mut().map_or(Ok(()), Write::flush),
            OutputFile::Counted => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn dir(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("plait-target-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    fn open(out: &Path) -> Target {
        let context = Context::new(1 << 20);
        let stores = Stores::try_new(&Default::default(), &context).unwrap();
        Target::open(out.to_str().unwrap(), &stores, &context).unwrap()
    }

    #[test]
    fn a_dropped_output_leaves_nothing_and_a_published_one_has_its_name() {
        let dir = dir("publish");
        let target = open(&dir);
        let mut dropped = target.create("a.parquet").unwrap();
        dropped.write_all(b"half").unwrap();
        drop(dropped);
        let mut kept = target.create("a.parquet").unwrap();
        kept.write_all(b"whole").unwrap();
        kept.sync().unwrap();
        assert_eq!(kept.publish(&target, "a.parquet").unwrap(), Completed::Yes);
        let other = target.create("a.parquet").unwrap();
        assert_eq!(other.publish_new(&target, "a.parquet").unwrap(), Completed::Occupied);
        assert_eq!(target.visible().unwrap(), ["a.parquet"]);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn stale_temp_files_are_swept_and_live_ones_are_not() {
        let dir = dir("sweep");
        let target = open(&dir);
        let live = target.create("a.parquet").unwrap();
        let stale = dir.join(".plait-tmp-1-1");
        fs::write(&stale, b"left by a killed process").unwrap();
        let _again = open(&dir);
        assert!(!stale.exists());
        assert!(live.local_path().unwrap().exists());
        drop(live);
        fs::remove_dir_all(&dir).unwrap();
    }
}
