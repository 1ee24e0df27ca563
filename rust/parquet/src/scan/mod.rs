//! One schema over many files that drift: resolve once, then read every file adapted.
//!
//! ```text
//! sources ─ footers, in parallel ─ Summary ─ freeze ─▶ Frozen ─┐
//!    └──────── files, a few ahead, in parallel ── batches ─────┴─ Adapter ─▶ batches in order
//! ```
//!
//! # Invariants
//! Rows come in the order of the sources, whatever the threads. Every batch has the frozen schema.
//! A file is opened a second time only if a row of it is asked for. Threads end before a call returns.
//!
//! # Cost
//! Resolving: a footer a file; decoded footers are not kept. Reading: what `memory_limit` leaves
//! (`options`), at most 64 MiB of rows ahead.
//!
//! # Not here
//! Types, policies, adapters (`plait_core::schema`).

mod file;
mod follow;
mod frozen;
mod options;
mod read;
mod size;
mod statics;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use arrow_array::RecordBatchReader;
use arrow_schema::{Schema, SchemaRef};
use plait_core::schema::{Adapter, Change, Class, Follow, Frozen, Request, Summary, Value};
use plait_core::{Error, Kind, Result};
use serde::Serialize;

use crate::runtime::{Context, ScanSizes};
use crate::store::Stores;
use file::Footer;
use follow::FollowBatches;
pub(crate) use frozen::summarize;
pub use frozen::{FrozenScan, freeze_scan};
pub use options::{FileValues, Named, ScanOptions};
use read::ResolvedBatches;
use statics::Statics;

/// A stream that is a source.
pub(crate) type SourceStream = Box<dyn RecordBatchReader + Send>;

/// One source of a scan.
struct ScanSource {
    name: String,
    /// The file's path, or none for a stream.
    path: Option<String>,
    /// The folder that was named to find it; none if the file itself was.
    folder: Option<String>,
    /// The number of the stream among those passed.
    stream: usize,
}

/// What is known of a resolved source.
#[derive(Clone)]
struct ResolvedSource {
    /// Its schema, among the distinct ones.
    class: usize,
    /// None for a stream.
    footer: Option<Footer>,
}

/// Sources of equal schemas: the schema, and the adapter of the leaves that are read.
struct SchemaClass {
    schema: SchemaRef,
    adapter: OnceLock<Arc<Adapter>>,
}

/// A scan: its sources, the schema of its batches, and how they are made.
///
/// ```
/// use plait_parquet::{Context, Scan, Stores, from_json};
///
/// # let folder = std::env::temp_dir().join(format!("plait-scan-{}", std::process::id()));
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
/// let files = [path("a.parquet"), path("b.parquet")];
/// let options = from_json(&format!(r#"{{"sources": {files:?}, "columns": ["k"]}}"#))?;
/// let stores = Stores::try_new(&Default::default(), &context)?;
/// let scan = Scan::open(options, None, Vec::new(), &stores, &context)?;
/// let mut rows = 0;
/// for batch in scan.batches()? {
///     rows += batch?.num_rows();
/// }
/// assert_eq!(rows, 5);
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Scan {
    entries: Vec<ScanSource>,
    streams: Mutex<Vec<Option<SourceStream>>>,
    statics: Statics,
    options: ScanOptions,
    rows_max: usize,
    sizes: ScanSizes,
    /// Where files are; its account holds what is read and what waits.
    stores: Stores,
    context: Context,
    plan: ScanPlan,
    counts: ScanCounts,
    resolve_seconds: f64,
}

enum ScanPlan {
    /// While sources are opened.
    Undecided,
    Resolved {
        frozen: Box<Frozen>,
        known: Vec<ResolvedSource>,
        shapes: Vec<SchemaClass>,
    },
    Follow {
        request: Box<Request>,
        schema: SchemaRef,
        first: Mutex<Option<Box<FollowBatches>>>,
    },
}

/// What happened so far.
#[derive(Default)]
struct ScanCounts {
    rows: std::sync::atomic::AtomicU64,
    batches: AtomicUsize,
    opened: AtomicUsize,
    changes: Mutex<Vec<Change>>,
}

/// What a scan found and did so far.
#[derive(Debug, Serialize)]
pub struct ScanReport {
    /// Sources in all.
    pub sources: usize,
    /// Of these, files.
    pub files: usize,
    /// Distinct schemas among them.
    pub schemas: usize,
    /// Rows of all files, where footers were read.
    pub rows_known: Option<u64>,
    /// Sources whose rows were begun to be read.
    pub sources_opened: usize,
    /// Sources of which no row was read.
    pub sources_skipped: usize,
    /// Rows handed out.
    pub rows: u64,
    /// Batches handed out.
    pub batches: usize,
    /// In how many sources each column is.
    pub seen: BTreeMap<String, u64>,
    /// Seconds it took to resolve the schema.
    pub resolve_seconds: f64,
    /// Bytes read and batches that waited, at the worst.
    pub peak_bytes: u64,
    /// Changes of the schema, told by following.
    pub changes: Vec<ChangeReport>,
}

