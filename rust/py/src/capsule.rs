//! Arrow data through the doors of Python: the capsules of the Arrow PyCapsule interface, both
//! ways.
//!
//! ```text
//! __arrow_c_stream__ ─┐                               ┌─ capsule "arrow_array_stream"
//! __arrow_c_array__  ─┼─▶ reader of record batches ──▶┼─ capsules "arrow_schema", "arrow_array"
//! iterable of those  ─┘                               └─ capsule "arrow_schema"
//! ```
//!
//! # Invariants
//! A capsule is looked at under its name only, and what it holds is moved out, so that it is
//! released once. No buffer is copied, unless it is aligned less than its type needs. No array goes
//! on that was not checked (`raw`, `plait_core::validate`). The unsafe code of the door is here.
//!
//! Source: the [Arrow PyCapsule
//! interface](https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html).
//!
//! # Not here
//! What is done with batches; classes for Python (`stream`).

mod export;
mod raw;

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    Array, ArrayRef, RecordBatch, RecordBatchOptions, RecordBatchReader, StructArray,
};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};
use plait_core::validate::{Validate, Validator};
use plait_core::{Error, Kind, type_text};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyIterator, PyTuple};

pub(crate) use export::{Failure, array_stream_capsule, stream_capsule};

use crate::turn::{foreign, python};

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";
const STREAM: &CStr = c"arrow_array_stream";

/// How much of Arrow data of others is checked, by its name; the default is `basic`.
///
/// # Errors
/// `InvalidArgument` for another name.
pub(crate) fn validate(py: Python<'_>, name: Option<&str>) -> PyResult<Validate> {
    match name {
        None | Some("basic") => Ok(Validate::Basic),
        Some("full") => Ok(Validate::Full),
        Some(other) => {
            let error = Error::new(Kind::InvalidArgument, "`validate` has no such choice")
                .with_got(format!("`{other}`"))
                .with_hint("give one of: 'basic', 'full'");
            Err(crate::errors::exception(py, &error))
        }
    }
}

/// Batches of one schema, one after the other.
pub(crate) type Reader = Box<dyn RecordBatchReader + Send>;

/// The batches of an object that exports a stream or a batch, or of an iterable of batches.
///
/// An iterable is asked for its first batch at once, because only that has the schema.
///
/// # Errors
/// `InvalidArgument` when it is none of these, or an iterable without batches; what the object raises.
pub(crate) fn reader(object: &Bound<'_, PyAny>, validate: Validate) -> PyResult<Reader> {
    let none = || argument(object, "an iterable without batches has no schema", "no batch");
    reader_if_any(object, validate)?.ok_or_else(none)
}

/// The same; `None` for an iterable without batches, which has no schema.
///
/// # Errors
/// As [`reader`], but for that.
pub(crate) fn reader_if_any(
    object: &Bound<'_, PyAny>,
    validate: Validate,
) -> PyResult<Option<Reader>> {
    if object.hasattr("__arrow_c_stream__")? {
        return imported_stream(object, validate).map(Some);
    }
    let mut validator = Validator::new(validate);
    if object.hasattr("__arrow_c_array__")? {
        let batch = batch(object, &mut validator)?;
        let schema = batch.schema();
        return Ok(Some(Box::new(arrow_array::RecordBatchIterator::new([Ok(batch)], schema))));
    }
    let Ok(mut batches) = object.try_iter() else {
        let found = object.get_type().name()?;
        return Err(argument(object, "not a stream of record batches", &format!("`{found}`")));
    };
    let Some(first) = python(|| batches.next()) else { return Ok(None) };
    let first = batch(&first?, &mut validator)?;
    let schema = first.schema();
    let rest = Some(batches.unbind());
    Ok(Some(Box::new(Batches { schema, first: Some(first), rest, validator })))
}

/// A source with these columns and no row.
pub(crate) fn no_rows(schema: SchemaRef) -> Reader {
    Box::new(arrow_array::RecordBatchIterator::new([], schema))
}

/// The record batch that `object` exports.
///
/// # Errors
/// `InvalidArgument` when it exports no array of structs, or one with null rows; `CorruptSource`
/// when it is not valid.
pub(crate) fn batch(object: &Bound<'_, PyAny>, validator: &mut Validator) -> PyResult<RecordBatch> {
    let (field, array) = checked_array(object, validator)?;
    let Some(structs) = array.as_any().downcast_ref::<StructArray>() else {
        let found = format!("an array of `{}`", type_text(array.data_type()));
        return Err(argument(object, "not a record batch", &found));
    };
    let schema = Schema::new_with_metadata(structs.fields().clone(), field.metadata().clone());
    rows(Arc::new(schema), structs).map_err(|e| crate::errors::exception(object.py(), &e))
}

