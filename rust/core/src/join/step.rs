//! One step: deduplicated changes against the state, as the rows that the state gets.
//!
//! ```text
//! left change of PK     place before     new left rows                  new place
//! upsert, FK b          FK a             (a, PK) deleted, (b, PK) row   PK ─▶ b
//! upsert, FK b          FK b             (b, PK) row                    PK ─▶ b
//! delete                FK a             (a, PK) deleted                PK deleted
//! delete                none             nothing                        nothing
//! ```
//!
//! # Invariants
//! A change with a smaller sequence number than that of its key in the state is left out. Deleted keys
//! keep their number.
//!
//! # Cost
//! One look-up a changed key; one copy of each changed row, one sort of foreign keys.
//!
//! # Not here
//! What leaves (`changes`); writing (`plait_parquet::join`).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BinaryArray, BooleanArray, Int64Array, RecordBatch};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, SchemaRef};

use super::block::Block;
use super::deduplicate::{Deduplicated, collect, collect_by, deduplicate_side, take_all};
use super::find::View;
use super::layout::{Layout, Side};
use super::order::order;
use super::picked::{Picked, too_many};
use crate::workers::Workers;
use plait_base::{Error, Result};

/// The state of a join: three sorted tables.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// Left rows by foreign key, then primary key.
    pub left: View,
    /// Foreign keys by primary key.
    pub place: View,
    /// Right rows by key.
    pub right: View,
}

/// What a step adds to the tables.
#[derive(Debug)]
pub struct Step {
    /// Left rows.
    pub left: Block,
    /// Places of left rows.
    pub place: Block,
    /// Right rows.
    pub right: Block,
    /// Changes that were older than the state.
    pub stale: u64,
    /// What was looked up.
    pub trace: Trace,
}

/// What a step looked up and its changes need again, for each row of its places.
#[derive(Debug, Default)]
pub struct Trace {
    /// The foreign keys before.
    old: Option<BinaryArray>,
    /// The rows that the left rows have in the step.
    rows: Vec<u32>,
}

impl Trace {
    /// Whether it is of a step with so many places.
    pub(super) fn is_of(&self, places: u64) -> bool {
        self.rows.len() as u64 == places
    }

    /// The foreign key before.
    pub(super) fn old(&self, i: usize) -> Option<&[u8]> {
        self.old.as_ref().filter(|old| old.is_valid(i)).map(|old| old.value(i))
    }

    /// The row in the step, of a place that is not deleted.
    pub(super) fn row(&self, i: usize) -> usize {
        self.rows[i] as usize
    }
}

/// The last change of each key of `side`.
///
/// # Errors
/// [`Kind::NullKey`](plait_base::Kind::NullKey), [`Kind::SchemaDrift`](plait_base::Kind::SchemaDrift) when
/// columns are not those of the layout, [`Kind::InvalidArgument`](plait_base::Kind::InvalidArgument) for
/// an `_op` that is none.
pub fn deduplicate(layout: &Layout, side: Side, batch: &RecordBatch) -> Result<Deduplicated> {
    deduplicate_side(layout, side, batch)
}

/// What deduplicated changes add to the tables.
///
/// # Errors
/// What reading the state gives.
pub fn step(
    layout: &Layout,
    before: &Tables,
    left: Option<Deduplicated>,
    right: Option<Deduplicated>,
    workers: &dyn Workers,
) -> Result<Step> {
    let mut stale = 0;
    let (left, place, trace) = match left {
        Some(deduplicated) => left_step(layout, before, deduplicated, &mut stale, workers)?,
        None => (empty(layout.left_blocks())?, empty(layout.place_blocks())?, Trace::default()),
    };
    let right = match right {
        Some(deduplicated) => right_step(layout, before, deduplicated, &mut stale, workers)?,
        None => empty(layout.right_blocks())?,
    };
    Ok(Step { left, place, right, stale, trace })
}

fn empty(schema: SchemaRef) -> Result<Block> {
    Block::try_new(RecordBatch::new_empty(schema))
}

/// Leaves out what is older than the state, and deletes of keys that it does not have; `sequence` is
/// the place of sequence numbers in `view`, if changes have them.
pub(super) fn current(
    view: &View,
    sequence: Option<usize>,
    mut deduplicated: Deduplicated,
    stale: &mut u64,
    workers: &dyn Workers,
) -> Result<(Deduplicated, Picked)> {
    let probes: Vec<&[u8]> = (0..deduplicated.len()).map(|i| deduplicated.keys.value(i)).collect();
    let found = view.find_by(workers, &probes)?;
    let mut keep = vec![true; deduplicated.len()];
    if let (Some(place), Some(sequence)) = (sequence, &deduplicated.sequence) {
        let stored = found.column(place, &DataType::Int64)?;
        let stored = stored.as_primitive::<Int64Type>();
        for (i, keep) in keep.iter_mut().enumerate() {
            if found.is_found(i) && stored.is_valid(i) && stored.value(i) > sequence[i] {
                *keep = false;
                *stale += 1;
            }
        }
    }
    // A number must be remembered even for a key that is not there.
    for (i, keep) in keep.iter_mut().enumerate() {
        *keep &= sequence.is_some() || !deduplicated.deleted[i] || found.is_live(i);
    }
    if keep.iter().all(|keep| *keep) {
        return Ok((deduplicated, found));
    }
    let places = keep.iter().enumerate().filter(|(_, keep)| **keep).map(|(i, _)| Some(i));
    let found = found.at(places);
    deduplicated.filter(&keep)?;
    Ok((deduplicated, found))
}

