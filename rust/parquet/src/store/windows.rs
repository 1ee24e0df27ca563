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
//! O(log n) a look-up, for n windows. One that is on disk takes about 200 bytes: of a million small
//! objects, there is one each.
//!
//! # Not here
//! Requests, memory and disk (`window_cache`).

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::arrivals::WindowKey;
use super::bucket::BegunRead;
use super::reader::RangeReader;
use super::remote::alone;
use super::window_blocks::WindowBlocks;
use super::window_file::DiskPlace;
use crate::runtime::Charge;

/// The windows of all files of one call.
pub(super) struct ObjectWindows {
    /// By file and where they begin, in one tree: one for each file would have room for eleven.
    windows: BTreeMap<WindowKey, Window>,
    /// Those in memory, by when they were used, and bytes of these.
    uses: BTreeMap<u64, WindowKey>,
    bytes: usize,
    blocks: WindowBlocks,
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
    again: Option<Box<(Range<u64>, u64)>>,
    /// It stays until its file is forgotten.
    stays: bool,
}

/// Where a window is.
pub(super) enum WindowPlace {
    Queued,
    Asked(Box<AskedWindow>),
    Memory(Box<HeldWindow>),
    /// In memory, while it is written to disk.
    Leaving(Box<HeldWindow>),
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
        let is_read = match self.again.as_deref() {
            Some((range, left)) => *left == 0 && self.read_to >= range.end,
            None => self.read_to >= start + self.len,
        };
        is_read && !self.stays
    }
}

impl ObjectWindows {
    /// No windows yet, of which at most so many bytes will be in memory.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            windows: BTreeMap::new(),
            uses: BTreeMap::new(),
            bytes: 0,
            blocks: WindowBlocks::new(bytes_max),
            served: VecDeque::new(),
            served_bytes: 0,
            queue: VecDeque::new(),
            ahead_bytes: 0,
            asked_bytes: 0,
            asked: 0,
            clock: 0,
        }
    }

    /// The window of that key.
    pub(super) fn get(&mut self, key: WindowKey) -> Option<&mut Window> {
        self.windows.get_mut(&key)
    }

    /// The window of `file` that has `at`, and where it begins.
    pub(super) fn at(&mut self, file: u64, at: u64) -> Option<(u64, &mut Window)> {
        let before = self.windows.range_mut((file, 0)..=(file, at)).next_back();
        let ((_, start), window) = before?;
        (at < start + window.len).then_some((*start, window))
    }

    /// The part of `file` around `at` where no window is, if none is at `at`.
    pub(super) fn gap(&self, file: u64, at: u64) -> Range<u64> {
        let before = self.windows.range((file, 0)..(file, at)).next_back();
        let next = self.windows.range((file, at)..=(file, u64::MAX)).next();
        before.map_or(0, |((_, start), window)| start + window.len)
            ..next.map_or(u64::MAX, |((_, start), _)| *start)
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
        match self.windows.range((file, 0)..=(file, at)).next_back() {
            Some(((_, start), window)) if at <= start + window.len => {
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
        window.place = WindowPlace::Asked(Box::new(AskedWindow { charge, process, request: None }));
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
            (WindowPlace::Asked(asked), Some(bytes)) => {
                self.ahead_bytes -= len;
                let bytes = self.blocks.pack(&bytes).unwrap_or_else(|| alone(bytes));
                self.hold(key, bytes, asked.charge);
            }
            _ => self.remove(key),
        }
    }

    /// Adds a window in memory; as long as the file is open, if it `stays`.
    pub(super) fn add(&mut self, key: WindowKey, bytes: Bytes, charge: Charge, stays: bool) {
        self.insert(key, bytes.len() as u64, stays);
        let bytes = self.blocks.pack(&bytes).unwrap_or(bytes);
        self.hold(key, bytes, charge);
    }

    fn insert(&mut self, key: WindowKey, len: u64, stays: bool) {
        let run = self.run(key.0, key.1) + len;
        let (place, read_to) = (WindowPlace::Queued, key.1);
        let window = Window { len, place, run, read_to, again: None, stays };
        self.windows.insert(key, window);
    }

    fn hold(&mut self, key: WindowKey, bytes: Bytes, charge: Charge) {
        self.clock += 1;
        let used = self.clock;
        let len = bytes.len();
        let Some(window) = self.get(key) else { return };
        window.place = WindowPlace::Memory(Box::new(HeldWindow { bytes, _charge: charge, used }));
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
        if let Some((_, left)) = window.again.as_deref_mut() {
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
            match window.again.as_deref_mut() {
                _ if is_kept && is_served => {
                    window.read_to = start;
                    let len = part.end - part.start;
                    window.again = Some(Box::new((part, len)));
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
        if let Some(window) = self.windows.remove(&key) {
            self.subtract(&window);
        }
    }

    /// Removes the windows of a file.
    pub(super) fn forget(&mut self, file: u64) {
        while let Some((key, _)) = self.windows.range((file, 0)..=(file, u64::MAX)).next() {
            self.remove(*key);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Context;

    #[test]
    fn windows_of_one_file_are_not_those_of_its_neighbours() {
        let context = Context::new(1 << 20);
        let mut windows = ObjectWindows::new(1 << 16);
        for (file, start, len) in [(1, 10, 10), (2, 0, 5), (2, 5, 5), (2, 30, 3), (3, 0, 50)] {
            let bytes = Bytes::from(vec![7; len]);
            windows.add((file, start), bytes, context.charge(len), false);
        }
        let mut starts = |file, at| windows.at(file, at).map(|(start, _)| start);
        assert_eq!([starts(1, 9), starts(1, 10), starts(1, 20)], [None, Some(10), None]);
        assert_eq!([starts(2, 4), starts(2, 9), starts(2, 10)], [Some(0), Some(5), None]);
        assert_eq!([starts(0, 0), starts(4, 0), starts(3, 49)], [None, None, Some(0)]);
        let gaps =
            [(1, 0), (1, 25), (2, 12), (2, 40), (9, 3)].map(|(file, at)| windows.gap(file, at));
        let last = u64::MAX;
        assert_eq!(gaps, [0..10, 20..last, 10..30, 33..last, 0..last]);
        assert_eq!([windows.run(2, 10), windows.run(2, 33), windows.run(3, 5)], [10, 3, 5]);
        assert_eq!((windows.first_gap(2, &(0..40)), windows.bytes), (Some(10..30), 73));
        windows.forget(2);
        assert_eq!((windows.bytes, windows.uses.len()), (60, 2));
        assert!(windows.at(2, 0).is_none() && windows.at(1, 15).is_some());
        assert!(windows.at(3, 15).is_some());
    }

    #[test]
    fn a_window_on_disk_is_small() {
        let most = 80;
        assert!(size_of::<Window>() <= most, "{} bytes, one for each object", size_of::<Window>());
    }
}
