//! Reads the key columns of one source and encodes them, batch by batch.
//!
//! ```text
//! column a ─ ids ────▶ ranks ───┐
//! column b ─ plain ──▶ numbers ─┼─ encode ─▶ Keys   (never across a row group of the source)
//! column c ─ typed values ──────┘
//! ```
//!
//! # Invariants
//! Keys are made from values in the shape of the output, so that sources of different width or
//! nullability compare. With no key columns every row has the empty key and nothing is read. With
//! ranks, keys are ranked ones: [`KeyLeaves::tell`] gives those that leave the merge.
//!
//! # Cost
//! One page of every key column, one batch of keys. Packed keys are made column by column.
//!
//! # Not here
//! Comparing keys (`plait_core::plan`); finding ranks (`ranks`).

mod page;
mod paged;
#[cfg(test)]
mod tests;
mod typed;

use std::ops::Range;
use std::sync::Arc;

use plait_core::key::{Column, KeyShape, KeyType, Keys, Packing, RankOf, Values, encode};
use plait_core::{Error, Kind, Result};

use self::page::{Cells, Takes};
use self::paged::{PageAccess, Paged};
use self::typed::TypedColumn;
use crate::block::kept::LookUpCache;
use crate::leaf::{LocationCache, OutputLeaf, ReadOn, will_read_rows};
use crate::ranks::RankBook;
use crate::runtime::{Budget, Charge, Context, MemoryStage};
use crate::schema::LeafAdapter;
use crate::source::Source;

/// The key columns of the output.
#[derive(Clone)]
pub(crate) struct KeyLeaves {
    /// Types and directions, as files and messages tell them.
    pub shape: KeyShape,
    /// The leaves, in key order.
    pub leaves: Vec<OutputLeaf>,
    /// What keys are made of instead, inside of a merge.
    pub ranks: Option<Arc<RankBook>>,
    /// What stays between look-ups of single keys, if anything does.
    pub kept: Option<Arc<LookUpCache>>,
}

impl KeyLeaves {
    /// Keeps what a plan may keep between look-ups.
    pub(crate) fn keep_planned(&mut self, budget: Budget) {
        let bytes = |stage| budget.bytes(stage);
        let dictionaries = bytes(MemoryStage::PlannedDictionaries);
        self.keep_between_look_ups(dictionaries, bytes(MemoryStage::PlannedPages));
    }

    /// Keeps what a look-up of the next key of a source, or of a few sources, needs again.
    pub(crate) fn keep_a_few(&mut self, budget: Budget) {
        let bytes = |stage| budget.bytes(stage) / FEW_SHARE;
        let dictionaries = bytes(MemoryStage::PlannedDictionaries);
        self.keep_between_look_ups(dictionaries, bytes(MemoryStage::PlannedPages));
    }

    /// Keeps at most so many bytes of dictionaries, or one, and of pages between look-ups.
    pub(crate) fn keep_between_look_ups(&mut self, dictionary_bytes: usize, page_bytes: usize) {
        self.kept = Some(Arc::new(LookUpCache::new(dictionary_bytes, page_bytes)));
    }

    /// Lets go of them.
    pub(crate) fn forget_look_ups(&mut self) {
        self.kept = None;
    }

    /// Says that the keys of `rows` of `source` are read soon.
    pub(crate) fn will_read(
        &self,
        source: &Source,
        rows: &Range<u64>,
        cache: &LocationCache,
        context: &Context,
    ) {
        for leaf in &self.leaves {
            will_read_rows(source, leaf, rows, ReadOn::Chunk, cache, context);
        }
    }

    /// The shape of the keys that are read.
    #[must_use]
    pub(crate) fn read_shape(&self) -> &KeyShape {
        self.ranks.as_ref().map_or(&self.shape, |book| book.ranks().shape())
    }

    /// The stored encoding of a key that was read.
    ///
    /// # Errors
    /// A key of another shape.
    pub(crate) fn stored(&self, key: &[u8]) -> Result<Vec<u8>> {
        match &self.ranks {
            None => Ok(key.to_vec()),
            Some(book) => book.ranks().translate(key),
        }
    }
}

/// What is kept of a few sources, as a part of what is kept of all.
const FEW_SHARE: usize = 16;

/// Rows of a column that does not come in pages that are passed over at once.
const SKIPPED_ROWS: usize = 4096;

/// Bytes of a value of a key, on average: batches of longer ones have fewer rows.
const KEY_BYTES: usize = 256;

