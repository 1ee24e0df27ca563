//! Rows for which a condition does not hold: what stays when it says what goes.
//!
//! # Invariants
//! A row is among the rest unless the condition is true of it, so that rows that go and rows that
//! stay are all rows: a comparison with null is not true.
//!
//! # Cost
//! A key a row and condition, and a copy of the rows that stay.
//!
//! # Not here
//! What the condition means (`plait_core::predicate`).

use arrow_array::{BooleanArray, RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::filter::filter_record_batch;
use plait_core::Result;
use plait_core::predicate::{Filter, Predicate};

/// Batches of one schema.
type Reader = Box<dyn RecordBatchReader + Send>;

/// The rows of `source` for which `condition` is not true, in their order.
///
/// # Errors
/// [`InvalidArgument`](plait_core::Kind::InvalidArgument) for a condition that cannot be read,
/// [`UnknownColumn`](plait_core::Kind::UnknownColumn).
pub fn rest(source: Reader, condition: &str) -> Result<Reader> {
    let filter = Predicate::try_parse(condition)?.bind(&source.schema())?;
    Ok(Box::new(Rest { source, filter }))
}

struct Rest {
    source: Reader,
    filter: Filter,
}

impl Iterator for Rest {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let stays = |batch: RecordBatch| {
            let goes = self.filter.holds(batch.columns(), batch.num_rows());
            let stays = BooleanArray::new(!&goes.map_err(plait_core::Error::into_arrow)?, None);
            filter_record_batch(&batch, &stays)
        };
        Some(self.source.next()?.and_then(stays))
    }
}

impl RecordBatchReader for Rest {
    fn schema(&self) -> SchemaRef {
        self.source.schema()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::cast::AsArray;
    use arrow_array::types::Float64Type;
    use arrow_array::{Float64Array, RecordBatchIterator};

    use super::*;

    #[test]
    fn what_goes_and_what_stays_is_everything() {
        let values = vec![Some(1.0), None, Some(f64::NAN), Some(3.0), Some(2.0)];
        let column = Arc::new(Float64Array::from(values)) as _;
        let batch = RecordBatch::try_from_iter_with_nullable([("x", column, true)]).unwrap();
        let left = |condition: &str| {
            let schema = batch.schema();
            let source = RecordBatchIterator::new([Ok(batch.clone())], schema);
            let rest = rest(Box::new(source), condition).unwrap();
            rest.flat_map(|batch| {
                let batch = batch.unwrap();
                let column = batch.column(0).as_primitive::<Float64Type>();
                column.iter().map(|v| format!("{v:?}")).collect::<Vec<_>>()
            })
            .collect::<Vec<_>>()
            .join(" ")
        };
        assert_eq!(left("x < 3"), "None Some(NaN) Some(3.0)");
        assert_eq!(left("x >= 2 AND x < 3"), "Some(1.0) None Some(NaN) Some(3.0)");
        assert_eq!(left("x IS NULL"), "Some(1.0) Some(NaN) Some(3.0) Some(2.0)");
    }
}
