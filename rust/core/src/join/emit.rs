//! Rows before and after as a batch of changes.
//!
//! ```text
//! before   after    change            both the same: nothing
//! none     row      insert
//! row      other    update
//! row      none     delete, of which only the primary key is set
//! ```
//!
//! # Not here
//! Which rows are looked at (`changes`).

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, StringArray};
use arrow_buffer::BooleanBuffer;

use super::layout::{Layout, OutColumn, Side};
use super::picked::{Picked, Rows};
use super::same::same;
use plait_base::{Error, Result};

/// Left and right rows of some primary keys; a right row may be missing.
pub(super) struct Pairs {
    pub(super) left: Picked,
    pub(super) right: Picked,
    /// Whether the result has the row.
    pub(super) is_there: Vec<bool>,
}

impl Pairs {
    fn at(&self, places: &[usize]) -> Self {
        let all = || places.iter().map(|place| Some(*place));
        Self {
            left: self.left.at(all()),
            right: self.right.at(all()),
            is_there: places.iter().map(|place| self.is_there[*place]).collect(),
        }
    }

    fn rows(&self) -> PairRows<'_> {
        PairRows { left: self.left.rows(), right: self.right.rows() }
    }
}

/// Rows of both sides, ready to copy columns of.
struct PairRows<'a> {
    left: Rows<'a>,
    right: Rows<'a>,
}

impl PairRows<'_> {
    fn column(&self, layout: &Layout, column: &OutColumn) -> Result<ArrayRef> {
        let rows = match column.side {
            Side::Left => &self.left,
            Side::Right => &self.right,
        };
        rows.column(layout.first(column.side) + column.place, column.field.data_type())
    }
}

/// The changes from `before` to `after`, which are of the same primary keys; `None` when there are
/// none. Rows on both sides are compared, unless they are known to differ; a left row is known before or
/// after, and before where rows are compared or old values leave.
pub(super) fn emit(
    layout: &Layout,
    before: &Pairs,
    after: &Pairs,
    differs: impl Fn(usize) -> bool,
) -> Result<Option<RecordBatch>> {
    let len = before.is_there.len();
    let is_both = |i: &usize| before.is_there[*i] && after.is_there[*i] && !differs(*i);
    let both: Vec<usize> = (0..len).filter(is_both).collect();
    let mut is_same = vec![false; len];
    if !both.is_empty() {
        let equal = equal(layout, &before.at(&both), &after.at(&both))?;
        both.iter().zip(equal.iter()).for_each(|(i, equal)| is_same[*i] = equal);
    }
    let changed = |i: &usize| (before.is_there[*i] || after.is_there[*i]) && !is_same[*i];
    let places: Vec<usize> = (0..len).filter(changed).collect();
    if places.is_empty() {
        return Ok(None);
    }
    let ops = places.iter().map(|i| match (before.is_there[*i], after.is_there[*i]) {
        (false, _) => "insert",
        (true, true) => "update",
        (true, false) => "delete",
    });
    let ops: ArrayRef = Arc::new(StringArray::from_iter_values(ops));
    let mut columns = vec![ops];
    let new = values(layout, after, &places)?;
    let is_whole = places.iter().all(|i| after.is_there[*i]);
    // A delete has its key from the row that was.
    let keys = if is_whole { None } else { Some(after_or_before(before, after, &places)?) };
    for (column, array) in layout.columns.iter().zip(new) {
        columns.push(match &keys {
            Some(keys) if column.is_key => {
                let ty = column.field.data_type();
                let parts =
                    [keys.0.column(2 + column.place, ty)?, keys.1.column(2 + column.place, ty)?];
                arrow_select::zip::zip(&keys.2, &parts[0], &parts[1]).map_err(Error::from_arrow)?
            }
            _ => array,
        });
    }
    if layout.spec.before {
        columns.extend(values(layout, before, &places)?);
    }
    RecordBatch::try_new(Arc::clone(layout.out()), columns).map(Some).map_err(Error::from_arrow)
}

/// The left rows after and before, and where there is one after.
fn after_or_before(
    before: &Pairs,
    after: &Pairs,
    places: &[usize],
) -> Result<(Picked, Picked, arrow_array::BooleanArray)> {
    let all = || places.iter().map(|place| Some(*place));
    let mask = places.iter().map(|i| Some(after.left.is_live(*i)));
    let mask = arrow_array::BooleanArray::from_iter(mask);
    Ok((after.left.at(all()), before.left.at(all()), mask))
}

/// The columns of the result at `places`, null where it has no row.
pub(super) fn values(layout: &Layout, pairs: &Pairs, places: &[usize]) -> Result<Vec<ArrayRef>> {
    let there = |place: &usize| pairs.is_there[*place].then_some(*place);
    let left = pairs.left.at(places.iter().map(there));
    let right = pairs.right.at(places.iter().map(there));
    let rows = PairRows { left: left.rows(), right: right.rows() };
    layout.columns.iter().map(|column| rows.column(layout, column)).collect()
}

/// Which rows, all of them there, are the same.
fn equal(layout: &Layout, before: &Pairs, after: &Pairs) -> Result<BooleanBuffer> {
    let mut equal = BooleanBuffer::new_set(before.is_there.len());
    if equal.is_empty() {
        return Ok(equal);
    }
    // Cheap columns first: where all rows differ by one already, the others are not looked at.
    let mut columns: Vec<_> = layout.columns.iter().filter(|column| !column.is_key).collect();
    columns.sort_by_key(|column| column.field.data_type().primitive_width().unwrap_or(usize::MAX));
    let (before, after) = (before.rows(), after.rows());
    for column in columns {
        if equal.count_set_bits() == 0 {
            break;
        }
        let (old, new) = (before.column(layout, column)?, after.column(layout, column)?);
        debug_assert!(old.len() == new.len(), "pairs are of the same keys");
        equal = &equal & &same(&old, &new)?;
    }
    Ok(equal)
}
