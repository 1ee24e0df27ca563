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

use super::cursor::{Held, Slots, SourceCursor, lost};
use super::gather::OutputRows;
use super::wanted::Wanted;
use crate::key::render;
use crate::plan::{Clash, KeyGroups, Merge, SourceRow, Stop};
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

/// Rows of one key: places among the slots instead of sources, rows of batches.
struct PendingGroup {
    row: u64,
    rows: Vec<SourceRow>,
    newest: Vec<u32>,
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
    /// Batches that their sources have used up, of which rows wait for others of their key.
    waiting: Vec<(SourceId, Open)>,
    /// Rows of one key that are pending as one, by how many rows were ordered before them.
    groups: VecDeque<PendingGroup>,
    /// How many version columns there are.
    versions: usize,
    /// Slots whose last row was ordered, and how many rows had been then.
    used_up: VecDeque<(u64, SourceId)>,
    /// Slots without a batch.
    free: Vec<SourceId>,
}

impl Order {
    /// The order of rows of `sources` sources, none of which has a batch yet.
    pub(super) fn new(merge: Merge, sources: usize, versions: usize) -> Self {
        Self {
            groups: VecDeque::new(),
            versions,
            merge,
            runs: Runs::default(),
            pending: Vec::new(),
            next: 0,
            rows: 0,
            ordered: 0,
            open: (0..sources).map(|_| None).collect(),
            waiting: Vec::new(),
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
        if self.merge.is_staged(source, &(open.first_row..u64::MAX)) {
            self.waiting.push((source, open));
        } else {
            self.used_up.push_back((self.ordered, open.slot));
        }
    }

    /// Makes the runs of a step pending: each lies in the batch of its source, but those of rows
    /// that waited, which may begin in one before.
    fn keep_runs(&mut self) -> Result<()> {
        if self.next * 2 > self.pending.len() {
            self.pending.drain(..self.next);
            self.next = 0;
        }
        self.keep_groups()?;
        let rows = self.runs.rows();
        self.ordered += rows;
        self.rows += usize::try_from(rows).unwrap_or(usize::MAX - self.rows);
        self.pending.reserve(self.runs.len());
        let runs = std::mem::take(&mut self.runs);
        let mut rest = runs.as_slice();
        if !self.waiting.is_empty() {
            // What waited leaves first.
            while let Some((run, behind)) = rest.split_first()
                && !self.is_open(run.source, run.start)
            {
                self.keep_split(*run)?;
                rest = behind;
            }
        } else if let (Some(last), Some((run, behind))) =
            (self.pending.last_mut(), rest.split_first())
            && let Some(Some(open)) = self.open.get(run.source.index())
            && last.source == open.slot
            && last.end() + open.first_row == run.start
            && let Some(len) = last.len.checked_add(run.len)
        {
            last.len = len;
            rest = behind;
        }
        let open = &self.open;
        let mut are_held = true;
        self.pending.extend(rest.iter().map(|run| match &open[run.source.index()] {
            Some(open) if run.start >= open.first_row => {
                Run { source: open.slot, start: run.start - open.first_row, ..*run }
            }
            _ => {
                are_held = false;
                *run
            }
        }));
        self.runs = runs;
        self.stop_waiting();
        if are_held { Ok(()) } else { Err(lost()) }
    }

    fn is_open(&self, source: SourceId, row: u64) -> bool {
        self.open[source.index()].as_ref().is_some_and(|open| row >= open.first_row)
    }

    /// The batch that a row is in, and the first row of the next batch of its source.
    fn batch_of(&self, source: SourceId, row: u64) -> Result<(&Open, u64)> {
        let mut end = u64::MAX;
        let batches = self.waiting.iter().filter(|(of, _)| *of == source).map(|(_, batch)| batch);
        // Those of one source follow each other.
        for batch in batches.chain(&self.open[source.index()]).collect::<Vec<_>>().iter().rev() {
            if row >= batch.first_row {
                return Ok((batch, end));
            }
            end = batch.first_row;
        }
        Err(lost())
    }

    /// Makes a run pending that begins in a batch that waits and may end in one behind it.
    fn keep_split(&mut self, run: Run) -> Result<()> {
        let mut start = run.start;
        while start < run.end() {
            let (batch, end) = self.batch_of(run.source, start)?;
            let len = u32::try_from(run.end().min(end) - start).unwrap_or(u32::MAX);
            let run = Run { source: batch.slot, start: start - batch.first_row, len };
            self.pending.push(run);
            start += u64::from(len);
        }
        Ok(())
    }

    /// Makes the groups of a step pending.
    fn keep_groups(&mut self) -> Result<()> {
        let groups = self.merge.take_groups(0);
        for group in groups.iter() {
            let place = |at: &SourceRow| {
                let (batch, _) = self.batch_of(at.source(), at.row())?;
                SourceRow::new(batch.slot, at.row() - batch.first_row).ok_or_else(lost)
            };
            let rows = group.rows.iter().map(place).collect::<Result<Vec<_>>>()?;
            let newest = group.newest.to_vec();
            self.groups.push_back(PendingGroup { row: group.row, rows, newest });
        }
        Ok(())
    }

    /// Gives batches up whose rows waited, once they have left or others stay instead.
    pub(super) fn stop_waiting(&mut self) {
        for (source, batch) in std::mem::take(&mut self.waiting) {
            // A row of the next batches of this source is not a row of this one.
            let next = self.open[source.index()].as_ref().map(|open| open.first_row);
            let rows = batch.first_row..next.unwrap_or(u64::MAX);
            match self.merge.is_staged(source, &rows) {
                true => self.waiting.push((source, batch)),
                false => self.used_up.push_back((self.ordered, batch.slot)),
            }
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
            let groups = self.groups_of(room);
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
            parts.push(OutputRows::new(runs, groups));
        }
        Ok(parts)
    }

    /// The groups of the next `rows` pending rows, from the first of them on.
    fn groups_of(&mut self, rows: usize) -> KeyGroups {
        let first = self.ordered - self.rows as u64;
        let mut groups = KeyGroups::new(self.versions);
        while let Some(group) = self.groups.front()
            && group.row < first + rows as u64
        {
            groups.push(group.row - first, &group.rows, group.newest.iter().copied());
            self.groups.pop_front();
        }
        groups
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

/// The error for rows of one key that are too many.
fn clashing(clash: Clash, cursors: &[SourceCursor], wanted: &Wanted) -> Result<Error> {
    let ((before, first), (after, second)) = (clash.before, clash.after);
    let cursor = &cursors[after.index()];
    let key = cursor.key_of(second, wanted)?;
    let key = render(&wanted.key.shape, &key);
    let error = clash.error(&key, &cursors[before.index()].place(first)).with_row(second);
    Ok(cursor.tell(error))
}
