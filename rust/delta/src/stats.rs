//! Statistics of a file as the log has them, from the bounds in its footer.
//!
//! ```text
//! footer: min 2020-01-01 01:02:03.456789Z ─▶ "2020-01-01T01:02:03.456Z"
//! ```
//!
//! # Invariants
//! A bound may be wider than the values and never narrower; what is not known is left out. Bounds
//! that a footer does not have, and those of floats, are those of the files that were replaced, as
//! the log has them: footers leave NaN out, which is greater than all to some readers.
//!
//! # Cost
//! The footer.
//!
//! # Not here
//! Which files they are of (`added`). Source: "Per-file Statistics" of the protocol.

use std::collections::BTreeMap;

use plait_core::Result;
use plait_core::key::ShownValue;
use plait_parquet::{ChunkReport, InspectReport};
use serde_json::{Map, Value, json};

use crate::bound::{Bound, Side, bound};
use crate::mapping::{MODE, is_mapped, stored_name};

/// So many leading columns have statistics unless the table says otherwise.
const COLUMNS: i64 = 32;

/// The least and the greatest value, as the log has them.
pub(crate) type Ends = (Value, Value);

/// A column that is not nested, or a member of structs.
#[derive(Default)]
struct Leaf {
    /// In the table.
    names: Vec<String>,
    /// In files and in the log.
    stored: Vec<String>,
    kind: String,
}

/// The statistics of a file.
///
/// # Errors
/// None that is known.
pub(crate) fn statistics(
    file: &InspectReport,
    fields: &[Value],
    properties: &BTreeMap<String, String>,
    logged: &BTreeMap<String, Ends>,
) -> Result<Value> {
    let (mut low, mut high, mut nulls) = (Map::new(), Map::new(), Map::new());
    for Leaf { stored: names, kind, .. } in wanted(fields, properties) {
        let path = names.join(".");
        let chunk = |group: &plait_parquet::RowGroupReport| {
            let found = group.columns.iter().find(|chunk| chunk.path == path);
            found.map(|chunk| (chunk.clone(), group.rows))
        };
        let chunks: Vec<(ChunkReport, u64)> = file.row_groups.iter().filter_map(chunk).collect();
        if chunks.is_empty() {
            // Absent from the file: null in every row.
            put(&mut nulls, &names, file.rows.into());
            continue;
        }
        let counts: Option<u64> = chunks.iter().map(|(chunk, _)| chunk.null_count).sum();
        if let Some(count) = counts {
            put(&mut nulls, &names, count.into());
        }
        let mut filled = chunks
            .iter()
            .filter(|(chunk, rows)| chunk.null_count.is_none_or(|count| count < *rows))
            .peekable();
        if filled.peek().is_none() {
            continue;
        }
        let of = |chunk: &ChunkReport, value: &Option<ShownValue>, side| {
            value.as_ref().and_then(|value| bound(value, &kind, &chunk.physical_type, side))
        };
        let ends = filled.map(|(chunk, _)| {
            Some((of(chunk, &chunk.min, Side::Least)?, of(chunk, &chunk.max, Side::Greatest)?))
        });
        let ends: Option<Vec<(Bound, Bound)>> = ends.collect();
        let known = ends.and_then(|ends| {
            let least = ends.iter().map(|(least, _)| least).min()?;
            let greatest = ends.iter().map(|(_, greatest)| greatest).max()?;
            Some((least.as_json(&kind)?, greatest.as_json(&kind)?))
        });
        if let Some((least, greatest)) = known.or_else(|| logged.get(&path).cloned()) {
            put(&mut low, &names, least);
            put(&mut high, &names, greatest);
        }
    }
    Ok(json!({
        "numRecords": file.rows, "minValues": low, "maxValues": high, "nullCount": nulls,
    }))
}

/// The columns that have statistics.
fn wanted(fields: &[Value], properties: &BTreeMap<String, String>) -> Vec<Leaf> {
    let mut leaves = Vec::new();
    let is_mapped = is_mapped(properties.get(MODE).map(String::as_str));
    find(fields, &Leaf::default(), is_mapped, &mut leaves);
    if let Some(named) = properties.get("delta.dataSkippingStatsColumns").filter(|n| !n.is_empty())
    {
        let asked: Vec<&str> = named.split(',').map(|name| name.trim_matches([' ', '`'])).collect();
        leaves.retain(|leaf| {
            (1..=leaf.names.len()).any(|len| asked.contains(&&*leaf.names[..len].join(".")))
        });
        return leaves;
    }
    let count = properties.get("delta.dataSkippingNumIndexedCols");
    let count = count.and_then(|text| text.parse().ok()).unwrap_or(COLUMNS);
    if let Ok(count) = usize::try_from(count) {
        leaves.truncate(count);
    }
    leaves
}

