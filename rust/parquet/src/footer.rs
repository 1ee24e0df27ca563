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
//! The bytes of row groups, a twentieth of what they become once decoded, and a few pointers. To
//! decode them again takes about a microsecond a chunk.
//!
//! # Not here
//! What a footer says (`source`).

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use parquet::schema::types::SchemaDescPtr;

use crate::thrift::{Reader, Stop, TYPE_LIST};

/// Bytes of a block of footers.
const BLOCK_BYTES: usize = 1 << 20;

/// Pieces that are shorter are not looked for in other footers.
const PIECE_BYTES_MIN: usize = 64;

/// Numbers of fields of a footer.
const SCHEMA: i16 = 2;
const ROW_GROUPS: i16 = 4;
const ENTRIES: i16 = 5;
const ENCRYPTION: i16 = 8;

/// What footers have in common.
#[derive(Default)]
pub(crate) struct FooterPool(Mutex<KnownPieces>);

#[derive(Default)]
struct KnownPieces {
    /// Where the bytes of the next footers go: many in one block of memory, since small ones that stay
    /// between large ones that go leave holes.
    block: BytesMut,
    pieces: HashSet<Arc<[u8]>>,
    /// Schemas by their bytes.
    schemas: HashMap<Box<[u8]>, SchemaDescPtr>,
}

/// Where the parts of a footer are.
#[derive(Debug, Default)]
pub(crate) struct FooterParts {
    schema: Option<Range<usize>>,
    /// The pieces that other footers may have, too.
    pieces: Vec<Range<usize>>,
    /// Whether columns are encrypted.
    pub(crate) is_encrypted: bool,
}

/// A footer as it is stored.
pub(crate) struct StoredFooter {
    own: Bytes,
    shared: Box<[SharedPiece]>,
    schema: SchemaDescPtr,
}

/// Bytes that other footers have, too, and where among its own a footer has them.
struct SharedPiece {
    at: usize,
    bytes: Arc<[u8]>,
}

impl FooterPool {
    /// The schema of a footer, if one before it had the same.
    pub(crate) fn schema(&self, footer: &[u8], parts: &FooterParts) -> Option<SchemaDescPtr> {
        let schema = footer.get(parts.schema.clone()?)?;
        self.lock().schemas.get(schema).map(Arc::clone)
    }

    /// Keeps the `schema` of a footer with these `parts` for others, unless one before had the same.
    pub(crate) fn keep_schema(&self, footer: &[u8], parts: &FooterParts, schema: &SchemaDescPtr) {
        if let Some(bytes) = parts.schema.clone().and_then(|at| footer.get(at)) {
            self.lock().keep(bytes, schema);
        }
    }

    /// Stores a footer with these `parts` that was decoded to `schema`.
    pub(crate) fn store(
        &self,
        footer: &[u8],
        parts: FooterParts,
        schema: SchemaDescPtr,
    ) -> StoredFooter {
        let bytes = parts.schema.and_then(|at| footer.get(at));
        let mut known = self.lock();
        // Another thread may have decoded the same at the same time: the first is that of all.
        let schema = match bytes {
            Some(bytes) => known.keep(bytes, &schema),
            None => schema,
        };
        let KnownPieces { block, pieces: others, .. } = &mut *known;
        if block.capacity() < footer.len() {
            block.reserve(BLOCK_BYTES.max(footer.len()));
        }
        let (mut shared, mut from) = (Vec::new(), 0);
        for piece in parts.pieces {
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
        StoredFooter { own: block.split().freeze(), shared: shared.into(), schema }
    }

    fn lock(&self) -> MutexGuard<'_, KnownPieces> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownPieces {
    /// The schema of these bytes, which is `schema` if it was not known.
    fn keep(&mut self, bytes: &[u8], schema: &SchemaDescPtr) -> SchemaDescPtr {
        if let Some(known) = self.schemas.get(bytes) {
            return Arc::clone(known);
        }
        self.schemas.insert(bytes.into(), Arc::clone(schema));
        Arc::clone(schema)
    }
}

impl StoredFooter {
    /// The bytes of the footer.
    pub(crate) fn bytes(&self) -> Vec<u8> {
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

    /// The schema that its file shares with others.
    pub(crate) fn schema(&self) -> &SchemaDescPtr {
        &self.schema
    }
}

impl FooterParts {
    /// Finds the parts of a footer; `schema` reads over the list of the elements of its schema.
    ///
    /// # Errors
    /// Bytes that are no footer, and those of `schema`.
    pub(crate) fn find<'a>(
        footer: &'a [u8],
        schema: impl Fn(&mut Reader<'a>) -> Result<(), Stop>,
    ) -> Result<Self, Stop> {
        let (mut reader, mut last, mut found) = (Reader::new(footer), 0, Self::default());
        while let Some((id, kind)) = reader.field(&mut last)? {
            found.is_encrypted |= id == ENCRYPTION;
            if (id, kind) == (ENTRIES, TYPE_LIST) {
                let (kind, entries) = reader.list()?;
                for _ in 0..entries {
                    let start = reader.position();
                    reader.skip(kind)?;
                    found.pieces.push(start..reader.position());
                }
                continue;
            }
            let start = reader.position();
            match (id, kind) {
                (SCHEMA, TYPE_LIST) => schema(&mut reader)?,
                _ => reader.skip(kind)?,
            }
            let part = start..reader.position();
            match id {
                SCHEMA => {
                    if found.schema.is_some() {
                        return Err(Stop::Malformed("footer has two schemas"));
                    }
                    found.schema = Some(part.clone());
                    found.pieces.push(part);
                }
                ROW_GROUPS => {}
                _ => found.pieces.push(part),
            }
        }
        found.pieces.retain(|piece| piece.len() >= PIECE_BYTES_MIN);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::page::testing::file;

    fn footer(bytes: &[u8]) -> &[u8] {
        let end = bytes.len() - 8;
        let len = u32::from_le_bytes(*bytes[..bytes.len() - 4].last_chunk().unwrap());
        &bytes[end - len as usize..end]
    }

    fn parts(footer: &[u8]) -> FooterParts {
        FooterParts::find(footer, |reader| reader.skip(TYPE_LIST)).unwrap_or_default()
    }

    fn schema() -> SchemaDescPtr {
        let text = "message m { required int64 a; }";
        let root = parquet::schema::parser::parse_message_type(text).unwrap();
        Arc::new(parquet::schema::types::SchemaDescriptor::new(Arc::new(root)))
    }

    #[test]
    fn footers_of_one_schema_share_it_and_give_their_bytes_back() {
        let columns: String = (0..40).map(|i| format!("required int64 column_{i};")).collect();
        let text = format!("message m {{ {columns} }}");
        let (one, other) = (file(&text, &[3], |p| p), file(&text, &[5, 2], |p| p));
        let pool = FooterPool::default();
        let known = |bytes| pool.schema(footer(bytes), &parts(footer(bytes)));
        assert!(known(&one).is_none());
        let stored = pool.store(footer(&one), parts(footer(&one)), schema());
        assert!(known(&other).is_some());
        let next = pool.store(footer(&other), parts(footer(&other)), schema());
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
            let stored = FooterPool::default().store(bytes, parts(bytes), schema());
            assert_eq!((stored.bytes(), stored.shared.len()), (bytes.to_vec(), 0));
        }
    }
}
