//! One output schema for many Parquet files, and how every file gets there.
//!
//! ```text
//! footers ─ classes of equal schemas ─ summary ─▶ plait_core::schema: freeze
//!                                                    │
//!            output schema ─ hints, metadata ◀─┬─ tree (leaf)
//!            per source, per leaf: adapt     ◀─┘
//! ```
//!
//! # Invariants
//! Either every source adapts without loss or one error names all conflicts; nothing is read but
//! footers. Equal sources reconcile to themselves, byte for byte. Nothing depends on threads or hashes.
//!
//! # Cost
//! A tree comparison per source; the rest per class of equal schemas.
//!
//! # Not here
//! What goes together, and in which type (`plait_core::schema`); applying adapters (the leaf readers).

mod adapt;
mod described;
mod hints;
mod key;
mod leaf;
mod metadata;
mod reconcile;
mod renamed;
mod summary;
mod tree;

use std::sync::Arc;

use parquet::file::metadata::KeyValue;
use parquet::schema::types::{SchemaDescriptor, TypePtr};

pub(crate) use adapt::{Cast, DecimalForm, LeafAdapter, LevelMap};
pub(crate) use key::{key_leaf, key_type};
pub(crate) use metadata::{MetadataConflict, describes_one_file};
pub(crate) use plait_core::stream::Unite;
pub(crate) use reconcile::reconcile;
pub(crate) use renamed::Renamed;

/// One schema for all sources.
#[derive(Clone, Debug)]
pub(crate) struct Reconciled {
    /// Root of the output schema.
    pub schema: TypePtr,
    /// The same, with its leaves.
    pub descr: Arc<SchemaDescriptor>,
    /// How output leaf `leaf` is made from source `source`: `leaves[source][leaf]`. Sources of equal
    /// schemas share their adapters.
    pub leaves: Vec<Arc<[LeafAdapter]>>,
    /// What sources call leaves that the output calls otherwise.
    pub renamed: Vec<Renamed>,
    /// File metadata for the output: what the sources agree on, and the Arrow hint. No key starts
    /// with `plait.`.
    pub metadata: Vec<KeyValue>,
    /// Keys of file metadata that were not simply carried.
    pub metadata_conflicts: Vec<MetadataConflict>,
}

#[cfg(test)]
mod tests;