fn find(fields: &[Value], above: &Leaf, is_mapped: bool, leaves: &mut Vec<Leaf>) {
    let below = |above: &[String], name: &str| -> Vec<String> {
        above.iter().cloned().chain([name.to_owned()]).collect()
    };
    for field in fields {
        let Some(name) = field["name"].as_str() else { continue };
        let Some(stored) = stored_name(field, is_mapped) else { continue };
        let (names, stored) = (below(&above.names, name), below(&above.stored, stored));
        let kind = &field["type"];
        if let Some(kind) = kind.as_str() {
            leaves.push(Leaf { names, stored, kind: kind.to_owned() });
        } else if kind["type"] == "struct" {
            let members = kind["fields"].as_array().map_or(&[][..], Vec::as_slice);
            find(members, &Leaf { names, stored, ..Leaf::default() }, is_mapped, leaves);
        }
    }
}

fn put(side: &mut Map<String, Value>, names: &[String], value: Value) {
    match names {
        [] => {}
        [name] => drop(side.insert(name.clone(), value)),
        [name, rest @ ..] => {
            let below = side.entry(name).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(below) = below {
                put(below, rest, value);
            }
        }
    }
}

/// What the log says of the values of all these files together, by dotted column; where it says it
/// of all.
pub(crate) fn logged(stats: impl Iterator<Item = Option<String>>) -> BTreeMap<String, Ends> {
    let of_file = |text: Option<String>| -> FileEnds {
        let parsed: Value =
            text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        FileEnds {
            rows: parsed["numRecords"].clone(),
            low: flat(&parsed["minValues"]),
            high: flat(&parsed["maxValues"]),
            nulls: flat(&parsed["nullCount"]),
        }
    };
    let files: Vec<FileEnds> = stats.map(of_file).collect();
    let names: Vec<&String> = files.iter().flat_map(|file| file.low.keys()).collect();
    let ends = names.into_iter().filter_map(|name| Some((name.clone(), together(&files, name)?)));
    ends.collect()
}

struct FileEnds {
    rows: Value,
    low: BTreeMap<String, Value>,
    high: BTreeMap<String, Value>,
    nulls: BTreeMap<String, Value>,
}

/// The ends of a column of all files that have values in it.
fn together(files: &[FileEnds], name: &str) -> Option<Ends> {
    let has_values = |file: &&FileEnds| file.nulls.get(name) != Some(&file.rows);
    let filled: Vec<&FileEnds> = files.iter().filter(has_values).collect();
    let low: Vec<&Value> = filled.iter().map(|file| file.low.get(name)).collect::<Option<_>>()?;
    let high: Vec<&Value> = filled.iter().map(|file| file.high.get(name)).collect::<Option<_>>()?;
    let all = || low.iter().chain(&high);
    // Times are compared as text only where they are written alike.
    let mut texts = all().filter_map(|value| value.as_str());
    let is_text = all().all(|value| value.is_string());
    if !is_text && !all().all(|value| value.is_number() || value.is_boolean()) {
        return None;
    }
    if is_text && all().filter_map(|v| v.as_str()).any(is_time) {
        let len = texts.next()?.len();
        if texts.any(|text| text.len() != len) {
            return None;
        }
    }
    let order = |a: &&&Value, b: &&&Value| compared(a, b);
    Some(((*low.iter().min_by(order)?).clone(), (*high.iter().max_by(order)?).clone()))
}

fn compared(a: &Value, b: &Value) -> std::cmp::Ordering {
    if let (Some(a), Some(b)) = (a.as_str(), b.as_str()) {
        return a.cmp(b);
    }
    if let (Some(a), Some(b)) = (a.as_i64(), b.as_i64()) {
        return a.cmp(&b);
    }
    let number = |value: &Value| value.as_f64().or_else(|| value.as_bool().map(f64::from));
    number(a).unwrap_or(f64::NAN).total_cmp(&number(b).unwrap_or(f64::NAN))
}

/// Whether a text begins as a moment does.
fn is_time(text: &str) -> bool {
    let mut bytes = text.bytes();
    let pattern = b"0000-00-00";
    let is_date = pattern.iter().all(|expected| match (expected, bytes.next()) {
        (b'0', Some(byte)) => byte.is_ascii_digit(),
        (expected, byte) => byte == Some(*expected),
    });
    is_date && matches!(bytes.next(), Some(b'T' | b' '))
}

