//! What the two sides tell each other: Arrow batches.
//!
//! ```text
//! subscription   _fk  _pk  _left_epoch  _version  _hash  _instruction
//! response            _pk  _left_epoch  _version  _hash  _right_epoch  _right_version  _found
//!                     columns of the right row
//! greeting            response without `_pk`: only who speaks
//! notice              response with version 0: only which epoch of the left side the right one knows
//! ```
//!
//! # Invariants
//! A subscription tells the epoch of the right row that the left side shows for its version, 0 for none.
//! Versions and epochs begin at 1.
//!
//! # Not here
//! When they are sent (`left`, `right`).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt8Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, FixedSizeBinaryArray, Int64Array, RecordBatch,
    UInt8Array, new_null_array,
};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use twox_hash::XxHash3_128;

use crate::key::{KeyColumn, KeyShape, KeyType, Keys, Nulls, encode_arrow};
use plait_base::{Error, Kind, Result, type_text};

/// Bytes of a hash.
pub(super) const HASH_BYTES: i32 = 16;

/// What the right side does with a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Instruction {
    /// Forget it.
    DeleteKeyNoPropagate = 0,
    /// Forget it, and answer that there is no right row.
    DeleteKeyAndPropagate = 1,
    /// Keep it, and answer in any case.
    PropagateNullIfNoFkValAvailable = 2,
    /// Keep it, and answer if there is a right row.
    PropagateOnlyIfFkValAvailable = 3,
}

impl Instruction {
    /// The instruction with this number.
    pub(super) fn of(number: u8) -> Result<Self> {
        Ok(match number {
            0 => Self::DeleteKeyNoPropagate,
            1 => Self::DeleteKeyAndPropagate,
            2 => Self::PropagateNullIfNoFkValAvailable,
            3 => Self::PropagateOnlyIfFkValAvailable,
            other => {
                return Err(Error::new(Kind::InvalidArgument, "an instruction is not known")
                    .with_column("_instruction")
                    .with_got(other.to_string()));
            }
        })
    }
}

/// Columns of messages that no column of the right table may be called.
const RESERVED: [&str; 7] =
    ["_pk", "_left_epoch", "_version", "_hash", "_right_epoch", "_right_version", "_found"];

/// The columns of the right table travel with those of messages.
///
/// # Errors
/// [`Kind::InvalidArgument`] for one that has the name of one of these.
pub(super) fn check_names(right: &[FieldRef]) -> Result<()> {
    let Some(taken) = right.iter().find(|field| RESERVED.contains(&field.name().as_str())) else {
        return Ok(());
    };
    let what = "a column of the right table has a name that messages of a staged join use";
    Err(Error::new(Kind::InvalidArgument, what)
        .with_column(taken.name())
        .with_hint("rename the column"))
}

/// A subscription.
pub(super) struct Subscription<'a> {
    pub(super) foreign: &'a [u8],
    pub(super) key: &'a [u8],
    pub(super) version: i64,
    pub(super) hash: [u8; 16],
    pub(super) instruction: Instruction,
}

/// Subscriptions, column by column.
#[derive(Default)]
pub(super) struct Subscriptions {
    foreign: Vec<Vec<u8>>,
    key: Vec<Vec<u8>>,
    version: Vec<i64>,
    hash: Vec<[u8; 16]>,
    instruction: Vec<u8>,
}

impl Subscriptions {
    pub(super) fn push(&mut self, one: &Subscription<'_>) {
        self.foreign.push(one.foreign.to_vec());
        self.key.push(one.key.to_vec());
        self.version.push(one.version);
        self.hash.push(one.hash);
        self.instruction.push(one.instruction as u8);
    }

