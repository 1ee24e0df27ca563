use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::key::KeyBytes;

fn find(keys: &[u128], batch: usize) -> Vec<RowStretch> {
    let mut finder = RunFinder::new(0, usize::MAX);
    keys.chunks(batch).for_each(|keys| finder.push(&Keys::Packed(keys.to_vec())));
    finder.finish()
}

fn rows(ranges: &[Range<u64>]) -> Vec<usize> {
    ranges.iter().cloned().flatten().map(|row| row as usize).collect()
}

/// Sorts by what was found: parts in order, each sorted stably, merged stably.
fn sorted(keys: &[u128], found: &[RowStretch]) -> Vec<usize> {
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut sort = |mut part: Vec<usize>| {
        part.sort_by_key(|row| keys[*row]);
        parts.push(part);
    };
    for stretch in found {
        match stretch {
            RowStretch::Loose(range) => sort(rows(std::slice::from_ref(range))),
            RowStretch::Run(run) => {
                sort(rows(&run.early));
                let run_rows = rows(&run.rows);
                assert!(run_rows.is_sorted_by_key(|row| keys[*row]), "a run descends");
                sort(run_rows);
                sort(rows(&run.late));
            }
        }
    }
    let mut all: Vec<(u128, usize, usize)> = parts
        .iter()
        .enumerate()
        .flat_map(|(part, rows)| rows.iter().map(move |row| (keys[*row], part, *row)))
        .collect();
    all.sort_by_key(|(key, part, _)| (*key, *part)); // stable: rows of a part keep their order
    all.into_iter().map(|(.., row)| row).collect()
}

fn check(keys: &[u128], batch: usize) -> Vec<RowStretch> {
    let found = find(keys, batch);
    let mut expected: Vec<usize> = (0..keys.len()).collect();
    expected.sort_by_key(|row| keys[*row]);
    assert_eq!(sorted(keys, &found), expected);
    found
}

/// How many rows are in runs, and how many runs there are.
fn kept(found: &[RowStretch]) -> (u64, usize) {
    let runs = found.iter().filter_map(|stretch| match stretch {
        RowStretch::Run(run) => Some(super::run::count(&run.rows)),
        RowStretch::Loose(_) => None,
    });
    (runs.clone().sum(), runs.count())
}

/// Numbers in no order, the same every time.
fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below.max(1)
    }
}

/// Moves one of a hundred rows by up to `far` places.
fn disturbed(rows: u64, far: u64, seed: u64) -> Vec<u128> {
    let mut random = random(seed);
    let mut places: Vec<(u64, u64)> = (0..rows).map(|row| (2 * row, row)).collect();
    for place in &mut places {
        if random(100) == 0 {
            place.0 = (place.0 + 2 * random(2 * far) + 1).saturating_sub(2 * far);
        }
    }
    places.sort_unstable();
    places.into_iter().map(|(_, key)| u128::from(key)).collect()
}

#[test]
fn a_sorted_source_is_one_run_however_short() {
    for keys in [vec![], vec![7], vec![1, 1, 2], (0..100_000).collect()] {
        let found = check(&keys, 1000);
        assert_eq!(kept(&found), (keys.len() as u64, usize::from(!keys.is_empty())));
    }
}

#[test]
fn one_row_in_a_hundred_that_moved_leaves_one_run() {
    for seed in 1..5 {
        let keys = disturbed(200_000, 10_000, seed);
        let found = check(&keys, 4096);
        let (rows, runs) = kept(&found);
        assert_eq!(runs, 1, "{}", found.len());
        assert!(rows >= 195_000, "{rows}");
    }
}

#[test]
fn pieces_behind_each_other_are_runs() {
    let keys: Vec<u128> =
        (0..20).flat_map(|piece| (0..25_000).map(move |i| i * 20 + piece)).collect();
    assert_eq!(kept(&check(&keys, 3000)), (500_000, 20));
    // The end of a day that began too early, and goes on behind it.
    let keys: Vec<u128> = (0..50_000).chain(20_000..22_000).chain(50_000..100_000).collect();
    assert_eq!(kept(&check(&keys, 3000)), (102_000, 2));
}

#[test]
fn rows_in_no_order_are_loose_and_runs_around_them_stay() {
    let mut random = random(3);
    let shuffled: Vec<u128> = (0..100_000).map(|_| u128::from(random(1 << 40))).collect();
    assert_eq!(kept(&check(&shuffled, 4096)).1, 0);
    let descending: Vec<u128> = (0..100_000).rev().collect();
    assert_eq!(kept(&check(&descending, 4096)).1, 0);
    let mixed: Vec<u128> = (0..60_000).chain(shuffled).chain(10_000..90_000).collect();
    let (rows, runs) = kept(&check(&mixed, 4096));
    assert!((2..=3).contains(&runs) && rows >= 120_000, "{rows} rows in {runs} runs");
}

#[test]
fn ranges_that_are_noted_have_a_bound() {
    let keys = disturbed(400_000, 10_000, 9);
    let mut finder = RunFinder::new(0, 1000);
    finder.push(&Keys::Packed(keys.clone()));
    let found = finder.finish();
    let ranges = found.iter().map(|stretch| match stretch {
        RowStretch::Run(run) => run.rows.len() + run.early.len() + run.late.len(),
        RowStretch::Loose(_) => 0,
    });
    assert!(ranges.sum::<usize>() < 2000);
    assert!(kept(&found).0 > 0);
    let mut expected: Vec<usize> = (0..keys.len()).collect();
    expected.sort_by_key(|row| keys[*row]);
    assert_eq!(sorted(&keys, &found), expected);
}

#[test]
fn keys_of_any_length_are_followed_as_packed_ones() {
    let keys = disturbed(60_000, 5_000, 2);
    let mut finder = RunFinder::new(0, usize::MAX);
    for part in keys.chunks(777) {
        let mut bytes = KeyBytes::default();
        part.iter().for_each(|key| bytes.push(&key.to_be_bytes()));
        finder.push(&Keys::Bytes(bytes));
    }
    assert_eq!(finder.finish(), find(&keys, 777));
}

/// Few different keys, so that ties abound; stretches that ascend, descend, or neither.
fn pieces() -> impl Strategy<Value = Vec<u128>> {
    let piece = (0_u8..5, 1_usize..6000, 1_u64..400, any::<u64>());
    proptest::collection::vec(piece, 1..8).prop_map(|pieces| {
        let mut keys = Vec::new();
        for (kind, rows, distinct, seed) in pieces {
            let mut random = random(seed);
            let base = random(100);
            let mut piece: Vec<u64> = (0..rows).map(|_| base + random(distinct)).collect();
            match kind {
                0 => piece.sort_unstable(),
                1 => piece.sort_unstable_by(|a, b| b.cmp(a)),
                2 | 3 => {
                    piece.sort_unstable();
                    for _ in 0..rows / [50, 7][usize::from(kind) - 2] {
                        let from = random(rows as u64) as usize;
                        let key = piece.remove(from);
                        piece.insert(random(rows as u64) as usize, key);
                    }
                }
                _ => {}
            }
            keys.extend(piece.into_iter().map(u128::from));
        }
        keys
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_found_sorts_stably(keys in pieces(), batch in 1_usize..9000) {
        check(&keys, batch);
    }
}
