//! Values that are changed on their way: keys of dictionaries.
//!
//! # Invariants
//! As in the file above. What a change makes of a value is the caller's.
//!
//! # Cost
//! A load, the change, a store; no branch a row.
//!
//! # Not here
//! What becomes of dictionaries (`dictionary`).

#![expect(unsafe_code, reason = "fenced: see `kernel`")]

use std::ops::BitOr;

use super::super::select::{Form, Selection};
use super::pieces::{PIECE_ROWS, each_piece};
use super::{Vectored, start, vectored};

/// Rows that are changed at once for a run of fewer, where runs are not much shorter in the mean.
const OVERRUN_ROWS: usize = 2 * PIECE_ROWS;

/// The selected values, each changed by `change` and what there is of its array; and all bits that are set in
/// any of the second results. Bits and not a truth: a byte of a register that is set waits, on many
/// processors, for whatever the register had before, and that is a load of the row before.
///
/// Where it `overruns`, values that lie behind a short run may be changed, too, and set bits.
pub(in super::super) fn mapped<T: Copy, C: Copy, B: BitOr<Output = B> + Default + Copy>(
    sources: &[(&[T], C)],
    selection: &Selection,
    overruns: bool,
    change: impl FnMut(C, T) -> (T, B),
) -> (Vec<T>, B) {
    for ((source, _), limit) in sources.iter().zip(selection.limits()) {
        assert!(*limit <= source.len(), "array is too short");
    }
    assert!(sources.len() >= selection.limits().len(), "an array is missing");
    let overrun = match selection.form() {
        Form::Runs(runs) if overruns => match 2 * selection.len() / runs.len().max(1) {
            0..3 => 0,
            3..12 => PIECE_ROWS,
            _ => OVERRUN_ROWS,
        },
        _ => 0,
    };
    let mut out = Vec::with_capacity(selection.len() + overrun);
    let next = out.as_mut_ptr();
    let any = vectored(Mapped { sources, selection, overrun, change, next, bits: B::default() });
    // SAFETY: rows, and the lengths of runs, add up to the length of the selection; all are written.
    unsafe { out.set_len(selection.len()) }
    (out, any)
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
    F: FnMut(C, T) -> (T, B),
    B: BitOr<Output = B> + Copy,
{
    type Out = B;

    #[inline(always)]
    fn run(self) -> B {
        let Self { sources, selection, overrun, mut change, mut next, bits: mut any } = self;
        // Adds the changed rows of one run to the output, as many at once as are known to be there.
        macro_rules! add_run {
            ($array:expr, $row:expr, $len:expr, $overrun:expr) => {{
                let overrun: usize = $overrun;
                let (array, mut row, mut left): (usize, usize, usize) = ($array, $row, $len);
                debug_assert!(row + left <= sources[array].0.len());
                // SAFETY: `out` has room for one value a row. Rows below a limit are inside of their source,
                // and `Selection` proved that every row is below its limit.
                let (from, behind, by) = unsafe {
                    let (source, by) = *sources.get_unchecked(array);
                    (source.as_ptr(), source.len() - row, by)
                };
                // Short runs are changed with what lies behind them: the end of a loop would not be foreseen.
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
                // SAFETY: the source has as many rows from here on, and the output has room for them.
                unsafe {
                    let mut some = $from.add($row).cast::<[T; $count]>().read();
                    for value in &mut some {
                        let (changed, bad) = change($by, *value);
                        any = any | bad;
                        *value = changed;
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
                each_row!(rows, |array, row| {
                    debug_assert!(row < sources[array].0.len());
                    // SAFETY: `out` has room for one value a row. Rows below a limit are inside of their
                    // source, and `Selection` proved that every row is below its limit.
                    unsafe {
                        let (base, by) = *bases.get_unchecked(array);
                        let (value, bad) = change(by, *base.add(row));
                        any = any | bad;
                        next.write(value);
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
        any
    }
}
