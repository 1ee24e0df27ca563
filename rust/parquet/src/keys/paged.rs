//! A key column of one source, page by page.
//!
//! # Invariants
//! Rows come in file order, across row groups; they are asked for within one. What is wrong is an
//! error with file, column and row. Decoding runs under [`guard`], so hostile bytes are an error.
//!
//! # Cost
//! One unpacked page, and the dictionary unless ranks stand for its values.
//!
//! # Not here
//! What is in a page (`page`); columns that are cast or of another form (`typed`).

use std::sync::Arc;

use plait_core::key::KeyType;
use plait_core::{Error, Kind, Result};

use super::page::{Cells, Look, OpenPage, Takes};
use crate::block::Layout;
use crate::block::decode::{ChunkDictionary, PageShape, is_ids, needs_dictionary_page};
use crate::block::kept::LookUpCache;
use crate::block::reader::{first_dictionary, take_dictionary};
use crate::leaf::{LocationCache, OutputLeaf};
use crate::page::{Pages, guard};
use crate::ranks::kept_as_keys_take_it;
use crate::runtime::Context;
use crate::source::Source;

/// Reads one key column of one source.
pub(super) struct Paged {
    source: Arc<Source>,
    leaf: usize,
    shape: PageShape,
    takes: Takes,
    row: u64,
    cache: Arc<LocationCache>,
    kept: Option<Arc<LookUpCache>>,
    context: Context,
    group: Option<KeyGroup>,
}

/// What pages and dictionaries are found with.
#[derive(Clone, Copy)]
pub(super) struct PageAccess<'a> {
    pub(super) cache: &'a Arc<LocationCache>,
    pub(super) kept: Option<&'a Arc<LookUpCache>>,
    pub(super) context: &'a Context,
}

/// The row group that is read.
struct KeyGroup {
    index: usize,
    end: u64,
    /// Whether its dictionary is among those that stay.
    is_kept: bool,
    pages: Pages,
    skip: usize,
    dictionary: ChunkDictionary,
    ranks: Option<Arc<[u32]>>,
    page: Option<OpenPage>,
}

impl Paged {
    /// Opens the column of type `ty` at `row`; `None` if its pages do not hold what keys take.
    pub(super) fn open(
        source: &Arc<Source>,
        output: &OutputLeaf,
        ty: KeyType,
        takes: Takes,
        row: u64,
        access: PageAccess<'_>,
    ) -> Result<Option<Self>> {
        let Some((leaf, levels)) = kept_as_keys_take_it(source, output, ty)? else {
            return Ok(None);
        };
        let descr = source.leaf(leaf);
        let def_max = u8::try_from(output.descr.max_def_level()).unwrap_or(u8::MAX);
        Ok(Some(Self {
            source: Arc::clone(source),
            leaf,
            shape: PageShape { layout: Layout::of(&descr), descr, map: levels.clone(), def_max },
            takes,
            row,
            cache: Arc::clone(access.cache),
            kept: access.kept.cloned(),
            context: access.context.clone(),
            group: None,
        }))
    }

    /// Reads the next `rows` rows, which lie in one row group.
    ///
    /// # Errors
    /// Whatever is wrong with the source, with file and column.
    pub(super) fn fill(&mut self, rows: usize, cells: &mut Cells) -> Result<()> {
        let mut left = rows;
        while left > 0 {
            let taken = self.fill_some(left, cells).map_err(|e| self.place(e))?;
            self.row += taken as u64;
            left -= taken;
        }
        Ok(())
    }

    /// Passes over the next `rows` rows, which are there. Pages all of whose rows go are not read.
    ///
    /// # Errors
    /// As [`fill`](Self::fill).
    pub(super) fn skip(&mut self, rows: usize) -> Result<()> {
        let row = self.row + rows as u64;
        let Some(group) = self.group.as_mut().filter(|group| row < group.end) else {
            // A row group that is left is opened where the next row lies.
            (self.group, self.row) = (None, row);
            return Ok(());
        };
        let mut left = rows;
        if let Some(page) = &mut group.page {
            let here = left.min(page.rows);
            left -= here;
            let layout = self.shape.layout;
            let skipped = guard(|| page.skip(here, layout)).flatten();
            skipped.map_err(|e| self.place(e))?;
        }
        if let Some(group) = self.group.as_mut().filter(|_| left > 0) {
            group.skip = group.pages.pass(group.skip + left);
        }
        self.row = row;
        Ok(())
    }

    /// How many of the next `rows` rows, which lie in one row group, have at most about
    /// `bytes_max` bytes of values, or one row. Rows behind the page that is open are not counted on.
    ///
    /// # Errors
    /// As [`fill`](Self::fill).
    pub(super) fn rows_within(&mut self, rows: usize, bytes_max: usize) -> Result<usize> {
        if !matches!(self.takes, Takes::Bytes) {
            return Ok(rows);
        }
        self.open_page().map_err(|e| self.place(e))?;
        let layout = self.shape.layout;
        let Some(KeyGroup { page: Some(page), dictionary, .. }) = &self.group else {
            return Ok(rows);
        };
        Ok(page.rows_within(rows, bytes_max, layout, dictionary))
    }

