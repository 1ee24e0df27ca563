//! How outputs are encoded: as the sources were, unless the caller asked otherwise.
//!
//! # Invariants
//! For every leaf the first source that has it decides codec, encoding and dictionary; the first
//! source decides the page version. What an output type cannot carry is left to the default.
//!
//! # Not here
//! Row group sizes (`merge`).

use std::collections::BTreeSet;
use std::sync::Arc;

use parquet::basic::{
    BrotliLevel, ColumnOrder, Compression, Encoding, GzipLevel, LogicalType, Type as Physical,
    ZstdLevel,
};
use parquet::file::metadata::{ColumnChunkMetaData, KeyValue, SortingColumn};
use parquet::file::properties::{
    BloomFilterPosition, EnabledStatistics, WriterProperties, WriterPropertiesPtr, WriterVersion,
};
use plait_core::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

use crate::leaf::OutputLeaf;
use crate::options::{MergeOptions, StatisticsLevel, Tier};
use crate::page::header::{PageHeader, PageKind, Parsed};
use crate::schema::LeafAdapter;
use crate::source::{ChunkEntry, Source};

/// Level for zstd where the sources use zstd: footers do not tell the level. 3 is zstd's default
/// and what most writers of lakes use.
pub(crate) const ZSTD_LEVEL: i32 = 3;

/// How footers of outputs say who wrote them; the version follows.
const CREATED_BY: &str = "plait version";

/// Longest minimum and maximum in the footer. Longer values are cut and marked as not exact.
const STATISTICS_BYTES_MAX: usize = 1024;

/// Longest minimum and maximum in the column index.
const INDEX_BYTES_MAX: usize = 64;

/// Rows after which the size of a page is looked at.
const WRITE_BATCH_ROWS_MAX: usize = 1024;

/// Dictionaries larger than this fall back to plain values.
const DICTIONARY_BYTES_MAX: usize = 1 << 20;

/// How the sources are encoded, as a value that survives JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Encodings {
    /// Version of data pages, 1 or 2.
    pub(crate) page_version: u8,
    /// By leaf.
    pub(crate) columns: Vec<ColumnEncoding>,
}

impl Encodings {
    /// Those of a schema without `leaves`.
    #[must_use]
    pub(crate) fn without(&self, leaves: &[usize]) -> Self {
        let all = self.columns.iter().enumerate();
        let kept = all.filter(|(leaf, _)| !leaves.contains(leaf));
        let columns = kept.map(|(_, column)| column.clone()).collect();
        Self { page_version: self.page_version, columns }
    }
}

/// How one leaf is encoded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ColumnEncoding {
    /// Codec, as `compression` takes it.
    pub(crate) codec: String,
    /// Whether a dictionary pays.
    pub(crate) dictionary: bool,
    /// Encoding of values that are not in a dictionary, if it is a special one.
    pub(crate) encoding: Option<String>,
}

/// How `sources` encode `leaves`.
///
/// # Errors
/// [`Kind::Storage`].
pub(crate) fn encodings(
    options: &MergeOptions,
    sources: &[Arc<Source>],
    leaves: &[OutputLeaf],
) -> Result<Encodings> {
    let page_version = match options.data_page_version {
        Some(version) => version,
        None => page_version(sources)?,
    };
    let column = |leaf: &OutputLeaf| {
        let first = first_chunk(sources, leaf)?;
        let codec = first.as_ref().map_or(Compression::ZSTD(zstd(ZSTD_LEVEL)), |(chunk, _)| {
            writable(chunk.compression())
        });
        let encoding = match &first {
            Some((chunk, true)) => value_encoding(chunk, leaf.descr.physical_type()),
            _ => None,
        };
        Ok(ColumnEncoding {
            codec: codec_text(codec),
            dictionary: first.is_none_or(|(chunk, _)| has_paying_dictionary(&chunk)),
            encoding: encoding.map(|encoding| encoding.to_string()),
        })
    };
    Ok(Encodings { page_version, columns: leaves.iter().map(column).collect::<Result<_>>()? })
}

