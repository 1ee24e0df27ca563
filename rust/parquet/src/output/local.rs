//! Outputs in a local folder: temp files in the folder of the output, published by rename.
//!
//! ```text
//! .plait-tmp-<pid>-<n>   locked, written, synced ── rename ──▶ part-00000-<hash>.parquet
//!        └── dropped before that: removed
//! ```
//!
//! # Invariants
//! A visible name always stands for a whole file. A temp file is locked by the process that writes
//! it: one that can be locked has no owner any more and is removed by the next run
//! ([`sweep`]).
//!
//! # Not here
//! What is in the files (`sink`); names of temp files, and files without one (`store::temp`).

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use plait_core::{Error, Kind, Result};

use super::early::Early;
use crate::runtime::Context;
use crate::store::Completed;
use crate::store::same::{are_same, freshen};
use crate::store::temp::{TEMP_PREFIX, create, create_beside, make_dir, temp_path};

/// A local folder that outputs are published to.
pub(super) struct LocalFolder {
    dir: PathBuf,
    /// Folders made for the output, innermost first.
    created: Vec<PathBuf>,
    context: Context,
}

impl LocalFolder {
    /// Opens the folder, or the folder of the file `path` if that ends in `.parquet`, unless it
    /// `is_folder`; makes it if
    /// it is missing. Gives the file's name, too.
    pub(super) fn open(
        path: &Path,
        is_folder: bool,
        context: &Context,
    ) -> Result<(Self, Option<String>)> {
        let is_file =
            !is_folder && !path.is_dir() && path.extension().is_some_and(|e| e == "parquet");
        let (dir, file_name) = match (is_file, path.file_name()) {
            (true, Some(name)) => {
                let dir = path.parent().filter(|p| !p.as_os_str().is_empty());
                let name = name.to_str().ok_or_else(|| {
                    Error::new(Kind::InvalidArgument, "output path is not valid UTF-8")
                })?;
                (dir.unwrap_or(Path::new(".")).to_owned(), Some(name.to_owned()))
            }
            _ => (path.to_owned(), None),
        };
        let parents = dir.ancestors().filter(|p| !p.as_os_str().is_empty());
        let created = parents.take_while(|p| !p.exists()).map(Path::to_owned).collect();
        let failed = |e: io::Error| storage("cannot make the output folder", &dir, e);
        context.faults().check("mkdir").map_err(failed)?;
        make_dir(&dir).map_err(failed)?;
        Ok((Self { dir, created, context: context.clone() }, file_name))
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Names of the visible Parquet files in the folder, sorted.
    pub(super) fn visible(&self) -> Result<Vec<String>> {
        let failed = |e: io::Error| storage("cannot list the output folder", &self.dir, e);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let name = name.to_string_lossy();
            if name.ends_with(".parquet") && !name.starts_with(['.', '_']) {
                names.push(name.into_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Names of the visible Parquet files in the folder and in those below, sorted, with the folders
    /// that they lie in.
    pub(super) fn visible_below(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            let dir = self.dir.join(&folder);
            let failed = |e: io::Error| storage("cannot list the output folder", &dir, e);
            for entry in fs::read_dir(&dir).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.starts_with(['.', '_']) {
                    continue;
                }
                if entry.file_type().map_err(failed)?.is_dir() {
                    folders.push(format!("{folder}{name}/"));
                } else if name.ends_with(".parquet") {
                    names.push(format!("{folder}{name}"));
                }
            }
        }
        names.sort();
        Ok(names)
    }

    /// Makes the renames in the folder durable.
    pub(super) fn sync(&self) -> Result<()> {
        let failed = |e: io::Error| storage("cannot sync the output folder", &self.dir, e);
        self.context.faults().check("sync").map_err(failed)?;
        open_dir(&self.dir).and_then(|dir| dir.sync_all()).map_err(failed)
    }

    /// Removes the folders again that this target made, if they are empty.
    pub(super) fn abandon(&self) {
        for dir in &self.created {
            if fs::remove_dir(dir).is_err() {
                break;
            }
        }
    }
}

/// Removes temp files in `dir` whose owners are gone.
pub(super) fn sweep(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        // Something else of this name, such as a pipe, might be waited for.
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && entry.file_name().to_string_lossy().starts_with(TEMP_PREFIX) {
            sweep_temp(&entry.path());
        }
    }
}

/// Removes the temp file at `path` if nobody has its lock. The lock is held until the file is gone:
/// its owner may have made it just now, would lock it next and believe that it is safe.
fn sweep_temp(path: &Path) {
    let Ok(file) = open_write(path) else { return };
    if file.try_lock().is_ok() {
        let _ = fs::remove_file(path);
    }
}

/// Creates a temp file in `dir`, which is a nest: it is closed once it is synced.
pub(super) fn create_in_nest(dir: &Path, context: &Context) -> Result<LocalFile> {
    let failed = |e: io::Error| storage("cannot create a file in the output folder", dir, e);
    context.faults().check("create").map_err(failed)?;
    let path = temp_path(dir);
    let file = create(&path).map_err(failed)?;
    let mut made = LocalFile::new(file, path, context);
    made.is_nested = true;
    Ok(made)
}

/// Creates a temp file in `dir`.
pub(super) fn create_in(dir: &Path, context: &Context) -> Result<LocalFile> {
    let failed = |e: io::Error| storage("cannot create a file in the output folder", dir, e);
    context.faults().check("create").map_err(failed)?;
    loop {
        let path = temp_path(dir);
        let file = create_beside(dir, &path).map_err(failed)?;
        // Another run's sweep may have come between the two: it has the lock and will remove the
        // file, or did. A file system without locks works; its stale temp files are left alone.
        let is_swept = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        if !is_swept && path.exists() {
            return Ok(LocalFile::new(file, path, context));
        }
    }
}

/// One output while it is written; removed when dropped unpublished.
pub(super) struct LocalFile {
    /// None once it is whole, if a nest has it.
    file: Option<File>,
    path: PathBuf,
    early: Early,
    context: Context,
    is_published: bool,
    /// Nobody reads it after a crash: it need not be durable.
    is_scratch: bool,
    is_nested: bool,
}

impl LocalFile {
    fn new(file: File, path: PathBuf, context: &Context) -> Self {
        Self {
            file: Some(file),
            path,
            early: Early::default(),
            context: context.clone(),
            is_published: false,
            is_scratch: false,
            is_nested: false,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The same, for bytes that need not outlive the process.
    pub(super) fn into_scratch(self) -> Self {
        let mut file = self;
        file.is_scratch = true;
        file
    }

    /// Makes the bytes durable.
    pub(super) fn sync(&mut self) -> Result<()> {
        if self.is_scratch {
            self.file = self.file.take().filter(|_| !self.is_nested);
            return Ok(());
        }
        let failed = |e: io::Error| storage("cannot sync an output", &self.path, e);
        self.context.faults().check("sync").map_err(failed)?;
        self.early.finish().map_err(failed)?;
        self.file.as_ref().map_or(Ok(()), File::sync_all).map_err(failed)?;
        if self.is_nested {
            self.file = None;
        }
        Ok(())
    }

    /// Gives the file a visible name that nobody has, in one step.
    pub(super) fn publish_new(mut self, path: &Path) -> Result<Completed> {
        match self.link(path)? {
            Linked::Yes => Ok(Completed::Yes),
            Linked::Occupied => Ok(Completed::Occupied),
            // A file system without links: the rename replaces what is there.
            Linked::Never(_) => self.publish(path).map(|()| Completed::Yes),
        }
    }

    /// The same, for a name that must never be given twice.
    pub(super) fn publish_once(mut self, path: &Path) -> Result<Completed> {
        match self.link(path)? {
            Linked::Yes => Ok(Completed::Yes),
            Linked::Occupied => Ok(Completed::Occupied),
            Linked::Never(e) => {
                let what = "this file system cannot create a name only if it is absent";
                Err(Error::new(Kind::Unsupported, what)
                    .with_path(path.display().to_string())
                    .with_hint(
                        "it has no hard links; without them two compactions could both commit",
                    )
                    .with_cause(e))
            }
        }
    }

    fn link(&mut self, path: &Path) -> Result<Linked> {
        use io::ErrorKind as K;
        let failed = |e: io::Error| storage("cannot rename an output into place", path, e);
        self.context.faults().check("rename").map_err(failed)?;
        match fs::hard_link(&self.path, path) {
            Ok(()) => {
                self.is_published = fs::remove_file(&self.path).is_ok();
                Ok(Linked::Yes)
            }
            Err(e) if e.kind() == K::AlreadyExists => Ok(Linked::Occupied),
            Err(e)
                if matches!(
                    e.kind(),
                    K::NotFound | K::StorageFull | K::QuotaExceeded | K::ReadOnlyFilesystem
                ) =>
            {
                Err(failed(e))
            }
            Err(e) => Ok(Linked::Never(e)),
        }
    }

    /// The same, unless a file of that name has the same bytes: others may read it by now, and to
    /// them a file that takes its place has changed. It gets the age of a new one, since files that
    /// no table names are removed by their age.
    pub(super) fn publish_unless_same(self, path: &Path) -> Result<()> {
        let is_kept = are_same(&self.path, path).is_ok_and(|same| same) && freshen(path).is_ok();
        if is_kept { Ok(()) } else { self.publish(path) }
    }

    /// Gives the file its visible name in one step; replaces a file of that name.
    pub(super) fn publish(mut self, path: &Path) -> Result<()> {
        let failed = |e: io::Error| storage("cannot rename an output into place", path, e);
        self.context.faults().check("rename").map_err(failed)?;
        let renamed = fs::rename(&self.path, path).or_else(|e| match path.parent() {
            // A task of another process that made the folder gave up, and removed it again.
            Some(dir) if e.kind() == io::ErrorKind::NotFound && self.is_nested => {
                make_dir(dir).and_then(|()| fs::rename(&self.path, path))
            }
            _ => Err(e),
        });
        renamed.map_err(failed)?;
        self.is_published = true;
        Ok(())
    }
}

/// How a link ended.
enum Linked {
    Yes,
    Occupied,
    Never(io::Error),
}

impl io::Write for LocalFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let failed = |e: io::Error| match e.kind() {
            io::ErrorKind::Interrupted => e,
            _ => io::Error::other(storage("cannot write an output", &self.path, e)),
        };
        self.context.faults().check("write").map_err(failed)?;
        let Some(file) = &mut self.file else { return Err(io::ErrorKind::BrokenPipe.into()) };
        let written = file.write(bytes).map_err(failed)?;
        if !self.is_scratch {
            self.early.wrote(file, written as u64);
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), io::Write::flush)
    }
}

