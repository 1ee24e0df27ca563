//! An object in a bucket, read by ranged requests.
//!
//! ```text
//! open        ──▶ bucket ──▶ GET the last bytes: also tells length and version
//! read(range) ──▶ bucket ──▶ GET bytes=a..b, if-match: the version first seen
//! ```
//!
//! # Invariants
//! A read that comes back with other bytes than asked for is an error. All reads are of the version
//! that was there when the object was opened, or of its copy where a compaction moved it.
//!
//! # Not here
//! Requests, retries and credentials (`remote`); joining reads (`coalesce`).

use std::ops::Range;
use std::sync::OnceLock;
use std::time::SystemTime;

use bytes::Bytes;
use plait_core::{Kind, Result};

use super::bucket::{BegunRead, Meta, Place, ReadDone};
use super::moved::{ends_in, folder_after, is_visible};
use super::reader::{ObjectVersion, RangeReader, changed, check_range, not_found, short_read};
use super::urls::{is_azure, is_s3};

/// An object in an object store.
pub(super) struct ObjectFile {
    location: String,
    place: Place,
    meta: Meta,
    /// Where it is since it moved.
    moved: OnceLock<Box<FoundObject>>,
}

/// An object, and what it is there.
struct FoundObject {
    place: Place,
    meta: Meta,
}

impl ObjectFile {
    /// Looks the object up. Also gives its last bytes, at most `tail_max`, if the store sent them.
    pub(super) fn open(place: Place, location: &str, tail_max: u64) -> Result<(Self, Bytes)> {
        let opened = match place.key() {
            "" => None,
            key => place.bucket().open(key, tail_max)?,
        };
        let (FoundObject { place, meta }, tail) = match opened {
            Some((meta, tail)) => (FoundObject { place, meta }, tail),
            None => (moved(&place)?.ok_or_else(|| not_found(location))?, Bytes::new()),
        };
        let location = location.to_owned();
        Ok((Self { location, place, meta, moved: OnceLock::new() }, tail))
    }

    /// Where the object is now, if it is not where it was and has the same length there.
    fn follow(&self) -> Result<Option<&FoundObject>> {
        if self.moved.get().is_none()
            && self.place.bucket().head(self.place.key())?.is_none()
            && let Some(found) = moved(&self.place)?.filter(|now| now.meta.len == self.meta.len)
        {
            let _ = self.moved.set(Box::new(found));
        }
        Ok(self.moved.get().map(|found| &**found))
    }
}

/// Where the object at `place` is, if a compaction made it and it moved since.
fn moved(place: &Place) -> Result<Option<FoundObject>> {
    let Some(folder) = folder_after(place.key()) else { return Ok(None) };
    let folder = folder.trim_end_matches('/');
    let is_it = |key: &String| {
        let own = key.rsplit('/').next().unwrap_or_default();
        is_visible(own) && ends_in(own, place.key())
    };
    let Some(key) = place.bucket().list(folder, false)?.into_iter().find(is_it) else {
        return Ok(None);
    };
    let meta = place.bucket().head(&key)?;
    Ok(meta.map(|meta| FoundObject { place: place.with_key(key), meta }))
}

impl RangeReader for ObjectFile {
    fn path(&self) -> &str {
        &self.location
    }

    fn len(&self) -> u64 {
        self.meta.len
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let len = check_range(&range, self.len(), &self.location)?;
        if len == 0 {
            return Ok(Bytes::new());
        }
        let of = |place: &Place, meta| place.bucket().read(place.key(), range.clone(), meta);
        let read = match self.moved.get() {
            Some(now) => of(&now.place, &now.meta),
            None => match of(&self.place, &self.meta) {
                Err(e) if e.kind() == Kind::SourceChanged => match self.follow()? {
                    Some(now) => of(&now.place, &now.meta),
                    None => Err(e),
                },
                read => read,
            },
        };
        let bytes = read.map_err(|e| e.with_path(self.location.as_str()))?;
        if bytes.len() == len { Ok(bytes) } else { Err(short_read(&range, &self.location)) }
    }

    fn begin_read(&self, range: Range<u64>, done: ReadDone) -> Option<BegunRead> {
        let (place, meta) = match self.moved.get() {
            Some(now) => (&now.place, &now.meta),
            None => (&self.place, &self.meta),
        };
        place.bucket().begin_read(place.key(), range, meta, done)
    }

    fn check_unchanged(&self) -> Result<()> {
        match self.place.bucket().head(self.place.key())? {
            Some(now) if now == self.meta => Ok(()),
            Some(_) => Err(changed(&self.location)),
            None if self.follow()?.is_some() => Ok(()),
            None => Err(changed(&self.location).with_got("no object")),
        }
    }

