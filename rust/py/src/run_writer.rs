//! A writer of sorted files, for the package `plait` only: batches in, files out.
//!
//! # Invariants
//! Calls follow each other: the second waits until the first is done, and a source that writes to the
//! writer which reads it is refused (`turn`). A writer that was closed, aborted or forgotten leaves no
//! temp file.
//!
//! # Not here
//! Sorting and merging (`plait_parquet::RunWriter`).

use plait_core::validate::Validate;
use plait_core::{Error, Kind, Result};
use plait_parquet::{Context, RunWriter};
use pyo3::prelude::*;

use crate::border::{json, reach};
use crate::capsule;
use crate::enter::enter;
use crate::turn::Turns;

/// Writes batches, which come in any order, as sorted files.
#[pyclass(frozen, module = "plait._native", name = "RunWriter")]
pub(crate) struct PyRunWriter {
    /// None once it was closed.
    writer: Turns<Option<RunWriter>>,
    context: Context,
    validate: Validate,
}

#[pymethods]
impl PyRunWriter {
    /// Opens a folder or a file; options are JSON.
    #[new]
    #[pyo3(signature = (options, bucket=None, validate=None))]
    fn open(
        py: Python<'_>,
        options: &str,
        bucket: Option<Py<PyAny>>,
        validate: Option<&str>,
    ) -> PyResult<Self> {
        let validate = capsule::validate(py, validate)?;
        let raise = |error: Error| crate::errors::exception(py, &error);
        let (context, stores) = reach(options, bucket).map_err(raise)?;
        let open = |context: &Context| RunWriter::open(options, &stores, context);
        let writer = enter(py, &context, None, open)?;
        Ok(Self { writer: Turns::new(Some(writer)), context, validate })
    }

    /// Takes in batches; gives their rows.
    fn write(&self, py: Python<'_>, batches: &Bound<'_, PyAny>) -> PyResult<u64> {
        let reader = capsule::reader(batches, self.validate)?;
        self.ask(py, None, |writer| writer.write(reader))
    }

    /// Writes files of all rows; gives the report as JSON, none without rows.
    #[pyo3(signature = (progress=None))]
    fn flush(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<Option<String>> {
        let report = self.ask(py, progress, RunWriter::flush)?;
        report.map(|report| json(py, &report)).transpose()
    }

    /// Rows that are in no file yet.
    #[getter]
    fn rows(&self, py: Python<'_>) -> PyResult<u64> {
        let rows = self.writer.with(|writer| writer.as_ref().map_or(0, RunWriter::rows));
        rows.map_err(|e| crate::errors::exception(py, &e))
    }

    /// Ends the writer; rows that were not flushed are gone.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        let end = |_: &Context| self.writer.with(|writer| writer.take().map(RunWriter::abort));
        enter(py, &self.context, None, end).map(drop)
    }
}

impl PyRunWriter {
    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        progress: Option<Py<PyAny>>,
        call: impl FnOnce(&mut RunWriter) -> Result<T> + Send,
    ) -> PyResult<T> {
        let ask = |_: &Context| {
            self.writer.with(|writer| match writer {
                Some(writer) => call(writer),
                None => Err(Error::new(Kind::InvalidArgument, "the writer is closed")),
            })?
        };
        enter(py, &self.context, progress, ask)
    }
}
