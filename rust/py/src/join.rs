//! A foreign-key join, for the package `plait` only: changes in, changes out.
//!
//! # Invariants
//! Steps follow each other: the second waits until the first is done, and a source or callable of a
//! step that asks for another is refused (`turn`). What a step changed is read later, from rows
//! that no later step touches.
//!
//! # Not here
//! What joins with what (`plait_core::join`); the state (`plait_parquet::join`).

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, Field, FieldRef, Schema, SchemaRef};
use plait_core::join::Call;
use plait_core::validate::Validate;
use plait_core::{Error, Kind};
use plait_parquet::Context;
use plait_parquet::{Join, JoinOptions, from_json};
use pyo3::prelude::*;

use crate::capsule::{self, Reader};
use crate::enter::enter;
use crate::stream::{PyBatch, PySchema, PyStream};
use crate::turn::{Turns, python};

/// Column of foreign keys that a callable makes.
const COMPUTED: &str = "_foreign_key";

/// A join and its state.
#[pyclass(frozen, module = "plait._native", name = "ForeignKeyJoin")]
pub(crate) struct PyJoin {
    /// None once it was closed.
    join: Turns<Option<Join>>,
    memory_limit: usize,
    foreign_key: Option<Arc<Py<PyAny>>>,
    validate: Validate,
}

#[pymethods]
impl PyJoin {
    /// A join; options are JSON, `foreign_key` a callable that computes it, `joiner` one that makes
    /// the rows of the result.
    #[new]
    #[pyo3(signature = (options, foreign_key=None, left_schema=None, right_schema=None, joiner=None, validate=None))]
    fn open(
        py: Python<'_>,
        options: &str,
        foreign_key: Option<Py<PyAny>>,
        left_schema: Option<&Bound<'_, PyAny>>,
        right_schema: Option<&Bound<'_, PyAny>>,
        joiner: Option<Py<PyAny>>,
        validate: Option<&str>,
    ) -> PyResult<Self> {
        let validate = capsule::validate(py, validate)?;
        let raise = |e: Error| crate::errors::exception(py, &e);
        let options: JoinOptions = from_json(options).map_err(raise)?;
        let memory_limit = usize::try_from(options.memory_limit).unwrap_or(usize::MAX);
        let mut left = left_schema.map(capsule::schema).transpose()?;
        let right = right_schema.map(capsule::schema).transpose()?;
        let foreign_key = foreign_key.map(Arc::new);
        if let (Some(schema), Some(call)) = (&left, &foreign_key) {
            left = Some(computed_schema(py, schema, call.as_ref(), validate)?);
        }
        let joiner = joiner.map(|joiner| joiner_call(joiner, validate));
        let make = |context: &Context| Join::try_new(options, [left, right], joiner, context);
        let join = enter(py, &Context::new(memory_limit), None, make)?;
        Ok(Self { join: Turns::new(Some(join)), memory_limit, foreign_key, validate })
    }

    /// The join whose state is in the folder of the options.
    #[staticmethod]
    #[pyo3(signature = (options, foreign_key=None, joiner=None, validate=None))]
    fn restore(
        py: Python<'_>,
        options: &str,
        foreign_key: Option<Py<PyAny>>,
        joiner: Option<Py<PyAny>>,
        validate: Option<&str>,
    ) -> PyResult<Self> {
        let validate = capsule::validate(py, validate)?;
        let raise = |e: Error| crate::errors::exception(py, &e);
        let given: JoinOptions = from_json(options).map_err(raise)?;
        let memory_limit = usize::try_from(given.memory_limit).unwrap_or(usize::MAX);
        let options = JoinOptions { is_computed: foreign_key.is_some(), ..given };
        let joiner = joiner.map(|joiner| joiner_call(joiner, validate));
        let make = |context: &Context| Join::restore(&options, joiner, context);
        let join = enter(py, &Context::new(memory_limit), None, make)?;
        let foreign_key = foreign_key.map(Arc::new);
        Ok(Self { join: Turns::new(Some(join)), memory_limit, foreign_key, validate })
    }

    /// Applies changes as one step.
    #[pyo3(signature = (left, right, step=None))]
    fn apply(
        &self,
        py: Python<'_>,
        left: Option<&Bound<'_, PyAny>>,
        right: Option<&Bound<'_, PyAny>>,
        step: Option<u64>,
    ) -> PyResult<PyStream> {
        let reader = |changes| capsule::reader(changes, self.validate);
        let mut left = left.map(reader).transpose()?;
        let right = right.map(reader).transpose()?;
        if let Some(call) = &self.foreign_key {
            let made = |left| Computed::try_new(py, left, call, self.validate);
            left = left.map(made).transpose()?;
        }
        let call = |context: &Context| self.turn(|join| join.apply(left, right, step, context));
        Ok(PyStream::new(enter(py, &self.context(), None, call)?))
    }

    /// The joined table.
    fn table(&self, py: Python<'_>) -> PyResult<PyStream> {
        let table = py.detach(|| self.turn(|join| join.table()));
        Ok(PyStream::new(table.map_err(|e| crate::errors::exception(py, &e))?))
    }

