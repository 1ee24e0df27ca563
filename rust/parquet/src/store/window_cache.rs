//! What was requested of objects, and what is requested before anyone waits for it.
//!
//! ```text
//! threads of a merge ── will_read ──▶ queue ── up to 64 requests ──▶ driver ──▶ arrivals ─┐
//!                    ── find ───────▶ windows in memory, on disk ◀───────────────────────┘
//! ```
//!
//! # Invariants
//! Windows in memory, and those on their way, each stay within half of a share of the memory limit
//! and are accounted for. What is requested ahead has room on disk. A request ahead that fails leaves
//! no window: who reads there requests it once more, and gets the error. Answers are taken by the
//! threads that read or say what they will read; the driver does nothing but receive them.
//!
//! # Not here
//! What is requested for a read (`coalesce`); the file (`window_file`).

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use plait_core::Result;

use super::arrivals::{Arrival, Arrivals, WindowKey};
use super::reader::RangeReader;
use super::window_file::{DiskPlace, WindowFile};
use super::windows::{ObjectWindows, WindowPlace};
use crate::runtime::{Context, MemoryStage};

/// The first window at a place, and the largest.
pub(super) const WINDOW_BYTES: u64 = 64 << 10;
const WINDOW_BYTES_MAX: u64 = 1 << 20;

/// So many of the largest windows have room in half of the share, at least.
const WINDOWS_MIN: u64 = 10;

/// Requests that are on their way at a time.
const ASKED_MAX: usize = 64;

/// What is requested behind bytes that will be read has at most this part of the room on disk.
const ROOM_PART: u64 = 256;

/// How long a reader waits before it looks whether its call was cancelled.
const POLL: Duration = Duration::from_millis(50);

/// The windows of all files of one call.
pub(super) struct WindowCache {
    context: Context,
    windows: Mutex<ObjectWindows>,
    files: AtomicU64,
    arrivals: Arc<Arrivals>,
    on_disk: WindowFile,
    /// Whether what was read is read again, so that it is worth a place on disk.
    read_again: AtomicBool,
}

/// What there is at a place of a file.
pub(super) enum FoundBytes {
    /// These bytes, as many as are here.
    Here(Bytes),
    /// Nothing, in this part of the file. Before it, so many bytes were requested one after the other.
    Gap(Range<u64>, u64),
}

/// What a look at windows needs next.
enum WindowLook {
    FoundBytes(FoundBytes),
    Disk(Arc<DiskPlace>, Range<usize>),
    /// A request, while so many answers had come.
    Wait(u64),
}

/// A request that begins: its window, how long that is, and its file.
type DueRead = (WindowKey, u64, Arc<dyn RangeReader>);

impl WindowCache {
    pub(super) fn new(context: &Context) -> Self {
        Self {
            context: context.clone(),
            windows: Mutex::new(ObjectWindows::new(half(context))),
            files: AtomicU64::new(0),
            arrivals: Arc::default(),
            on_disk: WindowFile::new(context),
            read_again: AtomicBool::new(false),
        }
    }

    /// Says that files are read more than once.
    pub(super) fn read_again(&self) {
        self.read_again.store(true, Ordering::Relaxed);
    }

    /// The number of a file that is opened.
    pub(super) fn new_file(&self) -> u64 {
        self.files.fetch_add(1, Ordering::Relaxed)
    }

    /// The context of the call.
    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// Bytes in memory at most, and on their way.
    fn half(&self) -> usize {
        half(&self.context)
    }

    /// The largest window that is requested.
    pub(super) fn largest(&self) -> u64 {
        (self.half() as u64 / WINDOWS_MIN).clamp(WINDOW_BYTES, WINDOW_BYTES_MAX)
    }

    fn lock(&self) -> MutexGuard<'_, ObjectWindows> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the windows, given how many answers came. Then those that have no room go
    /// to disk, and requests begin that are due.
    fn with<T>(&self, act: impl FnOnce(&mut ObjectWindows, u64) -> T) -> T {
        let mut windows = self.lock();
        let (answers, count) = self.arrivals.take();
        for (key, bytes) in answers {
            windows.arrive(key, bytes);
        }
        let done = act(&mut windows, count);
        let read_again = self.read_again.load(Ordering::Relaxed);
        let leaving = windows.make_room(self.half(), read_again);
        let needed = leaving.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
        while (!read_again || needed > self.on_disk.room()) && windows.drop_served() {}
        let due = self.due(&mut windows);
        drop(windows);
        self.begin(due);
        for (key, bytes) in leaving {
            let place = self.on_disk.put(&bytes);
            self.lock().settle(key, place);
        }
        done
    }

    /// The requests that begin now.
    fn due(&self, windows: &mut ObjectWindows) -> Vec<DueRead> {
        let mut due = Vec::new();
        while let Some((key, len)) = windows.first_queued() {
            let (_, bytes, count) = windows.ahead();
            let is_full = count >= ASKED_MAX || bytes + len > self.half() as u64;
            if count > 0 && is_full {
                break;
            }
            let Some(reader) = windows.pop_queued() else { break };
            self.ask(windows, key, len);
            due.push((key, len, reader));
        }
        due
    }

    fn ask(&self, windows: &mut ObjectWindows, key: WindowKey, len: u64) {
        let charge = self.context.charge(usize::try_from(len).unwrap_or(usize::MAX));
        windows.ask(key, charge);
    }

