//! Files for the tests of this crate: written by the parquet crate, by hand, or by others.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Once};

use bytes::Bytes;
use parquet::column::page::PageReader;
use parquet::column::reader::{ColumnReader, get_column_reader};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{AsBytes, ByteArray, FixedLenByteArray, Int96};
use parquet::file::metadata::{
    ColumnChunkMetaData, ColumnChunkMetaDataBuilder, FileMetaData, ParquetMetaData,
    ParquetMetaDataReader, ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnDescPtr, SchemaDescriptor};
use plait_core::Result;

use super::{guard, unwrap_error};
use crate::guard::guarding;
use crate::store::{RangeReader, check_range};

/// A store in memory that notes what was read.
pub(crate) struct Memory {
    path: String,
    bytes: Bytes,
    pub(crate) reads: Mutex<Vec<Range<u64>>>,
}

impl Memory {
    pub(crate) fn new(path: &str, bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self { path: path.to_owned(), bytes: bytes.into(), reads: Mutex::default() })
    }
}

impl RangeReader for Memory {
    fn path(&self) -> &str {
        &self.path
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes> {
        check_range(&range, self.len(), &self.path)?;
        self.reads.lock().unwrap().push(range.clone());
        Ok(self.bytes.slice(range.start as usize..range.end as usize))
    }

    fn check_unchanged(&self) -> Result<()> {
        Ok(())
    }

    fn is_local(&self) -> bool {
        false
    }
}

/// Numbers that look random and are the same every time.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// A file with row groups of `groups` rows each. Values repeat, nulls and lists come and go.
pub(crate) fn file(
    schema: &str,
    groups: &[usize],
    properties: impl Fn(WriterPropertiesBuilder) -> WriterPropertiesBuilder,
) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = Arc::new(properties(WriterProperties::builder()).build());
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, properties).unwrap();
    let mut numbers = Numbers(11);
    for &rows in groups {
        let mut group = writer.next_row_group().unwrap();
        while let Some(mut column) = group.next_column().unwrap() {
            write(column.untyped(), rows, &mut numbers);
            column.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.close().unwrap();
    bytes
}

fn write(column: &mut ColumnWriter<'_>, rows: usize, n: &mut Numbers) {
    let descr = Arc::clone(column_descr(column));
    let (def_max, rep_max) = (descr.max_def_level(), descr.max_rep_level());
    let (mut defs, mut reps) = (Vec::new(), Vec::new());
    for _ in 0..rows {
        let more = if rep_max > 0 { n.below(5) } else { 0 };
        let first = if more > 0 { def_max } else { n.below(def_max as u64 + 1) as i16 };
        defs.push(first);
        reps.push(0);
        for _ in 0..more {
            defs.push(def_max - i16::from(n.below(4) == 0));
            reps.push(1 + n.below(rep_max as u64) as i16);
        }
    }
    let count = defs.iter().filter(|&&d| d == def_max).count();
    let numbers: Vec<u64> = (0..count).map(|_| n.below(50)).collect();
    macro_rules! write {
        ($writer:expr, $value:expr) => {{
            let values: Vec<_> = numbers.iter().copied().map($value).collect();
            $writer.write_batch(&values, Some(&defs), Some(&reps)).unwrap();
        }};
    }
    match column {
        ColumnWriter::BoolColumnWriter(w) => write!(w, |v| v % 3 == 0),
        ColumnWriter::Int32ColumnWriter(w) => write!(w, |v| v as i32),
        ColumnWriter::Int64ColumnWriter(w) => write!(w, |v| v as i64 * 1_000_003),
        ColumnWriter::Int96ColumnWriter(w) => write!(w, |v| {
            let mut value = Int96::new();
            value.set_data(v as u32, 1, 2_440_000);
            value
        }),
        ColumnWriter::FloatColumnWriter(w) => write!(w, |v| v as f32 / 3.0),
        ColumnWriter::DoubleColumnWriter(w) => write!(w, |v| v as f64 / 3.0),
        ColumnWriter::ByteArrayColumnWriter(w) => {
            write!(w, |v| ByteArray::from(format!("text {v}").as_str()))
        }
        ColumnWriter::FixedLenByteArrayColumnWriter(w) => write!(w, |v| {
            let len = descr.type_length() as usize;
            FixedLenByteArray::from(v.to_be_bytes().repeat(4)[..len].to_vec())
        }),
    }
}

fn column_descr<'a>(column: &'a ColumnWriter<'_>) -> &'a ColumnDescPtr {
    match column {
        ColumnWriter::BoolColumnWriter(w) => w.get_descriptor(),
        ColumnWriter::Int32ColumnWriter(w) => w.get_descriptor(),
        ColumnWriter::Int64ColumnWriter(w) => w.get_descriptor(),
        ColumnWriter::Int96ColumnWriter(w) => w.get_descriptor(),
        ColumnWriter::FloatColumnWriter(w) => w.get_descriptor(),
        ColumnWriter::DoubleColumnWriter(w) => w.get_descriptor(),
        ColumnWriter::ByteArrayColumnWriter(w) => w.get_descriptor(),
        ColumnWriter::FixedLenByteArrayColumnWriter(w) => w.get_descriptor(),
    }
}

/// The levels and values of a leaf; values as bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decoded {
    pub(crate) defs: Vec<i16>,
    pub(crate) reps: Vec<i16>,
    pub(crate) values: Vec<Vec<u8>>,
    pub(crate) rows: usize,
}

