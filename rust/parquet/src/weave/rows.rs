//! The rows of one leaf of one window.
//!
//! # Not here
//! Where another leaf has other rows (`combine`).

use std::ops::Deref;
use std::sync::Arc;

use plait_core::Result;
use plait_core::packed_runs::PackedRuns;

use super::gather::NextMade;
use crate::block::Block;

/// The rows of one leaf: those of the window, or others where rows share a key.
pub(crate) struct LeafRows<'a> {
    steps: Steps<'a>,
    /// Rows that no source has: those of the source behind all others.
    made: Option<MadeRows<'a>>,
}

/// Blocks of rows of a leaf that no source has.
pub(crate) type MadeRows<'a> = Box<dyn Iterator<Item = Result<Block>> + 'a>;

enum Steps<'a> {
    Same(&'a PackedRuns),
    Other(Arc<PackedRuns>),
}

impl<'a> LeafRows<'a> {
    /// The rows of the window.
    #[must_use]
    pub(crate) fn same(steps: &'a PackedRuns) -> Self {
        Self { steps: Steps::Same(steps), made: None }
    }

    /// Rows of this leaf alone.
    #[must_use]
    pub(crate) fn other(steps: Arc<PackedRuns>, made: Option<MadeRows<'a>>) -> Self {
        Self { steps: Steps::Other(steps), made }
    }
}

impl<'a> LeafRows<'a> {
    /// The rows, and those of them that no source has.
    pub(super) fn parts(&mut self) -> (&PackedRuns, NextMade<'_>) {
        let Self { steps, made } = self;
        (steps, made.as_mut().map(|made| made as _))
    }
}

impl Deref for LeafRows<'_> {
    type Target = PackedRuns;

    fn deref(&self) -> &PackedRuns {
        &self.steps
    }
}

impl Deref for Steps<'_> {
    type Target = PackedRuns;

    fn deref(&self) -> &PackedRuns {
        match self {
            Self::Same(steps) => steps,
            Self::Other(steps) => steps,
        }
    }
}
