//! What a table says of its columns, and files do not: values that all rows of a file have, and types
//! that the values of files are cast to.
//!
//! ```text
//! day=1/a.parquet   k: 3, 5        rows   k 3, day 1      order   day, then that of the files
//! day=2/b.parquet   k: 1                  k 5, day 1
//!                                         k 1, day 2
//! ```
//!
//! # Invariants
//! The rows of a partition stay together, as in outputs of a merge with partitions: these columns
//! lead the order, so rows with one key are rows of one partition. If files store a column of the same
//! name, the table's value counts. A cast is checked: a value that does
//! not fit is an error, and never another value.
//!
//! # Not here
//! Who says the values (`python/plait/_tables.py`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::{Field, FieldRef, Schema, SchemaRef};
use plait_core::Result;
use plait_core::key::SortOrder;
use plait_core::schema::{Frozen, NameClash, Request, SchemaPolicy, Static, Value};

use super::bounds::FileLeaf;
use super::known::KnownFile;
use super::leaves::{file_leaf, selected};
use super::options::ReadOptions;
use crate::arrow_file::FileSchema;
use crate::file_values::{FileValues, table_columns, typed};
use crate::partition;

/// Columns with one value a file.
#[derive(Default)]
pub(super) struct FixedColumns {
    statics: Vec<Static>,
    /// The values of the files of each class.
    classes: Vec<FixedValues>,
    /// Columns that are cast, with their types.
    casts: Option<SchemaRef>,
    /// All columns, where some are cast: those would come first otherwise.
    names: Vec<String>,
    /// The columns of the table, but for these.
    table: Option<SchemaRef>,
}

/// The values of files of one class by column.
#[derive(Clone, Default)]
pub(super) struct FixedValues(Arc<Vec<(String, Value)>>);

/// Where a file has a column.
pub(super) enum ColumnPlace {
    /// In a leaf.
    Leaf(FileLeaf),
    /// In no leaf that counts: all rows have the value of this array of one.
    Fixed(ArrayRef),
    /// Nowhere: all rows have null.
    Nowhere,
}

impl FixedColumns {
    /// What the options say, and the schema of each class anew: files of one class have the same
    /// values, too.
    ///
    /// # Errors
    /// [`InvalidArgument`](plait_core::Kind::InvalidArgument) for types and values that are none.
    pub(super) fn of(
        options: &ReadOptions,
        files: &mut [KnownFile],
        schemas: Vec<FileSchema>,
    ) -> Result<(Self, Vec<FileSchema>)> {
        let given = &options.file_values;
        let fields = given.iter().map(|column| column.field().map(Arc::new));
        let fields = fields.collect::<Result<Vec<_>>>()?;
        let mut names: Vec<String> = Vec::new();
        let of_files = schemas.iter().flat_map(|schema| schema.schema().fields());
        let mut seen = BTreeSet::new();
        for field in of_files.chain(&fields) {
            if seen.insert(field.name()) {
                names.push(field.name().clone());
            }
        }
        let casts = options.casts.iter().filter(|(name, _)| seen.contains(name));
        let casts =
            casts.map(|(name, data_type)| Ok(Field::new(name, typed(name, data_type)?, true)));
        let casts = casts.collect::<Result<Vec<Field>>>()?;
        let casts = (!casts.is_empty()).then(|| Arc::new(Schema::new(casts)));
        let table = table_columns(&options.table_columns)?;
        let clashes: Vec<NameClash> = given
            .iter()
            .map(|column| column.clash(files.iter().map(|file| Some(file.path()))))
            .collect();
        let (classes, schemas) = match fields.is_empty() {
            true => (Vec::new(), schemas),
            false => divided(given, &fields, files, &schemas)?,
        };
        let statics = fields
            .into_iter()
            .zip(clashes)
            .map(|(field, clash)| Static { field, shown: true, clash })
            .collect();
        Ok((Self { statics, classes, casts, names, table }, schemas))
    }

