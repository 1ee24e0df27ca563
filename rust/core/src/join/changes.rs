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
//! Memory: a batch of rows before and after, whoever makes it. A right row with many left rows leaves in many batches.
//!
//! # Not here
//! What a step adds (`step`).

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_buffer::BooleanBuffer;

use super::block::Block;
use super::deduplicate::collect;
use super::emit::{Pairs, emit};
use super::find::View;
use super::layout::{Layout, OutColumn, Side};
use super::picked::Picked;
use super::range::{Ranges, Stretch};
use super::spec::How;
use super::step::{Tables, Trace};
use crate::workers::{Alone, Workers, each, parts};
use plait_base::{Error, Result};

/// Changed keys looked at together: enough that look-ups of neighbours are near each other.
const KEYS_MAX: usize = 32_768;

/// The changes of a step.
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
    /// What the step looked up, if that is known still.
    trace: Option<Trace>,
    /// Places that were looked at.
    places: usize,
    workers: Arc<dyn Workers + Sync>,
    /// Made already, by several workers at a time.
    made: VecDeque<RecordBatch>,
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
        let (place, right, subscribers) = ((0, 0), (0, 0), None);
        Self {
            layout,
            before,
            step,
            batch_rows,
            place,
            right,
            subscribers,
            trace: None,
            places: 0,
            workers: Arc::new(Alone),
            made: VecDeque::new(),
        }
    }

    /// The same, with what `step` looked up when it was made.
    #[must_use]
    pub fn with_trace(self, trace: Trace) -> Self {
        let is_of = trace.is_of(self.step.place.rows());
        Self { trace: is_of.then_some(trace), ..self }
    }

    /// The same, made by `workers`, who share the rows of a batch; the order of rows stays.
    #[must_use]
    pub fn with_workers(self, workers: Arc<dyn Workers + Sync>) -> Self {
        Self { workers, ..self }
    }

    /// The next batch; `None` after the last.
    ///
    /// # Errors
    /// What reading the state gives.
    pub(crate) fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.made.pop_front() {
                return Ok(Some(batch));
            }
            let rows_max = KEYS_MAX.min(self.batch_rows);
            if let Some(rows) = take(&self.step.place, &mut self.place, rows_max)? {
                let (first, len) = (self.places, rows.to - rows.from);
                self.made = self.by_parts(len, |from, to| {
                    let block = Arc::clone(&rows.block);
                    let part = BlockRows { block, from: rows.from + from, to: rows.from + to };
                    self.of_places(&part, first + from)
                })?;
                self.places += len;
                continue;
            }
            if let Some(mut subscribers) = self.subscribers.take()
                && let Some(stretch) = subscribers.ranges.next(self.batch_rows)?
            {
                self.made = self.by_parts(stretch.picked.len(), |from, to| {
                    self.of_subscribers(&stretch, from..to, &subscribers)
                })?;
                self.subscribers = Some(subscribers);
                continue;
            }
            match take(&self.step.right, &mut self.right, KEYS_MAX)? {
                Some(rows) => self.subscribers = Some(self.subscribers(rows)?),
                None => return Ok(None),
            }
        }
    }

    /// What `make` makes of `len` rows, which workers share.
    fn by_parts(
        &self,
        len: usize,
        make: impl Fn(usize, usize) -> Result<Option<RecordBatch>> + Sync,
    ) -> Result<VecDeque<RecordBatch>> {
        let workers = self.workers.as_ref();
        let parts = parts(workers, len);
        let made = each(workers, parts.len(), |i| make(parts[i].0, parts[i].1))?;
        Ok(made.into_iter().flatten().collect())
    }

    /// Part 1: these rows of places, of which `first` is the number of the first.
    fn of_places(&self, rows: &BlockRows, first: usize) -> Result<Option<RecordBatch>> {
        let layout = &self.layout;
        let BlockRows { block, from, to } = rows;
        let keys: Vec<&[u8]> = (*from..*to).map(|row| block.key(row)).collect();
        let count = keys.len();
        let (found, bytes);
        let old: Vec<Option<&[u8]>> = match &self.trace {
            Some(trace) => (first..first + count).map(|i| trace.old(i)).collect(),
            None => {
                found = self.before.place.find(&keys)?.live();
                bytes = found.bytes(layout.foreign_key_place())?;
                (0..count).map(|i| bytes.get(i)).collect()
            }
        };
        let new = block.column(layout.foreign_key_place())?.as_binary::<i32>();
        let new = |row: usize| -> Option<&[u8]> {
            (!block.is_deleted(row) && new.is_valid(row)).then(|| new.value(row))
        };
        let new: Vec<Option<&[u8]>> = (*from..*to).map(new).collect();
        // A row that moved differs by what it refers to, where that is shown: it need not be read.
        let is_moved: Vec<bool> = old
            .iter()
            .zip(&new)
            .map(|(a, b)| layout.shows_foreign_key() && a.is_some() && b.is_some() && a != b)
            .collect();
        let is_read = |i: usize| layout.spec.before || !is_moved[i];
        let read: Vec<Option<&[u8]>> = (0..count).map(|i| old[i].filter(|_| is_read(i))).collect();
        let before_left = left_of(&self.before.left, &keys, &read)?;
        let after_left = match self.rows_of_step(&new, first)? {
            Some(picked) => picked,
            None => left_of(&self.step.left, &keys, &new)?,
        };
        let (before_right, after_right) = self.right_of(&old, &new)?;
        let is_outer = layout.spec.how == How::Left;
        let there = |i: usize| old[i].is_some() && (!is_read(i) || before_left.is_live(i));
        let was = |i: usize| there(i) && (is_outer || before_right.is_live(i));
        let is = |i: usize| after_left.is_live(i) && (is_outer || after_right.is_live(i));
        let (was, is) = ((0..count).map(was).collect(), (0..count).map(is).collect());
        let before = Pairs { left: before_left, right: before_right, is_there: was };
        let after = Pairs { left: after_left, right: after_right, is_there: is };
        emit(layout, &before, &after, |i| is_moved[i])
    }

    /// The left rows of the step, where it is known at which rows of its one block they are.
    fn rows_of_step(&self, new: &[Option<&[u8]>], first: usize) -> Result<Option<Picked>> {
        let (Some(trace), Some(run)) = (&self.trace, self.step.left.runs.first()) else {
            return Ok(None);
        };
        if run.blocks() != 1 || !run.is_held() {
            return Ok(None);
        }
        let mut picked = Picked::absent(new.len());
        let live = (0..new.len()).filter(|i| new[*i].is_some());
        let hits: Vec<(usize, usize)> = live.map(|i| (i, trace.row(first + i))).collect();
        picked.add(run.block(0)?, &hits, true)?;
        Ok(Some(picked))
    }

    /// The right rows of foreign keys before and after.
    fn right_of(&self, old: &[Option<&[u8]>], new: &[Option<&[u8]>]) -> Result<(Picked, Picked)> {
        if self.step.right.rows() > 0 {
            let after = self.after().right.find_any(new)?.live();
            return Ok((self.before.right.find_any(old)?.live(), after));
        }
        // Those that are the same are found once.
        let differ = (0..old.len()).map(|i| old[i].filter(|key| new[i] != Some(*key)));
        let both: Vec<Option<&[u8]>> = new.iter().copied().chain(differ).collect();
        let found = self.before.right.find_any(&both)?.live();
        let count = new.len();
        let place = |i: usize| if both[count + i].is_some() { count + i } else { i };
        let before = |i: usize| old[i].map(|_| place(i));
        Ok((found.at((0..count).map(before)), found.at((0..count).map(Some))))
    }

    /// The right table after the step.
    fn after(&self) -> Tables {
        let mut right = self.before.right.clone();
        right.runs.extend(self.step.right.runs.iter().cloned());
        Tables { right, ..Tables::default() }
    }

    /// The ranges of changed right rows, without those that stayed what they were.
    fn subscribers(&self, rows: BlockRows) -> Result<Subscribers> {
        let layout = &self.layout;
        let BlockRows { block, from, to } = rows;
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
    fn of_subscribers(
        &self,
        stretch: &Stretch,
        rows: Range<usize>,
        of: &Subscribers,
    ) -> Result<Option<RecordBatch>> {
        let is_outer = self.layout.spec.how == How::Left;
        let mut places: Vec<usize> = rows.collect();
        if self.step.place.rows() > 0 {
            let mut keys = Vec::with_capacity(places.len());
            for i in &places {
                let key = stretch.picked.key(*i).unwrap_or_default();
                keys.push(key.get(self.layout.foreign_len(key)?..));
            }
            let changed = self.step.place.find_any(&keys)?;
            let mut i = 0..;
            places.retain(|_| i.next().is_some_and(|i| !changed.is_found(i)));
        }
        let left = stretch.picked.at(places.iter().map(|i| Some(*i)));
        let pairs = |right: &Picked| {
            let of = |i: &usize| stretch.prefixes[*i] as usize;
            let right = right.at(places.iter().map(|i| Some(of(i))));
            let is_there = (0..places.len()).map(|i| is_outer || right.is_live(i)).collect();
            Pairs { left: left.clone(), right, is_there }
        };
        // Right rows that stayed the same have no ranges, so all of these differ.
        emit(&self.layout, &pairs(&of.old), &pairs(&of.new), |_| true)
    }
}

