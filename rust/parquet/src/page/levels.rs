//! How many rows start among these repetition levels?
//!
//! ```text
//! levels   0 1 1 0 0 2      a row starts at every 0
//! hybrid   runs and packed bits (`hybrid_reader`)
//! legacy   values one after the other, highest bit first
//! ```
//!
//! # Invariants
//! Exactly `num_values` levels are read or the bytes are corrupt; padding behind them is ignored.
//!
//! # Cost
//! One step a run and one a packed level; a small buffer for packed levels above 1.
//!
//! # Not here
//! Decoding levels into arrays (the parquet crate's column reader does it).

use parquet::basic::Encoding;
use plait_core::{Error, Kind, Result};

use super::hybrid::{GROUP, width_of};
use super::hybrid_reader::{HELD, HybridRun, next_run, too_few, unpack, values_in};

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LevelCount {
    /// Levels in all.
    pub levels: u64,
    /// Levels that are 0: rows that start here.
    pub zeros: u64,
    /// Whether the first level is 0: no row continues from the page before.
    pub starts_with_zero: bool,
}

impl LevelCount {
    fn add(&mut self, level: u32, times: u64) {
        if times > 0 && self.levels == 0 {
            self.starts_with_zero = level == 0;
        }
        self.levels += times;
        self.zeros += if level == 0 { times } else { 0 };
    }

    /// Adds levels.
    fn add_each(&mut self, levels: &[u32]) {
        if self.levels == 0 {
            self.starts_with_zero = levels.first() == Some(&0);
        }
        self.levels += levels.len() as u64;
        self.zeros += levels.iter().filter(|level| **level == 0).count() as u64;
    }

    /// Adds `levels` levels of one bit.
    fn add_bits(&mut self, bits: &[u8], levels: u64) {
        if levels > 0 && self.levels == 0 {
            self.starts_with_zero = bits.first().is_some_and(|byte| byte & 1 == 0);
        }
        let whole = usize::try_from(levels / 8).unwrap_or(usize::MAX).min(bits.len());
        let ones: u64 = bits[..whole].iter().map(|byte| u64::from(byte.count_ones())).sum();
        let rest = levels - 8 * whole as u64;
        let last = bits.get(whole).map_or(0, |byte| byte & ((1_u16 << rest) - 1) as u8);
        self.levels += levels;
        self.zeros += levels - ones - u64::from(last.count_ones());
    }
}

/// Bits that hold levels up to `level_max`.
fn bit_width(level_max: i16) -> u32 {
    width_of(u32::from(level_max.max(0).unsigned_abs()))
}

/// Counts the repetition levels at the front of an unpacked page of version 1.
///
/// # Errors
/// [`Kind::CorruptSource`] when there are fewer levels than `num_values`.
pub(crate) fn count_v1(
    body: &[u8],
    encoding: Encoding,
    level_max: i16,
    num_values: u32,
) -> Result<LevelCount> {
    match encoding {
        Encoding::RLE => {
            let (len, rest) = body.split_first_chunk().ok_or_else(too_few)?;
            let len = usize::try_from(u32::from_le_bytes(*len)).unwrap_or(usize::MAX);
            count_hybrid(rest.get(..len).ok_or_else(too_few)?, level_max, num_values)
        }
        #[expect(deprecated, reason = "old files have it")]
        Encoding::BIT_PACKED => count_bit_packed(body, level_max, num_values),
        other => Err(Error::new(Kind::CorruptSource, "levels have an impossible encoding")
            .with_got(other.to_string())),
    }
}

/// Counts levels in the hybrid of runs and packed bits.
///
/// # Errors
/// [`Kind::CorruptSource`] when there are fewer levels than `num_values`.
pub(crate) fn count_hybrid(mut data: &[u8], level_max: i16, num_values: u32) -> Result<LevelCount> {
    let width = bit_width(level_max);
    let (mut count, wanted) = (LevelCount::default(), u64::from(num_values));
    let mut held: Vec<u32> = Vec::new();
    while count.levels < wanted {
        let left = wanted - count.levels;
        match next_run(&mut data, width)? {
            HybridRun::Same(level, times) => count.add(level, left.min(times as u64)),
            HybridRun::Packed(bits, groups) => {
                let levels = left.min(values_in(bits, groups, width) as u64);
                match width {
                    0 => count.add(0, levels),
                    1 => count.add_bits(bits, levels),
                    _ => {
                        // What follows is left in place: unpacking is fastest far from the end.
                        let (mut bits, mut levels) = (bits, levels as usize);
                        while levels > 0 {
                            let now = levels.min(HELD);
                            held.clear();
                            unpack(bits, width, now, &mut held);
                            levels -= now;
                            bits = bits.get(HELD / GROUP * width as usize..).unwrap_or_default();
                            count.add_each(&held);
                        }
                    }
                }
            }
        }
    }
    Ok(count)
}

