//! All actions of a version as a Parquet file.
//!
//! ```text
//! actions ─ JSON ─▶ record batches of one schema ─▶ 00…10.checkpoint.parquet ─▶ actions
//! ```
//!
//! # Invariants
//! A checkpoint holds what the commits before it say, and no more than tombstones and batch numbers
//! that may be forgotten are left out. The place of a file is added to its tags, since a checkpoint
//! does not say which version added a file. Columns that are not known are not read.
//!
//! # Cost
//! The bytes of the file and a batch of actions in memory.
//!
//! # Not here
//! When one is written (`commit`), which one is read (`load`).

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_json::reader::ReaderBuilder;
use arrow_json::writer::{LineDelimited, WriterBuilder};
use arrow_schema::{DataType, Field, Fields, Schema};
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use plait_core::{Error, Kind, Result};
use plait_parquet::Folder;

use crate::action::{Action, actions, lines};
use crate::interval::interval_ms;
use crate::mapping::stored_partitions;
use crate::name::{self, LAST};
use crate::snapshot::{PLACE, Snapshot};

/// Rows of a batch: lines of it are in memory at a time.
const BATCH_ROWS: usize = 1_024;
/// Bytes that are written at a time.
const PIECE_BYTES: usize = 4 << 20;
/// For how long removed files and batch numbers are remembered unless the table says otherwise.
const TOMBSTONES_MS: i64 = 7 * 86_400_000;

/// Columns that are read: what is not here says the same again in other types.
const READ: &[&str] = &["txn", "add", "remove", "metaData", "protocol", "sidecar"];
const NOT_READ: &[&str] = &["stats_parsed", "partitionValues_parsed"];

/// Writes the checkpoint of a snapshot and says that it is the last; one that is there stays.
///
/// # Errors
/// [`Kind::Storage`], [`Kind::Internal`].
pub(crate) fn write(snapshot: &Snapshot, now_ms: i64, folder: &Folder) -> Result<()> {
    let (bytes, rows) = encoded(rows(snapshot, now_ms))?;
    let name = name::checkpoint(snapshot.version);
    if folder.look(&[name.as_str()])?.iter().all(Option::is_none) {
        let mut file = folder.create(&name)?;
        for piece in bytes.chunks(PIECE_BYTES) {
            file.write(piece)?;
        }
        match file.close() {
            // Another writer had the same thought.
            Err(e) if e.kind() == Kind::OutputExists => {}
            outcome => outcome?,
        }
    }
    let last = serde_json::json!({
        "version": snapshot.version,
        "size": rows,
        "sizeInBytes": bytes.len(),
        "numOfAddFiles": snapshot.files.len(),
    });
    folder.replace(LAST, last.to_string().as_bytes())
}

/// The actions that a checkpoint of a snapshot has.
fn rows(snapshot: &Snapshot, now_ms: i64) -> impl Iterator<Item = Action> {
    let kept_ms = move |name: &str, otherwise: i64| {
        // A span that cannot be read is one without end.
        snapshot.setting(name).map_or(otherwise, |text| interval_ms(text).unwrap_or(i64::MAX))
    };
    let table = [
        Action { protocol: Some(snapshot.protocol.clone()), ..Action::default() },
        Action { meta_data: Some(snapshot.metadata.clone()), ..Action::default() },
    ];
    let since = now_ms.saturating_sub(kept_ms("delta.setTransactionRetentionDuration", i64::MAX));
    let is_kept = move |at: Option<i64>| at.is_none_or(|at| at > since);
    let txns = snapshot.txns.values().filter(move |txn| is_kept(txn.last_updated)).cloned();
    let txns = txns.map(|txn| Action { txn: Some(txn), ..Action::default() });
    let partitions = stored_partitions(&snapshot.metadata);
    let adds = snapshot.files.values().map(move |live| {
        let mut add = live.add.unpacked();
        add.data_change = false;
        for column in &partitions {
            add.partition_values.entry(column.clone()).or_default();
        }
        if let Some(place) = live.place {
            add.tags.get_or_insert_default().insert(PLACE.to_owned(), Some(place.text()));
        }
        Action { add: Some(add), ..Action::default() }
    });
    let since = now_ms.saturating_sub(kept_ms("delta.deletedFileRetentionDuration", TOMBSTONES_MS));
    let removed = snapshot.removed.values();
    let removed = removed.filter(move |remove| remove.deletion_timestamp.unwrap_or(0) > since);
    let removed = removed.map(|remove| {
        let remove = crate::action::Remove { data_change: false, ..remove.clone() };
        Action { remove: Some(remove), ..Action::default() }
    });
    table.into_iter().chain(txns).chain(adds).chain(removed)
}

