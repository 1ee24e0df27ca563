//! Rows of a stream as bytes of a text format or of Arrow's IPC stream, a batch at a time.
//!
//! # Invariants
//! Nothing is held but the batch in hand; the interpreter is released while it is written.
//!
//! # Not here
//! Tables for people, whose widths a shell knows (`python/plait/cli`).

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_cast::cast;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_ipc::writer::StreamWriter;
use arrow_json::writer::{LineDelimited, WriterBuilder};
use arrow_schema::{ArrowError, DataType, FieldRef, Schema};
use plait_core::{Error, Kind};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::capsule::{self, Reader};

/// The rows of a stream, encoded.
#[pyclass(frozen, module = "plait._native", name = "EncodedRows")]
pub(crate) struct PyEncodedRows(Mutex<Encoder>);

struct Encoder {
    /// None after the last batch.
    reader: Option<Reader>,
    form: Form,
}

enum Form {
    JsonLines(arrow_json::Writer<Vec<u8>, LineDelimited>),
    Ipc(StreamWriter<Vec<u8>>),
}

impl PyEncodedRows {
    /// The rows of `reader` in a format: `jsonl` or `arrow`.
    pub(crate) fn new(py: Python<'_>, reader: Reader, format: &str) -> PyResult<Self> {
        let raise = |e: Error| crate::errors::exception(py, &e);
        let form = match format {
            "jsonl" => Form::JsonLines(
                WriterBuilder::new()
                    .with_explicit_nulls(true)
                    .with_timestamp_format("%Y-%m-%d %H:%M:%S%.f".to_owned())
                    .with_timestamp_tz_format("%Y-%m-%d %H:%M:%S%.f%:z".to_owned())
                    .build(Vec::new()),
            ),
            "arrow" => Form::Ipc(
                StreamWriter::try_new(Vec::new(), &reader.schema())
                    .map_err(Error::from_arrow)
                    .map_err(raise)?,
            ),
            other => {
                let e = Error::new(Kind::InvalidArgument, "there is no such format");
                return Err(raise(e.with_got(other.to_owned())));
            }
        };
        Ok(Self(Mutex::new(Encoder { reader: Some(reader), form })))
    }
}

impl Encoder {
    fn next(&mut self) -> Result<Option<Vec<u8>>, ArrowError> {
        let Some(reader) = &mut self.reader else { return Ok(None) };
        let batch = reader.next().transpose()?;
        if batch.is_none() {
            self.reader = None;
        }
        match (&mut self.form, batch) {
            (Form::JsonLines(writer), Some(batch)) => {
                writer.write(&batch_in_utc(&batch)?)?;
                Ok(Some(std::mem::take(writer.get_mut())))
            }
            (Form::JsonLines(_), None) => Ok(None),
            (Form::Ipc(writer), Some(batch)) => {
                writer.write(&batch)?;
                Ok(Some(std::mem::take(writer.get_mut())))
            }
            (Form::Ipc(writer), None) => {
                writer.finish()?;
                Ok(Some(std::mem::take(writer.get_mut())))
            }
        }
    }
}

#[pymethods]
impl PyEncodedRows {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let next = py.detach(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).next());
        let bytes = next.map_err(|e| capsule::arrow_error(py, e))?;
        Ok(bytes.map(|bytes| PyBytes::new(py, &bytes)))
    }
}

/// The same with times in UTC where a time zone has a name: what names mean is not known here.
fn in_utc(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let wanted = utc_type(array.data_type());
    if &wanted == array.data_type() { Ok(Arc::clone(array)) } else { cast(array, &wanted) }
}

fn utc_type(data_type: &DataType) -> DataType {
    let of = |field: &FieldRef| {
        let inner = utc_type(field.data_type());
        Arc::new(field.as_ref().clone().with_data_type(inner))
    };
    match data_type {
        DataType::Timestamp(unit, Some(zone)) if !zone.starts_with(['+', '-']) => {
            DataType::Timestamp(*unit, Some("+00:00".into()))
        }
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(of).collect()),
        DataType::List(field) => DataType::List(of(field)),
        DataType::LargeList(field) => DataType::LargeList(of(field)),
        DataType::FixedSizeList(field, len) => DataType::FixedSizeList(of(field), *len),
        DataType::Map(field, is_sorted) => DataType::Map(of(field), *is_sorted),
        DataType::Dictionary(_, values) => match utc_type(values) {
            same if same == **values => data_type.clone(),
            other => other,
        },
        other => other.clone(),
    }
}

fn batch_in_utc(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let columns = batch.columns().iter().map(in_utc).collect::<Result<Vec<_>, _>>()?;
    let fields =
        batch.schema_ref().fields().iter().zip(&columns).map(|(field, column)| {
            field.as_ref().clone().with_data_type(column.data_type().clone())
        });
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    RecordBatch::try_new_with_options(schema, columns, &options)
}

/// The values of a batch as people read them, column by column; none for null.
pub(crate) fn texts(batch: &RecordBatch) -> Result<Vec<Vec<Option<String>>>, Error> {
    let batch = batch_in_utc(batch).map_err(Error::from_arrow)?;
    let options = FormatOptions::new()
        .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"))
        .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.f%:z"))
        .with_datetime_format(Some("%Y-%m-%d %H:%M:%S%.f"));
    let column = |column: &ArrayRef| {
        let formatter = ArrayFormatter::try_new(column, &options).map_err(Error::from_arrow)?;
        let nulls = column.logical_nulls();
        let text = |row: usize| {
            let is_null = nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
            let text = || formatter.value(row).try_to_string().map_err(Error::from_arrow);
            (!is_null).then(text).transpose()
        };
        (0..column.len()).map(text).collect()
    };
    batch.columns().iter().map(column).collect()
}
