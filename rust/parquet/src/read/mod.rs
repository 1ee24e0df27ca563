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
//! of rows a file (`sizes`), shared out of a third of the limit, and the footers.
//!
//! # Not here
//! Copying files into files (`merge`); one schema without order (`scan`).

mod ahead;
mod bounds;
mod file;
mod options;
mod prune;
mod report;
mod rows;
mod sizes;

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::ArrayRef;
use arrow_schema::{DataType, Fields, Schema, SchemaRef};
use plait_core::key::{Nulls, SortColumn, SortOrder};
use plait_core::plan::OnDuplicate;
use plait_core::predicate::{Filter, Predicate};
use plait_core::schema::{Class, Frozen, Request, Summary, freeze};
use plait_core::stream::{
    MergeStream, MergeStreamOptions, Source as MergeSource, Tally, Unite, check_keys,
};
use plait_core::{Error, Kind, Result};

use self::ahead::{Ahead, FileReader};
use self::bounds::FileLeaf;
use self::file::{FileCursor, ReadFile, Tested};
use self::prune::Located;
use self::report::ReadCounts;
use self::rows::Rows;
use self::sizes::WindowSizes;
use crate::arrow_file::FileSchema;
use crate::files::open_sources;
use crate::leaf::LocationCache;
use crate::options::MissingOption;
use crate::order;
use crate::runtime::{Context, MemoryStage, ScopedWorkers};
use crate::schema::reconcile;
use crate::source::Source;
use crate::store::Stores;

pub use self::options::ReadOptions;
pub use self::report::{ReadPlan, ReadStats};

/// A sorted read: its files, and which of their rows in which order. It can be read again and again.
pub struct SortedRead {
    options: ReadOptions,
    order: SortOrder,
    /// The columns that are given out, then those of the order and of conditions of rows.
    all: Frozen,
    /// The schema of the batches.
    schema: SchemaRef,
    files: Vec<Arc<ReadFile>>,
    rows_of_all: u64,
    row_groups_of_all: usize,
    files_of_all: usize,
    row_groups_skipped: usize,
    shared: Arc<Shared>,
    /// The conditions for which merged rows are tested.
    after: Filter,
    last: Mutex<Option<LastRead>>,
}

/// What the last read counts.
struct LastRead {
    counts: Arc<Shared>,
    tally: Tally,
}

/// What all files of a read share.
pub(crate) struct Shared {
    reverse: bool,
    sizes: WindowSizes,
    conditions: Option<Conditions>,
    cache: Arc<LocationCache>,
    counts: ReadCounts,
    context: Context,
}

/// The conditions by which files are read.
#[derive(Clone)]
struct Conditions {
    /// The columns they are about.
    frozen: Frozen,
    filter: Filter,
    /// Columns of which one value is asked for.
    equal: Vec<(Vec<String>, ArrayRef)>,
}

impl Conditions {
    /// Where the columns of each condition are in a file.
    fn located(&self, file: &ReadFile) -> Vec<Located<'_>> {
        self.located_in(&file.schema)
    }

    fn located_in(&self, schema: &FileSchema) -> Vec<Located<'_>> {
        let conditions = self.filter.conditions().iter();
        let leaf = |path| file_leaf(&self.frozen, schema.schema().fields(), path);
        conditions.map(|condition| Located { condition, leaf: leaf(condition.path()) }).collect()
    }
}

