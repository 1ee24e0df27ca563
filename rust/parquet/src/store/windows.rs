//! Windows of objects, from which reads are served, and what becomes of each.
//!
//! ```text
//! will_read ─▶ queued ─▶ asked ──┐ arrives
//!                                ▼
//! a read that found no window ─▶ memory ─ goes for others ─▶ leaving ─▶ disk
//! ```
//!
//! # Invariants
//! Windows of a file do not overlap. The sums are those of the windows that are here.
//!
//! # Cost
//! A look-up searches the windows of its own file alone.
//!
//! # Not here
//! Requests, memory and disk (`window_cache`).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::arrivals::WindowKey;
use super::bucket::BegunRead;
use super::reader::RangeReader;
use super::window_file::DiskPlace;
use crate::runtime::Charge;

/// The windows of all files of one call.
#[derive(Default)]
pub(super) struct ObjectWindows {
    /// By file, then by where they begin.
    files: HashMap<u64, BTreeMap<u64, Window>>,
    /// Those in memory, by when they were used, and bytes of these.
    uses: BTreeMap<u64, WindowKey>,
    bytes: usize,
    /// Those on disk that were read to their end: they go first.
    served: VecDeque<(WindowKey, usize)>,
    served_bytes: u64,
    /// Those to be requested, and their files. Some may be gone, or requested by now.
    queue: VecDeque<(WindowKey, Arc<dyn RangeReader>)>,
    /// Bytes of windows that are queued or asked for, and of the latter.
    ahead_bytes: u64,
    asked_bytes: u64,
    asked: usize,
    clock: u64,
}

/// Some bytes of a file that were requested together.
pub(super) struct Window {
    pub(super) len: u64,
    pub(super) place: WindowPlace,
    /// Bytes that were requested one after the other, up to the end of this window.
    run: u64,
    /// The end of what was read of it.
    read_to: u64,
    /// What is read of it again, and how many bytes of that were not.
    again: Option<(Range<u64>, u64)>,
    /// It stays until its file is forgotten.
    stays: bool,
}

/// Where a window is.
pub(super) enum WindowPlace {
    Queued,
    Asked(AskedWindow),
    Memory(HeldWindow),
    /// In memory, while it is written to disk.
    Leaving(HeldWindow),
    Disk(Arc<DiskPlace>),
}

/// A window that was asked for.
pub(super) struct AskedWindow {
    pub(super) charge: Charge,
    /// The process that waits for it.
    pub(super) process: u32,
    /// None until it is sent.
    pub(super) request: Option<BegunRead>,
}

/// A window in memory.
pub(super) struct HeldWindow {
    pub(super) bytes: Bytes,
    _charge: Charge,
    /// When it was used: no other window has the same.
    used: u64,
}

impl Window {
    /// Whether all was read of it that was to be read.
    pub(super) fn is_served(&self, start: u64) -> bool {
        let is_read = match &self.again {
            Some((range, left)) => *left == 0 && self.read_to >= range.end,
            None => self.read_to >= start + self.len,
        };
        is_read && !self.stays
    }
}

impl ObjectWindows {
    /// The window of that key.
    pub(super) fn get(&mut self, (file, start): WindowKey) -> Option<&mut Window> {
        self.files.get_mut(&file)?.get_mut(&start)
    }

    /// The window of `file` that has `at`, and where it begins.
    pub(super) fn at(&mut self, file: u64, at: u64) -> Option<(u64, &mut Window)> {
        let (start, window) = self.files.get_mut(&file)?.range_mut(..=at).next_back()?;
        (at < start + window.len).then_some((*start, window))
    }

    /// The part of `file` around `at` where no window is, if none is at `at`.
    pub(super) fn gap(&self, file: u64, at: u64) -> Range<u64> {
        let Some(windows) = self.files.get(&file) else { return 0..u64::MAX };
        let before = windows.range(..at).next_back();
        let next = windows.range(at..).next();
        before.map_or(0, |(start, window)| start + window.len)
            ..next.map_or(u64::MAX, |(start, _)| *start)
    }

    /// The first part of `range` where no window is.
    pub(super) fn first_gap(&mut self, file: u64, range: &Range<u64>) -> Option<Range<u64>> {
        let mut at = range.start;
        while at < range.end {
            match self.at(file, at) {
                Some((start, window)) => at = start + window.len,
                None => return Some(at..range.end.min(self.gap(file, at).end)),
            }
        }
        None
    }

