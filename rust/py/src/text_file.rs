//! Files of text of a scan: the bytes as a file of Python, and the reader of Python that makes batches
//! of them.
//!
//! ```text
//! scan ─ survey, read ─▶ python/plait/_text_files.py ─ read, seek ─▶ TextFile ─▶ store
//! ```
//!
//! # Invariants
//! The interpreter is released while bytes are read. What the reader raises comes as it is.
//!
//! # Not here
//! Formats (`python/plait/_text_files.py`).

use std::sync::{Mutex, PoisonError};

use arrow_schema::SchemaRef;
use plait_core::validate::Validate;
use plait_core::{Error, Kind, Result};
use plait_parquet::{Reader, TextFile, TextReader, TextSurvey};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::capsule;
use crate::stream::PySchema;
use crate::turn::python;

/// Ends of `seek`.
const FROM_HERE: u8 = 1;
const FROM_END: u8 = 2;

/// A reader of Python.
pub(crate) struct PyTextReader {
    pub(crate) reader: Py<PyAny>,
    pub(crate) validate: Validate,
}

impl PyTextReader {
    fn ask<T>(&self, call: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T> {
        Python::attach(|py| python(|| call(py))).map_err(|raised| {
            Error::new(Kind::SourceFailed, "a file of text cannot be read").with_cause(raised)
        })
    }
}

impl TextReader for PyTextReader {
    fn survey(&self, file: TextFile) -> Result<TextSurvey> {
        self.ask(|py| {
            let found = self.reader.call_method1(py, "survey", (PyTextFile::new(file),))?;
            let (schema, rows): (Bound<'_, PyAny>, u64) = found.extract(py)?;
            Ok(TextSurvey { schema: capsule::schema(&schema)?, rows })
        })
    }

    fn read(&self, file: TextFile, schema: &SchemaRef) -> Result<Reader> {
        self.ask(|py| {
            let columns = PySchema(SchemaRef::clone(schema));
            let made = self.reader.call_method1(py, "read", (PyTextFile::new(file), columns))?;
            let made = capsule::reader_if_any(made.bind(py), self.validate)?;
            Ok(made.unwrap_or_else(|| capsule::no_rows(SchemaRef::clone(schema))))
        })
    }
}

/// The bytes of a file, as PyArrow reads them.
#[pyclass(frozen, module = "plait._native", name = "TextFile")]
pub(crate) struct PyTextFile {
    file: TextFile,
    at: Mutex<u64>,
}

impl PyTextFile {
    fn new(file: TextFile) -> Self {
        Self { file, at: Mutex::new(0) }
    }
}

#[pymethods]
impl PyTextFile {
    /// Where the file is.
    #[getter]
    fn path(&self) -> &str {
        &self.file.path
    }

    /// So many bytes, fewer at the end; all that are left without a number.
    #[pyo3(signature = (size=None))]
    fn read<'py>(&self, py: Python<'py>, size: Option<i64>) -> PyResult<Bound<'py, PyBytes>> {
        let len = size.and_then(|size| usize::try_from(size).ok()).unwrap_or(usize::MAX);
        let read = || {
            let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
            let bytes = self.file.read(*at, len)?;
            *at += bytes.len() as u64;
            Ok(bytes)
        };
        let bytes: Result<Vec<u8>> = py.detach(read);
        let bytes = bytes.map_err(|e| crate::errors::exception(py, &e))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// The same file from its beginning, with a place of its own: PyArrow reads ahead in threads, also
    /// for a reader that is no longer used.
    fn opened(&self) -> Self {
        Self::new(self.file.clone())
    }

    /// Goes to a place, counted from the beginning, from here, or from the end.
    #[pyo3(signature = (offset, whence=0))]
    fn seek(&self, py: Python<'_>, offset: i64, whence: u8) -> u64 {
        py.detach(|| {
            let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
            let from = match whence {
                FROM_HERE => *at,
                FROM_END => self.file.bytes,
                _ => 0,
            };
            *at = from.saturating_add_signed(offset);
            *at
        })
    }

    /// The place.
    fn tell(&self, py: Python<'_>) -> u64 {
        py.detach(|| *self.at.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Length in bytes.
    fn size(&self) -> u64 {
        self.file.bytes
    }

    /// Does nothing: bytes are read one by one.
    #[expect(clippy::unused_self, reason = "a method of file objects")]
    fn close(&self) {}

    /// No.
    #[getter]
    #[expect(clippy::unused_self, reason = "a member of file objects")]
    fn closed(&self) -> bool {
        false
    }

    /// Yes.
    #[expect(clippy::unused_self, reason = "a method of file objects")]
    fn readable(&self) -> bool {
        true
    }

    /// Yes.
    #[expect(clippy::unused_self, reason = "a method of file objects")]
    fn seekable(&self) -> bool {
        true
    }

    /// No.
    #[expect(clippy::unused_self, reason = "a method of file objects")]
    fn writable(&self) -> bool {
        false
    }
}
