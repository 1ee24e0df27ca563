//! A dictionary that pages refer to by id, and the bounds of such pages.
//!
//! ```text
//! ids of a page ─┬─ few so far ─▶ values ─▶ compare
//!                └─ many ───────▶ ranks of all values, made once ─▶ least and greatest rank
//! ```
//!
//! # Invariants
//! Bounds are the same either way.
//!
//! # Cost
//! Ranking sorts the whole dictionary. Where nearly all pages stay what they are in a source, the
//! values of the few others are looked at instead.
//!
//! # Not here
//! What order values have (`bounds`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::bounds::{Bounds, Ranks, ValueOrder, of_plain};
use crate::block::{Dictionary, Layout};
use crate::page::pages::Stored;

/// Values are ranked once so many times as many ids were looked at: sorting costs about that.
const RANKED_FROM: usize = 4;

/// A dictionary that pages refer to by id.
pub(crate) struct Ids {
    /// The values.
    pub dictionary: Arc<Dictionary>,
    /// The page of a source that they are, to be written as it is.
    pub stored: Option<Stored>,
    /// How many ids were looked at, and the order of the values once these are many.
    looked: AtomicUsize,
    ranks: OnceLock<Ranks>,
}

impl Ids {
    /// Those of `dictionary`.
    #[must_use]
    pub(crate) fn new(dictionary: Arc<Dictionary>, stored: Option<Stored>) -> Self {
        Self { dictionary, stored, looked: AtomicUsize::new(0), ranks: OnceLock::new() }
    }

    /// Bytes that are held on the heap in the end, without the dictionary.
    #[must_use]
    pub(crate) fn memory_size(&self) -> usize {
        Ranks::memory_size_of(&self.dictionary)
    }

    /// Bounds and NaN of the values that `ids` stand for.
    pub(super) fn bounds(
        &self,
        order: ValueOrder,
        layout: Layout,
        ids: &[u32],
    ) -> (Option<Bounds>, u64) {
        let looked = self.looked.fetch_add(ids.len(), Ordering::Relaxed).saturating_add(ids.len());
        if looked / RANKED_FROM < self.dictionary.len() && self.ranks.get().is_none() {
            return of_plain(order, layout, &self.dictionary.look_up(ids));
        }
        let ranks = self.ranks.get_or_init(|| Ranks::new(order, &self.dictionary));
        ranks.bounds(&self.dictionary, ids.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_do_not_depend_on_how_they_are_found() {
        let values: Vec<u8> = [3_i64, -7, 12, 0].iter().flat_map(|v| v.to_le_bytes()).collect();
        let dictionary = Arc::new(Dictionary::new(Layout::Fixed(8), values.into(), 4).unwrap());
        let ids = Ids::new(dictionary, None);
        let bounds = || ids.bounds(ValueOrder::Int64, Layout::Fixed(8), &[0, 3, 1, 0, 3]);
        let looked_at = bounds();
        assert!(ids.ranks.get().is_none(), "five ids of four values");
        assert_eq!(looked_at.0.as_ref().unwrap().min, (-7_i64).to_le_bytes());
        assert_eq!(looked_at.0.as_ref().unwrap().max, 3_i64.to_le_bytes());
        for _ in 0..4 {
            assert_eq!(bounds(), looked_at);
        }
        assert!(ids.ranks.get().is_some(), "25 ids of four values");
    }
}
