//! Record batches in any order as sorted files, in bounded memory.
//!
//! ```text
//! write   batch batch batch ─▶ memory full? sort ─▶ a sorted run, a temp file
//! flush   runs ─▶ merge ─▶ files with names, durable
//! ```
//!
//! # Invariants
//! Rows that were flushed are in files that are whole, durable and sorted; rows that were not are in
//! no file with a name. The sort is stable: rows with one key keep the order in which they came,
//! within a flush. No two flushes write files of one name.
//!
//! # Cost
//! Every row is copied once in memory, written once as part of a run, and once by the merge; a
//! flush whose rows fit into memory writes one run. Memory: a third of the limit for rows, see
//! `budget`.
//!
//! # Not here
//! Merging runs (`merge`); files that are to be sorted (`sort`).

use std::collections::BTreeMap;
use std::io::BufWriter;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, compute_leaves};
use parquet::basic::Compression;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::SchemaDescriptor;
use plait_core::key::SortOrder;
use plait_core::stream::{batch_keys, check_order};
use plait_core::workers::each;
use plait_core::{Error, Kind, Result, SourceId, type_text};
use plait_interleave::Interleave;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::guard::{guard, unwrap_error};
use crate::join::Reader;
use crate::json::from_json;
use crate::merge::{OpenMerge, merge_open};
use crate::options::{IfExists, MergeOptions};
use crate::output::{Target, TempFile};
use crate::partition;
use crate::report::MergeReport;
use crate::runtime::{Charge, Context, MemoryStage, ScopedWorkers};
use crate::sort::SortKeys;
use crate::source::{Source, hexadecimal};
use crate::store::Stores;
use crate::store::table::is_id;

/// Codec of outputs where none is asked for.
const COMPRESSION: &str = "zstd";

/// A run has about so many row groups: the writer holds one of them encoded, and a merge the footers
/// of all runs.
const GROUPS_PER_RUN: usize = 2;

/// Rows of a page of a run.
const PAGE_ROWS: usize = 8 << 10;

/// Rows of a row group at least.
const GROUP_ROWS_MIN: usize = 8 << 10;

/// Rows that are copied at a time.
const COPY_ROWS: usize = 16 << 10;

/// How to write.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RunWriterOptions {
    /// Options of the merge; `out` is where files go, and there are no sources.
    merge: MergeOptions,
    /// 16 random hexadecimal digits, part of the names of files.
    id: String,
    /// `plait.merge_level` of the files: 0 for rows that are new, that of a file whose rows they are.
    merge_level: u64,
    /// Read by the border: bytes of memory to stay within.
    #[serde(rename = "memory_limit")]
    _memory_limit: Option<u64>,
    /// Read by the border: settings of object stores.
    #[serde(rename = "storage_options")]
    _storage_options: BTreeMap<String, String>,
}

/// Writes record batches, which come in any order, as sorted files.
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::Arc;
///
/// use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchIterator};
/// use plait_parquet::{Context, RunWriter, Stores};
///
/// # let folder = std::env::temp_dir().join(format!("plait-runs-{}", std::process::id()));
/// # let out = folder.to_string_lossy();
/// let context = Context::new(64 << 20);
/// let stores = Stores::try_new(&BTreeMap::new(), &context)?;
/// let options = format!(
///     r#"{{"merge": {{"out": "{out}", "sort_by": "k"}}, "id": "0123456789abcdef"}}"#
/// );
/// let mut writer = RunWriter::open(&options, &stores, &context)?;
/// for keys in [vec![3, 1], vec![2]] {
///     let keys: ArrayRef = Arc::new(Int64Array::from(keys));
///     let batch = RecordBatch::try_from_iter([("k", keys)])?;
///     let schema = batch.schema();
///     writer.write(Box::new(RecordBatchIterator::new([Ok(batch)], schema)))?;
/// }
/// let report = writer.flush()?;
/// assert_eq!(report.map(|report| report.rows_out), Some(3));
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RunWriter {
    options: MergeOptions,
    id: String,
    merge_level: u64,
    order: SortOrder,
    stores: Stores,
    context: Context,
    target: Target,
    schema: Option<SchemaRef>,
    batches: Vec<RecordBatch>,
    /// Bytes of the batches.
    charge: Charge,
    bytes: usize,
    rows: u64,
    runs: Vec<TempFile>,
    flushes: u64,
}