impl Drop for LocalFile {
    fn drop(&mut self) {
        if !self.is_published {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this module and `store` are the ones that open files"
)]
pub(super) fn open_dir(path: &Path) -> io::Result<File> {
    File::open(path)
}

pub(super) fn open_write(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

/// Our error for an error of the storage at `path`.
pub(crate) fn storage(what: &str, path: &Path, error: io::Error) -> Error {
    let hint = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space; nothing was published and no source was changed"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "choose a folder this user may write to"
        }
        _ => "nothing was published by this step and no source was changed",
    };
    Error::new(Kind::Storage, what)
        .with_path(path.display().to_string())
        .with_hint(hint)
        .with_cause(error)
}

/// Whether `name` is that of a file which is not whole, or of none at all.
#[must_use]
pub(crate) fn is_temp(name: &str) -> bool {
    name.rsplit('/').next().is_some_and(|name| name.starts_with(TEMP_PREFIX))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::store::temp::unnamed_file;

    fn empty_dir(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("plait-local-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn a_file_that_was_made_just_now_is_not_swept() {
        let dir = empty_dir("swept");
        let context = Context::new(1 << 20);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        sweep(&dir);
                    }
                });
            }
            let made: Vec<_> = (0..3000)
                .map(|i| create_in(&dir, &context)?.publish_once(&dir.join(i.to_string())))
                .collect();
            is_over.store(true, Ordering::Relaxed);
            for (i, one) in made.into_iter().enumerate() {
                assert_eq!(one.unwrap(), Completed::Yes, "file {i}");
            }
        });
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_folder_that_another_run_made_and_removes_is_made_again() {
        let dir = empty_dir("removed");
        let context = Context::new(1 << 20);
        let below = dir.join("a/b/c");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        LocalFolder::open(&below, true, &context).unwrap().0.abandon();
                    }
                });
            }
            let made: Vec<_> = (0..2000)
                .map(|_| {
                    let (folder, _) = LocalFolder::open(&below, true, &context)?;
                    unnamed_file(&below, &context)
                        .map_err(|e| storage("cannot spill", &below, e))?;
                    let file = create_in(&below, &context)?;
                    drop(file);
                    folder.abandon();
                    Ok::<_, Error>(())
                })
                .collect();
            is_over.store(true, Ordering::Relaxed);
            for one in made {
                one.unwrap();
            }
        });
        fs::remove_dir_all(dir).unwrap();
    }
}
