//! The two sides of a staged join, for the package `plait` only: batches in, batches out.
//!
//! # Not here
//! What they tell each other (`plait_core::join`); their state (`plait_parquet::join`).

use std::sync::{Mutex, MutexGuard, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use plait_core::validate::Validate;
use plait_core::{Error, Kind};
use plait_parquet::Context;
use plait_parquet::{JoinOptions, Left, Right, from_json};
use pyo3::prelude::*;

use crate::capsule;
use crate::enter::enter;
use crate::stream::{PyBatch, PyStream};

type Schemas = Option<[SchemaRef; 2]>;

/// Options, and the columns of both sides if they are given.
fn asked(
    py: Python<'_>,
    options: &str,
    left: Option<&Bound<'_, PyAny>>,
    right: Option<&Bound<'_, PyAny>>,
) -> PyResult<(JoinOptions, Schemas)> {
    let options = from_json(options).map_err(|e| crate::errors::exception(py, &e))?;
    let given = match (left, right) {
        (Some(left), Some(right)) => Some([capsule::schema(left)?, capsule::schema(right)?]),
        _ => None,
    };
    Ok((options, given))
}

fn memory_limit(options: &JoinOptions) -> usize {
    usize::try_from(options.memory_limit).unwrap_or(usize::MAX)
}

/// What a side says of itself.
fn ask<S: Send, T: Send>(
    py: Python<'_>,
    side: &Mutex<Option<S>>,
    of: impl FnOnce(&S) -> T + Send,
) -> PyResult<T> {
    let answer = py.detach(|| open(&mut lock(side)).map(|side| of(side)));
    answer.map_err(|e| crate::errors::exception(py, &e))
}

/// The rows of what has record batches, as one.
fn whole(object: &Bound<'_, PyAny>, validate: Validate) -> PyResult<RecordBatch> {
    let reader = capsule::reader(object, validate)?;
    plait_parquet::whole(reader).map_err(|e| crate::errors::exception(object.py(), &e))
}

fn lock<T>(side: &Mutex<Option<T>>) -> MutexGuard<'_, Option<T>> {
    side.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The side, unless it was closed.
fn open<T>(side: &mut Option<T>) -> Result<&mut T, Error> {
    let what = "this side of the join was closed before";
    side.as_mut().ok_or_else(|| Error::new(Kind::InvalidArgument, what))
}

/// The left side.
#[pyclass(frozen, module = "plait._native", name = "StagedLeft")]
pub(crate) struct PyStagedLeft {
    /// None once it was closed.
    side: Mutex<Option<Left>>,
    memory_limit: usize,
    validate: Validate,
}

#[pymethods]
impl PyStagedLeft {
    /// A side; options are JSON. Without schemas its state must be there.
    #[new]
    #[pyo3(signature = (options, left_schema=None, right_schema=None, validate=None))]
    fn open(
        py: Python<'_>,
        options: &str,
        left_schema: Option<&Bound<'_, PyAny>>,
        right_schema: Option<&Bound<'_, PyAny>>,
        validate: Option<&str>,
    ) -> PyResult<Self> {
        let validate = capsule::validate(py, validate)?;
        let (options, given) = asked(py, options, left_schema, right_schema)?;
        let memory_limit = memory_limit(&options);
        let make = |context: &Context| Left::try_new(options, given, context);
        let side = enter(py, &Context::new(memory_limit), None, make)?;
        Ok(Self { side: Mutex::new(Some(side)), memory_limit, validate })
    }

    /// Subscriptions for changes, and some of those that are owed.
    #[pyo3(signature = (changes=None))]
    fn send(&self, py: Python<'_>, changes: Option<&Bound<'_, PyAny>>) -> PyResult<PyBatch> {
        let changes = changes.map(|changes| whole(changes, self.validate)).transpose()?;
        let call = |context: &Context| open(&mut lock(&self.side))?.send(changes.as_ref(), context);
        enter(py, &Context::new(self.memory_limit), None, call).map(PyBatch)
    }

    /// Changes for responses.
    fn resolve(&self, py: Python<'_>, responses: &Bound<'_, PyAny>) -> PyResult<PyBatch> {
        let responses = whole(responses, self.validate)?;
        self.changes(py, |left, context| left.resolve(&responses, context))
    }

    /// The changes of the last call once more.
    fn again(&self, py: Python<'_>) -> PyResult<PyBatch> {
        self.changes(py, |left, _| left.again())
    }

    /// The result as it is now.
    fn table(&self, py: Python<'_>) -> PyResult<PyStream> {
        let call = |_: &Context| open(&mut lock(&self.side))?.table();
        enter(py, &Context::new(self.memory_limit), None, call).map(PyStream::new)
    }

    /// Writes the state to a folder.
    fn snapshot(&self, py: Python<'_>, location: &str) -> PyResult<()> {
        let call = |context: &Context| open(&mut lock(&self.side))?.snapshot(location, context);
        enter(py, &Context::new(self.memory_limit), None, call)
    }

    /// Whether `send` has something to say though nothing changed.
    #[getter]
    fn pending(&self, py: Python<'_>) -> PyResult<bool> {
        ask(py, &self.side, |left| left.is_owing())
    }

    /// The last call that added something.
    #[getter]
    fn step(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        ask(py, &self.side, |left| left.step())
    }

    /// Lets the state go.
    fn close(&self, py: Python<'_>) {
        drop(py.detach(|| lock(&self.side).take()));
    }
}

impl PyStagedLeft {
    /// What a call says.
    fn changes(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Left, &Context) -> Result<RecordBatch, Error> + Send,
    ) -> PyResult<PyBatch> {
        let call = |context: &Context| call(open(&mut lock(&self.side))?, context);
        enter(py, &Context::new(self.memory_limit), None, call).map(PyBatch)
    }
}

