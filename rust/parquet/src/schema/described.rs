//! Footer entries that describe one file, computed anew for all of them.
//!
//! ```text
//! geo      bbox, geometry_types of every column: united       the rest: equal, or there is none
//! pandas   index_columns: a range of row numbers is left out   other index columns stay
//! ```
//!
//! # Invariants
//! A bounding box that is written holds those of all files; what cannot be united is left out.
//!
//! # Source
//! GeoParquet 1.1, `geo`; pandas metadata as PyArrow writes it.
//!
//! # Not here
//! What becomes of other entries (`metadata`).

use std::borrow::Cow;

use serde_json::{Map, Value};

/// The `pandas` entry without ranges of row numbers: a merge has other row numbers than its
/// sources.
pub(super) fn pandas(text: &str) -> Cow<'_, str> {
    let Ok(mut value) = serde_json::from_str::<Value>(text) else { return Cow::Borrowed(text) };
    let Some(columns) = value.get_mut("index_columns").and_then(Value::as_array_mut) else {
        return Cow::Borrowed(text);
    };
    let before = columns.len();
    columns.retain(|column| column.get("kind").and_then(Value::as_str) != Some("range"));
    match columns.len() == before {
        true => Cow::Borrowed(text),
        false => Cow::Owned(value.to_string()),
    }
}

/// The `geo` entry of files that have these; `None` if one has none, or they differ in more than
/// bounds and kinds of geometries.
pub(super) fn geo(values: &[Option<Option<&str>>]) -> Option<String> {
    let mut all = values.iter().map(|value| {
        let value: Value = serde_json::from_str(value.flatten()?).ok()?;
        match value {
            Value::Object(entry) => Some(entry),
            _ => None,
        }
    });
    let mut united = all.next()??;
    for entry in all {
        unite(&mut united, entry?)?;
    }
    Some(Value::Object(united).to_string())
}

fn unite(united: &mut Map<String, Value>, mut entry: Map<String, Value>) -> Option<()> {
    let Some(Value::Object(more)) = entry.remove("columns") else { return None };
    let Some(Value::Object(mut columns)) = united.remove("columns") else { return None };
    if *united != entry || columns.len() != more.len() {
        return None;
    }
    for (name, column) in more {
        let Value::Object(mut column) = column else { return None };
        let known = columns.get_mut(&name)?.as_object_mut()?;
        let (bbox, known_bbox) = (column.remove("bbox"), known.remove("bbox"));
        let (types, known_types) =
            (column.remove("geometry_types"), known.remove("geometry_types"));
        if *known != column {
            return None;
        }
        if let Some(bbox) = unite_boxes(known_bbox.as_ref(), bbox.as_ref()) {
            known.insert("bbox".to_owned(), bbox);
        }
        let types = unite_types(known_types.as_ref(), types.as_ref());
        known.insert("geometry_types".to_owned(), types);
    }
    united.insert("columns".to_owned(), Value::Object(columns));
    Some(())
}

/// The box that holds both: minima, then maxima. `None` if one is unknown or crosses the
/// antimeridian, where the least longitude is greater than the greatest.
fn unite_boxes(a: Option<&Value>, b: Option<&Value>) -> Option<Value> {
    let numbers = |value: &Value| -> Option<Vec<f64>> {
        let numbers: Option<Vec<f64>> = value.as_array()?.iter().map(Value::as_f64).collect();
        let numbers = numbers.filter(|n| n.len() == 4 || n.len() == 6)?;
        let (min, max) = numbers.split_at(numbers.len() / 2);
        min.iter().zip(max).all(|(min, max)| min <= max).then_some(numbers)
    };
    let (a, b) = (numbers(a?)?, numbers(b?)?);
    if a.len() != b.len() {
        return None;
    }
    let half = a.len() / 2;
    let united = a.iter().zip(&b).enumerate().map(|(i, (a, b))| {
        let number = if i < half { a.min(*b) } else { a.max(*b) };
        serde_json::Number::from_f64(number).map_or(Value::Null, Value::Number)
    });
    Some(Value::Array(united.collect()))
}

/// Kinds of geometries of both; an empty list says that they are not known.
fn unite_types(a: Option<&Value>, b: Option<&Value>) -> Value {
    let listed = |value: Option<&Value>| {
        value.and_then(Value::as_array).filter(|types| !types.is_empty()).cloned()
    };
    let (Some(mut types), Some(more)) = (listed(a), listed(b)) else {
        return Value::Array(Vec::new());
    };
    for kind in more {
        if !types.contains(&kind) {
            types.push(kind);
        }
    }
    Value::Array(types)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(column: &str) -> String {
        format!(
            r#"{{"version":"1.1.0","primary_column":"g","columns":{{"g":{{"encoding":"WKB",{column}}}}}}}"#
        )
    }

    fn united(a: &str, b: &str) -> Option<Value> {
        let (a, b) = (entry(a), entry(b));
        let text = geo(&[Some(Some(a.as_str())), Some(Some(b.as_str()))])?;
        Some(serde_json::from_str::<Value>(&text).unwrap()["columns"]["g"].clone())
    }

    #[test]
    fn a_box_holds_those_of_all_files() {
        let column = united(
            r#""bbox":[1.0,2.0,3.0,4.0],"geometry_types":["Point"]"#,
            r#""bbox":[0.0,3.0,2.0,9.0],"geometry_types":["Point","Polygon"]"#,
        );
        let column = column.unwrap();
        assert_eq!(column["bbox"], serde_json::json!([0.0, 2.0, 3.0, 9.0]));
        assert_eq!(column["geometry_types"], serde_json::json!(["Point", "Polygon"]));
        assert_eq!(column["encoding"], "WKB");
    }

    #[test]
    fn what_is_not_known_of_one_file_is_not_known_of_all() {
        for other in [r#""geometry_types":[]"#, r#""bbox":[9.0,2.0,3.0,4.0],"geometry_types":[]"#] {
            let column = united(r#""bbox":[1.0,2.0,3.0,4.0],"geometry_types":["Point"]"#, other);
            let column = column.unwrap();
            assert_eq!(column.get("bbox"), None);
            assert_eq!(column["geometry_types"], serde_json::json!([]));
        }
        assert_eq!(united(r#""crs":null"#, r#""crs":{"id":1}"#), None, "another system");
        assert_eq!(geo(&[Some(Some(entry(r#""crs":null"#).as_str())), None]), None);
    }

    #[test]
    fn ranges_of_row_numbers_go_and_other_index_columns_stay() {
        let range = r#"{"index_columns":[{"kind":"range","start":0,"stop":3}],"columns":[]}"#;
        assert_eq!(pandas(range), r#"{"columns":[],"index_columns":[]}"#);
        let named = r#"{"index_columns": ["k"], "columns": []}"#;
        assert_eq!(pandas(named), named);
        assert_eq!(pandas("{x}"), "{x}");
    }
}
