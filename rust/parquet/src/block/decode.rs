//! A page in, its [`Contents`] out.
//!
//! ```text
//! plain, ids, packed booleans      here: the bytes of the page are the block's
//! delta, byte stream split, …      by the parquet crate, then laid out as plain values
//! levels in the old bit packing    by the parquet crate too
//! ```
//!
//! # Invariants
//! Those of [`Block`](super::Block), checked here.
//!
//! # Not here
//! Unpacking (`page`); levels of leaves that are absent or cast (`leaf`).

use bytes::Bytes;
use parquet::basic::{Encoding, Type as Physical};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{AsBytes, DataType};
use parquet::errors::ParquetError;
use parquet::schema::types::ColumnDescPtr;
use plait_core::{Error, Kind, Result};
use std::sync::Arc;

use super::fold::{greatest, occurrences, unpack_booleans};
use super::{Contents, Dictionary, Layout, Values};
use crate::leaf::{Span, with_physical};
use crate::page::hybrid::width_of;
use crate::page::hybrid_reader::{decode, single_run};
use crate::page::unwrap_error;
use crate::schema::LevelMap;

/// How the pages of a leaf of one source become blocks of the output.
#[derive(Clone, Debug)]
pub(crate) struct PageShape {
    /// The source's leaf.
    pub descr: ColumnDescPtr,
    /// How its values lie.
    pub layout: Layout,
    /// What becomes of definition levels.
    pub map: LevelMap,
    /// The greatest definition level of the output.
    pub def_max: u8,
}

/// The dictionary of a chunk.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChunkDictionary {
    /// How many ids there are.
    pub len: usize,
    /// The values that blocks refer to.
    pub values: Option<Arc<Dictionary>>,
    /// The page, for pages that the parquet crate decodes.
    pub page: Option<Page>,
}

/// The parts of an unpacked page.
pub(crate) struct PageParts {
    rep: Bytes,
    /// Definition levels.
    pub(crate) def: Bytes,
    /// Values, or ids with their width in front.
    pub(crate) values: Bytes,
    num_values: usize,
    /// How values are encoded.
    pub(crate) encoding: Encoding,
    /// Whether levels are in the hybrid of runs and packed bits.
    is_hybrid: bool,
}

/// Whether values are ids of a dictionary.
pub(crate) fn is_ids(encoding: Encoding) -> bool {
    matches!(encoding, Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY)
}

impl PageParts {
    /// Whether the page is decoded here, not by the parquet crate.
    pub(crate) fn is_ours(&self, shape: &PageShape) -> bool {
        let is_boolean = shape.descr.physical_type() == Physical::BOOLEAN;
        let is_known = is_ids(self.encoding)
            || self.encoding == Encoding::PLAIN
            || (is_boolean && self.encoding == Encoding::RLE);
        is_known && self.is_hybrid
    }
}

/// Whether decoding `page` takes the page of its dictionary, not only the values.
///
/// # Errors
/// [`Kind::CorruptSource`] when the page ends inside its levels.
pub(crate) fn needs_dictionary_page(page: &Page, shape: &PageShape) -> Result<bool> {
    let parts = parts(page, shape)?;
    Ok(is_ids(parts.encoding) && !parts.is_ours(shape))
}

