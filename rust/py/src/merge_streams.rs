//! `merge_streams`: Arrow sources of any library and Parquet files in, one stream out.
//!
//! # Invariants
//! Sources are asked on the thread of whoever reads the stream. A panic becomes `InternalError`,
//! and Ctrl-C is seen between two stretches of rows.
//!
//! # Not here
//! The merge (`plait_core::stream`), threads and files (`plait_parquet::stream`).

use arrow_schema::ArrowError;
use plait_core::stream::{MergeStream, Source, Workers};
use plait_core::validate::Validate;
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
    options: &str,
    bucket: Option<Py<PyAny>>,
    validate: Validate,
) -> PyResult<PyStream> {
    let raise = |e| crate::errors::exception(py, &e);
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
    let mut readers = Vec::with_capacity(sources.len());
    for source in sources {
        match source.is_instance_of::<PyString>() {
            true => readers.extend(files.next().unwrap_or_default()),
            false => {
                readers.push(Source { reader: capsule::reader(&source, validate)?, path: None })
            }
        }
    }
    let workers = WatchedWorkers { workers, signals: Signals::new() };
    let merge = py.detach(|| MergeStream::try_new(readers, &options, Box::new(workers)));
    let merge = merge.map_err(raise)?;
    let tally = merge.tally();
    Ok(PyStream::counted(Box::new(Caught::new(Box::new(merge))), tally))
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
