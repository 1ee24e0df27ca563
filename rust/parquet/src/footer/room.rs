//! Memory for footers that are decoded at the same time: threads that open many objects mostly wait
//! for bytes, and small footers take little; large ones take turns.
//!
//! # Invariants
//! One footer is always decoded, however large it is. Whoever waits, waits for decoding alone.
//!
//! # Not here
//! Footers that stay decoded (`decoded`).

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::runtime::{Context, MemoryStage};

/// Decoded, a footer takes about so many times its bytes.
const DECODED_TIMES: usize = 20;

/// Bytes for footers that are being decoded.
pub(super) struct DecodeRoom {
    used: Mutex<usize>,
    freed: Condvar,
    bytes_max: usize,
}

/// A part of these bytes, until it is dropped.
pub(super) struct DecodePlace<'a> {
    room: &'a DecodeRoom,
    bytes: usize,
}

impl DecodeRoom {
    /// As many bytes as files may take whose footers are read.
    pub(super) fn new(context: &Context) -> Self {
        let bytes_max = context.budget().bytes(MemoryStage::FileReaders);
        Self { used: Mutex::new(0), freed: Condvar::new(), bytes_max }
    }

    /// Waits until a footer of so many bytes fits, or no other is decoded.
    pub(super) fn enter(&self, footer_bytes: usize) -> DecodePlace<'_> {
        let bytes = footer_bytes.saturating_mul(DECODED_TIMES);
        let is_full = |used: &mut usize| *used > 0 && used.saturating_add(bytes) > self.bytes_max;
        let waited = self.freed.wait_while(self.lock(), is_full);
        *waited.unwrap_or_else(PoisonError::into_inner) += bytes;
        DecodePlace { room: self, bytes }
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DecodePlace<'_> {
    fn drop(&mut self) {
        *self.room.lock() -= self.bytes;
        self.room.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn as_many_footers_are_decoded_as_there_is_room_for() {
        let room = DecodeRoom { used: Mutex::new(0), freed: Condvar::new(), bytes_max: 60 };
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (room, inside, most) = (&room, &inside, &most);
                scope.spawn(move || {
                    for i in 0..200 {
                        // One in four is larger than the room, and alone in it.
                        let bytes = if (thread + i) % 4 == 0 { 4 } else { 1 };
                        let place = room.enter(bytes);
                        let now = inside.fetch_add(bytes.min(3), Ordering::SeqCst) + bytes.min(3);
                        most.fetch_max(now, Ordering::SeqCst);
                        inside.fetch_sub(bytes.min(3), Ordering::SeqCst);
                        drop(place);
                    }
                });
            }
        });
        assert_eq!((most.into_inner(), *room.lock()), (3, 0));
    }
}
