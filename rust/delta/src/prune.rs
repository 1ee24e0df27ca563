//! Which live files may have rows of a condition, by what the log says of each.
//!
//! ```text
//! day = 2 AND k > 40      day 1  k 0..99   ✗ another partition
//!                         day 2  k 0..30   ✗ by its statistics
//!                         day 2  k 20..70  ✓
//! ```
//!
//! # Invariants
//! A file with a row for which all conditions hold is never left out. What the log does not say, or
//! says of a type that is not compared here (floats, decimals, columns that are cast), leaves a file in.
//!
//! # Cost
//! A comparison a file and condition; statistics are read of files that partitions leave.
//!
//! # Not here
//! Footers, pages and rows (`plait_parquet::read`).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{Array, ArrayRef, StringArray};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use plait_core::Result;
use plait_core::predicate::{ColumnCondition, Predicate};
use serde_json::Value;

use crate::action::Metadata;
use crate::schema::WAS;
use crate::snapshot::Live;

/// Statistics have times cut to milliseconds, and values up to the next.
const CUT_US: i64 = 999;

/// Files whose statistics are in memory at a time.
const CHUNK: usize = 1_024;

/// What is asked of the rows of a table.
pub(crate) struct Asked<'a> {
    pub(crate) condition: &'a str,
    /// Columns whose conditions may leave out files; none: all.
    pub(crate) only: Option<&'a [String]>,
}

/// The files that may have such rows, in their order; all of them if the condition cannot be read,
/// which those who read rows tell.
pub(crate) fn may_hold<'a>(
    files: Vec<&'a Live>,
    table: &Metadata,
    asked: &Asked<'_>,
) -> Result<Vec<&'a Live>> {
    let columns = columns(table);
    let is_known = |path: &[String]| match path {
        [name] => {
            asked.only.is_none_or(|only| only.contains(name))
                && columns.fields().iter().any(|field| field.name() == name)
        }
        _ => false,
    };
    let Ok(all) = Predicate::try_parse(asked.condition) else { return Ok(files) };
    let Ok(filter) = all.split(is_known).0.bind(&columns) else { return Ok(files) };
    let is_partition = |condition: &&ColumnCondition| {
        table.partition_columns.contains(name_of(condition, &columns))
    };
    let (of_folders, of_values): (Vec<_>, Vec<_>) =
        filter.conditions().iter().partition(is_partition);
    let mut left = files;
    for condition in of_folders {
        let name = name_of(condition, &columns);
        let text = |live: &&Live| {
            let text = live.add.partition_values.get(name).cloned().flatten();
            text.filter(|text| !text.is_empty())
        };
        let texts: Vec<Option<String>> = left.iter().map(text).collect();
        let values = typed(texts.iter().map(Option::as_deref), condition.data_type());
        let by_value = condition.can_hold(&values, &values)?;
        let can = |i: usize| match texts.get(i) {
            Some(Some(_)) => by_value.get(i).copied().unwrap_or(true),
            _ => condition.holds_for_null(),
        };
        left = kept(left, can);
    }
    if of_values.is_empty() {
        return Ok(left);
    }
    let mut may = Vec::with_capacity(left.len());
    for some in left.chunks(CHUNK) {
        may.extend(by_statistics(some, &of_values, &columns)?);
    }
    Ok(kept(left, |i| may.get(i).copied().unwrap_or(true)))
}

/// Which files may have rows for which all conditions hold, by their statistics.
fn by_statistics(
    files: &[&Live],
    conditions: &[&ColumnCondition],
    columns: &Schema,
) -> Result<Vec<bool>> {
    let said: Vec<Value> = files.iter().map(|live| statistics(live)).collect();
    let mut may = vec![true; files.len()];
    for condition in conditions {
        let name = name_of(condition, columns);
        let side = |side: &str| -> ArrayRef {
            let texts: Vec<Option<String>> = said.iter().map(|s| text(&s[side][name])).collect();
            typed(texts.iter().map(Option::as_deref), condition.data_type())
        };
        let (least, greatest) = (side("minValues"), up_to_next(side("maxValues")));
        let by_value = condition.can_hold(&least, &greatest)?;
        for (i, (may, by_value)) in may.iter_mut().zip(by_value).enumerate() {
            let nulls = said.get(i).and_then(|s| s["nullCount"][name].as_u64());
            let rows = said.get(i).and_then(|s| s["numRecords"].as_u64());
            let has_value = least.is_valid(i) || nulls.is_none() || nulls < rows;
            let has_null = nulls != Some(0);
            *may &= (by_value && has_value) || (has_null && condition.holds_for_null());
        }
    }
    Ok(may)
}

fn kept(files: Vec<&Live>, is_kept: impl Fn(usize) -> bool) -> Vec<&Live> {
    files.into_iter().enumerate().filter(|(i, _)| is_kept(*i)).map(|(_, live)| live).collect()
}

fn statistics(live: &Live) -> Value {
    live.add.stats().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

fn name_of<'a>(condition: &ColumnCondition, columns: &'a Schema) -> &'a String {
    let at = condition.path().first().copied().unwrap_or_default();
    columns.field(at).name()
}

