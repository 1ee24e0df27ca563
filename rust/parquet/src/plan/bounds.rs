//! First and last keys of sources: from their footers, or from their rows.
//!
//! # Not here
//! Keys between (`source_keys`).

use std::sync::Arc;

use parquet::basic::{SortOrder as ValueOrder, Type as PhysicalType};
use parquet::data_type::ByteArray;
use parquet::file::statistics::Statistics;
use plait_core::Result;
use plait_core::key::{self, SortOrder, texts};
use plait_core::plan::Disorder;
use plait_core::workers::each;

use super::entries::{KeySamples, stored_keys};
use super::source_keys::Reading;
use super::value::{KeyBase64, KeysFrom};
use crate::files::{is_of_the_file, output_leaves, readers};
use crate::keys::{KeyLeaves, key_at};
use crate::leaf::LocationCache;
use crate::order::{KEY_ROWS, find_disorder, key_leaves, unsorted};
use crate::runtime::{Context, MemoryStage};
use crate::schema::{LeafAdapter, Unite, reconcile};
use crate::source::Source;

/// What is believed of a source without reading its keys.
#[derive(Clone, Copy)]
pub(super) struct KeyTrust {
    /// The first and last keys in its footer.
    pub(super) footers: bool,
    /// That its rows are in order.
    pub(super) order: bool,
}

/// What is known of a source with rows: its first and last key at least.
pub(super) fn known_keys(
    source: &Arc<Source>,
    order: &SortOrder,
    trust: KeyTrust,
    reading: Reading<'_>,
) -> Result<(KeySamples, KeysFrom)> {
    let Reading { keys, cache, context } = reading;
    let span = source.span();
    if trust.footers
        && !source.is_selection()
        && let Some(samples) = stored_keys(source, order, keys)
    {
        return Ok((samples, KeysFrom::Footer));
    }
    let last_row = span.end.saturating_sub(1);
    let first = key_at(source, keys, span.start, cache, context)?;
    let last = match last_row {
        row if row == span.start => first.clone(),
        row => key_at(source, keys, row, cache, context)?,
    };
    let goes_back = last < first;
    // A selection is in order, whatever the rest of its file is.
    let is_checked = !trust.order && !source.is_selection();
    if is_checked && (goes_back || bounds_go_back(source, order, keys)) {
        // Somewhere between them a key goes backwards: that is what there is to tell.
        let rows = 0..source.rows();
        let found = find_disorder(source, keys, rows, KEY_ROWS, cache, context)?;
        let ends = || {
            goes_back.then(|| Disorder {
                row: last_row,
                before: first.clone(),
                after: last.clone(),
            })
        };
        if let Some(found) = found.or_else(ends) {
            return Err(unsorted(source, keys, found.row, &found.before, &found.after));
        }
    }
    let last = last.max(first.clone());
    let mut samples = vec![(0, first)];
    if last_row > span.start {
        samples.push((last_row - span.start, last));
    }
    Ok((samples, KeysFrom::Rows))
}

/// Whether the bounds of the first sort column say that a row group has values that belong into the
/// one before it. Bounds may be wrong or cut short: it is a reason to look, no more.
fn bounds_go_back(source: &Source, order: &SortOrder, keys: &KeyLeaves) -> bool {
    let (Some(column), Some(leaf)) = (order.plain().first(), keys.leaves.first()) else {
        return false;
    };
    let Some(leaf) = leaf.adapter(source.id).ok().and_then(LeafAdapter::leaf) else { return false };
    // As values of the Rust type compare.
    let is_plain = match source.leaf(leaf).physical_type() {
        PhysicalType::BYTE_ARRAY => source.leaf(leaf).sort_order() == ValueOrder::UNSIGNED,
        _ => source.leaf(leaf).sort_order() == ValueOrder::SIGNED,
    };
    if !is_plain {
        return false;
    }
    let groups = (0..source.num_row_groups()).filter(|&group| source.row_group_rows(group) > 0);
    let bounds = |group| {
        let statistics = source.chunk(group, leaf).ok()?.statistics()?;
        (!statistics.is_min_max_deprecated()).then_some(statistics)
    };
    let bounds: Vec<Option<&Statistics>> = groups.map(bounds).collect();
    bounds.windows(2).any(|pair| match pair {
        [Some(before), Some(after)] if column.descending => is_above(after, before),
        [Some(before), Some(after)] => is_above(before, after),
        _ => false,
    })
}

