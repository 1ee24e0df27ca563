//! The sort columns in the schema of all sources, and their arrays in a batch.
//!
//! ```text
//! "tags.host, -ts"    tags ─▶ host: nulls of tags are nulls of host     ts: as it is
//! ```
//!
//! # Not here
//! The bytes (`text`, `crate::key`).

use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, RecordBatch, RecordBatchOptions, make_array};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, Fields, Schema};

use super::text;
use crate::key::{
    KeyColumn, KeyShape, KeyType, Keys, ShownAs, SortOrder, decode_arrow, encode_arrow, prefix_len,
};
use plait_base::{Error, Kind, Result, columns_hint};

/// Refuses an order whose columns `schema` lacks, or whose types have no order.
///
/// # Errors
/// [`Kind::UnknownColumn`], [`Kind::UnsupportedKey`].
pub fn check_order(order: &SortOrder, schema: &Schema) -> Result<()> {
    KeyColumns::try_new(order, schema).map(|_| ())
}

/// The keys of all rows of a batch.
///
/// # Errors
/// As [`check_order`].
pub fn batch_keys(order: &SortOrder, batch: &RecordBatch) -> Result<Keys> {
    let columns = KeyColumns::try_new(order, &batch.schema())?;
    columns.encode(&columns.arrays(batch.columns())?, 0, batch.num_rows())
}

/// The stored key of each row of a batch; none where one of its sort columns is null.
///
/// # Errors
/// As [`check_order`].
pub fn row_keys(order: &SortOrder, batch: &RecordBatch) -> Result<Vec<Option<Vec<u8>>>> {
    let columns = KeyColumns::try_new(order, &batch.schema())?;
    let arrays = columns.arrays(batch.columns())?;
    let keys = columns.encode(&arrays, 0, batch.num_rows())?;
    let nulls: Vec<Option<NullBuffer>> = arrays.iter().map(Array::logical_nulls).collect();
    let is_null = |row: usize| nulls.iter().flatten().any(|nulls| nulls.is_null(row));
    let key = |row: usize| (!is_null(row)).then(|| keys.to_bytes(&columns.shape, row));
    Ok((0..batch.num_rows()).map(key).collect())
}

/// The stored key of each row of a batch.
///
/// # Errors
/// As [`check_order`].
pub fn encode_keys(order: &SortOrder, batch: &RecordBatch) -> Result<BinaryArray> {
    let columns = KeyColumns::try_new(order, &batch.schema())?;
    let keys = columns.encode(&columns.arrays(batch.columns())?, 0, batch.num_rows())?;
    let mut bytes = BinaryBuilder::with_capacity(batch.num_rows(), keys.memory_size());
    for row in 0..batch.num_rows() {
        bytes.append_value(keys.to_bytes(&columns.shape, row));
    }
    Ok(bytes.finish())
}

/// The sort columns of stored keys, by their paths; `schema` has their types.
///
/// # Errors
/// As [`check_order`]; [`Kind::InvalidArgument`] when `keys` are no binary; [`Kind::CorruptSource`]
/// for a key that is none of this order.
pub fn decode_keys(order: &SortOrder, schema: &Schema, keys: &ArrayRef) -> Result<RecordBatch> {
    let columns = KeyColumns::try_new(order, schema)?;
    let arrays = decode_arrow(&columns.shape, &columns.types, keys)?;
    let named = columns.shape.columns().iter().zip(&arrays);
    let fields: Vec<Field> = named
        .map(|(column, array)| Field::new(&column.name, array.data_type().clone(), true))
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(keys.len()));
    let schema = Arc::new(Schema::new(fields));
    RecordBatch::try_new_with_options(schema, arrays, &options).map_err(Error::from_arrow)
}

/// How many bytes of a stored key are those of its first `parts` columns.
///
/// # Errors
/// As [`decode_keys`]; [`Kind::InvalidArgument`] when the order has fewer columns.
pub fn key_prefix(order: &SortOrder, schema: &Schema, key: &[u8], parts: usize) -> Result<usize> {
    let columns = KeyColumns::try_new(order, schema)?;
    if parts > columns.shape.parts() {
        return Err(Error::new(Kind::InvalidArgument, "prefix has more columns than the order")
            .with_got(format!("{parts} of {}", columns.shape.parts()))
            .with_hint("a curve counts as one column"));
    }
    prefix_len(&columns.shape, key, parts)
}

/// Where the sort columns are, and how their keys look.
#[derive(Clone, Debug)]
pub(crate) struct KeyColumns {
    pub(crate) shape: KeyShape,
    /// Places from the root to the leaf.
    paths: Vec<Vec<usize>>,
    /// Types of the leaves.
    pub(crate) types: Vec<DataType>,
}

