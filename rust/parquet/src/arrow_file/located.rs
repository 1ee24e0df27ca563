//! Some rows of one row group, of pages that an index finds: nothing else is read.
//!
//! # Cost
//! The pages of the rows that are wanted, one of each leaf at a time. Rows that are read in several
//! batches hold them in between, with the dictionaries.
//!
//! # Not here
//! Files that are read from end to end (`pages`).

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ParquetRecordBatchReader, RowGroups, RowSelection, RowSelector,
};
use parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use plait_core::{Error, Kind, Result};

use super::{FileSchema, levels};
use crate::leaf::{LocationCache, ReadOn, will_read_chunk};
use crate::page::{Kept, Pages, guard, unwrap_error};
use crate::runtime::Context;
use crate::source::Source;

/// More ranges of rows than these lie far apart: their pages are requested one by one.
const EXPECTED_RANGES_MAX: usize = 64;

/// Where rows are looked up.
#[derive(Clone)]
pub(crate) struct Located {
    pub(crate) source: Arc<Source>,
    pub(crate) schema: FileSchema,
    pub(crate) cache: Arc<LocationCache>,
    pub(crate) context: Context,
}

impl Located {
    /// Rows of a row group, in ranges that ascend: of `leaves`, or of all.
    ///
    /// # Errors
    /// Whatever is wrong with the file. Fewer rows are no error.
    pub(crate) fn read(
        &self,
        row_group: usize,
        rows: &[Range<usize>],
        leaves: Option<&[usize]>,
    ) -> Result<Option<RecordBatch>> {
        self.read_rows(row_group, rows, leaves).map_err(|e| e.with_path(self.source.path()))
    }

    fn read_rows(
        &self,
        row_group: usize,
        rows: &[Range<usize>],
        leaves: Option<&[usize]>,
    ) -> Result<Option<RecordBatch>> {
        let count: usize = rows.iter().map(ExactSizeIterator::len).sum();
        self.open(row_group, rows, leaves, count)?.next()
    }

    /// The same rows in batches of `batch_rows`.
    ///
    /// # Errors
    /// Whatever is wrong with the file.
    pub(crate) fn begin(
        &self,
        row_group: usize,
        rows: &[Range<usize>],
        leaves: &[usize],
        batch_rows: usize,
    ) -> Result<LocatedRows> {
        let opened = self.open(row_group, rows, Some(leaves), batch_rows);
        opened.map_err(|e| e.with_path(self.source.path()))
    }

    fn open(
        &self,
        row_group: usize,
        rows: &[Range<usize>],
        leaves: Option<&[usize]>,
        batch_rows: usize,
    ) -> Result<LocatedRows> {
        self.will_read(row_group, rows, leaves);
        let descr = self.source.schema();
        let mask = match leaves {
            Some(leaves) => ProjectionMask::leaves(descr, leaves.iter().copied()),
            None => ProjectionMask::all(),
        };
        let levels = levels(&self.source, mask, self.schema.schema().fields())?;
        let kept = Kept::default();
        let footer = self.source.footer()?;
        let group = LocatedGroup { of: self.clone(), footer, row_group, kept: kept.clone() };
        let mut selectors = Vec::with_capacity(2 * rows.len());
        let mut at = 0;
        for range in rows {
            selectors.push(RowSelector::skip(range.start.saturating_sub(at)));
            selectors.push(RowSelector::select(range.len()));
            at = range.end;
        }
        let selection = RowSelection::from(selectors);
        let reader = guard(|| {
            ParquetRecordBatchReader::try_new_with_row_groups(
                &levels,
                &group,
                batch_rows.max(1),
                Some(selection),
            )
        })?
        .map_err(unwrap_error)?;
        let leaves = leaves.map_or_else(|| (0..self.source.num_leaves()).collect(), <[_]>::to_vec);
        let (of, rows) = (self.clone(), rows.to_vec());
        Ok(LocatedRows { reader, kept, of, row_group, rows, leaves })
    }

