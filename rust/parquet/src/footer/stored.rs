//! Footers as they are stored, with what many files have in common held once.
//!
//! ```text
//! footer   version │ schema │ rows │ row groups │ entries: ARROW:schema, plait.… │ writer │ orders
//! own      version │        │ rows │ row groups │                      plait.…   │ writer │ ends
//! shared             schema                       ARROW:schema                              orders
//! ```
//!
//! # Invariants
//! A stored footer gives back the bytes it was made of. Bytes that are no footer are stored whole.
//!
//! # Cost
//! A few pointers a footer. Its own bytes, mostly row groups, are a twentieth of what they become
//! once decoded, and go to disk beyond a share of the limit (`blocks`). `ends` are four bytes a chunk.
//!
//! # Not here
//! Which of them are decoded (`decoded`).

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use plait_core::Result;

use super::parts::FooterParts;
use crate::runtime::{Context, MemoryStage};
use crate::store::{StoredBlocks, StoredBytes};
use crate::thrift::TYPE_STRUCT;

/// Footers of one call.
pub(super) struct StoredFooters {
    blocks: StoredBlocks,
    pieces: HashSet<Arc<[u8]>>,
    /// The pieces of the last footer: those of the next one are often the same.
    last: Arc<Vec<SharedPiece>>,
}

/// A footer as it is stored.
pub(super) struct StoredFooter {
    /// Bytes that are its own, and behind them where the entries of chunks begin among these, and
    /// where those of each row group end.
    own: StoredBytes,
    len: u32,
    shared: Arc<Vec<SharedPiece>>,
}

/// Bytes that other footers have, too, and where among its own a footer has them.
#[derive(Clone)]
struct SharedPiece {
    at: PiecePlace,
    bytes: Arc<[u8]>,
}

/// A place among the bytes that are a footer's own. Row groups, whose length differs most, are between
/// the places of both kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PiecePlace {
    FromStart(u32),
    FromEnd(u32),
}

/// Footers up to this size are read as a whole.
const WHOLE_BYTES_MAX: usize = 8 << 10;

/// Bytes of where an entry begins.
const END_BYTES: usize = size_of::<u32>();

impl StoredFooters {
    /// None yet; those that do not fit in memory go to `dir`.
    pub(super) fn new(dir: &Path, context: &Context) -> Self {
        let bytes_max = context.budget().bytes(MemoryStage::StoredFooters);
        let blocks = StoredBlocks::new(dir, bytes_max, context);
        Self { blocks, pieces: HashSet::new(), last: Arc::default() }
    }

    /// Stores a footer with these `parts`, and `chunks` as [`FooterParts::chunks`] finds them.
    pub(super) fn store(
        &mut self,
        footer: &[u8],
        parts: &FooterParts,
        chunks: Option<&[usize]>,
    ) -> StoredFooter {
        let (mut own, mut shared, mut from) = (Vec::new(), Vec::new(), 0);
        let mut len = 0;
        for piece in &parts.pieces {
            let (Some(before), Some(bytes)) =
                (footer.get(from..piece.start), footer.get(piece.clone()))
            else {
                continue;
            };
            own.push(before);
            len += before.len();
            shared.push((len, piece.start, self.shared(bytes)));
            from = piece.end;
        }
        let rest = footer.get(from..).unwrap_or_default();
        own.push(rest);
        len += rest.len();
        let row_groups = parts.row_groups.as_ref().map_or(0, |at| at.start);
        let short = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let shared = shared.into_iter().map(|(at, in_footer, bytes)| {
            let is_before = in_footer <= row_groups;
            let at = if is_before {
                PiecePlace::FromStart(short(at))
            } else {
                PiecePlace::FromEnd(short(len - at))
            };
            SharedPiece { at, bytes }
        });
        let shared = self.list(shared.collect());
        // Pieces before the row groups are not among its own bytes.
        let before = parts.pieces.iter().filter(|piece| piece.end <= row_groups).map(Range::len);
        let before: usize = before.sum();
        let ends = chunks.unwrap_or_default().iter();
        let ends: Vec<u8> = ends.flat_map(|at| short(at - before).to_le_bytes()).collect();
        own.push(&ends);
        StoredFooter { own: self.blocks.store(&own), len: short(len), shared }
    }

    /// A piece, held once.
    fn shared(&mut self, bytes: &[u8]) -> Arc<[u8]> {
        if let Some(known) = self.pieces.get(bytes) {
            return Arc::clone(known);
        }
        let bytes: Arc<[u8]> = bytes.into();
        self.pieces.insert(Arc::clone(&bytes));
        bytes
    }

    /// The pieces of a footer, held once for it and the one before if these are the same.
    fn list(&mut self, pieces: Vec<SharedPiece>) -> Arc<Vec<SharedPiece>> {
        let is_same =
            |(a, b): (&SharedPiece, &SharedPiece)| a.at == b.at && Arc::ptr_eq(&a.bytes, &b.bytes);
        if pieces.len() != self.last.len() || !pieces.iter().zip(self.last.iter()).all(is_same) {
            self.last = Arc::new(pieces);
        }
        Arc::clone(&self.last)
    }
}

