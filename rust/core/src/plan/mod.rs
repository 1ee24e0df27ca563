//! Which row comes next, from which source, and where an output ends.
//!
//! ```text
//! keys of k sources ──▶ merge (who is next? who stays?) ──▶ windows (where to stop?) ──▶ PackedRuns
//!        ▲                     │
//!        └──── Ask::Keys ──────┘   the shell reads them
//! ```
//!
//! # Invariants
//! Only [`Runs`](plait_base::Runs) and [`PackedRuns`](crate::packed_runs::PackedRuns) come out.
//! Neither keys nor runs of a whole source are held.
//!
//! # Not here
//! Reading keys and copying rows: whoever drives the merge.

mod batch;
mod coded;
mod drops;
mod duplicates;
mod head;
mod loser_tree;
mod merge;
mod node;
mod run_block;
mod window;

pub use drops::{Condition, DropOptions, Drops, MarkColumn};
pub(crate) use duplicates::DropRule;
pub use duplicates::{Clash, Dropped, Marks, OnDuplicate};
pub use loser_tree::{Disorder, OrderCheck, Stop};
pub use merge::Merge;
pub use window::{Ask, Window, WindowRule, Windows};
