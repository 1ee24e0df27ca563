//! A deletion vector, by its bytes.
//!
//! ```text
//! vector     length 4 │ magic 4 │ 64-bit roaring bitmap │ CRC-32 4      in a file, from an offset
//! ```
//!
//! # Invariants
//! Its length, its checksum, the number of its rows and the greatest of them are checked.
//!
//! # Sources
//! Delta transaction log protocol, "Deletion Vector Format"; Iceberg Puffin, `deletion-vector-v1`;
//! the roaring format specification, "extension for 64-bit implementations".
//!
//! # Not here
//! Where vectors are stored (the log of the table).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use plait_core::{Error, Kind, Result};
use roaring::RoaringTreemap;

use super::value::{DeletionVector, StoredVector};
use crate::store::Stores;

/// First four bytes of a bitmap, little endian.
const MAGIC: u32 = 1_681_511_377;
/// Bytes of the length before a vector, of its magic number, of the checksum behind it.
const WORD: u64 = 4;
/// No bitmap takes more bytes than this beyond two bits a row.
const BYTES_MAX: u64 = 64 << 10;

impl DeletionVector {
    /// The rows that the vector deletes.
    ///
    /// # Errors
    /// [`Kind::CorruptSource`] for a vector that cannot be read, or is of another file;
    /// [`Kind::SourceNotFound`] without its file; what reading gives. Names the file of the vector.
    pub(crate) fn vector_rows(&self, file_rows: u64, stores: &Stores) -> Result<RoaringTreemap> {
        let at = self.stored.as_ref().map_or("an inline vector", |stored| &stored.location);
        self.read_vector(file_rows, stores).map_err(|e| e.with_path(at))
    }

    fn read_vector(&self, file_rows: u64, stores: &Stores) -> Result<RoaringTreemap> {
        let vector = match (&self.stored, &self.inline) {
            (Some(stored), None) => stored.read(file_rows, stores)?,
            (None, Some(inline)) => STANDARD
                .decode(inline)
                .map(Bytes::from)
                .map_err(|e| damaged("is not base 64").with_cause(e))?,
            _ => return Err(damaged("is both in a file and inline, or neither")),
        };
        let deleted = bitmap(&vector)?;
        let told = self.rows.unwrap_or(0);
        if deleted.len() != told {
            return Err(damaged("has another number of rows than the table says")
                .with_got(format!("{} rows instead of {told}", deleted.len())));
        }
        match deleted.max() {
            Some(last) if last >= file_rows => Err(damaged("deletes rows that the file lacks")
                .with_got(format!("row {last} of {file_rows}"))),
            _ => Ok(deleted),
        }
    }
}

impl StoredVector {
    /// The magic number and the bitmap, once length and checksum are right.
    fn read(&self, file_rows: u64, stores: &Stores) -> Result<Bytes> {
        let store = stores.open(&self.location)?;
        let whole = self.bytes.saturating_add(2 * WORD);
        let end = self.offset.saturating_add(whole);
        if end > store.len() || self.bytes > BYTES_MAX.saturating_add(file_rows / 4) {
            return Err(damaged("is longer than it can be").with_got(format!(
                "{} bytes from {} in a file of {}",
                self.bytes,
                self.offset,
                store.len()
            )));
        }
        let stored = store.read(self.offset..end)?;
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_be_bytes);
        let (len, rest) = stored.split_at(WORD as usize);
        let (vector, checksum) = rest.split_at(rest.len() - WORD as usize);
        if u64::from(word(len)) != self.bytes {
            return Err(damaged("has another length than the table says").with_got(format!(
                "{} bytes instead of {}",
                word(len),
                self.bytes
            )));
        }
        if crc32fast::hash(vector) != word(checksum) {
            return Err(damaged("does not have its checksum"));
        }
        Ok(stored.slice_ref(vector))
    }
}

/// A vector of `rows`: the magic number and the bitmap.
///
/// # Errors
/// [`Kind::Internal`].
pub(crate) fn vector_bytes(rows: &RoaringTreemap) -> Result<Vec<u8>> {
    let mut bytes = MAGIC.to_le_bytes().to_vec();
    rows.serialize_into(&mut bytes)
        .map_err(|e| Error::new(Kind::Internal, "cannot write a deletion vector").with_cause(e))?;
    Ok(bytes)
}

/// The bitmap behind the magic number.
fn bitmap(vector: &[u8]) -> Result<RoaringTreemap> {
    let Some((magic, mut bits)) = vector.split_first_chunk::<{ WORD as usize }>() else {
        return Err(damaged("is shorter than its magic number"));
    };
    if u32::from_le_bytes(*magic) != MAGIC {
        return Err(damaged("has another magic number")
            .with_got(format!("{} instead of {MAGIC}", u32::from_le_bytes(*magic))));
    }
    let read = RoaringTreemap::deserialize_from(&mut bits);
    let bitmap = read.map_err(|e| damaged("is not a roaring bitmap").with_cause(e))?;
    if !bits.is_empty() {
        return Err(
            damaged("goes on behind its bitmap").with_got(format!("{} more bytes", bits.len()))
        );
    }
    Ok(bitmap)
}

fn damaged(what: &str) -> Error {
    Error::new(Kind::CorruptSource, format!("a deletion vector {what}"))
        .with_hint("the table is damaged; restore the file of the vector")
}
