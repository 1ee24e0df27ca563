//! Blocks of memory that small windows share, and that are used again once these are gone.
//!
//! ```text
//! blocks   │ a │ b │ c │ d │    │ e │ f │   └ the next window    │           │
//!          some are needed       filled                           all are gone: used again
//! ```
//!
//! Windows come and go while what is known of each of a million objects stays. In memory of their own,
//! each would leave a hole behind that is too small for the next.
//!
//! # Invariants
//! No more than twice as many bytes are in blocks as windows in memory have. Beyond, windows keep
//! memory of their own.
//!
//! # Cost
//! A copy of each window. A block stays as long as one of its windows.
//!
//! # Not here
//! Which windows stay (`windows`).

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Bytes of a block, where there is room for several.
const BLOCK_BYTES_MAX: usize = 1 << 20;

/// So many blocks have room, and so many of the largest windows in a block, at least.
const BLOCKS_MIN: usize = 4;
const WINDOWS_MIN: usize = 4;

/// Blocks that small windows share.
pub(super) struct WindowBlocks {
    block_bytes: usize,
    blocks_max: usize,
    /// The block that is filled.
    last: Option<BytesMut>,
    full: VecDeque<BytesMut>,
}

impl WindowBlocks {
    /// None yet, for windows that have at most so many bytes in memory.
    pub(super) fn new(bytes_max: usize) -> Self {
        let block_bytes = BLOCK_BYTES_MAX.min(bytes_max / BLOCKS_MIN);
        let blocks_max = 2 * bytes_max / block_bytes.max(1);
        Self { block_bytes, blocks_max, last: None, full: VecDeque::new() }
    }

    /// A copy of `bytes` in a block; none if there is no room in one.
    pub(super) fn pack(&mut self, bytes: &[u8]) -> Option<Bytes> {
        if bytes.len() > self.block_bytes / WINDOWS_MIN {
            return None;
        }
        let block = self.with_room(bytes.len())?;
        block.extend_from_slice(bytes);
        Some(block.split().freeze())
    }

    /// The block that is filled, or the next one if that has no room.
    fn with_room(&mut self, len: usize) -> Option<&mut BytesMut> {
        if self.last.as_ref().is_none_or(|last| last.capacity() < len) {
            self.full.extend(self.last.take());
            self.last = self.next();
        }
        self.last.as_mut()
    }

    /// A block without windows.
    fn next(&mut self) -> Option<BytesMut> {
        // Those that were filled first are gone first, mostly.
        for _ in 0..self.full.len() {
            let mut block = self.full.pop_front()?;
            if block.try_reclaim(self.block_bytes) {
                return Some(block);
            }
            self.full.push_back(block);
        }
        let has_place = self.full.len() < self.blocks_max;
        has_place.then(|| BytesMut::with_capacity(self.block_bytes))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn bytes(i: usize, len: usize) -> Bytes {
        (0..len).map(|n| ((n + i) % 251) as u8).collect()
    }

    #[test]
    fn blocks_are_used_again_and_windows_keep_their_bytes() {
        let mut blocks = WindowBlocks::new(4000);
        let mut held: VecDeque<(Bytes, Bytes)> = VecDeque::new();
        let mut places = std::collections::BTreeSet::new();
        for i in 0..5000 {
            let window = bytes(i, 1 + i % 250);
            let packed = blocks.pack(&window).unwrap();
            assert_eq!(packed, window);
            places.insert(packed.as_ptr().addr() / 100);
            held.push_back((packed, window));
            if held.len() > 20 {
                held.pop_front();
            }
        }
        assert!(held.iter().all(|(packed, window)| packed == window));
        assert!(blocks.full.len() < 8, "{}", blocks.full.len());
        assert!(places.len() < 100, "{} places", places.len());
    }

    #[test]
    fn large_windows_and_those_beyond_the_room_are_not_packed() {
        let mut blocks = WindowBlocks::new(4000);
        assert_eq!(blocks.pack(&bytes(1, 251)), None);
        // One window of each block stays.
        let mut held = Vec::new();
        for i in 0..200 {
            let window = bytes(i, 200);
            if let Some(packed) = blocks.pack(&window).filter(|_| i % 5 == 0) {
                held.push((packed, window));
            }
        }
        assert_eq!((held.len(), blocks.full.len()), (8, blocks.blocks_max));
        assert_eq!(blocks.pack(&bytes(0, 200)), None);
        assert!(held.iter().all(|(packed, window)| packed == window));
        held.clear();
        assert_eq!(blocks.pack(&bytes(0, 200)), Some(bytes(0, 200)));
    }

    #[test]
    fn without_room_nothing_is_packed() {
        assert_eq!(WindowBlocks::new(0).pack(&bytes(0, 1)), None);
    }
}
