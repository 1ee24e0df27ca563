//! Where the deletion vector of a file is stored, in words that do not need the protocol.
//!
//! ```text
//! storageType u   "ab" + 20 characters of a UUID   ─▶ ab/deletion_vector_<uuid>.bin   in the table
//!             p   an absolute path                 ─▶ that path
//!             i   the vector itself                ─▶ its bytes
//! ```
//!
//! # Invariants
//! A vector of another kind, or whose text cannot be read, is an error that names the file: a row that
//! is deleted is never taken for one that is there.
//!
//! # Not here
//! Reading the vector (`plait_parquet`).
//!
//! Sources: the Delta transaction log protocol, "Deletion Vectors"; ZeroMQ RFC 32 (Z85).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use plait_core::{Error, Kind, Result};
use serde::Serialize;

use crate::action::Vector;
use crate::name::decoded;

/// The deleted rows of a file, as calls of the engine take them.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DeletedRows {
    #[serde(skip_serializing_if = "Option::is_none")]
    stored: Option<StoredAt>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inline: Option<String>,
    rows: i64,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct StoredAt {
    /// Below the table, or absolute.
    location: String,
    offset: i32,
    bytes: i32,
}

/// The digits of Z85.
const DIGITS: &[u8; 85] =
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

/// Length of the text of a UUID.
const UUID_TEXT: usize = 20;

/// The rows that `vector` deletes from the file `name`.
///
/// # Errors
/// [`Kind::CorruptSource`] for a vector that no reader understands.
pub(crate) fn deleted_rows(vector: &Vector, name: &str) -> Result<DeletedRows> {
    let damaged = || {
        Error::new(Kind::CorruptSource, "the log names a deletion vector that is none")
            .with_path(name)
            .with_got(format!("`{}{}`", vector.storage_type, vector.path_or_inline_dv))
    };
    let text = &vector.path_or_inline_dv;
    let stored = |location: String| StoredAt {
        location,
        offset: vector.offset.unwrap_or(0),
        bytes: vector.size_in_bytes,
    };
    let (stored, inline) = match vector.storage_type.as_str() {
        "u" => (Some(stored(relative(text).ok_or_else(damaged)?)), None),
        "p" => (Some(stored(decoded(text))), None),
        "i" => {
            let mut bytes = z85(text).ok_or_else(damaged)?;
            // The text is of whole groups of four bytes.
            bytes.truncate(usize::try_from(vector.size_in_bytes).map_err(|_| damaged())?);
            (None, Some(STANDARD.encode(bytes)))
        }
        _ => return Err(damaged()),
    };
    if vector.cardinality < 0 || stored.as_ref().is_some_and(|at| at.offset < 0 || at.bytes < 0) {
        return Err(damaged());
    }
    Ok(DeletedRows { stored, inline, rows: vector.cardinality })
}

/// The path below the table of the file with `vector`; `None` for one that is elsewhere.
pub(crate) fn file_of(vector: &Vector) -> Option<String> {
    let is_below = vector.storage_type == "u";
    is_below.then(|| relative(&vector.path_or_inline_dv)).flatten()
}

/// The path below the table of the file with the UUID that ends `text`.
fn relative(text: &str) -> Option<String> {
    let (prefix, uuid) = text.split_at_checked(text.len().checked_sub(UUID_TEXT)?)?;
    let bytes = z85(uuid)?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
    let folder = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
    Some(format!("{folder}deletion_vector_{}.bin", parts.join("-")))
}

/// `bytes` as a text in Z85, filled up with zeros to whole groups of four.
pub(crate) fn z85_text(bytes: &[u8]) -> String {
    let mut text = String::new();
    for group in bytes.chunks(4) {
        let mut padded = [0; 4];
        padded[..group.len()].copy_from_slice(group);
        let mut value = u32::from_be_bytes(padded);
        let mut digits = ['0'; 5];
        for digit in digits.iter_mut().rev() {
            *digit = char::from(DIGITS[(value % 85) as usize]);
            value /= 85;
        }
        text.extend(digits);
    }
    text
}

/// The bytes of a text in Z85, four for each five characters; `None` for another text.
fn z85(text: &str) -> Option<Vec<u8>> {
    let (groups, []) = text.as_bytes().as_chunks::<5>() else { return None };
    let mut bytes = Vec::with_capacity(groups.len() * 4);
    for group in groups {
        let mut value: u32 = 0;
        for character in group {
            let digit = DIGITS.iter().position(|digit| digit == character)?;
            value = value.checked_mul(85)?.checked_add(u32::try_from(digit).ok()?)?;
        }
        bytes.extend(value.to_be_bytes());
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(kind: &str, text: &str, bytes: i32) -> Vector {
        Vector {
            storage_type: kind.to_owned(),
            path_or_inline_dv: text.to_owned(),
            offset: Some(1),
            size_in_bytes: bytes,
            cardinality: 6,
        }
    }

    #[test]
    fn the_examples_of_the_protocol_are_found() {
        let relative = vector("u", "ab^-aqEH.-t@S}K{vb[*k^", 40);
        let found = deleted_rows(&relative, "a.parquet").unwrap();
        let location = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin".to_owned();
        assert_eq!(found.stored, Some(StoredAt { location, offset: 1, bytes: 40 }));
        let inline = vector("i", "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", 44);
        let found = deleted_rows(&inline, "a.parquet").unwrap();
        let bytes = STANDARD.decode(found.inline.unwrap()).unwrap();
        assert_eq!((bytes.len(), &bytes[..4]), (44, &1_681_511_377_u32.to_le_bytes()[..]));
        let absolute = vector("p", "s3://b/dv%20%E2%82%AC.bin", 40);
        let found = deleted_rows(&absolute, "a.parquet").unwrap();
        assert_eq!(found.stored.unwrap().location, "s3://b/dv €.bin");
    }

    #[test]
    fn texts_are_written_as_they_are_read() {
        for len in 0..40_u8 {
            let bytes: Vec<u8> = (0..len).map(|i| i.wrapping_mul(91)).collect();
            let back = z85(&z85_text(&bytes)).unwrap();
            assert_eq!(back[..bytes.len()], bytes[..]);
            assert!(back.len() < bytes.len() + 4);
        }
    }

    #[test]
    fn what_is_no_vector_is_refused() {
        for (kind, text) in
            [("x", "a"), ("u", "short"), ("u", "^-aqEH.-t@S}K{vb[*k~"), ("i", "1234")]
        {
            let e = deleted_rows(&vector(kind, text, 4), "a.parquet").unwrap_err();
            assert_eq!((e.kind(), e.path()), (Kind::CorruptSource, Some("a.parquet")));
        }
        assert!(deleted_rows(&vector("p", "a.bin", -1), "a.parquet").is_err());
    }
}
