//! A schema of Arrow as Delta writes it.
//!
//! ```text
//! ts: Timestamp(us, UTC), tags: List<Utf8>
//! {"type":"struct","fields":[{"name":"ts","type":"timestamp","nullable":true,"metadata":{}}, …]}
//! ```
//!
//! # Invariants
//! A type that Delta lacks is refused, by its column, with all others of the schema: no value is
//! changed silently. Where it may be cast, the metadata of the field has the type that files have.
//! Every column may be null, since a file that lacks it has nulls.
//!
//! # Not here
//! Names of columns, which are what they are.

use arrow_schema::{DataType, Field, Schema, TimeUnit};
use plait_core::{Error, Kind, Result, type_text};
use serde_json::{Value, json};

use crate::action::Protocol;

/// Metadata of a field: the type that its values have in files until these are merged.
pub(crate) const WAS: &str = "plait.was";

/// What becomes of a type that Delta lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacking {
    /// It is refused.
    Refuse,
    /// It becomes another, where one holds its values.
    Cast,
}

/// The schema of a table, as its log has it.
///
/// # Errors
/// [`Kind::Unsupported`] for types that Delta lacks and that become no other, with the columns.
pub fn delta_schema(schema: &Schema, lacking: Lacking) -> Result<String> {
    let mut refused = Vec::new();
    let made = schema.fields().iter().map(|field| {
        let cast = match lacking {
            Lacking::Refuse => None,
            Lacking::Cast => cast(field.data_type()),
        };
        let was = type_text(field.data_type());
        match cast {
            None => one_field(field, "", &mut refused),
            Some(kind) => {
                let metadata = json!({WAS: was});
                json!({"name": field.name(), "type": kind, "nullable": true, "metadata": metadata})
            }
        }
    });
    let fields: Vec<Value> = made.collect();
    if refused.is_empty() {
        return Ok(json!({"type": "struct", "fields": fields}).to_string());
    }
    let hint = match lacking {
        Lacking::Refuse => "cast these columns, such as to `int64`, `timestamp[us]` or `string`",
        Lacking::Cast => "no type of Delta holds their values: write these columns as other types",
    };
    Err(Error::new(Kind::Unsupported, "Delta has no such type")
        .with_got(refused.join(", "))
        .with_hint(hint))
}

/// The type of Delta that holds the values of one that it lacks; `None` for those that it has, and
/// where none does.
fn cast(given: &DataType) -> Option<&'static str> {
    match given {
        DataType::UInt8 => Some("short"),
        DataType::UInt16 => Some("integer"),
        DataType::UInt32 | DataType::Duration(_) => Some("long"),
        // A text says the unit, which is not that of all files.
        DataType::Time32(_) | DataType::Time64(_) => Some("string"),
        DataType::UInt64 => Some("decimal(20,0)"),
        DataType::Timestamp(TimeUnit::Nanosecond | TimeUnit::Second, None) => Some("timestamp_ntz"),
        DataType::Timestamp(TimeUnit::Nanosecond | TimeUnit::Second, Some(_)) => Some("timestamp"),
        DataType::Decimal256(digits, scale) if *digits > 38 || *scale < 0 => Some("string"),
        _ => None,
    }
}

/// What readers and writers of a table with this schema must know.
pub(crate) fn protocol_of(schema: &str) -> Protocol {
    if !schema.contains(r#""timestamp_ntz""#) {
        return Protocol { min_reader_version: 1, min_writer_version: 2, ..Protocol::default() };
    }
    let features = Some(vec!["timestampNtz".to_owned()]);
    Protocol {
        min_reader_version: 3,
        min_writer_version: 7,
        reader_features: features.clone(),
        writer_features: features,
    }
}

fn fields<'a>(
    given: impl Iterator<Item = &'a Field>,
    above: &str,
    lacking: &mut Vec<String>,
) -> Vec<Value> {
    given.map(|field| one_field(field, above, lacking)).collect()
}

fn one_field(field: &Field, above: &str, lacking: &mut Vec<String>) -> Value {
    let name = field.name();
    let path = format!("{above}{name}");
    let kind = kind(field.data_type(), &path, lacking);
    json!({"name": name, "type": kind, "nullable": true, "metadata": {}})
}

