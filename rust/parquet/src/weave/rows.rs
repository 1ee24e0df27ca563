//! The rows of one leaf of one window.
//!
//! # Not here
//! Where another leaf has other rows (`combine`).

use std::ops::Deref;
use std::sync::Arc;

use plait_core::SourceId;
use plait_core::packed_runs::PackedRuns;

use crate::block::Block;

/// The rows of one leaf: those of the window, or others where rows share a key.
pub(crate) struct LeafRows<'a> {
    steps: Steps<'a>,
    /// Rows that no source has.
    pub(super) made: Option<MadeRows>,
}

enum Steps<'a> {
    Same(&'a PackedRuns),
    Other(Arc<PackedRuns>),
}

/// Values of a leaf that no source has: rows of a source of their own, as a page holds them.
pub(crate) struct MadeRows {
    /// Behind all sources.
    pub(crate) source: SourceId,
    /// The values, all of them rows of one window.
    pub(crate) block: Block,
}

impl<'a> LeafRows<'a> {
    /// The rows of the window.
    #[must_use]
    pub(crate) fn same(steps: &'a PackedRuns) -> Self {
        Self { steps: Steps::Same(steps), made: None }
    }

    /// Rows of this leaf alone.
    #[must_use]
    pub(crate) fn other(steps: Arc<PackedRuns>, made: Option<MadeRows>) -> Self {
        Self { steps: Steps::Other(steps), made }
    }
}

impl Deref for LeafRows<'_> {
    type Target = PackedRuns;

    fn deref(&self) -> &PackedRuns {
        match &self.steps {
            Steps::Same(steps) => steps,
            Steps::Other(steps) => steps,
        }
    }
}
