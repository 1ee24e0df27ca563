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

mod aggregate;
mod batch;
mod coded;
mod collect;
mod combine;
mod drops;
mod duplicates;
mod fold;
mod groups;
mod head;
mod loser_tree;
mod merge;
mod named;
mod node;
mod run_block;
mod window;

pub use aggregate::{Aggregate, NewValue};
pub use collect::distinct_elements;
pub use combine::{ColumnValues, CombineOptions, ValueRule, VersionBy};
pub use drops::{Condition, DropOptions, Drops, MarkColumn};
pub use duplicates::{Clash, DropRule, Dropped, Marks, OnDuplicate};
pub use fold::{Fold, Folded, Number, NumberType, does_not_fit};
pub(crate) use fold::{number_array, number_at};
pub use groups::{KeyGroup, KeyGroups, SourceRow};
pub use loser_tree::{Disorder, OrderCheck, Stop};
pub use merge::Merge;
pub use window::{Ask, Window, WindowRule, Windows};
