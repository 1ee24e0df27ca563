//! Rows of several batches, in any order, as one array a column.
//!
//! ```text
//! runs     0:40+2   1:7+1   0:42+3        batch, first row, rows
//! few long runs     copied run by run     many short ones    copied by two selectors a row
//! one run           a slice, not copied
//! rows of one key   this column may have the value of another row, or a new one
//! ```
//!
//! # Invariants
//! All arrays of a column have one type. This is the only place that copies rows. The task of the
//! first column resolves the batches; those of the other columns wait for it.
//!
//! # Cost
//! One copy of a value, none where a part lies in one batch; eight bytes a row for selectors.
//!
//! # Not here
//! Which rows (`merge`); the copying itself (`plait_interleave`).

use std::sync::{Arc, OnceLock};

use arrow_array::{ArrayRef, UInt32Array};

use super::cursor::{Slots, lost};
use super::rules::ColumnRule;
use crate::packed_runs::replace;
use crate::plan::KeyGroups;
use plait_base::{Result, Run, SourceId};
use plait_interleave::Interleave;

/// Runs of this many rows on average are copied run by run.
const RUN_ROWS_MIN: usize = 16;

/// Some rows of the result, before they are copied.
pub(super) struct OutputRows {
    /// Places among the slots instead of sources, rows of batches.
    runs: Vec<Run>,
    rows: usize,
    /// Rows of one key that leave as one, likewise.
    groups: KeyGroups,
    lowered: OnceLock<Lowered>,
}

/// The same, for copying.
struct Lowered {
    /// Places among the slots.
    batches: Vec<SourceId>,
    how: CopyBy,
}

enum CopyBy {
    /// Sources are places in `batches`.
    Runs(Vec<Run>),
    Rows {
        batches: ArrayRef,
        rows: ArrayRef,
    },
}

impl OutputRows {
    pub(super) fn new(runs: Vec<Run>, groups: KeyGroups) -> Self {
        let rows = runs.iter().map(|run| run.len as usize).sum();
        Self { runs, rows, groups, lowered: OnceLock::new() }
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// The two halves; the rows are at least two.
    pub(super) fn halves(&self) -> [Self; 2] {
        let mut halves = [Vec::new(), Vec::new()];
        let mut left = u32::try_from(self.rows / 2).unwrap_or(u32::MAX);
        for run in &self.runs {
            let first = left.min(run.len);
            left -= first;
            if first > 0 {
                halves[0].push(Run { len: first, ..*run });
            }
            if first < run.len {
                let (start, len) = (run.start + u64::from(first), run.len - first);
                halves[1].push(Run { start, len, ..*run });
            }
        }
        let middle = (self.rows / 2) as u64;
        let [first, second] = halves;
        let [before, behind] = self.groups.split(middle);
        [Self::new(first, before), Self::new(second, behind)]
    }

    /// Column `column` of the rows; `rule` says which value rows of one key have.
    ///
    /// # Errors
    /// `Unsupported` when the keys of a dictionary, run ends or 32-bit offsets are too narrow for all
    /// rows; `InvalidArgument` for a sum that does not fit its type.
    pub(super) fn column(
        &self,
        slots: &Slots,
        column: usize,
        rule: Option<&ColumnRule>,
    ) -> Result<ArrayRef> {
        let values = |slot: &SourceId| {
            let held = slots.get(slot.index()).and_then(Option::as_ref).ok_or_else(lost)?;
            held.columns.get(column).cloned().ok_or_else(lost)
        };
        let Some(rule) = rule.filter(|rule| !rule.is_last() && !self.groups.is_empty()) else {
            let lowered = self.lowered.get_or_init(|| lower(&self.runs, self.rows, slots));
            let values = lowered.batches.iter().map(values).collect::<Result<_>>()?;
            return gather(values, &lowered.how);
        };
        let (replaced, new) = rule.combine(&self.groups, slots, column)?;
        let runs = replace(self.runs.iter().copied(), replaced.into_iter().map(Ok), |_| Ok(()))?;
        let lowered = lower(runs.as_slice(), self.rows, slots);
        let values = |slot: &SourceId| match (slot.index() == slots.len(), &new) {
            (true, Some(new)) => Ok(Arc::clone(new)),
            _ => values(slot),
        };
        let values = lowered.batches.iter().map(values).collect::<Result<_>>()?;
        gather(values, &lowered.how)
    }
}

/// Finds the batches of `runs`, and takes short runs apart into rows.
fn lower(runs: &[Run], len: usize, slots: &Slots) -> Lowered {
    const NONE: u32 = u32::MAX;
    // Behind the slots is the place of values that are in no batch.
    let mut places = vec![NONE; slots.len() + 1];
    let mut batches: Vec<SourceId> = Vec::new();
    let mut place = |slot: SourceId| {
        let found = places[slot.index()];
        if found != NONE {
            return found;
        }
        let next = u32::try_from(batches.len()).unwrap_or(NONE);
        batches.push(slot);
        places[slot.index()] = next;
        next
    };
    let is_narrow = slots.iter().flatten().all(|held| u32::try_from(held.rows).is_ok());
    if len >= runs.len() * RUN_ROWS_MIN || !is_narrow {
        let local = |run: &Run| Run { source: SourceId(place(run.source)), ..*run };
        let runs = runs.iter().map(local).collect();
        return Lowered { batches, how: CopyBy::Runs(runs) };
    }
    let (mut of, mut rows) = (Vec::with_capacity(len), Vec::with_capacity(len));
    for run in runs {
        let place = place(run.source);
        let start = u32::try_from(run.start).unwrap_or(NONE);
        if run.len == 1 {
            of.push(place);
            rows.push(start);
        } else {
            of.resize(of.len() + run.len as usize, place);
            rows.extend(start..start.saturating_add(run.len));
        }
    }
    let array = |values: Vec<u32>| -> ArrayRef { Arc::new(UInt32Array::from(values)) };
    let how = CopyBy::Rows { batches: array(of), rows: array(rows) };
    Lowered { batches, how }
}

/// The rows that `how` names of `values`, as one array.
fn gather(values: Vec<ArrayRef>, how: &CopyBy) -> Result<ArrayRef> {
    match how {
        CopyBy::Runs(runs) if runs.len() == 1 => {
            let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
            Ok(values[runs[0].source.index()].slice(at(runs[0].start), runs[0].len as usize))
        }
        CopyBy::Runs(runs) => plait_interleave::gather(&values, runs),
        CopyBy::Rows { batches, rows } => {
            Interleave::try_new(values, Arc::clone(batches), Arc::clone(rows))?.to_arrow()
        }
    }
}
