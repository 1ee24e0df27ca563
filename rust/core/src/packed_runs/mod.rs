//! The runs of a window in the form that every leaf is woven by: four bytes a run, eight a long one.
//!
//! ```text
//! runs    [0: 40+2] [1: 7+1] [0: 42+9000]
//! packed  (0, 2) (1, 1) (0, 9000)       spans   0: 40..9042   1: 7..8
//! words   2│0    1│1    0│0 9000        12 bits of rows, 20 of the source; rows 0: see the next word
//! ```
//!
//! Rows of a source that were dropped are a gap: a long run whose highest bit is set.
//!
//! # Invariants
//! Rows of one source ascend within a window, so where each begins says it all: checked by
//! [`PackedRuns::extend`].
//!
//! # Cost
//! Four bytes a run, as against sixteen of [`Run`]: a window of a million rows that interleave one
//! by one takes 4 MB.
//!
//! # Not here
//! The order itself (`plan`).

mod replace;

use plait_base::{Error, Kind, Result, Run, Runs, SourceId};

pub use replace::Replaced;
pub(crate) use replace::replace;

/// Runs that are packed at once: half a megabyte of them.
pub(crate) const RUNS_MAX: usize = 32 << 10;

/// The next `len` rows of `source`, which leave or, in a gap, do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedRun {
    /// Index of the source.
    pub source: u32,
    /// Number of rows, at least 1.
    pub len: u32,
    /// Whether the rows were dropped.
    pub is_gap: bool,
}

impl PackedRun {
    /// The bit of the second word of a gap.
    const GAP: u32 = 1 << 31;

    /// Bits of a word that name the source.
    const SOURCE_BITS: u32 = 20;

    /// The run that `word` is, if its rows fit in it.
    #[inline(always)]
    #[must_use]
    pub fn of_word(word: u32) -> Option<Self> {
        let source = word & ((1 << Self::SOURCE_BITS) - 1);
        let run = Self { source, len: word >> Self::SOURCE_BITS, is_gap: false };
        (run.len > 0).then_some(run)
    }

