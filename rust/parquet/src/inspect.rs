//! What is in a Parquet file: schema, row groups, chunks, order. For people and for scripts.
//!
//! # Cost
//! The footer; with `pages` also the page locations; the first and last key of the file.
//!
//! # Not here
//! Checking it (`verify`).

use std::collections::BTreeMap;
use std::sync::Arc;

use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use plait_core::key::{KeyValue, decode};
use plait_core::stream::Unite;
use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::files::{open_sources, output_leaves};
use crate::keys::key_at;
use crate::leaf::LocationCache;
use crate::order::{claimed, key_leaves};
use crate::schema::reconcile;
use crate::source::Source;
use crate::store::Stores;

/// What to look at.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InspectOptions {
    /// One file or URL.
    pub file: String,
    /// Whether to find the pages of every chunk.
    pub pages: bool,
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
    /// The sort order it claims.
    pub sort_by: Option<String>,
    /// First key, if it claims an order.
    pub key_min: Vec<Option<String>>,
    /// Last key.
    pub key_max: Vec<Option<String>>,
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
    /// Its columns.
    pub columns: Vec<ChunkReport>,
}

/// One column chunk.
#[derive(Clone, Debug, Serialize)]
pub struct ChunkReport {
    /// Dotted path.
    pub path: String,
    /// Physical type.
    pub physical_type: String,
    /// Logical type, if any.
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
    /// Whether there is a dictionary page.
    pub dictionary: bool,
    /// Nulls, if the statistics tell.
    pub null_count: Option<u64>,
    /// Smallest value, if the statistics tell.
    pub min: Option<String>,
    /// Largest value.
    pub max: Option<String>,
}

/// Longest metadata value that is shown whole.
const METADATA_CHARS_MAX: usize = 200;

/// Inspects one file.
///
/// # Errors
/// A file that cannot be read.
pub fn inspect(options: &InspectOptions, context: &Context) -> Result<InspectReport> {
    inspect_in(options, &Stores::try_new(&options.storage_options, context)?, context)
}

/// Inspects one file of `stores`.
///
/// # Errors
/// As [`inspect`].
pub fn inspect_in(
    options: &InspectOptions,
    stores: &Stores,
    context: &Context,
) -> Result<InspectReport> {
    let sources = open_sources(std::slice::from_ref(&options.file), 0, stores, context)?;
    let [source] = sources.as_slice() else {
        return Err(Error::new(Kind::InvalidArgument, "inspect looks at one file")
            .with_got(format!("{} files", sources.len())));
    };
    let cache = Arc::new(LocationCache::new(context, context.limit_bytes() / 16));
    let order = claimed(source)?.filter(|order| !order.is_empty());
    let (key_min, key_max) = match &order {
        Some(_) if source.rows() > 0 => key_range(source, &cache, context)?,
        _ => (Vec::new(), Vec::new()),
    };
    let file = source.meta.file_metadata();
    let mut row_groups = Vec::new();
    for (g, group) in source.meta.row_groups().iter().enumerate() {
        let mut columns = Vec::new();
        for (leaf, chunk) in group.columns().iter().enumerate() {
            let pages = match options.pages {
                true => Some(cache.find(source, g, leaf, context)?.pages.len()),
                false => None,
            };
            columns.push(chunk_report(chunk, pages));
        }
        row_groups.push(RowGroupReport {
            rows: source.row_group_rows(g),
            bytes: group.total_byte_size().max(0).unsigned_abs(),
            compressed_bytes: group.compressed_size().max(0).unsigned_abs(),
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
        sort_by: order.map(|o| o.to_string()),
        key_min,
        key_max,
        metadata,
        schema: String::from_utf8_lossy(&schema).into_owned(),
        row_groups,
    })
}

type Texts = Vec<Option<String>>;

fn key_range(
    source: &Arc<Source>,
    cache: &Arc<LocationCache>,
    context: &Context,
) -> Result<(Texts, Texts)> {
    let reconciled = reconcile(&[(source.path(), source.meta.file_metadata())], &Unite::default())?;
    let leaves = output_leaves(&reconciled);
    let Some(order) = claimed(source)? else { return Ok(Default::default()) };
    let keys = key_leaves(&order, &reconciled.descr, &leaves)?;
    let texts = |row| -> Result<Texts> {
        let key = key_at(source, &keys, row, cache, context)?;
        let text = |v: KeyValue| (!matches!(v, KeyValue::Null)).then(|| v.to_string());
        Ok(decode(&keys.shape, &key)?.into_iter().map(text).collect())
    };
    Ok((texts(0)?, texts(source.rows() - 1)?))
}

fn chunk_report(chunk: &ColumnChunkMetaData, pages: Option<usize>) -> ChunkReport {
    let descr = chunk.column_descr();
    let statistics = chunk.statistics();
    let bound = |bytes: Option<&[u8]>| {
        let bytes = bytes?;
        Some(cut(&show(statistics?, bytes)))
    };
    ChunkReport {
        path: descr.path().string(),
        physical_type: chunk.column_type().to_string(),
        logical_type: descr.logical_type_ref().map(|t| format!("{t:?}")),
        codec: chunk.compression().to_string(),
        encodings: chunk.encodings().map(|e| e.to_string()).collect(),
        bytes: chunk.uncompressed_size().max(0).unsigned_abs(),
        compressed_bytes: chunk.compressed_size().max(0).unsigned_abs(),
        pages,
        dictionary: chunk.dictionary_page_offset().is_some(),
        null_count: statistics.and_then(Statistics::null_count_opt),
        min: bound(statistics.and_then(Statistics::min_bytes_opt)),
        max: bound(statistics.and_then(Statistics::max_bytes_opt)),
    }
}

/// A bound in its physical type; text where it is text, else hex.
fn show(statistics: &Statistics, bytes: &[u8]) -> String {
    fn number<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
        bytes.try_into().ok()
    }
    let shown = match statistics {
        Statistics::Boolean(_) => bytes.first().map(|b| (*b != 0).to_string()),
        Statistics::Int32(_) => number(bytes).map(|b| i32::from_le_bytes(b).to_string()),
        Statistics::Int64(_) => number(bytes).map(|b| i64::from_le_bytes(b).to_string()),
        Statistics::Float(_) => number(bytes).map(|b| f32::from_le_bytes(b).to_string()),
        Statistics::Double(_) => number(bytes).map(|b| f64::from_le_bytes(b).to_string()),
        Statistics::ByteArray(_) => std::str::from_utf8(bytes).ok().map(str::to_owned),
        Statistics::Int96(_) | Statistics::FixedLenByteArray(_) => None,
    };
    shown.unwrap_or_else(|| bytes.iter().map(|b| format!("{b:02x}")).collect())
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(METADATA_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
