//! Many sorted files as one sorted table: read by range, condition, column and limit, from either end.
//!
//! ```text
//! where ─┬─ bounds, filters ─▶ rows of each file that may be asked for ─▶ windows ─┐
//!        └─ conditions of rows ────────────────────────────────────────────────────┤
//!                                  sorted files, adapted and filtered ─▶ merge ─▶ limit ─▶ batches
//! ```
//!
//! # Invariants
//! The rows are those that a merge of the files would write, for which the predicate holds, in its
//! order or exactly in reverse. A condition on a column that is no sort column is tested after the
//! merge where one row of a key stays, since it must not choose that row.
//!
//! # Cost
//! All footers. Of a file the pages that may have rows, once its first key is next. Memory: a window
//! of rows a file (`sizes`), shared out of half the limit, and the footers as they are stored.
//!
//! # Not here
//! Copying files into files (`merge`); one schema without order (`scan`).

mod ahead;
mod all_bounds;
mod bounds;
mod classes;
mod coded;
mod columns;
mod explain;
mod file;
mod fixed;
mod kept;
mod known;
mod leaves;
mod names;
mod open_group;
mod opened;
mod options;
mod part;
mod prune;
mod ranges;
mod report;
mod rows;
mod shared;
mod sizes;
mod spilled;
mod window;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arrow_array::ArrayRef;
use arrow_schema::SchemaRef;
use plait_core::key::{SortColumn, SortOrder};
use plait_core::plan::{DropOptions, OnDuplicate, ValueRule};
use plait_core::predicate::{Filter, Predicate};
use plait_core::schema::Frozen;
use plait_core::stream::{
    MergeStream, MergeStreamOptions, Reader, Source as MergeSource, Tally, Unite,
};
use plait_core::workers::{Workers, each};
use plait_core::{Error, Kind, Result};

use self::ahead::{FILES_A_THREAD, FileRows, FilesAhead, ReadsAhead};
use self::all_bounds::{BoundColumn, ColumnBounds};
use self::columns::{ReadColumns, check_present, int96_columns, resolve_order, reversed};
use self::file::{Adapted, ReadClass, ReadFile};
use self::fixed::FixedValues;
use self::known::KnownFile;
use self::leaves::places;
use self::names::ColumnNames;
use self::opened::OpenedFiles;
use self::report::ReadCounts;
use self::rows::SortedRows;
use self::shared::{Conditions, ReadShared, bound_column};
use self::sizes::WindowSizes;
use self::spilled::{SpillSpace, can_spill};
use self::window::WindowCursor;
use crate::arrow_file::FileSchema;
use crate::runtime::{Context, ScopedWorkers};
use crate::store::Stores;

pub use self::explain::ReadLeft;
pub use self::options::ReadOptions;
pub use self::report::{ReadPlan, ReadStats};

/// A sorted read: its files, and which of their rows in which order. It can be read again and again.
pub struct SortedRead {
    options: ReadOptions,
    /// Which rows are dropped, by the names of the read.
    drops: DropOptions,
    opened: Arc<OpenedFiles>,
    order: SortOrder,
    /// The columns that are given out, then those of the order and of conditions of rows.
    all: Frozen,
    /// Columns in which a file has timestamps of twelve bytes.
    int96: BTreeSet<String>,
    /// The schema of the batches.
    schema: SchemaRef,
    /// What is made of files of each schema.
    classes: Vec<Arc<ReadClass>>,
    files: Vec<Arc<ReadFile>>,
    rows_of_all: u64,
    row_groups_of_all: usize,
    files_of_all: usize,
    row_groups_skipped: usize,
    shared: Arc<ReadShared>,
    /// The conditions for which merged rows are tested.
    after: Filter,
    last: Mutex<Option<LastRead>>,
}

/// What the last read counts.
struct LastRead {
    counts: Arc<ReadShared>,
    tally: Tally,
}

