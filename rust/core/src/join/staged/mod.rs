//! The same join where the two tables live in different places: four functions that exchange batches.
//!
//! ```text
//! left.send(changes)  ── subscriptions ──▶  right.receive ──┐
//! right.apply(changes) ─────────────────────────────────────┼─ responses ──▶  left.resolve ─▶ changes
//! ```
//!
//! Messages may wait, overtake each other and come more than once. Source of the four instructions:
//! Kafka's KIP-213. There a hash of the row tells a current response from an old one, and an equal new row
//! looks like the old one; here every left change has a version, and every right change another. A side
//! that ends and begins again, with all its state, some or none, has another epoch. The protocol is
//! `docs/formats/join-messages.md`.
//!
//! # Invariants
//! - Versions of one key grow within an epoch of the left side. The right side keeps the newest
//!   subscription of a left key and foreign key, by epoch and version, deleted ones, too, so an older one
//!   that comes late changes nothing.
//! - A response counts only if it answers the current version of its key in the current epoch, and no
//!   response of that version with a newer right row, by epoch and version, has counted. Once all messages
//!   have come, the last to count was made of the current left row and the newest right row: the table is
//!   the join.
//! - A left key whose row is in the result is always answered, if only by nothing.
//! - A subscription is for a left key and foreign key, whatever else the row has: a change of the rest sends
//!   nothing, and the answer that is known, or the one that comes, goes with the row as it is then.
//! - Whoever forgot something has a new epoch, and the first message of a new epoch makes the left side
//!   subscribe again to all it has: what was forgotten, or sent to a side that forgot it, is sent again.
//!
//! # Cost
//! As a step, twice: each side looks its own keys up. Deleted subscriptions are kept. A new epoch costs one
//! subscription and one response for every left row.
//!
//! # Not here
//! The synchronous step, which needs no messages (`step`, `changes`); sending messages; files
//! (`plait_parquet::join`).

mod keeper;
mod left;
mod messages;
mod resolve;
mod right;
mod sides;
#[cfg(test)]
mod tests;

pub use keeper::{Added, Clock, Keeper, Received, StateTable};
pub use left::StagedLeft;
pub use right::StagedRight;
pub use sides::{key_bytes, side_numbers};
