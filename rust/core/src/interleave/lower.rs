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
//! step a run, and a comparison a row, where they are not.
//!
//! # Not here
//! Copying.

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;

use super::select::{Children, RUN_ROWS_MIN, RowAt, Selection, narrow, outside};
use crate::{Error, Kind, Result};

/// An unsigned integer of a selector.
trait Index: Copy + Eq + Ord + Default {
    fn wide(self) -> u64;
    fn low(self) -> u32;
    /// Whether `self` follows `before`.
    fn follows(self, before: Self) -> bool;
}

macro_rules! index {
    ($($t:ty),*) => {$(
        impl Index for $t {
            #[inline(always)]
            fn wide(self) -> u64 {
                self.into()
            }
            #[inline(always)]
            fn low(self) -> u32 {
                self as u32
            }
            #[inline(always)]
            fn follows(self, before: Self) -> bool {
                // Nothing follows the largest number.
                (self == before.wrapping_add(1)) & (self != 0)
            }
        }
    )*};
}
index!(u8, u16, u32, u64);

/// Checks that `selector` is one: unsigned, without nulls.
///
/// # Errors
/// `InvalidArgument` that names the selector and what was found.
pub(super) fn check(name: &str, selector: &dyn Array) -> Result<()> {
    if !selector.data_type().is_unsigned_integer() {
        return Err(Error::new(Kind::InvalidArgument, format!("`{name}` is not unsigned integers"))
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
pub(super) fn lower(arrays: &ArrayRef, rows: &ArrayRef, lens: Vec<usize>) -> Result<Selection> {
    match arrays.data_type() {
        DataType::UInt8 => rows_of::<UInt8Type>(arrays, rows, lens),
        DataType::UInt16 => rows_of::<UInt16Type>(arrays, rows, lens),
        DataType::UInt32 => rows_of::<UInt32Type>(arrays, rows, lens),
        _ => rows_of::<UInt64Type>(arrays, rows, lens),
    }
}

fn rows_of<A: ArrowPrimitiveType>(
    arrays: &ArrayRef,
    rows: &ArrayRef,
    lens: Vec<usize>,
) -> Result<Selection>
where
    A::Native: Index,
{
    let unsigned = || Error::new(Kind::Internal, "selector is not of its type");
    let arrays = arrays.as_primitive_opt::<A>().ok_or_else(unsigned)?.values();
    macro_rules! both {
        ($t:ty) => {
            lowered(arrays, rows.as_primitive_opt::<$t>().ok_or_else(unsigned)?.values(), lens)
        };
    }
    match rows.data_type() {
        DataType::UInt8 => both!(UInt8Type),
        DataType::UInt16 => both!(UInt16Type),
        DataType::UInt32 => both!(UInt32Type),
        _ => both!(UInt64Type),
    }
}

fn lowered<A: Index, R: Index>(arrays: &[A], rows: &[R], lens: Vec<usize>) -> Result<Selection> {
    let breaks = breaks(arrays, rows);
    if rows.len() >= breaks * RUN_ROWS_MIN || !narrow(&lens) {
        return runs(arrays, rows, lens);
    }
    if !all_inside(arrays, rows, &lens) {
        return Err(first_outside(arrays, rows, &lens));
    }
    let both = arrays.iter().zip(rows);
    let rows = both.map(|(array, row)| RowAt { array: array.low(), row: row.low() }).collect();
    Ok(Selection::proved(rows, lens))
}

/// Number of rows that do not follow the row before, with the first.
fn breaks<A: Index, R: Index>(arrays: &[A], rows: &[R]) -> usize {
    let mut breaks = usize::from(!rows.is_empty());
    let (next_arrays, next_rows) = (arrays.get(1..), rows.get(1..));
    let (Some(next_arrays), Some(next_rows)) = (next_arrays, next_rows) else { return breaks };
    // Blocks that 32-bit lanes can count.
    const BLOCK: usize = 1024;
    let befores = arrays.chunks(BLOCK).zip(rows.chunks(BLOCK));
    let afters = next_arrays.chunks(BLOCK).zip(next_rows.chunks(BLOCK));
    for ((a0, r0), (a1, r1)) in befores.zip(afters) {
        let pairs = a0.iter().zip(a1).zip(r0.iter().zip(r1));
        let count =
            pairs.map(|((a0, a1), (r0, r1))| u32::from((a0 != a1) | !r1.follows(*r0))).sum::<u32>();
        breaks += count as usize;
    }
    breaks
}

/// Whether every row exists: at once where the largest row is below the shortest array.
fn all_inside<A: Index, R: Index>(arrays: &[A], rows: &[R], lens: &[usize]) -> bool {
    let array = arrays.iter().copied().fold(A::default(), A::max).wide();
    let row = rows.iter().copied().fold(R::default(), R::max).wide();
    let shortest = lens.iter().copied().min().unwrap_or(0) as u64;
    if array < lens.len() as u64 && row < shortest {
        return true;
    }
    array < lens.len() as u64
        && arrays.iter().zip(rows).all(|(array, row)| {
            lens.get(array.low() as usize).is_some_and(|len| row.wide() < *len as u64)
        })
}

#[cold]
fn first_outside<A: Index, R: Index>(arrays: &[A], rows: &[R], lens: &[usize]) -> Error {
    let len = |array: &A| usize::try_from(array.wide()).ok().and_then(|array| lens.get(array));
    let outside_at =
        |(a, r): (&A, &R)| len(a).is_none_or(|len| r.wide() >= *len as u64);
    let at = arrays.iter().zip(rows).position(outside_at).unwrap_or(0);
    let array = arrays.get(at).map_or(0, |a| a.wide());
    let row = rows.get(at).map_or(0, |r| r.wide());
    outside(usize::try_from(array).unwrap_or(usize::MAX), row, 1, lens, at as u64)
}

/// Joins rows that follow each other, and checks each run once.
fn runs<A: Index, R: Index>(arrays: &[A], rows: &[R], lens: Vec<usize>) -> Result<Selection> {
    let len = rows.len().min(arrays.len());
    let mut children = Children::new(lens);
    let mut at = 0;
    while let (Some(array), Some(row)) = (arrays.get(at), rows.get(at)) {
        let end = at + run_len(&arrays[at..len], &rows[at..len]);
        let index = usize::try_from(array.wide());
        let start = usize::try_from(row.wide());
        let fits = |(index, start): (usize, usize)| children.push(index, start, end - at).ok();
        if index.ok().zip(start.ok()).and_then(fits).is_none() {
            return Err(first_outside(arrays, rows, children.limits()));
        }
        at = end;
    }
    Ok(children.finish())
}

/// Length of the run at the front.
#[inline]
fn run_len<A: Index, R: Index>(arrays: &[A], rows: &[R]) -> usize {
    const BLOCK: usize = 16;
    let mut len = 1;
    // Blocks overlap their neighbour by the row they continue.
    while let (Some(a), Some(r)) = (arrays.get(len - 1..len + BLOCK), rows.get(len - 1..len + BLOCK))
    {
        let pairs = a[..BLOCK].iter().zip(&a[1..]).zip(r[..BLOCK].iter().zip(&r[1..]));
        let joined =
            pairs.fold(true, |all, ((a0, a1), (r0, r1))| all & (a0 == a1) & r1.follows(*r0));
        if !joined {
            break;
        }
        len += BLOCK;
    }
    while len < rows.len() && arrays[len] == arrays[len - 1] && rows[len].follows(rows[len - 1]) {
        len += 1;
    }
    len
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
