//! A byte buffer that moves to disk when it grows: encoded chunks that wait for their turn.
//!
//! # Invariants
//! The file has no name (it is unlinked at once), so that no crash leaves it behind. Memory held is
//! at most `bytes_max` and accounted.
//!
//! # Not here
//! Deciding `bytes_max` (`budget`).

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use crate::context::{Charge, Context};
use crate::target::{storage, unnamed_file};

/// Written once from the front, then read once from the front.
pub struct SpillBuffer {
    memory: Vec<u8>,
    file: Option<File>,
    file_len: u64,
    dir: PathBuf,
    bytes_max: usize,
    context: Context,
    charge: Charge,
}

impl SpillBuffer {
    /// A buffer that keeps at most `bytes_max` bytes in memory and the rest in a file in `dir`.
    #[must_use]
    pub fn new(dir: &Path, bytes_max: usize, context: &Context) -> Self {
        Self {
            memory: Vec::new(),
            file: None,
            file_len: 0,
            dir: dir.to_owned(),
            bytes_max,
            context: context.clone(),
            charge: context.charge(0),
        }
    }

    fn spill(&mut self) -> io::Result<()> {
        let failed = |e| waiting(&self.dir, e);
        if self.file.is_none() {
            self.file = Some(unnamed_file(&self.dir, &self.context).map_err(failed)?);
        }
        if let Some(file) = &mut self.file {
            self.context.fault("spill").map_err(failed)?;
            file.write_all(&self.memory).map_err(failed)?;
            self.file_len += self.memory.len() as u64;
            self.memory = Vec::new();
            self.charge.set(0);
        }
        Ok(())
    }
}

fn waiting(dir: &Path, error: io::Error) -> io::Error {
    io::Error::other(storage("cannot write a waiting chunk", dir, error))
}

impl Write for SpillBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.memory.len() + bytes.len() > self.bytes_max {
            self.spill()?;
        }
        if bytes.len() > self.bytes_max {
            if let Some(file) = &mut self.file {
                file.write_all(bytes).map_err(|e| waiting(&self.dir, e))?;
                self.file_len += bytes.len() as u64;
            }
            return Ok(bytes.len());
        }
        self.memory.extend_from_slice(bytes);
        self.charge.set(self.memory.capacity());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Length for SpillBuffer {
    fn len(&self) -> u64 {
        self.file_len + self.memory.len() as u64
    }
}

impl ChunkReader for SpillBuffer {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let in_memory = start.saturating_sub(self.file_len);
        let tail = usize::try_from(in_memory).ok().and_then(|n| self.memory.get(n..));
        let tail = io::Cursor::new(tail.unwrap_or_default().to_vec());
        match &self.file {
            Some(file) if start < self.file_len => {
                let mut file = file.try_clone()?;
                file.seek(SeekFrom::Start(start))?;
                Ok(Box::new(io::BufReader::with_capacity(256 << 10, file).chain(tail)))
            }
            _ => Ok(Box::new(tail)),
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
