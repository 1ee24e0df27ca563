//! Bloom filters of chunks and the zone map of an output: what lets a reader leave files alone.
//!
//! ```text
//! options ─▶ FilterRequest a leaf ─▶ Observer a chunk ─▶ Seen ─┬─ bloom filter of the chunk
//!                          (encode, weave, sink)     └─ ZoneMap of the output ─▶ plait.zone_map
//! ```
//!
//! # Invariants
//! Exact or absent: a set has every value of the output, whichever tier moved it. Nothing is
//! observed that was not asked for, so a merge without these options costs nothing more.
//!
//! # Cost
//! Of leaves that are asked for: pages that are copied as they are get decoded too; row groups that
//! are copied whole are read a second time.
//!
//! # Not here
//! Filters that are copied with their chunk (`chunk`).

mod observer;
mod values;

use std::collections::BTreeMap;
use std::sync::Arc;

use parquet::basic::Type as Physical;
use plait_core::{Error, Kind, Result};
use serde_json::{Value, json};

pub(crate) use observer::{Observer, Seen};
pub(crate) use values::{ValueKind, ValueSet};

use crate::block::{BlockReader, Layout};
use crate::leaf::{LocationCache, OutputLeaf};
use crate::options::{BloomFilter, MergeOptions, covers};
use crate::runtime::Context;
use crate::source::{RowGroupOf, Source};

/// The footer entry.
pub(crate) const ZONE_MAP_ENTRY: &str = "plait.zone_map";

/// Version of the entry that is written and read.
const VERSION: u64 = 1;

/// What is asked of one leaf.
#[derive(Clone, Debug)]
pub(crate) struct FilterRequest {
    /// Its path with dots.
    pub path: String,
    /// Its type.
    pub physical: Physical,
    /// A bloom filter.
    pub bloom: Option<BloomFilter>,
    /// A set for its values, empty.
    pub values: Option<ValueSet>,
    /// About how many values a row has, at most.
    pub values_per_row: u64,
}

impl FilterRequest {
    /// Whether nothing is asked.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.bloom.is_none() && self.values.is_none()
    }
}

/// What `options` ask of each leaf; empty if nothing of any.
///
/// # Errors
/// [`Kind::UnknownColumn`] for a column that is not there, [`Kind::InvalidArgument`] for one of
/// which there can be no such thing.
pub(crate) fn asks(
    options: &MergeOptions,
    leaves: &[OutputLeaf],
    sources: &[Arc<Source>],
) -> Result<Vec<FilterRequest>> {
    check_names(options, leaves)?;
    if options.bloom_filters.is_empty() && options.value_sets.is_empty() {
        return Ok(Vec::new());
    }
    leaves.iter().map(|leaf| ask(options, leaf, sources)).collect()
}

fn ask(
    options: &MergeOptions,
    leaf: &OutputLeaf,
    sources: &[Arc<Source>],
) -> Result<FilterRequest> {
    let (path, physical) = (leaf.descr.path().string(), leaf.descr.physical_type());
    let refuse = |what: &str, hint: &str| {
        Err(Error::new(Kind::InvalidArgument, what)
            .with_column(&path)
            .with_got(physical.to_string())
            .with_hint(hint))
    };
    let bloom = options.bloom_filters.iter().find(|(name, _)| covers(name, &path));
    if bloom.is_some()
        && (physical == Physical::BOOLEAN || Layout::of(&leaf.descr) == Layout::Fixed(0))
    {
        return refuse("there are no bloom filters of this type", "leave the column out");
    }
    let listed = options.value_sets.iter().find(|(name, _)| covers(name, &path));
    let values = listed.and_then(|(_, most)| Some((ValueKind::of(&leaf.descr)?, *most)));
    if listed.is_some() && values.is_none() {
        return refuse(
            "there are no value sets of this type",
            "name columns of text, bytes, whole numbers, dates or booleans",
        );
    }
    let mut values_per_row = 1;
    for source in sources.iter().filter(|_| leaf.descr.max_rep_level() > 0) {
        let Some(index) = leaf.adapter(source.id)?.leaf() else { continue };
        for group in source.footer()?.row_groups().iter().filter(|group| group.num_rows() > 0) {
            let levels = group.columns().get(index).map_or(0, |chunk| chunk.num_values());
            let of_row = levels.unsigned_abs().div_ceil(group.num_rows().unsigned_abs());
            values_per_row = values_per_row.max(of_row);
        }
    }
    Ok(FilterRequest {
        path,
        physical,
        bloom: bloom.map(|(_, bloom)| *bloom),
        values: values.map(|(kind, most)| ValueSet::new(kind, most)),
        values_per_row,
    })
}

