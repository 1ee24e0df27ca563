//! Runs that leaves of a batch have in common.
//!
//! ```text
//! 197 leaves that are null in all sources of updates    one set of runs
//! a struct of 40 leaves                                 one set of runs
//! ```
//!
//! # Invariants
//! What is shared depends on statistics and rules alone: whether a leaf finds runs or makes them
//! changes no byte of the output. They take no more than a share of the memory limit.
//!
//! # Not here
//! Making them (`mod`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use plait_core::packed_runs::PackedRuns;
use plait_core::plan::{KeyGroups, ValueRule};
use plait_core::{Result, SourceId};

use super::column::CombinedColumn;
use super::values::{NullsIn, SourceValues};
use crate::runtime::{Charge, Context};

/// The runs of one leaf in one window.
#[derive(Clone)]
pub(super) struct ResolvedRuns {
    pub(super) runs: Arc<PackedRuns>,
    /// How many rows are others than those of the window.
    pub(super) replaced: u64,
}

/// What says that two leaves have the same runs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RunsKey {
    /// Window and rule, and of the row groups with rows of its groups, which are null.
    Nulls(usize, ValueRule, Vec<NullsIn>),
    /// Window and column.
    Column(usize, usize),
    /// Nothing.
    Nothing,
}

impl RunsKey {
    /// What is known of `column`, number `at`, in window `window`.
    pub(super) fn find(
        window: usize,
        at: usize,
        column: &CombinedColumn,
        shared: &SharedRuns,
        groups: &KeyGroups,
        values: &mut SourceValues<'_>,
    ) -> Result<Self> {
        use plait_core::plan::Aggregate::{First, FirstNonNull, LastNonNull};
        let of_column = match column.leaves.len() {
            1 => Self::Nothing,
            _ => Self::Column(window, at),
        };
        match column.rule {
            ValueRule::Newest(_) | ValueRule::By(First) => {
                Ok(Self::Nulls(window, column.rule, Vec::new()))
            }
            ValueRule::By(FirstNonNull | LastNonNull) => {
                let mut nulls = Vec::new();
                for (source, group) in shared.places(window, groups, values).iter() {
                    match values.nulls_in(*source, *group)? {
                        NullsIn::Some => return Ok(of_column),
                        known => nulls.push(known),
                    }
                }
                Ok(Self::Nulls(window, column.rule, nulls))
            }
            _ => Ok(of_column),
        }
    }
}

/// Row groups by source, and those of one window with rows of its groups.
type Places = Arc<BTreeSet<(SourceId, usize)>>;

/// What leaves of a batch found.
pub(crate) struct SharedRuns(Mutex<FoundRuns>);

struct FoundRuns {
    places: BTreeMap<usize, Places>,
    runs: BTreeMap<RunsKey, ResolvedRuns>,
    bytes: usize,
    bytes_max: usize,
    charge: Charge,
}

impl SharedRuns {
    /// Nothing yet; what leaves find may take `bytes_max` bytes.
    #[must_use]
    pub(crate) fn new(bytes_max: usize, context: &Context) -> Self {
        Self(Mutex::new(FoundRuns {
            places: BTreeMap::new(),
            runs: BTreeMap::new(),
            bytes: 0,
            bytes_max,
            charge: context.charge(0),
        }))
    }

    pub(super) fn get(&self, known: &RunsKey) -> Option<ResolvedRuns> {
        let found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        found.runs.get(known).cloned()
    }

    pub(super) fn put(&self, known: RunsKey, resolved: &ResolvedRuns) {
        if known == RunsKey::Nothing {
            return;
        }
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = found.bytes + resolved.runs.memory_size();
        if bytes <= found.bytes_max {
            found.bytes = bytes;
            found.charge.set(bytes);
            found.runs.insert(known, resolved.clone());
        }
    }

    /// The row groups with rows of the groups of a window.
    fn places(&self, window: usize, groups: &KeyGroups, values: &SourceValues<'_>) -> Places {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let places = found.places.entry(window).or_insert_with(|| {
            let rows = groups.iter().flat_map(|group| group.rows);
            Arc::new(rows.map(|row| (row.source(), values.row_group_of(*row))).collect())
        });
        Arc::clone(places)
    }
}
