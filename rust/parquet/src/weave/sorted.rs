//! Rows of one leaf in any order: collected as they lie, then copied row by row.
//!
//! ```text
//! steps   a b c d e f     rows as they lie in their sources
//! held    ▓ ▓ ▓ ▓ ▓ ▓     levels, ids or values, and where each row begins
//! order   3 0 5 1 …  ──▶  pages of d a f b …      run by run, a chunk each
//! ```
//!
//! # Invariants
//! Every row of the order is held, and every row that is held is in the order once: checked.
//!
//! # Cost
//! All rows of the leaf in memory: levels, four bytes an id or the plain values, and up to eight
//! bytes a row to find them. A copy of a row reads memory in no order.
//!
//! # Not here
//! Finding the order (`sort`); how pages are made (`output`).

use plait_core::packed_runs::PackedRuns;
use plait_core::{Error, Kind, Result};

use super::context::{LeafContext, PageOut};
use super::cursors::SourceCursors;
use super::gather::gather;
use crate::block::fold::add_zeros;
use crate::block::index::KnownPage;
use crate::block::{Contents, Dictionary, Layout};
use crate::encode::PageBuffer;
use crate::encode::buffer::PageAppender;
use crate::encode::facts::Facts;
use crate::page::pages::Stored;
use crate::runtime::Charge;

/// Rows and bytes that are collected at once.
const COLLECT_ROWS: usize = 64 << 10;
const COLLECT_BYTES: usize = 1 << 20;

/// Rows that are copied before limits are looked at again.
const COPY_ROWS: usize = 16 << 10;

/// The rows of a leaf.
pub(super) struct HeldRows {
    rows: usize,
    layout: Layout,
    rep: Vec<u8>,
    /// Empty if all levels are the greatest.
    def: Vec<u8>,
    def_max: u8,
    /// Ids, or plain values.
    ids: Vec<u32>,
    values: Vec<u8>,
    has_ids: bool,
    value_count: usize,
    /// First level of each row and one past the last, of a leaf that repeats.
    level_starts: Vec<u32>,
    /// First value of each row and one past the last, where rows differ in values.
    value_starts: Vec<u32>,
    /// First byte of each value and one past the last, where values differ in length.
    offsets: Vec<u32>,
}

/// What became of collecting.
pub(super) enum Collecting {
    Held(Box<HeldRows>, Charge),
    /// The rows take more memory than there is.
    TooLarge,
}

/// Collects the rows of `steps`, if they take at most `bytes_max` bytes.
pub(super) fn collect(
    leaf: &LeafContext<'_>,
    cursors: &mut SourceCursors,
    steps: &PackedRuns,
    bytes_max: usize,
) -> Result<Collecting> {
    let level = |max: i16| u8::try_from(max).unwrap_or(u8::MAX);
    let descr = &leaf.output.descr;
    let def_max = level(descr.max_def_level());
    let has_ids = leaf.united.is_some();
    let mut collector = Collector {
        page: PageBuffer::new(level(descr.max_rep_level()), def_max),
        held: HeldRows {
            rows: 0,
            layout: leaf.layout,
            rep: Vec::new(),
            def: Vec::new(),
            def_max,
            ids: Vec::new(),
            values: Vec::new(),
            has_ids,
            value_count: 0,
            level_starts: Vec::new(),
            value_starts: Vec::new(),
            offsets: Vec::new(),
        },
        dictionary: leaf.united.as_ref().map(|united| &*united.dictionary),
        bytes_max,
        charge: leaf.context().charge(0),
        is_too_large: false,
    };
    let outcome = gather(leaf, cursors, steps, None, &mut collector);
    if collector.is_too_large {
        return Ok(Collecting::TooLarge);
    }
    outcome?;
    let Collector { mut held, mut charge, .. } = collector;
    held.find_rows()?;
    charge.set(held.memory_size());
    Ok(Collecting::Held(Box::new(held), charge))
}

impl HeldRows {
    /// Bytes held on the heap.
    fn memory_size(&self) -> usize {
        let starts = self.level_starts.capacity()
            + self.value_starts.capacity()
            + self.offsets.capacity()
            + self.ids.capacity();
        self.rep.capacity() + self.def.capacity() + self.values.capacity() + 4 * starts
    }

    /// Bytes that finding the rows will take.
    fn index_size(&self) -> usize {
        let levels = if self.rep.is_empty() { 0 } else { self.rows };
        let values = if self.def.is_empty() && self.rep.is_empty() { 0 } else { self.rows };
        let is_prefixed = !self.has_ids && self.layout == Layout::Prefixed;
        4 * (levels + values + if is_prefixed { self.value_count } else { 0 })
    }

