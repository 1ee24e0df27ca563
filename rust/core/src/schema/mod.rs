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
//! How formats store it: Parquet's nodes, levels and casts of leaves (`plait_parquet::schema`), reading
//! (`plait_parquet::scan`).

mod adapter;
mod cast;
pub mod conflict;
mod constant;
mod convert;
mod convert_values;
mod fill;
mod fingerprint;
mod follow;
mod freeze;
mod frozen;
mod pick;
pub mod policy;
mod projection;
mod renamed;
mod same;
mod selection;
mod summary;
mod supertype;
#[cfg(test)]
mod tests;
mod unify;

pub use adapter::{Adapter, Value};
pub use constant::constant;
pub(crate) use fill::{fill, filled, has_nulls};
pub use follow::{Change, Follow};
pub use freeze::{NameClash, Request, Static, freeze, reconcile};
pub use frozen::{Decision, Frozen};
pub use policy::{Case, SchemaPolicy};
pub use projection::Renaming;
pub use same::{FIELD_ID, matched};
pub use summary::{Class, MEANING, SAYS, Summary};
pub use supertype::supertype_of;
