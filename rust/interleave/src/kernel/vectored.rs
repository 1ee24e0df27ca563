//! Work that is compiled twice; the processor decides which of the two runs.

#![expect(unsafe_code, reason = "fenced: see `kernel`")]

use crate::unsigned::Unsigned;

/// Work that is compiled twice, for any processor and for one with wide vectors.
pub(crate) trait Vectored {
    type Out;
    /// Marked `inline(always)`, so that it becomes part of both.
    fn run(self) -> Self::Out;
}

/// Does the work with the widest vectors there are.
#[inline(always)]
pub(crate) fn vectored<W: Vectored>(work: W) -> W::Out {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
        fn wide<W: Vectored>(work: W) -> W::Out {
            work.run()
        }
        if std::is_x86_feature_detected!("avx2")
            && std::is_x86_feature_detected!("bmi1")
            && std::is_x86_feature_detected!("bmi2")
            && std::is_x86_feature_detected!("lzcnt")
            && std::is_x86_feature_detected!("popcnt")
        {
            // SAFETY: the processor has all that `wide` is compiled for.
            return unsafe { wide(work) };
        }
    }
    work.run()
}

/// Asks for the bytes at `place` to be in the cache soon; where processors cannot be asked, nothing.
#[inline(always)]
pub(super) fn prefetch(place: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which no address makes fail, and every x86-64 has it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(place.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Whether all are below `limit`.
pub(crate) fn all_below<T: Unsigned>(all: &[T], limit: u64) -> bool {
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
