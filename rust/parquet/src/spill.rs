//! Bytes that wait for their turn: pages of chunks, in memory as long as all chunks together stay
//! below a limit, then on disk.
//!
//! ```text
//! chunk a  page page page ─┐ over the limit     chunk b  page page
//!                          ▼                              (in memory)
//! file     … │ b │ a a a │ …   one for all chunks, without a name; each knows its pieces
//! ```
//!
//! # Invariants
//! The file has no name (it is unlinked at once), so that no crash leaves it behind. Memory held is
//! at most the limit and a page a thread, and accounted. Pages are never copied while they wait in
//! memory.
//!
//! # Not here
//! Deciding the limit (`budget`).

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, Bytes};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use plait_core::Result;

use crate::context::{Charge, Context};
use crate::page::unwrap_error;
use crate::store::{read_exact_at, write_all_at};
use crate::target::{storage, unnamed_file};

/// How much is read from the file at once.
const READ_BYTES: usize = 256 << 10;

/// Where chunks wait: memory up to a limit, and one file.
pub struct Waiting {
    dir: PathBuf,
    bytes_max: usize,
    context: Context,
    in_memory: AtomicUsize,
    file: Mutex<Option<(Arc<File>, u64)>>,
}

impl Waiting {
    /// Keeps at most about `bytes_max` bytes in memory and the rest in a file in `dir`.
    #[must_use]
    pub fn new(dir: &Path, bytes_max: usize, context: &Context) -> Self {
        Self {
            dir: dir.to_owned(),
            bytes_max,
            context: context.clone(),
            in_memory: AtomicUsize::new(0),
            file: Mutex::new(None),
        }
    }

    /// Writes `pieces` one behind the other to the file; gives the file and where they begin.
    fn write(&self, pieces: &[Bytes]) -> io::Result<(Arc<File>, u64)> {
        let failed = |e| io::Error::other(storage("cannot write a waiting chunk", &self.dir, e));
        let len: usize = pieces.iter().map(Bytes::len).sum();
        let (file, start) = {
            let mut held = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            if held.is_none() {
                let file = unnamed_file(&self.dir, &self.context).map_err(failed)?;
                *held = Some((Arc::new(file), 0));
            }
            let Some((file, end)) = &mut *held else { return Ok((no_file()?, 0)) };
            let start = *end;
            *end += len as u64;
            (Arc::clone(file), start)
        };
        self.context.fault("spill").map_err(failed)?;
        let mut at = start;
        for piece in pieces {
            write_all_at(&file, piece, at).map_err(failed)?;
            at += piece.len() as u64;
        }
        Ok((file, start))
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
}

/// Written once from the front, then read once from the front.
pub struct SpillBuffer {
    waiting: Arc<Waiting>,
    pieces: VecDeque<Piece>,
    memory: Vec<Bytes>,
    memory_len: usize,
    spilled: u64,
    charge: Charge,
}

impl SpillBuffer {
    /// An empty buffer among those of `waiting`.
    #[must_use]
    pub fn new(waiting: &Arc<Waiting>) -> Self {
        Self {
            waiting: Arc::clone(waiting),
            pieces: VecDeque::new(),
            memory: Vec::new(),
            memory_len: 0,
            spilled: 0,
            charge: waiting.context.charge(0),
        }
    }

    /// Bytes pushed so far.
    #[must_use]
    pub fn byte_len(&self) -> u64 {
        self.spilled + self.memory_len as u64
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// [`Storage`](plait_core::Kind::Storage) when the file cannot be written.
    pub fn push(&mut self, bytes: Bytes) -> Result<()> {
        let len = bytes.len();
        self.memory_len += len;
        self.memory.push(bytes);
        let all = self.waiting.in_memory.fetch_add(len, Ordering::Relaxed) + len;
        if all > self.waiting.bytes_max {
            self.spill().map_err(|e| unwrap_error(e.into()))?;
        }
        self.charge.set(self.memory_len);
        Ok(())
    }

    fn spill(&mut self) -> io::Result<()> {
        let (file, start) = self.waiting.write(&self.memory)?;
        let len = self.memory_len as u64;
        match self.pieces.back_mut() {
            Some(Piece::File(_, before, known)) if *before + *known == start => *known += len,
            _ => self.pieces.push_back(Piece::File(file, start, len)),
        }
        self.spilled += len;
        self.forget();
        Ok(())
    }

    fn forget(&mut self) {
        self.waiting.in_memory.fetch_sub(self.memory_len, Ordering::Relaxed);
        self.memory.clear();
        self.memory_len = 0;
    }
}

impl Drop for SpillBuffer {
    fn drop(&mut self) {
        self.forget();
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
pub struct Pieces {
    pieces: VecDeque<Piece>,
    ahead: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.ahead.is_empty() {
            match self.pieces.front_mut() {
                None => return Ok(0),
                Some(Piece::Memory(bytes)) => {
                    self.ahead = std::mem::take(bytes);
                    self.pieces.pop_front();
                }
                Some(Piece::File(_, _, 0)) => {
                    self.pieces.pop_front();
                }
                Some(Piece::File(file, at, len)) => {
                    let n = usize::try_from(*len).unwrap_or(READ_BYTES).min(READ_BYTES);
                    let mut bytes = vec![0; n];
                    read_exact_at(file, &mut bytes, *at)?;
                    *at += n as u64;
                    *len -= n as u64;
                    self.ahead = bytes.into();
                }
            }
        }
        let n = self.ahead.len().min(out.len());
        out[..n].copy_from_slice(&self.ahead[..n]);
        self.ahead.advance(n);
        Ok(n)
    }
}

impl ChunkReader for SpillBuffer {
    type T = Pieces;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let mut pieces = self.pieces.clone();
        pieces.extend(self.memory.iter().cloned().map(Piece::Memory));
        let mut skip = start;
        while let Some(piece) = pieces.front_mut().filter(|_| skip > 0) {
            match piece {
                Piece::Memory(bytes) => {
                    let n = skip.min(bytes.len() as u64);
                    bytes.advance(usize::try_from(n).unwrap_or(bytes.len()));
                    skip -= n;
                }
                Piece::File(_, at, len) => {
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
        Ok(Pieces { pieces, ahead: Bytes::new() })
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
        for bytes_max in [0, 1, 7, 100, 1000] {
            let waiting = Arc::new(Waiting::new(&std::env::temp_dir(), bytes_max, &context));
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
        assert_eq!(context.accounted_bytes(), 0);
    }
}
