//! Which rows come next: the merge of keys, and the runs it has ordered.
//!
//! ```text
//! keys of open batches ─▶ Merge ─▶ runs ─▶ pending ─▶ parts of whole batches ─▶ released slots
//! ```
//!
//! # Invariants
//! A slot stays until the last row of its batch has left. Rows are pending in the order of the result.
//!
//! # Cost
//! See the module; a run costs the same whatever its length.
//!
//! # Not here
//! Pulling from sources and copying (`merge`); the comparison of keys (`crate::plan`).

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_schema::ArrowError;

use super::cursor::{Held, SourceCursor};
use super::gather::{OutputRows, Slots};
use super::wanted::Wanted;
use crate::key::render;
use crate::plan::{Clash, Merge, Stop};
use plait_base::{Error, Kind, Result, Run, Runs, SourceId};

/// Rows that one column's copy is worth a task for.
pub(super) const PART_ROWS: usize = 8192;

/// Why ordering stopped.
pub(super) enum Next {
    Enough,
    /// Nothing more can be ordered without a batch of this source.
    Pull(SourceId),
    Done,
}

/// A batch whose keys are being ordered.
struct Open {
    slot: SourceId,
    /// Row of the source that is its first.
    first_row: u64,
}

/// The merge, and the rows that are ordered but not copied.
pub(super) struct Order {
    pub(super) merge: Merge,
    /// Of one step.
    runs: Runs,
    /// Places among the slots instead of sources, rows of batches; those before `next` have left.
    pub(super) pending: Vec<Run>,
    next: usize,
    /// Rows that are pending.
    pub(super) rows: usize,
    /// Rows that were ordered so far.
    ordered: u64,
    /// The batch of each source.
    open: Vec<Option<Open>>,
    /// A batch that its source has used up, of which a row waits for others of its key.
    waiting: Option<(SourceId, Open)>,
    /// Slots whose last row was ordered, and how many rows had been then.
    used_up: VecDeque<(u64, SourceId)>,
    /// Slots without a batch.
    free: Vec<SourceId>,
}

impl Order {
    /// The order of rows of `sources` sources, none of which has a batch yet.
    pub(super) fn new(merge: Merge, sources: usize) -> Self {
        Self {
            merge,
            runs: Runs::default(),
            pending: Vec::new(),
            next: 0,
            rows: 0,
            ordered: 0,
            open: (0..sources).map(|_| None).collect(),
            waiting: None,
            used_up: VecDeque::new(),
            free: Vec::new(),
        }
    }

    /// Puts `held` into a free slot; its rows are the next of `source`.
    pub(super) fn open(
        &mut self,
        source: SourceId,
        held: Arc<Held>,
        slots: &mut Vec<Option<Arc<Held>>>,
    ) {
        let first_row = held.first_row;
        let slot = self.free.pop().unwrap_or_else(|| {
            slots.push(None);
            SourceId(u32::try_from(slots.len() - 1).unwrap_or(u32::MAX))
        });
        slots[slot.index()] = Some(held);
        self.open[source.index()] = Some(Open { slot, first_row });
    }

    /// Orders rows until `goal` of them are pending, a source must be asked, or all is done.
    pub(super) fn go_on(
        &mut self,
        goal: usize,
        cursors: &[SourceCursor],
        wanted: &Wanted,
    ) -> Result<Next> {
        while self.rows < goal {
            if let Some(clash) = self.merge.clash() {
                return Err(clashing(clash, cursors, wanted)?);
            }
            self.runs.clear();
            let step = self.merge.step((goal - self.rows) as u64, None, &mut self.runs);
            if step == Stop::Done && self.merge.clash().is_none() {
                // The last key has all its rows.
                self.merge.flush(&mut self.runs);
            }
            self.keep_runs()?;
            match step {
                // What comes after the last row that was asked for is not looked at.
                _ if self.rows >= goal || self.merge.clash().is_some() => {}
                Stop::Need(source) => {
                    let cursor = &cursors[source.index()];
                    let Some((keys, marks)) = cursor.next_keys(wanted)? else {
                        self.use_up(source);
                        return Ok(Next::Pull(source));
                    };
                    self.merge.supply(source, keys, false).map_err(|found| {
                        let text = |bytes: &[u8]| render(&wanted.key.shape, bytes);
                        cursor.tell(
                            Error::new(Kind::UnsortedSource, "key goes backwards")
                                .with_column(wanted.key.names())
                                .with_row(found.row)
                                .with_got(format!("{} after {}", text(&found.after), text(&found.before)))
                                .with_hint("sort the source first, or check the direction and null placement in sort_by"),
                        )
                    })?;
                    if let Some(marks) = marks {
                        self.merge.mark(source, marks);
                    }
                }
                Stop::Full | Stop::Start(_) | Stop::Bound => {}
                Stop::Done => return Ok(Next::Done),
            }
        }
        Ok(Next::Enough)
    }

    /// All rows of the batch of `source` were looked at.
    fn use_up(&mut self, source: SourceId) {
        let Some(open) = self.open[source.index()].take() else { return };
        let waits = |(of, row): (SourceId, u64)| of == source && row >= open.first_row;
        if self.merge.staged().is_some_and(waits) {
            self.waiting = Some((source, open));
        } else {
            self.used_up.push_back((self.ordered, open.slot));
        }
    }

