//! The rows of one leaf of one source from some row on, block by block.
//!
//! ```text
//! Paged    page ─ unpack ─ decode ─▶ block          or the page as it is stored
//! Spans    cast, absent, split over pages: rows of `leaf` ─▶ block
//! ```
//!
//! # Invariants
//! Rows come in file order without gaps, across row groups. Decoding runs under
//! [`guard`](crate::page::guard), so hostile bytes are an error with file, column and offset.
//!
//! # Cost
//! One page in flight, stored and unpacked.
//!
//! # Not here
//! Which pages are taken as they are (`weave`).

use std::collections::BTreeMap;
use std::sync::Arc;

use parquet::basic::Encoding;
use parquet::column::page::Page;
use parquet::data_type::{AsBytes, DataType};
use plait_core::SourceId;
use plait_core::{Error, Kind, Result};

use super::decode::{
    ChunkDictionary, PageShape, decode_page, from_span, is_ids, needs_dictionary_page,
};
use super::dictionary::Remap;
use super::index::{ChunkIndex, KnownPage};
use super::{Block, Contents, Dictionary, Layout, Values};
use crate::leaf::{self, Leaf, LocationCache, OutputLeaf, Span, with_physical};
use crate::page::pages::Stored;
use crate::page::{PageLoc, Pages, Unpacking, guard};
use crate::runtime::{Charge, Context};
use crate::schema::LeafAdapter;
use crate::source::Source;

/// One dictionary for the chunks of all sources, and how their ids change.
pub(crate) struct United {
    /// All values.
    pub dictionary: Arc<Dictionary>,
    /// By source and row group.
    pub remaps: BTreeMap<(SourceId, usize), Remap>,
    /// Accounts for both.
    pub charge: Option<Charge>,
}

impl United {
    /// Bytes held on the heap.
    #[must_use]
    pub(crate) fn memory_size(&self) -> usize {
        let remaps: usize = self.remaps.values().map(Remap::memory_size).sum();
        self.dictionary.memory_size() + remaps
    }
}

/// The dictionary of a chunk.
#[derive(Clone)]
pub(crate) struct OwnDictionary {
    /// Source and row group of the chunk.
    pub place: (SourceId, usize),
    /// Its values.
    pub values: Arc<Dictionary>,
}

/// A block, and how many of its rows come before the one that was asked for.
pub(crate) type Skipping = (Block, usize);

/// Reads one leaf of one source in the shape of the output.
pub(crate) struct BlockReader {
    source: Arc<Source>,
    row: u64,
    from: From,
}

/// Rows that are read at once to be passed over.
const SKIPPED_ROWS_MAX: usize = 4096;

enum From {
    PagedChunk(Box<PagedChunk>),
    Spans(Box<dyn Blocks>),
}

struct PagedChunk {
    source: SourceId,
    leaf: usize,
    shape: PageShape,
    cache: Arc<LocationCache>,
    context: Context,
    united: Option<Arc<United>>,
    group: Option<OpenGroup>,
}

/// The row group that is read.
struct OpenGroup {
    index: usize,
    end: u64,
    pages: Pages,
    skip: usize,
    dictionary: ChunkDictionary,
    /// What the source's index says, once it was asked.
    known: Option<Option<ChunkIndex>>,
}

