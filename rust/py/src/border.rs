//! The context and the stores that the options of a call ask for, before the call reads the rest.
//!
//! # Not here
//! The rest of the options (`plait_parquet::JsonCall`); threads, signals (`enter`); exceptions
//! (`errors`).

use std::collections::BTreeMap;
use std::sync::Arc;

use plait_core::Result;
use plait_parquet::{Context, Stores, from_json, to_json};
use pyo3::prelude::*;
use serde::Serialize;

use crate::bucket::PyBucket;

/// The options that the border itself reads, because context and stores are made before the call.
#[derive(serde::Deserialize)]
struct Limits {
    memory_limit: Option<usize>,
    /// Bytes of the limit, if other calls have the rest.
    share_bytes: Option<usize>,
    #[serde(default)]
    storage_options: BTreeMap<String, String>,
}

/// Limit of a call whose options name none.
const MEMORY_LIMIT_BYTES_DEFAULT: usize = 512_000_000;

/// The account and the stores of a call with these options.
pub(crate) fn reach(options: &str, bucket: Option<Py<PyAny>>) -> Result<(Context, Stores)> {
    let limits: Limits = from_json(options)?;
    let all = Context::new(limits.memory_limit.unwrap_or(MEMORY_LIMIT_BYTES_DEFAULT));
    let context = limits.share_bytes.map_or_else(|| all.clone(), |bytes| all.part(bytes));
    let settings = &limits.storage_options;
    let stores = match bucket {
        None => Stores::try_new(settings, &context),
        Some(bucket) => Stores::with_bucket(settings, Arc::new(PyBucket(bucket)), &context),
    };
    Ok((context, stores?))
}

/// Writes a report.
pub(crate) fn json(py: Python<'_>, value: &impl Serialize) -> PyResult<String> {
    to_json(value).map_err(|e| crate::errors::exception(py, &e))
}