/// Decodes a data page that has `rows` rows.
///
/// # Errors
/// [`Kind::CorruptSource`] when levels, values and counts do not fit each other.
pub(crate) fn decode_page(
    page: &Page,
    rows: usize,
    shape: &PageShape,
    dictionary: &ChunkDictionary,
) -> Result<Contents> {
    let parts = parts(page, shape)?;
    let is_ids = is_ids(parts.encoding);
    let is_boolean = shape.descr.physical_type() == Physical::BOOLEAN;
    if is_boolean && is_ids {
        return Err(Error::new(Kind::CorruptSource, "page of booleans refers to a dictionary")
            .with_hint("no writer makes such pages: the file is damaged; write it again"));
    }
    let contents = if parts.is_ours(shape) {
        let (rep, def, value_count) = levels(&parts, shape)?;
        let values = if is_ids {
            ids(&parts.values, value_count, dictionary)?
        } else if is_boolean {
            Values::Plain(booleans(&parts, value_count)?)
        } else {
            let values = plain(&parts.values, value_count, shape.layout)?;
            let is_fixed = shape.descr.physical_type() == Physical::FIXED_LEN_BYTE_ARRAY;
            if is_fixed && values.len() != parts.values.len() {
                // Other readers refuse this too: the page is not what its header says.
                return Err(Error::new(Kind::CorruptSource, "page has more values than it says")
                    .with_got(format!("{} bytes too many", parts.values.len() - values.len())));
            }
            Values::Plain(values)
        };
        let rows = match rep.is_empty() {
            true => parts.num_values,
            false => occurrences(&rep, 0),
        };
        Contents { rows, rep, def, def_max: shape.def_max, values, value_count }
    } else {
        with_physical!(shape.descr.physical_type(), T => foreign::<T>(page, rows, shape, dictionary))?
    };
    if contents.rows != rows {
        return Err(Error::new(Kind::CorruptSource, "page has other rows than its place says")
            .with_got(format!("{} rows instead of {rows}", contents.rows)));
    }
    Ok(contents)
}

/// How many rows begin in a page.
///
/// # Errors
/// [`Kind::CorruptSource`] when its levels cannot be read.
pub(crate) fn rows_of(page: &Page, shape: &PageShape) -> Result<usize> {
    let parts = parts(page, shape)?;
    let rep_max = u8::try_from(shape.descr.max_rep_level()).map_err(|_| too_deep())?;
    let mut rep: Vec<u8> = Vec::new();
    decode(&parts.rep, width_of(u32::from(rep_max)), parts.num_values, &mut rep)?;
    Ok(occurrences(&rep, 0))
}

/// Takes a data page apart.
///
/// # Errors
/// [`Kind::CorruptSource`] when it ends inside its levels.
pub(crate) fn parts(page: &Page, shape: &PageShape) -> Result<PageParts> {
    let (rep_max, def_max) = (shape.descr.max_rep_level(), shape.descr.max_def_level());
    match page {
        Page::DataPage {
            buf,
            num_values,
            encoding,
            def_level_encoding,
            rep_level_encoding,
            ..
        } => {
            let is_hybrid = (rep_max == 0 || *rep_level_encoding == Encoding::RLE)
                && (def_max == 0 || *def_level_encoding == Encoding::RLE);
            let mut rest = buf.clone();
            let mut take = |is_there: bool| -> Result<Bytes> {
                if !is_there || !is_hybrid {
                    return Ok(Bytes::new());
                }
                let len = rest.first_chunk().ok_or_else(cut)?;
                let len = u32::from_le_bytes(*len) as usize;
                if len > rest.len() - 4 {
                    return Err(cut());
                }
                let mut levels = rest.split_to(4 + len);
                Ok(levels.split_off(4))
            };
            let (rep, def) = (take(rep_max > 0)?, take(def_max > 0)?);
            let num_values = *num_values as usize;
            Ok(PageParts { rep, def, values: rest, num_values, encoding: *encoding, is_hybrid })
        }
        Page::DataPageV2 {
            buf,
            num_values,
            encoding,
            def_levels_byte_len,
            rep_levels_byte_len,
            ..
        } => {
            let mut rest = buf.clone();
            let (rep_len, def_len) = (*rep_levels_byte_len as usize, *def_levels_byte_len as usize);
            if rep_len.saturating_add(def_len) > rest.len() {
                return Err(cut());
            }
            let (rep, def) = (rest.split_to(rep_len), rest.split_to(def_len));
            let num_values = *num_values as usize;
            Ok(PageParts {
                rep,
                def,
                values: rest,
                num_values,
                encoding: *encoding,
                is_hybrid: true,
            })
        }
        Page::DictionaryPage { .. } => {
            Err(Error::new(Kind::Internal, "a dictionary was taken for a data page"))
        }
    }
}

fn cut() -> Error {
    Error::new(Kind::CorruptSource, "page ends inside its levels")
}

