//! Which order the rows have: asked for, or declared by the files.
//!
//! # Invariants
//! What files tell is a claim; the merge checks it row by row.

use std::ops::Range;
use std::sync::Arc;

use parquet::file::metadata::SortingColumn;
use plait_core::key::{KeyColumn, KeyShape, Nulls, SortColumn, SortOrder, render};
use plait_core::plan::{Disorder, Merge, OrderCheck, Stop};
use plait_core::stream::check_keys;
use plait_core::{Error, Kind, Result};
use plait_core::{Runs, SourceId};

use crate::keys::{KeyLeaves, KeyReader};
use crate::leaf::{LocationCache, OutputLeaf};
use crate::runtime::Context;
use crate::schema::{LeafAdapter, Reconciled, key_leaf, key_shown, key_type};
use crate::source::Source;

/// Name of the footer entry with the sort order.
pub(crate) const SORT_ORDER_ENTRY: &str = "plait.sort_order";

/// Quickwit's: the text that `sort_by` takes as well.
const QUICKWIT_ORDER_ENTRY: &str = "qh.sort_fields";

/// The sort order all sources claim, each by its own names, in the names of the output.
/// `reconciled` is of these sources, in this order.
///
/// # Errors
/// [`Kind::InvalidArgument`] when they claim none or differ.
pub(crate) fn from_sources(sources: &[Arc<Source>], reconciled: &Reconciled) -> Result<SortOrder> {
    let hint = "pass sort_by, for example sort_by=\"service, -timestamp\"";
    let mut found: Option<(SortOrder, &str)> = None;
    for (at, source) in sources.iter().enumerate() {
        let adapters = reconciled.leaves.get(at).map(|leaves| &**leaves).unwrap_or_default();
        let order = claimed(source)?.map(|order| by_output(&order, source, adapters, reconciled));
        let Some(order) = order.transpose()? else {
            return Err(Error::new(Kind::InvalidArgument, "source declares no sort order")
                .with_path(source.path())
                .with_hint(hint));
        };
        match &found {
            None => found = Some((order, source.path())),
            Some((first, path)) if *first != order => {
                return Err(Error::new(
                    Kind::InvalidArgument,
                    "sources declare different sort orders",
                )
                .with_path(source.path())
                .with_got(format!("`{order}`, while {path} says `{first}`"))
                .with_hint(hint));
            }
            Some(_) => {}
        }
    }
    found
        .map(|(order, _)| order)
        .ok_or_else(|| Error::new(Kind::InvalidArgument, "there is nothing to merge"))
}

/// The order that a source claims by its own names, by the names of the output.
fn by_output(
    order: &SortOrder,
    source: &Source,
    adapters: &[LeafAdapter],
    reconciled: &Reconciled,
) -> Result<SortOrder> {
    let descr = source.schema();
    let mut columns = Vec::with_capacity(order.len());
    for column in order.columns() {
        let own = match key_leaf(descr, &column.path) {
            Ok(own) => Some(own),
            // An order may name columns that this file lacks: see `check_present`.
            Err(e) if e.kind() == Kind::UnknownColumn => None,
            Err(e) => return Err(e.with_path(source.path())),
        };
        let output = own.and_then(|own| adapters.iter().position(|adapter| is_leaf(adapter, own)));
        let path = output.and_then(|leaf| reconciled.descr.columns().get(leaf));
        let path = path.map_or_else(|| column.path.clone(), |c| c.path().parts().to_vec());
        columns.push(SortColumn { path, ..column.clone() });
    }
    order.with_columns(columns).map_err(|e| e.with_path(source.path()))
}

/// Whether an output leaf is made of the values of leaf `leaf`.
fn is_leaf(adapter: &LeafAdapter, leaf: usize) -> bool {
    match adapter {
        LeafAdapter::Same { leaf: own, .. } | LeafAdapter::Cast { leaf: own, .. } => *own == leaf,
        LeafAdapter::Missing { .. } => false,
    }
}

