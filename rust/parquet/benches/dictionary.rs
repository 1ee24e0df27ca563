//! Dictionaries of sixteen sources become one, and ids are renumbered:
//! `dictionary/{union,remap}/{text,number}`.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput};
use plait_core::Result;
use plait_parquet::Union;
use plait_parquet::{Dictionary, Layout};

const SOURCES: u32 = 16;
const VALUES: u32 = 10_000;
/// How far the values of one source are from those of the next: most are shared.
const SHIFT: u32 = 100;
const IDS: u32 = 1 << 20;

fn main() -> Result<()> {
    let mut criterion = Criterion::default().configure_from_args();
    for (name, layout) in [("text", Layout::Prefixed), ("number", Layout::Fixed(8))] {
        let dictionaries: Vec<Dictionary> =
            (0..SOURCES).map(|source| dictionary(layout, source * SHIFT)).collect::<Result<_>>()?;
        let mut group = criterion.benchmark_group("dictionary");
        group.throughput(Throughput::Elements(u64::from(SOURCES * VALUES)));
        group.bench_function(format!("union/{name}"), |bencher| {
            bencher.iter(|| measured_union(layout, &dictionaries));
        });
        let mut union = Union::new(layout);
        let mut remap = union.add(&dictionaries[1])?;
        for dictionary in &dictionaries[2..] {
            remap = union.add(dictionary)?;
        }
        let ids: Vec<u32> = (0..IDS).map(|i| i.wrapping_mul(2_654_435_761) % VALUES).collect();
        group.throughput(Throughput::Elements(u64::from(IDS)));
        group.bench_function(format!("remap/{name}"), |bencher| {
            bencher.iter(|| {
                let mut ids = ids.clone();
                remap.apply(black_box(&mut ids));
                ids
            });
        });
        group.finish();
    }
    criterion.final_summary();
    Ok(())
}

#[inline(never)]
fn measured_union(layout: Layout, dictionaries: &[Dictionary]) -> Result<Arc<Dictionary>> {
    let mut union = Union::new(layout);
    for dictionary in dictionaries {
        black_box(union.add(dictionary)?);
    }
    union.finish()
}

fn dictionary(layout: Layout, first: u32) -> Result<Dictionary> {
    let mut bytes = Vec::new();
    for value in first..first + VALUES {
        match layout {
            Layout::Prefixed => {
                let text = format!("node-{value:06}.rack-{}.example", value % 40);
                bytes.extend((text.len() as u32).to_le_bytes());
                bytes.extend(text.as_bytes());
            }
            Layout::Fixed(_) => bytes.extend(u64::from(value).to_le_bytes()),
        }
    }
    Dictionary::new(layout, bytes.into(), VALUES as usize)
}
