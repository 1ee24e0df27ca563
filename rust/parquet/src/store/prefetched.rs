//! Metadata that was prefetched: such reads are served from memory, all others by the file.
//!
//! ```text
//! where it is prefetched   RecordingReader ── read ──▶ file    records what was read, as bytes
//!                                                                   │
//! where it is planned      CachedReader ── read ─┬─ recorded ◀──────┘
//!                                                └─ not recorded ──▶ the file, if still the same
//! ```
//!
//! # Invariants
//! Bytes of two versions of a file are never mixed: before a file with prefetched parts is read,
//! its length and its version are compared. A reader gets the same bytes with and without a
//! prefetch; only who asked the storage differs.
//!
//! # Cost
//! The recorded bytes, each once and packed, as long as somebody holds the [`Prefetched`]: up to
//! [`MEMORY_BYTES`] in memory, which are not part of the memory limit, and all others in an unnamed
//! file. A read unpacks its piece, unless the thread did so last. A local file is looked at when it is
//! opened, an object at the first read that was not recorded.
//!
//! # Not here
//! What is worth a prefetch (`plan`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use super::reader::{ObjectVersion, RangeReader, changed, check_range};
use super::stored_blocks::{StoredBlocks, StoredBytes};
use crate::runtime::Context;
use crate::unzstd::unzstd;

/// Prefetched parts of files, by location.
#[derive(Default)]
pub struct Prefetched(BTreeMap<String, Arc<PrefetchedFile>>);

impl Prefetched {
    /// Files as `PrefetchedFile::to_bytes` gave them.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] for other bytes.
    pub fn try_new<B: AsRef<[u8]>>(files: impl IntoIterator<Item = B>) -> Result<Self> {
        let context = Context::new(MEMORY_BYTES);
        let mut blocks = StoredBlocks::new(&std::env::temp_dir(), MEMORY_BYTES, &context);
        let read = |bytes: B| {
            let (path, file) = PrefetchedFile::from_bytes(bytes.as_ref(), &mut blocks)?;
            Ok((path, Arc::new(file)))
        };
        files.into_iter().map(read).collect::<Result<_>>().map(Self)
    }

    pub(super) fn of(&self, location: &str) -> Option<&Arc<PrefetchedFile>> {
        self.0.get(location)
    }
}

/// Prefetched parts of one version of a file. There may be a million of these.
pub(super) struct PrefetchedFile {
    len: u64,
    version: Option<Box<str>>,
    written_at: Option<SystemTime>,
    footer_bytes: Option<u64>,
    /// Ascending; none touches another.
    pieces: Box<[PackedPiece]>,
}

/// Bytes of a file that were read.
struct PackedPiece {
    start: u64,
    len: u32,
    packed: StoredBytes,
}

/// So many packed bytes stay in memory: those of ten thousand files or so.
const MEMORY_BYTES: usize = 16 << 20;

/// What an executor read of a file.
pub(crate) struct RecordedFile {
    facts: FileFacts,
    pieces: Vec<Vec<u8>>,
}

/// A footer shrinks to a third by the fastest way.
const LEVEL: i32 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileFacts {
    path: String,
    len: u64,
    #[serde(rename = "stamp")]
    version: Option<String>,
    /// Seconds and nanoseconds since 1970.
    written_at: Option<(u64, u32)>,
    footer_bytes: Option<u64>,
    /// Offset, length, and length packed by zstd.
    pieces: Vec<(u64, u32, u32)>,
}

impl RecordedFile {
    /// All of it: the length of the facts, these as JSON, the packed pieces.
    ///
    /// # Errors
    /// [`Kind::Internal`] when the facts are no JSON.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>> {
        let facts = serde_json::to_vec(&self.facts)
            .map_err(|e| Error::new(Kind::Internal, "cannot write what was read").with_cause(e))?;
        let sum: usize = self.pieces.iter().map(Vec::len).sum();
        let mut out = Vec::with_capacity(8 + facts.len() + sum);
        out.extend((facts.len() as u64).to_le_bytes());
        out.extend(facts);
        self.pieces.iter().for_each(|packed| out.extend(packed));
        Ok(out)
    }
}

