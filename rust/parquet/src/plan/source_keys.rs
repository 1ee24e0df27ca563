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

use super::key_samples::KeySamples;
use crate::keys::{KeyLeaves, KeyReader, key_at};
use crate::leaf::LocationCache;
use crate::runtime::Context;
use crate::source::Source;

/// Rows of keys read at once.
const BATCH_ROWS: u64 = 4096;

/// Fewer keys are not worth forgetting.
const FORGOTTEN_MIN: usize = 16;

/// Nothing in the place of what is forgotten.
const NONE: &[(u64, Vec<u8>)] = &[];

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
        let at = self.samples.before_key(|k| match edge {
            Edge::Below => k < key,
            Edge::UpTo => k <= key,
        });
        let least =
            at.checked_sub(1).and_then(|i| self.samples.get(i)).map_or(0, |sample| sample.0 + 1);
        let most = self.samples.get(at).map_or(self.rows(), |sample| sample.0);
        (least.min(most), most)
    }

    /// The same, about: keys between two samples are taken for numbers that are spread evenly.
    pub(super) fn about(&self, key: &[u8], edge: Edge) -> u64 {
        let (least, most) = self.before(key, edge);
        let at = self.samples.before_row(least);
        let before = at.checked_sub(1).and_then(|i| self.samples.get(i));
        let (Some((_, low)), Some((_, high))) = (before, self.samples.get(at)) else {
            return least;
        };
        least + ((most - least) as f64 * share(low, key, high)) as u64
    }

    /// The key of `row`.
    pub(super) fn key(&mut self, row: u64, reading: Reading<'_>) -> Result<&[u8]> {
        let at = self.samples.before_row(row);
        if self.samples.get(at).is_none_or(|sample| sample.0 != row) {
            let in_file = self.source.span().start + row;
            let Reading { keys, cache, context } = reading;
            let key = key_at(&self.source, keys, in_file, cache, context)?;
            self.samples.replace(at..at, &[(row, key)]);
        }
        Ok(self.samples.get(at).map_or(&[], |sample| sample.1))
    }

    /// The keys that are known of `rows`.
    pub(super) fn keys(&self, rows: std::ops::Range<u64>) -> impl Iterator<Item = &[u8]> {
        let [from, to] = [rows.start, rows.end].map(|row| self.samples.before_row(row));
        self.samples.range(from..to).map(|sample| sample.1)
    }

    /// Learns the keys of all of `rows`.
    pub(super) fn read(&mut self, rows: std::ops::Range<u64>, reading: Reading<'_>) -> Result<()> {
        let [from, to] = [rows.start, rows.end].map(|row| self.samples.before_row(row));
        if (to - from) as u64 == rows.end.saturating_sub(rows.start) {
            return Ok(());
        }
        let first = self.source.span().start;
        let start = self.source.at_or_before(first + rows.start);
        let Reading { keys, cache, context } = reading;
        let mut reader = KeyReader::open(&self.source, keys, start, cache, context)?;
        let mut all: Vec<(u64, Vec<u8>)> = Vec::new();
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
        self.samples.replace(from..to, &all);
        Ok(())
    }

    /// Forgets what lies below `key`, but for the sample next to it.
    pub(super) fn forget_below(&mut self, key: &[u8]) {
        let below = self.samples.before_key(|k| k < key).saturating_sub(1);
        // The block is copied, and shared with others as long as it is not.
        if below >= FORGOTTEN_MIN {
            self.samples.replace(0..below, NONE);
        }
    }

    /// Forgets the keys of rows before `row`.
    pub(super) fn forget_before(&mut self, row: u64) {
        let before = self.samples.before_row(row);
        if before > 0 {
            self.samples.replace(0..before, NONE);
        }
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
