//! Bytes that are stored once and read often: blocks in memory up to a share, then on disk.
//!
//! ```text
//! block 0   block 1   block 2 …   the last one grows
//! memory    memory    on disk     memory
//! ```
//!
//! # Invariants
//! The file has no name (it is unlinked at once), so that no crash leaves it behind. Where it cannot
//! be written, blocks stay in memory. They are not accounted: how much is woven at a time goes by what
//! is accounted, and these are a share of their own.
//!
//! # Cost
//! Memory: the share, and the last block. A read of a block on disk is one read of the file.
//!
//! # Not here
//! What is in them (`prefetched`; footers, in `footer`).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plait_core::{Error, Kind, Result};

use super::local::{read_exact_at, write_all_at};
use super::temp::unnamed_file;
use crate::runtime::{Context, Level};

/// Bytes of a block. Many stored bytes share one: small ones that stay between large ones that go
/// leave holes in memory.
const BLOCK_BYTES: usize = 256 << 10;

/// Blocks of one call.
pub(crate) struct StoredBlocks {
    dir: PathBuf,
    context: Context,
    block_bytes: usize,
    bytes_max: usize,
    last: Arc<StoredBlock>,
    /// Bytes of the blocks before the last that are in memory.
    in_memory: usize,
    file: ScratchFile,
}

enum ScratchFile {
    Unused,
    /// With the place behind its last byte.
    Open(Arc<Scratch>, u64),
    /// It cannot be written.
    Refused,
}

struct Scratch {
    file: File,
    dir: PathBuf,
}

struct StoredBlock(Mutex<BlockBytes>);

enum BlockBytes {
    Memory(Vec<u8>),
    OnDisk(Arc<Scratch>, u64),
}

/// Bytes of a block.
pub(crate) struct StoredBytes {
    block: Arc<StoredBlock>,
    start: u32,
    len: u32,
}

impl StoredBlocks {
    /// No blocks yet. Those beyond `bytes_max` go to disk, to `dir`.
    pub(crate) fn new(dir: &Path, bytes_max: usize, context: &Context) -> Self {
        Self {
            dir: dir.to_owned(),
            context: context.clone(),
            block_bytes: BLOCK_BYTES,
            bytes_max,
            last: StoredBlock::new(),
            in_memory: 0,
            file: ScratchFile::Unused,
        }
    }

    /// Stores `pieces` one behind the other.
    pub(crate) fn store(&mut self, pieces: &[&[u8]]) -> StoredBytes {
        let len = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        if self.last.len() + len > self.block_bytes {
            self.begin_block();
        }
        let start = self.last.append(pieces);
        // Blocks are small, and so are footers and pieces: their lengths are stored in four bytes.
        let [start, len] = [start, len].map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        StoredBytes { block: Arc::clone(&self.last), start, len }
    }

    fn begin_block(&mut self) {
        let whole = std::mem::replace(&mut self.last, StoredBlock::new());
        let len = whole.len();
        if len > 0 && self.in_memory + len > self.bytes_max {
            match self.write(&whole) {
                Ok(true) => return,
                Ok(false) => {}
                Err(e) => {
                    self.file = ScratchFile::Refused;
                    self.context.events().record(Level::Info, "plan", || {
                        let dir = self.dir.display();
                        format!("footers and keys stay in memory: cannot write to {dir}: {e}")
                    });
                }
            }
        }
        self.in_memory += len;
    }

    /// Moves a block to the file; `false` if there is none.
    fn write(&mut self, block: &StoredBlock) -> io::Result<bool> {
        let (file, at) = match &self.file {
            ScratchFile::Open(file, at) => (Arc::clone(file), *at),
            ScratchFile::Unused => {
                let (file, dir) = (unnamed_file(&self.dir, &self.context)?, self.dir.clone());
                (Arc::new(Scratch { file, dir }), 0)
            }
            ScratchFile::Refused => return Ok(false),
        };
        self.context.faults().check("spill")?;
        let len = block.write(&file, at)? as u64;
        self.context.counters().add_spilled(len);
        self.file = ScratchFile::Open(file, at + len);
        Ok(true)
    }
}

