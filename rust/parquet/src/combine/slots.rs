//! Values of one leaf by their levels, as pages hold them.
//!
//! ```text
//! rows     [a, b]    []    [[c, d], [e]]
//! rep      0  1      0      0  2   1           of one row: elements begin where it is 0 or 1
//! def      2  2      1      3  3   3           an element is there if it is deep enough
//! values   a  b             c  d   e           bytes of a plain page
//! ```
//!
//! # Not here
//! Which elements stay (`collected`).

use std::ops::Range;

use bytes::Bytes;
use parquet::schema::types::ColumnDescriptor;

use crate::block::{Block, Contents, Values};

/// Values under levels.
#[derive(Default)]
pub(super) struct Slots {
    pub(super) rep: Vec<u8>,
    pub(super) def: Vec<u8>,
    pub(super) bytes: Vec<u8>,
    /// Where the bytes of each level end.
    ends: Vec<usize>,
}

impl Slots {
    pub(super) fn len(&self) -> usize {
        self.def.len()
    }

    /// Bytes held on the heap, about.
    pub(super) fn memory_size(&self) -> usize {
        self.bytes.len() + self.len() * (2 + size_of::<usize>())
    }

    /// Adds a level, and its value as a plain page has it.
    pub(super) fn push(&mut self, rep: u8, def: u8, value: &[u8]) {
        self.rep.push(rep);
        self.def.push(def);
        self.bytes.extend_from_slice(value);
        self.ends.push(self.bytes.len());
    }

    /// Adds some levels of `from`; the first of them repeats at `rep`.
    pub(super) fn extend(&mut self, from: &Self, levels: Range<usize>, rep: u8) {
        for level in levels.clone() {
            let rep = if level == levels.start { rep } else { from.rep[level] };
            self.push(rep, from.def[level], from.value(level..level + 1));
        }
    }

    /// The bytes of the values of some levels.
    fn value(&self, levels: Range<usize>) -> &[u8] {
        let start = levels.start.checked_sub(1).map_or(0, |before| self.ends[before]);
        let end = levels.end.checked_sub(1).map_or(0, |last| self.ends[last]);
        &self.bytes[start..end]
    }

    /// The levels of each element of the list or map that these are one row of, if elements are
    /// there from level `def_min` on.
    pub(super) fn elements(&self, def_min: u8) -> Vec<Range<usize>> {
        let is_first = |level: &usize| self.rep[*level] <= 1 && self.def[*level] >= def_min;
        let mut starts: Vec<usize> = (0..self.len()).filter(is_first).collect();
        starts.push(self.len());
        starts.windows(2).map(|pair| pair[0]..pair[1]).collect()
    }

    /// Appends what tells the element of these levels from others.
    pub(super) fn identify(&self, levels: Range<usize>, identity: &mut Vec<u8>) {
        identity.extend((levels.len() as u64).to_le_bytes());
        for level in levels.clone() {
            let rep = if level == levels.start { 1 } else { self.rep[level] };
            identity.extend([rep, self.def[level]]);
        }
        identity.extend_from_slice(self.value(levels));
    }

    /// The rows as a block of a leaf.
    pub(super) fn take(&mut self, descr: &ColumnDescriptor) -> Block {
        let slots = std::mem::take(self);
        let def_max = u8::try_from(descr.max_def_level()).unwrap_or(u8::MAX);
        let value_count = slots.def.iter().filter(|def| **def == def_max).count();
        let no_levels = |levels: Vec<u8>, max: i16| if max == 0 { Vec::new() } else { levels };
        Block::new(Contents {
            rows: slots.rep.iter().filter(|rep| **rep == 0).count(),
            rep: no_levels(slots.rep, descr.max_rep_level()),
            def: no_levels(slots.def, descr.max_def_level()),
            def_max,
            value_count,
            values: Values::Plain(Bytes::from(slots.bytes)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(levels: &[(u8, u8, &str)]) -> Slots {
        let mut slots = Slots::default();
        for (rep, def, value) in levels {
            slots.push(*rep, *def, value.as_bytes());
        }
        slots
    }

    #[test]
    fn elements_begin_at_the_outer_list() {
        let nested = row(&[(0, 3, "c"), (2, 3, "d"), (1, 3, "e")]);
        assert_eq!(nested.elements(2), [0..2, 2..3]);
        assert!(row(&[(0, 1, "")]).elements(2).is_empty(), "an empty list");
        assert_eq!(row(&[(0, 2, "")]).elements(2).len(), 1, "a list of a null");
    }

    #[test]
    fn elements_are_equal_wherever_they_are() {
        let nested = row(&[(0, 3, "c"), (2, 3, "d"), (1, 3, "c"), (2, 3, "d"), (1, 3, "cd")]);
        let identity = |levels| {
            let mut identity = Vec::new();
            nested.identify(levels, &mut identity);
            identity
        };
        let all: Vec<_> = nested.elements(2).into_iter().map(identity).collect();
        assert_eq!(all[0], all[1]);
        assert_ne!(all[0], all[2]);
    }
}
