//! Sees every value of one column chunk, whichever way it goes into the output.
//!
//! ```text
//! plain page    ▏v0▕▏v1▕ …          ─▶ every value
//! page of ids   7 7 0 3 …           ─▶ a bit an id; the values behind the bits, once
//! ```
//!
//! # Invariants
//! What is finished covers all values seen: no false negatives. A page that nobody looks into must
//! not be in the chunk (`encode::chunk` looks into all of them when somebody observes).
//!
//! # Cost
//! A hash a plain value, a bit an id.

use std::sync::Arc;

use parquet::basic::Type as Physical;
use parquet::bloom_filter::Sbbf;
use plait_core::{Error, Kind, Result};

use super::FilterRequest;
use super::values::ValueSet;
use crate::block::{Block, Dictionary, Layout, Values};
use crate::runtime::{Charge, Context};

/// Filters are not made larger than this, however many values a chunk has.
const FILTER_BYTES_MAX: u64 = 32 << 20;

/// Watches a chunk.
pub(crate) struct Observer {
    layout: Layout,
    /// Floats have two zeros, which readers take for equal.
    has_two_zeros: bool,
    filter: Option<Sbbf>,
    /// The filter shrinks to this rate of false positives.
    fold_fpp: Option<f64>,
    values: Option<ValueSet>,
    ids: Vec<u64>,
    dictionary: Option<Arc<Dictionary>>,
    _charge: Charge,
}

/// What was seen of a chunk.
#[derive(Default)]
pub(crate) struct Seen {
    /// Its bloom filter.
    pub filter: Option<Sbbf>,
    /// Its values.
    pub values: Option<ValueSet>,
}

impl Observer {
    /// Watches a chunk of `rows` rows for what is asked; `None` if nothing is.
    ///
    /// # Errors
    /// [`Kind::Internal`] for a rate that was not checked.
    pub(crate) fn new(
        ask: &FilterRequest,
        layout: Layout,
        rows: u64,
        context: &Context,
    ) -> Result<Option<Self>> {
        if ask.is_empty() {
            return Ok(None);
        }
        let (mut filter, mut fold_fpp) = (None, None);
        if let Some(bloom) = &ask.bloom {
            let expected = rows.saturating_mul(ask.values_per_row).max(1);
            // About ten bits a value at the usual rate, sixty at most.
            let ndv = bloom.ndv.unwrap_or(expected).min(FILTER_BYTES_MAX / 8);
            let made = Sbbf::new_with_ndv_fpp(ndv, bloom.fpp);
            filter = Some(made.map_err(|e| {
                Error::new(Kind::Internal, "a bloom filter cannot be made").with_cause(e)
            })?);
            fold_fpp = bloom.ndv.is_none().then_some(bloom.fpp);
        }
        let bytes = filter.as_ref().map_or(0, |filter| filter.num_blocks() * 32);
        Ok(Some(Self {
            layout,
            has_two_zeros: matches!(ask.physical, Physical::FLOAT | Physical::DOUBLE),
            filter,
            fold_fpp,
            values: ask.values.clone(),
            ids: Vec::new(),
            dictionary: None,
            _charge: context.charge(bytes),
        }))
    }

    /// Values as a plain page holds them.
    pub(crate) fn plain(&mut self, bytes: &[u8]) {
        let mut at = 0;
        let mut last: Option<&[u8]> = None;
        while let Some(len) = self.layout.len_at(bytes, at).filter(|len| *len > 0) {
            let start = if self.layout == Layout::Prefixed { at + 4 } else { at };
            let value = bytes.get(start..at + len).unwrap_or_default();
            at += len;
            if last != Some(value) {
                add(&mut self.filter, &mut self.values, self.has_two_zeros, value);
                last = Some(value);
            }
        }
    }

    /// Values by their ids in `dictionary`.
    pub(crate) fn ids(&mut self, ids: &[u32], dictionary: &Arc<Dictionary>) {
        if self.dictionary.as_ref().is_none_or(|held| !Arc::ptr_eq(held, dictionary)) {
            self.flush_ids();
            self.dictionary = Some(Arc::clone(dictionary));
            self.ids = vec![0; dictionary.len().div_ceil(64)];
        }
        for id in ids {
            if let Some(word) = self.ids.get_mut(*id as usize / 64) {
                *word |= 1 << (id % 64);
            }
        }
    }

    /// How many levels have no value.
    pub(crate) fn nulls(&mut self, count: usize) {
        if let Some(values) = self.values.as_mut().filter(|_| count > 0) {
            values.add_null();
        }
    }

    /// Rows that were read from a source.
    pub(crate) fn block(&mut self, block: &Block) {
        match &block.values {
            Values::Plain(bytes) => self.plain(bytes),
            Values::Ids(ids, dictionary) => self.ids(ids, dictionary),
        }
        let levels = if block.rep.is_empty() { block.rows } else { block.rep.len() };
        self.nulls(levels.saturating_sub(block.value_count));
    }

    /// Looks up the ids that occurred.
    fn flush_ids(&mut self) {
        let Some(dictionary) = self.dictionary.take() else { return };
        for (n, word) in std::mem::take(&mut self.ids).into_iter().enumerate() {
            for bit in (0..64).filter(|bit| word >> bit & 1 == 1) {
                let value = dictionary.value(64 * n + bit);
                add(&mut self.filter, &mut self.values, self.has_two_zeros, value);
            }
        }
    }

    /// What was seen.
    #[must_use]
    pub(crate) fn finish(mut self) -> Seen {
        self.flush_ids();
        if let (Some(filter), Some(fpp)) = (&mut self.filter, self.fold_fpp) {
            filter.fold_to_target_fpp(fpp);
        }
        Seen { filter: self.filter, values: self.values }
    }
}

fn add(
    filter: &mut Option<Sbbf>,
    values: &mut Option<ValueSet>,
    has_two_zeros: bool,
    value: &[u8],
) {
    if let Some(values) = values {
        values.add(value);
    }
    let Some(filter) = filter else { return };
    filter.insert(value);
    if has_two_zeros
        && let Some((sign, rest)) = value.split_last()
        && sign & 0x7f == 0
        && rest.iter().all(|byte| *byte == 0)
    {
        let mut other = value.to_vec();
        other[rest.len()] = sign ^ 0x80;
        filter.insert(other.as_slice());
    }
}
