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

use crate::block::fold::occurrences;
use crate::page::hybrid::{encode, encode_run, width_of};

/// Room in front of the values for levels that are one run.
const HEAD: usize = 64;

/// Bytes that may be written behind the end, so that short copies have one length.
const SLACK: usize = 64;

/// Where the loops that copy rows write: room that was made before, and how much of it is used.
pub(crate) struct PageAppender<'a> {
    rows: usize,
    rows_max: usize,
    levels: usize,
    values: usize,
    def_max: u8,
    def: &'a mut [u8],
    rep: &'a mut [u8],
    ids: &'a mut [u32],
    id: usize,
    bytes: &'a mut [u8],
    byte: usize,
}

impl PageAppender<'_> {
    /// How many more rows there is room for.
    #[inline(always)]
    #[must_use]
    pub(crate) fn rows_left(&self) -> usize {
        self.rows_max - self.rows
    }

    /// Bytes of plain values there is room for.
    #[inline(always)]
    #[must_use]
    pub(crate) fn room(&self) -> usize {
        self.bytes.len() - SLACK - self.byte
    }

    /// Levels there is room for.
    #[inline(always)]
    #[must_use]
    pub(crate) fn level_room(&self) -> usize {
        self.rep.len() - SLACK - self.levels
    }

    /// The greatest definition level.
    #[inline(always)]
    #[must_use]
    pub(crate) fn def_max(&self) -> u8 {
        self.def_max
    }

    /// Adds rows of one level and one value each, while all levels are the greatest.
    #[inline(always)]
    pub(crate) fn add_flat(&mut self, rows: usize) {
        self.rows += rows;
        self.levels += rows;
        self.values += rows;
    }

    /// As [`add_flat`](Self::add_flat), where levels are written out.
    #[inline(always)]
    pub(crate) fn add_levels(&mut self, rows: usize) {
        self.def[self.levels..self.levels + rows].fill(self.def_max);
        self.add_flat(rows);
    }

    /// Adds rows of one level each; how many have a value.
    #[inline(always)]
    pub(crate) fn add_nullable(&mut self, def: &[u8]) -> usize {
        let values = if let [level] = def {
            self.def[self.levels] = *level;
            usize::from(*level == self.def_max)
        } else {
            self.def[self.levels..self.levels + def.len()].copy_from_slice(def);
            occurrences(def, self.def_max)
        };
        self.rows += def.len();
        self.levels += def.len();
        self.values += values;
        values
    }

    /// Adds a row of the levels `range`; `def` is empty if all are the greatest.
    #[inline(always)]
    pub(crate) fn add_repeated(
        &mut self,
        rep: &[u8],
        def: &[u8],
        range: Range<usize>,
        values: usize,
    ) {
        let len = range.len();
        copy_short(&mut self.rep[self.levels..], &rep[range.start..], len);
        if !self.def.is_empty() {
            if def.is_empty() {
                self.def[self.levels..self.levels + len].fill(self.def_max);
            } else {
                copy_short(&mut self.def[self.levels..], &def[range.start..], len);
            }
        }
        self.rows += 1;
        self.levels += len;
        self.values += values;
    }

    /// Appends an id.
    #[inline(always)]
    pub(crate) fn put_id(&mut self, id: u32) {
        self.ids[self.id] = id;
        self.id += 1;
    }

    /// Appends ids.
    #[inline(always)]
    pub(crate) fn put_ids(&mut self, ids: &[u32]) {
        self.ids[self.id..self.id + ids.len()].copy_from_slice(ids);
        self.id += ids.len();
    }

    /// Gives `write` room for ids of rows of one level and one value each, while all levels are the
    /// greatest. It says how many steps it did, which is returned, and how many ids it wrote.
    #[inline(always)]
    pub(crate) fn write_ids(&mut self, write: impl FnOnce(&mut [u32]) -> (usize, usize)) -> usize {
        let (start, rows_max) = (self.id, self.rows_left());
        let (steps, rows) = write(&mut self.ids[start..start + rows_max]);
        self.id += rows;
        self.add_flat(rows);
        steps
    }

    /// As [`write_ids`](Self::write_ids), for plain values of `N` bytes.
    #[inline(always)]
    pub(crate) fn write_values<const N: usize>(
        &mut self,
        write: impl FnOnce(&mut [[u8; N]]) -> (usize, usize),
    ) -> usize {
        let (start, rows_max) = (self.byte, self.rows_left());
        let (places, _) = self.bytes[start..start + rows_max * N].as_chunks_mut();
        let (steps, rows) = write(places);
        self.byte += rows * N;
        self.add_flat(rows);
        steps
    }

    /// Appends bytes of values.
    #[inline(always)]
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.byte..self.byte + bytes.len()].copy_from_slice(bytes);
        self.byte += bytes.len();
    }

    /// Appends the first `len` of `bytes`.
    #[inline(always)]
    pub(crate) fn put_short(&mut self, bytes: &[u8], len: usize) {
        copy_short(&mut self.bytes[self.byte..], bytes, len);
        self.byte += len;
    }
}

