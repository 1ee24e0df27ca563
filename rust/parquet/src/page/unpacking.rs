//! A page that is unpacked by whoever comes first: the thread that reads it, or one with nothing to
//! do.
//!
//! # Invariants
//! It is unpacked at most once at a time, by a thread that never waits. One that failed is unpacked
//! again by the thread that reads it, which then knows why.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use plait_core::Result;

use super::guard;
use super::header::PageHeader;
use super::unpack::Unpacker;

/// A page on its way.
pub(crate) struct Unpacking {
    header: PageHeader,
    body: Bytes,
    unpacker: Unpacker,
    state: Mutex<UnpackingState>,
}

enum UnpackingState {
    Waiting,
    Unpacked(Bytes),
    Taken,
}

impl Unpacking {
    pub(super) fn new(header: PageHeader, body: Bytes, unpacker: Unpacker) -> Self {
        Self { header, body, unpacker, state: Mutex::new(UnpackingState::Waiting) }
    }

    /// Unpacks the page, unless somebody does or did.
    pub(crate) fn unpack(&self) {
        let Ok(mut state) = self.state.try_lock() else { return };
        if matches!(*state, UnpackingState::Waiting)
            && let Ok(unpacked) = guard(|| self.make()).flatten()
        {
            *state = UnpackingState::Unpacked(unpacked);
        }
    }

    /// The unpacked page. It waits for a thread that is about it.
    ///
    /// # Errors
    /// As [`Unpacker::unpack`].
    pub(super) fn take(&self) -> Result<Bytes> {
        match std::mem::replace(&mut *self.lock(), UnpackingState::Taken) {
            UnpackingState::Unpacked(unpacked) => Ok(unpacked),
            UnpackingState::Waiting | UnpackingState::Taken => self.make(),
        }
    }

    fn make(&self) -> Result<Bytes> {
        self.unpacker.unpack(&self.header, &self.body)
    }

    fn lock(&self) -> MutexGuard<'_, UnpackingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
