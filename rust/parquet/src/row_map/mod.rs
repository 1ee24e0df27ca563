//! The row map of an output: which row of which source each of its rows is, and what became of all
//! other rows of the sources.
//!
//! ```text
//! source  0 0 1 0 1 1 …      one row of the map a row of a source, in the order of the merge
//! fate    0 0 0 1 0 2 …      kept: the next row of the output · dropped · deleted
//! ```
//!
//! It is a Parquet file ([format](https://github.com/plait/plait/blob/main/docs/formats/row-map.md)):
//! Parquet packs ids of sources into as few bits as there must be, and runs into a few bytes.
//!
//! # Invariants
//! Every row of a source that the output's task has is in the map once. Rows of one source are in
//! their order. Whoever reads a map gets one of which both are true, or an error.
//!
//! # Cost
//! Writing: about five nanoseconds a run, and the packed pages of [`GROUP_ROWS`](write) rows.
//! Reading: from the beginning, a few nanoseconds a row.
//!
//! # Not here
//! Which rows come next (`merge`); when a map gets its name (`merge`).

mod carry;
mod map_file;
mod read;
mod trace;
mod write;

pub(crate) use carry::carry_in;
pub use map_file::mapped_output;
pub(crate) use map_file::{MapHeader, MappedSource, map_name, whole_path};
pub(crate) use read::{MapRun, MapRuns, RowMap};
pub(crate) use trace::trace_in;
pub(crate) use write::{FinishedMap, RowMapWriter};

use serde::Serialize;

/// What became of a row of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub(crate) enum Fate {
    /// It is a row of the output.
    Kept = 0,
    /// The merge left it out.
    Dropped = 1,
    /// It was deleted before: the merge left it out, too.
    Deleted = 2,
}

impl Fate {
    /// How many there are.
    const COUNT: usize = 3;

    /// The fate that a map writes as `number`.
    fn of(number: u32) -> Option<Self> {
        [Self::Kept, Self::Dropped, Self::Deleted].get(number as usize).copied()
    }
}
