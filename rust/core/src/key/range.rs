//! A key prefix is a range: all keys that start with it, and no others.
//!
//! ```text
//! prefix p           successor(p)
//!    │ keys that start with p │ greater keys
//!    [────────────────────────)
//! ```
//!
//! # Invariants
//! `k` starts with `p` if and only if `p <= k < successor(p)`. No column's bytes are a prefix of
//! another value's, so cutting a key after `n` columns gives a prefix of exactly the keys that
//! agree with it there.
//!
//! # Cost
//! Linear in the prefix.
//!
//! # Not here
//! Grouping ranges (`region`).

use super::decode::split_field;
use super::shape::KeyShape;
use plait_base::{Error, Kind, Result};

/// Bytes of the first `columns` columns of `key`.
///
/// # Errors
/// [`Kind::CorruptSource`] when `key` is not a key of `shape` that far; [`Kind::Internal`] when the
/// shape has fewer columns.
pub fn prefix_len(shape: &KeyShape, key: &[u8], columns: usize) -> Result<usize> {
    let Some(columns) = shape.columns().get(..columns) else {
        return Err(Error::new(Kind::Internal, "prefix has more columns than the key")
            .with_got(format!("{columns} of {}", shape.columns().len())));
    };
    let mut rest = key;
    for column in columns {
        let at = (key.len() - rest.len()) as u64;
        (_, rest) = split_field(column, rest).map_err(|e| e.with_offset(at))?;
    }
    Ok(key.len() - rest.len())
}

/// The smallest byte string greater than every one that starts with `prefix`; `None` when there is
/// no such bound: the prefix is empty, or all FF.
///
/// ```
/// use plait_core::key::successor;
/// assert_eq!(successor(&[0x01, 0x61, 0xFF]), Some(vec![0x01, 0x62]));
/// assert_eq!(successor(&[]), None);
/// ```
#[must_use]
pub fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xFF)?;
    let mut bound = prefix.get(..=last)?.to_vec();
    *bound.last_mut()? += 1;
    Some(bound)
}
