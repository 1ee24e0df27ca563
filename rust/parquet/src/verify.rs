//! Checks anybody's files: sorted, disjoint, readable, and with the rows of other files.
//!
//! ```text
//! files   every key compared with the one before   ranges disjoint   all pages decoded, hashed
//! against                                                            all pages decoded, hashed
//! ```
//!
//! # Invariants
//! Problems are listed, not thrown: an error means that a file could not be read at all.
//!
//! # Not here
//! Repairing.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use plait_core::key::{ShownValue, SortOrder, render};
use plait_core::plan::{Disorder, Merge, OrderCheck, Stop};
use plait_core::stream::Unite;
use plait_core::workers::Workers;
use plait_core::{Error, Kind, Result};
use plait_core::{Runs, SourceId};
use serde::{Deserialize, Serialize};

use crate::content;
use crate::files::open_sources;
use crate::keys::{KeyLeaves, KeyReader};
use crate::leaf::{LocationCache, RowsAhead, SourceRows, output_leaves, shared_rows};
use crate::options::{check_memory_limit, check_threads};
use crate::order::{from_sources, key_leaves, lacks, renamed};
use crate::plan::key_values;
use crate::report::{counted, sorted_by};
use crate::runtime::{Context, MemoryStage, ScopedWorkers, Stage};
use crate::schema::reconcile;
use crate::source::Source;
use crate::store::Stores;

/// Rows of keys compared at once.
const KEY_ROWS: usize = 4096;
/// Rows whose keys one thread reads, and that are requested together, where there are so many.
const AHEAD_ROWS: Range<u64> = 1 << 16..1 << 20;

/// What to verify.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VerifyOptions {
    /// Files, folders, globs, URLs.
    pub files: Vec<String>,
    /// Files with the rows that `files` should have, in any order.
    pub against: Option<Vec<String>>,
    /// Sort order; absent = from the files. The empty order compares rows only.
    pub sort_by: Option<String>,
    /// Whether keys of files may overlap, as those of the files of a table do.
    pub may_overlap: bool,
    /// Threads; all processors if absent.
    pub threads: Option<usize>,
    /// Bytes of memory to stay within.
    pub memory_limit: u64,
    /// Settings of object stores.
    pub storage_options: BTreeMap<String, String>,
}

impl Default for VerifyOptions {
    fn default() -> Self {
        Self {
            files: Vec::new(),
            against: None,
            sort_by: None,
            may_overlap: false,
            threads: None,
            memory_limit: 512_000_000,
            storage_options: BTreeMap::new(),
        }
    }
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct VerifyReport {
    /// Whether there are no problems.
    pub ok: bool,
    /// Sort order that was checked.
    pub sort_by: String,
    /// Rows of all files.
    pub rows: u64,
    /// The files, in the order given.
    pub files: Vec<VerifiedFile>,
    /// Whether no two files share a key.
    pub disjoint: bool,
    /// Hash of all rows, order-independent.
    pub content_hash: Option<String>,
    /// The comparison, if asked for.
    pub against: Option<Against>,
    /// What is wrong, one sentence each.
    pub problems: Vec<String>,
}

/// One line, then one for each problem.
impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, files) = (counted(self.rows, "row"), counted(self.files.len() as u64, "file"));
        write!(f, "{rows} of {files}, {}: ", sorted_by(&self.sort_by))?;
        match self.problems.len() as u64 {
            0 => f.write_str("no problems"),
            problems => f.write_str(&counted(problems, "problem")),
        }?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n- {problem}"))
    }
}

/// One file.
#[derive(Clone, Debug, Serialize)]
pub struct VerifiedFile {
    /// Location.
    pub path: String,
    /// Rows.
    pub rows: u64,
    /// The least key.
    pub key_min: Vec<Option<ShownValue>>,
    /// The greatest key.
    pub key_max: Vec<Option<ShownValue>>,
    /// Whether every key is at least the one before it.
    pub sorted: bool,
}

