//! Where columns are: in the schema of all files, and in that of one file.
//!
//! # Not here
//! Columns that files do not have (`fixed`).

use arrow_schema::{DataType, Fields};
use plait_core::schema::Frozen;

use super::bounds::FileLeaf;

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
