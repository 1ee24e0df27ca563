//! A hash of rows that does not depend on their order: equal multisets of rows, equal hash.
//!
//! ```text
//! row r:   leaf 0 ─ h ─┐
//!          leaf 1 ─ h ─┼─ mixed in leaf order ─▶ row hash ─┐
//!          leaf 2 ─ h ─┘        (rows keep together)       ├─ sum mod 2^128
//! row r+1:                                       row hash ─┘
//! ```
//!
//! The hash of a leaf's row covers repetition levels, definition levels and value bytes, so nulls,
//! empty lists and NaN payloads all count. It is XXH3 with 128 bits: against accidents, not
//! attacks.
//!
//! # Cost
//! One pass over all columns; for each thread, 16 bytes a row of one window and one leaf that is open.
//! Sums of windows add up in any order, so threads share them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use parquet::data_type::{AsBytes, DataType};
use plait_core::SourceId;
use plait_core::stream::Unite;
use plait_core::workers::Workers;
use plait_core::{Error, Kind, Result};
use twox_hash::XxHash3_128;

use crate::leaf::{
    self, LocationCache, OutputLeaf, RowsAhead, SourceRows, Span, output_leaves, shared_rows,
    with_physical,
};
use crate::runtime::{Context, MemoryStage, ScopedWorkers};
use crate::schema::reconcile;
use crate::sink::Finished;
use crate::source::Source;
use crate::store;

/// Rows of one window, at least where there are so many, and at most.
const WINDOW_ROWS: Range<u64> = 1 << 14..1 << 20;
/// Rows read at once.
const SPAN_ROWS: usize = 1024;
/// Bytes of a row that are hashed in one go. Longer rows are hashed part by part, not copied.
const PART_BYTES: usize = 1 << 14;

/// Rows to hash: sources in the shape of the output's leaves.
pub(crate) struct HashedRows<'a> {
    pub(crate) sources: &'a [Arc<Source>],
    /// The rows of each source.
    pub(crate) rows: &'a [Range<u64>],
    /// All leaves but those that are constants.
    pub(crate) leaves: &'a [OutputLeaf],
    /// Bytes of leaves that have one value in all rows, by the index of the leaf.
    pub(crate) constants: &'a BTreeMap<usize, Vec<u8>>,
}

/// The hash of a multiset of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContentHash {
    pub(crate) rows: u64,
    pub(crate) total: u128,
    pub(crate) leaves: Vec<u128>,
}

impl ContentHash {
    /// The hash of no rows.
    fn none(leaves: usize) -> Self {
        Self { rows: 0, total: 0, leaves: vec![0; leaves] }
    }

    /// The hash of both.
    fn plus(mut self, other: &Self) -> Self {
        self.rows += other.rows;
        self.total = self.total.wrapping_add(other.total);
        for (sum, leaf) in self.leaves.iter_mut().zip(&other.leaves) {
            *sum = sum.wrapping_add(*leaf);
        }
        self
    }

    pub(crate) fn text(&self) -> String {
        format!("{:032x}", self.total)
    }

    /// Indices of the leaves whose values differ.
    pub(crate) fn differing(&self, other: &Self) -> Vec<usize> {
        let pairs = self.leaves.iter().zip(&other.leaves).enumerate();
        pairs.filter(|(_, (a, b))| a != b).map(|(i, _)| i).collect()
    }
}

/// All rows of `sources`.
pub(crate) fn whole(sources: &[Arc<Source>]) -> Vec<Range<u64>> {
    sources.iter().map(|source| 0..source.rows()).collect()
}

