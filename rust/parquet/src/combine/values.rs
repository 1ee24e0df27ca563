//! The values of one column in the rows that share a key, source by source.
//!
//! ```text
//! null?     statistics of the chunk ─ all, none ─▶ known        some ─▶ levels of the page
//! number    value of the page ─▶ integer, float, digits of a decimal
//! ```
//!
//! # Invariants
//! A page is read once, unless rows are asked for in another order than they lie.
//!
//! # Cost
//! One page of each source that is asked, and one more where values are compared.
//!
//! # Not here
//! Which values are asked for (`plait_core::plan`).

use std::collections::BTreeMap;
use std::sync::Arc;

use parquet::file::statistics::Statistics;
use plait_core::key::render;
use plait_core::plan::{ColumnValues, KeyGroup, Number, SourceRow};
use plait_core::{Error, Kind, Result, SourceId};

use super::column::CombinedColumn;
use super::numbers::number_of;
use super::slots::Slots;
use crate::block::{Block, BlockReader, Layout, Values};
use crate::keys::{KeyLeaves, KeyReader, key_at};
use crate::leaf::OutputLeaf;
use crate::schema::LeafAdapter;
use crate::source::Source;
use crate::weave::WeaveContext;

/// Rows that are read at once where they do not come in pages.
const ROWS_AT_ONCE: usize = 1024;

/// Which values of a column chunk are null.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NullsIn {
    /// None.
    None,
    /// All of them.
    All,
    /// Some, perhaps.
    Some,
}

/// The values of one column.
pub(super) struct SourceValues<'a> {
    weaving: &'a WeaveContext,
    column: &'a CombinedColumn,
    /// Its first leaf.
    leaf: &'a OutputLeaf,
    nulls: BTreeMap<(SourceId, usize), NullsIn>,
    open: BTreeMap<SourceId, AskedSource>,
}

/// A source that was asked.
#[derive(Default)]
struct AskedSource {
    reader: Option<BlockReader>,
    /// The row that the reader gives next.
    next: u64,
    /// The block that is open, and its first row.
    block: Option<(u64, Block)>,
    place: BlockPlace,
    keys: Option<KeyReader>,
}

/// A row of a block, and its first value: how many are before it, and where it begins.
#[derive(Clone, Copy, Default)]
struct BlockPlace {
    row: usize,
    value: usize,
    byte: usize,
}

impl<'a> SourceValues<'a> {
    pub(super) fn new(
        weaving: &'a WeaveContext,
        column: &'a CombinedColumn,
        leaf: &'a OutputLeaf,
    ) -> Self {
        Self { weaving, column, leaf, nulls: BTreeMap::new(), open: BTreeMap::new() }
    }

