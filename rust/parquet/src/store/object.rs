//! An object in an object store, read by ranged requests.
//!
//! ```text
//! read(range) ──▶ client of this process ──▶ GET bytes=a..b, if-match: the version first seen
//!                   └─ made at the first request after start or fork
//! ```
//!
//! # Invariants
//! One client and one runtime per store and process: a forked child never touches its parent's.
//! The runtime runs on the calling thread; helper threads (name look-ups) exist only while
//! requests need them.
//!
//! # Not here
//! Retries and credentials (`object_store` has both, configured by the environment).

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt};
use plait_core::{Error, Kind, Result};
use tokio::runtime::Runtime;
use url::Url;

use super::{Store, changed, check_range, not_found, short_read};

/// An object in an object store.
pub(super) struct ObjectFile {
    location: String,
    key: Path,
    meta: ObjectMeta,
    connection: Connection,
}

impl ObjectFile {
    /// Looks the object up.
    pub(super) fn open(url: &Url, location: &str) -> Result<Self> {
        let (key, connection) = Connection::try_new(url, location)?;
        Self::with_connection(connection, key, location)
    }

    fn with_connection(connection: Connection, key: Path, location: &str) -> Result<Self> {
        let head_of = key.clone();
        let meta = connection
            .run(|store| async move { store.head(&head_of).await })?
            .map_err(|e| request_error(e, location))?;
        Ok(Self { location: location.to_owned(), key, meta, connection })
    }
}

impl Store for ObjectFile {
    fn path(&self) -> &str {
        &self.location
    }

    fn len(&self) -> u64 {
        self.meta.size
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let len = check_range(&range, self.len(), &self.location)?;
        if len == 0 {
            return Ok(Bytes::new());
        }
        let mut options = GetOptions::new();
        options.range = Some(GetRange::Bounded(range.clone()));
        // A weak tag never matches a ranged request.
        options.if_match = self.meta.e_tag.clone().filter(|tag| !tag.starts_with("W/"));
        let key = self.key.clone();
        let bytes =
            self.connection
                .run(|store| async move { store.get_opts(&key, options).await?.bytes().await })?
                .map_err(|e| match e {
                    object_store::Error::Precondition { .. }
                    | object_store::Error::NotFound { .. } => changed(&self.location).with_cause(e),
                    e => request_error(e, &self.location).with_offset(range.start),
                })?;
        if bytes.len() == len { Ok(bytes) } else { Err(short_read(&range, &self.location)) }
    }

    fn check_unchanged(&self) -> Result<()> {
        let key = self.key.clone();
        match self.connection.run(|store| async move { store.head(&key).await })? {
            Ok(now)
                if now.size == self.meta.size
                    && now.e_tag == self.meta.e_tag
                    && now.last_modified == self.meta.last_modified =>
            {
                Ok(())
            }
            Ok(_) => Err(changed(&self.location)),
            Err(object_store::Error::NotFound { .. }) => {
                Err(changed(&self.location).with_got("no object"))
            }
            Err(e) => Err(request_error(e, &self.location)),
        }
    }

    fn is_local(&self) -> bool {
        false
    }
}

/// Lists the objects below the prefix `url`, as (URL, name parts below the prefix).
pub(super) fn list_prefix(url: &Url, location: &str) -> Result<Vec<(String, Vec<String>)>> {
    let (prefix, connection) = Connection::try_new(url, location)?;
    let root = prefix.clone();
    let keys = connection
        .run(|store| async move {
            let (mut keys, mut open) = (Vec::new(), vec![root]);
            while let Some(prefix) = open.pop() {
                let listed = store.list_with_delimiter(Some(&prefix)).await?;
                keys.extend(listed.objects.into_iter().map(|object| object.location));
                open.extend(listed.common_prefixes);
            }
            Ok::<_, object_store::Error>(keys)
        })?
        .map_err(|e| request_error(e, location))?;
    let below = keys.iter().filter_map(|key| {
        let parts: Vec<String> = key.prefix_match(&prefix)?.map(|p| p.as_ref().into()).collect();
        let mut url = url.clone();
        url.path_segments_mut().ok()?.pop_if_empty().extend(&parts);
        Some((url.to_string(), parts))
    });
    Ok(below.collect())
}

