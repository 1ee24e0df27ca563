//! Many changes of one table as the last change of each key, sorted by key.
//!
//! ```text
//! 7 upsert a   3 upsert b   7 delete        ─▶   3 upsert b   7 delete
//! with _seq: of one key the greatest, of equal ones the last
//! ```
//!
//! # Invariants
//! Keys ascend strictly. A key without a value is an error, or counted and left out.
//!
//! # Cost
//! One sort of the keys, none if they ascend already. Columns are not copied.
//!
//! # Not here
//! What the state says of the keys (`step`).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, RecordBatch, UInt32Array, new_null_array,
};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::FieldRef;

use super::block::SEQUENCE;
use super::layout::{Layout, OPERATION, Side};
use super::order::{order, order_numbers};
use super::spec::NullKeys;
use crate::key::{KeyShape, Keys, encode_arrow};
use crate::workers::{PART_ROWS_MIN, Workers, each, parts};
use plait_base::{Error, Kind, Result, type_text};

/// The last change of each key.
#[derive(Debug)]
pub struct Deduplicated {
    /// Encoded keys, which ascend.
    pub(super) keys: BinaryArray,
    /// Row of each key in `columns`.
    pub(super) rows: Vec<u32>,
    /// Which changes delete.
    pub(super) deleted: Vec<bool>,
    pub(super) sequence: Option<Vec<i64>>,
    /// The columns of the table, as they came.
    pub(super) columns: Vec<ArrayRef>,
    /// Encoded foreign keys of left changes, by row of `columns`.
    pub(super) foreign: Option<BinaryArray>,
    /// Changes that came.
    pub given: u64,
    /// Changes without a key that were left out.
    pub null_keys: u64,
}

impl Deduplicated {
    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Which changes delete, as an array.
    pub(super) fn deleted_array(&self) -> BooleanArray {
        BooleanArray::from(self.deleted.clone())
    }

    /// The columns by key, null where a change deletes.
    pub(super) fn taken(&self, workers: &dyn Workers) -> Result<Vec<ArrayRef>> {
        let row = |(row, is_deleted): (&u32, &bool)| (!is_deleted).then_some(*row);
        let rows: UInt32Array = self.rows.iter().zip(&self.deleted).map(row).collect();
        take_all(&self.columns, &rows, workers)
    }

    /// Keeps the changes that `keep` says.
    pub(super) fn filter(&mut self, keep: &[bool]) -> Result<()> {
        let mask = BooleanArray::from(keep.to_vec());
        let keys = arrow_select::filter::filter(&self.keys, &mask).map_err(Error::from_arrow)?;
        self.keys = keys.as_binary::<i32>().clone();
        let mut kept = keep.iter().copied();
        self.rows.retain(|_| kept.next().unwrap_or(false));
        let mut kept = keep.iter().copied();
        self.deleted.retain(|_| kept.next().unwrap_or(false));
        if let Some(sequence) = &mut self.sequence {
            let mut kept = keep.iter().copied();
            sequence.retain(|_| kept.next().unwrap_or(false));
        }
        Ok(())
    }
}

/// Rows of columns, null where a row is.
pub(super) fn take_all(
    columns: &[ArrayRef],
    rows: &UInt32Array,
    workers: &dyn Workers,
) -> Result<Vec<ArrayRef>> {
    let taken =
        |i: usize| arrow_select::take::take(&columns[i], rows, None).map_err(Error::from_arrow);
    match rows.len() < PART_ROWS_MIN {
        true => (0..columns.len()).map(taken).collect(),
        false => each(workers, columns.len(), taken),
    }
}

/// The last change of each key of one side.
///
/// # Errors
/// [`Kind::NullKey`], [`Kind::SchemaDrift`] when columns are not those of the layout,
/// [`Kind::InvalidArgument`] for an `_op` that is none.
pub(super) fn deduplicate_side(
    layout: &Layout,
    side: Side,
    batch: &RecordBatch,
) -> Result<Deduplicated> {
    let (fields, shape, has_sequence) = match side {
        Side::Left => (&layout.left_given, &layout.left_key, layout.left_sequence),
        Side::Right => (&layout.right, &layout.right_key, layout.right_sequence),
    };
    let deleted = deleted(batch, side)?;
    let columns = aligned(batch, fields, shape, side, &deleted)?;
    let of = |shape: &KeyShape| -> Vec<ArrayRef> {
        let place = |name: &str| fields.iter().position(|field| field.name() == name);
        let names = shape.columns().iter().filter_map(|column| place(&column.name));
        names.filter_map(|place| columns.get(place).cloned()).collect()
    };
    let key_arrays = of(shape);
    let (valid, null_keys) = valid_keys(layout.spec.on_null_key, side, shape, &key_arrays)?;
    let keys = encode_arrow(shape, &key_arrays)?;
    if !has_sequence && batch.column_by_name(SEQUENCE).is_some() {
        // Numbers that are not remembered would be compared within a step only.
        let what = format!(
            "{} changes have sequence numbers, of which the join does not know",
            side.name()
        );
        let error = Error::new(Kind::SchemaDrift, what).with_column(SEQUENCE);
        return Err(error.with_hint("give the schema of the changes with `_seq` in it"));
    }
    let sequence = has_sequence.then(|| sequence(batch, side)).transpose()?;
    let rows = last_rows(&keys, sequence.as_deref(), valid.as_deref())?;
    let keys = flat(&keys, shape, &rows)?;
    let foreign = match side {
        Side::Left => {
            let all: Vec<u32> = (0..u32::try_from(batch.num_rows()).map_err(too_many)?).collect();
            let encoded = encode_arrow(&layout.foreign_key, &of(&layout.foreign_key))?;
            Some(flat(&encoded, &layout.foreign_key, &all)?)
        }
        Side::Right => None,
    };
    let is_computed = |field: &FieldRef| {
        side == Side::Left
            && layout.spec.is_computed
            && layout.spec.foreign_key.contains(field.name())
    };
    let kept = fields.iter().zip(columns).filter(|(field, _)| !is_computed(field));
    let at = |row: &u32| *row as usize;
    Ok(Deduplicated {
        keys,
        deleted: rows.iter().map(|row| deleted[at(row)]).collect(),
        sequence: sequence.map(|all| rows.iter().map(|row| all[at(row)]).collect()),
        columns: kept.map(|(_, column)| column).collect(),
        foreign,
        given: batch.num_rows() as u64,
        null_keys,
        rows,
    })
}