/// Reads the keys of one source forward from some row.
pub(crate) struct KeyReader {
    source: Arc<Source>,
    keys: KeyLeaves,
    columns: Vec<KeyColumn>,
    row: u64,
    charge: Charge,
}

/// How one key column of a source is read.
enum KeyColumn {
    /// It is not there: every row is null.
    Absent,
    Paged(Box<Paged>),
    Typed(Box<TypedColumn>),
}

impl KeyReader {
    /// Opens the key columns of `source` at `row`.
    ///
    /// # Errors
    /// As [`leaf::open`](crate::leaf::open).
    pub(crate) fn open(
        source: &Arc<Source>,
        keys: &KeyLeaves,
        row: u64,
        cache: &Arc<LocationCache>,
        context: &Context,
    ) -> Result<Self> {
        let access = PageAccess { cache, kept: keys.kept.as_ref(), context };
        let mut columns = Vec::new();
        for (i, (leaf, column)) in keys.leaves.iter().zip(keys.shape.columns()).enumerate() {
            let takes = match &keys.ranks {
                Some(book) if matches!(book.ranks().of(i), RankOf::Values(_)) => {
                    Takes::Ranks(Arc::clone(book), i)
                }
                _ if matches!(column.ty, KeyType::Bytes { .. }) => Takes::Bytes,
                _ => Takes::Numbers(column.ty),
            };
            let is_absent = matches!(leaf.adapter(source.id)?, LeafAdapter::Missing { .. });
            columns.push(if is_absent {
                KeyColumn::Absent
            } else if let Some(paged) = Paged::open(source, leaf, column.ty, takes, row, access)? {
                KeyColumn::Paged(Box::new(paged))
            } else {
                KeyColumn::Typed(Box::new(TypedColumn::open(source, leaf, row, cache, context)?))
            });
        }
        Ok(Self {
            source: Arc::clone(source),
            keys: keys.clone(),
            columns,
            row,
            charge: context.charge(0),
        })
    }

    /// The row that is read next.
    #[must_use]
    pub(crate) fn row(&self) -> u64 {
        self.row
    }

    /// Keys of up to `rows_max` rows of one row group, and whether they start it; `None` at the
    /// end of the source.
    ///
    /// # Errors
    /// Whatever is wrong with the source, with file and column.
    pub(crate) fn next(&mut self, rows_max: usize) -> Result<Option<(Keys, bool)>> {
        if self.row >= self.source.rows() {
            return Ok(None);
        }
        let (row_group, in_group) = self.source.row_group_of(self.row);
        let left = self.source.row_group_rows(row_group) - in_group;
        let mut rows = rows_max.min(usize::try_from(left).unwrap_or(usize::MAX));
        let bytes_max = rows_max.saturating_mul(KEY_BYTES);
        for column in &mut self.columns {
            if let KeyColumn::Paged(paged) = column {
                rows = paged.rows_within(rows, bytes_max)?;
            }
        }
        let keys =
            self.read(rows).map_err(|e| e.with_path(self.source.path()).with_row(self.row))?;
        self.row += rows as u64;
        self.charge.set(keys.memory_size());
        Ok(Some((keys, in_group == 0)))
    }

    /// Goes on at `row`, which does not lie before the next one.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub(crate) fn skip_to(&mut self, row: u64) -> Result<()> {
        if row > self.source.rows() {
            return Err(Error::new(Kind::Internal, "a row lies behind the end of its source")
                .with_path(self.source.path())
                .with_row(row));
        }
        let rows = usize::try_from(row.saturating_sub(self.row)).unwrap_or(usize::MAX);
        if rows == 0 {
            return Ok(());
        }
        for column in &mut self.columns {
            column.skip(rows).map_err(|e| e.with_path(self.source.path()).with_row(self.row))?;
        }
        self.row = row;
        Ok(())
    }

    /// The key of the next row.
    fn key(&mut self) -> Result<Vec<u8>> {
        match self.next(1)? {
            Some((key, _)) => Ok(key.to_bytes(self.keys.read_shape(), 0)),
            None => Err(Error::new(Kind::Internal, "row lies behind the end of its source")
                .with_path(self.source.path())
                .with_row(self.row)),
        }
    }

    fn read(&mut self, rows: usize) -> Result<Keys> {
        let (keys, columns) = (&self.keys, &mut self.columns);
        let shape = keys.read_shape();
        if let Some(mut packing) = Packing::try_new(shape, rows) {
            let mut cells = Cells::default();
            for (i, column) in columns.iter_mut().enumerate() {
                cells.clear();
                column.fill(keys, i, rows, &mut cells)?;
                let slices = column.slices(&cells);
                packing.push(&column.view(keys, i, &cells, &slices))?;
            }
            return packing.finish();
        }
        let mut cells: Vec<Cells> = columns.iter().map(|_| Cells::default()).collect();
        for (i, (column, cells)) in columns.iter_mut().zip(&mut cells).enumerate() {
            column.fill(keys, i, rows, cells)?;
        }
        let both = || columns.iter().zip(&cells);
        let slices: Vec<Vec<&[u8]>> = both().map(|(column, cells)| column.slices(cells)).collect();
        let views = both().zip(&slices).enumerate();
        let views: Vec<Column<'_>> = views
            .map(|(i, ((column, cells), slices))| column.view(keys, i, cells, slices))
            .collect();
        encode(shape, rows, &views)
    }
}

