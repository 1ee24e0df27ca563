//! First and last keys of sources: from their footers, or from their rows.
//!
//! # Not here
//! Keys between (`source_keys`).

use std::collections::BTreeSet;
use std::sync::Arc;

use parquet::basic::{SortOrder as ValueOrder, Type as PhysicalType};
use parquet::data_type::ByteArray;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::statistics::Statistics;
use plait_core::Result;
use plait_core::key::{Keys, ShownValue, SortOrder, shown_cut, shown_values};
use plait_core::plan::Disorder;
use plait_core::workers::each;

use super::entries::{stored_keys, tells_keys};
use super::key_samples::{KeySample, KeySamples};
use super::planned_source::{KeyBase64, KeysFrom};
use super::source_keys::Reading;
use crate::ends::take_ends;
use crate::files::{is_of_the_file, readers};
use crate::keys::{KeyLeaves, KeyReader, keys_at};
use crate::leaf::{LocationCache, output_leaves};
use crate::options::UnsortedOption;
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
    let known = if source.is_selection() { None } else { take_ends(source, keys) };
    let (first, last) = match known {
        Some(ends) => ends,
        None => keys_at(source, keys, span.clone(), cache, context)?,
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
    let samples = match last_row.checked_sub(span.start) {
        None | Some(0) => KeySamples::of(&[(0, first)]),
        Some(row) => KeySamples::of(&[(0, first), (row, last)]),
    };
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
    let Ok(footer) = source.footer() else { return false };
    let groups = footer.row_groups().iter().filter(|group| group.num_rows() > 0);
    let bounds: Vec<Option<&Statistics>> = groups.map(|group| bounds(group, leaf)).collect();
    bounds.windows(2).any(|pair| match pair {
        [Some(before), Some(after)] if column.descending => is_above(after, before),
        [Some(before), Some(after)] => is_above(before, after),
        _ => false,
    })
}

/// The statistics of a leaf, if their bounds are in the order of its values.
fn bounds(group: &RowGroupMetaData, leaf: usize) -> Option<&Statistics> {
    let statistics = group.columns().get(leaf)?.statistics()?;
    (!statistics.is_min_max_deprecated()).then_some(statistics)
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

/// A key as reports have it, column by column.
///
/// # Errors
/// A key of another shape.
pub(crate) fn key_values(keys: &KeyLeaves, key: &[u8]) -> Result<Vec<Option<ShownValue>>> {
    shown_values(&keys.shape, key)
}

/// The key at which outputs are cut as reports have it, by so many leading columns; empty for none, and for what
/// is no key. Of a beginning of keys it is the least key that begins so.
pub(super) fn cut_values(
    keys: &KeyLeaves,
    columns: usize,
    key: Option<&KeyBase64>,
) -> Vec<Option<ShownValue>> {
    key.map_or_else(Vec::new, |key| shown_cut(&keys.shape, columns, &key.0))
}

/// The keys of a source with rows.
pub(crate) struct KeyRange {
    /// The smallest.
    pub(crate) first: Vec<u8>,
    /// The greatest.
    pub(crate) last: Vec<u8>,
    /// Whether they are in order, as far as was looked.
    pub(crate) is_sorted: bool,
}

/// How sources are looked at.
#[derive(Clone, Copy)]
pub(crate) struct KeyLook<'a> {
    /// What becomes of those that are not sorted. Unless they are an error all keys are read, where
    /// footers do not tell them: disorder may lie between the ends.
    pub(crate) unsorted: UnsortedOption,
    /// Locations of sources whose keys were found in order before.
    pub(crate) sorted: &'a BTreeSet<String>,
}

