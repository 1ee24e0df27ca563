//! A bucket of S3, Google Cloud Storage, Azure or an HTTP server.
//!
//! # Invariants
//! A client lives in one process: a forked one makes its own.
//!
//! # Cost
//! A request a call. Failed requests are repeated by `object_store`; reads whose answer breaks off
//! are repeated here.
//!
//! # Not here
//! Settings (`settings`); uploads in parts (`upload`); counting (`wire`).

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use object_store::client::{HttpError, HttpErrorKind};
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, GetResult, ListResult, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode,
    PutPayload,
};
use plait_core::{Error, Kind, Result};
use tokio::task::{AbortHandle, JoinSet};
use url::Url;

use super::bucket::{BegunRead, Bucket, Completed, Meta, ReadDone, Upload};
use super::credentials::silence;
use super::driver::Driver;
use super::failed::request_error;
use super::settings::{self, Client};
use super::upload::{ABORT_TIME, RemoteUpload, UploadedParts};
use super::urls::split;
use super::wire::Traffic;
use crate::runtime::Context;

/// How often a request is repeated whose answer broke off, and the first pause.
const REPEATS: usize = 4;
const PAUSE: Duration = Duration::from_millis(50);

/// Buffers of a connection are up to some times larger than so many bytes.
const COPIED_BYTES: usize = 256 << 10;

/// How many folders are listed at the same time.
const LISTED_AT_ONCE: usize = 16;

type Make = Box<dyn Fn() -> Result<Client> + Send + Sync>;

/// A bucket behind a network.
pub(super) struct Remote {
    root: String,
    make: Make,
    live: Mutex<Option<(u32, Client)>>,
    driver: Arc<Driver>,
    context: Context,
    /// No request is repeated later than this after it began.
    repeat_time: Duration,
}

impl Remote {
    pub(super) fn new(
        url: &Url,
        location: &str,
        options: &BTreeMap<String, String>,
        driver: &Arc<Driver>,
        traffic: &Arc<Traffic>,
        context: &Context,
    ) -> Result<Self> {
        let (url, location, options) = (url.clone(), location.to_owned(), options.clone());
        let (root, traffic) = (split(&url, &location)?.0.to_string(), Arc::clone(traffic));
        let of = context.clone();
        let repeat_time = settings::retry(&options)?.retry_timeout;
        let make: Make =
            Box::new(move || settings::client(&url, &location, &options, &traffic, &of));
        let first = make()?; // invalid settings are refused at once
        let live = Mutex::new(Some((std::process::id(), first)));
        let (driver, context) = (Arc::clone(driver), context.clone());
        Ok(Self { root, make, live, driver, context, repeat_time })
    }

    fn client(&self) -> Result<Client> {
        let process = std::process::id();
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, client)) = live.as_ref().filter(|(made_in, _)| *made_in == process) {
            return Ok(client.clone());
        }
        std::mem::forget(live.take());
        let client = (self.make)()?;
        *live = Some((process, client.clone()));
        Ok(client)
    }

    /// As [`run_with`](Self::run_with), with the store alone.
    fn run<T: Send + 'static, F>(
        &self,
        grace: Duration,
        request: impl Fn(Arc<dyn ObjectStore>) -> F,
    ) -> Result<object_store::Result<T>>
    where
        F: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        self.run_with(grace, |client| request(client.store))
    }

    /// Runs a request that may be repeated. `object_store` repeats requests, and reads of ranges
    /// that break; other answers that break while they are read are left to this.
    fn run_with<T: Send + 'static, F>(
        &self,
        grace: Duration,
        request: impl Fn(Client) -> F,
    ) -> Result<object_store::Result<T>>
    where
        F: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        let mut pause = PAUSE;
        let began = Instant::now();
        for _ in 0..REPEATS {
            match self.driver.run(Some(&self.context), grace, request(self.client()?))? {
                Err(e) if is_broken_answer(&e) && began.elapsed() < self.repeat_time => {
                    let wait = async move { tokio::time::sleep(pause).await };
                    self.driver.run(Some(&self.context), Duration::ZERO, wait)?;
                    pause *= 2;
                }
                outcome => return Ok(outcome),
            }
        }
        self.driver.run(Some(&self.context), grace, request(self.client()?))
    }

    fn at(&self, key: &str) -> String {
        format!("{}/{key}", self.root.trim_end_matches('/'))
    }

    fn path(&self, key: &str) -> Result<Path> {
        Path::parse(key).map_err(|e| {
            Error::new(Kind::InvalidArgument, "location cannot be a name in an object store")
                .with_path(self.at(key))
                .with_cause(e)
        })
    }
}

