//! How many rows make a row group or an output of the size that was asked for.
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
    /// Bytes of the file.
    pub(super) stored: u64,
}

/// Bytes per row, from the footers first and from what was written then.
pub(super) struct Sizes {
    pub(super) encoded_per_row: f64,
    pub(super) stored_per_row: f64,
    all: Written,
    /// Number of the output that rows are put in order for.
    output: u64,
    /// What is known of it.
    written: Written,
    /// Rows put in order for it.
    ordered_rows: u64,
}

impl Sizes {
    pub(super) fn new(sources: &[Arc<Source>]) -> Self {
        let (mut encoded, mut stored) = (0.0, 0.0);
        for group in sources.iter().flat_map(|s| s.meta.row_groups()) {
            encoded += group.total_byte_size().max(0) as f64;
            stored += group.compressed_size().max(0) as f64;
        }
        let rows = sources.iter().map(|source| source.rows()).sum::<u64>().max(1) as f64;
        Self {
            encoded_per_row: (encoded / rows).max(0.01),
            stored_per_row: (stored / rows).max(0.01),
            all: Written::default(),
            output: 0,
            written: Written::default(),
            ordered_rows: 0,
        }
    }

    /// Number of the output that rows are put in order for.
    pub(super) fn output(&self) -> u64 {
        self.output
    }

    /// Rows were put in order for the output.
    pub(super) fn order(&mut self, rows: u64) {
        self.ordered_rows += rows;
    }

    /// The output has all its rows.
    pub(super) fn end_output(&mut self) {
        self.output += 1;
        self.written = Written::default();
        self.ordered_rows = 0;
    }

    /// A batch was written to `output`.
    pub(super) fn learn(&mut self, output: u64, written: Written) {
        let of_this = (output == self.output).then_some(&mut self.written);
        for sum in of_this.into_iter().chain([&mut self.all]) {
            sum.rows += written.rows;
            sum.encoded += written.encoded;
            sum.stored += written.stored;
        }
        if self.all.rows > 0 {
            let rows = self.all.rows as f64;
            self.encoded_per_row = (self.all.encoded as f64 / rows).max(0.01);
            self.stored_per_row = (self.all.stored as f64 / rows).max(0.01);
        }
    }

    /// About the bytes of the output, with the rows that are not written yet.
    pub(super) fn output_bytes(&self) -> u64 {
        let ahead = self.ordered_rows.saturating_sub(self.written.rows);
        self.written.stored + (ahead as f64 * self.stored_per_row) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_not_written_count_with_what_the_others_took() {
        let mut sizes = Sizes::new(&[]);
        sizes.order(300);
        sizes.learn(0, Written { rows: 100, encoded: 2000, stored: 1000 });
        assert_eq!(sizes.output_bytes(), 1000 + 200 * 10);
        sizes.end_output();
        assert_eq!((sizes.output(), sizes.output_bytes()), (1, 0));
        sizes.learn(0, Written { rows: 200, encoded: 4000, stored: 5000 });
        assert_eq!(sizes.output_bytes(), 0, "that was of the output before");
        sizes.order(10);
        assert_eq!(sizes.output_bytes(), 200, "6,000 bytes for 300 rows");
    }
}
