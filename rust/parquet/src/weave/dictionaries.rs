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

use plait_core::Result;
use plait_core::run::SourceId;

use super::{Loom, Steps, source_of};
use crate::block::dictionary::Union;
use crate::block::{Layout, reader};
use crate::leaf::OutputLeaf;
use crate::page::Pages;
use crate::page::hybrid::width_of;
use crate::properties::has_paying_dictionary;
use crate::schema::LeafAdapter;

/// Dictionaries larger than this are not written: every reader of the chunk holds them.
const DICTIONARY_BYTES_MAX: usize = 4 << 20;

/// A dictionary should be used: with fewer rows than this many a value, values are hashed instead,
/// so that those which do not occur are left out.
const ROWS_PER_VALUE_MIN: u64 = 2;

/// What came of it.
pub(super) enum United {
    /// One dictionary that is smaller than the values it stands for.
    Pays(Arc<reader::United>),
    /// Plain values are smaller.
    IsTooLarge,
    /// Some chunks have values that are in no dictionary.
    IsIncomplete,
}

pub(super) fn unite(loom: &Loom, output: &OutputLeaf, steps: &Steps) -> Result<United> {
    let mut taken: Vec<_> = steps.taken().to_vec();
    taken.sort_by_key(|t| (Reverse(t.end - t.start), t.source));
    let layout = Layout::of(&output.descr);
    let mut chunks = Vec::new();
    for taken in &taken {
        let source = source_of(loom, taken.source)?;
        let leaf = match output.adapter(taken.source)? {
            LeafAdapter::Same { leaf, .. } => *leaf,
            LeafAdapter::Cast { .. } => return Ok(United::IsIncomplete),
            LeafAdapter::Missing { .. } => continue, // no values
        };
        let (first, _) = source.row_group_of(taken.start);
        for group in first..source.meta.num_row_groups() {
            if source.row_group_start(group) >= taken.end {
                break;
            }
            if source.row_group_rows(group) == 0 {
                continue;
            }
            let chunk = source.chunk(group, leaf)?;
            let locations = loom.cache.find(source, group, leaf, &loom.context)?;
            let has_values = chunk.statistics().and_then(|s| s.null_count_opt())
                != Some(chunk.num_values().max(0).unsigned_abs());
            match locations.dictionary {
                None if !has_values => continue,
                Some(_) if has_paying_dictionary(chunk) && locations.are_row_aligned() => {}
                _ => return Ok(United::IsIncomplete),
            }
            chunks.push((Arc::clone(source), group, leaf, locations));
        }
    }
    let mut union = Union::new(layout);
    let mut charge = loom.context.charge(0);
    let mut remaps: BTreeMap<(SourceId, usize), _> = BTreeMap::new();
    for (source, group, leaf, locations) in chunks {
        loom.context.check_cancelled()?;
        let (mut pages, _) = Pages::open(&source, group, leaf, 0, &loom.context, locations)?;
        pages.leave_dictionary(); // and read nothing ahead
        let dictionary = reader::read_dictionary(&mut pages, layout)?;
        let Some(values) = dictionary.values else { return Ok(United::IsIncomplete) };
        let remap = union.add(&values)?;
        remaps.insert((source.id, group), remap);
        let entries: usize =
            remaps.values().map(crate::block::dictionary::Remap::memory_size).sum();
        charge.set(union.memory_size() + entries);
        if union.byte_len() > DICTIONARY_BYTES_MAX {
            return Ok(United::IsTooLarge);
        }
    }
    let (rows, values) = (steps.rows(), union.len() as u64);
    if values * ROWS_PER_VALUE_MIN > rows {
        return Ok(United::IsIncomplete);
    }
    let bytes = union.byte_len() as u64;
    let id_bits = u64::from(width_of(union.len().saturating_sub(1) as u32));
    let plain = rows.saturating_mul(bytes) / values.max(1);
    if bytes + rows * id_bits / 8 > plain && values > 0 {
        return Ok(United::IsTooLarge);
    }
    let dictionary = union.finish()?;
    Ok(United::Pays(Arc::new(reader::United { dictionary, remaps, charge: Some(charge) })))
}