/// The rows of primary keys and foreign keys.
fn left_of(left: &View, keys: &[&[u8]], foreign: &[Option<&[u8]>]) -> Result<Picked> {
    let there: Vec<usize> = (0..keys.len()).filter(|i| foreign[*i].is_some()).collect();
    let whole = collect(there.iter().map(|i| [foreign[*i].unwrap_or_default(), keys[*i]]))?;
    let mut probes: Vec<Option<&[u8]>> = vec![None; keys.len()];
    there.iter().enumerate().for_each(|(n, i)| probes[*i] = Some(whole.value(n)));
    Ok(left.find_any(&probes)?.live())
}

/// Which right rows changed as far as the result shows. To a left join, a right row that is not there
/// is the same as one whose columns are all null.
fn changed(layout: &Layout, old: &Picked, new: &Picked) -> Result<Vec<usize>> {
    let came = |i: &usize| !old.is_live(*i) && new.is_live(*i);
    let went = |i: &usize| old.is_live(*i) && !new.is_live(*i);
    let stayed = |i: &usize| old.is_live(*i) && new.is_live(*i);
    let all = || 0..old.len();
    let places = |of: &dyn Fn(&usize) -> bool| all().filter(of).collect::<Vec<usize>>();
    let (came, went, stayed) = (places(&came), places(&went), places(&stayed));
    let at = |picked: &Picked, places: &[usize]| picked.at(places.iter().map(|i| Some(*i)));
    let columns = || layout.columns.iter().filter(|column| column.side == Side::Right);
    let mut is_same = vec![true; old.len()];
    let equal = equal(layout, &at(old, &stayed), &at(new, &stayed), columns())?;
    stayed.iter().zip(equal.iter()).for_each(|(i, equal)| is_same[*i] = equal);
    for (places, picked) in [(&came, new), (&went, old)] {
        let is_null = match layout.spec.how {
            How::Left => all_null(layout, &at(picked, places), columns())?,
            How::Inner => BooleanBuffer::new_unset(places.len()),
        };
        places.iter().zip(is_null.iter()).for_each(|(i, null)| is_same[*i] = null);
    }
    Ok(all().filter(|i| !is_same[*i]).collect())
}

