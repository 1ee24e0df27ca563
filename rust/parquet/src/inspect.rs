//! What is in a Parquet file: schema, row groups, chunks, order. For people and for scripts.
//!
//! # Cost
//! The footer; with `pages` also the page locations; the first and last key of every row group;
//! with `check_order` all keys.
//!
//! # Not here
//! Checking it (`verify`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use plait_core::SourceId;
use plait_core::key::{ShownValue, SortOrder};
use plait_core::stream::Unite;
use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use crate::files::open_source_in;
use crate::footer::FooterPool;
use crate::keys::{KeyLeaves, key_at};
use crate::leaf::{LocationCache, output_leaves};
use crate::order::{KEY_ROWS, claimed, find_disorder, key_leaves};
use crate::page::Locations;
use crate::plan::key_values;
use crate::runtime::{Context, MemoryStage};
use crate::schema::{data_type, logical_type, reconcile, shown_bound};
use crate::source::Source;
use crate::store::{Stores, Wanted};
use crate::zone;

/// What to look at.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InspectOptions {
    /// One file or URL.
    pub file: String,
    /// Whether to find the pages of every chunk.
    pub pages: bool,
    /// Order of the keys to show; absent = the one the file claims.
    pub sort_by: Option<String>,
    /// Whether to read all keys, to see if they are in order.
    pub check_order: bool,
    /// Bytes of memory to stay within.
    pub memory_limit: u64,
    /// Settings of object stores.
    pub storage_options: BTreeMap<String, String>,
}

impl Default for InspectOptions {
    fn default() -> Self {
        Self {
            file: String::new(),
            pages: false,
            sort_by: None,
            check_order: false,
            memory_limit: 512_000_000,
            storage_options: BTreeMap::new(),
        }
    }
}

/// What a file is.
#[derive(Clone, Debug, Serialize)]
pub struct InspectReport {
    /// Location.
    pub path: String,
    /// Length of the file.
    pub bytes: u64,
    /// Rows.
    pub rows: u64,
    /// Who wrote it.
    pub created_by: Option<String>,
    /// The order of the keys shown: the one asked for, or else the one it claims.
    pub sort_by: Option<String>,
    /// The sort order it claims.
    pub declared: Option<String>,
    /// Whether its rows are in the order of the keys shown, if that was asked for.
    pub sorted: Option<bool>,
    /// First row whose key is smaller than the one before it, if it is not sorted.
    pub unsorted_row: Option<u64>,
    /// First key, if there is an order.
    pub key_min: Vec<Option<ShownValue>>,
    /// Last key.
    pub key_max: Vec<Option<ShownValue>>,
    /// Columns whose values the footer lists, as `plait.zone_map` has them.
    pub zone_map: Option<serde_json::Value>,
    /// File metadata; long values are cut.
    pub metadata: BTreeMap<String, String>,
    /// The schema as text.
    pub schema: String,
    /// Its row groups.
    pub row_groups: Vec<RowGroupReport>,
}

/// One row group.
#[derive(Clone, Debug, Serialize)]
pub struct RowGroupReport {
    /// Rows.
    pub rows: u64,
    /// Encoded bytes before compression.
    pub bytes: u64,
    /// Stored bytes.
    pub compressed_bytes: u64,
    /// First key, if there is an order.
    pub key_min: Vec<Option<ShownValue>>,
    /// Last key.
    pub key_max: Vec<Option<ShownValue>>,
    /// Its columns.
    pub columns: Vec<ChunkReport>,
}

/// One column chunk.
#[derive(Clone, Debug, Serialize)]
pub struct ChunkReport {
    /// Dotted path.
    pub path: String,
    /// Type of the values as PyArrow prints it.
    pub data_type: String,
    /// Physical type.
    pub physical_type: String,
    /// Logical type, if any, in the words of PyArrow.
    pub logical_type: Option<String>,
    /// Codec.
    pub codec: String,
    /// Encodings of levels and values.
    pub encodings: Vec<String>,
    /// Encoded bytes before compression.
    pub bytes: u64,
    /// Stored bytes.
    pub compressed_bytes: u64,
    /// Data pages, if they were looked for.
    pub pages: Option<usize>,
    /// Stored bytes of the largest data page, if pages were looked for.
    pub page_bytes_max: Option<u64>,
    /// Rows of the largest data page.
    pub page_rows_max: Option<u64>,
    /// Whether there is a dictionary page.
    pub dictionary: bool,
    /// Stored bytes of the dictionary page, if pages were looked for.
    pub dictionary_bytes: Option<u64>,
    /// Nulls, if the statistics tell.
    pub null_count: Option<u64>,
    /// Smallest value, if the statistics tell.
    pub min: Option<ShownValue>,
    /// Largest value.
    pub max: Option<ShownValue>,
    /// Whether there is a bloom filter.
    pub bloom_filter: bool,
}

/// Longest metadata value that is shown whole.
const METADATA_CHARS_MAX: usize = 200;

/// Describes one file.
///
/// # Errors
/// A file that cannot be read.
pub fn inspect(options: &InspectOptions, context: &Context) -> Result<InspectReport> {
    inspect_in(options, &Stores::try_new(&options.storage_options, context)?, context)
}

