//! The merge itself: order a stretch of rows, copy it while the next one is ordered.
//!
//! ```text
//! order ─ pulls only for the rows that were asked for ─▶ pending runs ─▶ parts of whole batches
//! at once:   order on, without pulling │ part 0 column 0 │ part 0 column 1 │ … │ keys ahead
//! ```
//!
//! # Invariants
//! Every batch has `batch_rows` rows but the last, those that would be too large, and those whose
//! dictionaries would not hold their values: these come in halves. An error comes after the batches that were whole before it; then
//! nothing does, and all sources are let go.
//!
//! # Cost
//! See the module; a stretch beyond one batch is only what the batches in flight allow.
//!
//! # Not here
//! Sources (`cursor`), copying (`gather`), which rows come next (`order`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};

use super::cursor::{Held, Slots, SourceCursor, lost};
use super::gather::OutputRows;
use super::order::{Next, Order, PART_ROWS};
use super::schema::{check_keys, unite};
use super::wanted::Wanted;
use super::{Alone, MergeStreamOptions, Source, Workers};
use crate::key::{KeyShape, encode_arrow};
use crate::plan::{DropRule, Dropped, Merge, OrderCheck};
use plait_base::{Error, Kind, Result, SourceId};

/// Rows that are ordered and copied at once, at most, unless a batch has more.
const STRETCH_ROWS: usize = 65_536;

/// Bytes of them, likewise.
pub(super) const STRETCH_BYTES: usize = 16 << 20;

/// Most rows of one key that are combined: their batches wait in memory.
const GROUP_ROWS_MAX: usize = 4 << 20;

/// Values (rows times columns) below which a second worker costs more than it does.
const WORK_VALUES_MIN: usize = 16_384;

/// k sorted sources as one sorted stream.
///
/// ```
/// use std::sync::Arc;
///
/// use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchIterator};
/// use arrow_array::{cast::AsArray, types::Int64Type};
/// use plait_core::Error;
/// use plait_core::key::SortOrder;
/// use plait_core::plan::DropOptions;
/// use plait_core::stream::{Alone, MergeStream, MergeStreamOptions, Source, Unite};
///
/// let source = |values: Vec<i64>| {
///     let values: ArrayRef = Arc::new(Int64Array::from(values));
///     let batch = RecordBatch::try_from_iter([("k", values)]).map_err(Error::from_arrow)?;
///     let schema = batch.schema();
///     let reader = Box::new(RecordBatchIterator::new([Ok(batch)], schema));
///     Ok::<_, Error>(Source { reader, path: None })
/// };
/// let options = MergeStreamOptions {
///     order: SortOrder::try_parse("k")?,
///     batch_rows: 1_000,
///     assume_sorted: false,
///     unite: Unite::default(),
///     drops: DropOptions::default(),
/// };
/// let sources = vec![source(vec![1, 4, 9])?, source(vec![2, 3])?];
/// let mut merge = MergeStream::try_new(sources, &options, Box::new(Alone))?;
/// let batch = merge.next().transpose().map_err(Error::from_arrow)?;
/// let keys = batch.map(|batch| batch["k"].as_primitive::<Int64Type>().values().to_vec());
/// assert_eq!(keys, Some(vec![1, 2, 3, 4, 9]));
/// # Ok::<(), Error>(())
/// ```
pub struct MergeStream {
    /// Of the columns that are given out, which are the first.
    schema: SchemaRef,
    wanted: Wanted,
    cursors: Vec<SourceCursor>,
    /// Batches of which rows may still leave.
    slots: Vec<Option<Arc<Held>>>,
    order: Order,
    /// Rows of the batches to come: as many as were asked for, or as fit `batch_bytes`.
    batch_rows: usize,
    batch_rows_max: usize,
    batch_bytes: usize,
    workers: Box<dyn Workers>,
    ready: VecDeque<RecordBatch>,
    failed: Option<ArrowError>,
    state: State,
    tally: Tally,
}

