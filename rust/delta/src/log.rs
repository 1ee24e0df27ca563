//! The entry point: the open log of a table and its calls, with arguments and results as JSON.
//!
//! ```text
//! open ─▶ Log ─┬─ snapshot   version, schema, properties
//!              ├─ files      the live ones, from the oldest rows to the newest
//!              ├─ check_columns   whether files have the columns of a mapped table
//!              ├─ added      a file as a commit adds it
//!              ├─ commit     a change, once
//!              ├─ history    what was committed
//!              └─ clean      what no version needs goes
//! ```
//!
//! # Invariants
//! What was read of a log is kept, and only commits after it are read; after a minute everything is
//! read again, since commits of a log that is cleaned up are no longer there to be missed.
//!
//! # Cost
//! One request that finds nothing where nothing was committed. Half of a kilobyte a live file.
//!
//! # Not here
//! How each of them is done (its own module).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use plait_core::{Kind, Result};
use plait_parquet::{Context, Folder, Found, Stores, from_json, to_json};
use serde::{Deserialize, Serialize};

use crate::action::{Metadata, Protocol, Texts};
use crate::load::{Listed, commit_of, find_places, load, no_table};
use crate::mapping::{Mapping, both_names};
use crate::name::{decoded, is_inside};
use crate::protocol::{Intent, check, refused};
use crate::prune;
use crate::snapshot::{Live, Snapshot, id};
use crate::vector::{DeletedRows, deleted_rows};

/// For how long commits are found one after the other.
const KNOWN: Duration = Duration::from_secs(60);

/// A log that is open.
pub struct Log {
    pub(crate) folder: Folder,
    pub(crate) stores: Stores,
    pub(crate) context: Context,
    /// How callers write the table.
    pub(crate) root: String,
    known: Option<Known>,
}

struct Known {
    snapshot: Snapshot,
    since: Instant,
}

/// Which log to open.
#[derive(Deserialize)]
struct OpenOptions {
    folder: String,
}

/// What is asked of a table at a version.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AskOptions {
    /// None: the newest.
    version: Option<u64>,
    intent: Intent,
    /// Whether the order of files must be that of commits, whatever it takes to find that.
    order: Order,
    /// Applications whose last batch is asked for.
    apps: Vec<String>,
    /// Ids of files that alone are asked for, if they are live.
    only: Option<Vec<String>>,
    /// Names of files that alone are asked for, whatever is deleted of them.
    names: Option<Vec<String>>,
    /// A condition: of files that the log says to have no such row, none is asked for.
    #[serde(rename = "where")]
    condition: Option<String>,
    /// Columns whose conditions may leave out files; none: all.
    keys: Option<Vec<String>>,
    /// What becomes of files with deleted rows.
    deleted: DeletedFiles,
}

/// What becomes of files with deleted rows.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum DeletedFiles {
    /// They are an error.
    #[default]
    Refuse,
    /// They are listed with what is deleted.
    List,
}

/// The order of files.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Order {
    /// As far as it is known.
    #[default]
    Known,
    /// That of commits.
    Commits,
}

/// A table, in words.
#[derive(Serialize)]
struct Described<'a> {
    version: u64,
    protocol: &'a Protocol,
    metadata: &'a Metadata,
    files: usize,
    /// The last batch of each application that was asked for, if there is one.
    batches: BTreeMap<&'a str, i64>,
    /// If columns are mapped: the names of each, and of each member of structs, with those in files.
    names: Option<Vec<(Vec<&'a str>, Vec<&'a str>)>>,
}

/// What is read of the statistics of a file.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stats {
    num_records: Option<i64>,
}

impl Log {
    /// Opens the log of the table in the folder that `options`, JSON, name. Nothing is read yet.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] for options that cannot be read, [`Kind::SourceNotFound`] for a
    /// local folder that is not there.
    pub fn open(options: &str, stores: &Stores, context: &Context) -> Result<Self> {
        let root = from_json::<OpenOptions>(options)?.folder;
        let folder = Folder::open(options, stores, context).map_err(|e| match e.kind() {
            Kind::SourceNotFound => no_table(&root),
            _ => e,
        })?;
        Ok(Self { folder, stores: stores.clone(), context: context.clone(), root, known: None })
    }

    /// The table: version, protocol, metadata, how many files.
    ///
    /// # Errors
    /// [`Kind::SourceNotFound`] without a table or a version, [`Kind::Unsupported`] for a table that
    /// is not read, or not changed as the intent says, and those of reading.
    pub fn snapshot(&mut self, options: &str) -> Result<String> {
        let asked: AskOptions = from_json(options)?;
        let root = self.root.clone();
        let snapshot = self.at(&asked)?;
        let mapping = Mapping::of(&snapshot.metadata, &root)?;
        let batch =
            |app: &String| snapshot.txns.get(app).map(|txn| (txn.app_id.as_str(), txn.version));
        to_json(&Described {
            version: snapshot.version,
            protocol: &snapshot.protocol,
            metadata: &snapshot.metadata,
            files: snapshot.files.len(),
            batches: asked.apps.iter().filter_map(batch).collect(),
            names: mapping.as_ref().map(|mapping| both_names(&mapping.columns)),
        })
    }

