//! Bytes that wait for their turn: pages of chunks, in memory as long as all chunks together stay
//! below a limit, then on disk. Pages that are taken as they are wait in their source.
//!
//! ```text
//! chunk a  page page page ─┐ over the limit     chunk b  page page
//!                          ▼                              (in memory)
//! file     … │ b │ a a a │ …   one for all chunks, without a name; each knows its pieces
//!          the next chunks write over it when all of these are read
//! ```
//!
//! # Invariants
//! The file has no name (it is unlinked at once), so that no crash leaves it behind. Memory held is
//! at most the limit and a page a thread, and accounted. Pages are never copied while they wait in
//! memory. No file is written over while a chunk lies in it.
//!
//! # Cost
//! To write where a file has bytes already takes a third of the time: nothing is allocated, neither
//! on disk nor in the page cache.
//!
//! # Not here
//! Deciding the limit (`budget`).

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf, Bytes};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use plait_core::Result;

use crate::output::storage;
use crate::page::pages::{Held, Stored};
use crate::page::unwrap_error;
use crate::runtime::{Charge, Context, Level};
use crate::store::temp::unnamed_file;
use crate::store::{RangeReader, read_exact_at, write_all_at};

/// How much is read from the file at once.
const READ_BYTES: usize = 1 << 20;

/// Files without a name, and those of them that nothing lies in.
pub(crate) struct ScratchFiles {
    dir: PathBuf,
    context: Context,
    idle: Mutex<Vec<File>>,
}

impl ScratchFiles {
    /// Files in `dir`, none yet.
    #[must_use]
    pub(crate) fn new(dir: &Path, context: &Context) -> Arc<Self> {
        let (dir, context) = (dir.to_owned(), context.clone());
        Arc::new(Self { dir, context, idle: Mutex::default() })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<File>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> io::Result<File> {
        let idle = self.idle().pop();
        idle.map_or_else(|| unnamed_file(&self.dir, &self.context), Ok)
    }
}

/// Where chunks wait: memory up to a limit, and one file.
pub(crate) struct Waiting {
    scratch: Arc<ScratchFiles>,
    bytes_max: usize,
    enough_bytes: usize,
    in_memory: AtomicUsize,
    file: Mutex<Option<(Arc<File>, u64)>>,
}

impl Waiting {
    /// Keeps about `bytes_max` bytes in memory, and more as long as all buffers of the call stay
    /// below `enough_bytes`; the rest is kept in a file of `scratch`.
    #[must_use]
    pub(crate) fn new(scratch: &Arc<ScratchFiles>, bytes_max: usize, enough_bytes: usize) -> Self {
        Self {
            scratch: Arc::clone(scratch),
            bytes_max,
            enough_bytes,
            in_memory: AtomicUsize::new(0),
            file: Mutex::new(None),
        }
    }

    fn context(&self) -> &Context {
        &self.scratch.context
    }

    /// Writes `pieces` one behind the other to the file; gives the file and where they begin.
    fn write(&self, pieces: &[Bytes]) -> io::Result<(Arc<File>, u64)> {
        let failed =
            |e| io::Error::other(storage("cannot write a waiting chunk", &self.scratch.dir, e));
        let len: usize = pieces.iter().map(Bytes::len).sum();
        let (file, start) = {
            let mut held = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            if held.is_none() {
                *held = Some((Arc::new(self.scratch.take().map_err(failed)?), 0));
            }
            let Some((file, end)) = &mut *held else { return Ok((no_file()?, 0)) };
            let start = *end;
            *end += len as u64;
            (Arc::clone(file), start)
        };
        self.context().faults().check("spill").map_err(failed)?;
        let mut at = start;
        for piece in pieces {
            write_all_at(&file, piece, at).map_err(failed)?;
            at += piece.len() as u64;
        }
        if self.context().counters().spilled_bytes() == 0 {
            self.context().events().record(Level::Info, "merge", || {
                "bytes begin to wait on disk: they do not fit the memory limit".to_owned()
            });
        }
        self.context().counters().add_spilled(len as u64);
        Ok((file, start))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let held = self.file.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // A reader of a chunk may outlive all of these.
        if let Some(file) = held.and_then(|(file, _)| Arc::into_inner(file)) {
            self.scratch.idle().push(file);
        }
    }
}

fn no_file() -> io::Result<Arc<File>> {
    Err(io::Error::other("the file of waiting chunks is gone"))
}

/// A part of a buffer.
#[derive(Clone)]
enum Piece {
    Memory(Bytes),
    File(Arc<File>, u64, u64),
    /// In a source, where it stays until it is read.
    InPlace(Arc<dyn RangeReader>, u64, u64),
}

/// Written once from the front, then read once from the front.
pub(crate) struct SpillBuffer {
    waiting: Arc<Waiting>,
    pieces: VecDeque<Piece>,
    /// Bytes of the pieces in memory, and of all.
    memory_len: usize,
    byte_len: u64,
    charge: Charge,
}

impl SpillBuffer {
    /// An empty buffer among those of `waiting`.
    #[must_use]
    pub(crate) fn new(waiting: &Arc<Waiting>) -> Self {
        Self {
            waiting: Arc::clone(waiting),
            pieces: VecDeque::new(),
            memory_len: 0,
            byte_len: 0,
            charge: waiting.context().charge(0),
        }
    }

