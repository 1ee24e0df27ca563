//! Bytes that wait for their turn: pages of a chunk, in memory up to a limit, then on disk.
//!
//! ```text
//! push ▶ page page page │ over the limit ▶ file without a name │ page page ▶ read once, in order
//! ```
//!
//! # Invariants
//! The file has no name (it is unlinked at once), so that no crash leaves it behind. Memory held is
//! at most `bytes_max` and a page, and accounted. Pages are never copied while they wait in memory.
//!
//! # Not here
//! Deciding `bytes_max` (`budget`).

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use bytes::{Buf, Bytes};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use plait_core::Result;

use crate::context::{Charge, Context};
use crate::page::unwrap_error;
use crate::target::{storage, unnamed_file};

/// Written once from the front, then read once from the front.
pub struct SpillBuffer {
    memory: Vec<Bytes>,
    memory_len: usize,
    file: Option<File>,
    file_len: u64,
    dir: PathBuf,
    bytes_max: usize,
    context: Context,
    charge: Charge,
}

impl SpillBuffer {
    /// A buffer that keeps about `bytes_max` bytes in memory and the rest in a file in `dir`.
    #[must_use]
    pub fn new(dir: &Path, bytes_max: usize, context: &Context) -> Self {
        Self {
            memory: Vec::new(),
            memory_len: 0,
            file: None,
            file_len: 0,
            dir: dir.to_owned(),
            bytes_max,
            context: context.clone(),
            charge: context.charge(0),
        }
    }

    /// Bytes pushed so far.
    #[must_use]
    pub fn byte_len(&self) -> u64 {
        self.file_len + self.memory_len as u64
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// [`Storage`](plait_core::Kind::Storage) when the file cannot be written.
    pub fn push(&mut self, bytes: Bytes) -> Result<()> {
        self.memory_len += bytes.len();
        self.memory.push(bytes);
        if self.memory_len > self.bytes_max {
            return self.spill().map_err(|e| unwrap_error(e.into()));
        }
        self.charge.set(self.memory_len);
        Ok(())
    }

    fn spill(&mut self) -> io::Result<()> {
        let failed = |e| io::Error::other(storage("cannot write a waiting chunk", &self.dir, e));
        if self.file.is_none() {
            self.file = Some(unnamed_file(&self.dir, &self.context).map_err(failed)?);
        }
        if let Some(file) = &mut self.file {
            self.context.fault("spill").map_err(failed)?;
            for bytes in &self.memory {
                file.write_all(bytes).map_err(failed)?;
            }
            self.file_len += self.memory_len as u64;
            self.memory.clear();
            self.memory_len = 0;
            self.charge.set(0);
        }
        Ok(())
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

/// What is in memory, piece by piece.
pub struct Pieces(VecDeque<Bytes>);

impl Read for Pieces {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while let Some(piece) = self.0.front_mut().filter(|_| done < out.len()) {
            let n = piece.len().min(out.len() - done);
            out[done..done + n].copy_from_slice(&piece[..n]);
            piece.advance(n);
            done += n;
            if piece.is_empty() {
                self.0.pop_front();
            }
        }
        Ok(done)
    }
}

impl ChunkReader for SpillBuffer {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let mut skip = usize::try_from(start.saturating_sub(self.file_len)).unwrap_or(usize::MAX);
        let mut pieces: VecDeque<Bytes> = self.memory.iter().cloned().collect();
        while let Some(piece) = pieces.front_mut().filter(|_| skip > 0) {
            let n = piece.len().min(skip);
            piece.advance(n);
            skip -= n;
            if piece.is_empty() {
                pieces.pop_front();
            }
        }
        match &self.file {
            Some(file) if start < self.file_len => {
                let mut file = file.try_clone()?;
                file.seek(SeekFrom::Start(start))?;
                Ok(Box::new(io::BufReader::with_capacity(256 << 10, file).chain(Pieces(pieces))))
            }
            _ => Ok(Box::new(Pieces(pieces))),
        }
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
            let mut buffer = SpillBuffer::new(&std::env::temp_dir(), bytes_max, &context);
            let data: Vec<u8> = (0..=255).collect();
            for part in data.chunks(9) {
                buffer.write_all(part).unwrap();
            }
            assert_eq!(buffer.len(), 256);
            for start in [0, 3, 250] {
                let mut read = Vec::new();
                buffer.get_read(start).unwrap().read_to_end(&mut read).unwrap();
                assert_eq!(read, data[start as usize..]);
            }
        }
        assert_eq!(context.accounted_bytes(), 0);
    }
}