    fn version(&self) -> Option<String> {
        self.meta.version()
    }

    fn written_at(&self) -> Option<SystemTime> {
        self.meta.modified_at
    }

    fn is_local(&self) -> bool {
        false
    }

    fn object(&self) -> Option<ObjectVersion> {
        if self.moved.get().is_some() {
            return None; // it may move again
        }
        let url = self.place.url().filter(|url| is_s3(url) || is_azure(url))?;
        // A weak tag does not name the bytes of a version.
        let tag = self.meta.tag.clone().filter(|tag| !tag.starts_with("W/"))?;
        Some(ObjectVersion { url, tag })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::runtime::Context;
    use crate::store::Stores;
    use crate::store::remote::tests::{memory, put};

    fn stores() -> Stores {
        Stores::try_new(&Default::default(), &Context::new(1 << 24)).unwrap()
    }

    #[test]
    fn objects_are_read_by_range_and_pinned_to_their_version() {
        let bucket = memory(&[("d/a.parquet", b"0123456789")]);
        let place = Place::of_own(bucket.clone(), "d/a.parquet");
        let (file, tail) = ObjectFile::open(place.clone(), "mem", 4).unwrap();
        assert_eq!((file.len(), file.is_local()), (10, false));
        assert_eq!(&tail[..], b"6789");
        assert_eq!(&file.read(2..5).unwrap()[..], b"234");
        assert!(file.read(10..10).unwrap().is_empty());
        assert_eq!(file.read(9..11).unwrap_err().kind(), Kind::CorruptSource);
        file.check_unchanged().unwrap();
        put(&bucket, "d/a.parquet", b"9876543210");
        assert_eq!(file.check_unchanged().unwrap_err().kind(), Kind::SourceChanged);
        assert_eq!(file.read(2..5).unwrap_err().kind(), Kind::SourceChanged);
        let absent = ObjectFile::open(place.with_key("d/b".into()), "mem", 4).err().unwrap();
        assert_eq!(absent.kind(), Kind::SourceNotFound);
    }

    #[test]
    fn a_store_may_be_read_inside_a_callers_own_runtime() {
        let place = Place::of_own(memory(&[("a", b"0123")]), "a");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (file, tail) = ObjectFile::open(place, "mem", 100).unwrap();
            assert_eq!(&tail[..], b"0123");
            assert_eq!(&file.read(1..3).unwrap()[..], b"12");
        });
    }

    #[test]
    fn an_unknown_scheme_is_an_invalid_argument() {
        let e = stores().open("gopher://host/a").err().unwrap();
        assert_eq!(e.kind(), Kind::InvalidArgument);
        assert!(e.hint().unwrap().contains("s3"));
    }

    /// Answers HEAD and ranged GET for `/d/a b.parquet`, and for the two others as servers do that
    /// do not know ranges from the end; everything else with 404.
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
            let is_of = |name: &str| request.contains(&format!("/d/{name}.parquet"));
            let range = range.filter(|range| !is_of("whole") || !range.starts_with('-'));
            if !["a%20b", "whole", "front"].into_iter().any(is_of) {
                out.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").unwrap();
            } else if let Some(range) = range {
                let (a, b) = range.split_once('-').unwrap();
                let b: usize = b.parse().unwrap();
                let last = body.len() - 1;
                let (a, b) = match a.parse() {
                    Ok(a) => (a, b),
                    Err(_) if is_of("front") => (0, 3),
                    Err(_) => (body.len().saturating_sub(b), last),
                };
                let part = &body[a..=b];
                let (n, all) = (part.len(), body.len());
                write!(out, "HTTP/1.1 206 Partial Content\r\n{common}Content-Length: {n}\r\nContent-Range: bytes {a}-{b}/{all}\r\n\r\n").unwrap();
                out.write_all(part).unwrap();
            } else {
                let n = body.len();
                write!(out, "HTTP/1.1 200 OK\r\n{common}Content-Length: {n}\r\n\r\n").unwrap();
                if request.starts_with("GET") {
                    out.write_all(body).unwrap();
                }
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
        for name in ["a%20b", "whole", "front"] {
            let file = stores().open(&format!("{root}/d/{name}.parquet")).unwrap();
            assert_eq!(file.len(), 10);
            assert_eq!(&file.read(0..10).unwrap()[..], b"0123456789");
            assert_eq!(&file.read(7..9).unwrap()[..], b"78");
            file.check_unchanged().unwrap();
        }
        let missing = stores().open(&format!("{root}/d/c.parquet")).err().unwrap();
        assert_eq!(missing.kind(), Kind::SourceNotFound);
    }
}
