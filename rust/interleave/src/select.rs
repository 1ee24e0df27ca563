//! Which rows leave, proved to exist: the only thing the kernels believe.
//!
//! ```text
//! selectors   arrays 0 0 0 1 1      Runs [0:4+3] [1:0+2]        rows follow each other
//!             rows   4 5 6 0 1
//!             arrays 0 1 0 1 0      Rows, as they are             they do not
//!             rows   4 9 2 7 5
//! ```
//!
//! # Invariants
//! Every selected row is below the limit of its array, and there is a limit for every array that is
//! named. No run is empty, and the lengths of all add up to the length. The fields are private, and
//! every constructor of this file checks it, except `proved` and `proved_runs`, which `lower` calls
//! after it has compared all.
//!
//! # Cost
//! 16 bytes a run or 8 bytes a row.
//!
//! # Not here
//! Copying (`kernel`, `gather`); selectors as users pass them (`lower`).

use std::borrow::Cow;

use arrow_array::OffsetSizeTrait;
use arrow_buffer::ScalarBuffer;

use plait_base::{Error, Kind, Result, Run, Runs, SourceId};

/// Single rows: arrays and rows, equally many.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    arrays: ScalarBuffer<u32>,
    rows: ScalarBuffer<u32>,
    in_pieces: bool,
}

impl Rows {
    /// Array and row, one by one.
    #[inline(always)]
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (usize, usize)> + '_ {
        self.arrays.iter().zip(&*self.rows).map(|(array, row)| (*array as usize, *row as usize))
    }

    /// Whether many of them follow the row before: kernels may look for that. Any answer is
    /// correct.
    #[inline(always)]
    pub(crate) fn are_in_pieces(&self) -> bool {
        self.in_pieces
    }

    /// Arrays and rows, equally many.
    #[inline(always)]
    pub(crate) fn as_slices(&self) -> (&[u32], &[u32]) {
        (&self.arrays, &self.rows)
    }

    /// The same behind the first `done`.
    #[inline(always)]
    pub(crate) fn behind(&self, done: usize) -> (&[u32], &[u32]) {
        let behind = self.arrays.get(done..).zip(self.rows.get(done..));
        behind.unwrap_or_default()
    }

    fn get(&self, index: usize) -> Option<(usize, usize)> {
        Some((*self.arrays.get(index)? as usize, *self.rows.get(index)? as usize))
    }
}

/// The rows, in the order in which they leave.
#[derive(Clone, Debug)]
pub(crate) enum Form<'a> {
    /// Row by row.
    Rows(Rows),
    /// Ranges of rows; none is empty.
    Runs(Cow<'a, [Run]>),
}

/// Rows of several arrays, all of which exist.
#[derive(Clone, Debug)]
pub(crate) struct Selection<'a> {
    form: Form<'a>,
    len: usize,
    limits: Vec<usize>,
}

