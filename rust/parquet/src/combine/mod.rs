//! Where the value of each leaf comes from in rows that share a key.
//!
//! ```text
//! window    runs of whole rows, and groups: output row 3 is rows 7 of source 0, 2 of source 5
//! leaf a    no group changes it                 the runs as they are
//! leaf b    null in source 5: row 7 it is       runs with another row in place of some
//! leaf c    a sum, all elements of lists        runs with rows of a source that is made here
//! ```
//!
//! # Invariants
//! All leaves of a column have one rule and the same rows. Rows of one source ascend in the runs of
//! every leaf, through all windows.
//!
//! # Cost
//! The runs of a leaf while it is woven. Whether values are null is known from statistics where they
//! say that all are or none; leaves of which the same is known share their runs. Otherwise the levels
//! of the rows that share a key are read once more.
//!
//! # Not here
//! The rules (`plait_core::plan`); copying rows (`weave`).

mod collected;
mod column;
mod made;
mod numbers;
mod shared;
mod slots;
mod values;

use std::sync::atomic::{AtomicU64, Ordering};

use parquet::basic::Repetition;
use plait_core::key::{Nulls, SortColumn, SortOrder};
use plait_core::packed_runs::{PackedRuns, Replaced};
use plait_core::plan::{DropOptions, KeyGroups, ValueRule, Window};
use plait_core::{Error, Kind, Result};

use crate::drops::combined;
use crate::keys::KeyLeaves;
use crate::leaf::OutputLeaf;
use crate::order::key_leaves;
use crate::runtime::Charge;
use crate::schema::Reconciled;
use crate::weave::{LeafRows, WeaveContext};

use column::CombinedColumn;
use made::{MadeGroups, MadeValues};
pub(crate) use shared::SharedRuns;
use shared::{ResolvedRuns, RunsKey};
use values::SourceValues;

/// How the columns of an output are combined.
pub(crate) struct Combine {
    columns: Vec<CombinedColumn>,
    /// The column of each leaf of the output.
    of_leaf: Vec<usize>,
    /// The sort columns, for messages.
    keys: KeyLeaves,
    values_merged: AtomicU64,
}

impl Combine {
    /// How `options` combine the columns of `leaves`; `None` if rows are not combined. `of_sources`
    /// and `source_leaves` have the columns that the output may lack.
    ///
    /// # Errors
    /// As [`ValueRule::find`].
    pub(crate) fn find(
        options: &DropOptions,
        keys: &KeyLeaves,
        of_sources: &Reconciled,
        source_leaves: &[OutputLeaf],
        leaves: &[OutputLeaf],
    ) -> Result<Option<Self>> {
        let fields = combined(options, keys, of_sources)?;
        if fields.is_empty() {
            return Ok(None);
        }
        let root = |leaf: &OutputLeaf| leaf.descr.path().parts().first().cloned();
        let (mut columns, mut of_leaf): (Vec<CombinedColumn>, Vec<usize>) = Default::default();
        for (at, leaf) in leaves.iter().enumerate() {
            let name = root(leaf).unwrap_or_default();
            // Columns have names of their own, and their leaves follow each other.
            let before = at.checked_sub(1).and_then(|before| root(&leaves[before]));
            if before.as_ref() == Some(&name)
                && let Some(column) = columns.last_mut()
            {
                column.leaves.end = at + 1;
            } else {
                let found = fields.iter().find(|(field, _)| *field.name() == name);
                let Some((field, rule)) = found else {
                    return Err(Error::new(Kind::Internal, "an output has a column of no source")
                        .with_column(name));
                };
                let node = of_sources.schema.get_fields().iter().find(|node| node.name() == name);
                let is_nullable = node
                    .is_some_and(|node| node.get_basic_info().repetition() == Repetition::OPTIONAL);
                columns.push(CombinedColumn {
                    rule: *rule,
                    data_type: field.data_type().clone(),
                    leaves: at..at + 1,
                    is_nullable,
                    is_key: keys.leaves.iter().any(|key| root(key).as_ref() == Some(&name)),
                    key: compared(*rule, &name)
                        .map(|order| key_leaves(&order, of_sources, source_leaves))
                        .transpose()?,
                });
            }
            of_leaf.push(columns.len() - 1);
        }
        let keys = keys.clone();
        Ok(Some(Self { columns, of_leaf, keys, values_merged: AtomicU64::new(0) }))
    }