/// Whether a source claims `order`, or a longer one, of the very leaves that are its key columns.
pub(crate) fn claims(source: &Source, order: &SortOrder, keys: &KeyLeaves) -> bool {
    let Ok(Some(own)) = claimed(source) else { return false };
    let descr = source.schema();
    // What begins with a curve is in no order of its columns, and the other way round.
    let is_beginning = match (order.curve(), own.curve()) {
        (None, _) => own.plain().len() >= order.len(),
        (asked, declared) => asked == declared && own.len() == order.len(),
    };
    is_beginning
        && order.columns().iter().zip(own.columns()).zip(&keys.leaves).all(|((a, b), leaf)| {
            let same = (a.descending, a.nulls) == (b.descending, b.nulls);
            let (Ok(adapter), Ok(own)) = (leaf.adapter(source.id), key_leaf(descr, &b.path)) else {
                return false;
            };
            same && is_leaf(adapter, own)
        })
}

/// The order one source claims: from Plait's entry, from Quickwit's, or from `sorting_columns`.
pub(crate) fn claimed(source: &Source) -> Result<Option<SortOrder>> {
    let entries = source.file().key_value_metadata();
    let entry = |name| entries.into_iter().flatten().find(|entry| entry.key == name);
    let text = |name| entry(name).and_then(|entry| entry.value.as_deref());
    let quickwit = text(QUICKWIT_ORDER_ENTRY).filter(|text| text.trim_end().ends_with("/V2"));
    for text in text(SORT_ORDER_ENTRY).into_iter().chain(quickwit) {
        if let Ok(order) = SortOrder::try_parse(text) {
            return Ok(Some(order));
        }
    }
    let mut found: Option<&Vec<SortingColumn>> = None;
    let footer = source.footer()?;
    for group in footer.row_groups() {
        let Some(columns) = group.sorting_columns().filter(|c| !c.is_empty()) else {
            return Ok(None);
        };
        if found.is_some_and(|first| first != columns) {
            return Ok(None);
        }
        found = Some(columns);
    }
    let Some(columns) = found else { return Ok(None) };
    let mut order = Vec::new();
    for column in columns {
        let index = usize::try_from(column.column_idx).ok().filter(|i| *i < source.num_leaves());
        let Some(index) = index else {
            return Err(Error::new(
                Kind::CorruptSource,
                "sorting_columns names a column that is not there",
            )
            .with_path(source.path())
            .with_got(format!("column {}", column.column_idx))
            .with_hint("pass sort_by"));
        };
        order.push(SortColumn {
            path: source.leaf(index).path().parts().to_vec(),
            descending: column.descending,
            nulls: if column.nulls_first { Nulls::First } else { Nulls::Last },
        });
    }
    SortOrder::try_new(order).map(Some).map_err(|e| e.with_path(source.path()))
}

/// `order` by the names of the output.
///
/// # Errors
/// As [`Reconciled::path`], and [`Kind::InvalidArgument`] when two names are one column.
pub(crate) fn renamed(order: &SortOrder, reconciled: &Reconciled) -> Result<SortOrder> {
    let mut columns = Vec::with_capacity(order.len());
    for column in order.columns() {
        columns.push(SortColumn { path: reconciled.path(&column.path)?, ..column.clone() });
    }
    order.with_columns(columns)
}

/// The key columns of `order` in the output schema.
///
/// # Errors
/// [`Kind::UnknownColumn`], [`Kind::UnsupportedKey`].
pub(crate) fn key_leaves(
    order: &SortOrder,
    reconciled: &Reconciled,
    leaves: &[OutputLeaf],
) -> Result<KeyLeaves> {
    let descr = &reconciled.descr;
    let (mut columns, mut shown) = (Vec::new(), Vec::new());
    let mut key_leaves = Vec::new();
    for column in renamed(order, reconciled)?.columns() {
        let index = key_leaf(descr, &column.path)?;
        let ty = key_type(&descr.column(index)).map_err(|e| e.with_column(column.dotted()))?;
        columns.push(KeyColumn {
            name: column.dotted(),
            ty,
            descending: column.descending,
            nulls: column.nulls,
        });
        shown.push(key_shown(&descr.column(index)));
        key_leaves.extend(leaves.get(index).cloned());
    }
    Ok(KeyLeaves {
        shape: KeyShape::try_new(columns)?.with_curve(order.curve())?.with_shown(shown),
        leaves: key_leaves,
        ranks: None,
        kept: None,
    })
}

