//! The values of a plain page in another encoding, and which encoding suits a leaf.
//!
//! ```text
//! first page of a leaf ─ beginning ─▶ plain, delta, byte stream split ─▶ packed: the smallest stays
//! pages                ─ plain values ─▶ column writer of the parquet crate ─▶ values, encoded
//! ```
//!
//! # Invariants
//! The encoding of a leaf is chosen once, on the first page worth it, so that it depends on the data
//! and not on threads. Values stay what they are.
//!
//! # Cost
//! A typed copy of a page and its encoded form. A leaf encodes and packs 128 kB once for each
//! encoding that is tried.
//!
//! # Not here
//! Pages of ids (`ids`); chunks that the parquet crate writes as a whole (`foreign`).

use std::sync::{Arc, OnceLock};

use parquet::basic::{Compression, Encoding, PageType, Type as Physical};
use parquet::column::page::{CompressedPage, PageWriteSpec, PageWriter};
use parquet::column::writer::{get_column_writer, get_typed_column_writer};
use parquet::data_type::DataType;
use parquet::errors::Result as CrateResult;
use parquet::file::properties::{
    EnabledStatistics, WriterProperties, WriterPropertiesPtr, WriterVersion,
};
use parquet::schema::types::{ColumnDescPtr, ColumnDescriptor, ColumnPath};
use plait_core::{Error, Kind, Result};

use super::foreign::{FromPlain, typed_values};
use super::pack::Packers;
use crate::block::Layout;
use crate::leaf::with_physical;
use crate::options::EncodingOption;
use crate::page::unwrap_error;

/// A page with fewer bytes of values tells nothing about a leaf.
const TRIAL_BYTES_MIN: usize = 32 << 10;

/// How many bytes of values are tried.
const TRIAL_BYTES_MAX: usize = 128 << 10;

/// What is not smaller than this share of plain values is not worth decoding.
const SHARE_MAX: f64 = 0.97;

/// How the values of pages of a leaf are encoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueEncoding<'a> {
    /// Which encodings may be tried.
    pub(crate) asked: EncodingOption,
    /// Where the encoding of the leaf is kept.
    pub(crate) chosen: &'a OnceLock<Encoding>,
}

/// The encodings that are tried besides plain.
fn tried(asked: EncodingOption, physical: Physical) -> &'static [Encoding] {
    use Encoding::{BYTE_STREAM_SPLIT, DELTA_BINARY_PACKED, DELTA_BYTE_ARRAY};
    match (asked, physical) {
        (EncodingOption::Sources, _) => &[],
        (EncodingOption::Compatible, Physical::INT32 | Physical::INT64) => &[DELTA_BINARY_PACKED],
        (_, Physical::BYTE_ARRAY) => &[Encoding::DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY],
        (EncodingOption::Compatible, _) => &[],
        (EncodingOption::Smallest, Physical::INT32 | Physical::INT64) => {
            &[DELTA_BINARY_PACKED, BYTE_STREAM_SPLIT]
        }
        (EncodingOption::Smallest, Physical::FLOAT | Physical::DOUBLE) => &[BYTE_STREAM_SPLIT],
        (EncodingOption::Smallest, Physical::BOOLEAN) => &[Encoding::RLE],
        // Polars decodes no special encoding of fixed bytes, DuckDB not all.
        (EncodingOption::Smallest, Physical::FIXED_LEN_BYTE_ARRAY | Physical::INT96) => &[],
    }
}

impl ValueEncoding<'_> {
    /// The encoding of pages of the leaf `descr`, of which `values` are the first; plain as long as
    /// they are too few to tell.
    ///
    /// # Errors
    /// What encoding or packing says.
    pub(crate) fn choose(
        &self,
        descr: &ColumnDescPtr,
        values: &[u8],
        codec: Compression,
        packers: &Packers,
    ) -> Result<Encoding> {
        if let Some(chosen) = self.chosen.get() {
            return Ok(*chosen);
        }
        let others = tried(self.asked, descr.physical_type());
        if others.is_empty() || values.len() < TRIAL_BYTES_MIN {
            return Ok(Encoding::PLAIN);
        }
        let values = beginning(descr, values);
        let packed = |values: &[u8]| packers.probe(codec.into(), values);
        let plain = match descr.physical_type() {
            Physical::BOOLEAN => packed(&crate::block::fold::pack_booleans(values))?,
            _ => packed(values)?,
        };
        let (mut best, mut least) = (Encoding::PLAIN, plain as f64 * SHARE_MAX);
        for encoding in others {
            let len = packed(&encode_values(descr, *encoding, values)?)?;
            if (len as f64) < least {
                (best, least) = (*encoding, len as f64);
            }
        }
        Ok(*self.chosen.get_or_init(|| best))
    }
}

/// The first of plain `values`, whole.
fn beginning<'v>(descr: &ColumnDescriptor, values: &'v [u8]) -> &'v [u8] {
    let layout = Layout::of(descr);
    let end = match layout {
        Layout::Fixed(width) => TRIAL_BYTES_MAX / width.max(1) * width.max(1),
        Layout::Prefixed => {
            let mut at = 0;
            while at < TRIAL_BYTES_MAX
                && let Some(len) = layout.len_at(values, at)
            {
                at += len;
            }
            at
        }
    };
    values.get(..end).unwrap_or(values)
}

