//! First and last keys of sources: from their footers, or from their rows.
//!
//! # Not here
//! Keys between (`lane`).

use std::sync::Arc;

use plait_core::Result;
use plait_core::key::{KeyValue, SortOrder, decode};

use super::entries::{Knots, told_keys};
use super::value::KeysFrom;
use crate::context::Context;
use crate::keys::{KeyLeaves, key_at};
use crate::leaf::LocationCache;
use crate::order::unsorted;
use crate::source::Source;

/// What is known of a source with rows: its first and last key at least.
pub(super) fn known_keys(
    source: &Arc<Source>,
    (order, keys): (&SortOrder, &KeyLeaves),
    (trusts_footers, assume_sorted): (bool, bool),
    cache: &Arc<LocationCache>,
    context: &Context,
) -> Result<(Knots, KeysFrom)> {
    if trusts_footers && let Some(knots) = told_keys(source, order, keys) {
        return Ok((knots, KeysFrom::Footer));
    }
    let last_row = source.rows().saturating_sub(1);
    let first = key_at(source, keys, 0, cache, context)?;
    let last = match last_row {
        0 => first.clone(),
        row => key_at(source, keys, row, cache, context)?,
    };
    if last < first && !assume_sorted {
        return Err(unsorted(source, keys, last_row, &first, &last));
    }
    let last = last.max(first.clone());
    let mut knots = vec![(0, first)];
    if last_row > 0 {
        knots.push((last_row, last));
    }
    Ok((knots, KeysFrom::Rows))
}

/// A key as text, column by column.
///
/// # Errors
/// A key of another shape.
pub(crate) fn key_texts(keys: &KeyLeaves, key: &[u8]) -> Result<Vec<Option<String>>> {
    let text = |v: KeyValue| (!matches!(v, KeyValue::Null)).then(|| v.to_string());
    Ok(decode(&keys.shape, key)?.into_iter().map(text).collect())
}
