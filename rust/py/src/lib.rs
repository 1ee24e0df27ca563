//! The Python door: extract, enter, call, convert, return.
//!
//! ```text
//! plait.merge(...)            python/plait: names, sizes, defaults, dataclasses
//!   └─ one JSON text ──▶ _native.merge ── enter ──▶ plait_parquet::JsonCall
//!   ◀─ one JSON text ──                  ◀─ Error ── plait.errors.<Kind>
//! ```
//!
//! # Invariants
//! No logic and no loop over rows here. Calls that read or write files go through [`enter`], which
//! alone starts a thread, and joins it before it returns: nothing survives a call, so forks are
//! harmless.
//!
//! # Cost
//! One thread and two small JSON texts a call.
//!
//! # Not here
//! Defaults and documentation of the options (`python/plait/_api.py`).

mod border;
mod bucket;
mod calls;
#[expect(unsafe_code, reason = "the C data interface is made of raw pointers")]
mod capsule;
mod caught;
mod delta;
mod encode;
mod enter;
mod errors;
mod folder;
mod interleave;
mod interleave_ipc;
mod interleave_values;
mod join;
mod known;
mod lease;
mod merge_streams;
mod overlay;
mod panics;
mod read;
mod run_writer;
mod scan;
mod staged;
mod stream;
mod stream_keys;
mod text_file;
mod turn;

/// The engine, for the package `plait` only.
#[pyo3::pymodule(gil_used = false)]
mod _native {
    use pyo3::prelude::*;

    use plait_core::validate::Validate;