impl StoredBlock {
    fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(BlockBytes::Memory(Vec::new()))))
    }

    fn lock(&self) -> MutexGuard<'_, BlockBytes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes in memory.
    fn len(&self) -> usize {
        match &*self.lock() {
            BlockBytes::Memory(bytes) => bytes.len(),
            BlockBytes::OnDisk(..) => 0,
        }
    }

    /// Appends to a block in memory; gives where.
    fn append(&self, pieces: &[&[u8]]) -> usize {
        let mut held = self.lock();
        let BlockBytes::Memory(bytes) = &mut *held else { return 0 };
        let start = bytes.len();
        pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
        start
    }

    /// Writes a block `to` a file, where it is read from then on; gives its length.
    fn write(&self, to: &Arc<Scratch>, at: u64) -> io::Result<usize> {
        let mut held = self.lock();
        let BlockBytes::Memory(bytes) = &*held else { return Ok(0) };
        write_all_at(&to.file, bytes, at)?;
        let len = bytes.len();
        *held = BlockBytes::OnDisk(Arc::clone(to), at);
        Ok(len)
    }
}

impl StoredBytes {
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether they are in memory.
    #[cfg(test)]
    pub(super) fn is_in_memory(&self) -> bool {
        self.block.len() > 0
    }

    /// Those of its bytes at `range`, which lies inside of it.
    ///
    /// # Errors
    /// [`Storage`](plait_core::Kind::Storage) when the file cannot be read.
    pub(crate) fn read(&self, range: Range<usize>) -> Result<Vec<u8>> {
        let start = self.start as usize + range.start;
        let mut found = vec![0; range.len()];
        let held = self.block.lock();
        match &*held {
            BlockBytes::Memory(bytes) => {
                if let Some(bytes) = bytes.get(start..start + found.len()) {
                    found.copy_from_slice(bytes);
                }
                Ok(found)
            }
            BlockBytes::OnDisk(scratch, at) => {
                let (scratch, at) = (Arc::clone(scratch), *at + start as u64);
                drop(held);
                read_exact_at(&scratch.file, &mut found, at).map_err(|e| {
                    Error::new(Kind::Storage, "cannot read a temporary file")
                        .with_path(scratch.dir.display().to_string())
                        .with_cause(e)
                })?;
                Ok(found)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Blocks of 100 bytes, two of which stay in memory.
    fn blocks(context: &Context) -> StoredBlocks {
        let dir = std::env::temp_dir();
        StoredBlocks { block_bytes: 100, ..StoredBlocks::new(&dir, 200, context) }
    }

    fn stretches(blocks: &mut StoredBlocks) -> Vec<(StoredBytes, Vec<u8>)> {
        let bytes = |i: u8| vec![i; 10 + usize::from(i % 40)];
        (0..60).map(|i| (blocks.store(&[&bytes(i), &[i]]), [bytes(i), vec![i]].concat())).collect()
    }

    fn assert_read_back(stored: &[(StoredBytes, Vec<u8>)]) {
        for (stretch, bytes) in stored {
            assert_eq!(&stretch.read(0..stretch.len()).unwrap(), bytes);
            assert_eq!(stretch.read(3..9).unwrap(), bytes[3..9]);
        }
    }

    #[test]
    fn bytes_come_back_and_memory_stays_within_the_share() {
        let context = Context::new(1 << 20);
        let mut blocks = blocks(&context);
        let stored = stretches(&mut blocks);
        assert_read_back(&stored);
        let in_memory = |(stretch, _): &&(StoredBytes, _)| stretch.is_in_memory();
        let held = stored.iter().filter(in_memory).map(|(stretch, _)| stretch.len()).sum::<usize>();
        assert!(held <= 300, "{held}");
        let all: usize = stored.iter().map(|(stretch, _)| stretch.len()).sum();
        assert_eq!(context.counters().spilled_bytes(), (all - held) as u64);
    }

    #[test]
    fn blocks_that_cannot_be_written_stay_in_memory() {
        for (operation, nth) in [("create", 0), ("spill", 0), ("spill", 3)] {
            let seen = AtomicUsize::new(0);
            let fault = move |of: &str| {
                let is_it = of == operation && seen.fetch_add(1, Ordering::Relaxed) == nth;
                if is_it { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
            };
            let context = Context::with_faults(1 << 20, Box::new(fault));
            let mut blocks = blocks(&context);
            let stored = stretches(&mut blocks);
            assert_read_back(&stored);
            assert!(matches!(blocks.file, ScratchFile::Refused), "{operation} {nth}");
        }
    }
}
