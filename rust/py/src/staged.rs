//! The two sides of a staged join, for the package `plait` only: batches in, batches out.
//!
//! # Not here
//! What they tell each other (`plait_core::join`).

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use plait_core::Error;
use plait_core::join::{Layout, StagedLeft, StagedRight};
use plait_parquet::join::JoinOptions;
use pyo3::prelude::*;

use crate::capsule;
use crate::stream::PyBatch;

fn layout(
    py: Python<'_>,
    options: &str,
    left: &Bound<'_, PyAny>,
    right: &Bound<'_, PyAny>,
) -> PyResult<Arc<Layout>> {
    let raise = |e: Error| crate::errors::exception(py, &e);
    let options: JoinOptions = crate::border::parse(options).map_err(raise)?;
    let (left, right) = (capsule::schema(left)?, capsule::schema(right)?);
    Layout::try_new(options.spec(), &left, &right).map(Arc::new).map_err(raise)
}

/// The rows of what has record batches, as one.
fn whole(object: &Bound<'_, PyAny>) -> PyResult<RecordBatch> {
    let reader = capsule::reader(object)?;
    plait_parquet::join::whole(reader).map_err(|e| crate::errors::exception(object.py(), &e))
}

fn batch(py: Python<'_>, made: Result<RecordBatch, Error>) -> PyResult<PyBatch> {
    made.map(PyBatch).map_err(|e| crate::errors::exception(py, &e))
}

/// The left side.
#[pyclass(frozen, module = "plait._native", name = "StagedLeft")]
pub(crate) struct PyStagedLeft(Mutex<StagedLeft>, Arc<Layout>);

#[pymethods]
impl PyStagedLeft {
    /// A side without rows; options are JSON.
    #[new]
    fn open(
        py: Python<'_>,
        options: &str,
        left_schema: &Bound<'_, PyAny>,
        right_schema: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let layout = layout(py, options, left_schema, right_schema)?;
        let side = StagedLeft::try_new(Arc::clone(&layout));
        Ok(Self(Mutex::new(side.map_err(|e| crate::errors::exception(py, &e))?), layout))
    }

    /// Subscriptions for changes.
    fn send(&self, py: Python<'_>, changes: &Bound<'_, PyAny>) -> PyResult<PyBatch> {
        let changes = whole(changes)?;
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        batch(py, py.detach(|| lock().send(&changes)))
    }

    /// Changes for responses.
    fn resolve(&self, py: Python<'_>, responses: &Bound<'_, PyAny>) -> PyResult<PyBatch> {
        let responses = whole(responses)?;
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let made = py.detach(|| lock().resolve(&responses));
        let none = || RecordBatch::new_empty(Arc::clone(self.1.out()));
        batch(py, made.map(|made| made.unwrap_or_else(none)))
    }
}

/// The right side.
#[pyclass(frozen, module = "plait._native", name = "StagedRight")]
pub(crate) struct PyStagedRight(Mutex<StagedRight>);

#[pymethods]
impl PyStagedRight {
    /// A side without rows; options are JSON.
    #[new]
    fn open(
        py: Python<'_>,
        options: &str,
        left_schema: &Bound<'_, PyAny>,
        right_schema: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let side = StagedRight::try_new(layout(py, options, left_schema, right_schema)?);
        Ok(Self(Mutex::new(side.map_err(|e| crate::errors::exception(py, &e))?)))
    }

    /// Responses for subscriptions.
    fn receive(&self, py: Python<'_>, subscriptions: &Bound<'_, PyAny>) -> PyResult<PyBatch> {
        let subscriptions = whole(subscriptions)?;
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        batch(py, py.detach(|| lock().receive(&subscriptions)))
    }

    /// Responses for changes.
    fn apply(&self, py: Python<'_>, changes: &Bound<'_, PyAny>) -> PyResult<PyBatch> {
        let changes = whole(changes)?;
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        batch(py, py.detach(|| lock().apply(&changes)))
    }
}
