//! A lease of a folder, for the package `plait` only.
//!
//! # Not here
//! What a lease is (`plait_parquet::compact`); when it is renewed and ended
//! (`python/plait/_lease.py`).

use std::sync::{Mutex, PoisonError};

use plait_core::Error;
use plait_parquet::Context;
use plait_parquet::{Sign, take_in};
use pyo3::prelude::*;

use crate::border::reach;
use crate::enter::enter;

/// What says that the process which took a lease lives.
#[pyclass(frozen, module = "plait._native", name = "Lease")]
pub(crate) struct PyLease(Mutex<Option<Sign>>);

#[pymethods]
impl PyLease {
    /// Takes a lease; options are JSON.
    #[new]
    #[pyo3(signature = (options, bucket=None))]
    fn take(py: Python<'_>, options: &str, bucket: Option<Py<PyAny>>) -> PyResult<Self> {
        let raise = |error: Error| crate::errors::exception(py, &error);
        let (context, stores) = reach(options, bucket).map_err(raise)?;
        let call = move |context: &Context| take_in(options, &stores, context);
        let sign = enter(py, &context, None, call)?;
        Ok(Self(Mutex::new(sign)))
    }

    /// Takes the sign down.
    fn close(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