/// A client with the runtime that drives it, for one process.
struct Connection {
    make: Box<dyn Fn() -> Result<Arc<dyn ObjectStore>> + Send + Sync>,
    live: Mutex<Option<Live>>,
}

#[derive(Clone)]
struct Live {
    process: u32,
    client: Arc<dyn ObjectStore>,
    runtime: Arc<Runtime>,
}

impl Connection {
    fn try_new(url: &Url, location: &str) -> Result<(Path, Self)> {
        let connect = {
            let (url, location) = (url.clone(), location.to_owned());
            move || {
                // Plain HTTP is what the caller asked for by writing http://.
                let plain = (url.scheme() == "http").then(|| ("allow_http".into(), "true".into()));
                let variables = std::env::vars_os().filter_map(|(name, value)| {
                    Some((name.into_string().ok()?.to_lowercase(), value.into_string().ok()?))
                });
                object_store::parse_url_opts(&url, variables.chain(plain)).map_err(|e| {
                    Error::new(Kind::InvalidArgument, "location is not one of a known object store")
                        .with_path(location.as_str())
                        .with_cause(e)
                        .with_hint(
                            "known are local paths and file, s3, gs, az, abfs(s), http(s) URLs",
                        )
                })
            }
        };
        let (_, key) = connect()?;
        let make = move || connect().map(|(client, _)| Arc::from(client));
        Ok((key, Self { make: Box::new(make), live: Mutex::new(None) }))
    }

    /// Runs one request to its end.
    fn run<T: Send, F: Future<Output = T> + Send>(
        &self,
        request: impl FnOnce(Arc<dyn ObjectStore>) -> F,
    ) -> Result<T> {
        let live = self.live()?;
        let future = request(live.client);
        if tokio::runtime::Handle::try_current().is_err() {
            return Ok(live.runtime.block_on(future));
        }
        // The caller's own runtime owns this thread and must not be blocked from inside.
        let other =
            std::thread::scope(|scope| scope.spawn(|| live.runtime.block_on(future)).join());
        other.map_err(|_| Error::new(Kind::Internal, "a request to the object store panicked"))
    }

    fn live(&self) -> Result<Live> {
        let mut slot = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        if let Some(live) = slot.as_ref().filter(|live| live.process == process) {
            return Ok(live.clone());
        }
        // What the parent of a fork made refers to threads that are not here: leave it alone.
        std::mem::forget(slot.take());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(4)
            .thread_keep_alive(std::time::Duration::from_secs(1))
            .build()
            .map_err(|e| Error::new(Kind::Storage, "starting the network failed").with_cause(e))?;
        let live = Live { process, client: (self.make)()?, runtime: Arc::new(runtime) };
        *slot = Some(live.clone());
        Ok(live)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let slot = self.live.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(live) = slot.take()
            && live.process != std::process::id()
        {
            std::mem::forget(live);
        }
    }
}