/// A change of the schema.
#[derive(Debug, Serialize)]
pub struct ChangeReport {
    /// The source that brought it.
    pub source: String,
    /// What changed.
    pub what: Vec<String>,
}

/// What becomes of one source.
#[derive(Debug, Serialize)]
pub struct SourcePlan {
    /// Its path, or the name of the stream.
    pub source: String,
    /// Its rows, where known.
    pub rows: Option<u64>,
    /// Every column of the output, and what is done for it.
    pub columns: Vec<(String, String)>,
}

impl Scan {
    /// Finds the sources and decides the schema: from all footers, or in mode `follow` from the first
    /// source alone.
    ///
    /// # Errors
    /// As `Stores::list`, `plait_core::schema::freeze` and opening files.
    pub fn open(
        options: ScanOptions,
        given: Option<SchemaRef>,
        streams: Vec<SourceStream>,
        stores: &Stores,
        context: &Context,
    ) -> Result<Arc<Self>> {
        let started = Instant::now();
        options.check_effects(given.is_some() || options.frozen.is_some())?;
        let mut scan = Self::undecided(options, streams, stores, context)?;
        let request = scan.request(given)?;
        scan.plan = if scan.options.is_follow()? {
            scan.begin_following(request)?
        } else {
            scan.resolve(&request, context)?
        };
        scan.resolve_seconds = started.elapsed().as_secs_f64();
        Ok(Arc::new(scan))
    }

    /// Finds the sources; nothing is decided yet.
    fn undecided(
        options: ScanOptions,
        streams: Vec<SourceStream>,
        stores: &Stores,
        context: &Context,
    ) -> Result<Self> {
        let entries = entries(&options, stores)?;
        if entries.is_empty() {
            return Err(Error::new(Kind::InvalidArgument, "there are no sources")
                .with_hint("name at least one file, folder, glob or stream"));
        }
        let statics = Statics::new(&options, &entries)?;
        let (rows_max, sizes) = (options.rows_max()?, options.sizes()?);
        Ok(Self {
            entries,
            streams: Mutex::new(streams.into_iter().map(Some).collect()),
            statics,
            rows_max,
            sizes,
            stores: stores.clone(),
            context: context.clone(),
            plan: ScanPlan::Undecided,
            options,
            counts: ScanCounts::default(),
            resolve_seconds: 0.0,
        })
    }

    fn request(&self, given: Option<SchemaRef>) -> Result<Request> {
        Ok(Request {
            policy: self.options.policy()?,
            columns: self.options.columns.clone(),
            schema: given,
            strict: self.options.strict,
            unknown_null: self.options.unknown_null()?,
            statics: self.statics.columns.clone(),
        })
    }

    fn resolve(&self, request: &Request, context: &Context) -> Result<ScanPlan> {
        let (known, shapes) = self.footers(context)?;
        let summary = self.summary(&known, &shapes);
        let frozen = match &self.options.frozen {
            Some(text) => {
                let frozen = frozen::read(text, request.policy.clone())?;
                frozen::check(&frozen, &summary)?;
                frozen
            }
            None => frozen::decide(&summary, request)?,
        };
        Ok(ScanPlan::Resolved { frozen: Box::new(frozen), known, shapes })
    }

    /// What all sources say of their columns.
    fn summary(&self, known: &[ResolvedSource], shapes: &[SchemaClass]) -> Summary {
        let mut summary = Summary::default();
        for (entry, known) in self.entries.iter().zip(known) {
            let Some(shape) = shapes.get(known.class) else { continue };
            summary.add(Class {
                fields: shape.schema.fields().clone(),
                first: entry.name.clone(),
                sources: 1,
                has_rows: known.footer.as_ref().is_none_or(|footer| footer.rows > 0),
            });
        }
        summary
    }

