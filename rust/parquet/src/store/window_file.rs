//! Windows of objects on disk: those that were requested, are needed again, and have no room in
//! memory.
//!
//! ```text
//! file   │ a │ a │ b │   │ a │ c │      slots of 64 KiB; a window has as many as it needs
//!                      └ free: the next window is written here
//! ```
//!
//! # Invariants
//! The file has no name, and lies in the system's folder of temporary files. It has at most
//! [`LIMITS_MAX`] times the memory limit. No slot is written over while anyone may read it. Where
//! the file cannot be written or read, it goes, and objects are read again: no call fails because of
//! it.
//!
//! # Cost
//! A write a window, and a read for each time that it is needed.
//!
//! # Not here
//! Which windows go to disk (`windows`).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::local::{read_exact_at, write_all_at};
use super::temp::unnamed_file;
use crate::runtime::{Context, Level};

/// So many times the memory limit may be on disk.
const LIMITS_MAX: u64 = 4;

/// What is given to a window at a time.
const SLOT_BYTES: usize = 64 << 10;

/// The file of one call.
pub(super) struct WindowFile {
    context: Context,
    slots: Arc<Mutex<FileSlots>>,
}

#[derive(Default)]
struct FileSlots {
    /// None before the first window.
    file: Option<Arc<File>>,
    /// It could not be made or written.
    is_refused: bool,
    /// How many slots the file has, and which of them are free.
    made: u32,
    free: Vec<u32>,
    /// Bytes of all windows.
    bytes: u64,
}

/// Where a window is. Its slots are free when it is dropped.
pub(super) struct DiskPlace {
    slots: Box<[u32]>,
    bytes: u64,
    of: Arc<Mutex<FileSlots>>,
}

impl WindowFile {
    /// No window yet.
    pub(super) fn new(context: &Context) -> Self {
        Self { context: context.clone(), slots: Arc::default() }
    }

    /// How many bytes may still be written.
    pub(super) fn room(&self) -> u64 {
        let slots = lock(&self.slots);
        let most = (self.context.budget().limit_bytes() as u64).saturating_mul(LIMITS_MAX);
        if slots.is_refused { 0 } else { most.saturating_sub(slots.bytes) }
    }

    /// Writes a window, if it can be kept.
    pub(super) fn put(&self, bytes: &[u8]) -> Option<DiskPlace> {
        if bytes.len() as u64 > self.room() {
            return None;
        }
        match self.write(bytes) {
            Ok(place) => Some(place),
            Err(e) => {
                // Others that write there need the space more.
                *lock(&self.slots) = FileSlots { is_refused: true, ..FileSlots::default() };
                self.context.events().record(Level::Info, "store", || {
                    let dir = std::env::temp_dir();
                    format!("objects are read again: cannot write to {}: {e}", dir.display())
                });
                None
            }
        }
    }

    fn write(&self, bytes: &[u8]) -> io::Result<DiskPlace> {
        let (file, place) = {
            let mut slots = lock(&self.slots);
            let file = match &slots.file {
                Some(file) => Arc::clone(file),
                None => Arc::new(unnamed_file(&std::env::temp_dir(), &self.context)?),
            };
            slots.file = Some(Arc::clone(&file));
            let taken = slots.take(bytes.len().div_ceil(SLOT_BYTES));
            slots.bytes += bytes.len() as u64;
            let of = Arc::clone(&self.slots);
            (file, DiskPlace { slots: taken, bytes: bytes.len() as u64, of })
        };
        self.context.faults().check("spill")?;
        for (slot, part) in place.slots.iter().zip(bytes.chunks(SLOT_BYTES)) {
            write_all_at(&file, part, start_of(*slot))?;
        }
        self.context.counters().add_spilled(bytes.len() as u64);
        Ok(place)
    }
}

impl FileSlots {
    fn take(&mut self, slots: usize) -> Box<[u32]> {
        let take_one = |_| {
            self.free.pop().unwrap_or_else(|| {
                self.made += 1;
                self.made - 1
            })
        };
        (0..slots).map(take_one).collect()
    }
}

impl DiskPlace {
    /// The bytes of `range` of the window, if they are still there.
    pub(super) fn get(&self, range: Range<usize>) -> Option<Bytes> {
        let file = Arc::clone(lock(&self.of).file.as_ref()?);
        let mut bytes = vec![0; range.len()];
        let mut at = range.start;
        let mut rest = &mut bytes[..];
        while at < range.end {
            let (slot, within) = (self.slots.get(at / SLOT_BYTES)?, at % SLOT_BYTES);
            let len = rest.len().min(SLOT_BYTES - within);
            let (part, behind) = rest.split_at_mut(len);
            read_exact_at(&file, part, start_of(*slot) + within as u64).ok()?;
            (rest, at) = (behind, at + len);
        }
        Some(bytes.into())
    }
}

impl Drop for DiskPlace {
    fn drop(&mut self) {
        let mut slots = lock(&self.of);
        if !slots.is_refused {
            slots.free.extend_from_slice(&self.slots);
            slots.bytes -= self.bytes;
        }
    }
}

fn start_of(slot: u32) -> u64 {
    u64::from(slot) * SLOT_BYTES as u64
}

fn lock(slots: &Mutex<FileSlots>) -> MutexGuard<'_, FileSlots> {
    slots.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn window(seed: usize, len: usize) -> Vec<u8> {
        (0..len).map(|n| ((n + seed) % 251) as u8).collect()
    }

    #[test]
    fn windows_come_back_until_they_are_dropped() {
        let context = Context::new(100_000);
        let file = WindowFile::new(&context);
        let lens = [1, 65_536, 65_537, 200_000];
        let places: Vec<_> =
            lens.iter().map(|len| file.put(&window(*len, *len)).unwrap()).collect();
        for (place, len) in places.iter().zip(lens) {
            let want = window(len, len);
            for range in [0..len, 0..1, len - 1..len, len / 3..len / 2] {
                assert_eq!(place.get(range.clone()).unwrap(), want[range]);
            }
        }
        // Four times the limit, and no more.
        assert_eq!(file.room(), 400_000 - 331_074);
        assert!(file.put(&window(0, 70_000)).is_none());
        drop(places);
        assert_eq!(file.room(), 400_000);
        let again = file.put(&window(5, 400_000)).unwrap();
        assert_eq!(again.get(0..400_000).unwrap(), window(5, 400_000));
        let slots = lock(&file.slots);
        assert_eq!((slots.made, slots.free.len()), (8, 1), "slots are used again");
    }

    #[test]
    fn a_disk_that_is_full_is_no_error() {
        let seen = AtomicUsize::new(0);
        let fault = move |of: &str| match (of, seen.fetch_add(1, Ordering::Relaxed)) {
            // The first window takes a file and a write.
            ("spill", 2..) => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        };
        let context = Context::with_faults(1 << 20, Box::new(fault));
        let file = WindowFile::new(&context);
        let first = file.put(b"bytes").unwrap();
        assert_eq!(first.get(0..5).unwrap(), &b"bytes"[..]);
        assert!((1..3).all(|_| file.put(b"bytes").is_none()));
        assert_eq!((first.get(0..1), file.room()), (None, 0));
        assert!(lock(&file.slots).file.is_none(), "its space is given back");
    }
}