    /// Whether `rows` of one leaf cannot be decoded.
    fn fails(&self, row_group: usize, rows: &[Range<usize>], leaf: usize) -> bool {
        let Ok(mut alone) = self.open(row_group, rows, Some(&[leaf]), BATCH_ROWS) else {
            return true;
        };
        guard(|| alone.reader.any(|batch| batch.is_err())).unwrap_or(true)
    }

    /// Says which rows of a row group are read soon.
    pub(crate) fn will_read(
        &self,
        row_group: usize,
        rows: &[Range<usize>],
        leaves: Option<&[usize]>,
    ) {
        let Self { source, cache, context, .. } = self;
        if !source.store.takes_hints() || rows.len() > EXPECTED_RANGES_MAX {
            return;
        }
        let all: Vec<usize> = (0..source.num_leaves()).collect();
        let leaves = leaves.unwrap_or(&all);
        let read_on = match leaves.len() == all.len() {
            true => ReadOn::RowGroup,
            false => ReadOn::Chunk,
        };
        for leaf in leaves {
            for range in rows {
                let rows = range.start as u64..range.end as u64;
                will_read_chunk(source, row_group, *leaf, &rows, read_on, cache, context);
            }
        }
    }

    /// Bytes that [`LocatedRows`] of these leaves have between two batches, about: a page of each, its
    /// dictionary, what is read ahead, and what a reader takes whatever its pages have.
    ///
    /// # Errors
    /// Whatever is wrong with where pages are.
    pub(crate) fn held_bytes(&self, row_group: usize, leaves: &[usize]) -> Result<u64> {
        let Self { source, cache, context, .. } = self;
        let mut bytes = 0_u64;
        for leaf in leaves {
            let chunk = source.chunk(row_group, *leaf)?;
            let locations = cache.find(source, row_group, *leaf, context)?;
            let page = locations.pages.iter().map(|page| page.len).max().unwrap_or(0);
            let dictionary = locations.dictionary.map_or(0, |(_, len)| len);
            let size = |bytes: i64| bytes.max(1).unsigned_abs();
            let (stored, unpacked) =
                (size(chunk.compressed_size()), size(chunk.uncompressed_size()));
            let held = u64::from(page) + u64::from(dictionary);
            bytes = bytes.saturating_add(READER_BYTES);
            let held = (u128::from(held) * u128::from(unpacked)).div_ceil(u128::from(stored));
            let ahead = Pages::ahead_bytes(source, context).min(stored);
            bytes = bytes.saturating_add(u64::try_from(held).unwrap_or(u64::MAX));
            bytes = bytes.saturating_add(ahead);
        }
        Ok(bytes)
    }

    /// How often a byte of these leaves is decoded, on average, where each window of so many rows
    /// decodes its pages and dictionaries anew.
    ///
    /// # Errors
    /// Whatever is wrong with where pages are.
    pub(crate) fn decodings(
        &self,
        row_group: usize,
        leaves: &[usize],
        window_rows: u64,
    ) -> Result<u64> {
        let rows = self.source.row_group_rows(row_group);
        let windows = rows.div_ceil(window_rows.max(1)).max(1);
        let (mut all, mut decoded) = (0_u64, 0_u64);
        for leaf in leaves {
            let locations = self.cache.find(&self.source, row_group, *leaf, &self.context)?;
            let dictionary = locations.dictionary.map_or(0, |(_, len)| u64::from(len));
            let pages: u64 = locations.pages.iter().map(|page| u64::from(page.len)).sum();
            // A window that begins in a page decodes it, too.
            let a_page = 1 + windows / (locations.pages.len() as u64).max(1);
            all = all.saturating_add(dictionary + pages);
            let of_leaf = dictionary.saturating_mul(windows);
            decoded = decoded.saturating_add(of_leaf.saturating_add(pages.saturating_mul(a_page)));
        }
        Ok(decoded.checked_div(all).unwrap_or(1))
    }
}

/// Rows of a batch where columns are read one by one to find the one that is damaged.
const BATCH_ROWS: usize = 8192;