impl StoredFooter {
    /// The entries of the chunks of `leaves` in a row group of files with so many leaves in `all`, as
    /// a footer that has nothing else; none if it is not known where they are.
    ///
    /// # Errors
    /// [`Storage`](plait_core::Kind::Storage) when it is on disk and cannot be read.
    pub(super) fn chunks(
        &self,
        row_group: usize,
        leaves: Range<usize>,
        all: usize,
    ) -> Result<Option<Vec<u8>>> {
        let first = row_group.saturating_mul(all.saturating_add(1));
        let len = self.len as usize;
        let [start, end] = [leaves.start, leaves.end]
            .map(|leaf| first.saturating_add(leaf).saturating_mul(END_BYTES).saturating_add(len));
        if end.saturating_add(END_BYTES) > self.own.len() {
            return Ok(None);
        }
        // One read of a small footer is cheaper than two of its parts.
        let whole = match self.own.len() <= WHOLE_BYTES_MAX {
            true => Some(self.own.read(0..self.own.len())?),
            false => None,
        };
        let read = |range: Range<usize>| match &whole {
            Some(whole) => Ok(whole.get(range).unwrap_or_default().to_vec()),
            None => self.own.read(range),
        };
        let ends = read(start..end + END_BYTES)?;
        let at = |bytes: Option<&[u8; END_BYTES]>| {
            bytes.map_or(0, |at| u32::from_le_bytes(*at) as usize)
        };
        let (start, end) = (at(ends.first_chunk()), at(ends.last_chunk()));
        if start > end || end > len {
            return Ok(None);
        }
        let entries = read(start..end)?;
        let mut footer = Vec::with_capacity(entries.len() + 24);
        // Version 1, no rows, a list of one row group, whose first field is a list of structs.
        footer.extend([0x15, 2, 0x26, 0, 0x19, 0x1c, 0x19]);
        match u8::try_from(leaves.len()) {
            Ok(few @ ..15) => footer.push(few << 4 | TYPE_STRUCT),
            _ => {
                footer.push(0xf0 | TYPE_STRUCT);
                let mut left = leaves.len();
                while left > 0x7f {
                    footer.push((left & 0x7f) as u8 | 0x80);
                    left >>= 7;
                }
                footer.push(left as u8);
            }
        }
        footer.extend(entries);
        // No bytes and no rows in the row group, and the ends of both structs.
        footer.extend([0x16, 0, 0x16, 0, 0, 0]);
        Ok(Some(footer))
    }

    /// The bytes of the footer.
    ///
    /// # Errors
    /// As [`chunks`](Self::chunks).
    pub(super) fn bytes(&self) -> Result<Vec<u8>> {
        let own = self.own.read(0..self.len as usize)?;
        let shared = self.shared.iter().map(|piece| piece.bytes.len()).sum::<usize>();
        let (mut footer, mut from) = (Vec::with_capacity(own.len() + shared), 0);
        for piece in self.shared.iter() {
            let at = match piece.at {
                PiecePlace::FromStart(at) => at as usize,
                PiecePlace::FromEnd(at) => own.len() - at as usize,
            };
            footer.extend_from_slice(own.get(from..at).unwrap_or_default());
            footer.extend_from_slice(&piece.bytes);
            from = at;
        }
        footer.extend_from_slice(own.get(from..).unwrap_or_default());
        Ok(footer)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::page::testing::{file, footer};
    use crate::thrift::TYPE_LIST;

    fn parts(footer: &[u8]) -> FooterParts {
        FooterParts::find(footer, |reader| reader.skip(TYPE_LIST)).unwrap_or_default()
    }

    fn none() -> StoredFooters {
        StoredFooters::new(&std::env::temp_dir(), &Context::new(1 << 20))
    }

    #[test]
    fn footers_of_one_schema_share_it_and_give_their_bytes_back() {
        let columns: String = (0..40).map(|i| format!("required int64 column_{i};")).collect();
        let text = format!("message m {{ {columns} }}");
        let (one, other) = (file(&text, &[3], |p| p), file(&text, &[5, 2], |p| p));
        let mut footers = none();
        let mut store = |bytes| footers.store(footer(bytes), &parts(footer(bytes)), None);
        let (stored, next) = (store(&one), store(&other));
        let bytes = [stored.bytes().unwrap(), next.bytes().unwrap()];
        assert_eq!(bytes, [footer(&one).to_vec(), footer(&other).to_vec()]);
        assert!(!next.shared.is_empty() && Arc::ptr_eq(&stored.shared, &next.shared));
    }

    #[test]
    fn bytes_that_are_no_footer_are_stored_whole() {
        for bytes in [&b""[..], &[0x1c; 200], &[0xff; 100]] {
            let stored = none().store(bytes, &parts(bytes), None);
            assert_eq!((stored.bytes().unwrap(), stored.shared.len()), (bytes.to_vec(), 0));
        }
    }
}