impl SortedRead {
    /// Opens the files and finds out which of them may have rows.
    ///
    /// # Errors
    /// [`InvalidArgument`](plait_core::Kind::InvalidArgument) for invalid options and for
    /// files that state no order; [`UnknownColumn`](plait_core::Kind::UnknownColumn),
    /// [`SchemaConflict`](plait_core::Kind::SchemaConflict), and what is wrong with a file.
    pub fn open(options: ReadOptions, stores: &Stores, context: &Context) -> Result<Self> {
        options.check()?;
        let opened = OpenedFiles::open(&options, stores, context)?;
        Self::of(Arc::new(opened), options, context)
    }

    /// Another read of the same files, which are not opened again.
    ///
    /// # Errors
    /// As [`open`](Self::open), but for those of files.
    pub fn narrowed(&self, options: ReadOptions) -> Result<Self> {
        options.check()?;
        Self::of(Arc::clone(&self.opened), options, &self.shared.context)
    }

    fn of(opened: Arc<OpenedFiles>, options: ReadOptions, context: &Context) -> Result<Self> {
        let OpenedFiles { files, classes, planned, fixed, summary, whole, .. } = &*opened;
        let options = match planned {
            Some(planned) => planned.applied_to(options),
            None => options,
        };
        let names = ColumnNames::new(whole, classes, planned.as_ref());
        let asked = options.columns.as_ref().map(|columns| names.asked(columns)).transpose()?;
        let order = fixed.order(resolve_order(&options, &opened, &names)?)?;
        check_present(&options, &order, &opened)?;
        let order = if options.reverse { reversed(&order)? } else { order };
        let predicate = match &options.predicate {
            Some(text) => Predicate::try_parse(text)?.renamed(|path| names.path(path))?,
            None => Predicate::default(),
        };
        // The row of a key that stays must not depend on what is asked of other columns.
        let is_key = |path: &[String]| order.columns().iter().any(|column| column.path == path);
        let keeps_all = options.drops().keeps_all() && options.delete_where.is_none();
        let (before, after) = predicate.split(|path| keeps_all || is_key(path));
        let columns =
            ReadColumns::find(&options, asked.as_ref(), &order, &after, summary, &names, fixed)?;
        let conditions = (before.columns().next().is_some())
            .then(|| Conditions::find(&before, summary, fixed))
            .transpose()?;
        let after = after.bind(columns.all.schema())?;
        let drops = options.drops().renamed(|path| names.path(path))?;
        let (whole_fields, combine) = (names.whole().schema().fields(), &drops.combine);
        let is_root = |path: &[String], name: &str| path.first().is_some_and(|root| root == name);
        let is_in_key = |name: &str| order.columns().iter().any(|c| is_root(&c.path, name));
        ValueRule::find(drops.on_duplicate, combine, whole_fields, is_in_key)?;
        let drops = drops.narrowed(|name| columns.all.schema().fields().find(name).is_some());
        let threads = ScopedWorkers::of_files(options.threads, context.budget()).count();
        let mut read = Self {
            order,
            schema: columns.given,
            rows_of_all: files.iter().map(|file| file.rows()).sum(),
            row_groups_of_all: files.iter().map(|file| file.num_row_groups()).sum(),
            files_of_all: files.len(),
            row_groups_skipped: 0,
            files: Vec::new(),
            shared: Arc::new(ReadShared {
                reverse: options.reverse,
                sizes: WindowSizes::new(files.len(), options.limit, threads, context),
                conditions,
                cache: Arc::clone(&opened.cache),
                kept: Arc::clone(&opened.kept),
                counts: ReadCounts::default(),
                spill: Arc::new(SpillSpace::new(options.temp_dir.clone(), context)),
                context: context.clone(),
            }),
            after,
            int96: classes.iter().flat_map(|s| int96_columns(&columns.all, s)).collect(),
            classes: Vec::new(),
            all: columns.all,
            last: Mutex::default(),
            drops,
            opened: Arc::clone(&opened),
            options,
        };
        read.select()?;
        Ok(read)
    }

