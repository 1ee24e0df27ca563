//! Parquet's hybrid of runs and packed bits, read: levels, dictionary ids and booleans.
//!
//! ```text
//! run      varint n·2     value in ⌈width/8⌉ bytes        n times the value
//! packed   varint g·2+1   g · width bytes                 8 · g values, lowest bit first
//! ```
//!
//! # Invariants
//! [`next_run`] alone takes runs apart, and [`unpack`] packed values. [`decode`] and
//! [`HybridReader`] give exactly as many values as asked for, in order, or an error, and allocate
//! no more than that. A reader never writes out a run of one value.
//!
//! # Cost
//! About a nanosecond a packed value. A run costs its copy, or nothing where it is given as a run.
//! A reader has a buffer of [`HELD`] values.
//!
//! # Not here
//! Writing (`hybrid`).

use bytes::Bytes;
use plait_core::{Error, Kind, Result};

use super::hybrid::{GROUP, Word};

/// Packed values that are unpacked at once: whole groups.
pub(super) const HELD: usize = 32 * GROUP;

/// A run at the front of the data.
pub(super) enum HybridRun<'a> {
    /// One value, so many times.
    Same(u32, usize),
    /// Packed values: their bits, as far as they are there, and how many groups they should be.
    Packed(&'a [u8], usize),
}

/// Splits the next run off `data`.
///
/// # Errors
/// [`Kind::CorruptSource`] when its header or its value is cut.
pub(super) fn next_run<'a>(data: &mut &'a [u8], width: u32) -> Result<HybridRun<'a>> {
    let (is_packed, times) = run_header(data)?;
    if is_packed {
        let bytes = times.saturating_mul(width as usize).min(data.len());
        let (bits, rest) = data.split_at(bytes);
        *data = rest;
        return Ok(HybridRun::Packed(bits, times));
    }
    let (value, rest) = data.split_at_checked(width.div_ceil(8) as usize).ok_or_else(too_few)?;
    *data = rest;
    let value = value.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte));
    Ok(HybridRun::Same(value, times))
}

fn run_header(data: &mut &[u8]) -> Result<(bool, usize)> {
    let mut value = 0_u32;
    for shift in (0..32).step_by(7) {
        let (&byte, rest) = data.split_first().ok_or_else(too_few)?;
        *data = rest;
        value |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok((value & 1 == 1, (value >> 1) as usize));
        }
    }
    Err(Error::new(Kind::CorruptSource, "levels or ids have a run without end"))
}

/// How many values of `width` bits are in `bits`, which should be `groups` groups: the last group
/// may be cut behind its last value.
pub(super) fn values_in(bits: &[u8], groups: usize, width: u32) -> usize {
    let there = (bits.len() * 8).checked_div(width as usize).unwrap_or(usize::MAX);
    groups.saturating_mul(GROUP).min(there)
}

/// Appends `values` packed values; `bits` has enough bytes for them.
pub(super) fn unpack<T: Word>(bits: &[u8], width: u32, values: usize, out: &mut Vec<T>) {
    if width == 0 {
        out.resize(out.len() + values, T::default());
        return;
    }
    let mask = if width == 32 { u32::MAX } else { (1 << width) - 1 };
    // As long as eight bytes can be loaded at once, a value is one load, shift and mask.
    let whole = (bits.len().saturating_sub(8) * 8 / width as usize).min(values);
    let (width, mut at) = (width as usize, 0);
    out.extend((0..whole).map(|_| {
        let byte = at / 8;
        let word = bits[byte..byte + 8].try_into().map_or(0, u64::from_le_bytes);
        let value = (word >> (at % 8)) as u32 & mask;
        at += width;
        T::cut(value)
    }));
    for i in whole..values {
        let at = i * width;
        let mut padded = [0; 8];
        let tail = &bits[at / 8..];
        let tail = &tail[..tail.len().min(8)];
        padded[..tail.len()].copy_from_slice(tail);
        out.push(T::cut((u64::from_le_bytes(padded) >> (at % 8)) as u32 & mask));
    }
}