impl SortedRead {
    /// Opens the files and finds out which of them may have rows.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] for options that make no sense and for files that state no order;
    /// [`Kind::UnknownColumn`], [`Kind::SchemaConflict`], and what is wrong with a file.
    pub fn open(options: ReadOptions, stores: &Stores, context: &Context) -> Result<Self> {
        options.check()?;
        let sources = open_sources(&options.sources, 0, options.threads, stores, context)?;
        if sources.is_empty() {
            return Err(Error::new(Kind::InvalidArgument, "there are no files to read")
                .with_hint("name at least one file, folder or glob that has some"));
        }
        let schemas = sources.iter().map(|s| FileSchema::of(s)).collect::<Result<Vec<_>>>()?;
        let summary = summary(&sources, &schemas);
        let whole = freeze(&summary, &Request::default())?;
        let order = resolve_order(&options, &sources, &whole, &schemas)?;
        check_present(&options, &order, &whole, &sources, &schemas)?;
        let order = if options.reverse { reversed(&order)? } else { order };
        let predicate = match &options.predicate {
            Some(text) => renamed(Predicate::try_parse(text)?, &whole, &schemas)?,
            None => Predicate::default(),
        };
        // The row of a key that stays must not depend on what is asked of other columns.
        let is_key = |path: &[String]| order.columns().iter().any(|column| column.path == path);
        let keeps_all = options.drops().keeps_all() && options.delete_where.is_none();
        let (before, after) = predicate.split(|path| keeps_all || is_key(path));
        let columns = Columns::find(&options, &order, &after, &summary, &whole, &schemas)?;
        let conditions = (before.columns().next().is_some())
            .then(|| Conditions::find(&before, &summary))
            .transpose()?;
        let after = after.bind(columns.all.schema())?;
        let budget = context.budget();
        let mut read = Self {
            order,
            schema: columns.given,
            rows_of_all: sources.iter().map(|source| source.rows()).sum(),
            row_groups_of_all: sources.iter().map(|source| source.num_row_groups()).sum(),
            files_of_all: sources.len(),
            row_groups_skipped: 0,
            files: Vec::new(),
            shared: Arc::new(Shared {
                reverse: options.reverse,
                sizes: WindowSizes::new(sources.len(), options.limit, context),
                conditions,
                cache: Arc::new(LocationCache::new(
                    context,
                    budget.bytes(MemoryStage::PageLocations),
                )),
                counts: ReadCounts::default(),
                context: context.clone(),
            }),
            after,
            all: columns.all,
            last: Mutex::default(),
            options,
        };
        read.select(sources, schemas)?;
        Ok(read)
    }

    /// Keeps the files that may have rows, by their footers.
    fn select(&mut self, sources: Vec<Arc<Source>>, schemas: Vec<FileSchema>) -> Result<()> {
        let mut files = Vec::with_capacity(sources.len());
        // Files of one schema share their adapters.
        let mut adapters: Vec<(SchemaRef, Adapted)> = Vec::new();
        for (source, schema) in sources.into_iter().zip(schemas) {
            let schema = schema.in_units_of(&source, self.all.schema());
            let located =
                self.shared.conditions.as_ref().map(|c| c.located_in(&schema)).unwrap_or_default();
            let groups =
                prune::row_groups(&source, &located).map_err(|e| e.with_path(source.path()))?;
            self.row_groups_skipped += source.num_row_groups() - groups.len();
            if groups.is_empty() {
                continue;
            }
            let known =
                adapters.iter().find(|(known, _)| known.fields() == schema.schema().fields());
            let adapted = match known {
                Some((_, adapted)) => adapted.clone(),
                None => {
                    let adapted =
                        Adapted::of(self, &schema).map_err(|e| e.with_path(source.path()))?;
                    adapters.push((Arc::clone(schema.schema()), adapted.clone()));
                    adapted
                }
            };
            let Adapted { leaves, adapter, tested } = adapted;
            let tested = tested.map(|(leaves, adapter)| Tested { leaves, adapter });
            files.push(Arc::new(ReadFile { source, schema, leaves, adapter, tested }));
        }
        self.files = files;
        let sizes = WindowSizes::new(self.files.len(), self.options.limit, &self.shared.context);
        self.shared = Arc::new(self.shared.anew(sizes));
        Ok(())
    }

