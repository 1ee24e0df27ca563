//! Parquet's hybrid of runs and packed bits: levels and dictionary ids, both ways.
//!
//! ```text
//! run      varint n·2     value in ⌈width/8⌉ bytes        n times the value
//! packed   varint g·2+1   g · width bytes                 8 · g values, lowest bit first
//! ```
//!
//! # Invariants
//! [`decode`] gives exactly as many values as asked for or an error, and allocates no more than
//! that. [`encode`] makes what [`decode`] reads.
//!
//! # Cost
//! About a nanosecond a value; a run costs its copy.
//!
//! # Source
//! Parquet format, Encodings, "Run Length Encoding / Bit-Packing Hybrid (RLE = 3)".

use plait_core::{Error, Kind, Result};

/// Values in a packed group.
pub(super) const GROUP: usize = 8;

/// A value that levels or ids are held in.
pub(crate) trait Word: Copy + Eq + Default {
    /// The low bits of `value`.
    fn cut(value: u32) -> Self;
    /// The value.
    fn widen(self) -> u32;
}

impl Word for u8 {
    #[inline]
    fn cut(value: u32) -> Self {
        value as Self
    }
    #[inline]
    fn widen(self) -> u32 {
        u32::from(self)
    }
}

impl Word for u32 {
    #[inline]
    fn cut(value: u32) -> Self {
        value
    }
    #[inline]
    fn widen(self) -> u32 {
        self
    }
}

/// Bits that hold all values up to `max`.
#[must_use]
pub(crate) fn width_of(max: u32) -> u32 {
    u32::BITS - max.leading_zeros()
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
    if width > 32 {
        return Err(Error::new(Kind::CorruptSource, "ids are wider than 32 bits")
            .with_got(width.to_string()));
    }
    let end = out.len() + count;
    while out.len() < end {
        let (is_packed, times) = run_header(&mut data)?;
        let left = end - out.len();
        if is_packed {
            let bytes = times.saturating_mul(width as usize);
            let (bits, rest) = data.split_at(bytes.min(data.len()));
            data = rest;
            // The last group may be cut behind its last value.
            let values = times.saturating_mul(GROUP).min(left);
            if values.saturating_mul(width as usize) > bits.len() * 8 {
                return Err(too_few());
            }
            unpack(bits, width, values, out);
        } else {
            let value = run_value(&mut data, width)?;
            out.resize(out.len() + times.min(left), T::cut(value));
        }
    }
    Ok(())
}

/// How many values of `width` bits the runs in `data` hold, all bytes used: `count` if they hold that
/// many and at most the padding of the last packed group more. Values are not looked at.
///
/// # Errors
/// [`Kind::CorruptSource`] when a run is cut.
pub(crate) fn count_values(mut data: &[u8], width: u32, count: usize) -> Result<usize> {
    let mut values = 0_usize;
    while !data.is_empty() {
        let (is_packed, times) = run_header(&mut data)?;
        if is_packed {
            let bytes = times.saturating_mul(width as usize);
            data = data.get(bytes..).ok_or_else(too_few)?;
            let padding = if data.is_empty() { GROUP - 1 } else { 0 };
            values = values.saturating_add(times.saturating_mul(GROUP));
            if values > count && values - count <= padding {
                values = count;
            }
        } else {
            run_value(&mut data, width)?;
            values = values.saturating_add(times);
        }
    }
    Ok(values)
}

/// The value of the one run that all of `count` values are, if they are.
#[must_use]
pub(crate) fn single_run(mut data: &[u8], width: u32, count: usize) -> Option<u32> {
    if width > 32 {
        return None;
    }
    let (is_packed, times) = run_header(&mut data).ok()?;
    if is_packed || times < count {
        return None;
    }
    run_value(&mut data, width).ok()
}

pub(super) fn run_header(data: &mut &[u8]) -> Result<(bool, usize)> {
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

pub(super) fn run_value(data: &mut &[u8], width: u32) -> Result<u32> {
    let (value, rest) = data.split_at_checked(width.div_ceil(8) as usize).ok_or_else(too_few)?;
    *data = rest;
    Ok(value.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte)))
}

pub(super) fn too_few() -> Error {
    Error::new(Kind::CorruptSource, "page has fewer levels or ids than values")
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

/// Appends `values`, each below 2^`width`, to `out`: runs of eight and more as runs.
pub(crate) fn encode<T: Word>(values: &[T], width: u32, out: &mut Vec<u8>) {
    let (mut packed_from, mut at) = (0, 0);
    while at < values.len() {
        let run = run_len(&values[at..]);
        if run >= GROUP {
            pack(&values[packed_from..at], width, out);
            encode_run(values[at].widen(), run, width, out);
            at += run;
            packed_from = at;
        } else {
            at = (at + GROUP).min(values.len());
        }
    }
    pack(&values[packed_from..], width, out);
}

/// Appends `times` times `value`.
pub(crate) fn encode_run(value: u32, times: usize, width: u32, out: &mut Vec<u8>) {
    // A run's length is a 32-bit number with the last bit taken.
    let longest = (u32::MAX >> 1) as usize;
    let mut left = times;
    while left > 0 {
        let now = left.min(longest);
        varint((now as u32) << 1, out);
        out.extend_from_slice(&value.to_le_bytes()[..width.div_ceil(8) as usize]);
        left -= now;
    }
}

/// How often the first value comes before another does.
#[inline]
fn run_len<T: Word>(values: &[T]) -> usize {
    let Some(first) = values.first() else { return 0 };
    match values.get(1) {
        Some(second) if second == first => {
            values.iter().position(|v| v != first).unwrap_or(values.len())
        }
        _ => 1,
    }
}

fn pack<T: Word>(values: &[T], width: u32, out: &mut Vec<u8>) {
    if values.is_empty() {
        return;
    }
    let groups = values.len().div_ceil(GROUP);
    varint((groups as u32) << 1 | 1, out);
    let end = out.len() + groups * width as usize;
    out.reserve(groups * width as usize + 8);
    let (mut held, mut bits) = (0_u64, 0);
    for value in values {
        held |= u64::from(value.widen()) << bits;
        bits += width;
        if bits >= 32 {
            out.extend_from_slice(&(held as u32).to_le_bytes());
            held >>= 32;
            bits -= 32;
        }
    }
    out.extend_from_slice(&held.to_le_bytes());
    out.resize(end, 0);
}

fn varint(mut n: u32, out: &mut Vec<u8>) {
    while n > 0x7f {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
    fn widths_hold_the_greatest_value() {
        assert_eq!([0, 1, 2, 255, 256].map(width_of), [0, 1, 2, 8, 9]);
    }
}