/// Repetition levels, definition levels in the shape of the output, and the number of values.
fn levels(parts: &PageParts, shape: &PageShape) -> Result<(Vec<u8>, Vec<u8>, usize)> {
    let rep_max = u8::try_from(shape.descr.max_rep_level()).map_err(|_| too_deep())?;
    let def_max = u8::try_from(shape.descr.max_def_level()).map_err(|_| too_deep())?;
    let count = parts.num_values;
    let mut rep = Vec::new();
    if rep_max > 0 {
        decode(&parts.rep, width_of(u32::from(rep_max)), count, &mut rep)?;
        check_levels(&rep, rep_max)?;
        if rep.first().is_some_and(|first| *first != 0) {
            return Err(Error::new(Kind::CorruptSource, "page begins inside a row"));
        }
    }
    let mut def = Vec::new();
    if def_max > 0 {
        let width = width_of(u32::from(def_max));
        if single_run(&parts.def, width, count) == Some(u32::from(def_max)) {
            return Ok((rep, def, count));
        }
        decode(&parts.def, width, count, &mut def)?;
        check_levels(&def, def_max)?;
    }
    let value_count = def_max_count(&def, def_max).unwrap_or(count);
    if value_count == count {
        def.clear(); // a value everywhere
    } else if let LevelMap::Def(_) = &shape.map {
        let mapped = |d: u8| u8::try_from(shape.map.apply(i16::from(d))).map_err(|_| too_deep());
        let map = (0..=def_max).map(mapped).collect::<Result<Vec<u8>>>()?;
        def.iter_mut().for_each(|d| *d = map[usize::from(*d)]);
    }
    Ok((rep, def, value_count))
}

fn def_max_count(def: &[u8], def_max: u8) -> Option<usize> {
    (!def.is_empty()).then(|| occurrences(def, def_max))
}

fn check_levels(levels: &[u8], max: u8) -> Result<()> {
    if greatest(levels) > max {
        return Err(Error::new(Kind::CorruptSource, "level is above the column's maximum")
            .with_hint("the file is damaged; write it again from its origin"));
    }
    Ok(())
}

fn too_deep() -> Error {
    Error::new(Kind::Unsupported, "column is nested more than 255 levels deep")
}

fn ids(bytes: &Bytes, count: usize, dictionary: &ChunkDictionary) -> Result<Values> {
    let values = dictionary.values.as_ref().ok_or_else(|| {
        Error::new(Kind::CorruptSource, "page refers to a dictionary that is not there")
    })?;
    let mut ids = Vec::new();
    if count > 0 {
        let (&width, packed) = bytes.split_first().ok_or_else(|| {
            Error::new(Kind::CorruptSource, "page has fewer levels or ids than values")
        })?;
        ids.reserve_exact(count);
        decode(packed, u32::from(width), count, &mut ids)?;
        let max = greatest(&ids) as usize;
        if max >= dictionary.len {
            return Err(Error::new(Kind::CorruptSource, "id is not in the dictionary")
                .with_got(format!("id {max} of {} values", dictionary.len)));
        }
    }
    Ok(Values::Ids(ids, Arc::clone(values)))
}

fn plain(bytes: &Bytes, count: usize, layout: Layout) -> Result<Bytes> {
    let end = match layout {
        Layout::Fixed(width) => width.checked_mul(count).filter(|end| *end <= bytes.len()),
        Layout::Prefixed => {
            let mut at = 0;
            (0..count)
                .try_for_each(|_| {
                    at += layout.len_at(bytes, at)?;
                    Some(())
                })
                .map(|()| at)
        }
    };
    let end = end.ok_or_else(|| {
        Error::new(Kind::CorruptSource, "page has fewer values than it says")
            .with_got(format!("{} bytes for {count} values", bytes.len()))
    })?;
    Ok(bytes.slice(..end))
}