impl PrefetchedFile {
    /// What [`RecordedFile::to_bytes`] gave, and of which file it is.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`].
    fn from_bytes(bytes: &[u8], blocks: &mut StoredBlocks) -> Result<(String, Self)> {
        let bad = || Error::new(Kind::InvalidArgument, "this is not what was read of a file");
        let (len, rest) = bytes.split_first_chunk::<8>().ok_or_else(bad)?;
        let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| bad())?;
        let (facts, mut rest) = rest.split_at_checked(len).ok_or_else(bad)?;
        let facts: FileFacts = serde_json::from_slice(facts).map_err(|e| bad().with_cause(e))?;
        let mut pieces = Vec::with_capacity(facts.pieces.len());
        let mut least = 0;
        for &(start, len, packed_len) in &facts.pieces {
            let (packed, after) = rest.split_at_checked(packed_len as usize).ok_or_else(bad)?;
            let end = start.checked_add(u64::from(len)).filter(|&end| end <= facts.len);
            if start < least {
                return Err(bad());
            }
            least = end.ok_or_else(bad)?;
            pieces.push(PackedPiece { start, len, packed: blocks.store(&[packed]) });
            rest = after;
        }
        if !rest.is_empty() {
            return Err(bad());
        }
        let written_at = facts.written_at.and_then(|(seconds, nanos)| {
            SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos.min(999_999_999)))
        });
        let file = Self {
            len: facts.len,
            version: facts.version.map(Into::into),
            written_at,
            footer_bytes: facts.footer_bytes,
            pieces: pieces.into(),
        };
        Ok((facts.path, file))
    }

    /// Whether the file is the one of which this is known.
    fn is_of(&self, store: &dyn RangeReader) -> bool {
        store.len() == self.len && store.version().as_deref() == self.version.as_deref()
    }

    /// The piece that has all of `range`.
    fn find(&self, range: &Range<u64>) -> Option<&PackedPiece> {
        let at = self.pieces.partition_point(|piece| piece.start <= range.start).checked_sub(1)?;
        self.pieces.get(at).filter(|piece| range.end <= piece.start + u64::from(piece.len))
    }
}

impl PackedPiece {
    /// All of its bytes; none if they cannot be read or unpacked.
    fn unpack(&self) -> Option<Bytes> {
        let packed = self.packed.read(0..self.packed.len()).ok()?;
        let mut bytes = Vec::with_capacity(self.len as usize);
        unzstd(&packed, &mut bytes).ok()?;
        Some(bytes.into())
    }
}

/// The piece that the thread unpacked last: the keys of a file are read one after the other.
struct LastPiece {
    file: Weak<PrefetchedFile>,
    start: u64,
    bytes: Bytes,
}

/// Larger pieces do not wait for the next read.
const LAST_BYTES_MAX: usize = 64 << 10;

thread_local! {
    static LAST: RefCell<Option<LastPiece>> = const { RefCell::new(None) };
}

/// The bytes of `range` of `file`; none if they are not known.
fn served(file: &Arc<PrefetchedFile>, range: &Range<u64>) -> Option<Bytes> {
    let piece = file.find(range)?;
    let start = piece.start;
    let bytes = LAST.with_borrow_mut(|last| match last {
        Some(last) if last.start == start && last.file.as_ptr() == Arc::as_ptr(file) => {
            Some(last.bytes.clone())
        }
        _ => {
            let bytes = piece.unpack()?;
            *last = (bytes.len() <= LAST_BYTES_MAX).then(|| LastPiece {
                file: Arc::downgrade(file),
                start,
                bytes: bytes.clone(),
            });
            Some(bytes)
        }
    })?;
    let from = usize::try_from(range.start.checked_sub(start)?).ok()?;
    let to = usize::try_from(range.end.checked_sub(start)?).ok()?;
    // A copy: what a reader holds on to must not keep the whole piece alive.
    bytes.get(from..to).map(Bytes::copy_from_slice)
}

/// A file whose reads are recorded.
pub(crate) struct RecordingReader {
    inner: Arc<dyn RangeReader>,
    pieces: Mutex<Vec<(u64, Bytes)>>,
}

impl RecordingReader {
    pub(crate) fn new(inner: Arc<dyn RangeReader>) -> Self {
        Self { inner, pieces: Mutex::default() }
    }

