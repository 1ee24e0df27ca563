//! Where sources lie: local files and object stores, read by byte range.
//!
//! ```text
//! patterns ── list ──▶ locations ── open ──▶ Store ── read(range) ──▶ Bytes
//!   dir/  *.parquet  s3://b/p/                 ├─ local.rs    positioned reads
//!                                              └─ object.rs   ranged requests
//! ```
//!
//! # Invariants
//! Only this module opens files for reading. A read returns exactly the bytes asked for or an
//! error; nothing is allocated before the range was checked against the length.
//!
//! # Cost
//! One system call or one request a read. No thread exists before the first request to an object
//! store, and a forked process starts its own.
//!
//! # Not here
//! What the bytes mean (`source`, `page`); writing (`sink`).

mod list;
mod local;
mod object;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use plait_core::{Error, Kind, Result};
use url::Url;

pub use list::list;
pub(crate) use local::{read_exact_at, write_all_at};

/// One immutable source of bytes.
pub trait Store: Send + Sync {
    /// The location as the caller gave it.
    fn path(&self) -> &str;

    /// Length in bytes when the store was opened.
    fn len(&self) -> u64;

    /// Whether there are no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads exactly the bytes of `range`.
    ///
    /// # Errors
    /// [`Kind::CorruptSource`] when the range ends behind the end of the file, [`Kind::Storage`]
    /// when the storage below fails.
    fn read(&self, range: Range<u64>) -> Result<Bytes>;

    /// Reads exactly the bytes at `offset` into `out`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn read_into(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let end = offset.saturating_add(out.len() as u64);
        let bytes = self.read(offset..end)?;
        match bytes.len() == out.len() {
            true => out.copy_from_slice(&bytes),
            false => return Err(short_read(&(offset..end), self.path())),
        }
        Ok(())
    }

    /// Compares the file with what it was when it was opened.
    ///
    /// # Errors
    /// [`Kind::SourceChanged`] when it was written to, replaced or removed.
    fn check_unchanged(&self) -> Result<()>;

    /// Whether the bytes lie in a local file.
    fn is_local(&self) -> bool;
}

/// Opens the file or object at `location`, a local path or a URL.
///
/// URLs of object stores (`s3`, `gs`, `az`, `abfs`, `http` and their kin) take their settings from
/// the environment, for example `AWS_REGION`.
///
/// # Errors
/// [`Kind::SourceNotFound`], [`Kind::Storage`], and [`Kind::InvalidArgument`] for a location that
/// cannot be understood.
pub fn open(location: &str) -> Result<Arc<dyn Store>> {
    match Location::parse(location)? {
        Location::Local(path) => Ok(Arc::new(local::LocalFile::open(&path, location)?)),
        Location::Remote(url) => Ok(Arc::new(object::ObjectFile::open(&url, location)?)),
    }
}

/// A location, understood.
enum Location {
    Local(std::path::PathBuf),
    Remote(Url),
}

impl Location {
    fn parse(location: &str) -> Result<Self> {
        let bad = |what: &str| Error::new(Kind::InvalidArgument, what).with_path(location);
        if !location.contains("://") {
            return Ok(Self::Local(location.into()));
        }
        let url =
            Url::parse(location).map_err(|e| bad("location is not a valid URL").with_cause(e))?;
        if url.scheme() == "file" {
            return url.to_file_path().map(Self::Local).map_err(|()| {
                bad("file URL does not name a local path").with_hint("write file:///path")
            });
        }
        Ok(Self::Remote(url))
    }
}

/// Checks `range` against the length of the file and gives its length in bytes.
pub(crate) fn check_range(range: &Range<u64>, len: u64, path: &str) -> Result<usize> {
    let wanted = range.end.checked_sub(range.start);
    match wanted.and_then(|n| usize::try_from(n).ok()) {
        Some(n) if range.end <= len => Ok(n),
        _ => Err(Error::new(Kind::CorruptSource, "file names bytes that lie behind its end")
            .with_path(path)
            .with_offset(range.start)
            .with_got(format!("bytes {}..{} of {len}", range.start, range.end))
            .with_hint("the file was cut short or its footer is damaged")),
    }
}

/// The error for a read that came back with fewer bytes than the file is long.
fn short_read(range: &Range<u64>, path: &str) -> Error {
    Error::new(Kind::CorruptSource, "file ended before the bytes that were asked for")
        .with_path(path)
        .with_offset(range.start)
        .with_hint("the file was cut short while it was read")
}

/// The error for a location where nothing is.
fn not_found(location: &str) -> Error {
    Error::new(Kind::SourceNotFound, "source does not exist")
        .with_path(location)
        .with_hint("check the path; relative paths start at the working directory")
}

/// The error for a file that is not what it was.
fn changed(path: &str) -> Error {
    Error::new(Kind::SourceChanged, "source changed while it was read")
        .with_path(path)
        .with_hint("merge files that nobody writes to, or run again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_behind_the_end_is_corrupt_and_named() {
        let e = check_range(&(8..13), 12, "a.parquet").unwrap_err();
        assert_eq!(
            (e.kind(), e.path(), e.offset()),
            (Kind::CorruptSource, Some("a.parquet"), Some(8))
        );
        #[expect(clippy::reversed_empty_ranges, reason = "the point of the test")]
        let backwards = 9..8;
        assert!(check_range(&backwards, 12, "a.parquet").is_err());
        assert_eq!(check_range(&(8..12), 12, "a.parquet").unwrap(), 4);
    }

    #[test]
    fn locations_are_paths_unless_they_have_a_scheme() {
        let local = |s: &str| match Location::parse(s).unwrap() {
            Location::Local(p) => p.to_str().unwrap().to_owned(),
            Location::Remote(url) => panic!("{url}"),
        };
        assert_eq!(local("a/b c.parquet"), "a/b c.parquet");
        assert_eq!(local("file:///a/b%20c.parquet"), "/a/b c.parquet");
        assert!(matches!(Location::parse("s3://b/k.parquet").unwrap(), Location::Remote(_)));
        assert_eq!(Location::parse("s3://[/").err().unwrap().kind(), Kind::InvalidArgument);
    }
}
