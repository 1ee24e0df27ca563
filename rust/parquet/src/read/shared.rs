//! What all files of a read share: its conditions, sizes and counts, and where files have columns.
//!
//! # Not here
//! The files (`file`), and which columns are asked for (`columns`).

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::{DataType, Fields};
use plait_core::Result;
use plait_core::predicate::{Filter, Predicate};
use plait_core::schema::{Frozen, Summary, freeze};

use super::all_bounds::BoundColumn;
use super::bounds::FileLeaf;
use super::file::ReadClass;
use super::fixed::{ColumnPlace, FixedColumns, FixedValues};
use super::kept::KeptIndexes;
use super::prune::LocatedCondition;
use super::report::ReadCounts;
use super::sizes::WindowSizes;
use crate::arrow_file::FileSchema;
use crate::leaf::LocationCache;
use crate::runtime::Context;
use crate::source::Source;

/// What all files of a read share.
pub(super) struct ReadShared {
    /// Whether rows come from the last to the first.
    pub(super) reverse: bool,
    pub(super) sizes: WindowSizes,
    pub(super) conditions: Option<Conditions>,
    pub(super) cache: Arc<LocationCache>,
    pub(super) kept: Arc<KeptIndexes>,
    pub(super) counts: ReadCounts,
    pub(super) context: Context,
}

/// The conditions by which files are read.
#[derive(Clone)]
pub(super) struct Conditions {
    /// The columns they are about.
    pub(super) frozen: Frozen,
    pub(super) filter: Filter,
    /// Columns of which one value is asked for.
    pub(super) equal: Vec<(Vec<String>, ArrayRef)>,
}

impl Conditions {
    /// Where the columns of each condition are in files of one class.
    pub(super) fn located(
        &self,
        schema: &FileSchema,
        fixed: &FixedValues,
        example: &Source,
    ) -> Vec<LocatedCondition> {
        let conditions = self.filter.conditions().iter();
        let leaf = |path| fixed.place(&self.frozen, schema, path).leaf();
        conditions
            .map(|condition| LocatedCondition::new(condition, leaf(condition.path()), example))
            .collect()
    }
}

impl Conditions {
    pub(super) fn find(
        predicate: &Predicate,
        summary: &Summary,
        fixed: &FixedColumns,
    ) -> Result<Self> {
        let columns = predicate.columns().map(selected).collect();
        let frozen = freeze(summary, &fixed.request(Some(columns))?)?;
        let filter = predicate.bind(frozen.schema())?;
        let conditions = predicate.columns().zip(filter.conditions());
        let equal = conditions.filter_map(|(path, condition)| match condition.equals() {
            [value] => Some((path.to_vec(), Arc::clone(value))),
            _ => None,
        });
        Ok(Self { equal: equal.collect(), frozen, filter })
    }
}

impl ReadShared {
    /// The same for another read, with nothing counted.
    pub(super) fn anew(&self, sizes: WindowSizes) -> Self {
        Self {
            reverse: self.reverse,
            sizes,
            conditions: self.conditions.clone(),
            cache: Arc::clone(&self.cache),
            kept: Arc::clone(&self.kept),
            counts: ReadCounts::default(),
            context: self.context.clone(),
        }
    }
}

/// A path as `columns` takes it.
pub(super) fn selected(path: &[String]) -> String {
    match path {
        [name] => name.clone(),
        path => path.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join("."),
    }
}

/// Places of a column from the root to the leaf.
pub(super) fn places(mut fields: &Fields, path: &[String]) -> Option<Vec<usize>> {
    let mut found = Vec::with_capacity(path.len());
    for (depth, name) in path.iter().enumerate() {
        let (place, field) = fields.find(name)?;
        found.push(place);
        match field.data_type() {
            DataType::Struct(inner) => fields = inner,
            _ if depth + 1 == path.len() => {}
            _ => return None,
        }
    }
    Some(found)
}

/// The column at `path` of the schema of all, and where files of each class have it; none if there is
/// no such column.
pub(super) fn bound_column(
    frozen: &Frozen,
    path: &[usize],
    classes: &[Arc<ReadClass>],
) -> Option<BoundColumn> {
    let (mut fields, mut names, mut data_type) = (frozen.schema().fields(), Vec::new(), None);
    for (depth, at) in path.iter().enumerate() {
        let field = fields.get(*at)?;
        names.push(field.name().clone());
        match field.data_type() {
            DataType::Struct(inner) if depth + 1 < path.len() => fields = inner,
            // Bounds of a dictionary are values.
            DataType::Dictionary(_, values) => data_type = Some(values.as_ref().clone()),
            other => data_type = Some(other.clone()),
        }
    }
    let data_type = data_type?;
    let place = |class: &Arc<ReadClass>| match class.fixed.place(frozen, &class.schema, path) {
        ColumnPlace::Leaf(leaf) => {
            ColumnPlace::Leaf(FileLeaf { data_type: data_type.clone(), ..leaf })
        }
        other => other,
    };
    let places = classes.iter().map(place).collect();
    Some(BoundColumn { path: names, data_type, places })
}

/// Where a file has the column at `path` of the schema of all; none if it lacks it.
pub(super) fn file_leaf(frozen: &Frozen, file: &Fields, path: &[usize]) -> Option<FileLeaf> {
    let (mut from, mut to) = (file, frozen.schema().fields());
    let mut places = frozen.places(from);
    let mut leaf = 0;
    for (depth, at) in path.iter().enumerate() {
        let own = (*places.get(*at)?)?;
        leaf += from.iter().take(own).map(|field| leaf_count(field.data_type())).sum::<usize>();
        let (field, target) = (from.get(own)?, to.get(*at)?);
        if depth + 1 == path.len() {
            let data_type = target.data_type().clone();
            return Some(FileLeaf { leaf, field: field.as_ref().clone(), data_type });
        }
        (from, to) = match (field.data_type(), target.data_type()) {
            (DataType::Struct(from), DataType::Struct(to)) => (from, to),
            _ => return None,
        };
        places = frozen.members(from, to);
    }
    None
}

/// Leaves of a column in Parquet.
pub(super) fn leaf_count(data_type: &DataType) -> usize {
    match data_type {
        DataType::Struct(fields) => fields.iter().map(|f| leaf_count(f.data_type())).sum(),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => leaf_count(field.data_type()),
        _ => 1,
    }
}
