//! Which rows of a file may be asked for: by bounds of row groups and pages, and by bloom filters.
//!
//! ```text
//! row groups   │ 0: no value in bounds │ 1: filter says no │ 2               │
//! pages                                                    │   ▓▓▓▓    ▓▓▓▓  │ ──▶ ranges of rows
//! ```
//!
//! # Invariants
//! A row for which all conditions hold is never left out, whatever its file says in its favour.
//!
//! # Cost
//! Row groups: no read, and one comparison for all files. Pages and filters: one read each, of chunks of
//! conditions alone, and none for those that an earlier read kept.
//!
//! # Not here
//! Conditions themselves, row by row (`window`).

use std::iter::once;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Int32Type, Int64Type, Time32MillisecondType, Time64MicrosecondType,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, UInt32Type,
    UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, TimeUnit};
use parquet::basic::Type;
use parquet::bloom_filter::Sbbf;
use plait_core::Result;
use plait_core::predicate::ColumnCondition;

use super::all_bounds::ColumnBounds;
use super::bounds::{FileLeaf, LeafBounds};
use super::kept::KeptIndexes;
use super::known::KnownFile;
use super::ranges::joined;
use crate::leaf::LocationCache;
use crate::page::indexes::bloom_filter;
use crate::runtime::Context;
use crate::selection::intersection;
use crate::source::Source;

/// What is left of one file.
#[derive(Clone, Debug, Default)]
pub(super) struct RowsLeft {
    /// Rows that may be asked for, in ranges that ascend and do not touch.
    pub(super) rows: Vec<Range<u64>>,
    /// Row groups that were left out: by their bounds, by bloom filters, by the bounds of all pages.
    pub(super) row_groups_skipped: usize,
    /// Pages of the columns of conditions that were looked at, and those left out.
    pub(super) pages: usize,
    pub(super) pages_skipped: usize,
}

/// Where the column of a condition is in files of one class; nowhere if they lack it.
pub(super) struct LocatedCondition {
    pub(super) leaf: Option<FileLeaf>,
    /// The values asked for, as the files store them; none where filters do not help.
    values: Option<Vec<FilterValue>>,
    /// Whether the example of the class has a filter for them.
    is_filtered: bool,
}

impl LocatedCondition {
    /// `example` is a file of the class.
    pub(super) fn new(
        condition: &ColumnCondition,
        leaf: Option<FileLeaf>,
        example: &Source,
    ) -> Self {
        // A filter has the values as the file stores them.
        let stored_as = |leaf: &FileLeaf| {
            let is_same = leaf.field.data_type() == &leaf.data_type;
            is_same.then(|| example.leaf(leaf.leaf).physical_type())
        };
        let values = match (condition.equals(), leaf.as_ref().and_then(stored_as)) {
            ([], _) | (_, None) => None,
            (values, Some(physical)) => values.iter().map(|v| stored(v, physical)).collect(),
        };
        let has_filter = |leaf: &FileLeaf| {
            example.chunk(0, leaf.leaf).is_ok_and(|chunk| chunk.bloom_filter_offset().is_some())
        };
        let is_filtered = values.is_some() && leaf.as_ref().is_some_and(has_filter);
        Self { leaf, values, is_filtered }
    }

    /// Whether files have bloom filters for it, as far as one of them tells.
    pub(super) fn is_filtered(&self) -> bool {
        self.is_filtered
    }
}

/// Which row groups of all files may hold rows for which all conditions hold, by the footers alone;
/// `rows` has the rows of each.
pub(super) fn row_groups(
    conditions: &[ColumnCondition],
    bounds: &[Arc<ColumnBounds>],
    rows: &[u64],
) -> Result<Vec<bool>> {
    let mut may: Vec<bool> = rows.iter().map(|rows| *rows > 0).collect();
    for (condition, bounds) in conditions.iter().zip(bounds) {
        let rows = |group: usize| rows.get(group).copied().unwrap_or(0);
        let can = can_hold(condition, &bounds.bounds, &rows)?;
        may.iter_mut().zip(can).for_each(|(may, can)| *may &= can);
    }
    Ok(may)
}

