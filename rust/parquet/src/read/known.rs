//! One opened file of a read.
//!
//! # Cost
//! That of its source: a decoded footer stays where it fits, else it is decoded for every window.
//!
//! # Not here
//! How a footer is held (`crate::footer`).

use std::sync::Arc;

use plait_core::{Result, SourceId};

use crate::source::Source;

/// An opened file.
pub(super) struct KnownFile {
    pub(super) source: Arc<Source>,
    /// Its schema among those of the files.
    pub(super) class: usize,
    /// Its place among the files.
    pub(super) id: SourceId,
}

impl KnownFile {
    pub(super) fn path(&self) -> &str {
        self.source.path()
    }

    /// Refuses a local file that is another one by now: the footer may be that of an earlier read.
    /// Objects say with every answer what they are.
    ///
    /// # Errors
    /// As [`RangeReader::check_unchanged`](crate::store::RangeReader::check_unchanged).
    pub(super) fn check_unchanged(&self) -> Result<()> {
        let store = &self.source.store;
        if store.is_local() { store.check_unchanged() } else { Ok(()) }
    }
}
