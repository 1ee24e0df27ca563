//! The schema of many files, and those of single columns, with which chunks are decoded alone.
//!
//! # Not here
//! How a chunk is decoded (`stored`).

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type};

/// The schema of many files.
pub(super) struct PooledSchema {
    pub(super) all: SchemaDescPtr,
    /// Of each top-level column alone, once it is needed.
    columns: Vec<OnceLock<Option<SchemaDescPtr>>>,
}

impl PooledSchema {
    pub(super) fn new(all: SchemaDescPtr) -> Self {
        let columns = all.root_schema().get_fields().iter().map(|_| OnceLock::new()).collect();
        Self { all, columns }
    }

    /// The schema of the top-level column of a leaf alone, and which leaves it has.
    pub(super) fn around(&self, leaf: usize) -> Option<(&SchemaDescPtr, Range<usize>)> {
        let leaves = self.all.num_columns();
        if leaf >= leaves {
            return None;
        }
        let root = self.all.get_column_root_idx(leaf);
        let is_of_root = |leaf: &usize| self.all.get_column_root_idx(*leaf) == root;
        let start = (0..leaf).rev().take_while(is_of_root).last().unwrap_or(leaf);
        let end = start + (start..leaves).take_while(is_of_root).count();
        let column = || {
            let fields = vec![Arc::clone(self.all.root_schema().get_fields().get(root)?)];
            let group = Type::group_type_builder(self.all.name()).with_fields(fields);
            let descr = SchemaDescriptor::new(Arc::new(group.build().ok()?));
            (descr.num_columns() == end - start).then(|| Arc::new(descr))
        };
        let schema = self.columns.get(root)?.get_or_init(column).as_ref()?;
        Some((schema, start..end))
    }
}
