//! Notes the headers of pages while their bytes are written.
//!
//! ```text
//! PAR1 │ header │ body … │ header │ body … │ bloom filters │ header …
//!        noted    passed   noted                             noted: a row group begins
//! ```
//!
//! # Invariants
//! Bytes are passed on unchanged. Headers are looked for from the start of a row group on, one
//! behind the other, until one does not parse: what follows a row group is no page, and is not
//! noted.
//!
//! # Not here
//! What headers must agree with (`check`).

use std::io::{self, Write};
use std::ops::Range;

use plait_core::Result;

use super::chunk::WrittenPage;
use crate::page::header::{PageHeader, Parsed};
use crate::page::unwrap_error;

/// A writer that notes the pages it writes.
pub(crate) struct Walk<W> {
    /// None once it was taken.
    inner: Option<W>,
    at: u64,
    state: WalkState,
    pages: Vec<WrittenPage>,
    /// Where bytes lie that are written in another way.
    unseen: Vec<Range<u64>>,
    /// The end of the file, if it is held back.
    tail: Option<Vec<u8>>,
}

enum WalkState {
    /// Nothing is looked for.
    Passing,
    /// Pages begin at this offset.
    Ahead(u64),
    /// A header, of which this much is here.
    Header(Vec<u8>),
    /// A body of which this much is to come.
    Body(u64),
    /// Zeros in the place of so many bytes that are written in another way.
    Unseen(u64),
}

impl<W: Write> Walk<W> {
    /// Begins at the start of a file.
    pub(crate) fn new(inner: W) -> Self {
        Self {
            inner: Some(inner),
            at: 0,
            state: WalkState::Passing,
            pages: Vec::new(),
            unseen: Vec::new(),
            tail: None,
        }
    }

    /// Looks for pages from `offset` on, which is not written yet.
    pub(crate) fn expect_pages(&mut self, offset: u64) {
        self.state = WalkState::Ahead(offset);
    }

    /// Swallows `bytes` more bytes: they stand for others, which are written in another way.
    pub(crate) fn expect_unseen(&mut self, bytes: u64) {
        let expected = if let WalkState::Unseen(expected) = self.state { expected } else { 0 };
        self.unseen.push(self.at + expected..self.at + expected + bytes);
        self.state = WalkState::Unseen(expected + bytes);
    }

    /// What is written to, to write in another way.
    pub(crate) fn inner_mut(&mut self) -> Option<&mut W> {
        self.inner.as_mut()
    }

    /// Where bytes lie that were written in another way.
    #[must_use]
    pub(crate) fn unseen(&self) -> &[Range<u64>] {
        &self.unseen
    }

    /// The pages so far.
    #[must_use]
    pub(crate) fn pages(&self) -> &[WrittenPage] {
        &self.pages
    }

    /// Holds back what is written from now on, until it is released.
    pub(crate) fn hold(&mut self) {
        self.tail = Some(Vec::new());
    }

    /// Writes what was held back, as `change` leaves it.
    ///
    /// # Errors
    /// Those of `change`, and of writing.
    pub(crate) fn release(
        &mut self,
        change: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let Some(mut tail) = self.tail.take() else { return Ok(()) };
        change(&mut tail)?;
        self.write_all(&tail).map_err(|e| unwrap_error(e.into()))
    }

    /// What was written to; writing is an error from now on.
    pub(crate) fn take(&mut self) -> Option<W> {
        self.inner.take()
    }

    fn note(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let n = match &mut self.state {
                WalkState::Passing => bytes.len(),
                WalkState::Ahead(offset) if *offset > self.at => {
                    let ahead = usize::try_from(*offset - self.at).unwrap_or(usize::MAX);
                    ahead.min(bytes.len())
                }
                WalkState::Ahead(_) => {
                    self.state = WalkState::Header(Vec::new());
                    0
                }
                WalkState::Body(0) => {
                    self.state = WalkState::Header(Vec::new());
                    0
                }
                WalkState::Body(left) => {
                    let n = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    *left -= n as u64;
                    n
                }
                WalkState::Header(_) => self.header(bytes),
                WalkState::Unseen(0) => {
                    self.state = WalkState::Passing;
                    0
                }
                WalkState::Unseen(left) => {
                    let n = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    *left -= n as u64;
                    n
                }
            };
            self.at += n as u64;
            bytes = bytes.get(n..).unwrap_or_default();
        }
    }

    /// Reads on in a header; how many of `bytes` belong to it.
    fn header(&mut self, bytes: &[u8]) -> usize {
        let WalkState::Header(held) = &mut self.state else { return 0 };
        let before = held.len();
        // Most headers come whole.
        let parsed = match before {
            0 => PageHeader::parse(bytes),
            _ => {
                held.extend_from_slice(bytes);
                PageHeader::parse(held)
            }
        };
        match parsed {
            Ok(Parsed::Header { header, len }) => {
                let offset = self.at - before as u64;
                let body = u64::from(header.compressed_len);
                let len_all = len as u64 + body;
                self.pages.push(WrittenPage { offset, len: len_all, kind: header.kind });
                self.state = WalkState::Body(body);
                len - before
            }
            Ok(Parsed::MoreBytes) => {
                if before == 0 {
                    held.extend_from_slice(bytes);
                }
                bytes.len()
            }
            Err(_) => {
                self.state = WalkState::Passing;
                bytes.len()
            }
        }
    }
}

fn gone() -> io::Error {
    io::Error::other("an output is written after it was finished")
}

impl<W: Write> Write for Walk<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(tail) = &mut self.tail {
            tail.extend_from_slice(bytes);
            return Ok(bytes.len());
        }
        let n = match self.state {
            WalkState::Unseen(left @ 1..) => {
                usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len())
            }
            _ => self.inner.as_mut().ok_or_else(gone)?.write(bytes)?,
        };
        self.note(bytes.get(..n).unwrap_or_default());
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.as_mut().ok_or_else(gone)?.flush()
    }
}
