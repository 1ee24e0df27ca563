//! The runs of a window in the form that every leaf walks: four bytes a run, eight a long one.
//!
//! ```text
//! runs    [0: 40+2] [1: 7+1] [0: 42+9000]
//! steps   (0, 2) (1, 1) (0, 9000)       spans   0: 40..9042   1: 7..8
//! words   2│0    1│1    0│0 9000        12 bits of rows, 20 of the source; rows 0: see the next word
//! ```
//!
//! # Invariants
//! Rows of one source are consecutive within a window, so where each begins says it all: checked
//! by [`Steps::new`].

use plait_core::run::{Run, Runs, SourceId};
use plait_core::{Error, Kind, Result};

/// The next `len` rows of `source`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Index of the source.
    pub source: u32,
    /// Number of rows, at least 1.
    pub len: u32,
}

impl Step {
    /// Bits of a word that name the source.
    const SOURCE_BITS: u32 = 20;

    /// The step that `word` is, if its rows fit in it.
    #[inline(always)]
    #[must_use]
    pub fn of_word(word: u32) -> Option<Self> {
        let step =
            Self { source: word & ((1 << Self::SOURCE_BITS) - 1), len: word >> Self::SOURCE_BITS };
        (step.len > 0).then_some(step)
    }

    /// The first step of `words`, and how many words it takes.
    #[must_use]
    pub fn first(words: &[u32]) -> Option<(Self, usize)> {
        let word = *words.first()?;
        match Self::of_word(word) {
            Some(step) => Some((step, 1)),
            None => Some((Self { source: word, len: *words.get(1)? }, 2)),
        }
    }
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
    words: Vec<u32>,
    taken: Vec<Taken>,
    rows: u64,
}

impl Steps {
    /// The steps of `runs`, over `sources` sources.
    ///
    /// # Errors
    /// [`Kind::Internal`] when rows of a source are not consecutive, [`Kind::Unsupported`] for more
    /// than a million sources.
    pub fn new(runs: &Runs, sources: usize) -> Result<Self> {
        let mut taken: Vec<Option<Taken>> = vec![None; sources];
        if sources > 1 << Step::SOURCE_BITS {
            return Err(Error::new(Kind::Unsupported, "too many sources for one merge")
                .with_got(format!("{sources}"))
                .with_hint("merge some of them first"));
        }
        let len_max = u32::MAX >> Step::SOURCE_BITS;
        let is_long = |run: &&Run| run.len > len_max;
        let long = runs.as_slice().iter().filter(is_long).count();
        let mut words = Vec::with_capacity(runs.len() + long);
        for run in runs.as_slice() {
            let known = taken.get_mut(run.source.index()).ok_or_else(broken)?;
            match known {
                Some(taken) if taken.end != run.start => return Err(broken()),
                Some(taken) => taken.end = run.end(),
                None => {
                    *known = Some(Taken { source: run.source, start: run.start, end: run.end() });
                }
            }
            match run.len > len_max {
                true => words.extend([run.source.0, run.len]),
                false => words.push(run.source.0 | (run.len << Step::SOURCE_BITS)),
            }
        }
        Ok(Self { words, taken: taken.into_iter().flatten().collect(), rows: runs.rows() })
    }

    /// The steps, in output order: see [`Step::first`].
    #[must_use]
    pub fn words(&self) -> &[u32] {
        &self.words
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
        self.words.capacity() * size_of::<u32>() + self.taken.capacity() * size_of::<Taken>()
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
        let all = [(0, 40, 2), (1, 7, 1), (0, 42, 9000), (2, 0, 4095), (0, 9042, 4096)];
        for (source, start, len) in all {
            runs.push(SourceId(source), start, len);
        }
        let steps = Steps::new(&runs, 3).unwrap();
        let (mut words, mut found) = (steps.words(), Vec::new());
        while let Some((step, taken)) = Step::first(words) {
            found.push((step.source, u64::from(step.len)));
            words = &words[taken..];
        }
        assert_eq!(found, all.map(|(source, _, len)| (source, len)));
        assert_eq!(steps.words().len(), 7);
        assert_eq!(steps.rows(), all.iter().map(|(_, _, len)| len).sum::<u64>());
        let spans: Vec<_> = steps.taken().iter().map(|t| (t.source.0, t.start, t.end)).collect();
        assert_eq!(spans, [(0, 40, 13138), (1, 7, 8), (2, 0, 4095)]);
        runs.push(SourceId(1), 9, 1);
        assert!(Steps::new(&runs, 3).is_err());
    }
}