    /// Makes the runs of a step pending: each lies in the batch of its source, but that of the row
    /// that waited, which may begin in the one before.
    fn keep_runs(&mut self) -> Result<()> {
        if self.next * 2 > self.pending.len() {
            self.pending.drain(..self.next);
            self.next = 0;
        }
        let rows = self.runs.rows();
        self.ordered += rows;
        self.rows += usize::try_from(rows).unwrap_or(usize::MAX - self.rows);
        self.pending.reserve(self.runs.len());
        let mut runs = self.runs.as_slice();
        let mut rest_of_first = None;
        if let (Some((source, batch)), Some((run, rest))) = (&self.waiting, runs.split_first())
            && run.source == *source
            && self.open[source.index()].as_ref().is_none_or(|open| run.start < open.first_row)
        {
            // One row of that batch waited; what follows it is in the batch that is open.
            self.pending.push(Run {
                source: batch.slot,
                start: run.start - batch.first_row,
                len: 1,
            });
            rest_of_first =
                (run.len > 1).then(|| Run { start: run.start + 1, len: run.len - 1, ..*run });
            runs = rest;
        } else if let (Some(last), Some((run, rest))) =
            (self.pending.last_mut(), runs.split_first())
            && let Some(Some(open)) = self.open.get(run.source.index())
            && last.source == open.slot
            && last.end() + open.first_row == run.start
            && let Some(len) = last.len.checked_add(run.len)
        {
            last.len = len;
            runs = rest;
        }
        let open = &self.open;
        let mut are_held = true;
        self.pending.extend(rest_of_first.iter().chain(runs).map(|run| {
            match &open[run.source.index()] {
                Some(open) if run.start >= open.first_row => {
                    Run { source: open.slot, start: run.start - open.first_row, ..*run }
                }
                _ => {
                    are_held = false;
                    *run
                }
            }
        }));
        self.stop_waiting();
        if are_held { Ok(()) } else { Err(lost()) }
    }

    /// Gives the batch up whose row waited, once it has left or another stays instead.
    pub(super) fn stop_waiting(&mut self) {
        let Some((source, open)) = &self.waiting else { return };
        // A row of the next batches of this source is not a row of this one.
        let next = self.open[source.index()].as_ref().map(|open| open.first_row);
        let waits = |(of, row): (SourceId, u64)| {
            of == *source && row >= open.first_row && next.is_none_or(|next| row < next)
        };
        if !self.merge.staged().is_some_and(waits) {
            self.used_up.push_back((self.ordered, open.slot));
            self.waiting = None;
        }
    }

    /// Takes the next `rows` pending rows, in parts of whole batches.
    pub(super) fn parts(
        &mut self,
        rows: usize,
        batch_rows: usize,
    ) -> Result<Vec<OutputRows>, ArrowError> {
        let part_rows = (PART_ROWS / batch_rows).max(1) * batch_rows;
        let mut parts = Vec::with_capacity(rows.div_ceil(part_rows));
        let mut left = rows;
        while left > 0 {
            let mut room = part_rows.min(left);
            left -= room;
            self.rows -= room;
            let first = self.next;
            let mut runs = Vec::new();
            while room > 0 {
                let Some(run) = self.pending.get_mut(self.next) else {
                    return Err(lost().into_arrow());
                };
                if run.len as usize <= room {
                    room -= run.len as usize;
                    self.next += 1;
                    continue;
                }
                // The rest of the run is for the next part.
                let len = u32::try_from(room).unwrap_or(run.len);
                let head = Run { len, ..*run };
                (run.start, run.len) = (run.start + u64::from(len), run.len - len);
                runs.reserve_exact(self.next - first + 1);
                runs.extend_from_slice(&self.pending[first..self.next]);
                runs.push(head);
                room = 0;
            }
            if runs.is_empty() {
                runs = self.pending[first..self.next].to_vec();
            }
            parts.push(OutputRows::new(runs));
        }
        Ok(parts)
    }

    /// Lets the batches go of which no row is pending or to come.
    pub(super) fn release(&mut self, slots: &mut Slots) {
        let left = self.ordered - self.rows as u64;
        while let Some((at, slot)) = self.used_up.front().copied()
            && at <= left
        {
            self.used_up.pop_front();
            slots[slot.index()] = None;
            self.free.push(slot);
        }
    }
}

pub(super) fn lost() -> Error {
    Error::new(Kind::Internal, "a row that was ordered is not held")
}

/// The error for two rows of one key.
fn clashing(clash: Clash, cursors: &[SourceCursor], wanted: &Wanted) -> Result<Error> {
    let ((before, first), (after, second)) = (clash.before, clash.after);
    let cursor = &cursors[after.index()];
    let key = cursor.key_of(second, wanted)?;
    let error = Error::new(Kind::DuplicateKey, "two rows have the same key")
        .with_row(second)
        .with_got(format!(
            "{} as in {}",
            render(&wanted.key.shape, &key),
            cursors[before.index()].place(first)
        ))
        .with_hint("on_duplicate=\"keep_last\", \"keep_first\" or \"keep_all\" says what to do");
    Ok(cursor.tell(error))
}
