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
use arrow_schema::{DataType, Field, FieldRef, TimeUnit};
use plait_core::validate::Validate;
use plait_core::{Error, Kind, type_text};
use plait_interleave::{CHUNK_BYTES_MAX, CHUNK_ROWS_MAX, Interleave, Value};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict, PySlice, PyTuple};

use crate::capsule;
use crate::interleave_values::{Origin, selector};

/// Rows that `repr` shows.
const REPR_ROWS: usize = 8;

/// An array of rows of other arrays, not computed until it is asked for.
#[pyclass(frozen, module = "plait", name = "Interleave")]
pub(crate) struct PyInterleave {
    lazy: Interleave,
    /// What Python passed as values, in the order of `lazy.values()`.
    origins: Arc<[Origin]>,
}

/// Rows of `values`: row `i` is `values[array_indices[i]][row_indices[i]]`.
pub(crate) fn interleave(
    values: &Bound<'_, PyAny>,
    array_indices: &Bound<'_, PyAny>,
    row_indices: &Bound<'_, PyAny>,
    validate: Validate,
) -> PyResult<PyInterleave> {
    let py = values.py();
    let Imported { values, origins } = imported(values, validate)?;
    let array_indices = selector(array_indices, validate)?;
    let row_indices = selector(row_indices, validate)?;
    let lazy = py.detach(|| Interleave::nested(values, array_indices, row_indices));
    Ok(PyInterleave { lazy: lazy.map_err(|e| raised(py, &e))?, origins: origins.into() })
}

/// What Python passed as values.
#[derive(Default)]
struct Imported {
    values: Vec<Value>,
    origins: Vec<Origin>,
}

fn imported(values: &Bound<'_, PyAny>, validate: Validate) -> PyResult<Imported> {
    let mut all = Imported::default();
    for value in values.try_iter()? {
        let value = value?;
        if let Ok(nested) = value.cast::<PyInterleave>() {
            let nested = nested.get();
            all.origins.extend(nested.origins.iter().map(|origin| origin.copied(value.py())));
            all.values.push(Value::Interleave(nested.lazy.clone()));
        } else {
            let (value, origins) = crate::interleave_values::value(&value, validate)?;
            all.origins.extend(origins);
            all.values.push(value);
        }
    }
    Ok(all)
}

/// Rows of `values` by runs; a value of several chunks is one value.
fn by_runs(values: Vec<Value>, runs: &[(u32, u64, u64)]) -> plait_core::Result<Interleave> {
    let lens: Vec<usize> = values
        .iter()
        .map(|value| match value {
            Value::Array(_, array) => array.len(),
            Value::Interleave(inner) => inner.len(),
        })
        .collect();
    let (mut arrays, mut rows) = (Vec::new(), Vec::new());
    for (i, (array, start, len)) in runs.iter().enumerate() {
        let of = usize::try_from(*array).ok().and_then(|array| lens.get(array));
        let end = start.checked_add(*len).filter(|end| of.is_some_and(|of| *end <= *of as u64));
        let Some(end) = end else {
            let what = "run leaves its array";
            return Err(Error::new(Kind::InvalidArgument, what)
                .with_got(format!("run {i}, ({array}, {start}, {len})")));
        };
        arrays.extend((*start..end).map(|_| *array));
        rows.extend(*start..end);
    }
    let arrays: ArrayRef = Arc::new(arrow_array::UInt32Array::from(arrays));
    let rows: ArrayRef = Arc::new(arrow_array::UInt64Array::from(rows));
    Interleave::nested(values, arrays, rows)
}

fn raised(py: Python<'_>, error: &Error) -> PyErr {
    crate::errors::exception(py, error)
}