    fn find_rows(&mut self) -> Result<()> {
        let repeats = !self.rep.is_empty();
        if repeats {
            self.level_starts = Vec::with_capacity(self.rows + 1);
            add_zeros(&self.rep, &mut self.level_starts);
            self.level_starts.push(self.rep.len() as u32);
        }
        if !self.def.is_empty() {
            self.value_starts = Vec::with_capacity(self.rows + 1);
            let mut value = 0_u32;
            for row in 0..self.rows {
                self.value_starts.push(value);
                let levels = self.levels(row);
                let there = self.def[levels].iter().filter(|def| **def == self.def_max);
                value += there.count() as u32;
            }
            self.value_starts.push(value);
        }
        if !self.has_ids && self.layout == Layout::Prefixed {
            self.offsets = Vec::with_capacity(self.value_count + 1);
            let mut at = 0;
            while let Some(len) = self.layout.len_at(&self.values, at) {
                self.offsets.push(at as u32);
                at += len;
            }
            self.offsets.push(at as u32);
        }
        let rows = if repeats { self.level_starts.len() - 1 } else { self.rows };
        let values = self.value_starts.last().map_or(self.value_count, |n| *n as usize);
        let is_prefixed = !self.offsets.is_empty();
        if rows != self.rows
            || values != self.value_count
            || (is_prefixed && self.offsets.len() != self.value_count + 1)
        {
            return Err(Error::new(Kind::Internal, "rows that are to be sorted do not add up")
                .with_got(format!("{rows} rows of {values} values")));
        }
        Ok(())
    }

    #[inline(always)]
    fn levels(&self, row: usize) -> std::ops::Range<usize> {
        match self.level_starts.is_empty() {
            true => row..row + 1,
            false => self.level_starts[row] as usize..self.level_starts[row + 1] as usize,
        }
    }

    #[inline(always)]
    fn values(&self, row: usize) -> std::ops::Range<usize> {
        match self.value_starts.is_empty() {
            true => self.levels(row),
            false => self.value_starts[row] as usize..self.value_starts[row + 1] as usize,
        }
    }

    /// Bytes of the plain values `values`.
    #[inline(always)]
    fn bytes(&self, values: std::ops::Range<usize>) -> std::ops::Range<usize> {
        match self.layout {
            Layout::Fixed(width) => values.start * width..values.end * width,
            Layout::Prefixed => {
                self.offsets[values.start] as usize..self.offsets[values.end] as usize
            }
        }
    }

    /// Checks that `order` is one of as many rows as are held.
    pub(super) fn check(&self, order: &[u32]) -> Result<()> {
        match order.len() == self.rows {
            true => Ok(()),
            false => Err(Error::new(Kind::Internal, "an order is not that of the rows held")),
        }
    }

    /// Copies the rows `order` to `out`; of ids, to pages of ids.
    pub(super) fn copy(&self, order: &[u32], out: &mut impl PageOut) -> Result<()> {
        let mut order = order;
        while !order.is_empty() {
            // The first row of a page writes out its levels, if it has some.
            self.put(order[0] as usize, out.page());
            order = &order[1..];
            if self.rep.is_empty() {
                let done = self.copy_fast(order, out);
                order = &order[done..];
            }
            if out.is_full() {
                out.flush()?;
            }
        }
        out.flush()
    }

    /// Copies rows of one level each as long as the page has room; returns how many.
    fn copy_fast(&self, order: &[u32], out: &mut impl PageOut) -> usize {
        let rows = out.rows_left().saturating_sub(1).min(COPY_ROWS).min(order.len());
        let bytes = out.bytes_left().saturating_sub(1);
        let order = &order[..rows];
        let page = out.page();
        let nullable = page.has_def();
        if !self.def.is_empty() && !nullable {
            return 0;
        }
        let levels = |out: &mut PageAppender<'_>, row: usize| match self.def.get(row) {
            _ if !nullable => {
                out.add_flat(1);
                true
            }
            None => {
                out.add_levels(1);
                true
            }
            Some(def) => out.add_nullable(std::slice::from_ref(def)) > 0,
        };
        let value = |row: usize| match self.value_starts.get(row) {
            Some(value) => *value as usize,
            None => row,
        };
        macro_rules! fixed {
            ($n:literal) => {{
                let rows = rows.min(bytes / $n);
                page.fill(rows, rows, 0, rows * $n, |out| {
                    for row in &order[..rows] {
                        let row = *row as usize;
                        if levels(out, row) {
                            let at = value(row) * $n;
                            out.put(&self.values[at..at + $n]);
                        }
                    }
                });
                rows
            }};
        }
        match self.layout {
            _ if self.has_ids => {
                page.fill(rows, rows, rows, 0, |out| {
                    for row in order {
                        let row = *row as usize;
                        if levels(out, row) {
                            out.put_id(self.ids[value(row)]);
                        }
                    }
                });
                rows
            }
            Layout::Fixed(4) => fixed!(4),
            Layout::Fixed(8) => fixed!(8),
            Layout::Fixed(16) => fixed!(16),
            Layout::Fixed(_) => 0,
            Layout::Prefixed => page.fill(rows, rows, 0, bytes, |out| {
                for (done, row) in order.iter().enumerate() {
                    let row = *row as usize;
                    let value = value(row);
                    let is_there = self.def.get(row).is_none_or(|def| *def == self.def_max);
                    let range = if is_there { self.bytes(value..value + 1) } else { 0..0 };
                    if out.room() < range.len() {
                        return done;
                    }
                    levels(out, row);
                    out.put_short(&self.values[range.start..], range.len());
                }
                rows
            }),
        }
    }

    /// Copies one row, whatever it is.
    fn put(&self, row: usize, page: &mut PageBuffer) {
        let (levels, values) = (self.levels(row), self.values(row));
        let def = if self.def.is_empty() { &[] } else { &self.def[levels.clone()] };
        match self.rep.is_empty() {
            true if def.is_empty() => page.add_flat_rows(1),
            true => {
                page.add_rows(1, &[], def);
            }
            false => {
                page.add_rows(1, &self.rep[levels], def);
            }
        }
        match self.has_ids {
            true => page.push_ids(&self.ids[values]),
            false => page.push(&self.values[self.bytes(values)]),
        }
    }
}

