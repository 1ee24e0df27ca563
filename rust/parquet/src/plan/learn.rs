//! Reads what planning needs of each file, for many files at once, in this process or another.
//!
//! ```text
//! open ─ order ─ first and last key ─ key columns, if small ─▶ RecordedFile, as bytes
//! ```
//!
//! # Invariants
//! A file that cannot be read, or only in part, is no error here: planning reads it again and raises
//! the error, in the order of the sources. What was read of it is right. Nothing depends on threads.
//!
//! # Cost
//! What planning a merge of this one file reads, and [`KEYS_BYTES_MAX`] at most for keys in between;
//! as many files at a time as far ones are read.
//!
//! # Not here
//! How it is served (`store::known`).

use std::sync::Arc;

use plait_core::SourceId;
use plait_core::key::SortOrder;
use plait_core::workers::each;
use plait_core::{Kind, Result};
use serde::{Deserialize, Serialize};

use super::bounds::{KeyTrust, known_keys};
use super::source_keys::Reading;
use crate::ends::keys_of_one;
use crate::json::from_json;
use crate::keys::KeyLeaves;
use crate::leaf::LocationCache;
use crate::order::claimed;
use crate::runtime::{Context, MemoryStage, ScopedWorkers};
use crate::schema::{LeafAdapter, Unite};
use crate::source::Source;
use crate::store::{ForeignTable, RangeReader, RecordingReader, Stores, Wanted, tables_of};

/// Key columns of a file that are stored in so many bytes come whole: cuts are looked for in them.
const KEYS_BYTES_MAX: u64 = 64 << 10;

/// Which files, and what will be asked of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LearnOptions {
    /// Locations of files.
    pub(crate) sources: Vec<String>,
    /// The order; absent = as each file declares.
    pub(crate) sort_by: Option<String>,
    /// As [`MergeOptions::trust_footers`](crate::MergeOptions::trust_footers).
    pub(crate) trust_footers: bool,
    /// Bytes of memory to stay within.
    pub(crate) memory_limit: u64,
    /// Settings of object stores.
    pub(crate) storage_options: std::collections::BTreeMap<String, String>,
}

/// Which files.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ListOptions {
    /// Files, folders, globs and URLs.
    pub(crate) sources: Vec<String>,
    /// Whether files of text in folders count, too.
    pub(crate) text_files: bool,
    /// Settings of object stores.
    pub(crate) storage_options: std::collections::BTreeMap<String, String>,
}

/// Locations of the files that patterns name, in the order in which they are merged.
///
/// # Errors
/// As [`Stores::list`].
pub(crate) fn list_in(
    options: &ListOptions,
    stores: &Stores,
    _context: &Context,
) -> Result<Vec<String>> {
    let wanted = if options.text_files { Wanted::ParquetAndText } else { Wanted::Parquet };
    stores.list(&options.sources, wanted)
}

/// The tables of other formats that patterns name, or name a part of; in the order of the patterns.
///
/// # Errors
/// As [`tables_of`].
pub(crate) fn tables_in(
    options: &ListOptions,
    stores: &Stores,
    _context: &Context,
) -> Result<Vec<Option<ForeignTable>>> {
    tables_of(&options.sources, stores)
}

/// What planning will read of each of the files that `options`, JSON, name; `None` of those that
/// cannot be opened.
///
/// # Errors
/// [`Kind::InvalidArgument`] for options or an order that cannot be read, [`Kind::Cancelled`].
pub fn learn_in(options: &str, stores: &Stores, context: &Context) -> Result<Vec<Option<Vec<u8>>>> {
    let options: LearnOptions = from_json(options)?;
    let order = options.sort_by.as_deref().map(SortOrder::try_parse).transpose()?;
    let paths = &options.sources;
    each(&ScopedWorkers::of_objects(None, context.budget()), paths.len(), |i| {
        context.check_cancelled()?;
        of_file(&paths[i], order.as_ref(), &options, stores, context)
    })
}

fn of_file(
    path: &str,
    order: Option<&SortOrder>,
    options: &LearnOptions,
    stores: &Stores,
    context: &Context,
) -> Result<Option<Vec<u8>>> {
    let Ok(store) = stores.open(path) else { return Ok(None) };
    let noted = Arc::new(RecordingReader::new(store));
    let store: Arc<dyn RangeReader> = Arc::clone(&noted) as _;
    let Ok(source) = Source::open(SourceId(0), store) else { return Ok(None) };
    let source = Arc::new(source);
    match read_keys(&source, order, options.trust_footers, context) {
        Err(e) if e.kind() == Kind::Cancelled => Err(e),
        // Whoever plans meets it himself.
        Ok(()) | Err(_) => noted.known(source.footer_bytes)?.to_bytes().map(Some),
    }
}

/// Reads what planning a merge reads, for what it notes.
fn read_keys(
    source: &Arc<Source>,
    order: Option<&SortOrder>,
    trusts_footers: bool,
    context: &Context,
) -> Result<()> {
    let declared = if order.is_none() { claimed(source)? } else { None };
    let Some(order) = order.or(declared.as_ref()) else { return Ok(()) };
    if source.rows() == 0 {
        return Ok(());
    }
    let keys = keys_of_one(source, order, &Unite::default())?;
    let cache =
        Arc::new(LocationCache::new(context, context.budget().bytes(MemoryStage::PageLocations)));
    // Sorted or not: whoever plans tells.
    let reading = Reading { keys: &keys, cache: &cache, context };
    known_keys(source, order, KeyTrust { footers: trusts_footers, order: true }, reading)?;
    read_small_columns(source, &keys, &cache, context)
}

/// Reads key columns that are small.
fn read_small_columns(
    source: &Source,
    keys: &KeyLeaves,
    cache: &LocationCache,
    context: &Context,
) -> Result<()> {
    let mut ranges = Vec::new();
    for leaf in &keys.leaves {
        let Some(leaf) = LeafAdapter::leaf(leaf.adapter(source.id)?) else { continue };
        for group in (0..source.num_row_groups()).filter(|&g| source.row_group_rows(g) > 0) {
            ranges.push((group, leaf, source.chunk_range(group, leaf)?));
        }
    }
    if ranges.iter().map(|(.., range)| range.end - range.start).sum::<u64>() > KEYS_BYTES_MAX {
        return Ok(());
    }
    for (group, leaf, range) in ranges {
        cache.find(source, group, leaf, context)?;
        source.store.read(range)?;
    }
    Ok(())
}