    /// The message of a left side in this epoch.
    pub(super) fn finish(self, epoch: i64) -> Result<RecordBatch> {
        let schema = Schema::new(vec![
            Field::new("_fk", DataType::Binary, false),
            Field::new("_pk", DataType::Binary, false),
            Field::new("_left_epoch", DataType::Int64, false),
            Field::new("_version", DataType::Int64, false),
            Field::new("_hash", DataType::FixedSizeBinary(HASH_BYTES), false),
            Field::new("_instruction", DataType::UInt8, false),
        ]);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(BinaryArray::from_iter_values(&self.foreign)),
            Arc::new(BinaryArray::from_iter_values(&self.key)),
            Arc::new(Int64Array::from(vec![epoch; self.key.len()])),
            Arc::new(Int64Array::from(self.version)),
            hashes(&self.hash)?,
            Arc::new(UInt8Array::from(self.instruction)),
        ];
        RecordBatch::try_new(Arc::new(schema), columns).map_err(Error::from_arrow)
    }
}

/// The schema of responses with these columns of the right table.
pub(super) fn response_schema(right: &[FieldRef]) -> SchemaRef {
    let mut fields = vec![
        Arc::new(Field::new("_pk", DataType::Binary, true)),
        Arc::new(Field::new("_left_epoch", DataType::Int64, false)),
        Arc::new(Field::new("_version", DataType::Int64, false)),
        Arc::new(Field::new("_hash", DataType::FixedSizeBinary(HASH_BYTES), false)),
        Arc::new(Field::new("_right_epoch", DataType::Int64, false)),
        Arc::new(Field::new("_right_version", DataType::Int64, false)),
        Arc::new(Field::new("_found", DataType::Boolean, false)),
    ];
    fields.extend(right.iter().map(|f| Arc::new(f.as_ref().clone().with_nullable(true))));
    Arc::new(Schema::new(fields))
}

/// The columns of a batch of responses as [`response_schema`] has them.
///
/// # Errors
/// [`Kind::InvalidArgument`] when one is missing or of another type, or lacks a value.
pub(super) fn in_response_order(right: &[FieldRef], batch: &RecordBatch) -> Result<RecordBatch> {
    let schema = response_schema(right);
    let column = |field: &FieldRef| {
        let name = field.name();
        let column = batch.column_by_name(name).ok_or_else(|| missing(name))?;
        if column.data_type() != field.data_type() {
            let what = "a column of a message of a join has another type";
            let [got, wanted] = [column.data_type(), field.data_type()].map(type_text);
            return Err(Error::new(Kind::InvalidArgument, what)
                .with_column(name)
                .with_got(format!("{got} instead of {wanted}")));
        }
        match field.is_nullable() {
            true => Ok(Arc::clone(column)),
            false => whole(name, Some(column)).map(Arc::clone),
        }
    };
    let columns = schema.fields().iter().map(column).collect::<Result<_>>()?;
    RecordBatch::try_new(schema, columns).map_err(Error::from_arrow)
}

/// Responses of a right side in `epoch` that tell of no right row: greetings have no key.
pub(super) fn empty_responses(
    right: &[FieldRef],
    keys: &[Option<&[u8]>],
    left_epochs: &[i64],
    epoch: i64,
) -> Result<RecordBatch> {
    let len = keys.len();
    let zeros = || -> ArrayRef { Arc::new(Int64Array::from(vec![0; len])) };
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(keys.iter().copied().collect::<BinaryArray>()),
        Arc::new(Int64Array::from(left_epochs.to_vec())),
        zeros(),
        hashes(&vec![[0; 16]; len])?,
        Arc::new(Int64Array::from(vec![epoch; len])),
        zeros(),
        Arc::new(BooleanArray::from(vec![false; len])),
    ];
    columns.extend(right.iter().map(|field| new_null_array(field.data_type(), len)));
    RecordBatch::try_new(response_schema(right), columns).map_err(Error::from_arrow)
}

pub(super) fn hashes(all: &[[u8; 16]]) -> Result<ArrayRef> {
    let bytes: Vec<u8> = all.iter().flatten().copied().collect();
    let array = FixedSizeBinaryArray::try_new(HASH_BYTES, bytes.into(), None);
    Ok(Arc::new(array.map_err(Error::from_arrow)?))
}

