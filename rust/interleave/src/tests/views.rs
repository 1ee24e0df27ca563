//! Views of text, whose buffers get other numbers: in every order of rows, and whatever nulls hide.

use std::collections::BTreeSet;

use super::super::kernel::{self, ViewSource};
use super::super::select::Selection;
use super::*;

/// Views that lead nowhere in particular: `sticky` ones mostly to the buffer of the one before.
fn any_views(len: usize, buffers: usize, sticky: usize, random: &mut Random) -> Vec<u128> {
    let mut buffer = 0;
    let view = |_| {
        if random.below(sticky) == 0 {
            buffer = random.below(buffers.max(1)) as u32;
        }
        let buffer = match random.below(400) {
            0 => u32::MAX,
            1 => buffers as u32,
            _ if buffers == 0 => u32::MAX - 1,
            _ => buffer,
        };
        let len = match random.below(40) {
            0 => u32::MAX - random.below(9) as u32,
            1 => 12 + random.below(2) as u32,
            _ if buffers == 0 => random.below(13) as u32,
            _ => random.below(30) as u32,
        };
        let (prefix, offset) = (random.below(1 << 30) as u128, random.below(1 << 30) as u128);
        u128::from(len) | prefix << 32 | u128::from(buffer) << 64 | offset << 96
    };
    (0..len).map(view).collect()
}

/// Rows one by one from each of several arrays, or in runs of about so many.
fn any_rows(arrays: usize, len: usize, run: usize, random: &mut Random) -> Vec<(usize, usize)> {
    let (mut rows, mut next) = (Vec::new(), vec![0; arrays]);
    while rows.len() < 2_000 {
        // Single rows among runs, too.
        let run = if random.below(5) == 0 { 1 } else { 1 + random.below(run) };
        let array = random.below(arrays);
        let first = match run {
            1 => {
                next[array] = (next[array] + 1) % len;
                next[array]
            }
            _ => random.below(len - run),
        };
        rows.extend((first..first + run).map(|row| (array, row)));
    }
    rows
}

fn check_views(seed: u64, run: usize, sticky: usize) {
    let random = &mut Random(seed);
    let arrays = 1 + random.below(if seed.is_multiple_of(4) { 30 } else { 5 });
    let buffers: Vec<usize> = (0..arrays).map(|_| random.below(5)).collect();
    let len = 1500;
    let views: Vec<_> = buffers.iter().map(|n| any_views(len, *n, sticky, random)).collect();
    let sources: Vec<_> = views
        .iter()
        .zip(&buffers)
        .map(|(views, buffers)| ViewSource { views, buffers: *buffers })
        .collect();
    let rows = any_rows(arrays, len, run, random);
    let step = |array: usize, old: usize| (1 + array * 8 + old) as u32;

    // The oracle: a look at every row. What leads to no buffer leads to a number that none has.
    let (mut expected, mut used, mut astray) = (Vec::new(), BTreeSet::new(), false);
    let nowhere = u128::from(u32::MAX) << 64;
    for (array, row) in &rows {
        let view = views[*array][*row];
        let buffer = (view >> 64) as u32;
        expected.push(match (view as u32 > 12, (buffer as usize) < buffers[*array]) {
            (true, true) => {
                used.insert((*array, buffer as usize));
                view ^ u128::from(step(*array, buffer as usize)) << 64
            }
            (true, false) => {
                astray = true;
                view | nowhere
            }
            (false, _) => view,
        });
    }
    let runs = pieces::runs(&rows);
    let (of, at) = rows.iter().map(|(array, row)| (*array as u32, *row as u32)).unzip();
    let (of, at): (Vec<u32>, Vec<u32>) = (of, at);
    let single = |in_pieces: bool| {
        Selection::proved(of.clone().into(), at.clone().into(), in_pieces, vec![len; arrays])
    };
    let as_runs = Selection::from_runs(runs.as_slice(), vec![len; arrays]).unwrap();
    for (form, selection) in [("rows", single(false)), ("pieces", single(true)), ("runs", as_runs)]
    {
        let mut asked = Vec::new();
        let made = kernel::views(&sources, &selection, |array, old| {
            asked.push((array, old));
            step(array, old)
        });
        let (mut made, told_astray) = made.unwrap();
        for (made, expected) in made.iter_mut().zip(&expected) {
            if *expected as u32 > 12 && expected & nowhere == nowhere {
                assert!((*made >> 64) as u32 >= u32::MAX >> 1, "a buffer may have this number");
                *made |= nowhere;
            }
        }
        let shown = format!("{form}, seed {seed}, runs of {run}, sticky {sticky}");
        assert!(made == expected, "{shown}");
        assert_eq!(told_astray, astray, "{shown}");
        asked.sort_unstable();
        assert_eq!(asked, used.iter().copied().collect::<Vec<_>>(), "each once: {shown}");
    }
}

#[test]
fn views_lead_where_they_led_whatever_their_order() {
    for seed in 0..40 {
        for run in [1, 2, 12, 100, 1_400] {
            for sticky in [1, 4, 500] {
                check_views(seed, run, sticky);
            }
        }
    }
}

#[test]
fn long_views_of_several_buffers_keep_those_that_are_used() {
    // Buffers of 8 KiB and up: a hundred bytes a value fill several.
    let texts = |from: usize| -> ArrayRef {
        let text = |i: usize| {
            format!("{:0>width$}", from + i, width = if i.is_multiple_of(3) { 5 } else { 100 })
        };
        Arc::new((0..3000).map(|i| Some(text(i))).collect::<StringViewArray>())
    };
    let values = vec![texts(0), texts(10_000), texts(20_000)];
    let buffers = |array: &ArrayRef| array.as_string_view().data_buffers().len();
    assert!(values.iter().all(|array| buffers(array) > 2), "there is something to choose from");
    let pieces: Vec<(usize, usize)> =
        (0..50).flat_map(|i| (0..8).map(move |k| (i % 2, i * 3 + k))).collect();
    let single: Vec<(usize, usize)> = (0..400).map(|i| (i % 2, i / 2)).collect();
    for rows in [pieces, single] {
        let made = lazy(&values, &rows, &mut Random(1)).to_arrow().unwrap();
        assert_eq!(slow::rows(&made), slow::gather(&values, &rows));
        let of_two = buffers(&values[0]) + buffers(&values[1]);
        assert!((2..of_two).contains(&buffers(&made)), "{} of {of_two}", buffers(&made));
    }
    // Arrays that share their buffers share them in the output.
    let halves = vec![values[0].slice(0, 1500), values[0].slice(1500, 1500)];
    let rows: Vec<(usize, usize)> = (0..3000).map(|i| (i % 2, i / 2)).collect();
    let made = lazy(&halves, &rows, &mut Random(1)).to_arrow().unwrap();
    assert_eq!(slow::rows(&made), slow::gather(&halves, &rows));
    assert_eq!(buffers(&made), buffers(&values[0]));
}
