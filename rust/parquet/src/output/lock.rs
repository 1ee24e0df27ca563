//! Locks of files: they tell whether the process lives that made something.
//!
//! # Invariants
//! A lock ends with its process, however that ends. A file system without locks is taken for one on
//! which nobody else is at work.
//!
//! # Not here
//! The locks of temp files (`local`).

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use plait_core::Result;

use super::local::{open_write, storage};

/// A folder that one process has to itself, until this is dropped or the process ends.
pub(crate) struct Lock(
    #[expect(dead_code, reason = "the lock lives as long as its file is open")] File,
);

impl Lock {
    /// Takes the lock of `dir`; `None` if somebody has it. File systems without locks give it to
    /// all.
    ///
    /// # Errors
    /// [`Kind::Storage`](plait_core::Kind::Storage) when the file of the lock cannot be made.
    pub(crate) fn take(dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(".lock");
        let file = open_lock(&path).map_err(|e| storage("cannot lock the folder", &path, e))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Ok(None),
            Ok(()) | Err(TryLockError::Error(_)) => Ok(Some(Self(file))),
        }
    }
}

fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

/// A file that says by its lock that the process which made it lives. Dropped, it is removed.
pub struct Sign {
    path: PathBuf,
    _file: File,
}

/// What a [`Sign`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alive {
    /// Its process lives.
    Yes,
    /// It does not.
    No,
    /// The sign is absent, or the file system has no locks.
    Unknown,
}

impl Sign {
    /// Puts up the sign at `path`; `None` on a file system without locks.
    ///
    /// # Errors
    /// [`Kind::Storage`](plait_core::Kind::Storage) when the file cannot be made.
    pub(crate) fn put(path: &Path) -> Result<Option<Self>> {
        let failed = |e: io::Error| storage("cannot make the file of a lock", path, e);
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).map_err(failed)?;
        }
        loop {
            let file = open_lock(path).map_err(failed)?;
            match file.try_lock() {
                // Somebody may have swept the file between the two steps, or look at it right now.
                Ok(()) if path.exists() => {
                    return Ok(Some(Self { path: path.to_owned(), _file: file }));
                }
                Ok(()) | Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(_)) => {
                    let _ = fs::remove_file(path);
                    return Ok(None);
                }
            }
        }
    }

    /// Reads the sign at `path`.
    #[must_use]
    pub(crate) fn look(path: &Path) -> Alive {
        let Ok(file) = open_write(path) else { return Alive::Unknown };
        match file.try_lock() {
            Ok(()) => Alive::No,
            Err(TryLockError::WouldBlock) => Alive::Yes,
            Err(TryLockError::Error(_)) => Alive::Unknown,
        }
    }

    /// Removes the sign at `path` if its process does not live.
    pub(crate) fn sweep(path: &Path) {
        if let Ok(file) = open_write(path)
            && file.try_lock().is_ok()
        {
            let _ = fs::remove_file(path);
        }
    }
}

impl Drop for Sign {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The kernel whose locks these are, until it is started again; empty where it does not say so.
#[must_use]
pub(crate) fn machine() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.map(|id| id.trim().to_owned()).unwrap_or_default()
}
