//! An engine error becomes the exception class of its kind, with its place as attributes.
//!
//! # Invariants
//! The class is looked up by [`Kind::name`](plait_core::Kind::name) in `plait.errors`, so the two
//! lists are one; a test compares them.
//!
//! # Not here
//! The classes and their documentation (`python/plait/errors.py`).

use plait_core::{Error, Kind};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// The exception for `error`; if it cannot be made, the exception that says why.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    // What Python code behind a source raised comes as it is.
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<PyErr>());
    if let (Kind::SourceFailed, Some(raised)) = (error.kind(), cause) {
        return raised.clone_ref(py);
    }
    build(py, error).unwrap_or_else(|failed| failed)
}

fn build(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let class = py.import("plait.errors")?.getattr(error.kind().name())?;
    let exception = class.call1((error.to_string(),))?.cast_into::<PyBaseException>()?;
    exception.setattr("what", error.what())?;
    exception.setattr("path", error.path())?;
    exception.setattr("column", error.column())?;
    exception.setattr("row", error.row())?;
    exception.setattr("offset", error.offset())?;
    exception.setattr("got", error.got())?;
    exception.setattr("hint", error.hint())?;
    let errors = error.errors().iter().map(|error| build(py, error)?.into_py_any(py));
    let errors = errors.collect::<PyResult<Vec<_>>>()?;
    if !errors.is_empty() {
        exception.setattr("errors", PyTuple::new(py, errors)?)?;
    }
    Ok(PyErr::from_value(exception.into_any()))
}
