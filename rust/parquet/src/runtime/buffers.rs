//! Buffers of unpacked pages that wait for the next page.
//!
//! # Invariants
//! A buffer is accounted for while it is used and while it waits.
//!
//! # Cost
//! A lock per page, and O(log b) under it for b capacities of buffers that wait. Returning memory to the system and taking new memory costs more than unpacking
//! some pages.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::account::{Account, Charge};
use super::budget::Budget;

/// The buffers of one call; clones are the same buffers.
#[derive(Clone)]
pub(crate) struct Buffers(Arc<BufferPool>);

struct BufferPool {
    account: Account,
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
        Self(Arc::new(BufferPool { account, idle: Mutex::default() }))
    }

    /// An empty buffer with room for `len` bytes, if there is memory for it.
    #[must_use]
    pub(crate) fn take(&self, len: usize) -> Option<Buffer> {
        let mut bytes = self.take_idle(len);
        bytes.try_reserve_exact(len).ok()?;
        let charge = self.0.account.charge(bytes.capacity());
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

    fn put_back(&self, mut buffer: Vec<u8>) {
        let most = Budget::new(self.0.account.limit_bytes()).idle_buffers();
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = idle.bytes() + buffer.capacity();
        if buffer.capacity() > 0 && bytes <= most {
            buffer.clear();
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