impl Decoded {
    /// What is left without the first `rows` rows.
    pub(crate) fn after_rows(&self, rows: usize, def_max: i16) -> Self {
        let starts = self.reps.iter().enumerate().filter(|(_, rep)| **rep == 0).map(|(i, _)| i);
        let level = if self.reps.is_empty() {
            rows
        } else {
            starts.chain([self.reps.len()]).nth(rows).unwrap()
        };
        let value = if self.defs.is_empty() {
            level
        } else {
            self.defs[..level].iter().filter(|&&d| d == def_max).count()
        };
        let tail = |levels: &[i16]| levels.get(level..).unwrap_or_default().to_vec();
        Self {
            defs: tail(&self.defs),
            reps: tail(&self.reps),
            values: self.values[value..].to_vec(),
            rows: self.rows - rows,
        }
    }
}

/// Keeps panics inside guards out of the output of the tests.
pub(crate) fn quiet_guards() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !guarding() {
                hook(info);
            }
        }));
    });
}

/// Decodes all rows of `pages` but the first `skip`, by the parquet crate.
pub(crate) fn decode(
    descr: ColumnDescPtr,
    pages: Box<dyn PageReader>,
    skip: u64,
) -> Result<Decoded> {
    let (def_max, rep_max) = (descr.max_def_level(), descr.max_rep_level());
    macro_rules! read {
        ($reader:expr) => {{
            let skipped = $reader.skip_records(skip as usize).map_err(unwrap_error)?;
            assert_eq!(skipped as u64, skip);
            let (mut out, mut values) = (Decoded::default(), Vec::new());
            loop {
                let (defs, reps) = (Some(&mut out.defs), Some(&mut out.reps));
                let (rows, ..) =
                    $reader.read_records(97, defs, reps, &mut values).map_err(unwrap_error)?;
                out.rows += rows;
                if rows == 0 {
                    break;
                }
            }
            out.values = values.iter().map(|v| v.as_bytes().to_vec()).collect();
            Ok(out)
        }};
    }
    quiet_guards();
    let decoded: Result<Decoded> = guard(|| match get_column_reader(descr, pages) {
        ColumnReader::BoolColumnReader(mut r) => read!(r),
        ColumnReader::Int32ColumnReader(mut r) => read!(r),
        ColumnReader::Int64ColumnReader(mut r) => read!(r),
        ColumnReader::Int96ColumnReader(mut r) => read!(r),
        ColumnReader::FloatColumnReader(mut r) => read!(r),
        ColumnReader::DoubleColumnReader(mut r) => read!(r),
        ColumnReader::ByteArrayColumnReader(mut r) => read!(r),
        ColumnReader::FixedLenByteArrayColumnReader(mut r) => read!(r),
    })
    .flatten();
    let decoded = decoded?;
    if def_max > 0 {
        assert!(rep_max == 0 || decoded.defs.len() == decoded.reps.len());
    }
    Ok(decoded)
}

/// A file whose footer has a list where the format has a number (a field of its writer's own); the
/// parquet crate reads the list as a number and loses its way.
pub(crate) const UNREADABLE_FOOTER: &str = "dict-page-offset-zero.parquet";

/// A file whose footer leaves the headers of dictionary pages out of its chunks' lengths.
pub(crate) const SHORT_CHUNKS: &str = "nation.dict-malformed.parquet";

/// A file with pages of 1 GiB, above `PAGE_BYTES_MAX`.
pub(crate) const HUGE_PAGES: &str = "large_string_map.brotli.parquet";