/// Which of two right rows, both there, show the same.
fn equal<'a>(
    layout: &Layout,
    old: &Picked,
    new: &Picked,
    columns: impl Iterator<Item = &'a OutColumn>,
) -> Result<BooleanBuffer> {
    let mut equal = BooleanBuffer::new_set(old.len());
    for column in columns {
        if !equal.has_true() {
            break;
        }
        let place = layout.first(Side::Right) + column.place;
        let ty = column.field.data_type();
        equal = &equal & &super::same::same(&old.column(place, ty)?, &new.column(place, ty)?)?;
    }
    Ok(equal)
}

/// Which right rows show nothing but nulls.
fn all_null<'a>(
    layout: &Layout,
    rows: &Picked,
    columns: impl Iterator<Item = &'a OutColumn>,
) -> Result<BooleanBuffer> {
    let mut all = BooleanBuffer::new_set(rows.len());
    for column in columns {
        if !all.has_true() {
            break;
        }
        let place = layout.first(Side::Right) + column.place;
        all = match rows.column(place, column.field.data_type())?.logical_nulls() {
            Some(nulls) => &all & &!nulls.inner(),
            None => BooleanBuffer::new_unset(rows.len()),
        };
    }
    Ok(all)
}

/// Rows of a block.
struct BlockRows {
    block: Arc<Block>,
    from: usize,
    to: usize,
}

/// The next rows of a table with at most one run.
fn take(view: &View, at: &mut (usize, usize), rows_max: usize) -> Result<Option<BlockRows>> {
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
        return Ok(Some(BlockRows { block, from, to }));
    }
    Ok(None)
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("batch_rows", &self.batch_rows).finish_non_exhaustive()
    }
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
