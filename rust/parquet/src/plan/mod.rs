//! A merge before it runs, as a value: sources, where outputs are cut, what each will cost.
//!
//! ```text
//! footers ─ schema ─ order ─ first and last keys ─▶ cuts ─▶ tasks      one task, one output
//!            plait.key_range, plait.key_index ──┘     │
//! a  ├────────────┤                                   │   task 0   rows of a, b below k
//! b       ├──────────┤                                │   task 1   rows of b, c from k on
//! c               ├───────┤                           k
//! ```
//!
//! # Invariants
//! Every row of every source is in exactly one task, and tasks are in key order. A task's output
//! depends on the task alone: executing it once or often, here or elsewhere, alone or after the
//! others, gives the same bytes under the same name. A plan survives JSON: `docs/formats/plan.md`.
//!
//! # Cost
//! Footers. Where keys of sources are not in their footers, a page of each key column at both ends,
//! and a few pages per cut.
//!
//! # Not here
//! Executing it (`merge`).

mod bounds;
mod cuts;
mod density;
mod draft;
mod entries;
mod estimate;
mod find;
mod footers;
mod key_samples;
mod learn;
mod learned;
mod make;
mod memory;
mod merged;
mod name;
mod nearby;
mod open;
mod pace;
mod packed;
mod partitions;
mod planned_source;
mod rule;
mod sample;
mod schema;
mod search;
mod source_keys;
mod spread;
mod stored;
mod tail;
mod tasks;
mod unordered;
mod value;
mod warnings;

pub(crate) use bounds::{KeyLook, KeyRange, key_ranges, key_values};
pub(crate) use draft::Draft;
pub(crate) use entries::{entry, merge_level, tells_keys};
pub(crate) use estimate::COPY_SHARE_MIN;
pub(crate) use find::find_rows;
pub use learn::learn_in;
pub(crate) use learn::{list_in, tables_in};
pub(crate) use learned::{Learned, Tried};
pub(crate) use make::{PlannedMerge, Trials};
pub(crate) use memory::{LEAVES_AT_ONCE, OpenSources, sources_at_once};
pub(crate) use merged::MergedFiles;
pub(crate) use open::open_planned;
pub(crate) use packed::PlanSources;
pub(crate) use planned_source::{KeysFrom, PlanSource};
pub(crate) use schema::CarriedSchema;
pub(crate) use source_keys::Reading;
pub use value::{MemoryNeed, Plan, PlanTask};
pub(crate) use value::{Slice, read_plan};
