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
//! footers. Equal sources reconcile to themselves, byte for byte. Nothing depends on threads or
//! hashes.
//!
//! # Cost
//! A tree comparison per source; the rest per class of equal schemas.
//!
//! # Not here
//! What goes together, and in which type (`plait_core::schema`); applying adapters (the leaf
//! readers).

mod adapt;
mod cast;
mod class;
mod described;
mod hints;
mod key;
mod leaf;
mod metadata;
mod reconcile;
mod renamed;
mod shown;
mod summary;
mod tree;
mod without;

pub(crate) use adapt::{LeafAdapter, LevelMap};
pub(crate) use cast::{Cast, DecimalForm};
pub(crate) use key::{key_leaf, key_shown, key_type};
pub(crate) use metadata::{MetadataConflict, describes_one_file};
pub(crate) use plait_core::stream::Unite;
pub(crate) use reconcile::{Reconciled, reconcile};
pub(crate) use renamed::Renamed;
pub(crate) use shown::{data_type, logical_type, shown_bound};

#[cfg(test)]
mod tests;
