//! One step: folded changes against the state, as the rows that the state gets.
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
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Int64Array, RecordBatch, UInt32Array,
};
use arrow_schema::{DataType, SchemaRef};

use super::block::Block;
use super::find::View;
use super::fold::{Folded, collect, fold_side};
use super::layout::{Layout, Side};
use crate::key::pack;
use crate::{Error, Result};

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
}

/// Folds the changes of `side`.
///
/// # Errors
/// [`Kind::NullKey`](crate::Kind::NullKey), [`Kind::SchemaDrift`](crate::Kind::SchemaDrift) when
/// columns are not those of the layout, [`Kind::InvalidArgument`](crate::Kind::InvalidArgument) for
/// an `_op` that is none.
pub fn fold(layout: &Layout, side: Side, batch: &RecordBatch) -> Result<Folded> {
    fold_side(layout, side, batch)
}

/// What folded changes add to the tables.
///
/// # Errors
/// What reading the state gives.
pub fn step(
    layout: &Layout,
    before: &Tables,
    left: Option<Folded>,
    right: Option<Folded>,
) -> Result<Step> {
    let mut stale = 0;
    let (left, place) = match left {
        Some(folded) => left_step(layout, before, folded, &mut stale)?,
        None => (empty(layout.left_blocks())?, empty(layout.place_blocks())?),
    };
    let right = match right {
        Some(folded) => right_step(layout, before, folded, &mut stale)?,
        None => empty(layout.right_blocks())?,
    };
    Ok(Step { left, place, right, stale })
}

fn empty(schema: SchemaRef) -> Result<Block> {
    Block::try_new(RecordBatch::new_empty(schema))
}

/// Leaves out what is older than the state, and deletes of keys that it does not have.
fn current(
    view: &View,
    has_sequence: bool,
    mut folded: Folded,
    stale: &mut u64,
) -> Result<(Folded, super::picked::Picked)> {
    let probes: Vec<&[u8]> = (0..folded.len()).map(|i| folded.keys.value(i)).collect();
    let found = view.find(&probes)?;
    let mut keep = vec![true; folded.len()];
    if let Some(sequence) = &folded.sequence {
        let stored = found.column(Layout::sequence_place(), &DataType::Int64)?;
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
        *keep &= has_sequence || !folded.deleted[i] || found.is_live(i);
    }
    if keep.iter().all(|keep| *keep) {
        return Ok((folded, found));
    }
    let places = keep.iter().enumerate().filter(|(_, keep)| **keep).map(|(i, _)| Some(i));
    let found = found.at(places);
    folded.filter(&keep)?;
    Ok((folded, found))
}

fn left_step(
    layout: &Layout,
    before: &Tables,
    folded: Folded,
    stale: &mut u64,
) -> Result<(Block, Block)> {
    let (folded, found) = current(&before.place, layout.left_sequence, folded, stale)?;
    let found = found.live();
    let old = found.bytes(layout.foreign_key_place())?;
    let foreign = folded.foreign.as_ref();
    let new = |i: usize| -> Option<&[u8]> {
        let row = folded.rows[i] as usize;
        (!folded.deleted[i]).then(|| foreign.map_or(&[][..], |foreign| foreign.value(row)))
    };
    // Foreign key, change, whether the row is deleted; by foreign key, then primary key.
    let mut entries: Vec<(&[u8], usize, bool)> = Vec::with_capacity(folded.len());
    for i in 0..folded.len() {
        if let Some(new) = new(i) {
            entries.push((new, i, false));
        }
        if let Some(old) = old.get(i).filter(|old| new(i) != Some(*old)) {
            entries.push((old, i, true));
        }
    }
    let mut entries: Vec<(u128, _)> = entries.into_iter().map(|e| (pack(e.0), e)).collect();
    entries.sort_unstable_by(|(a, x), (b, y)| {
        a.cmp(b).then_with(|| x.0.cmp(y.0)).then_with(|| x.1.cmp(&y.1))
    });
    let keys = collect(entries.iter().map(|(_, (fk, i, _))| [*fk, folded.keys.value(*i)]))?;
    let deleted: BooleanArray = entries.iter().map(|(_, (_, _, deleted))| Some(*deleted)).collect();
    let rows = entries.iter().map(|(_, (_, i, deleted))| (!deleted).then(|| folded.rows[*i]));
    let rows: UInt32Array = rows.collect();
    let left = block(layout.left_blocks(), keys, deleted, Vec::new(), &folded.columns, &rows)?;

    let deleted = BooleanArray::from(folded.deleted.clone());
    let mut columns: Vec<ArrayRef> = Vec::new();
    columns.extend(sequence_column(&folded));
    let foreign: BinaryArray = (0..folded.len()).map(&new).collect();
    columns.push(Arc::new(foreign));
    let none = UInt32Array::from(Vec::<u32>::new());
    let keys = folded.keys.clone();
    let place = block(layout.place_blocks(), keys, deleted, columns, &[], &none)?;
    Ok((left, place))
}

fn right_step(layout: &Layout, before: &Tables, folded: Folded, stale: &mut u64) -> Result<Block> {
    let (folded, _) = current(&before.right, layout.right_sequence, folded, stale)?;
    let deleted = BooleanArray::from(folded.deleted.clone());
    let row = |i: usize| (!folded.deleted[i]).then(|| folded.rows[i]);
    let rows: UInt32Array = (0..folded.len()).map(row).collect();
    let sequence = sequence_column(&folded).into_iter().collect();
    block(layout.right_blocks(), folded.keys.clone(), deleted, sequence, &folded.columns, &rows)
}

fn sequence_column(folded: &Folded) -> Option<ArrayRef> {
    let sequence = folded.sequence.as_ref()?;
    Some(Arc::new(Int64Array::from(sequence.clone())))
}

fn block(
    schema: SchemaRef,
    keys: BinaryArray,
    deleted: BooleanArray,
    own: Vec<ArrayRef>,
    columns: &[ArrayRef],
    rows: &UInt32Array,
) -> Result<Block> {
    let mut arrays: Vec<ArrayRef> = vec![Arc::new(keys.clone()), Arc::new(deleted.clone())];
    arrays.extend(own);
    for column in columns {
        let taken = arrow_select::take::take(column, rows, None);
        arrays.push(taken.map_err(Error::from_arrow)?);
    }
    let batch = RecordBatch::try_new(schema, arrays).map_err(Error::from_arrow)?;
    Ok(Block::trusted(batch, keys, deleted))
}

impl Layout {
    /// Bytes of a foreign key in front of a left row's key.
    pub(super) fn foreign_len(&self, key: &[u8]) -> Result<usize> {
        crate::key::prefix_len(&self.foreign_key, key, self.foreign_key.columns().len())
    }
}
