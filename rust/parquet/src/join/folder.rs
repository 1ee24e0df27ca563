//! A folder of state: runs as sorted Parquet files, and the manifest that says which count.
//!
//! ```text
//! state/.lock                          held while the state is open
//! state/left-0000000007-….parquet      runs: the name of a table in front
//! state/manifest-0000000007.json       the greatest number counts
//!
//! step   run files: temp, sync, rename ─▶ folder sync ─▶ manifest: temp, sync, link ─▶ folder sync
//! ```
//!
//! # Invariants
//! A manifest names only files that are whole and durable. Files that none names are swept when the
//! state is opened, and one process at a time has it open. A manifest that is there but perhaps not
//! for good is taken back, or the error says that nobody knows.
//!
//! # Cost
//! A file for each table that a step adds to, and the manifest, each synced.
//!
//! # Not here
//! Reading runs (`file`).

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::Schema;
use parquet::arrow::{ArrowSchemaConverter, ArrowWriter};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;
use plait_core::join::{Block, DELETED, KEY};
use plait_core::{Error, Kind, Result};

use super::cache::Cache;
use super::file::FileRun;
use super::manifest::{JoinManifest, Owner};
use super::reader::Reader;
use crate::merge;
use crate::options::{BloomFilter, IfExists, MergeOptions, OnDuplicateOption, StatisticsLevel};
use crate::output::{Lock, Target};
use crate::runtime::Context;
use crate::store::{Completed, Location, Stores};

/// Rows of a page, so of a block.
const PAGE_ROWS: usize = 4096;
/// Rows of a row group, so of a bloom filter.
const GROUP_ROWS: usize = 131_072;

/// How runs are merged.
#[derive(Clone, Copy)]
pub(super) struct Merging {
    /// Whether rows that delete stay.
    pub(super) keep_deleted: bool,
    /// Bytes of memory to stay within.
    pub(super) memory_limit: u64,
    /// Threads.
    pub(super) threads: usize,
}

/// A folder that is open.
pub(super) struct JoinFolder {
    path: PathBuf,
    owner: Owner,
    pub(super) cache: Arc<Cache>,
    pub(super) stores: Stores,
    _lock: Lock,
}

impl std::fmt::Debug for JoinFolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Folder").field("path", &self.path).finish_non_exhaustive()
    }
}

impl JoinFolder {
    /// Opens the state in `location`, makes the folder if it is missing, and sweeps what no
    /// manifest names.
    pub(super) fn open(
        location: &str,
        owner: Owner,
        cache_bytes: usize,
        context: &Context,
    ) -> Result<(Self, Option<JoinManifest>)> {
        let stores = Stores::try_new(&std::collections::BTreeMap::new(), context)?;
        let Location::Local(path) = stores.locate(location)? else {
            return Err(Error::new(
                Kind::Unsupported,
                "the state of a join lies in a local folder",
            )
            .with_path(location)
            .with_hint("keep it in a local folder, and copy snapshots to the bucket"));
        };
        Target::open(location, &stores, context)?;
        let lock = Lock::take(&path)?.ok_or_else(|| {
            Error::new(Kind::Storage, "the state of the join is open already")
                .with_path(location)
                .with_hint("one process at a time has it; close the other join first")
        })?;
        let reading = Context::new(context.limit_bytes());
        // Blocks are looked up here and there: what is behind a page is not read with it.
        reading.set_read_ahead_bytes(0);
        let cache = Arc::new(Cache::new(cache_bytes, reading));
        let folder = Self { path, owner, cache, stores, _lock: lock };
        let manifest = folder.newest()?;
        folder.sweep(manifest.as_ref())?;
        Ok((folder, manifest))
    }

    pub(super) fn location(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    fn names(&self) -> Result<Vec<String>> {
        let failed = |e| {
            Error::new(Kind::Storage, "cannot list the state of the join")
                .with_path(self.path.to_string_lossy())
                .with_cause(e)
        };
        let entries = std::fs::read_dir(&self.path).map_err(failed)?;
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            entry.map(|entry| entry.file_name().to_string_lossy().into_owned()).map_err(failed)
        };
        entries.map(name).collect()
    }