/// A value of statistics as text.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Texts as values; null where they are none.
fn typed<'a>(texts: impl Iterator<Item = Option<&'a str>>, data_type: &DataType) -> ArrayRef {
    let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
    let nulls = || arrow_array::new_null_array(data_type, texts.len());
    cast(&texts, data_type).unwrap_or_else(|_| nulls())
}

/// The greatest times that statistics with these may stand for.
fn up_to_next(greatest: ArrayRef) -> ArrayRef {
    let Some(times) = greatest.as_primitive_opt::<TimestampMicrosecondType>() else {
        return greatest;
    };
    let next = times.unary::<_, TimestampMicrosecondType>(|time| time.saturating_add(CUT_US));
    Arc::new(next.with_data_type(greatest.data_type().clone()))
}

/// The columns of a table that are compared here.
fn columns(table: &Metadata) -> Schema {
    let schema: Value = serde_json::from_str(&table.schema_string).unwrap_or_default();
    let field = |field: &Value| {
        let name = field["name"].as_str()?;
        let is_partition = table.partition_columns.iter().any(|column| column == name);
        if !field["metadata"][WAS].is_null() {
            return None;
        }
        let data_type = match field["type"].as_str()? {
            "string" => DataType::Utf8,
            "long" => DataType::Int64,
            "integer" => DataType::Int32,
            "short" => DataType::Int16,
            "byte" => DataType::Int8,
            "date" => DataType::Date32,
            "timestamp" => DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
            "timestamp_ntz" => DataType::Timestamp(TimeUnit::Microsecond, None),
            "boolean" if is_partition => DataType::Boolean,
            _ => return None,
        };
        Some(Field::new(name, data_type, true))
    };
    let fields = schema["fields"].as_array().into_iter().flatten();
    Schema::new(fields.filter_map(field).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{Action, Add};
    use crate::snapshot::Snapshot;

    fn table() -> Snapshot {
        let field = |(name, kind): (&str, &str)| serde_json::json!({"name": name, "type": kind, "nullable": true, "metadata": {}});
        let kinds = [
            ("k", "long"),
            ("s", "string"),
            ("t", "timestamp"),
            ("f", "double"),
            ("day", "date"),
            ("p", "string"),
        ];
        let fields: Vec<Value> = kinds.into_iter().map(field).collect();
        let mut table = Snapshot::default();
        table.metadata.schema_string = serde_json::json!({"fields": fields}).to_string();
        table.metadata.partition_columns = vec!["day".to_owned(), "p".to_owned()];
        let add = |path: &str, day: Option<&str>, stats: &str| {
            let values = [("day".to_owned(), day.map(str::to_owned)), ("p".to_owned(), None)];
            Action {
                add: Some(Add {
                    path: path.to_owned(),
                    partition_values: values.into_iter().collect(),
                    stats: (!stats.is_empty()).then(|| stats.to_owned()),
                    ..Add::default()
                }),
                ..Action::default()
            }
        };
        let stats = r#"{"numRecords":9,"minValues":{"k":3,"s":"b","t":"2024-05-01T00:00:00.001Z",
            "f":1.0},"maxValues":{"k":7,"s":"d","t":"2024-05-01T00:00:00.005Z","f":2.0},
            "nullCount":{"k":0,"s":2,"t":0}}"#;
        let nulls = r#"{"numRecords":9,"minValues":{},"maxValues":{},"nullCount":{"k":9,"s":9}}"#;
        let adds = [
            add("a", Some("2024-05-01"), stats),
            add("b", Some("2024-05-02"), nulls),
            add("c", None, ""),
            add("d", Some("no day"), stats),
        ];
        table.apply(0, adds.to_vec());
        table
    }

    fn left(condition: &str, only: Option<&[String]>) -> String {
        let table = table();
        let asked = Asked { condition, only };
        let files = may_hold(table.by_place(), &table.metadata, &asked).unwrap();
        files.iter().map(|live| &*live.add.path).collect()
    }

    #[test]
    fn files_without_rows_of_a_condition_are_left_out_and_no_others() {
        for (condition, expected) in [
            ("k > 7", "c"),
            ("k >= 7", "acd"),
            ("k IS NULL", "bc"),
            ("k IS NOT NULL", "acd"),
            ("k != 5", "acd"),
            ("s = 'a'", "c"),
            ("s IS NULL", "abcd"),
            ("s LIKE 'c%'", "acd"),
            ("t > '2024-05-01T00:00:00.005800Z'", "abcd"),
            ("t > '2024-05-01T00:00:00.006Z'", "bc"),
            ("f > 100", "abcd"),
            ("day = '2024-05-01'", "ad"),
            ("day > '2024-05-01' AND k > 0", "d"),
            ("day IS NULL", "c"),
            ("p IS NULL", "abcd"),
            ("p = 'x'", ""),
            ("k > 7 AND nobody = 3", "c"),
            ("k > 'no number'", "abcd"),
            ("k >", "abcd"),
        ] {
            assert_eq!(left(condition, None), expected, "{condition}");
        }
    }

    #[test]
    fn other_columns_leave_nothing_out_where_rows_replace_rows() {
        let only = ["k".to_owned()];
        assert_eq!(left("s = 'a'", Some(&only)), "abcd");
        assert_eq!(left("s = 'a' AND k > 7", Some(&only)), "c");
    }
}
