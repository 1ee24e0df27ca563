//! Indexes and level counts against the pages of a chunk.
//!
//! # Not here
//! The chunk itself (`check`).

use parquet::basic::BoundaryOrder;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use parquet::schema::types::ColumnDescriptor;

use super::chunk::{CheckedChunk, Contradiction, WrittenPage, expect};
use crate::block::index::bounds;
use crate::encode::bounds::ValueOrder;
use crate::page::header::PageKind;

/// The rows at which pages begin, and where they lie.
pub(super) fn check_offsets(
    chunk: &CheckedChunk<'_>,
    offsets: &OffsetIndexMetaData,
) -> Result<(), Contradiction> {
    let places = offsets.page_locations();
    let pages = chunk.data_pages().count();
    expect(places.len() == pages, "offset index has another number of pages", || {
        format!("{} places for {pages} pages", places.len())
    })?;
    let mut next = Some(0);
    let mut before = None;
    for (page, place) in chunk.data_pages().zip(places) {
        let is_there = i64::try_from(page.offset) == Ok(place.offset)
            && i64::from(place.compressed_page_size).unsigned_abs() == page.len;
        expect(is_there, "offset index points at no page", || {
            format!("{place:?}, page at {} of {} bytes", page.offset, page.len)
        })?;
        let first = u64::try_from(place.first_row_index).ok();
        // Where headers do not tell rows, those of the index at least ascend within the row group.
        let is_right = match (first, next) {
            (Some(first), Some(next)) => first == next,
            (Some(first), None) => before.is_none_or(|b| b < first) && first < chunk.rows,
            (None, _) => false,
        };
        expect(is_right, "offset index counts other rows than the pages", || {
            format!("row {} instead of {next:?}", place.first_row_index)
        })?;
        before = first;
        next = page.num_rows(chunk.is_flat()).zip(first).map(|(rows, first)| first + rows);
    }
    Ok(())
}

/// Nulls, bounds and the order of bounds.
pub(super) fn check_columns(
    chunk: &CheckedChunk<'_>,
    columns: &ColumnIndexMetaData,
) -> Result<(), Contradiction> {
    let descr = chunk.metadata.column_descr();
    let pages = chunk.data_pages().count();
    expect(
        usize::try_from(columns.num_pages()) == Ok(pages),
        "column index is of other pages",
        || format!("{} entries for {pages} pages", columns.num_pages()),
    )?;
    let mut all_nulls = Some(0);
    for (number, page) in chunk.data_pages().enumerate() {
        let values = page.num_values();
        let is_null = columns.is_null_page(number);
        let nulls = columns.null_count(number).map(i64::unsigned_abs);
        let in_header = match page.kind {
            PageKind::DataV2 { num_nulls, .. } => Some(u64::from(num_nulls)),
            _ if descr.max_def_level() == 0 => Some(0),
            _ => None,
        };
        let agree = nulls.zip(in_header).is_none_or(|(nulls, header)| nulls == header);
        let fits = agree
            && nulls.is_none_or(|nulls| nulls <= values && (nulls == values) == is_null)
            && in_header.is_none_or(|nulls| !is_null || nulls == values);
        expect(fits, "column index counts other nulls than the page", || {
            format!("page {number}: {nulls:?} nulls of {values} values, null page {is_null}")
        })?;
        let def = columns.definition_level_histogram(number);
        let rep = columns.repetition_level_histogram(number);
        let rows = page.num_rows(chunk.is_flat());
        check_levels(def, rep, values, nulls, rows)?;
        all_nulls = all_nulls.zip(nulls).map(|(all, nulls)| all + nulls);
    }
    check_order(ValueOrder::of(descr), columns)?;
    let (in_pages, in_chunk) = (all_nulls, chunk.nulls());
    let agree = in_pages.zip(in_chunk).is_none_or(|(pages, chunk)| pages == chunk);
    expect(agree, "nulls of pages do not add up to those of the chunk", || {
        format!("{in_pages:?} in the column index, {in_chunk:?} in the footer")
    })
}

