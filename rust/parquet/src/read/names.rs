//! What columns are called: by the read, by files, and by the sources of a plan.
//!
//! # Invariants
//! A name of the read is that column. Another name is the one column that files, or other sources of
//! the plan, call so.
//!
//! # Not here
//! Which columns are the same (`plait_core::schema`).

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use plait_core::schema::Frozen;
use plait_core::{Error, Kind, Result};

use super::part::PlanPart;
use super::shared::{places, selected};
use crate::arrow_file::FileSchema;
use crate::schema::Renamed;

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

    /// The columns that are asked for, by names that the files of a part have.
    ///
    /// # Errors
    /// As [`path`](Self::path).
    pub(super) fn asked(&self, columns: Vec<String>) -> Result<Vec<String>> {
        if self.renamed.is_empty() {
            return Ok(columns);
        }
        let name = |asked: String| {
            let path = self.path(std::slice::from_ref(&asked))?;
            Ok(if self.has(&path) { selected(&path) } else { asked })
        };
        columns.into_iter().map(name).collect()
    }

    fn has(&self, path: &[String]) -> bool {
        places(self.whole.schema().fields(), path).is_some()
    }
}
