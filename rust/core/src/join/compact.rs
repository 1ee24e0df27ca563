//! Many sorted runs as one: which, and how in memory.
//!
//! ```text
//! rows   4,000,000   900,000   60,000 60,000 60,000 60,000 │ 60,000      the newest stays
//! level      11         9         7      7      7      7   │            four of a level: merged
//! ```
//!
//! # Invariants
//! Only neighbours are merged, and the last run stays: the changes of the last step are made of it.
//! All others have at most twice as many rows as the oldest: rows that are replaced take no more room than
//! the table.
//!
//! # Cost
//! A row is copied once for each level, that is, log4 of the table over a step; and the table once each
//! time as many rows have come as it has.
//!
//! # Not here
//! Runs that are files (`plait_parquet::join`).

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::block::Block;
use super::deduplicate::collect;
use super::find::{MemoryRun, SortedRun, View};
use super::picked::Picked;
use super::range::Ranges;
use crate::workers::{Workers, each};
use plait_base::{Error, Result};

/// So many runs of one level are merged.
const RUNS_OF_LEVEL: usize = 4;

/// Rows of a block in memory.
const BLOCK_ROWS: usize = 1 << 20;

/// Which of runs with so many rows, oldest first, are to be merged.
#[must_use]
pub fn due(rows: &[u64]) -> Option<Range<usize>> {
    if let [oldest, newer @ ..] = rows
        && !newer.is_empty()
        && newer.iter().sum::<u64>() >= *oldest
    {
        return Some(0..rows.len());
    }
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
    pub fn into_run(self) -> Arc<dyn SortedRun> {
        Arc::new(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs after so many steps, each with a run of `step` rows on a table of `table` rows, where what is
    /// merged has as many rows as the table at most; and rows that were copied.
    fn followed(table: u64, step: u64, steps: usize) -> (u64, u64, usize) {
        let (mut runs, mut most, mut copied, mut longest) = (vec![table], 0, 0, 0);
        for _ in 0..steps {
            runs.push(step);
            if let Some(range) = due(&runs) {
                let rows: u64 = runs[range.clone()].iter().sum();
                copied += rows;
                runs.splice(range, [rows.min(table)]);
            }
            most = most.max(runs.iter().sum());
            longest = longest.max(runs.len());
        }
        (most, copied, longest)
    }

    #[test]
    fn replaced_rows_take_no_more_room_than_the_table_and_are_copied_seldom() {
        for (table, step) in [(1_000_000, 1_000), (1_000_000, 70_000), (25_000, 3_400), (100, 100)]
        {
            let (most, copied, longest) = followed(table, step, 2_000);
            assert!(most < 2 * table + step, "{table} by {step}: {most} rows");
            assert!(copied < 8 * step * 2_000, "{table} by {step}: {copied} rows copied");
            assert!(longest <= 24, "{table} by {step}: {longest} runs");
        }
    }

    #[test]
    fn four_of_a_level_are_merged_and_fewer_wait() {
        assert_eq!(due(&[1_000_000, 60_000, 60_000, 60_000]), None);
        assert_eq!(due(&[1_000_000, 60_000, 60_000, 60_000, 60_000]), Some(1..5));
        assert_eq!(due(&[100, 60, 40]), Some(0..3));
        assert_eq!(due(&[7]), None);
        assert_eq!(due(&[]), None);
    }
}
