//! Batches of one source as batches of the frozen schema.
//!
//! ```text
//! frozen   a: int64   b: utf8   c: int32   _path
//! source   b, a: int32                                 take(#1) as int64 │ take(#0) │ null │ constant
//! ```
//!
//! # Invariants
//! A pure function of a source's schema and the frozen one. Every batch has the frozen schema, the
//! very object. Columns that stay as they are share their buffers. A source that does not adapt is
//! refused: nothing is inferred again.
//!
//! # Cost
//! Built once for a schema; per batch what has to be cast, and nothing for what stays.
//!
//! # Not here
//! Casting (`convert`); deciding (`freeze`).

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, Int64Array, LargeListArray, ListArray, RecordBatch, RecordBatchOptions,
    UInt32Array, new_empty_array, new_null_array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};

use super::cast::Misfit;
use super::conflict::{self, Conflict};
use super::constant::constant;
use super::convert::{Convert, Rules};
use super::convert_values::nulls_of;
use super::freeze::DEFAULT;
use super::frozen::{Decision, Frozen, Origin};
use super::policy::Allow;
use super::selection::Selection;
use plait_base::{Error, Kind, Result, type_text};

/// The value of a static column within one source.
#[derive(Clone, Debug)]
pub enum Value {
    /// The one value of this array, of the column's type.
    Constant(ArrayRef),
    /// The number of the row, counted from 0.
    RowNumber,
}

#[derive(Clone, Debug)]
enum Op {
    Take {
        from: usize,
        convert: Convert,
        never_null: bool,
    },
    Constant(ArrayRef),
    RowNumber,
    Null,
    /// Lists without entries.
    Empty,
    /// A static column whose value is not known yet.
    Pending(String),
}

/// Turns batches of one source into batches of the frozen schema; see [`Frozen::adapter`].
#[derive(Clone, Debug)]
pub struct Adapter {
    source: SchemaRef,
    schema: SchemaRef,
    ops: Vec<Op>,
    null_misfits: bool,
    selection: Option<Arc<Selection>>,
}

impl Frozen {
    /// How batches of `source` get the frozen schema, without static columns.
    ///
    /// # Errors
    /// [`Kind::SchemaConflict`] naming everything that does not adapt, [`Kind::InvalidArgument`] when
    /// the frozen schema has static columns.
    pub fn adapter(&self, source: &Schema) -> Result<Adapter> {
        self.adapter_with(source, &[])
    }

    /// How batches of `source` get the frozen schema, given the values of its static columns.
    ///
    /// # Errors
    /// As [`adapter`](Self::adapter).
    pub fn adapter_with(&self, source: &Schema, values: &[(String, Value)]) -> Result<Adapter> {
        self.check(source)?;
        self.template(source, false)?.bind(values)
    }

    /// An adapter for all sources of one schema, whose static columns have no values yet.
    ///
    /// # Errors
    /// As [`adapter`](Self::adapter).
    pub fn adapter_template(&self, source: &Schema) -> Result<Adapter> {
        self.check(source)?;
        self.template(source, false)
    }

    /// The same without a check; `empty_lists`: lists that the source lacks are empty, not null.
    pub(super) fn template(&self, source: &Schema, empty_lists: bool) -> Result<Adapter> {
        let rules = Rules { policy: &self.policy, refuse_extra: false };
        let origins = &self.decision.origins;
        let mut ops = Vec::with_capacity(origins.len());
        for (field, origin) in self.schema.fields().iter().zip(origins) {
            ops.push(match origin {
                Origin::Nowhere if empty_lists && can_be_empty(field.data_type()) => Op::Empty,
                Origin::Nowhere => Op::Null,
                Origin::Static(name) => Op::Pending(name.clone()),
                Origin::Source(key) => {
                    let found = source.fields().iter().position(|f| self.key(f) == *key);
                    match found.and_then(|from| Some((from, source.fields().get(from)?))) {
                        Some((from, of)) => {
                            let convert = rules.plan(of.data_type(), field.data_type());
                            let convert = convert.map_err(|_| misplanned(field))?;
                            let never_null = rules.nullable(of, field).unwrap_or(true);
                            Op::Take { from, convert, never_null }
                        }
                        None => match default(field)? {
                            Some(value) => Op::Constant(value),
                            None => Op::Null,
                        },
                    }
                }
            });
        }
        Ok(Adapter {
            source: Arc::new(source.clone()),
            schema: Arc::clone(&self.schema),
            ops,
            null_misfits: self.policy.lossy == Allow::Null,
            selection: self.selection.clone(),
        })
    }