    /// What was read so far. `footer_bytes` at the end are what an opened file needs, whatever
    /// else the first look at its end brought.
    ///
    /// # Errors
    /// [`Kind::Internal`] when it cannot be packed.
    pub(crate) fn known(&self, footer_bytes: u64) -> Result<RecordedFile> {
        let len = self.inner.len();
        let mut noted = self.pieces.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let footer_start = len.saturating_sub(footer_bytes);
        for (start, bytes) in &mut noted {
            let is_to_the_end = *start + bytes.len() as u64 == len;
            if let Some(more) = footer_start.checked_sub(*start).filter(|_| is_to_the_end) {
                let more = usize::try_from(more).unwrap_or(usize::MAX).min(bytes.len());
                *bytes = bytes.slice(more..);
                *start += more as u64;
            }
        }
        let not_packed = |e| Error::new(Kind::Internal, "cannot pack what was read").with_cause(e);
        let (mut places, mut pieces) = (Vec::new(), Vec::new());
        for (start, bytes) in joined(noted) {
            let packed = zstd::bulk::compress(&bytes, LEVEL).map_err(not_packed)?;
            // What is so large is left for the driver to read.
            if let (Ok(len), Ok(packed_len)) = (bytes.len().try_into(), packed.len().try_into()) {
                places.push((start, len, packed_len));
                pieces.push(packed);
            }
        }
        let written_at = self.inner.written_at();
        let since = written_at.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
        let facts = FileFacts {
            path: self.inner.path().to_owned(),
            len,
            version: self.inner.version(),
            written_at: since.map(|since| (since.as_secs(), since.subsec_nanos())),
            footer_bytes: Some(footer_bytes),
            pieces: places,
        };
        Ok(RecordedFile { facts, pieces })
    }
}

/// The same bytes in ascending pieces that do not touch each other.
fn joined(mut pieces: Vec<(u64, Bytes)>) -> Vec<(u64, Vec<u8>)> {
    pieces.retain(|(_, bytes)| !bytes.is_empty());
    pieces.sort_by_key(|(start, _)| *start);
    let mut all: Vec<(u64, Vec<u8>)> = Vec::new();
    for (start, bytes) in pieces {
        match all.last_mut() {
            Some((first, held)) if start <= *first + held.len() as u64 => {
                let known = usize::try_from(*first + held.len() as u64 - start);
                held.extend(bytes.get(known.unwrap_or(usize::MAX)..).unwrap_or_default());
            }
            _ => all.push((start, bytes.to_vec())),
        }
    }
    all
}

impl RangeReader for RecordingReader {
    fn path(&self) -> &str {
        self.inner.path()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let bytes = self.inner.read(range.clone())?;
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        pieces.push((range.start, bytes.clone()));
        Ok(bytes)
    }

    fn check_unchanged(&self) -> Result<()> {
        self.inner.check_unchanged()
    }

    fn version(&self) -> Option<String> {
        self.inner.version()
    }

    fn written_at(&self) -> Option<SystemTime> {
        self.inner.written_at()
    }

    fn is_local(&self) -> bool {
        self.inner.is_local()
    }

    fn object(&self) -> Option<ObjectVersion> {
        self.inner.object()
    }
}

/// Opens the file itself.
pub(super) type OpenReader = Box<dyn Fn() -> Result<Arc<dyn RangeReader>> + Send + Sync>;

/// A file of which parts were prefetched.
pub(super) struct CachedReader {
    location: String,
    known: Arc<PrefetchedFile>,
    /// Opens it, once it must be.
    open: OpenReader,
    inner: OnceLock<Arc<dyn RangeReader>>,
    is_local: bool,
}

impl CachedReader {
    /// The file at `location`, which `open` opens; without what is known if it is another one by
    /// now and that costs no request to find out.
    pub(super) fn open(
        location: &str,
        known: &Arc<PrefetchedFile>,
        is_local: bool,
        open: OpenReader,
    ) -> Result<Arc<dyn RangeReader>> {
        let inner = OnceLock::new();
        if is_local {
            let file = open()?;
            if !known.is_of(&*file) {
                return Ok(file);
            }
            let _ = inner.set(file);
        }
        let (location, known) = (location.to_owned(), Arc::clone(known));
        Ok(Arc::new(Self { location, known, open, inner, is_local }))
    }

    fn inner(&self) -> Result<&Arc<dyn RangeReader>> {
        if let Some(inner) = self.inner.get() {
            return Ok(inner);
        }
        let file = (self.open)().map_err(|e| {
            // It was there when it was read.
            if e.kind() == Kind::SourceNotFound { changed(&self.location) } else { e }
        })?;
        if !self.known.is_of(&*file) {
            return Err(changed(&self.location));
        }
        Ok(self.inner.get_or_init(|| file))
    }
}

