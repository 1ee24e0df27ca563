//! What all files of a read share: its conditions, sizes and counts, and where files have columns.
//!
//! # Not here
//! The files (`file`), and which columns are asked for (`columns`).

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::DataType;
use plait_core::Result;
use plait_core::predicate::{Filter, Predicate};
use plait_core::schema::{Frozen, Summary, freeze};

use super::all_bounds::BoundColumn;
use super::bounds::FileLeaf;
use super::fixed::{ColumnPlace, FixedColumns, FixedValues};
use super::kept::KeptIndexes;
use super::leaves::selected;
use super::prune::LocatedCondition;
use super::report::ReadCounts;
use super::sizes::WindowSizes;
use super::spilled::SpillSpace;
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
    pub(super) spill: Arc<SpillSpace>,
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
            spill: Arc::new(self.spill.anew()),
            context: self.context.clone(),
        }
    }
}

/// The column at `path` of the schema of all, with its `places` in files of each class; none if there is
/// no such column.
pub(super) fn bound_column(
    frozen: &Frozen,
    path: &[usize],
    places: Vec<ColumnPlace>,
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
    let typed = |place| match place {
        ColumnPlace::Leaf(leaf) => {
            ColumnPlace::Leaf(FileLeaf { data_type: data_type.clone(), ..leaf })
        }
        other => other,
    };
    let places = places.into_iter().map(typed).collect();
    Some(BoundColumn { path: names, data_type, places })
}

/// For which rows of a batch a filter holds.
pub(super) fn mask(
    filter: &Filter,
    columns: &[ArrayRef],
    rows: usize,
) -> Result<arrow_array::BooleanArray> {
    let holds = filter.holds(columns, rows)?;
    Ok(arrow_array::BooleanArray::new(holds, None))
}
