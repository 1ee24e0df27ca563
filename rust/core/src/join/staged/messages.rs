//! What the two sides tell each other: Arrow batches.
//!
//! ```text
//! subscription   _fk  _pk  _version  _hash  _instruction
//! response            _pk  _version  _hash  _right_version  _found  columns of the right row
//! ```
//!
//! # Not here
//! When they are sent (`left`, `right`).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt8Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, FixedSizeBinaryArray, Int64Array, RecordBatch,
    UInt8Array,
};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use twox_hash::XxHash3_128;

use crate::key::{KeyColumn, KeyShape, KeyType, Keys, Nulls, encode_arrow};
use crate::{Error, Kind, Result};

/// Bytes of a hash.
pub(super) const HASH_BYTES: i32 = 16;

/// What the right side does with a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Instruction {
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

/// Subscriptions, column by column.
#[derive(Default)]
pub(super) struct Subscriptions {
    pub(super) foreign: Vec<Option<Vec<u8>>>,
    pub(super) key: Vec<Vec<u8>>,
    pub(super) version: Vec<i64>,
    pub(super) hash: Vec<[u8; 16]>,
    pub(super) instruction: Vec<u8>,
}

impl Subscriptions {
    pub(super) fn push(
        &mut self,
        foreign: Option<&[u8]>,
        key: &[u8],
        version: i64,
        hash: [u8; 16],
        instruction: Instruction,
    ) {
        self.foreign.push(foreign.map(<[u8]>::to_vec));
        self.key.push(key.to_vec());
        self.version.push(version);
        self.hash.push(hash);
        self.instruction.push(instruction as u8);
    }

    pub(super) fn finish(self) -> Result<RecordBatch> {
        let schema = Schema::new(vec![
            Field::new("_fk", DataType::Binary, true),
            Field::new("_pk", DataType::Binary, false),
            Field::new("_version", DataType::Int64, false),
            Field::new("_hash", DataType::FixedSizeBinary(HASH_BYTES), false),
            Field::new("_instruction", DataType::UInt8, false),
        ]);
        let foreign = self.foreign.iter().map(Option::as_deref);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(foreign.collect::<BinaryArray>()),
            Arc::new(BinaryArray::from_iter_values(&self.key)),
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
        Arc::new(Field::new("_pk", DataType::Binary, false)),
        Arc::new(Field::new("_version", DataType::Int64, false)),
        Arc::new(Field::new("_hash", DataType::FixedSizeBinary(HASH_BYTES), false)),
        Arc::new(Field::new("_right_version", DataType::Int64, false)),
        Arc::new(Field::new("_found", DataType::Boolean, false)),
    ];
    fields.extend(right.iter().map(|f| Arc::new(f.as_ref().clone().with_nullable(true))));
    Arc::new(Schema::new(fields))
}

pub(super) fn hashes(all: &[[u8; 16]]) -> Result<ArrayRef> {
    let bytes: Vec<u8> = all.iter().flatten().copied().collect();
    let array = FixedSizeBinaryArray::try_new(HASH_BYTES, bytes.into(), None);
    Ok(Arc::new(array.map_err(Error::from_arrow)?))
}

fn missing(name: &str) -> Error {
    Error::new(Kind::InvalidArgument, "a message of a join lacks a column").with_column(name)
}

pub(super) fn binary<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a BinaryArray> {
    let column = batch.column_by_name(name).and_then(|column| column.as_binary_opt::<i32>());
    column.ok_or_else(|| missing(name))
}

pub(super) fn numbers<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a Int64Array> {
    let column = batch.column_by_name(name);
    column.and_then(|column| column.as_primitive_opt::<Int64Type>()).ok_or_else(|| missing(name))
}

pub(super) fn hash_of(batch: &RecordBatch) -> Result<&FixedSizeBinaryArray> {
    let column = batch.column_by_name("_hash").and_then(|c| c.as_fixed_size_binary_opt());
    column.filter(|c| c.value_length() == HASH_BYTES).ok_or_else(|| missing("_hash"))
}

pub(super) fn instructions(batch: &RecordBatch) -> Result<Vec<Instruction>> {
    let column = batch.column_by_name("_instruction");
    let column = column.and_then(|column| column.as_primitive_opt::<UInt8Type>());
    let column = column.ok_or_else(|| missing("_instruction"))?;
    column.values().iter().map(|number| Instruction::of(*number)).collect()
}

pub(super) fn found(batch: &RecordBatch) -> Result<&BooleanArray> {
    let column = batch.column_by_name("_found").and_then(|column| column.as_boolean_opt());
    column.ok_or_else(|| missing("_found"))
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
                let told = text.value(row).try_to_string().map_err(Error::from_arrow)?;
                bytes.extend_from_slice(&(told.len() as u64).to_be_bytes());
                bytes.extend_from_slice(told.as_bytes());
            }
        }
    }
    Ok(bytes.iter().map(|row| XxHash3_128::oneshot(row).to_be_bytes()).collect())
}