impl RangeReader for CachedReader {
    fn path(&self) -> &str {
        &self.location
    }

    fn len(&self) -> u64 {
        self.known.len
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        if check_range(&range, self.len(), &self.location)? == 0 {
            return Ok(Bytes::new());
        }
        match served(&self.known, &range) {
            Some(found) => Ok(found),
            None => self.inner()?.read(range),
        }
    }

    fn takes_hints(&self) -> bool {
        self.inner.get().is_none_or(|inner| inner.takes_hints())
    }

    fn will_read(&self, range: Range<u64>, end: u64) {
        if let (None, Some(inner)) = (self.known.find(&range), self.inner.get()) {
            inner.will_read(range, end);
        }
    }

    fn check_unchanged(&self) -> Result<()> {
        self.inner()?.check_unchanged()
    }

    fn version(&self) -> Option<String> {
        self.known.version.as_deref().map(str::to_owned)
    }

    fn written_at(&self) -> Option<SystemTime> {
        self.known.written_at
    }

    fn footer_bytes(&self) -> Option<u64> {
        self.known.footer_bytes
    }

    fn is_local(&self) -> bool {
        self.is_local
    }

    fn object(&self) -> Option<ObjectVersion> {
        self.inner().ok()?.object()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::testing::Numbers;
    use crate::store::registry::Stores;
    use crate::store::remote::tests::{memory, put};

    fn stores(bucket: &Arc<crate::store::remote::Remote>) -> Stores {
        let context = Context::new(1 << 24);
        Stores::with_bucket(&BTreeMap::new(), Arc::clone(bucket) as _, &context).unwrap()
    }

    /// What is known of `a` after reading `ranges` of it, by way of bytes.
    fn known(stores: &Stores, ranges: &[Range<u64>], footer_bytes: u64) -> Prefetched {
        let noted = RecordingReader::new(stores.open("a").unwrap());
        for range in ranges {
            noted.read(range.clone()).unwrap();
        }
        let bytes = noted.known(footer_bytes).unwrap().to_bytes().unwrap();
        Prefetched::try_new([bytes.as_slice()]).unwrap()
    }

    #[test]
    fn pieces_are_joined_and_of_the_end_only_the_footer_is_kept() {
        let stores = stores(&memory(&[("a", b"0123456789")]));
        let known = known(&stores, &[4..10, 1..3, 2..4, 4..5], 2);
        let file = known.of("a").unwrap();
        let pieces = file.pieces.iter().map(|piece| (piece.start, piece.unpack().unwrap()));
        let pieces: Vec<_> = pieces.collect();
        assert_eq!(pieces, [(1, Bytes::from_static(b"1234")), (8, Bytes::from_static(b"89"))]);
        assert_eq!(known.0.len(), 1);
    }

    #[test]
    fn what_is_known_is_not_asked_for_and_what_changed_is_noticed() {
        let bucket = memory(&[("a", b"0123456789")]);
        let known = Arc::new(known(&stores(&bucket), &[0..4, 4..10], 4));
        let reading = stores(&bucket);
        reading.remember(known);
        let file = reading.open("a").unwrap();
        assert_eq!((file.len(), file.footer_bytes(), file.is_local()), (10, Some(4), false));
        put(&bucket, "a", b"abcdefghij");
        for (range, noted) in [(6..9, b"678"), (1..4, b"123")] {
            assert_eq!(&file.read(range).unwrap()[..], noted, "no request");
        }
        for range in [5..7, 4..5] {
            assert_eq!(file.read(range).unwrap_err().kind(), Kind::SourceChanged);
        }
        assert_eq!(file.check_unchanged().unwrap_err().kind(), Kind::SourceChanged);
        assert_eq!(file.read(9..11).unwrap_err().kind(), Kind::CorruptSource);
        bucket_remove(&bucket);
        assert_eq!(file.read(4..5).unwrap_err().kind(), Kind::SourceChanged, "it is gone");
    }

    fn bucket_remove(bucket: &Arc<crate::store::remote::Remote>) {
        use crate::store::Bucket;
        bucket.remove("a").unwrap();
    }

    #[test]
    fn what_is_not_known_comes_from_the_file() {
        let bucket = memory(&[("a", b"0123456789")]);
        let reading = stores(&bucket);
        reading.remember(Arc::new(known(&stores(&bucket), &[0..2, 6..10], 4)));
        let file = reading.open("a").unwrap();
        for start in 0..10 {
            for end in start..=10 {
                let want = &b"0123456789"[start as usize..end as usize];
                assert_eq!(&file.read(start..end).unwrap()[..], want, "{start}..{end}");
            }
        }
        file.check_unchanged().unwrap();
    }

    #[test]
    fn a_local_file_that_is_another_by_now_is_read_as_it_is() {
        let path = std::env::temp_dir().join(format!("plait-known-{}", std::process::id()));
        let location = path.to_str().unwrap();
        std::fs::write(&path, b"0123456789").unwrap();
        let local = || Stores::try_new(&BTreeMap::new(), &Context::new(1 << 24)).unwrap();
        let noted = RecordingReader::new(local().open(location).unwrap());
        noted.read(0..10).unwrap();
        let bytes = noted.known(10).unwrap().to_bytes().unwrap();
        std::fs::write(&path, b"other").unwrap();
        let reading = local();
        reading.remember(Arc::new(Prefetched::try_new([bytes.as_slice()]).unwrap()));
        let file = reading.open(location).unwrap();
        assert_eq!((file.len(), &file.read(0..5).unwrap()[..]), (5, &b"other"[..]));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn other_bytes_are_refused() {
        let stores = stores(&memory(&[("a", b"0123456789")]));
        let noted = RecordingReader::new(stores.open("a").unwrap());
        noted.read(2..5).unwrap();
        let bytes = noted.known(1).unwrap().to_bytes().unwrap();
        let read = |bytes: &[u8]| Prefetched::try_new([bytes]).map(drop);
        read(&bytes).unwrap();
        for cut in 0..bytes.len() {
            assert_eq!(read(&bytes[..cut]).unwrap_err().kind(), Kind::InvalidArgument, "{cut}");
        }
        assert!(read(&[&bytes[..], b"x"].concat()).is_err());
    }

    #[test]
    fn what_cannot_be_unpacked_comes_from_the_file() {
        let bucket = memory(&[("a", b"0123456789")]);
        let noted = RecordingReader::new(stores(&bucket).open("a").unwrap());
        noted.read(0..10).unwrap();
        let mut bytes = noted.known(10).unwrap().to_bytes().unwrap();
        let packed = bytes.len() - 19..bytes.len() - 10;
        bytes[packed].fill(0xFF);
        let reading = stores(&bucket);
        reading.remember(Arc::new(Prefetched::try_new([bytes]).unwrap()));
        assert_eq!(&reading.open("a").unwrap().read(0..10).unwrap()[..], b"0123456789");
    }

    #[test]
    fn what_has_no_room_in_memory_is_on_disk() {
        use crate::store::{Bucket, Completed};
        let bucket = memory(&[]);
        let mut objects = Vec::new();
        for file in 0..40 {
            let mut numbers = Numbers(file);
            let body: Vec<u8> = (0..1 << 20).map(|_| numbers.below(256) as u8).collect();
            let body = Bytes::from(body);
            let name = format!("f{file}");
            assert_eq!(bucket.put_new(&name, body.clone()).unwrap(), Completed::Yes);
            objects.push((name, body));
        }
        let all = Prefetched::try_new(objects.iter().map(|(name, body)| {
            let noted = RecordingReader::new(stores(&bucket).open(name).unwrap());
            noted.read(0..body.len() as u64).unwrap();
            noted.known(body.len() as u64).unwrap().to_bytes().unwrap()
        }));
        let all = Arc::new(all.unwrap());
        let in_memory = |file: &Arc<PrefetchedFile>| {
            let held = file.pieces.iter().filter(|piece| piece.packed.is_in_memory());
            held.map(|piece| piece.packed.len()).sum::<usize>()
        };
        let held: usize = all.0.values().map(in_memory).sum();
        assert!(held <= MEMORY_BYTES + (2 << 20), "{held}");
        let reading = stores(&bucket);
        reading.remember(all);
        for (name, body) in &objects {
            let file = reading.open(name).unwrap();
            assert_eq!(&file.read(77..1 << 20).unwrap()[..], &body[77..]);
        }
    }

    #[test]
    fn footers_are_held_packed() {
        let stores = stores(&memory(&[("a", &[7; 2000])]));
        let known = known(&stores, &[0..1000, 1000..2000], 2000);
        let held: usize = known.of("a").unwrap().pieces.iter().map(|p| p.packed.len()).sum();
        assert!(held < 100, "{held}");
    }
}
