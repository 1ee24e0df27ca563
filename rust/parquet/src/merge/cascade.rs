//! Merges in two passes when memory does not allow all sources at once: neighbours first.
//!
//! ```text
//! sources   0 1 2 … 87 │ 88 … 175 │ 176 … 263       overlap, a page of each would not fit
//! groups    ▓▓▓▓▓▓▓▓▓▓▓ ▓▓▓▓▓▓▓▓▓▓ ▓▓▓▓▓▓▓▓▓▓▓       temp files with small pages
//! merge     └───────────────┴───────────┘           the same outputs as in one pass
//! ```
//!
//! # Invariants
//! Groups are neighbours in source order, so ties leave in source order. Sources that overlap few
//! others are left alone. Temp files have no visible name and go when the merge ends. How sources
//! are grouped depends on their footers and the memory limit, never on threads.
//!
//! # Cost
//! Rows of grouped sources are read and written twice; temp files take about as much disk as they.
//!
//! # Not here
//! The merge itself (`run`).

use std::ops::Range;
use std::sync::Arc;

use plait_core::SourceId;
use plait_core::{Error, Kind, Result};

use super::attempt::{Attempt, Stopped};
use super::mapped::{GroupRows, MapParts, Mapping, Origin};
use super::prepare::{Group, Prepared, prepare_group};
use super::run;
use crate::options::MergeOptions;
use crate::output::TempFile;
use crate::plan::{LEAVES_AT_ONCE, sources_at_once};
use crate::row_map::{FinishedMap, MapHeader};
use crate::sort::temp_options;
use crate::source::Source;

/// Sources that were merged in groups.
pub(super) struct Narrowed<'a> {
    /// What is left to merge.
    pub(super) prepared: Prepared<'a>,
    /// How many sources were merged in groups, and how many may be open at once.
    pub(super) sources: usize,
    pub(super) at_once: usize,
    /// What the rows of its sources are; none without a row map.
    pub(super) origins: Option<Vec<Origin>>,
    _temps: Vec<MergedGroup>,
}

/// Merges sources in groups if a page of each of them would not fit in memory.
pub(super) fn narrow<'a>(
    prepared: &Prepared<'a>,
    header: Option<&MapHeader>,
    attempt: &mut Attempt<'_>,
) -> Result<Option<Narrowed<'a>>, Stopped> {
    if prepared.order().is_empty() {
        return Ok(None); // one source after the other
    }
    let sources = &prepared.sources;
    let at_once = sources_at_once(
        sources,
        &prepared.leaves,
        &prepared.keys.leaves,
        attempt.options.budget(),
    )?;
    let mut member = vec![false; prepared.sources.len()];
    for region in prepared.regions.iter().filter(|region| region.depth_max > at_once) {
        for source in &region.sources {
            member[source.index()] = true;
        }
    }
    let members: Vec<usize> = (0..member.len()).filter(|i| member[*i]).collect();
    if members.len() <= at_once {
        return Ok(None);
    }
    let groups = members.len().div_ceil(at_once);
    let group_len = members.len().div_ceil(groups);
    let mut temps = Vec::new();
    let mut places: Vec<SecondPassSource> = sources
        .iter()
        .zip(&prepared.rows)
        .enumerate()
        .filter(|(i, _)| !member[*i])
        .map(|(at, (source, rows))| {
            let origin = Origin::Source(u32::try_from(at).unwrap_or(u32::MAX));
            SecondPassSource {
                at,
                source: Arc::clone(source),
                rows: rows.clone(),
                origin: Some(origin),
            }
        })
        .collect();
    for group in members.chunks(group_len) {
        attempt.context.check_cancelled()?;
        let part = group_options(prepared, groups, attempt.options);
        let parent = Parent { prepared, header, members: group };
        let made = merge_group(parent, attempt.with_options(&part))?;
        let source = Source::open_scratch(&made.temp)?;
        let rows = 0..source.rows();
        let map = made.map.as_ref().map(|map| GroupRows::open(map, attempt.context));
        let origin = map.transpose()?.map(|rows| Origin::Group(Box::new(rows)));
        places.push(SecondPassSource {
            at: group.first().copied().unwrap_or(0),
            source,
            rows,
            origin,
        });
        temps.push(made);
    }
    places.sort_by_key(|place| place.at);
    let sources = renumbered(places.iter().map(|place| &place.source));
    let rows: Vec<_> = places.iter().map(|place| place.rows.clone()).collect();
    let origins = places.into_iter().map(|place| place.origin).collect();
    let group = Group { sources, rows: &rows, output: prepared.output };
    let narrowed = prepare_group(prepared.frame, group, attempt)?;
    let sources = members.len();
    Ok(Some(Narrowed { prepared: narrowed, origins, sources, at_once, _temps: temps }))
}

/// A source of the second pass, and the first source of the merge that it is made of.
struct SecondPassSource {
    at: usize,
    source: Arc<Source>,
    rows: Range<u64>,
    /// None if there is no row map.
    origin: Option<Origin>,
}

/// A group that was merged, and its row map if there is one.
struct MergedGroup {
    temp: TempFile,
    map: Option<FinishedMap>,
}

/// What a group is of.
struct Parent<'a, 'f> {
    prepared: &'a Prepared<'f>,
    /// The row map of the merge, if there is one.
    header: Option<&'a MapHeader>,
    members: &'a [usize],
}

fn renumbered<'a>(sources: impl Iterator<Item = &'a Arc<Source>>) -> Arc<Vec<Arc<Source>>> {
    let renumber = |(i, source): (usize, &Arc<Source>)| {
        let id = SourceId(u32::try_from(i).unwrap_or(u32::MAX));
        if source.id == id { Arc::clone(source) } else { Arc::new(source.with_id(id)) }
    };
    Arc::new(sources.enumerate().map(renumber).collect())
}

/// Options of the merge of a group into a temp file.
fn group_options(prepared: &Prepared<'_>, groups: usize, options: &MergeOptions) -> MergeOptions {
    // All groups are open at once in the end: a page of each must fit then.
    let cursors = groups * (LEAVES_AT_ONCE + prepared.keys.leaves.len());
    temp_options(&prepared.order().to_string(), cursors, options)
}

fn merge_group(parent: Parent<'_, '_>, mut attempt: Attempt<'_>) -> Result<MergedGroup, Stopped> {
    let Parent { prepared: whole, header, members } = parent;
    let sources = renumbered(members.iter().map(|i| &whole.sources[*i]));
    let rows: Vec<_> = members.iter().map(|i| whole.rows[*i].clone()).collect();
    let group = Group { sources, rows: &rows, output: None };
    let prepared = prepare_group(whole.frame, group, &attempt)?;
    let mapping = header.map(|header| {
        let origins = members.iter().map(|i| Origin::Source(u32::try_from(*i).unwrap_or(u32::MAX)));
        let parts = MapParts {
            header: header.only(members),
            temp: prepared.create_map(attempt.context)?,
            origins: origins.collect(),
            context: attempt.context,
        };
        Mapping::begin(parts, &prepared)
    });
    let made = run::run(&prepared, mapping.transpose()?, &mut attempt)
        .map_err(|error| Stopped { is_broken: prepared.has_broken_ranks(), ..error.into() })?;
    let first = made.outputs.into_iter().next().map(|finished| finished.temp);
    let temp =
        first.ok_or_else(|| Error::new(Kind::Internal, "a group of sources made no file"))?;
    Ok(MergedGroup { temp, map: made.map })
}