    /// Merges the runs of the state.
    fn compact(&self, py: Python<'_>) -> PyResult<()> {
        enter(py, &self.context(), None, |context| self.turn(|join| join.compact(context)))
    }

    /// Writes the state to a folder.
    fn snapshot(&self, py: Python<'_>, location: &str) -> PyResult<()> {
        let call = |context: &Context| self.turn(|join| join.snapshot(location, context));
        enter(py, &self.context(), None, call)
    }

    /// The last step, if there is one.
    #[getter]
    fn step(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.ask(py, |join| join.step())
    }

    /// The schema of changes, once it is known.
    #[getter]
    fn schema(&self, py: Python<'_>) -> PyResult<Option<PySchema>> {
        Ok(self.ask(py, |join| join.schema())?.map(PySchema))
    }

    /// What the join is asked to do, as JSON.
    fn options(&self, py: Python<'_>) -> PyResult<String> {
        let options = self.ask(py, |join| join.options().clone())?;
        crate::border::json(py, &options)
    }

    /// What the state holds, as JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        self.ask(py, |join| join.stats())?.map_err(|e| crate::errors::exception(py, &e))
    }

    /// Lets the state go.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let join = py.detach(|| self.join.with(Option::take));
        join.map(drop).map_err(|e| crate::errors::exception(py, &e))
    }
}

/// The join, unless it was closed.
fn open(join: &mut Option<Join>) -> Result<&mut Join, Error> {
    join.as_mut().ok_or_else(|| Error::new(Kind::InvalidArgument, "the join was closed before"))
}

impl PyJoin {
    fn ask<T: Send>(&self, py: Python<'_>, of: impl FnOnce(&Join) -> T + Send) -> PyResult<T> {
        let answer = py.detach(|| self.turn(|join| Ok(of(join))));
        answer.map_err(|e| crate::errors::exception(py, &e))
    }

    /// Uses the join, once nobody else does.
    fn turn<T>(&self, call: impl FnOnce(&mut Join) -> Result<T, Error>) -> Result<T, Error> {
        self.join.with(|join| call(open(join)?))?
    }

    fn context(&self) -> Context {
        Context::new(self.memory_limit)
    }
}

/// Rows of the result that a callable makes.
pub(crate) fn joiner_call(joiner: Py<PyAny>, validate: Validate) -> Call {
    Call::new(move |rows: &RecordBatch| {
        Python::attach(|py| {
            let made = python(|| joiner.call1(py, (PyBatch(rows.clone()),))).map_err(external)?;
            let made = capsule::reader(made.bind(py), validate).map_err(external)?;
            plait_parquet::whole(made).map_err(Error::into_arrow)
        })
    })
}

fn external(error: PyErr) -> ArrowError {
    ArrowError::ExternalError(Box::new(error))
}

/// Left changes with a column of computed foreign keys.
struct Computed {
    inner: Reader,
    schema: SchemaRef,
    call: Arc<Py<PyAny>>,
    validate: Validate,
}

impl Computed {
    fn try_new(
        py: Python<'_>,
        inner: Reader,
        call: &Arc<Py<PyAny>>,
        validate: Validate,
    ) -> PyResult<Reader> {
        let schema = computed_schema(py, &inner.schema(), call.as_ref(), validate)?;
        Ok(Box::new(Self { inner, schema, call: Arc::clone(call), validate }))
    }
}

/// The schema with the column, whose type a call without rows tells.
fn computed_schema(
    py: Python<'_>,
    schema: &SchemaRef,
    call: &Py<PyAny>,
    validate: Validate,
) -> PyResult<SchemaRef> {
    let empty = RecordBatch::new_empty(Arc::clone(schema));
    let (field, _) = computed(py, &empty, call, validate)?;
    Ok(with_field(schema, field))
}

fn with_field(schema: &Schema, field: FieldRef) -> SchemaRef {
    let fields: Vec<FieldRef> = schema.fields().iter().cloned().chain([field]).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn computed(
    py: Python<'_>,
    batch: &RecordBatch,
    call: &Py<PyAny>,
    validate: Validate,
) -> PyResult<(FieldRef, ArrayRef)> {
    let made = python(|| call.call1(py, (PyBatch(batch.clone()),)))?;
    let (field, array) = capsule::array(made.bind(py), validate)?;
    let field = Field::new(COMPUTED, field.data_type().clone(), true);
    Ok((Arc::new(field), array))
}

impl Iterator for Computed {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = match self.inner.next()? {
            Ok(batch) => batch,
            Err(e) => return Some(Err(e)),
        };
        let made = Python::attach(|py| computed(py, &batch, self.call.as_ref(), self.validate));
        Some(made.map_err(external).and_then(|(field, array)| {
            let schema = with_field(&batch.schema(), field);
            let columns = batch.columns().iter().cloned().chain([array]).collect();
            RecordBatch::try_new(schema, columns)
        }))
    }
}

impl RecordBatchReader for Computed {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
