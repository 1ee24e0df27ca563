//! Join by reference: two tables that change, and the changes of their foreign-key join.
//!
//! ```text
//! left  changes ─ dedup ┐            ┌─ left   (FK, PK) ─▶ columns   sorted blocks, newest wins
//!                       ├─▶ step ──▶ ┼─ place  PK ─▶ FK
//! right changes ─ dedup ┘     │      └─ right  key ─▶ columns
//!                             ▼
//!   changes   affected keys only: changed left rows, and a prefix range for each changed right key
//! ```
//!
//! # Invariants
//! A step is a function of the state before it and of its deduplicated changes. Both stay readable
//! until the next step: its changes can be made again. At most one change leaves per primary key;
//! none whose row is what it was. Blocks are sorted by key, without duplicates.
//!
//! # Cost
//! Deduplicating sorts the changes. All else follows the keys that are touched, never the table.
//!
//! # Not here
//! Files, manifests (`plait_parquet::join`).

mod block;
mod changes;
mod compact;
mod deduplicate;
mod emit;
mod find;
mod joiner;
mod layout;
mod order;
mod picked;
mod range;
mod same;
mod spec;
mod staged;
mod step;
mod table;

pub use block::{Block, DELETED, KEY, SEQUENCE};
pub use changes::Changes;
pub use compact::{compact, due};
pub use find::{MemoryRun, SortedRun, View};
pub use joiner::{Call, Joiner};
pub use layout::{Layout, OPERATION, Side};
pub use spec::{How, NullKeys, Spec};
pub use staged::{
    Added, Clock, Keeper, Received, StagedLeft, StagedRight, StateTable, key_bytes, side_numbers,
};
pub use step::{Step, Tables, Trace, deduplicate, step};
pub use table::Table;
