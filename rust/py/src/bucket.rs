//! A store that the caller brought (obstore, fsspec), as the engine sees one.
//!
//! ```text
//! engine's thread ── Bucket::read ──▶ attach ──▶ adapter.read(key, start, end) ──▶ bytes
//!                                               python/plait/_stores.py
//! ```
//!
//! # Invariants
//! The interpreter is held for one call at a time and by no thread that waits for another. What
//! the adapter raises becomes `StorageError` with the exception as its cause.
//!
//! # Cost
//! One copy of the bytes, and all threads take turns.
//!
//! # Not here
//! Which method of which library (`python/plait/_stores.py`).

use std::ops::Range;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use plait_core::{Error, Kind, Result};
use plait_parquet::Charge;
use plait_parquet::{Bucket, Completed, Meta, Upload};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Length, tag, time as text, time in seconds since 1970.
type Head = (u64, Option<String>, Option<String>, Option<f64>);

/// An adapter of `plait._stores`.
pub(crate) struct PyBucket(pub(crate) Py<PyAny>);

/// Runs `call` with the interpreter; what it raises is an error about `key`.
fn attached<T>(key: &str, call: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T> {
    Python::attach(call).map_err(|raised| {
        Error::new(Kind::Storage, "the store that was given raised an exception")
            .with_path(key)
            .with_got(format!("`{raised}`"))
            .with_cause(raised)
    })
}

impl Bucket for PyBucket {
    fn head(&self, key: &str) -> Result<Option<Meta>> {
        let found: Option<Head> =
            attached(key, |py| self.0.call_method1(py, "head", (key,))?.extract(py))?;
        Ok(found.map(|(len, tag, modified, since)| {
            let since = since.and_then(|since| Duration::try_from_secs_f64(since).ok());
            let modified_at = since.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since));
            Meta { len, tag, modified, modified_at }
        }))
    }

    fn read(&self, key: &str, range: Range<u64>, _meta: &Meta) -> Result<Bytes> {
        attached(key, |py| {
            let read = self.0.call_method1(py, "read", (key, range.start, range.end))?;
            Ok(Bytes::copy_from_slice(read.bind(py).cast::<PyBytes>()?.as_bytes()))
        })
    }

    fn list(&self, prefix: &str, deep: bool) -> Result<Vec<String>> {
        attached(prefix, |py| self.0.call_method1(py, "list", (prefix, deep))?.extract(py))
    }

    fn upload(&self, key: &str) -> Result<Box<dyn Upload>> {
        let inner = attached(key, |py| self.0.call_method1(py, "upload", (key,)))?;
        Ok(Box::new(PyUpload { key: key.to_owned(), inner, is_over: false }))
    }

    fn put_new(&self, key: &str, bytes: Bytes) -> Result<Completed> {
        let made: Option<bool> = attached(key, |py| {
            let bytes = PyBytes::new(py, &bytes);
            self.0.call_method1(py, "put_new", (key, bytes))?.extract(py)
        })?;
        match made {
            Some(true) => Ok(Completed::Yes),
            Some(false) => Ok(Completed::Occupied),
            None => Err(self.unconditional(key)),
        }
    }

    fn replace(&self, key: &str, bytes: Bytes) -> Result<()> {
        attached(key, |py| {
            self.0.call_method1(py, "replace", (key, PyBytes::new(py, &bytes))).map(drop)
        })
    }

    fn remove(&self, key: &str) -> Result<()> {
        attached(key, |py| self.0.call_method1(py, "remove", (key,)).map(drop))
    }
}

struct PyUpload {
    key: String,
    inner: Py<PyAny>,
    is_over: bool,
}

impl Upload for PyUpload {
    fn part(&mut self, bytes: Vec<u8>, charge: Charge) -> Result<()> {
        let _held = charge;
        attached(&self.key, |py| {
            self.inner.call_method1(py, "part", (PyBytes::new(py, &bytes),)).map(drop)
        })
    }

    fn wait_all(&mut self) -> Result<()> {
        attached(&self.key, |py| self.inner.call_method0(py, "finish").map(drop))
    }

    fn complete(&mut self) -> Result<Completed> {
        self.wait_all()?;
        let is_visible: bool =
            attached(&self.key, |py| self.inner.call_method0(py, "complete")?.extract(py))?;
        self.is_over = is_visible;
        Ok(if is_visible { Completed::Yes } else { Completed::Occupied })
    }
}

impl Drop for PyUpload {
    fn drop(&mut self) {
        if !self.is_over {
            // Nothing can be done about what it raises: the call is over.
            let _ = attached(&self.key, |py| self.inner.call_method0(py, "abort").map(drop));
        }
    }
}
