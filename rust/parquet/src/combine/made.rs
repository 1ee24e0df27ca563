//! Values that no source has: sums and products, as rows of a source of their own.
//!
//! ```text
//! group of 3 rows ─ numbers ─ fold ─▶ 42 ─▶ row 0 of the source behind all others
//! window          rows 0..n of that source ─▶ one block, as a page holds values
//! ```
//!
//! # Invariants
//! Rows are numbered through all windows of a batch. A column whose values are made is one leaf.
//!
//! # Not here
//! How numbers are added (`plait_core::plan`).

use arrow_schema::DataType;
use bytes::Bytes;
use parquet::schema::types::ColumnDescriptor;
use plait_core::plan::{
    ColumnValues, Folded, Number, NumberType, SourceRow, ValueRule, does_not_fit,
};
use plait_core::{Error, Kind, Result, SourceId};

use super::column::CombinedColumn;
use super::numbers::put_plain;
use super::values::SourceValues;
use crate::block::{Block, Contents, Values};
use crate::weave::MadeRows;

/// Made values of one window.
pub(super) struct MadeValues {
    source: SourceId,
    /// The row of the first of `values`.
    first: u64,
    values: Vec<Option<Number>>,
    rule: ValueRule,
    data_type: DataType,
}

impl MadeValues {
    /// None yet, of a source behind `sources` others.
    pub(super) fn new(sources: usize, column: &CombinedColumn) -> Self {
        Self {
            source: SourceId(u32::try_from(sources).unwrap_or(u32::MAX)),
            first: 0,
            values: Vec::new(),
            rule: column.rule,
            data_type: column.data_type.clone(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Makes the value of the rows of one key; the row that it is. `key` gives the key in words.
    pub(super) fn fold(
        &mut self,
        rows: &[SourceRow],
        values: &mut SourceValues<'_>,
        key: impl Fn(&SourceValues<'_>) -> String,
    ) -> Result<(SourceId, u64)> {
        let (Some(function), Some(number)) = (self.rule.fold(), NumberType::of(&self.data_type))
        else {
            return Err(Error::new(Kind::Internal, "a column without numbers was aggregated"));
        };
        let numbers = rows.iter().map(|row| values.number(*row));
        let made = match number.fold(function, numbers)? {
            Folded::Fits(made) => made,
            Folded::DoesNotFit(made) => {
                let error = does_not_fit(made, &self.data_type, &key(values));
                return Err(values.named(error));
            }
        };
        self.values.push(made);
        Ok((self.source, self.first + self.values.len() as u64 - 1))
    }

    /// The values since they were taken last, if there are any.
    pub(super) fn take(&mut self, descr: &ColumnDescriptor) -> Result<Option<MadeRows>> {
        let values = std::mem::take(&mut self.values);
        if values.is_empty() {
            return Ok(None);
        }
        self.first += values.len() as u64;
        let def_max = u8::try_from(descr.max_def_level()).unwrap_or(u8::MAX);
        let mut plain = Vec::new();
        for value in values.iter().flatten() {
            put_plain(*value, descr, &mut plain)?;
        }
        let level = |value: &Option<Number>| if value.is_some() { def_max } else { 0 };
        let contents = Contents {
            rows: values.len(),
            rep: Vec::new(),
            def: match def_max {
                0 => Vec::new(),
                _ => values.iter().map(level).collect(),
            },
            def_max,
            value_count: values.iter().flatten().count(),
            values: Values::Plain(Bytes::from(plain)),
        };
        Ok(Some(MadeRows { source: self.source, block: Block::new(contents) }))
    }
}
