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
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::parts::FooterParts;

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
}

/// Bytes that other footers have, too, and where among its own a footer has them.
struct SharedPiece {
    at: usize,
    bytes: Arc<[u8]>,
}

impl FooterPieces {
    /// Stores a footer with these `parts`.
    pub(super) fn store(&mut self, footer: &[u8], parts: &FooterParts) -> StoredFooter {
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
        StoredFooter { own: block.split().freeze(), shared: shared.into() }
    }
}

impl StoredFooter {
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
        let mut store = |bytes| pieces.store(footer(bytes), &parts(footer(bytes)));
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
            let stored = FooterPieces::default().store(bytes, &parts(bytes));
            assert_eq!((stored.bytes(), stored.shared.len()), (bytes.to_vec(), 0));
        }
    }
}
