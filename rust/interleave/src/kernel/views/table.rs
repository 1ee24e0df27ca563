//! The step of each buffer: the bits by which its number in the source and in the output differ.
//!
//! # Invariants
//! A slot is looked up unchecked: every [`Base`] names slots that are inside of the steps.
//!
//! # Not here
//! Which rows are copied (`views`); rows whose buffers can be expected (`recent`).

#![expect(unsafe_code, reason = "fenced: see `kernel`")]

/// Views of values that are longer have them in a buffer.
pub(crate) const VIEW_BYTES_MAX: u32 = 12;

/// Views of one array, and how many buffers they lead to.
#[derive(Clone, Copy)]
pub(crate) struct ViewSource<'a> {
    pub(crate) views: &'a [u128],
    pub(crate) buffers: usize,
}

/// A buffer that no view has led to so far; steps have 32 bits.
pub(super) const UNKNOWN: u64 = u64::MAX;

/// A buffer that is not there.
pub(super) const NOWHERE: u64 = u64::MAX - 1;

/// Where the views and the steps of an array are: slot 0 is that of views without a buffer, the
/// last that of buffers that the array does not have.
#[derive(Clone, Copy)]
pub(super) struct Base {
    pub(super) views: *const u128,
    pub(super) first: u32,
    pub(super) last: u32,
}

/// Steps of all arrays.
pub(super) struct Table<'a, F> {
    pub(super) steps: &'a mut [u64],
    pub(super) bases: &'a [Base],
    pub(super) step: F,
    pub(super) astray: bool,
    #[cfg(target_arch = "x86_64")]
    pub(super) is_wide: bool,
}

impl<F: FnMut(usize, usize) -> u32> Table<'_, F> {
    /// The step of an array for a buffer, if `long` is all bits and not none.
    ///
    /// # Safety
    /// `base` is that of an array: all its slots are inside of the steps.
    #[inline(always)]
    pub(super) unsafe fn bits(&mut self, base: Base, buffer: u32, long: u64) -> u64 {
        // Lengths are what nobody can foresee, so there is no branch.
        let slot = (u64::from(buffer) + 1).min(u64::from(base.last)) & long;
        #[expect(clippy::cast_possible_truncation, reason = "a slot")]
        let at = base.first as usize + slot as usize;
        debug_assert!(at < self.steps.len());
        // SAFETY: the caller's base is that of an array, and the slot is at most its last.
        let bits = unsafe { *self.steps.get_unchecked(at) };
        if bits > u64::from(u32::MAX) { self.first(at, buffer) } else { bits }
    }

    /// What is found where no view has led to so far; if the array has no such buffer, what makes
    /// of `buffer` a number that none has.
    #[cold]
    #[inline(never)]
    fn first(&mut self, at: usize, buffer: u32) -> u64 {
        let array = self.bases.partition_point(|base| base.first as usize <= at).wrapping_sub(1);
        let unknown = self.steps.get_mut(at).filter(|bits| **bits == UNKNOWN);
        let (Some(base), Some(bits)) = (self.bases.get(array), unknown) else {
            self.astray = true;
            return u64::from(!buffer);
        };
        *bits = u64::from((self.step)(array, at - base.first as usize - 1));
        *bits
    }
}

/// Copies the view of a row.
///
/// # Safety
/// `base` is that of an array that has the row; there is room for it at `to`.
#[inline(always)]
pub(super) unsafe fn one<F: FnMut(usize, usize) -> u32>(
    table: &mut Table<'_, F>,
    base: Base,
    row: usize,
    to: *mut u128,
) {
    // SAFETY: the caller's.
    unsafe {
        let view = *base.views.add(row);
        let bits = table.bits(base, buffer(view), long(view));
        to.write(view ^ u128::from(bits) << 64);
    }
}

/// All bits if the bytes of `view` are in a buffer, else none.
#[inline(always)]
pub(super) fn long(view: u128) -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "a length has 32 bits")]
    let len = u64::from(view as u32);
    // The highest bit is that of a difference that is below 0.
    (u64::from(VIEW_BYTES_MAX).wrapping_sub(len) >> 63).wrapping_neg()
}

/// The buffer of a view that has one.
#[inline(always)]
pub(super) fn buffer(view: u128) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "the number has 32 bits")]
    {
        (view >> 64) as u32
    }
}
