//! Small objects on disk: those that were read and have no room in memory, so that none is read twice.
//!
//! ```text
//! window in memory ─ goes for others ─▶ file ─ its object is read again ─▶ bytes
//! ```
//!
//! # Invariants
//! The file has no name, and lies in the system's folder of temporary files. It has at most
//! [`LIMITS_MAX`] times the memory limit. Where it cannot be written or read, it goes, and objects are
//! read again: no call fails because of it.
//!
//! # Cost
//! A write an object, and a read for each time that it is needed again.
//!
//! # Not here
//! Windows in memory (`coalesce`).

use std::collections::HashMap;
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

/// Objects of one call.
pub(super) struct WindowFile {
    context: Context,
    state: Mutex<FileState>,
}

#[derive(Default)]
struct FileState {
    /// None before the first object.
    file: Option<Arc<File>>,
    /// It could not be made or written.
    is_refused: bool,
    /// The place behind its last byte.
    end: u64,
    /// Where each object begins.
    starts: HashMap<u64, u64>,
}

impl WindowFile {
    /// No object yet.
    pub(super) fn new(context: &Context) -> Self {
        Self { context: context.clone(), state: Mutex::default() }
    }

    /// Keeps all bytes of the object `id`, if they can be kept.
    pub(super) fn put(&self, id: u64, bytes: &[u8]) {
        let mut state = self.lock();
        if state.is_refused || state.starts.contains_key(&id) {
            return;
        }
        if let Err(e) = self.write(&mut state, id, bytes) {
            // Others that write there need the space more.
            *state = FileState { is_refused: true, ..FileState::default() };
            self.context.events().record(Level::Info, "store", || {
                let dir = std::env::temp_dir();
                format!("small objects are read again: cannot write to {}: {e}", dir.display())
            });
        }
    }

    fn write(&self, state: &mut FileState, id: u64, bytes: &[u8]) -> io::Result<()> {
        let limit = self.context.budget().limit_bytes() as u64;
        if state.end + bytes.len() as u64 > limit.saturating_mul(LIMITS_MAX) {
            return Ok(());
        }
        let file = match &state.file {
            Some(file) => Arc::clone(file),
            None => Arc::new(unnamed_file(&std::env::temp_dir(), &self.context)?),
        };
        self.context.faults().check("spill")?;
        write_all_at(&file, bytes, state.end)?;
        self.context.counters().add_spilled(bytes.len() as u64);
        state.file = Some(file);
        state.starts.insert(id, state.end);
        state.end += bytes.len() as u64;
        Ok(())
    }

    /// The bytes of `range` of the object `id`, if they are here.
    pub(super) fn get(&self, id: u64, range: &Range<u64>) -> Option<Bytes> {
        let state = self.lock();
        let (start, file) = (*state.starts.get(&id)?, Arc::clone(state.file.as_ref()?));
        drop(state);
        let mut bytes = vec![0; usize::try_from(range.end - range.start).ok()?];
        read_exact_at(&file, &mut bytes, start + range.start).ok()?;
        Some(bytes.into())
    }

    /// Forgets the object `id`. Others are written over the file once all are forgotten.
    pub(super) fn forget(&self, id: u64) {
        let mut state = self.lock();
        if state.starts.remove(&id).is_some() && state.starts.is_empty() {
            state.end = 0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, FileState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn objects_come_back_until_they_are_forgotten() {
        let context = Context::new(1 << 10);
        let file = WindowFile::new(&context);
        let object = |id: u64| vec![u8::try_from(id).unwrap(); 1000];
        (0..6).for_each(|id| file.put(id, &object(id)));
        // Four times the limit, and no more.
        for id in 0..4 {
            assert_eq!(file.get(id, &(10..30)).unwrap(), object(id)[10..30]);
        }
        assert!((4..6).all(|id| file.get(id, &(0..1)).is_none()));
        (0..3).for_each(|id| file.forget(id));
        file.put(7, &object(7));
        assert!([0, 7].into_iter().all(|id| file.get(id, &(0..1)).is_none()));
        file.forget(3);
        file.put(7, &object(7));
        assert_eq!(file.get(7, &(0..1000)).unwrap(), object(7));
    }

    #[test]
    fn a_disk_that_is_full_is_no_error() {
        let seen = AtomicUsize::new(0);
        let fault = move |of: &str| match (of, seen.fetch_add(1, Ordering::Relaxed)) {
            // The first object takes a file and a write.
            ("spill", 2..) => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        };
        let context = Context::with_faults(1 << 20, Box::new(fault));
        let file = WindowFile::new(&context);
        file.put(0, b"bytes");
        assert_eq!(file.get(0, &(0..5)).unwrap(), &b"bytes"[..]);
        (1..3).for_each(|id| file.put(id, b"bytes"));
        assert!((0..3).all(|id| file.get(id, &(0..1)).is_none()));
    }
}
