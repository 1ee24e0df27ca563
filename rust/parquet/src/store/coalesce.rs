//! Small reads of an object, joined: one request for what many of them will ask for.
//!
//! ```text
//! read a..b  ─ in windows? ─ yes ─▶ slice
//!              │ no
//!              ├─ the end of the file  ─▶ one request for the last 256 KB: footer and indexes
//!              │                          (if opening the object did not bring these)
//!              ├─ behind a window      ─▶ as many bytes as those before it: 64 KB, 128 KB, … 1 MB
//!              ├─ to be read again     ─▶ one request for exactly a..b, which is a window then
//!              └─ anywhere else, or large ─▶ one request for exactly a..b
//! will_read a..b ─ requests that nobody waits for yet
//! ```
//!
//! # Invariants
//! No byte of a window is requested again.
//!
//! # Cost
//! Bytes read in vain: at most as many as were asked for, plus 64 KB a place.
//!
//! # Not here
//! Where windows are (`windows`).

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use plait_core::Result;

use super::reader::{ObjectVersion, RangeReader, check_range, short_read};
use super::window_cache::{FoundBytes, WINDOW_BYTES, WindowCache};
use crate::runtime::Charge;

/// What a first look at the end of a file brings: the footer and most often all indexes.
pub(crate) const TAIL_BYTES: u64 = 256 << 10;

/// Reads from this size on are requests of their own.
const LARGE_BYTES: u64 = 256 << 10;

/// A store whose small reads are joined.
pub(super) struct Coalesced {
    inner: Arc<dyn RangeReader>,
    id: u64,
    windows: Arc<WindowCache>,
    /// The last bytes, until the first read: as a window they could be gone by then.
    tail: Mutex<Option<Box<(Bytes, Charge)>>>,
}

impl Coalesced {
    /// Joins reads of `inner`, whose last bytes are `tail`; empty if they are not known.
    pub(super) fn new(
        inner: Arc<dyn RangeReader>,
        tail: Bytes,
        windows: &Arc<WindowCache>,
    ) -> Self {
        let charge = windows.context().charge(tail.len());
        let tail = Mutex::new((!tail.is_empty()).then(|| Box::new((tail, charge))));
        Self { inner, id: windows.new_file(), windows: Arc::clone(windows), tail }
    }

    /// Whether one window has all of it.
    fn is_small(&self) -> bool {
        self.len() <= TAIL_BYTES
    }

    /// Makes the last bytes a window.
    fn keep_tail(&self) {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((tail, _charge)) = tail.map(|tail| *tail) else { return };
        if let Some(start) = self.len().checked_sub(tail.len() as u64) {
            self.windows.keep(self.id, start, tail, self.is_small());
            // Of thousands of large objects, ends must not take the room of what is read next.
            self.windows.note(self.id, &(start..self.len()));
        }
    }

    /// What to request for `range`, which begins in a part of the object without windows: `gap`, behind
    /// so many bytes that were requested one after the other; `None` to request just what is asked for.
    fn request(&self, range: &Range<u64>, gap: &Range<u64>, run: u64) -> Option<Range<u64>> {
        let len = self.len();
        let gap = gap.start..gap.end.min(len);
        if self.is_small() {
            return Some(gap);
        }
        if range.end - range.start >= LARGE_BYTES {
            return None;
        }
        // The footer is at the end, and the indexes are before it.
        if range.end == len && gap.end == len {
            return Some(range.start.min(len.saturating_sub(TAIL_BYTES)).max(gap.start)..len);
        }
        let next = run.clamp(WINDOW_BYTES, self.windows.largest());
        Some(range.start..range.end.max(range.start + next).min(gap.end))
    }

    /// Reads `range`, and keeps it as a window of its own if it `is_again` read.
    fn gather(&self, range: Range<u64>, is_again: bool) -> Result<Bytes> {
        self.keep_tail();
        let mut gathered = BytesMut::new();
        let mut at = range.start;
        while at < range.end {
            let left = at..range.end;
            let found = match self.windows.find(self.id, &left, &self.inner)? {
                FoundBytes::Here(bytes) => bytes,
                FoundBytes::Gap(gap, run) => self.fetch(&left, &gap, run, is_again)?,
            };
            if found.is_empty() {
                return Err(short_read(&range, self.path()));
            }
            at += found.len() as u64;
            // A copy: what a reader holds on to must not keep the whole window alive.
            if gathered.is_empty() && at == range.end {
                return Ok(Bytes::copy_from_slice(&found));
            }
            let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            gathered.reserve(len - gathered.len());
            gathered.extend_from_slice(&found);
        }
        Ok(gathered.freeze())
    }

    /// Requests bytes where no window is; gives as many of `range` as this brings.
    fn fetch(
        &self,
        range: &Range<u64>,
        gap: &Range<u64>,
        run: u64,
        is_again: bool,
    ) -> Result<Bytes> {
        let wanted = range.start..range.end.min(gap.end);
        let Some(request) = self.request(range, gap, run) else {
            let bytes = self.inner.read(wanted.clone())?;
            if is_again {
                self.windows.keep(self.id, wanted.start, bytes.clone(), false);
            }
            return Ok(bytes);
        };
        let start = request.start;
        let bytes = self.inner.read(request)?;
        self.windows.keep(self.id, start, bytes.clone(), self.is_small());
        self.windows.note(self.id, &wanted);
        let at = |offset: u64| usize::try_from(offset - start).unwrap_or(usize::MAX);
        Ok(bytes.slice(at(wanted.start).min(bytes.len())..at(wanted.end).min(bytes.len())))
    }
}

impl RangeReader for Coalesced {
    fn path(&self) -> &str {
        self.inner.path()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        match check_range(&range, self.len(), self.path())? {
            0 => Ok(Bytes::new()),
            _ => self.gather(range, false),
        }
    }

    fn read_and_keep(&self, range: Range<u64>) -> Result<Bytes> {
        match check_range(&range, self.len(), self.path())? {
            0 => Ok(Bytes::new()),
            _ => self.gather(range, true),
        }
    }

    fn takes_hints(&self) -> bool {
        !self.is_small()
    }

    fn will_read(&self, range: Range<u64>, end: u64) {
        if !self.is_small() && range.start < range.end && range.end <= self.len() {
            self.keep_tail();
            let end = end.min(self.len());
            self.windows.will_read(self.id, &range, end, &self.inner);
        }
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

impl Drop for Coalesced {
    fn drop(&mut self) {
        self.windows.forget(self.id);
    }
}

#[cfg(test)]
#[path = "tests/coalesce.rs"]
mod tests;
