//! Selectors as users pass them become a [`Selection`]: checked, and joined to runs where they are long.
//!
//! ```text
//! arrays u8..u64 ─┐  how many rows do not follow the row before?
//! rows   u8..u64 ─┴─▶ few: Runs, one check a run       many: Rows, one check a row
//! ```
//!
//! # Invariants
//! Nothing is selected that does not exist; the first row that does not is named.
//!
//! # Cost
//! Two passes over the selectors, which compilers turn into vector code, where rows are single; one
//! step a run, and a comparison a row, which are vector code too, where they are not. Samples tell which.
//! Where a row is a load and a store, rows stay rows, and kernels look for those that follow each other.
//!
//! # Not here
//! Copying.

use std::ops::BitOr;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::{ArrowNativeType, ScalarBuffer};
use arrow_schema::DataType;

use super::kernel::{Vectored, vectored};
use super::select::{Children, Selection, narrow, outside};
use crate::run::{Run, SourceId};
use crate::{Error, Kind, Result};

/// An unsigned integer, of a selector or a key.
pub(super) trait Unsigned: ArrowNativeType + Ord + BitOr<Output = Self> {
    fn wide(self) -> u64;
    /// The sum, without what does not fit.
    fn wrapping_add(self, other: Self) -> Self;
    /// The difference, from the other end where it is below 0.
    fn wrapping_sub(self, other: Self) -> Self;
    /// Whether the highest bit is set.
    fn is_high(self) -> bool;
    /// Whether `self` follows `before`.
    fn follows(self, before: Self) -> bool;
    /// Numbers that fit 32 bits, in 32 bits.
    fn narrowed(all: &ScalarBuffer<Self>) -> ScalarBuffer<u32>;
    /// Whether all are below `limit`.
    fn all_below(all: &[Self], limit: u64) -> bool;
}

macro_rules! index {
    ($($t:ty: $narrowed:expr),*) => {$(
        impl Unsigned for $t {
            #[inline(always)]
            fn wide(self) -> u64 {
                self.into()
            }
            #[inline(always)]
            fn wrapping_add(self, other: Self) -> Self {
                <$t>::wrapping_add(self, other)
            }
            #[inline(always)]
            fn wrapping_sub(self, other: Self) -> Self {
                <$t>::wrapping_sub(self, other)
            }
            #[inline(always)]
            fn is_high(self) -> bool {
                self > <$t>::MAX >> 1
            }
            #[inline(always)]
            fn follows(self, before: Self) -> bool {
                // Nothing follows the largest number.
                (self == before.wrapping_add(1)) & (self != 0)
            }
            fn narrowed(all: &ScalarBuffer<Self>) -> ScalarBuffer<u32> {
                $narrowed(all)
            }
            #[inline(always)]
            fn all_below(all: &[Self], limit: u64) -> bool {
                let half = <$t>::MAX >> 1;
                match limit.checked_sub(1).map(<$t>::try_from) {
                    None => all.is_empty(),
                    // The highest bit is set in `n` or in `last - n` if `n` is above `last`.
                    Some(Ok(last)) if last <= half => {
                        // No branch a number: vector code.
                        all.iter().fold(0, |any, n| any | last.wrapping_sub(*n) | n) <= half
                    }
                    Some(Ok(last)) => all.iter().all(|n| *n <= last),
                    Some(Err(_)) => true,
                }
            }
        }
    )*};
}
index!(
    u8: |all: &ScalarBuffer<u8>| all.iter().copied().map(u32::from).collect(),
    u16: |all: &ScalarBuffer<u16>| all.iter().copied().map(u32::from).collect(),
    u32: ScalarBuffer::clone,
    u64: |all: &ScalarBuffer<u64>| {
        #[expect(clippy::cast_possible_truncation, reason = "rows are below 2^32, which was checked")]
        all.iter().map(|n| *n as u32).collect()
    }
);

/// Selectors with shorter runs are taken row by row. Crossover measured by the bench `interleave`.
const SELECTOR_RUN_ROWS_MIN: usize = 6;

/// Whether a row of a type is a load and a store: then runs are found while they are copied, eight rows at a
/// time, which costs less than a list of them, however long they are.
pub(super) fn are_rows_cheap(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(..) | DataType::Utf8View | DataType::BinaryView => true,
        other => other.is_primitive(),
    }
}

