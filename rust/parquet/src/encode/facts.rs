//! What footer and indexes say of a page: counted from what is in it, or taken over from its
//! source.
//!
//! # Invariants
//! What is taken over bounds what is in the page if the source's index does. Nothing is made up:
//! what a source does not say stays unknown.
//!
//! # Not here
//! Sums over pages (`index`); reading a source's index (`block::index`).

use parquet::schema::types::ColumnDescPtr;

use super::bounds::{Bounds, ValueOrder, of_plain};
use super::ids::Ids;
use crate::block::Layout;
use crate::block::fold::occurrences;
use crate::block::index::KnownPage;

/// What is known of the rows of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Rows.
    pub rows: usize,
    /// Values and nulls.
    pub levels: usize,
    /// Levels without a value.
    pub nulls: usize,
    /// NaN among the values; `None` if nobody counted.
    pub nans: Option<u64>,
    /// Smallest and greatest value.
    pub bounds: Option<Bounds>,
    /// Whether the bounds are values of the page.
    pub is_exact: bool,
    /// Bytes of values without prefixes, for byte arrays; `None` if nobody counted.
    pub bytes: Option<i64>,
    /// How often each repetition level occurs.
    pub rep: Option<Vec<i64>>,
    /// How often each definition level occurs.
    pub def: Option<Vec<i64>>,
}

/// The rows of a page, as levels; these are empty if all are the greatest.
pub(crate) struct PageLevels<'a> {
    /// Rows.
    pub rows: usize,
    /// Values and nulls.
    pub levels: usize,
    /// Values.
    pub values: usize,
    /// Repetition levels.
    pub rep: &'a [u8],
    /// Definition levels.
    pub def: &'a [u8],
}

impl<'a> PageLevels<'a> {
    /// Of `rows` rows with `values` values.
    #[must_use]
    pub(crate) fn new(rows: usize, values: usize, rep: &'a [u8], def: &'a [u8]) -> Self {
        let levels = if rep.is_empty() { rows } else { rep.len() };
        Self { rows, levels, values, rep, def }
    }
}

/// What is known of the values of a page.
pub(crate) struct ValueFacts {
    bounds: Option<Bounds>,
    nans: u64,
    /// Bytes without prefixes, of byte arrays.
    bytes: Option<usize>,
}

impl ValueFacts {
    /// Of `count` plain values.
    #[must_use]
    pub(crate) fn of_plain(order: ValueOrder, layout: Layout, plain: &[u8], count: usize) -> Self {
        let (bounds, nans) = of_plain(order, layout, plain);
        let bytes = (layout == Layout::Prefixed).then(|| plain.len() - 4 * count);
        Self { bounds, nans, bytes }
    }

    /// Of values of a dictionary.
    #[must_use]
    pub(crate) fn of_ids(order: ValueOrder, layout: Layout, ids: &Ids, numbers: &[u32]) -> Self {
        let (bounds, nans) = ids.bounds(order, layout, numbers);
        let bytes = (layout == Layout::Prefixed).then(|| ids.dictionary.value_bytes(numbers));
        Self { bounds, nans, bytes }
    }
}

impl Facts {
    /// Of the levels and the values of a page.
    #[must_use]
    pub(crate) fn count(descr: &ColumnDescPtr, page: &PageLevels<'_>, found: ValueFacts) -> Self {
        let (rep_max, def_max) = (descr.max_rep_level(), descr.max_def_level());
        let PageLevels { rows, levels, values, rep, def } = *page;
        let ValueFacts { bounds, nans, bytes } = found;
        Self {
            rows,
            levels,
            nulls: levels - values,
            nans: Some(nans),
            bounds,
            is_exact: true,
            bytes: bytes.map(|bytes| bytes as i64),
            rep: (rep_max > 0).then(|| histogram(rep, rep_max, levels)),
            def: (def_max > 0).then(|| histogram(def, def_max, levels)),
        }
    }

