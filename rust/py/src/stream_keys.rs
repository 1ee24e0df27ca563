//! Sort orders and keys of rows, for whoever groups rows by them: joins and writers in Spark.
//!
//! # Not here
//! The bytes of a key (`plait_core::key`).

use std::sync::Arc;

use plait_core::Result;
use plait_core::key::{Nulls, SortColumn, SortOrder};
use plait_core::stream::{check_order, decode_keys, encode_keys, key_prefix, row_keys};
use plait_core::validate::{Validate, Validator};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::capsule;
use crate::interleave::PyArray;
use crate::interleave_values::selector;
use crate::stream::PyBatch;

/// A column of an order: names from the root, whether it descends, whether nulls come first.
type ColumnParts = (Vec<String>, bool, bool);

/// The columns of an order, those of a curve among them; with a schema only if it has all of them.
pub(crate) fn sort_columns(
    py: Python<'_>,
    sort_by: &str,
    schema: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<ColumnParts>> {
    let schema = schema.map(capsule::schema).transpose()?;
    let parse = || {
        let order = SortOrder::try_parse(sort_by)?;
        if let Some(schema) = &schema {
            check_order(&order, schema)?;
        }
        Ok(order.columns().iter().map(parts).collect())
    };
    parse().map_err(|e| crate::errors::exception(py, &e))
}

/// The columns of an order that a footer can tell as `sorting_columns`: all but those of a curve.
pub(crate) fn plain_columns(py: Python<'_>, sort_by: &str) -> PyResult<Vec<ColumnParts>> {
    let order = SortOrder::try_parse(sort_by).map_err(|e| crate::errors::exception(py, &e))?;
    Ok(order.plain().iter().map(parts).collect())
}

fn parts(column: &SortColumn) -> ColumnParts {
    (column.path.clone(), column.descending, column.nulls == Nulls::First)
}

/// The stored key of each row of a batch; `None` where one of the sort columns is null.
pub(crate) fn keys<'py>(
    py: Python<'py>,
    batch: &Bound<'py, PyAny>,
    sort_by: &str,
) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
    let batch = capsule::batch(batch, &mut Validator::new(Validate::default()))?;
    let made = SortOrder::try_parse(sort_by).and_then(|order| row_keys(&order, &batch));
    let made = made.map_err(|e| crate::errors::exception(py, &e))?;
    Ok(made.into_iter().map(|key| key.map(|key| PyBytes::new(py, &key))).collect())
}

/// The stored keys of all rows of a batch, nulls included.
pub(crate) fn encode(
    py: Python<'_>,
    batch: &Bound<'_, PyAny>,
    sort_by: &str,
    validate: Validate,
) -> PyResult<PyArray> {
    let batch = capsule::batch(batch, &mut Validator::new(validate))?;
    let made = py.detach(|| encode_keys(&SortOrder::try_parse(sort_by)?, &batch));
    Ok(PyArray::unnamed(Arc::new(made.map_err(|e| crate::errors::exception(py, &e))?)))
}

/// The sort columns of stored keys.
pub(crate) fn decode(
    py: Python<'_>,
    keys: &Bound<'_, PyAny>,
    sort_by: &str,
    schema: &Bound<'_, PyAny>,
) -> PyResult<PyBatch> {
    let keys = selector(keys, Validate::default())?;
    let schema = capsule::schema(schema)?;
    let made = py.detach(|| decode_keys(&SortOrder::try_parse(sort_by)?, &schema, &keys));
    made.map(PyBatch).map_err(|e| crate::errors::exception(py, &e))
}

/// How many bytes of a key are those of its first `parts` columns.
pub(crate) fn prefix_len(
    py: Python<'_>,
    key: &[u8],
    parts: usize,
    sort_by: &str,
    schema: &Bound<'_, PyAny>,
) -> PyResult<usize> {
    let schema = capsule::schema(schema)?;
    let made =
        || -> Result<usize> { key_prefix(&SortOrder::try_parse(sort_by)?, &schema, key, parts) };
    made().map_err(|e| crate::errors::exception(py, &e))
}
