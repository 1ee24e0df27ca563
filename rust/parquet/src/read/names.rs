//! What columns are called: by the read, by files, and by the sources of a plan.
//!
//! # Invariants
//! A name of the read is that column. Another name is the one column that files, or other sources of
//! the plan, call so.
//!
//! # Not here
//! Which columns are the same (`plait_core::schema`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_schema::{FieldRef, Fields, Schema, SchemaRef};
use plait_core::schema::Frozen;
use plait_core::{Error, Kind, Result};

use super::leaves::{places, selected};
use super::part::PlanPart;
use crate::arrow_file::FileSchema;
use crate::schema::Renamed;

/// Columns that are asked for.
#[derive(Default)]
pub(super) struct AskedColumns {
    /// By the names of the read.
    pub(super) columns: Vec<String>,
    /// What those are called that are asked for by another name.
    called: BTreeMap<String, String>,
}

impl AskedColumns {
    /// A schema with the names that were asked for.
    pub(super) fn name(&self, schema: &SchemaRef) -> SchemaRef {
        if self.called.is_empty() {
            return Arc::clone(schema);
        }
        let name = |field: &FieldRef| match self.called.get(field.name()) {
            Some(name) => Arc::new(field.as_ref().clone().with_name(name)),
            None => Arc::clone(field),
        };
        let fields: Fields = schema.fields().iter().map(name).collect();
        Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
    }
}

/// The names of the columns of a read.
pub(super) struct ColumnNames<'a> {
    whole: &'a Frozen,
    files: Vec<SchemaRef>,
    renamed: &'a [Renamed],
}

impl<'a> ColumnNames<'a> {
    pub(super) fn new(
        whole: &'a Frozen,
        schemas: &[FileSchema],
        planned: Option<&'a PlanPart>,
    ) -> Self {
        let files = schemas.iter().map(|schema| Arc::clone(schema.schema())).collect();
        Self { whole, files, renamed: planned.map_or(&[], |planned| planned.schema.renamed()) }
    }

    /// All columns.
    pub(super) fn whole(&self) -> &'a Frozen {
        self.whole
    }

    /// What the read calls `path`; `path` itself if nobody has it.
    ///
    /// # Errors
    /// [`Kind::UnsupportedKey`] for a name that several columns have.
    pub(super) fn path(&self, path: &[String]) -> Result<Vec<String>> {
        let found = self.whole.path(&self.files, path)?;
        if self.renamed.is_empty() || self.has(&found) {
            return Ok(found);
        }
        let same = self.renamed.iter().filter(|renamed| renamed.from.starts_with(path));
        let same: BTreeSet<&[String]> = same.filter_map(|r| r.to.get(..path.len())).collect();
        let mut all = same.into_iter();
        match (all.next(), all.next()) {
            (None, _) => Ok(found),
            (Some(one), None) => Ok(one.to_vec()),
            (Some(one), Some(other)) => {
                let what = "column has a name that several columns have";
                Err(Error::new(Kind::UnsupportedKey, what)
                    .with_column(path.join("."))
                    .with_got(format!("`{}` and `{}`", one.join("."), other.join(".")))
                    .with_hint("name it as the plan does"))
            }
        }
    }

    /// The columns that are asked for, by the names of the read, and what they are called instead.
    ///
    /// # Errors
    /// As [`path`](Self::path); [`Kind::InvalidArgument`] for two names of one column.
    pub(super) fn asked(&self, columns: &[String]) -> Result<AskedColumns> {
        let mut asked = AskedColumns::default();
        let names: Vec<String> = columns.iter().map(|text| unquoted(text).to_owned()).collect();
        for (text, name) in columns.iter().zip(&names) {
            let path = self.path(std::slice::from_ref(name))?;
            let own = match path.as_slice() {
                [own] if own != name && self.has(&path) => own,
                _ => {
                    asked.columns.push(text.clone());
                    continue;
                }
            };
            let known = asked.called.insert(own.clone(), name.clone());
            let known = known.or_else(|| names.contains(own).then(|| own.clone()));
            if let Some(known) = known.filter(|known| known != name) {
                let what = "two names in `columns` are one field";
                return Err(Error::new(Kind::InvalidArgument, what)
                    .with_column(own.as_str())
                    .with_got(format!("`{known}` and `{name}`"))
                    .with_hint("ask for it by one of its names"));
            }
            asked.columns.push(selected(&path));
        }
        Ok(asked)
    }

    fn has(&self, path: &[String]) -> bool {
        places(self.whole.schema().fields(), path).is_some()
    }
}

/// The name between backticks, or the text itself.
fn unquoted(text: &str) -> &str {
    let inner = text.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
    inner.filter(|name| !name.contains('`')).unwrap_or(text)
}