/// Leaves of floats whose bounds an output cannot declare to be in IEEE 754 total order: chunks or
/// pages of some source may be copied, with bounds that are in another order or do not count NaN.
///
/// # Errors
/// [`Kind::Internal`] for a leaf that is in no adapter.
pub(crate) fn type_defined_floats(
    sources: &[Arc<Source>],
    leaves: &[OutputLeaf],
    copy_tiers: &[Tier],
) -> Result<BTreeSet<usize>> {
    let mut found = BTreeSet::new();
    if !copy_tiers.iter().any(|tier| matches!(tier, Tier::Chunk | Tier::Page)) {
        return Ok(found);
    }
    let is_float = |leaf: &&OutputLeaf| {
        matches!(leaf.descr.physical_type(), Physical::FLOAT | Physical::DOUBLE)
            || matches!(leaf.descr.logical_type_ref(), Some(LogicalType::Float16))
    };
    let floats: Vec<&OutputLeaf> = leaves.iter().filter(is_float).collect();
    for source in sources.iter().filter(|source| source.rows() > 0 && !floats.is_empty()) {
        let footer = source.footer()?;
        for leaf in &floats {
            let LeafAdapter::Same { leaf: index, .. } = leaf.adapter(source.id)? else { continue };
            let orders = source.file().column_orders();
            let is_total = matches!(
                orders.and_then(|orders| orders.get(*index)),
                Some(ColumnOrder::IEEE_754_TOTAL_ORDER)
            );
            let counts = footer.row_groups().iter().all(|group| {
                let statistics = group.columns().get(*index).and_then(|c| c.statistics());
                statistics
                    .is_none_or(|s| s.nan_count_opt().is_some() || s.min_bytes_opt().is_none())
            });
            if !(is_total && counts) {
                found.insert(leaf.index);
            }
        }
    }
    Ok(found)
}

/// Properties of all outputs of a merge.
///
/// # Errors
/// [`Kind::InvalidArgument`] for a codec or an encoding that is not known.
pub(crate) fn properties(
    options: &MergeOptions,
    encodings: &Encodings,
    leaves: &[OutputLeaf],
    sorting: Vec<SortingColumn>,
    metadata: Vec<KeyValue>,
) -> Result<WriterPropertiesPtr> {
    let to_usize = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let v2 = options.data_page_version.unwrap_or(encodings.page_version) == 2;
    let mut builder = WriterProperties::builder()
        .set_created_by(format!("{CREATED_BY} {}", env!("CARGO_PKG_VERSION")))
        .set_writer_version(if v2 {
            WriterVersion::PARQUET_2_0
        } else {
            WriterVersion::PARQUET_1_0
        })
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_statistics_truncate_length(Some(STATISTICS_BYTES_MAX))
        .set_column_index_truncate_length(Some(INDEX_BYTES_MAX))
        .set_data_page_size_limit(to_usize(options.page_size))
        .set_data_page_row_count_limit(to_usize(options.page_rows))
        // The crate looks at the limits of a page once per batch of this many rows.
        .set_write_batch_size(to_usize(options.page_rows).clamp(1, WRITE_BATCH_ROWS_MAX))
        .set_dictionary_page_size_limit(DICTIONARY_BYTES_MAX)
        .set_max_row_group_row_count(None)
        .set_sorting_columns((!sorting.is_empty()).then_some(sorting))
        .set_key_value_metadata((!metadata.is_empty()).then_some(metadata));
    let asked = options.compression.as_deref().map(parse_codec).transpose()?;
    if !options.bloom_filters.is_empty() {
        // Those of all row groups would wait in memory for the end.
        builder = builder.set_bloom_filter_position(BloomFilterPosition::AfterRowGroup);
    }
    for (i, leaf) in leaves.iter().enumerate() {
        let path = leaf.descr.path().clone();
        let level = match options.statistics_of(&path.string()) {
            // The format leaves the order of their bounds open, and other writers have none.
            _ if leaf.descr.physical_type() == Physical::INT96 => EnabledStatistics::None,
            StatisticsLevel::None => EnabledStatistics::None,
            StatisticsLevel::Chunk => EnabledStatistics::Chunk,
            StatisticsLevel::Page => EnabledStatistics::Page,
        };
        builder = builder.set_column_statistics_enabled(path.clone(), level);
        let found = encodings.columns.get(i).ok_or_else(|| {
            Error::new(Kind::InvalidArgument, "there are more columns than encodings")
                .with_column(path.string())
        })?;
        let codec = asked.map_or_else(|| parse_codec(&found.codec), Ok)?;
        builder = builder.set_column_compression(path.clone(), codec);
        let is_boolean = leaf.descr.physical_type() == Physical::BOOLEAN;
        let dictionary = options.dictionary.unwrap_or(found.dictionary);
        builder = builder.set_column_dictionary_enabled(path.clone(), dictionary && !is_boolean);
        let encoding = found.encoding.as_deref().map(|text| {
            text.parse::<Encoding>().map_err(|e| {
                Error::new(Kind::InvalidArgument, "encoding is not known")
                    .with_column(path.string())
                    .with_got(format!("`{text}`"))
                    .with_cause(e)
            })
        });
        if !(is_boolean && v2) {
            let encoding = encoding.transpose()?.unwrap_or(Encoding::PLAIN);
            builder = builder.set_column_encoding(path, encoding);
        }
    }
    Ok(Arc::new(builder.build()))
}

