//! Makes sorted runs of files that are in no order, or almost in order: a merge does the rest.
//!
//! ```text
//! file    ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓ ░░░░░░░░░░ ▓▓▓▓▓▓▓▓ ▓▓▓▓▓▓▓▓▓
//!         run, a few rows late  loose        run      run
//!           │          └────┬────┘            │        │
//!           │       sorted in memory,         │        │
//!           │       written to a temp file    │        │
//!           ▼               ▼                 ▼        ▼
//! runs    1 rows of the   2 a row group of  3        4          ─▶ plan ─▶ merge
//!           file as they    the temp file
//!           lie
//! ```
//!
//! # Invariants
//! Every row of the files is in one run. Of two rows with one key, the one that comes first is in an
//! earlier run, or lies before the other in the same run: so the merge of the runs is a stable sort.
//! Temp files have no visible name, and are removed with [`SortedRuns`].
//!
//! # Cost
//! Keys of all files are read once, but for files whose footers tell their keys. Rows of runs are
//! read and written by the merge alone; loose rows are read and written once more, in one pass
//! through each file whatever runs they belong to. Memory: see `budget`.
//!
//! # Not here
//! Which rows are in order (`plait_core::natural`); merging runs (`merge`).

mod call;
mod chunk;
mod find;
mod order;
mod write;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use plait_core::natural::RowStretch;
use plait_core::{Result, SourceId};

pub(crate) use call::SortCall;
pub(crate) use find::{FileOrder, find};
pub(crate) use order::SortKeys;
pub(crate) use write::temp_options;

use self::call::LooseRange;
use self::write::SortedTemp;
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
    InOrder(usize, Vec<Range<u64>>),
    /// Rows to sort.
    Loose,
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
    let (slots, loose) = slots(files, found);
    let sorted_rows = loose.iter().map(LooseRange::len).sum();
    let mut sort = write::LooseSort::new(call, target, pool, slots.len(), sorted_rows)?;
    let mut sorted: BTreeMap<u32, Vec<Arc<Source>>> = BTreeMap::new();
    let mut temps = Vec::new();
    for SortedTemp { temp, runs } in sort.sort(loose)? {
        let file = Source::open_scratch(&temp)?;
        let mut start = 0;
        for (run, rows) in runs {
            let rows = start..start + rows;
            start = rows.end;
            sorted.entry(run).or_default().extend(rows_of_file(&file, vec![rows]));
        }
        temps.push(temp);
    }
    let mut sources = Vec::new();
    for (slot, run) in slots.into_iter().zip(0..) {
        match slot {
            Slot::InOrder(file, rows) => sources.extend(rows_of_file(&files[file], rows)),
            Slot::Loose => sources.extend(sorted.remove(&run).unwrap_or_default()),
        }
    }
    let renumber = |(i, source): (usize, Arc<Source>)| {
        Arc::new(source.with_id(SourceId(u32::try_from(i).unwrap_or(u32::MAX))))
    };
    let sources = Arc::new(sources.into_iter().enumerate().map(renumber).collect());
    Ok(SortedRuns { sources, sorted_rows, _temps: temps })
}

/// Some rows of a file as a source; none if there are none.
fn rows_of_file(file: &Arc<Source>, rows: Vec<Range<u64>>) -> Option<Arc<Source>> {
    let rows = file.among(rows);
    match rows.as_slice() {
        [all] if *all == (0..file.rows()) => Some(Arc::clone(file)),
        _ => Selection::try_new(rows).map(|rows| Arc::new(file.with_selection(rows))),
    }
}

/// What is in order, and what lies between, in the order that breaks ties; and the rows of the
/// latter.
fn slots(files: &[Arc<Source>], found: Vec<FileOrder>) -> (Vec<Slot>, Vec<LooseRange>) {
    let (mut slots, mut loose): (Vec<Slot>, Vec<LooseRange>) = (Vec::new(), Vec::new());
    let mut loosen = |slots: &mut Vec<Slot>, file: usize, rows: Vec<Range<u64>>| {
        let rows = files[file].among(rows);
        if !rows.is_empty() && !matches!(slots.last(), Some(Slot::Loose)) {
            slots.push(Slot::Loose);
        }
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let (file, run) = (number(file), number(slots.len().saturating_sub(1)));
        loose.extend(rows.into_iter().map(|rows| LooseRange { file, run, rows }));
    };
    for FileOrder { file, stretches } in found {
        for stretch in stretches {
            match stretch {
                RowStretch::Loose(rows) => loosen(&mut slots, file, vec![rows]),
                RowStretch::Run(run) => {
                    loosen(&mut slots, file, run.early);
                    slots.push(Slot::InOrder(file, run.rows));
                    loosen(&mut slots, file, run.late);
                }
            }
        }
    }
    (slots, loose)
}
