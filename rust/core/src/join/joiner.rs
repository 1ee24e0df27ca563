//! Rows of the result as a callable makes them of joined rows, a batch at a time.
//!
//! ```text
//! change             left and right columns     callable                 leaves
//! insert 1   after   1 7 10 Ada              ─▶ "10 for Ada"           ─▶ insert 1 "10 for Ada"
//! update 1   before  1 7 10 Ada              ─▶ "10 for Ada"    ─┐
//!            after   1 7 10 Ada L.           ─▶ "10 for Ada L." ─┴ differ ─▶ update 1 "10 for Ada L."
//! ```
//!
//! # Invariants
//! The callable sees rows that are in the join, never a deleted one. Where it makes the same of a row
//! before and after, nothing leaves. The primary key is that of the join, whatever the callable makes.
//!
//! # Cost
//! Two calls a batch, and a copy of the rows for each.
//!
//! # Not here
//! Which rows are joined (`changes`, `table`).

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchReader, UInt32Array, new_null_array,
};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{ArrowError, FieldRef, Schema, SchemaRef};

use super::layout::{BEFORE, Layout, OPERATION};
use super::same::same;
use plait_base::{Error, Kind, Result, type_text};

/// Makes one row of each joined row.
#[derive(Clone)]
pub struct Call(Arc<Make>);

type Make = dyn Fn(&RecordBatch) -> Result<RecordBatch, ArrowError> + Send + Sync;

impl Call {
    /// A callable.
    pub fn new(
        make: impl Fn(&RecordBatch) -> Result<RecordBatch, ArrowError> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(make))
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Call")
    }
}

/// A callable and the columns it makes.
#[derive(Clone, Debug)]
pub struct Joiner {
    layout: Arc<Layout>,
    call: Call,
    made: Vec<FieldRef>,
    table: SchemaRef,
    changes: SchemaRef,
    tells_before: bool,
}

impl Joiner {
    /// The columns are those that the callable makes of no rows. `layout` has the old values, which
    /// leave only if `tells_before`.
    ///
    /// # Errors
    /// What the callable gives; [`Kind::DuplicateField`] when columns of the result have one name.
    pub fn try_new(layout: Arc<Layout>, tells_before: bool, call: Call) -> Result<Self> {
        let none = RecordBatch::new_empty(layout.table());
        let all = call.0(&none).map_err(Error::from_arrow)?;
        let keys: Vec<FieldRef> = layout.keys().map(|(_, field)| Arc::clone(field)).collect();
        let is_key = |field: &FieldRef| keys.iter().any(|key| key.name() == field.name());
        let nullable = |f: &FieldRef| Arc::new(f.as_ref().clone().with_nullable(true));
        let fields = all.schema();
        let made: Vec<FieldRef> =
            fields.fields().iter().filter(|field| !is_key(field)).map(nullable).collect();
        let row: Vec<FieldRef> = keys.iter().chain(&made).cloned().collect();
        let operation = layout.out().field(0).clone();
        let mut changes: Vec<FieldRef> = vec![Arc::new(operation)];
        changes.extend(row.iter().cloned());
        if tells_before {
            let old = |field: &FieldRef| {
                let name = format!("{BEFORE}{}", field.name());
                Arc::new(field.as_ref().clone().with_name(name).with_nullable(true))
            };
            changes.extend(row.iter().map(old));
        }
        let mut names = HashSet::new();
        if let Some(twice) = changes.iter().find(|field| !names.insert(field.name().clone())) {
            let what = "two columns of the result have one name";
            return Err(Error::new(Kind::DuplicateField, what)
                .with_column(twice.name())
                .with_hint(format!(
                    "let the joiner name its columns otherwise; `{OPERATION}` is taken"
                )));
        }
        let (table, changes) = (Arc::new(Schema::new(row)), Arc::new(Schema::new(changes)));
        Ok(Self { layout, call, made, table, changes, tells_before })
    }

