//! Where sources and outputs lie: local files and object stores.
//!
//! ```text
//! patterns ── list ──▶ locations ── open ──▶ Store ── read(range) ──▶ Bytes
//!   dir/  *.parquet  s3://b/p/*.parquet        ├─ prefetched.rs  what was read of it before
//!                                              ├─ local.rs     positioned reads
//!                                              └─ object.rs    ranged reads, joined by coalesce.rs
//!                                                   └─ Bucket ─┬─ remote.rs  S3, GCS, Azure, HTTP
//!                                                              └─ the caller's own (obstore, fsspec)
//! ```
//!
//! # Invariants
//! Only this module opens files for reading. A read returns exactly the bytes asked for or an
//! error; nothing is allocated before the range was checked against the length.
//!
//! # Cost
//! One system call or one request a read. No thread exists before the first request to an object
//! store or after the [`Stores`] of the call are gone, and a forked process starts its own.
//!
//! # Not here
//! What the bytes mean (`source`, `page`); names of outputs and when they appear (`output`).

mod bucket;
mod coalesce;
mod driver;
mod failed;
mod foreign;
mod list;
mod local;
mod object;
mod prefetched;
mod remote;
pub(crate) mod root;
mod settings;
pub(crate) mod table;
mod wire;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use plait_core::{Error, Kind, Result};
use url::Url;

use crate::runtime::Context;
pub(crate) use bucket::Place;
pub use bucket::{Bucket, Completed, Meta, Upload, unconditional};
pub(crate) use foreign::{ForeignTable, check_root, tables_of};
pub(crate) use local::{read_exact_at, write_all_at};
pub use prefetched::Prefetched;
pub(crate) use prefetched::RecordingReader;
pub(crate) use wire::Traffic;

/// One immutable source of bytes.
pub(crate) trait Store: Send + Sync {
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
}

/// Everything that one call reads from and writes to: settings, and one client per bucket.
#[derive(Clone)]
pub struct Stores(Arc<StoresState>);

struct StoresState {
    options: BTreeMap<String, String>,
    /// Where locations without a scheme are; local files if the caller brought no bucket.
    own: Option<Arc<dyn Bucket>>,
    context: Context,
    traffic: Arc<Traffic>,
    driver: Arc<driver::Driver>,
    windows: Arc<coalesce::WindowCache>,
    remotes: Mutex<BTreeMap<String, Arc<dyn Bucket>>>,
    known: OnceLock<Arc<Prefetched>>,
}

impl Stores {
    /// Stores whose settings are the environment's, overridden by `options` of the names that
    /// `object_store`, delta-rs and Polars share, for example `aws_region`.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] for a name that no store knows.
    pub fn try_new(options: &BTreeMap<String, String>, context: &Context) -> Result<Self> {
        Self::build(options, None, context)
    }

    /// The same, with locations without a scheme inside of `bucket`.
    ///
    /// # Errors
    /// As [`try_new`](Self::try_new).
    pub fn with_bucket(
        options: &BTreeMap<String, String>,
        bucket: Arc<dyn Bucket>,
        context: &Context,
    ) -> Result<Self> {
        Self::build(options, Some(bucket), context)
    }

    fn build(
        options: &BTreeMap<String, String>,
        own: Option<Arc<dyn Bucket>>,
        context: &Context,
    ) -> Result<Self> {
        let options =
            options.iter().map(|(name, value)| (name.to_lowercase(), value.clone())).collect();
        settings::check(&options)?;
        Ok(Self(Arc::new(StoresState {
            options,
            own,
            context: context.clone(),
            traffic: Arc::default(),
            driver: Arc::default(),
            windows: Arc::new(coalesce::WindowCache::new(context)),
            remotes: Mutex::default(),
            known: OnceLock::new(),
        })))
    }

    /// Serves what `known` has of files that are opened from now on; what was told first stays.
    pub fn remember(&self, known: Arc<Prefetched>) {
        let _ = self.0.known.set(known);
    }

    /// Opens the file or object at `location`: a local path, a URL, or a name in the own bucket.
    ///
    /// # Errors
    /// [`Kind::SourceNotFound`], [`Kind::Storage`], and [`Kind::InvalidArgument`] for a location
    /// that cannot be understood.
    pub(crate) fn open(&self, location: &str) -> Result<Arc<dyn Store>> {
        match self.0.known.get().and_then(|known| known.of(location)) {
            Some(file) => prefetched::CachedReader::open(location, file, self),
            None => self.open_anew(location),
        }
    }

    fn open_anew(&self, location: &str) -> Result<Arc<dyn Store>> {
        match self.locate(location)? {
            Location::Local(path) => Ok(Arc::new(local::LocalReader::open(&path, location)?)),
            Location::Object(place) => {
                let file = object::ObjectFile::open(place, location)?;
                Ok(Arc::new(coalesce::Coalesced::new(file, &self.0.windows)))
            }
        }
    }

