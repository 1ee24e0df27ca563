//! Keys of any length with codes that decide most comparisons: offset-value coding.
//!
//! ```text
//! the winner     01 6E 6F 64 65 2D 31 37 …
//! a rival        01 6E 6F 64 65 2D 31 39 …     differs from byte 7 on: code (7, 39 …)
//! another one    01 6E 6F 64 65 2F 30 …        from byte 5 on: (5, 2F …), behind the first
//! ```
//!
//! Sorted keys begin alike for long. What tells two of them apart is where each first differs from
//! a key before both, and how: the one that differs later is the smaller one. So a code is the
//! offset, complemented, and the four bytes there; only equal codes need the keys.
//!
//! # Invariants
//! Two codes are compared only if they refer to one key, not behind either of their own: in the
//! loser tree to the winner that left last, on whose path all losers lost to it. A loser's code is
//! brought to refer to who beat it. No key is the start of another, longer one.
//!
//! # Cost
//! Eight bytes a key; each key is read once to be coded, which is also the check of its order.
//!
//! # Source
//! Conner, Offset value coding, IBM Technical Disclosure Bulletin 20(7), 1977; Graefe and Do,
//! Offset-value coding in database query processing, EDBT 2023.
//!
//! # Not here
//! Keys that fit a number (`node`).

use std::cmp::Ordering;

use super::batch::Batch;
use super::head::Head;
use super::node::{ENDED, TreeNode};
use crate::key::KeyBytes;

/// Offsets from here on have one code.
const OFFSET_MAX: u32 = u32::MAX - 1;

/// Bytes of a key in its code.
const VALUE_BYTES: usize = 4;

/// Keys, and the code of each against the one before it.
#[derive(Default)]
pub(super) struct CodedKeys {
    keys: KeyBytes,
    /// The first is of no use; none before [`check`](Batch::check).
    codes: Vec<u64>,
}

impl CodedKeys {
    pub(super) fn new(keys: KeyBytes) -> Self {
        Self { keys, codes: Vec::new() }
    }
}

impl Batch for CodedKeys {
    #[inline]
    fn len(&self) -> usize {
        self.keys.len()
    }

    #[inline]
    fn compare(&self, i: usize, other: &Self, j: usize) -> Ordering {
        self.keys.get(i).cmp(other.keys.get(j))
    }

    #[inline]
    fn compare_bytes(&self, i: usize, bytes: &[u8]) -> Ordering {
        self.keys.get(i).cmp(bytes)
    }

    fn check(&mut self, _: bool) -> Option<usize> {
        let mut descent = None;
        let mut before: &[u8] = &[];
        self.codes.clear();
        self.codes.reserve_exact(self.keys.len());
        for (i, key) in self.keys.iter().enumerate() {
            let at = common(before, key, 0);
            if i > 0 && descent.is_none() && before.get(at) > key.get(at) {
                descent = Some(i);
            }
            self.codes.push(code(key, at, before.len() == key.len()));
            before = key;
        }
        descent
    }

    fn bytes(&self, i: usize, _width: usize) -> Vec<u8> {
        self.keys.get(i).to_vec()
    }

    fn single(bytes: &[u8]) -> Self {
        let mut keys = KeyBytes::default();
        keys.push(bytes);
        Self::new(keys)
    }
}

/// Where `a` and `b`, which are equal before `from`, first differ; the shorter length if they do
/// not before that.
#[inline]
fn common(a: &[u8], b: &[u8], from: usize) -> usize {
    let len = a.len().min(b.len());
    let (a, b) = (&a[..len], &b[..len]);
    let mut at = from.min(len);
    while let (Some(x), Some(y)) = (a[at..].first_chunk(), b[at..].first_chunk()) {
        let differing = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differing != 0 {
            return at + differing.trailing_zeros() as usize / 8;
        }
        at += size_of::<u64>();
    }
    while at < len && a[at] == b[at] {
        at += 1;
    }
    at
}

/// The code of `key`, which differs from byte `at` on; 0 if it does not: when it ends there, and
/// `is_same_len` says that the other does.
#[inline]
fn code(key: &[u8], at: usize, is_same_len: bool) -> u64 {
    if at == key.len() && is_same_len {
        return 0;
    }
    let rest = key.get(at..).unwrap_or_default();
    let value = match rest.first_chunk::<VALUE_BYTES>() {
        Some(bytes) => u32::from_be_bytes(*bytes),
        None => padded(key, rest),
    };
    match u32::try_from(at) {
        Ok(offset) if offset < OFFSET_MAX => u64::from(u32::MAX - offset) << 32 | u64::from(value),
        // One code for all: the keys decide, from there on.
        _ => u64::from(u32::MAX - OFFSET_MAX) << 32,
    }
}

