//! The two sides of a staged join, for the package `plait` only: batches in, batches out.
//!
//! # Invariants
//! Calls follow each other: the second waits until the first is done, and a source or callable of a call
//! that asks for another is refused (`turn`).
//!
//! # Not here
//! What they tell each other (`plait_core::join`); their state (`plait_parquet::join`).

use std::num::NonZeroU32;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::SchemaRef;
use plait_core::join::key_bytes;
use plait_core::validate::{Validate, Validator};
use plait_core::{Error, Kind, type_text};
use plait_parquet::Context;
use plait_parquet::{JoinOptions, Left, Right, from_json};
use pyo3::prelude::*;

use crate::capsule;
use crate::enter::enter;
use crate::interleave::PyArray;
use crate::join::joiner_call;
use crate::stream::{PyBatch, PyStream};
use crate::turn::Turns;

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

/// Uses a side, once nobody else does.
fn turn<S, T>(
    side: &Turns<Option<S>>,
    call: impl FnOnce(&mut S) -> Result<T, Error>,
) -> Result<T, Error> {
    side.with(|side| call(open(side)?))?
}

/// What a side says of itself.
fn ask<S: Send, T: Send>(
    py: Python<'_>,
    side: &Turns<Option<S>>,
    of: impl FnOnce(&S) -> Result<T, Error> + Send,
) -> PyResult<T> {
    let answer = py.detach(|| turn(side, |side| of(side)));
    answer.map_err(|e| crate::errors::exception(py, &e))
}

/// Lets the state of a side go.
fn close<S: Send>(py: Python<'_>, side: &Turns<Option<S>>) -> PyResult<()> {
    let closed = py.detach(|| side.with(Option::take));
    closed.map(drop).map_err(|e| crate::errors::exception(py, &e))
}

/// The rows of what has record batches, as one.
fn whole(object: &Bound<'_, PyAny>, validate: Validate) -> PyResult<RecordBatch> {
    let reader = capsule::reader(object, validate)?;
    plait_parquet::whole(reader).map_err(|e| crate::errors::exception(object.py(), &e))
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
    side: Turns<Option<Left>>,
    memory_limit: usize,
    validate: Validate,
}

#[pymethods]
impl PyStagedLeft {
    /// A side; options are JSON. Without schemas its state must be there.
    #[new]
    #[pyo3(signature = (options, left_schema=None, right_schema=None, joiner=None, validate=None))]
    fn open(
        py: Python<'_>,
        options: &str,
        left_schema: Option<&Bound<'_, PyAny>>,
        right_schema: Option<&Bound<'_, PyAny>>,
        joiner: Option<Py<PyAny>>,
        validate: Option<&str>,
    ) -> PyResult<Self> {
        let validate = capsule::validate(py, validate)?;
        let (options, given) = asked(py, options, left_schema, right_schema)?;
        let memory_limit = memory_limit(&options);
        let joiner = joiner.map(|joiner| joiner_call(joiner, validate));
        let make = |context: &Context| Left::try_new(options, given, joiner, context);
        let side = enter(py, &Context::new(memory_limit), None, make)?;
        Ok(Self { side: Turns::new(Some(side)), memory_limit, validate })
    }

    /// Subscriptions for changes, and some of those that are owed.
    #[pyo3(signature = (changes=None))]
    fn send(&self, py: Python<'_>, changes: Option<&Bound<'_, PyAny>>) -> PyResult<PyBatch> {
        let changes = changes.map(|changes| whole(changes, self.validate)).transpose()?;
        let call =
            |context: &Context| turn(&self.side, |left| left.send(changes.as_ref(), context));
        enter(py, &Context::new(self.memory_limit), None, call).map(PyBatch)
    }

    /// Changes for responses, and of rows that are due.
    #[pyo3(signature = (responses=None))]
    fn resolve(&self, py: Python<'_>, responses: Option<&Bound<'_, PyAny>>) -> PyResult<PyBatch> {
        let responses = responses.map(|responses| whole(responses, self.validate)).transpose()?;
        self.changes(py, |left, context| left.resolve(responses.as_ref(), context))
    }

    /// The changes of the last call once more.
    fn again(&self, py: Python<'_>) -> PyResult<PyBatch> {
        self.changes(py, |left, _| left.again())
    }

    /// The result as it is now.
    fn table(&self, py: Python<'_>) -> PyResult<PyStream> {
        let call = |_: &Context| turn(&self.side, |left| left.table());
        enter(py, &Context::new(self.memory_limit), None, call).map(PyStream::new)
    }