    /// Whether nothing of what is asked for gets lost.
    fn check(&self, source: &Schema) -> Result<()> {
        let Decision { origins, picks, dropped, closed, .. } = &self.decision;
        // A column that had no source when the schema was frozen is not read over.
        let nowhere = |name: &str| {
            let fields = self.schema.fields().iter().zip(origins);
            let mut missing = fields.filter(|(_, origin)| **origin == Origin::Nowhere);
            missing.any(|(field, _)| self.policy.key(field.name()) == self.policy.key(name))
        };
        let mut pruned: Vec<(String, FieldRef)> = Vec::new();
        for field in source.fields() {
            let key = self.key(field);
            let found = picks.prune(field, &key, &self.policy)?;
            pruned.extend(found.map(|field| (key, field)));
        }
        let rules =
            Rules { policy: &self.policy, refuse_extra: self.policy.struct_field != Allow::Drop };
        let mut conflicts = Vec::new();
        let mut conflict = |column: &str, says: String, wants: String, why: &'static str| {
            let sides = [(says, "this source".to_owned()), (wants, "the frozen schema".to_owned())];
            conflicts.push(Conflict { column: column.to_owned(), why, sides });
        };
        let mut used = vec![false; pruned.len()];
        for (field, origin) in self.schema.fields().iter().zip(origins) {
            let Origin::Source(key) = origin else { continue };
            let wants = || {
                let not_null = if field.is_nullable() { "" } else { " not null" };
                format!("{}{not_null}", type_text(field.data_type()))
            };
            let matching: Vec<usize> = (0..pruned.len())
                .filter(|i| pruned.get(*i).is_some_and(|(of, _)| of == key))
                .collect();
            for at in &matching {
                if let Some(used) = used.get_mut(*at) {
                    *used = true;
                }
            }
            match matching.as_slice() {
                [] if field.is_nullable() || field.metadata().contains_key(DEFAULT) => {}
                [] => conflict(field.name(), "absent".into(), wants(), conflict::MISSING),
                [at] => {
                    let Some((_, of)) = pruned.get(*at) else { continue };
                    if let Err((path, says)) = rules.plan(of.data_type(), field.data_type()) {
                        let column = if path.is_empty() {
                            field.name().clone()
                        } else {
                            format!("{}.{path}", field.name())
                        };
                        conflict(&column, says, wants(), conflict::TYPES);
                    } else if rules.nullable(of, field).is_err() {
                        conflict(field.name(), "nullable".into(), wants(), "may be null");
                    }
                }
                _ => conflict(field.name(), "two of them".into(), wants(), conflict::TWICE),
            }
        }
        for ((key, field), _) in pruned.iter().zip(used).filter(|(_, used)| !used) {
            let is_left_out = dropped.contains(key) || picks.column(key).is_some();
            if *closed || !is_left_out || nowhere(field.name()) {
                conflict(
                    field.name(),
                    type_text(field.data_type()),
                    "absent".into(),
                    "would be lost",
                );
            }
        }
        if conflicts.is_empty() { Ok(()) } else { Err(conflict::error(&conflicts)) }
    }
}

impl Adapter {
    /// Whether the source has nothing for the column at `path`: places in the frozen schema, from the
    /// root to a member.
    #[must_use]
    pub fn lacks(&self, path: &[usize]) -> bool {
        let op = path.split_first().and_then(|(first, rest)| Some((self.ops.get(*first)?, rest)));
        match op {
            Some((Op::Take { convert, .. }, rest)) => convert.lacks(rest),
            Some((Op::Null | Op::Empty, _)) => true,
            _ => false,
        }
    }

    /// The schema of the batches it takes.
    #[must_use]
    pub fn source(&self) -> &SchemaRef {
        &self.source
    }

    /// The same adapter with the values of static columns within one source.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] when a static column has no value.
    pub fn bind(&self, values: &[(String, Value)]) -> Result<Self> {
        let mut bound = self.clone();
        for op in &mut bound.ops {
            let Op::Pending(name) = op else { continue };
            *op = match values.iter().find(|(n, _)| n == name) {
                Some((_, Value::Constant(value))) => Op::Constant(Arc::clone(value)),
                Some((_, Value::RowNumber)) => Op::RowNumber,
                None => {
                    return Err(Error::new(Kind::InvalidArgument, "static column has no value")
                        .with_column(name.as_str()));
                }
            };
        }
        Ok(bound)
    }

    /// What happens to every column: its name and a few words.
    #[must_use]
    pub fn describe(&self) -> Vec<(String, String)> {
        let words = |op: &Op, field: &Field| match op {
            Op::Take { convert: Convert::Same, from, .. } => format!("take #{from}"),
            Op::Take { convert, from, .. } => {
                let old = self.source.fields().get(*from).map(|f| type_text(f.data_type()));
                let old = old.unwrap_or_default();
                format!("{} #{from} {old} -> {}", convert.describe(), type_text(field.data_type()))
            }
            Op::Constant(_) | Op::Pending(_) => "constant".to_owned(),
            Op::Empty => "empty list".to_owned(),
            Op::RowNumber => "row number".to_owned(),
            Op::Null => "null".to_owned(),
        };
        let fields = self.schema.fields().iter();
        let told = self.ops.iter().zip(fields).map(|(op, f)| (f.name().clone(), words(op, f)));
        let told: Vec<(String, String)> = told.collect();
        match &self.selection {
            Some(selection) => selection.describe(&told),
            None => told,
        }
    }

