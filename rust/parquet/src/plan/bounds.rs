//! First and last keys of sources: from their footers, or from their rows.
//!
//! # Not here
//! Keys between (`lane`).

use std::sync::Arc;

use plait_core::Result;
use plait_core::key::{KeyValue, SortOrder, decode};
use plait_core::plan::Disorder;
use plait_core::workers::each;

use super::entries::{Knots, told_keys};
use super::value::KeysFrom;
use crate::context::Context;
use crate::files::{output_leaves, readers};
use crate::keys::{KeyLeaves, key_at};
use crate::leaf::LocationCache;
use crate::order::{KEY_ROWS, find_disorder, key_leaves, unsorted};
use crate::schema::{Unite, reconcile};
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
        // Somewhere between them a key goes backwards: that is what there is to tell.
        let rows = (0..source.rows(), KEY_ROWS);
        let found = find_disorder(source, keys, rows, cache, context)?;
        let found = found.unwrap_or(Disorder { row: last_row, before: first, after: last });
        return Err(unsorted(source, keys, found.row, &found.before, &found.after));
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

/// First and last key.
pub(crate) type KeyRange = (Vec<u8>, Vec<u8>);

/// The first and last key of each of `sources` with rows.
///
/// # Errors
/// Sources without the key columns, or whatever is wrong with one.
pub(crate) fn key_ranges(
    sources: &[Arc<Source>],
    order: &SortOrder,
    how: &Unite,
    context: &Context,
) -> Result<Vec<Option<KeyRange>>> {
    let footers: Vec<_> = sources.iter().map(|s| (s.path(), s.meta.file_metadata())).collect();
    let reconciled = reconcile(&footers, how)?;
    let leaves = output_leaves(&reconciled);
    let keys = key_leaves(order, &reconciled.descr, &leaves)?;
    let cache = Arc::new(LocationCache::new(context, context.limit_bytes() / 16));
    let range = |source: &Arc<Source>| {
        context.check_cancelled()?;
        if source.rows() == 0 {
            return Ok(None);
        }
        let (mut knots, _) = known_keys(source, (order, &keys), (true, false), &cache, context)?;
        let last = knots.pop().map(|knot| knot.1).unwrap_or_default();
        let first = knots.into_iter().next().map_or_else(|| last.clone(), |knot| knot.1);
        Ok(Some((first, last)))
    };
    each(&readers(sources, None, context), sources.len(), |i| range(&sources[i]))
}
