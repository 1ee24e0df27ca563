//! The columns that say which rows a merge of files leaves out, read with the keys; and how the others
//! are combined.
//!
//! ```text
//! conditions, versions (plait_core::plan::Drops) ─▶ a reader a column, batch by batch ─▶ Marks
//! ```
//!
//! # Invariants
//! Marks of a batch are those of the rows of its keys.
//!
//! # Cost
//! Each of these columns is read once more, as keys are; of [`expiry`] one, unless statistics say
//! that no row of the file can be past its retention.
//!
//! # Not here
//! What conditions mean and who stays (`plait_core::plan`).

use std::sync::Arc;

use arrow_array::Array;
use arrow_schema::{DataType, FieldRef};
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::arrow::parquet_to_arrow_schema;
use parquet::basic::Type;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use plait_core::key::{KeyShape, Keys, SortOrder, encode_arrow};
use plait_core::plan::{Condition, DropOptions, Drops, MarkColumn, Marks, ValueRule};
use plait_core::{Error, Kind, Result};

use crate::keys::{KeyLeaves, KeyReader};
use crate::leaf::{LocationCache, OutputLeaf};
use crate::options::MergeOptions;
use crate::order::key_leaves;
use crate::page::unwrap_error;
use crate::runtime::Context;
use crate::schema::{LeafAdapter, Reconciled};
use crate::source::Source;

/// What is dropped, and the columns of the files that say so.
pub(crate) type FileDrops = Drops<Column>;

/// A column that is read with the keys.
pub(crate) struct Column {
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
/// [`Kind::UnknownColumn`], [`Kind::UnsupportedKey`], and what [`Drops::find`] and [`combined`]
/// refuse.
pub(crate) fn find(
    options: &MergeOptions,
    order: &SortOrder,
    reconciled: &Reconciled,
    leaves: &[OutputLeaf],
) -> Result<Option<FileDrops>> {
    let asked = options.drop_options();
    let found = Drops::find(&asked, order, |named| {
        let keys = key_leaves(named, reconciled, leaves)?;
        let data_type = arrow_type(reconciled, &keys)?;
        Ok(Column { keys, data_type })
    })?;
    combined(&asked, &key_leaves(order, reconciled, leaves)?, reconciled)?;
    Ok(found)
}

/// A column of the sources, and how the values of rows with one key are combined.
pub(crate) type CombinedField = (FieldRef, ValueRule);

/// How `options` combine the columns of `reconciled`; none if rows are not combined.
///
/// # Errors
/// As [`ValueRule::find`].
pub(crate) fn combined(
    options: &DropOptions,
    keys: &KeyLeaves,
    reconciled: &Reconciled,
) -> Result<Vec<CombinedField>> {
    if !options.on_duplicate.combines() {
        return Ok(Vec::new());
    }
    let schema = parquet_to_arrow_schema(&reconciled.descr, Some(&reconciled.metadata));
    let schema = schema.map_err(unwrap_error)?;
    let is_root = |leaf: &OutputLeaf, name: &str| {
        leaf.descr.path().parts().first().is_some_and(|root| root == name)
    };
    let is_key = |name: &str| keys.leaves.iter().any(|leaf| is_root(leaf, name));
    let options = options.clone().renamed(|path| reconciled.column_path(path))?;
    let rules = ValueRule::find(options.on_duplicate, &options.combine, schema.fields(), is_key)?;
    Ok(schema.fields().iter().cloned().zip(rules).collect())
}

/// How much of a file is past its retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// No row.
    None,
    /// Some rows.
    Some,
    /// Every row, and there are some.
    All,
}

/// Rows that are read at a time.
const EXPIRY_ROWS: usize = 8192;

/// How much of `source` is past the retention of `drops`. That it is nothing may be known from
/// statistics; that it is everything is known from every row, since a file is lost by it.
///
/// # Errors
/// As [`KeyReader`].
pub(crate) fn expiry(
    drops: &FileDrops,
    source: &Arc<Source>,
    cache: &Arc<LocationCache>,
    context: &Context,
) -> Result<Expiry> {
    let Some(condition) = &drops.expired else { return Ok(Expiry::None) };
    if source.rows() == 0 || !can_hold(condition, source) {
        return Ok(Expiry::None);
    }
    let mut reader = KeyReader::open(source, &condition.column.keys, 0, cache, context)?;
    let (mut some, mut all) = (false, true);
    while let Some((keys, _)) = reader.next(EXPIRY_ROWS)? {
        context.check_cancelled()?;
        let holds = condition.holds(&keys);
        some |= holds.contains(&true);
        all &= !holds.contains(&false);
        if some && !all {
            return Ok(Expiry::Some);
        }
    }
    Ok(if all { Expiry::All } else { Expiry::None })
}