    /// Keeps the files that may have rows, by their footers.
    fn select(&mut self) -> Result<()> {
        let opened = Arc::clone(&self.opened);
        self.classes = opened
            .classes
            .iter()
            .zip(&opened.examples)
            .enumerate()
            .map(|(class, (schema, example))| {
                self.class(schema, example, opened.fixed.of_class(class)).map(Arc::new)
            })
            .collect::<Result<_>>()?;
        let rows: Vec<u64> = opened.files.iter().flat_map(|file| file.row_groups()).collect();
        let conditions = self.shared.conditions.as_ref();
        let conditions = conditions.map_or(&[][..], |conditions| conditions.filter.conditions());
        let bounds = opened.bounds.find(self.bound_columns()?, &opened.files)?;
        let may = prune::row_groups(conditions, &bounds, &rows)?;
        let mut may = may.into_iter();
        let parts = opened.parts(self.options.rows.as_ref());
        for (file, part) in opened.files.iter().zip(parts) {
            let of_file = may.by_ref().take(file.num_row_groups()).enumerate();
            let groups: Box<[usize]> = of_file.filter_map(|(g, may)| may.then_some(g)).collect();
            self.row_groups_skipped += file.num_row_groups() - groups.len();
            if groups.is_empty() || part.is_empty() {
                continue;
            }
            let Some(class) = self.classes.get(file.class) else { continue };
            let (known, class) = (Arc::clone(file), Arc::clone(class));
            let first_key = OnceLock::new();
            self.files.push(Arc::new(ReadFile { known, part, class, groups, first_key }));
        }
        let files = self.files_at_once()?;
        let workers = ScopedWorkers::of_files(self.options.threads, self.shared.context.budget());
        let (limit, threads) = (self.options.limit, workers.count());
        let mut sizes = WindowSizes::new(files, limit, threads, &self.shared.context);
        sizes.spilled_bytes.take_if(|_| !can_spill(self.all.schema().fields()));
        self.shared = Arc::new(self.shared.anew(sizes));
        Ok(())
    }

    /// Files that may have a window at a time, at most.
    fn files_at_once(&self) -> Result<usize> {
        let all = self.files.len();
        // Reads by limit or condition have few windows in any case: their files are not compared.
        let is_whole = self.options.limit.is_none() && self.shared.conditions.is_none();
        if !is_whole || all <= FEW_FILES {
            return Ok(all);
        }
        let files: Vec<&Arc<ReadFile>> = self.files.iter().collect();
        let workers =
            ScopedWorkers::of_files(self.options.threads, self.shared.context.budget()).count();
        Ok(all.min(self.depth(&files)? + workers * FILES_A_THREAD))
    }

    /// What is made of files of one class.
    fn class(
        &self,
        schema: &FileSchema,
        example: &KnownFile,
        fixed: FixedValues,
    ) -> Result<ReadClass> {
        let source = example.source_once()?;
        let conditions = self.shared.conditions.as_ref();
        let schema = schema.clone().in_units_of(&source, self.all.schema());
        let located = conditions.map(|c| c.located(&schema, &fixed, &source)).unwrap_or_default();
        let adapted = Adapted::of(&self.all, conditions, &schema)
            .and_then(|adapted| adapted.bound(&fixed))
            .map_err(|e| e.with_path(example.path()))?;
        Ok(ReadClass { schema, located, adapted, fixed })
    }

    fn bound_column(&self, frozen: &Frozen, path: &[usize]) -> Option<BoundColumn> {
        let place = |class: &Arc<ReadClass>| class.fixed.place(frozen, &class.schema, path);
        bound_column(frozen, path, self.classes.iter().map(place).collect())
    }

    /// The columns of conditions, in their order, and the first sort columns.
    fn bound_columns(&self) -> Result<Vec<BoundColumn>> {
        let mut columns = Vec::new();
        if let Some(conditions) = &self.shared.conditions {
            for condition in conditions.filter.conditions() {
                let column = self.bound_column(&conditions.frozen, condition.path());
                columns.push(column.ok_or_else(|| {
                    Error::new(Kind::Internal, "a condition has a column that is not there")
                })?);
            }
        }
        for column in self.order.plain() {
            if let Some(path) = places(self.all.schema().fields(), &column.path) {
                columns.extend(self.bound_column(&self.all, &path));
            }
            if self.equal(&column.path).is_none() {
                break;
            }
        }
        Ok(columns)
    }

    /// The schema of every batch.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Columns in which a file has timestamps of twelve bytes (INT96): moments, whatever their type.
    #[must_use]
    pub fn int96_columns(&self) -> Vec<String> {
        self.int96.iter().cloned().collect()
    }

