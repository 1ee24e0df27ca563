//! Parquet's hybrid of runs and packed bits, some values at a time.
//!
//! ```text
//! page     run 3 × 7 │ packed 1 4 1 5 9 2 6 5 │ run …
//! parts    (7, 2 of 3) │ (7, 1) [1 4 1 5] [9 2] …     as far as each is asked for
//! ```
//!
//! # Invariants
//! Values come in order and as many as asked for, or an error. A run of one value is never written
//! out.
//!
//! # Cost
//! About a nanosecond a packed value, nothing for a run; a buffer of [`HELD`] values.
//!
//! # Not here
//! All values at once (`hybrid`).

use bytes::Bytes;
use plait_core::{Error, Kind, Result};

use super::hybrid::{GROUP, run_header, run_value, too_few, unpack};

/// Packed values that are unpacked at once: whole groups.
const HELD: usize = 32 * GROUP;

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
        if width > 32 {
            return Err(Error::new(Kind::CorruptSource, "ids are wider than 32 bits")
                .with_got(width.to_string()));
        }
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
                    let values = HELD.min(*left);
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

    /// Passes over `count` values.
    ///
    /// # Errors
    /// [`Kind::CorruptSource`] when there are fewer.
    pub(crate) fn skip(&mut self, count: usize) -> Result<()> {
        let mut left = count;
        while left > 0 {
            left -= self.next(left)?.len();
        }
        Ok(())
    }

    /// Opens the next run.
    fn open(&mut self) -> Result<()> {
        let mut rest: &[u8] = &self.data;
        let (is_packed, times) = run_header(&mut rest)?;
        self.run = if is_packed {
            let values = times.saturating_mul(GROUP);
            match rest.len().saturating_mul(8).checked_div(self.width as usize) {
                // The last group may be cut behind its last value.
                Some(there) => RunLeft::Packed(values.min(there)),
                None => RunLeft::Same(0, values),
            }
        } else {
            RunLeft::Same(run_value(&mut rest, self.width)?, times)
        };
        let header = self.data.len() - rest.len();
        let _taken = self.data.split_to(header);
        match self.run {
            // Empty runs are allowed, but must lead on to others.
            RunLeft::Same(_, 0) | RunLeft::Packed(0) if self.data.is_empty() => Err(too_few()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::hybrid::{decode, encode};
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
    fn runs_are_given_as_runs() {
        let mut bytes = Vec::new();
        encode(&[7_u32, 7, 7, 7, 7, 7, 7, 7, 1, 2, 3], 3, &mut bytes);
        let mut reader = HybridReader::try_new(bytes.into(), 3).unwrap();
        assert_eq!(reader.next(100).unwrap(), Part::Same(7, 8));
        assert_eq!(reader.next(2).unwrap(), Part::Many(&[1, 2]));
    }
}