pub(super) fn too_few() -> Error {
    Error::new(Kind::CorruptSource, "page has fewer levels or ids than values")
}

fn check_width(width: u32) -> Result<()> {
    match width {
        0..=32 => Ok(()),
        _ => Err(Error::new(Kind::CorruptSource, "ids are wider than 32 bits")
            .with_got(width.to_string())),
    }
}

/// Appends `count` values of `width` bits to `out`.
///
/// # Errors
/// [`Kind::CorruptSource`] when the bytes end before that, or `width` is over 32.
pub(crate) fn decode<T: Word>(
    mut data: &[u8],
    width: u32,
    count: usize,
    out: &mut Vec<T>,
) -> Result<()> {
    check_width(width)?;
    let end = out.len() + count;
    while out.len() < end {
        let run = next_run(&mut data, width)?;
        let left = end - out.len();
        match run {
            HybridRun::Same(value, times) => out.resize(out.len() + times.min(left), T::cut(value)),
            HybridRun::Packed(bits, groups) => {
                unpack(bits, width, values_in(bits, groups, width).min(left), out);
            }
        }
    }
    Ok(())
}

/// How many values of `width` bits the runs in `data` hold, all bytes used: `count` if they hold
/// that many and at most the padding of the last packed group more. Values are not looked at.
///
/// # Errors
/// [`Kind::CorruptSource`] when a run is cut.
pub(crate) fn count_values(mut data: &[u8], width: u32, count: usize) -> Result<usize> {
    let mut values = 0_usize;
    while !data.is_empty() {
        match next_run(&mut data, width)? {
            HybridRun::Same(_, times) => values = values.saturating_add(times),
            HybridRun::Packed(bits, groups) => {
                if bits.len() < groups.saturating_mul(width as usize) {
                    return Err(too_few());
                }
                let padding = if data.is_empty() { GROUP - 1 } else { 0 };
                values = values.saturating_add(groups.saturating_mul(GROUP));
                if values > count && values - count <= padding {
                    values = count;
                }
            }
        }
    }
    Ok(values)
}

/// The value of the one run that all of `count` values are, if they are.
#[must_use]
pub(crate) fn single_run(mut data: &[u8], width: u32, count: usize) -> Option<u32> {
    match next_run(&mut data, width) {
        Ok(HybridRun::Same(value, times)) if width <= 32 && times >= count => Some(value),
        _ => None,
    }
}

/// Reads levels or ids of one page forward.
pub(crate) struct HybridReader {
    data: Bytes,
    width: u32,
    run: RunLeft,
    /// Unpacked values, of which the first `at` were given out.
    held: Vec<u32>,
    at: usize,
}

/// What is left of the run that is read.
#[derive(Clone, Copy)]
enum RunLeft {
    /// So many times this value.
    Same(u32, usize),
    /// So many packed values, at the start of the data.
    Packed(usize),
}

/// The values that come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    /// One value, so many times.
    Same(u32, usize),
    /// These.
    Many(&'a [u32]),
}

impl Part<'_> {
    /// Number of values.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Same(_, times) => *times,
            Self::Many(values) => values.len(),
        }
    }
}

impl HybridReader {
    /// Reads values of `width` bits.
    ///
    /// # Errors
    /// [`Kind::CorruptSource`] when `width` is over 32.
    pub(crate) fn try_new(data: Bytes, width: u32) -> Result<Self> {
        check_width(width)?;
        Ok(Self { data, width, run: RunLeft::Packed(0), held: Vec::new(), at: 0 })
    }

