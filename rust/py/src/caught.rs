//! A lazy reader of the engine as Python and other libraries pull it.
//!
//! # Invariants
//! A panic must not cross the C interface: it becomes an `InternalError`, and the reader is let go.
//!
//! # Not here
//! What is read (`merge_streams`, `read`).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use pyo3::prelude::*;

use crate::capsule::Reader;

/// How often signals are looked for.
const POLL: Duration = Duration::from_millis(50);

/// A reader whose panics are errors.
pub(crate) struct Caught {
    schema: SchemaRef,
    /// None after the last batch, an error or a panic.
    inner: Option<Reader>,
}

impl Caught {
    pub(crate) fn new(inner: Reader) -> Self {
        Self { schema: inner.schema(), inner: Some(inner) }
    }
}

impl Iterator for Caught {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let inner = self.inner.as_mut()?;
        match catch_unwind(AssertUnwindSafe(|| inner.next())) {
            Ok(Some(Ok(batch))) => Some(Ok(batch)),
            Ok(last) => {
                self.inner = None;
                last
            }
            Err(payload) => {
                self.inner = None;
                Some(Err(crate::panics::error(payload.as_ref()).into_arrow()))
            }
        }
    }
}

impl RecordBatchReader for Caught {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// Looks for Ctrl-C now and then.
pub(crate) struct Signals(Mutex<Instant>);

impl Signals {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Instant::now()))
    }

    /// # Errors
    /// What the handler of a signal raised.
    pub(crate) fn check(&self) -> Result<(), ArrowError> {
        let mut looked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if looked.elapsed() < POLL {
            return Ok(());
        }
        *looked = Instant::now();
        drop(looked);
        Python::attach(|py| py.check_signals()).map_err(|e| ArrowError::ExternalError(Box::new(e)))
    }
}
