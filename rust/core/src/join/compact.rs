//! Many sorted runs as one: which, and how in memory.
//!
//! ```text
//! rows   4,000,000   900,000   60,000 60,000 60,000 60,000 │ 60,000      the newest stays
//! level      11         9         7      7      7      7   │            four of a level: merged
//! ```
//!
//! # Invariants
//! Only neighbours are merged, and the last run stays: the changes of the last step are made of it.
//!
//! # Cost
//! A row is copied once for each level, that is, log4 of the table over a step.
//!
//! # Not here
//! Runs that are files (`plait_parquet::join`).

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::block::Block;
use super::find::{MemoryRun, StateRun, View};
use super::fold::collect;
use super::picked::Picked;
use super::range::Ranges;
use crate::workers::{Workers, each};
use crate::{Error, Result};

/// So many runs of one level are merged.
const RUNS_OF_LEVEL: usize = 4;

/// Rows of a block in memory.
const BLOCK_ROWS: usize = 1 << 20;

/// Which of runs with so many rows, oldest first, are to be merged.
#[must_use]
pub fn due(rows: &[u64]) -> Option<Range<usize>> {
    let level = |rows: u64| rows.max(1).ilog2() / 2;
    (0..rows.len()).find_map(|start| {
        let top = level(rows[start]);
        let levels = rows[start..].iter().map(|rows| level(*rows));
        let is_top = levels.clone().all(|level| level <= top);
        let count = levels.filter(|level| *level == top).count();
        (is_top && count >= RUNS_OF_LEVEL).then_some(start..rows.len())
    })
}

/// The newest rows of `view` as one run in memory. Rows that delete are left out unless
/// `keep_deleted`.
///
/// # Errors
/// What reading gives.
pub fn compact(
    view: &View,
    schema: &SchemaRef,
    keep_deleted: bool,
    workers: &dyn Workers,
) -> Result<MemoryRun> {
    let prefixes = collect([[&[][..], &[][..]]].into_iter())?;
    let mut ranges = Ranges::new(view.clone(), prefixes).with_deleted(keep_deleted);
    let mut blocks = Vec::new();
    while let Some(stretch) = ranges.next(BLOCK_ROWS)? {
        blocks.push(copied(&stretch.picked, schema, workers)?);
    }
    Ok(MemoryRun::new(blocks))
}

fn copied(picked: &Picked, schema: &SchemaRef, workers: &dyn Workers) -> Result<Block> {
    let (rows, fields) = (picked.rows(), schema.fields());
    let column = |place: usize| rows.column(place, fields[place].data_type());
    let columns = each(workers, fields.len(), column)?;
    let batch = RecordBatch::try_new(Arc::clone(schema), columns);
    Block::repeated(batch.map_err(Error::from_arrow)?)
}

impl MemoryRun {
    /// The run as the newest of a view.
    #[must_use]
    pub fn into_run(self) -> Arc<dyn StateRun> {
        Arc::new(self)
    }
}