/// Whether statistics leave it open that the condition holds for some row of `source`.
fn can_hold(condition: &Condition<Column>, source: &Source) -> bool {
    let bounds = || {
        let column = &condition.column;
        let leaf = column.keys.leaves.first()?;
        // Numbers alone: bounds of floats pass over NaN, those of bytes have orders of their own.
        let is_whole = matches!(leaf.descr.physical_type(), Type::INT32 | Type::INT64);
        if !is_whole {
            return None;
        }
        let meta = source.file();
        let schema =
            parquet_to_arrow_schema(meta.schema_descr(), meta.key_value_metadata()).ok()?;
        let [name] = leaf.descr.path().parts() else { return None };
        let found = StatisticsConverter::try_new(name, &schema, meta.schema_descr()).ok()?;
        let footer = source.footer().ok()?;
        let groups = || footer.row_groups().iter();
        // So have those of old writers.
        let is_old = |group: &RowGroupMetaData| {
            let chunk = leaf_in(source, leaf).and_then(|i| group.columns().get(i));
            chunk
                .and_then(ColumnChunkMetaData::statistics)
                .is_none_or(|s| s.is_min_max_deprecated())
        };
        if groups().any(is_old) {
            return None;
        }
        let (mins, maxes) =
            (found.row_group_mins(groups()).ok()?, found.row_group_maxes(groups()).ok()?);
        if *mins.data_type() != column.data_type || mins.null_count() + maxes.null_count() > 0 {
            return None;
        }
        let key = |bounds| encode_arrow(&column.keys.shape, &[bounds]).ok();
        Some((key(mins)?, key(maxes)?))
    };
    let Some((mins, maxes)) = bounds() else { return true };
    let shape = &condition.column.keys.shape;
    (0..mins.len().min(maxes.len()))
        .any(|i| condition.can_hold(&mins.to_bytes(shape, i), &maxes.to_bytes(shape, i)))
}

/// Where `leaf` of the output is in `source`.
fn leaf_in(source: &Source, leaf: &OutputLeaf) -> Option<usize> {
    match leaf.adapter(source.id) {
        Ok(LeafAdapter::Same { leaf, .. }) => Some(*leaf),
        _ => None,
    }
}

/// The marks of one source, batch by batch.
pub(crate) struct MarkReader {
    deletes: Option<KeyReader>,
    expired: Option<KeyReader>,
    versions: Vec<KeyReader>,
}

impl MarkReader {
    /// Reads the marks of `source` from `row` on.
    ///
    /// # Errors
    /// As [`KeyReader::open`].
    pub(crate) fn open(
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
            versions: drops.versions.iter().map(open).collect::<Result<_>>()?,
        })
    }

    /// Goes on at `row`.
    ///
    /// # Errors
    /// As [`KeyReader::skip_to`].
    pub(crate) fn skip_to(&mut self, row: u64) -> Result<()> {
        let readers = [&mut self.deletes, &mut self.expired].into_iter().flatten();
        readers.chain(&mut self.versions).try_for_each(|reader| reader.skip_to(row))
    }

    /// The marks of the next `rows` rows, which lie in one row group.
    ///
    /// # Errors
    /// Whatever is wrong with the source, with file and column.
    pub(crate) fn next(&mut self, drops: &FileDrops, rows: usize) -> Result<Marks> {
        Ok(Marks {
            deletes: holds(&mut self.deletes, &drops.deletes, rows)?,
            expired: holds(&mut self.expired, &drops.expired, rows)?,
            versions: self
                .versions
                .iter_mut()
                .map(|reader| read(reader, rows))
                .collect::<Result<_>>()?,
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
        _ => Err(Error::new(Kind::Internal, "a column has fewer rows than the keys")),
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
