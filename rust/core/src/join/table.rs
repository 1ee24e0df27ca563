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

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};

use super::emit::{Pairs, values};
use super::fold::collect;
use super::layout::Layout;
use super::range::Ranges;
use super::spec::How;
use super::step::Tables;
use crate::{Error, Result};

/// The joined table.
#[derive(Debug)]
pub struct Table {
    layout: Arc<Layout>,
    schema: SchemaRef,
    tables: Tables,
    ranges: Ranges,
    batch_rows: usize,
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
        Ok(Self { layout, schema, tables, ranges, batch_rows: batch_rows.max(1) })
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        while let Some(stretch) = self.ranges.next(self.batch_rows)? {
            let left = stretch.picked;
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
                continue;
            }
            let is_there = vec![true; left.len()];
            let columns = values(&self.layout, &Pairs { left, right, is_there }, &places)?;
            let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns);
            return batch.map(Some).map_err(Error::from_arrow);
        }
        Ok(None)
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