impl Bucket for Remote {
    fn head(&self, key: &str) -> Result<Option<Meta>> {
        let path = self.path(key)?;
        let head = |store: Arc<dyn ObjectStore>| {
            let path = path.clone();
            async move { store.head(&path).await }
        };
        match self.run(Duration::ZERO, head)? {
            Ok(meta) => Ok(Some(meta_of(meta))),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(request_error(e, &self.at(key))),
        }
    }

    fn open(&self, key: &str, len: u64) -> Result<Option<(Meta, Bytes)>> {
        let path = self.path(key)?;
        let get = |store: Arc<dyn ObjectStore>| {
            let path = path.clone();
            let options = GetOptions::new().with_range(Some(GetRange::Suffix(len)));
            async move {
                let found = store.get_opts(&path, options).await?;
                let meta = found.meta.clone();
                Ok((meta, found.bytes().await?))
            }
        };
        match self.run(Duration::ZERO, get)? {
            Ok((meta, tail)) => Ok(Some((meta_of(meta), alone(tail)))),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(e) if is_without_ends(&e) => Ok(self.head(key)?.map(|meta| (meta, Bytes::new()))),
            Err(e) => Err(request_error(e, &self.at(key))),
        }
    }

    fn read(&self, key: &str, range: Range<u64>, meta: &Meta) -> Result<Bytes> {
        let path = self.path(key)?;
        let options = ranged(&range, meta);
        let get = |store: Arc<dyn ObjectStore>| {
            let (path, options, tag) = (path.clone(), options.clone(), meta.tag.clone());
            async move { same(store.get_opts(&path, options).await?, tag)?.bytes().await }
        };
        let read = self.run(Duration::ZERO, get)?;
        read.map(alone).map_err(|e| match e {
            object_store::Error::Precondition { .. } | object_store::Error::NotFound { .. } => {
                super::reader::changed(&self.at(key)).with_cause(e)
            }
            e => request_error(e, &self.at(key)).with_offset(range.start),
        })
    }

    fn begin_read(
        &self,
        key: &str,
        range: Range<u64>,
        meta: &Meta,
        done: ReadDone,
    ) -> Option<BegunRead> {
        let (path, options) = (self.path(key).ok()?, ranged(&range, meta));
        let tag = meta.tag.clone();
        let store = self.client().ok()?.store;
        let (handle, process) = self.driver.handle().ok()?;
        let task = handle.spawn(async move {
            let answer = store.get_opts(&path, options).await;
            done(match answer.and_then(|answer| same(answer, tag)) {
                Ok(answer) => answer.bytes().await.ok(),
                Err(_) => None,
            });
        });
        Some(Box::new(RunningRead { task: task.abort_handle(), process }))
    }

    fn list(&self, prefix: &str, deep: bool) -> Result<Vec<String>> {
        let root = self.path(prefix)?;
        let (mut keys, mut open) = (Vec::new(), vec![root]);
        while !open.is_empty() {
            let folders = open.split_off(open.len().saturating_sub(LISTED_AT_ONCE));
            let list = |store: Arc<dyn ObjectStore>| list_folders(store, folders.clone());
            let listed = self.run(Duration::ZERO, list)?;
            for folder in listed.map_err(|e| request_error(e, &self.at(prefix)))? {
                keys.extend(folder.objects.into_iter().map(|object| object.location.to_string()));
                if deep {
                    open.extend(folder.common_prefixes);
                }
            }
        }
        Ok(keys)
    }

    fn upload(&self, key: &str) -> Result<Box<dyn Upload>> {
        let path = self.path(key)?;
        let client = self.client()?.store;
        let begin = |client: Client| {
            let path = path.clone();
            async move {
                Ok(match client.copier {
                    Some(copier) => UploadedParts::Copied(copier.begin(path).await?),
                    None => UploadedParts::Sent(client.store.put_multipart(&path).await?),
                })
            }
        };
        // An upload whose name never arrives cannot be aborted: better wait for it.
        let begun = self.run_with(ABORT_TIME, begin)?;
        let inner = begun.map_err(|e| match e {
            object_store::Error::NotImplemented { .. } => {
                Error::new(Kind::Unsupported, "this store can be read, not written")
                    .with_path(self.at(key))
                    .with_hint("write to a local folder, or to an s3, gs or az URL")
            }
            e => request_error(e, &self.at(key)),
        })?;
        Ok(Box::new(RemoteUpload {
            inner: Some(inner),
            client,
            path,
            location: self.at(key),
            in_flight: VecDeque::new(),
            parts: 0,
            driver: Arc::clone(&self.driver),
            context: self.context.clone(),
            process: std::process::id(),
        }))
    }

