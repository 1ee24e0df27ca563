//! The names of columns: those of a table, and those of its files, statistics and partitions.
//!
//! ```text
//! schema                    day          s { x }
//! files, log        "col-1" #1   "col-2" #2 { "col-3" #3 }     physical names, with field ids
//! ```
//!
//! # Invariants
//! A physical name and a field id never become those of another column: what is renamed keeps both,
//! what is dropped and added again gets new ones. A mapping that does not tell columns apart is an
//! error before any work.
//!
//! # Not here
//! Which tables may be mapped (`protocol`), what files have (`stored`).
//!
//! Source: "Column Mapping" of the Delta transaction log protocol.

use std::collections::BTreeSet;

use plait_core::key::SortOrder;
use plait_core::{Error, Kind, Result};
use serde_json::Value;

use crate::action::Metadata;
use crate::schema::WAS;

/// The property that says how columns are found in files.
pub(crate) const MODE: &str = "delta.columnMapping.mode";
pub(crate) const ID: &str = "delta.columnMapping.id";
const NAME: &str = "delta.columnMapping.physicalName";

/// A column of a table, or a member of one.
#[derive(Clone, Debug)]
pub(crate) struct MappedColumn {
    pub(crate) name: String,
    /// What files call it.
    pub(crate) stored: String,
    pub(crate) id: i32,
    pub(crate) inside: MappedType,
}

/// What of a type has names.
#[derive(Clone, Debug)]
pub(crate) enum MappedType {
    Plain,
    Struct(Vec<MappedColumn>),
    List(Box<MappedType>),
    /// Keys and values.
    Map(Box<MappedType>, Box<MappedType>),
}

/// The columns of a table with both of their names.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    /// Whether files are read by field ids alone.
    pub(crate) by_id: bool,
    pub(crate) columns: Vec<MappedColumn>,
    pub(crate) ids: BTreeSet<i32>,
}

impl Mapping {
    /// That of a table; `None` if its columns have one name.
    ///
    /// # Errors
    /// [`Kind::CorruptSource`] for a mapping that does not tell all columns apart.
    pub(crate) fn of(table: &Metadata, location: &str) -> Result<Option<Self>> {
        let mode = mode(table);
        if !is_mapped(mode) {
            return Ok(None);
        }
        let mut made = Self::of_schema(&table.schema_string).map_err(|e| e.with_path(location))?;
        made.by_id = mode == Some("id");
        let has = |column: &&String| made.columns.iter().any(|known| known.name == **column);
        match table.partition_columns.iter().find(|column| !has(column)) {
            None => Ok(Some(made)),
            Some(column) => {
                Err(broken("has a partition column that its schema lacks", column)
                    .with_path(location))
            }
        }
    }

    /// That of a schema as the log of a mapped table has it.
    fn of_schema(schema: &str) -> Result<Self> {
        let schema: Value = serde_json::from_str(schema).unwrap_or_default();
        let mut ids = BTreeSet::new();
        let columns = columns(&schema, "", &mut ids)?;
        Ok(Self { by_id: false, columns, ids })
    }
}

/// What the table says of how its columns are found.
pub(crate) fn mode(table: &Metadata) -> Option<&str> {
    table.configuration.get(MODE)?.as_deref()
}

/// Whether columns have other names in files, by what the table says.
pub(crate) fn is_mapped(mode: Option<&str>) -> bool {
    mode.is_some_and(|mode| mode != "none")
}

/// What files and the log call a field of a schema.
pub(crate) fn stored_name(field: &Value, is_mapped: bool) -> Option<&str> {
    let name = if is_mapped { &field["metadata"][NAME] } else { &field["name"] };
    name.as_str()
}

/// What the values of partitions are called in the log.
pub(crate) fn stored_partitions(table: &Metadata) -> Vec<String> {
    let columns = &table.partition_columns;
    if !is_mapped(mode(table)) {
        return columns.clone();
    }
    let schema: Value = serde_json::from_str(&table.schema_string).unwrap_or_default();
    let fields = schema["fields"].as_array().map_or(&[][..], Vec::as_slice);
    let stored = |column: &String| {
        let field = fields.iter().find(|field| field["name"] == **column);
        field.and_then(|field| stored_name(field, true)).unwrap_or(column).to_owned()
    };
    columns.iter().map(stored).collect()
}

/// Whose names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Those of files.
    Stored,
    /// Those of the table.
    Shown,
}