    /// Reads all footers, on all threads.
    fn footers(&self, context: &Context) -> Result<(Vec<ResolvedSource>, Vec<SchemaClass>)> {
        struct FoundFooters {
            shapes: Vec<SchemaClass>,
            place: HashMap<SchemaRef, usize>,
            known: Vec<Option<ResolvedSource>>,
            failed: Option<(usize, Error)>,
        }
        let found = Mutex::new(FoundFooters {
            shapes: Vec::new(),
            place: HashMap::new(),
            known: vec![None; self.entries.len()],
            failed: None,
        });
        let next = AtomicUsize::new(0);
        let lock = || found.lock().unwrap_or_else(PoisonError::into_inner);
        let work = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(entry) = self.entries.get(index) else { return };
                let read = context.check_cancelled().and_then(|()| match &entry.path {
                    Some(path) => file::open(path, &self.stores)
                        .map(|(_, meta, footer)| (meta.schema().clone(), Some(footer))),
                    None => self.stream_schema(entry).map(|schema| (schema, None)),
                });
                let mut found = lock();
                match read {
                    Ok((schema, footer)) => {
                        // Metadata of a whole schema is no column, and differs from file to file.
                        let schema = Arc::new(Schema::new(schema.fields().clone()));
                        let new = found.shapes.len();
                        let class = *found.place.entry(Arc::clone(&schema)).or_insert(new);
                        if class == new {
                            found.shapes.push(SchemaClass { schema, adapter: OnceLock::new() });
                        }
                        if let Some(slot) = found.known.get_mut(index) {
                            *slot = Some(ResolvedSource { class, footer });
                        }
                    }
                    Err(e) => {
                        // The first in order is told, whichever thread was faster.
                        if found.failed.as_ref().is_none_or(|(at, _)| index < *at) {
                            found.failed = Some((index, e));
                        }
                        next.store(self.entries.len(), Ordering::Relaxed);
                        return;
                    }
                }
            }
        };
        read::on_threads(self.sizes.threads.min(self.entries.len().div_ceil(8)), &work)?;
        let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, e)) = found.failed {
            return Err(e);
        }
        let known: Vec<ResolvedSource> = found.known.into_iter().flatten().collect();
        if known.len() != self.entries.len() {
            return Err(Error::new(Kind::Internal, "a source was not looked at"));
        }
        Ok((known, found.shapes))
    }

    fn stream_schema(&self, entry: &ScanSource) -> Result<SchemaRef> {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = streams.get(entry.stream).and_then(Option::as_ref);
        stream.map(RecordBatchReader::schema).ok_or_else(|| consumed(entry))
    }

    fn take_stream(&self, entry: &ScanSource) -> Result<SourceStream> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.get_mut(entry.stream).and_then(Option::take).ok_or_else(|| consumed(entry))
    }

    /// The values of static columns in one source.
    fn values(&self, index: usize) -> Result<Vec<(String, Value)>> {
        let path = self.entries.get(index).and_then(|entry| entry.path.as_deref());
        self.statics.values(index, path)
    }

    /// The schema of the batches; in mode `follow` that of the first.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        match &self.plan {
            ScanPlan::Resolved { frozen, .. } => frozen.schema(),
            ScanPlan::Follow { schema, .. } => schema,
            ScanPlan::Undecided => {
                static NONE: OnceLock<SchemaRef> = OnceLock::new();
                NONE.get_or_init(|| Arc::new(Schema::empty()))
            }
        }
    }

    /// Names the resolved schema; none in mode `follow`.
    #[must_use]
    pub fn fingerprint(&self) -> Option<&str> {
        match &self.plan {
            ScanPlan::Resolved { frozen, .. } => Some(frozen.fingerprint()),
            ScanPlan::Follow { .. } | ScanPlan::Undecided => None,
        }
    }

    /// The resolved schema and what was decided beside it, for scans of some of the files; none in mode
    /// `follow`.
    ///
    /// # Errors
    /// A schema that cannot be written.
    pub fn frozen(&self) -> Result<Option<String>> {
        match &self.plan {
            ScanPlan::Resolved { frozen, .. } => frozen::write(frozen).map(Some),
            ScanPlan::Follow { .. } | ScanPlan::Undecided => Ok(None),
        }
    }

    /// The batches, from the first row on. Streams can be read once.
    ///
    /// # Errors
    /// In mode `follow`: as opening the first source.
    pub fn batches(self: &Arc<Self>) -> Result<SourceStream> {
        match &self.plan {
            ScanPlan::Resolved { .. } | ScanPlan::Undecided => {
                Ok(Box::new(ResolvedBatches::new(Arc::clone(self))))
            }
            ScanPlan::Follow { request, schema, first } => {
                let held = first.lock().unwrap_or_else(PoisonError::into_inner).take();
                let batches = match held {
                    Some(held) => *held,
                    None => FollowBatches::new(self, self.follow(request)?)?,
                };
                Ok(Box::new(follow::Attached::new(Arc::clone(self), batches, Arc::clone(schema))))
            }
        }
    }

    fn follow(&self, request: &Request) -> Result<Follow> {
        let null_type = self.options.null_type.as_deref().map(options::type_named).transpose()?;
        let refuse = self.options.refuses_changes()?;
        Ok(Follow::new(request.clone(), self.options.is_smooth(), refuse, null_type))
    }

    /// Reads the first batch, which has the schema; it is held, and given first.
    fn begin_following(&self, request: Request) -> Result<ScanPlan> {
        let follow = self.follow(&request)?;
        let mut first = FollowBatches::new(self, follow)?;
        let schema = first.peek(self)?;
        let first = Mutex::new(Some(Box::new(first)));
        Ok(ScanPlan::Follow { request: Box::new(request), schema, first })
    }

    /// What becomes of every source; in mode `follow` nothing is known beforehand.
    #[must_use]
    pub fn explain(&self) -> Vec<SourcePlan> {
        let ScanPlan::Resolved { frozen, known, shapes } = &self.plan else { return Vec::new() };
        let mut plans = Vec::with_capacity(known.len());
        // What does not adapt has no rows.
        let words: Vec<Vec<(String, String)>> = shapes
            .iter()
            .map(|shape| frozen.adapter_template(&shape.schema).map(|adapter| adapter.describe()))
            .map(Result::unwrap_or_default)
            .collect();
        for (entry, known) in self.entries.iter().zip(known) {
            plans.push(SourcePlan {
                source: entry.name.clone(),
                rows: known.footer.as_ref().map(|footer| footer.rows),
                columns: words.get(known.class).cloned().unwrap_or_default(),
            });
        }
        plans
    }

    /// What was found and done so far.
    #[must_use]
    pub fn report(&self) -> ScanReport {
        let (schemas, rows_known, seen) = match &self.plan {
            ScanPlan::Resolved { known, shapes, .. } => {
                let rows = known.iter().map(|k| k.footer.as_ref().map(|f| f.rows)).sum();
                let mut seen: BTreeMap<String, u64> = BTreeMap::new();
                for known in known {
                    let fields = shapes.get(known.class).map(|shape| shape.schema.fields());
                    for field in fields.into_iter().flatten() {
                        *seen.entry(field.name().clone()).or_default() += 1;
                    }
                }
                (shapes.len(), rows, seen)
            }
            ScanPlan::Follow { .. } | ScanPlan::Undecided => (0, None, BTreeMap::new()),
        };
        let opened = self.counts.opened.load(Ordering::Relaxed);
        let changes = self.counts.changes.lock().unwrap_or_else(PoisonError::into_inner);
        ScanReport {
            sources: self.entries.len(),
            files: self.entries.iter().filter(|entry| entry.path.is_some()).count(),
            schemas,
            rows_known,
            sources_opened: opened,
            sources_skipped: self.entries.len().saturating_sub(opened),
            rows: self.counts.rows.load(Ordering::Relaxed),
            batches: self.counts.batches.load(Ordering::Relaxed),
            seen,
            resolve_seconds: self.resolve_seconds,
            peak_bytes: self.context.account().peak_bytes(),
            changes: changes
                .iter()
                .map(|c| ChangeReport { source: c.source.clone(), what: c.what.clone() })
                .collect(),
        }
    }

    /// Counts a batch that is handed out.
    fn count(&self, rows: usize) {
        self.counts.rows.fetch_add(rows as u64, Ordering::Relaxed);
        self.counts.batches.fetch_add(1, Ordering::Relaxed);
    }
}

