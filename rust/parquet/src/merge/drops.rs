//! Which rows a merge leaves out, and the columns that say so.
//!
//! ```text
//! drop_where     ts < 1700000000   ─┐
//! delete_where   is_deleted        ─┼─▶ read beside the keys, batch by batch ─▶ Marks
//! version_by     version           ─┘
//! ```
//!
//! # Invariants
//! Marks of a batch are those of the rows of its keys. A null neither deletes nor expires, and is
//! the lowest version.
//!
//! # Cost
//! Each of these columns is read once more, as keys are.
//!
//! # Not here
//! Who stays (`plait_core::plan`).

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray};
use arrow_schema::DataType;
use parquet::arrow::parquet_to_arrow_schema;
use plait_core::key::{KeyType, Keys, Nulls, SortOrder, encode_arrow, literal, render};
use plait_core::plan::{Clash, DropRule, Marks, OnDuplicate};
use plait_core::{Error, Kind, Result};

use super::prepare::Prepared;
use crate::context::Context;
use crate::keys::{KeyLeaves, KeyReader, key_at};
use crate::leaf::{LocationCache, OutputLeaf};
use crate::options::{MergeOptions, OnDuplicateOption};
use crate::order::key_leaves;
use crate::page::unwrap_error;
use crate::schema::Reconciled;
use crate::source::Source;

/// What is dropped, and where it says so.
pub(super) struct Drops {
    pub(super) rule: DropRule,
    deletes: Option<Condition>,
    expired: Option<Condition>,
    version: Option<KeyLeaves>,
}

/// A comparison of one column with one value.
struct Condition {
    column: KeyLeaves,
    operator: Operator,
    /// The value's key.
    value: Vec<u8>,
}

#[derive(Clone, Copy)]
enum Operator {
    Less,
    LessOrEqual,
    Equal,
    GreaterOrEqual,
    Greater,
}

