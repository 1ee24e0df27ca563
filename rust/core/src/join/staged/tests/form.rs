//! What a staged join is asked for besides its keys, and what its result is then.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, FieldRef, Schema};

use super::Joined;
use crate::join::{Call, How, Joiner, Layout, NullKeys, Spec};

/// An option of the join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// None.
    Plain,
    /// Two columns, one of them renamed.
    Columns,
    /// Old values.
    Before,
    /// Rows as a callable makes them, which looks at the first letter of a payload only.
    Joined,
    /// Changes without a key are left out.
    DropNullKeys,
    /// Changes of a side come in any order.
    Sequence,
}

impl Form {
    pub(super) const ALL: [Self; 6] = [
        Self::Plain,
        Self::Columns,
        Self::Before,
        Self::Joined,
        Self::DropNullKeys,
        Self::Sequence,
    ];

    pub(super) fn layout(self, how: How) -> Arc<Layout> {
        let text = |name: &str| Field::new(name, DataType::Utf8, true);
        let pairs = [("id", "id"), ("v", "value")];
        let columns = pairs.map(|(name, of)| (name.to_owned(), of.to_owned())).to_vec();
        let spec = Spec {
            left_key: vec!["id".into()],
            foreign_key: vec!["fk".into()],
            is_computed: false,
            right_key: vec!["key".into()],
            how,
            on_null_key: match self {
                Self::DropNullKeys => NullKeys::Drop,
                _ => NullKeys::Error,
            },
            columns: (self == Self::Columns).then_some(columns),
            before: matches!(self, Self::Before | Self::Joined),
        };
        let mut left = vec![text("id"), text("fk"), text("payload")];
        let mut right = vec![text("key"), text("value")];
        if self == Self::Sequence {
            left.push(Field::new("_seq", DataType::Int64, true));
            right.push(Field::new("_seq", DataType::Int64, true));
        }
        Arc::new(Layout::try_new(spec, &Schema::new(left), &Schema::new(right)).unwrap())
    }

    pub(super) fn joiner(self, layout: &Arc<Layout>) -> Option<Joiner> {
        let call = Call::new(|rows: &RecordBatch| {
            let column = |name: &str| rows.column_by_name(name).unwrap().as_string::<i32>().clone();
            let (payload, value) = (column("payload"), column("value"));
            let text = |row| made(cell(&payload, row).as_deref(), cell(&value, row).as_deref());
            let texts: ArrayRef = Arc::new((0..rows.num_rows()).map(text).collect::<StringArray>());
            RecordBatch::try_from_iter([("text", texts)])
        });
        let make = || Joiner::try_new(Arc::clone(layout), false, call).unwrap();
        (self == Self::Joined).then(make)
    }

    /// The columns of the result behind its key.
    pub(super) fn names(self) -> &'static [&'static str] {
        match self {
            Self::Columns => &["v"],
            Self::Joined => &["text"],
            _ => &["fk", "payload", "value"],
        }
    }

    /// A joined row as the result has it.
    pub(super) fn shown(
        self,
        fk: Option<String>,
        payload: String,
        value: Option<String>,
    ) -> Joined {
        match self {
            Self::Columns => vec![value],
            Self::Joined => vec![made(Some(&payload), value.as_deref())],
            _ => vec![fk, Some(payload), value],
        }
    }

    /// The key as changes have it.
    pub(super) fn key(self, key: &str) -> Option<String> {
        (!self.leaves_out(key)).then(|| key.to_owned())
    }

    /// Whether changes of the key are left out.
    pub(super) fn leaves_out(self, key: &str) -> bool {
        self == Self::DropNullKeys && key.ends_with('1')
    }

    /// A change with its number among those of its side, if that is told.
    pub(super) fn numbered(self, change: &RecordBatch, number: usize) -> RecordBatch {
        if self != Self::Sequence {
            return change.clone();
        }
        let number = i64::try_from(number).unwrap();
        let mut fields: Vec<FieldRef> = change.schema().fields().iter().cloned().collect();
        fields.push(Arc::new(Field::new("_seq", DataType::Int64, true)));
        let mut columns = change.columns().to_vec();
        columns.push(Arc::new(arrow_array::Int64Array::from(vec![number])));
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
    }
}

fn made(payload: Option<&str>, value: Option<&str>) -> Option<String> {
    Some(format!("{} {}", payload?.get(..1)?, value.unwrap_or("-")))
}

pub(super) fn cell(array: &StringArray, row: usize) -> Option<String> {
    array.is_valid(row).then(|| array.value(row).to_owned())
}
