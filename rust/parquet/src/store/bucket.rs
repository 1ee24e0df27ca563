//! What an object store can do for a merge, and places in one.
//!
//! ```text
//! s3://bucket / folder/part-0.parquet        Place = bucket + root + key
//!     root           key
//! ```
//!
//! # Invariants
//! Keys have no slash in front and none at the end. Nothing is visible under a key before its
//! upload was completed.
//!
//! # Not here
//! Requests (`remote`); a caller's own store (`plait-py`).

use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use plait_core::{Error, Kind, Result};
use url::Url;

use super::urls::{is_azure, is_s3};
use crate::runtime::Charge;

/// Takes the bytes of a read that began, or none if it failed.
pub(super) type ReadDone = Box<dyn FnOnce(Option<Bytes>) + Send>;

/// A read that began, until it is dropped.
pub(super) type BegunRead = Box<dyn Send + Sync>;

/// Objects by name.
pub trait Bucket: Send + Sync {
    /// Looks an object up; absent is `None`.
    ///
    /// # Errors
    /// [`Kind::Storage`](plait_core::Kind::Storage).
    fn head(&self, key: &str) -> Result<Option<Meta>>;

    /// Looks an object up and, where the store can do both in one request, reads its last `len`
    /// bytes, or all if it has fewer. Elsewhere the bytes are empty.
    ///
    /// # Errors
    /// [`Kind::Storage`](plait_core::Kind::Storage).
    fn open(&self, key: &str, _len: u64) -> Result<Option<(Meta, Bytes)>> {
        Ok(self.head(key)?.map(|meta| (meta, Bytes::new())))
    }

    /// Reads bytes of an object, of the version that `meta` names if the store can tell.
    ///
    /// # Errors
    /// [`Kind::SourceChanged`](plait_core::Kind::SourceChanged) when there is another version
    /// now, [`Kind::Storage`](plait_core::Kind::Storage).
    fn read(&self, key: &str, range: Range<u64>, meta: &Meta) -> Result<Bytes>;

    /// Begins to read bytes of an object as [`read`](Self::read) does, and returns at once; `done` gets
    /// them, or none if that failed. Drops `done` if the store has no such reads. The read may end when
    /// what is returned is dropped.
    fn begin_read(
        &self,
        _key: &str,
        _range: Range<u64>,
        _meta: &Meta,
        _done: Box<dyn FnOnce(Option<Bytes>) + Send>,
    ) -> Option<Box<dyn Send + Sync>> {
        None
    }

    /// Keys below the folder `prefix`; with `deep`, those in folders below it, too.
    ///
    /// # Errors
    /// [`Kind::Storage`](plait_core::Kind::Storage).
    fn list(&self, prefix: &str, deep: bool) -> Result<Vec<String>>;

    /// Begins to upload an object.
    ///
    /// # Errors
    /// [`Kind::Storage`](plait_core::Kind::Storage).
    fn upload(&self, key: &str) -> Result<Box<dyn Upload>>;

    /// Whether an output that turns out to be small is put by one request, as by
    /// [`put_new`](Self::put_new). Elsewhere uploads begin at once, and what cannot be written says so
    /// before any work.
    fn puts_whole(&self) -> bool {
        false
    }

    /// Makes a small object, in one step, unless there is one of that name.
    ///
    /// # Errors
    /// [`Kind::Unsupported`](plait_core::Kind::Unsupported) for a store that cannot do both at
    /// once, [`Kind::Storage`](plait_core::Kind::Storage): then it is open whether it was made.
    fn put_new(&self, key: &str, bytes: Bytes) -> Result<Completed>;

    /// Makes a small object, in one step, in the place of one that may be there.
    ///
    /// # Errors
    /// [`Kind::Storage`](plait_core::Kind::Storage).
    fn replace(&self, key: &str, bytes: Bytes) -> Result<()>;

    /// Copies an object to another name of the bucket, in one step, without moving its bytes through
    /// this machine; false for a store that cannot.
    ///
    /// # Errors
    /// [`Kind::SourceNotFound`](plait_core::Kind::SourceNotFound),
    /// [`Kind::Storage`](plait_core::Kind::Storage).
    fn copy(&self, _from: &str, _to: &str) -> Result<bool> {
        Ok(false)
    }

    /// Removes an object; an absent one is no error.
    ///
    /// # Errors
    /// [`Kind::Storage`](plait_core::Kind::Storage).
    fn remove(&self, key: &str) -> Result<()>;