    /// The first run of `words`, and how many words it takes.
    #[must_use]
    pub fn first(words: &[u32]) -> Option<(Self, usize)> {
        let word = *words.first()?;
        match Self::of_word(word) {
            Some(run) => Some((run, 1)),
            None => {
                let second = *words.get(1)?;
                let is_gap = second & Self::GAP != 0;
                Some((Self { source: word, len: second & !Self::GAP, is_gap }, 2))
            }
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackedRuns {
    words: Vec<u32>,
    /// By source.
    taken: Vec<Option<Taken>>,
    /// The source of the last row.
    last: Option<SourceId>,
    rows: u64,
}

impl PackedRuns {
    /// Most runs take this many bytes.
    pub const BYTES_PER_RUN: usize = size_of::<u32>();

    /// Appends `runs`.
    ///
    /// # Errors
    /// [`Kind::Internal`] when rows of a source do not ascend, [`Kind::Unsupported`] for more
    /// than a million sources.
    pub fn extend(&mut self, runs: &[Run]) -> Result<()> {
        let len_max = u32::MAX >> PackedRun::SOURCE_BITS;
        self.words.reserve(runs.len());
        for run in runs {
            self.take(run)?;
            match run.len > len_max {
                true => self.push_long(run.source, u64::from(run.len), 0),
                false => self.words.push(run.source.0 | (run.len << PackedRun::SOURCE_BITS)),
            }
        }
        Ok(())
    }

    #[inline]
    fn take(&mut self, run: &Run) -> Result<()> {
        if self.taken.len() <= run.source.index() {
            self.grow(run.source)?;
        }
        match &mut self.taken[run.source.index()] {
            Some(taken) if taken.end == run.start => taken.end = run.end(),
            Some(taken) => {
                let gap = run.start.checked_sub(taken.end).ok_or_else(broken)?;
                taken.end = run.end();
                self.push_long(run.source, gap, PackedRun::GAP);
            }
            none => *none = Some(Taken { source: run.source, start: run.start, end: run.end() }),
        }
        self.rows += u64::from(run.len);
        self.last = Some(run.source);
        Ok(())
    }

    fn push_long(&mut self, source: SourceId, rows: u64, gap: u32) {
        let mut left = rows;
        while left > 0 {
            let len = u32::try_from(left).unwrap_or(u32::MAX).min(!PackedRun::GAP);
            self.words.extend([source.0, len | gap]);
            left -= u64::from(len);
        }
    }

    #[cold]
    fn grow(&mut self, source: SourceId) -> Result<()> {
        if source.index() >= 1 << PackedRun::SOURCE_BITS {
            return Err(Error::new(Kind::Unsupported, "too many sources for one merge")
                .with_got(format!("more than {}", 1 << PackedRun::SOURCE_BITS))
                .with_hint("merge some of them first"));
        }
        self.taken.resize(source.index() + 1, None);
        Ok(())
    }

    /// The runs, in output order: see [`PackedRun::first`].
    #[must_use]
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// The runs, in output order, with the rows that they are of.
    pub fn runs(&self) -> impl Iterator<Item = Run> {
        let mut next: Vec<u64> = self.taken.iter().map(|t| t.map_or(0, |t| t.start)).collect();
        let mut words = self.words();
        std::iter::from_fn(move || {
            loop {
                let (step, used) = PackedRun::first(words)?;
                words = words.get(used..)?;
                let at = next.get_mut(step.source as usize)?;
                let start = *at;
                *at += u64::from(step.len);
                if !step.is_gap {
                    return Some(Run { start, len: step.len, source: SourceId(step.source) });
                }
            }
        })
    }

    /// The same with other rows in place of some.
    ///
    /// # Errors
    /// As [`extend`](Self::extend), and those of `rows`.
    pub fn replaced(&self, rows: impl Iterator<Item = Result<Replaced>>) -> Result<Self> {
        let mut packed = Self::default();
        let mut rest = replace(self.runs(), rows, |runs| packed.absorb(runs, RUNS_MAX))?;
        packed.absorb(&mut rest, 0)?;
        packed.shrink();
        Ok(packed)
    }

    /// Appends `runs` if there are more than `runs_max`; the last stays among them, since it may go
    /// on, unless `runs_max` is 0.
    ///
    /// # Errors
    /// As [`extend`](Self::extend).
    pub(crate) fn absorb(&mut self, runs: &mut Runs, runs_max: usize) -> Result<()> {
        if runs.len() <= runs_max {
            return Ok(());
        }
        let stays = usize::from(runs_max > 0);
        let (before, last) = runs.as_slice().split_at(runs.len() - stays);
        self.extend(before)?;
        let last = last.to_vec();
        runs.clear();
        last.iter().for_each(|run| runs.push(run.source, run.start, u64::from(run.len)));
        Ok(())
    }

    /// Source and row of the first row that leaves.
    #[must_use]
    pub fn first_row(&self) -> Option<(SourceId, u64)> {
        let (first, _) = PackedRun::first(&self.words)?;
        self.taken.get(first.source as usize)?.map(|taken| (taken.source, taken.start))
    }

    /// Source and row of the last row that leaves.
    #[must_use]
    pub fn last_row(&self) -> Option<(SourceId, u64)> {
        let taken = self.taken.get(self.last?.index())?.as_ref()?;
        Some((taken.source, taken.end - 1))
    }

    /// What each source gives, by source.
    pub fn taken(&self) -> impl Iterator<Item = Taken> {
        self.taken.iter().flatten().copied()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Gives back memory that is not used.
    pub fn shrink(&mut self) {
        self.words.shrink_to_fit();
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes held on the heap.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        self.words.capacity() * size_of::<u32>()
            + self.taken.capacity() * size_of::<Option<Taken>>()
    }
}

fn broken() -> Error {
    Error::new(Kind::Internal, "rows of one source do not ascend in a window")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Rows of two sources, interleaved, some of which become rows of a third.
        #[test]
        fn replaced_rows_are_the_rows_with_others_in_their_place(
            taken in prop::collection::vec((0u32..2, 0u64..3), 1..80),
            becomes in prop::collection::vec(any::<bool>(), 80),
        ) {
            let (mut next, mut rows, mut runs) = ([0, 0], Vec::new(), Runs::default());
            for (source, gap) in taken {
                let at = &mut next[source as usize];
                *at += gap;
                rows.push((SourceId(source), *at));
                runs.push(SourceId(source), *at, 1);
                *at += 1;
            }
            let mut packed = PackedRuns::default();
            packed.extend(runs.as_slice()).unwrap();
            let flat = |packed: &PackedRuns| -> Vec<(SourceId, u64)> {
                packed.runs().flat_map(|r| (r.start..r.end()).map(move |n| (r.source, n))).collect()
            };
            prop_assert_eq!(&flat(&packed), &rows);
            let others: Vec<_> = (0..rows.len())
                .filter(|at| becomes[*at])
                .map(|at| Replaced { row: at as u64, source: SourceId(2), source_row: 7 * at as u64 })
                .collect();
            for Replaced { row, source, source_row } in &others {
                rows[*row as usize] = (*source, *source_row);
            }
            let replaced = packed.replaced(others.into_iter().map(Ok)).unwrap();
            prop_assert_eq!(flat(&replaced), rows);
        }
    }

    #[test]
    fn steps_know_where_each_source_begins_and_ends() {
        let mut runs = Runs::default();
        let all = [(0, 40, 2), (1, 7, 1), (0, 42, 9000), (2, 0, 4095), (0, 9042, 4096)];
        for (source, start, len) in all {
            runs.push(SourceId(source), start, len);
        }
        let mut steps = PackedRuns::default();
        steps.extend(&runs.as_slice()[..2]).unwrap();
        steps.extend(&runs.as_slice()[2..]).unwrap();
        let (mut words, mut found) = (steps.words(), Vec::new());
        while let Some((step, taken)) = PackedRun::first(words) {
            found.push((step.source, u64::from(step.len)));
            words = &words[taken..];
        }
        assert_eq!(found, all.map(|(source, _, len)| (source, len)));
        assert_eq!(steps.words().len(), 7);
        assert_eq!(steps.rows(), all.iter().map(|(_, _, len)| len).sum::<u64>());
        let spans: Vec<_> = steps.taken().map(|t| (t.source.0, t.start, t.end)).collect();
        assert_eq!(spans, [(0, 40, 13138), (1, 7, 8), (2, 0, 4095)]);
        runs.clear();
        runs.push(SourceId(1), 9, 1);
        steps.extend(runs.as_slice()).unwrap();
        let gap = PackedRun::first(&steps.words()[7..]).unwrap();
        assert_eq!(gap, (PackedRun { source: 1, len: 1, is_gap: true }, 2), "row 8 was dropped");
        assert!(steps.extend(runs.as_slice()).is_err(), "row 9 left before");
        runs.clear();
        runs.push(SourceId(1 << 20), 9, 1);
        assert!(steps.extend(runs.as_slice()).is_err(), "no room for its number");
    }
}
