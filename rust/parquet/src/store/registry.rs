//! All that one call reads from and writes to: settings, and a client for each bucket.
//!
//! # Invariants
//! A bucket is connected to once in a call.
//!
//! # Cost
//! No thread exists before the first request to an object store or after the [`Stores`] of the call
//! are gone, and a forked process starts its own.
//!
//! # Not here
//! What a folder or a glob names (`list`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use plait_core::{Error, Kind, Result};
use url::Url;

use super::bucket::{Bucket, Place};
use super::prefetched::Prefetched;
use super::reader::RangeReader;
use super::watched::{Watch, Watched};
use super::wire::Traffic;
use super::{coalesce, driver, local, object, prefetched, remote, settings, urls, window_cache};
use crate::runtime::Context;

/// Everything that one call reads from and writes to: settings, and one client per bucket.
#[derive(Clone)]
pub struct Stores(Arc<StoresState>);

/// A bucket and its URL, which its objects share: there may be a million.
type RemoteRoot = (Arc<dyn Bucket>, Arc<Url>);

struct StoresState {
    options: BTreeMap<String, String>,
    /// Where locations without a scheme are; local files if the caller brought no bucket.
    own: Option<Arc<dyn Bucket>>,
    context: Context,
    traffic: Arc<Traffic>,
    driver: Arc<driver::Driver>,
    windows: Arc<window_cache::WindowCache>,
    remotes: Mutex<BTreeMap<String, RemoteRoot>>,
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
            windows: Arc::new(window_cache::WindowCache::new(context)),
            remotes: Mutex::default(),
            known: OnceLock::new(),
        })))
    }

    /// Serves what `known` has of files that are opened from now on; the first `known` stays.
    pub fn remember(&self, known: Arc<Prefetched>) {
        let _ = self.0.known.set(known);
    }

    /// Says that sources are read more than once: what was requested is kept, as far as there is room.
    pub(crate) fn read_again(&self) {
        self.0.windows.read_again();
    }

    /// Opens the file or object at `location`: a local path, a URL, or a name in the own bucket.
    ///
    /// # Errors
    /// [`Kind::SourceNotFound`], [`Kind::Storage`], and [`Kind::InvalidArgument`] for a location
    /// that cannot be understood.
    pub(crate) fn open(&self, location: &str) -> Result<Arc<dyn RangeReader>> {
        match self.0.known.get().and_then(|known| known.of(location)) {
            Some(file) => {
                let is_local = matches!(self.locate(location)?, Location::Local(_));
                let (stores, at) = (self.clone(), location.to_owned());
                let open = Box::new(move || stores.open_anew(&at, None));
                prefetched::CachedReader::open(location, file, is_local, open)
            }
            None => self.open_anew(location, None),
        }
    }

    /// The same of a source of a call, whose reads are counted.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn open_source(
        &self,
        location: &str,
        context: &Context,
    ) -> Result<Arc<dyn RangeReader>> {
        let watch = Watch::of(context);
        let is_known = self.0.known.get().is_some_and(|known| known.of(location).is_some());
        match is_known {
            true => Ok(Arc::new(Watched { inner: self.open(location)?, watch })),
            false => self.open_anew(location, Some(watch)),
        }
    }

    fn open_anew(&self, location: &str, watch: Option<Watch>) -> Result<Arc<dyn RangeReader>> {
        match self.locate(location)? {
            Location::Local(path) => {
                Ok(Arc::new(local::LocalReader::open(&path, location, watch)?))
            }
            Location::Object(place) => {
                let tail_max = coalesce::TAIL_BYTES;
                let (file, tail) = object::ObjectFile::open(place, location, tail_max)?;
                let inner = coalesce::Coalesced::new(Arc::new(file), tail, &self.0.windows);
                let inner: Arc<dyn RangeReader> = Arc::new(inner);
                Ok(match watch {
                    Some(watch) => Arc::new(Watched { inner, watch }),
                    None => inner,
                })
            }
        }
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
        let (root, key) = urls::split(&url, location)?;
        let mut remotes = self.0.remotes.lock().unwrap_or_else(PoisonError::into_inner);
        let (bucket, root) = match remotes.get(root.as_str()) {
            Some((bucket, root)) => (Arc::clone(bucket), Arc::clone(root)),
            None => {
                let bucket: Arc<dyn Bucket> = Arc::new(remote::Remote::new(
                    &url,
                    location,
                    &self.0.options,
                    &self.0.driver,
                    &self.0.traffic,
                    &self.0.context,
                )?);
                let name = root.to_string();
                let root = Arc::new(root);
                remotes.insert(name, (Arc::clone(&bucket), Arc::clone(&root)));
                (bucket, root)
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
pub(crate) fn open_local(path: &Path) -> Result<Arc<dyn RangeReader>> {
    Ok(Arc::new(local::LocalReader::open(path, &path.display().to_string(), None)?))
}

/// A location, understood.
pub(crate) enum Location {
    /// A local path.
    Local(PathBuf),
    /// A place in a bucket.
    Object(Place),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stores() -> Stores {
        Stores::try_new(&BTreeMap::new(), &Context::new(1 << 24)).unwrap()
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
