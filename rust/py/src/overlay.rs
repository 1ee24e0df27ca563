//! Layers of any Arrow library, overlaid into a stream.
//!
//! # Invariants
//! Nothing is read here but the batches of lists, whose schemas are all known at once.
//!
//! # Not here
//! Which layer supplies what (`plait_core::overlay`).

use arrow_array::{RecordBatch, RecordBatchIterator};
use plait_core::overlay::common_schema;
use plait_core::validate::{Validate, Validator};
use plait_core::{Error, Kind};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::capsule::{self, Reader};
use crate::stream::PyStream;

/// The stream of the overlay of `sources`, one for each layer of the options.
pub(crate) fn overlay(
    py: Python<'_>,
    sources: Vec<Bound<'_, PyAny>>,
    schemas: Vec<Option<Bound<'_, PyAny>>>,
    options: &str,
    validate: Validate,
) -> PyResult<PyStream> {
    let raise = |error: Error| crate::errors::exception(py, &error);
    let pairs = sources.iter().zip(schemas);
    let readers = pairs.map(|(source, schema)| reader(source, schema.as_ref(), validate));
    let readers = readers.collect::<PyResult<Vec<Reader>>>()?;
    let overlay = plait_parquet::overlay(options, readers).map_err(raise)?;
    Ok(PyStream::new(Box::new(overlay)))
}

/// The batches of a layer. Those of a list are all known: a column that is of the null type in the
/// first has the type of a later one. Without batches there are the columns of `schema`.
fn reader(
    source: &Bound<'_, PyAny>,
    schema: Option<&Bound<'_, PyAny>>,
    validate: Validate,
) -> PyResult<Reader> {
    let empty = || match schema {
        Some(schema) => Ok(capsule::no_rows(capsule::schema(schema)?)),
        None => {
            let what = "a layer without batches has no schema";
            let hint = "pass the columns that batches would have as schema=";
            let error = Error::new(Kind::InvalidArgument, what).with_hint(hint);
            Err(crate::errors::exception(source.py(), &error))
        }
    };
    if !(source.is_instance_of::<PyList>() || source.is_instance_of::<PyTuple>()) {
        return capsule::reader_if_any(source, validate)?.map_or_else(empty, Ok);
    }
    let mut validator = Validator::new(validate);
    let batch = |batch: PyResult<Bound<'_, PyAny>>| capsule::batch(&batch?, &mut validator);
    let batches: Vec<RecordBatch> = source.try_iter()?.map(batch).collect::<PyResult<_>>()?;
    let schemas: Vec<_> = batches.iter().map(RecordBatch::schema).collect();
    let Some(schema) = common_schema(&schemas) else { return empty() };
    Ok(Box::new(RecordBatchIterator::new(batches.into_iter().map(Ok), schema)))
}