/// Whether a column index of the parquet crate is true. The crate compares nulls with rows, which
/// takes a page of repeated values for null when the numbers happen to agree, and orders bounds
/// before it cuts them.
#[must_use]
pub(crate) fn is_true(descr: &ColumnDescriptor, columns: &ColumnIndexMetaData) -> bool {
    let value_level = usize::try_from(descr.max_def_level()).unwrap_or(0);
    let pages = usize::try_from(columns.num_pages()).unwrap_or(0);
    let nulls = (0..pages).all(|page| {
        let levels = columns.definition_level_histogram(page);
        let values = levels.and_then(|levels| levels.get(value_level)).copied();
        !columns.is_null_page(page) || descr.max_rep_level() == 0 || values == Some(0)
    });
    nulls && check_order(ValueOrder::of(descr), columns).is_ok()
}

/// Bounds, and their order.
fn check_order(order: ValueOrder, columns: &ColumnIndexMetaData) -> Result<(), Contradiction> {
    let mut last: Option<(Vec<u8>, Vec<u8>)> = None;
    for number in 0..usize::try_from(columns.num_pages()).unwrap_or(0) {
        if columns.is_null_page(number) {
            continue;
        }
        let Some((min, max)) = bounds(columns, number) else {
            return Err(Contradiction::new("page with values has no bounds", number.to_string()));
        };
        expect(
            order.compare(&min, &max).is_le(),
            "bounds of a page are the wrong way round",
            || format!("page {number}"),
        )?;
        if let Some((last_min, last_max)) = &last {
            let (min, max) = (order.compare(last_min, &min), order.compare(last_max, &max));
            let is_right = match columns.get_boundary_order() {
                Some(BoundaryOrder::ASCENDING) => min.is_le() && max.is_le(),
                Some(BoundaryOrder::DESCENDING) => min.is_ge() && max.is_ge(),
                _ => true,
            };
            expect(is_right, "bounds of pages are not in the order that is declared", || {
                format!("page {number}, {:?}", columns.get_boundary_order())
            })?;
        }
        last = Some((min, max));
    }
    Ok(())
}

/// Level counts of the whole chunk.
pub(super) fn check_sizes(chunk: &CheckedChunk<'_>) -> Result<(), Contradiction> {
    let counts = |histogram: Option<&parquet::file::metadata::LevelHistogram>| {
        histogram.map(|histogram| histogram.values().to_vec())
    };
    let def = counts(chunk.metadata.definition_level_histogram());
    let rep = counts(chunk.metadata.repetition_level_histogram());
    let values: u64 = chunk.data_pages().map(WrittenPage::num_values).sum();
    check_levels(def.as_deref(), rep.as_deref(), values, chunk.nulls(), Some(chunk.rows))
}

/// Counts of definition and repetition levels, where there are any.
fn check_levels(
    def: Option<&[i64]>,
    rep: Option<&[i64]>,
    values: u64,
    nulls: Option<u64>,
    rows: Option<u64>,
) -> Result<(), Contradiction> {
    let what = "level histograms do not count the levels";
    for (name, counts) in [("definition", def), ("repetition", rep)] {
        let Some(counts) = counts.filter(|counts| !counts.is_empty()) else { continue };
        let all = counts.iter().try_fold(0_u64, |sum, n| sum.checked_add(u64::try_from(*n).ok()?));
        expect(all == Some(values), what, || {
            format!("{counts:?} {name} levels of {values} values")
        })?;
    }
    let present = def.and_then(<[i64]>::last).zip(nulls);
    expect(present.is_none_or(|(n, nulls)| n.unsigned_abs() + nulls == values), what, || {
        format!("{def:?} definition levels, {nulls:?} nulls of {values} values")
    })?;
    let begun = rep.and_then(<[i64]>::first).zip(rows);
    expect(begun.is_none_or(|(n, rows)| n.unsigned_abs() == rows), what, || {
        format!("{rep:?} repetition levels, {rows:?} rows")
    })
}
