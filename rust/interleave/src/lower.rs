//! Selectors as users pass them become a [`Selection`]: checked, and joined to runs where they are
//! long.
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
//! step a run, and a comparison a row, which are vector code too, where they are not. Samples tell
//! which. Where a row is a load and a store, rows stay rows up to longer runs: ends of runs that
//! differ in length are not foreseen by a processor, each costs it as much as a dozen rows. Runs of
//! whole pieces are found by kernels, while they copy.
//!
//! # Not here
//! Copying.

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::ScalarBuffer;
use arrow_schema::DataType;

use crate::kernel::{PIECE_ROWS, Vectored, high_bits, vectored};
use crate::select::{Children, Selection, narrow, outside};
use crate::unsigned::Unsigned;
use plait_base::{Error, Kind, Result, Run, SourceId, type_text};

/// What it costs to copy a single row: runs that are shorter, in the mean, are copied row by row.
/// Crossovers measured by the bench `interleave`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RowCost {
    /// A load and a store.
    Value,
    /// The same, and a bit of validity.
    NullableValue,
    /// More.
    Other,
}

impl RowCost {
    /// Of values of `data_type`, some of which `are_null` or none.
    pub(crate) fn of(data_type: &DataType, are_null: bool) -> Self {
        match data_type {
            DataType::Dictionary(..) | DataType::Utf8View | DataType::BinaryView => {}
            DataType::FixedSizeBinary(1 | 2 | 4 | 8 | 16 | 32) => {}
            other if other.is_primitive() => {}
            _ => return Self::Other,
        }
        if are_null { Self::NullableValue } else { Self::Value }
    }

    fn run_rows_min(self) -> usize {
        match self {
            Self::Value => 13,
            Self::NullableValue => 8,
            Self::Other => 6,
        }
    }

    /// Whether kernels look for runs of rows that are whole pieces, in the mean not longer than
    /// this.
    fn piece_rows_max(self) -> usize {
        match self {
            Self::Value | Self::NullableValue => 3 * PIECE_ROWS,
            Self::Other => 0,
        }
    }
}

