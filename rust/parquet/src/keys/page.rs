//! The rows of one page of a key column, read where they lie.
//!
//! ```text
//! levels   run of 20000 × 1             every row has its value
//! values   run of 25 × id 7 │ …         looked up once: rank, number or bytes
//!          F0 26 84 66 00 00 00 00 …    plain: a number as it is
//! ```
//!
//! # Invariants
//! Levels, ids and lengths are checked before they are used.
//!
//! # Cost
//! A nanosecond or two a value; a run of one id costs one look.
//!
//! # Not here
//! Which page comes next (`paged`).

use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::Type as Physical;
use parquet::column::page::Page;
use plait_core::key::{KeyBytes, KeyType, numbers, numbers_at};
use plait_core::{Error, Kind, Result};

use crate::block::decode::{ChunkDictionary, PageShape, decode_page, is_ids, parts};
use crate::block::fold::greatest;
use crate::block::{Dictionary, Layout, Values};
use crate::page::hybrid::width_of;
use crate::page::hybrid_reader::{HybridReader, Part};
use crate::ranks::RankBook;

/// The values of some rows of one column.
#[derive(Default)]
pub(super) struct Cells {
    /// Which rows have a value; empty if all have.
    pub(super) present: Vec<bool>,
    /// Their numbers or ranks.
    pub(super) numbers: Vec<u64>,
    /// Or the byte strings.
    pub(super) bytes: KeyBytes,
    rows: usize,
}

impl Cells {
    /// Forgets all rows and keeps the allocations.
    pub(super) fn clear(&mut self) {
        self.present.clear();
        self.numbers.clear();
        self.bytes.clear();
        self.rows = 0;
    }

    /// Adds rows without a value.
    pub(super) fn add_nulls(&mut self, rows: usize) {
        self.note(false, rows);
    }

    fn note(&mut self, has_value: bool, rows: usize) {
        if !has_value && self.present.is_empty() {
            self.present.resize(self.rows, true);
        }
        self.rows += rows;
        if !has_value || !self.present.is_empty() {
            self.present.resize(self.rows, has_value);
        }
    }
}

/// What a column's values become.
#[derive(Clone)]
pub(super) enum Takes {
    /// Numbers of this type.
    Numbers(KeyType),
    /// Byte strings.
    Bytes,
    /// Ranks of byte strings: those of this column in the book.
    Ranks(Arc<RankBook>, usize),
}

/// What a page's values are looked up in.
pub(super) struct Look<'a> {
    pub(super) shape: &'a PageShape,
    pub(super) takes: &'a Takes,
    /// The chunk's dictionary; without values if these become ranks.
    pub(super) dictionary: &'a ChunkDictionary,
    /// The rank of each id.
    pub(super) ranks: Option<&'a [u32]>,
}

/// A page, as far as it is not read.
pub(super) struct OpenPage {
    pub(super) rows: usize,
    levels: Levels,
    values: Vals,
}

enum Levels {
    /// Every row has its value.
    All,
    /// A row has its value at this level.
    Read(HybridReader, u32),
    /// The same, from a page that was decoded whole.
    Held(Vec<u8>, usize, u8),
}

enum Vals {
    Plain(Bytes, usize),
    Ids(HybridReader),
}

impl OpenPage {
    /// Opens an unpacked page of `rows` rows.
    pub(super) fn open(page: &Page, rows: usize, look: &Look<'_>) -> Result<Self> {
        let parts = parts(page, look.shape)?;
        let is_boolean = look.shape.descr.physical_type() == Physical::BOOLEAN;
        if is_boolean || !parts.is_ours(look.shape) {
            let block = decode_page(page, rows, look.shape, look.dictionary)?;
            let Values::Plain(plain) = block.values else {
                return Err(Error::new(Kind::Internal, "a page was decoded to ids"));
            };
            let levels = match block.def.is_empty() {
                true => Levels::All,
                false => Levels::Held(block.def, 0, look.shape.def_max),
            };
            return Ok(Self { rows, levels, values: Vals::Plain(plain, 0) });
        }
        let levels = match u32::try_from(look.shape.descr.max_def_level()).unwrap_or(0) {
            0 => Levels::All,
            max => Levels::Read(HybridReader::try_new(parts.def, width_of(max))?, max),
        };
        let values = if !is_ids(parts.encoding) {
            Vals::Plain(parts.values, 0)
        } else if let Some(width) = parts.values.first() {
            let width = u32::from(*width);
            Vals::Ids(HybridReader::try_new(parts.values.slice(1..), width)?)
        } else {
            Vals::Ids(HybridReader::try_new(Bytes::new(), 0)?) // fine without values
        };
        Ok(Self { rows, levels, values })
    }

