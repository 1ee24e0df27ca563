//! Small sources that all overlap: their keys are read twice, however many cuts there are.
//!
//! ```text
//! keys of a small source    a b c d e f g h i j k l m n o p
//! once, to choose cuts      a   c   e   g   i   k   m     p     samples, in equal distances
//! once, to count exactly              ┃             ┃           4 rows before one cut, 11 before the other
//! ```
//!
//! # Invariants
//! What is counted is exact. Where cuts lie is an estimate, as it is out of footers.
//!
//! # Cost
//! The key columns of each source twice, of those with few rows once. O(s log c) for the s samples and c cuts of a source.
//!
//! # Not here
//! Which cuts the samples are close enough for (`cuts`).

use plait_core::Result;
use plait_core::workers::{Workers, each};

use super::key_samples::KeySamples;
use super::rule::OutputCut;
use super::source_keys::{Edge, Known, Reading, SourceKeys};

/// Where fewer sources share a key, looking keys up is cheap enough.
const DEPTH_MIN: usize = 256;

/// Rows of a source whose keys are read at once.
const ROWS_MAX: u64 = 4096;

/// Parts of a source between samples.
const PARTS: u64 = 16;

/// Of a source with fewer rows all keys are kept: they need not be read again to be counted.
const KEPT_MAX: usize = 2 * PARTS as usize;

/// Sources whose rows are counted at a time.
const COUNTED: usize = 4096;

/// Reads samples of small sources, where so many overlap that it pays; whether it did.
pub(super) fn spread(
    sources_keys: &mut [SourceKeys],
    depth: usize,
    workers: &dyn Workers,
    reading: Reading<'_>,
) -> Result<bool> {
    if depth < DEPTH_MIN {
        return Ok(false);
    }
    let small = each(workers, sources_keys.len(), |place| match sources_keys.get(place) {
        Some(of) if is_small(of) => all_keys(of, reading).map(|keys| Some(some_of(keys))),
        _ => Ok(None),
    })?;
    let mut is_any = false;
    for (of, samples) in sources_keys.iter_mut().zip(small) {
        if let Some(samples) = samples {
            (of.known, of.samples, is_any) = (Known::Spread, samples, true);
        }
    }
    Ok(is_any)
}

/// Counts the rows of sources with samples that lie before each of `cuts`.
pub(super) fn count(
    sources_keys: &[SourceKeys],
    cuts: &mut [OutputCut],
    workers: &dyn Workers,
    reading: Reading<'_>,
) -> Result<()> {
    let places: Vec<usize> = sources_keys
        .iter()
        .enumerate()
        .filter_map(|(place, of)| (of.known == Known::Spread).then_some(place))
        .collect();
    for places in places.chunks(COUNTED) {
        let unknown = |cut: &OutputCut, place: usize| {
            let at = cut.rows.binary_search_by_key(&place, |(place, _)| *place).ok()?;
            let (least, most) = cut.rows.get(at)?.1;
            (least < most).then_some(at)
        };
        let counted = each(workers, places.len(), |i| {
            let place = places[i];
            let mut keys = None;
            let mut counts = Vec::new();
            for (index, cut) in cuts.iter().enumerate() {
                let (Some(at), Some(key)) = (unknown(cut, place), &cut.key) else { continue };
                let keys = match &mut keys {
                    Some(keys) => keys,
                    none => {
                        let of = &sources_keys[place];
                        none.insert(SourceKeys {
                            source: of.source.clone(),
                            known: Known::Spread,
                            samples: all_keys(of, reading)?,
                        })
                    }
                };
                counts.push((index, at, keys.before(key, Edge::Below)));
            }
            Ok(counts)
        })?;
        for (index, at, count) in counted.into_iter().flatten() {
            if let Some(rows) = cuts.get_mut(index).and_then(|cut| cut.rows.get_mut(at)) {
                rows.1 = count;
            }
        }
    }
    Ok(())
}

fn is_small(of: &SourceKeys) -> bool {
    of.known == Known::Ends && of.rows() > PARTS && of.rows() <= ROWS_MAX
}

fn all_keys(of: &SourceKeys, reading: Reading<'_>) -> Result<KeySamples> {
    reading.context.check_cancelled()?;
    let source = of.source.clone();
    let mut all = SourceKeys { source, known: Known::Ends, samples: KeySamples::default() };
    all.read(0..of.rows(), reading)?;
    Ok(all.samples)
}

fn some_of(keys: KeySamples) -> KeySamples {
    if keys.len() < KEPT_MAX {
        return keys;
    }
    let last = keys.len().saturating_sub(1);
    let parts = PARTS as usize;
    let kept: Vec<_> = (0..=parts).filter_map(|i| keys.get(last * i / parts)).collect();
    KeySamples::of(&kept)
}
