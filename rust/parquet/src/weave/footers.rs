//! What the footers of all sources say of each leaf, found once for all that is woven.
//!
//! # Cost
//! Each footer is decoded once; a byte a leaf and source.
//!
//! # Not here
//! How footers are held (`crate::footer`).

use std::sync::Arc;

use parquet::basic::Compression;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::properties::WriterPropertiesPtr;
use plait_core::Result;

use super::tiers::Tiers;
use crate::leaf::OutputLeaf;
use crate::schema::LeafAdapter;
use crate::source::Source;

/// Values of one batch should not exceed this many bytes: rows of large values go in fewer.
pub(super) const BATCH_BYTES_MAX: usize = 1 << 20;

/// Rows of a batch where they do not come in pages.
const BATCH_ROWS_MAX: usize = 1024;

/// What footers say of each leaf.
#[derive(Default)]
pub(crate) struct LeafFooters {
    /// Encoded bytes in all sources.
    pub(crate) encoded: Vec<u64>,
    /// Most bytes of a row, on the average of a row group.
    row_bytes_max: Vec<u64>,
    /// Whether pages of each source may be kept as they are.
    splices: Vec<Vec<bool>>,
}

impl LeafFooters {
    /// Of so many sources, none of which was looked at.
    #[must_use]
    pub(crate) fn new(sources: usize, leaves: usize) -> Self {
        Self {
            encoded: vec![0; leaves],
            row_bytes_max: vec![1; leaves],
            splices: vec![vec![false; sources]; leaves],
        }
    }

    /// Of `leaves` in `sources`, which are written with `properties`.
    ///
    /// # Errors
    /// As [`Source::footer`].
    pub(crate) fn of(
        sources: &[Arc<Source>],
        leaves: &[OutputLeaf],
        properties: &WriterPropertiesPtr,
        tiers: Tiers,
    ) -> Result<Self> {
        let mut found = Self::new(sources.len(), leaves.len());
        for (place, source) in sources.iter().enumerate() {
            let footer = source.footer()?;
            found.add(place, source, footer.row_groups(), leaves, properties, tiers)?;
        }
        Ok(found)
    }

    /// Looks at the source at `place`, which has these row groups.
    ///
    /// # Errors
    /// [`Kind::Internal`](plait_core::Kind::Internal) for a leaf that has no adapter.
    pub(crate) fn add(
        &mut self,
        place: usize,
        source: &Source,
        groups: &[RowGroupMetaData],
        leaves: &[OutputLeaf],
        properties: &WriterPropertiesPtr,
        tiers: Tiers,
    ) -> Result<()> {
        for (output, leaf) in leaves.iter().enumerate() {
            let adapter = leaf.adapter(source.id)?;
            let Some(index) = adapter.leaf() else { continue };
            let chunks =
                || groups.iter().filter_map(|group| Some((group, group.columns().get(index)?)));
            for (group, chunk) in chunks() {
                let bytes = u64::try_from(chunk.uncompressed_size()).unwrap_or(0);
                let rows = u64::try_from(group.num_rows()).unwrap_or(0).max(1);
                self.encoded[output] = self.encoded[output].saturating_add(bytes);
                self.row_bytes_max[output] = self.row_bytes_max[output].max(bytes / rows);
            }
            let codec = properties.compression(leaf.descr.path());
            self.splices[output][place] = tiers.page
                && may_splice(source, leaf, adapter)
                && chunks().all(|(_, chunk)| is_same(chunk.compression(), codec));
        }
        Ok(())
    }

    /// How many rows of a leaf go at once, from the average size of its values.
    pub(super) fn batch_rows(&self, leaf: usize) -> usize {
        let row_bytes = self.row_bytes_max.get(leaf).copied().unwrap_or(1).max(1);
        usize::try_from(BATCH_BYTES_MAX as u64 / row_bytes).unwrap_or(1).clamp(1, BATCH_ROWS_MAX)
    }

    /// Whether pages of each source may be kept as they are in a leaf.
    pub(super) fn splices(&self, leaf: usize) -> &[bool] {
        self.splices.get(leaf).map_or(&[], Vec::as_slice)
    }
}

/// Whether pages of a leaf of `source` have the shape of the output.
fn may_splice(source: &Source, output: &OutputLeaf, adapter: &LeafAdapter) -> bool {
    let LeafAdapter::Same { leaf, levels } = adapter else { return false };
    levels.is_identity() && !source.is_scratch() && *source.leaf(*leaf) == *output.descr
}

/// Whether it is the same codec, at any level.
fn is_same(a: Compression, b: Compression) -> bool {
    std::mem::discriminant(&a) == std::mem::discriminant(&b)
}
