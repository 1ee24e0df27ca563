//! The runs of a window in the form that every leaf walks: eight bytes a run.
//!
//! ```text
//! runs    [0: 40+2] [1: 7+1] [0: 42+3]
//! steps   (0, 2) (1, 1) (0, 3)          spans   0: 40..45   1: 7..8
//! ```
//!
//! # Invariants
//! Rows of one source are consecutive within a window, so where each begins says it all: checked
//! by [`Steps::new`].

use plait_core::run::{Runs, SourceId};
use plait_core::{Error, Kind, Result};

/// The next `len` rows of `source`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Index of the source.
    pub source: u32,
    /// Number of rows, at least 1.
    pub len: u32,
}

/// Rows of one source that a window takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The source.
    pub source: SourceId,
    /// Its first row in the window.
    pub start: u64,
    /// One past its last.
    pub end: u64,
}

/// The order of the rows of a window.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    steps: Vec<Step>,
    taken: Vec<Taken>,
    rows: u64,
}

impl Steps {
    /// The steps of `runs`, over `sources` sources.
    ///
    /// # Errors
    /// [`Kind::Internal`] when rows of a source are not consecutive.
    pub fn new(runs: &Runs, sources: usize) -> Result<Self> {
        let mut taken: Vec<Option<Taken>> = vec![None; sources];
        let mut steps = Vec::with_capacity(runs.len());
        for run in runs.as_slice() {
            let known = taken.get_mut(run.source.index()).ok_or_else(broken)?;
            match known {
                Some(taken) if taken.end != run.start => return Err(broken()),
                Some(taken) => taken.end = run.end(),
                None => {
                    *known = Some(Taken { source: run.source, start: run.start, end: run.end() });
                }
            }
            steps.push(Step { source: run.source.0, len: run.len });
        }
        Ok(Self { steps, taken: taken.into_iter().flatten().collect(), rows: runs.rows() })
    }

    /// The steps, in output order.
    #[must_use]
    pub fn as_slice(&self) -> &[Step] {
        &self.steps
    }

    /// What each source gives, by source.
    #[must_use]
    pub fn taken(&self) -> &[Taken] {
        &self.taken
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes held on the heap.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        self.steps.capacity() * size_of::<Step>() + self.taken.capacity() * size_of::<Taken>()
    }
}

fn broken() -> Error {
    Error::new(Kind::Internal, "rows of one source are not consecutive in a window")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_know_where_each_source_begins_and_ends() {
        let mut runs = Runs::default();
        for (source, start, len) in [(0, 40, 2), (1, 7, 1), (0, 42, 3)] {
            runs.push(SourceId(source), start, len);
        }
        let steps = Steps::new(&runs, 3).unwrap();
        assert_eq!(steps.as_slice().len(), 3);
        assert_eq!(steps.rows(), 6);
        let spans: Vec<_> = steps.taken().iter().map(|t| (t.source.0, t.start, t.end)).collect();
        assert_eq!(spans, [(0, 40, 45), (1, 7, 8)]);
        runs.push(SourceId(1), 9, 1);
        assert!(Steps::new(&runs, 3).is_err());
    }
}
