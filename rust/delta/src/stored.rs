//! Whether files have the columns of a mapped table as it says: each by its name and its field id.
//!
//! ```text
//! table   k  "col-1" #1
//! files   col-1 #1 ✓    col-1 ✓ by name, ✗ by id    col-1 #7 ✗    col-9 #1 ✗    col-9 #9 was dropped
//! ```
//!
//! # Invariants
//! Of files that pass, names and field ids mean the same columns, so it does not matter by which of
//! them they are matched.
//!
//! # Cost
//! The footer of each file that is asked for; many objects at a time.
//!
//! # Not here
//! The mapping itself (`mapping`); what is wrong with a damaged file.

use std::collections::{BTreeMap, BTreeSet};

use arrow_schema::{DataType, Field, Fields};
use plait_core::schema::FIELD_ID;
use plait_core::workers::each;
use plait_core::{Error, Kind, Result};
use plait_parquet::{from_json, open_files, to_json};
use serde::{Deserialize, Serialize};

use crate::log::Log;
use crate::mapping::{MappedColumn, MappedType, Mapping};
use crate::protocol::refused;

/// Which files to look at.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ColumnsOptions {
    names: Vec<String>,
    /// Whether all columns must be found by their field ids. Then a file that has others is an error.
    by_ids: bool,
}

/// What was seen.
#[derive(Debug, Default, Serialize)]
struct Looked {
    /// Files that cannot be read, or have other columns, and why.
    unfit: BTreeMap<String, String>,
    /// Field ids of columns in which a file has times without a zone, as those of twelve bytes are.
    without_zone: BTreeSet<i32>,
}

impl Log {
    /// Checks that files have the columns of a mapped table; of others nothing is read.
    ///
    /// # Errors
    /// [`Kind::SourceNotFound`], [`Kind::Storage`]; if columns are found by ids, for a file whose
    /// columns are not those of the table [`Kind::Unsupported`].
    pub fn check_columns(&mut self, options: &str) -> Result<String> {
        let ColumnsOptions { names, by_ids } = from_json(options)?;
        let root = self.root.clone();
        let mapping = match self.newest()? {
            None => None,
            Some((_, snapshot)) => Mapping::of(&snapshot.metadata, &root)?,
        };
        let Some(mapping) = mapping else { return to_json(&Looked::default()) };
        let look = |at: usize| {
            self.context.check_cancelled()?;
            let mut looked = Looked::default();
            let Some(name) = names.get(at) else { return Ok(looked) };
            let location = self.folder.location(name)?;
            let checked = self.fields(location.clone()).and_then(|fields| {
                let looked = Looked::default();
                let mut sides = Sides { mapping: &mapping, is_strict: by_ids, looked };
                let checked = sides.check(&fields, &mapping.columns, "");
                checked.map(|()| sides.looked).map_err(|Misfit { what, got }| {
                    let hint = "rewrite the file by the engine that wrote it";
                    refused(&location, what, got).with_hint(hint)
                })
            });
            match checked {
                // Whoever merges the others says what is wrong with it.
                Err(e) if is_of_file(&e) && !by_ids => {
                    looked.unfit.insert(name.clone(), e.to_string());
                    Ok(looked)
                }
                checked => checked,
            }
        };
        let mut all = Looked::default();
        for looked in each(&self.folder, names.len(), look)? {
            all.unfit.extend(looked.unfit);
            all.without_zone.extend(looked.without_zone);
        }
        to_json(&all)
    }

    /// The columns of a file.
    fn fields(&self, location: String) -> Result<Fields> {
        let opened = open_files(&[location], 1, &self.stores, &self.context)?;
        let file = opened.into_iter().flatten().next();
        Ok(file.map_or_else(Fields::empty, |file| file.reader.schema().fields().clone()))
    }
}

fn is_of_file(error: &Error) -> bool {
    matches!(error.kind(), Kind::CorruptSource | Kind::EncryptedSource | Kind::Unsupported)
}

/// What does not fit.
#[derive(Debug)]
struct Misfit {
    what: &'static str,
    got: String,
}

/// The columns of a file, and those of the table.
struct Sides<'a> {
    mapping: &'a Mapping,
    is_strict: bool,
    looked: Looked,
}

