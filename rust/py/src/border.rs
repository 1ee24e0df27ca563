//! What crosses the border: one JSON text in, one JSON text out.
//!
//! # Invariants
//! An option this engine does not know is an error, never ignored (the options' own
//! `deny_unknown_fields`).
//!
//! # Not here
//! Threads, signals (`enter`); exceptions (`errors`).

use plait_core::{Error, Kind, Result};
use plait_parquet::context::Context;
use pyo3::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::enter::enter;

/// The option that the border itself reads, because the context is made before the call.
#[derive(serde::Deserialize)]
struct Limits {
    memory_limit: Option<usize>,
}

/// Limit of a call whose options name none.
const MEMORY_LIMIT_BYTES_DEFAULT: usize = 512_000_000;

/// Extracts options from JSON, runs `call` behind the gate, and converts its report to JSON.
pub(crate) fn run<O, R>(
    py: Python<'_>,
    options: &str,
    progress: Option<Py<PyAny>>,
    call: impl FnOnce(&O, &Context) -> Result<R> + Send,
) -> PyResult<String>
where
    O: DeserializeOwned + Send,
    R: Serialize + Send,
{
    let raise = |error: Error| crate::errors::exception(py, &error);
    let limits: Limits = parse(options).map_err(raise)?;
    let options: O = parse(options).map_err(raise)?;
    let context = Context::new(limits.memory_limit.unwrap_or(MEMORY_LIMIT_BYTES_DEFAULT));
    let report = enter(py, &context, progress, move |context| call(&options, context))?;
    serde_json::to_string(&report)
        .map_err(|e| raise(Error::new(Kind::Internal, "cannot write the report").with_cause(e)))
}

/// Reads options.
pub(crate) fn parse<T: DeserializeOwned>(options: &str) -> Result<T> {
    serde_json::from_str(options)
        .map_err(|e| Error::new(Kind::InvalidArgument, "cannot read the options").with_cause(e))
}