/// The first and last key of each of `sources` with rows; an error in place of those of a file that is
/// damaged, or not sorted and not to be sorted.
///
/// # Errors
/// Sources without the key columns, or what is wrong with the storage.
pub(crate) fn key_ranges(
    sources: &[Arc<Source>],
    order: &SortOrder,
    how: &Unite,
    look: KeyLook<'_>,
    context: &Context,
) -> Result<Vec<Result<Option<KeyRange>>>> {
    let footers: Vec<_> = sources.iter().map(|s| (s.path(), s.file())).collect();
    let reconciled = reconcile(&footers, how)?;
    let leaves = output_leaves(&reconciled);
    let keys = key_leaves(order, &reconciled, &leaves)?;
    let cache =
        Arc::new(LocationCache::new(context, context.budget().bytes(MemoryStage::PageLocations)));
    let reading = Reading { keys: &keys, cache: &cache, context };
    let range = |source: &Arc<Source>| {
        context.check_cancelled()?;
        if source.live_rows() == 0 {
            return Ok(None);
        }
        let is_believed = look.unsorted == UnsortedOption::Error
            || look.sorted.contains(source.path())
            || tells_keys(source, order, &keys);
        if !is_believed {
            let range = all_keys(source, reading)?;
            if range.is_sorted || look.unsorted == UnsortedOption::Sort {
                return Ok(Some(range));
            }
            // To say where it goes back.
            if let Some(found) =
                find_disorder(source, &keys, 0..source.rows(), KEY_ROWS, &cache, context)?
            {
                return Err(unsorted(source, &keys, found.row, &found.before, &found.after));
            }
        }
        let trust = KeyTrust { footers: true, order: false };
        let (samples, _) = known_keys(source, order, trust, reading)?;
        let key =
            |sample: Option<KeySample<'_>>| sample.map_or_else(Vec::new, |(_, key)| key.to_vec());
        let (first, last) = (key(samples.first()), key(samples.last()));
        Ok(Some(KeyRange { first, last, is_sorted: true }))
    };
    each(&readers(sources, None, context), sources.len(), |i| match range(&sources[i]) {
        Err(e) if is_of_the_file(&e) => Ok(Err(e)),
        outcome => outcome.map(Ok),
    })
}

/// The range of all keys of a source, and whether they are in order.
fn all_keys(source: &Arc<Source>, reading: Reading<'_>) -> Result<KeyRange> {
    let Reading { keys, cache, context } = reading;
    let mut reader = KeyReader::open(source, keys, 0, cache, context)?;
    let mut all: Option<KeyRange> = None;
    let mut before: Option<Vec<u8>> = None;
    while let Some((batch, _)) = reader.next(KEY_ROWS)? {
        context.check_cancelled()?;
        let Some(ends) = KeyEnds::of(&batch) else { continue };
        let key = |i| batch.to_bytes(keys.read_shape(), i);
        let (first, last) = (key(ends.least), key(ends.greatest));
        let goes_on = ends.is_sorted && before.is_none_or(|before| before <= first);
        before = Some(last.clone());
        all = Some(match all {
            None => KeyRange { first, last, is_sorted: goes_on },
            Some(range) => KeyRange {
                first: range.first.min(first),
                last: range.last.max(last),
                is_sorted: range.is_sorted && goes_on,
            },
        });
    }
    Ok(all.unwrap_or_else(|| KeyRange { first: Vec::new(), last: Vec::new(), is_sorted: true }))
}

/// Where in a batch of keys the smallest and the greatest lie.
struct KeyEnds {
    least: usize,
    greatest: usize,
    is_sorted: bool,
}

impl KeyEnds {
    fn of(keys: &Keys) -> Option<Self> {
        let places = 0..keys.len();
        Some(match keys {
            Keys::Packed(keys) => Self {
                least: places.clone().min_by_key(|i| keys[*i])?,
                greatest: places.max_by_key(|i| keys[*i])?,
                is_sorted: keys.is_sorted(),
            },
            Keys::Bytes(keys) => Self {
                least: places.clone().min_by_key(|i| keys.get(*i))?,
                greatest: places.max_by_key(|i| keys.get(*i))?,
                is_sorted: keys.iter().is_sorted(),
            },
        })
    }
}