impl Sides<'_> {
    /// Columns of a file, or of a struct in it at `above`, that should be `columns`.
    fn check(
        &mut self,
        found: &Fields,
        columns: &[MappedColumn],
        above: &str,
    ) -> std::result::Result<(), Misfit> {
        let mut ids = BTreeSet::new();
        for field in found {
            let path = format!("{above}{}", field.name());
            let misfit = |what: &'static str, got: String| Err(Misfit { what, got });
            let known = columns.iter().find(|column| column.stored == *field.name());
            let id = field.metadata().get(FIELD_ID).and_then(|id| id.parse::<i32>().ok());
            match (known, id) {
                (Some(column), Some(id)) if column.id != id => {
                    let what = "has a file in which a column has the field id of another";
                    return misfit(what, format!("`{path}` with {id}, not {}", column.id));
                }
                (None, Some(id)) if self.mapping.ids.contains(&id) => {
                    let what = "has a file in which a column has another name than in the table";
                    return misfit(what, format!("`{path}` with the field id {id}"));
                }
                (Some(_), None) if self.mapping.by_id => {
                    return misfit(
                        "is read by field ids, and a file has none",
                        format!("`{path}`"),
                    );
                }
                (_, None) if self.is_strict => {
                    let what = "maps column names, and a file has a column without a field id";
                    return misfit(what, format!("`{path}`"));
                }
                _ => {}
            }
            if self.is_strict && !id.is_none_or(|id| ids.insert(id)) {
                let what = "has a file in which two columns have one field id";
                return misfit(what, format!("`{path}`"));
            }
            // What is in a column that was dropped may not be what is still there.
            let inside = known.map_or(&MappedType::Plain, |column| &column.inside);
            self.check_inside(field, inside, &Above { path, id: known.map(|column| column.id) })?;
        }
        Ok(())
    }

    fn check_inside(
        &mut self,
        field: &Field,
        inside: &MappedType,
        above: &Above,
    ) -> std::result::Result<(), Misfit> {
        let Above { path, id } = above;
        let below = |name: &str| Above { path: format!("{path}.{name}"), id: *id };
        match field.data_type() {
            DataType::Struct(members) => {
                let columns: &[MappedColumn] =
                    if let MappedType::Struct(columns) = inside { columns } else { &[] };
                self.check(members, columns, &format!("{path}."))
            }
            DataType::List(item)
            | DataType::LargeList(item)
            | DataType::ListView(item)
            | DataType::LargeListView(item)
            | DataType::FixedSizeList(item, _) => {
                let of: &MappedType =
                    if let MappedType::List(of) = inside { of } else { &MappedType::Plain };
                self.check_inside(item, of, &below("element"))
            }
            DataType::Map(entries, _) => {
                let DataType::Struct(sides) = entries.data_type() else { return Ok(()) };
                let of = match inside {
                    MappedType::Map(keys, values) => [&**keys, &**values],
                    _ => [&MappedType::Plain; 2],
                };
                for ((side, of), name) in sides.iter().zip(of).zip(["key", "value"]) {
                    self.check_inside(side, of, &below(name))?;
                }
                Ok(())
            }
            DataType::Timestamp(_, None) => {
                self.looked.without_zone.extend(*id);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// What a type of a file is in: a column of the table, unless that was dropped.
struct Above {
    path: String,
    id: Option<i32>,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn field(name: &str, id: Option<i32>, kind: DataType) -> Field {
        let mut field = Field::new(name, kind, true);
        if let Some(id) = id {
            field.metadata_mut().insert(FIELD_ID, id.to_string());
        }
        field
    }

    fn told(found: Vec<Field>, by_id: bool, is_strict: bool) -> String {
        let column = |name: &str, id, inside| MappedColumn {
            name: name.to_owned(),
            stored: format!("col-{name}"),
            id,
            inside,
        };
        let members = MappedType::Struct(vec![column("x", 3, MappedType::Plain)]);
        let list = MappedType::List(Box::new(members));
        let columns = vec![column("k", 1, MappedType::Plain), column("l", 2, list)];
        let mapping = Mapping { by_id, columns, ids: [1, 2, 3].into() };
        let mut sides = Sides { mapping: &mapping, is_strict, looked: Looked::default() };
        match sides.check(&Fields::from(found), &mapping.columns, "") {
            Ok(()) => String::new(),
            Err(Misfit { what, got }) => format!("{what}: {got}"),
        }
    }

    fn list(name: &str, id: Option<i32>) -> DataType {
        let members = Fields::from(vec![field(name, id, DataType::Int64)]);
        DataType::List(Arc::new(Field::new("element", DataType::Struct(members), true)))
    }

    #[test]
    fn a_name_and_an_id_are_one_column() {
        let long = DataType::Int64;
        let k = |id| field("col-k", id, DataType::Int64);
        let l = |name: &str, id| field("col-l", Some(2), list(name, id));
        for (found, expected) in [
            (vec![k(Some(1)), l("col-x", Some(3))], ["", "", ""]),
            (vec![k(Some(1)), field("gone", Some(9), long.clone())], ["", "", ""]),
            (vec![k(Some(7))], ["field id of another"; 3]),
            (vec![field("gone", Some(1), long.clone())], ["another name"; 3]),
            (vec![field("gone", Some(9), list("x", Some(3)))], ["another name"; 3]),
            (vec![l("col-x", Some(4))], ["field id of another"; 3]),
            (vec![l("x", Some(3))], ["another name"; 3]),
            (vec![k(None)], ["", "a file has none", "without a field id"]),
            (vec![l("col-x", None)], ["", "a file has none", "without a field id"]),
            (vec![k(Some(1)), field("gone", None, long.clone())], ["", "", "without a field id"]),
            (
                vec![field("a", Some(9), long.clone()), field("b", Some(9), long.clone())],
                ["", "", "two columns"],
            ),
        ] {
            let got = [
                told(found.clone(), false, false),
                told(found.clone(), true, false),
                told(found.clone(), false, true),
            ];
            for (got, expected) in got.iter().zip(expected) {
                assert!(got.contains(expected) && got.is_empty() == expected.is_empty(), "{got}");
            }
        }
    }
}