/// An order of columns of a mapped table by the names `to`, given by the others.
///
/// # Errors
/// [`Kind::UnknownColumn`] for a column that the table lacks; one of files stays as it is.
/// [`Kind::InvalidArgument`] for a text that is no order, [`Kind::CorruptSource`] as for all calls
/// with the table.
pub fn order_by(schema: &str, sort_by: &str, to: Names) -> Result<String> {
    let order = SortOrder::try_parse(sort_by)?;
    let mapping = Mapping::of_schema(schema)?;
    let mut columns = order.columns().to_vec();
    for column in &mut columns {
        match renamed(&mapping.columns, &column.path, to) {
            Some(path) => column.path = path,
            None if to == Names::Shown => {}
            None => {
                let dotted = column.dotted();
                let names: Vec<&str> = mapping.columns.iter().map(|known| &*known.name).collect();
                return Err(Error::new(Kind::UnknownColumn, "the table has no such sort column")
                    .with_column(&dotted)
                    .with_got(format!("`{dotted}`"))
                    .with_hint(format!("give `sort_by`; the columns are {}", names.join(", "))));
            }
        }
    }
    match order.with_columns(columns) {
        // What was dropped may have a name that another column has by now.
        Err(_) if to == Names::Shown => Ok(order.to_string()),
        made => Ok(made?.to_string()),
    }
}

/// The other names of the member of structs that a path leads to.
fn renamed(columns: &[MappedColumn], path: &[String], to: Names) -> Option<Vec<String>> {
    let (name, below) = path.split_first()?;
    let both = |column: &MappedColumn| match to {
        Names::Stored => (column.name == *name).then(|| column.stored.clone()),
        Names::Shown => (column.stored == *name).then(|| column.name.clone()),
    };
    let (column, other) = columns.iter().find_map(|column| Some((column, both(column)?)))?;
    let mut made = vec![other];
    if !below.is_empty() {
        let MappedType::Struct(members) = &column.inside else { return None };
        made.extend(renamed(members, below, to)?);
    }
    Some(made)
}

/// The names of all members of structs: of the table, and of files.
pub(crate) fn both_names(columns: &[MappedColumn]) -> Vec<(Vec<&str>, Vec<&str>)> {
    let mut found = Vec::new();
    for MappedColumn { name, stored, inside, .. } in columns {
        found.push((vec![&**name], vec![&**stored]));
        if let MappedType::Struct(members) = inside {
            for (mut shown, mut below) in both_names(members) {
                shown.insert(0, name);
                below.insert(0, stored);
                found.push((shown, below));
            }
        }
    }
    found
}

/// The columns of a schema, or of a struct, below `above`.
fn columns(of: &Value, above: &str, ids: &mut BTreeSet<i32>) -> Result<Vec<MappedColumn>> {
    let Some(fields) = of["fields"].as_array() else {
        return Err(broken("has a schema that cannot be read", above.trim_end_matches('.')));
    };
    let mut names = BTreeSet::new();
    let mut made = Vec::with_capacity(fields.len());
    for field in fields {
        let name = field["name"].as_str().unwrap_or_default().to_owned();
        let path = format!("{above}{name}");
        let Some(stored) = stored_name(field, true).filter(|stored| !stored.is_empty()) else {
            return Err(broken("maps column names, and a column has no physical name", &path));
        };
        if !names.insert((true, stored)) {
            let what = "maps column names, and two columns have one physical name";
            return Err(broken(what, &path));
        }
        if !names.insert((false, field["name"].as_str().unwrap_or_default())) {
            return Err(broken("has two columns of one name", &path));
        }
        let id = field["metadata"][ID].as_i64().and_then(|id| i32::try_from(id).ok());
        let Some(id) = id else {
            return Err(broken("maps column names, and a column has no field id", &path));
        };
        if !ids.insert(id) {
            return Err(broken("maps column names, and two columns have one field id", &path));
        }
        if !field["metadata"][WAS].is_null() {
            let what = "the Delta table maps column names, and has a column of another type";
            return Err(Error::new(Kind::Unsupported, what)
                .with_column(&path)
                .with_got(format!("`{path}`"))
                .with_hint("compact it by the engine that wrote it"));
        }
        let inside = inside(&field["type"], &format!("{path}."), ids)?;
        made.push(MappedColumn { name, stored: stored.to_owned(), id, inside });
    }
    Ok(made)
}

fn inside(kind: &Value, above: &str, ids: &mut BTreeSet<i32>) -> Result<MappedType> {
    Ok(match kind["type"].as_str() {
        Some("struct") => MappedType::Struct(columns(kind, above, ids)?),
        Some("array") => {
            let above = format!("{above}element.");
            MappedType::List(Box::new(inside(&kind["elementType"], &above, ids)?))
        }
        Some("map") => {
            let keys = inside(&kind["keyType"], &format!("{above}key."), ids)?;
            let values = inside(&kind["valueType"], &format!("{above}value."), ids)?;
            MappedType::Map(Box::new(keys), Box::new(values))
        }
        _ => MappedType::Plain,
    })
}