impl KeyColumns {
    /// # Errors
    /// [`Kind::UnknownColumn`], [`Kind::UnsupportedKey`].
    pub(crate) fn try_new(order: &SortOrder, schema: &Schema) -> Result<Self> {
        let mut columns = Vec::with_capacity(order.len());
        let mut paths = Vec::with_capacity(order.len());
        let mut types = Vec::with_capacity(order.len());
        let mut shown = Vec::with_capacity(order.len());
        for column in order.columns() {
            let name = column.dotted();
            let (places, field) =
                find(&column.path, schema.fields()).map_err(|e| e.with_column(&name))?;
            let data_type = field.data_type();
            let ty = KeyType::from_arrow(data_type).map_err(|e| e.with_column(&name))?;
            let (descending, nulls) = (column.descending, column.nulls);
            columns.push(KeyColumn { name, ty, descending, nulls });
            paths.push(places);
            types.push(data_type.clone());
            shown.push(ShownAs::of(field));
        }
        Ok(Self {
            shape: KeyShape::try_new(columns)?.with_curve(order.curve())?.with_shown(shown),
            paths,
            types,
        })
    }

    /// Places of sort column `column`, from the root to the leaf.
    pub(crate) fn path(&self, column: usize) -> &[usize] {
        self.paths.get(column).map_or(&[], Vec::as_slice)
    }

    /// The arrays of the sort columns.
    pub(crate) fn arrays(&self, columns: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        self.paths.iter().map(|path| leaf(columns, path)).collect()
    }

    /// The keys of `len` rows from row `start` on.
    pub(crate) fn encode(&self, arrays: &[ArrayRef], start: usize, len: usize) -> Result<Keys> {
        if arrays.is_empty() {
            return Ok(Keys::Packed(vec![0; len]));
        }
        if let Some(keys) = text::encode(&self.shape, arrays, start, len) {
            return Ok(keys);
        }
        let slices: Vec<ArrayRef> = arrays.iter().map(|array| array.slice(start, len)).collect();
        encode_arrow(&self.shape, &slices)
    }

    /// The names of the sort columns, for messages.
    pub(crate) fn names(&self) -> String {
        let names: Vec<&str> = self.shape.columns().iter().map(|c| c.name.as_str()).collect();
        names.join(", ")
    }
}

fn find<'a>(path: &[String], mut fields: &'a Fields) -> Result<(Vec<usize>, &'a Field)> {
    let mut places = Vec::with_capacity(path.len());
    let mut found: Option<&Field> = None;
    for name in path {
        fields = match found.map(Field::data_type) {
            None => fields,
            Some(DataType::Struct(fields)) => fields,
            Some(_) => return Err(unknown(name, fields)),
        };
        let Some((place, field)) = fields.find(name) else { return Err(unknown(name, fields)) };
        places.push(place);
        found = Some(field);
    }
    let field = found.ok_or_else(|| Error::new(Kind::Internal, "sort column has no name"))?;
    Ok((places, field))
}

fn unknown(name: &str, fields: &Fields) -> Error {
    let names: Vec<String> = fields.iter().map(|field| field.name().clone()).collect();
    let hint = columns_hint(name, &names);
    let hint = format!("{hint}; a name with a dot goes in double quotes");
    Error::new(Kind::UnknownColumn, "sort column is in no source").with_hint(hint)
}

fn leaf(columns: &[ArrayRef], path: &[usize]) -> Result<ArrayRef> {
    let missing = || Error::new(Kind::Internal, "a batch lacks a sort column");
    let (first, rest) = path.split_first().ok_or_else(missing)?;
    let mut array = Arc::clone(columns.get(*first).ok_or_else(missing)?);
    let mut nulls: Option<NullBuffer> = None;
    for place in rest {
        let structs = array.as_struct_opt().ok_or_else(missing)?;
        nulls = NullBuffer::union(nulls.as_ref(), structs.nulls());
        let next = Arc::clone(structs.columns().get(*place).ok_or_else(missing)?);
        array = next;
    }
    let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0) else { return Ok(array) };
    with_nulls(&array, &nulls)
}

/// `array` with more nulls.
fn with_nulls(array: &ArrayRef, nulls: &NullBuffer) -> Result<ArrayRef> {
    match array.data_type() {
        DataType::Null => Ok(Arc::clone(array)),
        // A run has no null buffer of its own: its rows are taken one by one.
        DataType::RunEndEncoded(..) => {
            let rows: arrow_array::UInt64Array =
                (0..array.len()).map(|row| nulls.is_valid(row).then_some(row as u64)).collect();
            arrow_select::take::take(array, &rows, None).map_err(Error::from_arrow)
        }
        _ => {
            let all = NullBuffer::union(array.nulls(), Some(nulls));
            let data = array.to_data().into_builder().nulls(all).build();
            Ok(make_array(data.map_err(Error::from_arrow)?))
        }
    }
}
