//! Finds ranks: from dictionary pages and from what footers tell.
//!
//! # Invariants
//! What is found depends on the files, their order and the memory limit; never on hashes.
//!
//! # Not here
//! Looking values up (`RankBook`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use plait_core::Result;
use plait_core::SourceId;
use plait_core::key::{KeyBytes, KeyShape, KeyType, RankOf, Ranks, numbers};

use super::kept::kept_as_keys_take_it;
use crate::block::Layout;
use crate::block::decode::is_ids;
use crate::block::dictionary::Union;
use crate::block::reader::read_dictionary;
use crate::leaf::{LocationCache, OutputLeaf};
use crate::page::header::PageKind;
use crate::page::{Locations, Pages};
use crate::properties::has_paying_dictionary;
use crate::runtime::{Charge, Context, MemoryStage};
use crate::schema::LeafAdapter;
use crate::source::Source;

/// With fewer rows than this many a dictionary entry, ranks cost what they save.
const ROWS_PER_ENTRY_MIN: u64 = 2;

/// With fewer rows than this many a dictionary, reading it from afar takes longer than it saves.
const ROWS_PER_FAR_READ_MIN: u64 = 50_000;

/// Keys of this many bytes are merged fastest.
const SHORT_BYTES: usize = 12;

/// The union's id, later the rank, of each id of a chunk's dictionary.
type Drafts = BTreeMap<(SourceId, usize), Vec<u32>>;

/// By source and row group: a rank for each id of the chunk's dictionary.
pub(super) type Tables = BTreeMap<(SourceId, usize), Arc<[u32]>>;

/// What ranks may stand for, and whether null needs one.
type Of = (RankOf, bool);

/// A chunk with a dictionary.
struct Coded<'a> {
    source: &'a Arc<Source>,
    group: usize,
    leaf: usize,
    locations: Arc<Locations>,
}

