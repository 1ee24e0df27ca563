//! `plait.interleave`: arrays of any library, woven lazily.
//!
//! # Invariants
//! No row is copied before it is asked for. Python objects of the values are kept, so that a single
//! row is what its own library says it is.
//!
//! # Not here
//! Everything but converting (`plait_interleave`).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt8Type;
use arrow_array::{Array, ArrayRef, PrimitiveArray, downcast_primitive_array};
use arrow_buffer::Buffer;
use arrow_schema::{DataType, FieldRef, TimeUnit};
use plait_core::validate::Validate;
use plait_core::{Error, Kind, type_text};
use plait_interleave::{CHUNK_BYTES_MAX, CHUNK_ROWS_MAX, Interleave, Value};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PySlice, PyTuple};

use crate::capsule;

/// Rows that `repr` shows.
const REPR_ROWS: usize = 8;

/// An array of rows of other arrays, not computed until it is asked for.
#[pyclass(frozen, module = "plait", name = "Interleave")]
pub(crate) struct PyInterleave {
    lazy: Interleave,
    /// What Python passed as values, in the order of `lazy.values()`.
    objects: Arc<[Py<PyAny>]>,
}

/// Rows of `values`: row `i` is `values[array_indices[i]][row_indices[i]]`.
pub(crate) fn interleave(
    values: &Bound<'_, PyAny>,
    array_indices: &Bound<'_, PyAny>,
    row_indices: &Bound<'_, PyAny>,
    validate: Validate,
) -> PyResult<PyInterleave> {
    let py = values.py();
    let (mut arrays, mut objects) = (Vec::new(), Vec::new());
    for value in values.try_iter()? {
        let value = value?;
        if let Ok(nested) = value.cast::<PyInterleave>() {
            let nested = nested.get();
            objects.extend(nested.objects.iter().map(|object| object.clone_ref(py)));
            arrays.push(Value::Interleave(nested.lazy.clone()));
        } else {
            let (field, array) = capsule::array(&value, validate)?;
            objects.push(value.unbind());
            arrays.push(Value::Array(field, array));
        }
    }
    let (_, array_indices) = capsule::array(array_indices, validate)?;
    let (_, row_indices) = capsule::array(row_indices, validate)?;
    let lazy = py.detach(|| Interleave::nested(arrays, array_indices, row_indices));
    Ok(PyInterleave { lazy: lazy.map_err(|e| raised(py, &e))?, objects: objects.into() })
}

fn raised(py: Python<'_>, error: &Error) -> PyErr {
    crate::errors::exception(py, error)
}

impl PyInterleave {
    fn with(&self, py: Python<'_>, lazy: plait_core::Result<Interleave>) -> PyResult<Self> {
        let lazy = lazy.map_err(|e| raised(py, &e))?;
        Ok(Self { lazy, objects: Arc::clone(&self.objects) })
    }

    fn materialised(&self, py: Python<'_>) -> PyResult<ArrayRef> {
        py.detach(|| self.lazy.to_arrow()).map_err(|e| raised(py, &e))
    }
}

#[pymethods]
impl PyInterleave {
    fn __len__(&self) -> usize {
        self.lazy.len()
    }

    /// Number of null rows.
    #[getter]
    fn null_count(&self, py: Python<'_>) -> PyResult<usize> {
        py.detach(|| self.lazy.null_count()).map_err(|e| raised(py, &e))
    }

