//! Is a file what its footer and its indexes say?
//!
//! ```text
//! bytes of an output ─▶ Walk: headers of pages ─┐
//!                                               ├─▶ the same, or the output is not published
//! footer, column index, offset index ───────────┘
//! ```
//!
//! # Invariants
//! An output that passes can be found page by page through its footer and through its offset index;
//! its pages have the rows, values, nulls and encodings that are declared; a page of ids has a
//! dictionary; bounds of pages ascend or descend where the index says so.
//!
//! # Cost
//! One look at the header of each page, 64 bytes a page until the file is finished.
//!
//! # Not here
//! Bodies of pages: those made here are checked before they are packed (`encode::body`), those of
//! sources by whoever takes them.

mod chunk;
mod index;
mod orders;
mod unbounded;
mod walk;

use std::ops::Range;

use parquet::file::metadata::{PageEncodingStats, ParquetMetaData};
use plait_core::{Kind, Result};

use crate::block::decode::is_ids;
use crate::page::header::PageKind;

use chunk::expect;
pub(crate) use chunk::{CheckedChunk, Contradiction, WrittenPage, encoding_stats};
pub(crate) use index::is_true;
pub(crate) use orders::declare_type_defined;
pub(crate) use unbounded::{drop_bounds, partly_bounded};
pub(crate) use walk::Walk;

impl CheckedChunk<'_> {
    /// Compares the pages with everything that is said of them.
    ///
    /// # Errors
    /// The first contradiction.
    pub(crate) fn check(&self) -> Result<(), Contradiction> {
        self.check_places()?;
        self.check_dictionary()?;
        self.check_counts()?;
        self.check_encodings()?;
        if let Some(offsets) = self.offsets {
            index::check_offsets(self, offsets)?;
        }
        if let Some(columns) = self.columns {
            index::check_columns(self, columns)?;
        }
        index::check_sizes(self)
    }

    fn check_places(&self) -> Result<(), Contradiction> {
        let chunk = self.metadata;
        let offset = |offset: i64| u64::try_from(offset).ok();
        let Some(first) = self.pages.first() else {
            return expect(chunk.num_values() == 0, "chunk has values and no pages", || {
                format!("{} values", chunk.num_values())
            });
        };
        let mut at = first.offset;
        for page in self.pages {
            expect(page.offset == at, "pages do not follow each other", || {
                format!("a page at {} instead of {at}", page.offset)
            })?;
            at += page.len;
        }
        let len = at - first.offset;
        expect(offset(chunk.compressed_size()) == Some(len), "chunk has another length", || {
            format!("{len} bytes of pages, {} declared", chunk.compressed_size())
        })?;
        let dictionary = first.is_dictionary().then_some(first.offset);
        expect(
            chunk.dictionary_page_offset().and_then(offset) == dictionary,
            "dictionary page is not where the footer says",
            || format!("{dictionary:?} instead of {:?}", chunk.dictionary_page_offset()),
        )?;
        let Some(data) = self.data_pages().next() else { return Ok(()) };
        expect(
            offset(chunk.data_page_offset()) == Some(data.offset),
            "first data page is not where the footer says",
            || format!("{} instead of {}", data.offset, chunk.data_page_offset()),
        )
    }

    fn check_dictionary(&self) -> Result<(), Contradiction> {
        let has_dictionary = self.pages.first().is_some_and(WrittenPage::is_dictionary);
        for (number, page) in self.pages.iter().enumerate() {
            let is_data = matches!(page.kind, PageKind::Data { .. } | PageKind::DataV2 { .. });
            expect(
                is_data || (number == 0 && page.is_dictionary()),
                "chunk has a page that is neither its dictionary nor data",
                || format!("page {number}: {:?}", page.kind),
            )?;
            expect(
                has_dictionary || !(is_data && page.encoding().is_some_and(is_ids)),
                "page of ids has no dictionary",
                || format!("page {number} at {}", page.offset),
            )?;
        }
        Ok(())
    }

    fn num_values(&self) -> u64 {
        self.data_pages().map(WrittenPage::num_values).sum()
    }

    fn check_counts(&self) -> Result<(), Contradiction> {
        let (values, declared) = (self.num_values(), self.metadata.num_values());
        expect(u64::try_from(declared).ok() == Some(values), "chunk has other values", || {
            format!("{values} in pages, {declared} declared")
        })?;
        let rows: Option<u64> = self.data_pages().map(|page| page.num_rows(self.is_flat())).sum();
        expect(rows.is_none_or(|rows| rows == self.rows), "chunk has other rows", || {
            format!("{} in pages, {} in the row group", rows.unwrap_or(0), self.rows)
        })?;
        expect(values >= self.rows, "chunk has fewer values than rows", || {
            format!("{values} values, {} rows", self.rows)
        })?;
        let nulls = self.nulls().unwrap_or(0);
        expect(nulls <= values, "chunk has more nulls than values", || {
            format!("{nulls} nulls, {values} values")
        })
    }

    fn check_encodings(&self) -> Result<(), Contradiction> {
        let declared = self.metadata.encodings_mask();
        for page in self.pages {
            let encoding = page.encoding();
            expect(
                encoding.is_none_or(|encoding| declared.is_set(encoding)),
                "chunk has a page of an encoding that the footer does not name",
                || format!("{} of {encoding:?}", page.page_type()),
            )?;
        }
        let Some(declared) = self.metadata.page_encoding_stats() else { return Ok(()) };
        let found = encoding_stats(self.pages);
        let count = |stats: &[PageEncodingStats], of: &PageEncodingStats| -> i64 {
            let same =
                stats.iter().filter(|s| s.page_type == of.page_type && s.encoding == of.encoding);
            same.map(|s| i64::from(s.count)).sum()
        };
        for of in found.iter().chain(declared) {
            let (pages, said) = (count(&found, of), count(declared, of));
            expect(pages == said, "encoding_stats do not count the pages", || {
                format!("{pages} pages ({}, {}), {said} declared", of.page_type, of.encoding)
            })?;
        }
        Ok(())
    }
}

