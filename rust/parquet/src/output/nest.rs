//! A folder of temp files that one lock stands for: none of them has to stay open.
//!
//! ```text
//! .plait-tmp-<pid>-<n>/  .lock                    held by the process
//!                        .plait-tmp-<pid>-<n>     written, synced, closed ── rename ──▶ its place
//! ```
//!
//! # Invariants
//! As for temp files: a nest that can be locked has no owner any more, and is removed by the next
//! run ([`sweep`]). Dropped, it is removed with what is left in it.
//!
//! # Not here
//! The files (`local`).

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use plait_core::Result;

use super::local::storage;
use super::lock::Lock;
use crate::runtime::Context;
use crate::store::temp::{TEMP_PREFIX, temp_path};

/// The folder.
pub(super) struct Nest {
    dir: PathBuf,
    _lock: Lock,
}

impl Nest {
    /// Makes a nest in `parent`.
    pub(super) fn make(parent: &Path, context: &Context) -> Result<Self> {
        let failed = |e: io::Error| storage("cannot make a folder for temp files", parent, e);
        context.faults().check("mkdir").map_err(failed)?;
        loop {
            let dir = temp_path(parent);
            fs::create_dir_all(&dir).map_err(failed)?;
            // The sweep of another run may come between two steps: it takes the lock, or removes the
            // folder before there is one.
            match Lock::take(&dir) {
                Ok(Some(lock)) if lock_path(&dir).exists() => return Ok(Self { dir, _lock: lock }),
                Err(e) if dir.exists() => return Err(e),
                Ok(_) | Err(_) => {}
            }
        }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Removes it before its time.
    pub(super) fn abandon(&self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Drop for Nest {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// Removes the nests in `parent` whose owners are gone.
pub(super) fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let is_temp = entry.file_name().to_string_lossy().starts_with(TEMP_PREFIX);
        if is_temp && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            sweep_nest(&entry.path());
        }
    }
}

fn sweep_nest(dir: &Path) {
    match open_lock(&lock_path(dir)) {
        Ok(lock) if lock.try_lock().is_ok() => {
            let _ = fs::remove_dir_all(dir);
        }
        // Its owner died before there was a lock, or is about to take it: then it makes another one.
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let _ = fs::remove_dir(dir);
        }
        _ => {}
    }
}

fn lock_path(dir: &Path) -> PathBuf {
    dir.join(".lock")
}

fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}