/// Hashes all rows, on so many threads.
///
/// # Errors
/// Whatever is wrong with a source.
pub(crate) fn hash(
    rows: &HashedRows<'_>,
    threads: Option<usize>,
    context: &Context,
) -> Result<ContentHash> {
    let workers = ScopedWorkers::of_files(threads, context.budget());
    let most = context.budget().hashed_rows() / workers.count() as u64;
    let most = most.clamp(SPAN_ROWS as u64, WINDOW_ROWS.end);
    let window = shared_rows(rows.rows, workers.count(), WINDOW_ROWS.start..most);
    let cache =
        Arc::new(LocationCache::new(context, context.budget().bytes(MemoryStage::PageLocations)));
    let ahead = RowsAhead::new(rows.sources, rows.rows, rows.leaves, window, &cache, context);
    let none = || ContentHash::none(rows.leaves.len() + rows.constants.len());
    let parts = ahead
        .fold(&workers, none, |hash, stretch| hash_stretch(rows, stretch, hash, &cache, context));
    match parts {
        Ok(parts) => Ok(parts.iter().fold(none(), ContentHash::plus)),
        // How rows are shared depends on threads, and so does what is met first in a file.
        Err((source, error)) if workers.count() > 1 && error.kind() == Kind::CorruptSource => {
            let (sources, of) = (&rows.sources[source..=source], &rows.rows[source..=source]);
            hash(&HashedRows { sources, rows: of, ..*rows }, Some(1), context).and(Err(error))
        }
        Err((_, error)) => Err(error),
    }
}

/// Adds the rows of one window.
fn hash_stretch(
    rows: &HashedRows<'_>,
    stretch: &SourceRows,
    hash: &mut ContentHash,
    cache: &Arc<LocationCache>,
    context: &Context,
) -> Result<()> {
    let Some(source) = rows.sources.get(stretch.source) else { return Ok(()) };
    let live = source.among(vec![stretch.rows.clone()]);
    let n: u64 = live.iter().map(|rows| rows.end - rows.start).sum();
    let mut mixed = vec![0u128; usize::try_from(n).unwrap_or(0)];
    let _charge = context.charge(mixed.len() * size_of::<u128>());
    let mut leaves = rows.leaves.iter();
    for (i, total) in hash.leaves.iter_mut().enumerate() {
        let sum = match rows.constants.get(&i) {
            Some(bytes) => mix_constant(i, bytes, &mut mixed),
            None => match leaves.next() {
                Some(leaf) => with_physical!(leaf.descr.physical_type(), T => {
                    hash_leaf::<T>(source, leaf, i, &live, &mut mixed, cache, context)?
                }),
                None => 0,
            },
        };
        *total = total.wrapping_add(sum);
    }
    for row in &mixed {
        let row = XxHash3_128::oneshot(&row.to_le_bytes());
        hash.total = hash.total.wrapping_add(row);
    }
    hash.rows += n;
    Ok(())
}

/// Counts a value that all rows have in leaf `place`.
fn mix_constant(place: usize, bytes: &[u8], mixed: &mut [u128]) -> u128 {
    let hash = XxHash3_128::oneshot_with_seed(place as u64, bytes);
    for slot in &mut *mixed {
        *slot = slot.wrapping_mul(MIX).wrapping_add(hash);
    }
    hash.wrapping_mul(mixed.len() as u128)
}