impl<'a> Selection<'a> {
    /// Number of rows that leave.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The rows.
    pub(crate) fn form(&self) -> &Form<'a> {
        &self.form
    }

    /// Row by row, if that is the form, or runs have fewer than `run_rows` rows in the mean and all
    /// fit 32 bits.
    pub(crate) fn as_rows(&self, run_rows: usize) -> Option<Cow<'_, Rows>> {
        match &self.form {
            Form::Rows(rows) => Some(Cow::Borrowed(rows)),
            Form::Runs(runs) => {
                let short = self.len < runs.len().saturating_mul(run_rows) && narrow(&self.limits);
                short.then(|| Cow::Owned(expanded(runs, self.len)))
            }
        }
    }

    /// For every array, a number that is above every row selected of it.
    pub(crate) fn limits(&self) -> &[usize] {
        &self.limits
    }

    /// What `runs` selects of arrays of `lens` rows; runs may be empty.
    ///
    /// # Errors
    /// `InvalidArgument` for a run that leaves its array.
    pub(crate) fn from_runs(runs: &'a [Run], lens: Vec<usize>) -> Result<Self> {
        let (mut len, mut are_full) = (0_usize, true);
        for run in runs {
            let rows = lens.get(run.source.index()).copied().unwrap_or(0) as u64;
            let left = rows.checked_sub(run.start);
            if left.is_none_or(|left| left < u64::from(run.len)) || run.source.index() >= lens.len()
            {
                let at = u64::try_from(len).unwrap_or(u64::MAX);
                return Err(outside(run.source.index(), run.start, u64::from(run.len), &lens, at));
            }
            len = len.checked_add(run.len as usize).ok_or_else(too_many)?;
            are_full &= run.len > 0;
        }
        let form = if are_full {
            Form::Runs(Cow::Borrowed(runs))
        } else {
            Form::Runs(runs.iter().filter(|run| run.len > 0).copied().collect())
        };
        Ok(Self { form, len, limits: lens })
    }

    /// What `arrays` and `rows` select of arrays of `lens` rows; `lower` has proved that all exist.
    pub(crate) fn proved(
        arrays: ScalarBuffer<u32>,
        rows: ScalarBuffer<u32>,
        in_pieces: bool,
        lens: Vec<usize>,
    ) -> Self {
        let rows = Rows { arrays, rows, in_pieces };
        debug_assert!(
            rows.iter().all(|(array, row)| lens.get(array).is_some_and(|len| row < *len)),
            "a selection has rows that do not exist"
        );
        Self { len: rows.rows.len(), form: Form::Rows(rows), limits: lens }
    }

    /// What `runs` of `len` rows select of arrays of `lens` rows; `lower` has proved that all
    /// exist.
    pub(crate) fn proved_runs(runs: Vec<Run>, len: usize, lens: Vec<usize>) -> Self {
        debug_assert_eq!(runs.iter().map(|run| run.len as usize).sum::<usize>(), len);
        debug_assert!(
            runs.iter().all(|run| {
                run.len > 0 && lens.get(run.source.index()).is_some_and(|n| run.end() <= *n as u64)
            }),
            "a selection has runs that do not exist"
        );
        Children { runs, len, limits: lens }.finish()
    }

    /// What `rows` select of one array of `len` rows.
    ///
    /// # Errors
    /// `InvalidArgument` for a row that does not exist.
    pub(crate) fn of_one(rows: impl Iterator<Item = usize>, len: usize) -> Result<Self> {
        let mut children = Children::new(vec![len]);
        for row in rows {
            children.push(0, row, 1)?;
        }
        Ok(children.finish())
    }

    /// Number of runs; single rows are runs of 1.
    pub(crate) fn ranges(&self) -> usize {
        match &self.form {
            Form::Rows(_) => self.len,
            Form::Runs(runs) => runs.len(),
        }
    }

    /// Calls `each` with every run; single rows are runs of 1.
    #[inline]
    pub(crate) fn try_for_each(
        &self,
        mut each: impl FnMut(usize, usize, usize) -> Result<()>,
    ) -> Result<()> {
        match &self.form {
            Form::Rows(rows) => rows.iter().try_for_each(|(array, row)| each(array, row, 1)),
            Form::Runs(runs) => runs.iter().try_for_each(|run| {
                each(run.source.index(), usize::try_from(run.start).unwrap_or(0), run.len as usize)
            }),
        }
    }

    /// The rest of the range at `cursor`: array, first row, number of rows.
    pub(crate) fn range(&self, cursor: &Cursor) -> Option<(usize, usize, usize)> {
        match &self.form {
            Form::Rows(rows) => rows.get(cursor.index).map(|(array, row)| (array, row, 1)),
            Form::Runs(runs) => runs.get(cursor.index).map(|run| {
                let start = usize::try_from(run.start).unwrap_or(0) + cursor.done;
                (run.source.index(), start, run.len as usize - cursor.done)
            }),
        }
    }

    /// The place `len` rows behind `cursor`, which lie in one range.
    pub(crate) fn after(&self, cursor: Cursor, len: usize) -> Cursor {
        match self.range(&cursor) {
            Some((_, _, rows)) if rows > len => Cursor { done: cursor.done + len, ..cursor },
            _ => Cursor { index: cursor.index + 1, done: 0 },
        }
    }

    /// `len` rows from `cursor` on, and the place behind them.
    pub(crate) fn part(&self, mut cursor: Cursor, len: usize) -> (Selection<'static>, Cursor) {
        let limits = self.limits.clone();
        let mut left = len;
        match &self.form {
            Form::Rows(rows) => {
                let end = self.len.min(cursor.index + len);
                let len = end - cursor.index;
                let arrays = rows.arrays.slice(cursor.index, len);
                let in_pieces = rows.in_pieces;
                let rows = Rows { arrays, rows: rows.rows.slice(cursor.index, len), in_pieces };
                (Selection { len, form: Form::Rows(rows), limits }, Cursor { index: end, done: 0 })
            }
            Form::Runs(_) => {
                let mut runs = Runs::default();
                while left > 0
                    && let Some((array, start, rows)) = self.range(&cursor)
                {
                    let rows = rows.min(left);
                    let source = SourceId(u32::try_from(array).unwrap_or(u32::MAX));
                    runs.push(source, start as u64, rows as u64);
                    cursor = self.after(cursor, rows);
                    left -= rows;
                }
                let form = Form::Runs(Cow::Owned(runs.as_slice().to_vec()));
                (Selection { len: len - left, form, limits }, cursor)
            }
        }
    }

    /// The ranges of elements below lists with `offsets`, and the offsets of the lists that leave.
    ///
    /// `lens` are the lengths of the arrays of elements. Offsets above `max` do not fit: `None`.
    pub(crate) fn below<I: OffsetSizeTrait, O: OffsetSizeTrait>(
        &self,
        offsets: &[&[I]],
        lens: Vec<usize>,
        max: usize,
    ) -> Result<Option<(Vec<O>, Selection<'static>)>> {
        let mut children = Children::new(lens);
        children.runs.reserve(self.ranges());
        let mut out = Vec::with_capacity(self.len + 1);
        out.push(O::zero());
        if let Form::Rows(rows) = &self.form {
            for (array, row) in rows.iter() {
                let ends = offsets.get(array).and_then(|o| o.get(row..row + 2));
                let Some([first, end]) = ends else { return Err(broken("lists")) };
                let (first, end) = (first.as_usize(), end.as_usize());
                children.push(
                    array,
                    first,
                    end.checked_sub(first).ok_or_else(|| broken("lists"))?,
                )?;
                out.push(O::usize_as(children.len));
            }
            return Ok((children.len <= max).then(|| (out, children.finish())));
        }
        self.try_for_each(|array, start, len| {
            let ends = offsets.get(array).and_then(|o| o.get(start..=start + len));
            let Some([first, ends @ ..]) = ends else { return Err(broken("lists")) };
            let first = first.as_usize();
            let base = children.len;
            let end = ends.last().map_or(first, |end| end.as_usize());
            let elements = end.checked_sub(first).ok_or_else(|| broken("lists"))?;
            children.push(array, first, elements)?;
            // Sums that do not fit are refused below, once.
            let ends = ends.iter();
            out.extend(ends.map(|end| O::usize_as(base.wrapping_add(end.as_usize() - first))));
            Ok(())
        })?;
        Ok((children.len <= max).then(|| (out, children.finish())))
    }
}

