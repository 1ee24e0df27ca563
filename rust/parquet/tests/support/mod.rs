//! Folders and files for the tests of this crate's door.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::record::RowAccessor;
use parquet::schema::parser::parse_message_type;

/// A folder of one test, removed at its end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// An empty folder.
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("plait-faults-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// The path of `name` in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The same as text.
    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Names in a folder, sorted; none if it does not exist.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let name = |e: std::io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}

/// Writes a file whose rows have the keys `keys`, a text of `text_bytes` bytes that does not
/// compress, and a list of up to two numbers.
pub(crate) fn write(path: &Path, keys: &[i64], text_bytes: usize, rows_per_group: usize) {
    let schema = parse_message_type(
        "message m {
            required int64 k;
            required binary s;
            optional group l (LIST) { repeated group list { optional int32 element; } }
        }",
    );
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_dictionary_enabled(false)
        .set_data_page_row_count_limit(8)
        .set_write_batch_size(4)
        .build();
    let file = OpenOptions::new().write(true).create_new(true).open(path).unwrap();
    let mut writer =
        SerializedFileWriter::new(file, Arc::new(schema.unwrap()), Arc::new(properties)).unwrap();
    let mut seed = 1_u64;
    for keys in keys.chunks(rows_per_group) {
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(keys, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let mut text = || {
            let bytes = (0..text_bytes).map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 33) as u8
            });
            ByteArray::from(bytes.collect::<Vec<u8>>())
        };
        let texts: Vec<ByteArray> = keys.iter().map(|_| text()).collect();
        column.typed::<ByteArrayType>().write_batch(&texts, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        // Row by row: absent, empty, one null, two numbers.
        let (mut def, mut rep, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for &key in keys {
            let levels: &[i16] = match key.rem_euclid(4) {
                0 => &[0],
                1 => &[1],
                2 => &[2],
                _ => &[3, 3],
            };
            def.extend(levels);
            rep.extend((0..levels.len()).map(|i| i16::from(i > 0)));
            values.extend(levels.iter().filter(|&&d| d == 3).map(|_| key as i32));
        }
        column.typed::<Int32Type>().write_batch(&values, Some(&def), Some(&rep)).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.close().unwrap();
}

/// The keys of a file that must be whole: all of its columns are decoded.
pub(crate) fn read_keys(path: &Path) -> Vec<i64> {
    let file = OpenOptions::new().read(true).open(path).unwrap();
    let reader = SerializedFileReader::new(file).unwrap();
    let rows = reader.get_row_iter(None).unwrap();
    rows.map(|row| {
        let row = row.unwrap();
        assert_eq!(row.len(), 3);
        row.get_long(0).unwrap()
    })
    .collect()
}
