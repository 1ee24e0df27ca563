//! Rows of files that a table says are deleted: by deletion vectors of Delta and of Iceberg, and by
//! position and equality delete files of Iceberg.
//!
//! ```text
//! vector     {2, 5}          by its bytes ────────┐
//! positions  b.parquet │ 6   by file and number ──┼─▶ deleted {2, 5, 6} ─▶ live 0..2 3..5 7..8
//! equality   k = 7           by values ───────────┘
//! ```
//!
//! # Invariants
//! What deletes rows is used as a whole or is an error. A file that deletes rows of many files is read
//! once for all files of a call.
//!
//! # Cost
//! A bitmap of each file while it is made, then two numbers for each range of live rows. Deletes by
//! value read the columns that they name.
//!
//! # Not here
//! Which file has deleted rows (the log of the table).

mod equality;
mod live;
mod positions;
mod value;
mod vector;

pub(crate) use live::LiveRows;
pub(crate) use value::{DeletionVector, DeletionVectors};
pub(crate) use vector::vector_bytes;
