//! An interleave as bytes, for another process: its values and its selectors.
//!
//! ```text
//! "PLAIT-IL" version   length stream   length stream …
//!                      selectors       one for each array of the values
//! ```
//!
//! # Invariants
//! Streams are those of Arrow's IPC format, checked when they are read. That selected rows are there is
//! checked before rows are copied, as for any interleave.
//!
//! # Not here
//! The bytes in detail (`docs/formats/interleave.md`).

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, UInt32Array, UInt64Array};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, Schema};
use plait_core::{Error, Kind, Result};
use plait_interleave::{Interleave, Value};

const MAGIC: &[u8; 8] = b"PLAIT-IL";
const VERSION: u8 = 1;

/// The bytes of an interleave.
pub(crate) fn write(lazy: &Interleave) -> Result<Vec<u8>> {
    let mut out = MAGIC.to_vec();
    out.push(VERSION);
    let fields = [("array", DataType::UInt32), ("row", DataType::UInt64)];
    let fields: Vec<Field> =
        fields.into_iter().map(|(name, ty)| Field::new(name, ty, false)).collect();
    let columns: Vec<ArrayRef> =
        vec![Arc::new(lazy.array_indices()?), Arc::new(lazy.row_indices()?)];
    add(&mut out, Schema::new(fields), columns)?;
    for array in lazy.values() {
        let field = lazy.field().as_ref().clone();
        let field = field.with_name("value").with_data_type(array.data_type().clone());
        add(&mut out, Schema::new(vec![field]), vec![Arc::clone(array)])?;
    }
    Ok(out)
}

/// Adds a stream of one batch, behind its length.
fn add(out: &mut Vec<u8>, schema: Schema, columns: Vec<ArrayRef>) -> Result<()> {
    let schema = Arc::new(schema);
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).map_err(Error::from_arrow)?;
    let mut writer = StreamWriter::try_new(Vec::new(), &schema).map_err(Error::from_arrow)?;
    writer.write(&batch).map_err(Error::from_arrow)?;
    let stream = writer.into_inner().map_err(Error::from_arrow)?;
    out.extend((stream.len() as u64).to_le_bytes());
    out.extend(stream);
    Ok(())
}

/// The interleave of these bytes.
///
/// # Errors
/// `CorruptSource` for bytes that are none, `Unsupported` for those of a later version.
pub(crate) fn read(bytes: &[u8]) -> Result<Interleave> {
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| corrupt("begins otherwise"))?;
    let (version, mut rest) = rest.split_first().ok_or_else(|| corrupt("ends early"))?;
    if *version != VERSION {
        return Err(Error::new(Kind::Unsupported, "interleave is of a later version")
            .with_got(format!("version {version}"))
            .with_hint("write it with the version of Plait that reads it"));
    }
    let mut batches = Vec::new();
    while !rest.is_empty() {
        let (len, after) = rest.split_first_chunk().ok_or_else(|| corrupt("ends early"))?;
        let len = usize::try_from(u64::from_le_bytes(*len)).unwrap_or(usize::MAX);
        let (stream, after) = after.split_at_checked(len).ok_or_else(|| corrupt("ends early"))?;
        batches.push(batch(stream)?);
        rest = after;
    }
    let mut batches = batches.into_iter();
    let selectors = batches.next().ok_or_else(|| corrupt("has no selectors"))?;
    let [arrays, rows] = selectors.columns() else { return Err(corrupt("has other selectors")) };
    let (Some(arrays), Some(rows)) = (
        arrays.as_any().downcast_ref::<UInt32Array>().cloned(),
        rows.as_any().downcast_ref::<UInt64Array>().cloned(),
    ) else {
        return Err(corrupt("has other selectors"));
    };
    let value = |batch: RecordBatch| match (batch.schema().fields().first(), batch.columns()) {
        (Some(field), [array]) => {
            let field = Arc::new(field.as_ref().clone().with_name(""));
            Ok(Value::Array(field, Arc::clone(array)))
        }
        _ => Err(corrupt("has other values")),
    };
    let values = batches.map(value).collect::<Result<Vec<_>>>()?;
    Interleave::nested(values, Arc::new(arrays), Arc::new(rows))
}

fn batch(stream: &[u8]) -> Result<RecordBatch> {
    let unreadable = |e| corrupt("has a stream that cannot be read").with_cause(e);
    let mut reader = StreamReader::try_new(stream, None).map_err(unreadable)?;
    let batch = reader.next().ok_or_else(|| corrupt("has a stream without a batch"))?;
    batch.map_err(unreadable)
}

fn corrupt(why: &str) -> Error {
    Error::new(Kind::CorruptSource, format!("bytes of an interleave: {why}"))
        .with_hint("pass what `to_ipc` gave, whole")
}
