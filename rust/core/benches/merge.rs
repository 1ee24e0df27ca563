//! The loser tree, sixteen sources: `merge/{ranked,packed,bytes}/{interleaved,long_runs}`. Keys are
//! checked as they are supplied, as in a real merge; making and copying them is not timed.

mod data;

use criterion::{BatchSize, Criterion, Throughput};
use data::{Metrics, Numbers};
use plait_core::Result;
use plait_core::key::{KeyShape, Keys};
use plait_core::plan::{Merge, OrderCheck, Stop};
use plait_core::{Runs, SourceId};

const SOURCES: usize = 16;
const ROWS: u64 = 500_000;
/// Keys of one batch, at most: about a page.
const BATCH_ROWS: usize = 20_000;
/// Consecutive rows of one source where runs are long.
const LONG_RUN_ROWS: u64 = 2_000;

fn main() -> Result<()> {
    let mut criterion = Criterion::default().configure_from_args();
    for (name, run_rows) in [("interleaved", 1), ("long_runs", LONG_RUN_ROWS)] {
        let dealt = deal(run_rows);
        let mut ranked = Vec::new();
        let mut packed = Vec::new();
        let mut bytes = Vec::new();
        for rows in &dealt {
            ranked.push(batches(rows, |rows| {
                Metrics::try_new(rows.iter().copied())?.ranked()?.encode()
            })?);
            packed.push(batches(rows, |rows| Numbers::try_new(rows.iter().copied())?.encode())?);
            bytes.push(batches(rows, |rows| {
                let metrics = Metrics::try_new(rows.iter().copied())?;
                metrics.encode(&metrics.texts())
            })?);
        }
        let numbers = Numbers::try_new(0..0)?.shape;
        let metrics = Metrics::try_new(0..0)?.shape;
        let short = Metrics::try_new(0..0)?.ranked()?.shape;
        bench(&mut criterion, &format!("ranked/{name}"), &short, &ranked);
        bench(&mut criterion, &format!("packed/{name}"), &numbers, &packed);
        bench(&mut criterion, &format!("bytes/{name}"), &metrics, &bytes);
    }
    criterion.final_summary();
    Ok(())
}

/// Row numbers of each source, ascending; every run of `run_rows` rows goes to any source.
fn deal(run_rows: u64) -> Vec<Vec<u64>> {
    let mut dealt = vec![Vec::new(); SOURCES];
    let mut state = 20_u64;
    for row in 0..ROWS {
        if row % run_rows == 0 {
            // The constants of Knuth's MMIX; high bits are the good ones.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
        }
        dealt[(state >> 60) as usize].push(row);
    }
    dealt
}

fn batches(rows: &[u64], keys: impl Fn(&[u64]) -> Result<Keys>) -> Result<Vec<Keys>> {
    rows.chunks(BATCH_ROWS).map(keys).collect()
}

fn bench(criterion: &mut Criterion, name: &str, shape: &KeyShape, sources: &[Vec<Keys>]) {
    let mut group = criterion.benchmark_group("merge");
    group.throughput(Throughput::Elements(ROWS)).sample_size(20);
    group.bench_function(name, |b| {
        b.iter_batched(
            || sources.to_vec(),
            |sources| measured(shape, sources),
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

/// Merges all sources; the runs are returned so that freeing them is not timed.
#[inline(never)] // `benches/callgrind.sh` counts what runs inside functions of this name
fn measured(shape: &KeyShape, sources: Vec<Vec<Keys>>) -> Runs {
    let mut merge = Merge::new(shape, sources.len(), OrderCheck::Full);
    let mut sources: Vec<_> = sources.into_iter().map(Vec::into_iter).collect();
    let mut runs = Runs::default();
    while let Stop::Need(source) = merge.step(u64::MAX, None, &mut runs) {
        supply(&mut merge, source, sources[source.index()].next());
    }
    assert_eq!(runs.rows(), ROWS, "every row leaves once");
    runs
}

fn supply(merge: &mut Merge, source: SourceId, keys: Option<Keys>) {
    match keys {
        Some(keys) => assert!(merge.supply(source, keys, false).is_ok(), "sources are sorted"),
        None => merge.end(source),
    }
}