    /// How many bytes up to `at` were requested one after the other.
    pub(super) fn run(&self, file: u64, at: u64) -> u64 {
        let before = self.files.get(&file).and_then(|windows| windows.range(..=at).next_back());
        match before {
            Some((start, window)) if at <= start + window.len => {
                window.run - (start + window.len - at)
            }
            _ => 0,
        }
    }

    /// Bytes that are queued or asked for, and of the latter, and how many these are.
    pub(super) fn ahead(&self) -> (u64, u64, usize) {
        (self.ahead_bytes, self.asked_bytes, self.asked)
    }

    /// Bytes on disk that were read to their end.
    pub(super) fn served_bytes(&self) -> u64 {
        self.served_bytes
    }

    /// Queues a window.
    pub(super) fn queue(&mut self, key: WindowKey, len: u64, reader: &Arc<dyn RangeReader>) {
        self.insert(key, len, false);
        self.ahead_bytes += len;
        self.queue.push_back((key, Arc::clone(reader)));
    }

    /// The window that is to be asked for next.
    pub(super) fn first_queued(&mut self) -> Option<(WindowKey, u64)> {
        while let Some((key, _)) = self.queue.front() {
            let key = *key;
            match self.get(key) {
                Some(Window { len, place: WindowPlace::Queued, .. }) => return Some((key, *len)),
                _ => self.queue.pop_front(),
            };
        }
        None
    }

    /// Takes that window from the queue: its file.
    pub(super) fn pop_queued(&mut self) -> Option<Arc<dyn RangeReader>> {
        self.queue.pop_front().map(|(_, reader)| reader)
    }

    /// Counts a queued window among those that are asked for.
    pub(super) fn ask(&mut self, key: WindowKey, charge: Charge) {
        let Some(window) = self.get(key) else { return };
        let len = window.len;
        let process = std::process::id();
        window.place = WindowPlace::Asked(AskedWindow { charge, process, request: None });
        self.asked_bytes += len;
        self.asked += 1;
    }

    /// Takes the answer to a request: none if it failed.
    pub(super) fn arrive(&mut self, key: WindowKey, bytes: Option<Bytes>) {
        let Some(window) = self.get(key) else { return };
        let len = window.len;
        if !matches!(window.place, WindowPlace::Asked(_)) {
            return;
        }
        let asked = std::mem::replace(&mut window.place, WindowPlace::Queued);
        self.asked_bytes -= len;
        self.asked -= 1;
        match (asked, bytes.filter(|bytes| bytes.len() as u64 == len)) {
            (WindowPlace::Asked(AskedWindow { charge, .. }), Some(bytes)) => {
                self.ahead_bytes -= len;
                self.hold(key, bytes, charge);
            }
            _ => self.remove(key),
        }
    }

    /// Adds a window in memory; as long as the file is open, if it `stays`.
    pub(super) fn add(&mut self, key: WindowKey, bytes: Bytes, charge: Charge, stays: bool) {
        self.insert(key, bytes.len() as u64, stays);
        self.hold(key, bytes, charge);
    }

    fn insert(&mut self, key: WindowKey, len: u64, stays: bool) {
        let run = self.run(key.0, key.1) + len;
        let (place, read_to) = (WindowPlace::Queued, key.1);
        let window = Window { len, place, run, read_to, again: None, stays };
        self.files.entry(key.0).or_default().insert(key.1, window);
    }

    fn hold(&mut self, key: WindowKey, bytes: Bytes, charge: Charge) {
        self.clock += 1;
        let used = self.clock;
        let len = bytes.len();
        let Some(window) = self.get(key) else { return };
        window.place = WindowPlace::Memory(HeldWindow { bytes, _charge: charge, used });
        self.bytes += len;
        self.uses.insert(used, key);
    }

    /// Notes that `range` of a window was read.
    pub(super) fn note(&mut self, key: WindowKey, range: &Range<u64>) {
        self.clock += 1;
        let clock = self.clock;
        let Some(window) = self.get(key) else { return };
        let was_served = window.is_served(key.1);
        window.read_to = window.read_to.max(range.end);
        if let Some((_, left)) = &mut window.again {
            *left = left.saturating_sub(range.end - range.start);
        }
        let is_new = window.is_served(key.1) && !was_served;
        match &mut window.place {
            WindowPlace::Memory(held) => {
                let before = std::mem::replace(&mut held.used, clock);
                self.uses.remove(&before);
                self.uses.insert(clock, key);
            }
            WindowPlace::Disk(_) if is_new => self.serve(key),
            _ => {}
        }
    }

