//! One source's rows on their way into a chunk.
//!
//! ```text
//! block   ▒▒▒▒▒▒░░░░░░░░      taken │ left
//!               └ row, value, byte: where the next row begins
//! ```
//!
//! # Invariants
//! Rows are taken in order. `left` rows of the block are not taken yet; a cursor without a block
//! has none.

use std::sync::Arc;

use bytes::Bytes;

use crate::block::fold::occurrences;
use crate::block::{Block, BlockReader, Dictionary, Layout, Values};
use crate::encode::PageBuffer;
use crate::encode::buffer::PageAppender;

/// Ids of more rows than this are looked up one by one instead of all at once.
const LOOKUP_ROWS_MAX: usize = 64 << 10;

/// The widest values that are looked up all at once.
const LOOKUP_BYTES_MAX: usize = 16;

/// What a cursor's values are, for the loops that copy them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    /// Nothing is here.
    #[default]
    Nothing,
    /// Plain values of one width.
    Fixed,
    /// Plain values with their length in front.
    Prefixed,
    /// Ids of the dictionary that the chunk writes.
    Ids,
    /// Ids whose values are written.
    Lookup,
}

/// How the rows of a cursor are made of levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Rows {
    /// One level and one value each.
    #[default]
    Flat,
    /// One level each, and a value or none.
    Nullable,
    /// Any number of levels.
    Repeated,
}

/// One source in one chunk.
#[derive(Default)]
pub(super) struct SourceCursor {
    pub(super) reader: Option<BlockReader>,
    /// Rows of the block that are left.
    pub(super) left: usize,
    pub(super) rows: Rows,
    pub(super) form: Form,
    row: usize,
    /// The next value, and where it begins if it is plain.
    value: usize,
    byte: usize,
    plain: Bytes,
    /// Bytes of `plain` that no page accounts for: they were looked up here.
    looked_up: usize,
    ids: Vec<u32>,
    def: Vec<u8>,
    def_max: u8,
    dictionary: Option<Arc<Dictionary>>,
    block: Option<Block>,
}

impl SourceCursor {
    /// Takes in a block whose first `skip` rows are not wanted.
    pub(super) fn load(&mut self, mut block: Block, skip: usize, layout: Layout, writes_ids: bool) {
        self.left = block.rows - skip;
        self.row = skip;
        self.rows = match (block.rep.is_empty(), block.def.is_empty()) {
            (true, true) => Rows::Flat,
            (true, false) => Rows::Nullable,
            (false, _) => Rows::Repeated,
        };
        self.value = block.values_before(skip);
        self.def = std::mem::take(&mut block.def);
        self.def_max = block.def_max;
        self.ids = Vec::new();
        self.dictionary = None;
        self.looked_up = 0;
        match std::mem::replace(&mut block.values, Values::Plain(Bytes::new())) {
            Values::Ids(ids, _) if writes_ids => {
                (self.form, self.ids) = (Form::Ids, ids);
            }
            Values::Ids(ids, dictionary) => match layout {
                Layout::Fixed(width)
                    if width <= LOOKUP_BYTES_MAX && ids.len() <= LOOKUP_ROWS_MAX =>
                {
                    self.plain = dictionary.look_up(&ids).into();
                    self.looked_up = self.plain.len();
                    self.form = Form::Fixed;
                }
                _ => {
                    (self.form, self.ids) = (Form::Lookup, ids);
                    self.dictionary = Some(dictionary);
                }
            },
            Values::Plain(plain) => {
                self.plain = plain;
                self.form = match layout {
                    Layout::Fixed(_) => Form::Fixed,
                    Layout::Prefixed => Form::Prefixed,
                };
            }
        }
        if !matches!(self.form, Form::Fixed | Form::Prefixed) {
            self.plain = Bytes::new();
        }
        self.byte = match (self.form, layout) {
            (Form::Fixed, Layout::Fixed(width)) => self.value * width,
            (Form::Prefixed, _) => self.byte_of(self.value, layout),
            _ => 0,
        };
        self.block = (self.rows == Rows::Repeated).then_some(block);
    }

    fn byte_of(&self, value: usize, layout: Layout) -> usize {
        let mut at = 0;
        for _ in 0..value {
            at += layout.len_at(&self.plain, at).unwrap_or(0);
        }
        at
    }

    /// Ids that are here are looked up in `dictionary` from now on.
    pub(super) fn fall_back(&mut self, dictionary: &Arc<Dictionary>) {
        if self.form == Form::Ids {
            self.form = Form::Lookup;
            self.dictionary = Some(Arc::clone(dictionary));
        }
    }

