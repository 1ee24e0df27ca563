//! What the engine gives to Python a batch at a time: streams, batches and schemas that any Arrow
//! library takes.
//!
//! # Invariants
//! A stream is read once: by iterating, or by whoever takes its capsule. The interpreter is
//! released while a batch is made. Errors of the engine keep their class when a stream is iterated;
//! through a capsule the C interface leaves their text alone.
//!
//! # Not here
//! Capsules (`capsule`); what is in the batches.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use plait_core::stream::Tally;
use plait_core::{Error, Kind, type_text};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::capsule::{self, Reader};
use crate::encode::{PyEncodedRows, texts};
use crate::turn::Turns;

/// A lazy stream of record batches of one schema.
#[pyclass(frozen, module = "plait", name = "Stream")]
pub(crate) struct PyStream {
    schema: SchemaRef,
    /// None once it was taken or closed.
    reader: Turns<Option<Reader>>,
    /// Rows that a merge leaves out.
    tally: Tally,
    watcher: Mutex<Watcher>,
}

/// Who is called once when the stream is over, on the thread of whoever reads it in Python.
#[derive(Default)]
struct Watcher {
    ended: Option<Py<PyAny>>,
    rows: usize,
    batches: usize,
}

impl PyStream {
    /// A stream of what `reader` gives.
    pub(crate) fn new(reader: Reader) -> Self {
        Self::counted(reader, Tally::default())
    }

    /// The same, of a merge that counts the rows it leaves out.
    pub(crate) fn counted(reader: Reader, tally: Tally) -> Self {
        let watcher = Mutex::default();
        Self { schema: reader.schema(), reader: Turns::new(Some(reader)), tally, watcher }
    }

    /// Tells how the stream ended, the first time.
    fn tell(&self, py: Python<'_>, how: &str) -> PyResult<()> {
        let (ended, rows, batches) = {
            let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
            (watcher.ended.take(), watcher.rows, watcher.batches)
        };
        let Some(ended) = ended else { return Ok(()) };
        ended.call1(py, (how, rows, batches, self.rows_dropped())).map(drop)
    }
}

#[pymethods]
impl PyStream {
    /// A stream of the batches of `source`.
    #[new]
    #[pyo3(signature = (source, validate=None))]
    fn open(source: &Bound<'_, PyAny>, validate: Option<&str>) -> PyResult<Self> {
        let validate = capsule::validate(source.py(), validate)?;
        capsule::reader(source, validate).map(Self::new)
    }

    /// The schema of every batch.
    #[getter]
    fn schema(&self) -> PySchema {
        PySchema(Arc::clone(&self.schema))
    }

    /// Rows that were dropped, by reason: `"duplicate"`, `"deleted"`, `"expired"`; those without
    /// rows are left out. Rows are ordered ahead of the batches that were given, and the counts
    /// with them; they are those of the whole stream once that has ended, whoever read it.
    #[getter]
    fn rows_dropped(&self) -> BTreeMap<&'static str, u64> {
        self.tally.dropped().by_reason().into_iter().filter(|(_, rows)| *rows > 0).collect()
    }

    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<PyBatch>> {
        let next = py.detach(|| -> Result<_, Error> {
            self.reader.with(|reader| {
                let open = reader.as_mut().ok_or_else(consumed)?;
                let next = open.next();
                // After an error or the end, sources are let go at once.
                if !matches!(next, Some(Ok(_))) {
                    *reader = Some(Box::new(arrow_array::RecordBatchIterator::new(
                        [],
                        Arc::clone(&self.schema),
                    )));
                }
                Ok::<_, Error>(next)
            })?
        });
        match next.map_err(|e| crate::errors::exception(py, &e))? {
            Some(Ok(batch)) => {
                let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
                watcher.rows += batch.num_rows();
                watcher.batches += 1;
                Ok(Some(PyBatch(batch)))
            }
            Some(Err(e)) => {
                let error = capsule::arrow_error(py, e);
                self.tell(py, "failed")?;
                Err(error)
            }
            None => {
                self.tell(py, "ended")?;
                Ok(None)
            }
        }
    }

    /// Has `ended(how, rows, batches, rows_dropped)` called once, when the stream has ended,
    /// failed, was closed, or was handed to another library.
    fn _watch(&self, ended: Py<PyAny>) {
        self.watcher.lock().unwrap_or_else(PoisonError::into_inner).ended = Some(ended);
    }

    /// Lets the sources go; the rest of the stream is not read.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let reader = py.detach(|| self.reader.with(Option::take));
        drop(reader.map_err(|e| crate::errors::exception(py, &e))?);
        self.tell(py, "closed")
    }

    /// The rest of the rows as bytes of a format, `"jsonl"` or `"arrow"`, a piece at a time.
    fn _encoded(&self, py: Python<'_>, form: &str) -> PyResult<PyEncodedRows> {
        let reader = py.detach(|| self.reader.with(Option::take));
        let reader = reader.and_then(|reader| reader.ok_or_else(consumed));
        let reader = reader.map_err(|e| crate::errors::exception(py, &e))?;
        self.tell(py, "handed on")?;
        PyEncodedRows::new(py, reader, form)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema; // A producer may ignore it.
        let reader = py.detach(|| self.reader.with(Option::take));
        let reader = reader.and_then(|reader| reader.ok_or_else(consumed));
        let reader = reader.map_err(|e| crate::errors::exception(py, &e))?;
        // Foreign threads read it from here on, and must not wait for the interpreter to tell.
        self.tell(py, "handed on")?;
        capsule::stream_capsule(py, reader)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        capsule::schema_capsule(py, &self.schema)
    }

    fn __repr__(&self) -> String {
        format!("<plait.Stream of {}>", described(&self.schema))
    }
}

