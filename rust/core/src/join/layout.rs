//! A join and the schemas of its tables: where everything is.
//!
//! ```text
//! left   order_id  customer_id  amount             right  customer_id  name
//! out    _op │ order_id  customer_id  amount  name │ before.order_id …
//! ```
//!
//! # Invariants
//! Foreign key and right key have the same types, so equal values have equal bytes. Names of the
//! result differ.
//!
//! # Not here
//! Bytes of keys (`crate::key`).

use std::collections::HashSet;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};

use super::block::{DELETED, KEY, SEQUENCE, schema_of};
use super::spec::Spec;
use crate::key::{KeyColumn, KeyShape, KeyType, Nulls};
use plait_base::{Error, Kind, Result, columns_hint, type_text};

/// Column that says what a change does.
pub const OPERATION: &str = "_op";
/// What names of old values begin with.
pub(super) const BEFORE: &str = "before.";
const CLASH: &str = "_right";

/// One of the two tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The table of the result's rows.
    Left,
    /// The table they refer to.
    Right,
}

impl Side {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Right => "right",
        }
    }
}

/// A column of the result.
#[derive(Clone, Debug)]
pub(super) struct OutColumn {
    pub(super) side: Side,
    /// Place among the columns of the side's table.
    pub(super) place: usize,
    pub(super) field: FieldRef,
    /// Whether it is of the primary key.
    pub(super) is_key: bool,
}

/// Where everything is.
#[derive(Clone, Debug)]
pub struct Layout {
    pub(super) spec: Spec,
    /// Columns of changes, as they come: without `_op` and `_seq`.
    pub(super) left_given: Vec<FieldRef>,
    /// Columns of the tables.
    pub(super) left: Vec<FieldRef>,
    pub(super) right: Vec<FieldRef>,
    pub(super) left_sequence: bool,
    pub(super) right_sequence: bool,
    pub(super) left_key: KeyShape,
    pub(super) foreign_key: KeyShape,
    pub(super) right_key: KeyShape,
    pub(super) columns: Vec<OutColumn>,
    out: SchemaRef,
}

impl Layout {
    /// The layout of `spec` for changes with these schemas.
    ///
    /// # Errors
    /// [`Kind::UnknownColumn`] for a key that is not there, [`Kind::UnsupportedKey`] for one without
    /// order, [`Kind::InvalidArgument`] for keys of different types and names that clash.
    pub fn try_new(spec: Spec, left: &Schema, right: &Schema) -> Result<Self> {
        let (left_given, left_sequence) = columns_of(left, Side::Left)?;
        let (right_given, right_sequence) = columns_of(right, Side::Right)?;
        let left_key = shape(&spec.left_key, &left_given, "left_key")?;
        let foreign_key = shape(&spec.foreign_key, &left_given, "foreign_key")?;
        let right_key = shape(&spec.right_key, &right_given, "right_key")?;
        check_types(&foreign_key, &right_key)?;
        let is_kept = |f: &&FieldRef| !(spec.is_computed && spec.foreign_key.contains(f.name()));
        let left_columns: Vec<FieldRef> = left_given.iter().filter(is_kept).cloned().collect();
        let columns = out_columns(&spec, &left_columns, &right_given)?;
        let out = out_schema(&columns, spec.before);
        Ok(Self {
            left_given,
            left: left_columns,
            right: right_given,
            left_sequence,
            right_sequence,
            left_key,
            foreign_key,
            right_key,
            columns,
            out,
            spec,
        })
    }

    /// What is joined with what.
    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The schema of changes that leave.
    #[must_use]
    pub fn out(&self) -> &SchemaRef {
        &self.out
    }

    /// The schema of the joined table.
    #[must_use]
    pub fn table(&self) -> SchemaRef {
        let fields: Vec<FieldRef> = self.columns.iter().map(|c| Arc::clone(&c.field)).collect();
        Arc::new(Schema::new(fields))
    }

    /// The columns of the joined table that are its primary key: place and field.
    pub(super) fn keys(&self) -> impl Iterator<Item = (usize, &FieldRef)> {
        let columns = self.columns.iter().enumerate();
        columns.filter(|(_, column)| column.is_key).map(|(place, column)| (place, &column.field))
    }

