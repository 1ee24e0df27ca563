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

use std::sync::Arc;

use plait_core::run::SourceId;
use plait_core::{Error, Kind, Result};

use super::prepare::{Origin, Prepared, Shared, prepare_from};
use super::{Stopped, run};
use crate::context::Context;
use crate::leaf::OutputLeaf;
use crate::options::{IfExists, MergeOptions, OnDuplicateOption};
use crate::report::Times;
use crate::schema::LeafAdapter;
use crate::source::Source;
use crate::store;
use crate::target::TempFile;

/// The unpacked size of a page where nothing smaller is known: what most writers aim at.
const PAGE_BYTES: u64 = 1_250_000;

/// What a lane takes besides its page.
const LANE_BYTES: u64 = 16 << 10;

/// Leaves that are woven at the same time when sources are counted. More threads weave more, as far
/// as memory allows.
const LEAVES_AT_ONCE: usize = 2;

/// The share of the limit that pages of all sources may take.
const PAGES_SHARE: u64 = 2;

/// Pages of temp files are not smaller: their headers and indexes would be most of them.
const PAGE_BYTES_MIN: u64 = 8 << 10;

/// Sources that were merged in groups.
pub(super) struct Narrowed {
    /// What is left to merge.
    pub(super) prepared: Prepared,
    /// How many sources were merged in groups, and how many may be open at once.
    pub(super) sources: usize,
    pub(super) at_once: usize,
    _temps: Vec<TempFile>,
}

/// Merges sources in groups if a page of each of them would not fit in memory.
pub(super) fn narrow(
    prepared: &Prepared,
    options: &MergeOptions,
    context: &Context,
    with_ranks: bool,
    times: &mut Times,
) -> Result<Option<Narrowed>, Stopped> {
    if prepared.order.is_empty() {
        return Ok(None); // one source after the other
    }
    let at_once = sources_at_once(prepared, options.memory_limit);
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
    let mut places: Vec<(usize, Arc<Source>)> = prepared
        .sources
        .iter()
        .enumerate()
        .filter(|(i, _)| !member[*i])
        .map(|(i, source)| (i, Arc::clone(source)))
        .collect();
    for group in members.chunks(group_len) {
        context.check_cancelled()?;
        let part = group_options(prepared, groups, options);
        let sources = renumbered(group.iter().map(|i| Arc::clone(&prepared.sources[*i])))?;
        let temp = merge_group(prepared, sources, &part, context, with_ranks, times)?;
        let path = temp.local_path().map(|path| path.display().to_string());
        let store = store::open(&path.unwrap_or_default())?;
        let source = Source::open(SourceId(0), store)?;
        places.push((group.first().copied().unwrap_or(0), Arc::new(source)));
        temps.push(temp);
    }
    places.sort_by_key(|(place, _)| *place);
    let sources = renumbered(places.into_iter().map(|(_, source)| source))?;
    let shared = Shared { parent: prepared, keeps_properties: true };
    let mut narrowed = prepare_from(options, sources, Origin::Some(&shared), context, with_ranks)?;
    if narrowed.reconciled.schema != prepared.reconciled.schema {
        return Err(Error::new(Kind::Internal, "groups of sources have another schema than all")
            .with_hint("please report this; a larger memory_limit merges without groups")
            .into());
    }
    narrowed.task.clone_from(&prepared.task);
    narrowed.merge_level = prepared.merge_level;
    Ok(Some(Narrowed { prepared: narrowed, sources: members.len(), at_once, _temps: temps }))
}

fn renumbered(sources: impl Iterator<Item = Arc<Source>>) -> Result<Arc<Vec<Arc<Source>>>> {
    let renumber = |(i, source): (usize, Arc<Source>)| {
        let id = SourceId(u32::try_from(i).unwrap_or(u32::MAX));
        match source.id == id {
            true => Ok(source),
            false => Source::open(id, Arc::clone(&source.store)).map(Arc::new),
        }
    };
    sources.enumerate().map(renumber).collect::<Result<Vec<_>>>().map(Arc::new)
}

