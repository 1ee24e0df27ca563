//! A leaf read from its pages, across row groups, from any row.
//!
//! # Invariants
//! Rows come in file order without gaps. Decoders of the parquet crate run under
//! [`guard`](crate::page::guard), so hostile bytes are an error with file and column.
//!
//! # Not here
//! Casts and absent leaves (`adapt`).

use std::sync::Arc;

use parquet::basic::Type as Physical;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{AsBytes, DataType};
use parquet::schema::types::ColumnDescPtr;
use plait_core::{Error, Kind, Result};

use super::{Leaf, LocationCache, Span};
use crate::page::{Locations, Pages, guard, unwrap_error};
use crate::runtime::Context;
use crate::schema::LevelMap;
use crate::source::Source;

/// Byte strings of this many bytes end a read at the end of their page: they keep it in memory.
const SPAN_BYTES_MAX: usize = 1 << 20;

/// Reads one leaf of one source from some row on.
pub(super) struct PagedLeaf<T: DataType> {
    source: Arc<Source>,
    leaf: usize,
    descr: ColumnDescPtr,
    row: u64,
    group_end: u64,
    reader: Option<ColumnReaderImpl<T>>,
    /// Where the pages of the row group lie.
    locations: Arc<Locations>,
    levels: LevelMap,
    cache: Arc<LocationCache>,
    context: Context,
}

impl<T: DataType> PagedLeaf<T> {
    pub(super) fn new(
        source: &Arc<Source>,
        leaf: usize,
        levels: LevelMap,
        row: u64,
        cache: &Arc<LocationCache>,
        context: &Context,
    ) -> Self {
        Self {
            descr: source.leaf(leaf),
            source: Arc::clone(source),
            leaf,
            row,
            group_end: row,
            reader: None,
            locations: Arc::default(),
            levels,
            cache: Arc::clone(cache),
            context: context.clone(),
        }
    }

    fn name(&self, error: Error) -> Error {
        error
            .with_path(self.source.path())
            .with_column(self.descr.path().string())
            .with_row(self.row)
    }

    fn open_group(&mut self) -> Result<()> {
        let (row_group, in_group) = self.source.row_group_of(self.row);
        let locations = self.cache.find(&self.source, row_group, self.leaf, &self.context)?;
        self.locations = Arc::clone(&locations);
        let (pages, skip) =
            Pages::open(&self.source, row_group, self.leaf, in_group, &self.context, locations)?;
        let mut reader = ColumnReaderImpl::<T>::new(Arc::clone(&self.descr), Box::new(pages));
        if skip > 0 {
            let skip = usize::try_from(skip).unwrap_or(usize::MAX);
            let skipped = guard(|| reader.skip_records(skip))?.map_err(unwrap_error)?;
            if skipped != skip {
                return Err(self.ends_early());
            }
        }
        self.reader = Some(reader);
        self.group_end =
            self.source.row_group_start(row_group) + self.source.row_group_rows(row_group);
        Ok(())
    }

    /// Rows that are left in the page of the next row, where values keep their page from being let
    /// go of.
    fn rows_in_page(&self) -> usize {
        if T::get_physical_type() != Physical::BYTE_ARRAY || !self.locations.are_row_aligned() {
            return usize::MAX;
        }
        let (row_group, in_group) = self.source.row_group_of(self.row);
        debug_assert!(row_group < self.source.num_row_groups(), "a row behind the last is read");
        let (page, skip) = self.locations.page_of(in_group);
        let rows = self.locations.pages.get(page).map(|page| page.rows - skip);
        rows.and_then(|rows| usize::try_from(rows).ok()).unwrap_or(usize::MAX)
    }

    fn ends_early(&self) -> Error {
        Error::new(Kind::CorruptSource, "column chunk has fewer rows than its row group")
            .with_hint("the file is damaged; write it again from its origin")
    }

    fn read_some(&mut self, rows: usize, span: &mut Span<T::T>) -> Result<usize> {
        if self.row >= self.source.rows() {
            return Ok(0);
        }
        self.context.check_cancelled()?;
        if self.reader.is_none() || self.row >= self.group_end {
            self.reader = None;
            self.open_group()?;
        }
        let in_group = usize::try_from(self.group_end - self.row).unwrap_or(usize::MAX);
        let wanted = rows.min(in_group).min(self.rows_in_page());
        let (def_before, rep_before) = (span.def.len(), span.rep.len());
        let values_before = span.values.len();
        let Some(reader) = &mut self.reader else { return Ok(0) };
        let outcome = guard(|| {
            let (def, rep) = (&mut span.def, &mut span.rep);
            reader.read_records(wanted, Some(def), Some(rep), &mut span.values)
        });
        let (read, _, _) = outcome?.map_err(unwrap_error)?;
        if read == 0 {
            return Err(self.ends_early());
        }
        self.check_levels(&span.def[def_before..], &span.rep[rep_before..])?;
        self.map_levels(span, def_before, values_before);
        self.row += read as u64;
        Ok(read)
    }

    /// The decoder of levels does not check them: two bits can say 3 where 2 is the most.
    fn check_levels(&self, def: &[i16], rep: &[i16]) -> Result<()> {
        let is_over = |levels: &[i16], max: i16| {
            let (low, high) =
                levels.iter().fold((0, 0), |(low, high), &l| (l.min(low), l.max(high)));
            low < 0 || high > max
        };
        if is_over(def, self.descr.max_def_level()) || is_over(rep, self.descr.max_rep_level()) {
            return Err(Error::new(Kind::CorruptSource, "level is above the column's maximum")
                .with_hint("the file is damaged; write it again from its origin"));
        }
        Ok(())
    }

    fn map_levels(&self, span: &mut Span<T::T>, def_before: usize, values_before: usize) {
        let LevelMap::Def(levels) = &self.levels else { return };
        if self.descr.max_def_level() == 0 {
            // Required in the source, optional in the output: every row has its value.
            let there = levels.first().copied().unwrap_or(0);
            let rows = span.values.len() - values_before;
            span.def.resize(def_before + rows, there);
        } else {
            span.def[def_before..].iter_mut().for_each(|def| *def = self.levels.apply(*def));
        }
    }
}

impl<T: DataType> Leaf<T> for PagedLeaf<T> {
    fn read(&mut self, rows: usize, span: &mut Span<T::T>) -> Result<usize> {
        let (mut total, mut bytes) = (0, 0_usize);
        while total < rows && bytes < SPAN_BYTES_MAX {
            let before = span.values.len();
            match self.read_some(rows - total, span) {
                Ok(0) => break,
                Ok(n) => total += n,
                Err(e) => return Err(self.name(e)),
            }
            if T::get_physical_type() == Physical::BYTE_ARRAY {
                let new = span.values.get(before..).unwrap_or_default();
                bytes += new.iter().map(|value| value.as_bytes().len()).sum::<usize>();
            }
        }
        Ok(total)
    }
}