impl RunWriter {
    /// Opens the folder or file that `options`, JSON, name.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] for options that cannot be read, [`Kind::OutputExists`],
    /// [`Kind::Storage`].
    pub fn open(options: &str, stores: &Stores, context: &Context) -> Result<Self> {
        let RunWriterOptions { mut merge, id, merge_level, .. } = from_json(options)?;
        let Some(order) = merge.sort_by.as_deref().map(SortOrder::try_parse).transpose()? else {
            return Err(Error::new(Kind::InvalidArgument, "a run writer has no order")
                .with_hint("pass sort_by, for example sort_by=\"service, -timestamp\""));
        };
        if !is_id(&id) {
            return Err(Error::new(Kind::InvalidArgument, "`id` is not 16 hexadecimal digits")
                .with_got(format!("`{id}`")));
        }
        merge.compression.get_or_insert_with(|| COMPRESSION.to_owned());
        merge.memory_limit = context.limit_bytes() as u64;
        merge.check_values()?;
        let order = partition::order(&merge.partition_by, &order)?;
        let target = Target::open(&merge.out, stores, context)?;
        if let Err(e) = check_free(&target, &merge) {
            target.abandon();
            return Err(e);
        }
        // From now on, files of this writer are there.
        merge.if_exists = IfExists::Add;
        Ok(Self {
            options: merge,
            id,
            merge_level,
            order,
            stores: stores.clone(),
            context: context.clone(),
            target,
            schema: None,
            batches: Vec::new(),
            charge: context.charge(0),
            bytes: 0,
            rows: 0,
            runs: Vec::new(),
            flushes: 0,
        })
    }

    /// Takes in all batches of `reader`; gives their rows. The first batches say what the columns
    /// are.
    ///
    /// # Errors
    /// [`Kind::SchemaConflict`] for other columns than those before, [`Kind::UnknownColumn`] and
    /// [`Kind::UnsupportedKey`] for sort columns, what the reader gives, and [`Kind::Storage`]. What
    /// was taken in before stays.
    pub fn write(&mut self, reader: Reader) -> Result<u64> {
        let schema = reader.schema();
        match &self.schema {
            None => check_order(&self.order, &schema)?,
            Some(known) => check_same(known, &schema)?,
        }
        let schema = Arc::clone(self.schema.get_or_insert(schema));
        let mut rows = 0;
        for batch in reader {
            self.context.check_cancelled()?;
            let batch = batch.map_err(Error::from_arrow)?;
            check_same(&schema, &batch.schema())?;
            if batch.num_rows() == 0 {
                continue;
            }
            rows += batch.num_rows() as u64;
            self.take(batch)?;
        }
        Ok(rows)
    }

    fn take(&mut self, batch: RecordBatch) -> Result<()> {
        let room = self.context.budget().bytes(MemoryStage::WrittenRows);
        let bytes = slice_bytes(&batch)?;
        // A batch that is larger than the room comes in parts.
        let parts = bytes.div_ceil(room.max(1)).clamp(1, batch.num_rows());
        let rows_max = batch.num_rows().div_ceil(parts);
        let mut start = 0;
        while start < batch.num_rows() {
            let rows = rows_max.min(batch.num_rows() - start);
            let part = batch.slice(start, rows);
            let bytes = bytes / parts + rows * SortKeys::ROW_BYTES;
            if !self.batches.is_empty() && self.bytes + bytes > room {
                self.spill()?;
            }
            self.bytes += bytes;
            self.rows += rows as u64;
            self.batches.push(part);
            self.charge.set(self.bytes);
            start += rows;
        }
        Ok(())
    }