    /// The files that their bloom filters leave. Reads of some rows ask filters when a file is next.
    fn passing<'a>(
        &self,
        files: Vec<&'a Arc<ReadFile>>,
        shared: &ReadShared,
    ) -> Result<Vec<&'a Arc<ReadFile>>> {
        let (threads, budget) = (self.options.threads, shared.context.budget());
        let workers = match files.iter().all(|file| file.known.store.is_local()) {
            true => ScopedWorkers::of_files(threads, budget),
            false => ScopedWorkers::of_objects(threads, budget),
        };
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
        let cursors =
            files.iter().map(|file| WindowCursor::new(Arc::clone(file), Arc::clone(&shared)));
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
        let mut sources: Vec<MergeSource> = sources.collect();
        if self.options.reverse {
            sources.reverse();
        }
        if sources.is_empty() {
            return Ok(Box::new(SortedRows::none(Arc::clone(&self.schema))));
        }
        let mut merge = MergeStream::try_new(
            sources,
            &self.merge_options(),
            Box::new(ScopedWorkers::new(self.options.threads)),
        )?;
        merge.bound_batches(shared.sizes.given_bytes);
        if self.after.is_empty() {
            // Conditions on merged rows may be about columns that are not given out.
            merge.give_first(self.schema.fields().len())?;
        }
        let mut leading = Leading { of: self, found: Vec::new() };
        for (file, read) in files.iter().enumerate() {
            let at = if self.options.reverse { files.len() - 1 - file } else { file };
            let key = match read.first_key.get() {
                Some(key) => key,
                None => {
                    let key = merge.first_key(&leading.of_file(read)?)?;
                    read.first_key.get_or_init(|| key)
                }
            };
            merge.begin_from(at, key)?;
        }
        let tally = merge.tally();
        let last = LastRead { counts: Arc::clone(&shared), tally };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
        let is_exact = !self.options.reverse && self.shared.conditions.is_none();
        Ok(Box::new(SortedRows::new(
            merge,
            Arc::clone(&self.schema),
            self.after.clone(),
            self.options.limit,
            is_exact,
            shared,
        )))
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

    /// The one value that is asked for of a column.
    fn equal(&self, path: &[String]) -> Option<ArrayRef> {
        let equal = &self.shared.conditions.as_ref()?.equal;
        equal.iter().find(|(column, _)| column == path).map(|(_, value)| Arc::clone(value))
    }

    /// The bounds of a sort column in all files.
    fn bounds_of(&self, column: &SortColumn) -> Result<Option<Arc<ColumnBounds>>> {
        let path = places(self.all.schema().fields(), &column.path);
        let column = path.and_then(|path| self.bound_column(&self.all, &path));
        let Some(column) = column else { return Ok(None) };
        Ok(self.opened.bounds.find(vec![column], &self.opened.files)?.pop())
    }

    /// What the last read did so far; zeros before the first.
    #[must_use]
    pub fn stats(&self) -> ReadStats {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(LastRead { counts, tally }) = &*last else { return ReadStats::default() };
        let counters = counts.context.counters();
        ReadStats {
            pages_read: counters.pages(),
            reads: counters.reads(),
            bytes_read: counters.read_bytes(),
            bytes_spilled: counters.spilled_bytes(),
            spill_error: counts.spill.error(),
            rows_dropped: tally.dropped().by_reason().into_iter().filter(|(_, n)| *n > 0).collect(),
            ..counts.counts.stats()
        }
    }
}

/// What the first keys of files begin with.
struct Leading<'a> {
    of: &'a SortedRead,
    /// The bounds of the first sort columns, as far as they were needed.
    found: Vec<Option<Arc<ColumnBounds>>>,
}

impl Leading<'_> {
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
            let rows = |group: usize| file.known.row_group_rows(group);
            let Some((first, is_all)) = bounds.first(&rows, column)? else { break };
            leading.push(first);
            if !is_all {
                break;
            }
        }
        Ok(leading)
    }
}

/// So many files are not compared: their windows are large in any case.
const FEW_FILES: usize = 32;

/// Rows that are merged at once, at least, where conditions are tested on them.
const TESTED_ROWS_MIN: usize = 1024;
