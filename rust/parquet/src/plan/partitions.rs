//! Where partitions begin: the rows at which the first key columns change.
//!
//! ```text
//! rows   0 ──────────── 32768 ──────────── 65536       one source
//!        a                a  ┃b      c┃d       d
//!        └── equal: not read └─ read ─┘└ equal
//! ```
//!
//! # Invariants
//! Places are exact: keys of footers are not asked. A source whose partition columns go backwards
//! where they were read is refused; elsewhere the merge finds it, as it compares every key.
//!
//! # Cost
//! A key of the partition columns every [`READ_ROWS`] rows at most, and the keys of stretches of so
//! many rows in which one changes.
//!
//! # Not here
//! What folders partitions have (`partition`); cuts inside of a partition (`cuts`).

use std::collections::BTreeMap;

use plait_core::workers::each;
use plait_core::{Error, Kind, Result};

use super::key_samples::KeySamples;
use super::source_keys::{Known, Reading, SourceKeys};
use crate::order::unsorted;
use crate::partition::PARTITIONS_MAX;
use crate::runtime::ScopedWorkers;

/// Stretches of no more rows are read whole.
const READ_ROWS: u64 = 16 << 10;

/// A partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Partition {
    /// What all of its keys begin with.
    pub(super) prefix: Vec<u8>,
    /// Of the sources that have rows in it, by place: how many lie before the next one.
    pub(super) ends: Vec<(usize, u64)>,
    /// How many rows of all sources lie before the next one.
    pub(super) end: u64,
}

/// The partitions of `sources_keys` in order, whose columns `reading` reads.
///
/// # Errors
/// [`Kind::UnsortedSource`], [`Kind::InvalidArgument`] for too many of them.
pub(super) fn partitions(
    sources_keys: &[SourceKeys],
    workers: &ScopedWorkers,
    reading: Reading<'_>,
) -> Result<Vec<Partition>> {
    let found = each(workers, sources_keys.len(), |i| {
        let of = &sources_keys[i];
        let source = std::sync::Arc::clone(&of.source);
        changes(SourceKeys { source, known: Known::Ends, samples: KeySamples::default() }, reading)
    })?;
    let mut begins: BTreeMap<Vec<u8>, Vec<(usize, u64)>> = BTreeMap::new();
    for (i, changes) in found.into_iter().enumerate() {
        for (row, prefix) in changes {
            begins.entry(prefix).or_default().push((i, row));
        }
        if begins.len() > PARTITIONS_MAX {
            return Err(Error::new(Kind::InvalidArgument, "there are too many partitions")
                .with_got(format!("more than {PARTITIONS_MAX}"))
                .with_hint("partition by columns of fewer values, such as a day"));
        }
    }
    // From the last to the first: a source begins a partition that it lacks where it begins the next.
    let mut starts: Vec<u64> = sources_keys.iter().map(SourceKeys::rows).collect();
    let mut end: u64 = starts.iter().sum();
    let mut all = Vec::with_capacity(begins.len());
    for (prefix, places) in begins.into_iter().rev() {
        let before = |(source, row)| (source, std::mem::replace(&mut starts[source], row), row);
        let places: Vec<(usize, u64, u64)> = places.into_iter().map(before).collect();
        let ends = places.iter().map(|(source, end, _)| (*source, *end)).collect();
        all.push(Partition { prefix, ends, end });
        end -= places.iter().map(|(_, end, start)| end - start).sum::<u64>();
    }
    all.reverse();
    Ok(all)
}

/// The rows of one source at which its keys change, with the keys from there on.
fn changes(mut of: SourceKeys, reading: Reading<'_>) -> Result<Vec<(u64, Vec<u8>)>> {
    let Some(last) = of.rows().checked_sub(1) else { return Ok(Vec::new()) };
    let mut found = vec![(0, of.key(0, reading)?.to_vec())];
    // Rows up to which nothing is known yet, the nearest on top.
    let mut open = vec![last];
    let mut known = 0;
    while let Some(end) = open.pop() {
        reading.context.check_cancelled()?;
        let key = of.key(end, reading)?.to_vec();
        let before = found.last().map(|(_, key)| key.clone()).unwrap_or_default();
        if key == before {
            known = end;
        } else if end - known > READ_ROWS {
            open.extend([end, known + (end - known) / 2]);
            continue;
        } else {
            of.read(known..end + 1, reading)?;
            // Keys behind it were looked up before.
            for (row, key) in of.samples.iter().take_while(|(row, _)| *row <= end) {
                note(&mut found, row, key, &of, reading)?;
            }
            known = end;
        }
        of.forget_before(end);
        if found.len() > PARTITIONS_MAX {
            break;
        }
    }
    Ok(found)
}

/// Adds the key of `row` if it is another one.
fn note(
    found: &mut Vec<(u64, Vec<u8>)>,
    row: u64,
    key: &[u8],
    of: &SourceKeys,
    reading: Reading<'_>,
) -> Result<()> {
    match found.last() {
        Some((at, before)) if row > *at && key < before.as_slice() => {
            let row = of.source.span().start + row;
            Err(unsorted(&of.source, reading.keys, row, before, key))
        }
        Some((at, before)) if row > *at && key != before => {
            found.push((row, key.to_vec()));
            Ok(())
        }
        _ => Ok(()),
    }
}