/// Which rows delete, by the column `_op`.
fn deleted(batch: &RecordBatch, side: Side) -> Result<Vec<bool>> {
    let Some(ops) = batch.column_by_name(OPERATION) else {
        return Ok(vec![false; batch.num_rows()]);
    };
    let text = arrow_cast::cast(ops, &arrow_schema::DataType::Utf8);
    let invalid = |what: String| Error::new(Kind::InvalidArgument, what).with_column(OPERATION);
    let text = text.map_err(|e| {
        invalid(format!("operations of the {} changes are not text", side.name())).with_cause(e)
    })?;
    let text = text.as_string::<i32>();
    let mut deleted = Vec::with_capacity(text.len());
    for row in 0..text.len() {
        deleted.push(match text.is_valid(row).then(|| text.value(row)) {
            // What leaves one join may come to the next.
            Some("upsert" | "insert" | "update") => false,
            Some("delete") => true,
            other => {
                let got = other.map_or("null".to_owned(), |op| format!("`{op}`"));
                let what = format!("an operation of the {} changes is not known", side.name());
                return Err(invalid(what)
                    .with_row(row as u64)
                    .with_got(got)
                    .with_hint("give `upsert` or `delete`"));
            }
        });
    }
    Ok(deleted)
}

/// The columns of the table, in its order; only changes that all delete may lack some.
fn aligned(
    batch: &RecordBatch,
    fields: &[FieldRef],
    shape: &KeyShape,
    side: Side,
    deleted: &[bool],
) -> Result<Vec<ArrayRef>> {
    let drift = |what: String, name: &str| Error::new(Kind::SchemaDrift, what).with_column(name);
    for field in batch.schema().fields() {
        let name = field.name().as_str();
        if name != OPERATION && name != SEQUENCE && !fields.iter().any(|known| known.name() == name)
        {
            return Err(drift(format!("a column of the {} changes is new", side.name()), name)
                .with_hint(
                    "a join keeps the columns of its first changes; restart it with the new schema",
                ));
        }
    }
    let all_delete = deleted.iter().all(|deleted| *deleted);
    let find = |field: &FieldRef| {
        let name = field.name();
        let Some(array) = batch.column_by_name(name) else {
            if all_delete && !shape.columns().iter().any(|column| column.name == *name) {
                return Ok(new_null_array(field.data_type(), batch.num_rows()));
            }
            return Err(drift(format!("a column of the {} changes is missing", side.name()), name));
        };
        if array.data_type() == field.data_type() {
            return Ok(Arc::clone(array));
        }
        Err(drift(format!("a column of the {} changes has another type", side.name()), name)
            .with_got(format!(
                "{} instead of {}",
                type_text(array.data_type()),
                type_text(field.data_type())
            )))
    };
    fields.iter().map(find).collect()
}

/// Which rows have a whole key, `None`: all; and how many have not.
fn valid_keys(
    on_null: NullKeys,
    side: Side,
    shape: &KeyShape,
    arrays: &[ArrayRef],
) -> Result<(Option<Vec<bool>>, u64)> {
    let mut valid: Option<Vec<bool>> = None;
    for (column, array) in shape.columns().iter().zip(arrays) {
        let Some(nulls) = array.logical_nulls().filter(|nulls| nulls.null_count() > 0) else {
            continue;
        };
        if on_null == NullKeys::Error {
            let row = nulls.iter().position(|valid| !valid).unwrap_or(0);
            let what = format!("a {} change has no key", side.name());
            return Err(Error::new(Kind::NullKey, what)
                .with_column(&column.name)
                .with_row(row as u64)
                .with_got("null")
                .with_hint("give every change its key, or pass on_null_key=\"drop\""));
        }
        let valid = valid.get_or_insert_with(|| vec![true; array.len()]);
        valid.iter_mut().zip(nulls.iter()).for_each(|(all, this)| *all &= this);
    }
    let dropped = valid.iter().flatten().filter(|valid| !**valid).count();
    Ok((valid, dropped as u64))
}