impl PyInterleave {
    fn with(&self, py: Python<'_>, lazy: plait_core::Result<Interleave>) -> PyResult<Self> {
        let lazy = lazy.map_err(|e| raised(py, &e))?;
        Ok(Self { lazy, origins: Arc::clone(&self.origins) })
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

    /// Rows by runs `(array, start, length)`.
    #[staticmethod]
    #[pyo3(signature = (values, runs, *, validate=None))]
    fn from_runs(
        py: Python<'_>,
        values: &Bound<'_, PyAny>,
        runs: Vec<(u32, u64, u64)>,
        validate: Option<&str>,
    ) -> PyResult<Self> {
        let validate = capsule::validate(py, validate)?;
        let Imported { values, origins } = imported(values, validate)?;
        let lazy = py.detach(|| by_runs(values, &runs)).map_err(|e| raised(py, &e))?;
        Ok(Self { lazy, origins: origins.into() })
    }

    /// What was written by `to_ipc`.
    #[staticmethod]
    fn from_ipc(py: Python<'_>, data: &[u8]) -> PyResult<Self> {
        let lazy = py.detach(|| crate::interleave_ipc::read(data)).map_err(|e| raised(py, &e))?;
        let origins = lazy.values().iter().map(|_| Origin::none()).collect();
        Ok(Self { lazy, origins })
    }

    /// Values and selectors as bytes, see `docs/formats/interleave.md`.
    fn to_ipc<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| crate::interleave_ipc::write(&self.lazy));
        Ok(PyBytes::new(py, &bytes.map_err(|e| raised(py, &e))?))
    }

    /// Pickles as what `to_ipc` writes.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let restore = py.get_type::<Self>().getattr("from_ipc")?;
        let arguments = PyTuple::new(py, [self.to_ipc(py)?])?;
        PyTuple::new(py, [restore, arguments.into_any()])
    }

    /// The arrays that rows come from; a value of several chunks is as many arrays.
    #[getter]
    fn values(&self) -> Vec<PyArray> {
        let values = self.lazy.values().iter();
        values
            .map(|array| {
                let field = self.lazy.field().as_ref().clone();
                let field = Arc::new(field.with_data_type(array.data_type().clone()));
                PyArray { field, array: Arc::clone(array) }
            })
            .collect()
    }

    /// Which of `values` each row comes from.
    #[getter]
    fn array_indices(&self, py: Python<'_>) -> PyResult<PyArray> {
        let made = py.detach(|| self.lazy.array_indices()).map_err(|e| raised(py, &e))?;
        Ok(PyArray::unnamed(Arc::new(made)))
    }

    /// Which row of its array each row is.
    #[getter]
    fn row_indices(&self, py: Python<'_>) -> PyResult<PyArray> {
        let made = py.detach(|| self.lazy.row_indices()).map_err(|e| raised(py, &e))?;
        Ok(PyArray::unnamed(Arc::new(made)))
    }

    /// The type of the rows, as `PyArrow` writes it.
    #[getter]
    fn r#type(&self) -> String {
        type_text(self.lazy.data_type())
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
        if let Some(found) = self.origins.get(array).and_then(|origin| origin.row(py, row)) {
            return found;
        }
        let one = self.lazy.slice(at, 1).and_then(|one| one.to_arrow());
        let array = one.map_err(|e| raised(py, &e))?;
        Ok(Py::new(py, PyArray { field: Arc::clone(self.lazy.field()), array })?.into_any())
    }

    #[pyo3(signature = (offset, length=None))]
    fn slice(&self, py: Python<'_>, offset: usize, length: Option<usize>) -> PyResult<Self> {
        let rest = self.lazy.len().saturating_sub(offset);
        self.with(py, self.lazy.slice(offset, length.unwrap_or(rest)))
    }

    fn take(&self, py: Python<'_>, indices: &Bound<'_, PyAny>) -> PyResult<Self> {
        let indices = selector(indices, Validate::default())?;
        self.with(py, py.detach(|| self.lazy.take(&indices)))
    }

    fn filter(&self, py: Python<'_>, mask: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mask = selector(mask, Validate::default())?;
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

impl PyArray {
    /// An array without nulls or name.
    pub(crate) fn unnamed(array: ArrayRef) -> Self {
        let nullable = array.null_count() > 0;
        Self { field: Arc::new(Field::new("", array.data_type().clone(), nullable)), array }
    }
}

#[pymethods]
impl PyArray {
    /// The type, as `PyArrow` writes it.
    #[getter]
    fn r#type(&self) -> String {
        type_text(self.array.data_type())
    }

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
