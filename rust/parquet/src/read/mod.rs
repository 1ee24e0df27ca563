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
mod batches;
mod bounds;
mod classes;
mod coded;
mod columns;
mod decode;
mod explain;
mod file;
mod fixed;
mod groups;
mod hints;
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
use plait_core::key::SortOrder;
use plait_core::plan::{DropOptions, ValueRule};
use plait_core::predicate::{Filter, Predicate};
use plait_core::schema::Frozen;
use plait_core::stream::Tally;
use plait_core::workers::Workers;
use plait_core::{Error, Kind, Result};

use self::ahead::FILES_A_THREAD;
use self::all_bounds::BoundColumn;
use self::columns::{ReadColumns, check_present, int96_columns, resolve_order, reversed};
use self::file::{Adapted, ReadClass, ReadFile};
use self::fixed::FixedValues;
use self::groups::MergeGroups;
use self::known::KnownFile;
use self::leaves::places;
use self::names::ColumnNames;
use self::opened::OpenedFiles;
use self::report::ReadCounts;
use self::shared::{Conditions, ReadShared, bound_column};
use self::sizes::WindowSizes;
use self::spilled::{SpillSpace, can_spill};
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
    /// How they are merged in two passes, if too many of them overlap for one.
    groups: Option<MergeGroups>,
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
        stores.read_again();
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
            rows_of_all: files.iter().map(|file| file.source.rows()).sum(),
            row_groups_of_all: files.iter().map(|file| file.source.num_row_groups()).sum(),
            files_of_all: files.len(),
            row_groups_skipped: 0,
            files: Vec::new(),
            groups: None,
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
        let rows: Vec<u64> =
            opened.files.iter().flat_map(|file| file.source.rows_of_groups()).collect();
        let conditions = self.shared.conditions.as_ref();
        let conditions = conditions.map_or(&[][..], |conditions| conditions.filter.conditions());
        let bounds = opened.bounds.find(self.bound_columns()?, &opened.files)?;
        let may = prune::row_groups(conditions, &bounds, &rows)?;
        let mut may = may.into_iter();
        let parts = opened.parts(self.options.rows.as_ref());
        for (file, part) in opened.files.iter().zip(parts) {
            let of_file = may.by_ref().take(file.source.num_row_groups()).enumerate();
            let groups: Box<[usize]> = of_file.filter_map(|(g, may)| may.then_some(g)).collect();
            self.row_groups_skipped += file.source.num_row_groups() - groups.len();
            if groups.is_empty() || part.is_empty() {
                continue;
            }
            let Some(class) = self.classes.get(file.class) else { continue };
            let (known, class) = (Arc::clone(file), Arc::clone(class));
            let first_key = OnceLock::new();
            self.files.push(Arc::new(ReadFile { known, part, class, groups, first_key }));
        }
        let can_spill = can_spill(self.all.schema().fields());
        let depth = self.files_at_once()?;
        self.groups = match self.rows_of_group() {
            Some(rows) if can_spill => {
                MergeGroups::find(self.files.len(), depth, rows, &self.shared.context)
            }
            _ => None,
        };
        let files = self.groups.map_or(depth, |groups| MergeGroups::IN_ONE_SHARE * groups.files);
        let workers = ScopedWorkers::of_files(self.options.threads, self.shared.context.budget());
        let (limit, threads) = (self.options.limit, workers.count());
        let mut sizes = WindowSizes::new(files, limit, threads, &self.shared.context);
        sizes.spilled_bytes.take_if(|_| !can_spill);
        self.shared = Arc::new(self.shared.anew(sizes));
        Ok(())
    }

    /// Files that may have a window at a time, at most.
    fn files_at_once(&self) -> Result<usize> {
        let all = self.files.len();
        // Reads by limit or condition have few windows in most cases: their files are compared where all
        // of them might not fit.
        let is_whole = self.options.limit.is_none() && self.shared.conditions.is_none();
        let few = if is_whole { FEW_FILES } else { self.shared.context.budget().read_files() };
        if all <= few {
            return Ok(all);
        }
        let files: Vec<&Arc<ReadFile>> = self.files.iter().collect();
        let workers =
            ScopedWorkers::of_files(self.options.threads, self.shared.context.budget()).count();
        Ok(all.min(self.depth(&files)? + workers * FILES_A_THREAD))
    }

    /// Rows of some of the files that are needed at most, if that is known without the others.
    fn rows_of_group(&self) -> Option<u64> {
        let stays_all = self.drops.keeps_all() && self.drops.delete_where.is_none();
        match self.options.limit {
            None => Some(u64::MAX),
            Some(limit) => (stays_all && self.after.is_empty()).then_some(limit),
        }
    }

    /// What is made of files of one class.
    fn class(
        &self,
        schema: &FileSchema,
        example: &KnownFile,
        fixed: FixedValues,
    ) -> Result<ReadClass> {
        let source = &example.source;
        let conditions = self.shared.conditions.as_ref();
        let schema = schema.clone().in_units_of(source, self.all.schema());
        let located = conditions.map(|c| c.located(&schema, &fixed, source)).unwrap_or_default();
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

    /// The one value that is asked for of a column.
    fn equal(&self, path: &[String]) -> Option<ArrayRef> {
        let equal = &self.shared.conditions.as_ref()?.equal;
        equal.iter().find(|(column, _)| column == path).map(|(_, value)| Arc::clone(value))
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

/// So many files are not compared: their windows are large in any case.
const FEW_FILES: usize = 32;