fn kind(given: &DataType, path: &str, lacking: &mut Vec<String>) -> Value {
    let name = match given {
        DataType::Boolean => "boolean",
        DataType::Int8 => "byte",
        DataType::Int16 => "short",
        DataType::Int32 => "integer",
        DataType::Int64 => "long",
        DataType::Float32 => "float",
        DataType::Float64 => "double",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "string",
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => "binary",
        DataType::Date32 => "date",
        DataType::Timestamp(TimeUnit::Microsecond | TimeUnit::Millisecond, zone) => {
            if zone.is_some() { "timestamp" } else { "timestamp_ntz" }
        }
        DataType::Decimal32(digits, scale)
        | DataType::Decimal64(digits, scale)
        | DataType::Decimal128(digits, scale)
        | DataType::Decimal256(digits, scale)
            if *digits <= 38 && *scale >= 0 =>
        {
            return json!(format!("decimal({digits},{scale})"));
        }
        DataType::Dictionary(_, value) => return kind(value, path, lacking),
        DataType::RunEndEncoded(_, value) => return kind(value.data_type(), path, lacking),
        DataType::Struct(members) => {
            let members = members.iter().map(AsRef::as_ref);
            let fields = fields(members, &format!("{path}."), lacking);
            return json!({"type": "struct", "fields": fields});
        }
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => {
            let element = kind(item.data_type(), path, lacking);
            return json!({"type": "array", "elementType": element, "containsNull": true});
        }
        DataType::Map(entries, _) => {
            let DataType::Struct(members) = entries.data_type() else {
                lacking.push(format!("`{path}` of {}", type_text(given)));
                return Value::Null;
            };
            let mut sides = members.iter().map(|side| kind(side.data_type(), path, lacking));
            let (key, value) = (sides.next(), sides.next());
            return json!({
                "type": "map", "keyType": key, "valueType": value, "valueContainsNull": true,
            });
        }
        _ => {
            lacking.push(format!("`{path}` of {}", type_text(given)));
            return Value::Null;
        }
    };
    json!(name)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::Fields;

    use super::*;

    #[test]
    fn types_are_written_as_delta_does_and_all_that_it_lacks_are_told() {
        let item = Arc::new(Field::new("item", DataType::Utf8, true));
        let inner = Fields::from(vec![Field::new("x", DataType::Decimal128(10, 2), false)]);
        let zone = Some("UTC".into());
        let schema = Schema::new(vec![
            Field::new("l", DataType::List(item), true),
            Field::new("s", DataType::Struct(inner), true),
            Field::new("t", DataType::Timestamp(TimeUnit::Microsecond, zone), true),
        ]);
        let text = delta_schema(&schema, Lacking::Refuse).unwrap();
        let whole: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(whole["fields"][0]["type"]["elementType"], "string");
        assert_eq!(whole["fields"][1]["type"]["fields"][0]["type"], "decimal(10,2)");
        assert_eq!(whole["fields"][2]["type"], "timestamp");
        assert_eq!(protocol_of(&text).min_reader_version, 1);
        assert_eq!(protocol_of(r#"{"type":"timestamp_ntz"}"#).min_writer_version, 7);
        let inner = Fields::from(vec![Field::new("u", DataType::UInt8, true)]);
        let schema = Schema::new(vec![
            Field::new("a", DataType::Struct(inner), true),
            Field::new("b", DataType::Time32(TimeUnit::Second), true),
            Field::new("c", DataType::Timestamp(TimeUnit::Nanosecond, None), true),
            Field::new("d", DataType::Decimal256(50, 0), true),
        ]);
        let e = delta_schema(&schema, Lacking::Refuse).unwrap_err();
        for column in ["`a.u`", "`b`", "`c`", "`d`"] {
            assert!(e.to_string().contains(column), "{e}");
        }
        // What is nested stays refused.
        let e = delta_schema(&schema, Lacking::Cast).unwrap_err();
        assert!(e.to_string().contains("`a.u`") && !e.to_string().contains("`b`"), "{e}");
        let outer = Schema::new(schema.fields()[1..].to_vec());
        let cast: Value =
            serde_json::from_str(&delta_schema(&outer, Lacking::Cast).unwrap()).unwrap();
        let of =
            |i: usize| (cast["fields"][i]["type"].clone(), &cast["fields"][i]["metadata"][WAS]);
        assert_eq!(of(0), (json!("string"), &json!("time32[s]")));
        assert_eq!(of(1), (json!("timestamp_ntz"), &json!("timestamp[ns]")));
        assert_eq!(of(2), (json!("string"), &json!("decimal256(50, 0)")));
    }
}
