//! A merge that is pulled: sorted record-batch sources in, one sorted stream of batches out.
//!
//! ```text
//! reader 0 ─┐  one batch in flight each                       ┌─ gather column 0 ─┐
//! reader 1 ─┼─ adapt ─ keys by slice ─▶ plan::Merge ─▶ Runs ─▶┼─ gather column 1 ─┼─▶ batches
//! reader 2 ─┘                                                 └─ order the next … ┘
//! ```
//!
//! # Invariants
//! A reader is asked for a batch only when no further row can leave without it. Equal keys leave in
//! source order, then row order; a row that waits for others of its key leaves before any greater key. Whatever a task drops, it was not the last to hold it: sources'
//! buffers are let go on the caller's thread only.
//!
//! # Cost
//! Memory: one batch a source, the keys of three slices of each, with drops one batch more, for the row
//! that waits for others of its key, or all batches with rows of that key if these are combined, and one stretch of rows on its way out
//! (at most `merge::STRETCH_BYTES` unless one batch is more). Time: encode, ⌈log2 k⌉ comparisons and
//! one copy a row.
//!
//! # Not here
//! Threads ([`Workers`] is what a shell brings), files, Python.

mod collected;
mod combined;
mod cursor;
mod gather;
mod key;
mod merge;
mod order;
mod rules;
mod schema;
#[cfg(test)]
mod tests;
mod text;
mod wanted;

use arrow_array::RecordBatchReader;

pub(crate) use key::KeyColumns;
pub use key::{batch_keys, check_order, decode_keys, encode_keys, key_prefix, row_keys};
pub use merge::{MergeStream, Tally};
pub use schema::{MetadataConflicts, Unite, check_keys};

pub use crate::workers::{Alone, Workers};

use crate::key::SortOrder;
use crate::plan::DropOptions;

/// A reader of record batches that can be used from another thread.
pub type Reader = Box<dyn RecordBatchReader + Send>;

/// One source: its batches, and what it is called in messages.
pub struct Source {
    /// The batches, in order.
    pub reader: Reader,
    /// The file it is, if it is one; otherwise messages name its place in the list.
    pub path: Option<String>,
}

/// How to merge.
#[derive(Clone, Debug)]
pub struct MergeStreamOptions {
    /// The order of the sources and of the result.
    pub order: SortOrder,
    /// Rows of every batch but the last, at least 1.
    pub batch_rows: usize,
    /// Whether the order of the sources is not checked.
    pub assume_sorted: bool,
    /// How sources are brought to one schema.
    pub unite: Unite,
    /// Which rows are left out.
    pub drops: DropOptions,
}