/// Nested values by dotted name.
fn flat(side: &Value) -> BTreeMap<String, Value> {
    fn add(side: &Value, above: &str, found: &mut BTreeMap<String, Value>) {
        for (name, value) in side.as_object().into_iter().flatten() {
            let name = format!("{above}{name}");
            match value {
                Value::Object(_) => add(value, &format!("{name}."), found),
                Value::Null => {}
                value => drop(found.insert(name, value.clone())),
            }
        }
    }
    let mut found = BTreeMap::new();
    add(side, "", &mut found);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(stats: &[&str]) -> BTreeMap<String, Ends> {
        logged(stats.iter().map(|text| Some((*text).to_owned())))
    }

    #[test]
    fn bounds_of_the_log_are_those_of_all_files_or_of_none() {
        let one = r#"{"numRecords":2,"minValues":{"a":1,"s":{"x":0.5},"t":"b"},
            "maxValues":{"a":5,"s":{"x":2.5},"t":"c"},"nullCount":{"a":0,"s":{"x":0},"t":0}}"#;
        let two = r#"{"numRecords":3,"minValues":{"a":-7,"s":{"x":0.25},"t":"a"},
            "maxValues":{"a":4,"s":{"x":1},"t":"bb"},"nullCount":{"a":0,"s":{"x":0},"t":0}}"#;
        let found = ends(&[one, two]);
        assert_eq!(found["a"], (json!(-7), json!(5)));
        assert_eq!(found["s.x"], (json!(0.25), json!(2.5)));
        assert_eq!(found["t"], (json!("a"), json!("c")));
        let without = r#"{"numRecords":1,"nullCount":{"a":1}}"#;
        let found = ends(&[one, without]);
        assert_eq!(found["a"], (json!(1), json!(5)), "all of its values are null");
        assert!(!found.contains_key("t"), "nobody knows");
        assert!(logged([None, Some(one.to_owned())].into_iter()).is_empty());
    }

    #[test]
    fn times_are_compared_only_where_they_are_written_alike() {
        let of = |t: &str| {
            format!(r#"{{"numRecords":1,"minValues":{{"t":"{t}"}},"maxValues":{{"t":"{t}"}}}}"#)
        };
        let (a, b) = (of("2024-05-01T00:00:00.000Z"), of("2024-05-02T00:00:00.000Z"));
        assert_eq!(ends(&[&a, &b])["t"].1, json!("2024-05-02T00:00:00.000Z"));
        assert!(ends(&[&a, &of("2024-05-02T00:00:00Z")]).is_empty());
        assert!(ends(&[&a, &of("x")]).is_empty());
    }

    #[test]
    fn columns_have_statistics_as_the_table_says() {
        let field = |name: &str| json!({"name": name, "type": "long"});
        let inner = json!({"type": "struct", "fields": [field("x"), field("y")]});
        let fields = [field("a"), json!({"name": "s", "type": inner}), field("b")];
        let names = |settings: &[(&str, &str)]| {
            let settings =
                settings.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            let leaves = wanted(&fields, &settings);
            leaves.iter().map(|leaf| leaf.names.join(".")).collect::<Vec<_>>()
        };
        assert_eq!(names(&[]), ["a", "s.x", "s.y", "b"]);
        assert_eq!(names(&[("delta.dataSkippingNumIndexedCols", "2")]), ["a", "s.x"]);
        assert_eq!(names(&[("delta.dataSkippingNumIndexedCols", "-1")]).len(), 4);
        assert_eq!(names(&[("delta.dataSkippingStatsColumns", "b, `s`")]), ["s.x", "s.y", "b"]);
        let stored =
            |name: &str| json!({"delta.columnMapping.physicalName": format!("col-{name}")});
        let mapped = json!({"name": "x", "type": "long", "metadata": stored("x")});
        let inner = json!({"type": "struct", "fields": [mapped]});
        let mapped = [json!({"name": "s", "type": inner, "metadata": stored("s")}), field("b")];
        let columns = [("delta.dataSkippingStatsColumns", "s.x"), (MODE, "name")];
        let settings = columns.map(|(n, v)| (n.to_owned(), v.to_owned())).into();
        let leaves = wanted(&mapped, &settings);
        assert_eq!(leaves.len(), 1, "the table says names of its own");
        assert_eq!(leaves[0].stored, ["col-s", "col-x"]);
    }
}
