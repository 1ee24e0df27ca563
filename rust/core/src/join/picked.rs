//! Rows that were found, before they are copied.
//!
//! ```text
//! sources   block 0, block 1        at   (2, 7) (1, 0) none (2, 8)     source + 1, row
//! ```
//!
//! # Invariants
//! Every place leads to a row of its source. 0 is no source.
//!
//! # Not here
//! Finding them (`find`, `range`).

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, UInt32Array, new_null_array};
use arrow_schema::DataType;

use super::block::Block;
use plait_base::{Error, Kind, Result};
use plait_interleave::Interleave;

/// Rows of blocks, or none.
#[derive(Clone, Debug, Default)]
pub(super) struct Picked {
    sources: Vec<Arc<Block>>,
    at: Vec<(u32, u32)>,
}

impl Picked {
    /// `len` times no row.
    pub(super) fn absent(len: usize) -> Self {
        Self { sources: Vec::new(), at: vec![(0, 0); len] }
    }

    pub(super) fn len(&self) -> usize {
        self.at.len()
    }

    /// A block that rows are pushed of, as its number.
    pub(super) fn source(&mut self, block: &Arc<Block>) -> Result<u32> {
        self.sources.push(Arc::clone(block));
        u32::try_from(self.sources.len()).map_err(too_many)
    }

    pub(super) fn sources(&self) -> usize {
        self.sources.len()
    }

    /// Appends row `row` of the block with this number.
    pub(super) fn push(&mut self, source: u32, row: u32) {
        self.at.push((source, row));
    }

    /// Puts rows of `block` to places; what is not held otherwise is copied, and the block let go.
    pub(super) fn add(
        &mut self,
        block: Arc<Block>,
        hits: &[(usize, usize)],
        is_held: bool,
    ) -> Result<()> {
        if hits.is_empty() {
            return Ok(());
        }
        let block = if is_held { block } else { Arc::new(copied(&block, hits)?) };
        let source = self.source(&block)?;
        for (n, (place, row)) in hits.iter().enumerate() {
            let row = if is_held { *row } else { n };
            self.at[*place] = (source, u32::try_from(row).map_err(too_many)?);
        }
        Ok(())
    }

    /// The same rows at `places` among `len`, in order.
    pub(super) fn spread(self, places: impl Iterator<Item = usize>, len: usize) -> Self {
        let mut at = vec![(0, 0); len];
        for (place, found) in places.zip(&self.at) {
            at[place] = *found;
        }
        Self { sources: self.sources, at }
    }

    /// The rows at `places`; `None` is no row.
    pub(super) fn at(&self, places: impl Iterator<Item = Option<usize>>) -> Self {
        let at = places.map(|place| place.map_or((0, 0), |place| self.at[place])).collect();
        Self { sources: self.sources.clone(), at }
    }

    fn get(&self, i: usize) -> Option<(&Block, usize)> {
        let (source, row) = self.at[i];
        let source = (source as usize).checked_sub(1)?;
        Some((&self.sources[source], row as usize))
    }

    /// Whether there is a row that does not delete.
    pub(super) fn is_live(&self, i: usize) -> bool {
        self.get(i).is_some_and(|(block, row)| !block.is_deleted(row))
    }

    /// Whether there is a row, even one that deletes.
    pub(super) fn is_found(&self, i: usize) -> bool {
        self.at[i].0 > 0
    }

    /// The key of a row.
    pub(super) fn key(&self, i: usize) -> Option<&[u8]> {
        self.get(i).map(|(block, row)| block.key(row))
    }

    /// Forgets rows that delete.
    pub(super) fn live(mut self) -> Self {
        if !self.sources.iter().any(|source| source.has_deleted()) {
            return self;
        }
        for i in 0..self.at.len() {
            if !self.is_live(i) {
                self.at[i] = (0, 0);
            }
        }
        self
    }

