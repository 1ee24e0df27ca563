//! One type for many: the closed table by which drifting types meet.
//!
//! ```text
//! a.parquet  int32 ──┐
//! b.parquet  uint32 ─┼── supertype ──> int64     or nothing, which is a conflict
//! c.parquet  int64 ──┘
//! ```
//!
//! # Invariants
//! Pure functions over Arrow types; the order in which sources are met never changes a type.
//!
//! # Not here
//! Parquet schemas, levels and casts (`plait_parquet::schema`).

mod supertype;

pub use supertype::{supertype, supertype_of};