/// Booleans, a byte each.
fn booleans(parts: &PageParts, count: usize) -> Result<Bytes> {
    let mut flags: Vec<u8> = Vec::new();
    let bytes = &parts.values;
    let too_few = || Error::new(Kind::CorruptSource, "page has fewer values than it says");
    if count == 0 {
        return Ok(Bytes::new());
    }
    if parts.encoding == Encoding::RLE {
        let len = u32::from_le_bytes(*bytes.first_chunk().ok_or_else(too_few)?) as usize;
        let body = bytes.get(4..4_usize.saturating_add(len)).ok_or_else(too_few)?;
        decode(body, 1, count, &mut flags)?;
    } else {
        if bytes.len() < count.div_ceil(8) {
            return Err(too_few());
        }
        flags = unpack_booleans(bytes, count);
    }
    Ok(flags.into())
}

/// Decodes a page with the parquet crate.
fn foreign<T: DataType>(
    page: &Page,
    rows: usize,
    shape: &PageShape,
    dictionary: &ChunkDictionary,
) -> Result<Contents> {
    let pages = OnePage { dictionary: dictionary.page.clone(), page: Some(page.clone()) };
    let mut reader = ColumnReaderImpl::<T>::new(Arc::clone(&shape.descr), Box::new(pages));
    let mut span = Span::default();
    let (def, rep) = (&mut span.def, &mut span.rep);
    reader.read_records(rows, Some(def), Some(rep), &mut span.values).map_err(unwrap_error)?;
    let def_max = shape.descr.max_def_level();
    for (levels, max) in [(&span.def, def_max), (&span.rep, shape.descr.max_rep_level())] {
        if levels.iter().any(|level| *level < 0 || *level > max) {
            return Err(Error::new(Kind::CorruptSource, "level is above the column's maximum"));
        }
    }
    if def_max == 0 {
        // Required in the source: every entry has its value, whatever the output's levels.
        return from_span::<T>(&span, rows, shape.layout, shape.def_max);
    }
    span.def.iter_mut().for_each(|def| *def = shape.map.apply(*def));
    from_span::<T>(&span, rows, shape.layout, shape.def_max)
}

/// The rows of a span, whose definition levels are those of the output.
///
/// # Errors
/// [`Kind::CorruptSource`] when a value of fixed length has another one.
pub(crate) fn from_span<T: DataType>(
    span: &Span<T::T>,
    rows: usize,
    layout: Layout,
    def_max: u8,
) -> Result<Contents> {
    let mut bytes = Vec::new();
    for value in &span.values {
        let value = value.as_bytes();
        match layout {
            Layout::Prefixed => {
                let len = u32::try_from(value.len()).map_err(|_| {
                    Error::new(Kind::Unsupported, "value is longer than four gigabytes")
                })?;
                bytes.extend_from_slice(&len.to_le_bytes());
            }
            Layout::Fixed(width) if value.len() != width => {
                return Err(Error::new(
                    Kind::CorruptSource,
                    "value has another length than its type",
                )
                .with_got(format!("{} bytes instead of {width}", value.len())));
            }
            Layout::Fixed(_) => {}
        }
        bytes.extend_from_slice(value);
    }
    let cut = |levels: &[i16]| levels.iter().map(|level| *level as u8).collect::<Vec<u8>>();
    let entries = span.def.len().max(span.rep.len());
    let has_all = entries == 0 || span.values.len() == entries;
    let def = if has_all { Vec::new() } else { cut(&span.def) };
    let values = Values::Plain(bytes.into());
    let (rep, value_count) = (cut(&span.rep), span.values.len());
    Ok(Contents { rows, rep, def, def_max, values, value_count })
}

/// A chunk of one page, with its dictionary in front.
struct OnePage {
    dictionary: Option<Page>,
    page: Option<Page>,
}

impl Iterator for OnePage {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for OnePage {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        Ok(self.dictionary.take().or_else(|| self.page.take()))
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        let is_dict = self.dictionary.is_some();
        let is_there = is_dict || self.page.is_some();
        let metadata = PageMetadata { num_rows: None, num_levels: None, is_dict };
        Ok(is_there.then_some(metadata))
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        self.get_next_page().map(drop)
    }

    fn at_record_boundary(&mut self) -> Result<bool, ParquetError> {
        Ok(true)
    }
}
