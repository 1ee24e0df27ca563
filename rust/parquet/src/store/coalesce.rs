//! Small reads of an object, joined: one request for what many of them will ask for.
//!
//! ```text
//! read a..b  ─ in a held window? ─ yes ─▶ slice
//!              │ no
//!              ├─ the end of the file  ─▶ one request for the last 256 KB: footer and indexes
//!              │                          (if opening the object did not bring these)
//!              ├─ at or in a window    ─▶ it grows, to twice its size: 64 KB, 128 KB, … 1 MB
//!              ├─ to be read again     ─▶ one request for exactly a..b, which is a window then
//!              └─ anywhere else, or large ─▶ one request for exactly a..b
//! ```
//!
//! # Invariants
//! Windows of all files of a call stay within a share of the memory limit and are accounted for;
//! the one that was used longest ago goes first, a small object to disk.
//!
//! # Cost
//! Bytes read in vain: at most as many as were asked for, plus 64 KB a place. A look-up searches the
//! windows of its own file alone.
//!
//! # Not here
//! Small objects on disk (`window_file`).

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use plait_core::Result;

use super::reader::{ObjectVersion, RangeReader, check_range};
use super::window_file::WindowFile;
use crate::runtime::{Charge, Context, MemoryStage};

/// What a first look at the end of a file brings: the footer and most often all indexes.
pub(crate) const TAIL_BYTES: u64 = 256 << 10;

/// The first and the largest window.
const WINDOW_BYTES: u64 = 64 << 10;
const WINDOW_BYTES_MAX: u64 = 1 << 20;

/// Bytes that are kept apart are at most one such part of all windows.
const APART_PART: usize = 8;

/// Reads from this size on are requests of their own.
const LARGE_BYTES: u64 = 256 << 10;

/// The windows of all files of one call.
pub(super) struct WindowCache {
    context: Context,
    held: Mutex<HeldWindows>,
    files: AtomicU64,
    /// Small objects that had no room.
    on_disk: WindowFile,
}

/// Windows by file, and in the order in which they were used: there may be thousands of small files.
#[derive(Default)]
struct HeldWindows {
    files: HashMap<u64, Vec<CachedWindow>>,
    /// The file of each window, by when it was used.
    uses: BTreeMap<u64, u64>,
    bytes: usize,
    clock: u64,
}

struct CachedWindow {
    start: u64,
    bytes: Bytes,
    /// Whether it grows when a read goes on behind it.
    grows: bool,
    /// Whether it is all of a small object.
    is_whole: bool,
    /// When it was used: no other window has the same.
    used: u64,
    /// From when on it is held.
    charge: Option<Charge>,
}

impl CachedWindow {
    fn new(start: u64, bytes: Bytes, grows: bool, is_whole: bool) -> Self {
        Self { start, bytes, grows, is_whole, used: 0, charge: None }
    }

    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl HeldWindows {
    fn of(&self, file: u64) -> &[CachedWindow] {
        self.files.get(&file).map_or(&[], Vec::as_slice)
    }

    /// The window of `file` that has all of `range`; it goes last.
    fn using(&mut self, file: u64, range: &Range<u64>) -> Option<&CachedWindow> {
        let has = |w: &&mut CachedWindow| w.start <= range.start && range.end <= w.end();
        let window = self.files.get_mut(&file)?.iter_mut().find(has)?;
        self.uses.remove(&window.used);
        self.clock += 1;
        window.used = self.clock;
        self.uses.insert(window.used, file);
        Some(window)
    }

    fn insert(&mut self, file: u64, window: CachedWindow) {
        self.clock += 1;
        self.bytes += window.bytes.len();
        self.uses.insert(self.clock, file);
        self.files.entry(file).or_default().push(CachedWindow { used: self.clock, ..window });
    }

    /// Removes the windows of `file` that are not `kept`.
    fn retain(&mut self, file: u64, kept: impl Fn(&CachedWindow) -> bool) {
        let Some(of_file) = self.files.get_mut(&file) else { return };
        for gone in of_file.extract_if(.., |window| !kept(window)) {
            self.uses.remove(&gone.used);
            self.bytes -= gone.bytes.len();
        }
        if of_file.is_empty() {
            self.files.remove(&file);
        }
    }

    /// Removes the window that was used longest ago: its file, and the window.
    fn remove_oldest(&mut self) -> Option<(u64, CachedWindow)> {
        let (oldest, file) = self.uses.pop_first()?;
        let of_file = self.files.get_mut(&file)?;
        let at = of_file.iter().position(|window| window.used == oldest)?;
        let gone = of_file.swap_remove(at);
        self.bytes -= gone.bytes.len();
        if of_file.is_empty() {
            self.files.remove(&file);
        }
        Some((file, gone))
    }
}

impl WindowCache {
    pub(super) fn new(context: &Context) -> Self {
        let (held, files) = (Mutex::default(), AtomicU64::new(0));
        Self { context: context.clone(), held, files, on_disk: WindowFile::new(context) }
    }

