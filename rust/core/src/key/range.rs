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

use super::curve_decode::curve_len;
use super::field::split_field;
use super::shape::KeyShape;
use plait_base::{Error, Kind, Result};

/// Bytes of the first `parts` parts of `key`: columns, of which a curve counts as one.
///
/// # Errors
/// [`Kind::CorruptSource`] when `key` is not a key of `shape` that far; [`Kind::Internal`] when the
/// shape has fewer parts.
pub fn prefix_len(shape: &KeyShape, key: &[u8], parts: usize) -> Result<usize> {
    if parts > shape.parts() {
        return Err(Error::new(Kind::Internal, "prefix has more columns than the key")
            .with_got(format!("{parts} of {}", shape.parts())));
    }
    let mut rest = key;
    for column in shape.plain().iter().take(parts) {
        let at = (key.len() - rest.len()) as u64;
        (_, rest) = split_field(column, rest).map_err(|e| e.with_offset(at))?;
    }
    let end = key.len() - rest.len();
    match shape.curve_part() {
        Some(part) if parts > shape.plain().len() => {
            Ok(end + curve_len(part, rest).map_err(|e| e.with_offset(end as u64))?)
        }
        _ => Ok(end),
    }
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
