//! The batch of keys that a source has in the loser tree.
//!
//! # Not here
//! Which key is next (`loser_tree`).

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadState {
    /// Nothing supplied, or all supplied keys taken.
    Empty,
    /// Known by its first key only.
    Announced,
    Open,
    Ended,
}

/// The keys of one source, and how far it has come.
pub(super) struct Head<B> {
    /// Empty before the first batch and after the last.
    pub(super) keys: B,
    pub(super) next: usize,
    /// The key that beat the losers on this source's path, when the batch is used up.
    pub(super) base: usize,
    /// Rows of the batch before this one may leave without a look; at most its length.
    pub(super) end: usize,
    /// Row of the batch's first key, counted over the source.
    pub(super) row: u64,
    pub(super) state: HeadState,
    pub(super) is_start: bool,
}