/// First non-empty chunk that gives `leaf`, and whether its values are not cast.
fn first_chunk(sources: &[Arc<Source>], leaf: &OutputLeaf) -> Result<Option<(ChunkEntry, bool)>> {
    for source in sources {
        let (index, same) = match leaf.adapter(source.id)? {
            LeafAdapter::Same { leaf, .. } => (*leaf, true),
            LeafAdapter::Cast { leaf, .. } => (*leaf, false),
            LeafAdapter::Missing { .. } => continue,
        };
        if let Some(group) = source.first_group_with_rows() {
            return Ok(Some((source.chunk(group, index)?, same)));
        }
    }
    Ok(None)
}

/// Whether the source kept a dictionary for all of the chunk, or did not tell.
pub(crate) fn has_paying_dictionary(chunk: &ColumnChunkMetaData) -> bool {
    let is_dictionary =
        |e: &Encoding| matches!(e, Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY);
    if !chunk.encodings().any(|e| is_dictionary(&e)) {
        return false;
    }
    // Data pages of another encoding: the dictionary overflowed, and would again. Footers that do
    // not count pages by encoding tell as much if the dictionary page has the older name: it does
    // not account for another encoding of values then.
    if let Some(mask) = chunk.page_encoding_stats_mask() {
        return mask.encodings().all(|e| is_dictionary(&e));
    }
    if let Some(stats) = chunk.page_encoding_stats() {
        use parquet::basic::PageType;
        let mut data = stats.iter().filter(|s| s.page_type != PageType::DICTIONARY_PAGE);
        return data.all(|s| is_dictionary(&s.encoding));
    }
    #[expect(deprecated, reason = "old files have it")]
    let is_of_levels = |e: &Encoding| matches!(e, Encoding::RLE | Encoding::BIT_PACKED);
    !chunk.encodings().any(|e| e == Encoding::PLAIN_DICTIONARY)
        || chunk.encodings().all(|e| is_dictionary(&e) || is_of_levels(&e))
}

/// The encoding of values that are not in a dictionary, if it is a special one that fits the type:
/// footers can say anything.
fn value_encoding(chunk: &ColumnChunkMetaData, physical: Physical) -> Option<Encoding> {
    let is_bytes = matches!(physical, Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY);
    chunk.encodings().find(|e| match e {
        Encoding::DELTA_BINARY_PACKED => matches!(physical, Physical::INT32 | Physical::INT64),
        Encoding::DELTA_LENGTH_BYTE_ARRAY => physical == Physical::BYTE_ARRAY,
        Encoding::DELTA_BYTE_ARRAY => is_bytes,
        Encoding::BYTE_STREAM_SPLIT => {
            !matches!(physical, Physical::BOOLEAN | Physical::INT96 | Physical::BYTE_ARRAY)
        }
        _ => false,
    })
}

/// Version of the first data page that can be looked at. Footers of our own tell it.
fn page_version(sources: &[Arc<Source>]) -> Result<u8> {
    for source in sources {
        let file = source.file();
        if source.rows() > 0 && file.created_by().is_some_and(|by| by.starts_with(CREATED_BY)) {
            return Ok(if file.version() == 2 { 2 } else { 1 });
        }
        let Some(group) = source.first_group_with_rows() else { continue };
        let Ok(start) = u64::try_from(source.chunk(group, 0)?.data_page_offset()) else { continue };
        let end = source.store.len().min(start.saturating_add(64 << 10));
        if start >= end {
            continue;
        }
        // What cannot be read is an error; what cannot be understood tells nothing.
        if let Ok(Parsed::Header { header, .. }) =
            PageHeader::parse(&source.store.read(start..end)?)
        {
            return Ok(if matches!(header.kind, PageKind::DataV2 { .. }) { 2 } else { 1 });
        }
    }
    Ok(1)
}