/// Files of other writers in the folder `data` or `bad_data`; none when they are not there.
pub(crate) fn testing_files(folder: &str) -> Vec<(String, Vec<u8>)> {
    let root = std::env::var_os("PLAIT_PARQUET_TESTING").map(PathBuf::from).unwrap_or_else(|| {
        let checkout = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
        checkout.join("../shared/data/parquet-testing")
    });
    let Ok(entries) = std::fs::read_dir(root.join(folder)) else {
        eprintln!("skipped: no files of other writers in {}", root.display());
        return Vec::new();
    };
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.retain(|path| path.extension().is_some_and(|e| e == "parquet"));
    paths.retain(|path| !path.ends_with(UNREADABLE_FOOTER));
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    paths.iter().map(|path| (name(path), std::fs::read(path).unwrap())).collect()
}

/// The footer of a file.
pub(crate) fn footer(bytes: &[u8]) -> &[u8] {
    let end = bytes.len() - 8;
    let len = u32::from_le_bytes(*bytes[..bytes.len() - 4].last_chunk().unwrap());
    &bytes[end - len as usize..end]
}

/// `bytes` with another footer: every column chunk's entry changed by `change`.
pub(crate) fn with_chunks(
    bytes: &[u8],
    change: impl Fn(&ColumnChunkMetaData, ColumnChunkMetaDataBuilder) -> ColumnChunkMetaDataBuilder,
) -> Vec<u8> {
    let footer_len = u32::from_le_bytes(*bytes[..bytes.len() - 4].last_chunk().unwrap()) as usize;
    let footer_start = bytes.len() - 8 - footer_len;
    let meta = ParquetMetaDataReader::decode_metadata(&bytes[footer_start..]).unwrap();
    let groups = meta.row_groups().iter().map(|group| {
        let chunks = group.columns().iter();
        let chunks = chunks.map(|c| change(c, c.clone().into_builder()).build().unwrap()).collect();
        group.clone().into_builder().set_column_metadata(chunks).build().unwrap()
    });
    let meta = ParquetMetaData::new(meta.file_metadata().clone(), groups.collect());
    let mut out = bytes[..footer_start].to_vec();
    ParquetMetaDataWriter::new(&mut out, &meta).finish().unwrap();
    out
}

/// A file with the leaf `repeated int32 a` whose pages of version 1 are cut wherever `pages` cuts,
/// even inside rows, as old writers did. Entries are (repetition level, value). With checksums.
pub(crate) fn file_by_hand(pages: &[&[(u8, i32)]]) -> Vec<u8> {
    let mut bytes = b"PAR1".to_vec();
    for page in pages {
        let groups = page.len().div_ceil(8);
        let mut levels = vec![(groups as u8) << 1 | 1];
        levels.extend(
            page.chunks(8).map(|chunk| {
                chunk.iter().enumerate().fold(0, |byte, (i, (rep, _))| byte | rep << i)
            }),
        );
        let mut body = (levels.len() as u32).to_le_bytes().to_vec();
        body.extend(levels);
        body.extend([2, 0, 0, 0, (page.len() as u8) << 1, 1]); // all defined
        body.extend(page.iter().flat_map(|(_, value)| value.to_le_bytes()));
        let mut header = Vec::new();
        let mut field = |start: u8, number: i64| {
            let mut zigzag = (number << 1 ^ number >> 63) as u64;
            header.push(start);
            while zigzag > 0x7f {
                header.push(zigzag as u8 | 0x80);
                zigzag >>= 7;
            }
            header.push(zigzag as u8);
        };
        field(0x15, 0);
        field(0x15, body.len() as i64);
        field(0x15, body.len() as i64);
        field(0x15, i64::from(crc32fast::hash(&body) as i32));
        header.extend([0x1c, 0x15, (page.len() as u8) << 1, 0x15, 0, 0x15, 6, 0x15, 6, 0, 0]);
        bytes.extend(header);
        bytes.extend(body);
    }
    let schema = parse_message_type("message m { repeated int32 a; }").unwrap();
    let schema = Arc::new(SchemaDescriptor::new(Arc::new(schema)));
    let rows = pages.iter().flat_map(|page| page.iter()).filter(|(rep, _)| *rep == 0).count();
    let chunk = ColumnChunkMetaData::builder(schema.column(0))
        .set_num_values(pages.iter().map(|page| page.len() as i64).sum())
        .set_data_page_offset(4)
        .set_total_compressed_size(bytes.len() as i64 - 4)
        .set_total_uncompressed_size(bytes.len() as i64 - 4)
        .build()
        .unwrap();
    let group = RowGroupMetaData::builder(Arc::clone(&schema))
        .set_num_rows(rows as i64)
        .set_total_byte_size(bytes.len() as i64 - 4)
        .add_column_metadata(chunk)
        .build()
        .unwrap();
    let file = FileMetaData::new(1, rows as i64, None, None, schema, None);
    let meta = ParquetMetaData::new(file, vec![group]);
    ParquetMetaDataWriter::new(&mut bytes, &meta).finish().unwrap();
    bytes
}