/// The rows of an array of structs.
fn rows(schema: SchemaRef, structs: &StructArray) -> plait_core::Result<RecordBatch> {
    if structs.logical_null_count() > 0 {
        let error = Error::new(Kind::InvalidArgument, "not a record batch");
        return Err(error.with_got("structs of which some are null"));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(structs.len()));
    let columns = structs.columns().to_vec();
    RecordBatch::try_new_with_options(schema, columns, &options).map_err(Error::from_arrow)
}

/// The array that `object` exports, with its field.
///
/// # Errors
/// `InvalidArgument` when it exports none, `CorruptSource` when it is not valid.
pub(crate) fn array(
    object: &Bound<'_, PyAny>,
    validate: Validate,
) -> PyResult<(FieldRef, ArrayRef)> {
    checked_array(object, &mut Validator::new(validate))
}

fn checked_array(
    object: &Bound<'_, PyAny>,
    validator: &mut Validator,
) -> PyResult<(FieldRef, ArrayRef)> {
    if !object.hasattr("__arrow_c_array__")? {
        return Err(no_array(object));
    }
    ask_producer(object)?;
    let pair = python(|| object.call_method0("__arrow_c_array__"))?;
    let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) = pair.extract()?;
    let schema = schema.pointer_checked(Some(SCHEMA))?.cast::<FFI_ArrowSchema>();
    let array = array.pointer_checked(Some(ARRAY))?.cast::<FFI_ArrowArray>();
    // SAFETY: `pointer_checked` proved that the capsules have the names under which the interface
    // promises these two structures; the capsules are alive here, and `from_raw` leaves released
    // structures behind, which their destructors skip.
    let (array, schema) = unsafe {
        (FFI_ArrowArray::from_raw(array.as_ptr()), FFI_ArrowSchema::from_raw(schema.as_ptr()))
    };
    if array.is_released() {
        return Err(argument(object, "not an Arrow array", "one that was consumed before"));
    }
    let field = guarded(|| Field::try_from(&schema)).map_err(|e| arrow_error(object.py(), e))?;
    // SAFETY: whoever made the structure promises that its pointers lead to memory that is there.
    let array = unsafe { raw::import(array, field.data_type().clone(), validator, field.name()) };
    let array = array.map_err(|e| crate::errors::exception(object.py(), &e))?;
    Ok((Arc::new(field), array))
}

/// Has `PyArrow` compare the lengths of its buffers with what they must be: once data goes through
/// the C interface, nobody knows them any more.
fn ask_producer(object: &Bound<'_, PyAny>) -> PyResult<()> {
    let class = object.get_type();
    let module = class.getattr("__module__").and_then(|module| module.extract::<String>());
    if !module.is_ok_and(|module| module.starts_with("pyarrow.")) || !object.hasattr("validate")? {
        return Ok(());
    }
    object.call_method0("validate").map(drop).map_err(|refused| {
        let error = Error::new(Kind::CorruptSource, "an array is not valid Arrow data")
            .with_got(refused.value(object.py()).to_string());
        crate::errors::exception(object.py(), &error)
    })
}

fn imported_stream(object: &Bound<'_, PyAny>, validate: Validate) -> PyResult<Reader> {
    let reader = foreign_arrays(object, validate)?;
    let reader = ForeignStream::try_new(reader);
    Ok(Box::new(reader.map_err(|e| arrow_error(object.py(), e))?))
}

/// The arrays of a stream that `object` exports, with their field.
///
/// # Errors
/// `InvalidArgument` when it exports none, `CorruptSource` when one is not valid.
pub(crate) fn arrays(
    object: &Bound<'_, PyAny>,
    validate: Validate,
) -> PyResult<(FieldRef, Vec<ArrayRef>)> {
    if !object.hasattr("__arrow_c_stream__")? {
        return Err(no_array(object));
    }
    let mut reader = foreign_arrays(object, validate)?;
    let mut arrays = Vec::new();
    while let Some(array) = reader.read().map_err(|e| arrow_error(object.py(), e))? {
        arrays.push(array);
    }
    Ok((reader.field, arrays))
}

fn foreign_arrays(object: &Bound<'_, PyAny>, validate: Validate) -> PyResult<ForeignArrays> {
    ask_producer(object)?;
    let capsule = object.call_method0("__arrow_c_stream__")?.cast_into::<PyCapsule>()?;
    let stream = capsule.pointer_checked(Some(STREAM))?.cast::<FFI_ArrowArrayStream>();
    // SAFETY: `pointer_checked` proved the name under which the interface promises a stream; the
    // capsule is alive here, and a released stream is left behind in it.
    let stream = unsafe { FFI_ArrowArrayStream::from_raw(stream.as_ptr()) };
    if stream.release().is_none() {
        return Err(argument(object, "not a stream", "one that was consumed before"));
    }
    ForeignArrays::try_new(stream, validate).map_err(|e| arrow_error(object.py(), e))
}