fn sequence(batch: &RecordBatch, side: Side) -> Result<Vec<i64>> {
    let column = batch.column_by_name(SEQUENCE);
    let Some(column) = column.and_then(|column| column.as_primitive_opt::<Int64Type>()) else {
        let what = format!("{} changes have no sequence numbers any more", side.name());
        return Err(Error::new(Kind::SchemaDrift, what).with_column(SEQUENCE));
    };
    if let Some(row) = (0..column.len()).find(|row| column.is_null(*row)) {
        let what = format!("a {} change has no sequence number", side.name());
        let error = Error::new(Kind::InvalidArgument, what).with_column(SEQUENCE);
        return Err(error.with_row(row as u64).with_got("null"));
    }
    Ok(column.values().to_vec())
}

/// The row of the last change of each key, in the order of keys.
fn last_rows(keys: &Keys, sequence: Option<&[i64]>, valid: Option<&[bool]>) -> Result<Vec<u32>> {
    let len = u32::try_from(keys.len()).map_err(too_many)?;
    let is_valid = |row: &u32| valid.is_none_or(|valid| valid[*row as usize]);
    let rows: Vec<u32> = (0..len).filter(is_valid).collect();
    // Equal keys come in the order of their rows.
    let newest = |same: &[u32]| match sequence {
        None => same.last().copied(),
        Some(sequence) => same.iter().copied().max_by_key(|row| sequence[*row as usize]),
    };
    match keys {
        Keys::Packed(keys) => {
            let key = |row: u32| keys[row as usize];
            let order = order_numbers(rows, key);
            Ok(order.chunk_by(|a, b| key(*a) == key(*b)).filter_map(newest).collect())
        }
        Keys::Bytes(keys) => {
            let key = |row: u32| keys.get(row as usize);
            let order = order(rows, key);
            Ok(order.chunk_by(|a, b| key(*a) == key(*b)).filter_map(newest).collect())
        }
    }
}

/// The keys of `rows`, one behind the other.
pub(super) fn flat(keys: &Keys, shape: &KeyShape, rows: &[u32]) -> Result<BinaryArray> {
    match keys {
        Keys::Packed(keys) => {
            let width = shape.fixed_width().unwrap_or(16).min(16);
            let mut data = Vec::with_capacity(rows.len() * width);
            for row in rows {
                data.extend_from_slice(&keys[*row as usize].to_be_bytes()[..width]);
            }
            let offset = |i: usize| i32::try_from(i * width).map_err(too_many);
            let offsets = (0..=rows.len()).map(offset).collect::<Result<Vec<i32>>>()?;
            binary(offsets, data)
        }
        Keys::Bytes(keys) => collect(rows.iter().map(|row| [keys.get(*row as usize), &[]])),
    }
}

/// `len` byte strings, each in two parts, by several workers.
pub(super) fn collect_by<'a>(
    workers: &dyn Workers,
    len: usize,
    key: impl Fn(usize) -> [&'a [u8]; 2] + Sync,
) -> Result<BinaryArray> {
    let parts = parts(workers, len);
    let made = each(workers, parts.len(), |i| collect((parts[i].0..parts[i].1).map(&key)))?;
    let made: Vec<&dyn Array> = made.iter().map(|part| -> &dyn Array { part }).collect();
    let whole = arrow_select::concat::concat(&made).map_err(Error::from_arrow)?;
    Ok(whole.as_binary::<i32>().clone())
}

/// Byte strings, each in two parts.
pub(super) fn collect<'a>(
    keys: impl ExactSizeIterator<Item = [&'a [u8]; 2]>,
) -> Result<BinaryArray> {
    let mut offsets = Vec::with_capacity(keys.len() + 1);
    offsets.push(0);
    let (mut data, count) = (Vec::new(), keys.len());
    for (i, [a, b]) in keys.enumerate() {
        if i == 0 {
            // Keys of one table are of about one length.
            data.reserve((a.len() + b.len()) * count);
        }
        data.extend_from_slice(a);
        data.extend_from_slice(b);
        offsets.push(i32::try_from(data.len()).map_err(too_many)?);
    }
    if data.capacity() - data.len() > data.len() / 16 {
        // Some of these stay.
        data.shrink_to_fit();
    }
    binary(offsets, data)
}

fn binary(offsets: Vec<i32>, data: Vec<u8>) -> Result<BinaryArray> {
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    BinaryArray::try_new(offsets, Buffer::from_vec(data), None).map_err(Error::from_arrow)
}

pub(super) fn too_many(_: std::num::TryFromIntError) -> Error {
    Error::new(Kind::Unsupported, "more changes in one step than 32 bits count")
        .with_hint("cut the changes into several steps")
}