    /// Whether every column is taken as it is.
    #[must_use]
    pub fn is_identity(&self) -> bool {
        self.selection.is_none()
            && self.ops.len() == self.source.fields().len()
            && self.ops.iter().enumerate().all(|(i, op)| {
                matches!(op, Op::Take { from, convert: Convert::Same, never_null: false } if *from == i)
            })
    }

    /// `batch` with the frozen schema.
    ///
    /// # Errors
    /// [`Kind::LossyCast`] with column, row of the batch, and value.
    pub fn apply(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        self.apply_at(batch, 0)
    }

    /// `batch` with the frozen schema; its first row is row `first_row` of the source.
    ///
    /// # Errors
    /// [`Kind::LossyCast`] with column, row of the source, and value; the caller names the source.
    pub fn apply_at(&self, batch: &RecordBatch, first_row: u64) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let mut columns = Vec::with_capacity(self.ops.len());
        for (op, field) in self.ops.iter().zip(self.schema.fields()) {
            columns.push(match op {
                Op::Take { from, convert, never_null } => {
                    let Some(column) = batch.columns().get(*from) else {
                        return Err(misplanned(field));
                    };
                    self.take(column, convert, *never_null, field, first_row)?
                }
                Op::Constant(value) => repeat(value, rows)
                    .map_err(|e| internal("cannot repeat a constant", field, e))?,
                Op::RowNumber => {
                    let first = i64::try_from(first_row).unwrap_or(i64::MAX);
                    let numbers = (0..).take(rows).map(|row: i64| first.saturating_add(row));
                    Arc::new(Int64Array::from_iter_values(numbers))
                }
                Op::Null => new_null_array(field.data_type(), rows),
                Op::Empty => empty_lists(field.data_type(), rows),
                Op::Pending(_) => return Err(misplanned(field)),
            });
        }
        let schema = match &self.selection {
            Some(selection) => {
                columns = selection.apply(&columns)?;
                selection.schema()
            }
            None => &self.schema,
        };
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).map_err(|e| {
            Error::new(Kind::SourceFailed, "source does not hold what its schema says")
                .with_cause(e)
        })
    }

    fn take(
        &self,
        column: &ArrayRef,
        convert: &Convert,
        never_null: bool,
        field: &Field,
        first_row: u64,
    ) -> Result<ArrayRef> {
        if *convert == Convert::Same && !never_null {
            return Ok(Arc::clone(column));
        }
        let mut misfits = Vec::new();
        let made = convert.run(column, &mut misfits).map_err(|e| {
            Error::new(Kind::SourceFailed, "values cannot be cast")
                .with_column(field.name())
                .with_cause(e)
        })?;
        if self.null_misfits {
            misfits.retain(|misfit| misfit.value == "null");
        }
        if never_null && misfits.is_empty() {
            nulls_of(&made, &mut misfits);
        }
        let Some(Misfit { row, path, value }) = misfits.into_iter().min_by_key(|m| m.row) else {
            return Ok(made);
        };
        let not_null = if value == "null" { " not null" } else { "" };
        Err(Error::new(Kind::LossyCast, "value does not fit the type of the output")
            .with_column(format!("{}{path}", field.name()))
            .with_row(first_row.saturating_add(row as u64))
            .with_got(format!("`{value}` for {}{not_null}", type_text(field.data_type())))
            .with_hint(
                "give a schema whose type holds the value, or leave the policy at its default",
            ))
    }
}

/// `value`, an array of one value, `rows` times.
fn repeat(value: &ArrayRef, rows: usize) -> Result<ArrayRef, arrow_schema::ArrowError> {
    if value.is_null(0) {
        return Ok(new_null_array(value.data_type(), rows));
    }
    arrow_select::take::take(value, &UInt32Array::from(vec![0; rows]), None)
}

/// Whether a missing column of this type is made of lists without entries.
pub(super) fn can_be_empty(ty: &DataType) -> bool {
    matches!(ty, DataType::List(_) | DataType::LargeList(_))
}

/// `rows` lists without entries.
fn empty_lists(ty: &DataType, rows: usize) -> ArrayRef {
    let items = |item: &FieldRef| new_empty_array(item.data_type());
    match ty {
        DataType::List(item) => {
            let offsets = OffsetBuffer::new_zeroed(rows);
            Arc::new(ListArray::new(Arc::clone(item), offsets, items(item), None))
        }
        DataType::LargeList(item) => {
            let offsets = OffsetBuffer::new_zeroed(rows);
            Arc::new(LargeListArray::new(Arc::clone(item), offsets, items(item), None))
        }
        ty => new_null_array(ty, rows),
    }
}

/// The default of a given field: its text, cast to the field's type.
fn default(field: &FieldRef) -> Result<Option<ArrayRef>> {
    let Some(text) = field.metadata().get(DEFAULT) else { return Ok(None) };
    constant(text, field).map(Some)
}

fn misplanned(field: &Field) -> Error {
    Error::new(Kind::Internal, "adapter does not fit its source").with_column(field.name())
}

fn internal(what: &str, field: &Field, cause: arrow_schema::ArrowError) -> Error {
    Error::new(Kind::Internal, what).with_column(field.name()).with_cause(cause)
}
