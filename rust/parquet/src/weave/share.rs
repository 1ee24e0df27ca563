//! What other threads do for the one that weaves a leaf.
//!
//! # Not here
//! Which thread does what, and when (`queue`).

use std::sync::Arc;

/// A page that anybody may pack or unpack. It never waits for another.
pub(crate) type PageTask = Arc<dyn Fn() + Send + Sync>;

/// Threads that help with pages of one leaf.
pub(crate) trait SharedWork: Sync {
    /// How many threads are idle at this moment.
    fn idle(&self) -> usize;
    /// Whether there is memory for so many bytes that can wait.
    fn has_room(&self, bytes: u64) -> bool;
    /// How many pages may wait.
    fn pages(&self) -> usize;
    /// Offers `task` to threads that are or become idle. It may be called never, once or twice.
    fn offer(&self, task: PageTask);
}