/// Takes rows in.
struct Collector<'a> {
    page: PageBuffer,
    held: HeldRows,
    /// The values of ids.
    dictionary: Option<&'a Dictionary>,
    bytes_max: usize,
    charge: Charge,
    is_too_large: bool,
}

impl PageOut for Collector<'_> {
    fn page(&mut self) -> &mut PageBuffer {
        &mut self.page
    }

    fn rows_max(&self) -> usize {
        COLLECT_ROWS
    }

    fn bytes_max(&self) -> usize {
        COLLECT_BYTES
    }

    fn rows_left(&self) -> usize {
        COLLECT_ROWS.saturating_sub(self.page.rows())
    }

    fn bytes_left(&self) -> usize {
        COLLECT_BYTES.saturating_sub(self.page.values().len())
    }

    fn is_full(&self) -> bool {
        self.rows_left() == 0 || self.bytes_left() == 0
    }

    fn flush(&mut self) -> Result<()> {
        let (page, held) = (&mut self.page, &mut self.held);
        if page.rows() == 0 {
            return Ok(());
        }
        let before = held.levels_held();
        held.rep.extend_from_slice(page.rep());
        if page.has_def() || !held.def.is_empty() {
            held.def.resize(before, held.def_max);
            match page.has_def() {
                true => held.def.extend_from_slice(page.def()),
                false => held.def.resize(before + page.levels(), held.def_max),
            }
        }
        held.ids.extend_from_slice(page.ids());
        held.values.extend_from_slice(page.values());
        held.value_count += page.value_count();
        held.rows += page.rows();
        page.clear();
        let bytes = held.memory_size() + held.index_size();
        self.charge.set(bytes);
        let is_addressed = u32::try_from(held.values.len().max(held.rep.len())).is_ok();
        if bytes > self.bytes_max || !is_addressed {
            self.is_too_large = true;
            return Err(Error::new(Kind::Internal, "a leaf takes more memory than there is"));
        }
        Ok(())
    }

    fn writes_ids(&self) -> bool {
        self.held.has_ids
    }

    fn has_dictionary(&self) -> bool {
        false
    }

    fn fall_back(&mut self) -> Result<()> {
        let Some(dictionary) = self.dictionary else { return Ok(()) };
        self.held.has_ids = false;
        for id in std::mem::take(&mut self.held.ids) {
            self.held.values.extend_from_slice(dictionary.plain(id as usize));
        }
        Ok(())
    }

    fn takes_version(&self, _version: u8) -> bool {
        false
    }

    fn take_over(&self, _rows: usize, _known: KnownPage) -> Option<Facts> {
        None
    }

    fn facts_of(&mut self, _page: &Contents) -> Result<Facts> {
        Err(takes_no_pages())
    }

    fn splice(&mut self, _stored: &Stored, _facts: Facts) -> Result<()> {
        Err(takes_no_pages())
    }

    fn memory_size(&self) -> usize {
        self.page.memory_size()
    }
}

impl HeldRows {
    /// Whether rows are held as ids of the united dictionary.
    pub(super) fn has_ids(&self) -> bool {
        self.has_ids
    }

    fn levels_held(&self) -> usize {
        if self.rep.is_empty() { self.rows } else { self.rep.len() }
    }
}

fn takes_no_pages() -> Error {
    Error::new(Kind::Internal, "rows that are sorted take no stored pages")
}
