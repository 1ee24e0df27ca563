//! Which files of a folder to merge, and the one step that makes a merge count.
//!
//! ```text
//! survey   list ─▶ scopes: folder, schema, order ─▶ policy ─▶ groups
//! lease    manifest with the right to make files count ─▶ outputs are written
//! commit   manifest n + 1, put where there is none ─▶ the group's files are replaced
//! expire   what was replaced long ago is removed, then forgotten, and what was made of it is shown
//! ```
//!
//! # Invariants
//! A change counts in one step, or not at all. Only `expire` removes anything.
//!
//! # Not here
//! The policies (`plait_core::policy`); merging a sorted group (`plan`, `merge`); reading manifests
//! (`store::table`).

mod choose;
mod commit;
mod expire;
mod lease;
mod look;
mod moves;
mod options;
mod put;
mod replace;
mod retention;
mod schemas;
mod signs;
mod sort_merge;
mod survey;
mod swap;
#[cfg(test)]
mod tests;

pub(crate) use choose::choose_in;
pub(crate) use commit::commit_in;
pub(crate) use expire::expire_in;
pub use lease::take_in;
pub(crate) use look::look_in;
pub(crate) use sort_merge::sort_merge_in;
pub(crate) use survey::survey_in;
