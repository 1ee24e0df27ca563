//! One source's rows on their way into a chunk.
//!
//! ```text
//! block   ▒▒▒▒▒▒░░░░░░░░      taken │ left
//!               └ row, value, byte: where the next row begins
//! ```
//!
//! # Invariants
//! Rows are taken in order. `left` rows of the block are not taken yet; a lane without a block has
//! none.

use std::sync::Arc;

use bytes::Bytes;

use crate::block::{Block, BlockReader, Dictionary, Layout, Values};
use crate::encode::PageBuffer;

/// What a lane's values are, for the loop that copies them.
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

/// One source in one chunk.
#[derive(Default)]
pub(super) struct Lane {
    pub(super) reader: Option<BlockReader>,
    /// Rows of the block that are left.
    pub(super) left: usize,
    /// Whether every row is one level and one value.
    pub(super) is_flat: bool,
    pub(super) form: Form,
    row: usize,
    /// Where the next plain value begins.
    byte: usize,
    plain: Bytes,
    ids: Vec<u32>,
    dictionary: Option<Arc<Dictionary>>,
    block: Option<Block>,
}

impl Lane {
    /// Takes in a block whose first `skip` rows are not wanted.
    pub(super) fn load(&mut self, mut block: Block, skip: usize, layout: Layout, writes_ids: bool) {
        self.left = block.rows - skip;
        self.row = skip;
        self.is_flat = block.is_flat();
        let skipped = block.values(0..skip).end;
        match std::mem::replace(&mut block.values, Values::Plain(Bytes::new())) {
            Values::Plain(plain) => {
                (self.form, self.byte) = match layout {
                    Layout::Fixed(width) => (Form::Fixed, skipped * width),
                    Layout::Prefixed => {
                        let mut at = 0;
                        for _ in 0..skipped {
                            at += layout.len_at(&plain, at).unwrap_or(0);
                        }
                        (Form::Prefixed, at)
                    }
                };
                self.plain = plain;
                self.ids = Vec::new();
                self.dictionary = None;
            }
            Values::Ids(ids, dictionary) => {
                self.form = if writes_ids { Form::Ids } else { Form::Lookup };
                self.ids = ids;
                self.dictionary = Some(dictionary);
                self.plain = Bytes::new();
            }
        }
        self.block = Some(block);
    }

    /// Ids that are here are looked up from now on.
    pub(super) fn fall_back(&mut self) {
        if self.form == Form::Ids {
            self.form = Form::Lookup;
        }
    }

    /// Lets go of the block and the reader.
    pub(super) fn close(&mut self) {
        *self = Self::default();
    }

    /// Bytes held on the heap, without what pages account for.
    pub(super) fn memory_size(&self) -> usize {
        4 * self.ids.capacity() + self.block.as_ref().map_or(0, Block::memory_size)
    }

    /// Moves the next row, which is flat, as an id.
    #[inline]
    pub(super) fn take_id(&mut self, page: &mut PageBuffer) {
        page.add_flat_rows(1);
        page.push_id(self.ids[self.row]);
        self.row += 1;
        self.left -= 1;
    }

    /// Moves the next row, which is flat, as `N` bytes; the page has room for them.
    #[inline]
    pub(super) fn take_array<const N: usize>(&mut self, page: &mut PageBuffer) {
        page.add_flat_rows(1);
        if let Some(value) = self.plain[self.byte..].first_chunk::<N>() {
            page.push_array(value);
        }
        self.byte += N;
        self.row += 1;
        self.left -= 1;
    }

    /// Moves the next `rows` rows, which are here.
    #[inline]
    pub(super) fn take(&mut self, page: &mut PageBuffer, rows: usize, layout: Layout) {
        let range = self.row..self.row + rows;
        let values = match &self.block {
            Some(block) if !self.is_flat => page.add_rows(block, range),
            _ => {
                page.add_flat_rows(rows);
                range
            }
        };
        match self.form {
            Form::Ids => page.push_ids(&self.ids[values]),
            Form::Fixed => {
                let Layout::Fixed(width) = layout else { return };
                self.take_bytes(page, values.len() * width);
            }
            Form::Prefixed => {
                let mut end = self.byte;
                for _ in values {
                    end += layout.len_at(&self.plain, end).unwrap_or(0);
                }
                self.take_bytes(page, end - self.byte);
            }
            Form::Lookup => {
                if let Some(dictionary) = &self.dictionary {
                    for id in &self.ids[values] {
                        let value = dictionary.plain(*id as usize);
                        page.reserve(value.len());
                        page.push(value);
                    }
                }
            }
            Form::Nothing => {}
        }
        self.row += rows;
        self.left -= rows;
    }

    #[inline]
    fn take_bytes(&mut self, page: &mut PageBuffer, len: usize) {
        page.reserve(len);
        page.push(&self.plain[self.byte..self.byte + len]);
        self.byte += len;
    }
}
