//! Bounds of floats as the order that the footer declares has them.
//!
//! ```text
//! IEEE 754 total order   -0 < +0; NaN counted, and bounds only where there is nothing else
//! type-defined order     a zero bounds both zeros: min -0, max +0; no bounds where NaN are counted
//! ```
//!
//! # Invariants
//! A column has one order in a file. It is the total order if every chunk that may be copied says
//! how many NaN it has and was written with that order; otherwise all chunks, those made here too,
//! go by the type-defined one. Bounds of that order leave NaN out, and Spark, to which NaN is the
//! greatest value, prunes by them all the same. So what is known to have NaN has no bounds there;
//! what is copied and not counted keeps the bounds of its source.
//!
//! # Source
//! Parquet format, `ColumnOrder`, `Statistics.nan_count`.

use std::collections::BTreeSet;

use parquet::basic::BoundaryOrder;
use parquet::column::writer::ColumnCloseResult;
use parquet::file::metadata::{ColumnIndexBuilder, LevelHistogram};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::schema::types::ColumnDescriptor;
use plait_core::Result;

use super::bounds::{Bounds, ValueOrder};
use super::facts::Facts;
use super::statistics::{Cut, statistics};
use crate::block::index::bounds;
use crate::page::unwrap_error;

/// How the footer orders the floats of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FloatOrder {
    /// IEEE 754 total order; NaN are counted.
    #[default]
    Total,
    /// The order of old: what NaN and the signs of zeros are compared as is not defined.
    TypeDefined,
}

impl FloatOrder {
    /// The order of `leaf`, if the leaves `type_defined` go by the type-defined one.
    #[must_use]
    pub(crate) fn of(type_defined: &BTreeSet<usize>, leaf: usize) -> Self {
        match type_defined.contains(&leaf) {
            true => Self::TypeDefined,
            false => Self::Total,
        }
    }

    /// What is said of a page: no bounds where they would hide NaN.
    #[must_use]
    pub(crate) fn bounded(self, facts: Facts) -> Facts {
        let hides_nans = self == Self::TypeDefined && facts.nans.is_some_and(|nans| nans > 0);
        Facts { bounds: facts.bounds.filter(|_| !hides_nans), ..facts }
    }

    /// What is said of a chunk of any column, in this order if it is one of floats.
    ///
    /// # Errors
    /// Whatever the parquet crate has against the outcome.
    pub(crate) fn apply(self, close: ColumnCloseResult) -> Result<ColumnCloseResult> {
        match self {
            Self::Total => Ok(close),
            Self::TypeDefined => to_type_defined(close),
        }
    }
}

/// Makes bounds of floats, which may be of any origin, those of the type-defined order; leaves out
/// what cannot be.
fn to_type_defined(mut close: ColumnCloseResult) -> Result<ColumnCloseResult> {
    let descr = close.metadata.column_descr_ptr();
    let order = ValueOrder::of(&descr);
    if !order.has_nan() {
        return Ok(close);
    }
    if let Some(known) = close.metadata.statistics().filter(|known| !known.is_min_max_deprecated())
        && let (Some(min), Some(max)) = (known.min_bytes_opt(), known.max_bytes_opt())
    {
        let has_nan = known.nan_count_opt().is_some_and(|nans| nans > 0);
        let admitted = order.admit(min.to_vec(), max.to_vec()).filter(|_| !has_nan);
        let is_exact = known.min_is_exact()
            && known.max_is_exact()
            && admitted.as_ref().is_some_and(|bounds| bounds.min == min && bounds.max == max);
        let (nulls, nans) = (known.null_count_opt(), known.nan_count_opt());
        let whole = Cut { footer_bytes: usize::MAX, index_bytes: usize::MAX };
        let bounds = admitted.as_ref().map(|bounds| (bounds, is_exact));
        let made = statistics(&descr, bounds, nulls, nans, whole);
        let builder = close.metadata.into_builder().set_statistics(made);
        close.metadata = builder.build().map_err(unwrap_error)?;
    }
    close.column_index = match close.column_index {
        Some(columns) => rebuild(&descr, order, &columns)?,
        None => None,
    };
    Ok(close)
}

/// The column index with such bounds; `None` if a page has no such bounds.
fn rebuild(
    descr: &ColumnDescriptor,
    order: ValueOrder,
    columns: &ColumnIndexMetaData,
) -> Result<Option<ColumnIndexMetaData>> {
    let mut builder = ColumnIndexBuilder::new(descr.physical_type());
    let (mut ascending, mut descending) = (true, true);
    let mut last: Option<Bounds> = None;
    for page in 0..usize::try_from(columns.num_pages()).unwrap_or(0) {
        let Some(nulls) = columns.null_count(page) else { return Ok(None) };
        if columns.nan_count(page).is_some_and(|nans| nans > 0) {
            return Ok(None);
        }
        let is_null = columns.is_null_page(page);
        let bounds = match bounds(columns, page).filter(|_| !is_null) {
            Some((min, max)) => order.admit(min, max),
            None => None,
        };
        if bounds.is_none() && !is_null {
            return Ok(None);
        }
        if let Some(now) = &bounds {
            if let Some(last) = &last {
                let min = order.compare(&last.min, &now.min);
                let max = order.compare(&last.max, &now.max);
                ascending &= min.is_le() && max.is_le();
                descending &= min.is_ge() && max.is_ge();
            }
            last = Some(now.clone());
        }
        let Bounds { min, max } = bounds.unwrap_or_default();
        builder.append(is_null, min, max, nulls, columns.nan_count(page));
        let histogram =
            |counts: Option<&[i64]>| counts.map(|counts| LevelHistogram::from(counts.to_vec()));
        builder.append_histograms(
            &histogram(columns.repetition_level_histogram(page)),
            &histogram(columns.definition_level_histogram(page)),
        );
    }
    builder.set_boundary_order(match (ascending, descending) {
        (true, _) => BoundaryOrder::ASCENDING,
        (false, true) => BoundaryOrder::DESCENDING,
        (false, false) => BoundaryOrder::UNORDERED,
    });
    builder.build().map(Some).map_err(unwrap_error)
}
