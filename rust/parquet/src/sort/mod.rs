//! Makes sorted runs of files that are in no order, or almost in order: a merge does the rest.
//!
//! ```text
//! file    ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓ ░░░░░░░░░░ ▓▓▓▓▓▓▓▓ ▓▓▓▓▓▓▓▓▓
//!         run, a few rows late  loose        run      run
//!           │          └────┬────┘            │        │
//!           │       sorted in memory,         │        │
//!           │       written to a temp file    │        │
//!           ▼               ▼                 ▼        ▼
//! runs    1 rows of the   2 the temp file   3        4          ─▶ plan ─▶ merge
//!           file as they lie
//! ```
//!
//! # Invariants
//! Every row of the files is in one run. Of two rows with one key, the one that comes first is in an
//! earlier run, or lies before the other in the same run: so the merge of the runs is a stable sort.
//! Temp files have no visible name, and are removed with [`SortedRuns`].
//!
//! # Cost
//! Keys of all files are read once, but for files whose footers tell their keys. Rows of runs are
//! read and written by the merge alone; loose rows are read and written once more. Memory: see
//! `budget`.
//!
//! # Not here
//! Which rows are in order (`plait_core::natural`); merging runs (`merge`).

mod call;
mod chunk;
mod find;
mod order;
mod write;

use std::ops::Range;
use std::sync::Arc;

use plait_core::natural::RowStretch;
use plait_core::{Result, SourceId};

pub(crate) use call::SortCall;
pub(crate) use find::{FileOrder, find};
pub(crate) use order::SortKeys;
pub(crate) use write::temp_options;

use self::call::{RowsOfFile, rows_of};
use crate::output::{Target, TempFile};
use crate::runtime::Pool;
use crate::selection::Selection;
use crate::source::Source;

/// Sorted runs of some files.
pub(crate) struct SortedRuns {
    /// The runs, in the order that breaks ties.
    pub(crate) sources: Arc<Vec<Arc<Source>>>,
    /// Rows that were sorted.
    pub(crate) sorted_rows: u64,
    _temps: Vec<TempFile>,
}

/// What a run is made of.
enum Slot {
    /// Rows of a file that are in order.
    InOrder(RowsOfFile),
    /// Rows to sort.
    Loose(Vec<RowsOfFile>),
}

/// Sorts what is not in order in `files`, whose order is `found`.
///
/// # Errors
/// Whatever is wrong with a file, or with the storage for temp files.
pub(crate) fn make_runs(
    call: SortCall<'_>,
    found: Vec<FileOrder>,
    target: &Arc<Target>,
    pool: Option<&Pool>,
) -> Result<SortedRuns> {
    let files = &call.merged.files;
    let slots = slots(found);
    let loose = slots.iter().map(|slot| match slot {
        Slot::Loose(pieces) => pieces.iter().map(|piece| rows_of(&piece.rows)).sum(),
        Slot::InOrder(_) => 0,
    });
    let sorted_rows = loose.sum();
    let runs_in_order = slots.iter().filter(|slot| matches!(slot, Slot::InOrder(_))).count();
    let mut sort = write::LooseSort::new(call, target, pool, runs_in_order, sorted_rows)?;
    let (mut sources, mut temps) = (Vec::new(), Vec::new());
    for slot in slots {
        match slot {
            Slot::InOrder(piece) => {
                let file = &files[piece.file];
                let is_whole = matches!(piece.rows.as_slice(), [all] if *all == (0..file.rows()));
                sources.extend(match Selection::try_new(piece.rows) {
                    _ if is_whole => Some(Arc::clone(file)),
                    selection => selection.map(|rows| Arc::new(file.with_selection(rows))),
                });
            }
            Slot::Loose(pieces) => {
                for temp in sort.sort(pieces)? {
                    sources.push(Source::open_scratch(&temp)?);
                    temps.push(temp);
                }
            }
        }
    }
    let renumber = |(i, source): (usize, Arc<Source>)| {
        Arc::new(source.with_id(SourceId(u32::try_from(i).unwrap_or(u32::MAX))))
    };
    let sources = Arc::new(sources.into_iter().enumerate().map(renumber).collect());
    Ok(SortedRuns { sources, sorted_rows, _temps: temps })
}

/// What is in order, and what lies between, in the order that breaks ties.
fn slots(found: Vec<FileOrder>) -> Vec<Slot> {
    let mut slots: Vec<Slot> = Vec::new();
    let loosen = |slots: &mut Vec<Slot>, file: usize, rows: Vec<Range<u64>>| {
        if rows.is_empty() {
            return;
        }
        match slots.last_mut() {
            Some(Slot::Loose(pieces)) => match pieces.last_mut() {
                Some(piece) if piece.file == file => piece.rows.extend(rows),
                _ => pieces.push(RowsOfFile { file, rows }),
            },
            _ => slots.push(Slot::Loose(vec![RowsOfFile { file, rows }])),
        }
    };
    for FileOrder { file, stretches } in found {
        for stretch in stretches {
            match stretch {
                RowStretch::Loose(rows) => loosen(&mut slots, file, vec![rows]),
                RowStretch::Run(run) => {
                    loosen(&mut slots, file, run.early);
                    slots.push(Slot::InOrder(RowsOfFile { file, rows: run.rows }));
                    loosen(&mut slots, file, run.late);
                }
            }
        }
    }
    slots
}
