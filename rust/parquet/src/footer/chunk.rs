//! The entry of a column chunk, as long as it is needed.
//!
//! # Not here
//! How it is found (`footer`).

use std::ops::Deref;
use std::sync::Arc;

use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};

/// The entry of a column chunk that is there.
pub(crate) struct ChunkEntry {
    footer: Arc<ParquetMetaData>,
    row_group: usize,
    leaf: usize,
}

impl ChunkEntry {
    /// The entry in `footer`, if it is there.
    pub(super) fn of(footer: Arc<ParquetMetaData>, row_group: usize, leaf: usize) -> Option<Self> {
        footer.row_groups().get(row_group)?.columns().get(leaf)?;
        Some(Self { footer, row_group, leaf })
    }
}

impl Deref for ChunkEntry {
    type Target = ColumnChunkMetaData;

    fn deref(&self) -> &ColumnChunkMetaData {
        self.footer.row_group(self.row_group).column(self.leaf)
    }
}