/// Rows of a merge that did not stay.
#[derive(Clone, Default)]
pub struct Tally(Arc<Mutex<Dropped>>);

impl Tally {
    /// How many, so far.
    #[must_use]
    pub fn dropped(&self) -> Dropped {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Going,
    /// All rows are ordered.
    Ordered,
    /// All batches were given, or an error.
    Over,
}

impl MergeStream {
    /// The merge of `sources`; nothing is read yet.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] without sources or for batches without rows;
    /// [`Kind::SchemaConflict`], [`Kind::DuplicateField`], [`Kind::UnknownColumn`],
    /// [`Kind::UnsupportedKey`] when schemas and order do not go together.
    pub fn try_new(
        sources: Vec<Source>,
        options: &MergeStreamOptions,
        workers: Box<dyn Workers>,
    ) -> Result<Self> {
        if sources.is_empty() {
            return Err(Error::new(Kind::InvalidArgument, "there are no sources")
                .with_hint("give at least one"));
        }
        if options.batch_rows == 0 {
            return Err(Error::new(Kind::InvalidArgument, "a batch has at least one row")
                .with_got("`batch_rows` 0"));
        }
        let schemas: Vec<SchemaRef> = sources.iter().map(|s| s.reader.schema()).collect();
        let united = unite(&schemas, options.unite)?;
        let wanted = Wanted::find(options, &united)?;
        let (schema, adapters) = (united.schema, united.adapters);
        if !options.unite.missing_keys {
            let lacks = |i: usize, column| {
                adapters.get(i).is_some_and(|a| a.lacks(wanted.key.path(column)))
            };
            let name = |i: usize| sources.get(i).and_then(|source| source.path.clone());
            check_keys(&options.order, sources.len(), lacks, name)?;
        }
        let check = match options.assume_sorted {
            true => OrderCheck::Skip,
            false => OrderCheck::Full,
        };
        let mut merge = Merge::new(&wanted.key.shape, sources.len(), check);
        if let Some(drops) = &wanted.drops {
            let rule = DropRule { group_rows_max: GROUP_ROWS_MAX, ..drops.rule.clone() };
            merge.drop_rows(rule, 0);
        }
        let cursors = sources.into_iter().zip(adapters).enumerate();
        let cursors: Vec<SourceCursor> =
            cursors.map(|(i, (s, adapter))| SourceCursor::new(i, s, adapter)).collect();
        let versions = wanted.drops.as_ref().map_or(0, |drops| drops.rule.versions.len());
        let order = Order::new(merge, cursors.len(), versions);
        Ok(Self {
            schema,
            wanted,
            cursors,
            slots: Vec::new(),
            order,
            batch_rows: options.batch_rows,
            batch_rows_max: options.batch_rows,
            batch_bytes: usize::MAX,
            workers,
            ready: VecDeque::new(),
            failed: None,
            state: State::Going,
            tally: Tally::default(),
        })
    }

    /// The key that begins with `leading`, values of the first sort columns in arrays of one row.
    ///
    /// # Errors
    /// Values of other types than the columns'.
    pub fn first_key(&self, leading: &[ArrayRef]) -> Result<Vec<u8>> {
        let columns = self.wanted.key.shape.plain().get(..leading.len()).unwrap_or_default();
        if columns.is_empty() {
            return Ok(Vec::new());
        }
        let shape = KeyShape::try_new(columns.to_vec())?;
        Ok(encode_arrow(&shape, leading)?.to_bytes(&shape, 0))
    }

    /// Says that no key of source `source` comes before `first_key`, unless that is empty: the source
    /// is asked for rows only when that key is next. A source that has rows before it is refused as
    /// not sorted.
    ///
    /// # Errors
    /// More sources than there may be.
    pub fn begin_from(&mut self, source: usize, first_key: &[u8]) -> Result<()> {
        if !first_key.is_empty() && source < self.cursors.len() {
            let id = u32::try_from(source).map_err(|_| lost())?;
            self.order.merge.announce(SourceId(id), first_key);
        }
        Ok(())
    }

