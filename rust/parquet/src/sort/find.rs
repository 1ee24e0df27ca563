//! Which rows of the files are in order: their keys, looked at once.
//!
//! # Invariants
//! A file whose footer tells its keys, in the order that is asked for, is taken for sorted if
//! footers are trusted: the merge compares all keys again. Nothing depends on threads.
//!
//! # Not here
//! What an order is (`plait_core::natural`).

use std::ops::Range;
use std::sync::Arc;

use plait_core::Result;
use plait_core::natural::{NaturalRun, RowStretch, RunFinder};
use plait_core::workers::each;

use super::call::{SortCall, SortedFiles};
use crate::files::readers;
use crate::keys::KeyReader;
use crate::order::KEY_ROWS;
use crate::plan::tells_keys;
use crate::ranks::KeyForm;
use crate::runtime::MemoryStage;
use crate::source::Source;

/// Bytes of one range of rows that is noted.
const RANGE_BYTES: usize = 24;

/// The order of the rows of a file.
pub(crate) struct FileOrder {
    /// The file, by its place among all.
    pub(crate) file: usize,
    /// Its rows.
    pub(crate) stretches: Vec<RowStretch>,
}

impl FileOrder {
    /// Whether all rows are in order.
    pub(crate) fn is_sorted(&self) -> bool {
        match self.stretches.as_slice() {
            [] => true,
            [RowStretch::Run(run)] => run.early.is_empty() && run.late.is_empty(),
            _ => false,
        }
    }

    /// How many rows have to be sorted.
    pub(crate) fn loose_rows(&self) -> u64 {
        let loose = self.stretches.iter().map(|stretch| match stretch {
            RowStretch::Run(run) => run.early.iter().chain(&run.late).map(rows_of).sum(),
            RowStretch::Loose(rows) => rows_of(rows),
        });
        loose.sum()
    }
}

fn rows_of(range: &Range<u64>) -> u64 {
    range.end - range.start
}

/// Looks at the keys of all files.
///
/// # Errors
/// Whatever is wrong with a file.
pub(crate) fn find(call: SortCall<'_>) -> Result<Vec<FileOrder>> {
    let files = SortedFiles::open(call, KeyForm::Ranked)?;
    match find_in(call, &files) {
        Err(_) if files.is_broken() => find_in(call, &SortedFiles::open(call, KeyForm::Stored)?),
        found => found,
    }
}

fn find_in(call: SortCall<'_>, opened: &SortedFiles) -> Result<Vec<FileOrder>> {
    let SortCall { merged, options, context } = call;
    let files = &merged.files;
    let ranges = context.budget().bytes(MemoryStage::SortedRanges) / RANGE_BYTES;
    let ranges_max = ranges / files.len().max(1);
    each(&readers(files, options.threads, context), files.len(), |i| {
        let file = &files[i];
        let is_known = options.trust_footers && tells_keys(file, &merged.order, &opened.keys);
        let stretches = match is_known || merged.order.is_empty() {
            true if file.rows() == 0 => Vec::new(),
            true => {
                let rows = std::iter::once(0..file.rows()).collect();
                vec![RowStretch::Run(NaturalRun { rows, ..NaturalRun::default() })]
            }
            false => stretches(call, opened, file, ranges_max)?,
        };
        Ok(FileOrder { file: i, stretches })
    })
}

fn stretches(
    call: SortCall<'_>,
    opened: &SortedFiles,
    file: &Arc<Source>,
    ranges_max: usize,
) -> Result<Vec<RowStretch>> {
    let mut finder = RunFinder::new(0, ranges_max);
    if file.rows() == 0 {
        return Ok(Vec::new());
    }
    let mut reader = KeyReader::open(file, &opened.keys, 0, &opened.cache, call.context)?;
    while let Some((keys, _)) = reader.next(KEY_ROWS)? {
        call.context.check_cancelled()?;
        finder.push(&keys);
    }
    Ok(finder.finish())
}
