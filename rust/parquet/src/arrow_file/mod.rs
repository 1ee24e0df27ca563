//! Rows of a Parquet file as record batches: the one way from Parquet to Arrow.
//!
//! ```text
//! scan · merge_streams · overlay ─▶ Batches ─▶ the parquet crate's Arrow reader ─▶ batches
//!                                               ▲ pages: lengths, checksums, limits checked here
//! ```
//!
//! # Invariants
//! Only chunks of leaves that are asked for are read. A page that does not fit the memory limit is
//! [`Kind::MemoryLimit`] with file, column and size. A panic of the decoders is
//! [`Kind::CorruptSource`].
//!
//! # Cost
//! A window and a page of every leaf, and one batch of `batch_bytes` or one row. Where rows turn
//! out to be larger than they seemed, a batch is made of several smaller ones, which are copied
//! once more.
//!
//! # Not here
//! Which leaves, and what becomes of batches (`scan`, `stream`, `overlay`).

mod bytes;
mod int96;
mod load;
mod located;
mod pages;

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{DataType, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use arrow_select::concat::concat_batches;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, RowSelection, RowSelector};
use parquet::arrow::{
    ARROW_SCHEMA_META_KEY, FieldLevels, ProjectionMask, parquet_to_arrow_field_levels,
    parquet_to_arrow_schema,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use plait_core::{Error, Kind, Result};

use self::bytes::Windows;
use self::load::Load;
use self::pages::{Groups, Shared};
use crate::page::{Kept, guard, unwrap_error};
use crate::runtime::Context;
use crate::source::Source;

pub(crate) use self::located::{Located, LocatedRows};

/// How much fewer rows a batch gets that turned out to be too large.
const FEWER: usize = 8;

/// The Arrow schema of a file.
#[derive(Clone, Debug)]
pub(crate) struct FileSchema {
    schema: SchemaRef,
    units: Vec<Option<TimeUnit>>,
}

impl FileSchema {
    /// The schema that `source` is read with: the one that its writer stored, or the usual types.
    ///
    /// # Errors
    /// Types that Arrow does not have.
    pub(crate) fn of(source: &Source) -> Result<Self> {
        let file = source.file();
        let (descr, entries) = (file.schema_descr(), file.key_value_metadata());
        let made = guard(|| parquet_to_arrow_schema(descr, entries))
            .and_then(|made| made.map_err(unwrap_error))
            .map_err(|e| e.with_path(source.path()))?;
        let is_stored = entries.is_some_and(|all| {
            all.iter().any(|entry| entry.key == ARROW_SCHEMA_META_KEY && entry.value.is_some())
        });
        // A stored schema says which unit the writer held.
        let fields = match is_stored {
            true => made.fields().clone(),
            false => int96::in_microseconds(made.fields(), descr),
        };
        let units = int96::units(&fields, descr);
        let schema = Arc::new(Schema::new_with_metadata(fields, made.metadata().clone()));
        Ok(Self { schema, units })
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Whether timestamps are INT96, whose values may not fit: see [`Batches`].
    pub(crate) fn has_int96(&self) -> bool {
        self.units.iter().any(Option::is_some)
    }

    /// Whether some of these leaves are.
    pub(crate) fn has_int96_among(&self, leaves: Range<usize>) -> bool {
        self.units.get(leaves).is_some_and(|units| units.iter().any(Option::is_some))
    }

    /// The same, with texts in the columns `columns` as dictionaries; none if none of these is
    /// text.
    pub(crate) fn with_codes(&self, columns: &[usize]) -> Option<Self> {
        let coded = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let field = |(at, field): (usize, &FieldRef)| match columns.contains(&at)
            && *field.data_type() == DataType::Utf8
        {
            true => Arc::new(field.as_ref().clone().with_data_type(coded.clone())),
            false => Arc::clone(field),
        };
        let fields: Fields = self.schema.fields().iter().enumerate().map(field).collect();
        if fields == *self.schema.fields() {
            return None;
        }
        let schema = Schema::new_with_metadata(fields, self.schema.metadata().clone());
        Some(Self { schema: Arc::new(schema), units: self.units.clone() })
    }

    /// The same, with timestamps that are INT96 in the units of `target`, by name: so it holds
    /// what no other unit would.
    #[must_use]
    pub(crate) fn in_units_of(self, source: &Source, target: &Schema) -> Self {
        if self.units.iter().all(Option::is_none) {
            return self;
        }
        let descr = source.schema();
        let fields = int96::in_units_of(self.schema.fields(), descr, target.fields());
        let units = int96::units(&fields, descr);
        let schema = Schema::new_with_metadata(fields, self.schema.metadata().clone());
        Self { schema: Arc::new(schema), units }
    }
}

/// Which rows and columns of a file, and in batches of which size.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The leaves, in order.
    pub(crate) leaves: Vec<usize>,
    /// The rows.
    pub(crate) rows: Range<u64>,
    /// Rows of a batch, at most.
    pub(crate) batch_rows: usize,
    /// Bytes of a batch, at most, unless one row is larger.
    pub(crate) batch_bytes: usize,
    /// Bytes that are read at once of each leaf.
    pub(crate) window_bytes: u64,
}

/// Batches of some rows of a file.
pub(crate) struct Batches {
    path: String,
    footer: Arc<ParquetMetaData>,
    units: Vec<Option<TimeUnit>>,
    levels: FieldLevels,
    schema: SchemaRef,
    windows: Arc<Windows>,
    request: Request,
    /// First row of each row group, and the number of rows.
    starts: Vec<u64>,
    /// The row that comes next.
    row: u64,
    /// Rows that the reader makes at once, those that seemed to fit, and the row group in which
    /// they turned out to be too many.
    step: usize,
    usual_step: usize,
    reduced_in: Option<usize>,
    row_bytes: usize,
    collects: bool,
    reader: Option<(ParquetRecordBatchReader, Arc<Shared>)>,
    /// A batch that did not go with those before it.
    ahead: Option<RecordBatch>,
    context: Context,
}

impl Batches {
    /// Opens the rows that `request` asks for.
    ///
    /// # Errors
    /// Whatever is wrong with the file.
    pub(crate) fn open(
        source: &Source,
        schema: &FileSchema,
        request: Request,
        context: &Context,
    ) -> Result<Self> {
        let in_file = |e: Error| e.with_path(source.path());
        let descr = source.schema();
        let mask = ProjectionMask::leaves(descr, request.leaves.iter().copied());
        let levels = levels(source, mask, schema.schema.fields()).map_err(in_file)?;
        let Request { leaves, rows, window_bytes, .. } = &request;
        let windows = Windows::new(source, leaves, rows, *window_bytes, context);
        let starts: Vec<u64> =
            (0..=source.num_row_groups()).map(|group| source.row_group_start(group)).collect();
        let mut batches = Self {
            path: source.path().to_owned(),
            footer: source.footer()?,
            units: schema.units.clone(),
            levels,
            schema: Arc::new(Schema::empty()),
            windows: Arc::new(windows.map_err(in_file)?),
            row: request.rows.start,
            step: 0,
            usual_step: 0,
            reduced_in: None,
            row_bytes: 1,
            collects: true,
            starts,
            request,
            reader: None,
            ahead: None,
            context: context.clone(),
        };
        batches.usual_step = batches.rows_that_fit(source);
        batches.step = batches.usual_step;
        let (reader, _) = batches.build(0..0).map_err(in_file)?;
        batches.schema = reader.schema();
        let all = batches.schema.flattened_fields();
        // Keys of a dictionary may be too few for the values of several batches.
        batches.collects = !all.iter().any(|f| matches!(f.data_type(), DataType::Dictionary(..)));
        Ok(batches)
    }

    /// The schema of all batches.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next batch, if any.
    ///
    /// # Errors
    /// Whatever is wrong with the file.
    pub(crate) fn next(&mut self) -> Result<Option<RecordBatch>> {
        self.collect().map_err(|e| e.with_path(self.path.as_str()))
    }

    /// Rows of a batch, from the average size of values.
    fn rows_that_fit(&mut self, source: &Source) -> usize {
        let sizes = self.footer.row_groups().iter().flat_map(|group| {
            self.request.leaves.iter().filter_map(move |leaf| group.columns().get(*leaf))
        });
        let bytes = sizes
            .map(|chunk| chunk.uncompressed_size().max(0).unsigned_abs())
            .fold(0, u64::saturating_add);
        let per_row = bytes.div_ceil(source.rows().max(1)).max(1);
        self.row_bytes = usize::try_from(per_row).unwrap_or(usize::MAX);
        let fit = usize::try_from(self.request.batch_bytes as u64 / per_row).unwrap_or(usize::MAX);
        let rows = self.request.rows.end.saturating_sub(self.request.rows.start);
        let rows = usize::try_from(rows).unwrap_or(usize::MAX);
        self.request.batch_rows.min(fit).min(rows).max(1)
    }

    /// Puts batches together that were made of fewer rows than wanted.
    fn collect(&mut self) -> Result<Option<RecordBatch>> {
        let Some(first) = self.ahead.take().map_or_else(|| self.step(), |held| Ok(Some(held)))?
        else {
            return Ok(None);
        };
        let (rows_max, bytes_max) = (self.request.batch_rows, self.request.batch_bytes / 4);
        let mut bytes = batch_bytes(&first);
        let mut rows = first.num_rows();
        if self.is_usual() || bytes >= bytes_max {
            return Ok(Some(first));
        }
        let mut parts = vec![first];
        while rows < rows_max && bytes < bytes_max && !self.is_usual() {
            let _charge = self.context.charge(bytes);
            let Some(next) = self.step()? else { break };
            if rows + next.num_rows() > rows_max {
                self.ahead = Some(next);
                break;
            }
            rows += next.num_rows();
            bytes += batch_bytes(&next);
            parts.push(next);
        }
        if parts.len() == 1 {
            return Ok(parts.pop());
        }
        let _charge = self.context.charge(2 * bytes);
        concat_batches(&self.schema, &parts).map(Some).map_err(Error::from_arrow)
    }

    /// Whether batches are as long as they should be.
    fn is_usual(&self) -> bool {
        !self.collects || self.step >= self.request.batch_rows.min(USUAL_ROWS)
    }

    /// The next rows, with fewer at a time if they turn out to be too much.
    fn step(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            self.context.check_cancelled()?;
            if self.row >= self.request.rows.end {
                return Ok(None);
            }
            let group = self.group_of(self.row);
            if self.reduced_in.is_some_and(|reduced| reduced != group) {
                // What was too much there may be usual here.
                (self.step, self.reduced_in, self.reader) = (self.usual_step, None, None);
            }
            if self.reader.is_none() {
                self.reader = Some(self.build(self.row..self.request.rows.end)?);
            }
            let Some((reader, shared)) = &mut self.reader else { return Ok(None) };
            shared.load.begin();
            let expected = self.step.saturating_mul(self.row_bytes).min(self.request.batch_bytes);
            let _charge = self.context.charge(expected);
            let next = guard(|| reader.next());
            match next {
                Ok(Some(Ok(batch))) => {
                    self.row += batch.num_rows() as u64;
                    let batch = RecordBatch::try_new_with_options(
                        Arc::clone(&self.schema),
                        batch.columns().to_vec(),
                        &arrow_array::RecordBatchOptions::new()
                            .with_row_count(Some(batch.num_rows())),
                    );
                    return batch.map(Some).map_err(Error::from_arrow);
                }
                Ok(None) => {
                    return Err(Error::new(
                        Kind::CorruptSource,
                        "column chunk ends before its rows",
                    )
                    .with_row(self.row)
                    .with_hint("the file is damaged; write it again from its origin"));
                }
                Ok(Some(Err(_))) | Err(_) if shared.load.is_over() && self.step > 1 => {
                    self.step = (self.step / FEWER).max(1);
                    (self.reduced_in, self.reader) = (Some(group), None);
                }
                Ok(Some(Err(e))) => {
                    let e = shared.kept.explain(e);
                    self.reader = None;
                    return Err(self.in_column(e));
                }
                Err(e) => {
                    self.reader = None;
                    return Err(self.in_column(e));
                }
            }
        }
    }

    /// `error` with the column that cannot be decoded: the Arrow reader does not name it, so each is read
    /// alone.
    fn in_column(&self, error: Error) -> Error {
        if error.kind() != Kind::CorruptSource || error.column().is_some() {
            return error;
        }
        let descr = self.footer.file_metadata().schema_descr();
        let rows = self.row..self.request.rows.end.min(self.row + self.step as u64);
        let fails = |leaf: &&usize| {
            let mask = ProjectionMask::leaves(descr, [**leaf]);
            let levels = guard(|| parquet_to_arrow_field_levels(descr, mask, None));
            let Ok(Ok(levels)) = levels else { return false };
            let Ok((mut reader, shared)) = self.build_of(&levels, rows.clone()) else {
                return true;
            };
            shared.load.begin();
            let failed = guard(|| reader.any(|batch| batch.is_err())).unwrap_or(true);
            failed && !shared.load.is_over()
        };
        match self.request.leaves.iter().find(fails) {
            Some(leaf) => error.with_column(descr.column(*leaf).path().string()).with_row(self.row),
            None => error,
        }
    }

    fn group_of(&self, row: u64) -> usize {
        self.starts.partition_point(|start| *start <= row).saturating_sub(1)
    }

    fn build(&self, rows: Range<u64>) -> Result<(ParquetRecordBatchReader, Arc<Shared>)> {
        self.build_of(&self.levels, rows)
    }

    fn build_of(
        &self,
        levels: &FieldLevels,
        rows: Range<u64>,
    ) -> Result<(ParquetRecordBatchReader, Arc<Shared>)> {
        let limit = self.context.limit_bytes();
        let leaves = self.request.leaves.len();
        let shared = Arc::new(Shared {
            footer: Arc::clone(&self.footer),
            windows: Arc::clone(&self.windows),
            leaves: self.request.leaves.clone(),
            units: self.units.clone(),
            load: Load::new(leaves, self.step, self.request.batch_bytes, limit),
            kept: Kept::default(),
            context: self.context.clone(),
        });
        let first = self.group_of(rows.start);
        let last = self.starts.partition_point(|start| *start < rows.end);
        let groups: Vec<usize> = if rows.is_empty() { Vec::new() } else { (first..last).collect() };
        let start = self.starts.get(first).copied().unwrap_or(0);
        let to_usize = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let selection = (!rows.is_empty()).then(|| {
            RowSelection::from(vec![
                RowSelector::skip(to_usize(rows.start - start)),
                RowSelector::select(to_usize(rows.end - rows.start)),
            ])
        });
        let groups = Groups { shared: Arc::clone(&shared), groups };
        // Without a selection the reader is a little faster.
        let is_all = rows.start == start && self.starts.last() == Some(&rows.end);
        let selection = selection.filter(|_| !is_all);
        let reader = guard(|| {
            ParquetRecordBatchReader::try_new_with_row_groups(
                levels,
                &groups,
                self.step.max(1),
                selection,
            )
        })?;
        Ok((reader.map_err(unwrap_error)?, shared))
    }
}

/// Batches of as many rows are not put together.
const USUAL_ROWS: usize = 1024;

/// Bytes of the buffers of a batch.
fn batch_bytes(batch: &RecordBatch) -> usize {
    batch.get_array_memory_size()
}

/// The columns of `mask`, with the types of `fields`.
fn levels(source: &Source, mask: ProjectionMask, fields: &Fields) -> Result<FieldLevels> {
    let descr = source.schema();
    let made: Result<FieldLevels, ParquetError> =
        guard(|| parquet_to_arrow_field_levels(descr, mask, Some(fields)))?;
    made.map_err(unwrap_error)
}