    fn source(&self, id: SourceId) -> Result<&'a Arc<Source>> {
        let source = self.weaving.sources.get(id.index());
        source.ok_or_else(|| Error::new(Kind::Internal, "a group names a source that is not there"))
    }

    /// The row group of its source that a row is in.
    pub(super) fn row_group_of(&self, row: SourceRow) -> usize {
        self.source(row.source()).map_or(0, |source| source.row_group_of(row.row()).0)
    }

    /// The key of the rows of a group, in words.
    pub(super) fn key_text(&self, group: KeyGroup<'_>, keys: &KeyLeaves) -> String {
        let (cache, context) = (&self.weaving.cache, &self.weaving.context);
        let stored = |row: SourceRow| {
            keys.stored(&key_at(self.source(row.source())?, keys, row.row(), cache, context)?)
        };
        let key = group.rows.last().and_then(|row| stored(*row).ok());
        key.map_or_else(String::new, |key| render(&keys.shape, &key))
    }

    /// An error of the column, with its name.
    pub(super) fn named(&self, error: Error) -> Error {
        error.with_column(self.leaf.descr.path().string())
    }

    /// Which values of the column are null in a row group, by what its footer says.
    pub(super) fn nulls_in(&mut self, id: SourceId, group: usize) -> Result<NullsIn> {
        if let Some(known) = self.nulls.get(&(id, group)) {
            return Ok(*known);
        }
        let known = match self.column.is_nullable {
            false => NullsIn::None,
            true => self.nulls_of_chunk(id, group)?,
        };
        self.nulls.insert((id, group), known);
        Ok(known)
    }

    fn nulls_of_chunk(&self, id: SourceId, group: usize) -> Result<NullsIn> {
        let source = self.source(id)?;
        let leaf = match self.leaf.adapter(id)? {
            LeafAdapter::Missing { sibling: None, .. } => return Ok(NullsIn::All),
            LeafAdapter::Missing { .. } => return Ok(NullsIn::Some),
            LeafAdapter::Same { leaf, .. } | LeafAdapter::Cast { leaf, .. } => *leaf,
        };
        let descr = source.leaf(leaf);
        if descr.max_rep_level() > 0 {
            return Ok(NullsIn::Some); // writers differ in what they call a null
        }
        if descr.max_def_level() == 0 {
            return Ok(NullsIn::None);
        }
        let chunk = source.chunk(group, leaf)?;
        let nulls = chunk.statistics().and_then(Statistics::null_count_opt);
        let all = u64::try_from(chunk.num_values()).ok();
        Ok(match nulls {
            Some(0) => NullsIn::None,
            // A null of a member may be one of a struct that is there.
            Some(nulls) if Some(nulls) == all && descr.path().parts().len() == 1 => NullsIn::All,
            _ => NullsIn::Some,
        })
    }

    /// Opens the block with `row`; its place in it.
    fn seek(&mut self, row: SourceRow) -> Result<usize> {
        let source = self.source(row.source())?;
        let open = self.open.entry(row.source()).or_default();
        if let Some((first, block)) = &open.block
            && let Some(at) = row.row().checked_sub(*first)
            && at < block.rows as u64
        {
            return Ok(usize::try_from(at).unwrap_or(usize::MAX));
        }
        let WeaveContext { cache, context, .. } = self.weaving;
        context.check_cancelled()?;
        let mut reader = match open.reader.take().filter(|_| open.next <= row.row()) {
            Some(mut reader) => {
                reader.skip(usize::try_from(row.row() - open.next).unwrap_or(usize::MAX))?;
                reader
            }
            None => BlockReader::open(source, self.leaf, row.row(), None, cache, context)?,
        };
        let (block, skip) = reader.next(ROWS_AT_ONCE)?.ok_or_else(|| {
            Error::new(Kind::Internal, "a group reaches behind the end of its source")
                .with_path(source.path())
                .with_row(row.row())
        })?;
        let first = row.row() - skip as u64;
        open.next = first + block.rows as u64;
        (open.block, open.place) = (Some((first, block)), BlockPlace::default());
        open.reader = Some(reader);
        Ok(skip)
    }

    /// Adds the levels of a row, and its values as a plain page has them.
    pub(super) fn slots(&mut self, row: SourceRow, to: &mut Slots) -> Result<()> {
        let at = self.seek(row)?;
        let layout = Layout::of(&self.leaf.descr);
        let open = self.open.get_mut(&row.source()).ok_or_else(lost)?;
        let (_, block) = open.block.as_ref().ok_or_else(lost)?;
        let mut next = open.place;
        if next.row > at {
            next = BlockPlace::default();
        }
        let value = match (block.rep.is_empty(), block.def.get(next.row..at)) {
            (false, _) => block.values(at).start,
            (true, Some(levels)) => {
                next.value + levels.iter().filter(|def| **def == block.def_max).count()
            }
            (true, None) => at,
        };
        if let (Values::Plain(bytes), Layout::Prefixed) = (&block.values, layout) {
            for _ in next.value..value {
                next.byte += layout.len_at(bytes, next.byte).ok_or_else(lost)?;
            }
        }
        next = BlockPlace { row: at, value, ..next };
        open.place = next;
        for level in block.levels(at..at + 1) {
            let rep = block.rep.get(level).copied().unwrap_or(0);
            let def = block.def.get(level).copied().unwrap_or(block.def_max);
            if def < block.def_max {
                to.push(rep, def, &[]);
                continue;
            }
            let value = match (&block.values, layout) {
                (Values::Ids(ids, dictionary), _) => {
                    dictionary.plain(*ids.get(next.value).ok_or_else(lost)? as usize)
                }
                (Values::Plain(bytes), Layout::Fixed(width)) => {
                    let bytes = bytes.get(next.value * width..(next.value + 1) * width);
                    bytes.ok_or_else(lost)?
                }
                (Values::Plain(bytes), Layout::Prefixed) => {
                    let len = layout.len_at(bytes, next.byte).ok_or_else(lost)?;
                    next.byte += len;
                    &bytes[next.byte - len..next.byte]
                }
            };
            to.push(rep, def, value);
            next.value += 1;
        }
        Ok(())
    }

    /// The value of a row of a column that is one leaf, as a number; none if it is null.
    ///
    /// # Errors
    /// Whatever is wrong with the source.
    pub(super) fn number_of(&mut self, row: SourceRow) -> Result<Option<Number>> {
        if self.is_null(row)? {
            return Ok(None);
        }
        let mut value = Slots::default();
        self.slots(row, &mut value)?;
        number_of(&value.bytes, &self.leaf.descr, &self.column.data_type).map(Some)
    }
}

fn lost() -> Error {
    Error::new(Kind::Internal, "a value of a row that shares its key is lost")
}

impl ColumnValues for SourceValues<'_> {
    fn is_null(&mut self, row: SourceRow) -> Result<bool> {
        let group = self.row_group_of(row);
        match self.nulls_in(row.source(), group)? {
            NullsIn::None => return Ok(false),
            NullsIn::All => return Ok(true),
            NullsIn::Some => {}
        }
        let at = self.seek(row)?;
        let block = self.open.get(&row.source()).and_then(|open| open.block.as_ref());
        Ok(block.is_some_and(|(_, block)| {
            let level = block.levels(at..at + 1).start;
            // The column itself is the first node of its path that may be absent.
            block.def.get(level).is_some_and(|def| *def == 0)
        }))
    }

    fn key(&mut self, row: SourceRow) -> Result<Option<Vec<u8>>> {
        if self.is_null(row)? {
            return Ok(None);
        }
        let Some(keys) = &self.column.key else { return Ok(None) };
        let source = self.source(row.source())?;
        let open = self.open.entry(row.source()).or_default();
        let WeaveContext { cache, context, .. } = self.weaving;
        let mut reader = match open.keys.take().filter(|reader| reader.row() <= row.row()) {
            Some(reader) => reader,
            None => KeyReader::open(source, keys, row.row(), cache, context)?,
        };
        reader.skip_to(row.row())?;
        let key = reader.next(1)?.map(|(key, _)| key.to_bytes(&keys.shape, 0));
        open.keys = Some(reader);
        Ok(key)
    }
}
