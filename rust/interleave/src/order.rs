//! The order of an interleave, before it is checked: selectors as they were passed, or runs.
//!
//! # Invariants
//! Selectors are unsigned, without nulls, equally long. Runs were checked when they were made.
//!
//! # Cost
//! Slices share selectors; runs are found by halving.
//!
//! # Not here
//! Checking rows (`lower`).

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, UInt32Array, UInt64Array};

use crate::gather::gather;
use crate::levels::Levels;
use crate::lower::{self, RowCost};
use crate::select::{Form, Selection};
use plait_base::{Error, Kind, Result, Run, Runs, SourceId};

#[derive(Clone, Debug)]
pub(crate) enum Order {
    Selectors { arrays: ArrayRef, rows: ArrayRef },
    Runs { runs: Arc<Runs>, ends: Arc<[u64]> },
}

impl Order {
    /// Checks everything but the rows.
    pub(crate) fn selectors(arrays: ArrayRef, rows: ArrayRef) -> Result<Self> {
        lower::check("array_indices", &arrays)?;
        lower::check("row_indices", &rows)?;
        if arrays.len() != rows.len() {
            return Err(Error::new(Kind::InvalidArgument, "selectors are of different lengths")
                .with_got(format!(
                    "{} `array_indices`, {} `row_indices`",
                    arrays.len(),
                    rows.len()
                )));
        }
        Ok(Self::Selectors { arrays, rows })
    }

    pub(crate) fn runs(runs: Runs) -> Self {
        let ends = runs.as_slice().iter().scan(0_u64, |end, run| {
            *end += u64::from(run.len);
            Some(*end)
        });
        Self::Runs { ends: ends.collect(), runs: Arc::new(runs) }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Selectors { rows, .. } => rows.len(),
            Self::Runs { runs, .. } => usize::try_from(runs.rows()).unwrap_or(usize::MAX),
        }
    }

    /// The rows, checked against arrays of `lens` rows; what does a single row `cost` to copy?
    pub(crate) fn lowered(&self, lens: Vec<usize>, cost: RowCost) -> Result<Selection<'_>> {
        match self {
            Self::Selectors { arrays, rows } => lower::lower(arrays, rows, lens, cost),
            Self::Runs { runs, .. } => Selection::from_runs(runs.as_slice(), lens),
        }
    }

    /// Rows that are there.
    pub(crate) fn slice(&self, offset: usize, len: usize) -> Self {
        match self {
            Self::Selectors { arrays, rows } => {
                Self::Selectors { arrays: arrays.slice(offset, len), rows: rows.slice(offset, len) }
            }
            Self::Runs { runs, ends } => {
                let mut part = Runs::default();
                let (from, to) = (offset as u64, offset as u64 + len as u64);
                let first = ends.partition_point(|end| *end <= from);
                for (run, end) in runs.as_slice().iter().zip(ends.iter()).skip(first) {
                    let begin = end - u64::from(run.len);
                    if begin >= to {
                        break;
                    }
                    let (lo, hi) = (begin.max(from), to.min(*end));
                    part.push(run.source, run.start + (lo - begin), hi - lo);
                }
                Self::runs(part)
            }
        }
    }

    /// The rows at `indices`, which are unsigned and without nulls.
    pub(crate) fn take(&self, indices: &ArrayRef) -> Result<Self> {
        let zeros: ArrayRef = Arc::new(UInt32Array::from(vec![0; indices.len()]));
        let taken =
            lower::lower(&zeros, indices, vec![self.len()], RowCost::Value).map_err(|e| {
                let e2 = Error::new(e.kind(), "index is out of range");
                let e2 = match e.row() {
                    Some(row) => e2.with_row(row),
                    None => e2,
                };
                e2.with_got(format!("`indices` beyond {} rows", self.len()))
            })?;
        self.select(&taken)
    }

    /// The rows where `mask`, which is as long, is true.
    pub(crate) fn filter(&self, mask: &BooleanArray) -> Result<Self> {
        let set = match mask.nulls() {
            Some(nulls) => mask.values() & nulls.inner(),
            None => mask.values().clone(),
        };
        let mut runs = Runs::default();
        for (start, end) in set.set_slices() {
            runs.push(SourceId(0), start as u64, (end - start) as u64);
        }
        self.select(&Selection::from_runs(runs.as_slice(), vec![self.len()])?)
    }

    /// The rows that `taken` selects of these.
    fn select(&self, taken: &Selection) -> Result<Self> {
        let (arrays, rows) = self.arrays();
        let levels = Levels::default();
        Ok(Self::Selectors {
            arrays: gather(&[&*arrays], taken, arrays.data_type(), levels)?,
            rows: gather(&[&*rows], taken, rows.data_type(), levels)?,
        })
    }

    pub(crate) fn concat(&self, other: &Self) -> Result<Self> {
        if let (Self::Runs { runs: a, .. }, Self::Runs { runs: b, .. }) = (self, other) {
            let mut runs = Runs::clone(a);
            for run in b.as_slice() {
                runs.push(run.source, run.start, u64::from(run.len));
            }
            return Ok(Self::runs(runs));
        }
        let ((a0, r0), (a1, r1)) = (self.arrays(), other.arrays());
        Ok(Self::Selectors { arrays: joined(&a0, &a1)?, rows: joined(&r0, &r1)? })
    }

    /// As two selectors.
    fn arrays(&self) -> (ArrayRef, ArrayRef) {
        match self {
            Self::Selectors { arrays, rows } => (Arc::clone(arrays), Arc::clone(rows)),
            Self::Runs { runs, .. } => {
                let all = runs.as_slice().iter();
                let one = |run: &Run| (run.source.0, run.start, run.len);
                let (arrays, rows) = row_by_row(all.map(one), self.len());
                (Arc::new(UInt32Array::from(arrays)), Arc::new(UInt64Array::from(rows)))
            }
        }
    }
}