    fn held(&self) -> MutexGuard<'_, HeldWindows> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes of `range`, if one window has them all.
    fn find(&self, file: u64, range: &Range<u64>) -> Option<Bytes> {
        let mut held = self.held();
        let Some(window) = held.using(file, range) else {
            drop(held);
            return self.on_disk.get(file, range);
        };
        let at = |offset: u64| usize::try_from(offset - window.start).ok();
        // A copy: what a reader holds on to must not keep the whole window alive.
        window.bytes.get(at(range.start)?..at(range.end)?).map(Bytes::copy_from_slice)
    }

    /// The window that `at` touches, if there is one: its start and its bytes.
    fn before(&self, file: u64, at: u64) -> Option<(u64, Bytes)> {
        let held = self.held();
        let touches = |w: &&CachedWindow| w.grows && w.start <= at && at <= w.end();
        held.of(file).iter().find(touches).map(|window| (window.start, window.bytes.clone()))
    }

    /// Where the first window begins that lies behind `at`.
    fn next(&self, file: u64, at: u64) -> Option<u64> {
        self.held().of(file).iter().map(|window| window.start).filter(|start| at <= *start).min()
    }

    /// Keeps `bytes` in the place of windows that they hold or follow, if there is room. A small object
    /// `is_whole`: it goes to disk when it has to make room.
    fn keep(&self, file: u64, start: u64, bytes: Bytes, is_whole: bool) {
        let mut held = self.held();
        let end = start + bytes.len() as u64;
        let goes_on = |w: &CachedWindow| start <= w.start && end < w.end();
        held.retain(file, |w| !w.grows || w.end() < start || goes_on(w));
        self.hold(held, file, CachedWindow::new(start, bytes, true, is_whole));
    }

    /// Keeps `bytes` as a window that does not grow, unless they are a large part of all windows.
    fn keep_apart(&self, file: u64, start: u64, bytes: &Bytes) {
        if bytes.len() <= self.bytes_max() / APART_PART {
            self.hold(self.held(), file, CachedWindow::new(start, bytes.clone(), false, false));
        }
    }

    fn bytes_max(&self) -> usize {
        self.context.budget().bytes(MemoryStage::StoreWindows)
    }

    /// Keeps a window in the place of those that were used longest ago.
    fn hold(&self, mut held: MutexGuard<'_, HeldWindows>, file: u64, mut window: CachedWindow) {
        let most = self.bytes_max();
        let mut gone = Vec::new();
        while held.bytes + window.bytes.len() > most {
            match held.remove_oldest() {
                Some(oldest) => gone.push(oldest),
                None => break,
            }
        }
        if window.bytes.len() <= most {
            window.charge = Some(self.context.charge(window.bytes.len()));
            held.insert(file, window);
        } else {
            gone.push((file, window));
        }
        drop(held);
        for (file, window) in gone.into_iter().filter(|(_, window)| window.is_whole) {
            self.on_disk.put(file, &window.bytes);
        }
    }