    /// Of these rows and those of `more`, which follow on the same page.
    #[must_use]
    pub(crate) fn with(self, order: ValueOrder, more: Self) -> Self {
        let mut bounds = self.bounds.map(|bounds| (bounds, self.is_exact));
        if let Some(wider) = &more.bounds {
            widen(order, &mut bounds, wider, more.is_exact);
        }
        let sum = |a: Option<Vec<i64>>, b: Option<Vec<i64>>| {
            add_up([a.as_deref(), b.as_deref()].into_iter())
        };
        Self {
            rows: self.rows + more.rows,
            levels: self.levels + more.levels,
            nulls: self.nulls + more.nulls,
            nans: self.nans.zip(more.nans).map(|(a, b)| a + b),
            is_exact: bounds.as_ref().is_none_or(|(_, is_exact)| *is_exact),
            bounds: bounds.map(|(bounds, _)| bounds),
            bytes: self.bytes.zip(more.bytes).map(|(a, b)| a + b),
            rep: sum(self.rep, more.rep),
            def: sum(self.def, more.def),
        }
    }

    /// Of a page of `rows` rows whose source says `known`; `None` if that is not enough or cannot
    /// be, so that the page has to be looked into.
    #[must_use]
    pub(crate) fn take_over(
        descr: &ColumnDescPtr,
        order: ValueOrder,
        rows: usize,
        known: KnownPage,
    ) -> Option<Self> {
        let KnownPage { levels, nulls, nans, bounds, bytes, rep, def } = known;
        let (rep_max, def_max) = (descr.max_rep_level(), descr.max_def_level());
        let bounds = match bounds {
            None if nulls < levels => return None,
            None => None,
            Some(_) if order == ValueOrder::None => None,
            Some((min, max)) => Some(order.admit(min, max)?),
        };
        let def = match def {
            None if def_max == 1 && rep_max == 0 => {
                Some(vec![nulls as i64, (levels - nulls) as i64])
            }
            def => def,
        };
        if rep.as_ref().and_then(|rep| rep.first()).is_some_and(|n| usize::try_from(*n) != Ok(rows))
        {
            return None;
        }
        let is_fixed = !matches!(order, ValueOrder::Bytes | ValueOrder::Decimal);
        let nans = if order.has_nan() { nans } else { Some(0) };
        Some(Self { rows, levels, nulls, nans, bounds, is_exact: is_fixed, bytes, rep, def })
    }
}

/// The sum of histograms, if all are there.
pub(super) fn add_up<'a>(mut all: impl Iterator<Item = Option<&'a [i64]>>) -> Option<Vec<i64>> {
    let mut sum = all.next()??.to_vec();
    for counts in all {
        sum.iter_mut().zip(counts?).for_each(|(sum, count)| *sum += count);
    }
    Some(sum)
}

/// Widens the bounds of a chunk to those of a page, or those of a page to those of a part of it.
pub(super) fn widen(
    order: ValueOrder,
    chunk: &mut Option<(Bounds, bool)>,
    page: &Bounds,
    is_exact: bool,
) {
    let Some((chunk, chunk_is_exact)) = chunk else {
        *chunk = Some((page.clone(), is_exact));
        return;
    };
    *chunk_is_exact &= is_exact;
    // NaN are bounds only where there is nothing else.
    match (order.is_nan(&chunk.min), order.is_nan(&page.min)) {
        (true, false) => *chunk = page.clone(),
        (false, true) => {}
        _ => {
            if order.compare(&page.min, &chunk.min).is_lt() {
                chunk.min.clone_from(&page.min);
            }
            if order.compare(&page.max, &chunk.max).is_gt() {
                chunk.max.clone_from(&page.max);
            }
        }
    }
}

fn histogram(all: &[u8], max: i16, levels: usize) -> Vec<i64> {
    let max = usize::try_from(max).unwrap_or(0);
    let mut counts = vec![0_i64; max + 1];
    match all.is_empty() {
        true => counts[max] = levels as i64,
        // A pass a level is faster than a table: comparing bytes takes no memory. The level of
        // values comes first: it may be the only one. Level 0 is what is left.
        false if counts.len() <= 8 => {
            let mut left = levels as i64;
            for (n, count) in counts.iter_mut().enumerate().rev() {
                *count = if n == 0 || left == 0 { left } else { occurrences(all, n as u8) as i64 };
                left -= *count;
            }
        }
        false => all.iter().for_each(|level| counts[usize::from(*level)] += 1),
    }
    counts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn levels_are_counted(all in prop::collection::vec(0..4_u8, 1..2000), deep: bool) {
            let max = if deep { 12 } else { 3 };
            let counts = histogram(&all, max, all.len());
            prop_assert_eq!(counts.len(), max as usize + 1);
            for (level, count) in counts.iter().enumerate() {
                let by_eye = all.iter().filter(|l| usize::from(**l) == level).count();
                prop_assert_eq!(*count, by_eye as i64);
            }
        }
    }
}
