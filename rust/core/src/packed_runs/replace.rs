//! Runs with other rows in place of some of them.
//!
//! ```text
//! runs      [0: 4+3] [1: 0+2]     rows 4 5 6 of source 0, 0 1 of source 1
//! rows      1 ─▶ 1: 9             output row 1 is another row for this column
//! replaced  [0: 4+1] [1: 9+1] [0: 6+1] [1: 0+2]
//! ```
//!
//! # Not here
//! Which rows (`plan`).

use plait_base::{Result, Run, Runs, SourceId};

/// Another row for a row of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The row of the output.
    pub row: u64,
    /// The source of the other row, and its number.
    pub source: SourceId,
    /// Counted over the source.
    pub source_row: u64,
}

/// `runs` with `rows`, ascending, in place of some of their rows. `put` is given all runs so far,
/// again and again; it may take out those before the last.
///
/// # Errors
/// Those of `rows` and `put`.
pub(crate) fn replace(
    runs: impl Iterator<Item = Run>,
    rows: impl Iterator<Item = Result<Replaced>>,
    mut put: impl FnMut(&mut Runs) -> Result<()>,
) -> Result<Runs> {
    let mut out = Runs::default();
    let mut rows = rows.peekable();
    let mut row = 0;
    for run in runs {
        let end = row + u64::from(run.len);
        let mut start = run.start;
        while let Some(next) =
            rows.next_if(|next| next.as_ref().map_or(true, |next| next.row < end))
        {
            let Replaced { row: at, source, source_row } = next?;
            let before = at.saturating_sub(row);
            out.push(run.source, start, before);
            out.push(source, source_row, 1);
            (start, row) = (start + before + 1, row + before + 1);
        }
        out.push(run.source, start, end - row);
        row = end;
        put(&mut out)?;
    }
    Ok(out)
}
