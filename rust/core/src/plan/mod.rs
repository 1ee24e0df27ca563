//! Which row comes next, from which source, and where an output ends.
//!
//! ```text
//! keys of k sources ──▶ merge (who is next?) ──▶ windows (where to stop?) ──▶ Runs
//!        ▲                     │
//!        └──── Ask::Keys ──────┘   the shell reads them
//! ```
//!
//! # Invariants
//! Only [`Runs`](crate::run::Runs) come out. Neither keys nor runs of a whole source are held.
//!
//! # Not here
//! Reading keys, copying rows: both `plait_parquet`.

mod batch;
mod coded;
mod loser_tree;
mod merge;
mod node;
mod window;

pub use loser_tree::{Disorder, Step};
pub use merge::Merge;
pub use window::{Ask, CutRule, Window, Windows};
