//! What every planner emits: an ordered list of row ranges to copy.
//!
//! ```text
//! Run { source: 1, start: 40, len: 3 }   rows 40, 41, 42 of source 1, in order
//! Runs  [1:40+3] [0:7+1] [1:43+2]        six output rows
//! ```
//!
//! # Invariants
//! No run is empty; touching runs of one source are joined; `rows` is the sum of the lengths.
//! All upheld by [`Runs::push`].
//!
//! # Cost
//! 16 bytes a run. A window of runs covers one output row group, never a file.
//!
//! # Not here
//! Deciding the order (`plan`); copying the rows (`plait_parquet::weave`).

use std::fmt;

/// Index of a source in the order in which the sources were given; ties leave in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u32);

impl SourceId {
    /// The index as `usize`, for slices of per-source state.
    #[must_use]
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Rows `start..start + len` of `source`, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First row, counted over the whole source.
    pub start: u64,
    /// Number of rows, at least 1.
    pub len: u32,
    /// Where the rows come from.
    pub source: SourceId,
}

impl Run {
    /// One past the last row.
    #[must_use]
    #[inline]
    pub fn end(&self) -> u64 {
        self.start + u64::from(self.len)
    }
}

/// An ordered list of runs: the order in which rows leave.
///
/// ```
/// use plait_base::{Runs, SourceId};
/// let mut runs = Runs::default();
/// runs.push(SourceId(0), 0, 2);
/// runs.push(SourceId(0), 2, 3); // joined: it continues the run before it
/// runs.push(SourceId(1), 0, 1);
/// assert_eq!((runs.len(), runs.rows()), (2, 6));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    runs: Vec<Run>,
    rows: u64,
}

impl Runs {
    /// None yet, with room for `runs`.
    #[must_use]
    pub fn with_capacity(runs: usize) -> Self {
        Self { runs: Vec::with_capacity(runs), rows: 0 }
    }

    /// Appends rows `start..start + len` of `source`; `len` 0 adds nothing.
    #[inline]
    pub fn push(&mut self, source: SourceId, start: u64, len: u64) {
        let (mut start, mut left) = (start, len);
        self.rows += len;
        if let Some(last) = self.runs.last_mut()
            && last.source == source
            && last.end() == start
        {
            let room = u64::from(u32::MAX - last.len).min(left);
            #[expect(clippy::cast_possible_truncation, reason = "`room` is at most u32::MAX")]
            {
                last.len += room as u32;
            }
            start += room;
            left -= room;
        }
        while left > 0 {
            let len = u32::try_from(left).unwrap_or(u32::MAX);
            self.runs.push(Run { start, len, source });
            start += u64::from(len);
            left -= u64::from(len);
        }
    }

    /// Appends `runs`, none of which is empty or continues the run before it, except for the first.
    #[inline]
    pub fn extend_from_slice(&mut self, runs: &[Run]) {
        let Some((first, rest)) = runs.split_first() else { return };
        self.push(first.source, first.start, u64::from(first.len));
        self.runs.extend_from_slice(rest);
        self.rows += rest.iter().map(|run| u64::from(run.len)).sum::<u64>();
    }

    /// The runs, in output order.
    #[must_use]
    #[inline]
    pub fn as_slice(&self) -> &[Run] {
        &self.runs
    }

    /// Number of output rows.
    #[must_use]
    #[inline]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Number of runs.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether there are no rows.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Forgets all runs and keeps the allocation.
    #[inline]
    pub fn clear(&mut self) {
        self.runs.clear();
        self.rows = 0;
    }

    /// Bytes held on the heap.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        self.runs.capacity() * size_of::<Run>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_longer_than_u32_are_split_and_counted() {
        let mut runs = Runs::default();
        let long = u64::from(u32::MAX) * 2 + 5;
        runs.push(SourceId(3), 10, long);
        assert_eq!(runs.rows(), long);
        let total: u64 = runs.as_slice().iter().map(|r| u64::from(r.len)).sum();
        assert_eq!(total, long);
        assert!(runs.as_slice().windows(2).all(|w| w[0].end() == w[1].start));
    }

    #[test]
    fn empty_pushes_leave_no_run() {
        let mut runs = Runs::default();
        runs.push(SourceId(0), 7, 0);
        assert!(runs.is_empty());
    }
}