fn left_step(
    layout: &Layout,
    before: &Tables,
    deduplicated: Deduplicated,
    stale: &mut u64,
    workers: &dyn Workers,
) -> Result<(Block, Block, Trace)> {
    let sequence = layout.sequence_place(Side::Left);
    let (deduplicated, found) = current(&before.place, sequence, deduplicated, stale, workers)?;
    let found = found.live();
    let old = found.bytes(layout.foreign_key_place())?;
    let foreign = deduplicated.foreign.as_ref();
    let new = |i: usize| -> Option<&[u8]> {
        let row = deduplicated.rows[i] as usize;
        (!deduplicated.deleted[i]).then(|| foreign.map_or(&[][..], |foreign| foreign.value(row)))
    };
    // Foreign key, change, whether the row is deleted. Changes come by primary key.
    let mut entries: Vec<(&[u8], usize, bool)> = Vec::with_capacity(deduplicated.len());
    for i in 0..deduplicated.len() {
        if let Some(new) = new(i) {
            entries.push((new, i, false));
        }
        if let Some(old) = old.get(i).filter(|old| new(i) != Some(*old)) {
            entries.push((old, i, true));
        }
    }
    let places = (0..u32::try_from(entries.len()).map_err(too_many)?).collect();
    let order = order(places, |place| entries[place as usize].0);
    let keys = collect_by(workers, entries.len(), |at| {
        let (foreign, i, _) = entries[order[at] as usize];
        [foreign, deduplicated.keys.value(i)]
    })?;
    let entries = || order.iter().map(|place| entries[*place as usize]);
    let deleted: Vec<bool> = entries().map(|(_, _, deleted)| deleted).collect();
    let rows = entries().map(|(_, i, deleted)| (!deleted).then(|| deduplicated.rows[i]));
    let columns = take_all(&deduplicated.columns, &rows.collect(), workers)?;
    let left = block(layout.left_blocks(), keys, deleted.into(), columns)?;

    let mut rows = vec![0; deduplicated.len()];
    for (row, (_, i, deleted)) in (0..).zip(entries()) {
        if !deleted {
            rows[i] = row;
        }
    }
    let before: BinaryArray = (0..deduplicated.len()).map(|i| old.get(i)).collect();
    let trace = Trace { old: Some(before), rows };

    // As large as it must be, for it stays.
    let foreign = collect((0..deduplicated.len()).map(|i| [new(i).unwrap_or_default(), &[]]))?;
    let (offsets, data, _) = foreign.into_parts();
    let is_there = NullBuffer::from_iter((0..deduplicated.len()).map(|i| new(i).is_some()));
    let is_there = (is_there.null_count() > 0).then_some(is_there);
    let foreign = BinaryArray::try_new(offsets, data, is_there).map_err(Error::from_arrow)?;
    let mut columns: Vec<ArrayRef> = sequence_column(&deduplicated).into_iter().collect();
    columns.push(Arc::new(foreign));
    let (keys, deleted) = (deduplicated.keys.clone(), deduplicated.deleted_array());
    let place = block(layout.place_blocks(), keys, deleted, columns)?;
    Ok((left, place, trace))
}

fn right_step(
    layout: &Layout,
    before: &Tables,
    deduplicated: Deduplicated,
    stale: &mut u64,
    workers: &dyn Workers,
) -> Result<Block> {
    let sequence = layout.sequence_place(Side::Right);
    let (deduplicated, _) = current(&before.right, sequence, deduplicated, stale, workers)?;
    let mut columns: Vec<ArrayRef> = sequence_column(&deduplicated).into_iter().collect();
    columns.extend(deduplicated.taken(workers)?);
    let (keys, deleted) = (deduplicated.keys.clone(), deduplicated.deleted_array());
    block(layout.right_blocks(), keys, deleted, columns)
}

pub(super) fn sequence_column(deduplicated: &Deduplicated) -> Option<ArrayRef> {
    let sequence = deduplicated.sequence.as_ref()?;
    Some(Arc::new(Int64Array::from(sequence.clone())))
}

fn block(
    schema: SchemaRef,
    keys: BinaryArray,
    deleted: BooleanArray,
    columns: Vec<ArrayRef>,
) -> Result<Block> {
    let mut arrays: Vec<ArrayRef> = vec![Arc::new(keys.clone()), Arc::new(deleted.clone())];
    arrays.extend(columns);
    let batch = RecordBatch::try_new(schema, arrays).map_err(Error::from_arrow)?;
    Ok(Block::trusted(batch, keys, deleted))
}

impl Layout {
    /// Bytes of a foreign key in front of a left row's key.
    pub(super) fn foreign_len(&self, key: &[u8]) -> Result<usize> {
        crate::key::prefix_len(&self.foreign_key, key, self.foreign_key.columns().len())
    }
}
