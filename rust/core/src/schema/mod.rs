//! One schema for many: which type, which order, what is null, and how every source gets there.
//!
//! ```text
//! source ─ Summary ─┐                         ┌─ Adapter ─ batch ─▶ batch of the frozen schema
//! source ─ Summary ─┼─ merge ─ freeze ─ Frozen┼─ Adapter ─ batch ─▶ …
//! source ─ Summary ─┘   (supertype, policy)   └─ Adapter
//! ```
//!
//! # Invariants
//! Pure functions over Arrow types; the order in which sources are met never changes a type.
//!
//! # Not here
//! Parquet schemas, levels and casts of leaves (`plait_parquet::schema`), reading
//! (`plait_parquet::scan`).

mod adapter;
pub mod conflict;
mod convert;
mod follow;
mod freeze;
#[cfg(test)]
mod laws;
pub mod policy;
mod projection;
mod summary;
mod supertype;
mod unify;

pub use adapter::{Adapter, Value, constant};
pub use follow::{Change, Follow, Turn};
pub use freeze::{DEFAULT, FIELD_ID, Frozen, Request, Static, freeze, reconcile};
pub use policy::{Allow, Case, Policy};
pub use projection::Projection;
pub use summary::{Class, Summary};
pub use supertype::{supertype, supertype_of};
