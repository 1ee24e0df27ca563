//! The log of a Delta table, for the package `plait` only: JSON in, JSON out.
//!
//! # Invariants
//! Calls follow each other: what one has read of the log, the next one need not.
//!
//! # Not here
//! What each call does (`plait_delta`).

use std::sync::{Mutex, PoisonError};

use plait_core::{Error, Result};
use plait_delta::Log;
use plait_parquet::Context;
use pyo3::prelude::*;

use crate::border::reach;
use crate::enter::enter;

/// The log of a table that is open.
#[pyclass(frozen, module = "plait._native", name = "DeltaLog")]
pub(crate) struct PyDeltaLog {
    log: Mutex<Log>,
    context: Context,
}

#[pymethods]
impl PyDeltaLog {
    /// Opens the log in a folder; options are JSON, as in all calls here.
    #[new]
    #[pyo3(signature = (options, bucket=None))]
    fn open(py: Python<'_>, options: &str, bucket: Option<Py<PyAny>>) -> PyResult<Self> {
        let raise = |error: Error| crate::errors::exception(py, &error);
        let (context, stores) = reach(options, bucket).map_err(raise)?;
        let open = |context: &Context| Log::open(options, &stores, context);
        let log = enter(py, &context, None, open)?;
        Ok(Self { log: Mutex::new(log), context })
    }

    /// The table at a version.
    fn snapshot(&self, py: Python<'_>, options: &str) -> PyResult<String> {
        self.ask(py, |log| log.snapshot(options))
    }

    /// The live files of a version.
    fn files(&self, py: Python<'_>, options: &str) -> PyResult<String> {
        self.ask(py, |log| log.files(options))
    }

    /// Whether files have the columns of a mapped table.
    fn check_columns(&self, py: Python<'_>, options: &str) -> PyResult<String> {
        self.ask(py, |log| log.check_columns(options))
    }

    /// A file as a commit adds it.
    fn added(&self, py: Python<'_>, options: &str) -> PyResult<String> {
        self.ask(py, |log| log.added(options))
    }

    /// Commits a change.
    fn commit(&self, py: Python<'_>, options: &str) -> PyResult<String> {
        self.ask(py, |log| log.commit(options))
    }

    /// What was committed.
    fn history(&self, py: Python<'_>, options: &str) -> PyResult<String> {
        self.ask(py, |log| log.history(options))
    }

    /// Removes what no version needs.
    fn clean(&self, py: Python<'_>, options: &str) -> PyResult<String> {
        self.ask(py, |log| log.clean(options))
    }

    /// The files of the folder, and those that the log names.
    fn there(&self, py: Python<'_>) -> PyResult<String> {
        self.ask(py, Log::there)
    }

    /// Lengths and times of writing of files, in milliseconds since 1970.
    fn look(&self, py: Python<'_>, names: Vec<String>) -> PyResult<Vec<Option<(u64, i64)>>> {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.ask(py, |log| log.look(&names))
    }
}

impl PyDeltaLog {
    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Log) -> Result<T> + Send,
    ) -> PyResult<T> {
        let ask = |_: &Context| call(&mut self.log.lock().unwrap_or_else(PoisonError::into_inner));
        enter(py, &self.context, None, ask)
    }
}
