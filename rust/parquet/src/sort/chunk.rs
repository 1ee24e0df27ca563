//! Rows that are sorted at a time: as many as memory allows.
//!
//! # Invariants
//! Chunks take the pieces from the first to the last, so that rows of one chunk come before those of
//! the next where their keys are equal.
//!
//! # Not here
//! How many rows that is (`write`).

use std::collections::VecDeque;

use plait_core::packed_runs::PackedRuns;
use plait_core::{Result, Runs, SourceId};

use super::call::RowsOfFile;

/// Rows that wait to be sorted.
#[derive(Default)]
pub(super) struct LooseRows {
    pieces: VecDeque<RowsOfFile>,
}

impl LooseRows {
    pub(super) fn new(pieces: Vec<RowsOfFile>) -> Self {
        Self { pieces: pieces.into() }
    }

    /// The next `rows_max` rows; none at the end.
    pub(super) fn take(&mut self, rows_max: u64) -> Vec<RowsOfFile> {
        let (mut taken, mut left) = (Vec::new(), rows_max.max(1));
        while left > 0
            && let Some(mut piece) = self.pieces.pop_front()
        {
            let mut now = Vec::new();
            let mut ranges = std::mem::take(&mut piece.rows).into_iter();
            for range in ranges.by_ref() {
                let end = range.end.min(range.start + left);
                left -= end - range.start;
                now.push(range.start..end);
                if end < range.end {
                    piece.rows.push(end..range.end);
                }
                if left == 0 {
                    break;
                }
            }
            piece.rows.extend(ranges);
            taken.push(RowsOfFile { file: piece.file, rows: now });
            if !piece.rows.is_empty() {
                self.pieces.push_front(piece);
            }
        }
        taken
    }

    /// Puts rows that were taken last back.
    pub(super) fn put_back(&mut self, pieces: Vec<RowsOfFile>) {
        for piece in pieces.into_iter().rev() {
            match self.pieces.front_mut() {
                Some(first) if first.file == piece.file => {
                    let behind = std::mem::replace(&mut first.rows, piece.rows);
                    first.rows.extend(behind);
                }
                _ => self.pieces.push_front(piece),
            }
        }
    }
}

/// The rows of `pieces` as they lie.
pub(super) fn steps(pieces: &[RowsOfFile]) -> Result<PackedRuns> {
    let mut runs = Runs::default();
    for piece in pieces {
        let source = SourceId(u32::try_from(piece.file).unwrap_or(u32::MAX));
        piece.rows.iter().for_each(|rows| runs.push(source, rows.start, rows.end - rows.start));
    }
    let mut steps = PackedRuns::default();
    steps.extend(runs.as_slice())?;
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_rows_are_taken_once_and_in_their_order() {
        let pieces = vec![
            RowsOfFile { file: 0, rows: vec![0..10, 12..13] },
            RowsOfFile { file: 2, rows: vec![5..20, 21..26] },
        ];
        for rows_max in 1..40 {
            let mut loose = LooseRows::new(pieces.clone());
            let mut all = Vec::new();
            let mut again = true;
            loop {
                let taken = loose.take(rows_max);
                if taken.is_empty() {
                    break;
                }
                if std::mem::take(&mut again) {
                    loose.put_back(taken);
                    continue;
                }
                let rows: u64 =
                    taken.iter().map(|piece| super::super::call::rows_of(&piece.rows)).sum();
                assert_eq!(steps(&taken).unwrap().rows(), rows);
                assert!(rows <= rows_max);
                for piece in taken {
                    all.extend(piece.rows.into_iter().flatten().map(|row| (piece.file, row)));
                }
            }
            let first = (0..10).chain([12]).map(|row| (0, row));
            assert_eq!(
                all,
                first.chain((5..20).chain(21..26).map(|row| (2, row))).collect::<Vec<_>>()
            );
        }
    }
}