    /// Writes all rows that were taken in as sorted files; none if there are no rows.
    ///
    /// # Errors
    /// As [`merge`](crate::merge()). No file is visible then, and the rows are kept: flushing may be
    /// tried again.
    pub fn flush(&mut self) -> Result<Option<MergeReport>> {
        self.spill()?;
        if self.runs.is_empty() {
            return Ok(None);
        }
        if self.flushes > 0
            && let Some(name) = self.target.file_name()
        {
            return Err(Error::new(Kind::InvalidArgument, "one file holds one flush")
                .with_path(self.target.location(name))
                .with_hint("write to a folder"));
        }
        let open = |(i, temp): (usize, &TempFile)| {
            let id = SourceId(u32::try_from(i).unwrap_or(u32::MAX));
            Source::open_scratch(temp).map(|source| Arc::new(source.with_id(id)))
        };
        let sources = self.runs.iter().enumerate().map(open).collect::<Result<Vec<_>>>()?;
        let lease = Sha256::digest(format!("{} {}", self.id, self.flushes).as_bytes());
        let lease = hexadecimal(lease.get(..8).unwrap_or_default());
        let of = OpenMerge { lease, merge_level: self.merge_level };
        let report = merge_open(Arc::new(sources), of, &self.options, &self.stores, &self.context)?;
        self.runs.clear();
        self.rows = 0;
        self.flushes += 1;
        Ok(Some(report))
    }

    /// Gives up: rows that were not flushed are gone.
    pub fn abort(self) {
        let Self { target, runs, .. } = self;
        drop(runs);
        target.abandon();
    }

    /// Rows that are taken in and not flushed.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Sorts the batches, and writes them as a run.
    fn spill(&mut self) -> Result<()> {
        let Some(schema) = self.schema.clone().filter(|_| !self.batches.is_empty()) else {
            return Ok(());
        };
        let mut keys = SortKeys::default();
        for batch in &self.batches {
            keys.push(0, &batch_keys(&self.order, batch)?);
        }
        let rows = self.batches.iter().map(RecordBatch::num_rows).sum::<usize>();
        let order = keys.sort();
        let group_rows = (rows / GROUPS_PER_RUN).max(GROUP_ROWS_MIN);
        let temp = self.write_run(&schema, &order, group_rows)?;
        self.context.counters().add_spilled(temp.bytes());
        self.runs.push(temp);
        self.batches.clear();
        self.bytes = 0;
        self.charge.set(0);
        Ok(())
    }

    /// Writes the rows of all batches in `order`, column by column.
    fn write_run(&self, schema: &SchemaRef, order: &[u32], group_rows: usize) -> Result<TempFile> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::LZ4_RAW)
            // Pages are not skipped when runs are merged.
            .set_statistics_enabled(EnabledStatistics::Chunk)
            // A merge holds a page of every run.
            .set_data_page_row_count_limit(PAGE_ROWS)
            .set_write_batch_size(PAGE_ROWS)
            .build();
        let temp = self.target.create_scratch()?;
        let (mut file, factory) =
            ArrowWriter::try_new(BufWriter::new(temp), Arc::clone(schema), Some(properties))
                .and_then(ArrowWriter::into_serialized_writer)
                .map_err(unwrap_error)?;
        let leaves = leaves_of(file.schema_descr(), schema.fields().len());
        let columns = SortedColumns::new(&self.batches, schema.fields().len());
        let (workers, context) = (ScopedWorkers::new(self.options.threads), &self.context);
        for (number, rows) in order.chunks(group_rows).enumerate() {
            let rows: Vec<Selectors> = rows.chunks(COPY_ROWS).map(|r| columns.select(r)).collect();
            let encoded = each(&workers, leaves.len(), |i| {
                let mut writers = factory.create_column_writers(number).map_err(unwrap_error)?;
                let mut writers: Vec<_> = writers.drain(leaves[i].clone()).collect();
                for rows in &rows {
                    context.check_cancelled()?;
                    let array = columns.copy(i, rows)?;
                    let write = || {
                        let leaves = compute_leaves(schema.field(i), &array)?;
                        writers.iter_mut().zip(&leaves).try_for_each(|(to, leaf)| to.write(leaf))
                    };
                    guard(write)?.map_err(unwrap_error)?;
                }
                let close = |writer: ArrowColumnWriter| writer.close().map_err(unwrap_error);
                writers.into_iter().map(close).collect::<Result<Vec<_>>>()
            })?;
            let mut group = file.next_row_group().map_err(unwrap_error)?;
            for chunk in encoded.into_iter().flatten() {
                chunk.append_to_row_group(&mut group).map_err(unwrap_error)?;
            }
            group.close().map_err(unwrap_error)?;
        }
        let buffer = file.into_inner().map_err(unwrap_error)?;
        buffer.into_inner().map_err(|e| unwrap_error(e.into_error().into()))
    }
}

