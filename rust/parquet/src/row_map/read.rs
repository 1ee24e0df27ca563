//! Reads a row map: what became of the rows of its sources, run by run.
//!
//! # Invariants
//! A run names a source of the header and a row in its range. At the end, every row of every source
//! was in a run, and as many were kept as the output has. What is not so is an error.
//!
//! # Cost
//! A batch of rows; a few nanoseconds each.
//!
//! # Not here
//! What the header says (`map_file`); what is looked for (`trace`).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, Int32Array};
use arrow_schema::DataType;
use plait_core::{Error, Kind, Result, SourceId};

use super::Fate;
use super::map_file::{MapHeader, damaged};
use super::write::COLUMNS;
use crate::arrow_file::{Batches, FileSchema, Request};
use crate::runtime::Context;
use crate::source::Source;
use crate::store::{RangeReader, Stores};

/// Rows that are read at once.
const BATCH_ROWS: usize = 64 << 10;
/// Bytes that are read at once.
const WINDOW_BYTES: u64 = 1 << 20;

/// A map that is open.
pub(crate) struct RowMap {
    /// What it is of.
    pub(crate) header: MapHeader,
    file: Source,
    schema: FileSchema,
}

/// Rows of one source that follow each other and have one fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapRun {
    /// Index of the source in the header.
    pub(crate) source: u32,
    /// Its first row.
    pub(crate) row: u64,
    /// How many.
    pub(crate) rows: u64,
    /// What became of them.
    pub(crate) fate: Fate,
    /// Rows of the output before them.
    pub(crate) output_row: u64,
}

impl RowMap {
    /// Opens the map at `location`.
    ///
    /// # Errors
    /// [`Kind::SourceNotFound`], [`Kind::CorruptSource`], [`Kind::Unsupported`] for a later version.
    pub(crate) fn open(location: &str, stores: &Stores) -> Result<Self> {
        Self::of(stores.open(location)?)
    }

    /// Opens the map in `store`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn of(store: Arc<dyn RangeReader>) -> Result<Self> {
        let file = Source::open(SourceId(0), store)?;
        let checked = check(&file).map_err(|e| e.with_path(file.path()));
        let (header, schema) = checked?;
        Ok(Self { header, file, schema })
    }

    /// Where it is.
    #[must_use]
    pub(crate) fn path(&self) -> &str {
        self.file.path()
    }

    /// All runs, from the first.
    ///
    /// # Errors
    /// Whatever is wrong with the file.
    pub(crate) fn runs(&self, context: &Context) -> Result<MapRuns> {
        let request = Request {
            leaves: vec![0, 1],
            rows: 0..self.file.rows(),
            batch_rows: BATCH_ROWS,
            batch_bytes: 2 * BATCH_ROWS * size_of::<u32>(),
            window_bytes: WINDOW_BYTES,
        };
        let sources = &self.header.sources;
        Ok(MapRuns {
            batches: Batches::open(&self.file, &self.schema, request, context)?,
            path: self.path().to_owned(),
            next: sources.iter().map(|source| source.start).collect(),
            ends: sources.iter().map(|source| source.end).collect(),
            rows: self.header.rows,
            kept: 0,
            held: None,
        })
    }
}

/// The header and the schema of a map.
fn check(file: &Source) -> Result<(MapHeader, FileSchema)> {
    let header = MapHeader::of(file)?;
    let schema = FileSchema::of(file)?;
    let fields = schema.schema().fields();
    let is_right = fields.len() == COLUMNS.len()
        && fields.iter().zip(COLUMNS).all(|(field, name)| {
            field.name() == name && *field.data_type() == DataType::Int32 && !field.is_nullable()
        });
    if !is_right {
        return Err(damaged("has other columns than `source` and `fate`"));
    }
    match header.rows_of_sources() {
        Some(rows) if rows == file.rows() => Ok((header, schema)),
        rows => Err(damaged("has another number of rows than its sources").with_got(format!(
            "{} rows instead of {}",
            file.rows(),
            rows.map_or_else(|| "any".to_owned(), |rows| rows.to_string())
        ))),
    }
}

/// A batch, and how much of it was given out.
struct HeldBatch {
    sources: Int32Array,
    fates: Int32Array,
    at: usize,
}

/// The runs of a map.
pub(crate) struct MapRuns {
    batches: Batches,
    path: String,
    /// By source: the row that comes next, and the one behind the last.
    next: Vec<u64>,
    ends: Vec<u64>,
    rows: u64,
    kept: u64,
    held: Option<HeldBatch>,
}

impl MapRuns {
    /// The next run; rows that follow each other may be in several.
    ///
    /// # Errors
    /// [`Kind::CorruptSource`] for a map that does not tell of each row once.
    pub(crate) fn next(&mut self) -> Result<Option<MapRun>> {
        self.step().map_err(|e| e.with_path(self.path.as_str()))
    }

    fn step(&mut self) -> Result<Option<MapRun>> {
        let (source, fate, rows) = loop {
            match self.held.as_mut().and_then(HeldBatch::next) {
                Some(run) => break run,
                None if self.fill()? => {}
                None => return self.end(),
            }
        };
        let known = u32::try_from(source).ok();
        let known = known.filter(|source| (*source as usize) < self.next.len());
        let known = known.zip(u32::try_from(fate).ok().and_then(Fate::of));
        let Some((source, fate)) = known else {
            return Err(damaged("has a source or a fate that there is not")
                .with_got(format!("source {source}, fate {fate}")));
        };
        let (next, end) = (&mut self.next[source as usize], self.ends[source as usize]);
        let run = MapRun { source, row: *next, rows, fate, output_row: self.kept };
        *next += rows;
        if *next > end {
            return Err(damaged("tells of a row twice").with_got(format!("row {end}")));
        }
        if fate == Fate::Kept {
            self.kept += rows;
        }
        Ok(Some(run))
    }

    fn fill(&mut self) -> Result<bool> {
        let Some(batch) = self.batches.next()? else { return Ok(false) };
        let column = |at: usize| {
            let column = batch.columns().get(at).and_then(|c| c.as_primitive_opt::<Int32Type>());
            column.filter(|column| column.null_count() == 0).cloned()
        };
        let columns = column(0).zip(column(1));
        let (sources, fates) =
            columns.ok_or_else(|| Error::new(Kind::Internal, "a row map was read otherwise"))?;
        self.held = Some(HeldBatch { sources, fates, at: 0 });
        Ok(true)
    }

    fn end(&self) -> Result<Option<MapRun>> {
        if self.next != self.ends {
            return Err(damaged("does not tell of all rows"));
        }
        match self.kept == self.rows {
            true => Ok(None),
            false => Err(damaged("keeps another number of rows than the output has")
                .with_got(format!("{} rows instead of {}", self.kept, self.rows))),
        }
    }
}

impl HeldBatch {
    fn next(&mut self) -> Option<(i32, i32, u64)> {
        let (sources, fates) = (self.sources.values(), self.fates.values());
        let (source, fate) = (*sources.get(self.at)?, *fates.get(self.at)?);
        let rest = sources[self.at..].iter().zip(&fates[self.at..]);
        let rows = rest.take_while(|(s, f)| **s == source && **f == fate).count();
        self.at += rows;
        Some((source, fate, rows as u64))
    }
}
