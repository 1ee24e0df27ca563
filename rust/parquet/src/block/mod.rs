//! The rows of one page of a leaf, unpacked but not decoded further than needed to copy them.
//!
//! ```text
//! levels   rep 0 1 0 0    def 2 2 0 2       u8 each; absent when all rows have their value
//! values   Plain  ▏v0▕▏v1▕▏v2▕               bytes as a plain page holds them, prefixes included
//!          Ids    7 7 0 3  + dictionary      32-bit ids; a row costs four bytes whatever the value
//! starts   level of row 0, 1, 2 …            only when rows differ in levels or values
//! ```
//!
//! Copying rows is copying slices of these, whatever the type: fixed-width values, strings with
//! their length in front, ids.
//!
//! # Invariants
//! Checked when the block is made: levels are in range and as many as the page says, there is a
//! value for every entry at the greatest definition level, plain values fill their bytes exactly
//! as far as they are counted, ids are below the dictionary's length.
//!
//! # Cost
//! The unpacked page itself for plain values; 4 bytes an id; a byte a level.
//!
//! # Not here
//! Reading pages (`page`); the order of rows (`weave`).

pub(crate) mod decode;
pub(crate) mod dictionary;
pub(crate) mod fold;
pub(crate) mod index;
pub(crate) mod kept;
pub(crate) mod reader;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::Type as Physical;
use parquet::schema::types::ColumnDescriptor;

pub(crate) use dictionary::Dictionary;
pub(crate) use reader::BlockReader;

/// How plain values lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// All of this many bytes; booleans take one each.
    Fixed(usize),
    /// Four bytes of length, little-endian, in front of each.
    Prefixed,
}

impl Layout {
    /// The layout of a leaf's values.
    #[must_use]
    pub(crate) fn of(descr: &ColumnDescriptor) -> Self {
        match descr.physical_type() {
            Physical::BOOLEAN => Self::Fixed(1),
            Physical::INT32 | Physical::FLOAT => Self::Fixed(4),
            Physical::INT64 | Physical::DOUBLE => Self::Fixed(8),
            Physical::INT96 => Self::Fixed(12),
            Physical::BYTE_ARRAY => Self::Prefixed,
            Physical::FIXED_LEN_BYTE_ARRAY => {
                Self::Fixed(usize::try_from(descr.type_length()).unwrap_or(0))
            }
        }
    }

    /// Bytes that the value at `at` takes, prefix included; `None` when it does not end in `bytes`.
    #[inline]
    #[must_use]
    pub(crate) fn len_at(self, bytes: &[u8], at: usize) -> Option<usize> {
        let len = match self {
            Self::Fixed(width) => width,
            Self::Prefixed => {
                let prefix: [u8; 4] = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
                4 + u32::from_le_bytes(prefix) as usize
            }
        };
        (at.checked_add(len)? <= bytes.len()).then_some(len)
    }
}

/// Values of a block.
#[derive(Clone, Debug)]
pub(crate) enum Values {
    /// As a plain page holds them.
    Plain(Bytes),
    /// Ids of values of a dictionary.
    Ids(Vec<u32>, Arc<Dictionary>),
}

/// What a page holds, before rows are found in it.
#[derive(Clone, Debug)]
pub(crate) struct Contents {
    /// Number of rows.
    pub rows: usize,
    /// Repetition levels; empty if the leaf cannot repeat.
    pub rep: Vec<u8>,
    /// Definition levels in the shape of the output; empty if all are the greatest.
    pub def: Vec<u8>,
    /// The greatest definition level.
    pub def_max: u8,
    /// The values.
    pub values: Values,
    /// Number of values.
    pub value_count: usize,
}

/// Rows of one page, or of a part of one.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// Number of rows.
    pub rows: usize,
    /// Repetition levels; empty if the leaf cannot repeat.
    pub rep: Vec<u8>,
    /// Definition levels in the shape of the output; empty if all are the greatest.
    pub def: Vec<u8>,
    /// The greatest definition level.
    pub def_max: u8,
    /// First level of each row and one past the last; empty if a row is one level.
    pub level_starts: Vec<u32>,
    /// First value of each row and one past the last; empty unless the leaf repeats and a level is
    /// without value.
    pub value_starts: Vec<u32>,
    /// The values.
    pub values: Values,
    /// Number of values.
    pub value_count: usize,
}

impl Block {
    /// Finds the rows of a page.
    #[must_use]
    pub(crate) fn new(contents: Contents) -> Self {
        let Contents { mut rows, rep, def, def_max, values, value_count } = contents;
        let mut level_starts = Vec::new();
        if !rep.is_empty() {
            fold::add_zeros(&rep, &mut level_starts);
            rows = level_starts.len();
            level_starts.push(rep.len() as u32);
        }
        let mut value_starts = Vec::new();
        if !def.is_empty() && !rep.is_empty() {
            value_starts.reserve_exact(rows + 1);
            let (mut value, mut level) = (0, 0);
            for end in level_starts.iter().skip(1) {
                value_starts.push(value);
                let end = *end as usize;
                value += def[level..end].iter().map(|d| u32::from(*d == def_max)).sum::<u32>();
                level = end;
            }
            value_starts.push(value);
        }
        Self { rows, rep, def, def_max, level_starts, value_starts, values, value_count }
    }

    /// The levels of `rows`.
    #[inline]
    #[must_use]
    pub(crate) fn levels(&self, rows: Range<usize>) -> Range<usize> {
        match self.level_starts.is_empty() {
            true => rows,
            false => self.level_starts[rows.start] as usize..self.level_starts[rows.end] as usize,
        }
    }

    /// The values of a row of a leaf that repeats, by index.
    #[inline]
    #[must_use]
    pub(crate) fn values(&self, row: usize) -> Range<usize> {
        match self.value_starts.is_empty() {
            true => self.levels(row..row + 1),
            false => self.value_starts[row] as usize..self.value_starts[row + 1] as usize,
        }
    }

    /// How many values the first `rows` rows have.
    #[must_use]
    pub(crate) fn values_before(&self, rows: usize) -> usize {
        if !self.value_starts.is_empty() {
            return self.value_starts[rows] as usize;
        }
        match self.def.is_empty() {
            true => self.levels(0..rows).end,
            false => fold::occurrences(&self.def[..rows], self.def_max),
        }
    }

    /// Bytes held on the heap, without what others share (unpacked pages, dictionaries).
    #[must_use]
    pub(crate) fn memory_size(&self) -> usize {
        let ids = match &self.values {
            Values::Ids(ids, _) => 4 * ids.capacity(),
            Values::Plain(_) => 0,
        };
        let starts = self.level_starts.capacity() + self.value_starts.capacity();
        self.rep.capacity() + self.def.capacity() + 4 * starts + ids
    }
}
