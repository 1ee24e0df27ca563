//! Rows of the state, sorted by key.
//!
//! ```text
//! _key (binary) │ _deleted │ _seq, if changes have it │ _fk, of places │ columns of the user
//!  80…01 80…07  │  false   │                          │                │ 7  1  "a"
//!  80…01 80…09  │  true    │                          │                │ -  -   -
//! ```
//!
//! # Invariants
//! Keys ascend strictly, and neither `_key` nor `_deleted` has nulls: checked by [`Block::try_new`],
//! since blocks come from files, too.
//!
//! # Cost
//! `seek` from a row near the result: the logarithm of the distance; of most keys it compares 16 bytes,
//! those behind what all keys of the block have in front.
//!
//! # Not here
//! Many blocks (`find`, `range`).

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, BooleanArray, RecordBatch};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};

use super::order::wide_head;
use crate::{Error, Kind, Result};

/// Column of encoded keys.
pub const KEY: &str = "_key";
/// Column that says which rows delete their key.
pub const DELETED: &str = "_deleted";
/// Column of sequence numbers.
pub const SEQUENCE: &str = "_seq";
/// Column of encoded foreign keys, in blocks of places.
pub const FOREIGN_KEY: &str = "_fk";

/// The schema of blocks with these columns of the user.
#[must_use]
pub fn schema_of(has_sequence: bool, has_foreign_key: bool, columns: &[FieldRef]) -> SchemaRef {
    let mut fields: Vec<FieldRef> = vec![
        Arc::new(Field::new(KEY, DataType::Binary, false)),
        Arc::new(Field::new(DELETED, DataType::Boolean, false)),
    ];
    if has_sequence {
        fields.push(Arc::new(Field::new(SEQUENCE, DataType::Int64, true)));
    }
    if has_foreign_key {
        fields.push(Arc::new(Field::new(FOREIGN_KEY, DataType::Binary, true)));
    }
    // Rows that delete have a key and nothing else.
    fields.extend(columns.iter().map(|f| Arc::new(f.as_ref().clone().with_nullable(true))));
    Arc::new(Schema::new(fields))
}

/// Sorted rows.
#[derive(Clone, Debug)]
pub struct Block {
    keys: BinaryArray,
    deleted: BooleanArray,
    /// Whether any row deletes.
    has_deleted: bool,
    /// Bytes that all keys have in front, of sorted ones.
    common: usize,
    batch: RecordBatch,
}

impl Block {
    /// The rows of `batch`.
    ///
    /// # Errors
    /// [`Kind::CorruptSource`] when it has not the columns, or keys do not ascend.
    pub fn try_new(batch: RecordBatch) -> Result<Self> {
        let block = Self::repeated(batch)?;
        let keys = &block.keys;
        if let Some(row) = (1..keys.len()).find(|row| keys.value(row - 1) >= keys.value(*row)) {
            let error = Error::new(Kind::CorruptSource, "keys of a join's state do not ascend");
            return Err(error.with_row(row as u64));
        }
        Ok(block)
    }

    /// Rows that are not looked up by key: keys may repeat.
    pub(super) fn repeated(batch: RecordBatch) -> Result<Self> {
        let corrupt = |what: &str| Error::new(Kind::CorruptSource, what);
        let column = |i: usize| batch.columns().get(i);
        let keys = column(0).and_then(|array| array.as_binary_opt::<i32>());
        let deleted = column(1).and_then(|array| array.as_boolean_opt());
        let (Some(keys), Some(deleted)) = (keys, deleted) else {
            return Err(corrupt("rows of a join's state have other columns"));
        };
        if keys.null_count() + deleted.null_count() > 0 {
            return Err(corrupt("a row of a join's state has no key"));
        }
        let (keys, deleted) = (keys.clone(), deleted.clone());
        Ok(Self::made(batch, keys, deleted))
    }

    /// Rows that are sorted by the way they were made.
    pub(super) fn trusted(batch: RecordBatch, keys: BinaryArray, deleted: BooleanArray) -> Self {
        debug_assert!(
            (1..keys.len()).all(|row| keys.value(row - 1) < keys.value(row)),
            "keys of a block ascend"
        );
        Self::made(batch, keys, deleted)
    }

    fn made(batch: RecordBatch, keys: BinaryArray, deleted: BooleanArray) -> Self {
        let has_deleted = deleted.has_true();
        let common = match keys.len() {
            0 => 0,
            // Between two keys that begin alike all do.
            len => {
                let both = keys.value(0).iter().zip(keys.value(len - 1));
                both.take_while(|(a, b)| a == b).count()
            }
        };
        Self { keys, deleted, has_deleted, common, batch }
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// All columns.
    #[must_use]
    pub fn batch(&self) -> &RecordBatch {
        &self.batch
    }

    /// The key of a row.
    ///
    /// # Panics
    /// When there is no such row.
    #[inline]
    #[must_use]
    pub fn key(&self, row: usize) -> &[u8] {
        self.keys.value(row)
    }

    /// Whether a row deletes its key.
    ///
    /// # Panics
    /// When there is no such row.
    #[inline]
    #[must_use]
    pub fn is_deleted(&self, row: usize) -> bool {
        self.deleted.value(row)
    }

    /// Whether any row deletes its key.
    pub(super) fn has_deleted(&self) -> bool {
        self.has_deleted
    }

    /// A column by its place.
    pub(super) fn column(&self, place: usize) -> Result<&ArrayRef> {
        let none = || Error::new(Kind::CorruptSource, "rows of a join's state lack a column");
        self.batch.columns().get(place).ok_or_else(none)
    }

    /// The first row from `from` on whose key is at least `key`.
    #[must_use]
    pub fn seek(&self, from: usize, key: &[u8]) -> usize {
        let len = self.len();
        let Some((front, tail)) = key.split_at_checked(self.common) else {
            // Shorter than what all keys have in front.
            return if from < len && self.key(from) < key { len } else { from };
        };
        if from < len && !self.key(from).starts_with(front) {
            return if self.key(from) < key { len } else { from };
        }
        let wanted = wide_head(tail);
        let is_less = |row: usize| match self.tail(row).cmp(&wanted) {
            Ordering::Equal => self.key(row) < key,
            other => other == Ordering::Less,
        };
        // Probes come in order, so what is looked for is near: double the step, then halve it.
        let (mut low, mut step) = (from, 1);
        let mut high = from;
        while high < len && is_less(high) {
            low = high + 1;
            high += step;
            step *= 2;
        }
        high = high.min(len);
        while low < high {
            let middle = low.midpoint(high);
            if is_less(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The first 16 bytes of a key behind what all have in front, zeros on the right if there are fewer.
    #[inline]
    fn tail(&self, row: usize) -> u128 {
        let key = self.keys.value(row);
        wide_head(key.get(self.common..).unwrap_or_default())
    }

    /// Bytes held on the heap.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        self.batch.get_array_memory_size()
    }
}