fn request_error(e: object_store::Error, location: &str) -> Error {
    match e {
        object_store::Error::NotFound { .. } => not_found(location),
        object_store::Error::PermissionDenied { .. }
        | object_store::Error::Unauthenticated { .. } => {
            Error::new(Kind::Storage, "the object store refused access")
                .with_path(location)
                .with_cause(e)
                .with_hint("credentials are taken from the environment")
        }
        e => Error::new(Kind::Storage, "a request to the object store failed")
            .with_path(location)
            .with_cause(e),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};

    use object_store::memory::InMemory;

    use super::*;

    fn memory(objects: &[(&str, &'static [u8])]) -> (Arc<InMemory>, impl Fn() -> Connection) {
        let store = Arc::new(InMemory::new());
        let shared = Arc::clone(&store);
        let connect = move || {
            let shared: Arc<dyn ObjectStore> = Arc::clone(&shared) as _;
            let make = Box::new(move || Ok(Arc::clone(&shared)));
            Connection { make, live: Mutex::new(None) }
        };
        for &(key, bytes) in objects {
            connect()
                .run(|store| async move { store.put(&key.into(), bytes.into()).await.unwrap() })
                .unwrap();
        }
        (store, connect)
    }

    #[test]
    fn objects_are_read_by_range_and_pinned_to_their_version() {
        let (_, connect) = memory(&[("d/a.parquet", b"0123456789")]);
        let open = |key: &str| ObjectFile::with_connection(connect(), key.into(), "mem");
        let file = open("d/a.parquet").unwrap();
        assert_eq!((file.len(), file.is_local()), (10, false));
        assert_eq!(&file.read(2..5).unwrap()[..], b"234");
        assert!(file.read(10..10).unwrap().is_empty());
        assert_eq!(file.read(9..11).unwrap_err().kind(), Kind::CorruptSource);
        file.check_unchanged().unwrap();
        connect()
            .run(
                |s| async move { s.put(&"d/a.parquet".into(), "9876543210".into()).await.unwrap() },
            )
            .unwrap();
        assert_eq!(file.check_unchanged().unwrap_err().kind(), Kind::SourceChanged);
        assert_eq!(file.read(2..5).unwrap_err().kind(), Kind::SourceChanged);
        assert_eq!(open("d/b.parquet").err().unwrap().kind(), Kind::SourceNotFound);
    }

    #[test]
    fn a_store_may_be_read_inside_a_callers_own_runtime() {
        let (_, connect) = memory(&[("a", b"0123")]);
        let file = ObjectFile::with_connection(connect(), "a".into(), "mem").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(&runtime.block_on(async { file.read(1..3) }).unwrap()[..], b"12");
    }

    #[test]
    fn an_unknown_scheme_is_an_invalid_argument() {
        let url = Url::parse("gopher://host/a").unwrap();
        let e = ObjectFile::open(&url, "gopher://host/a").err().unwrap();
        assert_eq!(e.kind(), Kind::InvalidArgument);
        assert!(e.hint().unwrap().contains("s3"));
    }

    /// Answers HEAD and ranged GET for `/d/a b.parquet`, everything else with 404.
    fn answer(stream: TcpStream, body: &[u8]) {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut out = stream;
        loop {
            let head: Vec<String> =
                lines.by_ref().map_while(|l| l.ok().filter(|l| !l.is_empty())).collect();
            let Some(request) = head.first() else { return };
            let common = "ETag: \"v1\"\r\nLast-Modified: Tue, 01 Oct 2024 00:00:00 GMT\r\n";
            let range = head
                .iter()
                .find_map(|l| l.to_lowercase().strip_prefix("range: bytes=").map(str::to_owned));
            if !request.contains("/d/a%20b.parquet") {
                out.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").unwrap();
            } else if let Some(range) = range {
                let (a, b) = range.split_once('-').unwrap();
                let (a, b): (usize, usize) = (a.parse().unwrap(), b.parse().unwrap());
                let part = &body[a..=b];
                let (n, all) = (part.len(), body.len());
                write!(out, "HTTP/1.1 206 Partial Content\r\n{common}Content-Length: {n}\r\nContent-Range: bytes {a}-{b}/{all}\r\n\r\n").unwrap();
                out.write_all(part).unwrap();
            } else {
                let n = body.len();
                write!(out, "HTTP/1.1 200 OK\r\n{common}Content-Length: {n}\r\n\r\n").unwrap();
            }
        }
    }

    #[test]
    fn plain_http_urls_are_read_by_range() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let root = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                std::thread::spawn(move || answer(stream.unwrap(), b"0123456789"));
            }
        });
        let file = crate::store::open(&format!("{root}/d/a%20b.parquet")).unwrap();
        assert_eq!(file.len(), 10);
        assert_eq!(&file.read(0..10).unwrap()[..], b"0123456789");
        assert_eq!(&file.read(7..9).unwrap()[..], b"78");
        file.check_unchanged().unwrap();
        let missing = crate::store::open(&format!("{root}/d/c.parquet")).err().unwrap();
        assert_eq!(missing.kind(), Kind::SourceNotFound);
    }
}