impl BlockReader {
    /// Opens the leaf of `source` at `row`. With `united`, ids come as those of its dictionary.
    ///
    /// # Errors
    /// As [`leaf::open`].
    pub(crate) fn open(
        source: &Arc<Source>,
        output: &OutputLeaf,
        row: u64,
        united: Option<&Arc<United>>,
        cache: &Arc<LocationCache>,
        context: &Context,
    ) -> Result<Self> {
        let from = match output.adapter(source.id)? {
            LeafAdapter::Same { leaf, levels }
                if is_aligned(source, *leaf, row, cache, context)? =>
            {
                let descr = source.leaf(*leaf);
                From::PagedChunk(Box::new(PagedChunk {
                    source: source.id,
                    leaf: *leaf,
                    shape: PageShape {
                        layout: Layout::of(&descr),
                        descr,
                        map: levels.clone(),
                        def_max: u8::try_from(output.descr.max_def_level()).unwrap_or(u8::MAX),
                    },
                    cache: Arc::clone(cache),
                    context: context.clone(),
                    united: united.cloned(),
                    group: None,
                }))
            }
            _ => From::Spans(with_physical!(output.descr.physical_type(), T => {
                let leaf = leaf::open::<T>(source, output, row, cache, context)?;
                let layout = Layout::of(&output.descr);
                let def_max = u8::try_from(output.descr.max_def_level()).unwrap_or(u8::MAX);
                Box::new(Spans::<T> { leaf, span: Span::default(), left: 0, layout, def_max })
                    as Box<dyn Blocks>
            })),
        };
        Ok(Self { source: Arc::clone(source), row, from })
    }

    /// The next rows: a page of them, or up to `rows_wanted` where they do not come in pages.
    /// `None` at the end of the source.
    ///
    /// # Errors
    /// Whatever is wrong with the source, with file and column.
    pub(crate) fn next(&mut self, rows_wanted: usize) -> Result<Option<Skipping>> {
        if self.row >= self.source.rows() {
            return Ok(None);
        }
        let (block, skip) = match &mut self.from {
            From::Spans(spans) => (spans.next(rows_wanted)?, 0),
            From::PagedChunk(paged) => {
                let outcome = paged.next(&self.source, self.row);
                outcome.map_err(|e| paged.name(e, &self.source, self.row))?
            }
        };
        if block.rows <= skip {
            return Err(ends_early().with_path(self.source.path()).with_row(self.row));
        }
        self.row += (block.rows - skip) as u64;
        Ok(Some((block, skip)))
    }

    /// Passes over `rows` rows. Pages all of whose rows go are not read.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub(crate) fn skip(&mut self, rows: usize) -> Result<()> {
        match &mut self.from {
            From::PagedChunk(paged) => {
                self.row += rows as u64;
                // A row group that is left is opened where the next row lies.
                if let Some(group) = paged.group.as_mut().filter(|group| self.row < group.end) {
                    group.skip = group.pages.pass(group.skip + rows);
                }
            }
            From::Spans(blocks) => {
                let mut left = rows;
                while left > 0 {
                    let block = blocks.next(left.min(SKIPPED_ROWS_MAX))?;
                    if block.rows == 0 {
                        return Err(ends_early().with_path(self.source.path()));
                    }
                    left -= block.rows;
                    self.row += block.rows as u64;
                }
            }
        }
        Ok(())
    }

    /// The page that comes next, if the next row is its first.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub(crate) fn peek(&mut self) -> Result<Option<PageLoc>> {
        let From::PagedChunk(paged) = &mut self.from else { return Ok(None) };
        if self.row >= self.source.rows() {
            return Ok(None);
        }
        let group = paged.group(&self.source, self.row)?;
        Ok(group.pages.peek().filter(|_| group.skip == 0))
    }

    /// Takes the page that [`peek`](Self::peek) showed as it is stored, and where it is stored if
    /// it may stay there (`may_stay`).
    ///
    /// # Errors
    /// As [`next`](Self::next); [`Kind::Internal`] without a page to take.
    pub(crate) fn take(&mut self, may_stay: bool) -> Result<Stored> {
        let no_page = || Error::new(Kind::Internal, "there is no page to take");
        let From::PagedChunk(paged) = &mut self.from else { return Err(no_page()) };
        let group = paged.group(&self.source, self.row)?;
        let taken = match may_stay {
            true => group.pages.next_in_place()?,
            false => group.pages.next_stored()?,
        };
        let stored = taken.ok_or_else(no_page)?;
        self.row += stored.place.rows;
        Ok(stored)
    }

    /// Takes the next page of the row group before it is asked for, if there `is_room` for its
    /// bytes: another thread may unpack it.
    pub(crate) fn unpack_ahead(
        &mut self,
        is_room: impl Fn(usize) -> bool,
    ) -> Option<Arc<Unpacking>> {
        let From::PagedChunk(paged) = &mut self.from else { return None };
        let group = paged.group.as_mut().filter(|group| self.row < group.end)?;
        group.pages.unpack_ahead(is_room)
    }

    /// Decodes a page that was taken.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub(crate) fn decode(&mut self, stored: &Stored) -> Result<Contents> {
        let From::PagedChunk(paged) = &mut self.from else {
            return Err(Error::new(Kind::Internal, "a page of another reader is decoded"));
        };
        let first_row = self.row.saturating_sub(stored.place.rows);
        paged.decode(stored).map_err(|e| paged.name(e, &self.source, first_row))
    }

    /// What the source says of a page that was taken; `None` if it says too little. The rows of
    /// a leaf that repeats are counted.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub(crate) fn known(&mut self, stored: &Stored) -> Result<Option<KnownPage>> {
        let From::PagedChunk(paged) = &mut self.from else { return Ok(None) };
        let first_row = self.row.saturating_sub(stored.place.rows);
        paged.known(stored, &self.source).map_err(|e| paged.name(e, &self.source, first_row))
    }

    /// Whether ids of the row group that is read are those of the united dictionary.
    #[must_use]
    pub(crate) fn keeps_ids(&self) -> bool {
        let From::PagedChunk(paged) = &self.from else { return false };
        let (Some(united), Some(group)) = (&paged.united, &paged.group) else { return false };
        united.remaps.get(&(self.source.id, group.index)).is_some_and(Remap::is_identity)
    }

    /// The source's own dictionary, if it was read for the row group that is read.
    #[must_use]
    pub(crate) fn own_dictionary(&self) -> Option<OwnDictionary> {
        let From::PagedChunk(paged) = &self.from else { return None };
        let group = paged.group.as_ref()?;
        let place = (self.source.id, group.index);
        let is_own = paged.united.as_ref().is_none_or(|u| !u.remaps.contains_key(&place));
        let values = group.dictionary.values.as_ref().filter(|_| is_own)?;
        Some(OwnDictionary { place, values: Arc::clone(values) })
    }
}

