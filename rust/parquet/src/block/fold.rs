//! Counts, maxima and bits over long slices, in forms that become vector instructions on every
//! processor: no branch and no early end.
//!
//! # Cost
//! A fraction of a nanosecond a value.

/// A sum of so many flags fits a byte. They fill whole registers: a rest costs as much as all else.
const FLAGS_OF_A_SUM: usize = 192;

/// How often `wanted` occurs: in sums of bytes, which lie side by side in a register.
#[must_use]
pub(crate) fn occurrences(all: &[u8], wanted: u8) -> usize {
    let part = |part: &[u8]| part.iter().map(|level| u8::from(*level == wanted)).sum::<u8>();
    let (whole, rest) = all.as_chunks::<FLAGS_OF_A_SUM>();
    let sum: usize = whole.iter().map(|chunk| usize::from(part(chunk))).sum();
    sum + usize::from(part(rest))
}

/// Adds the places of all zeros to `places`. Bytes are looked at eight at a time, as few rows begin
/// in long lists, and without a branch for each where some are zero: short lists differ in length.
pub(crate) fn add_zeros(all: &[u8], places: &mut Vec<u32>) {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let (whole, rest) = all.as_chunks::<8>();
    let mut at = 0_u32;
    for chunk in whole {
        let word = u64::from_le_bytes(*chunk);
        // Not 0 if a byte is zero: only then does subtracting set a high bit that was not set.
        if word.wrapping_sub(ONES) & !word & (ONES << 7) != 0 {
            let (mut found, mut count) = ([0; 8], 0);
            for (at, byte) in (at..).zip(chunk) {
                found[count & 7] = at;
                count += usize::from(*byte == 0);
            }
            places.extend_from_slice(&found[..count]);
        }
        at += 8;
    }
    places.extend((at..).zip(rest).filter(|(_, byte)| **byte == 0).map(|(at, _)| at));
}

/// The greatest, 0 without any.
#[must_use]
pub(crate) fn greatest<T: Copy + Default + Ord>(all: &[T]) -> T {
    // Not `Iterator::max`: which of two equal ones it is makes a difference there.
    all.iter().fold(T::default(), |max, one| if *one > max { *one } else { max })
}

/// Packs booleans, a byte each, into bits, lowest first.
#[must_use]
pub(crate) fn pack_booleans(flags: &[u8]) -> Vec<u8> {
    /// Moves bit 0 of byte i to bit 56 + i.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    const LOW: u64 = 0x0101_0101_0101_0101;
    let (whole, rest) = flags.as_chunks::<8>();
    let pack =
        |flags: &[u8; 8]| ((u64::from_le_bytes(*flags) & LOW).wrapping_mul(GATHER) >> 56) as u8;
    let mut bits: Vec<u8> = Vec::with_capacity(flags.len().div_ceil(8));
    bits.extend(whole.iter().map(pack));
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        bits.push(pack(&last));
    }
    bits
}

/// The first `count` of `bits` as bytes; there are as many.
#[must_use]
pub(crate) fn unpack_booleans(bits: &[u8], count: usize) -> Vec<u8> {
    let mut flags = vec![0; count.div_ceil(8) * 8];
    for (flags, byte) in flags.as_chunks_mut::<8>().0.iter_mut().zip(bits) {
        *flags = std::array::from_fn(|i| byte >> i & 1);
    }
    flags.truncate(count);
    flags
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn folds_are_those_of_a_loop(all in prop::collection::vec(0..5_u8, 0..1500)) {
            for wanted in 0..6 {
                let by_eye = all.iter().filter(|one| **one == wanted).count();
                prop_assert_eq!(occurrences(&all, wanted), by_eye);
            }
            prop_assert_eq!(greatest(&all), all.iter().copied().max().unwrap_or(0));
            let mut zeros = vec![7];
            add_zeros(&all, &mut zeros);
            let by_eye = (0..).zip(&all).filter(|(_, one)| **one == 0).map(|(at, _)| at);
            prop_assert_eq!(zeros, [7].into_iter().chain(by_eye).collect::<Vec<u32>>());
        }

        #[test]
        fn booleans_come_back_from_bits(flags in prop::collection::vec(0..2_u8, 0..100)) {
            let bits = pack_booleans(&flags);
            prop_assert_eq!(bits.len(), flags.len().div_ceil(8));
            for (i, flag) in flags.iter().enumerate() {
                prop_assert_eq!(bits[i / 8] >> (i % 8) & 1, *flag);
            }
            prop_assert_eq!(unpack_booleans(&bits, flags.len()), flags);
        }
    }
}
