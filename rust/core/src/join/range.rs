//! The rows of many key prefixes, in order, a stretch at a time.
//!
//! ```text
//! prefixes   ab  c         run 0   aa [ab1 ab3] b  [c1]        run 1   [ab3†] [c2]
//! rows       ab1 c1 c2     one cursor a run; of equal keys the newest run decides
//! ```
//!
//! # Invariants
//! Prefixes ascend, and none is a prefix of another. Rows that delete do not leave,
//! unless they are asked for.
//!
//! # Cost
//! A cursor for each run: for each prefix the logarithm of the distance; then one comparison a cursor for
//! each stretch of rows that one run has alone. At most
//! [`SOURCES_MAX`] blocks are held for one stretch, or it ends.
//!
//! # Not here
//! Single keys (`find`).

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::{Array, BinaryArray};

use super::block::Block;
use super::find::{View, block_of};
use super::order::wide_head;
use super::picked::Picked;
use plait_base::Result;

/// Blocks that one stretch of rows may lie in when they are not held in memory anyway.
const SOURCES_MAX: usize = 32;

/// Rows of prefixes.
#[derive(Clone, Debug)]
pub(super) struct Ranges {
    view: View,
    prefixes: BinaryArray,
    /// The prefix whose rows leave, and whether cursors have come there.
    prefix: usize,
    is_entered: bool,
    cursors: Vec<Cursor>,
    /// Whether rows that delete leave, too.
    keep_deleted: bool,
}

/// Rows, and which prefix each is of.
#[derive(Debug, Default)]
pub(super) struct Stretch {
    pub(super) picked: Picked,
    pub(super) prefixes: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
struct Cursor {
    /// Number of the block, and the block once it was read.
    number: usize,
    block: Option<Arc<Block>>,
    row: usize,
    /// Number of the block among the sources of the stretch.
    source: Option<u32>,
    /// The first bytes of the key it is at, if that has the prefix; `None` until they are looked at.
    head: Option<Option<u128>>,
}

impl Ranges {
    pub(super) fn new(view: View, prefixes: BinaryArray) -> Self {
        let cursors = vec![Cursor::default(); view.runs.len()];
        Self { view, prefixes, prefix: 0, is_entered: false, cursors, keep_deleted: false }
    }

    /// The same with rows that delete.
    pub(super) fn with_deleted(self, keep_deleted: bool) -> Self {
        Self { keep_deleted, ..self }
    }

    /// At most `rows_max` further rows; `None` when there are no more.
    pub(super) fn next(&mut self, rows_max: usize) -> Result<Option<Stretch>> {
        let mut out = Stretch::default();
        for cursor in &mut self.cursors {
            cursor.source = None;
        }
        while self.prefix < self.prefixes.len() {
            if out.picked.len() >= rows_max || self.is_wide(&out) {
                return Ok(Some(out));
            }
            if !self.is_entered {
                self.enter()?;
            }
            if !self.advance(&mut out, rows_max)? {
                self.prefix += 1;
                self.is_entered = false;
            }
        }
        Ok((out.picked.len() > 0).then_some(out))
    }

    /// Whether the stretch keeps many blocks in memory that would not be there otherwise.
    fn is_wide(&self, out: &Stretch) -> bool {
        out.picked.sources() >= SOURCES_MAX && self.view.runs.iter().any(|run| !run.is_held())
    }

    /// Brings all cursors to the first row of the prefix.
    fn enter(&mut self) -> Result<()> {
        let prefix = self.prefixes.value(self.prefix);
        for (run, cursor) in self.view.runs.iter().zip(&mut self.cursors) {
            cursor.head = None;
            if let Some(block) = &cursor.block
                && block.key(block.len() - 1) >= prefix
            {
                cursor.row = block.seek(cursor.row, prefix);
                continue;
            }
            let number = block_of(run.as_ref(), cursor.number, prefix).unwrap_or(0);
            if cursor.block.is_none() || number != cursor.number {
                let block = run.block(number)?;
                let row = block.seek(0, prefix);
                *cursor = Cursor { number, block: Some(block), row, source: None, head: None };
            } else {
                cursor.row = cursor.block.as_ref().map_or(0, |block| block.len());
            }
        }
        self.is_entered = true;
        Ok(())
    }