/// The comparison with other files.
#[derive(Clone, Debug, Serialize)]
pub struct Against {
    /// Their rows.
    pub rows: u64,
    /// Their hash.
    pub content_hash: String,
    /// Whether both have the same rows.
    pub equal: bool,
    /// Columns whose values differ as a whole; empty if rows were only mixed up.
    pub columns_differ: Vec<String>,
}

/// Checks that files are sorted, disjoint and, if asked, complete.
///
/// ```
/// use plait_parquet::{Context, VerifyOptions, verify};
///
/// # let folder = std::env::temp_dir().join(format!("plait-verify-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
/// # let context = Context::new(64 << 20);
/// # for (name, keys) in [("a.parquet", vec![1, 3, 5]), ("b.parquet", vec![2, 4])] {
/// #     let keys: arrow_array::ArrayRef = std::sync::Arc::new(arrow_array::Int64Array::from(keys));
/// #     let batch = arrow_array::RecordBatch::try_from_iter([("k", keys)])?;
/// #     let schema = batch.schema();
/// #     let batches = arrow_array::RecordBatchIterator::new([Ok(batch)], schema);
/// #     plait_parquet::write_batches(Box::new(batches), &path(name), &context)?;
/// # }
/// let options = VerifyOptions {
///     files: vec![path("a.parquet"), path("b.parquet")],
///     sort_by: Some("k".into()),
///     ..VerifyOptions::default()
/// };
/// let report = verify(&options, &Context::new(512_000_000))?;
/// assert!(!report.ok && !report.disjoint);
/// assert!(report.to_string().starts_with("5 rows of 2 files, sorted by k: 1 problem\n"));
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// A file that cannot be read, schemas that cannot be compared, a sort order that is not known.
pub fn verify(options: &VerifyOptions, context: &Context) -> Result<VerifyReport> {
    verify_in(options, &Stores::try_new(&options.storage_options, context)?, context)
}

/// The same, of files in `stores`.
///
/// # Errors
/// As [`verify`].
pub(crate) fn verify_in(
    options: &VerifyOptions,
    stores: &Stores,
    context: &Context,
) -> Result<VerifyReport> {
    if options.files.is_empty() {
        return Err(Error::new(Kind::InvalidArgument, "there is nothing to verify")
            .with_hint("name at least one file, folder, glob or URL"));
    }
    check_memory_limit(options.memory_limit)?;
    check_threads(options.threads)?;
    let threads = options.threads;
    context.counters().enter(Stage::Verify);
    let mut sources = open_sources(&options.files, 0, threads, stores, context)?;
    let files = sources.len();
    if let Some(against) = &options.against {
        if against.is_empty() {
            return Err(Error::new(Kind::InvalidArgument, "there is nothing to verify against"));
        }
        sources.extend(open_sources(against, files, threads, stores, context)?);
    }
    let asked = options.sort_by.as_deref().map(SortOrder::try_parse).transpose()?;
    let footers: Vec<_> = sources.iter().map(|s| (s.path(), s.file())).collect();
    let reconciled = reconcile(&footers, &Unite::default())?;
    let order = match &asked {
        Some(order) => renamed(order, &reconciled)?,
        None => from_sources(&sources[..files], &reconciled)?,
    };
    let leaves = output_leaves(&reconciled);
    let keys = key_leaves(&order, &reconciled, &leaves)?;
    context.counters().set_total(sources.iter().map(|s| s.store.len()).sum());
    let mut report = VerifyReport {
        ok: false,
        sort_by: order.to_string(),
        rows: sources[..files].iter().map(|s| s.rows()).sum(),
        files: Vec::new(),
        disjoint: true,
        content_hash: None,
        against: None,
        problems: Vec::new(),
    };
    for (place, column) in order.columns().iter().enumerate() {
        for source in sources[..files].iter().filter(|source| lacks(&keys, place, Some(source))) {
            let (path, name) = (source.path(), column.dotted());
            report.problems.push(format!("{path} has no column `{name}`, which it is sorted by"));
        }
    }
    let ranges = check_order(&sources[..files], &keys, threads, context, &mut report)?;
    if !order.is_empty() && !options.may_overlap {
        check_disjoint(&sources, &keys, ranges, &mut report);
    }
    let rows = content::whole(&sources);
    let constants = Default::default();
    let part = |sources, rows| content::HashedRows {
        sources,
        rows,
        leaves: &leaves,
        constants: &constants,
    };
    let hash = content::hash(&part(&sources[..files], &rows[..files]), threads, context)?;
    report.content_hash = Some(hash.text());
    if options.against.is_some() {
        let other = content::hash(&part(&sources[files..], &rows[files..]), threads, context)?;
        let equal = hash == other;
        let name = |i: usize| leaves.get(i).map(|leaf| leaf.descr.path().string());
        let columns_differ: Vec<String> =
            hash.differing(&other).into_iter().filter_map(name).collect();
        if !equal {
            let columns = match columns_differ.as_slice() {
                [] => "values of different rows are mixed".to_owned(),
                names => format!("columns {}", names.join(", ")),
            };
            report.problems.push(format!(
                "rows differ: {} rows against {} rows, {columns}",
                hash.rows, other.rows
            ));
        }
        report.against =
            Some(Against { rows: other.rows, content_hash: other.text(), equal, columns_differ });
    }
    report.ok = report.problems.is_empty();
    Ok(report)
}

