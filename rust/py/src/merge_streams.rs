//! `merge_streams`: Arrow sources of any library and Parquet files in, one stream out.
//!
//! # Invariants
//! Sources are asked on the thread of whoever reads the stream. A panic becomes `InternalError`,
//! and Ctrl-C is seen between two stretches of rows.
//!
//! # Not here
//! The merge (`plait_core::stream`), threads and files (`plait_parquet::stream`).

use arrow_schema::{ArrowError, Schema, SchemaRef};
use plait_core::stream::{MergeStream, Source, Workers};
use plait_core::validate::Validate;
use plait_core::{Error, Kind};
use plait_parquet::{Context, open_files, stream_options};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::border::reach;
use crate::capsule;
use crate::caught::{Caught, Signals};
use crate::enter::enter;
use crate::stream::PyStream;

/// A stream of the rows of `sources`: paths, or what has record batches.
pub(crate) fn merge_streams(
    py: Python<'_>,
    sources: Vec<Bound<'_, PyAny>>,
    schema: Option<&Bound<'_, PyAny>>,
    options: &str,
    bucket: Option<Py<PyAny>>,
    validate: Validate,
) -> PyResult<PyStream> {
    let raise = |e: Error| crate::errors::exception(py, &e);
    let schema = schema.map(capsule::schema).transpose()?;
    let (context, stores) = reach(options, bucket).map_err(raise)?;
    let (options, workers) = stream_options(options).map_err(raise)?;
    let paths = sources.iter().filter_map(|source| source.cast::<PyString>().ok());
    let paths = paths.map(|path| path.extract()).collect::<PyResult<Vec<String>>>()?;
    let mut files = Vec::new().into_iter();
    if !paths.is_empty() {
        let rows = options.batch_rows;
        let open = move |context: &Context| open_files(&paths, rows, &stores, context);
        files = enter(py, &context, None, open)?.into_iter();
    }
    let mut found = Vec::with_capacity(sources.len());
    for source in sources {
        match source.is_instance_of::<PyString>() {
            true => found.extend(files.next().unwrap_or_default().into_iter().map(Some)),
            false => {
                let reader = capsule::reader_if_any(&source, validate)?;
                found.push(reader.map(|reader| Source { reader, path: None }));
            }
        }
    }
    let readers = with_columns(found, schema).map_err(raise)?;
    let workers = WatchedWorkers { workers, signals: Signals::new() };
    let merge = py.detach(|| MergeStream::try_new(readers, &options, Box::new(workers)));
    let merge = merge.map_err(raise)?;
    let tally = merge.tally();
    Ok(PyStream::counted(Box::new(Caught::new(Box::new(merge))), tally))
}

/// The sources; those without batches with the columns of `schema`, or of the first source that has some.
fn with_columns(
    found: Vec<Option<Source>>,
    schema: Option<SchemaRef>,
) -> Result<Vec<Source>, Error> {
    let first = || found.iter().flatten().map(|source| source.reader.schema()).next();
    let (schema, is_any) = (schema.or_else(first), found.iter().any(Option::is_none));
    if schema.is_none() && is_any {
        let what = "sources are iterables without batches, which have no schema";
        return Err(Error::new(Kind::InvalidArgument, what)
            .with_hint("pass the columns that batches would have as schema="));
    }
    let schema = schema.unwrap_or_else(|| SchemaRef::new(Schema::empty()));
    let none = || Source { reader: capsule::no_rows(SchemaRef::clone(&schema)), path: None };
    Ok(found.into_iter().map(|source| source.unwrap_or_else(none)).collect())
}

/// Threads, and signals.
struct WatchedWorkers {
    workers: Box<dyn Workers>,
    signals: Signals,
}

impl Workers for WatchedWorkers {
    fn count(&self) -> usize {
        self.workers.count()
    }

    fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        self.workers.run(count, task);
    }

    fn check(&self) -> Result<(), ArrowError> {
        self.signals.check()
    }
}
