//! Footers as they are stored, with what many files have in common held once.
//!
//! ```text
//! footer   version │ schema │ rows │ row groups │ entries: ARROW:schema, plait.… │ writer │ orders
//! own      version │        │ rows │ row groups │                      plait.…   │ writer │
//! pool               schema                       ARROW:schema                              orders
//! ```
//!
//! # Invariants
//! A stored footer gives back the bytes it was made of. Bytes that are no footer are stored whole.
//!
//! # Cost
//! The bytes of row groups, a twentieth of what they become once decoded, and a few pointers.
//!
//! # Not here
//! Which of them are decoded (`decoded`).

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::parts::FooterParts;
use crate::thrift::TYPE_STRUCT;

/// Bytes of a block of footers.
const BLOCK_BYTES: usize = 1 << 20;

/// Pieces that several footers may have.
#[derive(Default)]
pub(super) struct FooterPieces {
    /// Where the bytes of the next footers go: many in one block of memory, since small ones that stay
    /// between large ones that go leave holes.
    block: BytesMut,
    pieces: HashSet<Arc<[u8]>>,
}

/// A footer as it is stored.
pub(super) struct StoredFooter {
    own: Bytes,
    shared: Box<[SharedPiece]>,
    /// Where the entries of chunks begin in its own bytes, and where those of each row group end.
    chunks: Box<[u32]>,
}

/// Bytes that other footers have, too, and where among its own a footer has them.
struct SharedPiece {
    at: usize,
    bytes: Arc<[u8]>,
}

impl FooterPieces {
    /// Stores a footer with these `parts`, and `chunks` as [`FooterParts::chunks`] finds them.
    pub(super) fn store(
        &mut self,
        footer: &[u8],
        parts: &FooterParts,
        chunks: Option<&[usize]>,
    ) -> StoredFooter {
        let Self { block, pieces: others } = self;
        if block.capacity() < footer.len() {
            block.reserve(BLOCK_BYTES.max(footer.len()));
        }
        let (mut shared, mut from) = (Vec::new(), 0);
        for piece in &parts.pieces {
            let (Some(before), Some(bytes)) =
                (footer.get(from..piece.start), footer.get(piece.clone()))
            else {
                continue;
            };
            block.extend_from_slice(before);
            let bytes = match others.get(bytes) {
                Some(bytes) => Arc::clone(bytes),
                None => {
                    let bytes: Arc<[u8]> = bytes.into();
                    others.insert(Arc::clone(&bytes));
                    bytes
                }
            };
            shared.push(SharedPiece { at: block.len(), bytes });
            from = piece.end;
        }
        block.extend_from_slice(footer.get(from..).unwrap_or_default());
        // Pieces before the row groups are not among its own bytes.
        let first = chunks.and_then(|chunks| chunks.first()).copied().unwrap_or(0);
        let before = parts.pieces.iter().filter(|piece| piece.end <= first).map(Range::len);
        let before: usize = before.sum();
        let own = |at: &usize| u32::try_from(at - before).unwrap_or(u32::MAX);
        let chunks = chunks.unwrap_or_default().iter().map(own).collect();
        StoredFooter { own: block.split().freeze(), shared: shared.into(), chunks }
    }
}

impl StoredFooter {
    /// The entries of the chunks of `leaves` in a row group of files with so many leaves in `all`, as
    /// a footer that has nothing else; none if it is not known where they are.
    pub(super) fn chunks(
        &self,
        row_group: usize,
        leaves: Range<usize>,
        all: usize,
    ) -> Option<Vec<u8>> {
        let at = |leaf: usize| {
            let at = *self.chunks.get(row_group.checked_mul(all + 1)?.checked_add(leaf)?)?;
            usize::try_from(at).ok()
        };
        let entries = self.own.get(at(leaves.start)?..at(leaves.end)?)?;
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
        Some(footer)
    }

    /// The bytes of the footer.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let len = self.own.len() + self.shared.iter().map(|piece| piece.bytes.len()).sum::<usize>();
        let (mut footer, mut from) = (Vec::with_capacity(len), 0);
        for piece in &self.shared {
            footer.extend_from_slice(self.own.get(from..piece.at).unwrap_or_default());
            footer.extend_from_slice(&piece.bytes);
            from = piece.at;
        }
        footer.extend_from_slice(self.own.get(from..).unwrap_or_default());
        footer
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

    #[test]
    fn footers_of_one_schema_share_it_and_give_their_bytes_back() {
        let columns: String = (0..40).map(|i| format!("required int64 column_{i};")).collect();
        let text = format!("message m {{ {columns} }}");
        let (one, other) = (file(&text, &[3], |p| p), file(&text, &[5, 2], |p| p));
        let mut pieces = FooterPieces::default();
        let mut store = |bytes| pieces.store(footer(bytes), &parts(footer(bytes)), None);
        let (stored, next) = (store(&one), store(&other));
        assert_eq!(
            (stored.bytes(), next.bytes()),
            (footer(&one).to_vec(), footer(&other).to_vec())
        );
        assert!(!next.shared.is_empty());
        for (a, b) in stored.shared.iter().zip(&next.shared) {
            assert!(Arc::ptr_eq(&a.bytes, &b.bytes));
        }
    }

    #[test]
    fn bytes_that_are_no_footer_are_stored_whole() {
        for bytes in [&b""[..], &[0x1c; 200], &[0xff; 100]] {
            let stored = FooterPieces::default().store(bytes, &parts(bytes), None);
            assert_eq!((stored.bytes(), stored.shared.len()), (bytes.to_vec(), 0));
        }
    }
}
