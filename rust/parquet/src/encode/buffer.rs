//! A page under construction.
//!
//! ```text
//! values  ▏levels go here▕▏v0▕▏v1▕▏v2▕ …     as a plain page holds them, or ids of four bytes
//!         └─ HEAD bytes ─┘                     short levels fit in front: nothing is moved
//! ```
//!
//! # Invariants
//! `def` is empty while every level is the greatest; `rep` is empty unless the leaf repeats.
//!
//! # Cost
//! Keeps its allocations from page to page.

use std::ops::Range;

use crate::block::{Block, Layout};
use crate::page::hybrid::{encode, encode_run, width_of};

/// Room in front of the values for levels that are one run.
const HEAD: usize = 64;

/// Rows on their way into a page.
#[derive(Debug, Default)]
pub struct PageBuffer {
    rows: usize,
    levels: usize,
    rep: Vec<u8>,
    def: Vec<u8>,
    /// `HEAD` bytes, then values up to `end`, then room that was zeroed once.
    values: Vec<u8>,
    end: usize,
    ids: Vec<u32>,
    value_count: usize,
    rep_max: u8,
    def_max: u8,
}

impl PageBuffer {
    /// An empty page of a leaf with these greatest levels.
    #[must_use]
    pub fn new(rep_max: u8, def_max: u8) -> Self {
        Self { values: vec![0; HEAD], end: HEAD, rep_max, def_max, ..Self::default() }
    }

    /// Rows so far.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Levels so far: values and nulls.
    #[must_use]
    pub fn levels(&self) -> usize {
        self.levels
    }

    /// Repetition levels; empty if the leaf cannot repeat.
    #[must_use]
    pub fn rep(&self) -> &[u8] {
        &self.rep
    }

    /// Definition levels; empty if all are the greatest.
    #[must_use]
    pub fn def(&self) -> &[u8] {
        &self.def
    }

    /// Values so far.
    #[must_use]
    pub fn value_count(&self) -> usize {
        self.value_count
    }

    /// The plain values; none when the page holds ids.
    #[must_use]
    pub fn values(&self) -> &[u8] {
        &self.values[HEAD..self.end]
    }

    /// The ids; none when the page holds plain values.
    #[must_use]
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Forgets all rows.
    pub fn clear(&mut self) {
        self.rows = 0;
        self.levels = 0;
        self.rep.clear();
        self.def.clear();
        self.end = HEAD;
        self.ids.clear();
        self.value_count = 0;
    }

    /// Bytes held on the heap.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        self.rep.capacity() + self.def.capacity() + self.values.capacity() + 4 * self.ids.capacity()
    }

    /// Makes room for `bytes` more bytes of values.
    #[inline]
    pub fn reserve(&mut self, bytes: usize) {
        if self.values.len() - self.end < bytes {
            self.grow(bytes);
        }
    }

    #[cold]
    fn grow(&mut self, bytes: usize) {
        let len = (self.end + bytes).max(self.values.len() + self.values.len() / 2);
        self.values.resize(len, 0);
    }

    /// Adds rows that are one level and one value each. Their values follow.
    #[inline]
    pub fn add_flat_rows(&mut self, rows: usize) {
        self.rows += rows;
        self.levels += rows;
        self.value_count += rows;
        if !self.def.is_empty() {
            self.def.resize(self.levels, self.def_max);
        }
    }

    /// Adds the levels of `rows` of `block`, and gives the range of their values, which follow.
    #[inline]
    pub fn add_rows(&mut self, block: &Block, rows: Range<usize>) -> Range<usize> {
        let levels = block.levels(rows.clone());
        let values = block.values(rows.clone());
        if self.rep_max > 0 {
            self.rep.extend_from_slice(&block.rep[levels.clone()]);
        }
        if block.def.is_empty() {
            if !self.def.is_empty() {
                self.def.resize(self.levels + levels.len(), self.def_max);
            }
        } else {
            if self.def.is_empty() {
                self.def.resize(self.levels, self.def_max);
            }
            self.def.extend_from_slice(&block.def[levels.clone()]);
        }
        self.rows += rows.len();
        self.levels += levels.len();
        self.value_count += values.len();
        values
    }

    /// Appends values; room was made for them.
    #[inline]
    pub fn push(&mut self, values: &[u8]) {
        self.values[self.end..self.end + values.len()].copy_from_slice(values);
        self.end += values.len();
    }

    /// Appends `N` bytes; room was made for them.
    #[inline]
    pub fn push_array<const N: usize>(&mut self, value: &[u8; N]) {
        self.values[self.end..self.end + N].copy_from_slice(value);
        self.end += N;
    }

    /// Appends an id.
    #[inline]
    pub fn push_id(&mut self, id: u32) {
        self.ids.push(id);
    }

    /// Appends ids.
    #[inline]
    pub fn push_ids(&mut self, ids: &[u32]) {
        self.ids.extend_from_slice(ids);
    }

    /// The body of a page: repetition levels, definition levels (each with its length in front if
    /// `prefixed`) and `values`, or the values held where `None`. Also gives the lengths of the
    /// levels.
    pub fn body(&mut self, prefixed: bool, values: Option<&[u8]>) -> (&[u8], usize, usize) {
        let mut head = Vec::new();
        if self.rep_max > 0 {
            section(&mut head, prefixed, |out| {
                encode(&self.rep, width_of(u32::from(self.rep_max)), out);
            });
        }
        let rep_len = head.len();
        if self.def_max > 0 {
            let width = width_of(u32::from(self.def_max));
            section(&mut head, prefixed, |out| match self.def.is_empty() {
                true => encode_run(u32::from(self.def_max), self.levels, width, out),
                false => encode(&self.def, width, out),
            });
        }
        let def_len = head.len() - rep_len;
        if let Some(values) = values {
            self.end = HEAD;
            self.reserve(values.len());
            self.push(values);
        }
        if head.len() <= HEAD {
            let start = HEAD - head.len();
            self.values[start..HEAD].copy_from_slice(&head);
            return (&self.values[start..self.end], rep_len, def_len);
        }
        let more = head.len() - HEAD;
        self.reserve(more);
        self.values.copy_within(HEAD..self.end, HEAD + more);
        self.values[..head.len()].copy_from_slice(&head);
        self.end += more;
        (&self.values[..self.end], rep_len, def_len)
    }
}

fn section(out: &mut Vec<u8>, prefixed: bool, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    if prefixed {
        out.extend_from_slice(&[0; 4]);
    }
    write(out);
    if prefixed {
        let len = (out.len() - start - 4) as u32;
        out[start..start + 4].copy_from_slice(&len.to_le_bytes());
    }
}

/// Packs booleans, a byte each, into bits.
#[must_use]
pub fn pack_booleans(flags: &[u8]) -> Vec<u8> {
    let pack = |flags: &[u8]| flags.iter().rev().fold(0, |bits, flag| bits << 1 | (flag & 1));
    flags.chunks(8).map(pack).collect()
}

/// Bytes of values of this layout without prefixes.
#[must_use]
pub fn unprefixed_len(layout: Layout, bytes: usize, count: usize) -> usize {
    match layout {
        Layout::Prefixed => bytes - 4 * count,
        Layout::Fixed(_) => bytes,
    }
}
