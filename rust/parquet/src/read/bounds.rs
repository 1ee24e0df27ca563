//! LeafBounds of the values of one leaf, a row group or a page at a time, as arrays of its column's type.
//!
//! # Invariants
//! A bound that may be wrong is null: those of old writers, of orders that are not defined, and of
//! values that the column's type cannot hold.
//!
//! # Cost
//! Row groups: the footer, which is in memory. Pages: one read of the column index.
//!
//! # Not here
//! Whether a condition can hold between them (`plait_core::predicate`).

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, UInt64Array, new_null_array};
use arrow_cast::cast;
use arrow_schema::{DataType, Field};
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::basic::{ColumnOrder, Type};
use parquet::file::metadata::page_index::PageIndexProvider;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use plait_core::key::{KeyColumn, KeyShape, KeyType, Nulls, SortColumn, encode_arrow};
use plait_core::{Error, Result};

use crate::page::indexes::column_index;
use crate::page::{guard, unwrap_error};
use crate::source::Source;

/// Where the values of a column are in one file.
#[derive(Clone, Debug)]
pub(super) struct FileLeaf {
    /// The leaf, in the order of the file.
    pub(super) leaf: usize,
    /// Its type in the file.
    pub(super) field: Field,
    /// The type of the column it becomes.
    pub(super) data_type: DataType,
}

/// LeafBounds, one entry a row group or page; nulls are not known.
pub(super) struct LeafBounds {
    pub(super) least: ArrayRef,
    pub(super) greatest: ArrayRef,
    /// How many values are null.
    pub(super) nulls: UInt64Array,
}

/// A key, and the row group it is a bound of.
type GroupKey = (Vec<u8>, usize);

/// The first and the last value of a column in a file.
struct Ends {
    first: ArrayRef,
    low: Vec<u8>,
    high: Vec<u8>,
    may_be_null: bool,
}

impl FileLeaf {
    /// The bounds of all row groups.
    pub(super) fn of_row_groups(&self, source: &Source) -> Result<LeafBounds> {
        let footer = source.footer()?;
        let groups = footer.row_groups();
        let converter = self.converter(source)?;
        let nulls = converter.row_group_null_counts(groups).map_err(unwrap_error)?;
        let chunk = |group: &RowGroupMetaData| group.columns().get(self.leaf).cloned();
        let is_old = |group: &RowGroupMetaData| {
            chunk(group)
                .as_ref()
                .and_then(ColumnChunkMetaData::statistics)
                .is_none_or(|s| s.is_min_max_deprecated())
        };
        if !self.has_order(source) || groups.iter().any(is_old) {
            return Ok(self.unknown(groups.len(), nulls));
        }
        let made = guard(|| {
            let least = converter.row_group_mins(groups).map_err(unwrap_error)?;
            let greatest = converter.row_group_maxes(groups).map_err(unwrap_error)?;
            Ok::<_, Error>((least, greatest))
        });
        Ok(match made {
            Ok(Ok((least, greatest))) => self.bounds(&least, &greatest, nulls),
            // LeafBounds only save reads: those that do not convert are not known.
            Ok(Err(_)) | Err(_) => self.unknown(groups.len(), nulls),
        })
    }

    /// The bounds of the `pages` pages of one chunk, where the file has them.
    pub(super) fn of_pages(
        &self,
        source: &Source,
        row_group: usize,
        pages: usize,
    ) -> Result<Option<LeafBounds>> {
        if !self.has_order(source) {
            return Ok(None);
        }
        let Some(index) = column_index(source, row_group, self.leaf, pages)? else {
            return Ok(None);
        };
        let converter = self.converter(source)?;
        let index = OneIndex { index, row_group, leaf: self.leaf };
        let groups = [row_group];
        let made = guard(|| {
            let least = converter.data_page_mins(&index, &groups).ok()?;
            let greatest = converter.data_page_maxes(&index, &groups).ok()?;
            let nulls = converter.data_page_null_counts(&index, &groups).ok()?;
            (least.len() == pages && greatest.len() == pages && nulls.len() == pages)
                .then_some((least, greatest, nulls))
        });
        Ok(made
            .ok()
            .flatten()
            .map(|(least, greatest, nulls)| self.bounds(&least, &greatest, nulls)))
    }

    fn converter<'a>(&'a self, source: &'a Source) -> Result<StatisticsConverter<'a>> {
        let file = source.file();
        StatisticsConverter::from_column_index(self.leaf, &self.field, file.schema_descr())
            .map(|made| {
                made.with_missing_null_counts_as_zero(false)
                    .with_column_orders(file.column_orders().map(Vec::as_slice))
            })
            .map_err(unwrap_error)
    }

    /// Whether bounds of the leaf are in the order of its values.
    fn has_order(&self, source: &Source) -> bool {
        let orders = source.file().column_orders();
        let is_defined = matches!(
            orders.and_then(|orders| orders.get(self.leaf)),
            Some(
                ColumnOrder::TYPE_DEFINED_ORDER(_)
                    | ColumnOrder::IEEE_754_TOTAL_ORDER
                    | ColumnOrder::INT96_TIMESTAMP_ORDER
            )
        );
        let physical = source.leaf(self.leaf).physical_type();
        let is_signed = matches!(self.field.data_type(), DataType::Int32 | DataType::Int64)
            && matches!(physical, Type::INT32 | Type::INT64);
        // LeafBounds of Date64, intervals and half floats are stored as other types.
        let is_plain = !matches!(
            self.field.data_type(),
            DataType::Date64 | DataType::Interval(_) | DataType::Float16
        );
        (is_defined || is_signed) && is_plain
    }

