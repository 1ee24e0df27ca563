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
use super::prepare::{Group, Prepared, prepare_group};
use super::run;
use crate::options::MergeOptions;
use crate::output::TempFile;
use crate::plan::{LEAVES_AT_ONCE, sources_at_once};
use crate::sort::temp_options;
use crate::source::Source;

/// Sources that were merged in groups.
pub(super) struct Narrowed<'a> {
    /// What is left to merge.
    pub(super) prepared: Prepared<'a>,
    /// How many sources were merged in groups, and how many may be open at once.
    pub(super) sources: usize,
    pub(super) at_once: usize,
    _temps: Vec<TempFile>,
}

/// Merges sources in groups if a page of each of them would not fit in memory.
pub(super) fn narrow<'a>(
    prepared: &Prepared<'a>,
    attempt: &mut Attempt<'_>,
) -> Result<Option<Narrowed<'a>>, Stopped> {
    if prepared.order().is_empty() {
        return Ok(None); // one source after the other
    }
    let sources = &prepared.sources;
    let at_once =
        sources_at_once(sources, &prepared.leaves, &prepared.keys.leaves, attempt.options.budget());
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
    type Place = (usize, Arc<Source>, Range<u64>);
    let mut places: Vec<Place> = sources
        .iter()
        .zip(&prepared.rows)
        .enumerate()
        .filter(|(i, _)| !member[*i])
        .map(|(i, (source, rows))| (i, Arc::clone(source), rows.clone()))
        .collect();
    for group in members.chunks(group_len) {
        attempt.context.check_cancelled()?;
        let part = group_options(prepared, groups, attempt.options);
        let group_sources = renumbered(group.iter().map(|i| &prepared.sources[*i]));
        let rows: Vec<_> = group.iter().map(|i| prepared.rows[*i].clone()).collect();
        let temp = merge_group(prepared, group_sources, &rows, attempt.with_options(&part))?;
        let source = Source::open_scratch(&temp)?;
        let rows = 0..source.rows();
        places.push((group.first().copied().unwrap_or(0), source, rows));
        temps.push(temp);
    }
    places.sort_by_key(|place| place.0);
    let sources = renumbered(places.iter().map(|(_, source, _)| source));
    let rows: Vec<_> = places.into_iter().map(|(.., rows)| rows).collect();
    let group = Group { sources, rows: &rows, output: prepared.output };
    let narrowed = prepare_group(prepared.frame, group, attempt)?;
    Ok(Some(Narrowed { prepared: narrowed, sources: members.len(), at_once, _temps: temps }))
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

fn merge_group(
    parent: &Prepared<'_>,
    sources: Arc<Vec<Arc<Source>>>,
    rows: &[Range<u64>],
    mut attempt: Attempt<'_>,
) -> Result<TempFile, Stopped> {
    let group = Group { sources, rows, output: None };
    let prepared = prepare_group(parent.frame, group, &attempt)?;
    let made = run::run(&prepared, &mut attempt)
        .map_err(|error| Stopped { is_broken: prepared.has_broken_ranks(), ..error.into() })?;
    let first = made.outputs.into_iter().next().map(|finished| finished.temp);
    first.ok_or_else(|| Error::new(Kind::Internal, "a group of sources made no file").into())
}
