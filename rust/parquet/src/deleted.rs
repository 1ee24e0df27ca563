//! Rows of files that a table says are deleted: deletion vectors of Delta and of Iceberg.
//!
//! ```text
//! vector     length 4 │ magic 4 │ 64-bit roaring bitmap │ CRC-32 4      in a file, from an offset
//! deleted    {2, 5, 6}
//! live rows  0..2  3..5  7..file_rows
//! ```
//!
//! # Invariants
//! A vector is used as a whole or is an error: its length, its checksum, the number of its rows and
//! the greatest of them are checked.
//!
//! # Cost
//! The bitmap while it is read, then two numbers for each range of live rows.
//!
//! # Sources
//! Delta transaction log protocol, "Deletion Vector Format"; Iceberg Puffin, `deletion-vector-v1`;
//! the roaring format specification, "extension for 64-bit implementations".
//!
//! # Not here
//! Which file has a vector (the log of the table).

use std::collections::BTreeMap;
use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use plait_core::{Error, Kind, Result};
use roaring::RoaringTreemap;
use serde::{Deserialize, Serialize};

use crate::store::Stores;

/// The vectors of files, by location of the file.
pub(crate) type DeletionVectors = BTreeMap<String, DeletionVector>;

/// First four bytes of a bitmap, little endian.
const MAGIC: u32 = 1_681_511_377;
/// Bytes of the length before a vector, of its magic number, of the checksum behind it.
const WORD: u64 = 4;
/// No bitmap takes more bytes than this beyond two bits a row.
const BYTES_MAX: u64 = 64 << 10;

/// Where a deletion vector is stored, and how many rows it deletes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeletionVector {
    /// The vector in a file; absent if it is `inline`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stored: Option<StoredVector>,
    /// The magic number and the bitmap, in base 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) inline: Option<String>,
    /// How many rows are deleted.
    pub(crate) rows: u64,
}

/// A deletion vector in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredVector {
    /// The file.
    pub(crate) location: String,
    /// Where its length stands in the file, in bytes.
    pub(crate) offset: u64,
    /// Bytes of the magic number and the bitmap.
    pub(crate) bytes: u64,
}

impl DeletionVector {
    /// The rows of a file with `file_rows` rows that are not deleted, in ranges that ascend and do
    /// not touch.
    ///
    /// # Errors
    /// [`Kind::CorruptSource`] for a vector that cannot be read, or is of another file;
    /// [`Kind::SourceNotFound`] without its file; what reading gives. Names the file of the vector.
    pub(crate) fn live_rows(&self, file_rows: u64, stores: &Stores) -> Result<Vec<Range<u64>>> {
        let deleted = self.rows_of(file_rows, stores)?;
        let mut live = Vec::new();
        let mut next = 0;
        for row in &deleted {
            if row > next {
                live.push(next..row);
            }
            next = row + 1;
        }
        if next < file_rows {
            live.push(next..file_rows);
        }
        Ok(live)
    }

    /// The rows of a file with `file_rows` rows that are deleted.
    ///
    /// # Errors
    /// As [`live_rows`](Self::live_rows).
    pub(crate) fn rows_of(&self, file_rows: u64, stores: &Stores) -> Result<RoaringTreemap> {
        let at = self.stored.as_ref().map_or("an inline vector", |stored| &stored.location);
        self.read(file_rows, stores).map_err(|e| e.with_path(at))
    }

    fn read(&self, file_rows: u64, stores: &Stores) -> Result<RoaringTreemap> {
        let vector = match (&self.stored, &self.inline) {
            (Some(stored), None) => stored.read(file_rows, stores)?,
            (None, Some(inline)) => STANDARD
                .decode(inline)
                .map(Bytes::from)
                .map_err(|e| damaged("is not base 64").with_cause(e))?,
            _ => return Err(damaged("is both in a file and inline, or neither")),
        };
        let deleted = bitmap(&vector)?;
        if deleted.len() != self.rows {
            return Err(damaged("has another number of rows than the table says")
                .with_got(format!("{} rows instead of {}", deleted.len(), self.rows)));
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