/// Every column that an option names must be there.
fn check_names(options: &MergeOptions, leaves: &[OutputLeaf]) -> Result<()> {
    let blooms = options.bloom_filters.keys().map(|name| ("bloom_filters", name));
    let sets = options.value_sets.keys().map(|name| ("value_sets", name));
    let levels = options.statistics.keys().filter(|name| *name != "*");
    for (option, name) in blooms.chain(sets).chain(levels.map(|name| ("statistics", name))) {
        if !leaves.iter().any(|leaf| covers(name, &leaf.descr.path().string())) {
            return Err(Error::new(
                Kind::UnknownColumn,
                format!("`{option}` names a column that is in no source"),
            )
            .with_column(name)
            .with_hint("give names of columns, or paths such as `a.b`"));
        }
    }
    Ok(())
}

/// Looks at the values of `leaf` in row group `row_group` of `source`; `None` if nothing is asked.
///
/// # Errors
/// Whatever is wrong with the source.
pub(crate) fn observe(
    ask: &FilterRequest,
    group: RowGroupOf<'_>,
    leaf: &OutputLeaf,
    cache: &Arc<LocationCache>,
    context: &Context,
) -> Result<Option<Seen>> {
    let RowGroupOf { source, index: row_group } = group;
    let rows = source.row_group_rows(row_group);
    let Some(mut observer) = Observer::new(ask, Layout::of(&leaf.descr), rows, context)? else {
        return Ok(None);
    };
    if let Some(index) = leaf.adapter(source.id)?.leaf() {
        let chunk = source.chunk(row_group, index)?;
        context.counters().add_total(chunk.compressed_size().max(0).unsigned_abs());
    }
    let start = source.row_group_start(row_group);
    let mut reader = BlockReader::open(source, leaf, start, None, cache, context)?;
    let mut left = rows;
    while left > 0 {
        context.check_cancelled()?;
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(BLOCK_ROWS);
        let Some((block, _)) = reader.next(wanted)? else { break };
        observer.block(&block);
        left = left.saturating_sub(block.rows as u64);
    }
    Ok(Some(observer.finish()))
}

/// Rows that are looked at at once where they do not come in pages.
const BLOCK_ROWS: usize = 1024;

/// The values of an output, by leaf.
#[derive(Default)]
pub(crate) struct ZoneMap(BTreeMap<usize, (String, ValueSet)>);

impl ZoneMap {
    /// Of an output without rows.
    #[must_use]
    pub(crate) fn new(asks: &[FilterRequest]) -> Self {
        let of = |(leaf, ask): (usize, &FilterRequest)| {
            Some((leaf, (ask.path.clone(), ask.values.clone()?)))
        };
        Self(asks.iter().enumerate().filter_map(of).collect())
    }

    /// Adds what was seen of a chunk of `leaf`.
    ///
    /// # Errors
    /// [`Kind::Internal`] if nobody looked.
    pub(crate) fn add(&mut self, leaf: usize, seen: Option<&ValueSet>) -> Result<()> {
        match (self.0.get_mut(&leaf), seen) {
            (None, _) => Ok(()),
            (Some((_, values)), Some(seen)) => {
                values.add_all(seen);
                Ok(())
            }
            (Some((path, _)), None) => {
                Err(Error::new(Kind::Internal, "the values of a chunk were not looked at")
                    .with_column(path.clone()))
            }
        }
    }

    /// The footer entry of an output of `rows` rows; `None` if nothing was asked.
    #[must_use]
    pub(crate) fn entry(&self, rows: u64) -> Option<String> {
        let columns: BTreeMap<&str, Value> =
            self.0.values().map(|(path, values)| (path.as_str(), values.to_json())).collect();
        (!columns.is_empty())
            .then(|| json!({ "version": VERSION, "rows": rows, "columns": columns }).to_string())
    }
}

/// The columns of the zone map of a file. `None` where there is none, or where it need not be that
/// of the rows: tools copy entries, so it counts only in files that Plait wrote, and with their
/// rows.
#[must_use]
pub(crate) fn of_file(source: &Source) -> Option<Value> {
    let file = source.file();
    file.created_by().filter(|by| by.starts_with("plait "))?;
    let mut entries = file.key_value_metadata().into_iter().flatten();
    let text = entries.find(|entry| entry.key == ZONE_MAP_ENTRY)?.value.as_deref()?;
    let mut map: Value = serde_json::from_str(text).ok()?;
    let is_known = map["version"] == json!(VERSION) && map["rows"] == json!(source.rows());
    is_known.then(|| map["columns"].take()).filter(Value::is_object)
}