fn ends_early() -> Error {
    Error::new(Kind::CorruptSource, "column chunk has fewer rows than its row group")
        .with_hint("the file is damaged; write it again from its origin")
}

/// Whether no row of the chunks from `row` on is split over pages.
fn is_aligned(
    source: &Source,
    leaf: usize,
    row: u64,
    cache: &LocationCache,
    context: &Context,
) -> Result<bool> {
    let descr = source.leaf(leaf);
    if descr.max_def_level() > i16::from(u8::MAX) {
        return Ok(false);
    }
    if descr.max_rep_level() == 0 || row >= source.rows() {
        return Ok(true);
    }
    let (first, _) = source.row_group_of(row);
    for group in first..source.num_row_groups() {
        let is_empty = source.row_group_rows(group) == 0;
        if !is_empty && !cache.find(source, group, leaf, context)?.are_row_aligned() {
            return Ok(false);
        }
    }
    Ok(true)
}

impl PagedChunk {
    fn name(&self, e: Error, source: &Source, row: u64) -> Error {
        let column = self.shape.descr.path().string();
        e.with_path(source.path()).with_column(column).with_row(row)
    }

    fn group(&mut self, source: &Source, row: u64) -> Result<&mut OpenGroup> {
        if self.group.as_ref().is_none_or(|group| row >= group.end) {
            self.group = None;
            self.group = Some(self.open(source, row)?);
        }
        self.group.as_mut().ok_or_else(|| Error::new(Kind::Internal, "no row group is open"))
    }

