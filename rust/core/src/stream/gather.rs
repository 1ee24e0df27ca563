//! Rows of several batches, in any order, as one array a column.
//!
//! ```text
//! runs     0:40+2   1:7+1   0:42+3        batch, first row, rows
//! few long runs     copied run by run     many short ones    by index, told row by row once
//! one run           a slice, not copied
//! ```
//!
//! # Invariants
//! All arrays of a column have one type. This is the only place that copies rows. Whoever asks for the
//! first column finds out which batches there are; the others wait for it.
//!
//! # Cost
//! One copy of a value; nothing where a part lies in one batch. Eight bytes a row besides, and 16 more
//! where there are dictionaries or nested types.
//!
//! # Not here
//! Which rows (`merge`); the copying of numbers and texts (`plait_interleave`).

use std::sync::{Arc, OnceLock};

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{Array, ArrayRef, UInt32Array, make_array};
use arrow_data::transform::MutableArrayData;
use arrow_schema::{ArrowError, DataType};

use super::cursor::Held;
use plait_base::{Run, SourceId};
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
        pairs: OnceLock<Vec<(usize, usize)>>,
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
    /// [`ArrowError::DictionaryKeyOverflowError`] when the keys of a dictionary are too narrow for
    /// the values of all rows, and what else Arrow refuses.
    pub(super) fn column(&self, slots: &Slots, column: usize) -> Result<ArrayRef, ArrowError> {
        let lowered = self.lowered.get_or_init(|| lower(&self.runs, self.rows, slots));
        let values: Vec<ArrayRef> =
            lowered.batches.iter().map(|batch| Arc::clone(&batch.columns[column])).collect();
        gather(values, &lowered.how)
    }
}

/// Finds the batches of `runs`, and tells short runs row by row.
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
    let how = CopyBy::Rows { batches: array(of), rows: array(rows), pairs: OnceLock::new() };
    Lowered { batches, how }
}

/// The rows that `how` tells of `values`, as one array.
fn gather(values: Vec<ArrayRef>, how: &CopyBy) -> Result<ArrayRef, ArrowError> {
    let ty = values.first().map_or(&DataType::Null, |array| array.data_type());
    match how {
        CopyBy::Runs(runs) if runs.len() == 1 => {
            let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
            Ok(values[runs[0].source.index()].slice(at(runs[0].start), runs[0].len as usize))
        }
        CopyBy::Runs(runs) if is_flat(ty) => {
            plait_interleave::gather(&values, runs).or_else(|_| by_run(&values, runs))
        }
        CopyBy::Runs(runs) if copies_by_run(ty) => by_run(&values, runs),
        CopyBy::Runs(runs) => by_row(&values, &pairs(runs)),
        CopyBy::Rows { batches, rows, pairs } => {
            if is_flat(ty) {
                let whole =
                    Interleave::try_new(values.clone(), Arc::clone(batches), Arc::clone(rows));
                // What does not fit, Arrow says in its own words.
                if let Ok(made) = whole.and_then(|whole| whole.to_arrow()) {
                    return Ok(made);
                }
            }
            by_row(&values, pairs.get_or_init(|| zipped(batches, rows)))
        }
    }
}

fn by_run(values: &[ArrayRef], runs: &[Run]) -> Result<ArrayRef, ArrowError> {
    let data: Vec<_> = values.iter().map(|array| array.to_data()).collect();
    let rows = runs.iter().map(|run| run.len as usize).sum();
    let mut to = MutableArrayData::try_new(data.iter().collect(), false, rows)?;
    for run in runs {
        let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        to.try_extend(run.source.index(), at(run.start), at(run.end()))?;
    }
    Ok(make_array(to.freeze()))
}

fn by_row(values: &[ArrayRef], pairs: &[(usize, usize)]) -> Result<ArrayRef, ArrowError> {
    let values: Vec<&dyn Array> = values.iter().map(|array| array.as_ref()).collect();
    arrow_select::interleave::interleave(&values, pairs)
}

fn pairs(runs: &[Run]) -> Vec<(usize, usize)> {
    let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let rows = |run: &Run| at(run.start)..at(run.end());
    runs.iter().flat_map(|run| rows(run).map(|row| (run.source.index(), row))).collect()
}

fn zipped(batches: &ArrayRef, rows: &ArrayRef) -> Vec<(usize, usize)> {
    let values = |array: &ArrayRef| array.as_primitive::<UInt32Type>().values().clone();
    values(batches).iter().zip(&values(rows)).map(|(b, r)| (*b as usize, *r as usize)).collect()
}

/// Whether `plait_interleave` copies the type faster than Arrow does.
fn is_flat(ty: &DataType) -> bool {
    use DataType as D;
    ty.is_primitive()
        || matches!(ty, D::Boolean | D::FixedSizeBinary(_))
        || matches!(ty, D::Utf8 | D::LargeUtf8 | D::Binary | D::LargeBinary)
}

/// Whether copying runs keeps no more than their values: neither dictionaries nor buffers of views.
fn copies_by_run(ty: &DataType) -> bool {
    match ty {
        DataType::Dictionary(..)
        | DataType::Utf8View
        | DataType::BinaryView
        | DataType::RunEndEncoded(..)
        | DataType::ListView(_)
        | DataType::LargeListView(_)
        | DataType::Union(..) => false,
        DataType::Struct(fields) => fields.iter().all(|field| copies_by_run(field.data_type())),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => copies_by_run(item.data_type()),
        _ => true,
    }
}
