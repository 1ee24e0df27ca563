//! The changes of a step, a batch at a time.
//!
//! ```text
//! 1  changed places, by primary key    ─▶ row before, row after ─▶ emit
//! 2  changed right rows, by key        ─▶ left rows of that prefix, without those of 1 ─▶ emit
//! ```
//!
//! # Invariants
//! Made from the tables before the step and from the step's own rows alone, so they can be made again
//! while both are there. A primary key leaves once: part 2 passes over those of part 1.
//!
//! # Cost
//! Memory: a batch of rows before and after. A right row with many left rows leaves in many batches.
//!
//! # Not here
//! What a step adds (`step`).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};

use super::block::Block;
use super::emit::{Pairs, emit};
use super::fold::collect;
use super::layout::{Layout, Side};
use super::picked::Picked;
use super::range::{Ranges, Stretch};
use super::spec::How;
use super::step::Tables;
use crate::{Error, Result};

/// Changed keys looked at together: enough that look-ups of neighbours are near each other.
const KEYS_MAX: usize = 32_768;

/// The changes of a step.
#[derive(Debug)]
pub struct Changes {
    layout: Arc<Layout>,
    before: Tables,
    /// The rows of the step alone.
    step: Tables,
    batch_rows: usize,
    /// Next block, and next row of it, of places, then of right rows.
    place: (usize, usize),
    right: (usize, usize),
    subscribers: Option<Subscribers>,
}

/// Left rows of changed right rows.
#[derive(Debug)]
struct Subscribers {
    ranges: Ranges,
    old: Picked,
    new: Picked,
}

impl Changes {
    /// The changes that `step` makes of `before`.
    #[must_use]
    pub fn new(layout: Arc<Layout>, before: Tables, step: Tables, batch_rows: usize) -> Self {
        let batch_rows = batch_rows.max(1);
        Self { layout, before, step, batch_rows, place: (0, 0), right: (0, 0), subscribers: None }
    }

    /// The next batch; `None` after the last.
    ///
    /// # Errors
    /// What reading the state gives.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        while let Some(rows) =
            take(&self.step.place, &mut self.place, KEYS_MAX.min(self.batch_rows))?
        {
            if let Some(batch) = self.of_places(rows)? {
                return Ok(Some(batch));
            }
        }
        loop {
            if let Some(mut subscribers) = self.subscribers.take()
                && let Some(stretch) = subscribers.ranges.next(self.batch_rows)?
            {
                let batch = self.of_subscribers(&stretch, &subscribers)?;
                self.subscribers = Some(subscribers);
                match batch {
                    Some(batch) => return Ok(Some(batch)),
                    None => continue,
                }
            }
            match take(&self.step.right, &mut self.right, KEYS_MAX)? {
                Some(rows) => self.subscribers = Some(self.subscribers(rows)?),
                None => return Ok(None),
            }
        }
    }

    /// Part 1.
    fn of_places(&self, rows: Rows) -> Result<Option<RecordBatch>> {
        let layout = &self.layout;
        let Rows { block, from, to } = rows;
        let keys: Vec<&[u8]> = (from..to).map(|row| block.key(row)).collect();
        let old = self.before.place.find(&keys)?.live();
        let old = old.bytes(layout.foreign_key_place())?;
        let new = block.column(layout.foreign_key_place())?.as_binary::<i32>();
        let new = |i: usize| -> Option<&[u8]> {
            let row = from + i;
            (!block.is_deleted(row) && new.is_valid(row)).then(|| new.value(row))
        };
        let old: Vec<Option<&[u8]>> = (0..keys.len()).map(|i| old.get(i)).collect();
        let new: Vec<Option<&[u8]>> = (0..keys.len()).map(new).collect();
        let before = self.pairs(&self.before, &self.before, &keys, &old)?;
        let after = self.pairs(&self.step, &self.after(), &keys, &new)?;
        emit(layout, &before, &after, false)
    }

    /// Left rows of `left` with these keys and foreign keys, and right rows of `right`.
    fn pairs(
        &self,
        left: &Tables,
        right: &Tables,
        keys: &[&[u8]],
        foreign: &[Option<&[u8]>],
    ) -> Result<Pairs> {
        let both =
            keys.iter().zip(foreign).map(|(key, foreign)| [foreign.unwrap_or_default(), key]);
        let whole = collect(both)?;
        let probe = |i: usize| foreign[i].is_some().then(|| whole.value(i));
        let probes: Vec<Option<&[u8]>> = (0..keys.len()).map(probe).collect();
        let left = left.left.find_any(&probes)?.live();
        let right = right.right.find_any(foreign)?.live();
        let is_outer = self.layout.spec.how == How::Left;
        let is_there = |i: usize| left.is_live(i) && (is_outer || right.is_live(i));
        let is_there = (0..keys.len()).map(is_there).collect();
        Ok(Pairs { left, right, is_there })
    }

    /// The right table after the step.
    fn after(&self) -> Tables {
        let mut right = self.before.right.clone();
        right.runs.extend(self.step.right.runs.iter().cloned());
        Tables { right, ..Tables::default() }
    }

    /// The ranges of changed right rows, without those that stayed what they were.
    fn subscribers(&self, rows: Rows) -> Result<Subscribers> {
        let layout = &self.layout;
        let Rows { block, from, to } = rows;
        let keys: Vec<&[u8]> = (from..to).map(|row| block.key(row)).collect();
        let old = self.before.right.find(&keys)?.live();
        let mut new = Picked::absent(keys.len());
        let hits: Vec<(usize, usize)> = (0..keys.len()).map(|i| (i, from + i)).collect();
        new.add(Arc::clone(&block), &hits, true)?;
        let new = new.live();
        let changed = changed(layout, &old, &new)?;
        let prefixes = collect(changed.iter().map(|i| [keys[*i], &[]]))?;
        let places = || changed.iter().map(|i| Some(*i));
        let (old, new) = (old.at(places()), new.at(places()));
        Ok(Subscribers { ranges: Ranges::new(self.before.left.clone(), prefixes), old, new })
    }

    /// Part 2.
    fn of_subscribers(&self, stretch: &Stretch, of: &Subscribers) -> Result<Option<RecordBatch>> {
        let is_outer = self.layout.spec.how == How::Left;
        let mut places: Vec<usize> = (0..stretch.picked.len()).collect();
        if self.step.place.rows() > 0 {
            let mut keys = Vec::with_capacity(places.len());
            for i in &places {
                let key = stretch.picked.key(*i).unwrap_or_default();
                keys.push(key.get(self.layout.foreign_len(key)?..));
            }
            let changed = self.step.place.find_any(&keys)?;
            places.retain(|i| !changed.is_found(*i));
        }
        let left = stretch.picked.at(places.iter().map(|i| Some(*i)));
        let pairs = |right: &Picked| {
            let of = |i: &usize| stretch.prefixes[*i] as usize;
            let right = right.at(places.iter().map(|i| Some(of(i))));
            let is_there = (0..places.len()).map(|i| is_outer || right.is_live(i)).collect();
            Pairs { left: left.clone(), right, is_there }
        };
        // Right rows that stayed the same have no ranges, so all of these differ.
        emit(&self.layout, &pairs(&of.old), &pairs(&of.new), true)
    }
}