    /// How many of the next `rows` rows are here and have at most `bytes_max` bytes of values, or
    /// one row.
    pub(super) fn rows_within(
        &self,
        rows: usize,
        bytes_max: usize,
        layout: Layout,
        dictionary: &ChunkDictionary,
    ) -> usize {
        let rows = rows.min(self.rows);
        let fit = match &self.values {
            Vals::Ids(_) => {
                let longest = dictionary.values.as_ref().map_or(0, |values| values.longest());
                bytes_max.checked_div(longest).unwrap_or(rows)
            }
            Vals::Plain(bytes, at) if bytes.len() - at <= bytes_max => rows,
            Vals::Plain(bytes, at) => {
                let (mut end, mut fit) = (*at, 0);
                while fit < rows
                    && let Some(len) = layout.len_at(bytes, end)
                    && end + len - at <= bytes_max
                {
                    (end, fit) = (end + len, fit + 1);
                }
                fit
            }
        };
        rows.min(fit.max(1))
    }

    /// Passes over `rows` rows, which are there.
    pub(super) fn skip(&mut self, rows: usize, layout: Layout) -> Result<()> {
        self.each(rows, |values, has_value, rows| match has_value {
            true => values.skip(rows, layout),
            false => Ok(()),
        })
    }

    /// Moves `rows` rows, which are there, to `cells`.
    pub(super) fn take(&mut self, rows: usize, look: &Look<'_>, cells: &mut Cells) -> Result<()> {
        self.each(rows, |values, has_value, rows| {
            cells.note(has_value, rows);
            if has_value { values.take(rows, look, cells) } else { Ok(()) }
        })
    }

    /// Calls `each` for the next `rows` rows, piece by piece: with values, or without.
    fn each(
        &mut self,
        rows: usize,
        mut each: impl FnMut(&mut Vals, bool, usize) -> Result<()>,
    ) -> Result<()> {
        self.rows -= rows;
        let values = &mut self.values;
        match &mut self.levels {
            Levels::All => each(values, true, rows),
            Levels::Read(reader, max) => {
                let mut left = rows;
                while left > 0 {
                    let part = reader.next(left)?;
                    left -= part.len();
                    match part {
                        Part::Same(level, times) => {
                            check_level(level, *max)?;
                            each(values, level == *max, times)?;
                        }
                        Part::Many(levels) => {
                            check_level(greatest(levels), *max)?;
                            for run in levels.chunk_by(|a, b| (a == max) == (b == max)) {
                                each(values, run.first() == Some(max), run.len())?;
                            }
                        }
                    }
                }
                Ok(())
            }
            Levels::Held(levels, at, max) => {
                let next = levels.get(*at..*at + rows).unwrap_or_default();
                *at += rows;
                for run in next.chunk_by(|a, b| (a == max) == (b == max)) {
                    each(values, run.first() == Some(max), run.len())?;
                }
                Ok(())
            }
        }
    }
}

fn check_level(level: u32, max: u32) -> Result<()> {
    if level <= max {
        return Ok(());
    }
    Err(Error::new(Kind::CorruptSource, "level is above the column's maximum")
        .with_hint("the file is damaged; write it again from its origin"))
}

impl Vals {
    fn skip(&mut self, count: usize, layout: Layout) -> Result<()> {
        match self {
            Self::Plain(bytes, at) => match layout {
                Layout::Fixed(width) => {
                    let end = width.checked_mul(count).and_then(|len| at.checked_add(len));
                    *at = end.filter(|end| *end <= bytes.len()).ok_or_else(too_few)?;
                    Ok(())
                }
                _ => (0..count).try_for_each(|_| next_plain(bytes, at, layout).map(drop)),
            },
            Self::Ids(reader) => reader.skip(count),
        }
    }

