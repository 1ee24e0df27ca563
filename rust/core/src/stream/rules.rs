//! How the values of each column are combined, in the schema of all sources.
//!
//! # Not here
//! What rules there are (`crate::plan::ValueRule`); the values (`combined`).

use arrow_schema::{DataType, Schema};

use super::key::KeyColumns;
use crate::key::{Nulls, SortColumn, SortOrder};
use crate::plan::{DropOptions, ValueRule};
use plait_base::Result;

/// How the values of one column are combined.
pub(super) struct ColumnRule {
    pub(super) rule: ValueRule,
    pub(super) name: String,
    pub(super) data_type: DataType,
    /// How values are compared, where they are.
    pub(super) key: Option<KeyColumns>,
    /// The sort columns, for messages.
    pub(super) sort: KeyColumns,
}

impl ColumnRule {
    /// The rules of all columns of `schema`; none where rows are not combined.
    pub(super) fn find(
        options: &DropOptions,
        order: &SortOrder,
        sort: &KeyColumns,
        schema: &Schema,
    ) -> Result<Vec<Self>> {
        let is_key = |name: &str| {
            order.columns().iter().any(|column| column.path.first().is_some_and(|it| it == name))
        };
        let (on_duplicate, combine) = (options.on_duplicate, &options.combine);
        let rules = ValueRule::find(on_duplicate, combine, schema.fields(), is_key)?;
        let all = rules.into_iter().zip(schema.fields()).map(|(rule, field)| {
            let compares = matches!(rule, ValueRule::By(function) if function.compares());
            let key = compares.then(|| {
                let column = SortColumn {
                    path: vec![field.name().clone()],
                    descending: false,
                    nulls: Nulls::First,
                };
                KeyColumns::try_new(&SortOrder::try_new(vec![column])?, schema)
            });
            Ok(Self {
                rule,
                name: field.name().clone(),
                data_type: field.data_type().clone(),
                key: key.transpose()?,
                sort: sort.clone(),
            })
        });
        all.collect()
    }

    /// Whether all values are those of the last row of a key.
    pub(super) fn is_last(&self) -> bool {
        self.rule.is_last()
    }
}