    /// Bytes pushed so far.
    #[must_use]
    pub(crate) fn byte_len(&self) -> u64 {
        self.byte_len
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// [`Storage`](plait_core::Kind::Storage) when the file cannot be written.
    pub(crate) fn push(&mut self, bytes: Bytes) -> Result<()> {
        let len = bytes.len();
        self.byte_len += len as u64;
        self.memory_len += len;
        self.pieces.push_back(Piece::Memory(bytes));
        let all = self.waiting.in_memory.fetch_add(len, Ordering::Relaxed) + len;
        let held = self.waiting.context().account().held_bytes() + len as u64;
        if all > self.waiting.bytes_max && held > self.waiting.enough_bytes as u64 {
            self.spill().map_err(|e| unwrap_error(e.into()))?;
        }
        self.charge.set(self.memory_len);
        Ok(())
    }

    /// Appends a page of a source. Where it lies in a file, it stays there until the buffer is
    /// read.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub(crate) fn push_stored(&mut self, stored: &Stored) -> Result<()> {
        match stored.held() {
            Held::Here(bytes) => self.push(bytes.clone()),
            Held::InPlace(store) => {
                let (at, len) = (stored.place.offset, stored.byte_len() as u64);
                self.byte_len += len;
                match self.pieces.back_mut() {
                    Some(Piece::InPlace(before, start, known))
                        if Arc::ptr_eq(before, store) && *start + *known == at =>
                    {
                        *known += len;
                    }
                    _ => self.pieces.push_back(Piece::InPlace(Arc::clone(store), at, len)),
                }
                Ok(())
            }
        }
    }

    /// Moves the pieces in memory to the file.
    fn spill(&mut self) -> io::Result<()> {
        let memory = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Memory(bytes) => Some(bytes.clone()),
            _ => None,
        });
        let memory: Vec<Bytes> = memory.collect();
        let (file, mut at) = self.waiting.write(&memory)?;
        let mut pieces: VecDeque<Piece> = VecDeque::with_capacity(self.pieces.len());
        for piece in self.pieces.drain(..) {
            let Piece::Memory(bytes) = piece else {
                pieces.push_back(piece);
                continue;
            };
            let (start, len) = (at, bytes.len() as u64);
            at += len;
            match pieces.back_mut() {
                Some(Piece::File(_, before, known)) if *before + *known == start => *known += len,
                _ => pieces.push_back(Piece::File(Arc::clone(&file), start, len)),
            }
        }
        self.pieces = pieces;
        self.forget();
        Ok(())
    }

    fn forget(&mut self) {
        self.waiting.in_memory.fetch_sub(self.memory_len, Ordering::Relaxed);
        self.memory_len = 0;
    }
}

impl Drop for SpillBuffer {
    fn drop(&mut self) {
        self.forget();
        // Before `waiting`, which keeps the file only if no piece lies in it.
        self.pieces.clear();
    }
}

impl Write for SpillBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(Bytes::copy_from_slice(bytes)).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Length for SpillBuffer {
    fn len(&self) -> u64 {
        self.byte_len()
    }
}

/// What was pushed, piece by piece.
pub(crate) struct Pieces {
    pieces: VecDeque<Piece>,
    /// What was read of a piece that is not in memory, and how much of it left.
    buffer: Vec<u8>,
    taken: usize,
}