    /// How many values were taken from another row than the last of their key, or made.
    pub(crate) fn values_merged(&self) -> u64 {
        self.values_merged.load(Ordering::Relaxed)
    }

    /// The rows of one leaf in `windows` of a batch. `leaves` are those of the output; `shared` is
    /// what other leaves of the batch found.
    ///
    /// # Errors
    /// Whatever is wrong with a source. What is made fails when it is woven.
    pub(crate) fn rows_of<'a>(
        &'a self,
        weaving: &'a WeaveContext,
        leaves: &'a [OutputLeaf],
        leaf: usize,
        windows: &'a [Window],
        shared: &SharedRuns,
    ) -> Result<(Vec<LeafRows<'a>>, Charge)> {
        let mut charge = weaving.context.charge(0);
        let mut bytes = 0;
        let at = self.of_leaf.get(leaf).copied();
        let column = at.and_then(|at| Some((at, self.columns.get(at)?)));
        let Some((at, column)) = column else {
            return Err(Error::new(Kind::Internal, "a leaf is of no column"));
        };
        let (Some(first), Some(own)) = (leaves.get(column.leaves.start), leaves.get(leaf)) else {
            return Err(Error::new(Kind::Internal, "a column has no leaf"));
        };
        let is_first = column.leaves.start == leaf;
        let mut values = SourceValues::new(weaving, column, first);
        let mut made = MadeGroups::new(weaving.sources.len());
        let mut rows = Vec::with_capacity(windows.len());
        for (window, Window { steps, groups, .. }) in windows.iter().enumerate() {
            if groups.is_empty() || column.rule.is_last() {
                rows.push(LeafRows::same(steps));
                continue;
            }
            let known = RunsKey::find(window, at, column, shared, groups, &mut values)?;
            let resolved = match shared.get(&known) {
                Some(resolved) => resolved,
                None => {
                    let resolved = self.resolve(column, steps, groups, &mut values, &mut made)?;
                    if made.is_empty() {
                        shared.put(known, &resolved);
                    }
                    resolved
                }
            };
            if is_first && !column.is_key {
                self.values_merged.fetch_add(resolved.replaced, Ordering::Relaxed);
            }
            let places = made.take();
            bytes += resolved.runs.memory_size() + size_of_val(&*places);
            charge.set(bytes);
            let made = MadeValues::rows(&self.keys, weaving, column, leaves, own, groups, places);
            rows.push(LeafRows::other(resolved.runs, made));
        }
        Ok((rows, charge))
    }

    fn resolve(
        &self,
        column: &CombinedColumn,
        steps: &PackedRuns,
        groups: &KeyGroups,
        values: &mut SourceValues<'_>,
        made: &mut MadeGroups,
    ) -> Result<ResolvedRuns> {
        let mut replaced = 0;
        let rows = groups.iter().enumerate().filter_map(|(place, group)| {
            let chosen = match column.rule.choose(group, values) {
                Ok(Some(chosen)) if chosen + 1 == group.rows.len() => return None,
                Ok(Some(chosen)) => group.rows.get(chosen).map(|row| (row.source(), row.row())),
                Ok(None) => Some(made.push(place)),
                Err(e) => return Some(Err(e)),
            };
            let (source, source_row) = chosen?;
            replaced += 1;
            Some(Ok(Replaced { row: group.row, source, source_row }))
        });
        let runs = steps.replaced(rows)?;
        Ok(ResolvedRuns { runs: runs.into(), replaced })
    }
}

/// The order by which values are compared, if the rule compares them.
fn compared(rule: ValueRule, name: &str) -> Option<SortOrder> {
    if !matches!(rule, ValueRule::By(function) if function.compares()) {
        return None;
    }
    let path = vec![name.to_owned()];
    let column = SortColumn { path, descending: false, nulls: Nulls::First };
    SortOrder::try_new(vec![column]).ok()
}
