//! Encoding of key columns: `keys/metrics` (three texts, one descending integer), `keys/ranked`
//! (the same as ranks) and `keys/numbers` (both packed into a `u128`).

mod data;

use criterion::{Criterion, Throughput};
use data::{Metrics, Numbers};
use plait_core::Result;
use plait_core::key::Keys;

/// Rows of one call, about what a page holds.
const ROWS: u64 = 20_000;

fn main() -> Result<()> {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("keys");
    group.throughput(Throughput::Elements(ROWS));

    let metrics = Metrics::try_new(0..ROWS)?;
    let texts = metrics.texts();
    assert_eq!(metrics.encode(&texts)?.len() as u64, ROWS);
    group.bench_function("metrics", |b| b.iter(|| measured(|| metrics.encode(&texts))));

    let ranked = metrics.ranked()?;
    assert_eq!(ranked.encode()?.len() as u64, ROWS);
    group.bench_function("ranked", |b| b.iter(|| measured(|| ranked.encode())));

    let numbers = Numbers::try_new(0..ROWS)?;
    assert!(numbers.shape.packs(), "both numbers fit a u128");
    assert_eq!(numbers.encode()?.len() as u64, ROWS);
    group.bench_function("numbers", |b| b.iter(|| measured(|| numbers.encode())));

    group.finish();
    criterion.final_summary();
    Ok(())
}

#[inline(never)] // `benches/callgrind.sh` counts what runs inside functions of this name
fn measured(encode: impl Fn() -> Result<Keys>) -> Result<Keys> {
    encode()
}