    fn place(&self, e: Error) -> Error {
        e.with_path(self.source.path())
            .with_column(self.shape.descr.path().string())
            .with_row(self.row)
    }

    /// Opens the page of the next row, unless it is open.
    fn open_page(&mut self) -> Result<()> {
        if self.group.as_ref().is_none_or(|group| self.row >= group.end) {
            self.group = None;
            self.group = Some(self.open_group()?);
        }
        let (shape, takes) = (&self.shape, &self.takes);
        let Some(group) = &mut self.group else { return Err(ends_early()) };
        while group.page.as_ref().is_none_or(|page| page.rows == 0) {
            group.page = None; // free before the next is unpacked
            let kept = self.kept.as_deref().map(|kept| (kept, &*self.source));
            group.page = Some(group.open_page(shape, takes, self.leaf, kept)?);
            if let (Some(kept), false) = (&self.kept, group.is_kept)
                && group.dictionary.values.is_some()
            {
                kept.keep_dictionary(&self.source, (group.index, self.leaf), &group.dictionary);
                group.is_kept = true;
            }
        }
        Ok(())
    }

    fn fill_some(&mut self, rows: usize, cells: &mut Cells) -> Result<usize> {
        self.open_page()?;
        let (shape, takes) = (&self.shape, &self.takes);
        let Some(group) = &mut self.group else { return Err(ends_early()) };
        let KeyGroup { page: Some(page), dictionary, ranks, .. } = group else {
            return Err(ends_early());
        };
        let rows = rows.min(page.rows);
        let look = Look { shape, takes, dictionary, ranks: ranks.as_deref() };
        guard(|| page.take(rows, &look, cells)).flatten()?;
        Ok(rows)
    }

    fn open_group(&self) -> Result<KeyGroup> {
        let (index, in_group) = self.source.row_group_of(self.row);
        let locations = self.cache.find(&self.source, index, self.leaf, &self.context)?;
        let (mut pages, skip) =
            Pages::open(&self.source, index, self.leaf, in_group, &self.context, locations)?;
        let mut ranks = None;
        let kept = self.kept.as_ref();
        let known = kept.and_then(|kept| kept.dictionary(&self.source, (index, self.leaf)));
        let dictionary = if let Takes::Ranks(book, column) = &self.takes {
            pages.leave_dictionary();
            ranks = book.table(*column, self.source.id, index);
            ChunkDictionary::default()
        } else if let Some(known) = &known {
            pages.leave_dictionary();
            known.clone()
        } else {
            first_dictionary(&mut pages, self.shape.layout)?
        };
        Ok(KeyGroup {
            index,
            is_kept: known.is_some(),
            end: self.source.row_group_start(index) + self.source.row_group_rows(index),
            pages,
            skip: usize::try_from(skip).unwrap_or(usize::MAX),
            dictionary,
            ranks,
            page: None,
        })
    }
}

fn ends_early() -> Error {
    Error::new(Kind::CorruptSource, "column chunk has fewer rows than its row group")
        .with_hint("the file is damaged; write it again from its origin")
}

impl KeyGroup {
    /// Opens the page that comes next, at the first row that is wanted.
    fn open_page(
        &mut self,
        shape: &PageShape,
        takes: &Takes,
        leaf: usize,
        kept: Option<(&LookUpCache, &Source)>,
    ) -> Result<OpenPage> {
        loop {
            let Some(next) = self.pages.peek() else { return Err(ends_early()) };
            let rows = usize::try_from(next.rows).unwrap_or(usize::MAX);
            if self.skip >= rows {
                self.skip -= rows;
                self.pages.pass(rows);
                continue;
            }
            let (is_ranked, chunk) = (matches!(takes, Takes::Ranks(..)), (self.index, leaf));
            let known = kept.and_then(|(kept, source)| kept.page(source, chunk, next.offset));
            let (pages, dictionary) = (&mut self.pages, &mut self.dictionary);
            let page = if let Some(page) = known {
                pages.pass(rows);
                if !is_ranked {
                    take_dictionary(is_ids(page.encoding()), pages, dictionary, shape.layout)?;
                }
                page
            } else {
                let Some(stored) = pages.next_stored()? else { return Err(ends_early()) };
                if !is_ranked {
                    let has_ids = stored.header.data_encoding().is_some_and(is_ids);
                    take_dictionary(has_ids, pages, dictionary, shape.layout)?;
                }
                let page = pages.unpack_stored(&stored)?;
                if let Some((kept, source)) = kept {
                    kept.keep_page(source, chunk, next.offset, &page);
                }
                page
            };
            let place = |e: Error| e.with_offset(next.offset);
            if needs_dictionary_page(&page, shape)? && self.dictionary.page.is_none() {
                self.dictionary.page = self.pages.take_dictionary()?;
            }
            let skip = std::mem::take(&mut self.skip);
            let look = Look { shape, takes, dictionary: &self.dictionary, ranks: None };
            let open = || -> Result<OpenPage> {
                let mut open = OpenPage::open(&page, rows, &look)?;
                open.skip(skip, shape.layout)?;
                Ok(open)
            };
            return guard(open).flatten().map_err(place);
        }
    }
}
