//! Folders below that of the target, in which outputs of partitions lie.
//!
//! # Invariants
//! Folders that were there before stay; those that were made go again if nothing is published.
//!
//! # Not here
//! How partitions are named (`partition`).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use plait_core::Result;

use super::local::{open_dir, storage};
use crate::runtime::Context;

/// Folders that outputs are published to, below that of the target.
#[derive(Default)]
pub(crate) struct OutputFolders {
    /// Those that were not there before, and all of them, outermost first.
    made: Vec<PathBuf>,
    all: Vec<PathBuf>,
}

impl OutputFolders {
    /// Makes the folders below `dir` in which `names` lie, and those above them.
    ///
    /// # Errors
    /// [`Kind::Storage`](plait_core::Kind::Storage); none of them is left then.
    pub(crate) fn make<'a>(
        dir: &Path,
        names: impl Iterator<Item = &'a str>,
        context: &Context,
    ) -> Result<Self> {
        let mut all = BTreeSet::new();
        for name in names {
            let folders = Path::new(name).ancestors().skip(1);
            all.extend(folders.filter(|f| !f.as_os_str().is_empty()).map(|f| dir.join(f)));
        }
        let mut folders = Self { made: Vec::new(), all: Vec::new() };
        for folder in all {
            let outcome = context.faults().check("mkdir").and_then(|()| make_one_dir(&folder));
            match outcome {
                Ok(is_made) => folders.made.extend(is_made.then(|| folder.clone())),
                Err(e) => {
                    folders.abandon();
                    return Err(storage("cannot make a folder of a partition", &folder, e));
                }
            }
            folders.all.push(folder);
        }
        Ok(folders)
    }

    /// Makes the names in them durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.all.iter().try_for_each(|dir| {
            let failed = |e: io::Error| storage("cannot sync the folder of a partition", dir, e);
            open_dir(dir).and_then(|dir| dir.sync_all()).map_err(failed)
        })
    }

    /// Removes those again that were made, if they are empty.
    pub(crate) fn abandon(&self) {
        for dir in self.made.iter().rev() {
            let _ = fs::remove_dir(dir);
        }
    }
}

/// Makes a folder; whether it was not there.
fn make_one_dir(dir: &Path) -> io::Result<bool> {
    match fs::create_dir(dir) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(false),
        Err(e) => Err(e),
    }
}
