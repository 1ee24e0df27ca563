//! A sorted read, for the package `plait` only: options in, batches and reports out.
//!
//! # Not here
//! What is read and how (`plait_parquet::SortedRead`).

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use plait_core::Error;
use plait_parquet::{Context, SortedRead, from_json};
use pyo3::prelude::*;

use crate::border::{json, reach};
use crate::capsule::Reader;
use crate::caught::{Caught, Signals};
use crate::enter::enter;
use crate::stream::{PySchema, PyStream};

/// Many sorted files as one sorted table.
#[pyclass(frozen, module = "plait._native", name = "SortedRead")]
pub(crate) struct PySortedRead {
    read: SortedRead,
    context: Context,
}

#[pymethods]
impl PySortedRead {
    /// Opens the files.
    #[new]
    #[pyo3(signature = (options, bucket=None))]
    fn open(py: Python<'_>, options: &str, bucket: Option<Py<PyAny>>) -> PyResult<Self> {
        let raise = |error: Error| crate::errors::exception(py, &error);
        let (context, stores) = reach(options, bucket).map_err(raise)?;
        let options = from_json(options).map_err(raise)?;
        let open = move |context: &Context| SortedRead::open(options, &stores, context);
        let read = enter(py, &context, None, open)?;
        Ok(Self { read, context })
    }

    /// Another read of the same files, which are not opened again.
    fn narrowed(&self, py: Python<'_>, options: &str) -> PyResult<Self> {
        let options = from_json(options).map_err(|e| crate::errors::exception(py, &e))?;
        let read = enter(py, &self.context, None, |_| self.read.narrowed(options))?;
        Ok(Self { read, context: self.context.clone() })
    }

    /// The schema of the batches.
    #[getter]
    fn schema(&self) -> PySchema {
        PySchema(Arc::clone(self.read.schema()))
    }

    /// The batches, from the first row on.
    fn batches(&self, py: Python<'_>) -> PyResult<PyStream> {
        let inner = enter(py, &self.context, None, |_| self.read.batches())?;
        let watched = Watched { inner, signals: Signals::new() };
        Ok(PyStream::new(Box::new(Caught::new(Box::new(watched)))))
    }

    /// What may be read, as JSON.
    fn plan(&self, py: Python<'_>) -> PyResult<String> {
        let plan = enter(py, &self.context, None, |_| self.read.plan())?;
        json(py, &plan)
    }

    /// The files that may have rows that are asked for, as JSON.
    fn files_left(&self, py: Python<'_>) -> PyResult<String> {
        let left = enter(py, &self.context, None, |_| self.read.files_left())?;
        json(py, &left)
    }

    /// The indices of the tasks of a plan of the files that may have such rows.
    fn tasks_left(&self, py: Python<'_>, plan: &str) -> PyResult<Vec<u64>> {
        enter(py, &self.context, None, |_| self.read.tasks_left(plan))
    }

    /// Columns with timestamps that a file stores in twelve bytes.
    fn int96_columns(&self) -> Vec<String> {
        self.read.int96_columns()
    }

    /// What the last read did so far, as JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        json(py, &self.read.stats())
    }
}

/// Batches, and Ctrl-C between them.
struct Watched {
    inner: Reader,
    signals: Signals,
}

impl Iterator for Watched {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(e) = self.signals.check() {
            return Some(Err(e));
        }
        self.inner.next()
    }
}

impl RecordBatchReader for Watched {
    fn schema(&self) -> SchemaRef {
        self.inner.schema()
    }
}