    fn check_bounds(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.lazy.check_bounds()).map_err(|e| raised(py, &e))
    }

    /// A row, as the library of its array gives it; or some rows, lazily.
    fn __getitem__(&self, py: Python<'_>, index: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let len = self.lazy.len();
        if let Ok(slice) = index.cast::<PySlice>() {
            let at = slice.indices(isize::try_from(len).unwrap_or(isize::MAX))?;
            let start = usize::try_from(at.start).unwrap_or(0);
            let rows = if at.step == 1 {
                self.lazy.slice(start, at.slicelength)
            } else {
                let row = |i| at.start + at.step * isize::try_from(i).unwrap_or(0);
                let rows = (0..at.slicelength).map(|i| u64::try_from(row(i)).unwrap_or(0));
                let rows: ArrayRef = Arc::new(rows.collect::<arrow_array::UInt64Array>());
                self.lazy.take(&rows)
            };
            return Ok(Py::new(py, self.with(py, rows)?)?.into_any());
        }
        let index: isize = index.extract()?;
        let at = if index < 0 { len.wrapping_add_signed(index) } else { index.unsigned_abs() };
        if at >= len {
            return Err(PyIndexError::new_err(format!("row {index} of {len} rows")));
        }
        let (array, row) = self.lazy.place(at).map_err(|e| raised(py, &e))?;
        let object = self.objects.get(array).map(|object| object.bind(py));
        let object = object.ok_or_else(|| PyIndexError::new_err("an array is missing"))?;
        object.get_item(row).map(Bound::unbind)
    }

    #[pyo3(signature = (offset, length=None))]
    fn slice(&self, py: Python<'_>, offset: usize, length: Option<usize>) -> PyResult<Self> {
        let rest = self.lazy.len().saturating_sub(offset);
        self.with(py, self.lazy.slice(offset, length.unwrap_or(rest)))
    }

    fn take(&self, py: Python<'_>, indices: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (_, indices) = capsule::array(indices, Validate::default())?;
        self.with(py, py.detach(|| self.lazy.take(&indices)))
    }

    fn filter(&self, py: Python<'_>, mask: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (_, mask) = capsule::array(mask, Validate::default())?;
        let Some(mask) = mask.as_boolean_opt() else {
            let error = Error::new(Kind::InvalidArgument, "`mask` is not booleans")
                .with_got(format!("`{}`", type_text(mask.data_type())));
            return Err(raised(py, &error));
        };
        self.with(py, py.detach(|| self.lazy.filter(mask)))
    }

    fn concat(&self, py: Python<'_>, other: &Self) -> PyResult<Self> {
        self.with(py, self.lazy.concat(&other.lazy))
    }

    /// Runs `(array, start, length)` if the values are consumed front to back.
    fn runs(&self, py: Python<'_>) -> PyResult<Option<Vec<(u32, u64, u32)>>> {
        let runs = py.detach(|| self.lazy.runs()).map_err(|e| raised(py, &e))?;
        let tuple = |run: &plait_core::Run| (run.source.0, run.start, run.len);
        Ok(runs.map(|runs| runs.as_slice().iter().map(tuple).collect()))
    }

    #[pyo3(signature = (*, large=false))]
    fn to_arrow(&self, py: Python<'_>, large: bool) -> PyResult<PyArray> {
        let made = py.detach(|| {
            if large {
                return self.lazy.to_large();
            }
            self.lazy.to_arrow().map(|array| (Arc::clone(self.lazy.field()), array))
        });
        let (field, array) = made.map_err(|e| raised(py, &e))?;
        Ok(PyArray { field, array })
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let _ = requested_schema; // A producer may ignore it.
        capsule::array_capsules(py, self.lazy.field(), &*self.materialised(py)?)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema; // A producer may ignore it.
        let chunks = py
            .detach(|| self.lazy.chunks(CHUNK_ROWS_MAX, CHUNK_BYTES_MAX))
            .map_err(|e| raised(py, &e))?;
        let chunks = chunks.map(|chunk| chunk.map_err(|e| capsule::Failure::read(&e)));
        capsule::array_stream_capsule(py, Arc::clone(self.lazy.field()), Box::new(chunks))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        capsule::field_capsule(py, self.lazy.field())
    }

    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__(
        &self,
        py: Python<'_>,
        dtype: Option<Py<PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        if copy == Some(false) {
            let error = Error::new(Kind::InvalidArgument, "rows that are not computed are copied")
                .with_hint("leave `copy` out");
            return Err(raised(py, &error));
        }
        numpy_array(py, &self.materialised(py)?, dtype)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let rows = self.lazy.len();
        let first = self.lazy.slice(0, rows.min(REPR_ROWS)).and_then(|first| first.to_arrow());
        let first = first.map_err(|e| raised(py, &e))?;
        Ok(shown("Interleave", self.lazy.field(), &first, rows))
    }
}