fn row_by_row(runs: impl Iterator<Item = (u32, u64, u32)>, len: usize) -> (Vec<u32>, Vec<u64>) {
    let (mut arrays, mut rows) = (Vec::with_capacity(len), Vec::with_capacity(len));
    for (array, start, len) in runs {
        arrays.extend((0..len).map(|_| array));
        rows.extend(start..start + u64::from(len));
    }
    (arrays, rows)
}

/// Array and row of everything that is selected.
pub(crate) fn pairs(selection: &Selection) -> (Vec<u32>, Vec<u64>) {
    match selection.form() {
        Form::Rows(rows) => {
            let (mut arrays, mut numbers) = (Vec::new(), Vec::new());
            for (array, row) in rows.iter() {
                arrays.push(u32::try_from(array).unwrap_or(u32::MAX));
                numbers.push(row as u64);
            }
            (arrays, numbers)
        }
        Form::Runs(runs) => {
            row_by_row(runs.iter().map(|run| (run.source.0, run.start, run.len)), selection.len())
        }
    }
}

/// `outer` selects of values that begin at `bases`; those with an `inner` order select in turn.
pub(crate) fn composed(
    outer: &Selection,
    bases: &[usize],
    inner: &[Option<(Vec<u32>, Vec<u64>)>],
) -> Result<Order> {
    let mut arrays: Vec<u32> = Vec::with_capacity(outer.len());
    let mut rows: Vec<u64> = Vec::with_capacity(outer.len());
    outer.try_for_each(|array, start, len| {
        let base = u32::try_from(bases[array])
            .map_err(|_| Error::new(Kind::Unsupported, "more arrays than can be counted"))?;
        match &inner[array] {
            None => {
                arrays.extend((0..len).map(|_| base));
                rows.extend(start as u64..(start + len) as u64);
            }
            Some((inner_arrays, inner_rows)) => {
                arrays.extend(inner_arrays[start..start + len].iter().map(|array| base + array));
                rows.extend_from_slice(&inner_rows[start..start + len]);
            }
        }
        Ok(())
    })?;
    Ok(Order::Selectors {
        arrays: Arc::new(UInt32Array::from(arrays)),
        rows: Arc::new(UInt64Array::from(rows)),
    })
}

/// Two selectors behind each other, as wide as the wider.
fn joined(a: &ArrayRef, b: &ArrayRef) -> Result<ArrayRef> {
    if a.data_type() == b.data_type() {
        let whole = whole(&[a.len(), b.len()]);
        let both = Selection::from_runs(&whole, vec![a.len(), b.len()])?;
        return gather(&[&**a, &**b], &both, a.data_type(), Levels::default());
    }
    let mut numbers = lower::numbers(a)?;
    numbers.extend(lower::numbers(b)?);
    Ok(Arc::new(UInt64Array::from(numbers)))
}

fn whole(lens: &[usize]) -> Vec<Run> {
    let mut runs = Runs::default();
    for (source, len) in (0..).zip(lens) {
        runs.push(SourceId(source), 0, *len as u64);
    }
    runs.as_slice().to_vec()
}