/// Gives the actions of a checkpoint, or of a part of one, a batch at a time.
///
/// # Errors
/// [`Kind::CorruptSource`] for what is no checkpoint.
pub(crate) fn read(
    bytes: Vec<u8>,
    location: &str,
    take: &mut dyn FnMut(Vec<Action>),
) -> Result<()> {
    let damaged = |e: parquet::errors::ParquetError| corrupt(location, e);
    let builder = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(bytes)).map_err(damaged)?;
    let schema = builder.parquet_schema();
    let wanted = (0..schema.num_columns()).filter(|leaf| {
        let column = schema.column(*leaf);
        let mut parts = column.path().parts().iter().map(String::as_str);
        let root = parts.next().unwrap_or_default();
        READ.contains(&root) && !parts.next().is_some_and(|part| NOT_READ.contains(&part))
    });
    let mask = ProjectionMask::leaves(schema, wanted.collect::<Vec<_>>());
    let reader = builder.with_projection(mask).with_batch_size(BATCH_ROWS).build();
    for batch in reader.map_err(damaged)? {
        let batch = batch.map_err(|e| corrupt(location, e))?;
        let mut writer = WriterBuilder::new().build::<_, LineDelimited>(Vec::new());
        writer.write(&batch).and_then(|()| writer.finish()).map_err(|e| corrupt(location, e))?;
        take(actions(&writer.into_inner(), location)?);
    }
    Ok(())
}

fn corrupt(location: &str, e: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(Kind::CorruptSource, "a checkpoint of a table cannot be read")
        .with_path(location)
        .with_cause(e)
}

/// The file of all actions, and how many they are.
fn encoded(rows: impl Iterator<Item = Action>) -> Result<(Vec<u8>, usize)> {
    let failed = |e: Box<dyn std::error::Error + Send + Sync>| {
        Error::new(Kind::Internal, "cannot write a checkpoint").with_cause(e)
    };
    let schema = Arc::new(schema());
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), Arc::clone(&schema), Some(properties))
        .map_err(|e| failed(e.into()))?;
    let builder = ReaderBuilder::new(Arc::clone(&schema)).with_batch_size(BATCH_ROWS);
    let mut decoder = builder.build_decoder().map_err(|e| failed(e.into()))?;
    let (mut rows, mut count) = (rows, 0);
    loop {
        let some: Vec<Action> = rows.by_ref().take(BATCH_ROWS).collect();
        if some.is_empty() {
            break;
        }
        count += some.len();
        decoder.decode(&lines(&some)?).map_err(|e| failed(e.into()))?;
        let batch: Option<RecordBatch> = decoder.flush().map_err(|e| failed(e.into()))?;
        if let Some(batch) = batch {
            writer.write(&batch).map_err(|e| failed(e.into()))?;
        }
    }
    Ok((writer.into_inner().map_err(|e| failed(e.into()))?, count))
}

/// The columns of a checkpoint.
fn schema() -> Schema {
    use DataType::{Boolean, Int32, Int64};
    let file = || {
        vec![
            text("path"),
            map("partitionValues"),
            of("size", Int64),
            of("dataChange", Boolean),
            structs("deletionVector", vector()),
        ]
    };
    let mut add = file();
    add.extend([
        of("modificationTime", Int64),
        text("stats"),
        map("tags"),
        of("baseRowId", Int64),
        of("defaultRowCommitVersion", Int64),
        text("clusteringProvider"),
    ]);
    let mut remove = file();
    remove.extend([of("deletionTimestamp", Int64), of("extendedFileMetadata", Boolean)]);
    let txn = vec![text("appId"), of("version", Int64), of("lastUpdated", Int64)];
    let metadata = vec![
        text("id"),
        text("name"),
        text("description"),
        structs("format", vec![text("provider"), map("options")]),
        text("schemaString"),
        list("partitionColumns"),
        map("configuration"),
        of("createdTime", Int64),
    ];
    let protocol = vec![
        of("minReaderVersion", Int32),
        of("minWriterVersion", Int32),
        list("readerFeatures"),
        list("writerFeatures"),
    ];
    Schema::new(vec![
        structs("txn", txn),
        structs("add", add),
        structs("remove", remove),
        structs("metaData", metadata),
        structs("protocol", protocol),
    ])
}