/// Longer ones first: `<` begins `<=`.
const OPERATORS: [(&str, Operator); 6] = [
    ("<=", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("==", Operator::Equal),
    ("<", Operator::Less),
    (">", Operator::Greater),
    ("=", Operator::Equal),
];

impl Drops {
    /// What `options` ask for; `None` when every row stays.
    ///
    /// # Errors
    /// [`Kind::UnknownColumn`], [`Kind::UnsupportedKey`], and [`Kind::InvalidArgument`] for a
    /// condition that cannot be read or does not go with the sort order.
    pub(super) fn find(
        options: &MergeOptions,
        order: &SortOrder,
        reconciled: &Reconciled,
        leaves: &[OutputLeaf],
    ) -> Result<Option<Self>> {
        if options.keeps_all() {
            return Ok(None);
        }
        if order.is_empty() {
            return Err(Error::new(
                Kind::InvalidArgument,
                "without a sort order all rows are equal",
            )
            .with_hint("name the key columns with sort_by to drop rows by their keys"));
        }
        let column = |name: &str, nulls: Nulls| column(name, nulls, reconciled, leaves);
        let deletes = options.delete_where.as_ref().map(|name| -> Result<_> {
            let column = column(name, Nulls::First)?;
            if column.shape.columns().iter().any(|column| column.ty != KeyType::Boolean) {
                return Err(Error::new(Kind::InvalidArgument, "`delete_where` is not boolean")
                    .with_column(name.as_str()));
            }
            let yes: ArrayRef = Arc::new(BooleanArray::from(vec![true]));
            let value = encode_arrow(&column.shape, &[yes])?.to_bytes(&column.shape, 0);
            Ok(Condition { column, operator: Operator::Equal, value })
        });
        let version = options.version_by.as_ref().map(|name| column(name, Nulls::First));
        let expired = options.drop_where.as_ref().map(|text| {
            let (name, operator, value) = parse(text)?;
            // Nulls stand where the comparison is false.
            let nulls = match operator {
                Operator::Less | Operator::LessOrEqual => Nulls::Last,
                _ => Nulls::First,
            };
            let column = column(name, nulls)?;
            let is_key = |leaf: &OutputLeaf| {
                let path = leaf.descr.path().parts();
                order.columns().iter().any(|column| column.path == path)
            };
            if !column.leaves.iter().any(is_key) {
                return Err(Error::new(
                    Kind::InvalidArgument,
                    "`drop_where` is about a key column",
                )
                .with_column(name)
                .with_hint("rows of one key go or stay together: name a column of sort_by"));
            }
            let value = literal(value, &arrow_type(reconciled, &column)?)
                .and_then(|value| encode_arrow(&column.shape, &[value]))
                .map_err(|e| e.with_column(name))?
                .to_bytes(&column.shape, 0);
            Ok(Condition { column, operator, value })
        });
        let version = version.transpose()?;
        let rule = DropRule {
            on_duplicate: match options.on_duplicate {
                OnDuplicateOption::KeepAll => OnDuplicate::KeepAll,
                OnDuplicateOption::KeepFirst => OnDuplicate::KeepFirst,
                OnDuplicateOption::KeepLast => OnDuplicate::KeepLast,
                OnDuplicateOption::Error => OnDuplicate::Error,
            },
            version: version.as_ref().map(|version| version.shape.clone()),
            keeps_tombstones: options.keep_tombstones,
        };
        Ok(Some(Self {
            rule,
            deletes: deletes.transpose()?,
            expired: expired.transpose()?,
            version,
        }))
    }

    /// Reads the marks of `source` from `row` on.
    ///
    /// # Errors
    /// As [`KeyReader::open`].
    pub(super) fn open(
        &self,
        source: &Arc<Source>,
        row: u64,
        cache: &Arc<LocationCache>,
        context: &Context,
    ) -> Result<MarkReader> {
        let open = |column: &KeyLeaves| KeyReader::open(source, column, row, cache, context);
        let of = |condition: &Option<Condition>| {
            condition.as_ref().map(|condition| open(&condition.column)).transpose()
        };
        Ok(MarkReader {
            deletes: of(&self.deletes)?,
            expired: of(&self.expired)?,
            version: self.version.as_ref().map(open).transpose()?,
        })
    }
}

/// The marks of one source, batch by batch.
pub(super) struct MarkReader {
    deletes: Option<KeyReader>,
    expired: Option<KeyReader>,
    version: Option<KeyReader>,
}

impl MarkReader {
    /// The marks of the next `rows` rows, which lie in one row group.
    ///
    /// # Errors
    /// Whatever is wrong with the source, with file and column.
    pub(super) fn next(&mut self, drops: &Drops, rows: usize) -> Result<Marks> {
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
    condition: &Option<Condition>,
    rows: usize,
) -> Result<Vec<bool>> {
    let (Some(reader), Some(condition)) = (reader, condition) else { return Ok(Vec::new()) };
    let keys = read(reader, rows)?;
    let value = condition.value.as_slice();
    let is_it = |key: &[u8]| match condition.operator {
        Operator::Less => key < value,
        Operator::LessOrEqual => key <= value,
        Operator::Equal => key == value,
        Operator::GreaterOrEqual => key >= value,
        Operator::Greater => key > value,
    };
    Ok((0..rows).map(|row| is_it(&keys.to_bytes(&condition.column.shape, row))).collect())
}

fn read(reader: &mut KeyReader, rows: usize) -> Result<Keys> {
    match reader.next(rows)? {
        Some((keys, _)) if keys.len() == rows => Ok(keys),
        _ => Err(Error::new(Kind::Internal, "a column has fewer rows than the keys beside it")),
    }
}

fn column(
    name: &str,
    nulls: Nulls,
    reconciled: &Reconciled,
    leaves: &[OutputLeaf],
) -> Result<KeyLeaves> {
    let named = SortOrder::try_parse(name)?;
    let mut columns = named.columns().to_vec();
    let ([column], true) = (columns.as_mut_slice(), !name.trim_start().starts_with('-')) else {
        return Err(Error::new(Kind::InvalidArgument, "this names no single column").with_got(name));
    };
    (column.descending, column.nulls) = (false, nulls);
    key_leaves(&SortOrder::try_new(columns)?, &reconciled.descr, leaves)
}

/// Column, operator and value of a condition.
fn parse(text: &str) -> Result<(&str, Operator, &str)> {
    let mut in_quotes = false;
    for (at, letter) in text.char_indices() {
        in_quotes ^= letter == '"';
        let found = OPERATORS.iter().find(|(sign, _)| !in_quotes && text[at..].starts_with(sign));
        if let Some((sign, operator)) = found {
            let (name, value) = (text[..at].trim(), text[at + sign.len()..].trim());
            if !name.is_empty() && !value.is_empty() {
                return Ok((name, *operator, value));
            }
            break;
        }
    }
    Err(Error::new(Kind::InvalidArgument, "`drop_where` is no comparison")
        .with_got(text)
        .with_hint("write a key column, one of < <= = >= >, and a value: timestamp < 1700000000"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_a_column_an_operator_and_a_value() {
        let read = |text: &'static str| parse(text).map(|(name, _, value)| (name, value)).ok();
        assert_eq!(read("ts<5"), Some(("ts", "5")));
        assert_eq!(read(" ts >= '2024-01-01 00:00' "), Some(("ts", "'2024-01-01 00:00'")));
        assert_eq!(read("\"a<b\".c == x"), Some(("\"a<b\".c", "x")));
        assert_eq!(read("ts"), None);
        assert_eq!(read("< 5"), None);
        assert_eq!(read("ts <"), None);
        let (_, operator, _) = parse("ts <= 5").unwrap();
        assert!(matches!(operator, Operator::LessOrEqual));
    }
}
