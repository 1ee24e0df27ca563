//! Buffers of unpacked pages that wait for the next page.
//!
//! # Invariants
//! A buffer is accounted for while it is used and while it waits. Where there are many threads, a large
//! one is given back to the system when it is dropped.
//!
//! # Cost
//! A lock per page, and O(log b) under it for b capacities of buffers that wait. Returning memory to
//! the system and taking new memory costs more than unpacking some pages.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::account::{Account, Charge};
use super::budget::Budget;

/// From here on, a buffer has room for [`MAPPED_BYTES`] where many threads take them. New memory for each
/// costs up to as much as unpacking, so others are left to the allocator.
const LARGE_BYTES: usize = 16 << 20;

/// So many threads keep no more blocks than there is room for.
const FEW_THREADS: usize = 4;

/// glibc's `malloc` maps blocks of more than 32 MiB by themselves. Once it has freed a smaller one, it
/// keeps others of its size in a heap for each thread: with many threads they take more than the memory
/// limit. Room that is not written to takes no memory.
const MAPPED_BYTES: usize = 33 << 20;

/// The buffers of one call; clones are the same buffers.
#[derive(Clone)]
pub(crate) struct Buffers(Arc<BufferPool>);

struct BufferPool {
    account: Account,
    /// Whether large buffers are mapped by themselves.
    maps_large: AtomicBool,
    idle: Mutex<IdleBuffers>,
}

#[derive(Default)]
struct IdleBuffers {
    /// By capacity. Of small pages there are thousands.
    buffers: BTreeMap<usize, Vec<Vec<u8>>>,
    /// Accounts for all of them.
    charge: Option<Charge>,
}

impl IdleBuffers {
    fn bytes(&self) -> usize {
        self.charge.as_ref().map_or(0, Charge::bytes)
    }
}

impl Buffers {
    pub(super) fn new(account: Account) -> Self {
        let (maps_large, idle) = (AtomicBool::default(), Mutex::default());
        Self(Arc::new(BufferPool { account, maps_large, idle }))
    }

    /// Says how many threads take buffers.
    pub(crate) fn set_threads(&self, threads: usize) {
        self.0.maps_large.store(threads > FEW_THREADS, Ordering::Relaxed);
    }

    /// An empty buffer with room for `len` bytes, if there is memory for it.
    #[must_use]
    pub(crate) fn take(&self, len: usize) -> Option<Buffer> {
        let mut buffer = self.take_used(len)?;
        buffer.bytes.clear();
        Some(buffer)
    }

    /// A buffer of `len` bytes that are to be overwritten, if there is memory for it.
    #[must_use]
    pub(crate) fn take_filled(&self, len: usize) -> Option<Buffer> {
        let mut buffer = self.take_used(len)?;
        // What was there before need not be zeroed.
        buffer.bytes.resize(len, 0);
        Some(buffer)
    }

    /// A buffer with room for `len` bytes, with at most as many that were written before.
    fn take_used(&self, len: usize) -> Option<Buffer> {
        let mut bytes = self.take_idle(len);
        bytes.truncate(len);
        let is_mapped = len >= LARGE_BYTES && self.0.maps_large.load(Ordering::Relaxed);
        let room = if is_mapped { len.max(MAPPED_BYTES) } else { len };
        bytes.try_reserve_exact(room - bytes.len()).ok()?;
        let charge = self.0.account.charge(if room > len { len } else { bytes.capacity() });
        Some(Buffer { bytes, charge, buffers: self.clone() })
    }

    /// The smallest waiting buffer that fits, unless it is far too large.
    fn take_idle(&self, len: usize) -> Vec<u8> {
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut fitting = idle.buffers.range_mut(len..=len.saturating_mul(4));
        let Some((capacity, same)) = fitting.next() else { return Vec::new() };
        let (capacity, buffer) = (*capacity, same.pop().unwrap_or_default());
        if same.is_empty() {
            idle.buffers.remove(&capacity);
        }
        let left = idle.bytes() - buffer.capacity();
        if let Some(charge) = &mut idle.charge {
            charge.set(left);
        }
        buffer
    }

    fn put_back(&self, buffer: Vec<u8>) {
        let most = Budget::new(self.0.account.limit_bytes()).idle_buffers();
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = idle.bytes() + buffer.capacity();
        if buffer.capacity() > 0 && bytes <= most {
            idle.charge.get_or_insert_with(|| self.0.account.charge(0)).set(bytes);
            idle.buffers.entry(buffer.capacity()).or_default().push(buffer);
        }
    }

    /// Releases the buffers that wait.
    pub(crate) fn release_idle(&self) {
        drop(std::mem::take(&mut *self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)));
    }
}

/// A buffer of [`Buffers`], accounted for while it lives.
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    charge: Charge,
    buffers: Buffers,
}

impl Buffer {
    /// The bytes, to write to.
    pub(crate) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.charge.set(0);
        self.buffers.put_back(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn buffers_come_empty_or_as_long_as_they_are_asked_for() {
        let buffers = Buffers::new(Account::new(1 << 20));
        for (before, len) in [(0, 100), (100, 100), (100, 70), (70, 90), (90, 200)] {
            let mut used = buffers.take(before).unwrap();
            used.bytes_mut().resize(before, 7);
            drop(used);
            let mut filled = buffers.take_filled(len).unwrap();
            assert_eq!(filled.bytes_mut().len(), len);
            filled.bytes_mut().fill(8);
            drop(filled);
            let mut empty = buffers.take(len).unwrap();
            assert!(empty.bytes_mut().is_empty() && empty.bytes_mut().capacity() >= len);
        }
    }

    #[test]
    fn large_buffers_have_room_to_be_mapped_and_are_given_back() {
        let account = Account::new(512_000_000);
        let buffers = Buffers::new(account.clone());
        let take = |len: usize| {
            let mut buffer = buffers.take(len).unwrap();
            let (room, held) = (buffer.bytes_mut().capacity(), account.held_bytes());
            drop(buffer);
            (room, held, account.held_bytes())
        };
        // Room, bytes while it is used, bytes that wait.
        buffers.set_threads(5);
        assert_eq!(take(LARGE_BYTES), (MAPPED_BYTES, LARGE_BYTES as u64, 0));
        assert_eq!(take(2 * MAPPED_BYTES), (2 * MAPPED_BYTES, 2 * MAPPED_BYTES as u64, 0));
        assert_eq!(take(1000), (1000, 1000, 1000));
        buffers.set_threads(4);
        assert_eq!(take(LARGE_BYTES + 1).0, LARGE_BYTES + 1);
    }
}
