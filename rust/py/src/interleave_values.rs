//! What Python passes as values of an interleave: arrays, streams of arrays, arrays of `NumPy`.
//!
//! ```text
//! array of Arrow          ─────────────────────────────▶ one array
//! chunked array, series,  ─ __arrow_c_stream__ ─ chunks ─▶ one value of as many arrays
//! table, stream
//! array of NumPy          ─ pyarrow.array ─────────────▶ one array
//! ```
//!
//! # Invariants
//! Chunks are not joined: a value of several chunks is an interleave of them by runs.
//!
//! # Not here
//! What is done with values (`interleave`); checking them (`capsule`).

use arrow_array::{Array, ArrayRef, new_empty_array};
use plait_core::validate::Validate;
use plait_core::{Error, Runs, SourceId};
use plait_interleave::{Interleave, Value, gather};
use pyo3::prelude::*;

use crate::capsule;

/// Where Python finds the rows of an array.
pub(crate) struct Origin {
    /// What has them by number; none if nothing does.
    object: Option<Py<PyAny>>,
    /// The number of the array's first row there.
    first: usize,
}

impl Origin {
    /// Of rows that Python does not have.
    pub(crate) fn none() -> Self {
        Self { object: None, first: 0 }
    }

    pub(crate) fn copied(&self, py: Python<'_>) -> Self {
        let object = self.object.as_ref().map(|object| object.clone_ref(py));
        Self { object, first: self.first }
    }

    /// Row `row` of the array, as the library of the value gives it.
    pub(crate) fn row(&self, py: Python<'_>, row: usize) -> Option<PyResult<Py<PyAny>>> {
        let object = self.object.as_ref()?.bind(py);
        Some(object.get_item(self.first + row).map(Bound::unbind))
    }
}

/// A value, and where Python finds the rows of its arrays.
///
/// # Errors
/// `InvalidArgument` when it is no array; `CorruptSource` when it is not valid.
pub(crate) fn value(
    object: &Bound<'_, PyAny>,
    validate: Validate,
) -> PyResult<(Value, Vec<Origin>)> {
    let py = object.py();
    let origin = |first| Ok::<_, PyErr>(Origin { object: rows_of(object)?, first });
    if object.hasattr("__arrow_c_array__")? {
        let (field, array) = capsule::array(object, validate)?;
        return Ok((Value::Array(field, array), vec![origin(0)?]));
    }
    if let Some(array) = of_numpy(object)? {
        let (field, array) = capsule::array(&array, validate)?;
        return Ok((Value::Array(field, array), vec![origin(0)?]));
    }
    let (field, mut chunks) = capsule::arrays(object, validate)?;
    if chunks.len() <= 1 {
        let array = chunks.pop().unwrap_or_else(|| new_empty_array(field.data_type()));
        return Ok((Value::Array(field, array), vec![origin(0)?]));
    }
    let (mut origins, mut runs, mut first) = (Vec::new(), Runs::default(), 0);
    for (number, chunk) in chunks.iter().enumerate() {
        origins.push(origin(first)?);
        runs.push(SourceId(u32::try_from(number).unwrap_or(u32::MAX)), 0, chunk.len() as u64);
        first += chunk.len();
    }
    let lazy = Interleave::from_runs(chunks, &runs).map_err(|e| raised(py, &e))?;
    Ok((Value::Interleave(lazy), origins))
}

/// An array that selects: one array, whatever it is passed as.
///
/// # Errors
/// As [`value`].
pub(crate) fn selector(object: &Bound<'_, PyAny>, validate: Validate) -> PyResult<ArrayRef> {
    if object.hasattr("__arrow_c_array__")? {
        return Ok(capsule::array(object, validate)?.1);
    }
    if let Some(array) = of_numpy(object)? {
        return Ok(capsule::array(&array, validate)?.1);
    }
    let (field, chunks) = capsule::arrays(object, validate)?;
    let mut runs = Runs::default();
    for (number, chunk) in chunks.iter().enumerate() {
        runs.push(SourceId(u32::try_from(number).unwrap_or(u32::MAX)), 0, chunk.len() as u64);
    }
    if chunks.is_empty() {
        return Ok(new_empty_array(field.data_type()));
    }
    gather(&chunks, runs.as_slice()).map_err(|e| raised(object.py(), &e))
}

/// What has the rows of `object` by number: tables have columns by number.
fn rows_of(object: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
    for name in ["columns", "column_names"] {
        if object.hasattr(name)? {
            return Ok(None);
        }
    }
    if object.hasattr("iloc")? {
        return object.getattr("iloc").map(|rows| Some(rows.unbind()));
    }
    Ok(object.hasattr("__getitem__")?.then(|| object.clone().unbind()))
}

/// An array of `NumPy`, or a series of an old pandas, as an array of `PyArrow`.
fn of_numpy<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    if object.hasattr("__arrow_c_stream__")? || !object.hasattr("__array__")? {
        return Ok(None);
    }
    let made = object.py().import("pyarrow")?.call_method1("array", (object,))?;
    Ok(made.hasattr("__arrow_c_array__")?.then_some(made))
}

fn raised(py: Python<'_>, error: &Error) -> PyErr {
    crate::errors::exception(py, error)
}
