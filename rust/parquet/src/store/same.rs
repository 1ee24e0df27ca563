//! A local file that another process made of the same sources.
//!
//! # Invariants
//! A file that is kept has the same bytes. To those who read it by now it does not change.
//!
//! # Cost
//! Both files are read.
//!
//! # Not here
//! Giving outputs their names (`output`).

use std::io::Read;
use std::path::Path;
use std::time::{Duration, SystemTime};

use plait_core::Result;

use super::local::{open_file, storage_error};

/// Two files are compared so many bytes at a time.
const COMPARED_BYTES: usize = 64 << 10;

/// No file of a run that goes on at the same time is older.
const OLD: Duration = Duration::from_secs(3600);

/// Whether two files have the same bytes.
///
/// # Errors
/// [`Kind::Storage`](plait_core::Kind::Storage), and where one of them is absent.
pub(crate) fn are_same(one: &Path, other: &Path) -> Result<bool> {
    let (at, of_other) = (one.to_string_lossy(), other.to_string_lossy());
    let ((mut one, a), (mut other, b)) = (open_file(one, &at)?, open_file(other, &of_other)?);
    if a.len() != b.len() {
        return Ok(false);
    }
    let (mut here, mut there) = (vec![0; COMPARED_BYTES], vec![0; COMPARED_BYTES]);
    loop {
        let read = one.read(&mut here).map_err(|e| storage_error(e, &at))?;
        if read == 0 {
            return Ok(true);
        }
        other.read_exact(&mut there[..read]).map_err(|e| storage_error(e, &of_other))?;
        if here[..read] != there[..read] {
            return Ok(false);
        }
    }
}

/// Makes a file that is older than [`OLD`] as old as one that is written now. To its readers a
/// younger one stays the same.
///
/// # Errors
/// As [`are_same`].
pub(crate) fn freshen(path: &Path) -> Result<()> {
    let now = SystemTime::now();
    let location = path.to_string_lossy();
    let (file, metadata) = open_file(path, &location)?;
    let written_at = metadata.modified().map_err(|e| storage_error(e, &location))?;
    match now.duration_since(written_at).is_ok_and(|age| age > OLD) {
        true => file.set_modified(now).map_err(|e| storage_error(e, &location)),
        false => Ok(()),
    }
}
