//! The part of a key that a curve takes, back to the values of its columns.
//!
//! # Invariants
//! Any bytes are values or a [`Kind::CorruptSource`](plait_base::Kind::CorruptSource); what decodes
//! encodes to the same bytes.
//!
//! # Not here
//! The way forth (`curve_encode`).

use std::borrow::Cow;

use super::coordinate::{coordinate_of, null_coordinate, number_at};
use super::curve_index::coordinates_at;
use super::field::{KeyValue, corrupt, fixed, not_canonical, split_field, value};
use super::shape::{COORDINATE_BYTES, CurvePart, KeyColumn, KeyType};
use plait_base::Result;

/// Bytes of the part at the beginning of `bytes`.
///
/// # Errors
/// [`Kind::CorruptSource`](plait_base::Kind::CorruptSource) when they are no such part.
pub(super) fn curve_len(part: CurvePart<'_>, bytes: &[u8]) -> Result<usize> {
    if part.followed().next().is_none() {
        return match bytes.len() < part.head_bytes() {
            true => Err(ends_early()),
            false => Ok(part.head_bytes()),
        };
    }
    let bytes = unmasked(part, bytes);
    let mut rest = bytes.get(part.head_bytes()..).ok_or_else(ends_early)?;
    for column in part.followed() {
        (_, rest) = split_field(column, rest)?;
    }
    Ok(bytes.len() - rest.len())
}

/// The values of the columns of the part at the beginning of `bytes`, and what follows it.
///
/// # Errors
/// As [`curve_len`].
pub(super) fn curve_values<'a>(
    part: CurvePart<'_>,
    bytes: &'a [u8],
) -> Result<(Vec<KeyValue>, &'a [u8])> {
    let len = curve_len(part, bytes)?;
    let own = unmasked(part, bytes.get(..len).unwrap_or_default());
    let (index, behind) = own.split_at_checked(part.index_bytes()).ok_or_else(ends_early)?;
    let index = [part.shared(), index].concat();
    let coordinates = coordinates_at(part.curve.kind, part.columns.len(), &index);
    let (marks, mut rest) = match (part.has_marks(), behind.split_first()) {
        (false, _) => (0, behind),
        (true, Some((marks, rest))) => (*marks, rest),
        (true, None) => return Err(ends_early()),
    };
    if u32::from(marks) >> part.columns.len() != 0 {
        return Err(corrupt("key of a curve marks more nulls than it has columns"));
    }
    let mut values = Vec::with_capacity(part.columns.len());
    for (i, (column, coordinate)) in part.columns.iter().zip(coordinates).enumerate() {
        let is_null = marks >> i & 1 == 1;
        let found = if column.ty.is_whole_in_coordinate() {
            match is_null || column.ty == KeyType::Null {
                true => KeyValue::Null,
                false => value_at(column, coordinate)?,
            }
        } else {
            let (field, after) = split_field(column, rest)?;
            rest = after;
            value(column, field)?
        };
        let expected = match &found {
            KeyValue::Null => null_coordinate(column),
            _ if column.ty.is_whole_in_coordinate() => coordinate,
            found => coordinate_of(found)?,
        };
        let is_marked = !part.has_marks() || is_null == (found == KeyValue::Null);
        if expected != coordinate || !is_marked {
            return Err(not_canonical(column));
        }
        values.push(found);
    }
    Ok((values, bytes.get(len..).unwrap_or_default()))
}

/// Where the part lies that begins with `bytes`, all of them or fewer, column by column: values of
/// which a text or decimal may be the beginning.
pub(super) fn corner(part: CurvePart<'_>, bytes: &[u8]) -> Vec<Option<KeyValue>> {
    let bytes = unmasked(part, bytes);
    let own = bytes.get(..part.index_bytes()).unwrap_or(&bytes);
    let mut index = [part.shared(), own].concat();
    index.resize(part.columns.len() * COORDINATE_BYTES, 0);
    let coordinates = coordinates_at(part.curve.kind, part.columns.len(), &index);
    let at = part.columns.iter().zip(coordinates);
    at.map(|(column, coordinate)| match column.ty {
        _ if coordinate == null_coordinate(column) => None,
        KeyType::Bytes { .. } => {
            let bytes = coordinate.to_be_bytes();
            let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            let text = bytes.get(..end).unwrap_or_default();
            Some(KeyValue::Text(String::from_utf8_lossy(text).into_owned()))
        }
        _ => value_at(column, coordinate).ok(),
    })
    .collect()
}

/// The value whose coordinate says it.
fn value_at(column: &KeyColumn, coordinate: u64) -> Result<KeyValue> {
    let number = number_at(column.ty, coordinate).ok_or_else(|| not_canonical(column))?;
    let width = column.ty.width().unwrap_or(0).min(COORDINATE_BYTES);
    fixed(column, &number.to_be_bytes()[COORDINATE_BYTES - width..])
}

/// The bytes as they are of a curve that is walked forwards.
fn unmasked<'a>(part: CurvePart<'_>, bytes: &'a [u8]) -> Cow<'a, [u8]> {
    match part.curve.mask() {
        0 => Cow::Borrowed(bytes),
        mask => Cow::Owned(bytes.iter().map(|byte| byte ^ mask).collect()),
    }
}

fn ends_early() -> plait_base::Error {
    corrupt("key ends in the middle of a curve")
}