    /// The schema of every batch.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The batches, from the first row on.
    ///
    /// # Errors
    /// As [`MergeStream::try_new`].
    pub fn batches(&self) -> Result<crate::scan::SourceStream> {
        let shared = Arc::new(self.shared.anew(self.shared.sizes));
        shared.context.counters().start_over();
        let cursors =
            self.files.iter().map(|file| FileCursor::new(Arc::clone(file), Arc::clone(&shared)));
        let workers = ScopedWorkers::of_files(self.options.threads, shared.context.budget());
        let ahead = Arc::new(Ahead::new(
            cursors.collect(),
            workers,
            shared.sizes.reads_ahead && self.options.limit.is_none(),
            &shared.context,
        ));
        let sources = self.files.iter().enumerate().map(|(file, read)| MergeSource {
            reader: Box::new(FileReader {
                all: Arc::clone(&ahead),
                file,
                schema: Arc::clone(self.all.schema()),
            }),
            path: Some(read.source.path().to_owned()),
        });
        let mut sources: Vec<MergeSource> = sources.collect();
        if self.options.reverse {
            sources.reverse();
        }
        if sources.is_empty() {
            return Ok(Box::new(Rows::none(Arc::clone(&self.schema))));
        }
        let mut merge = MergeStream::try_new(
            sources,
            &self.merge_options(),
            Box::new(ScopedWorkers::new(self.options.threads)),
        )?;
        for (file, read) in self.files.iter().enumerate() {
            let at = if self.options.reverse { self.files.len() - 1 - file } else { file };
            merge.begin_from(at, &self.leading(read)?)?;
        }
        let tally = merge.tally();
        let last = LastRead { counts: Arc::clone(&shared), tally };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
        let is_exact = !self.options.reverse && self.shared.conditions.is_none();
        Ok(Box::new(Rows::new(
            merge,
            Arc::clone(&self.schema),
            self.after.clone(),
            self.options.limit,
            is_exact,
            shared,
        )))
    }

    fn merge_options(&self) -> MergeStreamOptions {
        let mut drops = self.options.drops();
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

    /// Values of the first sort columns of a file before which it has no key: up to the first column
    /// that has several values.
    fn leading(&self, file: &ReadFile) -> Result<Vec<ArrayRef>> {
        let mut leading = Vec::new();
        for column in self.order.columns() {
            if let Some(value) = self.equal(&column.path) {
                leading.push(value);
                continue;
            }
            let Some((first, is_all)) = self.first_value(column, file)? else { break };
            leading.push(first);
            if !is_all {
                break;
            }
        }
        Ok(leading)
    }

    /// The one value that is asked for of a column.
    fn equal(&self, path: &[String]) -> Option<ArrayRef> {
        let equal = &self.shared.conditions.as_ref()?.equal;
        equal.iter().find(|(column, _)| column == path).map(|(_, value)| Arc::clone(value))
    }

    /// The bound of a sort column of a file that comes first, and whether it is the only value.
    fn first_value(
        &self,
        column: &SortColumn,
        file: &ReadFile,
    ) -> Result<Option<(ArrayRef, bool)>> {
        let Some(path) = places(self.all.schema().fields(), &column.path) else { return Ok(None) };
        let Some(leaf) = file_leaf(&self.all, file.schema.schema().fields(), &path) else {
            return Ok(None);
        };
        leaf.first(&file.source, column)
    }

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
        for file in &self.files {
            let left = file.left(&self.shared)?;
            let known =
                self.shared.conditions.as_ref().map(|c| c.located(file)).unwrap_or_default();
            let by_footer =
                file.source.num_row_groups() - prune::row_groups(&file.source, &known)?.len();
            plan.row_groups_skipped += left.row_groups_skipped - by_footer;
            plan.pages += left.pages;
            plan.pages_skipped += left.pages_skipped;
            plan.rows_left += left.rows.iter().map(|range| range.end - range.start).sum::<u64>();
            if !left.rows.is_empty() {
                left_files.push(Arc::clone(file));
            }
        }
        plan.files_skipped = self.files_of_all - left_files.len();
        plan.depth = self.depth(&left_files)?;
        Ok(plan)
    }

    /// How many files overlap at most in their first sort column; all, where one does not say.
    fn depth(&self, files: &[Arc<ReadFile>]) -> Result<usize> {
        let Some(column) = self.order.columns().first() else { return Ok(files.len()) };
        let Some(path) = places(self.all.schema().fields(), &column.path) else {
            return Ok(files.len());
        };
        let mut ends = Vec::with_capacity(2 * files.len());
        for file in files {
            let leaf = file_leaf(&self.all, file.schema.schema().fields(), &path);
            let Some(range) =
                leaf.map(|leaf| leaf.range(&file.source, column)).transpose()?.flatten()
            else {
                return Ok(files.len());
            };
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
            rows_dropped: tally.dropped().by_reason().into_iter().filter(|(_, n)| *n > 0).collect(),
            ..counts.counts.stats()
        }
    }
}

impl Shared {
    /// The same for another read, with nothing counted.
    fn anew(&self, sizes: WindowSizes) -> Self {
        Self {
            reverse: self.reverse,
            sizes,
            conditions: self.conditions.clone(),
            cache: Arc::clone(&self.cache),
            counts: ReadCounts::default(),
            context: self.context.clone(),
        }
    }
}

