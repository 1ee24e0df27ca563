//! Which columns a read gives out and needs, and in which order its rows are.
//!
//! # Not here
//! Where a file has them (`shared`).

use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use plait_core::Result;
use plait_core::key::{Curve, Nulls, SortColumn, SortOrder};
use plait_core::plan::VersionBy;
use plait_core::predicate::Predicate;
use plait_core::schema::{Frozen, Summary, freeze};
use plait_core::stream::{Unite, check_keys};

use super::fixed::FixedColumns;
use super::leaves::{leaf_count, places, selected};
use super::names::{AskedColumns, ColumnNames};
use super::opened::OpenedFiles;
use super::options::ReadOptions;
use crate::arrow_file::FileSchema;
use crate::options::MissingOption;
use crate::order;
use crate::schema::reconcile;
use crate::source::Source;

/// The columns of a read.
pub(super) struct ReadColumns {
    /// Those that are given out, then those that are needed besides.
    pub(super) all: Frozen,
    /// The schema of those that are given out.
    pub(super) given: SchemaRef,
}

impl ReadColumns {
    /// Those that are asked for, then those that the order, the rule of duplicates and conditions of
    /// rows need.
    pub(super) fn find(
        options: &ReadOptions,
        asked: Option<&AskedColumns>,
        order: &SortOrder,
        after: &Predicate,
        summary: &Summary,
        names: &ColumnNames<'_>,
        fixed: &FixedColumns,
    ) -> Result<Self> {
        let Some(asked) = asked else {
            let whole = names.whole();
            return Ok(Self { given: Arc::clone(whole.schema()), all: whole.clone() });
        };
        let select = |columns: Vec<String>| freeze(summary, &fixed.request(Some(columns))?);
        let given = match asked.columns.is_empty() {
            true => Arc::new(Schema::empty()),
            false => Arc::clone(select(asked.columns.clone())?.schema()),
        };
        let mut needed: Vec<Vec<String>> =
            order.columns().iter().map(|column| column.path.clone()).collect();
        needed.extend(after.columns().map(<[String]>::to_vec));
        let versions = options.version_by.iter().flat_map(VersionBy::columns);
        for name in versions.chain(&options.delete_where) {
            for column in SortOrder::try_parse(name)?.columns() {
                needed.push(names.path(&column.path)?);
            }
        }
        let is_there = |path: &Vec<String>| places(given.fields(), path).is_some();
        let mut columns = asked.columns.clone();
        columns.extend(needed.iter().filter(|path| !is_there(path)).map(|path| selected(path)));
        Ok(Self { all: select(columns)?, given: asked.name(&given) })
    }
}

/// Columns of the read in which a file has timestamps of twelve bytes.
pub(super) fn int96_columns(all: &Frozen, schema: &FileSchema) -> Vec<String> {
    let fields = schema.schema().fields();
    let mut leaf = 0;
    let of_file: Vec<bool> = fields
        .iter()
        .map(|field| {
            let leaves = leaf..leaf + leaf_count(field.data_type());
            leaf = leaves.end;
            schema.has_int96_among(leaves)
        })
        .collect();
    let is_int96 = |place: Option<usize>| place.is_some_and(|place| of_file[place]);
    let columns = all.schema().fields().iter().zip(all.places(fields));
    columns.filter(|(_, place)| is_int96(*place)).map(|(field, _)| field.name().clone()).collect()
}

/// The order that is asked for, or the one that the files state, by the names of all files.
pub(super) fn resolve_order(
    options: &ReadOptions,
    opened: &OpenedFiles,
    names: &ColumnNames<'_>,
) -> Result<SortOrder> {
    let order = match &options.sort_by {
        Some(text) => SortOrder::try_parse(text)?,
        None => match opened.claimed.get() {
            Some(order) => order.clone(),
            None => {
                let order = claimed(opened)?;
                opened.claimed.get_or_init(|| order).clone()
            }
        },
    };
    let columns = order
        .columns()
        .iter()
        .map(|column| Ok(SortColumn { path: names.path(&column.path)?, ..column.clone() }));
    order.with_columns(columns.collect::<Result<_>>()?)
}

/// The order that the files state: an example of each claim and schema says the same as all of them.
fn claimed(opened: &OpenedFiles) -> Result<SortOrder> {
    let mut examples: Vec<Arc<Source>> = Vec::new();
    let mut known: Vec<(usize, Option<SortOrder>)> = Vec::new();
    for file in &opened.files {
        let source = &file.source;
        let claim = (file.class, order::claimed(source)?);
        if !known.contains(&claim) {
            known.push(claim);
            examples.push(Arc::clone(source));
        }
    }
    // The rows of one file have an order in any case: that in which they lie.
    if opened.files.len() == 1 && matches!(known.as_slice(), [(_, None)]) {
        return Ok(SortOrder::empty());
    }
    let footers: Vec<_> = examples.iter().map(|s| (s.path(), s.file())).collect();
    let unite = Unite { missing_keys: true, ..Unite::default() };
    order::from_sources(&examples, &reconcile(&footers, &unite)?)
}

/// Refuses files without a sort column, unless their keys may be null.
pub(super) fn check_present(
    options: &ReadOptions,
    order: &SortOrder,
    opened: &OpenedFiles,
) -> Result<()> {
    if matches!(options.missing_keys, MissingOption::Null) {
        return Ok(());
    }
    let whole = &opened.whole;
    let lacking = |column: &SortColumn| -> Vec<bool> {
        let Some(path) = places(whole.schema().fields(), &column.path) else {
            return vec![false; opened.classes.len()];
        };
        let classes = opened.classes.iter().enumerate();
        let place = |(i, class)| opened.fixed.of_class(i).place(whole, class, &path);
        classes.map(|class| place(class).is_nowhere()).collect()
    };
    let lacking: Vec<Vec<bool>> = order.columns().iter().map(lacking).collect();
    let lacks = |i: usize, column: usize| lacking[column][opened.files[i].class];
    let path = |i: usize| Some(opened.files[i].path().to_owned());
    check_keys(order, opened.files.len(), lacks, path)
}

/// The order of the rows from the last to the first.
pub(super) fn reversed(order: &SortOrder) -> Result<SortOrder> {
    let mut columns = order.columns().to_vec();
    for column in columns.iter_mut().take(order.plain().len()) {
        column.descending = !column.descending;
        column.nulls = match column.nulls {
            Nulls::First => Nulls::Last,
            Nulls::Last => Nulls::First,
        };
    }
    // A curve turns as a whole, its nulls with it.
    let curve = order.curve().map(|curve| Curve { descending: !curve.descending, ..curve });
    SortOrder::try_new(columns)?.with_curve(curve)
}
