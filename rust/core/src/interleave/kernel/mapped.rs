//! Values that are changed on their way: keys of dictionaries, views of text.
//!
//! # Invariants
//! As in the file above. What a change makes of a value is the caller's.
//!
//! # Cost
//! A load, the change, a store; no branch a row.
//!
//! # Not here
//! What becomes of dictionaries (`dictionary`) and of buffers (`gather`).

#![expect(unsafe_code, reason = "fenced: see `kernel`")]

use std::ops::BitOr;

use super::super::gather::VIEW_BYTES_MAX;
use super::super::select::{Form, Selection};
use super::{Vectored, start, vectored};

/// The selected values, each changed by `change` and what there is of its array; and all bits that are set in
/// any of the second results. Bits and not a truth: a byte of a register that is set waits, on many
/// processors, for whatever the register had before, and that is a load of the row before.
pub(in super::super) fn mapped<T: Copy, C: Copy, B: BitOr<Output = B> + Default + Copy>(
    sources: &[(&[T], C)],
    selection: &Selection,
    change: impl FnMut(C, T) -> (T, B),
) -> (Vec<T>, B) {
    for ((source, _), limit) in sources.iter().zip(selection.limits()) {
        assert!(*limit <= source.len(), "array is too short");
    }
    assert!(sources.len() >= selection.limits().len(), "an array is missing");
    let mut out = Vec::with_capacity(selection.len());
    let next = out.as_mut_ptr();
    let any = vectored(Mapped { sources, selection, change, next, bits: B::default() });
    // SAFETY: rows, and the lengths of runs, add up to the length of the selection; all are written.
    unsafe { out.set_len(selection.len()) }
    (out, any)
}

/// Made by [`mapped`] alone, which compared limits with sources; `next` has room for a value a row.
struct Mapped<'a, T, C, F, B> {
    sources: &'a [(&'a [T], C)],
    selection: &'a Selection<'a>,
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
        let Self { sources, selection, mut change, mut next, bits: mut any } = self;
        match selection.form() {
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
                    // SAFETY: as for rows.
                    unsafe {
                        let (source, by) = *sources.get_unchecked(run.source.0 as usize);
                        let values =
                            source.get_unchecked(start(run)..start(run) + run.len as usize);
                        for (i, value) in values.iter().enumerate() {
                            let (value, bad) = change(by, *value);
                            any = any | bad;
                            next.add(i).write(value);
                        }
                        next = next.add(values.len());
                    }
                }
            }
        }
        any
    }
}

/// Views of one array; its buffers have the places from `base` on.
#[derive(Clone, Copy)]
pub(in super::super) struct ViewSource<'a> {
    pub(in super::super) views: &'a [u128],
    pub(in super::super) base: u32,
    pub(in super::super) buffers: u32,
}

/// The selected views, each with another number of its buffer: `steps` has, for the buffer's place, the
/// bits by which the two numbers differ, or [`NO_STEP`], and then `step` tells them.
///
/// Place 0 belongs to no buffer: it stands for views without one, and has no bits. Whether a view leads to
/// a buffer that is not there, as null rows may, comes with the views: it is left as it is.
pub(in super::super) fn views(
    sources: &[ViewSource<'_>],
    steps: &mut [u64],
    selection: &Selection,
    mut step: impl FnMut(usize) -> u64,
) -> (Vec<u128>, bool) {
    assert!(steps.first() == Some(&0), "place 0 belongs to no buffer");
    for (i, source) in sources.iter().enumerate() {
        let end = (source.base as usize).checked_add(source.buffers as usize);
        assert!(end.is_some_and(|end| end <= steps.len()), "array {i} has no places");
    }
    let sources: Vec<(&[u128], (u64, u64))> = sources
        .iter()
        .map(|source| (source.views, (u64::from(source.base), u64::from(source.buffers))))
        .collect();
    let (views, astray) = mapped(&sources, selection, |(base, buffers): (u64, u64), view| {
        #[expect(clippy::cast_possible_truncation, reason = "fields of a view are 32 bits wide")]
        let (len, buffer) = (u64::from(view as u32), u64::from((view >> 64) as u32));
        // All bits or none: lengths are what nobody can foresee, so there is no branch.
        let is_long = below(u64::from(VIEW_BYTES_MAX), len);
        let leads = is_long & below(buffer, buffers);
        #[expect(clippy::cast_possible_truncation, reason = "a place")]
        let place = ((base + buffer) & leads) as usize;
        // SAFETY: `base + buffer` is below `base + buffers`, which the assertion above compared with the
        // number of places, or made 0, and there is a place 0.
        let bits = unsafe { steps.get_unchecked_mut(place) };
        if *bits == NO_STEP {
            *bits = step(place);
        }
        (view ^ u128::from(*bits) << 64, is_long & !leads)
    });
    (views, astray != 0)
}

/// All bits if `a` is below `b`, else none; both have 32 bits.
#[inline(always)]
fn below(a: u64, b: u64) -> u64 {
    // The highest bit is that of a difference that is below 0.
    (a.wrapping_sub(b) >> 63).wrapping_neg()
}

/// A buffer that no view has led to so far; steps have 32 bits.
pub(in super::super) const NO_STEP: u64 = u64::MAX;
