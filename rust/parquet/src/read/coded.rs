//! Conditions on texts by the dictionaries of a file: each value is looked at once, not each row.
//!
//! # Invariants
//! Only for columns that are not nested and have in the file the type of the read.
//!
//! # Cost
//! No text is copied. Where a chunk has pages without a dictionary, its texts are read as they are.
//!
//! # Not here
//! What a condition asks for (`plait_core::predicate`).

use arrow_array::{ArrayRef, RecordBatch};

use super::leaves::leaf_count;
use super::shared::Conditions;
use crate::arrow_file::FileSchema;
use crate::properties::has_paying_dictionary;
use crate::source::Source;

/// How the columns of conditions are read as codes.
#[derive(Clone)]
pub(super) struct CodedColumns {
    /// The schema of the file with dictionaries.
    pub(super) schema: FileSchema,
    /// Leaves of texts.
    texts: Vec<usize>,
    /// For each column of the conditions its place in a batch of these leaves.
    places: Vec<usize>,
}

impl CodedColumns {
    /// The same for a file of some schema, if the conditions are about texts and nothing nested.
    /// `leaves` are those of the conditions, in order.
    pub(super) fn of(
        conditions: &Conditions,
        schema: &FileSchema,
        leaves: &[usize],
    ) -> Option<Self> {
        let (own, wanted) = (schema.schema().fields(), conditions.frozen.schema().fields());
        let mut columns = Vec::with_capacity(wanted.len());
        for (place, field) in conditions.frozen.places(own).into_iter().zip(wanted) {
            let column = place?;
            if own.get(column)?.data_type() != field.data_type() || field.data_type().is_nested() {
                return None;
            }
            columns.push(column);
        }
        let schema = schema.with_codes(&columns)?;
        let leaf = |column: usize| -> usize {
            own.iter().take(column).map(|field| leaf_count(field.data_type())).sum()
        };
        let is_text = |column: &&usize| {
            schema.schema().field(**column).data_type() != own[**column].data_type()
        };
        let texts = columns.iter().filter(is_text).map(|column| leaf(*column)).collect();
        let place = |column: &usize| leaves.iter().position(|at| *at == leaf(*column));
        let places = columns.iter().map(place).collect::<Option<Vec<_>>>()?;
        Some(Self { schema, texts, places })
    }

    /// Whether all texts of a row group are in dictionaries.
    pub(super) fn are_in(&self, source: &Source, group: usize) -> bool {
        let is_coded = |leaf: &usize| {
            source.chunk(group, *leaf).is_ok_and(|chunk| has_paying_dictionary(&chunk))
        };
        self.texts.iter().all(is_coded)
    }

    /// The columns of the conditions in a batch.
    pub(super) fn columns(&self, batch: &RecordBatch) -> Vec<ArrayRef> {
        self.places.iter().filter_map(|place| batch.columns().get(*place).cloned()).collect()
    }
}
