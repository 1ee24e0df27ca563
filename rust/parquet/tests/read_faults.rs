//! Every write of spilled rows is made to fail in turn: the read has the same rows all the same.
//!
//! ```text
//! n       0       1      2      …                  fails, alone or with all after it
//! read    create  spill  spill  …                  all there: the loop ends
//! ```

#![allow(clippy::unwrap_used, reason = "tests")]

#[allow(dead_code, reason = "tests of merges use the rest")]
mod support;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use plait_parquet::{Context, ReadOptions, ReadStats, SortedRead, Stores};
use support::Folder;

const FILES: i64 = 40;
const ROWS: i64 = 400;

/// Files of one page a column, whose keys alternate.
fn files(folder: &Folder) -> Vec<String> {
    let file = |number: i64| {
        let name = format!("{number:02}.parquet");
        let keys: Vec<i64> = (0..ROWS).map(|row| row * FILES + number).collect();
        let texts: StringArray = keys.iter().map(|key| Some(format!("{key:01000}"))).collect();
        let columns: [(&str, ArrayRef); 2] =
            [("k", Arc::new(Int64Array::from(keys))), ("s", Arc::new(texts))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let properties = WriterProperties::builder().set_dictionary_enabled(false).build();
        let path = folder.path(&name);
        let file = OpenOptions::new().write(true).create_new(true).open(path).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        folder.text(&name)
    };
    (0..FILES).map(file).collect()
}

/// The keys that are read, and what was counted, where `fails` says which writes fail.
fn read(
    sources: &[String],
    dir: &str,
    fails: impl Fn(usize) -> bool + Send + Sync + 'static,
) -> (Vec<i64>, ReadStats) {
    let count = AtomicUsize::new(0);
    let fault = move |operation: &str| {
        let is_write = matches!(operation, "create" | "spill");
        if is_write && fails(count.fetch_add(1, Ordering::SeqCst)) {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "no space, says a test"));
        }
        Ok(())
    };
    let options = serde_json::json!({
        "sources": sources,
        "sort_by": "k",
        "reverse": false,
        "on_duplicate": "keep_all",
        "missing_keys": "error",
        "batch_rows": 1000,
        "threads": 1,
        "memory_limit": 16_000_000,
        "temp_dir": dir,
    });
    let options: ReadOptions = serde_json::from_value(options).unwrap();
    let context = Context::with_faults(16_000_000, Box::new(fault));
    let stores = Stores::try_new(&BTreeMap::new(), &context).unwrap();
    let rows = SortedRead::open(options, &stores, &context).unwrap();
    let mut keys = Vec::new();
    for batch in rows.batches().unwrap() {
        let batch = batch.unwrap();
        keys.extend_from_slice(batch.column(0).as_primitive::<Int64Type>().values());
    }
    let stats = rows.stats();
    drop(rows);
    (keys, stats)
}

#[test]
fn writes_that_fail_lose_no_row() {
    let folder = Folder::new("spilled-reads");
    let sources = files(&folder);
    let temp = folder.text("temp");
    let all: Vec<i64> = (0..FILES * ROWS).collect();
    let writes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&writes);
    let (keys, stats) = read(&sources, &temp, move |n| {
        counted.fetch_max(n + 1, Ordering::SeqCst);
        false
    });
    assert_eq!((keys, stats.spill_error), (all.clone(), None));
    let writes = writes.load(Ordering::SeqCst);
    assert!(writes > FILES as usize && stats.bytes_spilled > 10_000_000, "{writes}");
    for n in (0..8).chain((8..writes).step_by(37)) {
        for lasting in [false, true] {
            let (keys, stats) = read(&sources, &temp, move |at| at == n || lasting && at > n);
            assert_eq!(keys, all, "write {n} failed");
            assert!(stats.spill_error.unwrap().contains("no space"), "write {n} failed");
        }
    }
    assert!(support::names(&folder.path("temp")).is_empty(), "the file has no name");
}