    /// Notes that `range` is read again, as far as it is in memory.
    pub(super) fn want(&mut self, file: u64, range: &Range<u64>) {
        let mut at = range.start;
        while at < range.end {
            let Some((start, window)) = self.at(file, at) else {
                at = self.gap(file, at).end;
                continue;
            };
            let part = range.start.max(start)..range.end.min(start + window.len);
            let is_kept = matches!(window.place, WindowPlace::Memory(_) | WindowPlace::Leaving(_));
            let is_served = window.is_served(start);
            match &mut window.again {
                _ if is_kept && is_served => {
                    window.read_to = start;
                    let len = part.end - part.start;
                    window.again = Some((part, len));
                }
                Some((again, left)) if !is_served => {
                    let all = again.start.min(part.start)..again.end.max(part.end);
                    *left += all.end - all.start - (again.end - again.start);
                    *again = all;
                }
                _ => {}
            }
            at = start + window.len;
        }
    }

    fn serve(&mut self, key: WindowKey) {
        let Some(len) = self.get(key).map(|window| window.len) else { return };
        self.served.push_back((key, usize::try_from(len).unwrap_or(usize::MAX)));
        self.served_bytes += len;
    }

    /// Removes the window on disk that was read to its end longest ago. Whether there was one.
    pub(super) fn drop_served(&mut self) -> bool {
        let Some((key, len)) = self.served.pop_front() else { return false };
        self.served_bytes -= len as u64;
        self.remove(key);
        true
    }

    /// Takes windows that were used longest ago out of memory until those there have at most
    /// `bytes_max`; gives those that are to be written to disk: all, or those that were not read to
    /// their end unless windows are `read_again`.
    pub(super) fn make_room(
        &mut self,
        bytes_max: usize,
        read_again: bool,
    ) -> Vec<(WindowKey, Bytes)> {
        let mut leaving = Vec::new();
        while self.bytes > bytes_max {
            let Some((_, key)) = self.uses.pop_first() else { break };
            let Some(window) = self.get(key) else { continue };
            let is_done = window.is_served(key.1) && !read_again;
            let place = std::mem::replace(&mut window.place, WindowPlace::Queued);
            let WindowPlace::Memory(held) = place else { continue };
            let bytes = held.bytes.clone();
            window.place = WindowPlace::Leaving(held);
            self.bytes -= bytes.len();
            match is_done {
                true => self.remove(key),
                false => leaving.push((key, bytes)),
            }
        }
        leaving
    }

    /// Ends the way of a window to disk; it goes if there is no place for it.
    pub(super) fn settle(&mut self, key: WindowKey, place: Option<DiskPlace>) {
        let Some(window) = self.get(key) else { return };
        match (&window.place, place) {
            (WindowPlace::Leaving(..), Some(place)) => {
                window.place = WindowPlace::Disk(Arc::new(place));
                if window.is_served(key.1) {
                    self.serve(key);
                }
            }
            (WindowPlace::Leaving(..), None) => self.remove(key),
            _ => {}
        }
    }

    /// Removes a window.
    pub(super) fn remove(&mut self, key: WindowKey) {
        let Some(windows) = self.files.get_mut(&key.0) else { return };
        let Some(window) = windows.remove(&key.1) else { return };
        if windows.is_empty() {
            self.files.remove(&key.0);
        }
        self.subtract(&window);
    }

    /// Removes the windows of a file.
    pub(super) fn forget(&mut self, file: u64) {
        for window in self.files.remove(&file).unwrap_or_default().values() {
            self.subtract(window);
        }
    }

    /// Takes a window that is gone out of the sums.
    fn subtract(&mut self, window: &Window) {
        match &window.place {
            WindowPlace::Memory(held) => {
                self.uses.remove(&held.used);
                self.bytes -= held.bytes.len();
            }
            WindowPlace::Asked(_) => {
                self.ahead_bytes -= window.len;
                self.asked_bytes -= window.len;
                self.asked -= 1;
            }
            WindowPlace::Queued => self.ahead_bytes -= window.len,
            WindowPlace::Leaving(..) | WindowPlace::Disk(_) => {}
        }
    }
}