    fn begin(&self, due: Vec<DueRead>) {
        for (key, len, reader) in due {
            let arrival = Arrival::new(&self.arrivals, key);
            let range = key.1..key.1 + len;
            let begun = reader.begin_read(range, Box::new(move |bytes| arrival.send(bytes)));
            // A read that could not begin has answered: it failed.
            if let Some(window) = self.lock().get(key)
                && let WindowPlace::Asked(asked) = &mut window.place
            {
                asked.request = begun;
            }
        }
    }

    /// What there is at the start of `range` of a file. Waits for a request that is on its way.
    ///
    /// # Errors
    /// That the call was cancelled.
    pub(super) fn find(
        &self,
        file: u64,
        range: &Range<u64>,
        reader: &Arc<dyn RangeReader>,
    ) -> Result<FoundBytes> {
        loop {
            match self.with(|windows, count| look(windows, file, range, count)) {
                WindowLook::FoundBytes(found) => return Ok(found),
                WindowLook::Disk(place, within) => match place.get(within) {
                    Some(bytes) => return Ok(FoundBytes::Here(bytes)),
                    None => self.with(|windows, _| {
                        if let Some((start, _)) = windows.at(file, range.start) {
                            windows.remove((file, start));
                        }
                    }),
                },
                WindowLook::Wait(count) => {
                    self.hurry(file, range.start, reader);
                    self.arrivals.wait(count, POLL);
                    self.context.check_cancelled()?;
                }
            }
        }
    }

    /// Begins a request that someone waits for, before those that are queued.
    fn hurry(&self, file: u64, at: u64, reader: &Arc<dyn RangeReader>) {
        let due = self.with(|windows, _| {
            let (start, window) = windows.at(file, at)?;
            let len = window.len;
            let is_queued = matches!(window.place, WindowPlace::Queued);
            is_queued.then(|| self.ask(windows, (file, start), len))?;
            Some(((file, start), len, Arc::clone(reader)))
        });
        self.begin(due.into_iter().collect());
    }

    /// Keeps bytes that were read where no window is; as long as the file is open, if they `stay`.
    pub(super) fn keep(&self, file: u64, start: u64, bytes: Bytes, stay: bool) {
        let charge = self.context.charge(bytes.len());
        let range = start..start + bytes.len() as u64;
        self.with(|windows, _| {
            // Another thread may have requested the same.
            if windows.first_gap(file, &range) == Some(range.clone()) {
                windows.add((file, start), bytes, charge, stay);
            }
        });
    }

    /// Notes what was read of a window that was kept just now.
    pub(super) fn note(&self, file: u64, range: &Range<u64>) {
        self.with(|windows, _| {
            if let Some((start, _)) = windows.at(file, range.start) {
                windows.note((file, start), range);
            }
        });
    }

    /// Queues requests for `range`, and for what follows it up to `end`, as far as there is room.
    pub(super) fn will_read(
        &self,
        file: u64,
        range: &Range<u64>,
        end: u64,
        reader: &Arc<dyn RangeReader>,
    ) {
        let largest = self.largest();
        self.with(|windows, _| {
            windows.want(file, range);
            let free = self.on_disk.room() + windows.served_bytes();
            let mut room = free.saturating_sub(2 * windows.ahead().0);
            let run = windows.run(file, range.start) + (range.end - range.start);
            let more = run.clamp(WINDOW_BYTES, largest).min(room / ROOM_PART);
            let target = end.min(range.end + more).max(range.end);
            let is_here = windows.first_gap(file, range).is_none();
            let behind = windows.first_gap(file, &(range.end..target));
            // Few bytes at the end of what is here are not worth a request yet.
            if is_here && behind.is_none_or(|gap| gap.start - range.end > more / 2) {
                return;
            }
            while let Some(gap) = windows.first_gap(file, &(range.start..target)) {
                let bytes = gap.end - gap.start;
                let len = bytes.div_ceil(bytes.div_ceil(largest));
                let Some(left) = room.checked_sub(len) else { return };
                room = left;
                windows.queue((file, gap.start), len, reader);
            }
        });
    }

    /// Forgets the windows of a file.
    pub(super) fn forget(&self, file: u64) {
        self.with(|windows, _| windows.forget(file));
    }
}

fn half(context: &Context) -> usize {
    context.budget().bytes(MemoryStage::StoreWindows) / 2
}

fn look(windows: &mut ObjectWindows, file: u64, range: &Range<u64>, count: u64) -> WindowLook {
    let at = range.start;
    let Some((start, window)) = windows.at(file, at) else {
        let gap = windows.gap(file, at);
        let run = if gap.start == at { windows.run(file, at) } else { 0 };
        return WindowLook::FoundBytes(FoundBytes::Gap(gap, run));
    };
    let end = range.end.min(start + window.len);
    let offset = |of: u64| usize::try_from(of - start).unwrap_or(usize::MAX);
    let within = offset(at)..offset(end);
    let found = match &window.place {
        WindowPlace::Memory(held) | WindowPlace::Leaving(held) => {
            WindowLook::FoundBytes(FoundBytes::Here(held.bytes.slice(within)))
        }
        WindowPlace::Disk(place) => WindowLook::Disk(Arc::clone(place), within),
        // What the parent of a fork waits for never arrives here.
        WindowPlace::Asked(asked) if asked.process != std::process::id() => {
            windows.remove((file, start));
            return look(windows, file, range, count);
        }
        WindowPlace::Queued | WindowPlace::Asked(_) => return WindowLook::Wait(count),
    };
    windows.note((file, start), &(at..end));
    found
}