    fn take(&mut self, count: usize, look: &Look<'_>, cells: &mut Cells) -> Result<()> {
        let layout = look.shape.layout;
        match (self, look.takes) {
            (Self::Plain(bytes, at), Takes::Numbers(ty)) => {
                let Layout::Fixed(width) = layout else { return Err(too_few()) };
                let end = width.checked_mul(count).and_then(|len| at.checked_add(len));
                let plain = end.and_then(|end| bytes.get(*at..end)).ok_or_else(too_few)?;
                *at += plain.len();
                numbers(*ty, plain, &mut cells.numbers)
            }
            (Self::Plain(bytes, at), Takes::Bytes) => (0..count).try_for_each(|_| {
                cells.bytes.push(next_plain(bytes, at, layout)?);
                Ok(())
            }),
            (Self::Plain(bytes, at), Takes::Ranks(book, column)) => {
                // Sorted values come in runs.
                let mut last: Option<(&[u8], u64)> = None;
                for _ in 0..count {
                    let value = next_plain(bytes, at, layout)?;
                    let rank = match last {
                        Some((same, rank)) if same == value => rank,
                        _ => book.find(*column, value)?,
                    };
                    cells.numbers.push(rank);
                    last = Some((value, rank));
                }
                Ok(())
            }
            (Self::Ids(reader), Takes::Ranks(..)) => {
                let ranks = look.ranks.ok_or_else(no_dictionary)?;
                let to = &mut cells.numbers;
                each_part(reader, count, ranks.len(), |part| {
                    match part {
                        Part::Same(id, times) => {
                            to.resize(to.len() + times, u64::from(ranks[id as usize]));
                        }
                        Part::Many(ids) => {
                            to.extend(ids.iter().map(|id| u64::from(ranks[*id as usize])));
                        }
                    }
                    Ok(())
                })
            }
            (Self::Ids(reader), Takes::Numbers(ty)) => {
                let dictionary = dictionary(look)?;
                let (plain, to) = (dictionary.bytes(), &mut cells.numbers);
                each_part(reader, count, dictionary.len(), |part| match part {
                    Part::Same(id, times) => {
                        numbers_at(*ty, plain, &[id], to)?;
                        to.resize(to.len() + times - 1, to.last().copied().unwrap_or(0));
                        Ok(())
                    }
                    Part::Many(ids) => numbers_at(*ty, plain, ids, to),
                })
            }
            (Self::Ids(reader), Takes::Bytes) => {
                let (dictionary, to) = (dictionary(look)?, &mut cells.bytes);
                each_part(reader, count, dictionary.len(), |part| {
                    match part {
                        Part::Same(id, times) => {
                            let value = dictionary.value(id as usize);
                            (0..times).for_each(|_| to.push(value));
                        }
                        Part::Many(ids) => {
                            ids.iter().for_each(|id| to.push(dictionary.value(*id as usize)));
                        }
                    }
                    Ok(())
                })
            }
        }
    }
}

/// Calls `each` with ids, piece by piece, all of them below `len`.
fn each_part(
    reader: &mut HybridReader,
    count: usize,
    len: usize,
    mut each: impl FnMut(Part<'_>) -> Result<()>,
) -> Result<()> {
    let mut left = count;
    while left > 0 {
        let part = reader.next(left)?;
        left -= part.len();
        let max = match part {
            Part::Same(id, _) => id,
            Part::Many(ids) => greatest(ids),
        };
        if max as usize >= len {
            return Err(Error::new(Kind::CorruptSource, "id is not in the dictionary")
                .with_got(format!("id {max} of {len} values")));
        }
        each(part)?;
    }
    Ok(())
}

/// The plain value at `at`, without its prefix, and moves on behind it.
#[inline]
fn next_plain<'a>(bytes: &'a Bytes, at: &mut usize, layout: Layout) -> Result<&'a [u8]> {
    let len = layout.len_at(bytes, *at).ok_or_else(too_few)?;
    let prefix = if layout == Layout::Prefixed { 4 } else { 0 };
    let value = bytes.get(*at + prefix..*at + len).ok_or_else(too_few)?;
    *at += len;
    Ok(value)
}

fn dictionary<'a>(look: &Look<'a>) -> Result<&'a Arc<Dictionary>> {
    look.dictionary.values.as_ref().ok_or_else(no_dictionary)
}

fn no_dictionary() -> Error {
    Error::new(Kind::CorruptSource, "page refers to a dictionary that is not there")
}

fn too_few() -> Error {
    Error::new(Kind::CorruptSource, "page has fewer values than it says")
}
