//! A schema without some of its columns: what is left of it, of the adapters and of the metadata.
//!
//! # Invariants
//! Leaves that stay keep their order, names, types and adapters. Metadata that describes columns goes
//! with them, but for the Arrow hint, which is made anew.
//!
//! # Not here
//! Which columns go (`partition`).

use std::collections::BTreeSet;
use std::sync::Arc;

use parquet::arrow::ARROW_SCHEMA_META_KEY;
use parquet::schema::types::{SchemaDescriptor, Type};
use plait_core::{Error, Kind, Result};

use super::hints;
use super::metadata::lists_columns;
use super::reconcile::Reconciled;

impl Reconciled {
    /// The same without `leaves`, which are top-level columns.
    ///
    /// # Errors
    /// [`Kind::Internal`] for a schema that cannot be expressed.
    pub(crate) fn without(&self, leaves: &[usize]) -> Result<Self> {
        if leaves.is_empty() {
            return Ok(self.clone());
        }
        let roots: BTreeSet<usize> =
            leaves.iter().map(|leaf| self.descr.get_column_root_idx(*leaf)).collect();
        let fields = self.schema.get_fields().iter().enumerate();
        let fields =
            fields.filter(|(at, _)| !roots.contains(at)).map(|(_, field)| Arc::clone(field));
        let schema = Type::group_type_builder(self.schema.name())
            .with_fields(fields.collect())
            .build()
            .map_err(|e| {
                Error::new(Kind::Internal, "schema without columns cannot be expressed")
                    .with_cause(e)
            })?;
        let schema = Arc::new(schema);
        let descr = Arc::new(SchemaDescriptor::new(Arc::clone(&schema)));
        let stay = |adapters: &Arc<[_]>| {
            let all = adapters.iter().enumerate();
            let kept = all.filter(|(leaf, _)| !leaves.contains(leaf));
            kept.map(|(_, adapter): (_, &super::LeafAdapter)| adapter.clone()).collect()
        };
        let mut metadata = self.metadata.clone();
        metadata.retain(|entry| !lists_columns(&entry.key));
        if let Some(at) = metadata.iter().position(|entry| entry.key == ARROW_SCHEMA_META_KEY) {
            let hint = metadata.remove(at).value.unwrap_or_default();
            let stays = |field| !roots.contains(&field);
            metadata.extend(hints::without(&self.descr, &hint, &descr, stays));
        }
        Ok(Self {
            schema,
            descr,
            leaves: Arc::new(self.leaves.iter().map(stay).collect()),
            renamed: self.renamed.clone(),
            metadata,
            metadata_conflicts: self.metadata_conflicts.clone(),
        })
    }
}
