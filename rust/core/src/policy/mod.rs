//! Which files to merge, of many: groups, by a policy.
//!
//! ```text
//! full         everything of a scope, unless one merge made all of it
//! overlap      ├──┤ ├─────┤ ├──┤     what shares a key with more than `max_depth` files
//!                 ├────┤
//! size_tiered  level 0 ▪▪▪▪▪▪▪▪▪▪ ──▶ level 1 ■      `merge_factor` files of a level make one of the
//!              level 1 ■■■■■■■■■■ ──▶ level 2 █      next, until they are mature
//! ```
//!
//! # Invariants
//! A file is in at most one group, and an unsorted file is in one under every policy. A group has
//! files of one scope, in the given order: two or more, or one unsorted file. Once every group is
//! merged, the policy chooses nothing. If rows with equal keys are dropped, no merge changes which
//! file is older (`neighbours`).
//!
//! # Cost
//! O(n log n) for n files.
//!
//! # Not here
//! What a scope is, and clocks: the shell passes the ages of files (`plait_parquet::compact`).

mod choose;
mod file;
mod neighbours;
mod size_tiered;

pub use choose::{Group, Policy, choose};
pub use file::File;
pub use neighbours::{Keep, is_oldest};
pub use size_tiered::SizeTiered;
