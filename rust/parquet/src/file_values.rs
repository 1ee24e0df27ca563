//! Columns that something else than the files determines, the log of a table: those of one value a
//! file, and which columns there are.
//!
//! # Not here
//! Where rows get them (`scan`, `read`).

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, new_null_array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use plait_core::schema::{NameClash, constant};
use plait_core::{Error, Kind, Result};
use serde::Deserialize;

/// A column of one value a file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileValues {
    /// Its name.
    pub name: String,
    /// Its type, as Arrow writes it.
    pub data_type: String,
    /// Values by location of the file, as text; absent is null.
    pub values: BTreeMap<String, Option<String>>,
}

impl FileValues {
    /// The column.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] for a type that is none.
    pub(crate) fn field(&self) -> Result<Field> {
        Ok(Field::new(&self.name, typed(&self.name, &self.data_type)?, true))
    }

    /// What a column of this name in a source is: if something else tells the values of all sources,
    /// those count.
    pub(crate) fn clash<'a>(&self, mut paths: impl Iterator<Item = Option<&'a str>>) -> NameClash {
        let is_told = |path: Option<&str>| path.is_some_and(|path| self.values.contains_key(path));
        if paths.all(is_told) { NameClash::Static } else { NameClash::Refuse }
    }

    /// The value of the file at `path`, an array of one row; `field` is the column.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] for a text that is no value of the type.
    pub(crate) fn value(&self, field: &Field, path: &str) -> Result<ArrayRef> {
        match self.values.get(path) {
            Some(Some(text)) => constant(text, field).map_err(|e| e.with_path(path)),
            _ => Ok(new_null_array(field.data_type(), 1)),
        }
    }
}

/// The columns of a table, of names and types as Arrow writes them; none if there are none.
///
/// # Errors
/// [`Kind::InvalidArgument`] for a type that is none.
pub(crate) fn table_columns(given: &[(String, String)]) -> Result<Option<SchemaRef>> {
    let field = |(name, text): &(String, String)| Ok(Field::new(name, typed(name, text)?, true));
    let fields = given.iter().map(field).collect::<Result<Vec<_>>>()?;
    Ok((!fields.is_empty()).then(|| Arc::new(Schema::new(fields))))
}

/// A type of the column `name`, as Arrow writes it.
///
/// # Errors
/// [`Kind::InvalidArgument`] for a type that is none.
pub(crate) fn typed(name: &str, text: &str) -> Result<DataType> {
    text.parse().map_err(|e| {
        Error::new(Kind::InvalidArgument, "no such type")
            .with_column(name)
            .with_got(format!("`{text}`"))
            .with_cause(e)
    })
}