    fn open(&self, source: &Source, row: u64) -> Result<OpenGroup> {
        let (index, in_group) = source.row_group_of(row);
        let locations = self.cache.find(source, index, self.leaf, &self.context)?;
        let (mut pages, skip) =
            Pages::open(source, index, self.leaf, in_group, &self.context, locations)?;
        let united = self.united.as_ref().and_then(|united| {
            let remap = united.remaps.get(&(source.id, index))?;
            let values = Some(Arc::clone(&united.dictionary));
            Some(ChunkDictionary { len: remap.len(), values, page: None })
        });
        let dictionary = match united {
            Some(dictionary) => {
                pages.leave_dictionary();
                dictionary
            }
            None => first_dictionary(&mut pages, self.shape.layout)?,
        };
        Ok(OpenGroup {
            index,
            end: source.row_group_start(index) + source.row_group_rows(index),
            pages,
            skip: usize::try_from(skip).unwrap_or(usize::MAX),
            dictionary,
            known: None,
        })
    }

    fn next(&mut self, source: &Source, row: u64) -> Result<Skipping> {
        loop {
            self.context.check_cancelled()?;
            let group = self.group(source, row)?;
            let Some(stored) = group.pages.next_stored()? else { return Err(ends_early()) };
            let rows = usize::try_from(stored.place.rows).unwrap_or(usize::MAX);
            if group.skip >= rows {
                group.skip -= rows;
                continue;
            }
            let skip = std::mem::take(&mut group.skip);
            return Ok((Block::new(self.decode(&stored)?), skip));
        }
    }

    fn known(&mut self, stored: &Stored, source: &Source) -> Result<Option<KnownPage>> {
        let Some(group) = &mut self.group else { return Ok(None) };
        group.pages.check_rows(stored)?;
        if group.known.is_none() {
            let locations = group.pages.locations();
            group.known = Some(ChunkIndex::open(source, group.index, self.leaf, locations)?);
        }
        let Some(Some(index)) = &group.known else { return Ok(None) };
        Ok(guard(|| index.page(stored.number, &stored.header)).ok().flatten())
    }

    fn decode(&mut self, stored: &Stored) -> Result<Contents> {
        let Some(group) = &mut self.group else {
            return Err(Error::new(Kind::Internal, "a page is decoded before it was taken"));
        };
        let has_ids = stored.header.data_encoding().is_some_and(is_ids);
        take_dictionary(has_ids, &mut group.pages, &mut group.dictionary, self.shape.layout)?;
        let page = group.pages.unpack_stored(stored)?;
        let rows = usize::try_from(stored.place.rows).unwrap_or(usize::MAX);
        let place = |e: Error| e.with_offset(stored.place.offset);
        if needs_dictionary_page(&page, &self.shape)? && group.dictionary.page.is_none() {
            group.dictionary.page = group.pages.take_dictionary()?;
        }
        let is_ours = matches!(stored.header.data_encoding(), None | Some(Encoding::PLAIN))
            || stored.header.data_encoding().is_some_and(is_ids);
        let mut contents = guard(|| decode_page(&page, rows, &self.shape, &group.dictionary))
            .flatten()
            .map_err(place)?;
        if let (Values::Plain(plain), false) = (&mut contents.values, is_ours) {
            // The page accounts for its own bytes only.
            *plain = self.context.account().hold(std::mem::take(plain));
        }
        // Ids were checked against the source's own dictionary; now they become the union's.
        if let (Values::Ids(ids, _), Some(united)) = (&mut contents.values, &self.united)
            && let Some(remap) = united.remaps.get(&(self.source, group.index))
        {
            remap.apply(ids);
        }
        Ok(contents)
    }
}

/// Reads the dictionary of a chunk that was just opened, if that saves a request; where reading is
/// cheap, it waits for the first page that refers to it. Many chunks begin with pages of ids and
/// end with pages that need no dictionary.
///
/// # Errors
/// Whatever is wrong with the page.
pub(crate) fn first_dictionary(pages: &mut Pages, layout: Layout) -> Result<ChunkDictionary> {
    if pages.are_local() {
        pages.leave_dictionary();
        return Ok(ChunkDictionary::default());
    }
    read_dictionary(pages, layout)
}