impl Pieces {
    /// Fills the empty buffer from the first piece, which is not in memory.
    fn refill(&mut self) -> io::Result<()> {
        self.buffer.clear();
        self.taken = 0;
        let Some(piece) = self.pieces.front_mut() else { return Ok(()) };
        let (Piece::File(_, at, len) | Piece::InPlace(_, at, len)) = piece else { return Ok(()) };
        let n = usize::try_from(*len).unwrap_or(READ_BYTES).min(READ_BYTES);
        let start = *at;
        (*at, *len) = (*at + n as u64, *len - n as u64);
        self.buffer.resize(n, 0);
        match piece {
            Piece::File(file, ..) => read_exact_at(file, &mut self.buffer, start)?,
            Piece::InPlace(store, ..) => {
                store.read_into(start, &mut self.buffer).map_err(io::Error::other)?;
            }
            Piece::Memory(_) => {}
        }
        Ok(())
    }
}

impl Read for Pieces {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let left = self.buffer.get(self.taken..).unwrap_or_default();
            if !left.is_empty() {
                let n = left.len().min(out.len());
                out[..n].copy_from_slice(&left[..n]);
                self.taken += n;
                return Ok(n);
            }
            match self.pieces.front_mut() {
                None => return Ok(0),
                Some(Piece::Memory(bytes)) if !bytes.is_empty() => {
                    let n = bytes.len().min(out.len());
                    out[..n].copy_from_slice(&bytes[..n]);
                    bytes.advance(n);
                    return Ok(n);
                }
                Some(Piece::Memory(_) | Piece::File(_, _, 0) | Piece::InPlace(_, _, 0)) => {
                    self.pieces.pop_front();
                }
                Some(Piece::File(..) | Piece::InPlace(..)) => self.refill()?,
            }
        }
    }
}

impl ChunkReader for SpillBuffer {
    type T = Pieces;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let mut pieces = self.pieces.clone();
        let mut skip = start;
        while let Some(piece) = pieces.front_mut().filter(|_| skip > 0) {
            match piece {
                Piece::Memory(bytes) => {
                    let n = skip.min(bytes.len() as u64);
                    bytes.advance(usize::try_from(n).unwrap_or(bytes.len()));
                    skip -= n;
                }
                Piece::File(_, at, len) | Piece::InPlace(_, at, len) => {
                    let n = skip.min(*len);
                    *at += n;
                    *len -= n;
                    skip -= n;
                }
            }
            if skip > 0 {
                pieces.pop_front();
            }
        }
        Ok(Pieces { pieces, buffer: Vec::new(), taken: 0 })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let mut bytes = vec![0; length];
        self.get_read(start)?.read_exact(&mut bytes)?;
        Ok(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_whatever_was_spilled() {
        let context = Context::new(1 << 20);
        let scratch = ScratchFiles::new(&std::env::temp_dir(), &context);
        for bytes_max in [0, 1, 7, 100, 1000] {
            let waiting = Arc::new(Waiting::new(&scratch, bytes_max, 0));
            let mut buffers = [SpillBuffer::new(&waiting), SpillBuffer::new(&waiting)];
            let data: Vec<u8> = (0..=255).collect();
            for part in data.chunks(9) {
                for (i, buffer) in buffers.iter_mut().enumerate() {
                    buffer.write_all(&part[..part.len() - i]).unwrap();
                    buffer.write_all(&part[part.len() - i..]).unwrap();
                }
            }
            for buffer in &buffers {
                assert_eq!(buffer.len(), 256);
                for start in [0, 3, 9, 250] {
                    let mut read = Vec::new();
                    buffer.get_read(start).unwrap().read_to_end(&mut read).unwrap();
                    assert_eq!(read, data[start as usize..]);
                }
            }
        }
        assert_eq!(context.account().held_bytes(), 0);
    }
    #[test]
    fn a_file_is_used_again_when_nothing_lies_in_it() {
        let context = Context::new(1 << 20);
        let scratch = ScratchFiles::new(&std::env::temp_dir(), &context);
        let filled = |byte: u8| {
            let mut buffer = SpillBuffer::new(&Arc::new(Waiting::new(&scratch, 0, 0)));
            buffer.write_all(&[byte; 100]).unwrap();
            buffer
        };
        let (first, second) = (filled(1), filled(2));
        assert_eq!(scratch.idle().len(), 0, "chunks lie in both");
        let mut late = first.get_read(0).unwrap();
        drop(first);
        assert_eq!(scratch.idle().len(), 0, "a reader is left");
        drop(second);
        assert_eq!(scratch.idle().len(), 1);
        let third = filled(3);
        assert_eq!(scratch.idle().len(), 0, "used again");
        let read = |pieces: &mut Pieces| {
            let mut bytes = Vec::new();
            pieces.read_to_end(&mut bytes).unwrap();
            bytes
        };
        assert_eq!(read(&mut late), [1; 100]);
        assert_eq!(read(&mut third.get_read(0).unwrap()), [3; 100]);
    }
}