fn consumed() -> Error {
    Error::new(Kind::InvalidArgument, "stream was consumed or closed before")
        .with_hint("a stream is read once; make it again to read it again")
}

/// Some rows: columns of one length.
#[pyclass(frozen, module = "plait", name = "Batch")]
pub(crate) struct PyBatch(pub(crate) RecordBatch);

#[pymethods]
impl PyBatch {
    /// The schema.
    #[getter]
    fn schema(&self) -> PySchema {
        PySchema(self.0.schema())
    }

    /// Number of rows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.0.num_rows()
    }

    /// Number of columns.
    #[getter]
    fn num_columns(&self) -> usize {
        self.0.num_columns()
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    /// The values as text, column by column; `None` for null.
    fn _texts(&self, py: Python<'_>) -> PyResult<Vec<Vec<Option<String>>>> {
        py.detach(|| texts(&self.0)).map_err(|e| crate::errors::exception(py, &e))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let _ = requested_schema; // A producer may ignore it.
        capsule::batch_capsules(py, &self.0)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        capsule::schema_capsule(py, &self.0.schema())
    }

    fn __repr__(&self) -> String {
        format!("<plait.Batch of {} rows, {}>", self.0.num_rows(), described(&self.0.schema()))
    }
}

/// Names and types of columns.
#[pyclass(frozen, module = "plait", name = "Schema", eq)]
#[derive(PartialEq)]
pub(crate) struct PySchema(pub(crate) SchemaRef);

#[pymethods]
impl PySchema {
    /// Names of the columns.
    #[getter]
    fn names(&self) -> Vec<String> {
        self.0.fields().iter().map(|field| field.name().clone()).collect()
    }

    /// Name, type and whether it may be null, of every column.
    #[getter]
    fn columns(&self) -> Vec<(String, String, bool)> {
        let described = |f: &arrow_schema::FieldRef| {
            (f.name().clone(), type_text(f.data_type()), f.is_nullable())
        };
        self.0.fields().iter().map(described).collect()
    }

    /// Whether `other` is the very same object, not only an equal one.
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn __len__(&self) -> usize {
        self.0.fields().len()
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        capsule::schema_capsule(py, &self.0)
    }

    fn __repr__(&self) -> String {
        format!("<plait.Schema of {}>", described(&self.0))
    }
}

/// `a: int64, b: string`.
fn described(schema: &SchemaRef) -> String {
    let field = |field: &arrow_schema::FieldRef| {
        let not_null = if field.is_nullable() { "" } else { " not null" };
        format!("{}: {}{not_null}", field.name(), type_text(field.data_type()))
    };
    schema.fields().iter().map(field).collect::<Vec<_>>().join(", ")
}
