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

use super::super::gather::VIEW_BYTES_MAX;
use super::super::select::{Form, Selection};
use super::{Vectored, start, vectored};

/// The selected values, each changed by `change` and what there is of its array; and whether any is bad.
pub(in super::super) fn mapped<T: Copy, C: Copy>(
    sources: &[(&[T], C)],
    selection: &Selection,
    change: impl Fn(C, T) -> (T, bool),
) -> (Vec<T>, bool) {
    for ((source, _), limit) in sources.iter().zip(selection.limits()) {
        assert!(*limit <= source.len(), "array is too short");
    }
    assert!(sources.len() >= selection.limits().len(), "an array is missing");
    let mut out = Vec::with_capacity(selection.len());
    let any = vectored(Mapped { sources, selection, change, next: out.as_mut_ptr() });
    // SAFETY: rows, and the lengths of runs, add up to the length of the selection; all are written.
    unsafe { out.set_len(selection.len()) }
    (out, any)
}

/// Made by [`mapped`] alone, which compared limits with sources; `next` has room for a value a row.
struct Mapped<'a, T, C, F> {
    sources: &'a [(&'a [T], C)],
    selection: &'a Selection<'a>,
    change: F,
    next: *mut T,
}

impl<T: Copy, C: Copy, F: Fn(C, T) -> (T, bool)> Vectored for Mapped<'_, T, C, F> {
    type Out = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let Self { sources, selection, change, mut next } = self;
        let mut any = false;
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
                        any |= bad;
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
                            any |= bad;
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

/// The selected views, each with the number that `places` has for its buffer; a place that was led to is set
/// in `used`. A view into a buffer that is not there, as null rows may have, becomes 0.
///
/// Place 0 belongs to no buffer: it stands for views without one.
pub(in super::super) fn views(
    sources: &[ViewSource<'_>],
    places: &[u32],
    used: &mut [bool],
    selection: &Selection,
) -> Vec<u128> {
    assert!(places.len() == used.len() && !places.is_empty(), "a place is missing");
    for (i, source) in sources.iter().enumerate() {
        let end = (source.base as usize).checked_add(source.buffers as usize);
        assert!(end.is_some_and(|end| end <= places.len()), "array {i} has no places");
    }
    let sources_with_by: Vec<(&[u128], (u32, u32))> =
        sources.iter().map(|source| (source.views, (source.base, source.buffers))).collect();
    let used = used.as_mut_ptr();
    let change = |(base, buffers): (u32, u32), view: u128| {
        #[expect(clippy::cast_possible_truncation, reason = "fields of a view are 32 bits wide")]
        let (len, low, high) = (view as u32, view as u64, (view >> 64) as u64);
        #[expect(clippy::cast_possible_truncation, reason = "the buffer is the lower half")]
        let buffer = high as u32;
        let is_long = len > VIEW_BYTES_MAX;
        let leads = is_long & (buffer < buffers);
        let place = if leads { base.wrapping_add(buffer) } else { 0 } as usize;
        // SAFETY: `base + buffer` is below `base + buffers`, which the assertion above compared with the
        // number of places; there is a place 0; both slices are equally long.
        let number = unsafe {
            *used.add(place) = true;
            *places.get_unchecked(place)
        };
        let changed = if is_long { (high & !0xffff_ffff) | u64::from(number) } else { high };
        let keep = u64::from(leads | !is_long).wrapping_neg();
        (u128::from(low & keep) | u128::from(changed & keep) << 64, false)
    };
    mapped(&sources_with_by, selection, change).0
}
