//! What executors read of sources, for the package `plait` only.
//!
//! # Not here
//! What is read (`plait_parquet::plan`), and how it is served (`plait_parquet::store`).

use std::sync::Arc;

use plait_core::Error;
use plait_parquet::Context;
use plait_parquet::{Prefetched, Stores, learn_in};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::border::reach;
use crate::enter::enter;

/// Parts of files that were read before.
#[pyclass(frozen, module = "plait._native", name = "Known")]
pub(crate) struct PyKnown(Arc<Prefetched>);

#[pymethods]
impl PyKnown {
    /// Takes what `learn` gave, one file after the other: there may be a million.
    #[new]
    fn new(py: Python<'_>, files: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut failed = None;
        let bytes = files.try_iter()?.map_while(|file| {
            let bytes = file.and_then(|file| Ok(file.extract::<PyBackedBytes>()?));
            bytes.map_err(|e| failed = Some(e)).ok()
        });
        let known = Prefetched::try_new(bytes);
        match failed {
            Some(e) => Err(e),
            None => known
                .map(|known| Self(Arc::new(known)))
                .map_err(|e| crate::errors::exception(py, &e)),
        }
    }
}

/// Serves what is known from `stores`.
pub(crate) fn remember(known: Option<Py<PyKnown>>, stores: &Stores) {
    if let Some(known) = known {
        stores.remember(Arc::clone(&known.get().0));
    }
}

/// What planning will read of files; options are JSON.
pub(crate) fn learn<'py>(
    py: Python<'py>,
    options: &str,
) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
    let raise = |error: Error| crate::errors::exception(py, &error);
    let (context, stores) = reach(options, None).map_err(raise)?;
    let call = move |context: &Context| learn_in(options, &stores, context);
    let known = enter(py, &context, None, call)?;
    Ok(known.into_iter().map(|file| Some(PyBytes::new(py, &file?))).collect())
}