    /// The schema of changes.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.changes
    }

    /// These changes, as the callable makes them.
    #[must_use]
    pub fn changes(&self, changes: Box<dyn RecordBatchReader + Send>) -> Joined {
        Joined { joiner: self.clone(), rows: changes, are_changes: true }
    }

    /// This table, as the callable makes it.
    #[must_use]
    pub fn table(&self, rows: Box<dyn RecordBatchReader + Send>) -> Joined {
        Joined { joiner: self.clone(), rows, are_changes: false }
    }

    /// What the callable makes of rows with the columns of the joined table.
    fn make(&self, columns: Vec<ArrayRef>) -> Result<Vec<ArrayRef>> {
        let rows = RecordBatch::try_new(self.layout.table(), columns).map_err(Error::from_arrow)?;
        let all = self.call.0(&rows).map_err(Error::from_arrow)?;
        if all.num_rows() != rows.num_rows() {
            let what = "the joiner does not make one row of each";
            return Err(Error::new(Kind::InvalidArgument, what).with_got(format!(
                "{} rows of {}",
                all.num_rows(),
                rows.num_rows()
            )));
        }
        let column = |field: &FieldRef| {
            let found = all.column_by_name(field.name());
            found.filter(|array| array.data_type() == field.data_type()).cloned().ok_or_else(|| {
                let what = "the joiner does not make the same columns of every batch";
                let got = found.map_or("no such column".to_owned(), |a| type_text(a.data_type()));
                Error::new(Kind::SchemaDrift, what).with_column(field.name()).with_got(got)
            })
        };
        self.made.iter().map(column).collect()
    }

    fn row(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let mut columns: Vec<ArrayRef> =
            self.layout.keys().map(|(place, _)| Arc::clone(batch.column(place))).collect();
        columns.extend(self.make(batch.columns().to_vec())?);
        RecordBatch::try_new(Arc::clone(&self.table), columns).map_err(Error::from_arrow)
    }

    /// These changes, as the callable makes them; some may be none.
    pub(super) fn change(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let len = self.layout.table().fields().len();
        let ops = batch.column(0).as_string::<i32>();
        let has = |other: &str| -> Vec<bool> { ops.iter().map(|op| op != Some(other)).collect() };
        let (is_before, is_after) = (has("insert"), has("delete"));
        let columns = batch.columns();
        let after = self.spread(&columns[1..=len], &is_after)?;
        let before = self.spread(&columns[1 + len..], &is_before)?;
        let both = |i: usize| is_before[i] && is_after[i];
        let mut is_same = BooleanBuffer::collect_bool(ops.len(), both);
        for (old, new) in before.iter().zip(&after) {
            is_same = &is_same & &same(old, new)?;
        }
        let mut out: Vec<ArrayRef> = vec![Arc::clone(&columns[0])];
        out.extend(self.layout.keys().map(|(place, _)| Arc::clone(&columns[1 + place])));
        out.extend(after);
        if self.tells_before {
            out.extend(self.layout.keys().map(|(place, _)| Arc::clone(&columns[1 + len + place])));
            out.extend(before);
        }
        let out =
            RecordBatch::try_new(Arc::clone(&self.changes), out).map_err(Error::from_arrow)?;
        let differs = BooleanArray::new(!&is_same, None);
        arrow_select::filter::filter_record_batch(&out, &differs).map_err(Error::from_arrow)
    }

    /// What the callable makes of the rows that are there, null where none is.
    fn spread(&self, columns: &[ArrayRef], is_there: &[bool]) -> Result<Vec<ArrayRef>> {
        let take = |columns: &[ArrayRef], rows: &UInt32Array| -> Result<Vec<ArrayRef>> {
            let taken = columns.iter().map(|column| arrow_select::take::take(column, rows, None));
            taken.collect::<Result<_, _>>().map_err(Error::from_arrow)
        };
        if is_there.iter().all(|there| *there) {
            return self.make(columns.to_vec());
        }
        if !is_there.contains(&true) {
            let none = |field: &FieldRef| new_null_array(field.data_type(), is_there.len());
            return Ok(self.made.iter().map(none).collect());
        }
        let places = (0_u32..).zip(is_there);
        let rows: UInt32Array = places.filter(|(_, there)| **there).map(|(row, _)| row).collect();
        let made = self.make(take(columns, &rows)?)?;
        let mut next = 0_u32..;
        let places = is_there.iter().map(|there| if *there { next.next() } else { None });
        take(&made, &places.collect())
    }
}

/// Rows as a callable makes them.
pub struct Joined {
    joiner: Joiner,
    rows: Box<dyn RecordBatchReader + Send>,
    are_changes: bool,
}

impl fmt::Debug for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joined").field("joiner", &self.joiner).finish_non_exhaustive()
    }
}

impl Iterator for Joined {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let batch = match self.rows.next()? {
                Ok(batch) => batch,
                Err(e) => return Some(Err(e)),
            };
            let made = match self.are_changes {
                true => self.joiner.change(&batch),
                false => self.joiner.row(&batch),
            };
            // A batch of which nothing is left says nothing.
            if !made.as_ref().is_ok_and(|made| made.num_rows() == 0) {
                return Some(made.map_err(Error::into_arrow));
            }
        }
    }
}

impl RecordBatchReader for Joined {
    fn schema(&self) -> SchemaRef {
        Arc::clone(if self.are_changes { &self.joiner.changes } else { &self.joiner.table })
    }
}
