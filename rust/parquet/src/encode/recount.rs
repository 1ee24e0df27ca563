//! Statistics of a chunk that is copied whole, where its footer says too little.
//!
//! ```text
//! chunk ─ pages ─▶ blocks ─▶ Facts of each page ─▶ bounds and counts of the chunk, column index
//! ```
//!
//! # Invariants
//! A column of an output has bounds and null counts in all row groups or, where nobody wants them,
//! in none. Readers rely on that: DataFusion takes an absent null count for zero and compares the
//! bounds of all row groups as one array.
//!
//! # Cost
//! A second look at the chunk, which is decoded.
//!
//! # Not here
//! Chunks that are woven (`chunk`): their pages are counted when they are made.

use std::sync::Arc;

use parquet::basic::ColumnOrder;
use parquet::column::writer::ColumnCloseResult;
use parquet::file::metadata::LevelHistogram;
use parquet::schema::types::ColumnDescPtr;
use plait_core::{Error, Kind, Result};

use super::bounds::ValueOrder;
use super::facts::{Facts, PageLevels, ValueFacts};
use super::ids::Ids;
use super::index::IndexWriter;
use super::statistics::{Cut, statistics};
use crate::block::{Block, BlockReader, Layout, Values};
use crate::leaf::{LocationCache, OutputLeaf};
use crate::page::unwrap_error;
use crate::runtime::Context;
use crate::source::{RowGroupOf, Source};

/// Whether the footer says enough of a chunk of `leaf` for an output that has statistics: a null
/// count, and bounds whose order is known unless there is nothing but nulls.
///
/// # Errors
/// A chunk that is not there.
pub(crate) fn is_told(source: &Source, row_group: usize, leaf: usize) -> Result<bool> {
    let chunk = source.chunk(row_group, leaf)?;
    let Some(statistics) = chunk.statistics() else { return Ok(false) };
    let Some(nulls) = statistics.null_count_opt() else { return Ok(false) };
    let bounds = (statistics.min_bytes_opt(), statistics.max_bytes_opt());
    let is_null = i64::try_from(nulls).ok() == Some(chunk.num_values());
    Ok(match (ValueOrder::of(&source.leaf(leaf)), bounds) {
        (_, (None, None)) if is_null => true,
        // Nobody agrees on the order of these.
        (ValueOrder::None, bounds) => bounds == (None, None),
        (_, (Some(_), Some(_))) => {
            let orders = source.file().column_orders();
            let order = orders.and_then(|orders| orders.get(leaf));
            let is_known = matches!(
                order,
                Some(ColumnOrder::TYPE_DEFINED_ORDER(_) | ColumnOrder::IEEE_754_TOTAL_ORDER)
            );
            is_known && !is_null && !statistics.is_min_max_deprecated()
        }
        _ => false,
    })
}

/// Replaces what the footer and the column index say of a chunk by what is counted in its pages.
///
/// # Errors
/// Whatever is wrong with the source.
pub(crate) fn recount(
    close: ColumnCloseResult,
    group: RowGroupOf<'_>,
    leaf: &OutputLeaf,
    cut: Cut,
    cache: &Arc<LocationCache>,
    context: &Context,
) -> Result<ColumnCloseResult> {
    let RowGroupOf { source, index: row_group } = group;
    let Some(index) = leaf.adapter(source.id)?.leaf() else { return Ok(close) };
    let bytes = source.chunk(row_group, index)?.compressed_size().max(0).unsigned_abs();
    context.counters().add_total(bytes);
    let locations = cache.find(source, row_group, index, context)?;
    let start = source.row_group_start(row_group);
    let mut reader = BlockReader::open(source, leaf, start, None, cache, context)?;
    let mut counter = Counter::new(&leaf.descr);
    let mut writer = IndexWriter::new(&leaf.descr, counter.order, cut);
    for page in &locations.pages {
        let mut facts: Option<Facts> = None;
        let mut left = usize::try_from(page.rows).unwrap_or(usize::MAX);
        while left > 0 {
            context.check_cancelled()?;
            let Some((block, _)) = reader.next(left)? else { break };
            left = left.saturating_sub(block.rows);
            let more = counter.facts(&block);
            facts = Some(match facts {
                Some(facts) => facts.with(counter.order, more),
                None => more,
            });
        }
        if let Some(facts) = facts {
            writer.add(page.offset, i32::try_from(page.len).unwrap_or(i32::MAX), facts);
        }
    }
    let (column_index, _, sums) = writer.close()?;
    let metadata = close.metadata;
    if sums.rows != close.rows_written
        || i64::try_from(sums.levels).ok() != Some(metadata.num_values())
    {
        return Err(Error::new(
            Kind::CorruptSource,
            "a chunk has another number of values than its footer says",
        )
        .with_path(source.path())
        .with_column(leaf.descr.path().string())
        .with_got(format!("{} values in {} rows", sums.levels, sums.rows)));
    }
    let nans = sums.nans.filter(|_| counter.order.has_nan());
    let bounds = sums.bounds.as_ref().map(|(bounds, is_exact)| (bounds, *is_exact));
    let statistics = statistics(&leaf.descr, bounds, Some(sums.nulls), nans, cut);
    let histogram = |counts: Option<Vec<i64>>| counts.map(LevelHistogram::from);
    let metadata = metadata
        .into_builder()
        .set_statistics(statistics)
        .set_unencoded_byte_array_data_bytes(sums.bytes)
        .set_repetition_level_histogram(histogram(sums.rep))
        .set_definition_level_histogram(histogram(sums.def))
        .build()
        .map_err(unwrap_error)?;
    Ok(ColumnCloseResult { metadata, column_index, ..close })
}

/// Counts what is in blocks of one chunk.
struct Counter {
    descr: ColumnDescPtr,
    layout: Layout,
    order: ValueOrder,
    ids: Option<Ids>,
}

impl Counter {
    fn new(descr: &ColumnDescPtr) -> Self {
        Self {
            descr: Arc::clone(descr),
            layout: Layout::of(descr),
            order: ValueOrder::of(descr),
            ids: None,
        }
    }

    fn facts(&mut self, block: &Block) -> Facts {
        let found = match &block.values {
            Values::Plain(bytes) => {
                ValueFacts::of_plain(self.order, self.layout, bytes, block.value_count)
            }
            Values::Ids(numbers, dictionary) => {
                let is_held = |ids: &&Ids| Arc::ptr_eq(&ids.dictionary, dictionary);
                if self.ids.as_ref().filter(is_held).is_none() {
                    self.ids = None;
                }
                let ids = self.ids.get_or_insert_with(|| Ids::new(Arc::clone(dictionary), None));
                ValueFacts::of_ids(self.order, self.layout, ids, numbers)
            }
        };
        let levels = PageLevels::new(block.rows, block.value_count, &block.rep, &block.def);
        Facts::count(&self.descr, &levels, found)
    }
}