    fn forget(&self, file: u64) {
        self.held().retain(file, |_| false);
        self.on_disk.forget(file);
    }
}

/// A store whose small reads are joined.
pub(super) struct Coalesced<S> {
    inner: S,
    id: u64,
    windows: Arc<WindowCache>,
    /// The last bytes, until the first read: as a window they could be gone by then.
    tail: Mutex<Option<Box<(Bytes, Charge)>>>,
}

impl<S: RangeReader> Coalesced<S> {
    /// Joins reads of `inner`, whose last bytes are `tail`; empty if they are not known.
    pub(super) fn new(inner: S, tail: Bytes, windows: &Arc<WindowCache>) -> Self {
        let id = windows.files.fetch_add(1, Ordering::Relaxed);
        let charge = windows.context.charge(tail.len());
        let tail = Mutex::new((!tail.is_empty()).then(|| Box::new((tail, charge))));
        Self { inner, id, windows: Arc::clone(windows), tail }
    }

    /// Whether one window has all of it.
    fn is_small(&self) -> bool {
        self.len() <= TAIL_BYTES
    }

    /// Makes the last bytes a window; gives those of `range`, if they are all among them.
    fn first(&self, range: &Range<u64>) -> Option<Bytes> {
        let (tail, _charge) = *self.tail.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let start = self.len().checked_sub(tail.len() as u64)?;
        let is_whole = self.is_small() && start == 0;
        self.windows.keep(self.id, start, tail.clone(), is_whole);
        let at = |offset: u64| usize::try_from(offset.checked_sub(start)?).ok();
        tail.get(at(range.start)?..at(range.end)?).map(Bytes::copy_from_slice)
    }

    /// What to read for `range`, behind a window of so many bytes; `None` to read just that.
    fn window(&self, range: &Range<u64>, before: Option<u64>) -> Option<Range<u64>> {
        let len = self.len();
        if range.end - range.start >= LARGE_BYTES {
            return None;
        }
        if range.end == len {
            return Some(range.start.min(len.saturating_sub(TAIL_BYTES))..len);
        }
        // Small files are one window.
        let next = match before {
            _ if self.is_small() => return Some(0..len),
            Some(size) => (2 * size).clamp(WINDOW_BYTES, WINDOW_BYTES_MAX),
            None => WINDOW_BYTES,
        };
        Some(range.start..range.end.max(len.min(range.start + next)))
    }
}

impl<S: RangeReader> Coalesced<S> {
    /// Reads `window`, but for what the window before has of it; gives both as one, or without the
    /// bytes before if that is too large.
    fn read_behind(
        &self,
        before: Option<(u64, Bytes)>,
        window: Range<u64>,
    ) -> Result<(u64, Bytes)> {
        let Some((start, held)) = before else { return self.read_new(window) };
        let end = start + held.len() as u64;
        if window.start < start || end >= window.end {
            return self.read_new(window);
        }
        let start =
            if window.end - start > WINDOW_BYTES_MAX { window.start.min(end) } else { start };
        let kept = usize::try_from(end - start).unwrap_or(usize::MAX).min(held.len());
        let read = self.inner.read(end..window.end)?;
        let mut joined = BytesMut::with_capacity(kept + read.len());
        joined.extend_from_slice(&held[held.len() - kept..]);
        joined.extend_from_slice(&read);
        Ok((start, joined.freeze()))
    }

    fn read_new(&self, window: Range<u64>) -> Result<(u64, Bytes)> {
        Ok((window.start, self.inner.read(window)?))
    }
}

impl<S: RangeReader> RangeReader for Coalesced<S> {
    fn path(&self) -> &str {
        self.inner.path()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        if check_range(&range, self.len(), self.path())? == 0 {
            return Ok(Bytes::new());
        }
        if let Some(found) = self.first(&range).or_else(|| self.windows.find(self.id, &range)) {
            return Ok(found);
        }
        let before = self.windows.before(self.id, range.start);
        let size = before.as_ref().map(|(_, bytes)| bytes.len() as u64);
        let Some(mut window) = self.window(&range, size) else { return self.inner.read(range) };
        if let Some(next) = self.windows.next(self.id, range.end) {
            window.end = window.end.min(next);
        }
        let (start, bytes) = self.read_behind(before, window)?;
        let at = |offset: u64| usize::try_from(offset - start).unwrap_or(usize::MAX);
        let part = Bytes::copy_from_slice(&bytes[at(range.start)..at(range.end)]);
        let is_whole = self.is_small() && start == 0 && bytes.len() as u64 == self.len();
        self.windows.keep(self.id, start, bytes, is_whole);
        Ok(part)
    }