    /// The binary column at `place`, for [`Bytes::get`].
    pub(super) fn bytes(&self, place: usize) -> Result<Bytes<'_>> {
        let column = |block: &'_ Arc<Block>| -> Result<BinaryArray> {
            let none = || Error::new(Kind::CorruptSource, "foreign keys of a join are not binary");
            Ok(block.column(place)?.as_binary_opt::<i32>().ok_or_else(none)?.clone())
        };
        let columns = self.sources.iter().map(column).collect::<Result<_>>()?;
        Ok(Bytes { picked: self, columns })
    }

    /// The column at `place`, of type `ty`; null where there is no row.
    pub(super) fn column(&self, place: usize, ty: &DataType) -> Result<ArrayRef> {
        self.rows().column(place, ty)
    }

    /// The rows, ready to copy columns of.
    pub(super) fn rows(&self) -> Rows<'_> {
        let absent = self.at.iter().filter(|(source, _)| *source == 0).count();
        let skipped = u32::from(absent == 0);
        let arrays = self.at.iter().map(|(source, _)| source - skipped);
        let arrays = Arc::new(UInt32Array::from_iter_values(arrays));
        let rows = Arc::new(UInt32Array::from_iter_values(self.at.iter().map(|(_, row)| *row)));
        Rows { picked: self, absent, arrays, rows }
    }

    /// Appends rows of the block with this number.
    pub(super) fn push_all(&mut self, source: u32, rows: Range<u32>) {
        self.at.extend(rows.map(|row| (source, row)));
    }

    /// The rows of `parts`, one after the other.
    pub(super) fn joined(parts: Vec<Self>) -> Result<Self> {
        let mut all = Self::default();
        for part in parts {
            let before = u32::try_from(all.sources.len()).map_err(too_many)?;
            all.sources.extend(part.sources);
            let shifted = |(source, row)| match source {
                0 => (0, 0),
                source => (source + before, row),
            };
            match before {
                0 => all.at.extend(part.at),
                _ => all.at.extend(part.at.into_iter().map(shifted)),
            }
        }
        Ok(all)
    }
}

/// Picked rows, ready to copy columns of.
pub(super) struct Rows<'a> {
    picked: &'a Picked,
    /// How many places have no row; if there are any, array 0 is the one row of them.
    absent: usize,
    arrays: ArrayRef,
    rows: ArrayRef,
}

impl Rows<'_> {
    /// The column at `place`, of type `ty`; null where there is no row.
    pub(super) fn column(&self, place: usize, ty: &DataType) -> Result<ArrayRef> {
        let len = self.picked.len();
        if self.absent == len {
            return Ok(new_null_array(ty, len));
        }
        let none = (self.absent > 0).then(|| Ok(new_null_array(ty, 1)));
        let columns = self.picked.sources.iter().map(|source| source.column(place).map(Arc::clone));
        let values = none.into_iter().chain(columns).collect::<Result<Vec<_>>>()?;
        Interleave::try_new(values, Arc::clone(&self.arrays), Arc::clone(&self.rows))?.to_arrow()
    }
}

/// A binary column of picked rows.
pub(super) struct Bytes<'a> {
    picked: &'a Picked,
    columns: Vec<BinaryArray>,
}

impl Bytes<'_> {
    /// The value of row `i`, if there is a row and it has one.
    pub(super) fn get(&self, i: usize) -> Option<&[u8]> {
        let (source, row) = self.picked.at[i];
        let column = &self.columns[(source as usize).checked_sub(1)?];
        let row = row as usize;
        column.is_valid(row).then(|| column.value(row))
    }
}

/// The rows of `hits` alone.
fn copied(block: &Block, hits: &[(usize, usize)]) -> Result<Block> {
    let rows = hits.iter().map(|(_, row)| u32::try_from(*row).map_err(too_many));
    let rows = UInt32Array::from(rows.collect::<Result<Vec<u32>>>()?);
    let batch = arrow_select::take::take_record_batch(block.batch(), &rows);
    // Probes may be equal, so keys are not looked at again.
    Block::repeated(batch.map_err(Error::from_arrow)?)
}

pub(super) fn too_many(_: std::num::TryFromIntError) -> Error {
    Error::new(Kind::Unsupported, "more rows of a join than 32 bits count")
}