/// Fewer bytes than a code has, the last of `key`, with zeros behind them.
#[inline]
fn padded(key: &[u8], rest: &[u8]) -> u32 {
    // A shift, since a copy of a length that is not known is a call.
    if let Some(last) = key.last_chunk::<VALUE_BYTES>() {
        let last = u32::from_be_bytes(*last);
        return match rest.len() {
            0 => 0,
            1 => last << 24,
            2 => last << 16,
            _ => last << 8,
        };
    }
    let mut padded = [0; VALUE_BYTES];
    padded[..rest.len()].copy_from_slice(rest);
    u32::from_be_bytes(padded)
}

/// A code and its source.
#[derive(Clone, Copy)]
pub(super) struct Coded {
    code: u64,
    source: u32,
}

impl Coded {
    /// Two nodes of one code: their keys decide, from where the codes end to tell.
    #[inline(never)]
    fn play_equal(self, other: Self, heads: &[Head<CodedKeys>]) -> (Self, Self) {
        if self.is_end() || other.is_end() || self.code == 0 {
            // Ended, or equal to the key that both refer to.
            let is_first = (self.is_end(), self.source) < (other.is_end(), other.source);
            return if is_first { (self, other) } else { (other, self) };
        }
        let (a, b) = (self.key(heads), other.key(heads));
        let at = common(a, b, self.offset());
        let is_first = match a.get(at).cmp(&b.get(at)) {
            Ordering::Equal => self.source < other.source,
            unequal => unequal == Ordering::Less,
        };
        let (first, mut second, key) = if is_first { (self, other, b) } else { (other, self, a) };
        second.code = code(key, at, a.len() == b.len());
        (first, second)
    }

    fn offset(self) -> usize {
        (u32::MAX - (self.code >> 32) as u32) as usize
    }

    #[inline]
    fn key(self, heads: &[Head<CodedKeys>]) -> &[u8] {
        let head = &heads[self.source()];
        head.keys.keys.get(head.next)
    }
}

impl TreeNode for Coded {
    type Keys = CodedKeys;

    #[inline]
    fn new(keys: &CodedKeys, i: usize, source: u32) -> Self {
        Self { code: keys.codes[i], source }
    }

    fn root(keys: &CodedKeys, i: usize, source: u32) -> Self {
        Self { code: code(keys.keys.get(i), 0, false), source }
    }

    fn against(keys: &CodedKeys, i: usize, source: u32, base: (&CodedKeys, usize)) -> Self {
        let (key, base) = (keys.keys.get(i), base.0.keys.get(base.1));
        Self { code: code(key, common(key, base, 0), key.len() == base.len()), source }
    }

    fn end(source: u32) -> Self {
        Self { code: u64::MAX, source: source | ENDED }
    }

    #[inline]
    fn source(self) -> usize {
        (self.source & !ENDED) as usize
    }

    #[inline]
    fn is_end(self) -> bool {
        self.source & ENDED != 0
    }

    #[inline(always)]
    fn play(self, other: Self, heads: &[Head<CodedKeys>]) -> (Self, Self) {
        if self.code == other.code {
            return self.play_equal(other, heads);
        }
        let is_first = self.code < other.code;
        let (first, mut second) = if is_first { (self, other) } else { (other, self) };
        // Codes of one offset may agree in some bytes: the loser differs only behind these.
        let same = ((self.code ^ other.code).leading_zeros() / 8) as usize;
        if same > VALUE_BYTES && !second.is_end() {
            let key = second.key(heads);
            second.code = code(key, second.offset() + same - VALUE_BYTES, false);
        }
        (first, second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_ends_with_the_bytes_at_its_offset_and_zeros() {
        let key: Vec<u8> = (1..=9).collect();
        for len in 0..=key.len() {
            for at in 0..=len {
                let mut wanted = [0; 8];
                let offset = u32::MAX - u32::try_from(at).unwrap();
                wanted[..4].copy_from_slice(&offset.to_be_bytes());
                for (to, from) in wanted[4..].iter_mut().zip(&key[at..len]) {
                    *to = *from;
                }
                assert_eq!(code(&key[..len], at, false).to_be_bytes(), wanted, "{len} {at}");
            }
        }
    }
}
