//! In which order do byte strings come, equal ones as they came?
//!
//! ```text
//! keys     80 00 2c   80 00 07   80 01 00        places   1 0 2
//! heads       00 2c      00 07      01 00        the 8 bytes behind what all have in front
//! ```
//!
//! # Invariants
//! Stable: of equal keys the smaller place comes first.
//!
//! # Cost
//! One pass for each byte of the heads in which keys differ: three for a million numbers in a row. Keys
//! whose heads are equal are compared.
//!
//! # Not here
//! What equal keys mean (`deduplicate`).

use std::cmp::Ordering;

use crate::key::pack;

/// Fewer keys are compared with each other.
const COUNTED_MIN: usize = 256;

/// Head and place.
type Entry = (u64, u32);

/// `places`, which ascend, in the order of their keys.
pub(super) fn order<'a>(places: Vec<u32>, key: impl Fn(u32) -> &'a [u8]) -> Vec<u32> {
    let Some(first) = places.first().map(|place| key(*place)) else { return places };
    let mut common = first.len();
    for place in &places {
        let shared = first.iter().zip(key(*place)).take(common).take_while(|(a, b)| a == b);
        common = shared.count();
        if common == 0 {
            break;
        }
    }
    let tail = |place: u32| key(place).get(common..).unwrap_or_default();
    let len = first.len() - common;
    let is_whole = len <= 8 && places.iter().all(|place| tail(*place).len() == len);
    let entries = places.into_iter().map(|place| (head(tail(place)), place)).collect();
    sorted(entries, (!is_whole).then_some(|a, b| tail(a).cmp(tail(b))))
}

/// The same for numbers.
pub(super) fn order_numbers(places: Vec<u32>, key: impl Fn(u32) -> u128) -> Vec<u32> {
    let Some(first) = places.first().map(|place| key(*place)) else { return places };
    let differs = places.iter().fold(0, |any, place| any | (key(*place) ^ first));
    let common = differs.leading_zeros().min(64);
    let head = |place: u32| (key(place) << common >> 64) as u64;
    let is_whole = common + differs.trailing_zeros() >= 64;
    let entries = places.into_iter().map(|place| (head(place), place)).collect();
    sorted(entries, (!is_whole).then_some(|a, b| key(a).cmp(&key(b))))
}

/// The first 8 bytes as a number, zeros on the right when there are fewer.
#[inline]
fn head(bytes: &[u8]) -> u64 {
    if let Some(whole) = bytes.first_chunk() {
        return u64::from_be_bytes(*whole);
    }
    let mut padded = [0; 8];
    for (to, from) in padded.iter_mut().zip(bytes) {
        *to = *from;
    }
    u64::from_be_bytes(padded)
}

/// The same for 16 bytes.
#[inline]
pub(super) fn wide_head(bytes: &[u8]) -> u128 {
    pack(bytes)
}

/// Places by head, then as `compare` says, if heads alone do not tell.
fn sorted(mut entries: Vec<Entry>, compare: Option<impl Fn(u32, u32) -> Ordering>) -> Vec<u32> {
    if !entries.is_sorted_by_key(|entry| entry.0) {
        match entries.len() < COUNTED_MIN {
            true => entries.sort_unstable(),
            false => entries = counted(entries),
        }
    }
    if let Some(compare) = compare {
        for same in entries.chunk_by_mut(|a, b| a.0 == b.0).filter(|same| same.len() > 1) {
            same.sort_by(|a, b| compare(a.1, b.1));
        }
    }
    entries.into_iter().map(|entry| entry.1).collect()
}

/// Sorted by heads, byte by byte from the last, of those in which any two differ.
fn counted(mut entries: Vec<Entry>) -> Vec<Entry> {
    let first = entries.first().map_or(0, |entry| entry.0);
    let differs = entries.iter().fold(0, |any, entry| any | (entry.0 ^ first));
    let mut other = vec![(0, 0); entries.len()];
    for shift in (0..u64::BITS).step_by(8) {
        if differs >> shift & 0xFF == 0 {
            continue;
        }
        let digit = |entry: &Entry| (entry.0 >> shift & 0xFF) as usize;
        let mut next = [0_usize; 256];
        entries.iter().for_each(|entry| next[digit(entry)] += 1);
        let mut sum = 0;
        for place in &mut next {
            sum += std::mem::replace(place, sum);
        }
        for entry in &entries {
            let place = &mut next[digit(entry)];
            other[*place] = *entry;
            *place += 1;
        }
        std::mem::swap(&mut entries, &mut other);
    }
    entries
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slow<K: Ord>(places: &[u32], key: impl Fn(u32) -> K) -> Vec<u32> {
        let mut places = places.to_vec();
        places.sort_by_key(|place| key(*place));
        places
    }

    proptest! {
        #[test]
        fn byte_strings_come_in_their_order(
            common in prop::collection::vec(any::<u8>(), 0..12),
            tails in prop::collection::vec(prop::collection::vec(0_u8..3, 0..11), 0..600),
            left_out in 0_u32..40,
        ) {
            let keys: Vec<Vec<u8>> =
                tails.iter().map(|tail| [&common[..], tail].concat()).collect();
            let key = |place: u32| &keys[place as usize][..];
            let places: Vec<u32> = (0..).take(keys.len()).filter(|i| i % 41 != left_out).collect();
            prop_assert_eq!(order(places.clone(), key), slow(&places, key));
        }

        #[test]
        fn numbers_come_in_their_order(
            keys in prop::collection::vec(any::<(u8, u64)>(), 0..600), spread in 0_u32..56,
        ) {
            let key = |place: u32| {
                let (high, low) = keys[place as usize];
                u128::from(high % 3) << 120 | u128::from(low >> spread) << spread
            };
            let places: Vec<u32> = (0..).take(keys.len()).collect();
            prop_assert_eq!(order_numbers(places.clone(), key), slow(&places, key));
        }
    }

    #[test]
    fn equal_keys_stay_as_they_came_and_short_ones_come_first() {
        let keys: [&[u8]; 5] = [b"ab", b"a", b"a\0", b"", b"a"];
        assert_eq!(order(vec![0, 1, 2, 3, 4], |place| keys[place as usize]), [3, 1, 4, 2, 0]);
        assert!(order(Vec::new(), |_| b"").is_empty());
    }
}