fn missing(name: &str) -> Error {
    Error::new(Kind::InvalidArgument, "a message of a join lacks a column").with_column(name)
}

/// A column that has a value in every row.
fn whole<'a, T: Array>(name: &str, column: Option<&'a T>) -> Result<&'a T> {
    let column = column.ok_or_else(|| missing(name))?;
    if column.null_count() == 0 {
        return Ok(column);
    }
    let row = (0..column.len()).find(|row| column.is_null(*row)).unwrap_or(0);
    let what = "a message of a join lacks a value";
    Err(Error::new(Kind::InvalidArgument, what)
        .with_column(name)
        .with_row(row as u64)
        .with_got("null"))
}

/// Byte strings, null where greetings have none.
pub(super) fn keys_of(batch: &RecordBatch) -> Result<&BinaryArray> {
    let column = batch.column_by_name("_pk").and_then(|column| column.as_binary_opt::<i32>());
    column.ok_or_else(|| missing("_pk"))
}

pub(super) fn binary<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a BinaryArray> {
    whole(name, batch.column_by_name(name).and_then(|column| column.as_binary_opt::<i32>()))
}

pub(super) fn numbers<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a Int64Array> {
    let column = batch.column_by_name(name);
    whole(name, column.and_then(|column| column.as_primitive_opt::<Int64Type>()))
}

pub(super) fn hash_of(batch: &RecordBatch) -> Result<&FixedSizeBinaryArray> {
    let column = batch.column_by_name("_hash").and_then(|c| c.as_fixed_size_binary_opt());
    whole("_hash", column.filter(|c| c.value_length() == HASH_BYTES))
}

pub(super) fn instructions(batch: &RecordBatch) -> Result<Vec<Instruction>> {
    let column = batch.column_by_name("_instruction");
    let column = column.and_then(|column| column.as_primitive_opt::<UInt8Type>());
    let column = whole("_instruction", column)?;
    column.values().iter().map(|number| Instruction::of(*number)).collect()
}

pub(super) fn found(batch: &RecordBatch) -> Result<&BooleanArray> {
    whole("_found", batch.column_by_name("_found").and_then(|column| column.as_boolean_opt()))
}

/// xxh3-128 of each row: of the key bytes of its columns; of columns without order, of their text.
pub(super) fn row_hashes(fields: &[FieldRef], columns: &[ArrayRef]) -> Result<Vec<[u8; 16]>> {
    let rows = columns.first().map_or(0, |column| column.len());
    let mut bytes: Vec<Vec<u8>> = vec![Vec::new(); rows];
    for (field, column) in fields.iter().zip(columns) {
        if let Ok(ty) = KeyType::from_arrow(field.data_type()) {
            let name = field.name().clone();
            let column_of = KeyColumn { name, ty, descending: false, nulls: Nulls::Last };
            let shape = KeyShape::try_new(vec![column_of])?;
            let keys = encode_arrow(&shape, std::slice::from_ref(column))?;
            for (row, bytes) in bytes.iter_mut().enumerate() {
                match &keys {
                    Keys::Packed(_) => bytes.extend(keys.to_bytes(&shape, row)),
                    Keys::Bytes(keys) => bytes.extend_from_slice(keys.get(row)),
                }
            }
        } else {
            let options = FormatOptions::default().with_null("null");
            let text = ArrayFormatter::try_new(column, &options).map_err(Error::from_arrow)?;
            for (row, bytes) in bytes.iter_mut().enumerate() {
                let shown = text.value(row).try_to_string().map_err(Error::from_arrow)?;
                bytes.extend_from_slice(&(shown.len() as u64).to_be_bytes());
                bytes.extend_from_slice(shown.as_bytes());
            }
        }
    }
    Ok(bytes.iter().map(|row| XxHash3_128::oneshot(row).to_be_bytes()).collect())
}
