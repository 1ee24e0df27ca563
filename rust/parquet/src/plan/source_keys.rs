//! What is known of the keys of one source: those of some rows, more on demand.
//!
//! ```text
//! rows    0 ········· 65536 ········· 99999
//! samples   a            f              m         below(c): at least 1, at most 65536 rows
//! ```
//!
//! Rows are counted from the first row of the source, which is not that of its file where the source
//! is a selection; rows that it passes over count with the key of the row before.
//!
//! # Invariants
//! Rows and keys of samples ascend if the source is sorted. If it is not, counts are wrong, and the
//! merge finds the disorder.
//!
//! # Cost
//! One page of every key column a key that is looked up.
//!
//! # Not here
//! Which keys to look up (`cuts`).

use std::sync::Arc;

use plait_core::Result;

use super::entries::KeySamples;
use crate::keys::{KeyLeaves, KeyReader, key_at};
use crate::leaf::LocationCache;
use crate::runtime::Context;
use crate::source::Source;

/// Rows of keys read at once.
const BATCH_ROWS: u64 = 4096;

/// What reading keys takes.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub(crate) keys: &'a KeyLeaves,
    pub(crate) cache: &'a Arc<LocationCache>,
    pub(crate) context: &'a Context,
}

/// A source and what is known of its keys.
#[derive(Clone)]
pub(super) struct SourceKeys {
    pub(super) source: Arc<Source>,
    /// Which samples there were at the start.
    pub(super) known: Known,
    pub(super) samples: KeySamples,
}

/// Which keys of a source are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// The first and the last.
    Ends,
    /// Those of rows in equal distances.
    Spread,
    /// Those in the footer, as close as they get without reading.
    Footer,
}

/// Which rows lie before a key.
#[derive(Clone, Copy)]
pub(super) enum Edge {
    /// Those with smaller keys.
    Below,
    /// Those with the key, too.
    UpTo,
}

/// How many rows: at least, at most.
pub(super) type Count = (u64, u64);

impl SourceKeys {
    /// Number of rows.
    pub(super) fn rows(&self) -> u64 {
        let span = self.source.span();
        span.end - span.start
    }

    /// Rows before `key`.
    pub(super) fn before(&self, key: &[u8], edge: Edge) -> Count {
        let is_below = |k: &Vec<u8>| match edge {
            Edge::Below => k.as_slice() < key,
            Edge::UpTo => k.as_slice() <= key,
        };
        let at = self.samples.partition_point(|(_, k)| is_below(k));
        let least =
            at.checked_sub(1).and_then(|i| self.samples.get(i)).map_or(0, |sample| sample.0 + 1);
        let most = self.samples.get(at).map_or(self.rows(), |sample| sample.0);
        (least.min(most), most)
    }

    /// The same, about: keys between two samples are taken for numbers that are spread evenly.
    pub(super) fn about(&self, key: &[u8], edge: Edge) -> u64 {
        let (least, most) = self.before(key, edge);
        let at = self.samples.partition_point(|sample| sample.0 < least);
        let before = at.checked_sub(1).and_then(|i| self.samples.get(i));
        let (Some((_, low)), Some((_, high))) = (before, self.samples.get(at)) else {
            return least;
        };
        least + ((most - least) as f64 * share(low, key, high)) as u64
    }

    /// The key of `row`.
    pub(super) fn key(&mut self, row: u64, reading: Reading<'_>) -> Result<&[u8]> {
        let at = match self.samples.binary_search_by_key(&row, |sample| sample.0) {
            Ok(at) => at,
            Err(at) => {
                let in_file = self.source.span().start + row;
                let Reading { keys, cache, context } = reading;
                let key = key_at(&self.source, keys, in_file, cache, context)?;
                self.samples.insert(at, (row, key));
                at
            }
        };
        Ok(self.samples.get(at).map_or(&[], |sample| sample.1.as_slice()))
    }

    /// The keys that are known of `rows`.
    pub(super) fn keys(&self, rows: std::ops::Range<u64>) -> impl Iterator<Item = &[u8]> {
        let from = self.samples.partition_point(|sample| sample.0 < rows.start);
        let to = self.samples.partition_point(|sample| sample.0 < rows.end);
        self.samples.get(from..to).unwrap_or_default().iter().map(|sample| sample.1.as_slice())
    }

    /// Learns the keys of all of `rows`.
    pub(super) fn read(&mut self, rows: std::ops::Range<u64>, reading: Reading<'_>) -> Result<()> {
        let known =
            |samples: &KeySamples, row: u64| samples.partition_point(|sample| sample.0 < row);
        let (from, to) = (known(&self.samples, rows.start), known(&self.samples, rows.end));
        if (to - from) as u64 == rows.end.saturating_sub(rows.start) {
            return Ok(());
        }
        let first = self.source.span().start;
        let start = self.source.at_or_before(first + rows.start);
        let Reading { keys, cache, context } = reading;
        let mut reader = KeyReader::open(&self.source, keys, start, cache, context)?;
        let mut all: KeySamples = Vec::new();
        while reader.row() < first + rows.end {
            context.check_cancelled()?;
            let row = reader.row();
            let wanted = usize::try_from((first + rows.end - row).min(BATCH_ROWS)).unwrap_or(1);
            let Some((batch, _)) = reader.next(wanted)? else { break };
            let shape = keys.read_shape();
            for (i, row) in (row..).take(batch.len()).enumerate() {
                let key = match all.last() {
                    Some((_, before)) if self.source.at_or_before(row) != row => before.clone(),
                    _ => batch.to_bytes(shape, i),
                };
                all.push((row.saturating_sub(first), key));
            }
        }
        all.retain(|(row, _)| *row >= rows.start);
        self.samples.splice(from..to, all);
        Ok(())
    }

    /// Forgets what lies below `key`, but for the sample next to it.
    pub(super) fn forget_below(&mut self, key: &[u8]) {
        let at = self.samples.partition_point(|(_, k)| k.as_slice() < key);
        self.samples.drain(..at.saturating_sub(1));
    }
}

/// Where `key` lies between `low` and `high`: from 0 to 1, by the first bytes in which these differ.
fn share(low: &[u8], key: &[u8], high: &[u8]) -> f64 {
    let same = low.iter().zip(high).take_while(|(a, b)| a == b).count();
    let number = |key: &[u8]| {
        let mut bytes = [0; 8];
        for (to, from) in bytes.iter_mut().zip(key.get(same..).unwrap_or_default()) {
            *to = *from;
        }
        u64::from_be_bytes(bytes) as f64
    };
    let (low, key, high) = (number(low), number(key), number(high));
    if high > low { ((key - low) / (high - low)).clamp(0.0, 1.0) } else { 0.5 }
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn keys_between_two_others_are_placed_as_numbers_are() {
        let key = |n: u64| [&[1, 9, 9][..], &n.to_be_bytes()].concat();
        for (n, expected) in [(1000, 0.0), (1500, 0.5), (1750, 0.75), (2000, 1.0), (9000, 1.0)] {
            assert!((share(&key(1000), &key(n), &key(2000)) - expected).abs() < 1e-3, "{n}");
        }
        assert!((share(b"aa", b"aa", b"aa") - 0.5).abs() < 1e-9);
    }
}
