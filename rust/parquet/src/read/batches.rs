//! The batches of a read: its files as sources of a merge.
//!
//! # Not here
//! Which files may have rows (`mod`); rows of one file (`window`); the merge (`plait_core::stream`).

use std::sync::{Arc, PoisonError};

use arrow_array::ArrayRef;
use plait_core::Result;
use plait_core::key::SortColumn;
use plait_core::plan::{DropOptions, OnDuplicate};
use plait_core::stream::{MergeStream, MergeStreamOptions, Reader, Source as MergeSource, Unite};
use plait_core::workers::{Workers, each};

use super::ahead::{AheadWorkers, FILES_A_THREAD, FileRows, FilesAhead, ReadsAhead};
use super::all_bounds::ColumnBounds;
use super::file::ReadFile;
use super::groups::{MergeGroups, RowsOfGroup};
use super::leaves::places;
use super::rows::SortedRows;
use super::shared::ReadShared;
use super::window::WindowCursor;
use super::{LastRead, SortedRead};
use crate::runtime::ScopedWorkers;

impl SortedRead {
    /// The files that their bloom filters leave. Reads of some rows ask filters when a file is next.
    fn passing<'a>(
        &self,
        files: Vec<&'a Arc<ReadFile>>,
        shared: &ReadShared,
    ) -> Result<Vec<&'a Arc<ReadFile>>> {
        let are_local = files.iter().all(|file| file.known.source.store.is_local());
        let workers = ScopedWorkers::readers(are_local, self.options.threads, &shared.context);
        let is_few = files.len() <= workers.count() * FILES_A_THREAD;
        if self.options.limit.is_some() || shared.conditions.is_none() || is_few {
            return Ok(files);
        }
        let passes = each(&workers, files.len(), |i| files[i].passes_filters(shared))?;
        Ok(files.into_iter().zip(passes).filter(|(_, passes)| *passes).map(|(f, _)| f).collect())
    }

    /// The batches, from the first row on.
    ///
    /// # Errors
    /// As [`MergeStream::try_new`], and what is wrong with bloom filters of files.
    pub fn batches(&self) -> Result<Reader> {
        let shared = Arc::new(self.shared.anew(self.shared.sizes));
        shared.context.counters().start_over();
        let files = self.files.iter().filter(|file| !file.is_ruled_out(&shared));
        let files = self.passing(files.collect(), &shared)?;
        if files.is_empty() {
            return Ok(Box::new(SortedRows::none(Arc::clone(&self.schema))));
        }
        let mut files: Vec<Arc<ReadFile>> = files.into_iter().cloned().collect();
        if self.options.reverse {
            files.reverse();
        }
        let groups = self.groups.filter(|groups| groups.files < files.len());
        let mut merge = match groups {
            Some(groups) => self.merge_groups(&files, groups, &shared)?,
            None => {
                self.merge_files(&files, &shared, &self.merge_options(), &mut Leading::of(self))?
            }
        };
        if self.after.is_empty() {
            // Conditions on merged rows may be about columns that are not given out.
            merge.give_first(self.schema.fields().len())?;
        }
        let tally = merge.tally();
        let last = LastRead { counts: Arc::clone(&shared), tally };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
        let is_exact =
            !self.options.reverse && self.shared.conditions.is_none() && groups.is_none();
        Ok(Box::new(SortedRows::new(
            merge,
            Arc::clone(&self.schema),
            self.after.clone(),
            self.options.limit,
            is_exact,
            shared,
        )))
    }

    /// The merge of `files`, in the order of the read.
    fn merge_files(
        &self,
        files: &[Arc<ReadFile>],
        shared: &Arc<ReadShared>,
        options: &MergeStreamOptions,
        leading: &mut Leading<'_>,
    ) -> Result<MergeStream> {
        let cursors =
            files.iter().map(|file| WindowCursor::new(Arc::clone(file), Arc::clone(shared)));
        let workers = ScopedWorkers::of_files(self.options.threads, shared.context.budget());
        let ahead = Arc::new(FilesAhead::new(
            cursors.collect(),
            workers,
            match (self.options.limit, shared.sizes.reads_ahead) {
                (Some(_), _) => ReadsAhead::Nothing,
                (None, false) => ReadsAhead::NextFiles,
                (None, true) => ReadsAhead::NextRows,
            },
            &shared.context,
        ));
        let sources = files.iter().enumerate().map(|(file, read)| MergeSource {
            reader: Box::new(FileRows {
                all: Arc::clone(&ahead),
                file,
                schema: Arc::clone(self.all.schema()),
            }),
            path: Some(read.known.path().to_owned()),
        });
        let workers = ScopedWorkers::new(self.options.threads);
        let workers = Box::new(AheadWorkers { workers, files: Arc::clone(&ahead) });
        let mut merge = self.merge(sources.collect(), shared, options, workers)?;
        for (source, file) in files.iter().enumerate() {
            let key = match file.first_key.get() {
                Some(key) => key,
                None => {
                    let key = merge.first_key(&leading.of_file(file)?)?;
                    file.first_key.get_or_init(|| key)
                }
            };
            merge.begin_from(source, key)?;
        }
        Ok(merge)
    }

    /// The merge of `files`, of which groups are merged first.
    fn merge_groups(
        &self,
        files: &[Arc<ReadFile>],
        groups: MergeGroups,
        shared: &Arc<ReadShared>,
    ) -> Result<MergeStream> {
        let options = self.merge_options();
        let all_rows = MergeStreamOptions { drops: DropOptions::default(), ..options.clone() };
        let mut leading = Leading::of(self);
        let (mut sources, mut first_keys) = (Vec::new(), Vec::new());
        for group in files.chunks(groups.files) {
            let merge = self.merge_files(group, shared, &all_rows, &mut leading)?;
            // A file of which it is not known where it begins comes first.
            let keys = group.iter().map(|file| file.first_key.get().cloned().unwrap_or_default());
            first_keys.push(keys.min().unwrap_or_default());
            let first = group.first().map_or("", |file| file.known.path());
            sources.push(MergeSource {
                reader: Box::new(RowsOfGroup::new(merge, groups, shared)),
                path: Some(format!("{first} and {} more", group.len() - 1)),
            });
        }
        let workers = Box::new(ScopedWorkers::new(self.options.threads));
        let mut merge = self.merge(sources, shared, &options, workers)?;
        for (source, key) in first_keys.iter().enumerate() {
            merge.begin_from(source, key)?;
        }
        Ok(merge)
    }

    fn merge(
        &self,
        sources: Vec<MergeSource>,
        shared: &ReadShared,
        options: &MergeStreamOptions,
        workers: Box<dyn Workers>,
    ) -> Result<MergeStream> {
        let mut merge = MergeStream::try_new(sources, options, workers)?;
        let merges = if self.groups.is_some() { MergeGroups::IN_ONE_SHARE } else { 1 };
        merge.bound_batches(shared.sizes.given_bytes / merges);
        Ok(merge)
    }

    fn merge_options(&self) -> MergeStreamOptions {
        let mut drops = self.drops.clone();
        if self.options.reverse {
            drops.on_duplicate = match drops.on_duplicate {
                OnDuplicate::KeepFirst => OnDuplicate::KeepLast,
                OnDuplicate::KeepLast => OnDuplicate::KeepFirst,
                other => other,
            };
        }
        let rows = self.options.batch_rows;
        let limit = self.options.limit.and_then(|limit| usize::try_from(limit).ok());
        // Of rows that are tested once merged, it is not known how many are needed.
        let least = if self.after.is_empty() { 1 } else { TESTED_ROWS_MIN };
        MergeStreamOptions {
            order: self.order.clone(),
            batch_rows: limit.map_or(rows, |limit| rows.min(limit.max(least))),
            assume_sorted: false,
            // Which files may lack them was decided when they were opened.
            unite: Unite { missing_keys: true, ..Unite::default() },
            drops,
        }
    }

    /// The bounds of a sort column in all files.
    pub(super) fn bounds_of(&self, column: &SortColumn) -> Result<Option<Arc<ColumnBounds>>> {
        let path = places(self.all.schema().fields(), &column.path);
        let column = path.and_then(|path| self.bound_column(&self.all, &path));
        let Some(column) = column else { return Ok(None) };
        Ok(self.opened.bounds.find(vec![column], &self.opened.files)?.pop())
    }
}