/// Hashes a leaf of the rows in `live`, which ascend; it counts as leaf `place` of the rows.
fn hash_leaf<T: DataType>(
    source: &Arc<Source>,
    output: &OutputLeaf,
    place: usize,
    live: &[Range<u64>],
    mixed: &mut [u128],
    cache: &Arc<LocationCache>,
    context: &Context,
) -> Result<u128> {
    let (Some(first), Some(last)) = (live.first(), live.last()) else { return Ok(0) };
    let mut leaf = leaf::open::<T>(source, output, first.start, cache, context)?;
    let (max_def, max_rep) = (output.descr.max_def_level(), output.descr.max_rep_level());
    let mut bytes = RowBytes::new(place as u64);
    let mut span = Span::<T::T>::default();
    let mut sum = 0u128;
    let (mut row, mut live, mut slots) = (first.start, live.iter().peekable(), mixed.iter_mut());
    while row < last.end {
        span.clear();
        let left = usize::try_from(last.end - row).unwrap_or(usize::MAX);
        let read = leaf.read(SPAN_ROWS.min(left), &mut span)?;
        if read == 0 {
            return Err(Error::new(Kind::CorruptSource, "column ends before its rows")
                .with_path(source.path())
                .with_column(output.descr.path().string()));
        }
        let entries = if max_def > 0 { span.def.len() } else { span.values.len() };
        let mut values = span.values.iter();
        let mut entry = 0;
        for row in row..row + read as u64 {
            loop {
                let def = span.def.get(entry).copied().unwrap_or(max_def);
                bytes.level(def);
                if def == max_def
                    && let Some(value) = values.next()
                {
                    bytes.value(value.as_bytes());
                }
                entry += 1;
                let next = span.rep.get(entry).copied().unwrap_or(0);
                if max_rep == 0 || next == 0 || entry >= entries {
                    break;
                }
                bytes.level(next);
            }
            while live.next_if(|rows| rows.end <= row).is_some() {}
            if live.peek().is_none_or(|rows| row < rows.start) {
                bytes.clear(); // the source passes over it
                continue;
            }
            let Some(slot) = slots.next() else { break };
            let hash = bytes.finish();
            sum = sum.wrapping_add(hash);
            // Order of leaves matters here, so that values cannot move between rows or leaves.
            *slot = slot.wrapping_mul(MIX).wrapping_add(hash);
        }
        row += read as u64;
    }
    Ok(sum)
}

/// The bytes of one row of a leaf, which are hashed.
struct RowBytes {
    seed: u64,
    /// Those that are not hashed yet.
    part: Vec<u8>,
    /// Those before, if the row is long.
    hashed: Option<XxHash3_128>,
}

impl RowBytes {
    fn new(seed: u64) -> Self {
        Self { seed, part: Vec::new(), hashed: None }
    }

    fn level(&mut self, level: i16) {
        if self.part.len() >= PART_BYTES {
            self.hash_part();
        }
        put_level(level, &mut self.part);
    }

    fn value(&mut self, value: &[u8]) {
        if self.part.len() + value.len() <= PART_BYTES {
            return put_value(value, &mut self.part);
        }
        put_len(value, &mut self.part);
        self.hash_part().write(value);
    }

    fn hash_part(&mut self) -> &mut XxHash3_128 {
        let hashed = self.hashed.get_or_insert_with(|| XxHash3_128::with_seed(self.seed));
        hashed.write(&self.part);
        self.part.clear();
        hashed
    }

    /// Forgets the row.
    fn clear(&mut self) {
        self.part.clear();
        self.hashed = None;
    }

    /// The hash of the row, the same however it was put together. The next row begins.
    fn finish(&mut self) -> u128 {
        let hash = match self.hashed.take() {
            None => XxHash3_128::oneshot_with_seed(self.seed, &self.part),
            Some(mut hashed) => {
                hashed.write(&self.part);
                hashed.finish_128()
            }
        };
        self.part.clear();
        hash
    }
}

/// An odd 128-bit constant: digits of the golden ratio.
const MIX: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;

/// Compares the rows of a merge's sources with those of its outputs; gives the hash.
///
/// # Errors
/// [`Kind::VerificationFailed`] naming the columns that differ.
pub(crate) fn compare_outputs(
    rows_in: &HashedRows<'_>,
    outputs: &[Finished],
    constants: &BTreeMap<usize, Vec<u8>>,
    threads: Option<usize>,
    context: &Context,
) -> Result<u128> {
    let hash_in = hash(rows_in, threads, context)?;
    let hash_out = hash_outputs(outputs, rows_in, constants, threads, context)?;
    if hash_in == hash_out {
        return Ok(hash_in.total);
    }
    let names: Vec<String> = hash_in
        .differing(&hash_out)
        .into_iter()
        .filter_map(|i| rows_in.leaves.get(i))
        .map(|leaf| leaf.descr.path().string())
        .collect();
    Err(Error::new(Kind::VerificationFailed, "outputs do not have the rows of the sources")
        .with_column(names.join(", "))
        .with_got(format!("{} rows out of {}", hash_out.rows, hash_in.rows))
        .with_hint("nothing was published; please report this"))
}