/// Checks that `selector` is one: unsigned, without nulls.
///
/// # Errors
/// `InvalidArgument` that names the selector and what was found.
pub(super) fn check(name: &str, selector: &dyn Array) -> Result<()> {
    if !selector.data_type().is_unsigned_integer() {
        return Err(Error::new(
            Kind::InvalidArgument,
            format!("`{name}` is not unsigned integers"),
        )
        .with_got(format!("`{}`", selector.data_type()))
        .with_hint("cast it to uint32 or uint64"));
    }
    if let Some(nulls) = selector.nulls().filter(|nulls| nulls.null_count() > 0) {
        let first = nulls.inner().set_indices().zip(0..).find(|(set, i)| set != i);
        let first = first.map_or_else(|| selector.len() - nulls.null_count(), |(_, i)| i);
        return Err(Error::new(Kind::InvalidArgument, format!("`{name}` has nulls"))
            .with_row(first as u64)
            .with_got(format!("{} nulls", nulls.null_count()))
            .with_hint("leave the rows out, or select a row that is null"));
    }
    Ok(())
}

/// What the selectors select of arrays of `lens` rows.
///
/// # Errors
/// `InvalidArgument` for the first row that does not exist.
pub(super) fn lower(
    arrays: &ArrayRef,
    rows: &ArrayRef,
    lens: Vec<usize>,
    cheap: bool,
) -> Result<Selection<'static>> {
    match arrays.data_type() {
        DataType::UInt8 => rows_of::<UInt8Type>(arrays, rows, lens, cheap),
        DataType::UInt16 => rows_of::<UInt16Type>(arrays, rows, lens, cheap),
        DataType::UInt32 => rows_of::<UInt32Type>(arrays, rows, lens, cheap),
        _ => rows_of::<UInt64Type>(arrays, rows, lens, cheap),
    }
}

fn rows_of<A: ArrowPrimitiveType>(
    arrays: &ArrayRef,
    rows: &ArrayRef,
    lens: Vec<usize>,
    cheap: bool,
) -> Result<Selection<'static>>
where
    A::Native: Unsigned,
{
    let unsigned = || Error::new(Kind::Internal, "selector is not of its type");
    let arrays = arrays.as_primitive_opt::<A>().ok_or_else(unsigned)?.values();
    macro_rules! both {
        ($t:ty) => {
            lowered(
                arrays,
                rows.as_primitive_opt::<$t>().ok_or_else(unsigned)?.values(),
                lens,
                cheap,
            )
        };
    }
    match rows.data_type() {
        DataType::UInt8 => both!(UInt8Type),
        DataType::UInt16 => both!(UInt16Type),
        DataType::UInt32 => both!(UInt32Type),
        _ => both!(UInt64Type),
    }
}

/// Whether all are below `limit`.
pub(super) fn all_below<T: Unsigned>(all: &[T], limit: u64) -> bool {
    vectored(AllBelow { all, limit })
}

struct AllBelow<'a, T> {
    all: &'a [T],
    limit: u64,
}

impl<T: Unsigned> Vectored for AllBelow<'_, T> {
    type Out = bool;

    #[inline(always)]
    fn run(self) -> bool {
        T::all_below(self.all, self.limit)
    }
}

/// Runs are looked for in so many places, of so many rows each.
const SAMPLES: usize = 8;
const SAMPLE_ROWS: usize = 32;

/// Each place is as many rows further behind its beginning.
const SAMPLE_SKIP: usize = 13;

fn lowered<A: Unsigned, R: Unsigned>(
    arrays: &ScalarBuffer<A>,
    rows: &ScalarBuffer<R>,
    lens: Vec<usize>,
    cheap: bool,
) -> Result<Selection<'static>> {
    let run_rows = run_rows(arrays, rows);
    let selectors = || Selectors { arrays: &arrays[..], rows: &rows[..], lens: &lens };
    let single = cheap || run_rows < SELECTOR_RUN_ROWS_MIN;
    if single && narrow(&lens) {
        if !vectored(AllInside(selectors())) {
            return Err(first_outside(arrays, rows, &lens));
        }
        let in_pieces = run_rows >= SELECTOR_RUN_ROWS_MIN;
        return Ok(Selection::proved(A::narrowed(arrays), R::narrowed(rows), in_pieces, lens));
    }
    // Lengths of runs are 32 bits wide.
    if u32::try_from(rows.len()).is_err() {
        return many(arrays, rows, lens);
    }
    let found = vectored(JoinedRuns(selectors(), run_rows));
    if !found.all_inside {
        return Err(first_outside(arrays, rows, &lens));
    }
    Ok(Selection::proved_runs(found.runs, rows.len(), lens))
}