/// Compares the pages of a whole file with its footer and its indexes, but for chunks in the ranges of
/// `unseen`, whose pages were not read.
///
/// # Errors
/// [`Kind::Internal`] with row group and column where they contradict each other.
pub(crate) fn check_file(
    pages: &[WrittenPage],
    unseen: &[Range<u64>],
    metadata: &ParquetMetaData,
) -> Result<()> {
    let index = metadata.page_index();
    let mut rows = 0;
    let mut end = 0;
    for (number, group) in metadata.row_groups().iter().enumerate() {
        let group_rows = group.num_rows().max(0).unsigned_abs();
        for (leaf, chunk) in group.columns().iter().enumerate() {
            let start = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
            let start = start.max(0).unsigned_abs();
            let stop = start + chunk.compressed_size().max(0).unsigned_abs();
            let first = pages.partition_point(|page| page.offset < start);
            let last = pages.partition_point(|page| page.offset < stop);
            let checked = CheckedChunk {
                pages: pages.get(first..last).unwrap_or_default(),
                metadata: chunk,
                columns: index.and_then(|index| index.column_index(number, leaf)),
                offsets: index.and_then(|index| index.offset_index(number, leaf)),
                rows: group_rows,
            };
            let is_unseen = unseen.iter().any(|at| at.start <= start && stop <= at.end);
            let outcome = if is_unseen { Ok(()) } else { checked.check() };
            let outcome = outcome.and_then(|()| {
                expect(start >= end || start == stop, "chunks overlap", || {
                    format!("one begins at {start}, the one before ends at {end}")
                })
            });
            outcome.map_err(|e| {
                let e = e.into_error(Kind::Internal).with_column(chunk.column_path().string());
                e.with_prefix(&format!("row group {number}"))
            })?;
            end = stop.max(end);
        }
        rows += group_rows;
    }
    let declared = metadata.file_metadata().num_rows();
    expect(u64::try_from(declared).ok() == Some(rows), "row groups do not add up", || {
        format!("{rows} rows, {declared} declared")
    })
    .map_err(|e| e.into_error(Kind::Internal))
}

#[cfg(test)]
mod tests;
