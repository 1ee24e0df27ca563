//! Unites the dictionaries of all chunks that a window takes rows of.
//!
//! ```text
//! chunks of the window ─ dictionary pages only ─▶ union ─▶ a remap each
//!    the source with most rows goes first: its ids stay, and so can its pages
//! ```
//!
//! # Invariants
//! Decided before the first page is read, from footers and dictionary pages, so that the dictionary
//! can be written in front.
//!
//! # Cost
//! Every dictionary is unpacked once a window, one at a time.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use parquet::basic::Encoding;
use plait_core::Result;
use plait_core::SourceId;
use plait_core::packed_runs::{PackedRuns, Taken};

use super::context::{WeaveContext, source_of};
use super::cursors::SourceCursors;
use super::unions::{Cached, UnionOutcome};
use crate::block::dictionary::{Remap, Union};
use crate::block::reader::OwnDictionary;
use crate::block::{Layout, reader};
use crate::encode::ids::Ids;
use crate::leaf::OutputLeaf;
use crate::page::hybrid::width_of;
use crate::page::{Locations, PageLoc, Pages};
use crate::properties::has_paying_dictionary;
use crate::runtime::MemoryStage;
use crate::schema::LeafAdapter;
use crate::source::Source;

/// Dictionaries larger than this are not written: every reader of the chunk holds them.
const DICTIONARY_BYTES_MAX: usize = 4 << 20;

/// A dictionary should be used: with fewer rows than this many a value, values are hashed instead,
/// so that those which do not occur are left out.
const ROWS_PER_VALUE_MIN: u64 = 2;

/// Numbers are short, and pack well without: a dictionary of them pays only when they come again
/// and again.
const ROWS_PER_NUMBER_MIN: u64 = 16;

/// A stretch shorter than this has too few whole pages to keep a dictionary for.
const OWNER_ROWS_MIN: u64 = 4096;

/// Unites the dictionaries of the rows of `steps`, for so many chunks, each of which has the result in
/// front.
pub(super) fn unite(
    weaving: &WeaveContext,
    output: &OutputLeaf,
    steps: &PackedRuns,
    written: usize,
) -> Result<UnionOutcome> {
    let Some(chunks) = chunks(weaving, output, steps)? else {
        return Ok(UnionOutcome::IsIncomplete);
    };
    let names: Vec<_> = chunks.iter().map(|chunk| (chunk.source.id, chunk.group)).collect();
    // Whether it pays depends on rows, about: the outcome must not depend on what is cached.
    let rows = steps.rows() / written.max(1) as u64;
    let rows = 1 << rows.max(1).ilog2();
    if let Some(known) = weaving.unions.get(output.index, &names, rows) {
        return Ok(known);
    }
    let united = unite_chunks(weaving, output, chunks, rows)?;
    let cached = Cached { chunks: names, rows, united: united.clone() };
    let bytes_max = weaving.context.budget().bytes(MemoryStage::DictionaryUnions);
    weaving.unions.put(output.index, cached, bytes_max);
    Ok(united)
}

/// The dictionary of the chunk that most rows come from, if its source is one of those whose pages
/// may be kept and it has one: its values need not be complete.
pub(super) fn of_owner(
    weaving: &WeaveContext,
    output: &OutputLeaf,
    steps: &PackedRuns,
    splices: &[bool],
    cursors: &mut SourceCursors,
) -> Result<Option<(Arc<reader::United>, Arc<Ids>)>> {
    let most = steps.taken().max_by_key(|t| (t.end - t.start, Reverse(t.source)));
    // The dictionary page stays as it is too: in another codec, nobody could read it.
    let may_splice = |t: &Taken| splices.get(t.source.index()).copied().unwrap_or(false);
    let Some(taken) = most.filter(may_splice).filter(|t| 2 * (t.end - t.start) > steps.rows())
    else {
        return Ok(None);
    };
    let source = source_of(weaving, taken.source)?;
    let Ok(LeafAdapter::Same { leaf, levels }) = output.adapter(taken.source) else {
        return Ok(None);
    };
    if !levels.is_identity() || taken.end - taken.start < OWNER_ROWS_MIN {
        return Ok(None);
    }
    let (group, _) = source.row_group_of(taken.start + (taken.end - taken.start) / 2);
    let locations = weaving.cache.find(source, group, *leaf, &weaving.context)?;
    if locations.dictionary.is_none() || !locations.are_row_aligned() {
        return Ok(None);
    }
    let layout = Layout::of(&output.descr);
    // Pages of ids come first in a chunk. They must hold most of the dictionary's values, or it
    // would be larger than what it saves.
    let start = taken.start.saturating_sub(source.row_group_start(group));
    let end = taken.end - source.row_group_start(group);
    let whole = |page: &&PageLoc| page.first_row >= start && page.first_row + page.rows <= end;
    let Some(first) = locations.pages.iter().find(whole).copied() else { return Ok(None) };
    let open =
        |row| Pages::open(source, group, *leaf, row, &weaving.context, Arc::clone(&locations));
    let (mut pages, _) = open(first.first_row)?;
    pages.leave_dictionary();
    if !is_ids(&mut pages)? {
        return Ok(None);
    }
    let Some(stored) = pages.stored_dictionary()? else { return Ok(None) };
    let place = (source.id, group);
    let dictionary = match cursors.dictionary(place) {
        Some(dictionary) => dictionary,
        None => {
            let page = pages.unpack_stored(&stored)?;
            let Some(values) = reader::into_dictionary(&pages, page, layout)?.values else {
                return Ok(None);
            };
            cursors.keep_dictionary(OwnDictionary { place, values: Arc::clone(&values) });
            values
        }
    };
    let values = dictionary.len() as u64;
    let enough = first.first_row + values - values / 4;
    if let Some(last) = locations.pages.iter().find(|page| page.first_row + page.rows >= enough) {
        let (mut pages, _) = open(last.first_row)?;
        pages.leave_dictionary();
        if !whole(&last) || !is_ids(&mut pages)? {
            return Ok(None);
        }
    }
    let remaps = BTreeMap::from([(place, Remap::identity(dictionary.len()))]);
    let ids = Ids::new(Arc::clone(&dictionary), Some(stored));
    let mut united = reader::United { dictionary, remaps, charge: None };
    let charge = weaving.context.charge(united.memory_size() + ids.memory_size());
    united.charge = Some(charge);
    Ok(Some((Arc::new(united), Arc::new(ids))))
}