    fn newest(&self) -> Result<Option<JoinManifest>> {
        let numbers = self.names()?;
        let Some(number) = numbers.iter().filter_map(|name| JoinManifest::number_of(name)).max()
        else {
            return Ok(None);
        };
        let path = self.path.join(JoinManifest::name(number));
        let location = path.to_string_lossy();
        let store = self.stores.open(&location)?;
        let text = store.read(0..store.len())?;
        let manifest =
            JoinManifest::parse(&text, self.owner).map_err(|e| e.with_path(location.as_ref()))?;
        Ok(Some(manifest))
    }

    /// Removes runs and manifests that do not count.
    fn sweep(&self, manifest: Option<&JoinManifest>) -> Result<()> {
        let named: BTreeSet<&String> = manifest.iter().flat_map(|m| m.runs()).collect();
        for name in self.names()? {
            let table = name.split_once('-').map_or("", |(table, _)| table);
            let is_run = self.owner.tables().contains(&table);
            let is_orphan = is_run && name.ends_with(".parquet") && !named.contains(&name);
            let is_old = match (JoinManifest::number_of(&name), manifest) {
                (Some(number), Some(manifest)) => number < manifest.number,
                _ => false,
            };
            if is_orphan || is_old {
                // A file that cannot be removed takes room and nothing else.
                let _ = std::fs::remove_file(self.path.join(name));
            }
        }
        Ok(())
    }

    fn target(&self, context: &Context) -> Result<Target> {
        Target::open(&self.path.to_string_lossy(), &self.stores, context)
    }

    fn open_run(&self, name: &str, schema: arrow_schema::SchemaRef) -> Result<Arc<FileRun>> {
        Ok(Arc::new(FileRun::open(&self.path, name, schema, &self.cache, &self.stores)?))
    }

    /// A run that was written: the file goes with its last reader, unless a manifest comes to name
    /// it.
    fn made(&self, name: &str, schema: arrow_schema::SchemaRef) -> Result<Arc<FileRun>> {
        let run = self.open_run(name, schema)?;
        run.set_obsolete(true);
        Ok(run)
    }

    /// The runs with these names.
    pub(super) fn runs(
        &self,
        names: &[String],
        schema: &arrow_schema::SchemaRef,
    ) -> Result<Vec<Arc<FileRun>>> {
        names.iter().map(|name| self.open_run(name, Arc::clone(schema))).collect()
    }

    /// Writes a block as a run; `None` for one without rows.
    pub(super) fn write(
        &self,
        table: &str,
        number: u64,
        block: &Block,
        context: &Context,
    ) -> Result<Option<Arc<FileRun>>> {
        if block.is_empty() {
            return Ok(None);
        }
        let name = file_name(table, number);
        let target = self.target(context)?;
        write_blocks(&target, &name, std::slice::from_ref(block))?;
        self.made(&name, block.batch().schema()).map(Some)
    }

    /// Merges runs, oldest first, to one; `None` when no row stays.
    pub(super) fn merge(
        &self,
        table: &str,
        number: u64,
        runs: &[Arc<FileRun>],
        schema: &arrow_schema::SchemaRef,
        how: Merging,
        context: &Context,
    ) -> Result<Option<Arc<FileRun>>> {
        let name = file_name(table, number);
        let out = self.path.join(&name).to_string_lossy().into_owned();
        let options = MergeOptions {
            sources: runs.iter().map(|run| run.path().to_string_lossy().into_owned()).collect(),
            out,
            sort_by: Some(KEY.to_owned()),
            on_duplicate: OnDuplicateOption::KeepLast,
            delete_where: Some(DELETED.to_owned()),
            keep_tombstones: how.keep_deleted,
            page_rows: PAGE_ROWS as u64,
            row_group_rows: GROUP_ROWS as u64,
            bloom_filters: [(KEY.to_owned(), BloomFilter::default())].into(),
            statistics: [
                (KEY.to_owned(), StatisticsLevel::Page),
                ("*".to_owned(), StatisticsLevel::None),
            ]
            .into(),
            copy_tiers: Vec::new(),
            empty_output: false,
            if_exists: IfExists::Add,
            memory_limit: how.memory_limit,
            threads: Some(how.threads),
            ..MergeOptions::default()
        };
        let report = merge::merge_in(&options, &self.stores, context)?;
        if report.outputs.is_empty() {
            return Ok(None);
        }
        self.made(&name, Arc::clone(schema)).map(Some)
    }