    /// Whether the result has all columns of the foreign key.
    pub(super) fn shows_foreign_key(&self) -> bool {
        let is_shown = |name: &String| {
            let place = self.left.iter().position(|field| field.name() == name);
            let mut columns = self.columns.iter();
            place.is_some() && columns.any(|c| c.side == Side::Left && Some(c.place) == place)
        };
        self.spec.foreign_key.iter().all(is_shown)
    }

    /// The schema of blocks of the left table.
    #[must_use]
    pub fn left_blocks(&self) -> SchemaRef {
        schema_of(false, false, &self.left)
    }

    /// The schema of blocks of places: which foreign key a primary key has.
    #[must_use]
    pub fn place_blocks(&self) -> SchemaRef {
        schema_of(self.left_sequence, true, &[])
    }

    /// The schema of blocks of the right table.
    #[must_use]
    pub fn right_blocks(&self) -> SchemaRef {
        schema_of(self.right_sequence, false, &self.right)
    }

    /// The columns that changes of `side` have besides `_op`.
    #[must_use]
    pub fn given(&self, side: Side) -> Schema {
        let (fields, has_sequence) = match side {
            Side::Left => (&self.left_given, self.left_sequence),
            Side::Right => (&self.right, self.right_sequence),
        };
        let sequence = Arc::new(Field::new(SEQUENCE, DataType::Int64, true));
        let sequence = has_sequence.then_some(sequence);
        Schema::new(fields.iter().cloned().chain(sequence).collect::<Vec<_>>())
    }

    /// Place in blocks of the first column of a table.
    pub(super) fn first(&self, side: Side) -> usize {
        2 + usize::from(side == Side::Right && self.right_sequence)
    }

    /// Whether changes of `side` have sequence numbers.
    pub(super) fn has_sequence(&self, side: Side) -> bool {
        match side {
            Side::Left => self.left_sequence,
            Side::Right => self.right_sequence,
        }
    }

    /// Place in blocks of the sequence numbers of a side, if its changes have them.
    pub(super) fn sequence_place(&self, side: Side) -> Option<usize> {
        self.has_sequence(side).then_some(2)
    }

    /// Place in blocks of places of the foreign key.
    pub(super) fn foreign_key_place(&self) -> usize {
        2 + usize::from(self.left_sequence)
    }
}

/// The columns of changes without `_op` and `_seq`, and whether there is `_seq`.
fn columns_of(schema: &Schema, side: Side) -> Result<(Vec<FieldRef>, bool)> {
    let (mut fields, mut has_sequence) = (Vec::new(), false);
    let mut names = HashSet::new();
    for field in schema.fields() {
        let name = field.name().as_str();
        if !names.insert(name) {
            let what = format!("two columns of the {} changes have one name", side.name());
            return Err(Error::new(Kind::DuplicateField, what).with_column(name));
        }
        match name {
            OPERATION => {}
            SEQUENCE => {
                if field.data_type() != &DataType::Int64 {
                    let got = format!("`{}`", type_text(field.data_type()));
                    let what = "sequence numbers are not int64";
                    return Err(Error::new(Kind::InvalidArgument, what)
                        .with_column(name)
                        .with_got(got));
                }
                has_sequence = true;
            }
            KEY | DELETED => {
                let what = "a column has a name that joins use themselves";
                return Err(Error::new(Kind::InvalidArgument, what)
                    .with_column(name)
                    .with_hint("rename the column"));
            }
            _ => fields.push(Arc::clone(field)),
        }
    }
    Ok((fields, has_sequence))
}

pub(super) fn shape(names: &[String], fields: &[FieldRef], option: &str) -> Result<KeyShape> {
    if names.is_empty() {
        let what = format!("`{option}` names no column");
        return Err(Error::new(Kind::InvalidArgument, what));
    }
    let column = |name: &String| {
        let Some(field) = fields.iter().find(|field| field.name() == name) else {
            let known: Vec<String> = fields.iter().map(|f| f.name().clone()).collect();
            return Err(Error::new(Kind::UnknownColumn, format!("`{option}` is not a column"))
                .with_column(name)
                .with_hint(columns_hint(name, &known)));
        };
        let ty = KeyType::from_arrow(field.data_type()).map_err(|e| e.with_column(name))?;
        Ok(KeyColumn { name: name.clone(), ty, descending: false, nulls: Nulls::Last })
    };
    KeyShape::try_new(names.iter().map(column).collect::<Result<_>>()?)
}

