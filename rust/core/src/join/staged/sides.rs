//! Which side has a key, where a table is split over several sides.
//!
//! ```text
//! xxh3-128 of the encoded key, modulo the number of sides        null (a greeting): every side
//! ```
//!
//! # Invariants
//! The number of a key is the same on every machine and in every release
//! (`docs/formats/join-messages.md`). Equal foreign and right keys have equal bytes, so one number.
//!
//! # Not here
//! Sending messages.

use std::num::NonZeroU32;

use arrow_array::{ArrayRef, BinaryArray, RecordBatch, UInt32Array};
use twox_hash::XxHash3_128;

use crate::join::deduplicate::{flat, too_many};
use crate::join::layout::shape;
use crate::key::encode_arrow;
use plait_base::Result;

/// The keys of rows as messages have them: of the columns `names`.
///
/// # Errors
/// [`Kind::UnknownColumn`](plait_base::Kind::UnknownColumn) for a column that is not there,
/// [`Kind::UnsupportedKey`](plait_base::Kind::UnsupportedKey) for one without order.
pub fn key_bytes(names: &[String], rows: &RecordBatch) -> Result<BinaryArray> {
    let schema = rows.schema();
    let shape = shape(names, &schema.fields().iter().cloned().collect::<Vec<_>>(), "key")?;
    let columns = names.iter().filter_map(|name| rows.column_by_name(name).cloned());
    let keys = encode_arrow(&shape, &columns.collect::<Vec<ArrayRef>>())?;
    let all = 0..u32::try_from(rows.num_rows()).map_err(too_many)?;
    flat(&keys, &shape, &all.collect::<Vec<_>>())
}

/// The number of the side that has each key, from 0 on; null where a key is.
#[must_use]
pub fn side_numbers(keys: &BinaryArray, sides: NonZeroU32) -> UInt32Array {
    let number = |key: &[u8]| {
        let number = XxHash3_128::oneshot(key) % u128::from(sides.get());
        u32::try_from(number).unwrap_or_default()
    };
    keys.iter().map(|key| key.map(number)).collect()
}
