//! What crosses the border: one JSON text in, one JSON text out.
//!
//! # Invariants
//! An option this engine does not know is an error, never ignored (the options' own
//! `deny_unknown_fields`).
//!
//! # Not here
//! Threads, signals (`enter`); exceptions (`errors`).

use std::collections::BTreeMap;
use std::sync::Arc;

use plait_core::{Error, Kind, Result};
use plait_parquet::Context;
use plait_parquet::Stores;
use pyo3::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bucket::PyBucket;
use crate::enter::enter;

/// The options that the border itself reads, because context and stores are made before the call.
#[derive(serde::Deserialize)]
struct Limits {
    memory_limit: Option<usize>,
    #[serde(default)]
    storage_options: BTreeMap<String, String>,
}

/// Limit of a call whose options name none.
const MEMORY_LIMIT_BYTES_DEFAULT: usize = 512_000_000;

/// Extracts options from JSON, runs `call` behind the gate, and converts its report to JSON.
pub(crate) fn run<O, R>(
    py: Python<'_>,
    options: &str,
    progress: Option<Py<PyAny>>,
    bucket: Option<Py<PyAny>>,
    call: impl FnOnce(&O, &Stores, &Context) -> Result<R> + Send,
) -> PyResult<String>
where
    O: DeserializeOwned + Send,
    R: Serialize + Send,
{
    let raise = |error: Error| crate::errors::exception(py, &error);
    let (context, stores) = reach(options, bucket).map_err(raise)?;
    let options: O = parse(options).map_err(raise)?;
    // The last to hold the stores is the call's own thread: it may wait for requests to end.
    let call = move |context: &Context| call(&options, &stores, context);
    let report = enter(py, &context, progress, call)?;
    json(py, &report)
}

/// The account and the stores of a call with these options.
pub(crate) fn reach(options: &str, bucket: Option<Py<PyAny>>) -> Result<(Context, Stores)> {
    let limits: Limits = parse(options)?;
    let context = Context::new(limits.memory_limit.unwrap_or(MEMORY_LIMIT_BYTES_DEFAULT));
    let settings = &limits.storage_options;
    let stores = match bucket {
        None => Stores::try_new(settings, &context),
        Some(bucket) => Stores::with_bucket(settings, Arc::new(PyBucket(bucket)), &context),
    };
    Ok((context, stores?))
}

/// Reads options.
pub(crate) fn parse<T: DeserializeOwned>(options: &str) -> Result<T> {
    serde_json::from_str(options)
        .map_err(|e| Error::new(Kind::InvalidArgument, "cannot read the options").with_cause(e))
}

/// Writes a report.
pub(crate) fn json(py: Python<'_>, value: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|e| {
        let error = Error::new(Kind::Internal, "cannot write the report").with_cause(e);
        crate::errors::exception(py, &error)
    })
}
