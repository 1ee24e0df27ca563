//! What may be read, by footers and indexes: for whoever asks before reading, or shares a read out.
//!
//! # Invariants
//! A row that is asked for is in a file, and in a task of a plan of these files, that is said to be
//! left. The opposite need not hold.
//!
//! # Cost
//! The indexes of the columns of conditions; of tasks also a few pages of keys.
//!
//! # Not here
//! How rows are left out (`prune`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use plait_core::Result;
use plait_core::workers::each;
use serde::Serialize;

use super::SortedRead;
use super::file::{ReadClass, ReadFile};
use super::prune::RowsLeft;
use super::report::ReadPlan;
use crate::plan::{Plan, Slice};
use crate::runtime::ScopedWorkers;

/// What is left of the files of a read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReadLeft {
    /// Files that may have rows that are asked for.
    pub files: Vec<String>,
    /// All their rows.
    pub rows_of_files: u64,
    /// Rows that may be asked for.
    pub rows: u64,
    /// Whether these files all lack a column of the read, which others have.
    pub lacks_columns: bool,
}

impl SortedRead {
    /// What may be read, by the footers and indexes of all files.
    ///
    /// # Errors
    /// What is wrong with an index.
    pub fn plan(&self) -> Result<ReadPlan> {
        let mut plan = ReadPlan {
            sort_by: self.order.to_string(),
            files: self.files_of_all,
            row_groups: self.row_groups_of_all,
            row_groups_skipped: self.row_groups_skipped,
            rows: self.rows_of_all,
            groups: self.groups.map_or(0, |groups| self.files.len().div_ceil(groups.files)),
            window_bytes: self.shared.sizes.batch_bytes,
            conditions_of_files: self
                .shared
                .conditions
                .as_ref()
                .map_or(0, |conditions| conditions.filter.conditions().len()),
            conditions_of_rows: self.after.conditions().len(),
            ..ReadPlan::default()
        };
        let mut left_files = Vec::new();
        for (file, left) in self.left()? {
            let by_footer = file.known.source.num_row_groups() - file.groups.len();
            plan.row_groups_skipped += left.row_groups_skipped - by_footer;
            plan.pages += left.pages;
            plan.pages_skipped += left.pages_skipped;
            plan.rows_left += left.rows.iter().map(|range| range.end - range.start).sum::<u64>();
            if !left.rows.is_empty() {
                left_files.push(file);
            }
        }
        plan.files_skipped = self.files_of_all - left_files.len();
        plan.depth = self.depth(&left_files)?;
        Ok(plan)
    }

    /// How many files overlap at most in their first sort column; all, where one does not say.
    pub(super) fn depth(&self, files: &[&Arc<ReadFile>]) -> Result<usize> {
        let Some(column) = self.order.plain().first() else { return Ok(files.len()) };
        let Some(bounds) = self.bounds_of(column)? else { return Ok(files.len()) };
        let mut ends = Vec::with_capacity(2 * files.len());
        for file in files {
            let bounds = bounds.of_file(file.known.id.index());
            let rows = |group: usize| file.known.source.row_group_rows(group);
            let Some(range) = bounds.range(&rows, column)? else { return Ok(files.len()) };
            ends.push((range.0, 0));
            ends.push((range.1, 1));
        }
        ends.sort_unstable();
        let (mut open, mut most) = (0_usize, 0);
        for (_, end) in ends {
            if end == 0 {
                open += 1
            } else {
                open -= 1
            }
            most = most.max(open);
        }
        Ok(most)
    }

    /// The files that may have rows that are asked for.
    ///
    /// # Errors
    /// What is wrong with an index.
    pub fn files_left(&self) -> Result<ReadLeft> {
        let mut all = ReadLeft::default();
        let mut classes: Vec<&Arc<ReadClass>> = Vec::new();
        for (file, left) in self.left()?.into_iter().filter(|(_, left)| !left.rows.is_empty()) {
            if !classes.iter().any(|class| Arc::ptr_eq(class, &file.class)) {
                classes.push(&file.class);
            }
            all.files.push(file.known.path().to_owned());
            all.rows_of_files += file.known.source.rows();
            all.rows += left.rows.iter().map(|range| range.end - range.start).sum::<u64>();
        }
        let mut has = vec![false; self.all.schema().fields().len()];
        for class in classes {
            let places = self.all.places(class.schema.schema().fields());
            has.iter_mut().zip(places).for_each(|(has, place)| *has |= place.is_some());
        }
        all.lacks_columns = has.contains(&false);
        Ok(all)
    }

    /// The indices of the tasks of `plan`, a plan of some of the files, that may have such rows.
    ///
    /// # Errors
    /// As [`Plan::from_json`]; what is wrong with an index.
    pub fn tasks_left(&self, plan: &str) -> Result<Vec<u64>> {
        let plan = Plan::from_json(plan)?;
        let left = self.left()?;
        let left: BTreeMap<&str, &[Range<u64>]> =
            left.iter().map(|(file, left)| (file.known.path(), left.rows.as_slice())).collect();
        let left = plan.sources.iter().map(|source| {
            let source = source?;
            Ok(left.get(source.path.as_str()).copied().unwrap_or_default())
        });
        let left: Vec<&[Range<u64>]> = left.collect::<Result<_>>()?;
        let has_rows = |slice: &Slice| {
            let (from, to) = (slice.start.0, slice.end.1);
            let rows = left.get(slice.source).copied().unwrap_or_default();
            rows.iter().any(|rows| rows.start < to && rows.end > from)
        };
        let tasks = plan.tasks.iter().filter(|task| task.slices.iter().any(has_rows));
        Ok(tasks.map(|task| task.index).collect())
    }

    /// What is left of each file.
    fn left(&self) -> Result<Vec<(&Arc<ReadFile>, RowsLeft)>> {
        let are_local = self.files.iter().all(|file| file.known.source.store.is_local());
        let workers = ScopedWorkers::readers(are_local, self.options.threads, &self.shared.context);
        let left = each(&workers, self.files.len(), |i| self.files[i].left(&self.shared))?;
        Ok(self.files.iter().zip(left).collect())
    }
}