    /// Finds the files that `patterns` name: files, folders, globs and URLs.
    ///
    /// # Errors
    /// [`Kind::SourceNotFound`] when an item names nothing, [`Kind::InvalidArgument`] when two
    /// items name the same file, [`Kind::ForeignTable`] for a folder whose files a log counts.
    pub(crate) fn list(&self, patterns: &[String]) -> Result<Vec<String>> {
        list::list(self, patterns)
    }

    /// The same for each pattern by itself, with the folder that it names, if it does not name a file.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub(crate) fn list_each(
        &self,
        patterns: &[String],
    ) -> Result<Vec<(Option<String>, Vec<String>)>> {
        let listed = list::list_each(self, patterns)?.into_iter().zip(patterns);
        listed
            .map(|(found, pattern)| Ok((list::folder_of(self, pattern, &found)?, found)))
            .collect()
    }

    /// What `location` means.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] for a location that cannot be understood.
    pub(crate) fn locate(&self, location: &str) -> Result<Location> {
        if !location.contains("://") {
            return Ok(match &self.0.own {
                None => Location::Local(location.into()),
                Some(bucket) => Location::Object(Place::of_own(Arc::clone(bucket), location)),
            });
        }
        let bad = |what: &str| Error::new(Kind::InvalidArgument, what).with_path(location);
        let url =
            Url::parse(location).map_err(|e| bad("location is not a valid URL").with_cause(e))?;
        if location.contains(['?', '#']) {
            let hint =
                "write %3F and %23 where a name has these letters; `*` is the wildcard of URLs";
            return Err(bad("a path of a URL ends at `?` and `#`").with_hint(hint));
        }
        if url.scheme() == "file" {
            return url.to_file_path().map(Location::Local).map_err(|()| {
                bad("file URL does not name a local path").with_hint("write file:///path")
            });
        }
        let (root, key) = remote::split(&url, location)?;
        let mut remotes = self.0.remotes.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = match remotes.get(root.as_str()) {
            Some(bucket) => Arc::clone(bucket),
            None => {
                let bucket: Arc<dyn Bucket> = Arc::new(remote::Remote::new(
                    &url,
                    location,
                    &self.0.options,
                    &self.0.driver,
                    &self.0.traffic,
                    &self.0.context,
                )?);
                remotes.insert(root.to_string(), Arc::clone(&bucket));
                bucket
            }
        };
        Ok(Location::Object(Place::of_url(bucket, root, key)))
    }

    /// Requests that were made and bytes that they moved.
    #[must_use]
    pub(crate) fn traffic(&self) -> &Traffic {
        &self.0.traffic
    }
}

/// Opens a local file that this call wrote.
///
/// # Errors
/// As [`Stores::open`].
pub(crate) fn open_local(path: &Path) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(local::LocalReader::open(path, &path.display().to_string())?))
}

/// A location, understood.
pub(crate) enum Location {
    /// A local path.
    Local(PathBuf),
    /// A place in a bucket.
    Object(Place),
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

/// What an error says when credentials are missing or do not suffice.
const REFUSED: &str = "the object store refused access";

/// What an error says when a local file may not be read.
const DENIED: &str = "no permission to read the source";

/// Whether storage that works refused to give one file.
pub(crate) fn is_denied(error: &Error) -> bool {
    error.kind() == Kind::Storage && matches!(error.what(), REFUSED | DENIED)
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

    fn stores() -> Stores {
        Stores::try_new(&BTreeMap::new(), &Context::new(1 << 24)).unwrap()
    }

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
        let local = |s: &str| match stores().locate(s).unwrap() {
            Location::Local(p) => p.to_str().unwrap().to_owned(),
            Location::Object(place) => panic!("{}", place.location()),
        };
        assert_eq!(local("a/b c.parquet"), "a/b c.parquet");
        assert_eq!(local("file:///a/b%20c.parquet"), "/a/b c.parquet");
        let Location::Object(place) = stores().locate("s3://b/d/k%20.parquet").unwrap() else {
            panic!("a URL is no path")
        };
        assert_eq!((place.key(), &*place.location()), ("d/k .parquet", "s3://b/d/k%20.parquet"));
        assert_eq!(stores().locate("s3://[/").err().unwrap().kind(), Kind::InvalidArgument);
    }

    #[test]
    fn buckets_of_one_call_are_connected_once() {
        let stores = stores();
        let bucket = |s: &str| match stores.locate(s).unwrap() {
            Location::Object(place) => Arc::as_ptr(place.bucket()).cast::<u8>(),
            Location::Local(path) => panic!("{}", path.display()),
        };
        assert_eq!(bucket("s3://b/1"), bucket("s3://b/d/2"));
        assert_ne!(bucket("s3://b/1"), bucket("s3://c/1"));
    }

    #[test]
    fn options_of_no_store_are_refused() {
        let options = BTreeMap::from([("aws_regoin".to_owned(), "x".to_owned())]);
        let e = Stores::try_new(&options, &Context::new(1 << 24)).err().unwrap();
        assert_eq!(e.kind(), Kind::InvalidArgument);
        assert!(e.to_string().contains("`aws_regoin`"), "{e}");
    }
}