fn broken(what: &str, column: &str) -> Error {
    Error::new(Kind::CorruptSource, format!("the Delta table {what}"))
        .with_column(column)
        .with_got(format!("`{column}`"))
        .with_hint("read it with the engine that wrote it")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn field(name: &str, stored: &str, id: i64, kind: &Value) -> Value {
        json!({"name": name, "type": kind, "nullable": true, "metadata": {ID: id, NAME: stored}})
    }

    fn schema() -> Value {
        let members = [field("x", "col-3", 3, &json!("long")), field("a", "a", 4, &json!("long"))];
        let inner = json!({"type": "struct", "fields": members});
        let list = json!({"type": "array", "elementType": inner.clone(), "containsNull": true});
        let mut fields = vec![field("a", "col-1", 1, &json!("date"))];
        fields.push(field("s.t", "col-2", 2, &inner));
        let again = list.to_string().replace("\":3,", "\":6,").replace("\":4,", "\":7,");
        fields.push(field("l", "col.5", 5, &serde_json::from_str(&again).unwrap()));
        json!({"type": "struct", "fields": fields})
    }

    fn table(schema: &Value, mode: &str) -> Metadata {
        let configuration = [(MODE.to_owned(), Some(mode.to_owned()))].into();
        let schema_string = schema.to_string();
        Metadata { configuration, schema_string, ..Metadata::default() }
    }

    #[test]
    fn orders_are_those_of_files() {
        let schema = schema().to_string();
        let given = "-a nulls first, \"s.t\".x, hilbert(\"s.t\".a, l)";
        let stored = order_by(&schema, given, Names::Stored).unwrap();
        assert_eq!(stored, "-col-1 nulls first, col-2.col-3, hilbert(col-2.a, \"col.5\")");
        assert_eq!(order_by(&schema, &stored, Names::Shown).unwrap(), given);
        assert_eq!(order_by(&schema, "col-9, col-1", Names::Shown).unwrap(), "col-9, a");
        for unknown in ["b", "a.x", "\"s.t\".y", "col-1"] {
            let e = order_by(&schema, unknown, Names::Stored).unwrap_err();
            assert_eq!(e.kind(), Kind::UnknownColumn, "{unknown}");
        }
    }

    #[test]
    fn values_of_partitions_have_physical_names() {
        let mut mapped = table(&schema(), "id");
        mapped.partition_columns = vec!["a".to_owned()];
        assert_eq!(stored_partitions(&mapped), ["col-1"]);
        assert!(Mapping::of(&mapped, "t").unwrap().unwrap().by_id);
        mapped.partition_columns = vec!["b".to_owned()];
        assert_eq!(Mapping::of(&mapped, "t").unwrap_err().kind(), Kind::CorruptSource);
        mapped.configuration.clear();
        assert_eq!(stored_partitions(&mapped), ["b"]);
        assert!(Mapping::of(&mapped, "t").unwrap().is_none());
    }

    #[test]
    fn a_mapping_that_does_not_tell_columns_apart_is_an_error() {
        let text = schema().to_string();
        let found = Mapping::of(&table(&schema(), "name"), "t").unwrap().unwrap();
        assert_eq!(found.ids.len(), 7);
        let names = both_names(&found.columns);
        assert!(names.contains(&(vec!["s.t", "x"], vec!["col-2", "col-3"])), "{names:?}");
        for (from, to, what) in [
            ("\"col-2\"", "\"col-1\"", "one physical name"),
            ("\"col-2\"", "\"\"", "no physical name"),
            ("\"col-2\"", "null", "no physical name"),
            (".id\":7", ".id\":1", "one field id"),
            (".id\":7", ".id\":null", "no field id"),
            (".id\":7", ".id\":3000000000", "no field id"),
            ("\"s.t\"", "\"a\"", "of one name"),
            ("\"fields\"", "\"no\"", "cannot be read"),
        ] {
            let changed = serde_json::from_str(&text.replace(from, to)).unwrap();
            let e = Mapping::of(&table(&changed, "name"), "t").unwrap_err();
            assert_eq!((e.kind(), e.path()), (Kind::CorruptSource, Some("t")), "{from}");
            assert!(e.to_string().contains(what), "{e}");
        }
    }
}