    fn read_and_keep(&self, range: Range<u64>) -> Result<Bytes> {
        if range.end.saturating_sub(range.start) < LARGE_BYTES {
            return self.read(range);
        }
        if let Some(found) = self.first(&range).or_else(|| self.windows.find(self.id, &range)) {
            return Ok(found);
        }
        let bytes = self.inner.read(range.clone())?;
        self.windows.keep_apart(self.id, range.start, &bytes);
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

impl<S> Drop for Coalesced<S> {
    fn drop(&mut self) {
        self.windows.forget(self.id);
    }
}

#[cfg(test)]
mod tests {
    use plait_core::Kind;

    use super::*;

    /// Notes what is read of `len` bytes that count up.
    struct NotedReads {
        len: u64,
        reads: Mutex<Vec<Range<u64>>>,
    }

    impl RangeReader for NotedReads {
        fn path(&self) -> &str {
            "noted"
        }
        fn len(&self) -> u64 {
            self.len
        }
        fn read(&self, range: Range<u64>) -> Result<Bytes> {
            self.reads.lock().unwrap().push(range.clone());
            Ok(range.map(|n| (n % 251) as u8).collect())
        }
        fn check_unchanged(&self) -> Result<()> {
            Ok(())
        }
        fn is_local(&self) -> bool {
            false
        }
    }

    fn noted(len: u64, limit: usize) -> (Coalesced<NotedReads>, Context) {
        let context = Context::new(limit);
        let windows = Arc::new(WindowCache::new(&context));
        let reads = NotedReads { len, reads: Mutex::default() };
        (Coalesced::new(reads, Bytes::new(), &windows), context)
    }

    fn check(store: &Coalesced<NotedReads>, range: Range<u64>) {
        let want: Vec<u8> = range.clone().map(|n| (n % 251) as u8).collect();
        assert_eq!(&store.read(range).unwrap()[..], want);
    }

    #[test]
    fn pages_that_follow_each_other_take_few_requests() {
        let (store, context) = noted(8 << 20, 512 << 20);
        for page in 0..1024 {
            check(&store, page * 4096..(page + 1) * 4096);
        }
        let reads = store.inner.reads.lock().unwrap().clone();
        assert_eq!(reads.len(), 7, "{reads:?}");
        assert!(context.account().peak_bytes() <= 2 << 20, "{}", context.account().peak_bytes());
    }

    #[test]
    fn no_byte_of_a_window_is_fetched_again() {
        let (store, _) = noted(8 << 20, 512 << 20);
        for range in [4..200, 200..100_000, 4..200, 50_000..160_000, 0..4, 4..160_000, 0..3] {
            check(&store, range);
        }
        let reads = store.inner.reads.lock().unwrap().clone();
        let mut sorted = reads.clone();
        sorted.sort_by_key(|read| read.start);
        let overlaps = sorted.windows(2).filter(|pair| pair[0].end > pair[1].start).count();
        assert!(overlaps == 0 && reads.len() <= 4, "{reads:?}");
    }

    #[test]
    fn what_is_read_again_is_kept_if_there_is_room() {
        let (store, context) = noted(64 << 20, 96 << 20);
        let dictionary = 5000..400_000;
        for range in [dictionary.clone(), dictionary.clone(), 5000..300_000] {
            let want: Vec<u8> = range.clone().map(|n| (n % 251) as u8).collect();
            assert_eq!(&store.read_and_keep(range).unwrap()[..], want);
        }
        check(&store, 6000..7000);
        assert_eq!(store.inner.reads.lock().unwrap().clone(), [dictionary]);
        // Others make it go, and what is large is not kept.
        for place in (1..40).map(|n| n << 20) {
            store.read_and_keep(place..place + 400_000).unwrap();
        }
        let large = 50 << 20..51 << 20;
        (0..2).for_each(|_| drop(store.read_and_keep(large.clone()).unwrap()));
        assert_eq!(store.inner.reads.lock().unwrap().len(), 1 + 39 + 2);
        assert!(context.account().peak_bytes() <= 5 << 20, "{}", context.account().peak_bytes());
    }

    #[test]
    fn the_end_brings_the_indexes_and_large_reads_stay_as_they_are() {
        let (store, _) = noted(8 << 20, 512 << 20);
        let len = store.len();
        check(&store, len - 8..len);
        check(&store, len - 100_000..len - 50_000);
        check(&store, 0..1 << 20);
        let reads = store.inner.reads.lock().unwrap().clone();
        assert_eq!(reads, [len - TAIL_BYTES..len, 0..1 << 20]);
        assert_eq!(store.read(len..len + 1).unwrap_err().kind(), Kind::CorruptSource);
    }

    #[test]
    fn what_opening_brought_is_not_read_again() {
        let context = Context::new(16 << 20);
        let windows = Arc::new(WindowCache::new(&context));
        let reads = NotedReads { len: 1_000_000, reads: Mutex::default() };
        let tail: Bytes = (800_000..1_000_000_u64).map(|n| (n % 251) as u8).collect();
        let store = Coalesced::new(reads, tail, &windows);
        let others = NotedReads { len: 64 << 20, reads: Mutex::default() };
        let other = Coalesced::new(others, Bytes::new(), &windows);
        for place in (0..64).map(|n| n << 20) {
            check(&other, place..place + 10);
        }
        for range in [999_992..1_000_000, 850_000..900_000, 800_000..1_000_000] {
            check(&store, range);
        }
        assert_eq!(store.inner.reads.lock().unwrap().clone(), []);
        let before = 799_999..800_000;
        check(&store, before.clone());
        assert_eq!(store.inner.reads.lock().unwrap().clone(), [before]);
    }

    #[test]
    fn small_objects_without_room_come_back_from_disk() {
        let context = Context::new(16 << 20);
        let windows = Arc::new(WindowCache::new(&context));
        let small = |_| {
            let reads = NotedReads { len: 100_000, reads: Mutex::default() };
            Coalesced::new(reads, Bytes::new(), &windows)
        };
        let stores: Vec<_> = (0..40).map(small).collect();
        for range in [99_992..100_000, 0..10, 5..99_000] {
            stores.iter().for_each(|store| check(store, range.clone()));
        }
        for store in &stores {
            assert_eq!(store.inner.reads.lock().unwrap().len(), 1);
        }
        assert!(context.account().peak_bytes() <= 1 << 20, "{}", context.account().peak_bytes());
        assert!(context.counters().spilled_bytes() >= 33 * 100_000);
    }

    #[test]
    fn an_end_that_is_shorter_than_its_object_is_not_taken_for_all_of_it() {
        let context = Context::new(16 << 20);
        let windows = Arc::new(WindowCache::new(&context));
        let ends: Bytes = (60_000..100_000_u64).map(|n| (n % 251) as u8).collect();
        let short = |_| {
            let reads = NotedReads { len: 100_000, reads: Mutex::default() };
            Coalesced::new(reads, ends.clone(), &windows)
        };
        let stores: Vec<_> = (0..60).map(short).collect();
        stores.iter().for_each(|store| check(store, 99_992..100_000));
        stores.iter().for_each(|store| check(store, 10..50));
    }

    #[test]
    fn windows_stay_within_their_share_and_go_with_their_file() {
        let (store, context) = noted(64 << 20, 16 << 20);
        for place in (0..64).map(|n| n << 20) {
            check(&store, place..place + 10);
        }
        assert!(context.account().peak_bytes() <= 1 << 20, "{}", context.account().peak_bytes());
        assert!(context.account().held_bytes() > 0);
        drop(store);
        assert_eq!(context.account().held_bytes(), 0);
    }
}