/// Copies `len` bytes to the front of `to`, which has [`SLACK`] bytes more: where both have so
/// many, all of them, which takes a few instructions; what is behind `len` is overwritten next.
#[inline(always)]
fn copy_short(to: &mut [u8], from: &[u8], len: usize) {
    if len <= SLACK / 4
        && let (Some(to), Some(from)) =
            (to.first_chunk_mut::<{ SLACK / 4 }>(), from.first_chunk::<{ SLACK / 4 }>())
    {
        *to = *from;
    } else if len <= SLACK
        && let (Some(to), Some(from)) = (to.first_chunk_mut::<SLACK>(), from.first_chunk::<SLACK>())
    {
        *to = *from;
    } else {
        to[..len].copy_from_slice(&from[..len]);
    }
}

/// A vector whose room is zeroed once, when it is made, and then written to by index.
#[derive(Debug, Default)]
struct Filled<T> {
    buffer: Vec<T>,
    len: usize,
}

impl<T: Copy + Default> Filled<T> {
    fn as_slice(&self) -> &[T] {
        &self.buffer[..self.len]
    }

    /// Room for `more` values behind the end.
    #[inline]
    fn room(&mut self, more: usize) -> &mut [T] {
        if self.buffer.len() - self.len < more {
            self.grow(more);
        }
        &mut self.buffer[self.len..]
    }

    #[cold]
    fn grow(&mut self, more: usize) {
        let len = (self.len + more).max(self.buffer.len() + self.buffer.len() / 2);
        self.buffer.resize(len, T::default());
    }

    fn extend(&mut self, values: &[T]) {
        self.room(values.len())[..values.len()].copy_from_slice(values);
        self.len += values.len();
    }

    fn resize(&mut self, len: usize, value: T) {
        let more = len.saturating_sub(self.len);
        self.room(more)[..more].fill(value);
        self.len = len;
    }

    fn memory_size(&self) -> usize {
        self.buffer.capacity() * size_of::<T>()
    }
}

/// Rows on their way into a page.
#[derive(Debug, Default)]
pub(crate) struct PageBuffer {
    rows: usize,
    levels: usize,
    rep: Filled<u8>,
    def: Filled<u8>,
    /// `HEAD` bytes, then values.
    values: Filled<u8>,
    ids: Filled<u32>,
    value_count: usize,
    rep_max: u8,
    def_max: u8,
}

impl PageBuffer {
    /// An empty page of a leaf with these greatest levels.
    #[must_use]
    pub(crate) fn new(rep_max: u8, def_max: u8) -> Self {
        let values = Filled { buffer: vec![0; HEAD], len: HEAD };
        Self { values, rep_max, def_max, ..Self::default() }
    }

    /// Rows so far.
    #[must_use]
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Levels so far: values and nulls.
    #[must_use]
    pub(crate) fn levels(&self) -> usize {
        self.levels
    }

    /// Repetition levels; empty if the leaf cannot repeat.
    #[must_use]
    pub(crate) fn rep(&self) -> &[u8] {
        self.rep.as_slice()
    }

    /// Definition levels; empty if all are the greatest.
    #[must_use]
    pub(crate) fn def(&self) -> &[u8] {
        self.def.as_slice()
    }

    /// Values so far.
    #[must_use]
    pub(crate) fn value_count(&self) -> usize {
        self.value_count
    }

    /// The plain values; none when the page holds ids.
    #[must_use]
    pub(crate) fn values(&self) -> &[u8] {
        &self.values.as_slice()[HEAD..]
    }

    /// The ids; none when the page holds plain values.
    #[must_use]
    pub(crate) fn ids(&self) -> &[u32] {
        self.ids.as_slice()
    }

    /// Forgets all rows.
    pub(crate) fn clear(&mut self) {
        self.rows = 0;
        self.levels = 0;
        self.rep.len = 0;
        self.def.len = 0;
        self.values.len = HEAD;
        self.ids.len = 0;
        self.value_count = 0;
    }

    /// Bytes held on the heap.
    #[must_use]
    pub(crate) fn memory_size(&self) -> usize {
        let levels = self.rep.memory_size() + self.def.memory_size();
        levels + self.values.memory_size() + self.ids.memory_size()
    }

