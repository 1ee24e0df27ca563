//! The merge itself: order a stretch of rows, copy it while the next one is ordered.
//!
//! ```text
//! order ─ pulls only for the rows that were asked for ─▶ pending runs ─▶ parts of whole batches
//! at once:   order on, without pulling │ part 0 column 0 │ part 0 column 1 │ … │ keys ahead
//! ```
//!
//! # Invariants
//! Every batch has `batch_rows` rows but the last, and those whose dictionaries would not hold their
//! values: these come in halves. An error comes after the batches that were whole before it; then
//! nothing does, and all sources are let go.
//!
//! # Cost
//! See the module; a stretch beyond one batch is only what the batches in flight allow.
//!
//! # Not here
//! Sources (`lane`), copying (`gather`), who is first (`crate::plan`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};

use super::gather::{Part, Pick};
use super::key::KeyColumns;
use super::lane::Lane;
use super::schema::unite;
use super::{Alone, Options, Source, Workers};
use crate::key::render;
use crate::plan::{Merge, Step};
use crate::run::{Run, Runs};
use crate::{Error, Kind, Result};

/// Rows that are ordered and copied at once, at most, unless a batch has more.
const STRETCH_ROWS: usize = 65_536;

/// Bytes of them, likewise.
pub(super) const STRETCH_BYTES: usize = 16 << 20;

/// Rows that one column's copy is worth a task for.
const PART_ROWS: usize = 8192;

/// Values (rows times columns) below which a second worker costs more than it does.
const WORK_VALUES_MIN: usize = 16_384;