fn consumed(entry: &ScanSource) -> Error {
    Error::new(Kind::InvalidArgument, "stream was read before")
        .with_path(entry.name.as_str())
        .with_hint("a stream is read once; scan it again to read it again")
}

fn entries(options: &ScanOptions, stores: &Stores) -> Result<Vec<ScanSource>> {
    let mut entries = Vec::new();
    let mut patterns: Vec<String> = Vec::new();
    let flush = |patterns: &mut Vec<String>, entries: &mut Vec<ScanSource>| -> Result<()> {
        if !patterns.is_empty() {
            for (folder, paths) in stores.list_each(patterns)? {
                for path in paths {
                    let (name, folder) = (path.clone(), folder.clone());
                    entries.push(ScanSource { name, path: Some(path), folder, stream: 0 });
                }
            }
            patterns.clear();
        }
        Ok(())
    };
    for named in &options.sources {
        match named {
            Named::Files(pattern) => patterns.push(pattern.clone()),
            Named::Stream(stream) => {
                flush(&mut patterns, &mut entries)?;
                entries.push(ScanSource {
                    name: format!("<stream {stream}>"),
                    path: None,
                    folder: None,
                    stream: *stream,
                });
            }
        }
    }
    flush(&mut patterns, &mut entries)?;
    let mut seen = std::collections::BTreeSet::new();
    for entry in &entries {
        if !seen.insert(&entry.name) {
            return Err(Error::new(Kind::InvalidArgument, "same source given twice")
                .with_path(entry.name.as_str())
                .with_hint("its rows would appear twice; name every source once"));
        }
    }
    Ok(entries)
}