impl KeyColumn {
    /// Passes over `rows` rows.
    fn skip(&mut self, rows: usize) -> Result<()> {
        match self {
            Self::Absent => Ok(()),
            Self::Paged(paged) => paged.skip(rows),
            Self::Typed(typed) => {
                let mut left = rows;
                while left > 0 {
                    let some = left.min(SKIPPED_ROWS);
                    typed.fill(some)?;
                    left -= some;
                }
                Ok(())
            }
        }
    }

    /// Reads `rows` rows of column `i`.
    fn fill(&mut self, keys: &KeyLeaves, i: usize, rows: usize, cells: &mut Cells) -> Result<()> {
        match self {
            Self::Absent => cells.add_nulls(rows),
            Self::Paged(paged) => paged.fill(rows, cells)?,
            Self::Typed(typed) => {
                typed.fill(rows)?;
                let column = keys.shape.columns().get(i);
                if column.is_some_and(|c| c.ty == KeyType::Null) && typed.has_values() {
                    return Err(Error::new(Kind::CorruptSource, "column of nulls holds values")
                        .with_column(column.map_or("", |c| c.name.as_str())));
                }
                return Ok(());
            }
        }
        match &keys.ranks {
            None => Ok(()),
            Some(book) => book.replace_numbers(i, rows, &mut cells.numbers, &mut cells.present),
        }
    }

    /// The byte strings that were read, if they are such.
    fn slices<'a>(&'a self, cells: &'a Cells) -> Vec<&'a [u8]> {
        match self {
            Self::Typed(typed) => typed.slices(),
            _ => cells.bytes.iter().collect(),
        }
    }

    /// The rows that were read.
    fn view<'a>(
        &'a self,
        keys: &KeyLeaves,
        i: usize,
        cells: &'a Cells,
        slices: &'a [&'a [u8]],
    ) -> Column<'a> {
        let present = (!cells.present.is_empty()).then_some(cells.present.as_slice());
        let nulls = Column { present: None, values: Values::None };
        let Some(column) = keys.read_shape().columns().get(i) else { return nulls };
        match (self, column.ty) {
            (_, KeyType::Null) => nulls,
            (Self::Typed(typed), _) => typed.column(slices),
            (_, KeyType::Rank { .. }) => {
                Column { present, values: Values::Numbers(&cells.numbers) }
            }
            (Self::Absent, _) => nulls,
            (_, KeyType::Bytes { .. }) => Column { present, values: Values::Bytes(slices) },
            _ => Column { present, values: Values::Numbers(&cells.numbers) },
        }
    }
}

/// The key of one row, as it is read; of a row that its source passes over, that of the row before.
///
/// # Errors
/// As [`KeyReader::next`]; a row behind the end is [`Kind::Internal`].
pub(crate) fn key_at(
    source: &Arc<Source>,
    keys: &KeyLeaves,
    row: u64,
    cache: &Arc<LocationCache>,
    context: &Context,
) -> Result<Vec<u8>> {
    let row = source.at_or_before(row);
    KeyReader::open(source, keys, row, cache, context)?.key()
}

/// As [`key_at`], of the first and the last row of `rows`: what both take is read once.
///
/// # Errors
/// As [`key_at`].
pub(crate) fn keys_at(
    source: &Arc<Source>,
    keys: &KeyLeaves,
    rows: Range<u64>,
    cache: &Arc<LocationCache>,
    context: &Context,
) -> Result<(Vec<u8>, Vec<u8>)> {
    let first = source.at_or_before(rows.start);
    let last = source.at_or_before(rows.end.saturating_sub(1));
    let mut reader = KeyReader::open(source, keys, first, cache, context)?;
    let key = reader.key()?;
    if last == first {
        return Ok((key.clone(), key));
    }
    reader.skip_to(last)?;
    Ok((key, reader.key()?))
}
