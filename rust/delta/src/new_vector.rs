//! Deletion vectors of files that a commit adds: in the log if they are small, else in one file.
//!
//! ```text
//! small    {"storageType": "i", "pathOrInlineDv": Z85 of magic and bitmap}
//! others   deletion_vector_<uuid>.bin   01 │ length 4 │ magic, bitmap │ CRC-32 4 │ length 4 │ …
//! ```
//!
//! # Invariants
//! The file is named after the token of the change, which nobody else has.
//!
//! # Not here
//! Which rows are deleted (`plait_parquet`); reading vectors (`vector`).
//!
//! Source: the Delta transaction log protocol, "Deletion Vectors" and "Deletion Vector Format".

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use crate::action::Vector;
use crate::vector::{file_of, z85_text};

/// A vector of more bytes is stored in a file.
const INLINE_BYTES_MAX: usize = 512;
/// The version of files of vectors, which is their first byte.
const FILE_VERSION: u8 = 1;

/// Rows of a file that are deleted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewVector {
    /// The magic number and the bitmap, in base 64.
    pub(crate) bitmap: String,
    /// How many.
    pub(crate) rows: i64,
}

/// The vectors of a change.
#[derive(Debug, Default)]
pub(crate) struct NewVectors {
    /// As the log has them, in the order of the files that are added.
    pub(crate) vectors: Vec<Option<Vector>>,
    /// The file that some are stored in.
    pub(crate) file: Option<VectorFile>,
}

/// A file of vectors.
#[derive(Debug)]
pub(crate) struct VectorFile {
    /// Below the table.
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

impl NewVectors {
    /// Those of `all`, in a file named after `token`, 32 hexadecimal digits.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] for what is no vector, or no token.
    pub(crate) fn make<'a>(
        all: impl Iterator<Item = Option<&'a NewVector>>,
        token: &str,
    ) -> Result<Self> {
        let (mut made, mut bytes) = (Self::default(), vec![FILE_VERSION]);
        for vector in all {
            let stored = vector.map(|vector| store(vector, token, &mut bytes)).transpose()?;
            made.vectors.push(stored);
        }
        let stored = made.vectors.iter().flatten().find_map(file_of);
        made.file = stored.map(|name| VectorFile { name, bytes });
        Ok(made)
    }
}

/// How the log names `new`, which is appended to `file` unless it is small.
fn store(new: &NewVector, token: &str, file: &mut Vec<u8>) -> Result<Vector> {
    let wrong = |what: &str| Error::new(Kind::InvalidArgument, what);
    let bytes = STANDARD
        .decode(&new.bitmap)
        .map_err(|e| wrong("a deletion vector is not base 64").with_cause(e))?;
    let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let (Ok(size_in_bytes), Ok(offset)) = (i32::try_from(size), i32::try_from(file.len())) else {
        return Err(wrong("deletion vectors are larger than the protocol allows")
            .with_got(format!("{} bytes", bytes.len())));
    };
    let vector = Vector { size_in_bytes, cardinality: new.rows, ..Vector::default() };
    if bytes.len() <= INLINE_BYTES_MAX {
        let path_or_inline_dv = z85_text(&bytes);
        return Ok(Vector { storage_type: "i".to_owned(), path_or_inline_dv, ..vector });
    }
    let uuid = uuid_of(token).ok_or_else(|| wrong("the token of a change is not 32 digits"))?;
    file.extend(size.to_be_bytes());
    file.extend(&bytes);
    file.extend(crc32fast::hash(&bytes).to_be_bytes());
    let path_or_inline_dv = z85_text(&uuid);
    Ok(Vector { storage_type: "u".to_owned(), path_or_inline_dv, offset: Some(offset), ..vector })
}

/// The sixteen bytes that 32 hexadecimal digits are.
fn uuid_of(token: &str) -> Option<[u8; 16]> {
    let is_hex = token.len() == 32 && token.bytes().all(|b| b.is_ascii_hexdigit());
    let number = is_hex.then(|| u128::from_str_radix(token, 16).ok()).flatten()?;
    Some(number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::deleted_rows;

    #[test]
    fn small_vectors_are_inline_and_others_share_a_file() {
        let token = "d2c639aa8816431aaaf6d3fe2512ff61";
        let bytes = [vec![1; 40], vec![2; 600], vec![3; 700]];
        let new = bytes.clone().map(|b| NewVector { bitmap: STANDARD.encode(b), rows: 3 });
        let all = [Some(&new[0]), None, Some(&new[1]), Some(&new[2])];
        let made = NewVectors::make(all.into_iter(), token).unwrap();
        let found: Vec<_> = made.vectors.iter().flatten().collect();
        assert_eq!(found.iter().map(|v| &*v.storage_type).collect::<Vec<_>>(), ["i", "u", "u"]);
        let file = made.file.unwrap();
        assert_eq!(file.name, "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin");
        for (vector, bytes) in found.iter().zip(&bytes).skip(1) {
            let at = vector.offset.unwrap() as usize;
            assert_eq!(file.bytes[at..at + 4], (bytes.len() as u32).to_be_bytes());
            assert_eq!(file.bytes[at + 4..at + 4 + bytes.len()], bytes[..]);
        }
        assert!(deleted_rows(found[0], "a").is_ok());
        let none = NewVectors::make([Some(&new[0])].into_iter(), "short").unwrap();
        assert!(none.file.is_none(), "what is inline needs no token");
        assert!(NewVectors::make([Some(&new[1])].into_iter(), "short").is_err());
    }
}