/// What says which rows of a file may be asked for.
pub(super) struct PrunedFile<'a> {
    pub(super) file: &'a KnownFile,
    pub(super) conditions: &'a [ColumnCondition],
    pub(super) located: &'a [LocatedCondition],
    /// The row groups that footers leave.
    pub(super) groups: &'a [usize],
}

impl PrunedFile<'_> {
    /// Whether filters that are known leave no row group: nothing is read.
    pub(super) fn is_ruled_out(&self, kept: &KeptIndexes) -> bool {
        let rules_out = |group: usize, located: &LocatedCondition| {
            let (Some(leaf), Some(values)) = (&located.leaf, &located.values) else { return false };
            let filter = kept.known_filter((self.file.id, group, leaf.leaf)).flatten();
            filter.is_some_and(|filter| !values.iter().any(|value| value.is_in(&filter)))
        };
        self.groups.iter().all(|group| self.located.iter().any(|one| rules_out(*group, one)))
    }

    /// Whether bloom filters leave a row group.
    ///
    /// # Errors
    /// What reading gives.
    pub(super) fn passes(&self, source: &Source, kept: &KeptIndexes) -> Result<bool> {
        for group in self.groups {
            if self.passes_filters(source, *group, kept)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Which rows may be asked for.
    ///
    /// # Errors
    /// What reading gives.
    pub(super) fn rows(
        &self,
        source: &Source,
        kept: &KeptIndexes,
        cache: &LocationCache,
        context: &Context,
    ) -> Result<RowsLeft> {
        let row_groups_skipped = source.num_row_groups() - self.groups.len();
        let mut left = RowsLeft { row_groups_skipped, ..RowsLeft::default() };
        for group in self.groups.iter().copied() {
            context.check_cancelled()?;
            if !self.passes_filters(source, group, kept)? {
                left.row_groups_skipped += 1;
                continue;
            }
            let start = source.row_group_start(group);
            let mut rows: Vec<_> = once(start..start + source.row_group_rows(group)).collect();
            for (condition, located) in self.conditions.iter().zip(self.located) {
                let Some(leaf) = &located.leaf else { continue };
                if source.chunk(group, leaf.leaf)?.column_index_offset().is_none() {
                    continue;
                }
                let locations = cache.find(source, group, leaf.leaf, context)?;
                let pages = &locations.pages;
                let chunk = (self.file.id, group, leaf.leaf);
                let read = || leaf.of_pages(source, group, pages.len());
                let Some(bounds) = kept.page_bounds(chunk, read)? else { continue };
                let can = can_hold(condition, &bounds, &|page| pages[page].rows)?;
                left.pages += pages.len();
                left.pages_skipped += can.iter().filter(|can| !**can).count();
                let kept = pages.iter().zip(can).filter(|(_, can)| *can).map(|(page, _)| {
                    // A page that begins within a row has a part of the one before it.
                    let first = start + page.first_row;
                    first.saturating_sub(u64::from(!page.row_aligned))..first + page.rows
                });
                rows = intersection(&rows, &joined(kept));
            }
            if rows.is_empty() {
                left.row_groups_skipped += 1;
            }
            left.rows.extend(rows);
        }
        left.rows = joined(std::mem::take(&mut left.rows).into_iter());
        Ok(left)
    }

    /// Whether bloom filters leave it open that one of the values asked for is in a row group.
    fn passes_filters(&self, source: &Source, group: usize, kept: &KeptIndexes) -> Result<bool> {
        for LocatedCondition { leaf, values, .. } in self.located {
            let (Some(leaf), Some(values)) = (leaf, values) else { continue };
            let chunk = (self.file.id, group, leaf.leaf);
            let filter = kept.filter(chunk, || bloom_filter(source, group, leaf.leaf))?;
            let Some(filter) = filter else { continue };
            if !values.iter().any(|value| value.is_in(&filter)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// For which entries of `bounds` a condition may hold; `rows` says how many rows each has.
fn can_hold(
    condition: &ColumnCondition,
    bounds: &LeafBounds,
    rows: &dyn Fn(usize) -> u64,
) -> Result<Vec<bool>> {
    let by_value = condition.can_hold(&bounds.least, &bounds.greatest)?;
    let nulls = &bounds.nulls;
    let can = |(i, by_value): (usize, bool)| {
        let known = (nulls.len() > i && nulls.is_valid(i)).then(|| nulls.value(i));
        let has_null = known != Some(0);
        let has_value = known.is_none_or(|known| known < rows(i)) || bounds.least.is_valid(i);
        (by_value && has_value) || (has_null && condition.holds_for_null())
    };
    Ok(by_value.into_iter().enumerate().map(can).collect())
}

/// A value as a file stores it.
enum FilterValue {
    Int32(i32),
    Int64(i64),
    Bytes(Vec<u8>),
}

impl FilterValue {
    fn is_in(&self, filter: &Sbbf) -> bool {
        match self {
            Self::Int32(value) => filter.check(value),
            Self::Int64(value) => filter.check(value),
            Self::Bytes(value) => filter.check(value.as_slice()),
        }
    }
}

/// The value of an array of one row as `physical`; none where its form is not certain, as of floats.
fn stored(value: &ArrayRef, physical: Type) -> Option<FilterValue> {
    let int32 = |value: i32| (physical == Type::INT32).then_some(FilterValue::Int32(value));
    let int64 = |value: i64| (physical == Type::INT64).then_some(FilterValue::Int64(value));
    let bytes = |value: &[u8]| {
        matches!(physical, Type::BYTE_ARRAY).then(|| FilterValue::Bytes(value.to_vec()))
    };
    match value.data_type() {
        DataType::Int32 => int32(value.as_primitive::<Int32Type>().value(0)),
        DataType::UInt32 => int32(value.as_primitive::<UInt32Type>().value(0).cast_signed()),
        DataType::Date32 => int32(value.as_primitive::<Date32Type>().value(0)),
        DataType::Time32(TimeUnit::Millisecond) => {
            int32(value.as_primitive::<Time32MillisecondType>().value(0))
        }
        DataType::Int64 => int64(value.as_primitive::<Int64Type>().value(0)),
        DataType::UInt64 => int64(value.as_primitive::<UInt64Type>().value(0).cast_signed()),
        DataType::Time64(TimeUnit::Microsecond) => {
            int64(value.as_primitive::<Time64MicrosecondType>().value(0))
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            int64(value.as_primitive::<TimestampMillisecondType>().value(0))
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            int64(value.as_primitive::<TimestampMicrosecondType>().value(0))
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            int64(value.as_primitive::<TimestampNanosecondType>().value(0))
        }
        DataType::Decimal128(..) => {
            let value = value.as_primitive::<Decimal128Type>().value(0);
            match physical {
                Type::INT32 => int32(value.try_into().ok()?),
                Type::INT64 => int64(value.try_into().ok()?),
                _ => None,
            }
        }
        DataType::Utf8 => bytes(value.as_string::<i32>().value(0).as_bytes()),
        DataType::LargeUtf8 => bytes(value.as_string::<i64>().value(0).as_bytes()),
        DataType::Utf8View => bytes(value.as_string_view().value(0).as_bytes()),
        DataType::Binary => bytes(value.as_binary::<i32>().value(0)),
        DataType::LargeBinary => bytes(value.as_binary::<i64>().value(0)),
        DataType::BinaryView => bytes(value.as_binary_view().value(0)),
        _ => None,
    }
}