/// The codec to write where a source was read with `codec`.
fn writable(codec: Compression) -> Compression {
    match codec {
        Compression::ZSTD(_) => Compression::ZSTD(zstd(ZSTD_LEVEL)),
        // The old LZ4 has two incompatible framings; LZ4_RAW is what replaced it.
        Compression::LZ4 => Compression::LZ4_RAW,
        Compression::LZO => Compression::SNAPPY,
        other => other,
    }
}

fn zstd(level: i32) -> ZstdLevel {
    ZstdLevel::try_new(level).unwrap_or_default()
}

/// The text that [`parse_codec`] reads as `codec`.
fn codec_text(codec: Compression) -> String {
    match codec {
        Compression::ZSTD(level) => format!("zstd({})", level.compression_level()),
        Compression::GZIP(level) => format!("gzip({})", level.compression_level()),
        Compression::BROTLI(level) => format!("brotli({})", level.compression_level()),
        Compression::LZ4 | Compression::LZ4_RAW => "lz4".into(),
        Compression::UNCOMPRESSED => "none".into(),
        Compression::SNAPPY | Compression::LZO => "snappy".into(),
    }
}

/// Parses `zstd`, `zstd(3)`, `snappy`, `gzip(6)`, `brotli(4)`, `lz4`, `none`.
///
/// # Errors
/// [`Kind::InvalidArgument`] listing what there is.
pub(crate) fn parse_codec(text: &str) -> Result<Compression> {
    let refuse = || {
        Error::new(Kind::InvalidArgument, "compression is not known")
            .with_got(format!("`{text}`"))
            .with_hint(
                "use zstd, zstd(1..22), snappy, gzip, gzip(0..9), brotli, brotli(0..11), lz4, none",
            )
    };
    let lower = text.trim().to_ascii_lowercase();
    let (name, level) = match lower.split_once('(') {
        Some((name, rest)) => {
            let level = rest.strip_suffix(')').and_then(|l| l.trim().parse::<i32>().ok());
            (name.trim_end(), Some(level.ok_or_else(refuse)?))
        }
        None => (lower.as_str(), None),
    };
    let unsigned = |default: u32| u32::try_from(level.unwrap_or(default.cast_signed()));
    match (name, level) {
        ("zstd", _) => ZstdLevel::try_new(level.unwrap_or(ZSTD_LEVEL))
            .map(Compression::ZSTD)
            .map_err(|_| refuse()),
        ("gzip", _) => unsigned(6)
            .ok()
            .and_then(|l| GzipLevel::try_new(l).ok())
            .map(Compression::GZIP)
            .ok_or_else(refuse),
        ("brotli", _) => unsigned(1)
            .ok()
            .and_then(|l| BrotliLevel::try_new(l).ok())
            .map(Compression::BROTLI)
            .ok_or_else(refuse),
        ("snappy", None) => Ok(Compression::SNAPPY),
        ("lz4" | "lz4_raw", None) => Ok(Compression::LZ4_RAW),
        ("none" | "uncompressed", None) => Ok(Compression::UNCOMPRESSED),
        _ => Err(refuse()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_survive_as_text() {
        for text in ["zstd(7)", "gzip(6)", "brotli(4)", "lz4", "none", "snappy"] {
            assert_eq!(codec_text(parse_codec(text).unwrap()), text);
        }
    }

    #[test]
    fn codecs_parse_with_and_without_a_level() {
        assert_eq!(parse_codec("zstd(7)").unwrap(), Compression::ZSTD(zstd(7)));
        assert_eq!(parse_codec(" Snappy ").unwrap(), Compression::SNAPPY);
        assert_eq!(parse_codec("none").unwrap(), Compression::UNCOMPRESSED);
        for bad in ["zstd(99)", "zip", "snappy(3)", "zstd(", "zstd(x)", "gzip(-1)"] {
            assert_eq!(parse_codec(bad).unwrap_err().kind(), Kind::InvalidArgument, "{bad}");
        }
    }
}