    /// The error of [`put_new`](Self::put_new) for a store that cannot put an object only where there
    /// is none.
    fn unconditional(&self, location: &str) -> Error {
        let what = "this store cannot create an object only if it is absent";
        Error::new(Kind::Unsupported, what).with_path(location).with_hint(
            "without this condition two compactions could both commit; use plait.merge instead",
        )
    }
}

/// What an object was when it was looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Length in bytes.
    pub len: u64,
    /// Entity tag.
    pub tag: Option<String>,
    /// When it was last written, as the store says it; of use where there is no entity tag.
    pub modified: Option<String>,
    /// The same, if it could be read.
    pub modified_at: Option<SystemTime>,
}

impl Meta {
    /// What tells this version of the object from others.
    pub(super) fn version(&self) -> Option<String> {
        self.tag.clone().or_else(|| self.modified.clone())
    }
}

/// An object that is being uploaded. Dropped before it is completed, it is aborted.
pub trait Upload: Send {
    /// Uploads the next part; may return before it has arrived. `charge` accounts for its bytes
    /// until then.
    ///
    /// # Errors
    /// [`Kind::Storage`](plait_core::Kind::Storage), also for a part before.
    fn part(&mut self, bytes: Vec<u8>, charge: Charge) -> Result<()>;

    /// The fewest bytes of a part that is not the last, if the store may copy parts of the object
    /// at `source`, as far as it is known.
    fn copied_part_min(&self, _source: &Url) -> Option<u64> {
        None
    }

    /// Makes bytes of another object the next part, without moving them through this machine; may
    /// return before they are copied. `from` is its URL, `tag` the entity tag of the version that was
    /// read. False for a store that cannot: then nothing was done.
    ///
    /// # Errors
    /// [`Kind::SourceChanged`](plait_core::Kind::SourceChanged) when there is another version now,
    /// [`Kind::Storage`](plait_core::Kind::Storage), also for a part before.
    fn copy_part(&mut self, _from: &Url, _tag: &str, _range: Range<u64>) -> Result<bool> {
        Ok(false)
    }

    /// Waits until all parts have arrived.
    ///
    /// # Errors
    /// [`Kind::Storage`](plait_core::Kind::Storage).
    fn wait_all(&mut self) -> Result<()>;

    /// Makes the object visible, unless there is one of that name.
    ///
    /// # Errors
    /// [`Kind::Storage`](plait_core::Kind::Storage).
    fn complete(&mut self) -> Result<Completed>;
}

/// How an upload, or a local file that gets its name, ended.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completed {
    /// The object or file is visible.
    Yes,
    /// There was one already, or it looks so; nothing was changed.
    Occupied,
}

/// A place in a bucket.
#[derive(Clone)]
pub(crate) struct Place {
    bucket: Arc<dyn Bucket>,
    /// Absent for the caller's own bucket, whose locations are keys.
    root: Option<Arc<Url>>,
    key: String,
}

impl Place {
    pub(super) fn of_url(bucket: Arc<dyn Bucket>, root: Arc<Url>, key: String) -> Self {
        Self { bucket, root: Some(root), key }
    }

    pub(super) fn of_own(bucket: Arc<dyn Bucket>, location: &str) -> Self {
        Self { bucket, root: None, key: location.trim_matches('/').to_owned() }
    }

    /// The bucket.
    #[must_use]
    pub(crate) fn bucket(&self) -> &Arc<dyn Bucket> {
        &self.bucket
    }

    /// The name in the bucket.
    #[must_use]
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// The place of another key of the bucket.
    #[must_use]
    pub(crate) fn with_key(&self, key: String) -> Self {
        Self { bucket: Arc::clone(&self.bucket), root: self.root.clone(), key }
    }

    /// The place of `name` below this one.
    #[must_use]
    pub(crate) fn below(&self, name: &str) -> Self {
        match self.key.as_str() {
            "" => self.with_key(name.to_owned()),
            key => self.with_key(format!("{key}/{name}")),
        }
    }

    /// How callers write this place.
    #[must_use]
    pub(crate) fn location(&self) -> String {
        self.url().map_or_else(|| self.key.clone(), String::from)
    }

    /// Whether the object at `url` is in a store of the same kind that copies parts.
    #[must_use]
    pub(crate) fn is_like(&self, url: &Url) -> bool {
        let are = |is: fn(&Url) -> bool| self.root.as_deref().is_some_and(is) && is(url);
        are(is_s3) || are(is_azure)
    }

    /// Its URL, unless it is in the caller's own bucket.
    #[must_use]
    pub(super) fn url(&self) -> Option<Url> {
        let mut url = Url::clone(self.root.as_ref()?);
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(self.key.split('/'));
        }
        Some(url)
    }
}