/// Bytes of the decoders and buffers of a leaf that is open: of 10,000 files they count.
const READER_BYTES: u64 = 8 << 10;

/// Rows of a row group on their way: pages, dictionaries and decoders stay between two batches.
pub(crate) struct LocatedRows {
    reader: ParquetRecordBatchReader,
    kept: Kept,
    /// What is read, for errors.
    of: Located,
    row_group: usize,
    rows: Vec<Range<usize>>,
    leaves: Vec<usize>,
}

impl LocatedRows {
    /// The next rows.
    ///
    /// # Errors
    /// Whatever is wrong with the file. Fewer rows are no error.
    pub(crate) fn next(&mut self) -> Result<Option<RecordBatch>> {
        let next = guard(|| self.reader.next().transpose());
        let next = next.and_then(|next| next.map_err(|e| self.kept.explain(e)));
        next.map_err(|e| self.in_column(e))
    }

    /// `error` with the column that cannot be decoded: the Arrow reader does not name it, so each is read
    /// alone.
    fn in_column(&self, error: Error) -> Error {
        if error.kind() != Kind::CorruptSource || error.column().is_some() {
            return error;
        }
        let fails = |leaf: &&usize| self.of.fails(self.row_group, &self.rows, **leaf);
        match self.leaves.iter().find(fails) {
            Some(leaf) => error.with_column(self.of.source.schema().column(*leaf).path().string()),
            None => error,
        }
    }
}

/// One row group.
struct LocatedGroup {
    of: Located,
    footer: Arc<ParquetMetaData>,
    row_group: usize,
    kept: Kept,
}

impl RowGroups for LocatedGroup {
    fn num_rows(&self) -> usize {
        usize::try_from(self.of.source.row_group_rows(self.row_group)).unwrap_or(usize::MAX)
    }

    fn column_chunks(&self, leaf: usize) -> Result<Box<dyn PageIterator>, ParquetError> {
        let Located { source, cache, context, .. } = &self.of;
        let opened = cache
            .find(source, self.row_group, leaf, context)
            .and_then(|locations| Pages::open(source, self.row_group, leaf, 0, context, locations));
        // The error of the reader that is built is not one of Arrow: it keeps its class.
        let (pages, _) = opened.map_err(crate::page::wrap_error)?;
        Ok(Box::new(OneChunk(Some(Guarded {
            pages,
            kept: self.kept.clone(),
            context: context.clone(),
        }))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(self.footer.row_groups().get(self.row_group).into_iter())
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.footer
    }
}

/// The one chunk of a leaf.
struct OneChunk(Option<Guarded>);

impl Iterator for OneChunk {
    type Item = Result<Box<dyn PageReader>, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take().map(|pages| Ok(Box::new(pages) as Box<dyn PageReader>))
    }
}

impl PageIterator for OneChunk {}

/// Pages whose errors are kept, since Arrow's reader passes on their text only.
struct Guarded {
    pages: Pages,
    kept: Kept,
    context: Context,
}

impl Guarded {
    fn keep<T>(&self, outcome: Result<T, ParquetError>) -> Result<T, ParquetError> {
        outcome.map_err(|e| self.kept.keep(unwrap_error(e)))
    }
}

impl Iterator for Guarded {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Guarded {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        let page = self.pages.get_next_page();
        if matches!(page, Ok(Some(Page::DataPage { .. } | Page::DataPageV2 { .. }))) {
            self.context.counters().add_page();
        }
        self.keep(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        let next = self.pages.peek_next_page();
        self.keep(next)
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        let skipped = self.pages.skip_next_page();
        self.keep(skipped)
    }

    fn supports_deferred_dictionary(&self) -> bool {
        self.pages.supports_deferred_dictionary()
    }

    fn take_deferred_dictionary(&mut self) -> Result<Option<Page>, ParquetError> {
        let page = self.pages.take_deferred_dictionary();
        self.keep(page)
    }

    fn at_record_boundary(&mut self) -> Result<bool, ParquetError> {
        let is_at = self.pages.at_record_boundary();
        self.keep(is_at)
    }
}
