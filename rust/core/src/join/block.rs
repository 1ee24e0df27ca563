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
//! `seek` from a row near the result: the logarithm of the distance among marks, one a 16 rows, then the
//! keys between two marks, which lie together. Of most keys it compares 16 bytes, those behind what all
//! keys of the block have in front.
//!
//! # Not here
//! Many blocks (`find`, `range`).

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, BooleanArray, RecordBatch};
use arrow_buffer::ArrowNativeType;
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};

use super::order::wide_head;
use plait_base::{Error, Kind, Result};

/// Bytes of a key that are compared as one number.
const HEAD_BYTES: usize = 16;
/// Every so many rows have a mark: one byte a row, and few enough to stay in the processor's cache, while
/// keys of a large table do not.
const MARK_ROWS: usize = 16;

/// Column of encoded keys.
pub const KEY: &str = "_key";
/// Column that says which rows delete their key.
pub const DELETED: &str = "_deleted";
/// Column of sequence numbers.
pub const SEQUENCE: &str = "_seq";
/// Column of encoded foreign keys, in blocks of places.
pub(crate) const FOREIGN_KEY: &str = "_fk";

/// The schema of blocks with these columns of the user.
#[must_use]
pub(crate) fn schema_of(
    has_sequence: bool,
    has_foreign_key: bool,
    columns: &[FieldRef],
) -> SchemaRef {
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
    /// Bytes that all keys have in front, of sorted ones; and the first of them.
    common: usize,
    front: u128,
    /// Length of the keys, where all have one.
    width: Option<Width>,
    /// The tail of every [`MARK_ROWS`]-th row.
    marks: Arc<[u128]>,
    batch: RecordBatch,
}

/// Keys of one length follow each other.
#[derive(Clone, Copy, Debug)]
struct Width {
    /// Where the first one is.
    start: usize,
    bytes: usize,
    /// The bits of a tail.
    tail: u128,
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
        let front = if common == 0 { 0 } else { wide_head(&keys.value(0)[..common]) };
        let width = Width::of(keys.value_offsets(), common);
        let marks = Arc::default();
        let made = Self { keys, deleted, has_deleted, common, front, width, marks, batch };
        let marks = (0..made.len()).step_by(MARK_ROWS).map(|row| made.tail(row)).collect();
        Self { marks, ..made }
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
        let (start, end) = self.span(row);
        &self.keys.value_data()[start..end]
    }

    /// Where the key of a row is among the bytes of all.
    #[inline]
    fn span(&self, row: usize) -> (usize, usize) {
        if let Some(width) = self.width {
            assert!(row < self.len(), "a block has no such row");
            let start = width.start + row * width.bytes;
            return (start, start + width.bytes);
        }
        let offsets = self.keys.value_offsets();
        (offsets[row].as_usize(), offsets[row + 1].as_usize())
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
    pub(crate) fn seek(&self, from: usize, key: &[u8]) -> usize {
        self.find(from, key).0
    }

    /// The same, and whether its key is `key`.
    pub(super) fn find(&self, from: usize, key: &[u8]) -> (usize, bool) {
        let len = self.len();
        if from >= len {
            return (from, false);
        }
        if !self.has_front(key) {
            // All keys are on one side of it.
            return (if self.key(from) < key { len } else { from }, false);
        }
        let wanted = wide_head(&key[self.common..]);
        let is_short = key.len() - self.common <= HEAD_BYTES;
        let compare = |row: usize| match self.tail(row).cmp(&wanted) {
            Ordering::Equal => {
                let (start, end) = self.span(row);
                match is_short && end - start == key.len() {
                    true => Ordering::Equal,
                    false => self.key(row).cmp(key),
                }
            }
            other => other,
        };
        let (mut low, mut high) = self.between_marks(from, wanted);
        if high - low <= 2 * MARK_ROWS {
            // Without a branch, so that the processor fetches all of them, and what is looked for next.
            let less = (low..high).map(|row| usize::from(self.tail(row) < wanted));
            low += less.sum::<usize>();
            high = low + (low..high).take_while(|row| self.tail(*row) == wanted).count();
        }
        while low < high {
            let middle = low.midpoint(high);
            match compare(middle) {
                Ordering::Equal => return (middle, true),
                Ordering::Greater => high = middle,
                Ordering::Less => low = middle + 1,
            }
        }
        (low, false)
    }

    /// Rows from `from` on: before the first all tails are below `wanted`, from the second on above it.
    fn between_marks(&self, from: usize, wanted: u128) -> (usize, usize) {
        let (first, end) = (from / MARK_ROWS + 1, self.marks.len());
        // Probes come in order, so what is looked for is near: double the step, then halve it.
        let (mut low, mut high, mut step) = (first, first, 1);
        while high < end && self.marks[high] < wanted {
            low = high + 1;
            high += step;
            step *= 2;
        }
        high = high.min(end);
        low += self.marks[low.min(high)..high].partition_point(|mark| *mark < wanted);
        let from = if low > first { (low - 1) * MARK_ROWS + 1 } else { from };
        let equal = match self.marks.get(low) {
            Some(mark) if *mark == wanted => {
                self.marks[low..].partition_point(|mark| *mark == wanted)
            }
            _ => 0,
        };
        (from, self.len().min((low + equal) * MARK_ROWS).max(from))
    }

    /// Whether the key of a row begins with `prefix`.
    #[inline]
    pub(super) fn begins_with(&self, row: usize, prefix: &[u8]) -> bool {
        prefix.is_empty() || self.count_of(row..row + 1, prefix) > 0
    }

    /// How many of `rows`, from the first on, have keys that begin with `prefix`.
    pub(super) fn count_of(&self, rows: Range<usize>, prefix: &[u8]) -> usize {
        let len = prefix.len().wrapping_sub(self.common);
        if len == 0 || len > HEAD_BYTES || !self.has_front(prefix) {
            return rows.take_while(|row| self.key(*row).starts_with(prefix)).count();
        }
        let wanted = wide_head(&prefix[self.common..]);
        let has_prefix = |row: &usize| {
            let (start, end) = self.span(*row);
            self.tail(*row) & first(len) == wanted && end - start >= prefix.len()
        };
        rows.take_while(has_prefix).count()
    }

    /// Whether `key` has in front what all keys have.
    #[inline]
    fn has_front(&self, key: &[u8]) -> bool {
        if self.common > HEAD_BYTES {
            return key.get(..self.common).is_some_and(|front| self.key(0).starts_with(front));
        }
        // A shorter key has zeros there, as the front may have.
        key.len() >= self.common && wide_head(key) & first(self.common) == self.front
    }

    /// The first 16 bytes of a key behind what all have in front, zeros on the right if there are fewer.
    #[inline]
    fn tail(&self, row: usize) -> u128 {
        let (start, end, bits) = match self.width {
            Some(width) => {
                let start = width.start + row * width.bytes;
                (start + self.common, start + width.bytes, width.tail)
            }
            None => {
                let (start, end) = self.span(row);
                let start = start + self.common;
                (start, end, first(end.saturating_sub(start)))
            }
        };
        let data = self.keys.value_data();
        // Bytes of the next keys are read, too, and cut off: a load and a mask, whatever the length.
        match data.get(start..).and_then(|rest| rest.first_chunk()) {
            Some(bytes) => u128::from_be_bytes(*bytes) & bits,
            None => wide_head(data.get(start..end).unwrap_or_default()),
        }
    }

    /// Bytes held on the heap.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        self.batch.get_array_memory_size() + size_of_val(&*self.marks)
    }
}

