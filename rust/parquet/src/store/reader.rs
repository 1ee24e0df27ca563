//! One immutable source of bytes, and what goes wrong when one is read.
//!
//! # Invariants
//! A read returns exactly the bytes asked for or an error; nothing is allocated before the range
//! was checked against the length.
//!
//! # Not here
//! Which reader a location has (`registry`).

use std::ops::Range;
use std::time::SystemTime;

use bytes::Bytes;
use plait_core::{Error, Kind, Result};
use url::Url;

use super::bucket::{BegunRead, ReadDone};

/// One immutable source of bytes.
pub(crate) trait RangeReader: Send + Sync {
    /// The location as the caller gave it.
    fn path(&self) -> &str;

    /// Length in bytes when the store was opened.
    fn len(&self) -> u64;

    /// Reads exactly the bytes of `range`.
    ///
    /// # Errors
    /// [`Kind::CorruptSource`] when the range ends behind the end of the file, [`Kind::Storage`]
    /// when the storage below fails.
    fn read(&self, range: Range<u64>) -> Result<Bytes>;

    /// The same of bytes that will be read again soon: a store whose reads are dear keeps them, if
    /// there is room.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn read_and_keep(&self, range: Range<u64>) -> Result<Bytes> {
        self.read(range)
    }

    /// Whether [`will_read`](Self::will_read) does anything.
    fn takes_hints(&self) -> bool {
        false
    }

    /// Says that `range` will be read soon, and then what follows it up to `end`. A store whose reads are
    /// dear requests as much of that as it has room for, and returns at once.
    fn will_read(&self, _range: Range<u64>, _end: u64) {}

    /// Begins to read `range` and returns at once; `done` gets the bytes, or none if that failed. Drops
    /// `done` if reads cannot begin here. Once what it returns is dropped, the answer may fail.
    fn begin_read(&self, _range: Range<u64>, _done: ReadDone) -> Option<BegunRead> {
        None
    }

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

    /// The same once its rows were read, and nothing comes of them but rows: of an object whose reads
    /// name its version, all came from that, whatever is there now.
    ///
    /// # Errors
    /// As [`check_unchanged`](Self::check_unchanged).
    fn check_read(&self) -> Result<()> {
        if self.object().is_some() { Ok(()) } else { self.check_unchanged() }
    }

    /// What the storage says of this version of the file: when it was written, or its entity tag.
    fn version(&self) -> Option<String> {
        None
    }

    /// When it was written, if the storage tells.
    fn written_at(&self) -> Option<SystemTime> {
        None
    }

    /// How many bytes at its end are footer and trailer, if that is known before they are read.
    fn footer_bytes(&self) -> Option<u64> {
        None
    }

    /// Whether the bytes lie in a local file.
    fn is_local(&self) -> bool;

    /// The object that is read, if a store can copy parts of it to others.
    fn object(&self) -> Option<ObjectVersion> {
        None
    }
}

/// An object in a bucket of S3 or a container of Azure, as it was when it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectVersion {
    /// Such as `s3://bucket/key`.
    pub(crate) url: Url,
    /// Its entity tag.
    pub(crate) tag: String,
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
pub(super) fn short_read(range: &Range<u64>, path: &str) -> Error {
    Error::new(Kind::CorruptSource, "file ended before the bytes that were asked for")
        .with_path(path)
        .with_offset(range.start)
        .with_hint("the file was cut short while it was read")
}

/// What an error says when credentials are missing or do not suffice.
pub(super) const REFUSED: &str = "the object store refused access";

/// What an error says when a local file may not be read.
pub(super) const DENIED: &str = "no permission to read the source";

/// Whether storage that works refused to give one file.
pub(crate) fn is_denied(error: &Error) -> bool {
    error.kind() == Kind::Storage && matches!(error.what(), REFUSED | DENIED)
}

/// The error for a location where nothing is.
pub(super) fn not_found(location: &str) -> Error {
    let schemes = ["s3:/", "gs:/", "az:/", "abfs:/", "abfss:/", "http:/", "https:/"];
    let hint =
        match schemes.iter().find_map(|scheme| Some((scheme, location.strip_prefix(scheme)?))) {
            Some((scheme, rest)) if !rest.starts_with('/') => {
                format!("did you mean `{scheme}/{rest}`?")
            }
            _ if location.starts_with("~/") => {
                "`~` is understood on command lines only: write the whole path".to_owned()
            }
            _ => "check the path; relative paths start at the working directory".to_owned(),
        };
    Error::new(Kind::SourceNotFound, "source does not exist").with_path(location).with_hint(hint)
}

/// The error for a file that is not what it was.
pub(super) fn changed(path: &str) -> Error {
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
}