/// Keys of a file: its index, the least, and the greatest.
type KeyRange = (usize, Vec<u8>, Vec<u8>);

/// What the keys of rows that follow each other show.
struct CheckedKeys {
    at: SourceRows,
    first: Vec<u8>,
    last: Vec<u8>,
    least: Vec<u8>,
    greatest: Vec<u8>,
    /// The first key that is smaller than the one before it.
    disorder: Option<Disorder>,
}

impl CheckedKeys {
    /// Adds the rows behind these.
    fn append(&mut self, next: Self) {
        let between = || {
            let (before, after) = (self.last.clone(), next.first.clone());
            (after < before).then_some(Disorder { row: next.at.rows.start, before, after })
        };
        self.disorder = self.disorder.take().or_else(between).or(next.disorder);
        self.at.rows.end = next.at.rows.end;
        self.last = next.last;
        self.include(next.least);
        self.include(next.greatest);
    }

    /// Takes `key` into account for the least and the greatest.
    fn include(&mut self, key: Vec<u8>) {
        if key < self.least {
            self.least = key;
        } else if key > self.greatest {
            self.greatest = key;
        }
    }
}

/// Reads every key of every file; gives the key range of those with rows.
fn check_order(
    sources: &[Arc<Source>],
    keys: &KeyLeaves,
    threads: Option<usize>,
    context: &Context,
    report: &mut VerifyReport,
) -> Result<Vec<KeyRange>> {
    let mut checked = check_keys(sources, keys, threads, context)?.into_iter().peekable();
    let mut ranges = Vec::new();
    for (i, source) in sources.iter().enumerate() {
        let mut found = checked.next_if(|keys| keys.at.source == i);
        if let Some(found) = &mut found {
            while let Some(next) = checked.next_if(|keys| keys.at.source == i) {
                found.append(next);
            }
        }
        let mut file = VerifiedFile {
            path: source.path().to_owned(),
            rows: source.rows(),
            key_min: Vec::new(),
            key_max: Vec::new(),
            sorted: true,
        };
        if let Some(found) = found {
            if let Some(Disorder { row, before, after }) = &found.disorder {
                file.sorted = false;
                report.problems.push(format!(
                    "{} is not sorted: row {row} has {} after {}",
                    source.path(),
                    render(&keys.shape, after),
                    render(&keys.shape, before)
                ));
            }
            file.key_min = key_values(keys, &found.least)?;
            file.key_max = key_values(keys, &found.greatest)?;
            ranges.push((i, found.least, found.greatest));
        }
        report.files.push(file);
    }
    Ok(ranges)
}