/// Refuses sources that lack a sort column: all their keys would be null.
///
/// # Errors
/// [`Kind::UnknownColumn`] naming every such source.
pub(crate) fn check_present(
    order: &SortOrder,
    keys: &KeyLeaves,
    sources: &[Arc<Source>],
) -> Result<()> {
    let lacks = |i: usize, column: usize| lacks(keys, column, sources.get(i));
    let name = |i: usize| sources.get(i).map(|source| source.path().to_owned());
    check_keys(order, sources.len(), lacks, name)
}

/// Whether `source` lacks sort column `column`.
pub(crate) fn lacks(keys: &KeyLeaves, column: usize, source: Option<&Arc<Source>>) -> bool {
    let adapter = keys.leaves.get(column).zip(source).map(|(leaf, source)| leaf.adapter(source.id));
    matches!(adapter, Some(Ok(LeafAdapter::Missing { .. })))
}

/// The footer's form of the order, which has no word for a curve: the columns before it.
pub(crate) fn sorting_columns(order: &SortOrder, keys: &KeyLeaves) -> Vec<SortingColumn> {
    let pairs = order.plain().iter().zip(&keys.leaves);
    pairs
        .map(|(column, leaf)| SortingColumn {
            column_idx: i32::try_from(leaf.index).unwrap_or(i32::MAX),
            descending: column.descending,
            nulls_first: column.nulls == Nulls::First,
        })
        .collect()
}

/// The error for a key that is smaller than the one before it, both as they were read.
pub(crate) fn unsorted(
    source: &Source,
    keys: &KeyLeaves,
    row: u64,
    before: &[u8],
    after: &[u8],
) -> Error {
    let shape = &keys.shape;
    let text =
        |key: &[u8]| keys.stored(key).map_or_else(|e| e.to_string(), |key| render(shape, &key));
    let names: Vec<&str> = shape.columns().iter().map(|c| c.name.as_str()).collect();
    Error::new(Kind::UnsortedSource, "key goes backwards")
        .with_path(source.path())
        .with_column(names.join(", "))
        .with_row(row)
        .with_got(format!("{} after {}", text(after), text(before)))
        .with_hint("pass unsorted=\"sort\", or check the direction and null placement in sort_by")
}

/// Keys of a source that are read at once where nothing else is.
pub(crate) const KEY_ROWS: usize = 4096;

/// The first of `rows` whose key is smaller than the one before it, by reading so many keys at
/// once.
///
/// # Errors
/// Whatever is wrong with the source.
pub(crate) fn find_disorder(
    source: &Arc<Source>,
    keys: &KeyLeaves,
    rows: Range<u64>,
    rows_at_once: usize,
    cache: &Arc<LocationCache>,
    context: &Context,
) -> Result<Option<Disorder>> {
    keys.will_read(source, &rows, cache, context);
    let mut reader = KeyReader::open(source, keys, rows.start, cache, context)?;
    let mut merge = Merge::new(keys.read_shape(), 1, OrderCheck::Full);
    let mut runs = Runs::default();
    while reader.row() < rows.end {
        context.check_cancelled()?;
        let left = usize::try_from(rows.end - reader.row()).unwrap_or(usize::MAX);
        let Some((batch, _)) = reader.next(rows_at_once.min(left))? else { break };
        if let Err(disorder) = merge.supply(SourceId(0), batch, false) {
            return Ok(Some(Disorder { row: rows.start + disorder.row, ..disorder }));
        }
        while merge.step(u64::MAX, None, &mut runs) == Stop::Full {}
        runs.clear();
    }
    Ok(None)
}