/// An array that any Arrow library takes.
#[pyclass(frozen, module = "plait", name = "Array")]
pub(crate) struct PyArray {
    field: FieldRef,
    array: ArrayRef,
}

#[pymethods]
impl PyArray {
    fn __len__(&self) -> usize {
        self.array.len()
    }

    /// Number of null rows.
    #[getter]
    fn null_count(&self) -> usize {
        self.array.null_count()
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let _ = requested_schema; // A producer may ignore it.
        capsule::array_capsules(py, &self.field, &*self.array)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        capsule::field_capsule(py, &self.field)
    }

    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__(
        &self,
        py: Python<'_>,
        dtype: Option<Py<PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        let made = numpy_array(py, &self.array, dtype)?;
        if copy == Some(true) { made.call_method0(py, "copy") } else { Ok(made) }
    }

    fn __repr__(&self) -> String {
        let first = self.array.slice(0, self.array.len().min(REPR_ROWS));
        shown("Array", &self.field, &first, self.array.len())
    }
}

/// The first rows as Arrow prints them.
fn shown(name: &str, field: &FieldRef, first: &ArrayRef, rows: usize) -> String {
    let more = if rows > first.len() {
        format!("\n... {} more", rows - first.len())
    } else {
        String::new()
    };
    format!("<plait.{name} of {rows} rows, {}>\n{first:?}{more}", type_text(field.data_type()))
}

/// Memory of numbers that numpy looks at where it is.
#[pyclass(frozen, module = "plait")]
struct Numbers {
    buffer: Buffer,
    len: usize,
    kind: &'static str,
}

#[pymethods]
impl Numbers {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", (self.len,))?;
        interface.set_item("typestr", self.kind)?;
        // Read only: the memory belongs to an Arrow buffer.
        interface.set_item("data", (self.buffer.as_ptr() as usize, true))?;
        Ok(interface)
    }
}

fn numpy_array(py: Python<'_>, array: &ArrayRef, dtype: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
    use DataType as T;
    let refused = |what: &str, hint: &str| {
        let error = Error::new(Kind::InvalidArgument, format!("{what} have no form in numpy"));
        raised(py, &error.with_got(format!("`{}`", type_text(array.data_type()))).with_hint(hint))
    };
    if array.null_count() > 0 {
        return Err(refused("nulls", "filter them out first, or go through an Arrow library"));
    }
    let kind = match array.data_type() {
        T::Boolean => "|b1",
        T::Int8 => "|i1",
        T::Int16 => "<i2",
        T::Int32 => "<i4",
        T::Int64 => "<i8",
        T::UInt8 => "|u1",
        T::UInt16 => "<u2",
        T::UInt32 => "<u4",
        T::UInt64 => "<u8",
        T::Float16 => "<f2",
        T::Float32 => "<f4",
        T::Float64 => "<f8",
        T::Date64 | T::Timestamp(TimeUnit::Millisecond, _) => "<M8[ms]",
        T::Timestamp(TimeUnit::Second, _) => "<M8[s]",
        T::Timestamp(TimeUnit::Microsecond, _) => "<M8[us]",
        T::Timestamp(TimeUnit::Nanosecond, _) => "<M8[ns]",
        T::Duration(TimeUnit::Second) => "<m8[s]",
        T::Duration(TimeUnit::Millisecond) => "<m8[ms]",
        T::Duration(TimeUnit::Microsecond) => "<m8[us]",
        T::Duration(TimeUnit::Nanosecond) => "<m8[ns]",
        _ => return Err(refused("values of this type", "go through an Arrow library")),
    };
    let buffer = if let Some(bits) = array.as_boolean_opt() {
        let bytes = bits.values().iter().map(u8::from);
        PrimitiveArray::<UInt8Type>::from_iter_values(bytes).values().inner().clone()
    } else {
        downcast_primitive_array! {
            array => array.values().inner().clone(),
            _ => return Err(refused("values of this type", "go through an Arrow library"))
        }
    };
    let numbers = Py::new(py, Numbers { buffer, len: array.len(), kind })?;
    let asarray = py.import("numpy")?.getattr("asarray")?;
    Ok(asarray.call1((numbers, dtype))?.unbind())
}