/// Reads the dictionary if the next page `refers` to it and it was not read yet; lets go of it once if
/// the page does not: after a dictionary that was given up come plain pages.
///
/// # Errors
/// Whatever is wrong with the page.
pub(crate) fn take_dictionary(
    refers: bool,
    pages: &mut Pages,
    dictionary: &mut ChunkDictionary,
    layout: Layout,
) -> Result<()> {
    if refers && dictionary.values.is_none() {
        *dictionary = read_dictionary(pages, layout)?;
    } else if !refers && dictionary.page.is_some() && pages.give_back_dictionary() {
        *dictionary = ChunkDictionary::default();
    }
    Ok(())
}

/// Reads the dictionary of a chunk, unless it was taken.
///
/// # Errors
/// Whatever is wrong with the page.
pub(crate) fn read_dictionary(pages: &mut Pages, layout: Layout) -> Result<ChunkDictionary> {
    let Some(page) = pages.take_dictionary()? else {
        return Ok(ChunkDictionary::default());
    };
    into_dictionary(pages, page, layout)
}

/// The dictionary that `page` of a chunk holds.
///
/// # Errors
/// [`Kind::CorruptSource`] when it has fewer values than it says.
pub(crate) fn into_dictionary(
    pages: &Pages,
    page: Page,
    layout: Layout,
) -> Result<ChunkDictionary> {
    let Page::DictionaryPage { buf, num_values, .. } = &page else {
        return Ok(ChunkDictionary::default());
    };
    let len = *num_values as usize;
    let values = guard(|| Dictionary::new(layout, buf.clone(), len)).flatten();
    let values = Arc::new(values.map_err(|e| pages.place_dictionary(e))?);
    Ok(ChunkDictionary { len, values: Some(values), page: Some(page) })
}

/// Blocks of a leaf that does not come in pages.
trait Blocks: Send {
    fn next(&mut self, rows_wanted: usize) -> Result<Block>;
}

struct Spans<T: DataType> {
    leaf: Box<dyn Leaf<T>>,
    /// Rows that were read, of which `left` were not given yet.
    span: Span<T::T>,
    left: usize,
    layout: Layout,
    def_max: u8,
}

/// Bytes of values that a block of rows that do not come in pages may have, or one row.
const BLOCK_BYTES_MAX: usize = 1 << 20;

impl<T: DataType> Blocks for Spans<T> {
    fn next(&mut self, rows_wanted: usize) -> Result<Block> {
        if self.left == 0 {
            self.span.clear();
            self.left = self.leaf.read(rows_wanted.max(1), &mut self.span)?;
        }
        let (part, rows) = self.take(rows_wanted.max(1));
        from_span::<T>(&part, rows, self.layout, self.def_max).map(Block::new)
    }
}

impl<T: DataType> Spans<T> {
    /// The next rows, at most `rows_max` of them. Values that share a page or a dictionary are
    /// copied for each row.
    fn take(&mut self, rows_max: usize) -> (Span<T::T>, usize) {
        let (rep, def) = (&self.span.rep, &self.span.def);
        let (mut levels, mut values, mut bytes, mut rows) = (0, 0, 0, 0);
        while rows < self.left.min(rows_max) {
            let (level, value) = (levels, values);
            let mut row_bytes = 0_usize;
            loop {
                let has_value = def.get(levels).is_none_or(|def| *def == i16::from(self.def_max));
                levels += 1;
                if has_value {
                    row_bytes += self.span.values.get(values).map_or(0, |v| v.as_bytes().len());
                    values += 1;
                }
                if rep.get(levels).is_none_or(|rep| *rep == 0) {
                    break;
                }
            }
            if rows > 0 && bytes + row_bytes > BLOCK_BYTES_MAX {
                (levels, values) = (level, value);
                break;
            }
            (bytes, rows) = (bytes + row_bytes, rows + 1);
        }
        self.left -= rows;
        if self.left == 0 {
            return (std::mem::take(&mut self.span), rows);
        }
        let front = |from: &mut Vec<i16>| -> Vec<i16> {
            let len = levels.min(from.len());
            from.drain(..len).collect()
        };
        let part = Span {
            rep: front(&mut self.span.rep),
            def: front(&mut self.span.def),
            values: self.span.values.drain(..values.min(self.span.values.len())).collect(),
        };
        (part, rows)
    }
}