/// Counts levels in the packing of old files, highest bit first.
///
/// # Errors
/// [`Kind::CorruptSource`] when there are fewer levels than `num_values`.
pub(crate) fn count_bit_packed(data: &[u8], level_max: i16, num_values: u32) -> Result<LevelCount> {
    let width = bit_width(level_max);
    if u64::from(num_values) * u64::from(width) > data.len() as u64 * 8 {
        return Err(too_few());
    }
    let (mut buffer, mut held, mut bytes) = (0_u64, 0, data.iter());
    let mut count = LevelCount::default();
    for _ in 0..num_values {
        while held < width {
            buffer = buffer << 8 | u64::from(bytes.next().copied().unwrap_or(0));
            held += 8;
        }
        held -= width;
        count.add((buffer >> held & ((1 << width) - 1)) as u32, 1);
        buffer &= (1 << held) - 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slow(levels: &[u32]) -> LevelCount {
        LevelCount {
            levels: levels.len() as u64,
            zeros: levels.iter().filter(|&&l| l == 0).count() as u64,
            starts_with_zero: levels.first() == Some(&0),
        }
    }

    /// Groups of levels, each as a run or as packed bits, padded to 8.
    fn hybrid(groups: &[(bool, Vec<u32>)], width: u32) -> (Vec<u8>, Vec<u32>) {
        let (mut bytes, mut all) = (Vec::new(), Vec::new());
        let header = |bytes: &mut Vec<u8>, mut n: u32| {
            while n > 0x7f {
                bytes.push(n as u8 | 0x80);
                n >>= 7;
            }
            bytes.push(n as u8);
        };
        for (packed, levels) in groups {
            if *packed {
                let padded = levels.iter().copied().chain(std::iter::repeat(0));
                let padded: Vec<u32> = padded.take(levels.len().next_multiple_of(8)).collect();
                header(&mut bytes, (padded.len() as u32 / 8) << 1 | 1);
                let mut bits = vec![0_u8; padded.len() * width as usize / 8];
                for (i, level) in padded.iter().enumerate() {
                    for bit in 0..width as usize {
                        let at = i * width as usize + bit;
                        bits[at / 8] |= ((level >> bit & 1) as u8) << (at % 8);
                    }
                }
                bytes.extend(bits);
                all.extend(padded);
            } else {
                let level = levels[0];
                header(&mut bytes, (levels.len() as u32) << 1);
                bytes.extend(&level.to_le_bytes()[..width.div_ceil(8) as usize]);
                all.extend(std::iter::repeat_n(level, levels.len()));
            }
        }
        (bytes, all)
    }

    proptest! {
        #[test]
        fn hybrid_levels_are_counted_like_the_levels_they_hold(
            width in 1..11_u32,
            groups in proptest::collection::vec(
                (any::<bool>(), proptest::collection::vec(any::<u32>(), 1..40)), 1..8),
            cut: prop::sample::Index,
        ) {
            let mask = (1 << width) - 1;
            let groups: Vec<_> = groups.into_iter()
                .map(|(p, l)| (p, l.into_iter().map(|l| if l % 3 == 0 { 0 } else { l & mask }).collect()))
                .collect();
            let (bytes, levels) = hybrid(&groups, width);
            let n = cut.index(levels.len()) + 1;
            let got = count_hybrid(&bytes, mask as i16, n as u32).unwrap();
            prop_assert_eq!(got, slow(&levels[..n]));
            let mut v1 = (bytes.len() as u32).to_le_bytes().to_vec();
            v1.extend(&bytes);
            v1.extend([9; 9]);
            prop_assert_eq!(count_v1(&v1, Encoding::RLE, mask as i16, n as u32).unwrap(), got);
            prop_assert!(count_hybrid(&bytes, mask as i16, levels.len() as u32 + 1).is_err());
        }

        #[test]
        fn legacy_levels_are_counted_like_the_levels_they_hold(
            width in 1..11_u32,
            levels in proptest::collection::vec(any::<u32>(), 0..100),
        ) {
            let mask = (1 << width) - 1;
            let levels: Vec<u32> = levels.iter().map(|l| if l % 3 == 0 { 0 } else { l & mask }).collect();
            let mut bytes = vec![0_u8; (levels.len() * width as usize).div_ceil(8)];
            for (i, level) in levels.iter().enumerate() {
                for bit in 0..width as usize {
                    let at = i * width as usize + bit;
                    bytes[at / 8] |= ((level >> (width as usize - 1 - bit) & 1) as u8) << (7 - at % 8);
                }
            }
            #[expect(deprecated, reason = "old files have it")]
            let got = count_v1(&bytes, Encoding::BIT_PACKED, mask as i16, levels.len() as u32);
            prop_assert_eq!(got.unwrap(), slow(&levels));
            prop_assert!(count_bit_packed(&bytes, mask as i16, levels.len() as u32 + 8).is_err());
        }

        #[test]
        fn arbitrary_bytes_never_panic_or_hang(
            bytes in proptest::collection::vec(any::<u8>(), 0..60), max in 0..i16::MAX, n: u32,
        ) {
            let _ = count_hybrid(&bytes, max, n);
            let _ = count_bit_packed(&bytes, max, n & 0xffff);
        }
    }

    #[test]
    fn a_run_is_counted_without_being_walked() {
        // One run of 2^31 - 1 zeros takes six bytes.
        let count = count_hybrid(&[0xfe, 0xff, 0xff, 0xff, 0x0f, 0], 1, i32::MAX as u32).unwrap();
        assert_eq!((count.zeros, count.starts_with_zero), (i32::MAX as u64, true));
    }
}