/// What the first keys of files begin with.
struct Leading<'a> {
    of: &'a SortedRead,
    /// The bounds of the first sort columns, as far as they were needed.
    found: Vec<Option<Arc<ColumnBounds>>>,
}

impl<'a> Leading<'a> {
    fn of(of: &'a SortedRead) -> Self {
        Self { of, found: Vec::new() }
    }

    /// Values of the first sort columns of a file before which it has no key: up to the first column
    /// that has several values.
    fn of_file(&mut self, file: &ReadFile) -> Result<Vec<ArrayRef>> {
        let mut leading = Vec::new();
        for (place, column) in self.of.order.plain().iter().enumerate() {
            if let Some(value) = self.of.equal(&column.path) {
                leading.push(value);
                continue;
            }
            while self.found.len() <= place {
                let next = self.of.order.plain().get(self.found.len());
                self.found
                    .push(next.map(|column| self.of.bounds_of(column)).transpose()?.flatten());
            }
            let Some(bounds) = self.found.get(place).and_then(Option::as_ref) else { break };
            // A column that the file lacks is null: its bounds are not known.
            let bounds = bounds.of_file(file.known.id.index());
            let rows = |group: usize| file.known.source.row_group_rows(group);
            let Some((first, is_all)) = bounds.first(&rows, column)? else { break };
            leading.push(first);
            if !is_all {
                break;
            }
        }
        Ok(leading)
    }
}

/// Rows that are merged at once, at least, where conditions are tested on them.
const TESTED_ROWS_MIN: usize = 1024;