/// What `leaves` of the rows, which have one value each and do not repeat, are hashed by; of no rows
/// nothing.
///
/// # Errors
/// Whatever is wrong with a source.
pub(crate) fn first_values(
    rows: &HashedRows<'_>,
    leaves: &[usize],
    context: &Context,
) -> Result<BTreeMap<usize, Vec<u8>>> {
    let mut constants = BTreeMap::new();
    let first = rows.sources.iter().zip(rows.rows).find_map(|(source, rows)| {
        let live = source.next_rows(rows.start).start;
        (live < rows.end).then_some((source, live))
    });
    let cache = Arc::new(LocationCache::new(context, 0));
    for (place, output) in leaves.iter().filter_map(|i| Some((*i, rows.leaves.get(*i)?))) {
        let Some((source, row)) = first else { continue };
        let bytes = with_physical!(output.descr.physical_type(), T => {
            let mut leaf = leaf::open::<T>(source, output, row, &cache, context)?;
            let mut span = Span::default();
            leaf.read(1, &mut span)?;
            let max_def = output.descr.max_def_level();
            let mut bytes = Vec::new();
            put_level(span.def.first().copied().unwrap_or(max_def), &mut bytes);
            span.values.first().into_iter().for_each(|value| put_value(value.as_bytes(), &mut bytes));
            bytes
        });
        constants.insert(place, bytes);
    }
    Ok(constants)
}

fn put_level(level: i16, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&level.to_le_bytes());
}

fn put_len(value: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
}

fn put_value(value: &[u8], bytes: &mut Vec<u8>) {
    put_len(value, bytes);
    bytes.extend_from_slice(value);
}

/// Hashes the rows of outputs that are not published: some of `rows_in`, for which `constants` has the
/// leaves that the outputs lack.
///
/// # Errors
/// [`Kind::Internal`] for outputs that cannot be read again.
pub(crate) fn hash_outputs(
    outputs: &[Finished],
    rows_in: &HashedRows<'_>,
    constants: &BTreeMap<usize, Vec<u8>>,
    threads: Option<usize>,
    context: &Context,
) -> Result<ContentHash> {
    let mut sources = Vec::new();
    for (i, output) in outputs.iter().enumerate() {
        let path = output.temp.local_path().ok_or_else(|| {
            Error::new(Kind::Internal, "an output that is to be compared cannot be read")
        })?;
        let store = store::open_local(path)?;
        let id = SourceId(u32::try_from(i).unwrap_or(u32::MAX));
        sources.push(Arc::new(Source::open(id, store)?));
    }
    if sources.is_empty() {
        return Ok(ContentHash::none(rows_in.leaves.len()));
    }
    let footers: Vec<_> = sources.iter().map(|s| (s.path(), s.file())).collect();
    let reconciled = reconcile(&footers, &Unite::default())?;
    let leaves = output_leaves(&reconciled);
    let (sources, rows) = (&sources, &whole(&sources));
    hash(&HashedRows { sources, rows, leaves: &leaves, constants }, threads, context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_hashed_in_parts_have_the_hash_of_their_bytes() {
        let mut row = RowBytes::new(7);
        for lens in [vec![], vec![3], vec![8; 20_000], vec![40_000, 1, PART_BYTES, 0], vec![50_000]]
        {
            let mut bytes = Vec::new();
            for (i, len) in lens.iter().enumerate() {
                let value: Vec<u8> = (0..*len).map(|n| (n * 31 + i) as u8).collect();
                row.level(i as i16);
                row.value(&value);
                put_level(i as i16, &mut bytes);
                put_value(&value, &mut bytes);
            }
            for _ in 0..20_000 {
                row.level(1);
                put_level(1, &mut bytes);
            }
            assert!(row.part.capacity() <= 2 * PART_BYTES);
            assert_eq!(row.finish(), XxHash3_128::oneshot_with_seed(7, &bytes), "{lens:?}");
        }
    }
}