/// More rows than a run can have.
#[cold]
fn many<A: Unsigned, R: Unsigned>(
    arrays: &[A],
    rows: &[R],
    lens: Vec<usize>,
) -> Result<Selection<'static>> {
    let mut children = Children::new(lens);
    for (array, row) in arrays.iter().zip(rows) {
        let place = usize::try_from(array.wide()).ok().zip(usize::try_from(row.wide()).ok());
        if place.is_none_or(|(array, row)| children.push(array, row, 1).is_err()) {
            return Err(first_outside(arrays, rows, children.limits()));
        }
    }
    Ok(children.finish())
}

/// Rows of a run, as far as samples tell; any answer is correct, one is quicker.
fn run_rows<A: Unsigned, R: Unsigned>(arrays: &[A], rows: &[R]) -> usize {
    let step = (rows.len() / SAMPLES).max(SAMPLE_ROWS);
    let (mut seen, mut breaks) = (0_usize, 0_usize);
    for (i, (arrays, rows)) in arrays.chunks(step).zip(rows.chunks(step)).enumerate() {
        // Runs that begin at multiples of a power of two should not hide where they begin.
        let skipped = (i * SAMPLE_SKIP).min(rows.len().saturating_sub(SAMPLE_ROWS));
        let arrays = arrays.iter().skip(skipped).take(SAMPLE_ROWS);
        let mut before = None;
        for (array, row) in arrays.zip(rows.iter().skip(skipped)) {
            if let Some((a, r)) = before {
                seen += 1;
                breaks += usize::from(*array != a || !row.follows(r));
            }
            before = Some((*array, *row));
        }
    }
    seen.checked_div(breaks).unwrap_or(seen)
}

/// Selectors of arrays of `lens` rows.
struct Selectors<'a, A, R> {
    arrays: &'a [A],
    rows: &'a [R],
    lens: &'a [usize],
}

/// Whether every row exists: at once where the largest row is below the shortest array.
struct AllInside<'a, A, R>(Selectors<'a, A, R>);

impl<A: Unsigned, R: Unsigned> Vectored for AllInside<'_, A, R> {
    type Out = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let Selectors { arrays, rows, lens } = self.0;
        if !A::all_below(arrays, lens.len() as u64) {
            return false;
        }
        let shortest = lens.iter().copied().min().unwrap_or(0) as u64;
        R::all_below(rows, shortest)
            || arrays.iter().zip(rows).fold(true, |all, (array, row)| {
                all & lens.get(array.as_usize()).is_some_and(|len| row.wide() < *len as u64)
            })
    }
}

#[cold]
fn first_outside<A: Unsigned, R: Unsigned>(arrays: &[A], rows: &[R], lens: &[usize]) -> Error {
    let len = |array: &A| usize::try_from(array.wide()).ok().and_then(|array| lens.get(array));
    let outside_at = |(a, r): (&A, &R)| len(a).is_none_or(|len| r.wide() >= *len as u64);
    let at = arrays.iter().zip(rows).position(outside_at).unwrap_or(0);
    let array = arrays.get(at).map_or(0, |a| a.wide());
    let row = rows.get(at).map_or(0, |r| r.wide());
    outside(usize::try_from(array).unwrap_or(usize::MAX), row, 1, lens, at as u64)
}

/// Runs on their way out of selectors, each checked once.
struct Found {
    runs: Vec<Run>,
    all_inside: bool,
}

impl Found {
    fn new(rows: usize, run_rows: usize) -> Self {
        // Samples may mislead: room for a few more.
        Self { runs: Vec::with_capacity(rows / run_rows.max(1) * 5 / 4 + 16), all_inside: true }
    }