/// k sorted sources as one sorted stream.
pub struct MergeStream {
    schema: SchemaRef,
    key: KeyColumns,
    lanes: Vec<Lane>,
    order: Order,
    batch_rows: usize,
    workers: Box<dyn Workers>,
    ready: VecDeque<RecordBatch>,
    failed: Option<ArrowError>,
    state: State,
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
        options: &Options,
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
        let (schema, adapters) = unite(&schemas, options.unite)?;
        let key = KeyColumns::try_new(&options.order, &schema)?;
        let merge = Merge::new(&key.shape, sources.len(), !options.assume_sorted);
        let lanes = sources.into_iter().zip(adapters).enumerate();
        let lanes: Vec<Lane> = lanes.map(|(i, (s, adapter))| Lane::new(i, s, adapter)).collect();
        let order = Order {
            merge,
            runs: Runs::default(),
            pending: VecDeque::new(),
            rows: 0,
            taken: vec![0; lanes.len()],
        };
        Ok(Self {
            schema,
            key,
            lanes,
            order,
            batch_rows: options.batch_rows,
            workers,
            ready: VecDeque::new(),
            failed: None,
            state: State::Going,
        })
    }

    /// Makes the next batches ready, or finds that there are none.
    fn fill(&mut self) -> Result<(), ArrowError> {
        self.workers.check()?;
        loop {
            let next = self.order.go_on(self.batch_rows, &self.lanes, &self.key);
            match next.map_err(Error::into_arrow)? {
                Next::Enough => break,
                Next::Done => {
                    self.state = State::Ordered;
                    break;
                }
                Next::Pull(source) => {
                    self.workers.check()?;
                    let has_more = match self.lanes.get_mut(source.index()) {
                        Some(lane) => lane.pull(&self.key)?,
                        None => false,
                    };
                    if !has_more {
                        self.order.merge.end(source);
                    }
                }
            }
        }
        if self.state == State::Going {
            self.order_on();
        }
        self.copy()
    }

    /// Rows that are ordered ahead, as far as no source is asked.
    fn stretch_rows(&self) -> usize {
        let bytes = self.lanes.iter().map(|lane| lane.row_bytes).max().unwrap_or(0).max(1);
        let rows = (STRETCH_BYTES / bytes).min(STRETCH_ROWS);
        (rows / self.batch_rows).max(1) * self.batch_rows
    }

    fn order_on(&mut self) {
        let goal = self.stretch_rows();
        match self.order.go_on(goal, &self.lanes, &self.key) {
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
        let parts = self.order.parts(rows, self.batch_rows, &self.lanes)?;
        let (goal, columns) = (self.stretch_rows(), self.schema.fields().len());
        let Self { order, lanes, key, .. } = self;
        let (lanes, key): (&[Lane], &KeyColumns) = (lanes, key);
        let ahead = Mutex::new((order, Ok(Next::Enough)));
        let copied: Vec<OnceLock<Result<ArrayRef, ArrowError>>> =
            (0..parts.len() * columns).map(|_| OnceLock::new()).collect();
        let task = |i: usize| {
            if let Some(at) = i.checked_sub(1) {
                if let (Some(to), Some(part)) = (copied.get(at), parts.get(at / columns.max(1))) {
                    // A second value cannot be: each task is done once.
                    let _ = to.set(part.column(at % columns));
                } else if let Some(lane) = lanes.get(at - copied.len()) {
                    lane.encode_ahead(key);
                }
            } else if !stops {
                let mut ahead = ahead.lock().unwrap_or_else(PoisonError::into_inner);
                let next = ahead.0.go_on(goal, lanes, key);
                ahead.1 = next;
            }
        };
        let tasks = 1 + copied.len() + if stops { 0 } else { lanes.len() };
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
            let columns: Option<Result<Vec<ArrayRef>, ArrowError>> =
                copied.by_ref().take(columns).map(OnceLock::into_inner).collect();
            match columns {
                Some(Ok(columns)) => self.give(part.rows(), columns)?,
                Some(Err(ArrowError::DictionaryKeyOverflowError)) if part.rows() > 1 => {
                    self.copy_in_halves(part)?;
                }
                Some(Err(e)) => return Err(e),
                None => {
                    return Err(Error::new(Kind::Internal, "a column was not copied").into_arrow());
                }
            }
        }
        self.order.release(&mut self.lanes);
        Ok(())
    }

    /// A batch for the values of which a dictionary has too few keys, as two.
    fn copy_in_halves(&mut self, part: &Part) -> Result<(), ArrowError> {
        for half in part.halves() {
            let columns = (0..self.schema.fields().len()).map(|column| half.column(column));
            match columns.collect::<Result<Vec<_>, _>>() {
                Ok(columns) => self.give(half.rows(), columns)?,
                Err(ArrowError::DictionaryKeyOverflowError) if half.rows() > 1 => {
                    self.copy_in_halves(&half)?;
                }
                Err(e) => return Err(e),
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

    fn finish(&mut self) {
        self.state = State::Over;
        self.lanes.clear();
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

/// Why ordering stopped.
enum Next {
    Enough,
    /// Nothing more can be ordered without a batch of this source.
    Pull(crate::run::SourceId),
    Done,
}

/// The merge, and the rows that are ordered but not copied.
struct Order {
    merge: Merge,
    runs: Runs,
    pending: VecDeque<Run>,
    rows: usize,
    /// Rows of each source that were ordered.
    taken: Vec<u64>,
}

impl Order {
    /// Orders rows until `goal` of them are pending, a source must be asked, or all is done.
    fn go_on(&mut self, goal: usize, lanes: &[Lane], key: &KeyColumns) -> Result<Next> {
        while self.rows < goal {
            self.runs.clear();
            let step = self.merge.step((goal - self.rows) as u64, None, &mut self.runs);
            for run in self.runs.as_slice() {
                self.taken[run.source.index()] = run.end();
            }
            self.pending.extend(self.runs.as_slice());
            self.rows += usize::try_from(self.runs.rows()).unwrap_or(usize::MAX - self.rows);
            match step {
                // What comes after the last row that was asked for is not looked at.
                _ if self.rows >= goal => {}
                Step::Need(source) => {
                    let lane = &lanes[source.index()];
                    let Some(keys) = lane.next_keys(key)? else { return Ok(Next::Pull(source)) };
                    self.merge.supply(source, keys, false).map_err(|found| {
                        let text = |bytes: &[u8]| render(&key.shape, bytes);
                        lane.tell(
                            Error::new(Kind::UnsortedSource, "key goes backwards")
                                .with_column(key.names())
                                .with_row(found.row)
                                .with_got(format!("{} after {}", text(&found.after), text(&found.before)))
                                .with_hint("sort the source first, check the direction and null placement in sort_by, or pass assume_sorted=True if its order is guaranteed elsewhere"),
                        )
                    })?;
                }
                Step::Full | Step::Start(_) | Step::Bound => {}
                Step::Done => return Ok(Next::Done),
            }
        }
        Ok(Next::Enough)
    }

    /// Takes the next `rows` pending rows, in parts of whole batches.
    fn parts(
        &mut self,
        rows: usize,
        batch_rows: usize,
        lanes: &[Lane],
    ) -> Result<Vec<Part>, ArrowError> {
        let part_rows = (PART_ROWS / batch_rows).max(1) * batch_rows;
        let mut parts = Vec::with_capacity(rows.div_ceil(part_rows));
        let mut left = rows;
        // The batch of each source that the last run was in, and its place in the part.
        let mut at: Vec<(usize, Option<usize>)> = vec![(0, None); lanes.len()];
        while left > 0 {
            let mut part = Part::default();
            at.iter_mut().for_each(|(_, place)| *place = None);
            let mut room = part_rows.min(left);
            left -= room;
            while room > 0 {
                let Some(run) = self.pending.front_mut() else { return Err(lost()) };
                let lane = run.source.index();
                let (held_at, place) = &mut at[lane];
                let held = loop {
                    match lanes[lane].held.get(*held_at) {
                        Some(held) if held.end() > run.start => break held,
                        Some(_) => (*held_at, *place) = (*held_at + 1, None),
                        None => return Err(lost()),
                    }
                };
                let batch = *place.get_or_insert_with(|| {
                    part.batches.push(Arc::clone(held));
                    part.batches.len() - 1
                });
                let start = usize::try_from(run.start - held.first_row).map_err(|_| lost())?;
                let len = room.min(run.len as usize).min(held.rows - start);
                part.push(Pick { batch, start, len });
                room -= len;
                self.rows -= len;
                if len == run.len as usize {
                    self.pending.pop_front();
                } else {
                    run.start += len as u64;
                    run.len -= u32::try_from(len).unwrap_or(run.len);
                }
            }
            parts.push(part);
        }
        Ok(parts)
    }

    /// Lets the batches go of which no row is pending or to come.
    fn release(&self, lanes: &mut [Lane]) {
        let mut low = self.taken.clone();
        for run in &self.pending {
            let low = &mut low[run.source.index()];
            *low = run.start.min(*low);
        }
        for (lane, low) in lanes.iter_mut().zip(low) {
            lane.release(low);
        }
    }
}

fn lost() -> ArrowError {
    Error::new(Kind::Internal, "a row that was ordered is not held").into_arrow()
}