/// A place in a selection: so many rows of range `index` are done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    index: usize,
    done: usize,
}

/// Ranges of elements on their way to a selection.
pub(crate) struct Children {
    runs: Vec<Run>,
    len: usize,
    limits: Vec<usize>,
}

impl Children {
    /// Of arrays of `lens` elements.
    pub(crate) fn new(lens: Vec<usize>) -> Self {
        Self { runs: Vec::new(), len: 0, limits: lens }
    }

    /// The same with room for `ranges`.
    pub(crate) fn with_room(mut self, ranges: usize) -> Self {
        self.runs.reserve(ranges);
        self
    }

    /// Lengths of the arrays.
    pub(crate) fn limits(&self) -> &[usize] {
        &self.limits
    }

    /// Number of elements so far.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Appends elements `start..start + len` of `array`.
    ///
    /// # Errors
    /// `InvalidArgument` when they are not there: the lists are broken.
    #[inline]
    pub(crate) fn push(&mut self, array: usize, start: usize, len: usize) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let rows = self.limits.get(array).copied().unwrap_or(0);
        let Some(end) = start.checked_add(len).filter(|end| *end <= rows) else {
            return Err(broken("lists"));
        };
        let source = SourceId(u32::try_from(array).unwrap_or(u32::MAX));
        self.len = self.len.checked_add(len).ok_or_else(too_many)?;
        if let Some(last) = self.runs.last_mut()
            && last.source == source
            && last.end() == start as u64
            && let Some(joined) = u32::try_from(len).ok().and_then(|len| last.len.checked_add(len))
        {
            last.len = joined;
            return Ok(());
        }
        let mut start = start;
        while start < end {
            let len = u32::try_from(end - start).unwrap_or(u32::MAX);
            self.runs.push(Run { start: start as u64, len, source });
            start += len as usize;
        }
        Ok(())
    }

    /// The selection.
    pub(crate) fn finish(self) -> Selection<'static> {
        let Self { runs, len, limits } = self;
        Selection { form: Form::Runs(Cow::Owned(runs)), len, limits }
    }
}

/// Whether rows of arrays of `lens` rows can be numbered with 32 bits.
pub(crate) fn narrow(lens: &[usize]) -> bool {
    lens.iter().all(|len| u32::try_from(*len).is_ok())
}

/// Row by row; starts fit 32 bits because lengths do.
fn expanded(runs: &[Run], len: usize) -> Rows {
    let (mut arrays, mut rows) = (Vec::with_capacity(len), Vec::with_capacity(len));
    for run in runs {
        let start = u32::try_from(run.start).unwrap_or(u32::MAX);
        arrays.extend((0..run.len).map(|_| run.source.0));
        rows.extend((0..run.len).map(|i| start.wrapping_add(i)));
    }
    Rows { arrays: arrays.into(), rows: rows.into(), in_pieces: false }
}

/// A row that is not there.
pub(crate) fn outside(array: usize, row: u64, len: u64, lens: &[usize], at: u64) -> Error {
    let Some(rows) = lens.get(array) else {
        return Error::new(Kind::InvalidArgument, "array index is out of range")
            .with_row(at)
            .with_got(format!("`array_indices` {array} of {} arrays", lens.len()));
    };
    let found = if len == 1 { row.to_string() } else { format!("{row} to {row} + {len}") };
    Error::new(Kind::InvalidArgument, "row index is out of range")
        .with_row(at)
        .with_got(format!("`row_indices` {found}, where array {array} has {rows} rows"))
}

/// Offsets that contradict the values below them.
pub(crate) fn broken(what: &str) -> Error {
    Error::new(Kind::InvalidArgument, format!("offsets of {what} lead outside of their values"))
}

fn too_many() -> Error {
    Error::new(Kind::Unsupported, "more rows than can be counted")
}
