//! Rows of several batches, in any order, as one array a column.
//!
//! ```text
//! runs     0:40+2   1:7+1   0:42+3        batch, first row, rows
//! few long runs     copied run by run     many short ones    copied by two selectors a row
//! one run           a slice, not copied
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

use super::cursor::Held;
use plait_base::{Result, Run, SourceId};
use plait_interleave::Interleave;

/// Runs of this many rows on average are copied run by run.
const RUN_ROWS_MIN: usize = 16;

/// The batches that rows may come from: a place each, free once its last row has left.
pub(super) type Slots = [Option<Arc<Held>>];

/// Some rows of the result, before they are copied.
pub(super) struct OutputRows {
    /// Places among the slots instead of sources, rows of batches.
    runs: Vec<Run>,
    rows: usize,
    lowered: OnceLock<Lowered>,
}

/// The same, for copying.
struct Lowered {
    batches: Vec<Arc<Held>>,
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
    pub(super) fn new(runs: Vec<Run>) -> Self {
        let rows = runs.iter().map(|run| run.len as usize).sum();
        Self { runs, rows, lowered: OnceLock::new() }
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
        halves.map(Self::new)
    }

    /// Column `column` of the rows.
    ///
    /// # Errors
    /// `Unsupported` when the keys of a dictionary, run ends or 32-bit offsets are too narrow for all
    /// rows.
    pub(super) fn column(&self, slots: &Slots, column: usize) -> Result<ArrayRef> {
        let lowered = self.lowered.get_or_init(|| lower(&self.runs, self.rows, slots));
        let values: Vec<ArrayRef> =
            lowered.batches.iter().map(|batch| Arc::clone(&batch.columns[column])).collect();
        gather(values, &lowered.how)
    }
}

/// Finds the batches of `runs`, and takes short runs apart into rows.
fn lower(runs: &[Run], len: usize, slots: &Slots) -> Lowered {
    const NONE: u32 = u32::MAX;
    let mut places = vec![NONE; slots.len()];
    let mut batches: Vec<Arc<Held>> = Vec::new();
    let mut place = |slot: SourceId| {
        let found = places[slot.index()];
        if found != NONE {
            return found;
        }
        let next = u32::try_from(batches.len()).unwrap_or(NONE);
        // A slot is free only when no row of it is to leave.
        batches.extend(slots[slot.index()].clone());
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