impl Width {
    fn of(offsets: &[i32], common: usize) -> Option<Self> {
        let [start, end, ..] = offsets else { return None };
        let same = |pair: &[i32]| pair[1] - pair[0] == end - start;
        let bytes = (end - start).as_usize();
        let tail = first(bytes - common);
        let is_same = offsets.windows(2).all(same);
        is_same.then_some(Self { start: start.as_usize(), bytes, tail })
    }
}

/// The bits of so many bytes, from the highest on.
#[inline]
fn first(bytes: usize) -> u128 {
    match bytes {
        0 => 0,
        1..HEAD_BYTES => u128::MAX << (8 * (HEAD_BYTES - bytes)),
        _ => u128::MAX,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn block_of(keys: &[Vec<u8>]) -> Block {
        let arrays: Vec<ArrayRef> = vec![
            Arc::new(BinaryArray::from_iter_values(keys)),
            Arc::new(BooleanArray::from(vec![false; keys.len()])),
        ];
        Block::try_new(RecordBatch::try_new(schema_of(false, false, &[]), arrays).unwrap()).unwrap()
    }

    proptest! {
        #[test]
        fn keys_and_prefixes_are_found_where_a_scan_finds_them(
            front in prop::collection::vec(0_u8..2, 0..20),
            tails in prop::collection::btree_set(prop::collection::vec(0_u8..3, 0..21), 1..200),
            width in prop::option::of(3_usize..21),
            probe in prop::collection::vec(0_u8..3, 0..24),
            has_front in any::<bool>(),
            from in 0_usize..240,
        ) {
            // Of one length, too, for these are read otherwise.
            let sized = |mut tail: Vec<u8>| {
                tail.resize(width.unwrap_or(tail.len()), 1);
                tail
            };
            let tails: BTreeSet<Vec<u8>> = tails.into_iter().map(sized).collect();
            let probe = sized(probe);
            let keys: BTreeSet<Vec<u8>> =
                tails.iter().map(|tail| [&front[..], tail].concat()).collect();
            let keys: Vec<Vec<u8>> = keys.into_iter().collect();
            let block = block_of(&keys);
            let probe = if has_front { [&front[..], &probe].concat() } else { probe };
            let wanted = (from..keys.len()).find(|row| keys[*row] >= probe);
            let wanted = wanted.unwrap_or(from.max(keys.len()));
            let is_there = keys.get(wanted) == Some(&probe);
            prop_assert_eq!(block.find(from, &probe), (wanted, is_there));
            // Every prefix of the first of some rows.
            let from = from.min(keys.len() - 1);
            for len in 0..=keys[from].len() {
                let prefix = &keys[from][..len];
                let count = keys[from..].iter().take_while(|key| key.starts_with(prefix)).count();
                prop_assert_eq!(block.count_of(from..keys.len(), prefix), count);
                prop_assert_eq!(block.begins_with(0, prefix), keys[0].starts_with(prefix));
            }
            prop_assert_eq!(block.begins_with(from, &probe), keys[from].starts_with(&probe));
        }
    }
}
