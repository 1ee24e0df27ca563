//! The columns that say which rows a merge of files leaves out, read beside the keys.
//!
//! ```text
//! conditions, versions (plait_core::plan::Drops) ─▶ a reader a column, batch by batch ─▶ Marks
//! ```
//!
//! # Invariants
//! Marks of a batch are those of the rows of its keys.
//!
//! # Cost
//! Each of these columns is read once more, as keys are.
//!
//! # Not here
//! What conditions mean and who stays (`plait_core::plan`).

use std::sync::Arc;

use arrow_schema::DataType;
use parquet::arrow::parquet_to_arrow_schema;
use plait_core::key::{KeyShape, Keys, SortOrder, render};
use plait_core::plan::{Clash, Condition, Drops, MarkColumn, Marks};
use plait_core::{Error, Kind, Result};

use super::prepare::Prepared;
use crate::context::Context;
use crate::keys::{KeyLeaves, KeyReader, key_at};
use crate::leaf::{LocationCache, OutputLeaf};
use crate::options::MergeOptions;
use crate::order::key_leaves;
use crate::page::unwrap_error;
use crate::schema::Reconciled;
use crate::source::Source;

/// What is dropped, and the columns of the files that say so.
pub(super) type FileDrops = Drops<Column>;

/// A column beside the keys.
pub(super) struct Column {
    keys: KeyLeaves,
    data_type: DataType,
}

impl MarkColumn for Column {
    fn shape(&self) -> &KeyShape {
        &self.keys.shape
    }

    fn data_type(&self) -> Result<DataType> {
        Ok(self.data_type.clone())
    }
}

/// What `options` ask for; `None` when every row stays.
///
/// # Errors
/// [`Kind::UnknownColumn`], [`Kind::UnsupportedKey`], and what [`Drops::find`] refuses.
pub(super) fn find(
    options: &MergeOptions,
    order: &SortOrder,
    reconciled: &Reconciled,
    leaves: &[OutputLeaf],
) -> Result<Option<FileDrops>> {
    Drops::find(&options.drop_options(), order, |named| {
        let keys = key_leaves(named, &reconciled.descr, leaves)?;
        let data_type = arrow_type(reconciled, &keys)?;
        Ok(Column { keys, data_type })
    })
}

/// The marks of one source, batch by batch.
pub(super) struct MarkReader {
    deletes: Option<KeyReader>,
    expired: Option<KeyReader>,
    version: Option<KeyReader>,
}

impl MarkReader {
    /// Reads the marks of `source` from `row` on.
    ///
    /// # Errors
    /// As [`KeyReader::open`].
    pub(super) fn open(
        drops: &FileDrops,
        source: &Arc<Source>,
        row: u64,
        cache: &Arc<LocationCache>,
        context: &Context,
    ) -> Result<Self> {
        let open = |column: &Column| KeyReader::open(source, &column.keys, row, cache, context);
        let of = |condition: &Option<Condition<Column>>| {
            condition.as_ref().map(|condition| open(&condition.column)).transpose()
        };
        Ok(Self {
            deletes: of(&drops.deletes)?,
            expired: of(&drops.expired)?,
            version: drops.version.as_ref().map(open).transpose()?,
        })
    }

    /// The marks of the next `rows` rows, which lie in one row group.
    ///
    /// # Errors
    /// Whatever is wrong with the source, with file and column.
    pub(super) fn next(&mut self, drops: &FileDrops, rows: usize) -> Result<Marks> {
        Ok(Marks {
            deletes: holds(&mut self.deletes, &drops.deletes, rows)?,
            expired: holds(&mut self.expired, &drops.expired, rows)?,
            versions: self.version.as_mut().map(|reader| read(reader, rows)).transpose()?,
        })
    }
}

/// For which of the next rows a condition holds.
fn holds(
    reader: &mut Option<KeyReader>,
    condition: &Option<Condition<Column>>,
    rows: usize,
) -> Result<Vec<bool>> {
    let (Some(reader), Some(condition)) = (reader, condition) else { return Ok(Vec::new()) };
    Ok(condition.holds(&read(reader, rows)?))
}

fn read(reader: &mut KeyReader, rows: usize) -> Result<Keys> {
    match reader.next(rows)? {
        Some((keys, _)) if keys.len() == rows => Ok(keys),
        _ => Err(Error::new(Kind::Internal, "a column has fewer rows than the keys beside it")),
    }
}

/// The Arrow type of the one leaf of `column`.
fn arrow_type(reconciled: &Reconciled, column: &KeyLeaves) -> Result<DataType> {
    let schema = parquet_to_arrow_schema(&reconciled.descr, Some(&reconciled.metadata));
    let schema = schema.map_err(unwrap_error)?;
    let path = column.leaves.first().map(|leaf| leaf.descr.path().parts()).unwrap_or_default();
    let mut fields = schema.fields();
    for (depth, name) in path.iter().enumerate() {
        let Some((_, field)) = fields.find(name) else { break };
        match field.data_type() {
            DataType::Struct(inner) => fields = inner,
            leaf if depth + 1 == path.len() => return Ok(leaf.clone()),
            _ => break,
        }
    }
    Err(Error::new(Kind::Internal, "a key column is not in the schema").with_got(path.join(".")))
}

/// The error for two rows of one key.
///
/// # Errors
/// Whatever keeps the key from being read again.
pub(super) fn clashing(prepared: &Prepared, clash: Clash, context: &Context) -> Result<Error> {
    let (keys, cache) = (&prepared.keys, &prepared.cache);
    let (id, row) = clash.after;
    let source = |id: plait_core::run::SourceId| {
        prepared
            .sources
            .get(id.index())
            .ok_or_else(|| Error::new(Kind::Internal, "the plan names a source that is not there"))
    };
    let after = source(id)?;
    let before = source(clash.before.0)?;
    let key = keys.tell(&key_at(after, keys, row, cache, context)?)?;
    Ok(Error::new(Kind::DuplicateKey, "two rows have the same key")
        .with_path(after.path())
        .with_row(row)
        .with_got(format!(
            "{} as in row {} of {}",
            render(&keys.shape, &key),
            clash.before.1,
            before.path()
        ))
        .with_hint("on_duplicate=\"keep_last\", \"keep_first\" or \"keep_all\" says what to do"))
}
