//! The joined table as it is now, a batch at a time.
//!
//! # Invariants
//! Rows come by foreign key, then primary key.
//!
//! # Cost
//! One pass over the left table, one look-up for each foreign key of a batch.
//!
//! # Not here
//! What changed (`changes`).

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};

use super::deduplicate::collect;
use super::emit::{Pairs, values};
use super::layout::Layout;
use super::picked::Picked;
use super::range::Ranges;
use super::spec::How;
use super::step::Tables;
use crate::workers::{Alone, Workers, each, parts};
use plait_base::{Error, Result};

/// The joined table.
pub struct Table {
    layout: Arc<Layout>,
    schema: SchemaRef,
    tables: Tables,
    ranges: Ranges,
    batch_rows: usize,
    workers: Arc<dyn Workers + Sync>,
    /// Made already, by several workers at a time.
    made: VecDeque<RecordBatch>,
}

impl Table {
    /// The join of `tables`.
    ///
    /// # Errors
    /// None but those of memory.
    pub fn try_new(layout: Arc<Layout>, tables: Tables, batch_rows: usize) -> Result<Self> {
        // Every key begins with nothing.
        let prefixes = collect([[&[][..], &[][..]]].into_iter())?;
        let ranges = Ranges::new(tables.left.clone(), prefixes);
        let schema = layout.table();
        let (workers, made) = (Arc::new(Alone), VecDeque::new());
        let batch_rows = batch_rows.max(1);
        Ok(Self { layout, schema, tables, ranges, batch_rows, workers, made })
    }

    /// The same, made by `workers`, who share the rows of a batch; the order of rows stays.
    #[must_use]
    pub fn with_workers(self, workers: Arc<dyn Workers + Sync>) -> Self {
        Self { workers, ..self }
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.made.pop_front() {
                return Ok(Some(batch));
            }
            let Some(stretch) = self.ranges.next(self.batch_rows)? else { return Ok(None) };
            let workers = self.workers.as_ref();
            let parts = parts(workers, stretch.picked.len());
            let part = |i: usize| self.joined(&stretch.picked, parts[i].0..parts[i].1);
            self.made = each(workers, parts.len(), part)?.into_iter().flatten().collect();
        }
    }

    /// These of the left rows with their right rows.
    fn joined(&self, left: &Picked, rows: Range<usize>) -> Result<Option<RecordBatch>> {
        let left = left.at(rows.map(Some));
        let mut foreign = Vec::with_capacity(left.len());
        for i in 0..left.len() {
            let key = left.key(i).unwrap_or_default();
            foreign.push(key.get(..self.layout.foreign_len(key)?).unwrap_or_default());
        }
        let right = self.tables.right.find(&foreign)?.live();
        let is_outer = self.layout.spec.how == How::Left;
        let is_there = |i: usize| is_outer || right.is_live(i);
        let places: Vec<usize> = (0..left.len()).filter(|i| is_there(*i)).collect();
        if places.is_empty() {
            return Ok(None);
        }
        let is_there = vec![true; left.len()];
        let columns = values(&self.layout, &Pairs { left, right, is_there }, &places)?;
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        batch.map(Some).map_err(Error::from_arrow)
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("batch_rows", &self.batch_rows).finish_non_exhaustive()
    }
}

impl Iterator for Table {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().map_err(Error::into_arrow).transpose()
    }
}

impl arrow_array::RecordBatchReader for Table {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