fn vector() -> Vec<Field> {
    use DataType::{Int32, Int64};
    vec![
        text("storageType"),
        text("pathOrInlineDv"),
        of("offset", Int32),
        of("sizeInBytes", Int32),
        of("cardinality", Int64),
    ]
}

fn of(name: &str, kind: DataType) -> Field {
    Field::new(name, kind, true)
}

fn text(name: &str) -> Field {
    of(name, DataType::Utf8)
}

fn structs(name: &str, fields: Vec<Field>) -> Field {
    of(name, DataType::Struct(Fields::from(fields)))
}

fn list(name: &str) -> Field {
    of(name, DataType::List(Arc::new(text("element"))))
}

fn map(name: &str) -> Field {
    let entry = vec![Field::new("key", DataType::Utf8, false), text("value")];
    let entries = Field::new("key_value", DataType::Struct(Fields::from(entry)), false);
    of(name, DataType::Map(Arc::new(entries), false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{Add, Remove, Txn, Vector};

    #[test]
    fn a_checkpoint_says_what_the_commits_say() {
        let mut table = Snapshot::default();
        let text = br#"{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["timestampNtz"],"writerFeatures":["timestampNtz"]}}
{"metaData":{"id":"i","format":{"provider":"parquet","options":{}},"schemaString":"{\"a\":1}","partitionColumns":["d"],"configuration":{"x":"y"},"createdTime":5}}
{"add":{"path":"d=1/a%20b","partitionValues":{"d":"1"},"size":7,"modificationTime":8,"dataChange":true,"stats":"{\"numRecords\":3}"}}
{"add":{"path":"n","partitionValues":{"d":null},"size":7,"modificationTime":8,"dataChange":true}}
{"txn":{"appId":"app","version":4,"lastUpdated":9}}
"#;
        table.apply(0, actions(text, "log").unwrap());
        let vector = Vector { storage_type: "u".into(), cardinality: 3, ..Vector::default() };
        let add = Add { path: "v".into(), deletion_vector: Some(vector), ..Add::default() };
        table.apply(1, vec![Action { add: Some(add), ..Action::default() }]);
        let old = |path: &str, at: i64| Remove {
            path: path.to_owned(),
            deletion_timestamp: Some(at),
            ..Remove::default()
        };
        let removes = [old("long ago", 1), old("lately", TOMBSTONES_MS)];
        let removes = removes.map(|r| Action { remove: Some(r), ..Action::default() });
        table.apply(2, removes.to_vec());
        let (bytes, count) = encoded(rows(&table, TOMBSTONES_MS + 5)).unwrap();
        assert_eq!(count, 7);
        let mut again = Snapshot::of_checkpoint(2);
        read(bytes, "checkpoint", &mut |actions| again.absorb(actions)).unwrap();
        assert_eq!((&again.protocol, &again.metadata), (&table.protocol, &table.metadata));
        assert_eq!(again.txns, table.txns);
        assert_eq!(again.files.keys().collect::<Vec<_>>(), table.files.keys().collect::<Vec<_>>());
        assert_eq!(again.removed.keys().collect::<Vec<_>>(), ["lately"]);
        for (name, live) in &again.files {
            let before = &table.files[name];
            assert_eq!(live.place, before.place);
            let (before, mut add) = (&table.files[name], live.add.unpacked());
            let mut expected = before.add.unpacked();
            add.data_change = expected.data_change;
            add.partition_values.retain(|_, value| value.is_some());
            expected.partition_values.retain(|_, value| value.is_some());
            assert_eq!(add, expected);
        }
        let e = read(b"PAR1 nothing".to_vec(), "checkpoint", &mut drop).unwrap_err();
        assert_eq!((e.kind(), e.path()), (Kind::CorruptSource, Some("checkpoint")));
    }

    #[test]
    fn batch_numbers_are_forgotten_as_the_table_says() {
        let mut table = Snapshot::default();
        for (app, at) in [("old", Some(1)), ("new", Some(86_400_000)), ("timeless", None)] {
            let txn = Txn { app_id: app.into(), version: 1, last_updated: at };
            table.apply(0, vec![Action { txn: Some(txn), ..Action::default() }]);
        }
        let apps = |table: &Snapshot| {
            let rows = rows(table, 86_400_005);
            rows.filter_map(|row| Some(row.txn?.app_id)).collect::<Vec<_>>()
        };
        assert_eq!(apps(&table), ["new", "old", "timeless"]);
        let name = "delta.setTransactionRetentionDuration".to_owned();
        table.metadata.configuration.insert(name, Some("interval 1 day".into()));
        assert_eq!(apps(&table), ["new", "timeless"]);
    }
}