/// Whether the greatest value of `a` is above the smallest of `b`, where that is simple to say.
fn is_above(a: &Statistics, b: &Statistics) -> bool {
    fn above<T: PartialOrd>(a: Option<T>, b: Option<T>) -> bool {
        a.zip(b).is_some_and(|(a, b)| a > b)
    }
    match (a, b) {
        (Statistics::Int32(a), Statistics::Int32(b)) => above(a.max_opt(), b.min_opt()),
        (Statistics::Int64(a), Statistics::Int64(b)) => above(a.max_opt(), b.min_opt()),
        (Statistics::Float(a), Statistics::Float(b)) => above(a.max_opt(), b.min_opt()),
        (Statistics::Double(a), Statistics::Double(b)) => above(a.max_opt(), b.min_opt()),
        (Statistics::ByteArray(a), Statistics::ByteArray(b)) => {
            let is_exact = a.max_is_exact() && b.min_is_exact();
            is_exact && above(a.max_opt().map(ByteArray::data), b.min_opt().map(ByteArray::data))
        }
        _ => false,
    }
}

/// A key as text, column by column.
///
/// # Errors
/// A key of another shape.
pub(crate) fn key_texts(keys: &KeyLeaves, key: &[u8]) -> Result<Vec<Option<String>>> {
    texts(&keys.shape, key)
}

/// The key at which outputs are cut as text, by so many leading columns; empty for none, and for what
/// is no key. Of a beginning of keys it is the least key that begins so.
pub(super) fn cut_texts(
    keys: &KeyLeaves,
    columns: usize,
    key: Option<&KeyBase64>,
) -> Vec<Option<String>> {
    key.map_or_else(Vec::new, |key| key::cut_texts(&keys.shape, columns, &key.0))
}

/// First and last key.
pub(crate) type KeyRange = (Vec<u8>, Vec<u8>);

/// The first and last key of each of `sources` with rows; an error in place of those of a file that is
/// damaged or not sorted.
///
/// # Errors
/// Sources without the key columns, or what is wrong with the storage.
pub(crate) fn key_ranges(
    sources: &[Arc<Source>],
    order: &SortOrder,
    how: &Unite,
    context: &Context,
) -> Result<Vec<Result<Option<KeyRange>>>> {
    let footers: Vec<_> = sources.iter().map(|s| (s.path(), s.meta.file_metadata())).collect();
    let reconciled = reconcile(&footers, how)?;
    let leaves = output_leaves(&reconciled);
    let keys = key_leaves(order, &reconciled, &leaves)?;
    let cache =
        Arc::new(LocationCache::new(context, context.budget().bytes(MemoryStage::PageLocations)));
    let reading = Reading { keys: &keys, cache: &cache, context };
    let range = |source: &Arc<Source>| {
        context.check_cancelled()?;
        if source.rows() == 0 {
            return Ok(None);
        }
        let (mut samples, _) =
            known_keys(source, order, KeyTrust { footers: true, order: false }, reading)?;
        let last = samples.pop().map(|sample| sample.1).unwrap_or_default();
        let first = samples.into_iter().next().map_or_else(|| last.clone(), |sample| sample.1);
        Ok(Some((first, last)))
    };
    each(&readers(sources, None, context), sources.len(), |i| match range(&sources[i]) {
        Err(e) if is_of_the_file(&e) => Ok(Err(e)),
        outcome => outcome.map(Ok),
    })
}
