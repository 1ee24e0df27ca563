//! What a plan needs of the footers of its sources, found while their keys are read: they
//! may be decoded again for each pass.
//!
//! # Not here
//! What it is for (`estimate`, `sample`, `memory`).

use std::sync::{Arc, Mutex, PoisonError};

use parquet::file::metadata::ParquetMetaData;
use plait_core::Result;

use super::estimate::Able;
use super::memory::OpenSources;
use super::sample::trial_bytes;
use crate::keys::KeyLeaves;
use crate::leaf::OutputLeaf;
use crate::options::MergeOptions;
use crate::source::Source;

/// What the footers of all sources say.
pub(super) struct PlanFooters {
    /// By the index of the source.
    pub(super) sources: Vec<FooterNumbers>,
    /// Bytes that an open source takes, about.
    pub(super) bytes_each: u64,
}

/// What one footer says.
#[derive(Clone, Copy)]
pub(super) struct FooterNumbers {
    /// How its rows can be copied.
    pub(super) able: Able,
    /// Bytes that a trial reads, about.
    pub(super) trial_bytes: u64,
    /// Stored bytes of the key columns.
    pub(super) key_bytes: u64,
}

/// Looks at footers, on several threads.
pub(super) struct FooterPass<'a> {
    leaves: &'a [OutputLeaf],
    keys: &'a KeyLeaves,
    options: &'a MergeOptions,
    open: Mutex<OpenSources<'a>>,
}

impl<'a> FooterPass<'a> {
    /// Of sources whose rows become `leaves`, in an order by `keys`.
    pub(super) fn new(
        leaves: &'a [OutputLeaf],
        keys: &'a KeyLeaves,
        options: &'a MergeOptions,
    ) -> Self {
        let open = Mutex::new(OpenSources::new(leaves, &keys.leaves));
        Self { leaves, keys, options, open }
    }

    /// What the footer of `source` says.
    ///
    /// # Errors
    /// [`Kind::Internal`](plait_core::Kind::Internal) for a leaf that has no adapter.
    pub(super) fn numbers(
        &self,
        source: &Arc<Source>,
        footer: &ParquetMetaData,
    ) -> Result<FooterNumbers> {
        let groups = footer.row_groups();
        let mut key_bytes = 0;
        for leaf in &self.keys.leaves {
            let index = leaf.adapter(source.id)?.leaf();
            let chunks = groups.iter().filter_map(|group| group.columns().get(index?));
            let bytes = chunks.map(|chunk| chunk.compressed_size().max(0).unsigned_abs());
            key_bytes += bytes.sum::<u64>();
        }
        let able = Able::of(source, groups, self.leaves, self.options);
        self.open.lock().unwrap_or_else(PoisonError::into_inner).add(source, footer)?;
        Ok(FooterNumbers { able, trial_bytes: trial_bytes(groups), key_bytes })
    }

    /// All of it, with the numbers of each source by its index.
    pub(super) fn end(self, sources: Vec<FooterNumbers>) -> PlanFooters {
        let open = self.open.into_inner().unwrap_or_else(PoisonError::into_inner);
        PlanFooters { sources, bytes_each: open.bytes_each() }
    }
}

impl PlanFooters {
    /// What the footer of a source says.
    pub(super) fn of_source(&self, source: &Source) -> Option<&FooterNumbers> {
        self.sources.get(source.id.index())
    }
}