/// Options of the merge of a group into a temp file.
fn group_options(prepared: &Prepared, groups: usize, options: &MergeOptions) -> MergeOptions {
    // All groups are open at once in the end: a page of each must fit then.
    let lanes = groups * (LEAVES_AT_ONCE + prepared.keys.leaves.len());
    let page_size = (options.memory_limit / (2 * PAGES_SHARE) / lanes as u64)
        .clamp(PAGE_BYTES_MIN, options.page_size.max(PAGE_BYTES_MIN));
    let share = page_size as f64 / options.page_size.max(1) as f64;
    let page_rows = (options.page_rows as f64 * share.min(1.0)).max(64.0) as u64;
    MergeOptions {
        sources: Vec::new(),
        sort_by: Some(prepared.order.to_string()),
        outputs: None,
        target_file_size: None,
        target_rows: None,
        cut_on: None,
        align_row_groups: 0,
        page_size,
        page_rows,
        compression: Some("lz4".into()),
        data_page_version: Some(1),
        on_duplicate: OnDuplicateOption::KeepAll,
        version_by: None,
        delete_where: None,
        keep_tombstones: false,
        drop_where: None,
        verify: None,
        sha256: false,
        if_exists: IfExists::Add,
        empty_output: true,
        ..options.clone()
    }
}

fn merge_group(
    parent: &Prepared,
    sources: Arc<Vec<Arc<Source>>>,
    part: &MergeOptions,
    context: &Context,
    with_ranks: bool,
    times: &mut Times,
) -> Result<TempFile, Stopped> {
    let shared = Shared { parent, keeps_properties: false };
    let mut prepared = prepare_from(part, sources, Origin::Some(&shared), context, with_ranks)?;
    prepared.is_scratch = true;
    let made = run::run(&prepared, part, context, times)
        .map_err(|error| Stopped { error, is_broken: prepared.has_broken_ranks() })?;
    let first = made.outputs.into_iter().next().map(|finished| finished.temp);
    first.ok_or_else(|| Error::new(Kind::Internal, "a group of sources made no file").into())
}

/// Bytes of a page of a leaf of `source`, about.
fn page_bytes(source: &Source, leaf: &OutputLeaf) -> Option<u64> {
    let index = leaf.adapter(source.id).ok().and_then(LeafAdapter::leaf)?;
    let groups = source.meta.row_groups().iter();
    let largest = groups.map(|g| g.column(index).uncompressed_size()).max()?;
    Some(largest.max(0).unsigned_abs().min(PAGE_BYTES) + LANE_BYTES)
}

/// Bytes of a dictionary of a leaf of `source`, about; writers give up dictionaries that outgrow
/// a page.
fn dictionary_bytes(source: &Source, leaf: &OutputLeaf) -> Option<u64> {
    let index = leaf.adapter(source.id).ok().and_then(LeafAdapter::leaf)?;
    let chunks = source.meta.row_groups().iter().map(|g| g.column(index));
    let with_one = chunks.filter(|chunk| chunk.dictionary_page_offset().is_some());
    let largest = with_one.map(|chunk| chunk.uncompressed_size()).max()?;
    Some(largest.max(0).unsigned_abs().min(PAGE_BYTES))
}

/// Most bytes that a leaf of one source holds while it is woven, about.
pub(super) fn largest_lane(prepared: &Prepared, leaf: &OutputLeaf) -> u64 {
    let of = |source: &Arc<Source>| {
        Some(page_bytes(source, leaf)? + dictionary_bytes(source, leaf).unwrap_or(0))
    };
    prepared.sources.iter().filter_map(of).max().unwrap_or(0)
}

/// How many overlapping sources may be open at once.
fn sources_at_once(prepared: &Prepared, limit: u64) -> usize {
    let count = prepared.sources.iter().filter(|source| source.rows() > 0).count().max(1) as u64;
    let of_leaf = |leaf: &OutputLeaf| -> u64 {
        prepared.sources.iter().filter_map(|source| page_bytes(source, leaf)).sum()
    };
    let mut leaves: Vec<u64> = prepared.leaves.iter().map(of_leaf).collect();
    leaves.sort_unstable_by(|a, b| b.cmp(a));
    let woven: u64 = leaves.iter().take(LEAVES_AT_ONCE).sum();
    let keys: u64 = prepared.keys.leaves.iter().map(of_leaf).sum();
    let each = ((woven + keys) / count).max(1);
    usize::try_from(limit / PAGES_SHARE / each).unwrap_or(usize::MAX).max(2)
}
