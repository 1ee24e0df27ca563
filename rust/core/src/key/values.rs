//! The values of a key column, as callers hold them.
//!
//! # Not here
//! What they become (`column`, `coordinate`).

use arrow_buffer::i256;
use half::f16;

/// The values of a column that are not null, in row order.
#[derive(Clone, Copy, Debug)]
pub enum Values<'a> {
    /// No values: every row is null, whatever the type.
    None,
    /// For [`KeyType::Boolean`](super::KeyType::Boolean).
    Boolean(&'a [bool]),
    /// For [`KeyType::Int32`](super::KeyType::Int32), [`KeyType::UInt32`](super::KeyType::UInt32)
    /// (same bits) and decimals (unscaled).
    Int32(&'a [i32]),
    /// For [`KeyType::Int64`](super::KeyType::Int64), [`KeyType::UInt64`](super::KeyType::UInt64)
    /// (same bits) and decimals (unscaled).
    Int64(&'a [i64]),
    /// For decimals (unscaled).
    Int128(&'a [i128]),
    /// For decimals (unscaled).
    Int256(&'a [i256]),
    /// For [`KeyType::Int96`](super::KeyType::Int96), as in Parquet: nanoseconds, then julian day,
    /// both little-endian.
    Int96(&'a [[u8; 12]]),
    /// For [`KeyType::Float16`](super::KeyType::Float16).
    Half(&'a [f16]),
    /// For [`KeyType::Float32`](super::KeyType::Float32).
    Float(&'a [f32]),
    /// For [`KeyType::Float64`](super::KeyType::Float64).
    Double(&'a [f64]),
    /// For [`KeyType::Bytes`](super::KeyType::Bytes), decimals (unscaled, two's complement,
    /// big-endian, any length) and
    /// [`KeyType::Float16`](super::KeyType::Float16) (2 bytes, little-endian).
    Bytes(&'a [&'a [u8]]),
    /// For [`KeyType::Rank`](super::KeyType::Rank), and for every type of at most eight bytes (see
    /// [`numbers`](super::numbers)).
    Numbers(&'a [u64]),
}

impl Values<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Boolean(values) => values.len(),
            Self::Int32(values) => values.len(),
            Self::Int64(values) => values.len(),
            Self::Int128(values) => values.len(),
            Self::Int256(values) => values.len(),
            Self::Int96(values) => values.len(),
            Self::Half(values) => values.len(),
            Self::Float(values) => values.len(),
            Self::Double(values) => values.len(),
            Self::Bytes(values) => values.len(),
            Self::Numbers(values) => values.len(),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::None => "no",
            Self::Boolean(_) => "boolean",
            Self::Int32(_) => "int32",
            Self::Int64(_) => "int64",
            Self::Int128(_) => "int128",
            Self::Int256(_) => "int256",
            Self::Int96(_) => "int96",
            Self::Half(_) => "float16",
            Self::Float(_) => "float32",
            Self::Double(_) => "float64",
            Self::Bytes(_) => "byte string",
            Self::Numbers(_) => "number",
        }
    }
}

/// One column of consecutive rows.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    /// Which rows have a value; `None`: all, or none with [`Values::None`].
    pub present: Option<&'a [bool]>,
    /// The values of those rows.
    pub values: Values<'a>,
}
