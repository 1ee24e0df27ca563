//! The same join where the two tables live in different places: four functions that exchange batches.
//!
//! ```text
//! left.send(changes)  ── subscriptions ──▶  right.receive ──┐
//! right.apply(changes) ─────────────────────────────────────┼─ responses ──▶  left.resolve ─▶ changes
//! ```
//!
//! Messages may wait and overtake each other. Source of the four instructions: Kafka's KIP-213. There a
//! hash of the row tells a current response from an old one, and an equal new row looks like the old one;
//! here every left change has a version, and every right change another.
//!
//! # Invariants
//! - Versions of one key grow. The right side keeps the newest subscription of a left key and foreign
//!   key, deleted ones, too, so an older one that comes late changes nothing.
//! - A response counts only if it answers the current version of its key, and no response of that
//!   version with a newer right row has counted. Once all messages have come, the last to count was
//!   made of the current left row and the newest right row: the table is the join.
//! - A left key whose row is in the result is always answered, if only by nothing.
//!
//! # Cost
//! As a step, twice: each side looks its own keys up. Deleted subscriptions are kept.
//!
//! # Not here
//! The synchronous step, which needs no messages (`step`, `changes`); sending messages.

mod left;
mod messages;
mod right;
#[cfg(test)]
mod tests;

pub use left::StagedLeft;
pub use messages::Instruction;
pub use right::StagedRight;