    /// Ids that were looked up in `dictionary` are written again from now on.
    pub(super) fn restore(&mut self, dictionary: &Arc<Dictionary>) {
        let is_its = |known: &Arc<Dictionary>| Arc::ptr_eq(known, dictionary);
        if self.form == Form::Lookup && self.dictionary.as_ref().is_some_and(is_its) {
            self.form = Form::Ids;
        }
    }

    /// Lets go of the block and the reader.
    pub(super) fn close(&mut self) {
        *self = Self::default();
    }

    /// Bytes held on the heap, without what pages account for.
    pub(super) fn memory_size(&self) -> usize {
        let block = self.block.as_ref().map_or(0, Block::memory_size);
        4 * self.ids.capacity() + self.def.capacity() + self.looked_up + block
    }

    /// Bytes of the unpacked page and of a dictionary that are kept from being let go of.
    pub(super) fn page_size(&self) -> usize {
        self.plain.len() + self.dictionary.as_ref().map_or(0, |values| values.memory_size())
    }

    /// Moves the next `rows` rows of a cursor whose rows are one level each and whose values are
    /// ids. The page has room for them.
    #[inline(always)]
    pub(super) fn put_ids(&mut self, rows: usize, nullable: bool, out: &mut PageAppender<'_>) {
        let values = self.put_levels(rows, nullable, out);
        match values {
            0 => {}
            1 => out.put_id(self.ids[self.value]),
            n => out.put_ids(&self.ids[self.value..self.value + n]),
        }
        self.value += values;
    }

    /// The ids of the rows that are left, if these have no levels.
    pub(super) fn flat_ids(&self) -> &[u32] {
        match (self.form, self.rows) {
            (Form::Ids, Rows::Flat) => {
                self.ids.get(self.value..self.value + self.left).unwrap_or_default()
            }
            _ => &[],
        }
    }

    /// The plain values, of `N` bytes, of the rows that are left, if these have no levels.
    pub(super) fn flat_values<const N: usize>(&self) -> &[[u8; N]] {
        match (self.form, self.rows) {
            (Form::Fixed, Rows::Flat) => {
                let plain = self.plain.get(self.byte..self.byte + self.left * N);
                plain.unwrap_or_default().as_chunks().0
            }
            _ => &[],
        }
    }

    /// Passes over rows without levels, whose values of `width` bytes were moved.
    pub(super) fn pass_flat(&mut self, rows: usize, width: usize) {
        self.left -= rows;
        self.row += rows;
        self.value += rows;
        self.byte += rows * width;
    }

    /// As [`put_ids`](Self::put_ids), for plain values of `N` bytes.
    #[inline(always)]
    pub(super) fn put_fixed<const N: usize>(
        &mut self,
        rows: usize,
        nullable: bool,
        out: &mut PageAppender<'_>,
    ) {
        let values = self.put_levels(rows, nullable, out);
        let plain = &self.plain[self.byte..];
        match values {
            0 => {}
            1 => {
                if let Some(value) = plain.first_chunk::<N>() {
                    out.put(value);
                }
            }
            n => out.put(&plain[..n * N]),
        }
        self.byte += values * N;
    }

    /// As [`put_ids`](Self::put_ids), for plain values with their length in front; `false` when the
    /// page has no room for the next one, which is then not moved. For single rows.
    #[inline(always)]
    pub(super) fn put_prefixed(&mut self, nullable: bool, out: &mut PageAppender<'_>) -> bool {
        let is_there = !nullable || self.rows == Rows::Flat || self.def[self.row] == out.def_max();
        if is_there {
            let plain = &self.plain[self.byte..];
            let len = Layout::Prefixed.len_at(plain, 0).unwrap_or(0);
            if out.room() < len {
                return false;
            }
            out.put_short(plain, len);
            self.byte += len;
        }
        self.put_levels(1, nullable, out);
        true
    }

    /// Moves the levels of `rows` rows; how many values are under them.
    #[inline(always)]
    fn put_levels(&mut self, rows: usize, nullable: bool, out: &mut PageAppender<'_>) -> usize {
        let row = self.row;
        self.row += rows;
        self.left -= rows;
        if !nullable {
            out.add_flat(rows);
            return rows;
        }
        if self.rows == Rows::Flat {
            out.add_levels(rows);
            return rows;
        }
        out.add_nullable(&self.def[row..row + rows])
    }