    /// A run of `len` rows, which is not 0 and fits 32 bits.
    #[inline(always)]
    fn push(&mut self, array: u64, start: u64, len: usize, lens: &[usize]) {
        let rows = usize::try_from(array).ok().and_then(|array| lens.get(array));
        let rows = rows.map_or(0, |rows| *rows as u64);
        self.all_inside &= start < rows && len as u64 <= rows.wrapping_sub(start);
        #[expect(clippy::cast_possible_truncation, reason = "what does not fit is not inside")]
        let run = Run { start, len: len as u32, source: SourceId(array as u32) };
        self.runs.push(run);
    }
}

/// Joins rows that follow each other, and checks each run once.
struct JoinedRuns<'a, A, R>(Selectors<'a, A, R>, usize);

impl<A: Unsigned, R: Unsigned> Vectored for JoinedRuns<'_, A, R> {
    type Out = Found;

    #[inline(always)]
    fn run(self) -> Found {
        let Selectors { arrays, rows, lens } = self.0;
        let len = rows.len().min(arrays.len());
        let mut found = Found::new(len, self.1);
        let mut open = 0;
        for at in (1..len).step_by(BLOCK) {
            let end = len.min(at + BLOCK);
            let mut mask = breaks(&arrays[at - 1..end], &rows[at - 1..end]);
            while mask != 0 {
                let next = at + mask.trailing_zeros() as usize;
                found.push(arrays[open].wide(), rows[open].wide(), next - open, lens);
                open = next;
                mask &= mask - 1;
            }
        }
        if len > 0 {
            found.push(arrays[open].wide(), rows[open].wide(), len - open, lens);
        }
        found
    }
}

/// Rows that are compared at once, each with the one before it.
const HALF: usize = 32;
const BLOCK: usize = 2 * HALF;

/// Bit `i` is set where row `i + 1` does not follow row `i`; at most 65 rows.
#[inline(always)]
fn breaks<A: Unsigned, R: Unsigned>(arrays: &[A], rows: &[R]) -> u64 {
    if let (Some(a), Some(r)) = (arrays.first_chunk::<HALF_ROWS>(), rows.first_chunk())
        && let (Some(a2), Some(r2)) = (arrays.last_chunk::<HALF_ROWS>(), rows.last_chunk())
        && arrays.len() == BLOCK + 1
    {
        return u64::from(breaks_of_half(a, r)) | u64::from(breaks_of_half(a2, r2)) << HALF;
    }
    let pairs = (0..).zip(arrays.windows(2).zip(rows.windows(2)));
    pairs.fold(0, |mask, (i, pair)| match pair {
        ([a0, a1], [r0, r1]) => mask | u64::from((a0 != a1) | !r1.follows(*r0)) << i,
        _ => mask,
    })
}

/// Half a block, and the row before it.
const HALF_ROWS: usize = HALF + 1;

/// The same for 33 rows: known lengths, and bits that are chosen instead of shifted, make vector code.
#[inline(always)]
fn breaks_of_half<A: Unsigned, R: Unsigned>(a: &[A; HALF_ROWS], r: &[R; HALF_ROWS]) -> u32 {
    const BITS: [u32; HALF] = {
        let (mut bits, mut i) = ([0; HALF], 0);
        while i < HALF {
            bits[i] = 1 << i;
            i += 1;
        }
        bits
    };
    let mut mask = 0;
    for i in 0..HALF {
        let is_break = (a[i] != a[i + 1]) | !r[i + 1].follows(r[i]);
        mask |= if is_break { BITS[i] } else { 0 };
    }
    mask
}

/// A selector as 64-bit numbers.
pub(super) fn numbers(selector: &ArrayRef) -> Result<Vec<u64>> {
    macro_rules! wide {
        ($t:ty) => {
            selector.as_primitive_opt::<$t>().map(|a| a.values().iter().map(|n| n.wide()).collect())
        };
    }
    let numbers: Option<Vec<u64>> = match selector.data_type() {
        DataType::UInt8 => wide!(UInt8Type),
        DataType::UInt16 => wide!(UInt16Type),
        DataType::UInt32 => wide!(UInt32Type),
        _ => wide!(UInt64Type),
    };
    numbers.ok_or_else(|| Error::new(Kind::Internal, "selector is not of its type"))
}