/// The right side.
#[pyclass(frozen, module = "plait._native", name = "StagedRight")]
pub(crate) struct PyStagedRight {
    /// None once it was closed.
    side: Mutex<Option<Right>>,
    memory_limit: usize,
    validate: Validate,
}

#[pymethods]
impl PyStagedRight {
    /// A side; options are JSON. Without schemas its state must be there.
    #[new]
    #[pyo3(signature = (options, left_schema=None, right_schema=None, validate=None))]
    fn open(
        py: Python<'_>,
        options: &str,
        left_schema: Option<&Bound<'_, PyAny>>,
        right_schema: Option<&Bound<'_, PyAny>>,
        validate: Option<&str>,
    ) -> PyResult<Self> {
        let validate = capsule::validate(py, validate)?;
        let (options, given) = asked(py, options, left_schema, right_schema)?;
        let memory_limit = memory_limit(&options);
        let make = |context: &Context| Right::try_new(options, given, context);
        let side = enter(py, &Context::new(memory_limit), None, make)?;
        Ok(Self { side: Mutex::new(Some(side)), memory_limit, validate })
    }

    /// Responses for subscriptions.
    fn receive(&self, py: Python<'_>, subscriptions: &Bound<'_, PyAny>) -> PyResult<PyBatch> {
        let subscriptions = whole(subscriptions, self.validate)?;
        let call =
            |context: &Context| open(&mut lock(&self.side))?.receive(&subscriptions, context);
        enter(py, &Context::new(self.memory_limit), None, call).map(PyBatch)
    }

    /// Responses for changes.
    #[pyo3(signature = (changes=None))]
    fn apply(&self, py: Python<'_>, changes: Option<&Bound<'_, PyAny>>) -> PyResult<PyBatch> {
        let changes = changes.map(|changes| whole(changes, self.validate)).transpose()?;
        let call =
            |context: &Context| open(&mut lock(&self.side))?.apply(changes.as_ref(), context);
        enter(py, &Context::new(self.memory_limit), None, call).map(PyBatch)
    }

    /// Writes the state to a folder.
    fn snapshot(&self, py: Python<'_>, location: &str) -> PyResult<()> {
        let call = |context: &Context| open(&mut lock(&self.side))?.snapshot(location, context);
        enter(py, &Context::new(self.memory_limit), None, call)
    }

    /// Whether `apply` has something to say though nothing changed.
    #[getter]
    fn pending(&self, py: Python<'_>) -> PyResult<bool> {
        ask(py, &self.side, |right| right.is_owing())
    }

    /// Lets the state go.
    fn close(&self, py: Python<'_>) {
        drop(py.detach(|| lock(&self.side).take()));
    }
}
