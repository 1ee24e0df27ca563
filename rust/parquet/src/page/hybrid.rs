//! Parquet's hybrid of runs and packed bits, written: levels and dictionary ids.
//!
//! ```text
//! run      varint n·2     value in ⌈width/8⌉ bytes        n times the value
//! packed   varint g·2+1   g · width bytes                 8 · g values, lowest bit first
//! ```
//!
//! # Invariants
//! [`encode`] writes what [`decode`](super::hybrid_reader::decode) reads.
//!
//! # Cost
//! About a nanosecond a value; a run costs its copy.
//!
//! # Source
//! Parquet format, Encodings, "Run Length Encoding / Bit-Packing Hybrid (RLE = 3)".
//!
//! # Not here
//! Reading (`hybrid_reader`).

/// Values in a packed group.
pub(crate) const GROUP: usize = 8;

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

/// Appends `values` as packed groups, of which the last is filled up with zeros.
pub(crate) fn pack<T: Word>(values: &[T], width: u32, out: &mut Vec<u8>) {
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
    use super::*;

    #[test]
    fn widths_hold_the_greatest_value() {
        assert_eq!([0, 1, 2, 255, 256].map(width_of), [0, 1, 2, 8, 9]);
    }
}