    fn puts_whole(&self) -> bool {
        self.client().is_ok_and(|client| client.is_written)
    }

    fn put_new(&self, key: &str, bytes: Bytes) -> Result<Completed> {
        let path = self.path(key)?;
        let put = |store: Arc<dyn ObjectStore>| {
            let (path, bytes) = (path.clone(), PutPayload::from(bytes.clone()));
            async move { store.put_opts(&path, bytes, PutMode::Create.into()).await }
        };
        match self.run(ABORT_TIME, put)? {
            Ok(_) => Ok(Completed::Yes),
            Err(
                object_store::Error::AlreadyExists { .. }
                | object_store::Error::Precondition { .. },
            ) => Ok(Completed::Occupied),
            Err(
                e @ (object_store::Error::NotImplemented { .. }
                | object_store::Error::NotSupported { .. }),
            ) => Err(self.unconditional(&self.at(key)).with_cause(e)),
            Err(e) => Err(request_error(e, &self.at(key))),
        }
    }

    fn replace(&self, key: &str, bytes: Bytes) -> Result<()> {
        let path = self.path(key)?;
        let put = |store: Arc<dyn ObjectStore>| {
            let (path, bytes) = (path.clone(), PutPayload::from(bytes.clone()));
            async move { store.put(&path, bytes).await }
        };
        self.run(ABORT_TIME, put)?.map(drop).map_err(|e| request_error(e, &self.at(key)))
    }

    fn copy(&self, from: &str, to: &str) -> Result<bool> {
        let (path, target) = (self.path(from)?, self.path(to)?);
        let copy = |store: Arc<dyn ObjectStore>| {
            let (path, target) = (path.clone(), target.clone());
            async move { store.copy(&path, &target).await }
        };
        match self.run(ABORT_TIME, copy)? {
            Ok(()) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => {
                Err(super::reader::not_found(&self.at(from)))
            }
            Err(
                object_store::Error::NotImplemented { .. }
                | object_store::Error::NotSupported { .. },
            ) => Ok(false),
            Err(e) => Err(request_error(e, &self.at(from))),
        }
    }

