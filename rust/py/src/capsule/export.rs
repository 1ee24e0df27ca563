//! Streams that other libraries read: the callbacks of the C stream interface.
//!
//! # Invariants
//! Nothing unwinds into C: a panic is a failure of the stream. A stream that is asked for an array
//! while it makes one says so instead of waiting for itself, or of making two at once.
//!
//! # Not here
//! What is in the arrays.

use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{Array, ArrayRef, StructArray};
use arrow_schema::{ArrowError, DataType, Field, FieldRef};
use plait_core::Error;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::{Reader, STREAM};
use crate::turn::Turns;

/// Why a stream has no next array, as C has it.
pub(crate) struct Failure {
    code: c_int,
    text: String,
}

impl Failure {
    /// Reading failed.
    pub(crate) fn read(error: &Error) -> Self {
        Self { code: EIO, text: error.to_string() }
    }
}

impl From<ArrowError> for Failure {
    fn from(error: ArrowError) -> Self {
        let code = match &error {
            ArrowError::NotYetImplemented(_) => ENOSYS,
            ArrowError::MemoryError(_) => ENOMEM,
            ArrowError::IoError(..) => EIO,
            _ => EINVAL,
        };
        Self { code, text: error.to_string() }
    }
}

/// Codes of failures, the same on Linux, macOS and Windows but for the last.
const EIO: c_int = 5;
const ENOMEM: c_int = 12;
const EINVAL: c_int = 22;
const ENOSYS: c_int = if cfg!(target_os = "linux") {
    38
} else if cfg!(windows) {
    40
} else {
    78
};

/// Arrays of one type, one after the other.
pub(crate) type Arrays = Box<dyn Iterator<Item = Result<ArrayRef, Failure>> + Send>;

/// The capsule of a stream of batches, which owns `reader`.
pub(crate) fn stream_capsule(py: Python<'_>, reader: Reader) -> PyResult<Bound<'_, PyCapsule>> {
    let schema = reader.schema();
    let field = Field::new("", DataType::Struct(schema.fields().clone()), false)
        .with_metadata(schema.metadata().clone());
    let structs = reader.map(|batch| -> Result<ArrayRef, Failure> {
        let array: ArrayRef = Arc::new(StructArray::from(batch?));
        Ok(array)
    });
    array_stream_capsule(py, Arc::new(field), Box::new(structs))
}

/// The capsule of a stream of arrays of any type, which readers of batches cannot be.
pub(crate) fn array_stream_capsule(
    py: Python<'_>,
    field: FieldRef,
    arrays: Arrays,
) -> PyResult<Bound<'_, PyCapsule>> {
    let exported = Exported { field, arrays: Turns::new(arrays), failed: Mutex::default() };
    // SAFETY: the callbacks cast `private_data` back to what it is here; `release` frees it, once,
    // because it takes itself out of the stream.
    let stream = unsafe {
        FFI_ArrowArrayStream::new_unchecked(
            Some(schema),
            Some(next),
            Some(last_error),
            Some(release),
            Box::into_raw(Box::new(exported)).cast(),
        )
    };
    PyCapsule::new_with_value(py, stream, STREAM)
}

/// What the callbacks find. It is shared: a source may ask the stream that asks it.
struct Exported {
    field: FieldRef,
    arrays: Turns<Arrays>,
    failed: Mutex<CString>,
}

impl Exported {
    /// Keeps the message for `last_error`; the code of the failure.
    fn fail(&self, Failure { code, text }: Failure) -> c_int {
        // C texts end at the first zero byte.
        let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = text;
        code
    }

    fn next(&self) -> Result<FFI_ArrowArray, Failure> {
        let next = self.arrays.with(Iterator::next);
        match next.map_err(|e| Failure::from(e.into_arrow()))?.transpose()? {
            Some(array) => Ok(FFI_ArrowArray::new(&array.to_data())),
            None => Ok(FFI_ArrowArray::empty()),
        }
    }
}

/// What a stream that was exported here holds.
///
/// # Safety
/// `stream` is one of [`array_stream_capsule`], and not released.
unsafe fn exported<'a>(stream: *mut FFI_ArrowArrayStream) -> &'a Exported {
    // SAFETY: the caller's promise; what it leads to is never borrowed exclusively.
    unsafe { &*(*stream).private_data().cast::<Exported>() }
}

unsafe extern "C" fn schema(stream: *mut FFI_ArrowArrayStream, out: *mut FFI_ArrowSchema) -> c_int {
    // SAFETY: the consumer calls this with the stream it got, before it releases it.
    let exported = unsafe { exported(stream) };
    match FFI_ArrowSchema::try_from(exported.field.as_ref()) {
        Ok(schema) => {
            // SAFETY: the consumer promises that `out` is a place for a schema, with nothing to
            // drop.
            unsafe { out.write(schema) };
            0
        }
        Err(e) => exported.fail(e.into()),
    }
}

unsafe extern "C" fn next(stream: *mut FFI_ArrowArrayStream, out: *mut FFI_ArrowArray) -> c_int {
    // SAFETY: as for `schema`.
    let exported = unsafe { exported(stream) };
    // Nothing may unwind into C.
    match catch_unwind(AssertUnwindSafe(|| exported.next())) {
        Ok(Ok(array)) => {
            // SAFETY: the consumer promises that `out` is a place for an array, with nothing to
            // drop.
            unsafe { out.write(array) };
            0
        }
        Ok(Err(failure)) => exported.fail(failure),
        Err(payload) => exported.fail(Failure::read(&crate::panics::error(payload.as_ref()))),
    }
}

unsafe extern "C" fn last_error(stream: *mut FFI_ArrowArrayStream) -> *const c_char {
    // SAFETY: as for `schema`.
    let exported = unsafe { exported(stream) };
    exported.failed.lock().unwrap_or_else(PoisonError::into_inner).as_ptr()
}

unsafe extern "C" fn release(stream: *mut FFI_ArrowArrayStream) {
    // SAFETY: the interface calls this once, with the stream; what it owns was boxed when it was
    // made, and the callback is taken out, so that nobody frees it again.
    unsafe {
        drop(Box::from_raw((*stream).private_data().cast::<Exported>()));
        (*stream).set_private_data(std::ptr::null_mut());
        (*stream).set_release(None);
    }
}
