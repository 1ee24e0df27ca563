//! What a source's column index says of the pages of a chunk, for pages that are not looked into.
//!
//! ```text
//! column index  page │ min max │ nulls │ NaN │ levels        offset index  │ bytes of text
//! ```
//!
//! # Invariants
//! An index that does not parse, has another number of pages, or whose order is absent is as none.
//! What it says of a page fits the page's header.
//!
//! # Source
//! Parquet format, `ColumnIndex`, `OffsetIndex`, `ColumnOrder`.

use std::sync::Arc;

use parquet::basic::ColumnOrder;
use parquet::data_type::{AsBytes, Int96};
use parquet::file::page_index::column_index::{ColumnIndexMetaData, PrimitiveColumnIndex};
use plait_core::Result;

use crate::page::Locations;
use crate::page::header::{PageHeader, PageKind};
use crate::page::indexes::column_index;
use crate::source::Source;

/// What is known of a page that was not unpacked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownPage {
    /// Values and nulls.
    pub levels: usize,
    /// Levels without a value.
    pub nulls: usize,
    /// NaN among the values.
    pub nans: Option<u64>,
    /// A value below or equal to all, and one above or equal to all; none if there are only nulls.
    pub bounds: Option<(Vec<u8>, Vec<u8>)>,
    /// Bytes of byte arrays without prefixes.
    pub bytes: Option<i64>,
    /// How often each repetition level occurs.
    pub rep: Option<Vec<i64>>,
    /// How often each definition level occurs.
    pub def: Option<Vec<i64>>,
}

/// The indexes of one chunk of a source.
pub(crate) struct ChunkIndex {
    columns: ColumnIndexMetaData,
    locations: Arc<Locations>,
    repeats: bool,
    /// Levels there are: repetition, definition.
    levels: (usize, usize),
}

impl ChunkIndex {
    /// Reads the index of a chunk; `None` if it is of no use.
    ///
    /// # Errors
    /// What reading gives.
    pub(crate) fn open(
        source: &Source,
        row_group: usize,
        leaf: usize,
        locations: &Arc<Locations>,
    ) -> Result<Option<Self>> {
        let orders = source.file().column_orders();
        let order = orders.and_then(|orders| orders.get(leaf));
        if !matches!(
            order,
            Some(ColumnOrder::TYPE_DEFINED_ORDER(_) | ColumnOrder::IEEE_754_TOTAL_ORDER)
        ) {
            return Ok(None);
        }
        let descr = source.leaf(leaf);
        let index = column_index(source, row_group, leaf, locations.pages.len())?;
        let count = |max: i16| usize::try_from(max).unwrap_or(0) + 1;
        Ok(index.map(|columns| Self {
            columns,
            locations: Arc::clone(locations),
            repeats: descr.max_rep_level() > 0,
            levels: (count(descr.max_rep_level()), count(descr.max_def_level())),
        }))
    }

    /// What is known of page `number`, whose header is `header`.
    #[must_use]
    pub(crate) fn page(&self, number: usize, header: &PageHeader) -> Option<KnownPage> {
        let levels = match header.kind {
            PageKind::Data { num_values, .. } | PageKind::DataV2 { num_values, .. } => num_values,
            _ => return None,
        };
        let levels = levels as usize;
        let nulls = usize::try_from(self.columns.null_count(number)?).ok()?;
        if let PageKind::DataV2 { num_nulls, .. } = header.kind
            && num_nulls as usize != nulls
        {
            return None;
        }
        let is_null = self.columns.is_null_page(number);
        // Some writers take a page of lists for one of nulls when it has as many as it has rows.
        if nulls > levels || is_null != (nulls == levels) || (is_null && self.repeats) {
            return None;
        }
        let bounds = if is_null { None } else { Some(bounds(&self.columns, number)?) };
        let counts = |counts: Option<&[i64]>, wanted: usize| {
            let counts = counts.filter(|counts| counts.len() == wanted)?;
            let all = counts.iter().try_fold(0_i64, |sum, n| sum.checked_add(*n));
            let fits = all == i64::try_from(levels).ok() && counts.iter().all(|n| *n >= 0);
            fits.then(|| counts.to_vec())
        };
        let def = counts(self.columns.definition_level_histogram(number), self.levels.1);
        // What counts as a null in a leaf that repeats differs between writers.
        let present = def.as_ref().and_then(|def| def.last());
        if present.is_some_and(|n| usize::try_from(*n) != Ok(levels - nulls)) {
            return None;
        }
        Some(KnownPage {
            levels,
            nulls,
            nans: self.columns.nan_count(number).and_then(|n| u64::try_from(n).ok()),
            bounds,
            bytes: self.locations.unencoded_bytes.get(number).copied().filter(|n| *n >= 0),
            rep: counts(self.columns.repetition_level_histogram(number), self.levels.0),
            def,
        })
    }
}

/// The bounds that an index holds for page `number`; `None` for a page of nulls.
pub(crate) fn bounds(columns: &ColumnIndexMetaData, number: usize) -> Option<(Vec<u8>, Vec<u8>)> {
    fn of<T: AsBytes>(
        index: &PrimitiveColumnIndex<T>,
        number: usize,
    ) -> Option<(Vec<u8>, Vec<u8>)> {
        let (min, max) = (index.min_values().get(number)?, index.max_values().get(number)?);
        Some((min.as_bytes().to_vec(), max.as_bytes().to_vec()))
    }
    match columns {
        ColumnIndexMetaData::BOOLEAN(index) => {
            let (min, max) = (index.min_values().get(number)?, index.max_values().get(number)?);
            Some((vec![u8::from(*min)], vec![u8::from(*max)]))
        }
        ColumnIndexMetaData::INT32(index) => of(index, number),
        ColumnIndexMetaData::INT64(index) => of(index, number),
        ColumnIndexMetaData::INT96(index) => of::<Int96>(index, number),
        ColumnIndexMetaData::FLOAT(index) => of(index, number),
        ColumnIndexMetaData::DOUBLE(index) => of(index, number),
        ColumnIndexMetaData::BYTE_ARRAY(index)
        | ColumnIndexMetaData::FIXED_LEN_BYTE_ARRAY(index) => {
            Some((index.min_value(number)?.to_vec(), index.max_value(number)?.to_vec()))
        }
    }
}
