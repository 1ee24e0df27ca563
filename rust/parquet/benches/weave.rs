//! One leaf of eight sources whose rows interleave, on one thread, without codec:
//! `weave/{key,boolean,int32,…}`. Each is a whole merge of an `int64` key and one leaf of that
//! type; `key` has no other leaf, and is what the others have in common.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use criterion::{Criterion, Throughput};
use parquet::basic::Compression;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{ByteArray, FixedLenByteArray};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use plait_parquet::merge;
use plait_parquet::{Context, MergeOptions};

const SOURCES: u64 = 8;
const ROWS: u64 = 1 << 16;
/// What `v` is. Texts of `dictionary` repeat.
const TYPES: [(&str, &str); 10] = [
    ("key", ""),
    ("boolean", "required boolean v;"),
    ("int32", "required int32 v;"),
    ("int64", "required int64 v;"),
    ("int64_nulls", "optional int64 v;"),
    ("float", "required float v;"),
    ("double", "required double v;"),
    ("fixed16", "required fixed_len_byte_array(16) v;"),
    ("text", "required binary v (UTF8);"),
    ("dictionary", "required binary v (UTF8);"),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut criterion = Criterion::default().configure_from_args();
    let folder = std::env::temp_dir().join(format!("plait-bench-weave-{}", std::process::id()));
    let mut group = criterion.benchmark_group("weave");
    group.throughput(Throughput::Elements(SOURCES * ROWS)).sample_size(20);
    for (name, leaf) in TYPES {
        let sources = folder.join(name);
        std::fs::create_dir_all(&sources)?;
        let paths: Vec<PathBuf> =
            (0..SOURCES).map(|source| sources.join(format!("{source}.parquet"))).collect();
        for (source, path) in paths.iter().enumerate() {
            write(path, name, leaf, source as u64)?;
        }
        let options = MergeOptions {
            sources: paths.iter().map(|path| path.display().to_string()).collect(),
            out: folder.join("out.parquet").display().to_string(),
            sort_by: Some("k".into()),
            threads: Some(1),
            ..MergeOptions::default()
        };
        group.bench_function(name, |bencher| bencher.iter(|| measured(&options)));
    }
    group.finish();
    std::fs::remove_dir_all(&folder)?;
    criterion.final_summary();
    Ok(())
}

#[inline(never)]
fn measured(options: &MergeOptions) -> plait_core::Result<u64> {
    let report = merge(options, &Context::new(512 << 20))?;
    // The next merge into the same place would be refused.
    let _ = std::fs::remove_file(&options.out);
    Ok(report.rows_out)
}

/// A source with every eighth key.
#[expect(clippy::disallowed_methods, reason = "a bench makes its own files")]
fn write(path: &Path, name: &str, leaf: &str, source: u64) -> Result<(), ParquetError> {
    let schema =
        Arc::new(parse_message_type(&format!("message m {{ required int64 k; {leaf} }}"))?);
    let properties = WriterProperties::builder()
        .set_compression(Compression::UNCOMPRESSED)
        .set_dictionary_enabled(name == "dictionary")
        .build();
    let mut writer = SerializedFileWriter::new(File::create(path)?, schema, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    let rows = || (0..ROWS).map(|row| row * SOURCES + source);
    let mixed = || rows().map(|row| row.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let text = |n: u64| match name {
        "dictionary" => ByteArray::from(format!("value {}", n >> 54).into_bytes()),
        _ => ByteArray::from(format!("{n:032x}").into_bytes()),
    };
    let levels: Vec<i16> = rows().map(|row| i16::from(row % 3 != 0)).collect();
    while let Some(mut column) = group.next_column()? {
        let is_key = matches!(column.untyped(), ColumnWriter::Int64ColumnWriter(c)
            if c.get_descriptor().name() == "k");
        match column.untyped() {
            ColumnWriter::Int64ColumnWriter(c) if is_key => {
                c.write_batch(&rows().map(|n| n as i64).collect::<Vec<_>>(), None, None)?
            }
            ColumnWriter::Int64ColumnWriter(c) if name == "int64_nulls" => {
                let there = mixed().zip(&levels).filter(|(_, level)| **level == 1);
                c.write_batch(
                    &there.map(|(n, _)| n as i64).collect::<Vec<_>>(),
                    Some(&levels),
                    None,
                )?
            }
            ColumnWriter::Int64ColumnWriter(c) => {
                c.write_batch(&mixed().map(|n| n as i64).collect::<Vec<_>>(), None, None)?
            }
            ColumnWriter::BoolColumnWriter(c) => {
                c.write_batch(&mixed().map(|n| n >> 63 == 1).collect::<Vec<_>>(), None, None)?
            }
            ColumnWriter::Int32ColumnWriter(c) => {
                c.write_batch(&mixed().map(|n| n as i32).collect::<Vec<_>>(), None, None)?
            }
            ColumnWriter::FloatColumnWriter(c) => {
                c.write_batch(&mixed().map(|n| n as f32).collect::<Vec<_>>(), None, None)?
            }
            ColumnWriter::DoubleColumnWriter(c) => {
                c.write_batch(&mixed().map(|n| n as f64).collect::<Vec<_>>(), None, None)?
            }
            ColumnWriter::ByteArrayColumnWriter(c) => {
                c.write_batch(&mixed().map(text).collect::<Vec<_>>(), None, None)?
            }
            ColumnWriter::FixedLenByteArrayColumnWriter(c) => {
                let fixed = |n: u64| {
                    FixedLenByteArray::from(ByteArray::from([n.to_le_bytes(); 2].concat()))
                };
                c.write_batch(&mixed().map(fixed).collect::<Vec<_>>(), None, None)?
            }
            ColumnWriter::Int96ColumnWriter(_) => 0,
        };
        column.close()?;
    }
    group.close()?;
    writer.close()?;
    Ok(())
}