/// Which right rows changed as far as the result shows.
fn changed(layout: &Layout, old: &Picked, new: &Picked) -> Result<Vec<usize>> {
    let is_there = |i: usize| old.is_live(i) && new.is_live(i);
    let both: Vec<usize> = (0..old.len()).filter(|i| is_there(*i)).collect();
    let mut is_same = vec![true; both.len()];
    let places = || both.iter().map(|i| Some(*i));
    let (a, b) = (old.at(places()), new.at(places()));
    for column in layout.columns.iter().filter(|column| column.side == Side::Right) {
        let place = layout.first(Side::Right) + column.place;
        let ty = column.field.data_type();
        let equal = super::same::same(&a.column(place, ty)?, &b.column(place, ty)?)?;
        is_same.iter_mut().zip(equal.iter()).for_each(|(all, this)| *all &= this);
    }
    let mut changed: Vec<bool> = (0..old.len()).map(|i| old.is_live(i) != new.is_live(i)).collect();
    both.iter().zip(is_same).for_each(|(i, is_same)| changed[*i] = !is_same);
    Ok((0..old.len()).filter(|i| changed[*i]).collect())
}

/// Rows of a block.
struct Rows {
    block: Arc<Block>,
    from: usize,
    to: usize,
}

/// The next rows of a table with at most one run.
fn take(
    view: &super::find::View,
    at: &mut (usize, usize),
    rows_max: usize,
) -> Result<Option<Rows>> {
    let Some(run) = view.runs.first() else { return Ok(None) };
    while at.0 < run.blocks() {
        let block = run.block(at.0)?;
        if at.1 >= block.len() {
            *at = (at.0 + 1, 0);
            continue;
        }
        let from = at.1;
        let to = block.len().min(from.saturating_add(rows_max));
        at.1 = to;
        return Ok(Some(Rows { block, from, to }));
    }
    Ok(None)
}

impl Iterator for Changes {
    type Item = Result<RecordBatch, arrow_schema::ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().map_err(Error::into_arrow).transpose()
    }
}

impl arrow_array::RecordBatchReader for Changes {
    fn schema(&self) -> arrow_schema::SchemaRef {
        Arc::clone(self.layout.out())
    }
}