    fn unknown(&self, len: usize, nulls: UInt64Array) -> LeafBounds {
        let none = || new_null_array(&self.data_type, len);
        LeafBounds { least: none(), greatest: none(), nulls }
    }

    fn bounds(&self, least: &ArrayRef, greatest: &ArrayRef, nulls: UInt64Array) -> LeafBounds {
        let len = least.len();
        let cast = |array: &ArrayRef| match array.data_type() == &self.data_type {
            true => Ok(Arc::clone(array)),
            false => cast(array, &self.data_type),
        };
        let is_float = matches!(self.field.data_type(), DataType::Float32 | DataType::Float64);
        match (cast(least), cast(greatest)) {
            // LeafBounds pass over NaN, which is above all others.
            (Ok(least), Ok(_)) if is_float => {
                let least = without_nan(&least);
                LeafBounds { least, greatest: new_null_array(&self.data_type, len), nulls }
            }
            (Ok(least), Ok(greatest)) => LeafBounds { least, greatest, nulls },
            _ => self.unknown(len, nulls),
        }
    }
}

impl LeafBounds {
    /// The least and greatest key of the values of row groups, in the order of `column`; none where a
    /// bound is not known, or a value may be null. `rows` says how many rows each has.
    pub(super) fn range(
        &self,
        rows: &dyn Fn(usize) -> u64,
        column: &SortColumn,
    ) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let ends = self.ends(rows, column)?;
        Ok(ends.filter(|ends| !ends.may_be_null).map(|ends| (ends.low, ends.high)))
    }

    /// The bound that comes first in the order of `column`, in an array of one row, and whether all
    /// rows have it; none where a bound is not known, or a null may come before it.
    pub(super) fn first(
        &self,
        rows: &dyn Fn(usize) -> u64,
        column: &SortColumn,
    ) -> Result<Option<(ArrayRef, bool)>> {
        let Some(ends) = self.ends(rows, column)? else { return Ok(None) };
        if ends.may_be_null && column.nulls == Nulls::First {
            return Ok(None);
        }
        // Bounds may be cut short: two equal ones are of one value only if they are whole.
        let is_whole = self.least.data_type().is_primitive() && !ends.may_be_null;
        Ok(Some((ends.first, is_whole && ends.low == ends.high)))
    }

    fn ends(&self, rows: &dyn Fn(usize) -> u64, column: &SortColumn) -> Result<Option<Ends>> {
        let groups: Vec<usize> = (0..self.least.len()).filter(|group| rows(*group) > 0).collect();
        let (firsts, lasts) = match column.descending {
            true => (&self.greatest, &self.least),
            false => (&self.least, &self.greatest),
        };
        let ty = KeyType::from_arrow(self.least.data_type())?;
        let (descending, nulls) = (column.descending, column.nulls);
        let key = KeyColumn { name: column.dotted(), ty, descending, nulls };
        let shape = KeyShape::try_new(vec![key])?;
        let keys = |bounds: &ArrayRef| -> Result<Option<Vec<GroupKey>>> {
            if groups.iter().any(|group| bounds.is_null(*group)) {
                return Ok(None);
            }
            let keys = encode_arrow(&shape, std::slice::from_ref(bounds))?;
            Ok(Some(groups.iter().map(|group| (keys.to_bytes(&shape, *group), *group)).collect()))
        };
        let low = keys(firsts)?.and_then(|keys| keys.into_iter().min());
        let Some((low, group)) = low else { return Ok(None) };
        let high = keys(lasts)?.and_then(|keys| keys.into_iter().max());
        // Where the other end is not known, the first is all the same.
        let (high, is_known) = high.map_or((low.clone(), false), |(high, _)| (high, true));
        let nulls = &self.nulls;
        let has_null = |group: &usize| nulls.is_null(*group) || nulls.value(*group) > 0;
        let may_be_null = !is_known || groups.iter().any(has_null);
        Ok(Some(Ends { first: firsts.slice(group, 1), low, high, may_be_null }))
    }
}

/// A bound of NaN says nothing.
fn without_nan(bounds: &ArrayRef) -> ArrayRef {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Float32Type, Float64Type};
    if let Some(bounds) = bounds.as_primitive_opt::<Float64Type>() {
        return Arc::new(bounds.unary_opt::<_, Float64Type>(|v| (!v.is_nan()).then_some(v)));
    }
    match bounds.as_primitive_opt::<Float32Type>() {
        Some(bounds) => {
            Arc::new(bounds.unary_opt::<_, Float32Type>(|v| (!v.is_nan()).then_some(v)))
        }
        None => new_null_array(bounds.data_type(), bounds.len()),
    }
}

/// The column index of one chunk, as the parquet crate takes it.
#[derive(Debug)]
struct OneIndex {
    index: ColumnIndexMetaData,
    row_group: usize,
    leaf: usize,
}

impl PageIndexProvider for OneIndex {
    fn has_offset_indexes(&self) -> bool {
        false
    }

    fn has_column_indexes(&self) -> bool {
        true
    }

    fn column_index(&self, row_group: usize, leaf: usize) -> Option<&ColumnIndexMetaData> {
        ((row_group, leaf) == (self.row_group, self.leaf)).then_some(&self.index)
    }

    fn offset_index(&self, _: usize, _: usize) -> Option<&OffsetIndexMetaData> {
        None
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}
