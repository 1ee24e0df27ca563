//! Unsigned integers as selectors and keys have them.
//!
//! # Not here
//! Checking a selector (`lower`); copying keys (`kernel`).

use std::ops::{BitOr, BitXor};

use arrow_buffer::{ArrowNativeType, ScalarBuffer};

/// An unsigned integer, of a selector or a key.
pub(crate) trait Unsigned:
    ArrowNativeType + Ord + BitOr<Output = Self> + BitXor<Output = Self> + From<u8>
{
    fn wide(self) -> u64;
    /// How many numbers there are, as far as 64 bits tell.
    const NUMBERS: u64;
    /// The sum, without what does not fit.
    fn wrapping_add(self, other: Self) -> Self;
    /// The difference, from the other end where it is below 0.
    fn wrapping_sub(self, other: Self) -> Self;
    /// Whether the highest bit is set.
    fn is_high(self) -> bool;
    /// Numbers that fit 32 bits, in 32 bits.
    fn narrowed(all: &ScalarBuffer<Self>) -> ScalarBuffer<u32>;
    /// Whether all are below `limit`.
    fn all_below(all: &[Self], limit: u64) -> bool;
}

macro_rules! index {
    ($($t:ty: $narrowed:expr),*) => {$(
        impl Unsigned for $t {
            const NUMBERS: u64 = (<$t>::MAX as u64).saturating_add(1);
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
            fn narrowed(all: &ScalarBuffer<Self>) -> ScalarBuffer<u32> {
                $narrowed(all)
            }
            #[inline(always)]
            fn all_below(all: &[Self], limit: u64) -> bool {
                // No branch a number: vector code.
                all.is_empty() || u64::from(all.iter().fold(0, |max, n| (*n).max(max))) < limit
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