/// Reads all keys, some rows at a time; gives what they show in the order of files and rows.
fn check_keys(
    sources: &[Arc<Source>],
    keys: &KeyLeaves,
    threads: Option<usize>,
    context: &Context,
) -> Result<Vec<CheckedKeys>> {
    if keys.leaves.is_empty() {
        return Ok(Vec::new());
    }
    let budget = context.budget();
    let cache = Arc::new(LocationCache::new(context, budget.bytes(MemoryStage::PageLocations)));
    let rows = content::whole(sources);
    let workers = ScopedWorkers::of_files(threads, budget);
    let rows_max = shared_rows(&rows, workers.count(), AHEAD_ROWS);
    let ahead = RowsAhead::new(sources, &rows, &keys.leaves, rows_max, &cache, context);
    let parts = ahead.of_some_leaves().fold(&workers, Vec::new, |checked, at| {
        let Some(source) = sources.get(at.source) else { return Ok(()) };
        checked.extend(check_rows(source, at, keys, &cache, context)?);
        Ok(())
    });
    let parts: Vec<Vec<CheckedKeys>> = match parts {
        Ok(parts) => parts,
        // How rows are shared depends on threads, and so does what is met first in a file.
        Err((source, error)) if workers.count() > 1 && error.kind() == Kind::CorruptSource => {
            return check_keys(&sources[source..=source], keys, Some(1), context).and(Err(error));
        }
        Err((_, error)) => return Err(error),
    };
    let mut checked: Vec<CheckedKeys> = parts.into_iter().flatten().collect();
    checked.sort_by_key(|keys| (keys.at.source, keys.at.rows.start));
    Ok(checked)
}

/// Reads the keys of rows of one file; none of no rows.
fn check_rows(
    source: &Arc<Source>,
    at: &SourceRows,
    keys: &KeyLeaves,
    cache: &Arc<LocationCache>,
    context: &Context,
) -> Result<Option<CheckedKeys>> {
    let mut reader = KeyReader::open(source, keys, at.rows.start, cache, context)?;
    let mut merge = Merge::new(&keys.shape, 1, OrderCheck::Full);
    let mut runs = Runs::default();
    let mut checked: Option<CheckedKeys> = None;
    while reader.row() < at.rows.end {
        context.check_cancelled()?;
        let left = usize::try_from(at.rows.end - reader.row()).unwrap_or(usize::MAX);
        let start = reader.row();
        let Some((batch, _)) = reader.next(KEY_ROWS.min(left))? else { break };
        let key = |row| batch.to_bytes(&keys.shape, row);
        let last = key(batch.len() - 1);
        let checked = checked.get_or_insert_with(|| CheckedKeys {
            at: at.clone(),
            first: key(0),
            last: last.clone(),
            least: key(0),
            greatest: key(0),
            disorder: None,
        });
        if checked.disorder.is_some() {
            (0..batch.len()).for_each(|row| checked.include(key(row)));
            checked.last = last;
            continue;
        }
        match merge.supply(SourceId(0), batch, false) {
            Ok(()) => {
                while merge.step(u64::MAX, None, &mut runs) == Stop::Full {}
                runs.clear();
                checked.include(last.clone());
                checked.last = last;
            }
            Err(disorder) => {
                let row = at.rows.start + disorder.row;
                checked.disorder = Some(Disorder { row, ..disorder });
                // Once more, for the least and the greatest of these keys.
                reader = KeyReader::open(source, keys, start, cache, context)?;
            }
        }
    }
    Ok(checked)
}

fn check_disjoint(
    sources: &[Arc<Source>],
    keys: &KeyLeaves,
    mut ranges: Vec<KeyRange>,
    report: &mut VerifyReport,
) {
    ranges.sort_by(|a, b| (&a.1, &a.2, a.0).cmp(&(&b.1, &b.2, b.0)));
    for pair in ranges.windows(2) {
        if let [(a, _, last), (b, first, _)] = pair
            && first <= last
        {
            report.disjoint = false;
            report.problems.push(format!(
                "{} and {} overlap: {} is not above {}",
                sources[*a].path(),
                sources[*b].path(),
                render(&keys.shape, first),
                render(&keys.shape, last)
            ));
        }
    }
}