/// Rows that are merged at once, at least, where conditions are tested on them.
const TESTED_ROWS_MIN: usize = 1024;

/// How files of one schema become rows of the read.
#[derive(Clone)]
struct Adapted {
    leaves: Vec<usize>,
    adapter: Arc<plait_core::schema::Adapter>,
    tested: Option<(Vec<usize>, Arc<plait_core::schema::Adapter>)>,
}

impl Adapted {
    fn of(read: &SortedRead, schema: &FileSchema) -> Result<Self> {
        let of = |frozen: &Frozen| -> Result<_> {
            let own = schema.schema();
            let leaves = frozen.leaves(own);
            let fields = read_fields(own.fields(), &leaves);
            Ok((leaves, Arc::new(frozen.adapter(&Schema::new(fields))?)))
        };
        let (leaves, adapter) = of(&read.all)?;
        let conditions = read.shared.conditions.as_ref();
        let tested = conditions.map(|conditions| of(&conditions.frozen)).transpose()?;
        Ok(Self { leaves, adapter, tested })
    }
}

impl Conditions {
    fn find(predicate: &Predicate, summary: &Summary) -> Result<Self> {
        let columns = predicate.columns().map(selected).collect();
        let frozen = freeze(summary, &Request { columns: Some(columns), ..Request::default() })?;
        let filter = predicate.bind(frozen.schema())?;
        let conditions = predicate.columns().zip(filter.conditions());
        let equal = conditions.filter_map(|(path, condition)| match condition.equals() {
            [value] => Some((path.to_vec(), Arc::clone(value))),
            _ => None,
        });
        Ok(Self { equal: equal.collect(), frozen, filter })
    }
}

/// The columns of a read.
struct Columns {
    all: Frozen,
    given: SchemaRef,
}

impl Columns {
    /// Those that are asked for, then those that the order, the rule of duplicates and conditions of
    /// rows need.
    fn find(
        options: &ReadOptions,
        order: &SortOrder,
        after: &Predicate,
        summary: &Summary,
        whole: &Frozen,
        schemas: &[FileSchema],
    ) -> Result<Self> {
        let Some(asked) = &options.columns else {
            return Ok(Self { given: Arc::clone(whole.schema()), all: whole.clone() });
        };
        let select = |columns: Vec<String>| {
            freeze(summary, &Request { columns: Some(columns), ..Request::default() })
        };
        let given = match asked.is_empty() {
            true => Arc::new(Schema::empty()),
            false => Arc::clone(select(asked.clone())?.schema()),
        };
        let mut needed: Vec<Vec<String>> =
            order.columns().iter().map(|column| column.path.clone()).collect();
        needed.extend(after.columns().map(<[String]>::to_vec));
        let own: Vec<SchemaRef> = schemas.iter().map(|s| Arc::clone(s.schema())).collect();
        for name in [&options.version_by, &options.delete_where].into_iter().flatten() {
            for column in SortOrder::try_parse(name)?.columns() {
                needed.push(whole.path(&own, &column.path)?);
            }
        }
        let is_there = |path: &Vec<String>| places(given.fields(), path).is_some();
        let mut columns = asked.clone();
        columns.extend(needed.iter().filter(|path| !is_there(path)).map(|path| selected(path)));
        Ok(Self { all: select(columns)?, given })
    }
}

fn summary(sources: &[Arc<Source>], schemas: &[FileSchema]) -> Summary {
    let mut summary = Summary::default();
    for (source, schema) in sources.iter().zip(schemas) {
        summary.add(Class {
            fields: schema.schema().fields().clone(),
            first: source.path().to_owned(),
            sources: 1,
            has_rows: source.rows() > 0,
        });
    }
    summary
}