    /// Gives batches fewer rows where rows are so wide that a batch would have more than `bytes`
    /// bytes, about: rows wait in memory until there are enough for a batch.
    pub fn bound_batches(&mut self, bytes: usize) {
        self.batch_bytes = bytes;
    }

    /// Gives out the first `columns` columns only: others are there for the order.
    ///
    /// # Errors
    /// Fewer columns than that.
    pub fn give_first(&mut self, columns: usize) -> Result<()> {
        let first: Vec<usize> = (0..columns).collect();
        self.schema = Arc::new(self.schema.project(&first).map_err(Error::from_arrow)?);
        Ok(())
    }

    /// Where rows that do not stay are counted, also after the merge is gone. The counts are those of
    /// the rows that were ordered, which are ahead of those that were given until the end.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally.clone()
    }

    /// Makes the next batches ready, or finds that there are none.
    fn fill(&mut self) -> Result<(), ArrowError> {
        self.workers.check()?;
        loop {
            self.batch_rows = self.batch_rows_max.min(self.batch_bytes / self.row_bytes()).max(1);
            let next = self.order.go_on(self.batch_rows, &self.cursors, &self.wanted);
            match next.map_err(Error::into_arrow)? {
                Next::Enough => break,
                Next::Done => {
                    self.state = State::Ordered;
                    break;
                }
                Next::Pull(source) => {
                    self.workers.check()?;
                    // Of one key with many rows, none leaves for long.
                    self.order.release(&mut self.slots);
                    let cursor = self.cursors.get_mut(source.index());
                    match cursor.map_or(Ok(None), |cursor| cursor.pull(&self.wanted))? {
                        Some(held) => self.order.open(source, held, &mut self.slots),
                        None => self.order.merge.end(source),
                    }
                }
            }
        }
        if self.state == State::Going {
            // The next rows are ordered while these are copied.
            self.order_on(self.stretch_rows().min(PART_ROWS / self.batch_rows * self.batch_rows));
        }
        self.copy()
    }

    /// Rows that are ordered ahead, as far as no source is asked.
    fn stretch_rows(&self) -> usize {
        let rows = (STRETCH_BYTES / self.row_bytes()).min(STRETCH_ROWS);
        (rows / self.batch_rows).max(1) * self.batch_rows
    }

    /// Bytes of a row, about: of the source with the widest rows.
    fn row_bytes(&self) -> usize {
        self.cursors.iter().map(|cursor| cursor.row_bytes).max().unwrap_or(0).max(1)
    }

    fn order_on(&mut self, goal: usize) {
        match self.order.go_on(goal, &self.cursors, &self.wanted) {
            Ok(Next::Done) => self.state = State::Ordered,
            Ok(Next::Enough | Next::Pull(_)) => {}
            Err(e) => self.failed = Some(e.into_arrow()),
        }
    }