/// Arrays of a stream of another library.
struct ForeignArrays {
    stream: FFI_ArrowArrayStream,
    field: FieldRef,
    validator: Validator,
}

impl ForeignArrays {
    fn try_new(mut stream: FFI_ArrowArrayStream, validate: Validate) -> Result<Self, ArrowError> {
        let mut schema = FFI_ArrowSchema::empty();
        let get_schema = stream.get_schema().ok_or_else(|| lacks("get_schema"))?;
        // SAFETY: the stream is not released, and the callback is its own.
        let code = foreign(|| unsafe { get_schema(&raw mut stream, &raw mut schema) });
        if code != 0 {
            return Err(failed(&mut stream, "schema", code));
        }
        let field = Arc::new(guarded(|| Field::try_from(&schema))?);
        Ok(Self { stream, field, validator: Validator::new(validate) })
    }

    fn read(&mut self) -> Result<Option<ArrayRef>, ArrowError> {
        let mut array = FFI_ArrowArray::empty();
        let get_next = self.stream.get_next().ok_or_else(|| lacks("get_next"))?;
        // SAFETY: the stream is not released, and the callback is its own.
        let code = foreign(|| unsafe { get_next(&raw mut self.stream, &raw mut array) });
        if code != 0 {
            return Err(failed(&mut self.stream, "next batch", code));
        }
        if array.is_released() {
            return Ok(None);
        }
        let data_type = self.field.data_type().clone();
        // A batch has no name, an array that of its column.
        let name = if matches!(data_type, DataType::Struct(_)) { "" } else { self.field.name() };
        // SAFETY: the producer promises that pointers of what it gave lead to memory that is there.
        let array = unsafe { raw::import(array, data_type, &mut self.validator, name) };
        array.map(Some).map_err(Error::into_arrow)
    }
}

/// Batches of a stream of another library.
struct ForeignStream {
    arrays: ForeignArrays,
    schema: SchemaRef,
}

impl ForeignStream {
    fn try_new(arrays: ForeignArrays) -> Result<Self, ArrowError> {
        let DataType::Struct(fields) = arrays.field.data_type() else {
            return Err(ArrowError::CDataInterface(
                "Unable to interpret C data struct as a Schema".to_owned(),
            ));
        };
        let schema = Schema::new_with_metadata(fields.clone(), arrays.field.metadata().clone());
        Ok(Self { schema: Arc::new(schema), arrays })
    }

    fn read(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let Some(array) = self.arrays.read()? else { return Ok(None) };
        let structs = array.as_struct_opt().ok_or_else(|| lacks("get_next"))?;
        rows(Arc::clone(&self.schema), structs).map(Some).map_err(Error::into_arrow)
    }
}

fn lacks(callback: &str) -> ArrowError {
    let text = format!("input stream does not provide the required {callback} callback");
    ArrowError::CDataInterface(text)
}