    /// Makes `manifest` the one that counts.
    ///
    /// # Errors
    /// What writing gives, and whether the manifest may count in spite of it.
    pub(super) fn commit(&self, manifest: &JoinManifest, context: &Context) -> Result<(), Refused> {
        put(&self.target(context)?, manifest, &self.path)?;
        // The one before is needed no more.
        if let Some(before) = manifest.number.checked_sub(1) {
            let _ = std::fs::remove_file(self.path.join(JoinManifest::name(before)));
        }
        Ok(())
    }
}

/// Writes a copy of a state to an empty folder: `runs` are files to link or blocks to write.
pub(super) fn copy_to(
    location: &str,
    manifest: &JoinManifest,
    runs: &[(String, Run<'_>)],
    context: &Context,
) -> Result<()> {
    let stores = Stores::try_new(&std::collections::BTreeMap::new(), context)?;
    let Location::Local(path) = stores.locate(location)? else {
        return Err(Error::new(Kind::Unsupported, "snapshots are written to local folders")
            .with_path(location)
            .with_hint("write it to a local folder, and copy that to the bucket"));
    };
    let target = Target::open(location, &stores, context)?;
    let taken = std::fs::read_dir(&path).into_iter().flatten().flatten();
    if taken
        .into_iter()
        .any(|e| JoinManifest::number_of(&e.file_name().to_string_lossy()).is_some())
    {
        return Err(Error::new(Kind::OutputExists, "the folder holds the state of a join already")
            .with_path(location)
            .with_hint("give an empty folder"));
    }
    for (name, run) in runs {
        match run {
            Run::Blocks(blocks) => write_blocks(&target, name, blocks)?,
            Run::File(from) => {
                // A second name for the same file costs nothing; elsewhere it is copied.
                if std::fs::hard_link(from, path.join(name)).is_err() {
                    copy_file(&stores, &target, from, name)?;
                }
            }
        }
    }
    put(&target, manifest, &path).map_err(|refused| refused.error)
}

/// What a snapshot is made of.
pub(super) enum Run<'a> {
    File(&'a Path),
    Blocks(Vec<Block>),
}

fn copy_file(stores: &Stores, target: &Target, from: &Path, name: &str) -> Result<()> {
    const PART_BYTES: u64 = 8 << 20;
    let store = stores.open(&from.to_string_lossy())?;
    let mut temp = target.create(name)?;
    let mut at = 0;
    while at < store.len() {
        let end = store.len().min(at + PART_BYTES);
        temp.write_all(&store.read(at..end)?).map_err(|e| unwritten(target, name, e))?;
        at = end;
    }
    temp.sync()?;
    temp.publish(target, name).map(drop)
}

/// A manifest that could not be put.
pub(super) struct Refused {
    pub(super) error: Error,
    /// Whether it is there all the same, or may be after a crash.
    pub(super) may_count: bool,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self { error, may_count: false }
    }
}

fn put(target: &Target, manifest: &JoinManifest, folder: &Path) -> Result<(), Refused> {
    // Runs have their names before the manifest has its own.
    target.sync()?;
    let name = JoinManifest::name(manifest.number);
    let mut temp = target.create(&name)?;
    temp.write_all(&manifest.to_bytes()?).map_err(|e| unwritten(target, &name, e))?;
    temp.sync()?;
    if temp.publish_new(target, &name)? != Completed::Yes {
        let error = Error::new(Kind::Storage, "another process wrote this step of the join")
            .with_path(target.location(&name))
            .with_hint("one process at a time has a state; open it again");
        return Err(error.into());
    }
    target.sync().map_err(|error| {
        let is_gone = std::fs::remove_file(folder.join(&name)).is_ok() && target.sync().is_ok();
        Refused { error, may_count: !is_gone }
    })
}

/// A name that no file has.
pub(super) fn file_name(table: &str, number: u64) -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::SystemTime;
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let nanos = now.map_or(0, |now| now.as_nanos() & 0xFFFF_FFFF_FFFF);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{table}-{number:010}-{:x}-{nanos:x}-{count:x}.parquet", std::process::id())
}