pub(super) struct Search<'a> {
    sources: &'a [Arc<Source>],
    /// The rows of each source that are merged.
    ranges: &'a [Range<u64>],
    cache: &'a LocationCache,
    context: &'a Context,
    rows: u64,
    /// Bytes of all that was found.
    held: usize,
    charge: Charge,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        sources: &'a [Arc<Source>],
        ranges: &'a [Range<u64>],
        cache: &'a LocationCache,
        context: &'a Context,
    ) -> Self {
        let rows = ranges.iter().map(|rows| rows.end - rows.start).sum();
        Self { sources, ranges, cache, context, rows, held: 0, charge: context.charge(0) }
    }

    /// Row groups of `source` with rows that are merged.
    fn groups(&self, source: &Source) -> Range<usize> {
        match self.ranges.get(source.id.index()) {
            Some(rows) if !rows.is_empty() => {
                source.row_group_of(rows.start).0..source.row_group_of(rows.end - 1).0 + 1
            }
            _ => 0..0,
        }
    }

    /// Accounts for what was found.
    pub(super) fn into_charge(self) -> Charge {
        self.charge
    }

    /// Ranks and tables of the key columns, if any of them gets ranks.
    pub(super) fn find(
        &mut self,
        shape: &KeyShape,
        leaves: &[OutputLeaf],
    ) -> Result<Option<(Ranks, Vec<Tables>)>> {
        let mut drafts = Vec::new();
        // More and more is asked of footers: strings become ranks; numbers lose their marker;
        // numbers become distances.
        let (mut strings, mut unmarked, mut narrow) = (Vec::new(), Vec::new(), Vec::new());
        for (i, (column, leaf)) in shape.columns().iter().zip(leaves).enumerate() {
            let stored: Of = (RankOf::Stored, true);
            let mut draft = Drafts::new();
            if i >= shape.plain().len() {
                // No ranks, but marks and bytes of the index that are not needed.
                let (whole, part) = self.numbers(leaf, column.ty)?;
                let unbounded: Of = (RankOf::Stored, whole.is_none());
                strings.push(stored);
                narrow.push(part.unwrap_or_else(|| unbounded.clone()));
                unmarked.push(unbounded);
            } else if let KeyType::Bytes { .. } = column.ty {
                let mut of = stored;
                if let Some((values, tables)) = self.unite(leaf, column.ty)? {
                    of = (RankOf::Values(Arc::new(values)), leaf.descr.max_def_level() > 0);
                    draft = tables;
                }
                strings.push(of.clone());
                unmarked.push(of.clone());
                narrow.push(of);
            } else {
                let (whole, part) = self.numbers(leaf, column.ty)?;
                let whole = whole.unwrap_or_else(|| stored.clone());
                strings.push(stored);
                narrow.push(part.unwrap_or_else(|| whole.clone()));
                unmarked.push(whole);
            }
            drafts.push(draft);
        }
        let mut candidates = Vec::new();
        for columns in [strings, unmarked, narrow] {
            candidates.push(Ranks::try_new(shape.clone(), columns)?);
        }
        let is_short = |r: &Ranks| r.shape().fixed_width().is_some_and(|w| w <= SHORT_BYTES);
        let best = candidates
            .iter()
            .position(is_short)
            .or_else(|| candidates.iter().position(|r| r.shape().packs()))
            .unwrap_or(0);
        let ranks = candidates.swap_remove(best);
        if ranks.shape() == shape {
            return Ok(None);
        }
        let tables = drafts.into_iter().enumerate().map(|(i, draft)| {
            let first = ranks.first(i) as u32;
            let moved = |ids: Vec<u32>| ids.into_iter().map(|rank| rank + first).collect();
            draft.into_iter().map(|(chunk, ids)| (chunk, moved(ids))).collect()
        });
        let tables = tables.collect();
        Ok(Some((ranks, tables)))
    }

    /// All values of a column that is in dictionaries, sorted, and the rank of each id.
    fn unite(&mut self, leaf: &OutputLeaf, ty: KeyType) -> Result<Option<(KeyBytes, Drafts)>> {
        let Some(chunks) = self.coded(leaf, ty)? else { return Ok(None) };
        let room = (self.context.budget().bytes(MemoryStage::RankTables)).saturating_sub(self.held);
        let stored =
            |chunk: &Coded<'_>| chunk.locations.dictionary.map_or(0, |(_, len)| len as usize);
        if chunks.iter().map(stored).sum::<usize>() > room {
            return Ok(None);
        }
        let far = chunks.iter().filter(|chunk| !chunk.source.store.is_local()).count() as u64;
        if far.saturating_mul(ROWS_PER_FAR_READ_MIN) > self.rows {
            return Ok(None);
        }
        let mut union = Union::new(Layout::of(&leaf.descr));
        let mut drafts = Drafts::new();
        let mut entries = 0_usize;
        for chunk in chunks {
            self.context.check_cancelled()?;
            if !self.is_coded_to_the_end(&chunk)? {
                return Ok(None);
            }
            let Coded { source, group, leaf, locations } = chunk;
            let (mut pages, _) = Pages::open(source, group, leaf, 0, self.context, locations)?;
            pages.leave_dictionary(); // and read nothing ahead
            let layout = Layout::of(&source.leaf(leaf));
            let Some(values) = read_dictionary(&mut pages, layout)?.values else { return Ok(None) };
            let remap = union.add(&values)?;
            entries += values.len();
            let mut ids: Vec<u32> = (0..values.len() as u32).collect();
            remap.apply(&mut ids);
            drafts.insert((source.id, group), ids);
            // Until they are sorted, values are held twice.
            let bytes = 2 * union.memory_size() + size_of::<u32>() * entries;
            self.charge.set(self.held + bytes);
            if bytes > room || entries as u64 * ROWS_PER_ENTRY_MIN > self.rows {
                self.charge.set(self.held);
                return Ok(None);
            }
        }
        let dictionary = union.finish()?;
        let mut order: Vec<u32> = (0..dictionary.len() as u32).collect();
        order.sort_unstable_by_key(|id| dictionary.value(*id as usize));
        let mut sorted = KeyBytes::default();
        let mut ranks = vec![0; order.len()];
        for (rank, id) in order.iter().enumerate() {
            sorted.push(dictionary.value(*id as usize));
            ranks[*id as usize] = rank as u32;
        }
        for id in drafts.values_mut().flatten() {
            *id = ranks[*id as usize];
        }
        self.held += sorted.memory_size() + size_of::<u32>() * entries;
        self.charge.set(self.held);
        Ok(Some((sorted, drafts)))
    }

    /// The chunks of a column with values, if footers tell that all of these are in dictionaries.
    fn coded(&self, leaf: &OutputLeaf, ty: KeyType) -> Result<Option<Vec<Coded<'a>>>> {
        let mut chunks = Vec::new();
        for source in self.sources {
            let index = match kept_as_keys_take_it(source, leaf, ty)? {
                Some((index, _)) => index,
                None if is_missing(source, leaf)? => continue,
                None => return Ok(None),
            };
            for group in self.groups(source) {
                if source.row_group_rows(group) == 0 {
                    continue;
                }
                let chunk = source.chunk(group, index)?;
                if is_null(&chunk) {
                    continue;
                }
                if !has_paying_dictionary(&chunk) {
                    return Ok(None);
                }
                let locations = self.cache.find(source, group, index, self.context)?;
                if locations.dictionary.is_none() {
                    return Ok(None);
                }
                chunks.push(Coded { source, group, leaf: index, locations });
            }
        }
        Ok(Some(chunks))
    }

    /// Whether the last page holds ids, where the footer does not tell: a writer that gave up its
    /// dictionary does not go back to it.
    fn is_coded_to_the_end(&self, chunk: &Coded<'_>) -> Result<bool> {
        let meta = chunk.source.chunk(chunk.group, chunk.leaf)?;
        if meta.page_encoding_stats_mask().is_some() || meta.page_encoding_stats().is_some() {
            return Ok(true);
        }
        let last = chunk.source.row_group_rows(chunk.group).saturating_sub(1);
        let locations = Arc::clone(&chunk.locations);
        let (mut pages, _) =
            Pages::open(chunk.source, chunk.group, chunk.leaf, last, self.context, locations)?;
        let header = pages.next_stored()?.map(|stored| stored.header.kind);
        Ok(matches!(
            header,
            Some(PageKind::Data { encoding, .. } | PageKind::DataV2 { encoding, .. })
                if is_ids(encoding)
        ))
    }

    /// Ranks for a column of numbers: without marker, and as distances.
    fn numbers(&self, leaf: &OutputLeaf, ty: KeyType) -> Result<(Option<Of>, Option<Of>)> {
        let mut has_null = false;
        let mut range: Option<(u64, u64)> = None;
        let mut is_bounded = true;
        for source in self.sources.iter().filter(|source| !self.groups(source).is_empty()) {
            let index = match kept_as_keys_take_it(source, leaf, ty)? {
                Some((index, _)) => index,
                None if is_missing(source, leaf)? => {
                    has_null = true;
                    continue;
                }
                None => return Ok((None, None)),
            };
            for group in self.groups(source) {
                let chunk = source.chunk(group, index)?;
                if source.row_group_rows(group) == 0 {
                    continue;
                }
                let nulls = chunk.statistics().and_then(Statistics::null_count_opt);
                has_null |= chunk.column_descr().max_def_level() > 0 && nulls != Some(0);
                if is_null(&chunk) {
                    continue;
                }
                match bounds(&chunk, ty) {
                    Some((min, max)) => {
                        let (low, high) = range.unwrap_or((min, max));
                        range = Some((low.min(min), high.max(max)));
                    }
                    None => is_bounded = false,
                }
            }
        }
        let width = ty.width().unwrap_or(0) as u32;
        // No source may have rows that say so, but wider types have no such numbers.
        let Some(unused) = u64::BITS.checked_sub(8 * width) else { return Ok((None, None)) };
        let greatest = u64::MAX.checked_shr(unused).unwrap_or(0);
        let whole = (RankOf::Numbers { base: 0, span: greatest }, false);
        let part = range.filter(|_| is_bounded).and_then(|(base, high)| {
            let span = high - base;
            (span < u64::MAX).then_some((RankOf::Numbers { base, span }, has_null))
        });
        Ok(((!has_null).then_some(whole), part))
    }
}

fn is_missing(source: &Source, leaf: &OutputLeaf) -> Result<bool> {
    Ok(matches!(leaf.adapter(source.id)?, LeafAdapter::Missing { .. }))
}

/// Whether the footer says that there are only nulls.
fn is_null(chunk: &ColumnChunkMetaData) -> bool {
    let nulls = chunk.statistics().and_then(Statistics::null_count_opt);
    nulls.is_some_and(|nulls| Some(nulls) == u64::try_from(chunk.num_values()).ok())
}

/// The numbers of the smallest and the greatest value, if the footer tells.
fn bounds(chunk: &ColumnChunkMetaData, ty: KeyType) -> Option<(u64, u64)> {
    let is_integer =
        matches!(ty, KeyType::Int32 | KeyType::Int64 | KeyType::UInt32 | KeyType::UInt64);
    let statistics = chunk.statistics().filter(|s| is_integer && !s.is_min_max_deprecated())?;
    let mut both = Vec::new();
    for bytes in [statistics.min_bytes_opt()?, statistics.max_bytes_opt()?] {
        numbers(ty, bytes, &mut both).ok()?;
    }
    match both.as_slice() {
        [min, max] if min <= max => Some((*min, *max)),
        _ => None,
    }
}