    /// Up to `max` of the values that come next, at least one of them unless `max` is 0.
    ///
    /// # Errors
    /// [`Kind::CorruptSource`] when there are none.
    pub(crate) fn next(&mut self, max: usize) -> Result<Part<'_>> {
        if max == 0 {
            return Ok(Part::Many(&[]));
        }
        loop {
            if self.at < self.held.len() {
                let from = self.at;
                self.at = self.held.len().min(from + max);
                return Ok(Part::Many(&self.held[from..self.at]));
            }
            match &mut self.run {
                RunLeft::Same(value, left) if *left > 0 => {
                    let times = max.min(*left);
                    *left -= times;
                    return Ok(Part::Same(*value, times));
                }
                RunLeft::Packed(left) if *left > 0 => {
                    // A look-up of one value does not unpack those behind it.
                    let values = HELD.min(max).next_multiple_of(GROUP).min(*left);
                    *left -= values;
                    self.held.clear();
                    self.at = 0;
                    unpack(&self.data, self.width, values, &mut self.held);
                    let bytes = values.div_ceil(GROUP) * self.width as usize;
                    let _taken = self.data.split_to(bytes.min(self.data.len()));
                }
                _ => self.open()?,
            }
        }
    }

    /// Passes over `count` values. Whole groups of packed values are not unpacked.
    ///
    /// # Errors
    /// [`Kind::CorruptSource`] when there are fewer.
    pub(crate) fn skip(&mut self, count: usize) -> Result<()> {
        let mut left = count;
        while left > 0 {
            if let RunLeft::Packed(values) = &mut self.run
                && self.at == self.held.len()
            {
                let groups = left.min(*values) / GROUP;
                *values -= groups * GROUP;
                left -= groups * GROUP;
                let bytes = groups * self.width as usize;
                let _passed = self.data.split_to(bytes.min(self.data.len()));
            }
            left -= self.next(left)?.len();
        }
        Ok(())
    }

    /// Opens the next run.
    fn open(&mut self) -> Result<()> {
        let mut rest: &[u8] = &self.data;
        let (run, packed) = match next_run(&mut rest, self.width)? {
            HybridRun::Same(value, times) => (RunLeft::Same(value, times), 0),
            // Values of no bits are all 0.
            HybridRun::Packed(_, groups) if self.width == 0 => {
                (RunLeft::Same(0, groups.saturating_mul(GROUP)), 0)
            }
            HybridRun::Packed(bits, groups) => {
                (RunLeft::Packed(values_in(bits, groups, self.width)), bits.len())
            }
        };
        self.run = run;
        let _header = self.data.split_to(self.data.len() - rest.len() - packed);
        match run {
            // Empty runs are allowed, but must lead on to others.
            RunLeft::Same(_, 0) | RunLeft::Packed(0) if self.data.is_empty() => Err(too_few()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::hybrid::{encode, encode_run};
    use super::*;

    fn read(reader: &mut HybridReader, count: usize, out: &mut Vec<u32>) -> Result<()> {
        let end = out.len() + count;
        while out.len() < end {
            match reader.next(end - out.len())? {
                Part::Same(value, times) => out.resize(out.len() + times, value),
                Part::Many(values) => out.extend_from_slice(values),
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes(
            width in 0..33_u32,
            parts in prop::collection::vec((any::<u32>(), 1..30_usize, any::<bool>()), 0..20),
        ) {
            let mask = u32::try_from((1_u64 << width) - 1).unwrap();
            let mut values = Vec::new();
            for (seed, times, is_run) in parts {
                for i in 0..times as u32 {
                    values.push(if is_run { seed } else { seed.wrapping_mul(i * 7 + 1) } & mask);
                }
            }
            let mut bytes = Vec::new();
            encode(&values, width, &mut bytes);
            let mut back = vec![9_u32];
            decode(&bytes, width, values.len(), &mut back).unwrap();
            prop_assert_eq!(&back[1..], &values[..]);
            if width <= 8 {
                let small: Vec<u8> = values.iter().map(|&v| v as u8).collect();
                let (mut bytes8, mut back8) = (Vec::new(), Vec::<u8>::new());
                encode(&small, width, &mut bytes8);
                prop_assert_eq!(&bytes8, &bytes);
                decode(&bytes8, width, small.len(), &mut back8).unwrap();
                prop_assert_eq!(back8, small);
            }
            // Nothing but the padding of the last group is left over.
            let mut more = Vec::<u32>::new();
            prop_assert!(decode(&bytes, width, values.len() + 8, &mut more).is_err());
        }

        #[test]
        fn arbitrary_bytes_never_panic_or_hang(
            bytes in prop::collection::vec(any::<u8>(), 0..60), width in 0..40_u32,
            count in 0..5000_usize,
        ) {
            let mut out = Vec::<u32>::new();
            let _ = decode(&bytes, width, count, &mut out);
            prop_assert!(out.len() <= count);
            let _ = single_run(&bytes, width, count);
        }

        #[test]
        fn pieces_are_what_decoding_at_once_gives(
            width in 0..33_u32,
            parts in prop::collection::vec((any::<u32>(), 1..700_usize, any::<bool>()), 0..12),
            steps in prop::collection::vec((1..300_usize, any::<bool>()), 1..9),
        ) {
            let mask = u32::try_from((1_u64 << width) - 1).unwrap();
            let mut values = Vec::new();
            for (seed, times, is_run) in parts {
                for i in 0..times as u32 {
                    values.push(if is_run { seed } else { seed.wrapping_mul(i * 7 + 1) } & mask);
                }
            }
            let mut bytes = Vec::new();
            encode(&values, width, &mut bytes);
            let mut reader = HybridReader::try_new(bytes.into(), width).unwrap();
            let (mut at, mut steps) = (0, steps.iter().cycle());
            while at < values.len() {
                let &(step, skips) = steps.next().unwrap();
                let step = step.min(values.len() - at);
                let mut out = Vec::new();
                if skips {
                    reader.skip(step).unwrap();
                } else {
                    read(&mut reader, step, &mut out).unwrap();
                    prop_assert_eq!(&out, &values[at..at + step]);
                }
                at += step;
            }
            prop_assert!(reader.skip(8).is_err());
        }

        #[test]
        fn arbitrary_bytes_decode_alike_and_never_panic_or_hang(
            bytes in prop::collection::vec(any::<u8>(), 0..60), width in 0..40_u32,
            count in 0..5000_usize,
        ) {
            let mut whole = Vec::<u32>::new();
            let decoded = decode(&bytes, width, count, &mut whole);
            let Ok(mut reader) = HybridReader::try_new(bytes.into(), width) else {
                prop_assert!(width > 32);
                return Ok(());
            };
            let mut out = Vec::new();
            prop_assert_eq!(read(&mut reader, count, &mut out).is_ok(), decoded.is_ok());
            if decoded.is_ok() {
                prop_assert_eq!(out, whole);
            }
        }
    }

    #[test]
    fn a_run_is_known_without_being_written_out() {
        let mut bytes = Vec::new();
        encode_run(5, 1 << 20, 3, &mut bytes);
        assert_eq!(bytes.len(), 5);
        assert_eq!(single_run(&bytes, 3, 1 << 20), Some(5));
        assert_eq!(single_run(&bytes, 3, (1 << 20) + 1), None);
    }

    #[test]
    fn ids_come_back() {
        let ids = [7, 7, 7, 7, 7, 7, 7, 7, 7, 1, 2, 3];
        let (mut bytes, mut back) = (Vec::new(), Vec::<u32>::new());
        encode(&ids, 3, &mut bytes);
        decode(&bytes, 3, ids.len(), &mut back).unwrap();
        assert_eq!(back, ids);
    }

    #[test]
    fn runs_are_given_as_runs() {
        let mut bytes = Vec::new();
        encode(&[7_u32, 7, 7, 7, 7, 7, 7, 7, 1, 2, 3], 3, &mut bytes);
        let mut reader = HybridReader::try_new(bytes.into(), 3).unwrap();
        assert_eq!(reader.next(100).unwrap(), Part::Same(7, 8));
        assert_eq!(reader.next(2).unwrap(), Part::Many(&[1, 2]));
    }
}
