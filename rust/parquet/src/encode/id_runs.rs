//! Pages of small numbers that come as runs: each is its own id, and no run is written out.
//!
//! ```text
//! push   3·1  0·1  3·500            page   packed 3 0 3 3 3 3 3 3 │ run 3·494
//! ```
//!
//! # Invariants
//! A page decodes to the numbers that were pushed, in order. Packed groups are whole, but for the
//! last of a page.
//!
//! # Cost
//! A few instructions a run, about two nanoseconds a packed number, and [`PACKED_MAX`] of them.
//!
//! # Not here
//! What the numbers stand for (`row_map`); ids of other values (`chunk`).

use parquet::basic::Encoding;
use parquet::schema::types::ColumnDescPtr;
use plait_core::Result;

use super::body::check_body;
use super::bounds::Bounds;
use super::facts::Facts;
use super::packed::{About, RawPage};
use crate::page::hybrid::{GROUP, encode_run, pack, width_of};

/// Numbers that wait to be packed: whole groups.
const PACKED_MAX: usize = 512 * GROUP;

/// A page of numbers under construction.
pub(crate) struct IdRuns {
    dictionary_len: usize,
    width: u32,
    rows: usize,
    least: u32,
    greatest: u32,
    /// The number that came last, and how often.
    last: (u32, usize),
    packed: Vec<u32>,
    runs: Vec<u8>,
}

impl IdRuns {
    /// An empty page of numbers below `dictionary_len`.
    #[must_use]
    pub(crate) fn new(dictionary_len: usize) -> Self {
        let greatest = u32::try_from(dictionary_len.saturating_sub(1)).unwrap_or(u32::MAX);
        Self {
            dictionary_len,
            width: width_of(greatest),
            rows: 0,
            least: u32::MAX,
            greatest: 0,
            last: (0, 0),
            packed: Vec::new(),
            runs: Vec::new(),
        }
    }

    /// Rows so far.
    #[must_use]
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes held on the heap.
    #[must_use]
    pub(crate) fn memory_size(&self) -> usize {
        self.packed.capacity() * size_of::<u32>() + self.runs.capacity()
    }

    /// Appends `number`, so many times.
    #[inline]
    pub(crate) fn push(&mut self, number: u32, times: usize) {
        self.rows += times;
        if number == self.last.0 {
            self.last.1 += times;
            return;
        }
        let (before, rows) = std::mem::replace(&mut self.last, (number, times));
        self.append(before, rows);
    }

    #[inline]
    fn append(&mut self, number: u32, times: usize) {
        if times == 0 {
            return;
        }
        self.least = self.least.min(number);
        self.greatest = self.greatest.max(number);
        // A group is whole before a run begins.
        let open = self.packed.len().next_multiple_of(GROUP) - self.packed.len();
        if times < open + GROUP {
            self.packed.extend(std::iter::repeat_n(number, times));
            if self.packed.len() >= PACKED_MAX {
                let whole = self.packed.len() - self.packed.len() % GROUP;
                pack(&self.packed[..whole], self.width, &mut self.runs);
                self.packed.drain(..whole);
            }
            return;
        }
        self.packed.extend(std::iter::repeat_n(number, open));
        pack(&self.packed, self.width, &mut self.runs);
        self.packed.clear();
        encode_run(number, times - open, self.width, &mut self.runs);
    }

    /// Ends the page, if it has rows, and begins another one.
    ///
    /// # Errors
    /// [`Internal`](plait_core::Kind::Internal) for a number that is too large.
    pub(crate) fn take(&mut self, descr: &ColumnDescPtr) -> Result<Option<RawPage>> {
        if self.rows == 0 {
            return Ok(None);
        }
        let (last, times) = std::mem::take(&mut self.last);
        self.append(last, times);
        pack(&self.packed, self.width, &mut self.runs);
        let page = std::mem::replace(self, Self::new(self.dictionary_len));
        let mut body = vec![page.width as u8];
        body.extend_from_slice(&page.runs);
        let bound = |number: u32| number.to_le_bytes().to_vec();
        let facts = Facts {
            rows: page.rows,
            levels: page.rows,
            nulls: 0,
            nans: Some(0),
            bounds: Some(Bounds { min: bound(page.least), max: bound(page.greatest) }),
            is_exact: true,
            bytes: None,
            rep: None,
            def: None,
        };
        let about = About { rep_len: 0, def_len: 0, encoding: Encoding::RLE_DICTIONARY, facts };
        check_body(descr, &body, &about, false, page.dictionary_len)?;
        Ok(Some(RawPage { body, about }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::schema::parser::parse_message_type;
    use parquet::schema::types::SchemaDescriptor;
    use proptest::prelude::*;

    use super::*;
    use crate::page::hybrid_reader::decode;

    proptest! {
        #[test]
        fn pages_decode_to_what_was_pushed(
            len in 1..70_usize,
            runs in prop::collection::vec(
                (any::<u32>(), prop_oneof![1..3_usize, 1..40_usize, 1..9000_usize]), 1..300,
            ),
        ) {
            let schema = parse_message_type("message m { required int32 n; }").unwrap();
            let descr = SchemaDescriptor::new(Arc::new(schema)).column(0);
            let (mut page, mut pushed) = (IdRuns::new(len), Vec::new());
            for (number, times) in runs {
                let number = number % len as u32;
                page.push(number, times);
                pushed.resize(pushed.len() + times, number);
            }
            prop_assert_eq!(page.rows(), pushed.len());
            let raw = page.take(&descr).unwrap().unwrap();
            let mut decoded = Vec::<u32>::new();
            let width = u32::from(raw.body[0]);
            decode(&raw.body[1..], width, pushed.len(), &mut decoded).unwrap();
            let bounds = raw.about.facts.bounds.clone().unwrap();
            prop_assert_eq!(bounds.min, pushed.iter().min().unwrap().to_le_bytes());
            prop_assert_eq!(bounds.max, pushed.iter().max().unwrap().to_le_bytes());
            prop_assert_eq!(decoded, pushed);
            prop_assert!(page.take(&descr).unwrap().is_none(), "the next page is empty");
        }
    }

    #[test]
    fn a_run_takes_a_few_bytes() {
        let schema = parse_message_type("message m { required int32 n; }").unwrap();
        let descr = SchemaDescriptor::new(Arc::new(schema)).column(0);
        let mut page = IdRuns::new(16);
        (0..1000).for_each(|_| page.push(7, 100));
        assert_eq!(page.take(&descr).unwrap().unwrap().body.len(), 1 + 2 * 4 / 8 + 4 - 1);
    }
}
