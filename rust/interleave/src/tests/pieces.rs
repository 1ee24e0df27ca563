//! Runs of a few rows to a few pieces, of every kind of array, against the slow twin.

use super::*;

/// Rows of random places in `values`, in runs of `least` to `most` rows.
pub(super) fn in_runs(
    values: &[ArrayRef],
    (least, most): (usize, usize),
    random: &mut Random,
) -> Vec<(usize, usize)> {
    let mut rows = Vec::new();
    for _ in 0..40 {
        let array = random.below(values.len());
        let len = (least + random.below(most - least + 1)).min(values[array].len());
        let start = random.below(values[array].len() - len + 1);
        rows.extend((start..start + len).map(|row| (array, row)));
    }
    rows
}

/// The same as runs.
pub(super) fn runs(rows: &[(usize, usize)]) -> Runs {
    let mut runs = Runs::default();
    for (array, row) in rows {
        runs.push(SourceId(*array as u32), *row as u64, 1);
    }
    runs
}

fn check_runs(kind: usize, lens: (usize, usize), seed: u64) {
    let random = &mut Random(seed ^ 0x5eed);
    let make = |random: &mut Random| {
        let shape = &mut Random(seed);
        let (len, before) = (1 + random.below(90), random.below(9));
        array_of(kind, shape, before + len + 3, 2, random).slice(before, len)
    };
    let values: Vec<ArrayRef> = (0..1 + random.below(4)).map(|_| make(random)).collect();
    let rows = in_runs(&values, lens, random);
    let lazy = lazy(&values, &rows, random);
    let made = lazy.to_arrow().unwrap();
    made.to_data().validate_full().unwrap();
    assert_eq!(slow::rows(&made), slow::gather(&values, &rows), "kind {kind}, seed {seed}");
    let nulls = made.nulls().map_or(0, NullBuffer::null_count);
    assert_eq!(lazy.null_count().unwrap(), nulls);
    let from_runs = gather(&values, runs(&rows).as_slice()).unwrap();
    from_runs.to_data().validate_full().unwrap();
    assert_eq!(slow::rows(&from_runs), slow::rows(&made), "kind {kind}, seed {seed}");
}

#[test]
fn runs_of_few_rows_equal_the_slow_twin() {
    for kind in 0..KINDS {
        for (seed, lens) in
            (0..).zip([(8, 8), (1, 3), (6, 11), (7, 9), (8, 16), (1, 14), (16, 16), (30, 90)])
        {
            check_runs(kind, lens, seed);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]
    #[test]
    fn random_runs_equal_the_slow_twin(
        kind in 0..KINDS, least in 1_usize..10, more in 0_usize..8, seed in any::<u64>(),
    ) {
        check_runs(kind, (least, least + more), seed);
    }
}

#[test]
fn merges_of_run_ends_look_only_at_what_they_take() {
    let encoded = |from: i64| -> ArrayRef {
        let ends = Int32Array::from((1..=1000).map(|i| 3 * i).collect::<Vec<_>>());
        let values = Int64Array::from((from..from + 1000).collect::<Vec<_>>());
        Arc::new(RunArray::try_new(&ends, &values).unwrap())
    };
    let values = vec![encoded(0).slice(7, 2900), encoded(5000), encoded(9000)];
    // A few rows in the middle of two of three arrays.
    let rows: Vec<(usize, usize)> = (0..100).map(|i| (2 * (i % 2), 1401 + i / 2)).collect();
    let made = lazy(&values, &rows, &mut Random(1)).to_arrow().unwrap();
    made.to_data().validate_full().unwrap();
    assert_eq!(slow::rows(&made), slow::gather(&values, &rows));
}