    /// Copies the pending rows that fill whole batches, and orders on meanwhile.
    fn copy(&mut self) -> Result<(), ArrowError> {
        let is_last = self.state == State::Ordered;
        let stops = is_last || self.failed.is_some();
        let whole = self.order.rows / self.batch_rows * self.batch_rows;
        let rows = if is_last { self.order.rows } else { whole };
        let parts = self.order.parts(rows, self.batch_rows)?;
        let (goal, columns) = (self.stretch_rows(), self.schema.fields().len());
        let Self { order, cursors, slots, wanted, .. } = self;
        let (cursors, slots, wanted): (&[SourceCursor], &Slots, &Wanted) = (cursors, slots, wanted);
        let ahead = Mutex::new((order, Ok(Next::Enough)));
        let copied: Vec<OnceLock<Result<ArrayRef>>> =
            (0..parts.len() * columns).map(|_| OnceLock::new()).collect();
        let task = |i: usize| {
            if let Some(at) = i.checked_sub(1) {
                if let (Some(to), Some(part)) = (copied.get(at), parts.get(at / columns.max(1))) {
                    // A second value cannot be: each task is done once.
                    let column = at % columns;
                    let _ = to.set(part.column(slots, column, wanted.rules.get(column)));
                } else if let Some(cursor) = cursors.get(at - copied.len()) {
                    cursor.encode_ahead(wanted);
                }
            } else if !stops {
                let mut ahead = ahead.lock().unwrap_or_else(PoisonError::into_inner);
                let next = ahead.0.go_on(goal, cursors, wanted);
                ahead.1 = next;
            }
        };
        let tasks = 1 + copied.len() + if stops { 0 } else { cursors.len() };
        let workers: &dyn Workers =
            if rows * columns < WORK_VALUES_MIN { &Alone } else { &*self.workers };
        workers.run(tasks, &task);
        let (_, next) = ahead.into_inner().unwrap_or_else(PoisonError::into_inner);
        match next {
            Ok(Next::Done) => self.state = State::Ordered,
            Ok(Next::Enough | Next::Pull(_)) => {}
            Err(e) => self.failed = Some(e.into_arrow()),
        }
        let mut copied = copied.into_iter();
        for part in &parts {
            let columns: Option<Result<Vec<ArrayRef>>> =
                copied.by_ref().take(columns).map(OnceLock::into_inner).collect();
            match columns {
                Some(Ok(columns)) => self.give(part.rows(), columns)?,
                Some(Err(e)) if e.kind() == Kind::Unsupported && part.rows() > 1 => {
                    self.copy_in_halves(part)?;
                }
                Some(Err(e)) => return Err(e.into_arrow()),
                None => {
                    return Err(Error::new(Kind::Internal, "a column was not copied").into_arrow());
                }
            }
        }
        self.order.release(&mut self.slots);
        self.count();
        Ok(())
    }

    /// A batch for which the keys of a dictionary, run ends or offsets are too narrow, as two.
    fn copy_in_halves(&mut self, part: &OutputRows) -> Result<(), ArrowError> {
        for half in part.halves() {
            let column = |at: usize| half.column(&self.slots, at, self.wanted.rules.get(at));
            let columns = (0..self.schema.fields().len()).map(column);
            match columns.collect::<Result<Vec<_>>>() {
                Ok(columns) => self.give(half.rows(), columns)?,
                Err(e) if e.kind() == Kind::Unsupported && half.rows() > 1 => {
                    self.copy_in_halves(&half)?;
                }
                Err(e) => return Err(e.into_arrow()),
            }
        }
        Ok(())
    }

    /// Puts a part into the queue, batch by batch.
    fn give(&mut self, rows: usize, columns: Vec<ArrayRef>) -> Result<(), ArrowError> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::clone(&self.schema);
        let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
        let mut start = 0;
        while rows - start > self.batch_rows {
            self.ready.push_back(batch.slice(start, self.batch_rows));
            start += self.batch_rows;
        }
        let rest = if start == 0 { batch } else { batch.slice(start, rows - start) };
        self.ready.push_back(rest);
        Ok(())
    }

    /// What was dropped so far, for all to see.
    fn count(&mut self) {
        *self.tally.0.lock().unwrap_or_else(PoisonError::into_inner) = self.order.merge.dropped();
    }

    fn finish(&mut self) {
        self.count();
        self.state = State::Over;
        self.cursors.clear();
        self.slots.clear();
        self.order.pending.clear();
    }
}

impl Iterator for MergeStream {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Some(Ok(batch));
            }
            if self.state == State::Over {
                return None;
            }
            let failed = match self.failed.take() {
                // Rows that were ordered ahead of it.
                Some(e) if self.order.rows >= self.batch_rows => {
                    self.failed = Some(e);
                    match self.copy() {
                        Ok(()) => continue,
                        Err(e) => Some(e),
                    }
                }
                Some(e) => Some(e),
                None if self.state == State::Ordered && self.order.rows == 0 => None,
                None => match self.fill() {
                    Ok(()) => continue,
                    Err(e) => Some(e),
                },
            };
            self.finish();
            return failed.map(Err);
        }
    }
}

impl RecordBatchReader for MergeStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