    /// Goes on by one key, or by all rows that one run alone has; whether there were any.
    fn advance(&mut self, out: &mut Stretch, rows_max: usize) -> Result<bool> {
        let prefix = self.prefixes.value(self.prefix);
        for (run, cursor) in self.view.runs.iter().zip(&mut self.cursors) {
            cursor.turn(run.as_ref(), prefix)?;
            cursor.look(prefix);
        }
        // The cursor with the least key, the newest of several; and the one with the least key above it.
        let (mut least, mut second) = (None::<(usize, u128)>, None::<(usize, u128)>);
        let mut are_equal = false;
        for (i, cursor) in self.cursors.iter().enumerate() {
            let Some(Some(head)) = cursor.head else { continue };
            let to = |other: (usize, u128)| {
                head.cmp(&other.1).then_with(|| cursor.key().cmp(self.cursors[other.0].key()))
            };
            match least.map_or(Ordering::Less, to) {
                Ordering::Less => {
                    second = least;
                    (least, are_equal) = (Some((i, head)), false);
                }
                // Later runs are newer: of equal keys theirs decides.
                Ordering::Equal => (least, are_equal) = (Some((i, head)), true),
                Ordering::Greater if second.is_none_or(|second| to(second) == Ordering::Less) => {
                    second = Some((i, head));
                }
                Ordering::Greater => {}
            }
        }
        let Some((least, head)) = least else { return Ok(false) };
        let number = u32::try_from(self.prefix).unwrap_or(u32::MAX);
        let rows = match are_equal {
            true => 1,
            false => self.cursors[least].rows(prefix, second.map(|(i, _)| self.cursors[i].key())),
        };
        for i in 0..self.cursors.len() {
            let is_near = are_equal && i != least && self.cursors[i].head == Some(Some(head));
            if is_near && self.cursors[i].key() == self.cursors[least].key() {
                self.cursors[i].row += 1;
                self.cursors[i].head = None;
            }
        }
        let rows = rows.min(rows_max - out.picked.len());
        self.cursors[least].give(rows, number, self.keep_deleted, out)?;
        Ok(true)
    }
}

impl Cursor {
    /// Turns to the next block at the end of one, if that may have rows of the prefix.
    fn turn(&mut self, run: &dyn super::find::SortedRun, prefix: &[u8]) -> Result<()> {
        let at_end = self.block.as_ref().is_some_and(|block| self.row >= block.len());
        let next = self.number + 1;
        if at_end && next < run.blocks() {
            let index_key = run.index_key(next);
            if index_key.starts_with(prefix) || index_key <= prefix {
                let block = run.block(next)?;
                let row = block.seek(0, prefix);
                *self = Self { number: next, block: Some(block), row, source: None, head: None };
            }
        }
        Ok(())
    }

    /// Looks at the key it is at.
    fn look(&mut self, prefix: &[u8]) {
        if self.head.is_none() {
            let block = self.block.as_ref().filter(|block| self.row < block.len());
            let block = block.filter(|block| block.begins_with(self.row, prefix));
            self.head = Some(block.map(|block| wide_head(block.key(self.row))));
        }
    }

    /// The key it is at; empty at the end of a block.
    fn key(&self) -> &[u8] {
        let block = self.block.as_ref().filter(|block| self.row < block.len());
        block.map_or(&[], |block| block.key(self.row))
    }

    fn source(&mut self, out: &mut Stretch) -> Result<u32> {
        match (self.source, &self.block) {
            (Some(source), _) => Ok(source),
            (None, Some(block)) => {
                let source = out.picked.source(block)?;
                self.source = Some(source);
                Ok(source)
            }
            (None, None) => Ok(0),
        }
    }

    /// How many rows from the one it is at have the prefix and, if there is one, come before `end`.
    fn rows(&self, prefix: &[u8], end: Option<&[u8]>) -> usize {
        let Some(block) = &self.block else { return 0 };
        let to = end.map_or(block.len(), |end| block.seek(self.row + 1, end));
        match prefix.is_empty() {
            true => to - self.row,
            false => 1 + block.count_of(self.row + 1..to, prefix),
        }
    }

    /// Gives so many rows, and goes on behind them.
    fn give(&mut self, rows: usize, number: u32, keep: bool, out: &mut Stretch) -> Result<()> {
        let source = self.source(out)?;
        let Some(block) = &self.block else { return Ok(()) };
        let row = |row: usize| u32::try_from(row).unwrap_or(u32::MAX);
        let (from, to) = (self.row, self.row + rows);
        (self.row, self.head) = (to, None);
        if keep || !block.has_deleted() {
            out.picked.push_all(source, row(from)..row(to));
            out.prefixes.extend(std::iter::repeat_n(number, rows));
            return Ok(());
        }
        for at in (from..to).filter(|at| !block.is_deleted(*at)) {
            out.picked.push(source, row(at));
            out.prefixes.push(number);
        }
        Ok(())
    }
}
