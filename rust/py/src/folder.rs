//! A folder of files, for the package `plait` only: small files as bytes, large ones as file
//! objects.
//!
//! ```text
//! pyarrow.parquet.ParquetWriter ─ write ─▶ FileWriter: 1 MiB ─ enter ─▶ plait_parquet::NewFile
//! ```
//!
//! # Invariants
//! A file has its name after [`close`](PyFileWriter::close), and never otherwise: not when the
//! writer is forgotten, and not when a `with` block ends with an exception. No lock is waited for
//! with the interpreter held.
//!
//! # Cost
//! A thread for every call, but for writes: one for each MiB.
//!
//! # Not here
//! What a file is (`plait_parquet::Folder`); names and records (`python/plait/spark/folder.py`).

use std::sync::{Mutex, MutexGuard, PoisonError};

use plait_core::{Error, Kind, Result};
use plait_parquet::{Context, Folder, NewFile};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::border::reach;
use crate::enter::enter;

/// Bytes that are gathered before they are written.
const GATHERED_BYTES: usize = 1 << 20;

/// A folder, local or of objects.
#[pyclass(frozen, module = "plait._native", name = "Folder")]
pub(crate) struct PyFolder {
    folder: Folder,
    context: Context,
}

#[pymethods]
impl PyFolder {
    /// Opens a folder; options are JSON.
    #[new]
    #[pyo3(signature = (options, bucket=None))]
    fn open(py: Python<'_>, options: &str, bucket: Option<Py<PyAny>>) -> PyResult<Self> {
        let raise = |error: Error| crate::errors::exception(py, &error);
        let (context, stores) = reach(options, bucket).map_err(raise)?;
        let open = move |context: &Context| Folder::open(options, &stores, context);
        let folder = enter(py, &context, None, open)?;
        Ok(Self { folder, context })
    }

    /// How callers write a file.
    fn location(&self, py: Python<'_>, name: &str) -> PyResult<String> {
        self.folder.location(name).map_err(|e| crate::errors::exception(py, &e))
    }

    /// Names of all files, or of those in a folder below.
    #[pyo3(signature = (below=""))]
    fn names(&self, py: Python<'_>, below: &str) -> PyResult<Vec<String>> {
        self.ask(py, |folder| folder.names(below))
    }

    /// The bytes of a small file.
    fn read<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let bytes = self.ask(py, |folder| folder.read(name))?;
        Ok(bytes.map(|bytes| PyBytes::new(py, &bytes)))
    }

    /// Makes a small file unless there is one.
    fn put_new(&self, py: Python<'_>, name: &str, body: &[u8]) -> PyResult<bool> {
        self.ask(py, |folder| folder.put_new(name, body))
    }

    /// Makes a small file in the place of another.
    fn replace(&self, py: Python<'_>, name: &str, body: &[u8]) -> PyResult<()> {
        self.ask(py, |folder| folder.replace(name, body))
    }

    /// Removes files, as far as they are there.
    fn remove(&self, py: Python<'_>, names: Vec<String>) -> PyResult<()> {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.ask(py, |folder| folder.remove(&names))
    }

    /// Begins a file of any size.
    fn create(&self, py: Python<'_>, name: &str) -> PyResult<PyFileWriter> {
        let file = self.ask(py, |folder| folder.create(name))?;
        let open = OpenFile { file, gathered: Vec::new() };
        let state = Mutex::new(Written { open: Some(open), bytes: 0 });
        Ok(PyFileWriter { state, context: self.context.clone() })
    }
}

impl PyFolder {
    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Folder) -> Result<T> + Send,
    ) -> PyResult<T> {
        enter(py, &self.context, None, |_| call(&self.folder))
    }
}

/// A file while it is written, as Python's own: PyArrow writes to it.
#[pyclass(frozen, module = "plait._native", name = "FileWriter")]
pub(crate) struct PyFileWriter {
    state: Mutex<Written>,
    context: Context,
}

struct Written {
    /// None once it was closed or given up.
    open: Option<OpenFile>,
    bytes: u64,
}

struct OpenFile {
    file: NewFile,
    gathered: Vec<u8>,
}

impl OpenFile {
    fn send(&mut self) -> Result<()> {
        self.file.write(&self.gathered)?;
        self.gathered.clear();
        Ok(())
    }
}

#[pymethods]
impl PyFileWriter {
    /// Writes bytes; how many.
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let bytes = match data.cast::<PyBytes>() {
            Ok(bytes) => bytes.clone(),
            Err(_) => PyMemoryView::from(data)?.call_method0("tobytes")?.cast_into()?,
        };
        let bytes = bytes.as_bytes();
        let is_gathered = py.detach(|| gather(&mut self.lock(), bytes));
        if !is_gathered.map_err(|e| crate::errors::exception(py, &e))? {
            let write = |_: &Context| {
                let mut state = self.lock();
                let open = state.open.as_mut().ok_or_else(closed)?;
                open.send()?;
                open.file.write(bytes)?;
                state.bytes += bytes.len() as u64;
                Ok(())
            };
            enter(py, &self.context, None, write)?;
        }
        Ok(bytes.len())
    }

    /// Bytes that were written.
    fn tell(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.lock().bytes)
    }

    /// Does nothing: a file is there when it is closed.
    #[expect(clippy::unused_self, reason = "a method of file objects")]
    fn flush(&self) {}

    /// Makes the file durable and visible; again, does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let close = |_: &Context| match self.lock().open.take() {
            None => Ok(()),
            Some(mut open) => {
                open.send()?;
                open.file.close()
            }
        };
        enter(py, &self.context, None, close)
    }

    /// Leaves nothing of the file, unless it was closed.
    fn abort(&self, py: Python<'_>) {
        // It may wait for a request.
        py.detach(|| drop(self.lock().open.take()));
    }

    /// Whether nothing can be written any more.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        py.detach(|| self.lock().open.is_none())
    }

    /// No.
    #[expect(clippy::unused_self, reason = "a method of file objects")]
    fn readable(&self) -> bool {
        false
    }

    /// No.
    #[expect(clippy::unused_self, reason = "a method of file objects")]
    fn seekable(&self) -> bool {
        false
    }

    /// Yes.
    #[expect(clippy::unused_self, reason = "a method of file objects")]
    fn writable(&self) -> bool {
        true
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Closes the file, or gives it up after an exception.
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if kind.is_none() {
            return self.close(py);
        }
        self.abort(py);
        Ok(())
    }
}

impl PyFileWriter {
    fn lock(&self) -> MutexGuard<'_, Written> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PyFileWriter {
    fn drop(&mut self) {
        let open = self.state.get_mut().unwrap_or_else(PoisonError::into_inner).open.take();
        // It may wait for a request; at the end of the interpreter there is none to wait without.
        let _ = Python::try_attach(|py| py.detach(|| drop(open)));
    }
}

/// Keeps bytes for later, if they are few.
fn gather(state: &mut Written, bytes: &[u8]) -> Result<bool> {
    let open = state.open.as_mut().ok_or_else(closed)?;
    if open.gathered.len() + bytes.len() > GATHERED_BYTES {
        return Ok(false);
    }
    open.gathered.extend_from_slice(bytes);
    state.bytes += bytes.len() as u64;
    Ok(true)
}

fn closed() -> Error {
    Error::new(Kind::InvalidArgument, "the file was closed before")
}