    /// The live files, from the oldest rows to the newest.
    ///
    /// # Errors
    /// As [`snapshot`](Self::snapshot); [`Kind::Unsupported`] for a file with deleted rows, or one
    /// that lies elsewhere.
    pub fn files(&mut self, options: &str) -> Result<String> {
        let asked: AskOptions = from_json(options)?;
        let root = self.root.clone();
        let snapshot = self.at(&asked)?;
        let all = match (&asked.only, &asked.names) {
            (None, None) => snapshot.by_place(),
            (None, Some(names)) => names.iter().flat_map(|name| snapshot.named(name)).collect(),
            (Some(only), _) => only
                .iter()
                .filter_map(|name| snapshot.files.get(name.as_str()).map(AsRef::as_ref))
                .collect(),
        };
        let count = all.len();
        let files = match &asked.condition {
            None => all,
            Some(condition) => {
                let only = asked.keys.as_deref();
                prune::may_hold(all, &snapshot.metadata, &prune::Asked { condition, only })?
            }
        };
        let left_out = count - files.len();
        let mut listed = Files { version: snapshot.version, left_out, ..Files::default() };
        let mut numbers = BTreeMap::new();
        for live in files {
            let next = listed.partitions.len();
            let values = &*live.add.partition_values;
            let number = *numbers.entry(values).or_insert(next);
            if number == next {
                listed.partitions.push(values);
            }
            listed.partition.push(number);
            listed.add(live, &asked, &root)?;
        }
        to_json(&listed)
    }

    /// Lengths of files of the table, and when they were written in milliseconds since 1970; `None`
    /// of one that is not there.
    ///
    /// # Errors
    /// [`Kind::Storage`].
    pub fn look(&self, names: &[&str]) -> Result<Vec<Option<(u64, i64)>>> {
        let found = self.folder.look(names)?.into_iter();
        let facts = |found: Found| (found.bytes, found.written_at.map_or_else(now_ms, ms));
        Ok(found.map(|found| found.map(facts)).collect())
    }

    fn at(&mut self, asked: &AskOptions) -> Result<Cow<'_, Snapshot>> {
        let root = self.root.clone();
        let is_exact = asked.order == Order::Commits;
        if let Some(version) = asked.version {
            let mut snapshot = load(&self.folder, &Listed::of(&self.folder)?, Some(version))?;
            check(&snapshot.protocol, &snapshot.metadata, asked.intent, &root)?;
            if is_exact {
                find_places(&self.folder, &mut snapshot)?;
            }
            return Ok(Cow::Owned(snapshot));
        }
        let Some((folder, snapshot)) = self.newest()? else { return Err(no_table(&root)) };
        check(&snapshot.protocol, &snapshot.metadata, asked.intent, &root)?;
        if is_exact {
            find_places(folder, snapshot)?;
        }
        Ok(Cow::Borrowed(snapshot))
    }

    /// The newest version; `None` if there is no table.
    pub(crate) fn newest(&mut self) -> Result<Option<(&Folder, &mut Snapshot)>> {
        if self.known.as_ref().is_some_and(|known| known.since.elapsed() > KNOWN) {
            self.known = None;
        }
        if let Some(known) = &mut self.known {
            while let Some(actions) = commit_of(&self.folder, known.snapshot.version + 1)? {
                self.context.check_cancelled()?;
                known.snapshot.apply(known.snapshot.version + 1, actions);
            }
        } else {
            let listed = Listed::of(&self.folder)?;
            if listed.newest().is_none() {
                return Ok(None);
            }
            let snapshot = load(&self.folder, &listed, None)?;
            self.known = Some(Known { snapshot, since: Instant::now() });
        }
        Ok(self.known.as_mut().map(|known| (&self.folder, &mut known.snapshot)))
    }
}

/// The live files of a version, column by column.
#[derive(Default, Serialize)]
struct Files<'a> {
    version: u64,
    name: Vec<Cow<'a, str>>,
    bytes: Vec<i64>,
    /// Those that are not deleted.
    rows: Vec<Option<i64>>,
    /// Places in `partitions`: many files have the same values.
    partition: Vec<usize>,
    /// The version that the newest rows of a file came with.
    #[serde(rename = "version_of")]
    versions: Vec<Option<u64>>,
    partitions: Vec<&'a Texts>,
    /// Of files with deleted rows, by their places: what a commit removes, and what is deleted.
    deleted: BTreeMap<usize, (String, DeletedRows)>,
    /// How many files the log says to have no row of the condition.
    left_out: usize,
}

impl<'a> Files<'a> {
    fn add(&mut self, live: &'a Live, asked: &AskOptions, root: &str) -> Result<()> {
        let add = &live.add;
        let name = decoded(&add.path);
        if add.vector().is_some() && asked.deleted == DeletedFiles::Refuse {
            let what = "has rows that are deleted by a deletion vector";
            return Err(refused(root, what, format!("`{name}`"))
                .with_hint("purge them first, such as with REORG TABLE ... APPLY (PURGE)"));
        }
        if !asked.intent.is_read() && !is_inside(&name) {
            let what = "has files that lie elsewhere";
            return Err(refused(root, what, format!("`{name}`")).with_hint("copy it deeply"));
        }
        let rows = |text: String| serde_json::from_str::<Stats>(&text).ok()?.num_records;
        let deleted = add.vector().map_or(0, |vector| vector.cardinality);
        if let Some(vector) = add.vector() {
            let listed = (id(&name, Some(vector)), deleted_rows(vector, &name)?);
            self.deleted.insert(self.name.len(), listed);
        }
        self.rows.push(add.stats().and_then(rows).map(|rows| rows - deleted));
        self.name.push(if name == *add.path { Cow::Borrowed(&*add.path) } else { name.into() });
        self.bytes.push(add.size);
        self.versions.push(live.place.map(|place| place.version));
        Ok(())
    }
}

/// Now, in milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    ms(SystemTime::now())
}

/// A time in milliseconds since 1970.
pub(crate) fn ms(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Texts that are all there, as properties are given.
pub(crate) fn texts(given: &BTreeMap<String, String>) -> Texts {
    given.iter().map(|(name, text)| (name.clone(), Some(text.clone()))).collect()
}
