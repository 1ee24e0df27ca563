//! Local files that have no visible name yet, or never get one.
//!
//! # Invariants
//! Names begin with [`TEMP_PREFIX`]: what a killed process leaves is found and removed by the next
//! one that writes there.
//!
//! # Not here
//! What becomes of them (`output`), what is spilled (`spill`, `footer`, `window_file`).

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::runtime::Context;

/// What their names begin with.
pub(crate) const TEMP_PREFIX: &str = ".plait-tmp-";

static TEMP_COUNT: AtomicU64 = AtomicU64::new(0);

/// So often a folder is made again that others remove.
const MAKE_DIR_TRIES: usize = 16;

/// Makes a folder. Another process that made it, or one above it, may give up and remove it meanwhile:
/// it is there when it is made, and not there when it is looked at.
pub(crate) fn make_dir(dir: &Path) -> io::Result<()> {
    use io::ErrorKind::{AlreadyExists, NotFound};
    let mut made = fs::create_dir_all(dir);
    for _ in 1..MAKE_DIR_TRIES {
        match &made {
            Err(e) if matches!(e.kind(), NotFound | AlreadyExists) => {
                made = fs::create_dir_all(dir);
            }
            _ => break,
        }
    }
    made
}

/// Makes a file in a folder, which is made again if another process that had made it removed it.
pub(crate) fn create_beside(dir: &Path, path: &Path) -> io::Result<File> {
    let mut made = create(path);
    for _ in 1..MAKE_DIR_TRIES {
        match &made {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                made = make_dir(dir).and_then(|()| create(path));
            }
            _ => break,
        }
    }
    made
}

/// A path in `dir` for something that has no visible name yet.
pub(crate) fn temp_path(dir: &Path) -> PathBuf {
    let n = TEMP_COUNT.fetch_add(1, Ordering::Relaxed);
    dir.join(format!("{TEMP_PREFIX}{}-{n}", std::process::id()))
}

/// A file without a name, for spilled bytes: gone when it is closed, whatever happens.
pub(crate) fn unnamed_file(dir: &Path, context: &Context) -> io::Result<File> {
    context.faults().check("create")?;
    let path = temp_path(dir);
    let file = create_beside(dir, &path)?;
    match fs::remove_file(&path) {
        // The sweep of another run was faster.
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(file),
    }
}

/// Makes a file that is not there yet.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).open(path)
}