fn write_blocks(target: &Target, name: &str, blocks: &[Block]) -> Result<()> {
    let Some(first) = blocks.first() else { return Ok(()) };
    let key = ColumnPath::from(KEY);
    let properties = WriterProperties::builder()
        .set_compression(Compression::LZ4_RAW)
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_column_statistics_enabled(key.clone(), EnabledStatistics::Page)
        .set_column_index_truncate_length(None)
        .set_column_bloom_filter_enabled(key, true)
        .set_bloom_filter_max_ndv(GROUP_ROWS as u64)
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(PAGE_ROWS)
        .build();
    let failed = |e| refused(target, name, e);
    let temp = target.create(name)?;
    let schema = first.batch().schema();
    let mut writer = ArrowWriter::try_new(temp, schema, Some(properties)).map_err(failed)?;
    for block in blocks {
        writer.write(block.batch()).map_err(failed)?;
    }
    let mut temp = writer.into_inner().map_err(|e| unended(target, name, e))?;
    temp.flush().map_err(|e| unwritten(target, name, e))?;
    temp.sync()?;
    temp.publish(target, name).map(drop)
}

/// Writes record batches as one Parquet file, visible once it is whole; gives the rows.
///
/// # Errors
/// [`Kind::InvalidArgument`] for a location that is no file, what the batches give,
/// [`Kind::Unsupported`] for types that Parquet has not.
pub fn write_batches(reader: Reader, location: &str, context: &Context) -> Result<u64> {
    let stores = Stores::try_new(&std::collections::BTreeMap::new(), context)?;
    let target = Target::open(location, &stores, context)?;
    let Some(name) = target.file_name().map(str::to_owned) else {
        return Err(Error::new(Kind::InvalidArgument, "the output is not a file")
            .with_path(location)
            .with_hint("give a path that ends in `.parquet`"));
    };
    let failed = |e| refused(&target, &name, e);
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
    let properties = without_index_of_lists(properties, &reader.schema()).map_err(failed)?.build();
    let (temp, mut rows) = (target.create(&name)?, 0);
    let mut writer =
        ArrowWriter::try_new(temp, reader.schema(), Some(properties)).map_err(failed)?;
    for batch in reader {
        context.check_cancelled()?;
        let batch = batch.map_err(Error::from_arrow)?;
        rows += batch.num_rows() as u64;
        writer.write(&batch).map_err(failed)?;
    }
    let mut temp = writer.into_inner().map_err(|e| unended(&target, &name, e))?;
    temp.flush().map_err(|e| unwritten(&target, &name, e))?;
    temp.sync()?;
    temp.publish(&target, &name).map(drop)?;
    target.sync()?;
    Ok(rows)
}

/// Asks for no column index of leaves that repeat. The writer takes a page for one without values
/// if it has as many nulls as rows, which a page of lists may well have besides its values.
fn without_index_of_lists(
    mut properties: WriterPropertiesBuilder,
    schema: &Schema,
) -> Result<WriterPropertiesBuilder, ParquetError> {
    let descr = ArrowSchemaConverter::new().convert(schema)?;
    for leaf in descr.columns().iter().filter(|leaf| leaf.max_rep_level() > 0) {
        let path = leaf.path().clone();
        properties = properties.set_column_statistics_enabled(path, EnabledStatistics::Chunk);
    }
    Ok(properties)
}

/// Our error for one of the writer.
fn refused(target: &Target, name: &str, error: parquet::errors::ParquetError) -> Error {
    match error {
        parquet::errors::ParquetError::External(inner) => {
            match inner.downcast::<std::io::Error>() {
                Ok(io) => unwritten(target, name, *io),
                Err(other) => {
                    Error::new(Kind::Storage, "cannot write rows of a join").with_cause(other)
                }
            }
        }
        e => Error::new(Kind::Unsupported, "a column cannot be stored in Parquet").with_cause(e),
    }
}

/// Our error for one at the end: of types nothing can be wrong any more, and what a buffer failed
/// with when it was emptied is a text.
fn unended(target: &Target, name: &str, error: parquet::errors::ParquetError) -> Error {
    match error {
        e @ parquet::errors::ParquetError::External(_) => refused(target, name, e),
        e => unwritten(target, name, e),
    }
}

fn unwritten(
    target: &Target,
    name: &str,
    error: impl std::error::Error + Send + Sync + 'static,
) -> Error {
    Error::new(Kind::Storage, "cannot write the state of the join")
        .with_path(target.location(name))
        .with_hint("the step is not committed; free some space or make the folder writable, and apply it again")
        .with_cause(error)
}
