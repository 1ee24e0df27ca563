//! Rows of sources without levels, whose values all have one width: a slice a source.
//!
//! ```text
//! lane of a   1 2 3 …      steps a a b ─▶ page  1 2 7
//! lane of b   7 8 …
//! ```
//!
//! # Invariants
//! A step moves all of its rows or none: the first one that is not here ends the walk.
//!
//! # Cost
//! A slice a source before, a few instructions a step.
//!
//! # Not here
//! Rows with levels, and values of any length (`gather`).

use plait_core::packed_runs::PackedRun;

use super::cursor::SourceCursor;
use crate::encode::buffer::PageAppender;

/// So many steps for each source must be worth the slices that are made of all.
const STEPS_MIN: usize = 8;

/// Whether so many steps are worth the lanes of so many sources.
pub(super) fn are_worth_it(steps: usize, sources: usize) -> bool {
    steps / STEPS_MIN >= sources
}

/// Moves the ids of the steps in `words` as far as they are there and the page has room. Returns how
/// many steps were done.
pub(super) fn put_ids(
    words: &[u32],
    cursors: &mut [SourceCursor],
    out: &mut PageAppender<'_>,
) -> usize {
    let mut lanes: Vec<&[u32]> = cursors.iter().map(SourceCursor::flat_ids).collect();
    let done = out.write_ids(|places| walk(words, &mut lanes, places));
    let of = cursors.iter().map(SourceCursor::flat_ids).zip(lanes);
    let moved: Vec<usize> = of.map(|(all, left)| all.len() - left.len()).collect();
    cursors.iter_mut().zip(moved).for_each(|(cursor, rows)| cursor.pass_flat(rows, 0));
    done
}

/// The same for plain values of `N` bytes.
pub(super) fn put_fixed<const N: usize>(
    words: &[u32],
    cursors: &mut [SourceCursor],
    out: &mut PageAppender<'_>,
) -> usize {
    let mut lanes: Vec<&[[u8; N]]> = cursors.iter().map(SourceCursor::flat_values).collect();
    let done = out.write_values(|places| walk(words, &mut lanes, places));
    let of = cursors.iter().map(SourceCursor::flat_values::<N>).zip(lanes);
    let moved: Vec<usize> = of.map(|(all, left)| all.len() - left.len()).collect();
    cursors.iter_mut().zip(moved).for_each(|(cursor, rows)| cursor.pass_flat(rows, N));
    done
}

/// Moves the values of the steps in `words` from `lanes` to `out`, as long as they are there and fit.
/// Returns how many steps were done, and how many values moved.
#[inline(always)]
fn walk<T: Copy>(words: &[u32], lanes: &mut [&[T]], out: &mut [T]) -> (usize, usize) {
    let (mut done, mut at) = (0, 0);
    for word in words {
        let Some(step) = PackedRun::of_word(*word) else { break };
        let Some(lane) = lanes.get_mut(step.source as usize) else { break };
        if step.len == 1 {
            let Some((value, rest)) = lane.split_first() else { break };
            let Some(place) = out.get_mut(at) else { break };
            (*place, *lane) = (*value, rest);
            at += 1;
        } else {
            let Some((values, rest)) = lane.split_at_checked(step.len as usize) else { break };
            let Some(places) = out.get_mut(at..at + values.len()) else { break };
            places.copy_from_slice(values);
            *lane = rest;
            at += values.len();
        }
        done += 1;
    }
    (done, at)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn steps_take_from_their_lanes_until_one_is_short_or_the_page_is_full() {
        let runs = [(0, 2), (1, 1), (0, 1), (1, 3), (0, 1)];
        let words: Vec<u32> = runs.iter().map(|(source, len)| len << 20 | source).collect();
        let found = words.iter().map(|word| PackedRun::of_word(*word).unwrap());
        assert!(found.map(|run| (run.source, run.len)).eq(runs));
        for (b, room, expected) in [
            (&[7, 8, 9, 10][..], 20, (5, &[1, 2, 7, 3, 8, 9, 10, 4][..])),
            (&[7, 8, 9], 20, (3, &[1, 2, 7, 3])),
            (&[7, 8, 9, 10], 7, (4, &[1, 2, 7, 3, 8, 9, 10])),
            (&[7, 8, 9, 10], 6, (3, &[1, 2, 7, 3])),
            (&[], 20, (1, &[1, 2])),
            (&[7], 1, (0, &[])),
        ] {
            let mut lanes: [&[u32]; 2] = [&[1, 2, 3, 4], b];
            let mut out = vec![0; room];
            let (done, moved) = walk(&words, &mut lanes, &mut out);
            assert_eq!((done, &out[..moved]), expected, "{b:?} {room}");
            let left = lanes.map(<[u32]>::len);
            assert_eq!(4 + b.len() - left[0] - left[1], moved);
        }
        // A source that nobody has.
        assert_eq!(walk::<u32>(&words, &mut [], &mut [0; 9]), (0, 0));
    }
}
