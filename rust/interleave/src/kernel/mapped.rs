//! Values that are changed on their way: keys of dictionaries.
//!
//! ```text
//! keys 0 1 | 1 0     places of the first values +0 +3     changed 0 1 4 3
//! ```
//!
//! # Invariants
//! As in the file above. What a change makes of a value is the caller's. Keys that are shifted were
//! compared with the number of values of their own dictionary, on their way.
//!
//! # Cost
//! A load, the change, a store; no branch a row.
//!
//! # Not here
//! What becomes of dictionaries (`dictionary`).

#![expect(unsafe_code, reason = "fenced: see `kernel`")]

use std::sync::Arc;

use arrow_array::types::ArrowDictionaryKeyType;
use arrow_array::{Array, ArrayRef, DictionaryArray, PrimitiveArray};
use arrow_buffer::{ArrowNativeType, Buffer, NullBuffer, ScalarBuffer};

use super::pieces::{PIECE_ROWS, each_piece};
use super::{Vectored, start, vectored};
use crate::select::{Form, Selection};
use crate::unsigned::Unsigned;

/// Rows that are changed at once for a run of fewer, where runs are not much shorter in the mean.
const OVERRUN_ROWS: usize = 2 * PIECE_ROWS;

/// The selected values, each changed by `change` and what there is of its array; and `bits`, as all
/// changes left them. Bits and not a truth: a byte of a register that is set waits, on many
/// processors, for whatever the register had before, and that is a load of the row before.
///
/// Where it `overruns`, values that lie behind a short run may be changed, too, and change bits.
pub(crate) fn mapped<T: Copy, C: Copy, B>(
    sources: &[(&[T], C)],
    selection: &Selection,
    overruns: bool,
    bits: B,
    change: impl FnMut(&mut B, C, T) -> T,
) -> (Vec<T>, B) {
    for ((source, _), limit) in sources.iter().zip(selection.limits()) {
        assert!(*limit <= source.len(), "array is too short");
    }
    assert!(sources.len() >= selection.limits().len(), "an array is missing");
    let overrun = match selection.form() {
        Form::Runs(runs) if overruns => match 2 * selection.len() / runs.len().max(1) {
            0..3 => 0,
            3..12 => PIECE_ROWS,
            _ if runs.iter().all(|run| run.len as usize <= PIECE_ROWS) => PIECE_ROWS,
            _ => OVERRUN_ROWS,
        },
        _ => 0,
    };
    let mut out = Vec::with_capacity(selection.len() + overrun);
    let next = out.as_mut_ptr();
    let bits = vectored(Mapped { sources, selection, overrun, change, next, bits });
    // SAFETY: rows, and the lengths of runs, add up to the length of the selection; all are
    // written.
    unsafe { out.set_len(selection.len()) }
    (out, bits)
}

/// Made by [`mapped`] alone, which compared limits with sources; `next` has room for a value a row
/// and the `overrun`, which is none, a piece, or two.
struct Mapped<'a, T, C, F, B> {
    sources: &'a [(&'a [T], C)],
    selection: &'a Selection<'a>,
    overrun: usize,
    change: F,
    next: *mut T,
    bits: B,
}