fn check_types(foreign: &KeyShape, right: &KeyShape) -> Result<()> {
    let (a, b) = (foreign.columns(), right.columns());
    if a.len() != b.len() {
        let what = "`foreign_key` and `right_key` have different numbers of columns";
        let got = format!("{} and {}", a.len(), b.len());
        return Err(Error::new(Kind::InvalidArgument, what).with_got(got));
    }
    for (a, b) in a.iter().zip(b) {
        let is_text = |ty: KeyType| matches!(ty, KeyType::Bytes { .. });
        if a.ty != b.ty && !(is_text(a.ty) && is_text(b.ty)) {
            return Err(Error::new(
                Kind::InvalidArgument,
                "foreign key and right key differ in type",
            )
            .with_column(&a.name)
            .with_got(format!("{} and {}", a.ty, b.ty))
            .with_hint("cast one of the two"));
        }
    }
    Ok(())
}

fn out_columns(spec: &Spec, left: &[FieldRef], right: &[FieldRef]) -> Result<Vec<OutColumn>> {
    let mut all: Vec<OutColumn> = Vec::new();
    let nullable = |f: &FieldRef| Arc::new(f.as_ref().clone().with_nullable(true));
    for (place, field) in left.iter().enumerate() {
        let is_key = spec.left_key.contains(field.name());
        let field = if is_key { Arc::clone(field) } else { nullable(field) };
        all.push(OutColumn { side: Side::Left, place, field, is_key });
    }
    for (place, field) in right.iter().enumerate() {
        if spec.right_key.contains(field.name()) {
            continue;
        }
        let is_taken = all.iter().any(|column| column.field.name() == field.name());
        let name = format!("{}{}", field.name(), if is_taken { CLASH } else { "" });
        let field = Arc::new(nullable(field).as_ref().clone().with_name(name));
        all.push(OutColumn { side: Side::Right, place, field, is_key: false });
    }
    if let Some(wanted) = &spec.columns {
        let pick = |(name, of): &(String, String)| {
            let Some(column) = all.iter().find(|column| column.field.name() == of) else {
                let known: Vec<String> = all.iter().map(|c| c.field.name().clone()).collect();
                return Err(Error::new(Kind::UnknownColumn, "`columns` names no column")
                    .with_column(of)
                    .with_hint(columns_hint(of, &known)));
            };
            let field = Arc::new(column.field.as_ref().clone().with_name(name));
            Ok(OutColumn { field, ..column.clone() })
        };
        let picked = wanted.iter().map(pick).collect::<Result<Vec<_>>>()?;
        for key in &spec.left_key {
            let place = left.iter().position(|field| field.name() == key);
            if !picked.iter().any(|c| c.side == Side::Left && Some(c.place) == place) {
                return Err(Error::new(Kind::InvalidArgument, "`columns` lacks the primary key")
                    .with_column(key)
                    .with_hint("changes say by it which row they change"));
            }
        }
        all = picked;
    }
    let mut names = HashSet::from([OPERATION.to_owned()]);
    for column in &all {
        let name = column.field.name();
        let is_new =
            names.insert(name.clone()) && (!spec.before || names.insert(format!("{BEFORE}{name}")));
        if !is_new {
            return Err(Error::new(
                Kind::DuplicateField,
                "two columns of the result have one name",
            )
            .with_column(name)
            .with_hint("name the columns with columns="));
        }
    }
    Ok(all)
}

fn out_schema(columns: &[OutColumn], before: bool) -> SchemaRef {
    let mut fields: Vec<FieldRef> = vec![Arc::new(Field::new(OPERATION, DataType::Utf8, false))];
    fields.extend(columns.iter().map(|column| Arc::clone(&column.field)));
    if before {
        fields.extend(columns.iter().map(|column| {
            let field = column.field.as_ref().clone();
            let name = format!("{BEFORE}{}", field.name());
            Arc::new(field.with_name(name).with_nullable(true))
        }));
    }
    Arc::new(Schema::new(fields))
}