/// Checks that `selector` is one: unsigned, without nulls.
///
/// # Errors
/// `InvalidArgument` that names the selector and what was found.
pub(crate) fn check(name: &str, selector: &dyn Array) -> Result<()> {
    if !selector.data_type().is_unsigned_integer() {
        return Err(Error::new(
            Kind::InvalidArgument,
            format!("`{name}` is not unsigned integers"),
        )
        .with_got(format!("`{}`", type_text(selector.data_type())))
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
pub(crate) fn lower(
    arrays: &ArrayRef,
    rows: &ArrayRef,
    lens: Vec<usize>,
    cost: RowCost,
) -> Result<Selection<'static>> {
    match arrays.data_type() {
        DataType::UInt8 => rows_of::<UInt8Type>(arrays, rows, lens, cost),
        DataType::UInt16 => rows_of::<UInt16Type>(arrays, rows, lens, cost),
        DataType::UInt32 => rows_of::<UInt32Type>(arrays, rows, lens, cost),
        _ => rows_of::<UInt64Type>(arrays, rows, lens, cost),
    }
}

fn rows_of<A: ArrowPrimitiveType>(
    arrays: &ArrayRef,
    rows: &ArrayRef,
    lens: Vec<usize>,
    cost: RowCost,
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
                cost,
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

/// Runs are looked for in about as many blocks, evenly spread.
const SAMPLES: usize = 8;

fn lowered<A: Unsigned, R: Unsigned>(
    arrays: &ScalarBuffer<A>,
    rows: &ScalarBuffer<R>,
    lens: Vec<usize>,
    cost: RowCost,
) -> Result<Selection<'static>> {
    assert_eq!(arrays.len(), rows.len(), "selectors are equally long");
    let sampled = vectored(Sample(arrays, rows));
    let selectors = || Selectors { arrays: &arrays[..], rows: &rows[..], lens: &lens };
    let pieces = PIECE_ROWS..=cost.piece_rows_max();
    let in_pieces = sampled.in_pieces && pieces.contains(&sampled.run_rows);
    if (in_pieces || sampled.run_rows < cost.run_rows_min()) && narrow(&lens) {
        if !vectored(AllInside(selectors())) {
            return Err(first_outside(arrays, rows, &lens));
        }
        return Ok(Selection::proved(A::narrowed(arrays), R::narrowed(rows), in_pieces, lens));
    }
    // Lengths of runs are 32 bits wide.
    if u32::try_from(rows.len()).is_err() {
        return many(arrays, rows, lens);
    }
    let found = vectored(JoinedRuns(selectors(), sampled.run_rows));
    if !found.all_inside {
        return many(arrays, rows, lens);
    }
    Ok(Selection::proved_runs(found.runs, rows.len(), lens))
}

/// Row by row: more rows than a run can have, numbers that begin again at 0 where an array has more
/// rows, rows that do not exist.
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

/// What samples tell of the order of the rows; any answer is correct, one is quicker.
struct Sampled {
    /// Rows of a run, in the mean.
    run_rows: usize,
    /// Whether lengths of runs are multiples of [`PIECE_ROWS`].
    in_pieces: bool,
}

struct Sample<'a, A, R>(&'a [A], &'a [R]);

impl<A: Unsigned, R: Unsigned> Vectored for Sample<'_, A, R> {
    type Out = Sampled;

    #[inline(always)]
    fn run(self) -> Sampled {
        let step = (self.1.len() / BLOCK / SAMPLES).max(1);
        let blocks = blocks(self.0).zip(blocks(self.1)).step_by(step);
        let (mut rows, mut runs, mut in_pieces) = (0, 0, true);
        for (arrays, numbers) in blocks {
            let breaks = breaks(arrays, numbers);
            rows += BLOCK;
            runs += breaks.count_ones() as usize;
            // Where in a piece runs begin, which is one place if they are whole pieces.
            let places = breaks.to_le_bytes().into_iter().fold(0, |all, piece| all | piece);
            in_pieces &= places.count_ones() <= 1;
        }
        // Few rows are taken one by one.
        Sampled { run_rows: rows.checked_div(runs).unwrap_or(rows), in_pieces }
    }
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

/// Joins rows that follow each other, and checks each run once.
struct JoinedRuns<'a, A, R>(Selectors<'a, A, R>, usize);

impl<A: Unsigned, R: Unsigned> Vectored for JoinedRuns<'_, A, R> {
    type Out = Found;

    #[inline(always)]
    fn run(self) -> Found {
        let Self(Selectors { arrays, rows, lens }, run_rows) = self;
        // Samples may mislead: room for a few more.
        let mut runs = Vec::with_capacity(rows.len() / run_rows.max(1) * 5 / 4 + 16);
        let (mut all_inside, mut open) = (true, 0);
        let mut close = |end: usize| {
            let (Some(array), Some(start)) = (arrays.get(open), rows.get(open)) else { return };
            let (array, start, len) = (array.wide(), start.wide(), (end - open) as u64);
            let limit = usize::try_from(array).ok().and_then(|array| lens.get(array));
            let limit = limit.map_or(0, |limit| (*limit as u64).min(R::NUMBERS));
            all_inside &= start < limit && len <= limit - start;
            #[expect(clippy::cast_possible_truncation, reason = "what does not fit is not inside")]
            runs.push(Run { start, len: len as u32, source: SourceId(array as u32) });
            open = end;
        };
        let mut at = 1;
        let are_long = run_rows >= 2 * BLOCK;
        for (arrays, rows) in blocks(arrays).zip(blocks(rows)) {
            if are_long && goes_on(arrays, rows) {
                at += BLOCK;
                continue;
            }
            let mut mask = breaks(arrays, rows);
            while mask != 0 {
                close(at + mask.trailing_zeros() as usize);
                mask &= mask - 1;
            }
            at += BLOCK;
        }
        let left = arrays.windows(2).zip(rows.windows(2)).enumerate().skip(at - 1);
        for (before, rows) in left {
            if matches!(rows, ([a0, a1], [r0, r1]) if a0 != a1 || *r1 != r0.wrapping_add(R::from(1)))
            {
                close(before + 1);
            }
        }
        close(rows.len());
        Found { runs, all_inside }
    }
}

/// Rows that are compared at once, each with the one before it.
const BLOCK: usize = 64;

/// A block, and the same one row later.
type Pair<'a, T> = (&'a [T; BLOCK], &'a [T; BLOCK]);

/// All whole blocks that have a row behind them.
#[inline(always)]
fn blocks<T>(all: &[T]) -> impl Iterator<Item = Pair<'_, T>> {
    let later = all.get(1..).unwrap_or_default();
    all.as_chunks().0.iter().zip(later.as_chunks().0)
}

/// Whether all rows of the later block go on from the first of the other: each is read once.
#[inline(always)]
fn goes_on<A: Unsigned, R: Unsigned>((a0, a1): Pair<'_, A>, (r0, r1): Pair<'_, R>) -> bool {
    let (mut array, mut row) = (A::default(), R::default());
    for (i, (a, r)) in (1_u8..).zip(a1.iter().zip(r1)) {
        array = array | (*a ^ a0[0]);
        row = row | (*r ^ r0[0].wrapping_add(R::from(i)));
    }
    array == A::default() && row == R::default()
}

/// Bit `i` is set where row `i` of the later block does not follow row `i` of the other.
#[inline(always)]
fn breaks<A: Unsigned, R: Unsigned>((a0, a1): Pair<'_, A>, (r0, r1): Pair<'_, R>) -> u64 {
    let mut follow = [0_u8; BLOCK];
    // Bytes that are all ones or none, and a number of them that is known: vector code.
    for i in 0..BLOCK {
        let follows = (a0[i] == a1[i]) & (r1[i] == r0[i].wrapping_add(R::from(1)));
        follow[i] = if follows { u8::MAX } else { 0 };
    }
    !high_bits(&follow)
}

/// A selector as 64-bit numbers.
pub(crate) fn numbers(selector: &ArrayRef) -> Result<Vec<u64>> {
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
