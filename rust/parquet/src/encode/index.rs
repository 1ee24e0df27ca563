//! The indexes of a chunk, page by page, and the sums that its footer holds.
//!
//! ```text
//! Facts of each page ─▶ column index, offset index, bounds, counts
//! ```
//!
//! # Invariants
//! What one page does not know (NaN, histograms, bytes), the chunk does not know. The bounds of the
//! chunk are those of its pages; they count as exact only if those of all pages are.
//!
//! # Cost
//! About 100 bytes a page until the chunk is closed.
//!
//! # Not here
//! What is in a page (`facts`).

use parquet::basic::BoundaryOrder;
use parquet::file::metadata::{ColumnIndexBuilder, LevelHistogram, OffsetIndexBuilder};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use parquet::schema::types::ColumnDescPtr;
use plait_core::Result;

use super::bounds::{Bounds, ValueOrder};
use super::facts::{Facts, add_up, widen};
use super::statistics::Cut;
use crate::page::unwrap_error;

/// Collects what is said of pages.
pub(crate) struct IndexWriter {
    descr: ColumnDescPtr,
    order: ValueOrder,
    cut: Cut,
    pages: Vec<IndexedPage>,
    last: Option<Bounds>,
    ascending: bool,
    descending: bool,
    /// Whether every page with values has bounds.
    is_bounded: bool,
    sums: Sums,
}

struct IndexedPage {
    offset: u64,
    len: i32,
    facts: Facts,
}

/// What pages add up to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    /// Rows.
    pub rows: u64,
    /// Values and nulls.
    pub levels: u64,
    /// Levels without a value.
    pub nulls: u64,
    /// NaN, if all are counted.
    pub nans: Option<u64>,
    /// Smallest and greatest value, and whether they are exact.
    pub bounds: Option<(Bounds, bool)>,
    /// Bytes of byte arrays without prefixes, if all are counted.
    pub bytes: Option<i64>,
    /// Repetition levels, if all are counted.
    pub rep: Option<Vec<i64>>,
    /// Definition levels, if all are counted.
    pub def: Option<Vec<i64>>,
}

impl IndexWriter {
    /// Indexes of a chunk of the leaf `descr`.
    #[must_use]
    pub(crate) fn new(descr: &ColumnDescPtr, order: ValueOrder, cut: Cut) -> Self {
        Self {
            descr: ColumnDescPtr::clone(descr),
            order,
            cut,
            pages: Vec::new(),
            last: None,
            ascending: true,
            descending: true,
            is_bounded: true,
            sums: Sums::default(),
        }
    }

    /// Adds a page of `len` bytes at `offset`.
    pub(crate) fn add(&mut self, offset: u64, len: i32, mut facts: Facts) {
        self.sums.rows += facts.rows as u64;
        self.sums.levels += facts.levels as u64;
        self.sums.nulls += facts.nulls as u64;
        match &mut facts.bounds {
            None => self.is_bounded &= facts.nulls == facts.levels,
            Some(bounds) => {
                widen(self.order, &mut self.sums.bounds, bounds, facts.is_exact);
                // Readers halve by what the index holds: bounds that are cut may be in another
                // order.
                let (min, max) = self.cut.for_index(&self.descr, bounds);
                *bounds = Bounds { min, max };
                if let Some(last) = &self.last {
                    let min = self.order.compare(&last.min, &bounds.min);
                    let max = self.order.compare(&last.max, &bounds.max);
                    self.ascending &= min.is_le() && max.is_le();
                    self.descending &= min.is_ge() && max.is_ge();
                }
                self.last = Some(bounds.clone());
            }
        }
        self.pages.push(IndexedPage { offset, len, facts });
    }

    /// Column index (none if it cannot be), offset index, and what the footer needs.
    ///
    /// # Errors
    /// Whatever the parquet crate has against the indexes.
    pub(crate) fn close(self) -> Result<(Option<ColumnIndexMetaData>, OffsetIndexMetaData, Sums)> {
        let mut sums = self.sums;
        let all = || self.pages.iter().map(|page| &page.facts);
        // Bounds of some pages are no bounds of all.
        sums.bounds = sums.bounds.filter(|_| self.is_bounded);
        sums.nans = all().map(|facts| facts.nans).sum();
        sums.bytes = all().map(|facts| facts.bytes).sum::<Option<i64>>();
        sums.bytes = sums.bytes.filter(|_| !self.pages.is_empty());
        let counts_nans = self.order.has_nan() && sums.nans.is_some();
        let counts_bytes = sums.bytes.is_some();
        sums.rep = add_up(all().map(|facts| facts.rep.as_deref()));
        sums.def = add_up(all().map(|facts| facts.def.as_deref()));
        let has_rep = sums.rep.is_some();
        let has_def = sums.def.is_some();
        let mut offsets = OffsetIndexBuilder::new();
        let mut columns = ColumnIndexBuilder::new(self.descr.physical_type());
        for IndexedPage { offset, len, facts } in self.pages {
            offsets.append_row_count(signed(facts.rows as u64));
            offsets.append_offset_and_size(signed(offset), len);
            offsets.append_unencoded_byte_array_data_bytes(facts.bytes.filter(|_| counts_bytes));
            let nans = facts.nans.filter(|_| counts_nans).map(signed);
            let is_null = facts.bounds.is_none();
            let Bounds { min, max } = facts.bounds.unwrap_or_default();
            columns.append(is_null, min, max, signed(facts.nulls as u64), nans);
            columns.append_histograms(
                &facts.rep.filter(|_| has_rep).map(LevelHistogram::from),
                &facts.def.filter(|_| has_def).map(LevelHistogram::from),
            );
        }
        columns.set_boundary_order(match (self.ascending, self.descending) {
            (true, _) => BoundaryOrder::ASCENDING,
            (false, true) => BoundaryOrder::DESCENDING,
            (false, false) => BoundaryOrder::UNORDERED,
        });
        let columns = match self.is_bounded {
            true => Some(columns.build().map_err(unwrap_error)?),
            false => None,
        };
        Ok((columns, offsets.build(), sums))
    }
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
