//! A scan, for the package `plait` only: options in, batches and reports out.
//!
//! # Not here
//! What is scanned and how (`plait_parquet::scan`).

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use plait_core::{Error, Kind};
use plait_parquet::{Context, Scan, TextReader, freeze_scan};
use pyo3::prelude::*;

use crate::border::reach;
use crate::capsule::{self, Reader};
use crate::enter::enter;
use crate::stream::{PySchema, PyStream};
use crate::text_file::PyTextReader;

/// One schema over many sources.
#[pyclass(frozen, module = "plait._native", name = "Scan")]
pub(crate) struct PyScan(Arc<Scan>);

#[pymethods]
impl PyScan {
    /// Resolves the schema of the sources.
    #[new]
    #[pyo3(signature = (options, schema, streams, bucket, validate=None, text_reader=None))]
    fn open(
        py: Python<'_>,
        options: &str,
        schema: Option<&Bound<'_, PyAny>>,
        streams: Vec<Bound<'_, PyAny>>,
        bucket: Option<Py<PyAny>>,
        validate: Option<&str>,
        text_reader: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let raise = |error: Error| crate::errors::exception(py, &error);
        let validate = capsule::validate(py, validate)?;
        let (context, stores) = reach(options, bucket).map_err(raise)?;
        let schema = schema.map(capsule::schema).transpose()?;
        // One without batches has no schema, and no rows that it would be needed for.
        let streams = streams.iter().map(|stream| capsule::reader_if_any(stream, validate));
        let streams = streams.collect::<PyResult<Vec<_>>>()?;
        let text = text_reader
            .map(|reader| -> Arc<dyn TextReader> { Arc::new(PyTextReader { reader, validate }) });
        let open =
            move |context: &Context| Scan::open(options, schema, streams, text, &stores, context);
        enter(py, &context, None, open).map(Self)
    }

    /// The schema of the batches; in mode `follow` that of the first.
    #[getter]
    fn schema(&self) -> PySchema {
        PySchema(Arc::clone(self.0.schema()))
    }

    /// Names the schema.
    #[getter]
    fn fingerprint(&self) -> Option<&str> {
        self.0.fingerprint()
    }

    /// The resolved schema for scans of some of the files, as JSON; `None` in mode `follow`.
    #[getter]
    fn frozen(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.0.frozen().map_err(|e| crate::errors::exception(py, &e))
    }

    /// The batches, which in mode `follow` may change their schema.
    fn batches(&self, py: Python<'_>) -> PyResult<PyStream> {
        let reader = py.detach(|| self.0.batches());
        Ok(PyStream::new(reader.map_err(|e| crate::errors::exception(py, &e))?))
    }

    /// The batches, of one schema: a change is an error.
    fn stream(&self, py: Python<'_>) -> PyResult<PyStream> {
        let inner = py.detach(|| self.0.batches());
        let inner = inner.map_err(|e| crate::errors::exception(py, &e))?;
        let schema = inner.schema();
        Ok(PyStream::new(Box::new(OneSchema { inner, schema })))
    }

    /// What becomes of every source, as JSON.
    fn explain(&self, py: Python<'_>) -> PyResult<String> {
        self.0.explain().map_err(|e| crate::errors::exception(py, &e))
    }

    /// What was found and done so far, as JSON.
    fn report(&self, py: Python<'_>) -> PyResult<String> {
        self.0.report().map_err(|e| crate::errors::exception(py, &e))
    }
}

/// Decides the schema of a scan of files from summaries of them.
pub(crate) fn freeze(
    py: Python<'_>,
    options: &str,
    schema: Option<&Bound<'_, PyAny>>,
    summaries: Vec<String>,
) -> PyResult<(String, PySchema)> {
    let raise = |error: Error| crate::errors::exception(py, &error);
    let (context, stores) = reach(options, None).map_err(raise)?;
    let schema = schema.map(capsule::schema).transpose()?;
    let decide =
        move |context: &Context| freeze_scan(options, schema, &summaries, &stores, context);
    let (text, schema) = enter(py, &context, None, decide)?;
    Ok((text, PySchema(schema)))
}

/// Readers of C streams rely on one schema.
struct OneSchema {
    inner: Reader,
    schema: SchemaRef,
}

impl Iterator for OneSchema {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.inner.next()?.and_then(|batch| {
            if batch.schema() == self.schema {
                return Ok(batch);
            }
            let error = Error::new(Kind::SchemaChanged, "schema changed within a stream")
                .with_hint(
                    "iterate over the batches, name the columns, or resolve the schema first",
                );
            Err(error.into_arrow())
        }))
    }
}

impl RecordBatchReader for OneSchema {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
