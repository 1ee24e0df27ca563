//! How many rows make a row group of the size that was asked for.
//!
//! ```text
//! footers of the sources ─▶ bytes per row ◀─ what was written so far
//! ```
//!
//! # Invariants
//! What is known depends on the batches written so far, in their order, never on threads: a batch is
//! learned about after the one behind it was put in order.
//!
//! # Not here
//! Where exactly rows end (`plait_core::plan`).

use crate::source::Source;
use std::sync::Arc;

/// What a batch added to the output.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written {
    pub(super) rows: u64,
    /// Bytes before compression.
    pub(super) encoded: u64,
}

/// Bytes per row, from the footers first and from what was written then.
pub(super) struct Sizes {
    pub(super) encoded_per_row: f64,
    all: Written,
}

impl Sizes {
    pub(super) fn new(sources: &[Arc<Source>]) -> Self {
        let encoded: f64 = sources.iter().map(|source| source.encoded_bytes as f64).sum();
        let rows = sources.iter().map(|source| source.rows()).sum::<u64>().max(1) as f64;
        Self { encoded_per_row: (encoded / rows).max(0.01), all: Written::default() }
    }

    /// A batch was written.
    pub(super) fn learn(&mut self, written: Written) {
        self.all.rows += written.rows;
        self.all.encoded += written.encoded;
        if self.all.rows > 0 {
            self.encoded_per_row = (self.all.encoded as f64 / self.all.rows as f64).max(0.01);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_counts_instead_of_what_footers_say() {
        let mut sizes = Sizes::new(&[]);
        sizes.learn(Written { rows: 100, encoded: 2000 });
        assert!((sizes.encoded_per_row - 20.0).abs() < 1e-9);
        sizes.learn(Written { rows: 300, encoded: 2000 });
        assert!((sizes.encoded_per_row - 10.0).abs() < 1e-9);
    }
}