    fn remove(&self, key: &str) -> Result<()> {
        let path = self.path(key)?;
        let delete = |store: Arc<dyn ObjectStore>| {
            let path = path.clone();
            async move { store.delete(&path).await }
        };
        match self.run(Duration::ZERO, delete)? {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(request_error(e, &self.at(key))),
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let live = self.live.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((process, client)) = live
            && process != std::process::id()
        {
            std::mem::forget(client);
        }
    }
}

/// A read that ends when this is dropped.
struct RunningRead {
    task: AbortHandle,
    process: u32,
}

impl Drop for RunningRead {
    fn drop(&mut self) {
        // That of the parent of a fork goes on there.
        if self.process == std::process::id() {
            self.task.abort();
        }
    }
}

/// How to read `range` of the version that `meta` names.
fn ranged(range: &Range<u64>, meta: &Meta) -> GetOptions {
    let mut options = GetOptions::new();
    options.range = Some(GetRange::Bounded(range.clone()));
    // A weak tag never matches a ranged request.
    options.if_match = meta.tag.clone().filter(|tag| !tag.starts_with("W/"));
    options
}

/// The version that an answer tells, in memory of this thread, as [`alone`].
fn meta_of(meta: ObjectMeta) -> Meta {
    Meta {
        len: meta.size,
        modified: meta.e_tag.is_none().then(|| meta.last_modified.to_rfc3339()),
        modified_at: Some(meta.last_modified.into()),
        tag: meta.e_tag.as_deref().map(str::to_owned),
    }
}

/// The answer, unless it is of another version than the one with this `tag`: some servers ignore
/// `If-Match`.
fn same(answer: GetResult, tag: Option<String>) -> object_store::Result<GetResult> {
    match (&answer.meta.e_tag, tag) {
        (Some(now), Some(then)) if *now != then => Err(object_store::Error::Precondition {
            path: answer.meta.location.to_string(),
            source: format!("version {now} instead of {then}").into(),
        }),
        _ => Ok(answer),
    }
}

/// The bytes of an answer in memory of their own. Few of them may lie in a buffer of the connection,
/// which is larger and would be held as long as they are. The thread that asked copies them: what
/// stays of a million answers would leave holes in the memory of the one that receives them.
pub(super) fn alone(bytes: Bytes) -> Bytes {
    if bytes.len() <= COPIED_BYTES { Bytes::copy_from_slice(&bytes) } else { bytes }
}

/// What is directly in each of `folders`, in any order.
async fn list_folders(
    store: Arc<dyn ObjectStore>,
    folders: Vec<Path>,
) -> object_store::Result<Vec<ListResult>> {
    let mut lists = JoinSet::new();
    for folder in folders {
        let store = Arc::clone(&store);
        lists.spawn(async move { store.list_with_delimiter(Some(&folder)).await });
    }
    let mut listed = Vec::new();
    while let Some(list) = lists.join_next().await {
        listed.push(list??);
    }
    Ok(listed)
}

/// What the client says of answers to a request for the end: of an empty object, of servers that send
/// the whole object, or other bytes of it.
const NO_END: [&str; 5] =
    ["status code: 416", "non-partial", "Content-Range", "CONTENT_RANGE", "Requested "];

/// Whether the store cannot read the end of this object. Azure has no such requests.
fn is_without_ends(e: &object_store::Error) -> bool {
    match e {
        object_store::Error::NotSupported { .. } | object_store::Error::NotImplemented { .. } => {
            true
        }
        object_store::Error::Generic { source, .. } => {
            let text = source.to_string();
            NO_END.iter().any(|said| text.contains(said))
        }
        _ => false,
    }
}

/// Whether the answer began well and broke off. What the server refused is an error at once.
fn is_broken_answer(e: &object_store::Error) -> bool {
    let object_store::Error::Generic { source, .. } = e else { return false };
    if silence(e).is_some() {
        return false;
    }
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(source.as_ref());
    while let Some(error) = cause {
        if let Some(http) = error.downcast_ref::<HttpError>() {
            return matches!(
                http.kind(),
                HttpErrorKind::Interrupted
                    | HttpErrorKind::Timeout
                    | HttpErrorKind::Decode
                    | HttpErrorKind::Unknown
            );
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
pub(super) mod tests {
    use object_store::memory::InMemory;

    use super::*;

    /// A bucket in memory, and the store behind it.
    pub(in crate::store) fn memory(objects: &[(&str, &'static [u8])]) -> Arc<Remote> {
        let store = Arc::new(InMemory::new());
        let client = Arc::clone(&store);
        let of = move || Client { store: Arc::clone(&client) as _, copier: None, is_written: true };
        let make: Make = Box::new(move || Ok(of()));
        let remote = Remote {
            root: "mem://b".to_owned(),
            make,
            live: Mutex::default(),
            driver: Arc::default(),
            context: Context::new(64 << 20),
            repeat_time: Duration::MAX,
        };
        for (key, bytes) in objects {
            put(&remote, key, bytes);
        }
        Arc::new(remote)
    }

    pub(in crate::store) fn put(remote: &Remote, key: &str, bytes: &'static [u8]) {
        let key = Path::from(key);
        let put = |store: Arc<dyn ObjectStore>| {
            let key = key.clone();
            async move { store.put(&key, bytes.into()).await }
        };
        remote.run(Duration::ZERO, put).unwrap().unwrap();
    }

    #[test]
    fn an_upload_is_visible_when_it_is_complete_and_replaces_nothing() {
        let bucket = memory(&[("d/old", b"old")]);
        let context = Context::new(64 << 20);
        let mut upload = bucket.upload("d/new").unwrap();
        for part in ["one ", "two"] {
            upload.part(part.as_bytes().to_vec(), context.charge(part.len())).unwrap();
        }
        upload.wait_all().unwrap();
        assert_eq!(context.account().held_bytes(), 0, "what has arrived is not accounted for");
        assert_eq!(bucket.list("d", true).unwrap(), ["d/old"]);
        assert_eq!(upload.complete().unwrap(), Completed::Yes);
        let meta = bucket.head("d/new").unwrap().unwrap();
        assert_eq!(&bucket.read("d/new", 0..7, &meta).unwrap()[..], b"one two");
        let mut upload = bucket.upload("d/old").unwrap();
        upload.part(b"other".to_vec(), context.charge(5)).unwrap();
        assert_eq!(upload.complete().unwrap(), Completed::Occupied);
        drop(upload);
        let meta = bucket.head("d/old").unwrap().unwrap();
        assert_eq!(&bucket.read("d/old", 0..3, &meta).unwrap()[..], b"old");
        drop(bucket.upload("d/dropped").unwrap());
        assert_eq!(bucket.head("d/dropped").unwrap(), None);
        assert_eq!(bucket.put_new("d/old", "other".into()).unwrap(), Completed::Occupied);
        assert_eq!(bucket.put_new("d/put", "put".into()).unwrap(), Completed::Yes);
        bucket.remove("d/old").unwrap();
        bucket.remove("d/old").unwrap();
        assert_eq!(bucket.list("d", true).unwrap(), ["d/new", "d/put"]);
    }
}
