//! Arrow data through the doors of Python: the capsules of the Arrow PyCapsule interface, both ways.
//!
//! ```text
//! __arrow_c_stream__ ─┐                               ┌─ capsule "arrow_array_stream"
//! __arrow_c_array__  ─┼─▶ reader of record batches ──▶┼─ capsules "arrow_schema", "arrow_array"
//! iterable of those  ─┘                               └─ capsule "arrow_schema"
//! ```
//!
//! # Invariants
//! A capsule is looked at under its name only, and what it holds is moved out, so that it is released
//! once. No buffer is copied, unless it is aligned less than its type needs. The unsafe code of the
//! door is here.
//!
//! Source: the [Arrow PyCapsule interface](https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html).
//!
//! # Not here
//! What is done with batches; classes for Python (`stream`).

use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchReader, StructArray, make_array};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};
use plait_core::{Error, Kind};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyIterator, PyTuple};

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";
const STREAM: &CStr = c"arrow_array_stream";

/// Batches of one schema, one after the other.
pub(crate) type Reader = Box<dyn RecordBatchReader + Send>;

/// The batches of an object that exports a stream or a batch, or of an iterable of batches.
///
/// An iterable is asked for its first batch at once, because only that has the schema.
///
/// # Errors
/// `InvalidArgument` when it is none of these; what the object raises.
pub(crate) fn reader(object: &Bound<'_, PyAny>) -> PyResult<Reader> {
    if object.hasattr("__arrow_c_stream__")? {
        return imported_stream(object);
    }
    if object.hasattr("__arrow_c_array__")? {
        let batch = batch(object)?;
        let schema = batch.schema();
        return Ok(Box::new(arrow_array::RecordBatchIterator::new([Ok(batch)], schema)));
    }
    let Ok(mut batches) = object.try_iter() else {
        let found = object.get_type().name()?;
        return Err(argument(object, "not a stream of record batches", &format!("`{found}`")));
    };
    let Some(first) = batches.next() else {
        return Err(argument(object, "an iterable without batches has no schema", "no batch"));
    };
    let first = batch(&first?)?;
    let schema = first.schema();
    Ok(Box::new(Batches { schema, first: Some(first), rest: Some(batches.unbind()) }))
}

/// The record batch that `object` exports.
///
/// # Errors
/// `InvalidArgument` when it exports no array of structs, or one with null rows.
pub(crate) fn batch(object: &Bound<'_, PyAny>) -> PyResult<RecordBatch> {
    let (field, array) = array(object)?;
    let Some(structs) = array.as_any().downcast_ref::<StructArray>() else {
        let found = format!("an array of `{}`", array.data_type());
        return Err(argument(object, "not a record batch", &found));
    };
    if structs.logical_null_count() > 0 {
        return Err(argument(object, "not a record batch", "structs of which some are null"));
    }
    let schema = Schema::new_with_metadata(structs.fields().clone(), field.metadata().clone());
    let (_, columns, _) = structs.clone().into_parts();
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(structs.len()));
    RecordBatch::try_new_with_options(Arc::new(schema), columns, &options)
        .map_err(|e| arrow_error(object.py(), e))
}

/// The array that `object` exports, with its field.
///
/// # Errors
/// `InvalidArgument` when it exports none.
pub(crate) fn array(object: &Bound<'_, PyAny>) -> PyResult<(FieldRef, ArrayRef)> {
    if !object.hasattr("__arrow_c_array__")? {
        let found = format!("`{}`", object.get_type().name()?);
        return Err(argument(object, "not an Arrow array", &found));
    }
    let pair = object.call_method0("__arrow_c_array__")?;
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
    let failed = |e| arrow_error(object.py(), e);
    let field = Field::try_from(&schema).map_err(failed)?;
    // SAFETY: whoever made the two structures promises that they belong together and follow the C
    // data interface; there is no way to check pointers of others.
    let data = unsafe { from_ffi(array, &schema) }.map_err(failed)?;
    Ok((Arc::new(field), make_array(data)))
}

fn imported_stream(object: &Bound<'_, PyAny>) -> PyResult<Reader> {
    let capsule = object.call_method0("__arrow_c_stream__")?.cast_into::<PyCapsule>()?;
    let stream = capsule.pointer_checked(Some(STREAM))?.cast::<FFI_ArrowArrayStream>();
    // SAFETY: `pointer_checked` proved the name under which the interface promises a stream; the
    // capsule is alive here, and a released stream is left behind in it.
    let stream = unsafe { FFI_ArrowArrayStream::from_raw(stream.as_ptr()) };
    if stream.release().is_none() {
        return Err(argument(object, "not a stream", "one that was consumed before"));
    }
    let reader = RecordBatchStreamReader::try_new(stream);
    Ok(Box::new(reader.map_err(|e| arrow_error(object.py(), e))?))
}

