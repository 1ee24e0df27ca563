//! The columns of a mapped table as Arrow has them, with their field ids.
//!
//! ```text
//! {"name": "ts", "type": "timestamp", "metadata": {"delta.columnMapping.id": 4, …}}
//! ts: Timestamp(us, UTC)  PARQUET:field_id 4
//! ```
//!
//! # Invariants
//! A type that is not known is refused with its column. Times of columns in which files have them
//! without a zone have none here either: they are moments in UTC all the same.
//!
//! # Not here
//! The other direction (`schema`); which columns files have (`stored`).

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, TimeUnit};
use plait_core::schema::FIELD_ID;
use plait_core::{Error, Kind, Result};
use serde_json::Value;

use crate::mapping::ID;

/// The columns of files, of the schema of a table as its log has it: without those of partitions.
///
/// `without_zone`: field ids of columns in which files have times without a zone.
///
/// # Errors
/// [`Kind::Unsupported`] for a type that is not read, with its column.
pub fn arrow_columns(
    schema: &str,
    partition_columns: &[String],
    without_zone: &BTreeSet<i64>,
) -> Result<Schema> {
    let schema: Value = serde_json::from_str(schema).unwrap_or_default();
    let is_stored = |field: &&Value| !partition_columns.iter().any(|name| field["name"] == **name);
    let fields = schema["fields"].as_array().into_iter().flatten().filter(is_stored);
    let made = fields.map(|field| column(field, "", without_zone));
    Ok(Schema::new(made.collect::<Result<Vec<_>>>()?))
}

fn column(field: &Value, above: &str, without_zone: &BTreeSet<i64>) -> Result<Field> {
    let name = field["name"].as_str().unwrap_or_default();
    let id = field["metadata"][ID].as_i64();
    let types = Types { has_zone: id.is_none_or(|id| !without_zone.contains(&id)), without_zone };
    let mut made = Field::new(name, types.of(&field["type"], &format!("{above}{name}"))?, true);
    if let Some(id) = id {
        made.metadata_mut().insert(FIELD_ID, id.to_string());
    }
    Ok(made)
}

/// The types of a column.
struct Types<'a> {
    /// Whether its times have a zone.
    has_zone: bool,
    without_zone: &'a BTreeSet<i64>,
}

impl Types<'_> {
    fn of(&self, given: &Value, path: &str) -> Result<DataType> {
        let item = |name: &str, of: &Value, nullable: bool| -> Result<Arc<Field>> {
            Ok(Arc::new(Field::new(name, self.of(of, &format!("{path}.{name}"))?, nullable)))
        };
        Ok(match (given.as_str(), given["type"].as_str()) {
            (Some("boolean"), _) => DataType::Boolean,
            (Some("byte"), _) => DataType::Int8,
            (Some("short"), _) => DataType::Int16,
            (Some("integer"), _) => DataType::Int32,
            (Some("long"), _) => DataType::Int64,
            (Some("float"), _) => DataType::Float32,
            (Some("double"), _) => DataType::Float64,
            (Some("string"), _) => DataType::Utf8,
            (Some("binary"), _) => DataType::Binary,
            (Some("date"), _) => DataType::Date32,
            (Some("timestamp"), _) => {
                let zone = self.has_zone.then(|| "UTC".into());
                DataType::Timestamp(TimeUnit::Microsecond, zone)
            }
            (Some("void"), _) => DataType::Null,
            (Some("timestamp_ntz"), _) => DataType::Timestamp(TimeUnit::Microsecond, None),
            (Some(text), _) => decimal(text).ok_or_else(|| unread(path, given))?,
            (None, Some("struct")) => {
                let members = given["fields"].as_array().into_iter().flatten();
                let above = format!("{path}.");
                let members = members.map(|field| column(field, &above, self.without_zone));
                DataType::Struct(members.collect::<Result<Fields>>()?)
            }
            (None, Some("array")) => DataType::List(item("element", &given["elementType"], true)?),
            (None, Some("map")) => {
                let (key, value) = (&given["keyType"], &given["valueType"]);
                let sides =
                    Fields::from(vec![item("key", key, false)?, item("value", value, true)?]);
                let entries = Field::new("key_value", DataType::Struct(sides), false);
                DataType::Map(Arc::new(entries), false)
            }
            _ => return Err(unread(path, given)),
        })
    }
}

fn decimal(text: &str) -> Option<DataType> {
    let inside = text.strip_prefix("decimal(")?.strip_suffix(')')?;
    let (digits, scale) = inside.split_once(',')?;
    let (digits, scale) = (digits.trim().parse().ok()?, scale.trim().parse().ok()?);
    ((1..=38).contains(&digits) && scale >= 0).then_some(DataType::Decimal128(digits, scale))
}

fn unread(path: &str, given: &Value) -> Error {
    Error::new(Kind::Unsupported, "the Delta table has a column whose type is not read")
        .with_column(path)
        .with_got(format!("`{path}` of {given}"))
        .with_hint("read it with the engine that wrote it")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::{Lacking, delta_schema};

    #[test]
    fn types_are_those_that_were_written_and_others_are_refused() {
        let field = |name: &str, id: i64, kind: Value| json!({"name": name, "type": kind, "nullable": true, "metadata": {ID: id}});
        let members = json!({"type": "struct", "fields": [field("x", 2, json!("decimal(10,2)"))]});
        let list = json!({"type": "array", "elementType": members, "containsNull": true});
        let map = json!({
            "type": "map", "keyType": "string", "valueType": "date", "valueContainsNull": true,
        });
        let fields = [
            field("l", 1, list),
            field("m", 3, map),
            field("t", 4, json!("timestamp")),
            field("n", 5, json!("timestamp_ntz")),
            field("day", 6, json!("date")),
        ];
        let text = json!({"type": "struct", "fields": fields}).to_string();
        let found = arrow_columns(&text, &["day".to_owned()], &BTreeSet::new()).unwrap();
        let ids: Vec<&str> = found.fields().iter().map(|f| &*f.metadata()[FIELD_ID]).collect();
        assert_eq!(ids, ["1", "3", "4", "5"]);
        let again: Value =
            serde_json::from_str(&delta_schema(&found, Lacking::Refuse).unwrap()).unwrap();
        for (at, field) in fields.iter().take(4).enumerate() {
            let bare = field["type"].to_string().replace(&format!("\"{ID}\":2"), "");
            assert_eq!(again["fields"][at]["type"].to_string(), bare);
        }
        let found = arrow_columns(&text, &[], &[4].into()).unwrap();
        let none = DataType::Timestamp(TimeUnit::Microsecond, None);
        assert_eq!(*found.field(2).data_type(), none);
        let odd = text.replace("decimal(10,2)", "variant");
        let e = arrow_columns(&odd, &[], &BTreeSet::new()).unwrap_err();
        assert_eq!((e.kind(), e.column()), (Kind::Unsupported, Some("l.element.x")));
    }
}
