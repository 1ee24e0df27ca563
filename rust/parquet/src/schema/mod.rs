//! One output schema for many Parquet files, and how every file gets there.
//!
//! ```text
//! footers ─ classes of equal schemas ─ tree (leaf) ─┬─ output schema ─ hints, metadata
//!                                                   └─ adapt: per source, per leaf
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
//! The closed table of types (`plait_core::schema`); applying adapters (the leaf readers).

mod adapt;
mod hints;
mod key;
mod leaf;
mod metadata;
mod reconcile;
mod tree;

use std::sync::Arc;

use parquet::file::metadata::KeyValue;
use parquet::schema::types::{SchemaDescriptor, TypePtr};

pub use adapt::{Cast, DecimalForm, LeafAdapter, LevelMap};
pub use key::{key_leaf, key_type};
pub use metadata::{MetadataConflict, describes_one_file};
pub use reconcile::reconcile;

/// What to do when a column's types differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Widen {
    /// Take the least type that holds all values.
    #[default]
    Lossless,
    /// Report a conflict.
    Error,
}

/// What to do when a column is not in every source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// Its values are null.
    #[default]
    Null,
    /// Report a conflict.
    Error,
}

/// What to do when file metadata has different values for a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetadataConflicts {
    /// Keep the value of the first source that has the key.
    #[default]
    First,
    /// Keep none.
    Drop,
    /// Report a conflict.
    Error,
}

/// How schemas may be reconciled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// When types differ.
    pub widen: Widen,
    /// When a column is absent.
    pub missing: Missing,
    /// When metadata differs.
    pub metadata_conflicts: MetadataConflicts,
}

/// One schema for all sources.
#[derive(Clone, Debug)]
pub struct Reconciled {
    /// Root of the output schema.
    pub schema: TypePtr,
    /// The same, with its leaves.
    pub descr: Arc<SchemaDescriptor>,
    /// How output leaf `leaf` is made from source `source`: `leaves[source][leaf]`. Sources of equal
    /// schemas share their adapters.
    pub leaves: Vec<Arc<[LeafAdapter]>>,
    /// File metadata for the output: what the sources agree on, and the Arrow hint. No key starts
    /// with `plait.`.
    pub metadata: Vec<KeyValue>,
    /// Keys of file metadata that were not simply carried.
    pub metadata_conflicts: Vec<MetadataConflict>,
}

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;