    /// Columns of files and these.
    ///
    /// # Errors
    /// None that is known.
    pub(super) fn request(&self, columns: Option<Vec<String>>) -> Result<Request> {
        let (statics, table) = (self.statics.clone(), self.table.clone());
        let Some(casts) = &self.casts else {
            return Ok(Request { columns, statics, table, ..Request::default() });
        };
        let all = || self.names.iter().map(|name| selected(std::slice::from_ref(name))).collect();
        Ok(Request {
            policy: SchemaPolicy::default().with("lossy", "cast")?,
            // The columns of a table have its order anyway.
            columns: columns.or_else(|| table.is_none().then(all)),
            schema: Some(Arc::clone(casts)),
            statics,
            table,
            ..Request::default()
        })
    }

    /// The order of all rows, where files are in `order`.
    ///
    /// # Errors
    /// As [`partition::order`].
    pub(super) fn order(&self, order: SortOrder) -> Result<SortOrder> {
        if self.statics.is_empty() {
            return Ok(order);
        }
        let names: Vec<String> = self.statics.iter().map(|s| s.field.name().clone()).collect();
        partition::order(&names, &order)
    }

    /// The values of the files of a class.
    pub(super) fn of_class(&self, class: usize) -> FixedValues {
        self.classes.get(class).cloned().unwrap_or_default()
    }
}

/// Gives files that have other values another class; gives the values and the schema of each.
fn divided(
    given: &[FileValues],
    fields: &[FieldRef],
    files: &mut [KnownFile],
    schemas: &[FileSchema],
) -> Result<(Vec<FixedValues>, Vec<FileSchema>)> {
    let mut known = BTreeMap::new();
    let (mut values, mut of_class) = (Vec::new(), Vec::new());
    for file in files {
        let texts: Vec<_> = given.iter().map(|column| column.values.get(file.path())).collect();
        let texts: Vec<_> = texts.into_iter().map(|text| text.cloned().flatten()).collect();
        let next = known.len();
        let class = *known.entry((file.class, texts)).or_insert(next);
        if class == next {
            let value = |(column, field): (&FileValues, &FieldRef)| {
                let value = Value::Constant(column.value(field, file.path())?);
                Ok((column.name.clone(), value))
            };
            let of_file = given.iter().zip(fields).map(value).collect::<Result<_>>()?;
            values.push(FixedValues(Arc::new(of_file)));
            of_class.extend(schemas.get(file.class).cloned());
        }
        file.class = class;
    }
    Ok((values, of_class))
}

impl FixedValues {
    pub(super) fn all(&self) -> &[(String, Value)] {
        &self.0
    }

    /// Where a file with these values has the column at `path` of the schema of all.
    pub(super) fn place(&self, frozen: &Frozen, file: &FileSchema, path: &[usize]) -> ColumnPlace {
        let name = match path {
            [at] => frozen.schema().fields().get(*at).map(|field| field.name()),
            _ => None,
        };
        let of = |(column, value): &(String, Value)| match value {
            Value::Constant(value) if Some(column) == name => Some(Arc::clone(value)),
            _ => None,
        };
        if let Some(value) = self.0.iter().find_map(of) {
            return ColumnPlace::Fixed(value);
        }
        match file_leaf(frozen, file.schema().fields(), path) {
            Some(leaf) => ColumnPlace::Leaf(leaf),
            None => ColumnPlace::Nowhere,
        }
    }
}

impl ColumnPlace {
    /// Whether the file has nothing for it.
    pub(super) fn is_nowhere(&self) -> bool {
        matches!(self, Self::Nowhere)
    }

    /// The leaf that has it.
    pub(super) fn leaf(self) -> Option<FileLeaf> {
        match self {
            Self::Leaf(leaf) => Some(leaf),
            Self::Fixed(_) | Self::Nowhere => None,
        }
    }
}