/// Whether the next page refers to a dictionary.
fn is_ids(pages: &mut Pages) -> Result<bool> {
    let encoding = pages.next_in_place()?.and_then(|page| page.header.data_encoding());
    Ok(matches!(encoding, Some(Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY)))
}

/// A column chunk with a dictionary.
struct DictionaryChunk {
    source: Arc<Source>,
    group: usize,
    leaf: usize,
    locations: Arc<Locations>,
}

/// The chunks whose rows the window takes, in the order in which their dictionaries are united;
/// `None` when one has values outside of its dictionary.
fn chunks(
    weaving: &WeaveContext,
    output: &OutputLeaf,
    steps: &PackedRuns,
) -> Result<Option<Vec<DictionaryChunk>>> {
    let mut taken: Vec<_> = steps.taken().collect();
    let most = taken.iter().map(|t| t.end - t.start).max().unwrap_or(0);
    if 2 * most > steps.rows() {
        // Most rows come from one source: its ids, and so its pages, should stay what they are.
        taken.sort_by_key(|t| (Reverse(t.end - t.start), t.source));
    }
    let mut chunks = Vec::new();
    if taken.iter().any(|taken| taken.source.index() >= weaving.sources.len()) {
        return Ok(None); // values that were made are in no dictionary
    }
    for taken in &taken {
        let source = source_of(weaving, taken.source)?;
        let leaf = match output.adapter(taken.source)? {
            LeafAdapter::Same { leaf, .. } => *leaf,
            LeafAdapter::Cast { .. } => return Ok(None),
            LeafAdapter::Missing { .. } => continue, // no values
        };
        let (first, _) = source.row_group_of(taken.start);
        for group in first..source.num_row_groups() {
            if source.row_group_start(group) >= taken.end {
                break;
            }
            if source.row_group_rows(group) == 0 {
                continue;
            }
            let chunk = source.chunk(group, leaf)?;
            let locations = weaving.cache.find(source, group, leaf, &weaving.context)?;
            let nulls = chunk.statistics().and_then(|s| s.null_count_opt());
            let has_values = nulls != Some(chunk.num_values().max(0).unsigned_abs());
            match locations.dictionary {
                None if !has_values => continue,
                Some(_) if has_paying_dictionary(&chunk) && locations.are_row_aligned() => {}
                _ => return Ok(None),
            }
            chunks.push(DictionaryChunk { source: Arc::clone(source), group, leaf, locations });
        }
    }
    Ok(Some(chunks))
}

fn unite_chunks(
    weaving: &WeaveContext,
    output: &OutputLeaf,
    chunks: Vec<DictionaryChunk>,
    rows: u64,
) -> Result<UnionOutcome> {
    let layout = Layout::of(&output.descr);
    let per_value = match layout {
        Layout::Fixed(width) if width <= size_of::<u64>() => ROWS_PER_NUMBER_MIN,
        _ => ROWS_PER_VALUE_MIN,
    };
    let is_number = per_value == ROWS_PER_NUMBER_MIN;
    let mut union = Union::new(layout);
    let mut charge = weaving.context.charge(0);
    let mut remaps: BTreeMap<(SourceId, usize), Remap> = BTreeMap::new();
    let mut remaps_size = 0;
    for DictionaryChunk { source, group, leaf, locations } in chunks {
        weaving.context.check_cancelled()?;
        let (mut pages, _) = Pages::open(&source, group, leaf, 0, &weaving.context, locations)?;
        pages.leave_dictionary(); // and read nothing ahead
        let dictionary = reader::read_dictionary(&mut pages, layout)?;
        let Some(values) = dictionary.values else { return Ok(UnionOutcome::IsIncomplete) };
        let remap = union.add(&values)?;
        remaps_size += remap.memory_size();
        remaps.insert((source.id, group), remap);
        charge.set(union.memory_size() + remaps_size);
        let is_rare = union.len() as u64 * per_value > rows;
        match is_rare {
            true if is_number => return Ok(UnionOutcome::IsTooLarge),
            true => return Ok(UnionOutcome::IsIncomplete),
            false if union.byte_len() > DICTIONARY_BYTES_MAX => {
                return Ok(UnionOutcome::IsTooLarge);
            }
            false => {}
        }
    }
    if union.is_empty() {
        return Ok(UnionOutcome::IsTooLarge); // no values at all: readers want a dictionary behind ids
    }
    let (bytes, values) = (union.byte_len() as u64, union.len() as u64);
    let id_bits = u64::from(width_of(union.len().saturating_sub(1) as u32));
    let plain = rows.saturating_mul(bytes) / values.max(1);
    if bytes + rows * id_bits / 8 > plain {
        return Ok(UnionOutcome::IsTooLarge);
    }
    let dictionary = union.finish()?;
    let ids = Ids::new(Arc::clone(&dictionary), None);
    charge.set(dictionary.memory_size() + ids.memory_size() + remaps_size);
    let united = reader::United { dictionary, remaps, charge: Some(charge) };
    Ok(UnionOutcome::Pays(Arc::new(united), Arc::new(ids)))
}
