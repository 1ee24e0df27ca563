//! What sorting works on: the call, the files and their keys, and some of their rows.
//!
//! # Not here
//! Which rows are sorted (`find`), and how (`write`).

use std::ops::Range;
use std::sync::Arc;

use plait_core::Result;

use crate::keys::KeyLeaves;
use crate::leaf::{LocationCache, OutputLeaf, ReadOn, output_leaves, will_read_rows};
use crate::options::MergeOptions;
use crate::order::key_leaves;
use crate::plan::MergedFiles;
use crate::ranks::{KeyForm, RankBook};
use crate::runtime::{Context, MemoryStage};

/// Hints of more ranges take longer than waiting for some.
const RANGES_HINTED_MAX: usize = 1024;

/// What sorting needs of the call.
#[derive(Clone, Copy)]
pub(crate) struct SortCall<'a> {
    pub(crate) merged: &'a MergedFiles,
    pub(crate) options: &'a MergeOptions,
    pub(crate) context: &'a Context,
}

/// Rows to sort that follow each other in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LooseRange {
    pub(super) file: u32,
    /// The run that they become rows of, by its place among all.
    pub(super) run: u32,
    pub(super) rows: Range<u64>,
}

impl LooseRange {
    pub(super) fn len(&self) -> u64 {
        self.rows.end - self.rows.start
    }
}

/// The files as they are sorted: their leaves, and their keys in the shortest form.
pub(super) struct SortedFiles {
    pub(super) leaves: Vec<OutputLeaf>,
    pub(super) keys: KeyLeaves,
    pub(super) cache: Arc<LocationCache>,
}

impl SortedFiles {
    pub(super) fn open(call: SortCall<'_>, form: KeyForm) -> Result<Self> {
        let SortCall { merged, context, .. } = call;
        let leaves = output_leaves(&merged.reconciled);
        let mut keys = key_leaves(&merged.order, &merged.reconciled, &leaves)?;
        let cache = Arc::new(LocationCache::new(
            context,
            context.budget().bytes(MemoryStage::PageLocations),
        ));
        if form == KeyForm::Ranked {
            let rows: Vec<_> = merged.files.iter().map(|file| 0..file.rows()).collect();
            keys.ranks = RankBook::find_for(
                &keys.shape,
                &keys.leaves,
                &merged.files,
                &rows,
                &cache,
                context,
            )?
            .map(Arc::new);
        }
        Ok(Self { leaves, keys, cache })
    }

    /// Says that the keys of `ranges` are read soon.
    pub(super) fn will_read_keys(&self, call: SortCall<'_>, ranges: &[LooseRange]) {
        self.will_read(call, ranges, &self.keys.leaves, ReadOn::Chunk);
    }

    /// Says that all leaves of `ranges` are read soon.
    pub(super) fn will_read_rows(&self, call: SortCall<'_>, ranges: &[LooseRange]) {
        self.will_read(call, ranges, &self.leaves, ReadOn::RowGroup);
    }

    fn will_read(
        &self,
        call: SortCall<'_>,
        ranges: &[LooseRange],
        leaves: &[OutputLeaf],
        read_on: ReadOn,
    ) {
        if ranges.len() > RANGES_HINTED_MAX {
            return;
        }
        for leaf in leaves {
            for LooseRange { file, rows, .. } in ranges {
                if let Some(source) = call.merged.files.get(*file as usize) {
                    will_read_rows(source, leaf, rows, read_on, &self.cache, call.context);
                }
            }
        }
    }

    /// Whether a key was met that footers do not tell of: all is read again without ranks then.
    pub(super) fn is_broken(&self) -> bool {
        self.keys.ranks.as_ref().is_some_and(|book| book.is_broken())
    }
}