/// The error for a callback that failed, with what the producer says of it.
fn failed(stream: &mut FFI_ArrowArrayStream, what: &str, code: i32) -> ArrowError {
    let message = format!("Cannot get {what} from input stream. Error code: {code}");
    let Some(get_last_error) = stream.get_last_error() else {
        return ArrowError::CDataInterface(message);
    };
    // SAFETY: the stream is not released, and its last callback failed; the text is the producer's
    // until the next call, and ends with a zero.
    let said = unsafe {
        let text = get_last_error(&raw mut *stream);
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    ArrowError::CDataInterface(match said {
        Some(said) => format!("{message}. Producer error: {said}"),
        None => message,
    })
}

impl Iterator for ForeignStream {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

impl RecordBatchReader for ForeignStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// Batches of a Python iterable.
struct Batches {
    schema: SchemaRef,
    first: Option<RecordBatch>,
    /// None once it has ended or raised.
    rest: Option<Py<PyIterator>>,
    validator: Validator,
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        let (rest, validator) = (self.rest.as_ref()?, &mut self.validator);
        let next = Python::attach(|py| {
            let mut rest = rest.bind(py).clone();
            let next = python(|| rest.next());
            next.map(|item| item.and_then(|item| batch(&item, validator)))
        });
        match next {
            Some(Ok(batch)) => Some(Ok(batch)),
            Some(Err(e)) => {
                self.rest = None;
                Some(Err(ArrowError::ExternalError(Box::new(e))))
            }
            None => {
                self.rest = None;
                None
            }
        }
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        // Without the interpreter the iterator would wait for the next call of this library.
        if let Some(rest) = self.rest.take() {
            let _ = Python::try_attach(|_| drop(rest));
        }
    }
}

impl RecordBatchReader for Batches {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// The schema that `object` exports.
///
/// # Errors
/// `InvalidArgument` when it exports none, or one that is no struct of columns.
pub(crate) fn schema(object: &Bound<'_, PyAny>) -> PyResult<SchemaRef> {
    if !object.hasattr("__arrow_c_schema__")? {
        let found = format!("`{}`", object.get_type().name()?);
        return Err(argument(object, "not an Arrow schema", &found));
    }
    let capsule = object.call_method0("__arrow_c_schema__")?.cast_into::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(SCHEMA))?.cast::<FFI_ArrowSchema>();
    // SAFETY: `pointer_checked` proved the name under which the interface promises a schema, and
    // the capsule, which owns it, is alive until the end of this function.
    let schema = unsafe { pointer.as_ref() };
    let schema = guarded(|| Schema::try_from(schema));
    schema.map(Arc::new).map_err(|e| arrow_error(object.py(), e))
}

/// What a foreign schema says; Arrow panics at some that say nothing.
fn guarded<T>(read: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, ArrowError> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
        let error = Error::new(Kind::InvalidArgument, "not an Arrow schema");
        Err(error.with_got("one without names or types").into_arrow())
    })
}

/// The capsule of a schema.
pub(crate) fn schema_capsule<'py>(
    py: Python<'py>,
    schema: &Schema,
) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema).map_err(|e| arrow_error(py, e))?;
    PyCapsule::new_with_value(py, schema, SCHEMA)
}

/// The capsules of an array: its schema, its data.
pub(crate) fn array_capsules<'py>(
    py: Python<'py>,
    field: &Field,
    array: &dyn Array,
) -> PyResult<Bound<'py, PyTuple>> {
    let schema = FFI_ArrowSchema::try_from(field).map_err(|e| arrow_error(py, e))?;
    let array = FFI_ArrowArray::new(&array.to_data());
    let schema = PyCapsule::new_with_value(py, schema, SCHEMA)?;
    let array = PyCapsule::new_with_value(py, array, ARRAY)?;
    PyTuple::new(py, [schema, array])
}

/// The capsules of a batch: an array of structs.
pub(crate) fn batch_capsules<'py>(
    py: Python<'py>,
    batch: &RecordBatch,
) -> PyResult<Bound<'py, PyTuple>> {
    let structs = StructArray::from(batch.clone());
    let schema = batch.schema();
    let field = Field::new("", DataType::Struct(schema.fields().clone()), false)
        .with_metadata(schema.metadata().clone());
    array_capsules(py, &field, &structs)
}

/// The capsule of the type of an array.
pub(crate) fn field_capsule<'py>(
    py: Python<'py>,
    field: &Field,
) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(field).map_err(|e| arrow_error(py, e))?;
    PyCapsule::new_with_value(py, schema, SCHEMA)
}

/// The exception for an error that went through Arrow: the engine's or Python's own if it is one.
pub(crate) fn arrow_error(py: Python<'_>, error: ArrowError) -> PyErr {
    let error = match error {
        ArrowError::ExternalError(inner) => match inner.downcast::<Error>() {
            Ok(error) => return crate::errors::exception(py, &error),
            Err(inner) => match inner.downcast::<PyErr>() {
                Ok(raised) => return *raised,
                Err(inner) => ArrowError::ExternalError(inner),
            },
        },
        error => error,
    };
    crate::errors::exception(py, &Error::from_arrow(error))
}

fn no_array(object: &Bound<'_, PyAny>) -> PyErr {
    let found = object.get_type().name().map_or_else(|_| String::new(), |name| format!("`{name}`"));
    let error = Error::new(Kind::InvalidArgument, "not an Arrow array").with_got(found).with_hint(
        "pass what has `__arrow_c_array__` or `__arrow_c_stream__`, like arrays and chunked arrays of \
         PyArrow and series of Polars and pandas, or an array of NumPy",
    );
    crate::errors::exception(object.py(), &error)
}

fn argument(object: &Bound<'_, PyAny>, what: &str, found: &str) -> PyErr {
    let error = Error::new(Kind::InvalidArgument, what)
        .with_got(found)
        .with_hint("pass what has `__arrow_c_stream__` or `__arrow_c_array__`, like tables of PyArrow, Polars and DuckDB, or an iterable of record batches");
    crate::errors::exception(object.py(), &error)
}
