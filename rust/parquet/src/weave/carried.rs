//! Pages that are half used when a batch of windows ends wait here for the next.
//!
//! ```text
//! batch 1  ▓▓▓▓▓▓▓▓▓▓░░│            page 7 of source 0: some rows taken
//! batch 2             │▓▓░░░░       the same page, without unpacking it again
//! ```
//!
//! # Invariants
//! What waits is a copy of what the source holds: whether it waits or is read again changes no byte
//! of the output. It takes no more than a share of the memory limit, and is accounted for.
//!
//! # Not here
//! Whether a cursor is where the next batch begins (`gather`).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::cursors::SourceCursors;
use crate::runtime::{Context, MemoryStage};

/// Cursors between batches, by leaf.
#[derive(Default)]
pub(crate) struct Carried(Mutex<KeptCursors>);

#[derive(Default)]
struct KeptCursors {
    cursors: BTreeMap<usize, (SourceCursors, usize)>,
    bytes: usize,
}

impl Carried {
    /// The cursors of `leaf` as the last batch left them.
    pub(super) fn take(&self, leaf: usize) -> Option<SourceCursors> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (cursors, bytes) = waiting.cursors.remove(&leaf)?;
        waiting.bytes -= bytes;
        Some(cursors)
    }

    /// Keeps the cursors of `leaf` for the next batch, if they are not too large.
    pub(super) fn keep(&self, leaf: usize, mut cursors: SourceCursors, context: &Context) {
        cursors.rest();
        let most = context.budget().bytes(MemoryStage::CarriedCursors);
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.bytes + cursors.rest_size() > most {
            cursors.forget_dictionaries();
        }
        let bytes = cursors.rest_size();
        if waiting.bytes + bytes <= most {
            waiting.bytes += bytes;
            waiting.cursors.insert(leaf, (cursors, bytes));
        }
    }
}