impl<T, C, F, B> Vectored for Mapped<'_, T, C, F, B>
where
    T: Copy,
    C: Copy,
    F: FnMut(&mut B, C, T) -> T,
{
    type Out = B;

    #[inline(always)]
    fn run(self) -> B {
        let Self { sources, selection, overrun, mut change, mut next, mut bits } = self;
        // Adds the changed rows of one run to the output, as many at once as are known to be there.
        macro_rules! add_run {
            ($array:expr, $row:expr, $len:expr, $overrun:expr) => {{
                let overrun: usize = $overrun;
                let (array, mut row, mut left): (usize, usize, usize) = ($array, $row, $len);
                debug_assert!(row + left <= sources[array].0.len());
                // SAFETY: `out` has room for one value a row. Rows below a limit are inside of
                // their source, and `Selection` proved that every row is below its limit.
                let (from, behind, by) = unsafe {
                    let (source, by) = *sources.get_unchecked(array);
                    (source.as_ptr(), source.len() - row, by)
                };
                // Short runs are changed with what lies behind them: the end of a loop would not be
                // foreseen.
                debug_assert!(left > 0, "runs are not empty");
                if overrun > 0 && left <= overrun && behind >= overrun {
                    let end = next.wrapping_add(left);
                    add_next!(from, by, row, PIECE_ROWS);
                    if overrun > PIECE_ROWS {
                        add_some!(from, by, row, PIECE_ROWS);
                    }
                    next = end;
                } else {
                    while left >= PIECE_ROWS {
                        add_next!(from, by, row, PIECE_ROWS);
                        left -= PIECE_ROWS;
                    }
                    if left >= PIECE_ROWS / 2 {
                        add_next!(from, by, row, PIECE_ROWS / 2);
                        left -= PIECE_ROWS / 2;
                    }
                    while left > 0 {
                        add_next!(from, by, row, 1);
                        left -= 1;
                    }
                }
            }};
        }
        // All are read before the first is written: then they are vectors.
        macro_rules! add_some {
            ($from:ident, $by:ident, $row:ident, $count:expr) => {{
                // SAFETY: the source has as many rows from here on, and the output has room for
                // them.
                unsafe {
                    let mut some = $from.add($row).cast::<[T; $count]>().read();
                    for value in &mut some {
                        *value = change(&mut bits, $by, *value);
                    }
                    next.cast::<[T; $count]>().write(some);
                }
            }};
        }
        // The same, and goes on behind them.
        macro_rules! add_next {
            ($from:ident, $by:ident, $row:ident, $count:expr) => {{
                add_some!($from, $by, $row, $count);
                // SAFETY: as many are written.
                next = unsafe { next.add($count) };
                $row += $count;
            }};
        }
        match selection.form() {
            Form::Rows(rows) if rows.are_in_pieces() => {
                // Pieces are whole, mostly, where they are looked for.
                each_piece!(rows, |array, row, len| { add_run!(array, row, len, 0) });
            }
            Form::Rows(rows) => {
                let bases: Vec<(*const T, C)> =
                    sources.iter().map(|(source, by)| (source.as_ptr(), *by)).collect();
                each_row!(rows.as_slices(), |array, row| {
                    debug_assert!(row < sources[array].0.len());
                    // SAFETY: `out` has room for one value a row. Rows below a limit are inside of
                    // their source, and `Selection` proved that every row is below its limit.
                    unsafe {
                        let (base, by) = *bases.get_unchecked(array);
                        next.write(change(&mut bits, by, *base.add(row)));
                        next = next.add(1);
                    }
                });
            }
            Form::Runs(runs) => {
                for run in runs.iter() {
                    add_run!(run.source.0 as usize, start(run), run.len as usize, overrun);
                }
            }
        }
        bits
    }
}

/// The dictionary of `values` with the selected keys, each as far behind its own as the dictionary
/// of its array begins: `sources` have keys, that place, and the number of its values.
///
/// `None` if a key may not be one of its dictionary, be it below a null; and may be where a
/// dictionary is empty.
pub(crate) fn shifted<K: ArrowDictionaryKeyType, U: Unsigned>(
    sources: &[(&[U], (usize, usize))],
    selection: &Selection,
    nulls: Option<&NullBuffer>,
    values: &ArrayRef,
) -> Option<DictionaryArray<K>> {
    assert_eq!(size_of::<U>(), size_of::<K::Native>(), "bits are those of the keys");
    K::Native::from_usize(values.len().checked_sub(1)?)?;
    for &(_, (base, len)) in sources {
        assert!(base.checked_add(len).is_some_and(|end| end <= values.len()), "values are missing");
    }
    let keys = shifted_keys(sources, selection)?;
    let len = keys.len();
    let keys =
        PrimitiveArray::<K>::new(ScalarBuffer::new(Buffer::from_vec(keys), 0, len), nulls.cloned());
    // SAFETY: no key is above the last of its dictionary, and no dictionary ends behind `values`,
    // whose last place is a key.
    Some(unsafe { DictionaryArray::new_unchecked(keys, Arc::clone(values)) })
}

/// The selected keys, each as far behind its own as its source says; `None` if one may not be below
/// the number of values that its source says.
fn shifted_keys<U: Unsigned>(
    sources: &[(&[U], (usize, usize))],
    selection: &Selection,
) -> Option<Vec<U>> {
    if matches!(selection.form(), Form::Rows(_)) && size_of::<U>() < size_of::<u64>() {
        let sources = sources.iter().map(|&(keys, (base, len))| {
            (keys, (U::usize_as(base), u64::try_from(len).unwrap_or(0)))
        });
        let sources: Vec<_> = sources.collect();
        // One by one: 64 bits have room for the sign of the difference, which takes the fewest
        // steps.
        let (keys, below) =
            mapped(&sources, selection, false, u64::MAX, |below, (base, len), key| {
                *below &= key.wide().wrapping_sub(len);
                key.wrapping_add(base)
            });
        return below.is_high().then_some(keys);
    }
    let mut shifted = Vec::with_capacity(sources.len());
    for &(keys, (base, len)) in sources {
        shifted.push((keys, (U::usize_as(base), U::usize_as(len.checked_sub(1)?))));
    }
    // The highest bit is set in the key or in the difference if the key is above the last; and for
    // some keys of large dictionaries, which have to be looked at again.
    let (keys, bits) =
        mapped(&shifted, selection, true, U::default(), |bits, (base, last), key| {
            *bits = *bits | last.wrapping_sub(key) | key;
            key.wrapping_add(base)
        });
    (!bits.is_high()).then_some(keys)
}