/// Batches of a Python iterable.
struct Batches {
    schema: SchemaRef,
    first: Option<RecordBatch>,
    /// None once it has ended or raised.
    rest: Option<Py<PyIterator>>,
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        let rest = self.rest.as_ref()?;
        let next = Python::attach(|py| {
            let mut rest = rest.bind(py).clone();
            rest.next().map(|item| item.and_then(|item| batch(&item)))
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
    // SAFETY: `pointer_checked` proved the name under which the interface promises a schema, and the
    // capsule, which owns it, is alive until the end of this function.
    let schema = unsafe { pointer.as_ref() };
    Schema::try_from(schema).map(Arc::new).map_err(|e| arrow_error(object.py(), e))
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

/// The capsule of a stream, which owns `reader`.
pub(crate) fn stream_capsule(py: Python<'_>, reader: Reader) -> PyResult<Bound<'_, PyCapsule>> {
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(reader), STREAM)
}

/// The capsule of the type of an array.
pub(crate) fn field_capsule<'py>(
    py: Python<'py>,
    field: &Field,
) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(field).map_err(|e| arrow_error(py, e))?;
    PyCapsule::new_with_value(py, schema, SCHEMA)
}

/// Arrays of one type, one after the other.
pub(crate) type Arrays = Box<dyn Iterator<Item = Result<ArrayRef, Error>> + Send>;

/// The capsule of a stream of arrays of any type, which readers of batches cannot be.
pub(crate) fn array_stream_capsule(
    py: Python<'_>,
    field: FieldRef,
    arrays: Arrays,
) -> PyResult<Bound<'_, PyCapsule>> {
    let exported = Box::new(ExportedArrays { field, arrays, failed: CString::default() });
    // SAFETY: the callbacks cast `private_data` back to what it is here; `release_arrays` frees it, once,
    // because it takes itself out of the stream.
    let stream = unsafe {
        FFI_ArrowArrayStream::new_unchecked(
            Some(arrays_schema),
            Some(arrays_next),
            Some(arrays_error),
            Some(release_arrays),
            Box::into_raw(exported).cast(),
        )
    };
    PyCapsule::new_with_value(py, stream, STREAM)
}

/// What the callbacks of an exported stream of arrays find.
struct ExportedArrays {
    field: FieldRef,
    arrays: Arrays,
    failed: CString,
}

impl ExportedArrays {
    /// Keeps the message for `arrays_error`; the code of the interface for any failure.
    fn fail(&mut self, error: &dyn std::fmt::Display) -> c_int {
        // C texts end at the first zero byte.
        let text = error.to_string().replace('\0', " ");
        self.failed = CString::new(text).unwrap_or_default();
        EIO
    }
}

/// The code for failed reads on Linux, macOS and Windows.
const EIO: c_int = 5;

/// What a stream that was exported here holds.
///
/// # Safety
/// `stream` is one of [`array_stream_capsule`], and not released.
unsafe fn exported<'a>(stream: *mut FFI_ArrowArrayStream) -> &'a mut ExportedArrays {
    // SAFETY: the caller's promise; the interface forbids concurrent calls.
    unsafe { &mut *(*stream).private_data().cast::<ExportedArrays>() }
}

unsafe extern "C" fn arrays_schema(
    stream: *mut FFI_ArrowArrayStream,
    out: *mut FFI_ArrowSchema,
) -> c_int {
    // SAFETY: the consumer calls this with the stream it got, before it releases it.
    let exported = unsafe { exported(stream) };
    match FFI_ArrowSchema::try_from(exported.field.as_ref()) {
        Ok(schema) => {
            // SAFETY: the consumer promises that `out` is a place for a schema, with nothing to drop.
            unsafe { out.write(schema) };
            0
        }
        Err(e) => exported.fail(&e),
    }
}

unsafe extern "C" fn arrays_next(
    stream: *mut FFI_ArrowArrayStream,
    out: *mut FFI_ArrowArray,
) -> c_int {
    // SAFETY: as for `arrays_schema`.
    let exported = unsafe { exported(stream) };
    let arrays = &mut exported.arrays;
    // Nothing may unwind into C.
    let next = std::panic::catch_unwind(AssertUnwindSafe(|| arrays.next()));
    let next = match next {
        Ok(Some(Ok(array))) => FFI_ArrowArray::new(&array.to_data()),
        Ok(None) => FFI_ArrowArray::empty(),
        Ok(Some(Err(e))) => return exported.fail(&e),
        Err(payload) => {
            let error = crate::panics::error(payload.as_ref());
            return exported.fail(&error);
        }
    };
    // SAFETY: the consumer promises that `out` is a place for an array, with nothing to drop.
    unsafe { out.write(next) };
    0
}

unsafe extern "C" fn arrays_error(stream: *mut FFI_ArrowArrayStream) -> *const c_char {
    // SAFETY: as for `arrays_schema`.
    unsafe { exported(stream) }.failed.as_ptr()
}

unsafe extern "C" fn release_arrays(stream: *mut FFI_ArrowArrayStream) {
    // SAFETY: the interface calls this once, with the stream; what it owns was boxed when it was made,
    // and the callback is taken out, so that nobody frees it again.
    unsafe {
        drop(Box::from_raw((*stream).private_data().cast::<ExportedArrays>()));
        (*stream).set_private_data(std::ptr::null_mut());
        (*stream).set_release(None);
    }
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

fn argument(object: &Bound<'_, PyAny>, what: &str, found: &str) -> PyErr {
    let error = Error::new(Kind::InvalidArgument, what)
        .with_got(found)
        .with_hint("pass what has `__arrow_c_stream__` or `__arrow_c_array__`, like tables of PyArrow, Polars and DuckDB, or an iterable of record batches");
    crate::errors::exception(object.py(), &error)
}