    /// Moves the next row of a cursor that repeats, of plain values of `width` bytes; `false` when
    /// the page has no room for it.
    #[inline(always)]
    pub(super) fn put_repeated(&mut self, width: usize, out: &mut PageAppender<'_>) -> bool {
        let Some(block) = &self.block else { return false };
        let levels = block.levels(self.row..self.row + 1);
        let values = block.values(self.row).len();
        let len = values * width;
        if out.room() < len || out.level_room() < levels.len() {
            return false;
        }
        out.add_repeated(&block.rep, &self.def, levels, values);
        out.put_short(&self.plain[self.byte..], len);
        self.byte += len;
        self.value += values;
        self.row += 1;
        self.left -= 1;
        true
    }

    /// How many of the next `rows` rows, which are here, become at most `bytes_max` bytes of
    /// values, or one row: ids say nothing of how long their values are.
    pub(super) fn rows_within(&self, rows: usize, bytes_max: usize, layout: Layout) -> usize {
        let most = match (self.form, &self.dictionary) {
            (Form::Fixed | Form::Prefixed, _) => self.plain.len() - self.byte,
            (Form::Lookup, Some(dictionary)) => {
                let levels = match &self.block {
                    Some(block) => block.levels(self.row..self.row + rows).len(),
                    None => rows,
                };
                levels.saturating_mul(dictionary.longest())
            }
            _ => 0,
        };
        if most <= bytes_max {
            return rows;
        }
        let (mut value, mut byte, mut bytes) = (self.value, self.byte, 0_usize);
        for row in 0..rows {
            let values = match (self.rows, &self.block) {
                (Rows::Repeated, Some(block)) => block.values(self.row + row).len(),
                (Rows::Nullable, _) => usize::from(self.def[self.row + row] == self.def_max),
                _ => 1,
            };
            for _ in 0..values {
                let len = match (self.form, &self.dictionary) {
                    (Form::Lookup, Some(dictionary)) => {
                        dictionary.plain(self.ids[value] as usize).len()
                    }
                    _ => layout.len_at(&self.plain, byte).unwrap_or(0),
                };
                (value, byte, bytes) = (value + 1, byte + len, bytes.saturating_add(len));
            }
            if bytes > bytes_max {
                return row.max(1);
            }
        }
        rows
    }

    /// Moves the next `rows` rows, which are here, whatever they are.
    pub(super) fn take(&mut self, page: &mut PageBuffer, rows: usize, layout: Layout) {
        let range = self.row..self.row + rows;
        let values = match self.rows {
            Rows::Flat => {
                page.add_flat_rows(rows);
                rows
            }
            Rows::Nullable => page.add_rows(rows, &[], &self.def[range]),
            Rows::Repeated => match &self.block {
                Some(block) => {
                    let levels = block.levels(range);
                    let def = if self.def.is_empty() { &[] } else { &self.def[levels.clone()] };
                    page.add_rows(rows, &block.rep[levels], def)
                }
                None => 0,
            },
        };
        match self.form {
            Form::Ids => page.push_ids(&self.ids[self.value..self.value + values]),
            Form::Fixed => {
                let Layout::Fixed(width) = layout else { return };
                self.take_bytes(page, values * width);
            }
            Form::Prefixed => {
                let mut end = self.byte;
                for _ in 0..values {
                    end += layout.len_at(&self.plain, end).unwrap_or(0);
                }
                self.take_bytes(page, end - self.byte);
            }
            Form::Lookup => {
                if let Some(dictionary) = &self.dictionary {
                    for id in &self.ids[self.value..self.value + values] {
                        page.push(dictionary.plain(*id as usize));
                    }
                }
            }
            Form::Nothing => {}
        }
        self.value += values;
        self.row += rows;
        self.left -= rows;
    }

    /// Passes over the next `rows` rows, which are here.
    pub(super) fn skip(&mut self, rows: usize, layout: Layout, def_max: u8) {
        let values = match (&self.rows, &self.block) {
            (Rows::Flat, _) => rows,
            (Rows::Nullable, _) => occurrences(&self.def[self.row..self.row + rows], def_max),
            (Rows::Repeated, Some(block)) => {
                (self.row..self.row + rows).map(|row| block.values(row).len()).sum()
            }
            (Rows::Repeated, None) => 0,
        };
        match (self.form, layout) {
            (Form::Fixed, Layout::Fixed(width)) => self.byte += values * width,
            (Form::Prefixed, _) => {
                for _ in 0..values {
                    self.byte += layout.len_at(&self.plain, self.byte).unwrap_or(0);
                }
            }
            _ => {}
        }
        self.value += values;
        self.row += rows;
        self.left -= rows;
    }

    fn take_bytes(&mut self, page: &mut PageBuffer, len: usize) {
        page.push(&self.plain[self.byte..self.byte + len]);
        self.byte += len;
    }
}