    /// Writes the state to a folder.
    fn snapshot(&self, py: Python<'_>, location: &str) -> PyResult<()> {
        let call = |context: &Context| turn(&self.side, |side| side.snapshot(location, context));
        enter(py, &Context::new(self.memory_limit), None, call)
    }

    /// Whether `send` has something to say though nothing changed.
    #[getter]
    fn pending(&self, py: Python<'_>) -> PyResult<bool> {
        ask(py, &self.side, |left| Ok(left.state().is_owing))
    }

    /// Whether `resolve` has changes without any response.
    #[getter]
    fn ready(&self, py: Python<'_>) -> PyResult<bool> {
        ask(py, &self.side, |left| Ok(left.state().has_due))
    }

    /// The last call that added something.
    #[getter]
    fn step(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        ask(py, &self.side, |left| Ok(left.state().step))
    }

    /// What was done and what the state holds, as JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        ask(py, &self.side, Left::stats)
    }

    /// Lets the state go.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        close(py, &self.side)
    }
}

impl PyStagedLeft {
    /// What a call says.
    fn changes(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Left, &Context) -> Result<RecordBatch, Error> + Send,
    ) -> PyResult<PyBatch> {
        let call = |context: &Context| turn(&self.side, |left| call(left, context));
        enter(py, &Context::new(self.memory_limit), None, call).map(PyBatch)
    }
}

/// The right side.
#[pyclass(frozen, module = "plait._native", name = "StagedRight")]
pub(crate) struct PyStagedRight {
    /// None once it was closed.
    side: Turns<Option<Right>>,
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
        Ok(Self { side: Turns::new(Some(side)), memory_limit, validate })
    }

    /// Responses for subscriptions.
    fn receive(&self, py: Python<'_>, subscriptions: &Bound<'_, PyAny>) -> PyResult<PyBatch> {
        let subscriptions = whole(subscriptions, self.validate)?;
        let call =
            |context: &Context| turn(&self.side, |right| right.receive(&subscriptions, context));
        enter(py, &Context::new(self.memory_limit), None, call).map(PyBatch)
    }

    /// Responses for changes.
    #[pyo3(signature = (changes=None))]
    fn apply(&self, py: Python<'_>, changes: Option<&Bound<'_, PyAny>>) -> PyResult<PyBatch> {
        let changes = changes.map(|changes| whole(changes, self.validate)).transpose()?;
        let call =
            |context: &Context| turn(&self.side, |right| right.apply(changes.as_ref(), context));
        enter(py, &Context::new(self.memory_limit), None, call).map(PyBatch)
    }

    /// Writes the state to a folder.
    fn snapshot(&self, py: Python<'_>, location: &str) -> PyResult<()> {
        let call = |context: &Context| turn(&self.side, |side| side.snapshot(location, context));
        enter(py, &Context::new(self.memory_limit), None, call)
    }

    /// Whether `apply` has something to say though nothing changed.
    #[getter]
    fn pending(&self, py: Python<'_>) -> PyResult<bool> {
        ask(py, &self.side, |right| Ok(right.state().is_owing))
    }

    /// What was done and what the state holds, as JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        ask(py, &self.side, Right::stats)
    }

    /// Lets the state go.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        close(py, &self.side)
    }
}

/// The number of the side that has each key: of the columns `names` of a batch, or encoded already.
pub(crate) fn side_numbers(
    rows: &Bound<'_, PyAny>,
    names: Option<Vec<String>>,
    sides: NonZeroU32,
    validate: Validate,
) -> PyResult<PyArray> {
    let py = rows.py();
    let raise = |e: Error| crate::errors::exception(py, &e);
    let keys = match names {
        Some(names) => {
            let rows = capsule::batch(rows, &mut Validator::new(validate))?;
            py.detach(|| key_bytes(&names, &rows)).map_err(raise)?
        }
        None => {
            let (_, keys) = capsule::array(rows, validate)?;
            let what = "keys are not binary";
            let keys = keys.as_binary_opt::<i32>().cloned().ok_or_else(|| {
                let got = format!("`{}`", type_text(keys.data_type()));
                Error::new(Kind::InvalidArgument, what)
                    .with_got(got)
                    .with_hint("pass `_fk` or `_pk` of messages, or the columns as key=")
            });
            keys.map_err(raise)?
        }
    };
    Ok(PyArray::unnamed(Arc::new(plait_core::join::side_numbers(&keys, sides))))
}