/// The order that is asked for, or the one that the files state, by the names of all files.
fn resolve_order(
    options: &ReadOptions,
    sources: &[Arc<Source>],
    whole: &Frozen,
    schemas: &[FileSchema],
) -> Result<SortOrder> {
    let order = match &options.sort_by {
        Some(text) => SortOrder::try_parse(text)?,
        // The rows of one file have an order in any case: that in which they lie.
        None if sources.len() == 1 && order::claimed(&sources[0])?.is_none() => SortOrder::empty(),
        None => {
            let footers: Vec<_> =
                sources.iter().map(|s| (s.path(), s.meta.file_metadata())).collect();
            let unite = Unite { missing_keys: true, ..Unite::default() };
            order::from_sources(sources, &reconcile(&footers, &unite)?)?
        }
    };
    let own: Vec<SchemaRef> = schemas.iter().map(|s| Arc::clone(s.schema())).collect();
    let columns = order
        .columns()
        .iter()
        .map(|column| Ok(SortColumn { path: whole.path(&own, &column.path)?, ..column.clone() }));
    SortOrder::try_new(columns.collect::<Result<_>>()?)
}

/// Refuses files without a sort column, unless their keys may be null.
fn check_present(
    options: &ReadOptions,
    order: &SortOrder,
    whole: &Frozen,
    sources: &[Arc<Source>],
    schemas: &[FileSchema],
) -> Result<()> {
    if matches!(options.missing_keys, MissingOption::Null) {
        return Ok(());
    }
    let lacks = |i: usize, column: usize| {
        let path = order.columns().get(column).map(|column| &column.path);
        let path = path.and_then(|path| places(whole.schema().fields(), path));
        path.is_some_and(|path| file_leaf(whole, schemas[i].schema().fields(), &path).is_none())
    };
    check_keys(order, sources.len(), lacks, |i| Some(sources[i].path().to_owned()))
}

/// A predicate by the names of all files.
fn renamed(predicate: Predicate, whole: &Frozen, schemas: &[FileSchema]) -> Result<Predicate> {
    let own: Vec<SchemaRef> = schemas.iter().map(|s| Arc::clone(s.schema())).collect();
    predicate.renamed(|path| whole.path(&own, path))
}

/// The order of the rows from the last to the first.
fn reversed(order: &SortOrder) -> Result<SortOrder> {
    let columns = order.columns().iter().map(|column| SortColumn {
        descending: !column.descending,
        nulls: match column.nulls {
            Nulls::First => Nulls::Last,
            Nulls::Last => Nulls::First,
        },
        ..column.clone()
    });
    SortOrder::try_new(columns.collect())
}

/// A path as `columns` takes it.
fn selected(path: &[String]) -> String {
    match path {
        [name] => name.clone(),
        path => path.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join("."),
    }
}

/// Places of a column from the root to the leaf.
fn places(mut fields: &Fields, path: &[String]) -> Option<Vec<usize>> {
    let mut found = Vec::with_capacity(path.len());
    for (depth, name) in path.iter().enumerate() {
        let (place, field) = fields.find(name)?;
        found.push(place);
        match field.data_type() {
            DataType::Struct(inner) => fields = inner,
            _ if depth + 1 == path.len() => {}
            _ => return None,
        }
    }
    Some(found)
}

/// Where a file has the column at `path` of the schema of all; none if it lacks it.
fn file_leaf(frozen: &Frozen, file: &Fields, path: &[usize]) -> Option<FileLeaf> {
    let (mut from, mut to) = (file, frozen.schema().fields());
    let mut places = frozen.places(from);
    let mut leaf = 0;
    for (depth, at) in path.iter().enumerate() {
        let own = (*places.get(*at)?)?;
        leaf += from.iter().take(own).map(|field| leaf_count(field.data_type())).sum::<usize>();
        let (field, target) = (from.get(own)?, to.get(*at)?);
        if depth + 1 == path.len() {
            let data_type = target.data_type().clone();
            return Some(FileLeaf { leaf, field: field.as_ref().clone(), data_type });
        }
        (from, to) = match (field.data_type(), target.data_type()) {
            (DataType::Struct(from), DataType::Struct(to)) => (from, to),
            _ => return None,
        };
        places = frozen.members(from, to);
    }
    None
}

/// Leaves of a column in Parquet.
fn leaf_count(data_type: &DataType) -> usize {
    match data_type {
        DataType::Struct(fields) => fields.iter().map(|f| leaf_count(f.data_type())).sum(),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => leaf_count(field.data_type()),
        _ => 1,
    }
}

/// The fields of batches of some leaves: others are left out, structs that lose all of theirs too.
fn read_fields(fields: &Fields, leaves: &[usize]) -> Fields {
    fields.filter_leaves(|leaf, _| leaves.contains(&leaf))
}