    /// Adds rows that are one level and one value each. Their values follow.
    #[inline]
    pub(crate) fn add_flat_rows(&mut self, rows: usize) {
        self.rows += rows;
        self.levels += rows;
        self.value_count += rows;
        if self.has_def() {
            self.def.resize(self.levels, self.def_max);
        }
    }

    /// Adds rows with these levels; `def` is empty if all are the greatest. Gives the number of
    /// their values, which follow.
    pub(crate) fn add_rows(&mut self, rows: usize, rep: &[u8], def: &[u8]) -> usize {
        let levels = if rep.is_empty() { rows } else { rep.len() };
        self.rep.extend(rep);
        let mut values = levels;
        if def.is_empty() {
            if self.has_def() {
                self.def.resize(self.levels + levels, self.def_max);
            }
        } else {
            self.materialise();
            self.def.extend(def);
            values = occurrences(def, self.def_max);
        }
        self.rows += rows;
        self.levels += levels;
        self.value_count += values;
        values
    }

    /// Writes out definition levels that were all the greatest so far.
    fn materialise(&mut self) {
        if !self.has_def() {
            self.def.resize(self.levels, self.def_max);
        }
    }

    /// Whether definition levels are written out.
    #[must_use]
    pub(crate) fn has_def(&self) -> bool {
        self.def.len > 0
    }

    /// Calls `fill` with room for `rows` rows of one level each (or `levels` levels of a leaf that
    /// repeats), `ids` ids and `bytes` bytes of plain values.
    // Called apart, the closure costs a merge of short rows 5 % of its time.
    #[inline(always)]
    pub(crate) fn fill<R>(
        &mut self,
        rows: usize,
        levels: usize,
        ids: usize,
        bytes: usize,
        fill: impl FnOnce(&mut PageAppender<'_>) -> R,
    ) -> R {
        let repeats = self.rep_max > 0;
        let has_def = self.has_def() || (repeats && self.def_max > 0);
        if has_def {
            self.materialise();
        }
        let room = levels + SLACK;
        let mut cursor = PageAppender {
            rows: 0,
            rows_max: rows,
            levels: 0,
            values: 0,
            def_max: self.def_max,
            def: if has_def { self.def.room(room) } else { &mut [] },
            rep: if repeats { self.rep.room(room) } else { &mut [] },
            ids: self.ids.room(ids),
            id: 0,
            bytes: self.values.room(bytes + SLACK),
            byte: 0,
        };
        let outcome = fill(&mut cursor);
        let PageAppender { rows, levels, values, id, byte, .. } = cursor;
        self.rows += rows;
        self.levels += levels;
        self.value_count += values;
        self.values.len += byte;
        self.ids.len += id;
        if has_def {
            self.def.len = self.levels;
        }
        if repeats {
            self.rep.len = self.levels;
        }
        outcome
    }

    /// Appends values.
    pub(crate) fn push(&mut self, values: &[u8]) {
        self.values.extend(values);
    }

    /// Appends ids.
    pub(crate) fn push_ids(&mut self, ids: &[u32]) {
        self.ids.extend(ids);
    }

    /// The body of a page: repetition levels, definition levels (each with its length in front if
    /// `prefixed`) and `values`, or the values held where `None`. Also gives the lengths of the
    /// levels.
    pub(crate) fn body(&mut self, prefixed: bool, values: Option<&[u8]>) -> (&[u8], usize, usize) {
        let mut head = Vec::new();
        if self.rep_max > 0 {
            section(&mut head, prefixed, |out| {
                encode(self.rep.as_slice(), width_of(u32::from(self.rep_max)), out);
            });
        }
        let rep_len = head.len();
        if self.def_max > 0 {
            let width = width_of(u32::from(self.def_max));
            section(&mut head, prefixed, |out| match self.has_def() {
                true => encode(self.def.as_slice(), width, out),
                false => encode_run(u32::from(self.def_max), self.levels, width, out),
            });
        }
        let def_len = head.len() - rep_len;
        if let Some(values) = values {
            self.values.len = HEAD;
            self.values.extend(values);
        }
        let more = head.len().saturating_sub(HEAD);
        if more > 0 {
            self.values.room(more);
            self.values.buffer.copy_within(HEAD..self.values.len, HEAD + more);
            self.values.len += more;
        }
        let start = HEAD.saturating_sub(head.len());
        self.values.buffer[start..start + head.len()].copy_from_slice(&head);
        (&self.values.as_slice()[start..], rep_len, def_len)
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