/// Plain `values` of the leaf `descr`, encoded.
///
/// # Errors
/// [`Kind::Internal`] when the parquet crate's writer makes no page, or not one alone.
pub(crate) fn encode_values(
    descr: &ColumnDescPtr,
    encoding: Encoding,
    values: &[u8],
) -> Result<Vec<u8>> {
    with_physical!(descr.physical_type(), T => encode_typed::<T>(descr, encoding, values))
}

fn encode_typed<T: DataType>(
    descr: &ColumnDescPtr,
    encoding: Encoding,
    values: &[u8],
) -> Result<Vec<u8>>
where
    T::T: FromPlain,
{
    let failed = |what: &str| {
        Error::new(Kind::Internal, what)
            .with_column(descr.path().string())
            .with_got(encoding.to_string())
    };
    let typed: Vec<T::T> = typed_values(values, Layout::of(descr));
    // Values alone: levels are written elsewhere.
    let bare = ColumnDescriptor::new(descr.self_type_ptr(), 0, 0, ColumnPath::from("values"));
    let (sender, pages) = std::sync::mpsc::channel();
    let page_writer = Box::new(ValuesOut(sender));
    let writer = get_column_writer(Arc::new(bare), values_alone(encoding), page_writer);
    let mut writer = get_typed_column_writer::<T>(writer);
    writer.write_batch(&typed, None, None).map_err(unwrap_error)?;
    writer.close().map_err(unwrap_error)?;
    let page = pages.recv().map_err(|_| failed("a page was not encoded"))?;
    match pages.recv() {
        Err(_) => Ok(page),
        Ok(_) => Err(failed("a page was encoded as several")),
    }
}

/// Properties of a chunk that is one page of `encoding`.
fn values_alone(encoding: Encoding) -> WriterPropertiesPtr {
    Arc::new(
        WriterProperties::builder()
            .set_writer_version(WriterVersion::PARQUET_1_0)
            .set_compression(Compression::UNCOMPRESSED)
            .set_dictionary_enabled(false)
            .set_statistics_enabled(EnabledStatistics::None)
            .set_encoding(encoding)
            .set_data_page_size_limit(usize::MAX)
            .set_data_page_row_count_limit(usize::MAX)
            .set_write_batch_size(usize::MAX)
            .build(),
    )
}

/// Sends the values of pages.
struct ValuesOut(std::sync::mpsc::Sender<Vec<u8>>);

impl PageWriter for ValuesOut {
    fn write_page(&mut self, page: CompressedPage) -> CrateResult<PageWriteSpec> {
        let mut spec = PageWriteSpec::new();
        spec.page_type = PageType::DATA_PAGE;
        spec.num_values = page.num_values();
        spec.uncompressed_size = page.uncompressed_size();
        spec.compressed_size = page.compressed_size();
        // Whoever receives it counts them.
        let _ = self.0.send(page.data().to_vec());
        Ok(spec)
    }

    fn close(&mut self) -> CrateResult<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use parquet::schema::parser::parse_message_type;
    use parquet::schema::types::SchemaDescriptor;

    use super::*;

    fn leaf(text: &str) -> ColumnDescPtr {
        let message = parse_message_type(&format!("message m {{ {text}; }}")).unwrap();
        SchemaDescriptor::new(Arc::new(message)).column(0)
    }

    #[test]
    fn the_smallest_encoding_is_chosen_once_and_by_what_is_asked() {
        let (packers, zstd) = (Packers::default(), Compression::ZSTD(Default::default()));
        let (whole, half) = (leaf("optional int64 v"), leaf("required double v"));
        let numbers: Vec<u8> = (0..20_000_i64).flat_map(|n| (n * n).to_le_bytes()).collect();
        let measures: Vec<u8> =
            (0..20_000).flat_map(|n| (20.0 + f64::from(n % 977).sin()).to_le_bytes()).collect();
        let choose = |asked, leaf: &ColumnDescPtr, values: &[u8]| {
            let chosen = OnceLock::new();
            let of = ValueEncoding { asked, chosen: &chosen };
            let found = of.choose(leaf, values, zstd, &packers).unwrap();
            // Kept, whatever comes next.
            if values.len() > TRIAL_BYTES_MIN && asked != EncodingOption::Sources {
                assert_eq!(of.choose(leaf, &[], zstd, &packers).unwrap_or(found), found);
            }
            found
        };
        use EncodingOption::{Compatible, Smallest, Sources};
        assert_eq!(choose(Sources, &whole, &numbers), Encoding::PLAIN);
        assert_eq!(choose(Compatible, &whole, &numbers), Encoding::DELTA_BINARY_PACKED);
        assert_eq!(choose(Compatible, &whole, &numbers[..800]), Encoding::PLAIN, "too few to tell");
        assert_eq!(choose(Compatible, &half, &measures), Encoding::PLAIN);
        assert!(tried(Smallest, Physical::DOUBLE).contains(&Encoding::BYTE_STREAM_SPLIT));
    }

    #[test]
    fn values_are_encoded_alone_and_as_one_page() {
        let leaf = leaf("optional int32 v");
        let values: Vec<u8> = (0..300_000_i32).flat_map(i32::to_le_bytes).collect();
        let split = encode_values(&leaf, Encoding::BYTE_STREAM_SPLIT, &values).unwrap();
        assert_eq!(split.len(), values.len());
        assert_eq!(split[..3], [0, 1, 2]);
        assert_eq!(split[300_000..300_003], [0, 0, 0]);
        let delta = encode_values(&leaf, Encoding::DELTA_BINARY_PACKED, &values).unwrap();
        assert!(delta.len() < values.len() / 20, "{}", delta.len());
    }
}