/// The leaves of each of so many columns.
fn leaves_of(descr: &SchemaDescriptor, columns: usize) -> Vec<Range<usize>> {
    let leaves = 0..descr.num_columns();
    let first = |column| leaves.clone().find(|leaf| descr.get_column_root_idx(*leaf) >= column);
    let first = |column| first(column).unwrap_or(leaves.end);
    (0..columns).map(|column| first(column)..first(column + 1)).collect()
}

/// Refuses a file or folder of others.
fn check_free(target: &Target, options: &MergeOptions) -> Result<()> {
    let taken = match target.file_name() {
        Some(name) => target.exists(name)?.then(|| name.to_owned()),
        None if options.if_exists == IfExists::Add => None,
        None if options.partition_by.is_empty() => target.visible()?.into_iter().next(),
        None => target.visible_below()?.into_iter().next(),
    };
    match taken {
        None => Ok(()),
        Some(name) => Err(Error::new(Kind::OutputExists, "the output is there already")
            .with_path(target.location(&name))
            .with_hint("write to an empty folder, or pass if_exists=\"add\"")),
    }
}

/// Refuses columns that differ in name or type.
fn check_same(known: &SchemaRef, found: &SchemaRef) -> Result<()> {
    if Arc::ptr_eq(known, found) {
        return Ok(());
    }
    let columns = |schema: &SchemaRef| -> Vec<String> {
        let fields = schema.fields().iter();
        fields.map(|f| format!("{}: {}", f.name(), type_text(f.data_type()))).collect()
    };
    let (known, found) = (columns(known), columns(found));
    if known == found {
        return Ok(());
    }
    let differs = known.iter().zip(&found).find(|(known, found)| known != found);
    let got = match differs {
        Some((known, found)) => format!("`{found}` instead of `{known}`"),
        None => format!("{} columns instead of {}", found.len(), known.len()),
    };
    Err(Error::new(Kind::SchemaConflict, "batches of one writer differ in their columns")
        .with_got(got)
        .with_hint("cast them to one schema before they are written"))
}

/// Bytes of the rows of a batch, not of what its buffers hold besides.
fn slice_bytes(batch: &RecordBatch) -> Result<usize> {
    batch.columns().iter().try_fold(0, |sum, array| {
        let bytes = array.to_data().get_slice_memory_size().map_err(Error::from_arrow)?;
        Ok(sum + bytes)
    })
}

/// Batches whose rows are copied in any order, column by column.
struct SortedColumns {
    /// By column: the arrays of all batches.
    columns: Vec<Arc<[ArrayRef]>>,
    /// First row of each batch.
    starts: Vec<u32>,
}

/// Rows: which batch each is in, and which of its rows it is.
struct Selectors {
    batches: ArrayRef,
    rows: ArrayRef,
}

impl SortedColumns {
    fn new(batches: &[RecordBatch], columns: usize) -> Self {
        let column = |i| batches.iter().map(|batch| Arc::clone(batch.column(i))).collect();
        let mut start = 0;
        let starts = batches.iter().map(|batch| {
            let first = start;
            start += batch.num_rows() as u32;
            first
        });
        let starts = starts.collect();
        Self { columns: (0..columns).map(column).collect(), starts }
    }

    fn select(&self, order: &[u32]) -> Selectors {
        let (mut batches, mut rows) = (Vec::new(), Vec::new());
        for row in order {
            let batch = self.starts.partition_point(|start| start <= row).saturating_sub(1);
            batches.push(batch as u32);
            rows.push(row - self.starts.get(batch).copied().unwrap_or(0));
        }
        Selectors {
            batches: Arc::new(UInt32Array::from(batches)),
            rows: Arc::new(UInt32Array::from(rows)),
        }
    }

    fn copy(&self, column: usize, at: &Selectors) -> Result<ArrayRef> {
        let arrays = self.columns.get(column).map(Arc::clone).unwrap_or_else(|| Arc::new([]));
        let (batches, rows) = (Arc::clone(&at.batches), Arc::clone(&at.rows));
        Interleave::try_new(arrays, batches, rows)?.to_arrow()
    }
}