    /// What planning will read of files; options are JSON.
    #[pyfunction]
    fn learn<'py>(
        py: Python<'py>,
        options: &str,
    ) -> PyResult<Vec<Option<Bound<'py, pyo3::types::PyBytes>>>> {
        crate::known::learn(py, options)
    }

    /// The frozen schema of all files that were summed up, as JSON and as a schema.
    #[pyfunction]
    fn freeze_scan(
        py: Python<'_>,
        options: &str,
        schema: Option<&Bound<'_, PyAny>>,
        summaries: Vec<String>,
    ) -> PyResult<(String, PySchema)> {
        crate::scan::freeze(py, options, schema, summaries)
    }

    /// Overlays layers of Arrow data; options are JSON.
    #[pyfunction]
    #[pyo3(signature = (sources, schemas, options, validate=None))]
    fn overlay(
        py: Python<'_>,
        sources: Vec<Bound<'_, PyAny>>,
        schemas: Vec<Option<Bound<'_, PyAny>>>,
        options: &str,
        validate: Option<&str>,
    ) -> PyResult<PyStream> {
        let validate = crate::capsule::validate(py, validate)?;
        crate::overlay::overlay(py, sources, schemas, options, validate)
    }

    /// Merges sorted sources of record batches; options are JSON.
    #[pyfunction]
    #[pyo3(signature = (sources, schema, options, bucket=None, validate=None))]
    fn merge_streams(
        py: Python<'_>,
        sources: Vec<Bound<'_, PyAny>>,
        schema: Option<&Bound<'_, PyAny>>,
        options: &str,
        bucket: Option<Py<PyAny>>,
        validate: Option<&str>,
    ) -> PyResult<PyStream> {
        let validate = crate::capsule::validate(py, validate)?;
        crate::merge_streams::merge_streams(py, sources, schema, options, bucket, validate)
    }

    /// Writes a stream of record batches as one Parquet file; gives the rows.
    #[pyfunction]
    fn write_parquet(py: Python<'_>, source: &Bound<'_, PyAny>, path: &str) -> PyResult<u64> {
        let reader = crate::capsule::reader(source, Validate::default())?;
        let context = plait_parquet::Context::new(0);
        let write =
            |context: &plait_parquet::Context| plait_parquet::write_batches(reader, path, context);
        crate::enter::enter(py, &context, None, write)
    }

    /// A schema as the log of a Delta table has it.
    #[pyfunction]
    fn delta_schema(py: Python<'_>, schema: &Bound<'_, PyAny>) -> PyResult<String> {
        let schema = crate::capsule::schema(schema)?;
        let schema = plait_delta::delta_schema(&schema, plait_delta::Lacking::Refuse);
        schema.map_err(|e| crate::errors::exception(py, &e))
    }

    /// The same, where types that Delta lacks become others.
    #[pyfunction]
    fn delta_cast_schema(py: Python<'_>, schema: &Bound<'_, PyAny>) -> PyResult<String> {
        let schema = crate::capsule::schema(schema)?;
        let schema = plait_delta::delta_schema(&schema, plait_delta::Lacking::Cast);
        schema.map_err(|e| crate::errors::exception(py, &e))
    }

    /// The columns that files of a Delta table have, of the schema that its log has.
    #[pyfunction]
    fn delta_columns(
        py: Python<'_>,
        schema: &str,
        partition_columns: Vec<String>,
        without_zone: std::collections::BTreeSet<i64>,
    ) -> PyResult<PySchema> {
        let columns = plait_delta::arrow_columns(schema, &partition_columns, &without_zone);
        let columns = columns.map_err(|e| crate::errors::exception(py, &e))?;
        Ok(PySchema(std::sync::Arc::new(columns)))
    }

    /// The columns of a schema with their types as text; a type that no text says is the null type.
    #[pyfunction]
    fn table_columns(schema: &Bound<'_, PyAny>) -> PyResult<Vec<(String, String)>> {
        let schema = crate::capsule::schema(schema)?;
        let said = |field: &arrow_schema::FieldRef| {
            let text = field.data_type().to_string();
            let is_said =
                text.parse().is_ok_and(|ty: arrow_schema::DataType| ty == *field.data_type());
            (field.name().clone(), if is_said { text } else { "Null".into() })
        };
        Ok(schema.fields().iter().map(said).collect())
    }

    /// An order of a Delta table whose columns are mapped, by the names that its files have.
    #[pyfunction]
    fn delta_stored_order(py: Python<'_>, schema: &str, sort_by: &str) -> PyResult<String> {
        let order = plait_delta::order_by(schema, sort_by, plait_delta::Names::Stored);
        order.map_err(|e| crate::errors::exception(py, &e))
    }

    /// An order of files of such a table, by the names of the table.
    #[pyfunction]
    fn delta_shown_order(py: Python<'_>, schema: &str, sort_by: &str) -> PyResult<String> {
        let order = plait_delta::order_by(schema, sort_by, plait_delta::Names::Shown);
        order.map_err(|e| crate::errors::exception(py, &e))
    }

    /// The rows of a stream for which a condition is not true.
    #[pyfunction]
    fn rest(py: Python<'_>, source: &Bound<'_, PyAny>, condition: &str) -> PyResult<PyStream> {
        let reader = crate::capsule::reader(source, Validate::default())?;
        let rest = plait_delta::rest(reader, condition);
        rest.map(PyStream::new).map_err(|e| crate::errors::exception(py, &e))
    }

    /// The columns that a condition names: names from the root to the leaf.
    #[pyfunction]
    fn condition_columns(py: Python<'_>, condition: &str) -> PyResult<Vec<Vec<String>>> {
        let parsed = plait_core::predicate::Predicate::try_parse(condition);
        let parsed = parsed.map_err(|e| crate::errors::exception(py, &e))?;
        Ok(parsed.columns().map(<[String]>::to_vec).collect())
    }

    /// For every field of the schema `to` the place of the same field in the schema `from`.
    #[pyfunction]
    fn matched_fields(
        from: &Bound<'_, PyAny>,
        to: &Bound<'_, PyAny>,
    ) -> PyResult<Vec<Option<usize>>> {
        let (from, to) = (crate::capsule::schema(from)?, crate::capsule::schema(to)?);
        Ok(plait_core::schema::matched(from.fields(), to.fields()))
    }

    /// The columns of an order: names from the root, whether it descends, whether nulls come first.
    #[pyfunction]
    #[pyo3(signature = (sort_by, schema=None))]
    fn sort_columns(
        py: Python<'_>,
        sort_by: &str,
        schema: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<(Vec<String>, bool, bool)>> {
        crate::stream_keys::sort_columns(py, sort_by, schema)
    }

    /// The columns of an order that `sorting_columns` can tell: all but those of a curve.
    #[pyfunction]
    fn plain_columns(py: Python<'_>, sort_by: &str) -> PyResult<Vec<(Vec<String>, bool, bool)>> {
        crate::stream_keys::plain_columns(py, sort_by)
    }

    /// The stored key of each row of a batch; `None` where one of the sort columns is null.
    #[pyfunction]
    fn row_keys<'py>(
        py: Python<'py>,
        batch: &Bound<'py, PyAny>,
        sort_by: &str,
    ) -> PyResult<Vec<Option<Bound<'py, pyo3::types::PyBytes>>>> {
        crate::stream_keys::keys(py, batch, sort_by)
    }

    /// The stored keys of all rows of a batch, as an array of binary.
    #[pyfunction]
    fn encode_keys(
        py: Python<'_>,
        batch: &Bound<'_, PyAny>,
        sort_by: &str,
        validate: Option<&str>,
    ) -> PyResult<PyArray> {
        let validate = crate::capsule::validate(py, validate)?;
        crate::stream_keys::encode(py, batch, sort_by, validate)
    }

    /// The number of the side of a staged join that has each key.
    #[pyfunction]
    #[pyo3(signature = (rows, names, sides, validate))]
    fn side_numbers(
        rows: &Bound<'_, PyAny>,
        names: Option<Vec<String>>,
        sides: std::num::NonZeroU32,
        validate: Option<&str>,
    ) -> PyResult<PyArray> {
        let validate = crate::capsule::validate(rows.py(), validate)?;
        crate::staged::side_numbers(rows, names, sides, validate)
    }

    /// The sort columns of stored keys, as a batch.
    #[pyfunction]
    fn decode_keys(
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        sort_by: &str,
        schema: &Bound<'_, PyAny>,
    ) -> PyResult<PyBatch> {
        crate::stream_keys::decode(py, keys, sort_by, schema)
    }

    /// The least byte string that is greater than all that begin with `prefix`.
    #[pyfunction]
    fn successor<'py>(py: Python<'py>, prefix: &[u8]) -> Option<Bound<'py, pyo3::types::PyBytes>> {
        let next = plait_core::key::successor(prefix);
        next.map(|next| pyo3::types::PyBytes::new(py, &next))
    }

    /// How many bytes of a key are those of its first `parts` columns.
    #[pyfunction]
    fn prefix_len(
        py: Python<'_>,
        key: &[u8],
        parts: usize,
        sort_by: &str,
        schema: &Bound<'_, PyAny>,
    ) -> PyResult<usize> {
        crate::stream_keys::prefix_len(py, key, parts, sort_by, schema)
    }

    /// Version of the engine.
    #[pyfunction]
    fn version() -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    /// Rows of many arrays as one, not computed until asked for.
    #[pyfunction]
    #[pyo3(signature = (values, array_indices, row_indices, validate=None))]
    fn interleave(
        values: &Bound<'_, PyAny>,
        array_indices: &Bound<'_, PyAny>,
        row_indices: &Bound<'_, PyAny>,
        validate: Option<&str>,
    ) -> PyResult<PyInterleave> {
        let validate = crate::capsule::validate(values.py(), validate)?;
        crate::interleave::interleave(values, array_indices, row_indices, validate)
    }

    #[pymodule_export]
    use crate::interleave::{PyArray, PyInterleave};

    #[pymodule_export]
    use crate::delta::PyDeltaLog;
    #[pymodule_export]
    use crate::folder::{PyFileWriter, PyFolder};
    #[pymodule_export]
    use crate::join::PyJoin;
    #[pymodule_export]
    use crate::known::PyKnown;
    #[pymodule_export]
    use crate::lease::PyLease;
    #[pymodule_export]
    use crate::read::PySortedRead;
    #[pymodule_export]
    use crate::run_writer::PyRunWriter;
    #[pymodule_export]
    use crate::scan::PyScan;
    #[pymodule_export]
    use crate::staged::{PyStagedLeft, PyStagedRight};
    #[pymodule_export]
    use crate::stream::{PyBatch, PySchema, PyStream};
    #[pymodule_export]
    use crate::text_file::PyTextFile;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::panics::install();
        crate::calls::register(module)
    }
}