/// The same, of a file in `stores`.
///
/// # Errors
/// As [`inspect`].
pub fn inspect_in(
    options: &InspectOptions,
    stores: &Stores,
    context: &Context,
) -> Result<InspectReport> {
    let files = stores.list(std::slice::from_ref(&options.file), Wanted::Parquet)?;
    let [file] = files.as_slice() else {
        return Err(Error::new(Kind::InvalidArgument, "inspect looks at one file")
            .with_got(format!("{} files", files.len()))
            .with_hint("name one of the files"));
    };
    let pool = FooterPool::new(context);
    let source = &Arc::new(open_source_in(&pool, file, SourceId(0), stores, context)?);
    let cache =
        Arc::new(LocationCache::new(context, context.budget().bytes(MemoryStage::PageLocations)));
    let declared = claimed(source)?;
    let order = match &options.sort_by {
        Some(text) => Some(SortOrder::try_parse(text)?),
        None => declared.clone(),
    };
    let order = order.filter(|order| !order.is_empty());
    let keys = order.as_ref().map(|order| keys_of(source, order)).transpose()?;
    let range = |rows: Range<u64>| match &keys {
        Some(keys) if !rows.is_empty() => key_range(source, keys, rows, &cache, context),
        _ => Ok(Default::default()),
    };
    let (key_min, key_max) = range(0..source.rows())?;
    let unsorted_row = match &keys {
        Some(keys) if options.check_order => {
            let rows = 0..source.rows();
            find_disorder(source, keys, rows, KEY_ROWS, &cache, context)?.map(|found| found.row)
        }
        _ => None,
    };
    let file = source.file();
    let mut row_groups = Vec::new();
    for (g, group) in source.footer()?.row_groups().iter().enumerate() {
        let mut columns = Vec::new();
        for (leaf, chunk) in group.columns().iter().enumerate() {
            let pages = match options.pages {
                true => Some(cache.find(source, g, leaf, context)?),
                false => None,
            };
            columns.push(chunk_report(chunk, pages.as_deref()));
        }
        let start = source.row_group_start(g);
        let (key_min, key_max) = range(start..start + source.row_group_rows(g))?;
        row_groups.push(RowGroupReport {
            rows: source.row_group_rows(g),
            bytes: group.total_byte_size().max(0).unsigned_abs(),
            compressed_bytes: group.compressed_size().max(0).unsigned_abs(),
            key_min,
            key_max,
            columns,
        });
    }
    let entries = file.key_value_metadata().into_iter().flatten();
    let metadata =
        entries.map(|e| (e.key.clone(), cut(e.value.as_deref().unwrap_or("")))).collect();
    let mut schema = Vec::new();
    parquet::schema::printer::print_schema(&mut schema, file.schema());
    Ok(InspectReport {
        path: source.path().to_owned(),
        bytes: source.store.len(),
        rows: source.rows(),
        created_by: file.created_by().map(str::to_owned),
        sorted: (options.check_order && keys.is_some()).then_some(unsorted_row.is_none()),
        unsorted_row,
        sort_by: order.map(|o| o.to_string()),
        declared: declared.map(|o| o.to_string()),
        key_min,
        key_max,
        zone_map: zone::of_file(source),
        metadata,
        schema: String::from_utf8_lossy(&schema).into_owned(),
        row_groups,
    })
}

type KeyShown = Vec<Option<ShownValue>>;

fn keys_of(source: &Source, order: &SortOrder) -> Result<KeyLeaves> {
    let reconciled = reconcile(&[(source.path(), source.file())], &Unite::default())?;
    key_leaves(order, &reconciled, &output_leaves(&reconciled))
}

/// Keys of the first and the last of `rows`.
fn key_range(
    source: &Arc<Source>,
    keys: &KeyLeaves,
    rows: Range<u64>,
    cache: &Arc<LocationCache>,
    context: &Context,
) -> Result<(KeyShown, KeyShown)> {
    let values = |row| key_values(keys, &key_at(source, keys, row, cache, context)?);
    Ok((values(rows.start)?, values(rows.end - 1)?))
}

fn chunk_report(chunk: &ColumnChunkMetaData, found: Option<&Locations>) -> ChunkReport {
    let descr = chunk.column_descr();
    let statistics = chunk.statistics();
    let bound = |bytes: Option<&[u8]>| {
        shown_bound(descr, bytes?).map(|bound| match bound {
            ShownValue::Text(text) => ShownValue::Text(cut(&text)),
            whole => whole,
        })
    };
    ChunkReport {
        path: descr.path().string(),
        physical_type: chunk.column_type().to_string(),
        data_type: data_type(descr),
        logical_type: logical_type(descr),
        codec: chunk.compression().to_string(),
        encodings: chunk.encodings().map(|e| e.to_string()).collect(),
        bytes: chunk.uncompressed_size().max(0).unsigned_abs(),
        compressed_bytes: chunk.compressed_size().max(0).unsigned_abs(),
        pages: found.map(|found| found.pages.len()),
        page_bytes_max: found.and_then(|f| f.pages.iter().map(|page| u64::from(page.len)).max()),
        page_rows_max: found.and_then(|f| f.pages.iter().map(|page| page.rows).max()),
        dictionary: chunk.dictionary_page_offset().is_some(),
        dictionary_bytes: found.and_then(|f| f.dictionary).map(|(_, len)| u64::from(len)),
        null_count: statistics.and_then(Statistics::null_count_opt),
        min: bound(statistics.and_then(Statistics::min_bytes_opt)),
        max: bound(statistics.and_then(Statistics::max_bytes_opt)),
        bloom_filter: chunk.bloom_filter_offset().is_some(),
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(METADATA_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
